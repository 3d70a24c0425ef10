//! The rules of [`domain::ports::Lanes`], and of waking one.

use domain::{
    lane::{Breaker, Hold, Kind, LaneId, Left, Paced, Pointer, Release, Take},
    ports::{Backlog, Deliveries as _, Due, Fanout as _, Lanes as _, StoreError},
};
use jiff::Timestamp;

use super::{
    Kept, Tables,
    given::{at, delivery, event_id, in_all_shards, lane},
    rules,
};

/// Runs the rules of [`domain::ports::Lanes`], each on fresh tables.
pub async fn lanes<T: Tables>(fresh: impl AsyncFn() -> T) {
    rules!(fresh:
        a_lane_that_was_never_woken_is_absent_and_stays_so,
        a_lane_has_one_holder_until_its_lease_ends,
        of_many_who_take_a_lane_one_holds_it,
        a_lease_is_prolonged_by_its_holder_only,
        a_released_lane_sleeps_until_its_time,
        a_lane_released_without_a_time_sleeps_until_woken,
        a_lane_that_was_woken_is_not_released,
        a_lane_that_was_lost_is_not_released,
        a_wake_stands_until_a_release_that_saw_nothing,
        what_a_holder_leaves_is_handed_to_the_next,
        sleepers_come_oldest_first_and_are_counted,
        a_delivery_that_nobody_else_owes_is_put_whole_and_once,
    );
}

async fn a_delivery_that_nobody_else_owes_is_put_whole_and_once(on: &impl Tables) -> Kept {
    let new = delivery(event_id(1, 1), 5);
    on.lanes().put_awake(&new, at(5)).await?;
    let read = on.lanes().read(&new.lane, &[new.delivery.event]).await?;
    assert_eq!(read, std::slice::from_ref(&new.delivery));
    let pointers = on.lanes().due(&new.lane, Kind::Fresh, Due::by(at(5)), 9).await?;
    assert_eq!(pointers, [Pointer::of(&new.delivery)]);
    assert_eq!(sleepers(on, at(5)).await?, std::slice::from_ref(&new.lane));
    let hold = taken(on, &new.lane, "me", 6).await?;
    // The answer was lost, and the same is put again: it is there, and nobody is woken for it.
    on.lanes().put_awake(&new, at(7)).await?;
    assert_eq!(on.lanes().release(&hold, None, Left::default()).await?, Release::Done);
    Ok(())
}

async fn taken(on: &impl Tables, lane: &LaneId, owner: &str, now: i64) -> Result<Hold, StoreError> {
    match on.lanes().take(lane, owner, at(now), at(now + 60)).await? {
        Take::Held(hold) => Ok(hold),
        other => panic!("{owner}: {other:?}"),
    }
}

async fn sleepers(on: &impl Tables, now: Timestamp) -> Result<Vec<LaneId>, StoreError> {
    in_all_shards(on, async |shard| on.lanes().sleepers(shard, now, 100).await).await
}

async fn a_lane_that_was_never_woken_is_absent_and_stays_so(on: &impl Tables) -> Kept {
    for _ in 0..2 {
        let take = on.lanes().take(&lane(0), "me", at(0), at(60)).await?;
        assert_eq!(take, Take::Absent);
    }
    assert!(sleepers(on, at(1_000)).await?.is_empty());
    Ok(())
}

async fn a_lane_has_one_holder_until_its_lease_ends(on: &impl Tables) -> Kept {
    on.lanes().wake(&lane(0), at(0)).await?;
    let first = taken(on, &lane(0), "me", 0).await?;
    assert_eq!((&first.lane, first.owner.as_str()), (&lane(0), "me"));
    assert_eq!((first.seen, first.until, first.left), (1, at(60), Left::default()));
    let busy = on.lanes().take(&lane(0), "they", at(59), at(119)).await?;
    assert_eq!(busy, Take::Busy);
    let second = taken(on, &lane(0), "they", 60).await?;
    assert!(second.fence > first.fence);
    assert_eq!(on.lanes().take(&lane(1), "me", at(0), at(60)).await?, Take::Absent);
    Ok(())
}

async fn of_many_who_take_a_lane_one_holds_it(on: &impl Tables) -> Kept {
    on.lanes().wake(&lane(0), at(0)).await?;
    let owners: Vec<_> = (0..16).map(|n| format!("o{n}")).collect();
    let lane = lane(0);
    let takes = owners.iter().map(|owner| on.lanes().take(&lane, owner, at(0), at(60)));
    let takes = futures_util::future::try_join_all(takes).await?;
    assert_eq!(takes.iter().filter(|take| matches!(take, Take::Held(_))).count(), 1);
    assert_eq!(takes.iter().filter(|take| matches!(take, Take::Busy)).count(), 15);
    Ok(())
}

async fn a_lease_is_prolonged_by_its_holder_only(on: &impl Tables) -> Kept {
    on.lanes().wake(&lane(0), at(0)).await?;
    let first = taken(on, &lane(0), "me", 0).await?;
    assert!(on.lanes().renew(&first, at(90)).await?);
    let busy = on.lanes().take(&lane(0), "they", at(89), at(149)).await?;
    assert_eq!(busy, Take::Busy);
    let second = taken(on, &lane(0), "they", 90).await?;
    assert!(!on.lanes().renew(&first, at(200)).await?);
    assert!(on.lanes().renew(&second, at(200)).await?);
    let never = Hold { lane: lane(1), ..second };
    assert!(!on.lanes().renew(&never, at(200)).await?);
    assert_eq!(on.lanes().take(&lane(1), "me", at(0), at(60)).await?, Take::Absent);
    Ok(())
}

async fn a_released_lane_sleeps_until_its_time(on: &impl Tables) -> Kept {
    on.lanes().wake(&lane(0), at(0)).await?;
    let hold = taken(on, &lane(0), "me", 0).await?;
    let release = on.lanes().release(&hold, Some(at(300)), Left::default()).await?;
    assert_eq!(release, Release::Done);
    assert!(sleepers(on, at(299)).await?.is_empty());
    assert_eq!(sleepers(on, at(300)).await?, [lane(0)]);
    // It can be taken at once, whatever its lease was, and has not been woken since.
    let next = taken(on, &lane(0), "they", 1).await?;
    assert!(next.fence > hold.fence);
    assert_eq!(next.seen, hold.seen);
    Ok(())
}

async fn a_lane_released_without_a_time_sleeps_until_woken(on: &impl Tables) -> Kept {
    on.lanes().wake(&lane(0), at(0)).await?;
    let hold = taken(on, &lane(0), "me", 0).await?;
    assert_eq!(on.lanes().release(&hold, None, Left::default()).await?, Release::Done);
    assert!(sleepers(on, at(1_000_000)).await?.is_empty());
    on.lanes().wake(&lane(0), at(500)).await?;
    assert_eq!(sleepers(on, at(500)).await?, [lane(0)]);
    assert_eq!(taken(on, &lane(0), "me", 500).await?.seen, hold.seen + 1);
    // A wake brings a lane that sleeps for longer forward.
    let hold = taken(on, &lane(0), "they", 600).await?;
    let release = on.lanes().release(&hold, Some(at(9_000)), Left::default()).await?;
    assert_eq!(release, Release::Done);
    on.lanes().wake(&lane(0), at(700)).await?;
    assert_eq!(sleepers(on, at(700)).await?, [lane(0)]);
    Ok(())
}

async fn a_lane_that_was_woken_is_not_released(on: &impl Tables) -> Kept {
    on.lanes().wake(&lane(0), at(0)).await?;
    let hold = taken(on, &lane(0), "me", 0).await?;
    on.lanes().wake(&lane(0), at(5)).await?;
    on.lanes().wake(&lane(0), at(6)).await?;
    let release = on.lanes().release(&hold, None, Left::default()).await?;
    assert_eq!(release, Release::Woken(hold.seen + 2));
    // It is still held, and still due.
    let busy = on.lanes().take(&lane(0), "they", at(10), at(70)).await?;
    assert_eq!(busy, Take::Busy);
    assert_eq!(sleepers(on, at(10)).await?, [lane(0)]);
    let looked_again = Hold { seen: hold.seen + 2, ..hold };
    let release = on.lanes().release(&looked_again, None, Left::default()).await?;
    assert_eq!(release, Release::Done);
    assert!(sleepers(on, at(1_000)).await?.is_empty());
    Ok(())
}

async fn a_lane_that_was_lost_is_not_released(on: &impl Tables) -> Kept {
    on.lanes().wake(&lane(0), at(0)).await?;
    let first = taken(on, &lane(0), "me", 0).await?;
    let second = taken(on, &lane(0), "they", 60).await?;
    let release = on.lanes().release(&first, Some(at(9_000)), Left::default()).await?;
    assert_eq!(release, Release::Lost);
    assert_eq!(sleepers(on, at(60)).await?, [lane(0)]);
    assert!(on.lanes().renew(&second, at(200)).await?);
    // Even if it was woken as well: whoever lost the lane has nothing to look for.
    on.lanes().wake(&lane(0), at(70)).await?;
    let release = on.lanes().release(&first, None, Left::default()).await?;
    assert_eq!(release, Release::Lost);
    let never = Hold { lane: lane(1), ..first };
    assert_eq!(on.lanes().release(&never, None, Left::default()).await?, Release::Lost);
    assert_eq!(on.lanes().take(&lane(1), "me", at(0), at(60)).await?, Take::Absent);
    Ok(())
}

/// The holder may die at any moment.
async fn a_wake_stands_until_a_release_that_saw_nothing(on: &impl Tables) -> Kept {
    on.lanes().wake(&lane(0), at(0)).await?;
    let hold = taken(on, &lane(0), "me", 0).await?;
    assert_eq!(sleepers(on, at(0)).await?, [lane(0)]);
    assert!(on.lanes().renew(&hold, at(90)).await?);
    assert_eq!(sleepers(on, at(90)).await?, [lane(0)]);
    taken(on, &lane(0), "they", 90).await?;
    assert_eq!(sleepers(on, at(90)).await?, [lane(0)]);
    Ok(())
}

async fn what_a_holder_leaves_is_handed_to_the_next(on: &impl Tables) -> Kept {
    on.lanes().wake(&lane(0), at(0)).await?;
    let open = Breaker { failures: 11, open_until: Some(at(100)) };
    let failing = Breaker { failures: 3, open_until: None };
    let paced = Paced { until: Some(at(1)), held: None };
    for left in [
        Left { breaker: open, paced: Paced { held: Some(at(7)), ..paced }, ramp: Some(2) },
        Left { breaker: failing, paced, ramp: Some(1) },
        Left { breaker: open, ..Left::default() },
        Left::default(),
    ] {
        let hold = taken(on, &lane(0), "me", 0).await?;
        let release = on.lanes().release(&hold, left.breaker.open_until, left).await?;
        assert_eq!(release, Release::Done);
        let next = taken(on, &lane(0), "they", 0).await?;
        assert_eq!(next.left, left);
        let release = on.lanes().release(&next, Some(at(0)), left).await?;
        assert_eq!(release, Release::Done);
    }
    Ok(())
}

async fn sleepers_come_oldest_first_and_are_counted(on: &impl Tables) -> Kept {
    let backlog = async |now| {
        let each = async |shard| Ok(vec![on.lanes().due_backlog(shard, now).await?]);
        let all = in_all_shards(on, each).await?;
        Ok::<_, StoreError>(all.into_iter().fold(Backlog::default(), Backlog::and))
    };
    assert_eq!(backlog(at(1_000)).await?, Backlog::default());
    let time = |number: u16| at(100 + i64::from((number * 17) % 40));
    for number in 0..40 {
        on.lanes().wake(&lane(number), time(number)).await?;
    }
    for shard in 0..on.shards() {
        let due = on.lanes().sleepers(shard, at(119), 100).await?;
        let times: Vec<_> = due.iter().map(|lane| time(lane.lane)).collect();
        assert!(times.is_sorted() && times.iter().all(|time| *time <= at(119)), "{times:?}");
        let first = on.lanes().sleepers(shard, at(119), 2).await?;
        assert_eq!(first, due.iter().take(2).cloned().collect::<Vec<_>>());
    }
    assert_eq!(sleepers(on, at(119)).await?.len(), 20);
    assert_eq!(backlog(at(119)).await?, Backlog { count: 20, oldest: Some(at(100)) });
    assert_eq!(backlog(at(99)).await?, Backlog::default());
    Ok(())
}
