//! How fast.

use std::time::Duration;

use domain::{
    delivery::State,
    endpoint::{Endpoint, Held, Release},
};
use futures_util::join;

use super::{
    clock::{at, run, sleep},
    world::{BROKEN, DEADLINE, OK, World, endpoint, event, lanes, most_in_a_second},
};

/// F15: over all lanes, and through every hand-over.
#[test]
fn no_more_begin_in_a_second_than_the_rate_says() {
    run(async {
        let wide =
            Endpoint { rate: Some(20), lanes: lanes(2), concurrency: Some(10), ..endpoint() };
        let world = World::new(wide, 200, |_, _| OK);
        world.add_all(0..600, 0).await;
        join!(world.host(0, 300), world.host(1, 300));
        assert!(world.all(State::Succeeded), "{:?}", world.states());
        let began: Vec<i64> = world.began().iter().map(|turn| turn.0).collect();
        let (last, most) = (began.iter().max().unwrap(), most_in_a_second(&began));
        // Six hundred at twenty a second; none of it is lost to waiting.
        assert!((29_000..31_500).contains(last), "{last} ms");
        assert!(most <= 22, "{most} in a second");
    });
}

/// A holder that takes a lane over knows what the one before has sent.
#[test]
fn a_new_holder_cannot_burst() {
    run(async {
        let slow = Endpoint { rate: Some(2), ..endpoint() };
        let world = World::new(slow, 10, |_, _| OK).passing(Duration::from_millis(5));
        world.add_all(0..40, 0).await;
        world.host(0, 60).await;
        assert!(world.all(State::Succeeded), "{:?}", world.states());
        let began: Vec<i64> = world.began().iter().map(|turn| turn.0).collect();
        assert!(most_in_a_second(&began) <= 3, "{began:?}");
        assert!(*began.last().unwrap() >= 19_000, "{began:?}");
    });
}

/// A lane that may begin one only every ten seconds is not held meanwhile.
#[test]
fn a_long_wait_for_a_rate_is_slept() {
    run(async {
        let slow = Endpoint { rate: Some(1), lanes: lanes(10), ..endpoint() };
        let world = World::new(slow, 10, |_, _| OK);
        for n in [0, 10, 20] {
            world.add(n, 0, |delivery| delivery).await;
        }
        let ended = world.drain(0).await.unwrap();
        assert_eq!(
            (format!("{ended:?}"), world.began().len()),
            (format!("Asleep(Some({}))", at(10)), 1)
        );
        assert!(world.item(0).holder.is_none());
        world.host(0, 60).await;
        assert!(world.all(State::Succeeded), "{:?}", world.states());
    });
}

/// F16, DLV-disabled-events-vanish: 300 events were held while the endpoint was off.
#[test]
fn what_was_held_goes_out_at_its_rate_and_what_is_new_passes_it() {
    run(async {
        let hour = 3_600;
        let release = Some(Release { before: at(0), rate: 10 });
        let held = vec![Held { from: at(-4 * hour), to: at(0) }];
        let enabled = Endpoint { release, held, enabled_at: Some(at(0)), ..endpoint() };
        let world = World::new(enabled, 50, |_, _| OK);
        world.add_all(0..300, -2 * hour).await;
        let later = async {
            for n in 300..310 {
                sleep(Duration::from_secs(2)).await;
                let second = (i64::try_from(n).unwrap() - 299) * 2;
                world.add(n, second, |delivery| delivery).await;
            }
        };
        join!(world.host(0, 300), later);
        assert!(world.all(State::Succeeded), "{:?}", world.states());
        let is_new = |e| (300..310).any(|n| event(n) == e);
        let began = world.began();
        let held: Vec<i64> =
            began.iter().filter(|turn| !is_new(turn.1)).map(|turn| turn.0).collect();
        assert!(most_in_a_second(&held) <= 11, "{} in a second", most_in_a_second(&held));
        let last = *held.last().unwrap();
        assert!((29_000..32_000).contains(&last), "{last} ms");
        for n in 300..310 {
            let began = began.iter().find(|turn| turn.1 == event(n)).unwrap().0;
            let made = (i64::try_from(n).unwrap() - 299) * 2_000;
            assert!(began - made <= 1_200, "{n}: {began}");
        }
    });
}

/// What failed before the endpoint was stopped, and was due meanwhile, is a part of the backlog.
#[test]
fn held_retries_go_out_at_the_rate_too() {
    run(async {
        let release = Some(Release { before: at(0), rate: 10 });
        let enabled = Endpoint { release, ..endpoint() };
        let world = World::new(enabled, 50, |_, _| OK);
        for n in 0..50 {
            world.add(n, -100, |new| domain::delivery::Delivery { attempts: 3, ..new }).await;
        }
        world.host(0, 60).await;
        assert!(world.all(State::Succeeded), "{:?}", world.states());
        let began: Vec<i64> = world.began().iter().map(|turn| turn.0).collect();
        assert!(most_in_a_second(&began) <= 11, "{began:?}");
    });
}

/// What was held has its time back: it is tried after its deadline, and given up as much later as it was held.
#[test]
fn a_deadline_waits_while_a_delivery_is_held() {
    run(async {
        let (from, to) = (-DEADLINE - 50_000, -1_000);
        let held = vec![Held { from: at(from), to: at(to) }];
        let world = World::new(Endpoint { held, ..endpoint() }, 10, |_, _| BROKEN);
        // Its deadline passed while it was held, half a day after it was made.
        let made = from - 43_200;
        world.add(0, made, |delivery| delivery).await;
        assert!(world.delivery(0).deadline < at(0));
        world.host(0, 2 * DEADLINE).await;
        let dead = world.delivery(0);
        assert_eq!(dead.state, State::Dead);
        assert!(dead.attempts > 5, "{} attempts", dead.attempts);
        let ended = dead.finished_at.unwrap();
        let deadline = dead.deadline + Duration::from_secs((to - from).unsigned_abs());
        assert!(ended <= deadline && ended > at(200_000), "{ended} {deadline}");
    });
}
