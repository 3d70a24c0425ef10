//! The rules of [`domain::ports::Outbox`].

use domain::{
    body::Sha256Hash,
    id::{EndpointId, EventId, TenantId},
    outbox::{OutboxEvent, OutboxRow, Payload, Relayed},
    ports::{Backlog, Outbox as _, Published, StoreError},
};
use futures_util::future::join_all;
use jiff::Timestamp;
use uuid::Uuid;

use super::{
    Kept, Tables,
    given::{DAY, at, event_id, in_all_shards, outgoing},
    rules,
};

/// Runs the rules of [`domain::ports::Outbox`], each on fresh tables.
pub async fn outbox<T: Tables>(fresh: impl AsyncFn() -> T) {
    rules!(fresh:
        a_published_event_reads_back_byte_by_byte,
        the_same_request_again_has_the_first_event,
        an_idempotency_key_holds_for_its_event_and_its_tenant,
        of_many_same_requests_at_once_one_is_written,
        a_relayed_event_says_to_whom_and_is_no_longer_owed,
        marking_what_is_not_there_makes_nothing,
        an_event_whose_endpoints_are_known_is_never_owed,
        what_is_unrelayed_is_given_oldest_first_and_strictly_before,
        the_backlog_counts_what_is_still_new,
        an_event_in_steps_says_how_far_it_is_and_stays_owed,
        what_was_relayed_to_nobody_is_listed_for_its_tenant,
    );
}

fn demo() -> TenantId {
    "demo".parse().unwrap()
}

/// INB-raw-bytes-kept
async fn a_published_event_reads_back_byte_by_byte(on: &impl Tables) -> Kept {
    let raw = "{\"id\":9007199254740993,\"a\":1.0,\"a\":2.50,\"big\":1e400}\u{0}\n".as_bytes();
    let inline = outgoing(event_id(0, 1), raw);
    let bucket = OutboxEvent {
        payload: Payload::Bucket(Sha256Hash::of(raw)),
        aggregate_version: None,
        traceparent: None,
        labels: [("region".to_owned(), "eu".to_owned()), ("shop".to_owned(), "\"7\"".to_owned())]
            .into(),
        ..outgoing(event_id(0, 2), b"")
    };
    let empty = outgoing(event_id(0, 3), b"");
    for event in [inline, bucket, empty] {
        assert_eq!(on.outbox().event(&demo(), event.id).await?, None);
        assert_eq!(on.outbox().publish(&event, None).await?, Published::New);
        let row = on.outbox().event(&demo(), event.id).await?.unwrap();
        assert_eq!(row, OutboxRow { event: event.clone(), relayed: None });
        // An id belongs to its tenant.
        assert_eq!(on.outbox().event(&"other".parse().unwrap(), event.id).await?, None);
    }
    Ok(())
}

/// OUT-error-after-commit
async fn the_same_request_again_has_the_first_event(on: &impl Tables) -> Kept {
    let first = outgoing(event_id(0, 1), b"body");
    assert_eq!(on.outbox().publish(&first, Some("k")).await?, Published::New);
    // A retry inside a client keeps the id; one of the caller gets a new one, days later.
    assert_eq!(once_more(on, &first).await?, first.id);
    for seconds in [1, DAY, 89 * DAY] {
        let again = outgoing(event_id(seconds, 2), b"body");
        assert_eq!(on.outbox().publish(&again, Some("k")).await?, Published::Before(first.id));
        assert_eq!(on.outbox().event(&demo(), again.id).await?, None);
    }
    assert_eq!(on.outbox().event(&demo(), first.id).await?.unwrap().event, first);
    Ok(())
}

/// The event of a request that is repeated unchanged: new, for all its caller can tell, or the one before.
async fn once_more(on: &impl Tables, event: &OutboxEvent) -> Result<EventId, StoreError> {
    match on.outbox().publish(event, Some("k")).await? {
        Published::New => Ok(event.id),
        Published::Before(id) => Ok(id),
        Published::Other => panic!("the event is the same"),
    }
}

async fn an_idempotency_key_holds_for_its_event_and_its_tenant(on: &impl Tables) -> Kept {
    let first = outgoing(event_id(0, 1), b"body");
    let changed = outgoing(event_id(1, 2), b"other body");
    let elsewhere =
        OutboxEvent { tenant: "other".parse().unwrap(), ..outgoing(event_id(1, 3), b"body") };
    let other_key = outgoing(event_id(1, 4), b"body");
    assert_eq!(on.outbox().publish(&first, Some("k")).await?, Published::New);
    let same = outgoing(event_id(1, 2), b"body");
    let others = [
        changed.clone(),
        OutboxEvent { event_type: "other".to_owned(), ..same.clone() },
        OutboxEvent { schema_version: same.schema_version + 1, ..same.clone() },
        OutboxEvent { aggregate_id: "other".to_owned(), ..same.clone() },
        OutboxEvent { labels: [("region".to_owned(), "eu".to_owned())].into(), ..same.clone() },
        OutboxEvent { aggregate_version: Some(99), ..same },
    ];
    for other in others {
        assert_eq!(on.outbox().publish(&other, Some("k")).await?, Published::Other, "{other:?}");
        assert_eq!(on.outbox().event(&demo(), other.id).await?, None);
    }
    assert_eq!(on.outbox().publish(&elsewhere, Some("k")).await?, Published::New);
    assert_eq!(on.outbox().publish(&other_key, Some("k#2")).await?, Published::New);
    assert_eq!(on.outbox().publish(&changed, None).await?, Published::New);
    Ok(())
}

async fn of_many_same_requests_at_once_one_is_written(on: &impl Tables) -> Kept {
    let events: Vec<_> = (0..32).map(|n| outgoing(event_id(0, n), b"body")).collect();
    let answers = join_all(events.iter().map(|event| on.outbox().publish(event, Some("k")))).await;
    let answers: Vec<_> = answers.into_iter().collect::<Result<_, _>>()?;
    let winners = events.iter().zip(&answers).filter(|(_, answer)| **answer == Published::New);
    let winners: Vec<_> = winners.map(|(event, _)| event.id).collect();
    let [winner] = winners.as_slice() else { panic!("{winners:?}") };
    for (event, answer) in events.iter().zip(&answers) {
        let there = on.outbox().event(&demo(), event.id).await?.is_some();
        assert_eq!(there, event.id == *winner);
        assert!(there || *answer == Published::Before(*winner));
    }
    Ok(())
}

async fn unrelayed(
    on: &impl Tables,
    before: Timestamp,
) -> Result<Vec<(TenantId, EventId)>, StoreError> {
    in_all_shards(on, async |shard| on.outbox().unrelayed(shard, before, 100).await).await
}

async fn a_relayed_event_says_to_whom_and_is_no_longer_owed(on: &impl Tables) -> Kept {
    let endpoint = |n| EndpointId::new(Uuid::from_u128(n));
    for (n, endpoints) in [(1, vec![endpoint(1), endpoint(2)]), (2, Vec::new())] {
        let event = outgoing(event_id(0, n), b"body");
        assert_eq!(on.outbox().publish(&event, None).await?, Published::New);
        assert_eq!(unrelayed(on, at(60)).await?, [(demo(), event.id)]);
        let relayed = Relayed { at: at(5), endpoints };
        on.outbox().mark(&demo(), event.id, &relayed).await?;
        on.outbox().mark(&demo(), event.id, &relayed).await?;
        let row = on.outbox().event(&demo(), event.id).await?.unwrap();
        assert_eq!(row, OutboxRow { event, relayed: Some(relayed) });
        assert!(unrelayed(on, at(60)).await?.is_empty());
    }
    Ok(())
}

async fn an_event_whose_endpoints_are_known_is_never_owed(on: &impl Tables) -> Kept {
    let outbox = on.outbox();
    let event = outgoing(event_id(0, 1), b"{}");
    let relayed = Relayed { at: at(5), endpoints: vec![EndpointId::new(Uuid::from_u128(3))] };
    outbox.publish_to(&event, &relayed).await?;
    let row = OutboxRow { event: event.clone(), relayed: Some(relayed.clone()) };
    assert_eq!(outbox.event(&event.tenant, event.id).await?, Some(row.clone()));
    // A late mark, or the same call again, changes nothing.
    let other = Relayed { at: at(9), endpoints: Vec::new() };
    outbox.publish_to(&event, &other).await?;
    assert_eq!(outbox.event(&event.tenant, event.id).await?, Some(row));
    for shard in 0..on.shards() {
        assert_eq!(outbox.unrelayed_backlog(shard).await?, Backlog::default());
    }
    Ok(())
}

async fn marking_what_is_not_there_makes_nothing(on: &impl Tables) -> Kept {
    let relayed = Relayed { at: at(5), endpoints: Vec::new() };
    on.outbox().mark(&demo(), event_id(0, 1), &relayed).await?;
    assert_eq!(on.outbox().event(&demo(), event_id(0, 1)).await?, None);
    Ok(())
}

async fn what_is_unrelayed_is_given_oldest_first_and_strictly_before(on: &impl Tables) -> Kept {
    let mut put = Vec::new();
    for n in 0..40_u32 {
        let id = event_id(100 + i64::from((n * 17) % 40), n);
        on.outbox().publish(&outgoing(id, b"body"), None).await?;
        put.push((demo(), id));
    }
    for shard in 0..on.shards() {
        let some = on.outbox().unrelayed(shard, at(120), 100).await?;
        let times: Vec<_> = some.iter().map(|(_, id)| id.time()).collect();
        assert!(times.is_sorted() && times.iter().all(|time| *time < at(120)), "{times:?}");
        let first = on.outbox().unrelayed(shard, at(120), 2).await?;
        assert_eq!(first, some.iter().take(2).cloned().collect::<Vec<_>>());
    }
    assert_eq!(unrelayed(on, at(120)).await?.len(), 20);
    let mut all = unrelayed(on, at(1_000)).await?;
    put.sort();
    all.sort();
    assert_eq!(all, put);
    Ok(())
}

async fn the_backlog_counts_what_is_still_new(on: &impl Tables) -> Kept {
    let backlog = async || {
        let each = async |shard| Ok(vec![on.outbox().unrelayed_backlog(shard).await?]);
        let all = in_all_shards(on, each).await?;
        Ok::<_, StoreError>(all.into_iter().fold(Backlog::default(), Backlog::and))
    };
    assert_eq!(backlog().await?, Backlog::default());
    for n in 0..5_u32 {
        on.outbox().publish(&outgoing(event_id(n.into(), n), b"body"), None).await?;
    }
    assert_eq!(backlog().await?, Backlog { count: 5, oldest: Some(at(0)) });
    let relayed = Relayed { at: at(9), endpoints: Vec::new() };
    on.outbox().mark(&demo(), event_id(0, 0), &relayed).await?;
    assert_eq!(backlog().await?, Backlog { count: 4, oldest: Some(at(1)) });
    Ok(())
}

/// OUT-fanout-partial
async fn an_event_in_steps_says_how_far_it_is_and_stays_owed(on: &impl Tables) -> Kept {
    let event = outgoing(event_id(0, 1), b"body");
    on.outbox().publish(&event, None).await?;
    assert!(on.outbox().reached(&demo(), event.id).await?.is_empty());
    let all: Vec<_> = (0..1_500).map(|n| EndpointId::new(Uuid::from_u128(n))).collect();
    for count in [500, 1_000] {
        let so_far: Vec<_> = all.iter().take(count).copied().collect();
        on.outbox().checkpoint(&demo(), event.id, &so_far).await?;
        assert_eq!(on.outbox().reached(&demo(), event.id).await?, so_far);
        let row = on.outbox().event(&demo(), event.id).await?.unwrap();
        assert_eq!(row, OutboxRow { event: event.clone(), relayed: None });
        assert_eq!(unrelayed(on, at(60)).await?, [(demo(), event.id)]);
    }
    let relayed = Relayed { at: at(5), endpoints: all.clone() };
    on.outbox().mark(&demo(), event.id, &relayed).await?;
    // Somebody slower, who does not know that it is done.
    on.outbox().checkpoint(&demo(), event.id, all.split_at(500).0).await?;
    on.outbox().mark(&demo(), event.id, &Relayed { at: at(6), endpoints: Vec::new() }).await?;
    assert_eq!(on.outbox().reached(&demo(), event.id).await?, all);
    let row = on.outbox().event(&demo(), event.id).await?.unwrap();
    assert_eq!(row, OutboxRow { event, relayed: Some(relayed) });
    assert!(unrelayed(on, at(60)).await?.is_empty());
    on.outbox().checkpoint(&demo(), event_id(0, 2), &all).await?;
    assert_eq!(on.outbox().event(&demo(), event_id(0, 2)).await?, None);
    Ok(())
}

async fn what_was_relayed_to_nobody_is_listed_for_its_tenant(on: &impl Tables) -> Kept {
    let somebody = vec![EndpointId::new(Uuid::from_u128(1))];
    for n in 0..20_u32 {
        let event = outgoing(event_id(n.into(), n), b"body");
        on.outbox().publish(&event, None).await?;
        let endpoints = if n % 2 == 0 { Vec::new() } else { somebody.clone() };
        if n < 18 {
            on.outbox().mark(&demo(), event.id, &Relayed { at: at(60), endpoints }).await?;
        }
    }
    let expected: Vec<_> =
        (0..9).rev().map(|n| (at(2 * n), event_id(2 * n, 2 * u32::try_from(n).unwrap()))).collect();
    assert_eq!(on.outbox().unmatched(&demo(), at(60), 100).await?, expected);
    let pages: Vec<_> = expected.chunks(4).collect();
    let mut before = at(60);
    for page in pages {
        assert_eq!(on.outbox().unmatched(&demo(), before, 4).await?, page);
        before = page.last().unwrap().0;
    }
    assert!(on.outbox().unmatched(&"other".parse().unwrap(), at(60), 100).await?.is_empty());
    Ok(())
}
