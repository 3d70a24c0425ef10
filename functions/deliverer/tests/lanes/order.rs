//! Whose turn it is.

use domain::{
    delivery::{Attempt, Next, State},
    endpoint::Endpoint,
};
use futures_util::join;

use super::{
    clock::{at, run, sleep},
    world::{BROKEN, OK, World, endpoint},
};
use std::time::Duration;

fn narrow() -> Endpoint {
    Endpoint { concurrency: Some(1), ..endpoint() }
}

impl World {
    /// A delivery that failed before and is due again.
    async fn add_retry(&self, n: usize, second: i64) {
        let failed = Attempt {
            number: 1,
            at: at(second - 60),
            duration_ms: 1,
            outcome: BROKEN,
            excerpt: String::new(),
        };
        self.add(n, second, |new| {
            let next = Next::RetryAt(at(second));
            new.ended(failed.clone(), next, at(second - 60))
        })
        .await;
    }
}

/// F15: what is new goes before what failed, and neither starves.
#[test]
fn fresh_deliveries_go_first_and_every_fifth_place_is_a_retrys() {
    run(async {
        let world = World::new(narrow(), 10, |_, _| OK);
        for n in 0..10 {
            // Due long before.
            world.add_retry(n, -500).await;
        }
        world.add_all(10..40, 0).await;
        world.host(0, 60).await;
        let turns: String =
            world.began().iter().map(|(_, _, n)| if *n == 1 { 'f' } else { 'r' }).collect();
        assert_eq!(turns, format!("{}ffrrr", "ffffr".repeat(7)));
        assert!(world.all(State::Succeeded), "{:?}", world.states());
    });
}

/// F15, DLV-head-of-line: an event that comes while a backlog of retries is worked off is begun within a second or two.
#[test]
fn a_new_event_does_not_wait_behind_a_backlog_of_retries() {
    run(async {
        let world = World::new(narrow(), 300, |_, _| OK);
        for n in 0..400 {
            world.add_retry(n, -500).await;
        }
        let events = async {
            for n in 400..420 {
                sleep(Duration::from_secs(2)).await;
                let second = (i64::try_from(n).unwrap() - 399) * 2;
                world.add(n, second, |delivery| delivery).await;
            }
        };
        join!(world.host(0, 300), events);
        assert!(world.all(State::Succeeded), "{:?}", world.states());
        let waited = |n: usize| {
            let made = world.delivery(n).created_at;
            let at_ms =
                world.began().iter().find(|(_, e, _)| *e == super::world::event(n)).unwrap().0;
            at_ms - made.duration_since(at(0)).as_secs() * 1000
        };
        let longest = (400..420).map(waited).max().unwrap();
        assert!(longest <= 1_700, "{longest} ms");
    });
}

/// F15: a lane that is never empty of new events still comes to its retries within its passes.
#[test]
fn retries_are_not_starved_by_a_stream_of_events() {
    run(async {
        let world = World::new(narrow(), 10, |_, _| OK);
        world.add_all(0..3_000, 0).await;
        world.add_retry(3_000, 5).await;
        world.host(0, 25).await;
        let at_ms = world.began().iter().find(|(_, _, number)| *number == 2).map(|turn| turn.0);
        assert!(at_ms.is_some_and(|ms| (5_000..6_000).contains(&ms)), "{at_ms:?}");
    });
}

/// DLV-head-of-line: one request that hangs delays no other, as long as there is room beside it.
#[test]
fn a_new_event_does_not_wait_for_one_that_hangs() {
    run(async {
        let world = World::new(endpoint(), 15_000, |_, _| OK);
        world.add_all(0..1, 0).await;
        let events = async {
            for n in 1..4 {
                sleep(Duration::from_secs(2)).await;
                world.add(n, i64::try_from(n).unwrap() * 2, |delivery| delivery).await;
            }
        };
        join!(world.host(0, 60), events);
        assert!(world.all(State::Succeeded), "{:?}", world.states());
        let began: Vec<i64> = world.began().iter().map(|turn| turn.0).collect();
        for (n, began) in (0_i64..).zip(&began) {
            assert!((n * 2_000..=n * 2_000 + 1_100).contains(began), "{n} began at {began} ms");
        }
    });
}
