use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::{
    body::{Place, Sha256Hash, StoredBody},
    event::Origin,
    id::InboxKey,
    inbox::{Failure, NewRow, Replayed},
};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_790_000_000 + second).unwrap()
}

fn id(number: u128) -> ReplayId {
    ReplayId::new(Uuid::from_u128(number))
}

fn work(kind: Kind, selection: Selection) -> Work {
    let order = Order {
        id: id(1),
        kind,
        source: "shop".parse().unwrap(),
        selection: selection.or_default(kind),
        rate: RATE,
        reason: String::new(),
        actor: String::new(),
    };
    Work::new(order, at(0))
}

/// At rest, or due, since `second`.
fn row(status: Status, second: i64) -> Row {
    let since = |wanted: bool| wanted.then(|| at(second));
    Row {
        new: NewRow {
            key: InboxKey::new("shop".parse().unwrap(), "evt_1").unwrap(),
            event_type: Some("invoice.paid".to_owned()),
            received_at: at(-1000),
            due_at: at(-880),
            body: StoredBody {
                sha256: Sha256Hash::of(b""),
                length: 0,
                place: Place::Inline(Vec::new()),
            },
            headers: BTreeMap::new(),
            object: None,
            version: None,
            occurred_at: None,
            origin: Origin::Webhook,
            key_id: None,
            token: String::new(),
            traceparent: None,
            delivery_id: None,
            parent: None,
        },
        status,
        attempts: 0,
        cycle: 0,
        sweeps: 0,
        due_at: since(status == Status::Pending),
        dead_at: since(status == Status::DeadLetter),
        finished_at: since(status.is_finished()),
        last_error: Some(Failure::new("handler_failed", "no")),
        next_action: None,
        waits_until: None,
        waits_since: None,
        results: Vec::new(),
        armed_at: at(-1000),
        split: 0,
        other_bodies: None,
        replay: None,
    }
}

fn taken_by(number: u128) -> Option<Replayed> {
    Some(Replayed { by: id(number), from: Status::DeadLetter })
}

fn of(status: &[Status]) -> Selection {
    Selection { status: status.iter().copied().collect(), ..Selection::default() }
}

/// RPL-already-delivered, RPL-in-flight
#[test]
fn what_is_done_with_a_row_is_decided_by_its_status_and_the_selection() {
    let check = |selection: Selection, row: &Row, expected: Verdict| {
        assert_eq!(
            judge(&work(Kind::Replay, selection), row, at(180)),
            expected,
            "{:?}",
            row.status
        );
    };
    let (take, leave) = (Verdict::Take, Verdict::Leave);
    let all = || Selection::default();
    check(all(), &row(Status::DeadLetter, -5), take);
    check(all(), &row(Status::Pending, -5), leave(Outcome::InFlight));
    check(all(), &row(Status::Processed, -5), leave(Outcome::AlreadyDone));
    check(all(), &row(Status::Ignored, -5), leave(Outcome::NotSelected));
    check(of(&[Status::Processed]), &row(Status::Processed, -5), take);
    check(of(&[Status::Ignored]), &row(Status::Ignored, -5), take);
    check(of(&[Status::Ignored]), &row(Status::DeadLetter, -5), leave(Outcome::NotSelected));
    check(of(&[Status::Ignored]), &row(Status::Processed, -5), leave(Outcome::AlreadyDone));
    // Named, an ignored one is meant; a processed one still is not.
    let named = || Selection { events: vec!["evt_1".to_owned()], ..all() };
    check(named(), &row(Status::Ignored, -5), take);
    check(named(), &row(Status::Processed, -5), leave(Outcome::AlreadyDone));
}

#[test]
fn every_restriction_must_hold() {
    let check = |selection: Selection, expected: bool| {
        let verdict = judge(&work(Kind::Replay, selection), &row(Status::DeadLetter, -5), at(0));
        let no = Verdict::Leave(Outcome::NotSelected);
        assert_eq!(verdict, if expected { Verdict::Take } else { no });
    };
    let types = |patterns: &[&str]| Selection {
        types: patterns.iter().map(|text| text.parse().unwrap()).collect(),
        ..Selection::default()
    };
    check(types(&["invoice.*"]), true);
    check(types(&["charge.*", "*.paid"]), true);
    check(types(&["charge.*"]), false);
    let error = |code: &str| Selection { error: Some(code.to_owned()), ..Selection::default() };
    check(error("handler_failed"), true);
    check(error("fetch_refused"), false);
    let range = |from, to| Selection { from, to, ..Selection::default() };
    check(range(Some(at(-1000)), None), true);
    check(range(Some(at(-999)), None), false);
    check(range(None, Some(at(-999))), true);
    check(range(None, Some(at(-1000))), false);
    check(Selection { error: Some("x".to_owned()), ..types(&["*"]) }, false);
}

/// A replay never takes an event twice, not even if a worker's clock is behind and says that it was parked before.
#[test]
fn what_the_same_work_has_taken_is_not_taken_again() {
    for status in [Status::DeadLetter, Status::Pending] {
        let taken = Row { replay: taken_by(1), ..row(status, -5) };
        let verdict = judge(&work(Kind::Replay, Selection::default()), &taken, at(0));
        assert_eq!(verdict, Verdict::Leave(Outcome::Replayed));
    }
    let by_another = Row { replay: taken_by(2), ..row(Status::DeadLetter, -5) };
    assert_eq!(judge(&work(Kind::Replay, Selection::default()), &by_another, at(0)), Verdict::Take);
}

#[test]
fn what_came_to_rest_after_the_work_began_is_left() {
    let began = work(Kind::Replay, of(&[Status::DeadLetter, Status::Ignored]));
    for status in [Status::DeadLetter, Status::Ignored] {
        assert_eq!(judge(&began, &row(status, -1), at(0)), Verdict::Take);
        assert_eq!(judge(&began, &row(status, 0), at(0)), Verdict::Leave(Outcome::Moved));
    }
}

#[test]
fn a_parked_row_among_the_finished_is_taken_where_the_parked_are() {
    let both = work(Kind::Replay, of(&[Status::DeadLetter, Status::Ignored]));
    let page = Batch { events: vec!["evt_1".to_owned()], by_day: true };
    let both = Work { page, ..both };
    let verdict = judge(&both, &row(Status::DeadLetter, -5), at(0));
    assert_eq!(verdict, Verdict::Leave(Outcome::NotSelected));
    let taken = Row { replay: taken_by(1), ..row(Status::Pending, -5) };
    assert_eq!(judge(&both, &taken, at(0)), Verdict::Leave(Outcome::NotSelected));
    assert_eq!(judge(&both, &row(Status::Ignored, -5), at(0)), Verdict::Take);
}

#[test]
fn a_resume_takes_what_waits_for_later_and_nothing_else() {
    let resume = work(Kind::Resume, Selection::default());
    assert_eq!(judge(&resume, &row(Status::Pending, 181), at(180)), Verdict::Take);
    let soon = judge(&resume, &row(Status::Pending, 180), at(180));
    assert_eq!(soon, Verdict::Leave(Outcome::InFlight));
    for status in [Status::DeadLetter, Status::Ignored] {
        let left = judge(&resume, &row(status, -5), at(180));
        assert_eq!(left, Verdict::Leave(Outcome::NotSelected));
    }
}

#[test]
fn a_selection_says_what_is_wrong_with_it() {
    let check = |kind, selection: Selection, expected: &[&str]| {
        let found = selection.problems(kind);
        assert_eq!(found.iter().map(|(field, _)| *field).collect::<Vec<_>>(), expected);
    };
    let all = Selection::default;
    check(Kind::Replay, all(), &[]);
    check(Kind::Replay, of(&[Status::Pending]), &["status"]);
    check(Kind::Resume, of(&[Status::Pending]), &[]);
    check(Kind::Resume, of(&[Status::Processed]), &["status"]);
    check(Kind::Replay, Selection { from: Some(at(1)), to: Some(at(1)), ..all() }, &["from"]);
    check(Kind::Replay, Selection { events: vec!["x".to_owned(); 201], ..all() }, &["events"]);
    check(Kind::Replay, Selection { events: vec![String::new()], ..all() }, &["events"]);
    check(Kind::Replay, Selection { types: vec!["*".parse().unwrap(); 51], ..all() }, &["types"]);
    for code in ["", "a b", "A", &"x".repeat(101)] {
        check(Kind::Replay, Selection { error: Some(code.to_owned()), ..all() }, &["error"]);
    }
}

/// Every partition once: the parked shard by shard, then the days.
#[test]
fn a_walk_goes_through_every_partition_once() {
    let legs = |kind, selection: Selection| {
        let work = work(kind, selection);
        let next = |leg: &Leg| Some(leg.next(&work, 2)).filter(|leg| *leg != Leg::End);
        let legs = std::iter::successors(Some(work.leg.clone()), next);
        let name = |leg: Leg| match leg {
            Leg::Named { next } => format!("named {next}"),
            Leg::Dead { shard, .. } => format!("dead {shard}"),
            Leg::Finished { day, shard, .. } => format!("{day} {shard}"),
            Leg::Due { shard, .. } => format!("due {shard}"),
            Leg::End => "end".to_owned(),
        };
        legs.map(name).collect::<Vec<_>>().join(", ")
    };
    let since =
        |status: &[Status], days: i64| Selection { from: Some(at(-days * 86_400)), ..of(status) };
    assert_eq!(legs(Kind::Replay, Selection::default()), "dead 0, dead 1");
    assert_eq!(legs(Kind::Resume, Selection::default()), "due 0, due 1");
    assert_eq!(
        legs(Kind::Replay, since(&[Status::Ignored], 1)),
        "2026-09-20 0, 2026-09-20 1, 2026-09-21 0, 2026-09-21 1"
    );
    assert_eq!(
        legs(Kind::Replay, since(&[Status::Ignored, Status::DeadLetter], 0)),
        "dead 0, dead 1, 2026-09-21 0, 2026-09-21 1"
    );
    let until = Selection { to: Some(at(-86_400)), ..since(&[Status::Processed], 1) };
    assert_eq!(legs(Kind::Replay, until), "2026-09-20 0, 2026-09-20 1");
    let named = Selection { events: vec!["a".to_owned()], ..of(&[Status::Processed]) };
    assert_eq!(legs(Kind::Replay, named), "named 0");
}

#[test]
fn a_rate_of_one_a_second_sends_one_message_each_second() {
    let slow = Work { rate: 1, ..work(Kind::Replay, Selection::default()) };
    assert_eq!(slow.allowance(at(0)), PAGE);
    let delays: Vec<_> = (0..4).map(|n| slow.delay(at(0), n).as_secs()).collect();
    assert_eq!(delays, [0, 1, 2, 3]);
    let done = Done { taken: 50, leg: Leg::Dead { shard: 0, after: None }, ..Done::default() };
    let after = slow.after(&done, at(0));
    assert_eq!(after.allowance(at(0)), 10);
    assert_eq!(after.delay(at(0), 0).as_secs(), 50);
    let after = after.after(&Done { taken: 10, ..done }, at(0));
    assert_eq!(after.allowance(at(0)), 0);
    assert_eq!(after.allowance(at(20)), 20);
    // What was not used is not saved up.
    assert_eq!(after.delay(at(500), 0).as_secs(), 0);
    assert_eq!(after.delay(at(500), 3).as_secs(), 3);
}

#[test]
fn a_page_is_counted_and_only_the_odd_ones_are_told_of() {
    let told = |outcome| Told { event_id: format!("{outcome:?}"), outcome };
    let all = [
        Outcome::Replayed,
        Outcome::InFlight,
        Outcome::Moved,
        Outcome::AlreadyDone,
        Outcome::NotSelected,
        Outcome::Absent,
        Outcome::Failed,
    ];
    let done = Done { told: all.map(told).into(), taken: 1, ..Done::default() };
    let after = work(Kind::Replay, Selection::default()).after(&done, at(9));
    let one = Counts {
        looked_at: 7,
        replayed: 1,
        in_flight: 1,
        moved: 1,
        already_done: 1,
        absent: 1,
        failed: 1,
    };
    assert_eq!((after.counts, after.told.len()), (one, 3));
    assert_eq!((after.state(), after.ended_at, after.version), (State::Completed, Some(at(9)), 1));
    let named = Selection { events: vec!["x".to_owned()], ..Selection::default() };
    assert_eq!(work(Kind::Replay, named).after(&done, at(9)).told.len(), 7);
}

proptest! {
    /// Whatever the clocks say, no more than the rate is spent in a minute, and no message waits longer than that.
    #[test]
    fn a_rate_is_kept(rate in 1_u32..=MAX_RATE, looks in prop::collection::vec((0_i64..90, 0_u32..=50), 1..60)) {
        let mut work = Work { rate, ..work(Kind::Replay, Selection::default()) };
        let mut sent: Vec<i64> = Vec::new();
        let mut now = 0;
        for (later, wanted) in looks {
            now += later - 10;
            let allowed = work.allowance(at(now)).min(wanted as usize);
            for n in 0..allowed {
                let delay = work.delay(at(now), n);
                prop_assert!(delay <= AHEAD);
                sent.push(now + i64::try_from(delay.as_secs()).unwrap());
            }
            let taken = u32::try_from(allowed).unwrap();
            work = work.after(&Done { taken, leg: work.leg.clone(), ..Done::default() }, at(now));
        }
        sent.sort_unstable();
        for window in sent.windows(usize::try_from(rate).unwrap() * 2 + 1) {
            prop_assert!(window[window.len() - 1] > window[0], "{rate}: {window:?}");
        }
    }
}
