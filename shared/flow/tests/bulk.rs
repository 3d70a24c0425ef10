//! Bulk work over the tables in memory, with a worker that is as simple as can be.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Mutex,
    time::Duration,
};

use domain::{
    body::{Place, Sha256Hash, StoredBody},
    bulk::{Counts, Kind, Order, Outcome, PAGE, Selection, State, Survey, Told, Work},
    event::Origin,
    id::{InboxKey, ReplayId},
    inbox::{Failure, NewRow, Noted, Row, Status},
    message::{InboundMessage, Message as _},
    ports::{Bulk as _, Finish, Inbox as _, Queue, Start},
};
use flow::bulk::{Bulks, Step};
use futures_util::future::{join, join3};
use jiff::{SignedDuration, Timestamp};
use testkit::{
    chaos::{Fault, When},
    memory::{InboxItem, MemoryQueue, Store},
};
use uuid::Uuid;

const FIRST_DUE: Duration = Duration::from_secs(120);

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_790_000_000 + second).unwrap()
}

fn key(event: &str) -> InboxKey {
    InboxKey::new("shop".parse().unwrap(), event).unwrap()
}

fn id(number: u128) -> ReplayId {
    ReplayId::new(Uuid::from_u128(number))
}

struct Bench {
    store: Store,
    queue: MemoryQueue,
    /// How often the handler ran for each event.
    runs: Mutex<BTreeMap<String, u32>>,
}

/// What the handler makes of an event.
#[derive(Clone, Copy)]
enum Handler {
    Works,
    /// The bug is still there: the worker parks, by a clock that is so many seconds off.
    Fails(i64),
}

impl Bench {
    fn new() -> Self {
        let queue = MemoryQueue::new(Duration::from_secs(180), 16);
        queue.set_now(at(0));
        Self { store: Store::new(4), queue, runs: Mutex::default() }
    }

    /// With so many parked events.
    fn with_parked(count: usize) -> Self {
        let bench = Self::new();
        for n in 0..count {
            bench.put("shop", &format!("evt_{n}"), "invoice.paid", Status::DeadLetter);
        }
        bench
    }

    /// An event of this type that came to this status a while ago.
    fn put(&self, source: &str, event: &str, kind: &str, status: Status) {
        let new = NewRow {
            key: InboxKey::new(source.parse().unwrap(), event).unwrap(),
            event_type: Some(kind.to_owned()),
            received_at: at(-600_000),
            due_at: at(-599_880),
            body: StoredBody {
                sha256: Sha256Hash::of(b"{}"),
                length: 2,
                place: Place::Inline(b"{}".to_vec()),
            },
            headers: BTreeMap::new(),
            object: None,
            version: None,
            occurred_at: Some(at(-600_005)),
            origin: Origin::Webhook,
            key_id: Some("1".to_owned()),
            token: event.to_owned(),
            traceparent: None,
            delivery_id: None,
            parent: None,
        };
        let row = Row {
            status,
            attempts: if status == Status::DeadLetter { 12 } else { 0 },
            cycle: 0,
            sweeps: 0,
            due_at: (status == Status::Pending).then(|| at(100)),
            dead_at: (status == Status::DeadLetter).then(|| at(-500_000)),
            finished_at: status.is_finished().then(|| at(-500_000)),
            last_error: Some(Failure::new("handler_failed", "no such column")),
            next_action: None,
            waits_until: None,
            waits_since: None,
            results: Vec::new(),
            armed_at: new.received_at,
            split: 0,
            other_bodies: None,
            replay: None,
            new,
        };
        let item = InboxItem { row, expires_at: status.is_finished().then(|| at(3_000_000)) };
        self.store.tables().inbox.insert(item.row.new.key.clone(), item);
    }

    /// As a worker does that finds the source paused.
    fn put_off(&self, event: &str) {
        self.store.tables().inbox.get_mut(&key(event)).unwrap().row.due_at = Some(at(21_600));
    }

    fn row(&self, event: &str) -> Row {
        self.store.tables().inbox[&key(event)].row.clone()
    }

    fn rows(&self) -> Vec<Row> {
        self.store.tables().inbox.values().map(|item| item.row.clone()).collect()
    }

    fn bulks(&self) -> Bulks<'_, Store, Store, MemoryQueue> {
        let (store, queue) = (&self.store, &self.queue);
        Bulks { inbox: store, bulk: store, queue, shards: 4, first_due: FIRST_DUE }
    }

    async fn start(&self, work: &Work) {
        assert_eq!(self.store.start(work, 20).await.unwrap(), Start::Yes);
    }

    async fn read(&self, id: ReplayId) -> Work {
        self.store.bulk(id).await.unwrap().unwrap()
    }

    /// Goes on until there is nothing to do at this time.
    async fn advance(&self, id: ReplayId, now: Timestamp) -> Step {
        loop {
            let work = self.read(id).await;
            match self.bulks().step(&work, now).await.unwrap() {
                Step::Went(_) | Step::Lost => {}
                end @ (Step::Waits | Step::Over) => return end,
            }
        }
    }

    /// Goes on for as long as it takes, as one sweep each minute would.
    async fn to_the_end(&self, id: ReplayId, mut now: Timestamp) -> Work {
        while self.advance(id, now).await == Step::Waits {
            now += Duration::from_secs(60);
        }
        self.read(id).await
    }

    async fn survey(&self, work: &Work) -> Survey {
        self.bulks().survey(work.clone(), 10_000, || false).await.unwrap()
    }

    /// Works through every message that is there at this time.
    async fn work(&self, now: Timestamp, handler: Handler) {
        self.queue.set_now(now);
        while let Some(message) = self.queue.receive(|_| 0) {
            let InboundMessage(key) = InboundMessage::from_text(&message.text).unwrap();
            let row = self.store.read(&key).await.unwrap().unwrap();
            if row.status == Status::Pending {
                *self.runs.lock().unwrap().entry(key.event_id().to_owned()).or_default() += 1;
                let _ = self.end(&row, now, handler).await;
            }
            self.queue.delete(&message.receipt);
        }
    }

    async fn end(&self, row: &Row, now: Timestamp, handler: Handler) -> Noted {
        match handler {
            Handler::Works => {
                let finish = Finish {
                    status: Status::Processed,
                    results: Vec::new(),
                    reason: None,
                    now,
                    expires_at: at(9_000_000),
                };
                self.store.finish(&row.claim(), &finish).await.unwrap()
            }
            Handler::Fails(skew) => {
                let parked_at = now + SignedDuration::from_secs(skew);
                let failure = Failure::new("handler_failed", "still no such column");
                self.store.park(&row.claim(), 1, &failure, parked_at).await.unwrap()
            }
        }
    }

    /// Messages that a worker could have now.
    async fn visible(&self) -> u64 {
        Queue::<InboundMessage>::visible(&self.queue).await.unwrap()
    }

    fn all_runs(&self) -> u32 {
        self.runs.lock().unwrap().values().sum()
    }

    /// How many events stand where.
    fn statuses(&self) -> Vec<(String, usize)> {
        let mut statuses = BTreeMap::new();
        for row in self.rows() {
            *statuses.entry(row.status.to_string()).or_default() += 1;
        }
        statuses.into_iter().collect()
    }
}

fn work(number: u128, rate: u32, selection: Selection) -> Work {
    let order = Order {
        id: id(number),
        kind: Kind::Replay,
        source: "shop".parse().unwrap(),
        selection: selection.or_default(Kind::Replay),
        rate,
        reason: "mended".to_owned(),
        actor: "ann".to_owned(),
    };
    Work::new(order, at(0))
}

/// What a resume of the source starts.
fn resume(number: u128) -> Work {
    let order = Order {
        id: id(number),
        kind: Kind::Resume,
        source: "shop".parse().unwrap(),
        selection: Selection::default().or_default(Kind::Resume),
        rate: 50,
        reason: String::new(),
        actor: String::new(),
    };
    Work::new(order, at(0))
}

/// All parked events, fast.
fn all(number: u128) -> Work {
    work(number, 1000, Selection::default())
}

fn named(events: &[&str]) -> Selection {
    let events = events.iter().map(|event| (*event).to_owned()).collect();
    Selection { events, ..Selection::default() }
}

fn stands(status: &str, count: usize) -> (String, usize) {
    (status.to_owned(), count)
}

/// RPL-inbound-repair, K2, K6, K10, C14: a bug dropped events for a week; after the fix they are run again, with what came
/// in, when it came in; what is done stays done.
#[tokio::test]
async fn events_that_a_bug_dropped_are_repaired_once_each_with_their_original_times() {
    let bench = Bench::new();
    for n in 0..245 {
        let status = match n {
            0..3 => Status::Processed,
            3..100 => Status::Ignored,
            _ => Status::DeadLetter,
        };
        bench.put("shop", &format!("evt_{n}"), "invoice.paid", status);
    }
    for n in 0..30 {
        bench.put("shop", &format!("other_{n}"), "charge.failed", Status::Ignored);
        bench.put("elsewhere", &format!("other_{n}"), "invoice.paid", Status::DeadLetter);
    }
    let selection = Selection {
        status: [Status::Ignored, Status::DeadLetter].into(),
        types: vec!["invoice.*".parse().unwrap()],
        from: Some(at(-700_000)),
        ..Selection::default()
    };
    let work = work(1, 50, selection);
    let before = bench.rows();

    let survey = bench.survey(&work).await;
    assert_eq!((survey.counts.replayed, survey.counts.already_done), (242, 3));
    let by_status = BTreeMap::from([("dead_letter".to_owned(), 145), ("ignored".to_owned(), 97)]);
    assert_eq!(survey.by_status, by_status);
    assert_eq!(survey.by_type, BTreeMap::from([("invoice.paid".to_owned(), 242)]));
    assert_eq!((survey.first.len(), survey.more), (20, false));
    assert_eq!(bench.rows(), before, "a dry run changes nothing");
    assert_eq!(bench.visible().await, 0);

    bench.start(&work).await;
    let done = bench.to_the_end(work.id, at(0)).await;
    assert_eq!((done.state(), done.counts), (State::Completed, survey.counts));
    bench.work(at(600), Handler::Works).await;
    let runs = bench.runs.lock().unwrap().clone();
    assert_eq!((runs.len(), runs.values().max()), (242, Some(&1)));
    for was in before {
        let row = bench.store.tables().inbox[&was.new.key].row.clone();
        if was.new.key.event_id().starts_with("other") {
            assert_eq!(row, was);
            continue;
        }
        assert_eq!(row.status, Status::Processed);
        assert_eq!((row.new.received_at, row.new.occurred_at), (at(-600_000), at(-600_005).into()));
        assert_eq!((row.new.origin, &row.new.key_id), (Origin::Webhook, &was.new.key_id));
    }
}

/// RPL-in-flight: in whatever order two advancers and a worker get their turns, an event runs once more only if it is
/// reported as replayed, and one that was on its way is reported as that.
#[tokio::test]
async fn what_is_in_flight_is_told_and_never_run_beside_itself() {
    for seed in 0..200_u64 {
        let bench = Bench::new();
        let mut dice = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut roll = move || {
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            dice
        };
        let names: Vec<_> = (0..50).map(|n| format!("evt_{n}")).collect();
        let mut pending = BTreeSet::new();
        for name in &names {
            let status = match roll() % 5 {
                0 | 1 => Status::Pending,
                2 => Status::DeadLetter,
                3 => Status::Ignored,
                _ => Status::Processed,
            };
            bench.put("shop", name, "invoice.paid", status);
            if status == Status::Pending {
                pending.insert(name.as_str());
                bench.queue.send(&[InboundMessage(key(name))], Duration::ZERO).await;
            }
        }
        let texts: Vec<_> = names.iter().map(String::as_str).collect();
        let status = [Status::DeadLetter, Status::Ignored, Status::Processed].into();
        let work = work(1, 1000, Selection { status, ..named(&texts) });
        bench.start(&work).await;
        // Everyone yields at each call, and some begin late.
        let late = async |turns: u64| {
            for _ in 0..turns {
                tokio::task::yield_now().await;
            }
        };
        let (first, second, third) = (roll() % 40, roll() % 40, roll() % 40);
        let advance = async |turns| {
            late(turns).await;
            bench.advance(work.id, at(0)).await;
        };
        let worker = async {
            late(third).await;
            bench.work(at(0), Handler::Works).await;
        };
        join3(advance(first), advance(second), worker).await;
        bench.work(at(100), Handler::Works).await;

        let done = bench.read(work.id).await;
        assert_eq!((done.state(), done.told.len()), (State::Completed, 50), "seed {seed}");
        let runs = bench.runs.lock().unwrap().clone();
        for told in &done.told {
            let ran = runs.get(&told.event_id).copied().unwrap_or_default();
            let was_pending = u32::from(pending.contains(told.event_id.as_str()));
            let again = u32::from(told.outcome == Outcome::Replayed);
            assert_eq!(ran, was_pending + again, "seed {seed}: {told:?}");
            assert!(again == 1 || was_pending == 1, "seed {seed}: {told:?}");
        }
        let left: Vec<_> = bench.statuses();
        assert!(left.iter().all(|(status, _)| status != "pending"), "seed {seed}: {left:?}");
    }
}

/// WRK-dlq-redrive, C14, K8: the messages are long gone from every queue; the table is enough. With the bug still there
/// each is tried once more and parked again; after the fix all are processed.
#[tokio::test]
async fn the_dead_letter_queue_expires_and_a_replay_from_the_table_still_works() {
    let bench = Bench::with_parked(1000);
    let too_early = work(1, 50, Selection::default());
    bench.start(&too_early).await;
    let done = bench.to_the_end(too_early.id, at(0)).await;
    assert_eq!(done.counts, Counts { looked_at: 1000, replayed: 1000, ..Counts::default() });
    // 50 a second: 1,000 take 20 seconds.
    assert_eq!(bench.visible().await, 50);
    bench.queue.set_now(at(10));
    assert_eq!(bench.visible().await, 550);
    bench.work(at(30), Handler::Fails(0)).await;
    assert_eq!(bench.statuses(), [stands("dead_letter", 1000)]);
    assert_eq!(bench.all_runs(), 1000);

    let mended = Work { began: at(60), ..work(2, 50, Selection::default()) };
    bench.start(&mended).await;
    bench.to_the_end(mended.id, at(60)).await;
    bench.work(at(120), Handler::Works).await;
    assert_eq!(bench.statuses(), [stands("processed", 1000)]);
    assert_eq!(bench.all_runs(), 2000);
}

/// A replay takes nothing twice, not even what a worker whose clock is behind parks again before the walk is over.
#[tokio::test]
async fn what_is_parked_again_by_the_same_replay_is_not_taken_twice() {
    let bench = Bench::with_parked(400);
    bench.start(&all(1)).await;
    loop {
        let read = bench.read(id(1)).await;
        let Step::Went(_) = bench.bulks().step(&read, at(0)).await.unwrap() else { break };
        bench.work(at(0), Handler::Fails(-30)).await;
    }
    assert_eq!(bench.read(id(1)).await.state(), State::Completed);
    bench.work(at(90), Handler::Fails(0)).await;
    assert!(bench.rows().iter().all(|row| (row.cycle, row.status) == (1, Status::DeadLetter)));
}

/// K6: before and after each call of the store and of the queue the process dies, and the next one goes on.
#[tokio::test]
async fn who_advances_may_die_at_any_call() {
    let set = async || {
        let bench = Bench::with_parked(70);
        for n in 0..70 {
            bench.put("shop", &format!("ignored_{n}"), "invoice.paid", Status::Ignored);
        }
        let status = [Status::DeadLetter, Status::Ignored].into();
        let from = Some(at(-700_000));
        let work = work(1, 1000, Selection { status, from, ..Selection::default() });
        bench.start(&work).await;
        bench
    };
    let bench = set().await;
    bench.store.chaos.set(|_, _| None);
    bench.advance(id(1), at(0)).await;
    let calls = bench.store.chaos.calls();
    let writes = ["walk.again", "bulk.advance", "bulk.close"];
    assert!(writes.iter().all(|write| calls.contains(write)), "{calls:?}");
    let whole = bench.read(id(1)).await;
    assert_eq!(whole.counts.replayed, 140);

    // Each write of the work, and a sample of the others.
    let worth = |n: &usize| writes[1..].contains(&calls[*n]) || n.is_multiple_of(3);
    for n in (0..calls.len()).filter(worth) {
        for when in [When::Before, When::After] {
            let bench = set().await;
            bench.store.chaos.at(n as u64, when, Fault::Crash);
            let ended = bench.store.chaos.until_crash(bench.advance(id(1), at(0))).await;
            assert!(ended.is_none(), "call {n} is never made");
            bench.store.chaos.heal();
            ends_whole(&bench, &whole, &format!("{when:?} {} ({n})", calls[n])).await;
        }
    }
    for n in 0..4 {
        for when in [When::Before, When::After] {
            let bench = set().await;
            bench.queue.chaos.at(n, when, Fault::Crash);
            let ended = bench.queue.chaos.until_crash(bench.advance(id(1), at(0))).await;
            assert!(ended.is_none(), "send {n} is never made");
            bench.queue.chaos.heal();
            ends_whole(&bench, &whole, &format!("{when:?} send {n}")).await;
        }
    }
}

/// Another process goes on, and it is as if nobody had died: each row is taken once, counted once, and owed.
async fn ends_whole(bench: &Bench, whole: &Work, what: &str) {
    assert_eq!(bench.advance(id(1), at(5)).await, Step::Over, "{what}");
    let done = bench.read(id(1)).await;
    assert_eq!((done.state(), done.counts), (State::Completed, whole.counts), "{what}");
    assert!(bench.store.open().await.unwrap().is_empty(), "{what}");
    for Row { status, cycle, due_at, .. } in bench.rows() {
        // Even if its message was never sent: the sweeper finds it.
        assert_eq!((status, cycle, due_at.is_some()), (Status::Pending, 1, true), "{what}");
    }
}

#[tokio::test]
async fn a_page_that_fails_is_done_again() {
    let bench = Bench::with_parked(30);
    bench.start(&all(1)).await;
    let mut struck = 0;
    bench.store.chaos.set(move |_, name| {
        struck += u32::from(name == "walk.again");
        let strikes = name == "walk.again" && struck % 7 == 3 && struck < 20;
        strikes.then_some((When::After, Fault::Throttled))
    });
    let mut failures = 0;
    while bench.read(id(1)).await.state() == State::Running {
        let read = bench.read(id(1)).await;
        failures += usize::from(bench.bulks().step(&read, at(0)).await.is_err());
    }
    assert!(failures > 0);
    assert_eq!(bench.read(id(1)).await.counts.replayed, 30);
    assert!(bench.rows().iter().all(|row| row.cycle == 1));
}

/// What a page took is counted even if the walk cannot go on; a cancel then undoes nothing.
#[tokio::test]
async fn a_page_counts_though_the_next_cannot_be_found() {
    let bench = Bench::with_parked(200);
    bench.start(&all(1)).await;
    let Step::Went(named) = bench.bulks().step(&all(1), at(0)).await.unwrap() else {
        unreachable!()
    };
    bench.store.chaos.on("walk.page", When::Before, Fault::Throttled);
    assert!(bench.bulks().step(&named, at(0)).await.is_err());
    bench.store.chaos.heal();
    let taken = bench.rows().iter().filter(|row| row.cycle == 1).count() as u64;
    assert!(taken > 0);
    assert_eq!(bench.read(id(1)).await.counts.replayed, taken);
    assert_eq!(bench.to_the_end(id(1), at(0)).await.counts.replayed, 200);
}

#[tokio::test]
async fn one_row_that_nobody_can_read_is_counted_and_does_not_hold_the_others() {
    let bench = Bench::with_parked(10);
    bench.start(&all(1)).await;
    let mut reads = 0;
    bench.store.chaos.set(move |_, name| {
        reads += u32::from(name == "inbox.read");
        (name == "inbox.read" && reads == 3).then_some((When::Before, Fault::Refused))
    });
    bench.advance(id(1), at(0)).await;
    let done = bench.read(id(1)).await;
    assert_eq!((done.state(), done.counts.replayed, done.counts.failed), (State::Completed, 9, 1));
    assert_eq!(done.told[0].outcome, Outcome::Failed);
}

/// RPL-already-delivered: two replays over the same rows at once; each event is run once, by one of them.
#[tokio::test]
async fn two_replays_over_the_same_rows_take_each_once() {
    let bench = Bench::with_parked(120);
    bench.start(&all(1)).await;
    bench.start(&all(2)).await;
    join(bench.advance(id(1), at(0)), bench.advance(id(2), at(0))).await;
    let (one, two) = (bench.read(id(1)).await.counts, bench.read(id(2)).await.counts);
    assert_eq!(one.replayed + two.replayed, 120, "{one:?} {two:?}");
    bench.work(at(100), Handler::Works).await;
    assert_eq!((bench.all_runs(), bench.runs.lock().unwrap().len()), (120, 120));
}

#[tokio::test]
async fn two_advancers_of_one_replay_skip_nothing_and_count_nothing_twice() {
    let bench = Bench::with_parked(333);
    bench.start(&all(1)).await;
    join(bench.advance(id(1), at(0)), bench.advance(id(1), at(0))).await;
    let done = bench.read(id(1)).await;
    assert_eq!((done.state(), done.counts.replayed), (State::Completed, 333));
    assert_eq!(done.counts.looked_at, 333);
    bench.work(at(100), Handler::Works).await;
    assert_eq!((bench.all_runs(), bench.statuses()), (333, vec![stands("processed", 333)]));
}

#[tokio::test]
async fn a_cancel_in_the_middle_leaves_the_rest_as_it_is() {
    let bench = Bench::with_parked(300);
    bench.start(&all(1)).await;
    let went = async |work: &Work| match bench.bulks().step(work, at(0)).await.unwrap() {
        Step::Went(work) => *work,
        other => unreachable!("{other:?}"),
    };
    // The first names what the second takes.
    let first = went(&went(&all(1)).await).await;
    assert_eq!(first.counts.replayed, PAGE as u64);
    // While the next page is under way.
    let (second, noted) = join(went(&first), bench.store.cancel(id(1), "bob", at(1))).await;
    assert_eq!(noted.unwrap(), Noted::Yes);
    assert_eq!(second.state(), State::Cancelled);
    assert_eq!(bench.advance(id(1), at(2)).await, Step::Over);
    assert!(bench.store.open().await.unwrap().is_empty());
    let taken = usize::try_from(second.counts.replayed).unwrap();
    assert!((PAGE..=2 * PAGE).contains(&taken), "{taken}");
    assert_eq!(bench.statuses(), [stands("dead_letter", 300 - taken), stands("pending", taken)]);
}

#[tokio::test]
async fn a_page_is_bounded_however_many_rows_there_are() {
    let bench = Bench::with_parked(3000);
    for n in 0..1000 {
        bench.put("elsewhere", &format!("evt_{n}"), "invoice.paid", Status::DeadLetter);
    }
    bench.start(&all(1)).await;
    let mut now = at(0);
    loop {
        let read = bench.read(id(1)).await;
        bench.store.chaos.set(|_, _| None);
        let step = bench.bulks().step(&read, now).await.unwrap();
        let calls = bench.store.chaos.calls();
        let count = |name| calls.iter().filter(|call| **call == name).count();
        assert!(count("walk.page") <= 20 && count("inbox.read") <= PAGE, "{calls:?}");
        assert!(count("walk.again") <= PAGE && count("bulk.advance") <= 1);
        match step {
            Step::Went(_) => {}
            Step::Waits => now += Duration::from_secs(60),
            Step::Over | Step::Lost => break,
        }
    }
    assert_eq!(bench.read(id(1)).await.counts.replayed, 3000);
    assert_eq!(bench.statuses(), [stands("dead_letter", 1000), stands("pending", 3000)]);
}

#[tokio::test]
async fn a_rate_of_one_is_one_message_each_second() {
    let bench = Bench::with_parked(150);
    bench.start(&work(1, 1, Selection::default())).await;
    // A sweep each minute, and a message each second.
    for second in 0..150 {
        bench.queue.set_now(at(second));
        if second % 60 == 0 {
            bench.advance(id(1), at(second)).await;
        }
        bench.work(at(second), Handler::Works).await;
        assert_eq!(i64::from(bench.all_runs()), second + 1);
        // Nothing is due at the sweeper before its message went.
        assert!(bench.rows().iter().all(|row| row.due_at.is_none_or(|due| due > at(second + 60))));
    }
}

#[tokio::test]
async fn a_selection_that_matches_nothing_ends_and_says_so() {
    let bench = Bench::with_parked(3);
    bench.put("shop", "done", "invoice.paid", Status::Processed);
    let types = vec!["no.such".parse().unwrap()];
    let status = [Status::DeadLetter, Status::Processed].into();
    let from = Some(at(-700_000));
    let work = work(1, 50, Selection { types, from, status, ..Selection::default() });
    assert_eq!(bench.survey(&work).await.counts, Counts { looked_at: 7, ..Counts::default() });
    bench.start(&work).await;
    let done = bench.to_the_end(work.id, at(0)).await;
    assert_eq!((done.state(), done.counts.replayed), (State::Completed, 0));
    assert!(bench.rows().iter().all(|row| row.cycle == 0));
}

/// K1, K9
#[tokio::test]
async fn named_events_are_told_of_one_by_one() {
    let bench = Bench::new();
    bench.put("shop", "dead", "a", Status::DeadLetter);
    bench.put("shop", "ignored", "a", Status::Ignored);
    bench.put("shop", "done", "a", Status::Processed);
    bench.put("shop", "pending", "a", Status::Pending);
    bench.put("elsewhere", "there", "a", Status::DeadLetter);
    let work = work(1, 50, named(&["dead", "ignored", "done", "pending", "there", "no#such"]));
    let expected = [
        ("dead", Outcome::Replayed),
        ("ignored", Outcome::Replayed),
        ("done", Outcome::AlreadyDone),
        ("pending", Outcome::InFlight),
        ("there", Outcome::Absent),
        ("no#such", Outcome::Absent),
    ];
    let expected = expected.map(|(event, outcome)| Told { event_id: event.to_owned(), outcome });
    assert_eq!(bench.survey(&work).await.told, expected);
    bench.start(&work).await;
    assert_eq!(bench.to_the_end(work.id, at(0)).await.told, expected);
}

/// The index says what was, and the row what is.
#[tokio::test]
async fn an_index_that_lags_takes_nothing_that_has_moved() {
    let bench: &'static Bench = Box::leak(Box::new(Bench::with_parked(10)));
    bench.start(&all(1)).await;
    // Five rows move once the first page was read.
    let mut reads = 0;
    bench.store.chaos.set(move |_, name| {
        reads += u32::from(name == "inbox.read");
        if name == "inbox.read" && reads == 1 {
            for n in 0..5 {
                let mut tables = bench.store.tables();
                let row = &mut tables.inbox.get_mut(&key(&format!("evt_{n}"))).unwrap().row;
                (row.status, row.dead_at, row.due_at) = (Status::Pending, None, Some(at(9)));
            }
        }
        None
    });
    bench.advance(id(1), at(0)).await;
    let done = bench.read(id(1)).await;
    assert_eq!((done.state(), done.counts.replayed), (State::Completed, 5));
    for n in 0..10 {
        assert_eq!(bench.row(&format!("evt_{n}")).cycle, u32::from(n >= 5));
    }
    assert!(done.counts.in_flight >= 1, "of those whose entries were read: {:?}", done.counts);
}

#[tokio::test]
async fn a_resume_sends_what_waits_for_later_and_leaves_the_rest() {
    let bench = Bench::with_parked(1);
    for n in 1..20 {
        bench.put("shop", &format!("evt_{n}"), "a", Status::Pending);
    }
    bench.put("elsewhere", "there", "a", Status::Pending);
    for item in bench.store.tables().inbox.values_mut() {
        let soon = item.row.new.key.event_id() == "evt_3";
        item.row.due_at = item.row.due_at.map(|_| at(if soon { 60 } else { 21_600 }));
    }
    bench.start(&resume(1)).await;
    let done = bench.to_the_end(id(1), at(0)).await;
    assert_eq!((done.state(), done.counts.replayed), (State::Completed, 18));
    assert_eq!(bench.row("evt_3").due_at, Some(at(60)));
    assert_eq!((bench.row("evt_4").due_at, bench.row("evt_4").cycle), (Some(at(120)), 0));
    assert_eq!(bench.row("evt_0").status, Status::DeadLetter);
    bench.work(at(1), Handler::Works).await;
    assert_eq!(bench.all_runs(), 18);
}

/// C33: events that wait, put off by a worker for six hours.
fn waiting(names: &[&str]) -> Bench {
    let bench = Bench::new();
    for name in names {
        bench.put("shop", name, "a", Status::Pending);
        bench.put_off(name);
    }
    bench
}

/// C33: a worker put a row off just before the resume, and the index does not list it yet when the resume walks.
#[tokio::test]
async fn a_row_that_the_index_lists_late_is_found_by_the_second_walk_of_a_resume() {
    let bench = waiting(&["early", "late"]);
    bench.store.tables().unlisted.insert(key("late"));
    bench.start(&resume(1)).await;
    assert_eq!(bench.advance(id(1), at(0)).await, Step::Waits);
    let first = bench.read(id(1)).await;
    assert_eq!((first.state(), first.counts.replayed), (State::Running, 1));
    assert_eq!(bench.row("late").due_at, Some(at(21_600)));
    bench.store.tables().unlisted.clear();
    // What the first walk sent fails, and waits for its next attempt: it has had its turn.
    bench.put_off("early");

    let done = bench.to_the_end(id(1), at(30)).await;
    assert_eq!((done.state(), done.counts.replayed), (State::Completed, 2));
    assert_eq!(bench.row("late").due_at, Some(at(90 + 120)));
    assert_eq!(bench.row("early").due_at, Some(at(21_600)));
    assert!(bench.store.open().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_resume_walks_twice_and_reads_no_index_between() {
    let bench = waiting(&["evt_0", "evt_1"]);
    bench.start(&resume(1)).await;
    let pages = async |second: i64| {
        bench.store.chaos.set(|_, _| None);
        let step = bench.advance(id(1), at(second)).await;
        let pages = bench.store.chaos.calls().into_iter().filter(|call| *call == "walk.page");
        (step, pages.count())
    };
    let (step, first) = pages(0).await;
    assert_eq!(step, Step::Waits);
    assert!((4..=8).contains(&first), "{first} pages of four shards");
    for second in [0, 0, 1, 30, 59] {
        assert_eq!(pages(second).await, (Step::Waits, 0), "after {second} s");
    }
    assert_eq!(pages(60).await, (Step::Over, 4));
    assert_eq!(pages(61).await, (Step::Over, 0));
}

/// It began in time, but by its end a row of its first shard may have been overlooked for long.
#[tokio::test]
async fn a_resume_whose_first_walk_took_long_walks_again_at_once() {
    let bench = waiting(&["early", "late"]);
    bench.store.tables().unlisted.insert(key("late"));
    bench.start(&resume(1)).await;
    let Step::Went(_) = bench.bulks().step(&resume(1), at(0)).await.unwrap() else {
        unreachable!()
    };
    bench.store.tables().unlisted.clear();
    bench.put_off("late");
    assert_eq!(bench.advance(id(1), at(500)).await, Step::Over);
    assert_eq!(bench.read(id(1)).await.counts.replayed, 2);
}

/// Who dies in the second walk has counted nothing of it: the next one counts what is marked, and it alone.
#[tokio::test]
async fn the_second_walk_of_a_resume_may_die_at_any_call() {
    let set = async || {
        let bench = waiting(&["evt_0", "evt_1", "late"]);
        bench.store.tables().unlisted.insert(key("late"));
        bench.start(&resume(1)).await;
        bench.advance(id(1), at(0)).await;
        bench.store.tables().unlisted.clear();
        bench
    };
    let bench = set().await;
    bench.store.chaos.set(|_, _| None);
    bench.advance(id(1), at(60)).await;
    let calls = bench.store.chaos.calls();
    assert!(calls.contains(&"walk.sooner") && calls.contains(&"bulk.close"), "{calls:?}");
    for (n, name) in calls.iter().enumerate() {
        for when in [When::Before, When::After] {
            let bench = set().await;
            bench.store.chaos.at(n as u64, when, Fault::Crash);
            let ended = bench.store.chaos.until_crash(bench.advance(id(1), at(60))).await;
            assert!(ended.is_none(), "call {n} is never made");
            bench.store.chaos.heal();
            assert_eq!(bench.advance(id(1), at(65)).await, Step::Over);
            let done = bench.read(id(1)).await;
            assert_eq!(done.counts.replayed, 3, "{when:?} {name} ({n})");
            assert!(bench.rows().iter().all(|row| row.due_at.unwrap() < at(300)));
        }
    }
}
