//! The rules of [`domain::ports::DueInbox`].

use std::collections::BTreeSet;

use domain::{
    id::{InboxKey, SourceName},
    inbox::{Accepted, NewRow, Noted, Status},
    ports::{Backlog, DueInbox as _, Inbox as _, Pending, StoreError},
};
use jiff::Timestamp;

use super::{
    Kept, Tables,
    given::{accepted, at, claim, failure, in_all_shards, key, processed, read, row},
    rules,
};

/// Runs the rules of [`domain::ports::DueInbox`], each on fresh tables.
pub async fn due_inbox<T: Tables>(fresh: impl AsyncFn() -> T) {
    rules!(fresh:
        rows_are_due_oldest_first_and_not_before_their_time,
        a_limit_gives_the_oldest,
        every_pending_row_is_in_one_shard,
        what_is_not_pending_is_not_due,
        a_claim_moves_the_due_time_and_counts,
        a_row_that_is_not_as_read_is_not_claimed,
        of_many_sweepers_one_claims,
        the_backlog_counts_what_is_pending_since_it_was_received,
        rows_of_paused_sources_are_counted_apart,
        parked_rows_are_counted_and_listed_newest_first,
    );
}

/// Reads a row and claims it.
pub(super) async fn claim_once(
    on: &impl Tables,
    event: &str,
    due_at: Timestamp,
) -> Result<Noted, StoreError> {
    let row = read(on, event).await?;
    on.inbox().claim(&row, due_at).await
}

/// Accepts an event that is received and due at other times.
async fn waiting(
    on: &impl Tables,
    event: &str,
    received: i64,
    due: i64,
) -> Result<NewRow, StoreError> {
    let row = NewRow { received_at: at(received), due_at: at(due), ..row(event, "t", b"{}") };
    on.inbox().accept(&row).await?;
    Ok(row)
}

async fn due(on: &impl Tables, now: Timestamp) -> Result<Vec<InboxKey>, StoreError> {
    in_all_shards(on, async |shard| on.inbox().due(shard, now, 100).await).await
}

async fn rows_are_due_oldest_first_and_not_before_their_time(on: &impl Tables) -> Kept {
    for n in 0..40 {
        // In no order.
        let seconds = 100 + (n * 17) % 40;
        waiting(on, &format!("evt_{n}"), 0, seconds).await?;
    }
    let due_at = async |key: InboxKey| -> Result<Timestamp, StoreError> {
        Ok(on.inbox().read(&key).await?.unwrap().due_at.unwrap())
    };
    let mut found = 0;
    for shard in 0..on.shards() {
        let mut times = Vec::new();
        for key in on.inbox().due(shard, at(119), 100).await? {
            times.push(due_at(key).await?);
        }
        assert!(times.is_sorted(), "{times:?}");
        assert!(times.iter().all(|time| *time <= at(119)));
        found += times.len();
    }
    assert_eq!(found, 20);
    assert!(due(on, at(99)).await?.is_empty());
    Ok(())
}

async fn a_limit_gives_the_oldest(on: &impl Tables) -> Kept {
    for n in 0..40 {
        waiting(on, &format!("evt_{n}"), 0, 100 + (n * 17) % 40).await?;
    }
    for shard in 0..on.shards() {
        let all = on.inbox().due(shard, at(200), 100).await?;
        let some = on.inbox().due(shard, at(200), 3).await?;
        assert_eq!(some, all.iter().take(3).cloned().collect::<Vec<_>>());
        assert!(on.inbox().due(shard, at(200), 0).await?.is_empty());
    }
    Ok(())
}

async fn every_pending_row_is_in_one_shard(on: &impl Tables) -> Kept {
    let mut put = Vec::new();
    for n in 0..40 {
        put.push(waiting(on, &format!("evt_{n}"), 0, 100).await?.key);
    }
    let mut found = due(on, at(100)).await?;
    put.sort();
    found.sort();
    assert_eq!(found, put);
    Ok(())
}

async fn what_is_not_pending_is_not_due(on: &impl Tables) -> Kept {
    let parked = accepted(on, "evt_1").await?;
    accepted(on, "evt_2").await?;
    assert_eq!(on.inbox().park(&claim("evt_1", 0), 12, &failure(), at(5)).await?, Noted::Yes);
    assert_eq!(on.inbox().finish(&claim("evt_2", 0), &processed(at(5))).await?, Noted::Yes);
    assert!(due(on, at(10_000)).await?.is_empty());
    // And again when it is pending again.
    assert_eq!(on.inbox().rearm(&parked.key, at(300), at(200)).await?, Noted::Yes);
    assert!(due(on, at(299)).await?.is_empty());
    assert_eq!(due(on, at(300)).await?, [parked.key]);
    Ok(())
}

async fn a_claim_moves_the_due_time_and_counts(on: &impl Tables) -> Kept {
    let new = accepted(on, "evt_1").await?;
    assert_eq!(claim_once(on, "evt_1", at(720)).await?, Noted::Yes);
    let row = read(on, "evt_1").await?;
    assert_eq!((row.sweeps, row.due_at, row.attempts), (1, Some(at(720)), 0));
    assert_eq!(row.status, Status::Pending);
    assert!(due(on, at(719)).await?.is_empty());
    assert_eq!(due(on, at(720)).await?, [new.key]);
    assert_eq!(claim_once(on, "evt_1", at(1_920)).await?, Noted::Yes);
    assert_eq!(read(on, "evt_1").await?.sweeps, 2);
    Ok(())
}

async fn a_row_that_is_not_as_read_is_not_claimed(on: &impl Tables) -> Kept {
    let inbox = on.inbox();
    accepted(on, "evt_1").await?;
    let row = read(on, "evt_1").await?;
    assert_eq!(inbox.claim(&row, at(720)).await?, Noted::Yes);
    assert_eq!(inbox.claim(&row, at(720)).await?, Noted::Moved, "claimed by another");
    let row = read(on, "evt_1").await?;
    assert_eq!(row.sweeps, 1);
    let noted = inbox.note(&claim("evt_1", 0), &super::given::note(1, at(800))).await?;
    assert_eq!(noted, Noted::Yes);
    assert_eq!(inbox.claim(&row, at(900)).await?, Noted::Moved, "tried meanwhile");
    let row = read(on, "evt_1").await?;
    assert_eq!(inbox.finish(&claim("evt_1", 0), &processed(at(5))).await?, Noted::Yes);
    assert_eq!(inbox.claim(&row, at(900)).await?, Noted::Moved, "finished meanwhile");
    let finished = read(on, "evt_1").await?;
    assert_eq!(inbox.claim(&finished, at(900)).await?, Noted::Moved, "read as finished");
    assert_eq!(read(on, "evt_1").await?, finished);
    Ok(())
}

async fn of_many_sweepers_one_claims(on: &impl Tables) -> Kept {
    accepted(on, "evt_1").await?;
    let row = read(on, "evt_1").await?;
    let claims = (0..16).map(|_| on.inbox().claim(&row, at(720)));
    let claims = futures_util::future::try_join_all(claims).await?;
    assert_eq!(claims.iter().filter(|noted| **noted == Noted::Yes).count(), 1);
    assert_eq!(read(on, "evt_1").await?.sweeps, 1);
    Ok(())
}

async fn the_backlog_counts_what_is_pending_since_it_was_received(on: &impl Tables) -> Kept {
    let pending = async || {
        let all = all_pending(on, &BTreeSet::new()).await?;
        assert_eq!(all.paused, Backlog::default());
        Ok::<_, StoreError>(all.owed)
    };
    assert_eq!(pending().await?, Backlog::default());
    waiting(on, "evt_1", 0, 120).await?;
    waiting(on, "evt_2", 30, 150).await?;
    waiting(on, "evt_3", 60, 180).await?;
    assert_eq!(pending().await?, Backlog { count: 3, oldest: Some(at(0)) });
    // The oldest stays the oldest, however late it is due.
    assert_eq!(claim_once(on, "evt_1", at(20_000)).await?, Noted::Yes);
    assert_eq!(pending().await?, Backlog { count: 3, oldest: Some(at(0)) });
    assert_eq!(on.inbox().finish(&claim("evt_1", 0), &processed(at(5))).await?, Noted::Yes);
    assert_eq!(pending().await?, Backlog { count: 2, oldest: Some(at(30)) });
    assert_eq!(on.inbox().park(&claim("evt_2", 0), 1, &failure(), at(90)).await?, Noted::Yes);
    assert_eq!(pending().await?, Backlog { count: 1, oldest: Some(at(60)) });
    Ok(())
}

async fn all_pending(
    on: &impl Tables,
    paused: &BTreeSet<SourceName>,
) -> Result<Pending, StoreError> {
    let each = async |shard| Ok(vec![on.inbox().pending(shard, paused).await?]);
    Ok(in_all_shards(on, each).await?.into_iter().fold(Pending::default(), Pending::and))
}

async fn rows_of_paused_sources_are_counted_apart(on: &impl Tables) -> Kept {
    waiting(on, "evt_1", 30, 150).await?;
    waiting(on, "evt_2", 60, 180).await?;
    let elsewhere = |id: &str, second| NewRow {
        key: key("github", id),
        received_at: at(second),
        ..row(id, "t", b"{}")
    };
    for (id, second) in [("evt_1", 10), ("evt_3", 90)] {
        assert_eq!(on.inbox().accept(&elsewhere(id, second)).await?, Accepted::New);
    }
    let backlog = |count, second| Backlog { count, oldest: Some(at(second)) };
    let github = [key("github", "evt_1").source().clone()].into();
    let apart = Pending { owed: backlog(2, 30), paused: backlog(2, 10) };
    assert_eq!(all_pending(on, &github).await?, apart);
    let other = ["nobody".parse().unwrap()].into();
    let together = Pending { owed: backlog(4, 10), paused: Backlog::default() };
    assert_eq!(all_pending(on, &other).await?, together);
    Ok(())
}

async fn parked_rows_are_counted_and_listed_newest_first(on: &impl Tables) -> Kept {
    for n in 0..40 {
        let event = format!("evt_{n}");
        accepted(on, &event).await?;
        let parked_at = at(100 + (n * 17) % 40);
        let parked = on.inbox().park(&claim(&event, 0), 12, &failure(), parked_at).await?;
        assert_eq!(parked, Noted::Yes);
    }
    let mut count = 0;
    for shard in 0..on.shards() {
        let keys = on.inbox().parked_keys(shard, 100).await?;
        assert_eq!(on.inbox().parked(shard).await?, keys.len() as u64);
        let mut times = Vec::new();
        for key in &keys {
            times.push(on.inbox().read(key).await?.unwrap().dead_at.unwrap());
        }
        assert!(times.iter().rev().is_sorted(), "{times:?}");
        let newest = on.inbox().parked_keys(shard, 2).await?;
        assert_eq!(newest, keys.iter().take(2).cloned().collect::<Vec<_>>());
        count += keys.len();
    }
    assert_eq!(count, 40);
    let key = row("evt_0", "t", b"{}").key;
    assert_eq!(on.inbox().rearm(&key, at(300), at(200)).await?, Noted::Yes);
    let left = in_all_shards(on, async |shard| on.inbox().parked_keys(shard, 100).await).await?;
    assert!(left.len() == 39 && !left.contains(&key));
    Ok(())
}
