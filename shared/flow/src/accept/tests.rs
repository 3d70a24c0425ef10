//! Accepting, with a store, a bucket and a queue that fail at every step.

use std::{
    pin::pin,
    task::{Context, Poll, Waker},
};

use domain::{
    id::SourceName,
    inbox::{Claim, Failure, Row},
    message::Message as _,
    ports::Finish,
    source::{Dedupe, Handler, SchemeChoice, Source},
};
use http::HeaderMap;
use signing::{Identity, Key, Request, Scheme, Secret, SigningKey, sign};
use testkit::{
    chaos::{Fault, When},
    memory::{MemoryQueue, Store},
};

use super::*;
use crate::{
    body::{MAX_IN_TABLE, Opened},
    incoming::Fetched,
};

/// Runs a future that does no I/O. `None`: it will never end, because the process died in it.
fn run<T>(work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..1000 {
        if let Poll::Ready(done) = work.as_mut().poll(&mut context) {
            return Some(done);
        }
    }
    None
}

pub(crate) fn finish<T>(work: impl Future<Output = T>) -> T {
    run(work).expect("it should end")
}

struct World {
    store: Store,
    queue: MemoryQueue,
    tries: std::cell::Cell<u32>,
    source: Source,
}

const FIRST_DUE: Duration = Duration::from_secs(120);

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_760_000_000 + second).unwrap()
}

fn source() -> SourceName {
    "demo".parse().unwrap()
}

impl World {
    fn new() -> Self {
        Self {
            store: Store::default(),
            queue: MemoryQueue::new(Duration::from_secs(30), 16),
            tries: 0.into(),
            source: Source::new(
                source(),
                SchemeChoice::Preset("standard_webhooks".to_owned()),
                Handler::Mirror { emit_to: None, states: None },
                at(0),
            ),
        }
    }

    fn door(&self) -> Door<'_, Store, MemoryQueue, Store> {
        Door { inbox: &self.store, queue: &self.queue, bodies: &self.store, first_due: FIRST_DUE }
    }

    /// The provider sends an event. `None`: the process died.
    fn sends(&self, id: &str, body: &[u8], now: Timestamp) -> Option<Result<Entry, AcceptError>> {
        let scheme = Scheme::preset("standard_webhooks").unwrap();
        let secret = Secret::new("whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=");
        let keys = [Key::parse(&scheme, "k1", &secret).unwrap()];
        let (method, url) = ("POST", "https://hooks.example/webhooks/demo");
        let outgoing = sign::Outgoing {
            method,
            url,
            headers: HeaderMap::new(),
            id: Some(id),
            event_type: None,
            body,
        };
        let key = SigningKey::parse(&scheme, &secret).unwrap();
        let headers = sign::sign_as(&scheme, &key, &outgoing, now).unwrap();
        let request = Request { method, url, headers: &headers, body, path_secret: None };
        let verified = signing::verify(&scheme, &keys, &request, now).unwrap();
        self.accept(Incoming::verified(&self.source, verified, &headers), now)
    }

    fn fetches(
        &self,
        id: Option<&str>,
        body: &[u8],
        now: Timestamp,
    ) -> Option<Result<Entry, AcceptError>> {
        self.accept(Incoming::fetched(source(), Fetched { body, identity: identity(id) }), now)
    }

    fn accept(&self, incoming: Incoming<'_>, now: Timestamp) -> Option<Result<Entry, AcceptError>> {
        self.tries.set(self.tries.get() + 1);
        run(self.door().accept(incoming, format!("try-{}", self.tries.get()), now))
    }

    fn rows(&self) -> Vec<Row> {
        self.store.tables().inbox.values().map(|item| item.row.clone()).collect()
    }

    fn row(&self) -> Row {
        let [row] = self.rows().try_into().unwrap();
        row
    }

    fn messages(&self) -> Vec<String> {
        std::iter::from_fn(|| self.queue.receive(|_| 0)).map(|message| message.text).collect()
    }

    fn park(&self, now: Timestamp) {
        let row = self.row();
        let claim = Claim { key: row.new.key, cycle: row.cycle };
        let noted = finish(self.store.park(&claim, 12, &Failure::new("handler_failed", "no"), now));
        assert_eq!(noted.unwrap(), Noted::Yes);
    }

    fn end(&self, status: Status, now: Timestamp) {
        let row = self.row();
        let claim = Claim { key: row.new.key, cycle: row.cycle };
        let expires_at = now.saturating_add(Duration::from_hours(24)).unwrap();
        let end = Finish { status, results: Vec::new(), reason: None, now, expires_at };
        assert_eq!(finish(self.store.finish(&claim, &end)).unwrap(), Noted::Yes);
    }
}

fn identity(id: Option<&str>) -> Identity {
    Identity {
        id: id.map(str::to_owned),
        id_is_signed: true,
        delivery: None,
        event_type: Some("invoice.paid".to_owned()),
        object_type: None,
        object_id: Some("in_1".to_owned()),
        version: Some(signing::Version::Number(7)),
        version_is_trusted: true,
        occurred_at: None,
    }
}

/// Bytes that do not compress.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 7_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    };
    (0..length).map(|_| next()).collect()
}

const BODY: &[u8] = br#"{"type":"invoice.paid","data":{"id":"in_1","amount":1999}}"#;

#[test]
fn a_new_event_becomes_a_pending_row_and_a_message() {
    let world = World::new();
    let entry = world.sends("msg_1", BODY, at(0)).unwrap().unwrap();
    assert_eq!(
        (entry.accepted, entry.enqueued, entry.rearmed),
        (Accepted::New, Enqueued::Sent, false)
    );
    let row = world.row();
    assert_eq!(row.new.key.to_string(), "demo#msg_1");
    assert_eq!(
        (row.status, row.due_at, row.new.received_at),
        (Status::Pending, Some(at(120)), at(0))
    );
    assert_eq!((row.new.origin, row.new.key_id.as_deref()), (Origin::Webhook, Some("k1")));
    assert_eq!(row.new.body.sha256, Sha256Hash::of(BODY));
    assert_eq!(world.messages(), [InboundMessage(row.new.key).to_text()]);
}

#[test]
fn what_the_event_says_of_itself_is_kept() {
    let world = World::new();
    world.fetches(Some("evt_1"), BODY, at(0)).unwrap().unwrap();
    let new = world.row().new;
    assert_eq!(new.event_type.as_deref(), Some("invoice.paid"));
    let object = new.object.unwrap();
    assert_eq!((object.kind.as_str(), object.id.as_str()), ("object", "in_1"));
    assert_eq!(new.version, Some(Version::Number(7)));
    assert_eq!((new.origin, new.key_id), (Origin::Reconcile, None));
}

/// ING-missing-id
#[test]
fn an_event_without_a_usable_id_is_its_body() {
    for id in [None, Some("")] {
        let world = World::new();
        let first = world.fetches(id, BODY, at(0)).unwrap().unwrap();
        assert_eq!(first.key.event_id(), format!("sha256:{}", Sha256Hash::of(BODY)));
        let again = world.fetches(id, BODY, at(1)).unwrap().unwrap();
        assert_eq!(
            again.accepted,
            Accepted::Duplicate { status: Status::Pending, same_body: true }
        );
        world.fetches(id, b"another", at(2)).unwrap().unwrap();
        assert_eq!(world.rows().len(), 2);
    }
}

/// ING-missing-id
#[test]
fn an_id_that_would_break_a_key_still_tells_duplicates() {
    let long = "x".repeat(5000);
    for id in ["a#b", "a|b", "a\nb", "a\0b", &long] {
        let world = World::new();
        assert_eq!(world.fetches(Some(id), BODY, at(0)).unwrap().unwrap().accepted, Accepted::New);
        let again = world.fetches(Some(id), BODY, at(1)).unwrap().unwrap();
        assert!(matches!(again.accepted, Accepted::Duplicate { .. }), "{id:?}");
        assert!(world.row().new.key.event_id().len() <= 512);
    }
}

#[test]
fn the_body_goes_where_its_size_says_and_reads_back() {
    let places = |length| {
        let world = World::new();
        let body = noise(length);
        world.sends("msg_1", &body, at(0)).unwrap().unwrap();
        let row = world.row();
        assert_eq!(
            finish(body::open(&row.new, &world.store, &world.store)).unwrap(),
            Opened::Bytes(body)
        );
        let tables = world.store.tables();
        (matches!(row.new.body.place, Place::Inline(_)), tables.beside.len(), tables.bucket.len())
    };
    assert_eq!(places(10), (true, 0, 0));
    assert_eq!(places(2000), (false, 1, 0));
    assert_eq!(places(MAX_IN_TABLE + 1), (false, 0, 1));
}

#[test]
fn a_body_in_the_bucket_is_named_by_its_source_and_hash() {
    let world = World::new();
    let body = noise(20_000);
    world.sends("msg_1", &body, at(0)).unwrap().unwrap();
    let names: Vec<String> = world.store.tables().bucket.keys().cloned().collect();
    assert_eq!(names, [format!("in/demo/{}", Sha256Hash::of(&body))]);
}

#[test]
fn what_could_not_be_read_back_is_not_accepted() {
    let world = World::new();
    let error = world.fetches(None, &vec![0; MAX_BODY + 1], at(0)).unwrap().unwrap_err();
    assert!(matches!(error, AcceptError::TooLarge(_)) && !error.is_transient());
    assert!(world.rows().is_empty());
}

#[test]
fn a_duplicate_is_sent_again_unless_nothing_is_owed() {
    let check =
        |prepare: &dyn Fn(&World), from_provider: bool, expected: (Status, Enqueued, bool)| {
            let world = World::new();
            world.sends("msg_1", BODY, at(0)).unwrap().unwrap();
            prepare(&world);
            world.queue.purge();
            let entry = if from_provider {
                world.sends("msg_1", BODY, at(50)).unwrap().unwrap()
            } else {
                world.fetches(Some("msg_1"), BODY, at(50)).unwrap().unwrap()
            };
            let row = world.row();
            assert_eq!((row.status, entry.enqueued, entry.rearmed), expected);
            assert_eq!(world.messages().len(), usize::from(entry.enqueued == Enqueued::Sent));
            row
        };
    let pending = |_: &World| {};
    let processed = |world: &World| world.end(Status::Processed, at(10));
    let ignored = |world: &World| world.end(Status::Ignored, at(10));
    let parked = |world: &World| world.park(at(10));

    for from_provider in [true, false] {
        check(&pending, from_provider, (Status::Pending, Enqueued::Sent, false));
        check(&processed, from_provider, (Status::Processed, Enqueued::NotNeeded, false));
        check(&ignored, from_provider, (Status::Ignored, Enqueued::NotNeeded, false));
    }
    let rearmed = check(&parked, true, (Status::Pending, Enqueued::Sent, true));
    assert_eq!((rearmed.attempts, rearmed.cycle, rearmed.due_at), (0, 1, Some(at(170))));
    // Reconciliation's overlap would revive it every quarter of an hour.
    check(&parked, false, (Status::DeadLetter, Enqueued::NotNeeded, false));
}

/// ING-same-id-other-body
#[test]
fn another_body_under_the_same_id_is_seen_and_the_first_one_stays() {
    let world = World::new();
    let other = noise(2000);
    let first = world.sends("msg_1", BODY, at(0)).unwrap().unwrap();
    let again = world.sends("msg_1", BODY, at(1)).unwrap().unwrap();
    assert_eq!((first.other_body(at(1)), again.other_body(at(1))), (None, None));
    let entry = world.sends("msg_1", &other, at(1)).unwrap().unwrap();
    assert_eq!(entry.accepted, Accepted::Duplicate { status: Status::Pending, same_body: false });
    let noted = OtherBody { sha256: Sha256Hash::of(&other), length: 2000, at: at(1) };
    assert_eq!(entry.other_body(at(1)), Some(noted));
    assert_eq!(world.row().new.body.sha256, Sha256Hash::of(BODY));
}

#[test]
fn our_own_row_met_again_is_not_a_duplicate() {
    let world = World::new();
    let accept = |now| {
        let incoming =
            Incoming::fetched(source(), Fetched { body: BODY, identity: identity(Some("evt_1")) });
        finish(world.door().accept(incoming, "same".to_owned(), now)).unwrap()
    };
    assert_eq!(accept(at(0)).accepted, Accepted::New);
    assert_eq!(accept(at(1)).accepted, Accepted::New);
    assert_eq!(world.rows().len(), 1);
}

/// ING-error-taken-for-duplicate
#[test]
fn an_error_of_the_store_is_neither_new_nor_duplicate() {
    for (fault, is_transient) in
        [(Fault::Throttled, true), (Fault::Unavailable, true), (Fault::Refused, false)]
    {
        let world = World::new();
        world.sends("msg_0", BODY, at(0)).unwrap().unwrap();
        for name in ["inbox.accept", "inbox.put_beside"] {
            world.store.chaos.on(name, When::Before, fault);
            let error = world.sends("msg_1", &noise(2000), at(1)).unwrap().unwrap_err();
            assert_eq!(error.is_transient(), is_transient, "{name}");
        }
        assert_eq!(world.rows().len(), 1);
    }
}

#[test]
fn a_failed_send_is_not_an_error_and_leaves_a_due_row() {
    let world = World::new();
    world.queue.chaos.on("queue.send", When::Before, Fault::Unavailable);
    let entry = world.sends("msg_1", BODY, at(0)).unwrap().unwrap();
    assert_eq!((entry.accepted, entry.enqueued), (Accepted::New, Enqueued::Failed));
    assert_eq!(world.row().due_at, Some(at(120)));
    assert!(world.messages().is_empty());
}

/// From the verdict to the failed send: whatever call is the last one, the provider's next try ends with one
/// row that is owed, its body readable, and a message or a due time.
#[test]
fn wherever_it_dies_the_next_try_ends_well() {
    let faults = [Fault::Throttled, Fault::Unavailable, Fault::Crash];
    let ways =
        [When::Before, When::After].into_iter().flat_map(|when| faults.map(|fault| (when, fault)));
    for (when, fault) in ways {
        for (body, parked, calls) in [
            (BODY.to_vec(), false, 1), // the row
            (noise(2000), false, 2),   // the body beside it, the row
            (noise(20_000), false, 2), // the body in the bucket, the row
            (BODY.to_vec(), true, 2),  // the row, re-armed
            (noise(20_000), true, 3),  // the body, the row, re-armed
        ] {
            let told =
                format!("{when:?}, {fault:?}, {} bytes, parked before: {parked}", body.len());
            for call in 0..calls {
                let world = World::holding(&body, parked);
                world.store.chaos.at(call, when, fault);
                let first = world.sends("msg_1", &body, at(0));
                assert_eq!(world.store.chaos.calls().len() as u64, call + 1, "{told}");
                assert!(
                    !matches!(first, Some(Ok(_))),
                    "nobody says yes to what may not be there: {told}"
                );
                world.rows_point_at_bodies(&body, &told);
                world.ends_well(&body, &told);
            }
            let world = World::holding(&body, parked);
            world.queue.chaos.at(0, when, fault);
            let first = world.sends("msg_1", &body, at(0));
            assert_eq!(world.store.chaos.calls().len() as u64, calls, "{told}");
            assert!(first.is_none_or(|said| said.is_ok()), "a send decides nothing: {told}");
            assert_eq!(world.row().status, Status::Pending, "{told}");
            world.ends_well(&body, &told);
        }
    }
}

impl World {
    /// An empty world, or one in which the event came before and was parked.
    fn holding(body: &[u8], parked: bool) -> Self {
        let world = Self::new();
        if parked {
            world.sends("msg_1", body, at(-60)).unwrap().unwrap();
            world.park(at(-30));
            world.queue.purge();
        }
        world.store.chaos.heal();
        world
    }

    /// No row is there before its body.
    fn rows_point_at_bodies(&self, body: &[u8], told: &str) {
        self.store.chaos.heal();
        for row in self.rows() {
            let opened = finish(body::open(&row.new, &self.store, &self.store)).unwrap();
            assert_eq!(opened, Opened::Bytes(body.to_vec()), "{told}");
        }
    }

    /// The provider tries again, and all is well.
    fn ends_well(&self, body: &[u8], told: &str) {
        self.store.chaos.heal();
        self.queue.chaos.heal();
        let again = self.sends("msg_1", body, at(60)).unwrap().unwrap();
        let row = self.row();
        assert_eq!((row.status, again.enqueued), (Status::Pending, Enqueued::Sent), "{told}");
        assert!(row.due_at.is_some_and(|due| due <= at(180)), "{told}");
        assert!(!self.messages().is_empty(), "{told}");
        let opened = finish(body::open(&row.new, &self.store, &self.store)).unwrap();
        assert_eq!(opened, Opened::Bytes(body.to_vec()), "{told}");
    }
}

/// A row of more than 400 KB is refused by the store for ever: what a customer of the provider may write must not make one.
#[test]
fn texts_that_no_row_could_hold_stand_as_their_hash() {
    let long = "x".repeat(450_000);
    let text = |text: &str| signing::Version::Text(text.to_owned());
    let parts =
        |last: &str| signing::Version::Composite(vec![signing::Version::Number(1), text(last)]);
    let says = |version| Identity {
        event_type: Some(long.clone()),
        object_type: Some(long.clone()),
        object_id: Some(long.clone()),
        version: Some(version),
        ..identity(Some("evt_1"))
    };
    for (version, kept) in [(text(&long), false), (parts(&long), false), (parts("x"), true)] {
        texts_are_short(says(version), kept);
    }
}

#[track_caller]
fn texts_are_short(identity: Identity, keeps_version: bool) {
    let world = World::new();
    let fetched = Fetched { body: b"{}", identity };
    world.accept(Incoming::fetched(source(), fetched), at(0)).unwrap().unwrap();
    let row = world.row().new;
    let object = row.object.unwrap();
    for text in [&row.event_type.unwrap(), &object.kind, &object.id] {
        assert!(text.starts_with("sha256:") && text.len() == 71, "{text}");
    }
    assert_eq!(row.version.is_some(), keeps_version);
}

/// ING-dedupe-key-unsigned-header: where content is the key, a new id makes no new event.
#[test]
fn where_content_is_the_key_the_id_is_only_kept() {
    let mut world = World::new();
    world.source.dedupe = Dedupe::Content;
    world.source.same_as = Some("elsewhere".parse().unwrap());
    for (id, expected) in [("msg_1", true), ("msg_2", false), ("msg_1", false)] {
        let entry = world.sends(id, b"{}", at(0)).unwrap().unwrap();
        assert_eq!(entry.accepted == Accepted::New, expected, "{id}");
    }
    let row = world.row();
    let key = format!("elsewhere#sha256:{}", Sha256Hash::of(b"{}"));
    assert_eq!(row.new.key.to_string(), key);
    assert_eq!(row.new.delivery_id.as_deref(), Some("msg_1"));
}
