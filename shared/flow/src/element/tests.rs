//! Requests with several events, from the provider's signature to the rows of their events.

use std::{io::Read as _, time::Duration};

use domain::{
    body::Sha256Hash,
    event::{Origin, Version},
    id::SourceName,
    inbox::{Accepted, Claim, Failure, Noted, Status},
    message::InboundMessage,
    ports::{Finish, Inbox as _, Queue, Stored},
    source::{Handler, SchemeChoice, Source},
};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use signing::{Key, Request, Secret, SigningKey, sign};
use testkit::memory::{MemoryQueue, Store};

use super::*;
use crate::{
    accept::{AcceptError, Door, Enqueued, Entry as Accepting, tests::finish},
    body::{self, MAX_BODY, Opened},
    content::Unreadable,
};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_760_000_000 + second).unwrap()
}

fn source() -> SourceName {
    "demo".parse().unwrap()
}

/// A provider that signs like Stripe and sends `{"events":[..]}`, or a plain event.
fn scheme(is_batch: bool) -> Scheme {
    let mut own = json!({ "like": "stripe" });
    if is_batch {
        own["batch"] = "/events".into();
    }
    Scheme::from_value(own).unwrap()
}

struct World {
    scheme: Scheme,
    store: Store,
    queue: MemoryQueue,
    tries: std::cell::Cell<u32>,
    request_id: Option<&'static str>,
}

impl World {
    fn new(is_batch: bool) -> Self {
        let queue = MemoryQueue::new(Duration::from_secs(30), 16);
        Self {
            scheme: scheme(is_batch),
            store: Store::default(),
            queue,
            tries: 0.into(),
            request_id: None,
        }
    }

    /// The provider sends a request, with this encoding if it has one.
    fn sends(&self, body: &[u8], encoding: Option<&'static str>, now: Timestamp) -> Accepting {
        let secret = Secret::new("whsec_of_a_provider_with_batches");
        let keys = [Key::parse(&self.scheme, "k1", &secret).unwrap()];
        let (method, url) = ("POST", "https://hooks.example/webhooks/demo");
        let named = [
            ("content-type", Some("application/json")),
            ("content-encoding", encoding),
            ("x-request-id", self.request_id),
        ];
        let named = named.into_iter().filter_map(|(name, value)| {
            Some((HeaderName::from_static(name), HeaderValue::from_static(value?)))
        });
        let headers: HeaderMap = named.collect();
        let outgoing = sign::Outgoing { method, url, headers, id: None, event_type: None, body };
        let key = SigningKey::parse(&self.scheme, &secret).unwrap();
        let headers = sign::sign_as(&self.scheme, &key, &outgoing, now).unwrap();
        let handler = Handler::Mirror { emit_to: None, states: None };
        let feed = Source::new(source(), SchemeChoice::Preset("x".to_owned()), handler, at(0));
        let request = Request { method, url, headers: &headers, body, path_secret: None };
        let verified = signing::verify(&self.scheme, &keys, &request, now).unwrap();
        let incoming = Incoming::verified(&feed, verified, &headers);
        self.accept(incoming.under(&self.scheme, &request, now), now).unwrap()
    }

    fn accept(&self, incoming: Incoming<'_>, now: Timestamp) -> Result<Accepting, AcceptError> {
        self.tries.set(self.tries.get() + 1);
        let door = Door {
            inbox: &self.store,
            queue: &self.queue,
            bodies: &self.store,
            first_due: Duration::from_secs(120),
        };
        finish(door.accept(incoming, format!("try-{}", self.tries.get()), now))
    }

    fn row(&self, key: &InboxKey) -> Row {
        finish(self.store.read(key)).unwrap().unwrap()
    }

    fn content(&self, row: &Row) -> Result<Content, Unreadable> {
        finish(Content::of(&row.new, &self.store, &self.store)).unwrap()
    }

    /// Sends a request and takes it apart.
    fn split(&self, body: &Value, now: Timestamp) -> (Row, Vec<Row>) {
        let parent = self.row(&self.sends(body.to_string().as_bytes(), None, now).key);
        let content = self.content(&parent).unwrap();
        let events = elements(&parent, &content, &self.scheme).unwrap().events;
        let entries = events.into_iter().map(|event| self.accept(event, now).unwrap());
        let children = entries.map(|entry| self.row(&entry.key)).collect();
        (parent, children)
    }

    fn park(&self, row: &Row, now: Timestamp) {
        let claim = Claim { key: row.new.key.clone(), cycle: row.cycle };
        let failure = Failure::new("handler_failed", "no");
        let parked = self.store.park(&claim, 12, &failure, now);
        assert_eq!(finish(parked).unwrap(), Noted::Yes);
    }

    fn end(&self, row: &Row, status: Status, now: Timestamp) {
        let claim = Claim { key: row.new.key.clone(), cycle: row.cycle };
        let expires_at = now.saturating_add(Duration::from_hours(24)).unwrap();
        let end = Finish { status, results: Vec::new(), reason: None, now, expires_at };
        assert_eq!(finish(self.store.finish(&claim, &end)).unwrap(), Noted::Yes);
    }
}

fn event(id: &str) -> Value {
    json!({ "id": id, "type": "invoice.paid", "created": 7, "data": { "object": { "id": "in_1", "object": "invoice" } } })
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoded = Vec::new();
    let mut encoder = flate2::read::GzEncoder::new(bytes, flate2::Compression::default());
    encoder.read_to_end(&mut encoded).unwrap();
    encoded
}

/// INB-raw-bytes-kept
#[test]
fn each_event_is_cut_out_byte_for_byte_and_takes_after_its_request() {
    let world = World::new(true);
    let first =
        r#"{ "id":"evt_1","type":"invoice.paid", "n": 9007199254740993, "m":1.0,"u":"\u00e9" }"#;
    let body = format!("{{\"events\" : [ {first} , {} ]}}", event("evt_2"));
    let parent = world.row(&world.sends(body.as_bytes(), None, at(0)).key);
    assert_eq!(parent.new.key.event_id(), format!("sha256:{}", Sha256Hash::of(body.as_bytes())));
    assert_eq!(parent.new.parent, None);
    let content = world.content(&parent).unwrap();
    let split = elements(&parent, &content, &world.scheme).unwrap();
    assert_eq!((split.events.len(), split.repeated, split.conflicting), (2, 0, 0));
    for (event, id) in split.events.into_iter().zip(["evt_1", "evt_2"]) {
        let child = world.row(&world.accept(event, at(9)).unwrap().key).new;
        assert_eq!(child.key.to_string(), format!("demo#{id}"));
        assert_eq!(child.parent.as_deref(), Some(parent.new.key.event_id()));
        assert_eq!(child.event_type.as_deref(), Some("invoice.paid"));
        assert_eq!((child.received_at, child.due_at), (at(0), at(129)));
        assert_eq!((child.origin, child.key_id.as_deref()), (Origin::Webhook, Some("k1")));
        assert_eq!(
            (&child.headers, &child.traceparent),
            (&parent.new.headers, &parent.new.traceparent)
        );
        if id == "evt_1" {
            let opened = finish(body::open(&child, &world.store, &world.store)).unwrap();
            assert_eq!(opened, Opened::Bytes(first.as_bytes().to_vec()));
        } else {
            assert_eq!(child.object.unwrap().id, "in_1");
            assert_eq!(child.version, Some(Version::Number(7)));
        }
    }
}

/// A request is named by its bytes: its own id may be that of one of its events, and tells only one delivery from another.
#[test]
fn a_request_with_an_id_is_still_named_by_its_bytes() {
    let own = json!({
        "like": "stripe",
        "batch": "/events",
        "identity": { "id": "{header:x-request-id}" },
        "element": { "id": "{json:/id}" },
    });
    let scheme = Scheme::from_value(own).unwrap();
    let world = World { scheme, request_id: Some("evt_1"), ..World::new(true) };
    let (parent, children) = world.split(&json!({ "events": [event("evt_1")] }), at(0));
    assert!(parent.new.key.event_id().starts_with("sha256:"));
    assert_eq!(children[0].new.key.event_id(), "evt_1");
    for row in [&parent, &children[0]] {
        assert_eq!(row.new.delivery_id.as_deref(), Some("evt_1"));
    }
}

/// ING-missing-id
#[test]
fn an_event_without_a_usable_name_is_named_by_its_place() {
    let world = World::new(true);
    let nameless = |id: Value| json!({ "id": id, "type": "invoice.paid" });
    let events =
        [nameless(Value::Null), nameless("".into()), nameless("a\nb".into()), event("evt_1")];
    let body = json!({ "events": events });
    let (parent, children) = world.split(&body, at(0));
    let keys: Vec<_> = children.iter().map(|row| row.new.key.clone()).collect();
    for (index, key) in keys.iter().take(3).enumerate() {
        assert_eq!(*key, InboxKey::of_element(&parent.new.key, index));
    }
    assert_eq!(keys[3].event_id(), "evt_1");
    // The same request again gives the same names; the same events in another one do not.
    assert_eq!(world.split(&body, at(1)).1.len(), 4);
    assert_eq!(world.store.tables().inbox.len(), 5);
    world.split(&json!({ "events": events, "more": 1 }), at(2));
    assert_eq!(world.store.tables().inbox.len(), 9);
}

#[test]
fn an_event_that_calls_itself_what_its_request_is_called_is_not_taken_for_it() {
    let world = World::new(true);
    let (mut parent, _) = world.split(&json!({ "events": [] }), at(0));
    parent.new.key = InboxKey::new(source(), "evt_1").unwrap();
    let body = json!({ "events": [event("evt_1")] }).to_string();
    let other = world.row(&world.sends(body.as_bytes(), None, at(0)).key);
    let content = world.content(&other).unwrap();
    let split = elements(&parent, &content, &world.scheme).unwrap();
    let entry = world.accept(split.events.into_iter().next().unwrap(), at(1)).unwrap();
    assert_eq!(entry.key, InboxKey::of_element(&parent.new.key, 0));
}

/// ING-same-id-other-body: which of them stands does not depend on which is put first.
#[test]
fn of_two_events_with_one_name_the_first_stands() {
    let world = World::new(true);
    let other = json!({ "id": "evt_1", "type": "invoice.voided" });
    let body = json!({ "events": [event("evt_1"), other, event("evt_1")] }).to_string();
    let parent = world.row(&world.sends(body.as_bytes(), None, at(0)).key);
    let content = world.content(&parent).unwrap();
    let split = elements(&parent, &content, &world.scheme).unwrap();
    assert_eq!((split.events.len(), split.repeated, split.conflicting), (1, 1, 1));
    assert_eq!(split.events[0].body, event("evt_1").to_string().as_bytes());
}

#[test]
fn what_is_not_a_list_is_told_apart_from_an_empty_one() {
    let world = World::new(true);
    let take = |body: &[u8]| {
        let parent = world.row(&world.sends(body, None, at(0)).key);
        let content = world.content(&parent).unwrap();
        elements(&parent, &content, &world.scheme).map(|split| split.events.len()).ok()
    };
    assert_eq!(take(br#"{"events":[]}"#), Some(0));
    for bad in [&b"{}"[..], b"{\"events\":{}}", b"{\"events\":[1,]}", b"a=1", b"\xff", b"[]", b""] {
        assert_eq!(take(bad), None, "{}", bad.escape_ascii());
    }
    let many = |count| format!("{{\"events\":[{}]}}", vec!["1"; count].join(","));
    assert_eq!(take(many(signing::MAX_ELEMENTS).as_bytes()), Some(signing::MAX_ELEMENTS));
    assert_eq!(take(many(signing::MAX_ELEMENTS + 1).as_bytes()), None);
}

#[test]
fn a_compressed_event_is_named_by_what_it_says_and_kept_as_it_was_signed() {
    let world = World::new(false);
    let plain = event("evt_1").to_string();
    let encoded = gzip(plain.as_bytes());
    let row = world.row(&world.sends(&encoded, Some("gzip"), at(0)).key);
    assert_eq!(row.new.key.event_id(), "evt_1");
    assert_eq!(row.new.event_type.as_deref(), Some("invoice.paid"));
    assert_eq!(row.new.object.as_ref().unwrap().kind, "invoice");
    assert_eq!(row.new.body.sha256, Sha256Hash::of(&encoded));
    assert_eq!(world.content(&row).unwrap().bytes(), plain.as_bytes());
    // Sent again without compression, it is the same event.
    let again = world.sends(plain.as_bytes(), None, at(1));
    assert!(matches!(again.accepted, Accepted::Duplicate { same_body: false, .. }));
}

#[test]
fn events_of_a_compressed_request_are_cut_out_of_what_it_says() {
    let world = World::new(true);
    let plain = json!({ "events": [event("evt_1"), event("evt_2")] }).to_string();
    let parent = world.row(&world.sends(&gzip(plain.as_bytes()), Some("gzip"), at(0)).key);
    let content = world.content(&parent).unwrap();
    for event in elements(&parent, &content, &world.scheme).unwrap().events {
        let child = world.row(&world.accept(event, at(0)).unwrap().key);
        assert_eq!(child.new.headers.get(ENCODING), None);
        let said = world.content(&child).unwrap();
        assert!(plain.contains(std::str::from_utf8(said.bytes()).unwrap()));
    }
}

/// ING-pre-auth-decompression: verified, accepted, and never unpacked beyond the limit.
#[test]
fn a_bomb_is_accepted_as_its_bytes_and_cannot_be_read() {
    let world = World::new(false);
    let bomb = gzip(&vec![b' '; MAX_BODY + 1]);
    for (encoding, bytes, code) in [
        ("gzip", bomb.as_slice(), "decompressed_too_large"),
        ("gzip", b"\x1f\x8b", "encoding_corrupt"),
        ("br", b"\x0b\x02\x80", "encoding_unknown"),
    ] {
        let row = world.row(&world.sends(bytes, Some(encoding), at(0)).key);
        assert_eq!(row.new.key.event_id(), format!("sha256:{}", Sha256Hash::of(bytes)));
        assert_eq!(world.content(&row).unwrap_err().code(), code);
    }
}

#[test]
fn a_finished_request_that_comes_again_is_split_again_once_a_minute() {
    let check = |status: Status, after: i64, expected: (Status, Enqueued, bool)| {
        let world = World::new(true);
        let body = json!({ "events": [event("evt_1")] }).to_string();
        let row = world.row(&world.sends(body.as_bytes(), None, at(0)).key);
        match status {
            Status::DeadLetter => world.park(&row, at(10)),
            Status::Pending => {}
            _ => world.end(&row, status, at(10)),
        }
        let again = world.sends(body.as_bytes(), None, at(10 + after));
        let is = world.row(&again.key).status;
        assert_eq!((is, again.enqueued, again.rearmed), expected, "{status} {after}");
    };
    let (sent, nothing) = (Enqueued::Sent, Enqueued::NotNeeded);
    check(Status::Processed, 60, (Status::Processed, nothing, false));
    check(Status::Processed, 61, (Status::Pending, sent, true));
    check(Status::Ignored, 61, (Status::Ignored, nothing, false));
    check(Status::DeadLetter, 1, (Status::Pending, sent, true));
    check(Status::Pending, 61, (Status::Pending, sent, false));
}

#[test]
fn an_event_is_revived_by_its_request_only_if_it_was_parked_before_somebody_asked() {
    let world = World::new(true);
    let body = json!({ "events": [event("evt_1"), event("evt_2"), event("evt_3")] });
    let (parent, children) = world.split(&body, at(0));
    world.park(&children[0], at(5));
    world.end(&children[1], Status::Processed, at(5));
    let statuses =
        |rows: &[Row]| rows.iter().map(|row| (row.status, row.cycle)).collect::<Vec<_>>();
    let parked = (Status::DeadLetter, 0);
    let (processed, pending) = ((Status::Processed, 0), (Status::Pending, 0));
    // The same try, once more.
    let (_, children) = world.split(&body, at(6));
    assert_eq!(statuses(&children), [parked, processed, pending]);
    // The provider asks.
    world.end(&parent, Status::Processed, at(7));
    let (_, children) = world.split(&body, at(100));
    assert_eq!(statuses(&children), [(Status::Pending, 1), processed, pending]);
    // In another request, it asks for the same event.
    world.park(&children[0], at(200));
    let (_, children) = world.split(&json!({ "events": [event("evt_1")], "other": 1 }), at(300));
    assert_eq!(statuses(&children), [(Status::Pending, 2)]);
}

/// Loses the second of what it is given.
struct Lossy;

impl Queue<InboundMessage> for Lossy {
    async fn send(&self, _: &[InboundMessage], _: Duration) -> Vec<usize> {
        vec![1]
    }
    async fn defer(&self, _: &str, _: Duration) {}
    async fn visible(&self) -> Stored<u64> {
        Ok(0)
    }
}

#[test]
fn of_messages_that_are_sent_at_once_each_has_its_own_fate() {
    let world = World::new(true);
    let (_, children) =
        world.split(&json!({ "events": [event("a"), event("b"), event("c"), event("d")] }), at(0));
    let entry = |(row, enqueued): (&Row, Enqueued)| Accepting {
        key: row.new.key.clone(),
        event_type: None,
        origin: Origin::Webhook,
        accepted: Accepted::New,
        sha256: row.new.body.sha256,
        length: row.new.body.length,
        rearmed: false,
        enqueued,
    };
    let fates = [Enqueued::NotNeeded, Enqueued::NotYet, Enqueued::NotYet, Enqueued::NotYet];
    let mut entries: Vec<_> = children.iter().zip(fates).map(entry).collect();
    let (inbox, bodies) = (&world.store, &world.store);
    let door = Door { inbox, queue: &Lossy, bodies, first_due: Duration::ZERO };
    finish(door.announce_all(&mut entries));
    let fates: Vec<_> = entries.iter().map(|entry| entry.enqueued).collect();
    assert_eq!(fates, [Enqueued::NotNeeded, Enqueued::Sent, Enqueued::Failed, Enqueued::Sent]);
}

/// A provider that sends the same bytes for one change after another, where the events have no ids of their own.
#[test]
fn where_every_request_counts_the_same_bytes_at_two_times_are_two_requests_with_two_events_each() {
    let scheme = Scheme::preset("ms_graph").unwrap();
    assert!(scheme.is_batch() && scheme.counts_every_request());
    let world = World { scheme, ..World::new(true) };
    let rows = || world.store.tables().inbox.len();
    let state = "the-client-state-of-this-test";
    let came = |ids: [Option<&str>; 2], second: i64| {
        let events =
            ids.map(|id| json!({ "id": id, "clientState": state, "changeType": "updated" }));
        let body = json!({ "value": events }).to_string();
        let keys = [Key::parse(&world.scheme, "k1", &Secret::new(state)).unwrap()];
        let headers = HeaderMap::new();
        let (method, url) = ("POST", "https://hooks.example/webhooks/demo");
        let body = body.as_bytes();
        let request = Request { method, url, headers: &headers, body, path_secret: None };
        let handler = Handler::Mirror { emit_to: None, states: None };
        let feed =
            Source::new(source(), SchemeChoice::Preset("ms_graph".to_owned()), handler, at(0));
        let verified = signing::verify(&world.scheme, &keys, &request, at(second)).unwrap();
        let incoming = Incoming::verified(&feed, verified, &headers);
        let incoming = incoming.under(&world.scheme, &request, at(second));
        let parent = world.row(&world.accept(incoming, at(second)).unwrap().key);
        let content = world.content(&parent).unwrap();
        let events = elements(&parent, &content, &world.scheme).unwrap().events;
        for event in events {
            let child = world.row(&world.accept(event, at(second)).unwrap().key);
            assert_eq!(child.new.parent.as_deref(), Some(parent.new.key.event_id()));
        }
        parent.new.key
    };
    let first = came([None, None], 0);
    assert_eq!(rows(), 3);
    assert_ne!(came([None, None], 60), first);
    assert_eq!(rows(), 6);
}
