//! The rules of [`domain::ports::Redeliver`], [`domain::ports::Events`] and [`domain::ports::Redeliveries`].

use std::time::Duration;

use domain::{
    delivery::{Delivery, Next, State},
    id::{EndpointId, EventId, RedeliveryId},
    inbox::Noted,
    lane::{Kind, Take},
    outbox::Relayed,
    ports::{
        Again, Deliveries as _, Due, Events as _, Fanout as _, Halt, Lanes as _, Outbox as _,
        Redeliver as _, Redeliveries as _, Started,
    },
    redelivery::{Done, Leg, Order, Outcome, Selection, State as Stands, Told, Work, due_again},
};
use uuid::Uuid;

use super::{
    Kept, Tables,
    given::{at, delivery, event_id, lane, outgoing, tried},
    rules,
};

/// Runs the rules of redelivery, each on fresh tables.
pub async fn redelivery<T: Tables>(fresh: impl AsyncFn() -> T) {
    rules!(fresh:
        a_finished_delivery_is_due_again_as_it_was_read_and_its_lane_awake,
        a_delivery_that_is_not_as_it_was_read_is_left,
        of_many_at_once_one_takes_it_and_the_others_hear_that_it_was_taken,
        deliveries_of_a_lane_come_by_event_either_way_page_by_page,
        an_event_is_kept_until_then_and_one_that_is_past_is_gone,
        events_of_a_tenant_come_by_shard_in_order,
        a_work_is_there_listed_and_open_and_starts_once,
        no_more_works_than_that_are_open,
        a_work_advances_from_the_version_that_was_read_and_keeps_who_halted_it,
        a_work_is_paused_let_go_on_and_cancelled,
    );
}

fn us(number: u128) -> RedeliveryId {
    RedeliveryId::new(Uuid::from_u128(number))
}

fn again(before: &Delivery, by: u128) -> Delivery {
    due_again(before, us(by), true, (at(50), at(60), Duration::from_secs(900)))
}

/// A delivery that was tried once and given up.
async fn dead(on: &impl Tables, event: EventId) -> Result<Delivery, domain::ports::StoreError> {
    let new = delivery(event, 5);
    on.lanes().put(&new).await?;
    let dead = tried(&new.delivery, 500, Next::Dead, 6);
    assert_eq!(on.lanes().record(&lane(0), &new.delivery, &dead).await?, Noted::Yes);
    Ok(dead)
}

async fn read(
    on: &impl Tables,
    event: EventId,
) -> Result<Option<Delivery>, domain::ports::StoreError> {
    Ok(on.lanes().read(&lane(0), &[event]).await?.into_iter().next())
}

async fn a_finished_delivery_is_due_again_as_it_was_read_and_its_lane_awake(
    on: &impl Tables,
) -> Kept {
    let event = event_id(0, 1);
    let before = dead(on, event).await?;
    for kind in Kind::ALL {
        for pointer in on.lanes().due(&lane(0), kind, Due::by(at(900)), 10).await? {
            on.lanes().unpoint(&lane(0), &pointer).await?;
        }
    }
    let after = again(&before, 1);
    assert_eq!(on.lanes().redeliver_as(&lane(0), &before, &after, at(50)).await?, Again::Yes);
    assert_eq!(read(on, event).await?, Some(after.clone()));
    assert_eq!(on.lanes().next_due(&lane(0), Kind::Retry).await?, Some(at(60)));
    // The lane was made by its first wake.
    let Take::Held(hold) = on.lanes().take(&lane(0), "me", at(51), at(99)).await? else {
        panic!("the lane sleeps")
    };
    assert_eq!(hold.seen, 1);
    // It is tried as any other, and keeps its mark.
    let done = tried(&after, 200, Next::Succeeded, 61);
    assert_eq!(on.lanes().record(&lane(0), &after, &done).await?, Noted::Yes);
    assert_eq!(read(on, event).await?, Some(done.clone()));
    assert_eq!(done.redelivered, after.redelivered);
    Ok(())
}

async fn a_delivery_that_is_not_as_it_was_read_is_left(on: &impl Tables) -> Kept {
    let event = event_id(0, 1);
    let absent = Delivery { state: State::Dead, ..delivery(event, 5).delivery };
    let take = async |before: &Delivery, by| {
        on.lanes().redeliver_as(&lane(0), before, &again(before, by), at(50)).await
    };
    assert_eq!(take(&absent, 1).await?, Again::Moved);
    let before = dead(on, event).await?;
    assert_eq!(take(&Delivery { attempts: 9, ..before.clone() }, 1).await?, Again::Moved);
    assert_eq!(
        take(&Delivery { state: State::Cancelled, ..before.clone() }, 1).await?,
        Again::Moved
    );
    assert_eq!(
        take(&Delivery { finished_at: Some(at(5)), ..before.clone() }, 1).await?,
        Again::Moved
    );
    assert_eq!(read(on, event).await?, Some(before.clone()));
    assert_eq!(take(&before, 1).await?, Again::Yes);
    assert_eq!(take(&before, 1).await?, Again::Before);
    assert_eq!(take(&before, 2).await?, Again::Moved);
    // It came to rest once more: to who read it before, it has moved.
    let taken = again(&before, 1);
    let rested = tried(&taken, 500, Next::Dead, 70);
    assert_eq!(on.lanes().record(&lane(0), &taken, &rested).await?, Noted::Yes);
    assert_eq!(take(&before, 2).await?, Again::Moved);
    assert_eq!(take(&rested, 2).await?, Again::Yes);
    Ok(())
}

async fn of_many_at_once_one_takes_it_and_the_others_hear_that_it_was_taken(
    on: &impl Tables,
) -> Kept {
    let before = dead(on, event_id(0, 1)).await?;
    let after = again(&before, 1);
    let here = lane(0);
    let takes = (0..8).map(|_| on.lanes().redeliver_as(&here, &before, &after, at(50)));
    let mut taken = 0;
    for outcome in futures_util::future::join_all(takes).await {
        match outcome {
            Ok(Again::Yes) => taken += 1,
            Ok(Again::Before) => {}
            // Two transactions at once: the store asks to come again.
            Err(error) if error.is_transient() => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(taken <= 1);
    assert_eq!(
        read(on, before.event).await?.is_some_and(|now| now.redelivered.is_some()),
        taken == 1
    );
    Ok(())
}

async fn deliveries_of_a_lane_come_by_event_either_way_page_by_page(on: &impl Tables) -> Kept {
    let events: Vec<_> = (0..25).map(|n| event_id(i64::from(n), n)).collect();
    for event in &events {
        on.lanes().put(&delivery(*event, 5)).await?;
    }
    on.lanes().wake(&lane(0), at(0)).await?;
    for newest_first in [false, true] {
        let (mut seen, mut from) = (Vec::new(), None);
        loop {
            let page = on.lanes().log(&lane(0), from, newest_first, 7).await?;
            assert!(page.len() <= 7);
            let Some(last) = page.last() else { break };
            from = Some(last.event);
            seen.extend(page.into_iter().map(|delivery| delivery.event));
        }
        let expected = events.iter().copied();
        let expected: Vec<_> =
            if newest_first { expected.rev().collect() } else { expected.collect() };
        assert_eq!(seen, expected);
    }
    let floor = Some(EventId::floor(at(10)));
    let first = |page: Vec<Delivery>| page.into_iter().next().map(|delivery| delivery.event);
    let from = on.lanes().log(&lane(0), floor, false, 1).await?;
    assert_eq!(first(from), events.get(10).copied());
    let before = on.lanes().log(&lane(0), floor, true, 1).await?;
    assert_eq!(first(before), events.get(9).copied());
    assert!(on.lanes().log(&lane(1), None, false, 7).await?.is_empty());
    Ok(())
}

async fn an_event_is_kept_until_then_and_one_that_is_past_is_gone(on: &impl Tables) -> Kept {
    let event = outgoing(event_id(0, 1), b"{}");
    let keep = async |until, now| on.outbox().keep(&event.tenant, event.id, until, now).await;
    assert_eq!(keep(at(9), at(5)).await?, None);
    on.outbox().publish(&event, None).await?;
    // What is not relayed yet stays anyway.
    assert_eq!(keep(at(9), at(5)).await?.map(|row| row.event), Some(event.clone()));
    let relayed = Relayed { at: at(10), endpoints: vec![EndpointId::new(Uuid::from_u128(1))] };
    on.outbox().mark(&event.tenant, event.id, &relayed).await?;
    let row = keep(at(20), at(11)).await?;
    assert_eq!(row.and_then(|row| row.relayed), Some(relayed.clone()));
    // One more than it was relayed to, and one of those; an event that is not there stays so.
    let (tenant, new) = (&event.tenant, EndpointId::new(Uuid::from_u128(2)));
    for endpoint in [new, new].iter().chain(&relayed.endpoints) {
        on.outbox().also_to(tenant, event.id, *endpoint).await?;
        on.outbox().also_to(tenant, event_id(0, 9), *endpoint).await?;
    }
    let also = [relayed.endpoints, vec![new]].concat();
    let row = on.outbox().event(tenant, event.id).await?;
    assert_eq!(row.and_then(|row| row.relayed).map(|relayed| relayed.endpoints), Some(also));
    assert_eq!(on.outbox().event(tenant, event_id(0, 9)).await?, None);
    Ok(())
}

async fn events_of_a_tenant_come_by_shard_in_order(on: &impl Tables) -> Kept {
    let events: Vec<_> = (0..30).map(|n| outgoing(event_id(i64::from(n), n), b"{}")).collect();
    for event in &events {
        on.outbox().publish(event, None).await?;
    }
    let tenant = &lane(0).tenant;
    let mut seen = Vec::new();
    for shard in 0..on.outbox().event_shards() {
        let mut after = None;
        loop {
            let page = on.outbox().events(tenant, shard, after, 4).await?;
            let Some(last) = page.last() else { break };
            assert!(after.is_none_or(|after| page.iter().all(|row| after < row.event.id)));
            after = Some(last.event.id);
            seen.extend(page.into_iter().map(|row| row.event));
        }
    }
    seen.sort_by_key(|event| event.id);
    assert_eq!(seen, events);
    let other = "other".parse().unwrap();
    assert!(on.outbox().events(&other, 0, None, 4).await?.is_empty());
    Ok(())
}

fn work(number: u128, began: i64) -> Work {
    let order = Order {
        id: us(number),
        tenant: "acme".parse().unwrap(),
        endpoints: vec![EndpointId::new(Uuid::from_u128(1))],
        is_named: true,
        selection: Selection::default(),
        rate: 10,
        reason: "mended".to_owned(),
        actor: "me".to_owned(),
    };
    Work::new(order, at(began))
}

fn page(leg: Leg) -> Done {
    let (event, endpoint) = (event_id(0, 1), EndpointId::new(Uuid::from_u128(1)));
    let told = Told { event, endpoint, outcome: Outcome::Redelivered };
    Done { told: vec![told], taken: 1, leg }
}

async fn a_work_is_there_listed_and_open_and_starts_once(on: &impl Tables) -> Kept {
    let (book, works) = (on.registry(), [work(1, 0), work(2, 5)]);
    let tenant = &works[0].tenant;
    assert_eq!(book.redelivery(us(1)).await?, None);
    assert!(book.open_redeliveries().await?.is_empty());
    for work in &works {
        assert_eq!(book.start_redelivery(work, 9).await?, Started::Yes);
    }
    assert_eq!(book.redelivery(us(1)).await?, Some(works[0].clone()));
    assert_eq!(book.redeliveries(tenant, 9).await?, [works[1].clone(), works[0].clone()]);
    assert_eq!(book.redeliveries(tenant, 1).await?, [works[1].clone()]);
    assert!(book.redeliveries(&"other".parse().unwrap(), 9).await?.is_empty());
    let again = Work { reason: "again".to_owned(), ..work(1, 9) };
    let before = Started::Before(Box::new(works[0].clone()));
    assert_eq!(book.start_redelivery(&again, 9).await?, before);
    let mut open = book.open_redeliveries().await?;
    open.sort();
    assert_eq!(open, [us(1), us(2)]);
    for _ in 0..2 {
        book.close_redelivery(us(1)).await?;
    }
    assert_eq!(book.open_redeliveries().await?, [us(2)]);
    Ok(())
}

async fn no_more_works_than_that_are_open(on: &impl Tables) -> Kept {
    let book = on.registry();
    assert_eq!(book.start_redelivery(&work(1, 0), 1).await?, Started::Yes);
    assert_eq!(book.start_redelivery(&work(2, 0), 1).await?, Started::TooMany);
    assert_eq!(book.redelivery(us(2)).await?, None);
    book.close_redelivery(us(1)).await?;
    assert_eq!(book.start_redelivery(&work(2, 0), 1).await?, Started::Yes);
    Ok(())
}

async fn a_work_advances_from_the_version_that_was_read_and_keeps_who_halted_it(
    on: &impl Tables,
) -> Kept {
    let (book, first) = (on.registry(), work(1, 0));
    assert_eq!(book.advance_redelivery(&first.after(&page(Leg::End), at(1))).await?, None);
    assert_eq!(book.start_redelivery(&first, 9).await?, Started::Yes);
    let second = first.after(&page(Leg::Named { next: 1 }), at(1));
    assert_eq!(book.halt_redelivery(us(1), Halt::Pause, "me", at(2)).await?, Noted::Yes);
    let written = book.advance_redelivery(&second).await?.unwrap();
    assert_eq!(written.paused, Some((at(2), "me".to_owned())));
    assert_eq!(Work { paused: None, ..written.clone() }, second);
    assert_eq!(written.state(), Stands::Paused);
    // Another page of the same beginning comes second, and changes nothing.
    let other = first.after(&page(Leg::End), at(3));
    assert_eq!(book.advance_redelivery(&other).await?, None);
    assert_eq!(book.redelivery(us(1)).await?, Some(written));
    Ok(())
}

async fn a_work_is_paused_let_go_on_and_cancelled(on: &impl Tables) -> Kept {
    let (book, first) = (on.registry(), work(1, 0));
    let halt = async |how, second| book.halt_redelivery(us(1), how, "me", at(second)).await;
    assert_eq!(halt(Halt::Pause, 1).await?, Noted::Moved);
    assert_eq!(book.start_redelivery(&first, 9).await?, Started::Yes);
    assert_eq!(halt(Halt::Resume, 1).await?, Noted::Moved);
    assert_eq!(halt(Halt::Pause, 2).await?, Noted::Yes);
    assert_eq!(halt(Halt::Pause, 3).await?, Noted::Moved);
    assert_eq!(halt(Halt::Resume, 4).await?, Noted::Yes);
    assert_eq!(book.redelivery(us(1)).await?.map(|work| work.state()), Some(Stands::Running));
    assert_eq!(halt(Halt::Cancel, 5).await?, Noted::Yes);
    for how in [Halt::Cancel, Halt::Pause, Halt::Resume] {
        assert_eq!(halt(how, 6).await?, Noted::Moved, "{how:?}");
    }
    let stopped = book.redelivery(us(1)).await?.unwrap();
    assert_eq!(
        (stopped.state(), stopped.cancelled),
        (Stands::Cancelled, Some((at(5), "me".to_owned())))
    );
    // What has ended is neither cancelled nor paused.
    let done = work(2, 0).after(&page(Leg::End), at(1));
    assert_eq!(book.start_redelivery(&work(2, 0), 9).await?, Started::Yes);
    assert!(book.advance_redelivery(&done).await?.is_some());
    assert_eq!(book.halt_redelivery(us(2), Halt::Cancel, "me", at(2)).await?, Noted::Moved);
    Ok(())
}
