//! The rules of [`domain::ports::Bulk`].

use domain::{
    bulk::{Done, Kind, Leg, Mark, Order, Outcome, Selection, State, Told, Work},
    id::ReplayId,
    inbox::Noted,
    ports::{Bulk as _, Start},
};
use uuid::Uuid;

use super::{
    Kept, Tables,
    given::{at, key},
    rules,
};

/// Runs the rules of [`domain::ports::Bulk`], each on fresh tables.
pub async fn bulk<T: Tables>(fresh: impl AsyncFn() -> T) {
    rules!(fresh:
        a_work_that_was_started_is_there_listed_and_open,
        a_work_starts_once,
        no_more_works_than_that_are_open,
        works_are_listed_the_latest_first,
        a_work_advances_from_the_version_that_was_read,
        of_two_advances_one_is_written,
        a_cancel_is_seen_by_the_next_advance_and_undoes_no_count,
        what_has_ended_is_not_cancelled,
    );
}

fn work(number: u128, began: i64) -> Work {
    let order = Order {
        id: ReplayId::new(Uuid::from_u128(number)),
        kind: Kind::Replay,
        source: "stripe".parse().unwrap(),
        selection: Selection::default().or_default(Kind::Replay),
        rate: 50,
        reason: "mended".to_owned(),
        actor: "me".to_owned(),
    };
    Work::new(order, at(began))
}

/// A page of one replayed event.
fn page(leg: Leg) -> Done {
    let told = Told { event_id: "evt_1".to_owned(), outcome: Outcome::Replayed };
    Done { told: vec![told], taken: 1, leg, ..Done::default() }
}

async fn a_work_that_was_started_is_there_listed_and_open(on: &impl Tables) -> Kept {
    let bulk = on.registry();
    let work = work(1, 0);
    assert_eq!(bulk.bulk(work.id).await?, None);
    assert!(bulk.bulks(10).await?.is_empty() && bulk.open().await?.is_empty());
    assert_eq!(bulk.start(&work, 3).await?, Start::Yes);
    assert_eq!(bulk.bulk(work.id).await?, Some(work.clone()));
    assert_eq!(bulk.bulks(10).await?, std::slice::from_ref(&work));
    assert_eq!(bulk.open().await?, [work.id]);
    bulk.close(work.id).await?;
    bulk.close(work.id).await?;
    assert!(bulk.open().await?.is_empty());
    assert_eq!(bulk.bulks(10).await?, [work]);
    Ok(())
}

async fn a_work_starts_once(on: &impl Tables) -> Kept {
    let first = work(1, 0);
    assert_eq!(on.registry().start(&first, 1).await?, Start::Yes);
    let again = Work { reason: "again".to_owned(), ..work(1, 9) };
    let before = on.registry().start(&again, 1).await?;
    assert_eq!(before, Start::Before(Box::new(first.clone())));
    assert_eq!(on.registry().bulks(10).await?, [first]);
    Ok(())
}

async fn no_more_works_than_that_are_open(on: &impl Tables) -> Kept {
    let bulk = on.registry();
    assert_eq!(bulk.start(&work(1, 0), 2).await?, Start::Yes);
    assert_eq!(bulk.start(&work(2, 0), 2).await?, Start::Yes);
    assert_eq!(bulk.start(&work(3, 0), 2).await?, Start::TooMany);
    assert_eq!(bulk.bulk(work(3, 0).id).await?, None);
    assert_eq!(bulk.bulks(10).await?.len(), 2);
    bulk.close(work(1, 0).id).await?;
    assert_eq!(bulk.start(&work(3, 0), 2).await?, Start::Yes);
    Ok(())
}

async fn works_are_listed_the_latest_first(on: &impl Tables) -> Kept {
    for n in 0..8_u128 {
        let began = i64::try_from(n * 3 % 8).unwrap();
        assert_eq!(on.registry().start(&work(n, began), 20).await?, Start::Yes);
    }
    let began = |works: Vec<Work>| works.into_iter().map(|work| work.began).collect::<Vec<_>>();
    let all = began(on.registry().bulks(20).await?);
    assert_eq!(all, (0..8).rev().map(at).collect::<Vec<_>>());
    assert_eq!(began(on.registry().bulks(3).await?), [at(7), at(6), at(5)]);
    Ok(())
}

async fn a_work_advances_from_the_version_that_was_read(on: &impl Tables) -> Kept {
    let bulk = on.registry();
    let first = work(1, 0);
    assert_eq!(bulk.start(&first, 3).await?, Start::Yes);
    let mark = Mark { key: key("stripe", "evt_1"), at: at(-5) };
    let second = first.after(&page(Leg::Dead { shard: 1, after: Some(mark) }), at(5));
    assert_eq!(bulk.advance(&second).await?, Some(second.clone()));
    assert_eq!(bulk.bulk(first.id).await?, Some(second.clone()));
    let third = second.after(&page(Leg::End), at(6));
    let ended = bulk.advance(&third).await?.unwrap();
    assert_eq!((ended.state(), ended.counts.replayed), (State::Completed, 2));
    assert_eq!(bulk.bulk(first.id).await?, Some(ended));
    let absent = Work { version: 1, ..work(9, 0) };
    assert_eq!(bulk.advance(&absent).await?, None);
    Ok(())
}

async fn of_two_advances_one_is_written(on: &impl Tables) -> Kept {
    let bulk = on.registry();
    let first = work(1, 0);
    assert_eq!(bulk.start(&first, 3).await?, Start::Yes);
    let one = first.after(&page(Leg::Dead { shard: 1, after: None }), at(5));
    let other = first.after(&page(Leg::Dead { shard: 2, after: None }), at(6));
    assert_eq!(bulk.advance(&one).await?, Some(one.clone()));
    assert_eq!(bulk.advance(&other).await?, None);
    assert_eq!(bulk.bulk(first.id).await?, Some(one));
    Ok(())
}

async fn a_cancel_is_seen_by_the_next_advance_and_undoes_no_count(on: &impl Tables) -> Kept {
    let bulk = on.registry();
    let first = work(1, 0);
    assert_eq!(bulk.start(&first, 3).await?, Start::Yes);
    assert_eq!(bulk.cancel(first.id, "ann", at(3)).await?, Noted::Yes);
    assert_eq!(bulk.cancel(first.id, "bob", at(4)).await?, Noted::Moved);
    let second = first.after(&page(Leg::Dead { shard: 1, after: None }), at(5));
    let cancelled = bulk.advance(&second).await?.unwrap();
    assert_eq!(cancelled.cancelled, Some((at(3), "ann".to_owned())));
    assert_eq!((cancelled.state(), cancelled.counts.replayed), (State::Cancelled, 1));
    assert_eq!(bulk.bulk(first.id).await?, Some(cancelled));
    Ok(())
}

async fn what_has_ended_is_not_cancelled(on: &impl Tables) -> Kept {
    let bulk = on.registry();
    let first = work(1, 0);
    assert_eq!(bulk.cancel(first.id, "ann", at(3)).await?, Noted::Moved);
    assert_eq!(bulk.start(&first, 3).await?, Start::Yes);
    let ended = first.after(&page(Leg::End), at(5));
    assert_eq!(bulk.advance(&ended).await?, Some(ended.clone()));
    assert_eq!(bulk.cancel(first.id, "ann", at(6)).await?, Noted::Moved);
    assert_eq!(bulk.bulk(first.id).await?, Some(ended));
    Ok(())
}
