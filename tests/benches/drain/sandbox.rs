//! The worker in a process of its own.

use std::{
    collections::BTreeMap,
    fs,
    time::{Duration, Instant},
};

use aws_lambda_events::sqs::{SqsEvent, SqsMessage};
use domain::{
    body::{Place, Sha256Hash, StoredBody},
    event::{ObjectRef, Origin, Version},
    id::InboxKey,
    inbox::NewRow,
    message::{InboundMessage, Message as _},
    source::{Handler, SchemeChoice, Source},
};
use jiff::Timestamp;
use runtime::telemetry::Metrics;
use testkit::{
    LIMITS,
    memory::{self, MemoryQueue},
};
use worker::{Sources, Worker, handlers::SHIPPED};

use crate::{Drained, tables::Local};

/// How many messages come at once.
const BATCH: usize = 10;

/// Bytes of each event.
const BODY: usize = 1_000;

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

/// Whose events are drained.
pub(crate) fn source() -> Source {
    let handler = Handler::Mirror { emit_to: Some("demo".parse().unwrap()), states: None };
    let scheme = SchemeChoice::Preset("stripe".to_owned());
    Source::new("shop".parse().unwrap(), scheme, handler, now())
}

fn key(n: u64) -> InboxKey {
    InboxKey::new(source().name, &format!("evt_{n}")).unwrap()
}

/// An event as it stands in the inbox.
pub(crate) fn row(n: u64) -> NewRow {
    let body = format!(r#"{{"id":"evt_{n}","padding":"{n:0>BODY$}"}}"#).into_bytes();
    NewRow {
        key: key(n),
        event_type: Some("invoice.paid".to_owned()),
        received_at: now(),
        due_at: now() + Duration::from_secs(120),
        body: StoredBody {
            sha256: Sha256Hash::of(&body),
            length: body.len() as u64,
            place: Place::Inline(flow::body::compress(&body).unwrap()),
        },
        headers: BTreeMap::new(),
        object: Some(ObjectRef { kind: "invoice".to_owned(), id: format!("in_{n}") }),
        version: Some(Version::Number(1)),
        occurred_at: None,
        origin: Origin::Webhook,
        key_id: None,
        token: String::new(),
        traceparent: None,
        delivery_id: None,
        parent: None,
    }
}

/// Drains a backlog, batch after batch.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn drain(port: u16, events: u64) -> Drained {
    let tables = Local::at(port);
    let hour = Duration::from_hours(1);
    let worker = Worker {
        inbox: &tables.inbox,
        state: &tables.state,
        sources: &Sources::new(tables.registry.clone(), hour, hour),
        bodies: &memory::Store::new(1),
        queue: &MemoryQueue::new(LIMITS.visibility, 16),
        limits: LIMITS,
        payload_max: 1_000_000,
        handlers: SHIPPED,
        metrics: &Metrics::new("drain"),
        now,
    };
    let before_kib = kib("VmRSS");
    let began = Instant::now();
    for first in (0..events).step_by(BATCH) {
        let mut batch = SqsEvent::default();
        batch.records.extend((first..events).take(BATCH).map(message));
        let ends = now() + Duration::from_secs(30);
        let answer = Box::pin(worker.batch(batch, ends, || 0.5)).await.unwrap();
        assert!(answer.batch_item_failures.is_empty(), "{answer:?}");
        // As the function does at the end of each batch.
        drop(worker.metrics.lines(now()));
    }
    let seconds = began.elapsed().as_secs_f64();
    Drained { seconds, before_kib, peak_kib: kib("VmHWM") }
}

fn message(n: u64) -> SqsMessage {
    let mut message = SqsMessage::default();
    message.message_id = Some(n.to_string());
    message.receipt_handle = Some(n.to_string());
    message.body = Some(InboundMessage(key(n)).to_text());
    let attributes = [
        ("ApproximateReceiveCount", "1".to_owned()),
        ("SentTimestamp", now().as_millisecond().to_string()),
    ];
    message.attributes = attributes.map(|(name, value)| (name.to_owned(), value)).into();
    message
}

/// A figure of this process, as Linux tells it; 0 elsewhere.
fn kib(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse().ok()).unwrap_or_default()
}
