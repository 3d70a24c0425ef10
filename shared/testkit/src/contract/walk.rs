//! The rules of [`domain::ports::Walk`].

use std::collections::BTreeSet;

use domain::{
    bulk::{Mark, Part},
    id::ReplayId,
    inbox::{NewRow, Noted, Replayed, Status},
    ports::{Again, DueInbox as _, Inbox as _, StoreError, Walk as _},
};
use jiff::{Timestamp, civil::Date, tz::TimeZone};
use uuid::Uuid;

use super::{
    Kept, Tables,
    given::{DAY, accepted, at, claim, failure, processed, read, row},
    rules,
};

/// Runs the rules of [`domain::ports::Walk`], each on fresh tables.
pub async fn walk<T: Tables>(fresh: impl AsyncFn() -> T) {
    rules!(fresh:
        parked_rows_come_oldest_first_page_by_page_and_none_twice,
        rows_parked_later_are_not_in_the_walk,
        people_see_the_latest_parked_rows_first,
        rows_of_a_day_come_by_source_in_whatever_status,
        pending_rows_that_wait_come_by_due_time,
        a_page_goes_on_although_its_last_row_has_moved,
        a_row_is_armed_again_exactly_as_it_was_read,
        a_finished_row_is_armed_again_and_stays,
        a_row_of_another_cycle_or_status_is_left,
        of_many_at_once_one_takes_a_row_and_the_others_hear_that_it_was_taken,
        a_row_taken_by_other_work_is_not_taken_as_it_was_read_before,
        a_waiting_row_becomes_due_sooner_in_its_cycle,
    );
}

fn work(number: u128) -> ReplayId {
    ReplayId::new(Uuid::from_u128(number))
}

fn taken_by(number: u128) -> Option<Replayed> {
    Some(Replayed { by: work(number), from: Status::DeadLetter })
}

async fn parked(on: &impl Tables, event: &str, seconds: i64) -> Kept {
    accepted(on, event).await?;
    let noted = on.inbox().park(&claim(event, 0), 12, &failure(), at(seconds)).await?;
    assert_eq!(noted, Noted::Yes);
    Ok(())
}

/// Everything in a partition, by pages of this size.
async fn all(on: &impl Tables, part: &Part, size: usize) -> Result<Vec<Mark>, StoreError> {
    let mut all: Vec<Mark> = Vec::new();
    loop {
        let page = on.inbox().page(part, all.last(), size).await?;
        assert!(page.marks.len() <= size);
        all.extend(page.marks);
        if !page.more {
            return Ok(all);
        }
    }
}

fn events(marks: &[Mark]) -> BTreeSet<&str> {
    marks.iter().map(|mark| mark.key.event_id()).collect()
}

async fn dead(on: &impl Tables, until: i64, size: usize) -> Result<Vec<Mark>, StoreError> {
    let mut found = Vec::new();
    for shard in 0..on.shards() {
        let marks = all(on, &Part::Dead { shard, until: at(until) }, size).await?;
        assert!(marks.is_sorted_by_key(|mark| mark.at));
        found.extend(marks);
    }
    Ok(found)
}

async fn parked_rows_come_oldest_first_page_by_page_and_none_twice(on: &impl Tables) -> Kept {
    for n in 0..40 {
        // Many of one time: the order among them is the store's, and the pages still are.
        parked(on, &format!("evt_{n}"), 100 + (n * 17) % 5).await?;
    }
    accepted(on, "evt_pending").await?;
    for size in [1, 3, 100] {
        let marks = dead(on, 1_000, size).await?;
        assert_eq!((marks.len(), events(&marks).len()), (40, 40), "pages of {size}");
    }
    for mark in dead(on, 1_000, 7).await? {
        assert_eq!(read(on, mark.key.event_id()).await?.dead_at, Some(mark.at));
    }
    Ok(())
}

async fn rows_parked_later_are_not_in_the_walk(on: &impl Tables) -> Kept {
    for n in 0..10 {
        parked(on, &format!("evt_{n}"), n).await?;
    }
    assert_eq!(
        events(&dead(on, 4, 2).await?),
        ["evt_0", "evt_1", "evt_2", "evt_3", "evt_4"].into()
    );
    Ok(())
}

async fn people_see_the_latest_parked_rows_first(on: &impl Tables) -> Kept {
    for n in 0..20 {
        parked(on, &format!("evt_{n}"), 100 + n / 2).await?;
    }
    for size in [1, 3, 100] {
        let mut found = 0;
        for shard in 0..on.shards() {
            let marks = all(on, &Part::Parked { shard, until: at(105) }, size).await?;
            assert!(marks.iter().rev().is_sorted_by_key(|mark| mark.at));
            assert_eq!(events(&marks).len(), marks.len());
            found += marks.len();
        }
        assert_eq!(found, 12, "pages of {size}");
    }
    Ok(())
}

fn day(at: Timestamp) -> Date {
    TimeZone::UTC.to_datetime(at).date()
}

async fn received(on: &impl Tables, source: &str, at: Timestamp) -> Result<Vec<Mark>, StoreError> {
    let mut found = Vec::new();
    for shard in 0..on.shards() {
        let part = Part::Received { source: source.parse().unwrap(), day: day(at), shard };
        found.extend(all(on, &part, 3).await?);
    }
    Ok(found)
}

async fn rows_of_a_day_come_by_source_in_whatever_status(on: &impl Tables) -> Kept {
    for n in 0..9 {
        let received_at = at(if n < 7 { n } else { DAY + n });
        let new = NewRow { received_at, ..row(&format!("evt_{n}"), "t", b"{}") };
        on.inbox().accept(&new).await?;
    }
    let other = super::given::key("other", "evt_0");
    on.inbox().accept(&NewRow { key: other, ..row("x", "t", b"{}") }).await?;
    let noted = on.inbox().finish(&claim("evt_0", 0), &processed(at(5))).await?;
    assert_eq!(noted, Noted::Yes);
    let noted = on.inbox().park(&claim("evt_1", 0), 12, &failure(), at(5)).await?;
    assert_eq!(noted, Noted::Yes);
    let today = received(on, "stripe", at(0)).await?;
    assert_eq!((today.len(), events(&today).len()), (7, 7));
    assert_eq!(received(on, "stripe", at(DAY)).await?.len(), 2);
    assert_eq!(received(on, "other", at(0)).await?.len(), 1);
    assert!(received(on, "stripe", at(-DAY)).await?.is_empty());
    Ok(())
}

async fn pending_rows_that_wait_come_by_due_time(on: &impl Tables) -> Kept {
    for n in 0..10 {
        let new = NewRow { due_at: at(100 + n), ..row(&format!("evt_{n}"), "t", b"{}") };
        on.inbox().accept(&new).await?;
    }
    parked(on, "evt_dead", 5).await?;
    let mut found = Vec::new();
    for shard in 0..on.shards() {
        found.extend(all(on, &Part::Due { shard, after: at(104) }, 2).await?);
    }
    assert_eq!(events(&found), ["evt_5", "evt_6", "evt_7", "evt_8", "evt_9"].into());
    Ok(())
}

async fn a_page_goes_on_although_its_last_row_has_moved(on: &impl Tables) -> Kept {
    for n in 0..24 {
        parked(on, &format!("evt_{n}"), n).await?;
    }
    let mut taken = 0;
    for shard in 0..on.shards() {
        let part = Part::Dead { shard, until: at(1_000) };
        let mut last: Option<Mark> = None;
        loop {
            let page = on.inbox().page(&part, last.as_ref(), 2).await?;
            for mark in &page.marks {
                let row = read(on, mark.key.event_id()).await?;
                assert_eq!(on.inbox().again(&row, work(1), at(300), at(200)).await?, Again::Yes);
                taken += 1;
            }
            last = page.marks.last().cloned().or(last);
            if !page.more {
                break;
            }
        }
    }
    assert_eq!(taken, 24);
    assert!(dead(on, 1_000, 9).await?.is_empty());
    Ok(())
}

async fn a_row_is_armed_again_exactly_as_it_was_read(on: &impl Tables) -> Kept {
    parked(on, "evt_1", 5).await?;
    let before = read(on, "evt_1").await?;
    assert_eq!(before.replay, None);
    assert_eq!(on.inbox().again(&before, work(1), at(300), at(200)).await?, Again::Yes);
    let after = read(on, "evt_1").await?;
    assert_eq!((after.status, after.cycle, after.attempts), (Status::Pending, 1, 0));
    assert_eq!((after.due_at, after.dead_at), (Some(at(300)), None));
    assert_eq!((after.armed_at, after.replay), (at(200), taken_by(1)));
    // What came in stays as it came in.
    assert_eq!(after.new.received_at, before.new.received_at);
    assert_eq!(
        (after.new.occurred_at, after.new.origin),
        (before.new.occurred_at, before.new.origin)
    );
    assert_eq!((&after.new.body, &after.new.key_id), (&before.new.body, &before.new.key_id));
    assert_eq!(after.last_error, before.last_error, "until there is a newer one");
    let due =
        super::given::in_all_shards(on, async |shard| on.inbox().due(shard, at(300), 10).await);
    assert_eq!(due.await?, [before.new.key]);
    Ok(())
}

async fn a_finished_row_is_armed_again_and_stays(on: &impl Tables) -> Kept {
    let new = accepted(on, "evt_1").await?;
    let noted = on.inbox().finish(&claim("evt_1", 0), &processed(at(5))).await?;
    assert_eq!(noted, Noted::Yes);
    let row = read(on, "evt_1").await?;
    assert_eq!(on.inbox().again(&row, work(1), at(300), at(200)).await?, Again::Yes);
    // It has no expiry any more: long after, it still is there, and a duplicate is one.
    let late = NewRow { received_at: at(90 * DAY), token: "late".to_owned(), ..new };
    let accepted = on.inbox().accept(&late).await?;
    let expected = domain::inbox::Accepted::Duplicate { status: Status::Pending, same_body: true };
    assert_eq!(accepted, expected);
    Ok(())
}

async fn a_row_of_another_cycle_or_status_is_left(on: &impl Tables) -> Kept {
    parked(on, "evt_1", 5).await?;
    let parked = read(on, "evt_1").await?;
    assert_eq!(on.inbox().rearm(&parked.new.key, at(300), at(200)).await?, Noted::Yes);
    assert_eq!(on.inbox().again(&parked, work(1), at(300), at(201)).await?, Again::Moved);
    let noted = on.inbox().park(&claim("evt_1", 1), 12, &failure(), at(210)).await?;
    assert_eq!(noted, Noted::Yes);
    // Parked again, but not as it was read.
    assert_eq!(on.inbox().again(&parked, work(1), at(300), at(220)).await?, Again::Moved);
    let row = read(on, "evt_1").await?;
    assert_eq!((row.cycle, row.status, row.replay), (1, Status::DeadLetter, None));
    Ok(())
}

async fn of_many_at_once_one_takes_a_row_and_the_others_hear_that_it_was_taken(
    on: &impl Tables,
) -> Kept {
    parked(on, "evt_1", 5).await?;
    let row = read(on, "evt_1").await?;
    let takes = (0..16).map(|_| on.inbox().again(&row, work(1), at(300), at(200)));
    let takes = futures_util::future::try_join_all(takes).await?;
    assert_eq!(takes.iter().filter(|again| **again == Again::Yes).count(), 1);
    assert_eq!(takes.iter().filter(|again| **again == Again::Before).count(), 15);
    assert_eq!(read(on, "evt_1").await?.cycle, 1);
    Ok(())
}

async fn a_row_taken_by_other_work_is_not_taken_as_it_was_read_before(on: &impl Tables) -> Kept {
    parked(on, "evt_1", 5).await?;
    let row = read(on, "evt_1").await?;
    assert_eq!(on.inbox().again(&row, work(1), at(300), at(200)).await?, Again::Yes);
    assert_eq!(on.inbox().again(&row, work(2), at(300), at(200)).await?, Again::Moved);
    assert_eq!(read(on, "evt_1").await?.replay, taken_by(1));
    Ok(())
}

async fn a_waiting_row_becomes_due_sooner_in_its_cycle(on: &impl Tables) -> Kept {
    accepted(on, "evt_1").await?;
    let noted = on.inbox().note(&claim("evt_1", 0), &super::given::note(0, at(20_000))).await?;
    assert_eq!(noted, Noted::Yes);
    let waiting = read(on, "evt_1").await?;
    assert_eq!(on.inbox().sooner(&waiting, work(1), at(300)).await?, Again::Yes);
    let row = read(on, "evt_1").await?;
    assert_eq!((row.due_at, row.cycle, row.status), (Some(at(300)), 0, Status::Pending));
    assert_eq!(on.inbox().sooner(&waiting, work(1), at(300)).await?, Again::Before);
    assert_eq!(on.inbox().sooner(&waiting, work(2), at(300)).await?, Again::Moved);
    let noted = on.inbox().finish(&claim("evt_1", 0), &processed(at(5))).await?;
    assert_eq!(noted, Noted::Yes);
    assert_eq!(on.inbox().sooner(&row, work(2), at(300)).await?, Again::Moved);
    assert_eq!(read(on, "evt_1").await?.due_at, None);
    Ok(())
}
