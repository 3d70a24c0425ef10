//! Who hears of what, and when an endpoint is disabled.

use std::time::Duration;

use domain::{
    delivery::State,
    endpoint::{Endpoint, What},
};
use futures_util::join;
use testkit::chaos::{Fault, When};

use super::{
    clock::{at, ms, run, sleep},
    world::{BROKEN, DEADLINE, HOUR, OK, World, endpoint, lanes},
};

/// F16, DLV-disable-notice: six days of nothing but failures, with an event every hour, in two lanes.
#[test]
fn an_endpoint_that_only_fails_is_disabled_after_five_days_and_its_owner_hears_of_it() {
    run(async {
        let world = World::new(Endpoint { lanes: lanes(2), ..endpoint() }, 100, |_, _| BROKEN);
        let events = async {
            for n in 0..140 {
                let second = i64::try_from(n).unwrap() * HOUR;
                world.add(n, second, |delivery| delivery).await;
                sleep(Duration::from_secs(3_600)).await;
            }
        };
        // The lanes exist when their first event has come.
        let host = async |number| {
            while ms() < 139 * HOUR * 1000 {
                sleep(Duration::from_secs(60)).await;
                world.host(number, 139 * HOUR).await;
            }
        };
        join!(events, host(0), host(1));
        let disabled = world.health().disabled.unwrap();
        assert_eq!(disabled.reason, "failing");
        let hours = (disabled.since.duration_since(at(0)).as_secs()) / HOUR;
        assert!((120..122).contains(&hours), "after {hours} h");
        let heard = world.heard();
        let count = |what| heard.iter().filter(|heard| **heard == what).count();
        assert_eq!(
            (count(What::Failing), count(What::FailingLong), count(What::Disabled)),
            (1, 1, 1)
        );
        // The first die when their next try would come after four days; on the sixth day none does: they are held.
        assert!((1..=3).contains(&count(What::Dead)), "{heard:?}");
        assert!(world.health().owed.is_empty());
        assert!((world.counted("endpoints_disabled_total") - 1.0).abs() < 0.1);
        // Nothing was sent after that.
        let last = world.began().iter().map(|turn| turn.0).max().unwrap();
        assert!(last <= (hours + 1) * HOUR * 1000, "{last}");
        assert!(world.states()["Pending"] > 20, "{:?}", world.states());
    });
}

/// DLV-auto-disable-too-eager: one event that is refused for ever, while others are taken.
#[test]
fn one_poisonous_event_disables_nothing() {
    run(async {
        let poison = super::world::event(0);
        let world = World::new(
            endpoint(),
            100,
            move |_, delivery| {
                if delivery.event == poison { BROKEN } else { OK }
            },
        );
        world.add_all(0..1, 0).await;
        let events = async {
            for n in 1..130 {
                sleep(Duration::from_secs(3_600)).await;
                world.add(n, i64::try_from(n).unwrap() * HOUR, |delivery| delivery).await;
            }
        };
        join!(events, world.host(0, 130 * HOUR));
        assert_eq!((world.delivery(0).state, world.health().disabled), (State::Dead, None));
        assert_eq!(world.heard(), [What::Dead]);
    });
}

/// DLV-disable-notice, DLV-dlq-pollution: five hundred that are given up at once, and one notice.
#[test]
fn many_dead_deliveries_are_one_notice() {
    run(async {
        let world = World::new(endpoint(), 10, |_, _| BROKEN);
        world.add_all(0..500, 0).await;
        sleep(Duration::from_secs(DEADLINE.unsigned_abs())).await;
        // Whatever ends for good is a piece of work that was done: no wake message comes back for it.
        while world.item(0).wake_at.is_some_and(|wake_at| wake_at < at(DEADLINE + HOUR)) {
            world.drain(0).await.unwrap();
            sleep(Duration::from_secs(1)).await;
        }
        assert!(world.all(State::Dead), "{:?}", world.states());
        assert_eq!(world.heard(), [What::Dead]);
        assert!((world.counted("deliveries_dead_total") - 500.0).abs() < 0.1);
    });
}

/// DLV-disable-notice: the bus is down when the endpoint is disabled. Nothing is due any more, and still the lane wakes.
#[test]
fn a_notice_that_was_not_taken_is_told_later() {
    run(async {
        let gone = domain::delivery::Outcome::answered(410, None, None);
        let world = World::new(endpoint(), 10, move |_, _| gone.clone());
        world.store.chaos.on("notices.tell", When::Before, Fault::Unavailable);
        world.add_all(0..1, 0).await;
        let up_again = async {
            sleep(Duration::from_secs(600)).await;
            assert!(world.health().disabled.is_some() && world.heard().is_empty());
            assert!(world.item(0).wake_at.is_some_and(|wake_at| wake_at <= at(661)));
            world.store.chaos.heal();
        };
        join!(world.host(0, 2 * HOUR), up_again);
        assert_eq!(world.heard(), [What::Disabled]);
        assert!(world.health().owed.is_empty());
        // And the lane sleeps until what it holds has been held for long enough.
        assert!(world.item(0).wake_at.unwrap() > at(1_000_000));
    });
}

/// Striking a notice out fails: it is told again, and has the same id.
#[test]
fn a_notice_that_is_told_twice_has_one_id() {
    run(async {
        let gone = domain::delivery::Outcome::answered(410, None, None);
        let world = World::new(endpoint(), 10, move |_, _| gone.clone());
        let mut notes = 0;
        world.store.chaos.set(move |_, name| {
            notes += u32::from(name == "deliveries.note_health");
            (name == "deliveries.note_health" && notes == 2)
                .then_some((When::Before, Fault::Throttled))
        });
        world.add_all(0..1, 0).await;
        world.host(0, HOUR).await;
        let ids: Vec<_> = world.notices().iter().map(|notice| notice.id(&endpoint())).collect();
        assert_eq!(ids.len(), 2);
        assert_eq!(ids[0], ids[1]);
    });
}

/// Two lanes learn of an endpoint at once, and neither overwrites what the other has found.
#[test]
fn lanes_add_up_what_they_learn() {
    run(async {
        let world = World::new(Endpoint { lanes: lanes(4), ..endpoint() }, 100, |_, _| BROKEN);
        world.add_all(0..8, 0).await;
        join!(world.host(0, 1), world.host(1, 1), world.host(2, 1), world.host(3, 1));
        let health = world.health();
        assert_eq!((health.failed.len(), health.consecutive_failures, health.version), (8, 8, 8));
    });
}
