use uuid::Uuid;

use super::*;
use crate::delivery::{Attempt, Next, Outcome as Ended};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_790_000_000 + second).unwrap()
}

fn endpoint(number: u128) -> EndpointId {
    EndpointId::new(Uuid::from_u128(number))
}

fn event(second: i64) -> EventId {
    EventId::derived(at(second), &["x"])
}

const US: RedeliveryId = RedeliveryId::new(Uuid::from_u128(1));

fn work(selection: Selection) -> Work {
    let order = Order {
        id: US,
        tenant: "acme".parse().unwrap(),
        endpoints: vec![endpoint(1), endpoint(2)],
        is_named: true,
        selection,
        rate: RATE,
        reason: "the receiver is mended".to_owned(),
        actor: "me".to_owned(),
    };
    Work::new(order, at(0))
}

/// Of an event of a while ago, finished since `second`.
fn delivery(state: Stands, second: i64) -> Delivery {
    let new = Delivery::new(event(-1000), "invoice.paid".to_owned(), at(-500), at(-1000));
    let finished_at = (state != Stands::Pending).then(|| at(second));
    Delivery { state, attempts: 3, finished_at, ..new }
}

fn wanting(change: impl FnOnce(&mut Selection)) -> Selection {
    let mut selection = Selection::default();
    change(&mut selection);
    selection
}

/// RPL-in-flight, RPL-already-delivered
#[test]
fn each_state_is_taken_only_where_it_is_asked_for() {
    let check = |selection: &Selection, state: Stands, expected: Verdict| {
        let verdict = judge(&work(selection.clone()), &delivery(state, -10));
        assert_eq!(verdict, expected, "{selection:?} {state:?}");
    };
    let leave = Verdict::Leave;
    let plain = Selection::default();
    check(&plain, Stands::Dead, Verdict::Take);
    check(&plain, Stands::Pending, leave(Outcome::InFlight));
    check(&plain, Stands::Succeeded, leave(Outcome::AlreadyDelivered));
    check(&plain, Stands::Cancelled, leave(Outcome::Cancelled));
    let delivered = wanting(|selection| selection.include_delivered = true);
    check(&delivered, Stands::Succeeded, Verdict::Take);
    check(&delivered, Stands::Cancelled, leave(Outcome::Cancelled));
    check(&delivered, Stands::Pending, leave(Outcome::InFlight));
    let cancelled = wanting(|selection| selection.include_cancelled = true);
    check(&cancelled, Stands::Cancelled, Verdict::Take);
    check(&cancelled, Stands::Succeeded, leave(Outcome::AlreadyDelivered));
    let missing = wanting(|selection| selection.missing = true);
    check(&missing, Stands::Dead, leave(Outcome::NotSelected));
    check(&missing, Stands::Pending, leave(Outcome::InFlight));
}

/// RPL-in-flight: what changed since it began is left alone, and what it took itself is counted once.
#[test]
fn what_came_to_rest_since_the_work_began_is_left_alone() {
    let plain = work(Selection::default());
    let verdict = |second| judge(&plain, &delivery(Stands::Dead, second));
    assert_eq!(verdict(-1), Verdict::Take);
    assert_eq!(verdict(0), Verdict::Leave(Outcome::Moved));
    let tried = (at(1), at(1), Duration::from_secs(60));
    for (by, expected) in
        [(US, Outcome::Redelivered), (RedeliveryId::new(Uuid::max()), Outcome::InFlight)]
    {
        let taken = due_again(&delivery(Stands::Dead, -1), by, false, tried);
        assert_eq!(judge(&plain, &taken), Verdict::Leave(expected));
        // It failed again, or went through: it has had its turn.
        for state in [Stands::Dead, Stands::Succeeded] {
            let again = Delivery { state, finished_at: Some(at(2)), ..taken.clone() };
            let left = match (by == US, state) {
                (true, _) => Outcome::Redelivered,
                (false, Stands::Dead) => Outcome::Moved,
                (false, _) => Outcome::AlreadyDelivered,
            };
            assert_eq!(judge(&plain, &again), Verdict::Leave(left));
        }
    }
}

#[test]
fn types_and_times_narrow_a_selection() {
    let check = |selection: Selection, expected: bool| {
        let is_taken =
            judge(&work(selection.clone()), &delivery(Stands::Dead, -10)) == Verdict::Take;
        assert_eq!(is_taken, expected, "{selection:?}");
    };
    let types = |text: &str| wanting(|selection| selection.types = vec![text.parse().unwrap()]);
    check(types("invoice.*"), true);
    check(types("charge.*"), false);
    let range = |from: i64, to: i64| {
        wanting(|selection| (selection.from, selection.to) = (Some(at(from)), Some(at(to))))
    };
    check(range(-1000, -999), true);
    check(range(-999, 0), false);
    check(range(-2000, -1000), false);
}

/// RPL-health-and-secret, H11: the same event, a new deadline, and attempts that never go back.
#[test]
fn a_delivery_due_again_keeps_its_event_and_its_attempts() {
    let dead = delivery(Stands::Dead, -10);
    let begun = Delivery { begun: dead.begins("holder", at(-20)).begun, ..dead.clone() };
    let again = due_again(&begun, US, true, (at(0), at(5), Duration::from_secs(100)));
    assert_eq!((again.event, again.state, again.due_at), (dead.event, Stands::Pending, at(5)));
    assert_eq!((again.deadline, again.finished_at, again.begun.clone()), (at(105), None, None));
    // The attempt that was begun and never ended has its number for ever.
    assert_eq!(again.attempts, 4);
    let mark = again.redelivered.clone().unwrap();
    assert_eq!((mark.by, mark.after, mark.from), (US, 4, Some(Stands::Dead)));
    assert_eq!(again.asked_at, Some(at(0)));
    let among_many = due_again(&again, US, false, (at(7), at(7), Duration::from_secs(100)));
    assert_eq!(among_many.asked_at, None);
    let outcome = Ended::Answered { status: 200, retry_after_ms: None };
    let attempt = Attempt { number: 5, at: at(6), duration_ms: 1, outcome, excerpt: String::new() };
    let done = again.ended(attempt, Next::Succeeded, at(6));
    assert_eq!((done.attempts, done.redelivered), (5, again.redelivered));
}

/// What never came to an endpoint is what it would get now: from before it was made, or asked for that type.
#[test]
fn an_event_is_missing_by_what_its_endpoint_would_get_now() {
    let url = crate::destination::Destination::Https("https://example.com/".to_owned());
    let mut hooks = Endpoint::new("acme".parse().unwrap(), endpoint(1), url, at(0));
    let labels = BTreeMap::new();
    let event = |event_type| Facts { event_type, at: at(-100), labels: &labels };
    assert!(!hooks.wants(&event("invoice.paid"), None));
    assert!(would_get(&hooks, &event("invoice.paid"), None));
    let choice = |types: &str| crate::endpoint::Choice {
        patterns: vec![types.parse().unwrap()],
        ..crate::endpoint::Choice::default()
    };
    hooks.choose(choice("charge.*"), at(10));
    assert!(!would_get(&hooks, &event("invoice.paid"), None));
    assert!(would_get(&hooks, &event("charge.made"), None));
}

#[test]
fn a_walk_goes_through_each_lane_of_each_endpoint_and_ends() {
    let work = work(wanting(|selection| selection.from = Some(at(-50))));
    let floor = Some(EventId::floor(at(-50)));
    let mut leg = work.leg.clone();
    assert_eq!(leg, Leg::Lane { endpoint: 0, lane: 0, after: floor });
    assert_eq!(leg.endpoint(&work), Some(endpoint(1)));
    let mut seen = Vec::new();
    while leg != Leg::End {
        let Leg::Lane { endpoint, lane, .. } = leg.clone() else { panic!("{leg:?}") };
        seen.push((endpoint, lane));
        leg = leg.past(event(-1)).next(&work, if endpoint == 0 { 2 } else { 1 });
    }
    assert_eq!(seen, [(0, 0), (0, 1), (1, 0)]);
    assert_eq!(Leg::first(&work.selection, 0), Leg::End);
    assert_eq!(
        Leg::Lane { endpoint: 0, lane: 0, after: None }.next_endpoint(&work),
        Leg::Lane { endpoint: 1, lane: 0, after: floor }
    );
}

#[test]
fn the_floor_of_a_time_is_before_its_events_and_after_those_of_earlier_times() {
    let millisecond = |ms| Timestamp::from_millisecond(ms).unwrap();
    for text in ["a", "b", "c"] {
        let id = |ms| EventId::derived(millisecond(ms), &[text]);
        let floor = EventId::floor(millisecond(1_790_000_000_123));
        assert!(id(1_790_000_000_122) < floor && floor < id(1_790_000_000_123));
    }
}

#[test]
fn named_events_are_paired_with_each_endpoint_page_by_page() {
    let work = work(wanting(|selection| selection.events = vec![event(-3), event(-2), event(-1)]));
    let mut leg = work.leg.clone();
    let mut seen = Vec::new();
    while let Leg::Named { next } = leg {
        let (pairs, after) = Leg::named(&work, next, 4);
        assert!(pairs.len() <= 4);
        seen.extend(pairs);
        leg = after;
    }
    let of = |second| [(event(second), endpoint(1)), (event(second), endpoint(2))];
    assert_eq!(seen, [of(-3), of(-2), of(-1)].concat());
    assert_eq!(leg, Leg::End);
    // Nothing may be taken now: the walk stands where it stood.
    assert_eq!(Leg::named(&work, 0, 0), (Vec::new(), Leg::Named { next: 0 }));
}

#[test]
fn a_page_is_counted_told_and_paced() {
    let work = work(Selection::default());
    let told = |outcome| Told { event: event(-1), endpoint: endpoint(1), outcome };
    let outcomes =
        [Outcome::Redelivered, Outcome::AlreadyDelivered, Outcome::InFlight, Outcome::NotSelected];
    let done = Done { told: outcomes.map(told).to_vec(), taken: 1, leg: Leg::End };
    let after = work.after(&done, at(1));
    let counts = after.counts;
    assert_eq!((counts.looked_at, counts.redelivered, counts.in_flight), (4, 1, 1));
    assert_eq!(after.told, [told(Outcome::InFlight)]);
    assert_eq!((after.state(), after.version, after.ended_at), (State::Completed, 1, Some(at(1))));
    assert_eq!(after.paced_until.duration_since(at(1)).as_millis(), 1000 / i128::from(RATE));
    // A paused one neither runs nor is over; what has ended stays so.
    let paused = Work { paused: Some((at(0), "me".to_owned())), ..work };
    assert_eq!((paused.state(), paused.is_over()), (State::Paused, false));
    assert_eq!(Work { paused: paused.paused, ..after }.state(), State::Completed);
}

#[test]
fn selections_that_cannot_be_are_told_with_every_reason() {
    let check = |selection: Selection, expected: &[&str]| {
        let fields: Vec<_> = selection.problems().into_iter().map(|(field, _)| field).collect();
        assert_eq!(fields, expected, "{selection:?}");
    };
    check(Selection::default(), &[]);
    check(wanting(|s| (s.from, s.to) = (Some(at(1)), Some(at(1)))), &["from"]);
    check(wanting(|s| s.events = vec![event(1); MAX_EVENTS + 1]), &["events"]);
    check(wanting(|s| s.missing = true), &["from"]);
    let all = wanting(|s| {
        (s.missing, s.include_delivered, s.include_cancelled) = (true, true, true);
        s.events = vec![event(1)];
        s.types = vec!["*".parse().unwrap(); crate::bulk::selection::MAX_PATTERNS + 1];
    });
    check(all, &["types", "missing", "include_delivered", "include_cancelled"]);
}
