//! A receiver that comes back, and a store that does.

use std::{sync::atomic::Ordering, time::Duration};

use domain::{
    delivery::{Cause, Outcome, State},
    endpoint::{Endpoint, LaneCount, Stop, Stopped},
    ports::Fanout as _,
};
use futures_util::{future::join_all, join};
use testkit::chaos::{Fault, When};

use super::{
    clock::{at, now, run, sleep},
    world::{HOUR, OK, World, endpoint, lane, most_in_a_second},
};

const UP: i64 = HOUR;

fn refused_until_up(second: i64) -> Outcome {
    if second < UP { Outcome::Failed { cause: Cause::Refused } } else { OK }
}

/// F14, F15, RTY-jitter-and-herd: five thousand wait when the receiver comes back after an hour. It is asked by one
/// request; then there are more, and never more than its concurrency.
#[test]
fn a_receiver_that_comes_back_sees_a_ramp_and_never_more_than_its_concurrency() {
    run(async {
        let world = World::new(endpoint(), 50, |second, _| refused_until_up(second));
        world.add_all(0..5_000, 0).await;
        world.host(0, 3 * HOUR).await;
        assert!(world.all(State::Succeeded), "{:?}", world.states());
        assert_eq!(world.receiver.most.load(Ordering::SeqCst), 5);
        let began = world.began();
        // While it was down it was left alone: ten failures, and then probes, further and further apart.
        let during: Vec<i64> =
            began.iter().map(|turn| turn.0).filter(|ms| *ms < UP * 1000).collect();
        assert!((14..40).contains(&during.len()), "{} requests: {during:?}", during.len());
        // One, then two, then four, then five at a time.
        let after: Vec<i64> =
            began.iter().map(|turn| turn.0).filter(|ms| *ms >= UP * 1000).collect();
        let mut widths: Vec<usize> = Vec::new();
        for pair in after[..20].chunk_by(|a, b| a == b) {
            widths.push(pair.len());
        }
        assert_eq!(widths[0], 1, "{after:?}");
        assert!(widths.is_sorted() || widths.iter().max() <= Some(&5), "{widths:?}");
        assert!(after[1] - after[0] >= 50, "the second came before the first had ended");
        let took = after.last().unwrap() - after.first().unwrap();
        assert!(took < 600_000, "{took} ms for the backlog");
    });
}

/// A person pauses the endpoint for a deploy. What waited begins with one when it is resumed.
#[test]
fn an_endpoint_that_is_resumed_sees_a_ramp() {
    run(async {
        let (how, reason) = (Stop::Paused, "a deploy".to_owned());
        let stopped = Some(Stopped { since: at(0), how, reason });
        let world = World::new(Endpoint { stopped, ..endpoint() }, 50, |_, _| OK);
        world.add_all(0..100, 0).await;
        let resumed = async {
            sleep(Duration::from_secs(100)).await;
            world.change(|endpoint| endpoint.stopped = None);
            world.store.wake(&lane(0), now()).await.unwrap();
        };
        join!(world.host(0, 2_000_000), resumed);
        assert!(world.all(State::Succeeded), "{:?}", world.states());
        let began: Vec<i64> = world.began().iter().map(|turn| turn.0).collect();
        assert!(began[0] >= 100_000 && began[1] >= began[0] + 50, "{:?}", &began[..9]);
        assert_eq!(world.receiver.most.load(Ordering::SeqCst), 5);
    });
}

/// F15: the receiver needs so long for each that a pass ends before the next width is reached. The next look goes on with
/// what this one came to.
#[test]
fn a_slow_receiver_sees_its_ramp_over_several_passes() {
    run(async {
        let world = World::new(endpoint(), 15_000, |second, _| refused_until_up(second));
        world.add_all(0..40, 0).await;
        world.host(0, 3 * HOUR).await;
        assert!(world.all(State::Succeeded), "{:?}", world.states());
        let mut began: Vec<i64> = world.began().iter().map(|turn| turn.0).collect();
        began.retain(|ms| *ms >= UP * 1000);
        let in_the_next =
            |ms: i64| began.iter().filter(|at| (ms..ms + 14_999).contains(at)).count();
        let first = began[0];
        let widths: Vec<_> = (0..4).map(|n| in_the_next(first + n * 15_000)).collect();
        assert!(widths[0] == 1 && widths[1] <= 2 && widths[2] <= 4, "{widths:?}: {began:?}");
    });
}

/// F14: the endpoint had eight lanes until a moment ago, and has one. What is left in the eight goes out beside what is
/// new, and the receiver sees no more at once than it allows.
#[test]
fn lanes_of_before_count_among_those_that_share_the_concurrency() {
    run(async {
        let now_one = LaneCount { from: at(-10), count: 1 };
        let lanes = vec![LaneCount { from: at(-900_000), count: 8 }, now_one];
        let shrunk = Endpoint { lanes, concurrency: Some(12), ..endpoint() };
        let world = World::new(shrunk, 500, |_, _| OK);
        world.add_all(0..400, 0).await;
        join_all((0..8).map(|number| world.host(number, HOUR))).await;
        assert!(world.all(State::Succeeded), "{:?}", world.states());
        assert_eq!(world.receiver.most.load(Ordering::SeqCst), 12);
    });
}

/// RTY-jitter-and-herd: the receiver can take twenty a second.
#[test]
fn a_receiver_with_a_rate_is_never_hit_with_its_backlog() {
    run(async {
        let slow = Endpoint { rate: Some(20), ..endpoint() };
        let world = World::new(slow, 50, |second, _| refused_until_up(second));
        world.add_all(0..2_000, 0).await;
        world.host(0, 3 * HOUR).await;
        assert!(world.all(State::Succeeded), "{:?}", world.states());
        let began = world.began();
        let after: Vec<i64> =
            began.iter().map(|turn| turn.0).filter(|ms| *ms >= UP * 1000).collect();
        assert!(most_in_a_second(&after) <= 22, "{} in a second", most_in_a_second(&after));
    });
}

/// RTY-store-outage: ten minutes in which nothing can be called, or nothing written, or of writes only the lease, just when
/// deliveries fail. Nothing that the process knew is needed afterwards, and no message: the lane's `wake_at` is all.
#[test]
fn a_store_outage_loses_nothing() {
    let is_hit = |out: &str, name: &str| match out {
        "everything" => name != "fanout.wake",
        "writes" => is_write(name) || name.starts_with("lanes."),
        _ => is_write(name),
    };
    for out in ["everything", "writes", "deliveries"] {
        for fault in [Fault::Throttled, Fault::Unavailable] {
            for (begins, when) in
                [(0, When::Before), (1, When::Before), (30, When::After), (95, When::Before)]
            {
                run(async {
                    let world = World::new(endpoint(), 100, |second, delivery| {
                        let fails = second < 120 && delivery.attempts < 2;
                        if fails { Outcome::answered(503, None, None) } else { OK }
                    });
                    world.add_all(0..40, 0).await;
                    let outage = async {
                        sleep(Duration::from_secs(begins)).await;
                        world
                            .store
                            .chaos
                            .set(move |_, name| is_hit(out, name).then_some((when, fault)));
                        sleep(Duration::from_secs(600)).await;
                        world.store.chaos.heal();
                    };
                    let sweeper = async {
                        for _ in 0..400 {
                            if world.item(0).wake_at.is_some_and(|wake_at| wake_at <= now()) {
                                let _ = world.drain(0).await;
                            }
                            sleep(Duration::from_secs(5)).await;
                        }
                    };
                    join!(outage, sweeper);
                    let why =
                        format!("{out} {fault:?} {when:?} from {begins} s: {:?}", world.states());
                    assert!(world.all(State::Succeeded), "{why}");
                    assert!(world.item(0).wake_at.is_none(), "{why}");
                });
            }
        }
    }
}

fn is_write(name: &str) -> bool {
    ["record", "point", "unpoint", "note_health"]
        .iter()
        .any(|write| name.strip_prefix("deliveries.") == Some(*write))
}
