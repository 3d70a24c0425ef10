//! If it dies right there, of sending: every way through the api, the relay, the deliverer and the sweeper that writes
//! something, with the process dying, the call failing, or its answer lost, before and after each of its calls.
//! Endpoints are disabled, enabled, deleted, polled and redelivered to. Whatever it was, the end is the same.

use std::collections::BTreeSet;

use testkit::chaos::{Fault, When};

use crate::{
    sending::{Sending, Step},
    sending_end::End,
};

/// What somebody does after this and that.
struct Scene {
    name: &'static str,
    /// What was done before.
    before: Vec<Step>,
    /// What is done while something goes wrong.
    act: Step,
    /// Where deliveries stand at rest, and after every endpoint was enabled.
    ends: [&'static str; 2],
    /// Whether the stream is read. If not, the sweeper relays.
    has_relay: bool,
}

/// What sending writes (DESIGN 13): each must be written in one scene at least.
const WRITES: [&str; 27] = [
    "outbox.publish",
    "outbox.publish_to",
    "outbox.checkpoint",
    "outbox.mark",
    "bodies.put",
    "fanout.put_delivery",
    "fanout.put_pointer",
    "fanout.wake",
    "queue.send",
    "lanes.take",
    "lanes.renew",
    "lanes.release",
    "deliveries.record",
    "deliveries.point",
    "deliveries.unpoint",
    "deliveries.note_health",
    "notices.tell",
    "configure.audit",
    "configure.replace_endpoint",
    "configure.remove_endpoint",
    "redeliveries.start",
    "redeliveries.advance",
    "redeliveries.halt",
    "redeliveries.close",
    "redeliver.redeliver_as",
    "events.keep",
    "events.also_to",
];

/// Days, in seconds.
const DAY: i64 = 86_400;

/// Every way through sending that writes something.
fn scenes() -> Vec<Scene> {
    use Step::*;
    let two = [Add("a"), Add("b")];
    let scene = |name, steps: &[Step], act, ends| Scene {
        name,
        before: [&two, steps].concat(),
        act,
        ends,
        has_relay: true,
    };
    let polled = |name, steps: &[Step], act, ends| Scene {
        before: [&[Add("poll")], steps].concat(),
        ..scene(name, &[], act, ends)
    };
    let sent = ["Succeeded"; 2];
    let held = ["Pending Succeeded", "Succeeded"];
    let out = [Publish("x"), Relay];
    let under_way = |more: &[Step]| [&out[..], more].concat();
    // Whatever is tried now fails, until it is too late.
    let given_up = |more: &[Step]| {
        let failed = [
            Answers(0, &[500, 500]),
            Answers(1, &[500, 500]),
            Drain,
            Drain,
            Wait(5 * DAY),
            Purge,
            Sweep,
            Drain,
            Drain,
        ];
        [&out[..], &failed, &[Wait(60)], more].concat()
    };
    let begun = |more: &[Step]| {
        let first = [
            Publish("y"),
            Relay,
            Answers(0, &[500, 500]),
            Answers(1, &[500, 500]),
            Drain,
            Drain,
            Wait(5 * DAY),
            Purge,
            Sweep,
            Drain,
            Drain,
            Wait(60),
            RedeliverLater,
        ];
        given_up(&[&first[..], more].concat())
    };
    vec![
        scene("it is published", &[], Publish("x"), sent),
        scene("it is published and large", &[], PublishLarge("x"), sent),
        Scene { has_relay: false, ..scene("nobody reads the stream", &[], Publish("x"), sent) },
        scene("many are published", &[], PublishMany("x"), sent),
        scene("an endpoint is tried", &[], Trial(0), sent),
        scene(
            "an endpoint is moved",
            &out,
            Change(0, r#"{"url":"https://else.example.com/in","rate":5}"#),
            sent,
        ),
        scene("its lanes are more", &out, Change(0, r#"{"lanes":3}"#), sent),
        scene(
            "it goes into another lane",
            &[Change(0, r#"{"lanes":3}"#), Wait(200), Publish("x")],
            Relay,
            sent,
        ),
        scene("its secret is rotated", &out, Rotate(0), sent),
        scene("it is relayed", &[Publish("x")], Relay, sent),
        scene("two are relayed", &[Publish("x"), Publish("y")], Relay, sent),
        scene("it is relayed in steps", &[Publish("x")], RelayInSteps, sent),
        Scene {
            has_relay: false,
            ..scene("the sweeper relays it", &[Publish("x"), Wait(130)], Sweep, sent)
        },
        scene("its lane sleeps on", &under_way(&[Purge, Wait(130)]), Sweep, sent),
        scene("it is taken", &out, Drain, sent),
        scene("it fails", &under_way(&[Answers(0, &[500])]), Drain, sent),
        scene("it is tried again", &under_way(&[Answers(0, &[500]), Drain, Wait(60)]), Drain, sent),
        scene("its holder is slow", &[Publish("x"), Publish("y"), Relay, Takes(20)], Drain, sent),
        scene(
            "its endpoint is gone for good",
            &under_way(&[Answers(0, &[410, 410, 410])]),
            Drain,
            held,
        ),
        scene(
            "its time is over",
            &under_way(&[
                Answers(0, &[500, 500, 500, 500]),
                Drain,
                Drain,
                Wait(5 * DAY),
                Purge,
                Sweep,
            ]),
            Drain,
            ["Dead Succeeded"; 2],
        ),
        scene("an endpoint is paused", &out, Endpoint(0, "pause"), held),
        scene("an endpoint is disabled", &out, Endpoint(0, "disable"), held),
        scene("it is held", &under_way(&[Endpoint(0, "disable")]), Drain, held),
        scene(
            "it was held for too long",
            &under_way(&[
                Endpoint(0, "disable"),
                Endpoint(1, "disable"),
                Drain,
                Drain,
                Wait(15 * DAY),
                Sweep,
            ]),
            Drain,
            ["Dead"; 2],
        ),
        scene(
            "an endpoint is resumed",
            &under_way(&[Endpoint(0, "pause"), Drain, Drain]),
            Endpoint(0, "resume"),
            sent,
        ),
        scene(
            "an endpoint is enabled",
            &under_way(&[Endpoint(0, "disable"), Drain, Drain]),
            Endpoint(0, "enable"),
            sent,
        ),
        scene(
            "what was held goes out",
            &under_way(&[Endpoint(0, "disable"), Drain, Drain, Endpoint(0, "enable")]),
            Drain,
            sent,
        ),
        scene("an endpoint is deleted", &out, Delete(0), ["Cancelled Succeeded"; 2]),
        scene(
            "one that is disabled is deleted",
            &under_way(&[Endpoint(0, "disable"), Drain, Drain]),
            Delete(0),
            ["Cancelled Succeeded"; 2],
        ),
        scene("it is cancelled", &under_way(&[Delete(0)]), Drain, ["Cancelled Succeeded"; 2]),
        scene("it is sent again", &under_way(&[Drain, Drain]), Redeliver(0), sent),
        scene("what was given up is sent again", &given_up(&[]), RedeliverMany("{}"), sent),
        scene("the sweeper goes on with it", &begun(&[]), Sweep, sent),
        scene("it is cancelled midway", &begun(&[]), Halt("cancel"), ["Dead"; 2]),
        scene("it goes on after a halt", &begun(&[Halt("pause")]), Halt("resume"), sent),
        scene(
            "what never came is made",
            &under_way(&[Drain, Drain, Add("c")]),
            RedeliverMany(r#"{"missing":true,"from":"2027-01-01T00:00:00Z"}"#),
            sent,
        ),
        polled("it is fetched", &out, Poll(0), sent),
        polled("it is acknowledged", &under_way(&[Poll(0)]), Ack(0), sent),
        polled("who fetched it is dead", &under_way(&[Poll(0), Forget, Wait(120)]), Poll(0), sent),
        polled(
            "nobody fetches it",
            &under_way(&[Silence, Wait(5 * DAY), Purge, Sweep]),
            Drain,
            ["Dead"; 2],
        ),
    ]
}

impl Scene {
    async fn begin(&self) -> Sending {
        let world = Sending::new(self.has_relay);
        for step in &self.before {
            assert!(world.take(*step).await, "{}: {step:?}", self.name);
        }
        world.heal();
        world
    }

    /// The calls of the act if nothing goes wrong, of each store and queue; and the end.
    async fn undisturbed(&self) -> (Vec<Vec<&'static str>>, End) {
        let world = self.begin().await;
        assert!(world.take(self.act).await, "{}: {:?}", self.name, self.act);
        let calls = world.chaos().map(testkit::chaos::Chaos::calls).to_vec();
        let end = world.end(self.name).await;
        let stand = end.stands.clone().map(|stands| {
            let states = stands.iter().filter_map(|one| one.rsplit(' ').next());
            states.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(" ")
        });
        assert_eq!(stand, self.ends, "{} {end:?}", self.name);
        (calls, end)
    }
}

/// The same in the end, and nobody got anything more than once more.
#[track_caller]
fn alike(end: &End, expected: &End, told: &str) {
    assert_eq!(end.stands, expected.stands, "{told}");
    assert_eq!(end.endpoints, expected.endpoints, "{told}");
    let who: Vec<_> = end.received.keys().collect();
    assert_eq!(who, expected.received.keys().collect::<Vec<_>>(), "{told}");
    for (what, times) in &end.received {
        let usual = expected.received[what];
        assert!((usual..=usual + 1).contains(times), "{told}: {what} {times} times, not {usual}");
    }
}

/// L2, E18, OUT-fanout-partial, OUT-crash-after-commit, OUT-retention-gap, DLV-crash-after-post, DLV-disabled-events-vanish,
/// RTY-store-outage; and each row of DESIGN 13 of the outbox, the relay and the lanes.
#[tokio::test]
async fn a_fault_at_any_call_of_sending_ends_like_no_fault() {
    let mut written = BTreeSet::new();
    for scene in scenes() {
        let (calls, expected) = scene.undisturbed().await;
        written.extend(calls.iter().flatten().copied());
        for (chaos, calls) in calls.iter().enumerate() {
            for (n, call) in (0..).zip(calls) {
                for when in [When::Before, When::After] {
                    for fault in [Fault::Crash, Fault::Unavailable] {
                        let world = scene.begin().await;
                        world.chaos()[chaos].at(n, when, fault);
                        world.struck(scene.act, chaos).await;
                        let told = format!("{}: {fault:?} {when:?} {call}", scene.name);
                        alike(&world.end(&told).await, &expected, &told);
                    }
                }
            }
        }
    }
    let missed: Vec<_> = WRITES.iter().filter(|write| !written.contains(*write)).collect();
    assert!(missed.is_empty(), "no scene writes {missed:?}, only {written:?}");
}

/// DLV-disabled-events-vanish, DLV-discarded-retry-stuck: who asked for it dies with the call, and nobody asks again. It is
/// done, or it is as if nobody had asked.
#[tokio::test]
async fn what_dies_and_is_not_asked_for_again_is_done_or_is_not() {
    // Of many in one call each is by itself.
    let is_one = |scene: &Scene| !matches!(scene.act, Step::PublishMany(_));
    for scene in scenes().into_iter().filter(|scene| scene.act.is_asked() && is_one(scene)) {
        let (calls, done) = scene.undisturbed().await;
        let not_done = scene.begin().await.end(scene.name).await;
        let ends = [done, not_done].map(|end| (end.stands, end.endpoints));
        for (chaos, calls) in calls.iter().enumerate() {
            for (n, call) in (0..).zip(calls) {
                for when in [When::Before, When::After] {
                    let world = scene.begin().await;
                    world.chaos()[chaos].at(n, when, Fault::Crash);
                    let died = world.chaos()[chaos].until_crash(world.take(scene.act)).await;
                    let told = format!("{}: {when:?} {call}", scene.name);
                    assert!(died.is_none(), "{told}");
                    let End { stands, endpoints, .. } = world.end(&told).await;
                    assert!(ends.contains(&(stands.clone(), endpoints)), "{told}: {stands:?}");
                }
            }
        }
    }
}
