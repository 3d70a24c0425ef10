//! What a receiver says of what it is sent, and what a person asks for.

use domain::{
    delivery::{Cause, Outcome, State, Steer},
    endpoint::{Endpoint, Health, What},
    inbox::Noted,
    ports::Deliveries as _,
};

use super::{
    clock::{at, run},
    world::{BROKEN, DEADLINE, OK, World, endpoint, event, lane},
};

/// A receiver that will never take one event is not asked again, and is healthy.
#[test]
fn an_abort_ends_one_delivery() {
    run(async {
        let refused = event(1);
        let world = World::new(endpoint(), 10, move |_, delivery| {
            let abort = Outcome::answered(422, None, Some(Steer::Abort));
            if delivery.event == refused { abort } else { OK }
        });
        world.add_all(0..3, 0).await;
        world.host(0, 60).await;
        let states = [0, 1, 2].map(|n| world.delivery(n).state);
        assert_eq!(states, [State::Succeeded, State::Dead, State::Succeeded]);
        let aborted = world.delivery(1);
        assert_eq!((aborted.attempts, aborted.log[0].outcome.status()), (1, Some(422)));
        assert_eq!((world.health().failing_since, world.heard()), (None, vec![What::Dead]));
        assert!((world.counted("deliveries_dead_total") - 1.0).abs() < 0.1);
    });
}

/// A receiver that wants nothing more is left alone at once; the answer with which it says so still counts.
#[test]
fn a_disable_stops_the_endpoint_at_once() {
    run(async {
        let narrow = Endpoint { concurrency: Some(1), ..endpoint() };
        for (status, first) in [(200, State::Succeeded), (503, State::Pending)] {
            let world = World::new(narrow.clone(), 10, move |_, _| {
                Outcome::answered(status, None, Some(Steer::Disable))
            });
            world.add_all(0..5, 0).await;
            world.host(0, 60).await;
            assert_eq!(world.began().len(), 1);
            assert_eq!(
                world.states().get("Pending").copied(),
                Some(if status == 200 { 4 } else { 5 })
            );
            let tried = (0..5).map(|n| world.delivery(n)).find(|d| d.attempts == 1).unwrap();
            assert_eq!(tried.state, first);
            assert_eq!(world.health().disabled.unwrap().reason, "asked");
            assert_eq!(world.heard(), [What::Disabled]);
            assert!((world.counted("endpoints_disabled_total") - 1.0).abs() < 0.1);
        }
    });
}

/// RPL-health-and-secret: twenty redeliveries by hand that fail say nothing about the endpoint, and neither do twenty
/// that succeed.
#[test]
fn redeliveries_by_hand_leave_the_health_alone() {
    run(async {
        for answer in [BROKEN, OK] {
            let world = World::new(endpoint(), 10, move |_, _| answer.clone());
            let failing = Health {
                version: 1,
                failing_since: Some(at(-500_000)),
                consecutive_failures: 9,
                failed: (100..109).map(event).collect(),
                ..Health::default()
            };
            let noted = world.store.note_health(&endpoint().tenant, endpoint().id, &failing).await;
            assert_eq!(noted.unwrap(), Noted::Yes);
            for n in 0..20 {
                world.add(n, 0, |new| new.given_up(Cause::Expired, at(0))).await;
                let deadline = at(DEADLINE);
                let asked = world.store.redeliver(&lane(0), event(n), deadline, at(0)).await;
                assert_eq!(asked.unwrap(), Noted::Yes);
            }
            world.host(0, 300).await;
            assert!(world.began().len() >= 7, "{}", world.began().len());
            assert_eq!(world.health(), failing);
        }
    });
}
