//! The rules of [`domain::ports::Deliveries`], and of putting one.

use domain::{
    delivery::{Cause, Delivery, MAX_LOG, NewDelivery, Next, State},
    id::EventId,
    inbox::Noted,
    lane::{Kind, Left, Pointer, Release, Take},
    ports::{Deliveries as _, Due, Fanout as _, Lanes as _, StoreError},
};
use futures_util::future::join_all;

use super::{
    Kept, Tables,
    given::{DAY, at, delivery, event_id, lane, tried},
    health::{health_is_as_it_was_noted, of_two_who_note_health_the_second_looks_again},
    pointers::{
        pointers_are_put_and_deleted_any_number_of_times, pointers_come_in_order_up_to_now,
        pointers_of_retries_stand_apart, the_first_pointer_says_when_the_lane_is_due_next,
    },
    rules,
};

/// Runs the rules of [`domain::ports::Deliveries`] and of [`domain::ports::Fanout`], each on fresh tables.
pub async fn deliveries<T: Tables>(fresh: impl AsyncFn() -> T) {
    rules!(fresh:
        a_delivery_that_is_put_is_due,
        putting_a_delivery_again_changes_nothing,
        putting_a_delivery_again_does_not_revive_it,
        putting_a_delivery_again_repairs_its_pointer,
        pointers_come_in_order_up_to_now,
        pointers_of_retries_stand_apart,
        the_first_pointer_says_when_the_lane_is_due_next,
        deliveries_are_listed_by_their_events_time,
        pointers_are_put_and_deleted_any_number_of_times,
        deliveries_that_are_absent_are_left_out,
        an_attempt_is_written_as_it_ended,
        an_attempt_is_written_once,
        a_write_whose_answer_was_lost_is_known_again,
        of_many_ends_of_one_attempt_one_is_written,
        of_many_beginnings_of_one_attempt_one_is_written,
        only_whoever_read_the_mark_ends_what_was_begun,
        a_redelivery_takes_the_mark_away,
        a_redelivery_writes_the_delivery_the_pointer_and_the_lane,
        only_what_has_ended_is_redelivered,
        a_redelivery_keeps_the_count_of_attempts,
        a_redelivery_of_what_was_never_tried_is_a_fresh_one,
        health_is_as_it_was_noted,
        of_two_who_note_health_the_second_looks_again,
    );
}

pub(super) async fn put(
    on: &impl Tables,
    event: EventId,
    seconds: i64,
) -> Result<Delivery, StoreError> {
    let new = delivery(event, seconds);
    on.lanes().put(&new).await?;
    Ok(new.delivery)
}

async fn read(on: &impl Tables, event: EventId) -> Result<Option<Delivery>, StoreError> {
    let mut found = on.lanes().read(&lane(0), &[event]).await?;
    assert!(found.len() <= 1);
    Ok(found.pop())
}

/// Of both kinds, the fresh ones first.
pub(super) async fn due(on: &impl Tables, seconds: i64) -> Result<Vec<Pointer>, StoreError> {
    let mut both = Vec::new();
    for kind in Kind::ALL {
        both.extend(on.lanes().due(&lane(0), kind, Due::by(at(seconds)), 100).await?);
    }
    Ok(both)
}

pub(super) fn pointer(event: EventId, seconds: i64) -> Pointer {
    Pointer { kind: Kind::Fresh, due_at: at(seconds), event }
}

pub(super) fn retry(event: EventId, seconds: i64) -> Pointer {
    Pointer { kind: Kind::Retry, ..pointer(event, seconds) }
}

async fn a_delivery_that_is_put_is_due(on: &impl Tables) -> Kept {
    let event = event_id(0, 1);
    assert_eq!(read(on, event).await?, None);
    let new = put(on, event, 5).await?;
    assert_eq!(read(on, event).await?, Some(new));
    assert_eq!(due(on, 5).await?, [pointer(event, 5)]);
    // In its own lane.
    assert!(on.lanes().read(&lane(1), &[event]).await?.is_empty());
    assert!(on.lanes().due(&lane(1), Kind::Fresh, Due::by(at(5)), 100).await?.is_empty());
    Ok(())
}

/// OUT-fanout-partial
async fn putting_a_delivery_again_changes_nothing(on: &impl Tables) -> Kept {
    let event = event_id(0, 1);
    let new = put(on, event, 5).await?;
    put(on, event, 5).await?;
    assert_eq!(read(on, event).await?, Some(new.clone()));
    assert_eq!(due(on, 5).await?, [pointer(event, 5)]);
    // Not even when it has been tried meanwhile, and waits.
    let after = tried(&new, 503, Next::RetryAt(at(100)), 6);
    assert_eq!(on.lanes().record(&lane(0), &new, &after).await?, Noted::Yes);
    on.lanes().point(&lane(0), &retry(event, 100)).await?;
    on.lanes().unpoint(&lane(0), &pointer(event, 5)).await?;
    put(on, event, 5).await?;
    assert_eq!(read(on, event).await?, Some(after));
    assert!(due(on, 100).await?.contains(&retry(event, 100)));
    // And whatever became of its pointer, its holder looks at it in time.
    on.lanes().unpoint(&lane(0), &retry(event, 100)).await?;
    put(on, event, 5).await?;
    assert!(due(on, 100).await?.iter().any(|pointer| pointer.event == event));
    Ok(())
}

async fn putting_a_delivery_again_does_not_revive_it(on: &impl Tables) -> Kept {
    let event = event_id(0, 1);
    let new = put(on, event, 5).await?;
    let after = tried(&new, 200, Next::Succeeded, 6);
    assert_eq!(on.lanes().record(&lane(0), &new, &after).await?, Noted::Yes);
    put(on, event, 5).await?;
    assert_eq!(read(on, event).await?, Some(after));
    Ok(())
}

/// The relay died between the delivery and its pointer.
async fn putting_a_delivery_again_repairs_its_pointer(on: &impl Tables) -> Kept {
    let event = event_id(0, 1);
    put(on, event, 5).await?;
    on.lanes().unpoint(&lane(0), &pointer(event, 5)).await?;
    assert!(due(on, 5).await?.is_empty());
    put(on, event, 5).await?;
    assert_eq!(due(on, 5).await?, [pointer(event, 5)]);
    Ok(())
}

async fn deliveries_are_listed_by_their_events_time(on: &impl Tables) -> Kept {
    let lanes = on.lanes();
    let all = async |after, limit| lanes.list(&lane(0), after, limit).await;
    assert!(all(None, 9).await?.is_empty());
    // What stands beside them is none.
    lanes.wake(&lane(0), at(0)).await?;
    lanes.point(&lane(0), &pointer(event_id(0, 1), 900)).await?;
    lanes.point(&lane(0), &retry(event_id(0, 1), 900)).await?;
    lanes.put(&NewDelivery { lane: lane(1), ..delivery(event_id(0, 99), 5) }).await?;
    assert!(all(None, 9).await?.is_empty());
    let mut put_ones = Vec::new();
    for n in [5, 3, 9, 1, 7, 2] {
        put_ones.push(put(on, event_id(n, 0), 100 - n).await?);
    }
    put_ones.sort_by_key(|delivery| delivery.event);
    assert!(put_ones.iter().map(|delivery| delivery.event.time()).is_sorted());
    assert_eq!(all(None, 100).await?, put_ones);
    let (mut pages, mut after) = (Vec::new(), None);
    loop {
        let page = all(after, 4).await?;
        let Some(last) = page.last() else { break };
        (after, pages) = (Some(last.event), [pages, page].concat());
    }
    assert_eq!(pages, put_ones);
    // After one that is not there.
    let found = all(Some(event_id(4, 0)), 1).await?;
    assert_eq!(found.first().map(|delivery| delivery.event), Some(event_id(5, 0)));
    Ok(())
}

async fn deliveries_that_are_absent_are_left_out(on: &impl Tables) -> Kept {
    // More than one batch.
    let events: Vec<_> = (0..130).map(|n| event_id(0, n)).collect();
    for event in events.iter().skip(1).step_by(2) {
        put(on, *event, 5).await?;
    }
    let found = on.lanes().read(&lane(0), &events).await?;
    let found: Vec<_> = found.into_iter().map(|delivery| delivery.event).collect();
    assert_eq!(found, events.iter().copied().skip(1).step_by(2).collect::<Vec<_>>());
    assert!(on.lanes().read(&lane(0), &[]).await?.is_empty());
    Ok(())
}

async fn an_attempt_is_written_as_it_ended(on: &impl Tables) -> Kept {
    let nexts = [Next::RetryAt(at(100)), Next::Gone(at(100)), Next::Succeeded, Next::Dead];
    for (n, next) in (1..).zip(nexts) {
        let new = put(on, event_id(0, n), 5).await?;
        let after = tried(&new, 418, next, 6);
        assert_eq!(on.lanes().record(&lane(0), &new, &after).await?, Noted::Yes);
        assert_eq!(read(on, new.event).await?, Some(after));
    }
    // The log is full, and the end has no attempt of its own.
    let mut before = put(on, event_id(0, 9), 5).await?;
    for _ in 0..MAX_LOG + 2 {
        let after = tried(&before, 500, Next::RetryAt(at(100)), 6);
        assert_eq!(on.lanes().record(&lane(0), &before, &after).await?, Noted::Yes);
        before = after;
    }
    let cancelled =
        Delivery { state: State::Cancelled, finished_at: Some(at(7)), ..before.clone() };
    assert_eq!(on.lanes().record(&lane(0), &before, &cancelled).await?, Noted::Yes);
    assert_eq!(read(on, cancelled.event).await?, Some(cancelled));
    Ok(())
}

async fn a_write_whose_answer_was_lost_is_known_again(on: &impl Tables) -> Kept {
    let new = put(on, event_id(0, 1), 5).await?;
    let retried = tried(&new, 503, Next::RetryAt(at(100)), 6);
    let dead = tried(&retried, 500, Next::Dead, 101);
    for (before, after) in [(&new, &retried), (&retried, &dead)] {
        for _ in 0..2 {
            assert_eq!(on.lanes().record(&lane(0), before, after).await?, Noted::Yes);
        }
    }
    // Somebody else has ended the same attempt, in the same way, at another time.
    let other = tried(&retried, 500, Next::Dead, 102);
    assert_eq!(on.lanes().record(&lane(0), &retried, &other).await?, Noted::Moved);
    assert_eq!(read(on, new.event).await?, Some(dead));
    Ok(())
}

async fn an_attempt_is_written_once(on: &impl Tables) -> Kept {
    let new = put(on, event_id(0, 1), 5).await?;
    let after = tried(&new, 503, Next::RetryAt(at(100)), 6);
    assert_eq!(on.lanes().record(&lane(0), &new, &after).await?, Noted::Yes);
    let slow = tried(&new, 200, Next::Succeeded, 7);
    assert_eq!(on.lanes().record(&lane(0), &new, &slow).await?, Noted::Moved, "attempts");
    assert_eq!(read(on, new.event).await?, Some(after.clone()));
    let done = tried(&after, 200, Next::Succeeded, 101);
    assert_eq!(on.lanes().record(&lane(0), &after, &done).await?, Noted::Yes);
    let late = Delivery { attempts: done.attempts, ..after };
    let again = tried(&late, 500, Next::RetryAt(at(300)), 102);
    assert_eq!(on.lanes().record(&lane(0), &late, &again).await?, Noted::Moved, "state");
    assert_eq!(read(on, new.event).await?, Some(done));
    // Nothing is made of nothing.
    let absent = delivery(event_id(0, 2), 5).delivery;
    assert_eq!(on.lanes().record(&lane(0), &absent, &absent).await?, Noted::Moved);
    assert_eq!(read(on, absent.event).await?, None);
    Ok(())
}

async fn of_many_ends_of_one_attempt_one_is_written(on: &impl Tables) -> Kept {
    let new = put(on, event_id(0, 1), 5).await?;
    let ends: Vec<_> = (500..516).map(|n| tried(&new, n, Next::RetryAt(at(100)), 6)).collect();
    let lane = lane(0);
    let noted = join_all(ends.iter().map(|end| on.lanes().record(&lane, &new, end))).await;
    let mut written = Vec::new();
    for (end, noted) in ends.iter().zip(noted) {
        if noted? == Noted::Yes {
            written.push(end.clone());
        }
    }
    assert_eq!(written.len(), 1);
    assert_eq!(read(on, new.event).await?, written.pop());
    Ok(())
}

/// C24: two holders read the same delivery, and one of them sends it.
async fn of_many_beginnings_of_one_attempt_one_is_written(on: &impl Tables) -> Kept {
    let new = put(on, event_id(0, 1), 5).await?;
    let begun: Vec<_> = (0..16).map(|n| new.begins(&format!("holder-{n}"), at(6))).collect();
    let lane = lane(0);
    let noted = join_all(begun.iter().map(|begun| on.lanes().record(&lane, &new, begun))).await;
    let mut written = Vec::new();
    for (begun, noted) in begun.iter().zip(noted) {
        if noted? == Noted::Yes {
            written.push(begun.clone());
        }
    }
    assert_eq!(written.len(), 1);
    assert_eq!(read(on, new.event).await?, written.pop());
    Ok(())
}

/// Its holder is slow, and meanwhile another finds the mark and parks it: the one who writes first decides.
async fn only_whoever_read_the_mark_ends_what_was_begun(on: &impl Tables) -> Kept {
    for (n, holder_first) in [(1, true), (2, false)] {
        let new = put(on, event_id(0, n), 5).await?;
        let begun = new.begins("slow", at(6));
        assert_eq!(on.lanes().record(&lane(0), &new, &begun).await?, Noted::Yes);
        // Somebody who read it before the mark.
        let blind = tried(&new, 200, Next::Succeeded, 7);
        assert_eq!(on.lanes().record(&lane(0), &new, &blind).await?, Noted::Moved);
        let other = Delivery { begun: new.begins("other", at(6)).begun, ..begun.clone() };
        assert_eq!(on.lanes().record(&lane(0), &other, &blind).await?, Noted::Moved);
        let done = tried(&begun, 200, Next::Succeeded, 7);
        let parked = begun.given_up(Cause::Expired, at(8));
        let (first, second) = if holder_first { (&done, &parked) } else { (&parked, &done) };
        assert_eq!(on.lanes().record(&lane(0), &begun, first).await?, Noted::Yes);
        assert_eq!(on.lanes().record(&lane(0), &begun, second).await?, Noted::Moved);
        assert_eq!(read(on, new.event).await?, Some(first.clone()));
    }
    Ok(())
}

async fn a_redelivery_takes_the_mark_away(on: &impl Tables) -> Kept {
    let new = put(on, event_id(0, 1), 5).await?;
    let begun = new.begins("dead", at(6));
    assert_eq!(on.lanes().record(&lane(0), &new, &begun).await?, Noted::Yes);
    let cancelled = begun.cancelled(at(7));
    assert_eq!(on.lanes().record(&lane(0), &begun, &cancelled).await?, Noted::Yes);
    assert_eq!(read(on, new.event).await?, Some(cancelled));
    let noted = on.lanes().redeliver(&lane(0), new.event, at(9 * DAY), at(50)).await?;
    assert_eq!(noted, Noted::Yes);
    assert_eq!(read(on, new.event).await?.unwrap().begun, None);
    Ok(())
}

/// A dead delivery, after one attempt.
async fn dead(on: &impl Tables, event: EventId) -> Result<Delivery, StoreError> {
    let new = put(on, event, 5).await?;
    let dead = tried(&new, 500, Next::Dead, 6);
    assert_eq!(on.lanes().record(&lane(0), &new, &dead).await?, Noted::Yes);
    on.lanes().unpoint(&lane(0), &pointer(event, 5)).await?;
    Ok(dead)
}

async fn a_redelivery_writes_the_delivery_the_pointer_and_the_lane(on: &impl Tables) -> Kept {
    let (event, lanes) = (event_id(0, 1), on.lanes());
    let dead = dead(on, event).await?;
    lanes.wake(&lane(0), at(10)).await?;
    let Take::Held(hold) = lanes.take(&lane(0), "me", at(10), at(70)).await? else { panic!() };
    let noted = lanes.redeliver(&lane(0), event, at(9 * DAY), at(50)).await?;
    assert_eq!(noted, Noted::Yes);
    let expected = Delivery {
        state: State::Pending,
        due_at: at(50),
        deadline: at(9 * DAY),
        finished_at: None,
        asked_at: Some(at(50)),
        ..dead
    };
    assert_eq!(read(on, event).await?, Some(expected));
    assert_eq!(due(on, 50).await?, [retry(event, 50)]);
    // Whoever holds the lane cannot put it to sleep over this.
    let release = lanes.release(&hold, None, Left::default()).await?;
    assert_eq!(release, Release::Woken(hold.seen + 1));
    Ok(())
}

async fn only_what_has_ended_is_redelivered(on: &impl Tables) -> Kept {
    let lanes = on.lanes();
    let again = async |event| lanes.redeliver(&lane(0), event, at(9 * DAY), at(50)).await;
    // Absent: and no lane is made of it.
    assert_eq!(again(event_id(0, 1)).await?, Noted::Moved);
    assert!(due(on, 1_000).await?.is_empty());
    assert_eq!(lanes.take(&lane(0), "me", at(0), at(60)).await?, Take::Absent);
    // Pending.
    let pending = put(on, event_id(0, 2), 5).await?;
    assert_eq!(again(pending.event).await?, Noted::Moved);
    assert_eq!(read(on, pending.event).await?, Some(pending.clone()));
    assert_eq!(due(on, 1_000).await?, [pointer(pending.event, 5)]);
    // Succeeded, and a lane that sleeps.
    let done = tried(&pending, 200, Next::Succeeded, 6);
    assert_eq!(lanes.record(&lane(0), &pending, &done).await?, Noted::Yes);
    assert_eq!(again(pending.event).await?, Noted::Yes);
    assert_eq!(again(pending.event).await?, Noted::Moved);
    let taken = lanes.take(&lane(0), "me", at(60), at(120)).await?;
    assert!(matches!(taken, Take::Held(hold) if hold.seen == 1));
    Ok(())
}

/// A late outcome of an attempt from before cannot close the new one.
async fn a_redelivery_keeps_the_count_of_attempts(on: &impl Tables) -> Kept {
    let event = event_id(0, 1);
    let before = delivery(event, 5).delivery;
    let dead = dead(on, event).await?;
    let noted = on.lanes().redeliver(&lane(0), event, at(9 * DAY), at(50)).await?;
    assert_eq!(noted, Noted::Yes);
    let late = tried(&before, 200, Next::Succeeded, 60);
    assert_eq!(on.lanes().record(&lane(0), &before, &late).await?, Noted::Moved);
    let pending = read(on, event).await?.unwrap();
    assert_eq!((pending.attempts, pending.log), (dead.attempts, dead.log));
    Ok(())
}

/// A delivery moves from the fresh ones to the retries and never back: a holder that looks whether anything is left reads
/// them in this order.
async fn a_redelivery_of_what_was_never_tried_is_a_fresh_one(on: &impl Tables) -> Kept {
    let (event, lanes) = (event_id(0, 1), on.lanes());
    let new = put(on, event, 5).await?;
    let dead = new.given_up(Cause::HeldExpired, at(6));
    assert_eq!(lanes.record(&lane(0), &new, &dead).await?, Noted::Yes);
    lanes.unpoint(&lane(0), &pointer(event, 5)).await?;
    assert_eq!(lanes.redeliver(&lane(0), event, at(9 * DAY), at(50)).await?, Noted::Yes);
    assert_eq!(due(on, 50).await?, [pointer(event, 50)]);
    // What was asked for stays so, whatever becomes of it.
    let again = read(on, event).await?.unwrap();
    let after = tried(&again, 500, Next::RetryAt(at(90)), 51);
    assert_eq!(lanes.record(&lane(0), &again, &after).await?, Noted::Yes);
    assert_eq!(read(on, event).await?.unwrap().asked_at, Some(at(50)));
    Ok(())
}
