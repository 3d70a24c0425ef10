//! Accepts webhooks from providers.
//!
//! A 2xx answer means one thing: the event is in the table, and something will find it there even if every queue is
//! lost. Never here: a handler, a second meaning of 2xx, work after the answer, a reason told to the sender.
//!
//! The steps: I1 the source and its keys; I2 the untouched body; I3 its signature; I4 what the event is called; I5 where
//! its body goes; I6 the row, put if absent; I7 what it means that one was there; I8 a message to the worker; I9 the
//! answer.
//!
//! Reading order: [`Ingress::receive`] is the story; [`sources`] is I1; `signing` is I3; `flow` is I4 to I8; [`gateway`]
//! and [`Answer`] are the outside.

mod answer;
pub mod config;
pub mod gateway;
pub mod sources;

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use domain::{
    id::SourceName,
    inbox::Accepted,
    message::InboundMessage,
    ports::{AcceptReport, Bodies, Inbox, Queue, Registry, SourceSecrets, Watch},
};
use flow::{
    accept::{Door, Enqueued, Entry},
    incoming::Incoming,
};
use jiff::Timestamp;
use runtime::telemetry::{Metrics, Step, chain};
use signing::{Rejected, Request, Verified};
use tokio::time::{Instant, timeout_at};

pub use crate::{
    answer::{Answer, Refused},
    config::Config,
};
use crate::{
    gateway::Arrival,
    sources::{Feed, Sources},
};

/// Most bytes of a body. Lambda takes no request of more than 6 MB, so that only other hosts could bring more.
pub const MAX_BODY: usize = 6 * 1024 * 1024;

/// Least time between two heartbeats of a source, from one sandbox.
const BETWEEN_BEATS: Duration = Duration::from_secs(10);

/// What the function needs, built once at cold start.
#[derive(Debug)]
pub struct Ingress<'a, R, S, I, Q, B, T> {
    /// Who may send.
    pub sources: Sources<'a, R, S>,
    /// Where events go.
    pub door: Door<'a, I, Q, B>,
    /// Who hears that a source is alive.
    pub heart: Heart<'a, T>,
    /// What is counted.
    pub metrics: Metrics,
    /// For the work on one request.
    pub budget: Duration,
}

impl<R, S, I, Q, B, T> Ingress<'_, R, S, I, Q, B, T>
where
    R: Registry,
    S: SourceSecrets,
    I: Inbox,
    Q: Queue<InboundMessage>,
    B: Bodies,
    T: Watch,
{
    /// Takes one request in. `token` tells this try apart from every other.
    pub async fn receive(&self, arrival: &Arrival, token: String, now: Timestamp) -> Answer {
        let began = Instant::now();
        let deadline = began + self.budget;
        let taken = timeout_at(deadline, self.take(arrival, token, now)).await;
        match taken.unwrap_or(Err(Refused::Late)) {
            Ok(mut entry) => {
                // The row is there: whatever happens from here on, the answer is yes.
                let _ = timeout_at(deadline, self.follow(&mut entry, now)).await;
                self.tell_accepted(&entry, began.elapsed());
                Answer::Accepted
            }
            Err(refused) => {
                self.tell_refused(arrival, &refused, began.elapsed());
                refused.answer()
            }
        }
        // I9. Nothing runs after the answer: a frozen sandbox would never finish it.
    }

    /// I1 to I7: everything that decides the answer.
    async fn take(
        &self,
        arrival: &Arrival,
        token: String,
        now: Timestamp,
    ) -> Result<Entry, Refused> {
        // I1
        let name = arrival.source.parse::<SourceName>().map_err(|_| Refused::NoSource)?;
        let feed = self.sources.find(&name, now).await?.ok_or(Refused::NoSource)?;
        if arrival.method != "POST" {
            return Err(Refused::NoSource);
        }
        // I2
        let body = arrival.body.as_deref().ok_or(Refused::BadBase64)?;
        if body.len() > MAX_BODY {
            return Err(Refused::TooLarge(body.len()));
        }
        // I3
        let verified = match verify(&feed, arrival, body, now) {
            Err(rejected) if rejected.is_refreshable() => {
                match self.sources.refresh(&name, now).await {
                    Some(newer) => verify(&newer, arrival, body, now),
                    None => Err(rejected),
                }
            }
            verdict => verdict,
        };
        // I4 to I7
        let incoming =
            Incoming::verified(name, verified.map_err(Refused::Untrusted)?, &arrival.headers);
        Ok(self.door.put(incoming, token, now).await?)
    }

    /// I8, and the heartbeat. Neither can change the answer.
    async fn follow(&self, entry: &mut Entry, now: Timestamp) {
        self.door.announce(entry).await;
        if entry.enqueued == Enqueued::Sent {
            let (source, event_id) = (entry.key.source().as_str(), entry.key.event_id());
            let (source, event_id) = (Some(source), Some(event_id));
            let event_type = entry.event_type.as_deref();
            Step {
                stage: "enqueue",
                source,
                event_id,
                event_type,
                result: "sent",
                ..Step::default()
            }
            .info("the worker was told");
        }
        if entry.accepted == Accepted::New {
            self.heart.beat(entry.key.source(), now).await;
        }
    }

    fn tell_accepted(&self, entry: &Entry, took: Duration) {
        let source = Some(entry.key.source().as_str());
        let count = |name| self.metrics.count(name, source, 1);
        count("webhooks_received_total");
        let result = match entry.accepted {
            Accepted::New => "new",
            Accepted::Duplicate { same_body: true, .. } => "duplicate",
            Accepted::Duplicate { same_body: false, .. } => "same_id_other_body",
        };
        if entry.accepted != Accepted::New {
            count("webhooks_duplicate_total");
        }
        if entry.enqueued != Enqueued::Sent && entry.enqueued != Enqueued::NotNeeded {
            count("webhooks_enqueue_failed_total");
        }
        let step = Step {
            stage: "accept",
            source,
            event_id: Some(entry.key.event_id()),
            event_type: entry.event_type.as_deref(),
            duration: Some(took),
            result,
            ..Step::default()
        };
        if result == "same_id_other_body" {
            count("webhooks_conflicting_total");
            step.warn("another body came under the id of an event; the first one stays", None);
        } else {
            step.info("accepted");
        }
    }

    fn tell_refused(&self, arrival: &Arrival, refused: &Refused, took: Duration) {
        // Only the names of sources that exist: each value of a dimension is a metric, and strangers choose the others.
        let name = arrival.source.parse::<SourceName>().ok();
        let known = name.as_ref().filter(|name| self.sources.is_known(name));
        let source = known.map(SourceName::as_str);
        let step = Step {
            stage: "accept",
            source,
            duration: Some(took),
            result: refused.code(),
            ..Step::default()
        };
        match (refused.answer(), refused) {
            (Answer::Untrusted, Refused::Untrusted(rejected)) => {
                self.metrics.count("webhooks_signature_failed_total", source, 1);
                let (class, advice) = (rejected.class().as_str(), rejected.reason().advice());
                let length = arrival.body.as_ref().map_or(0, Vec::len);
                step.warn(&format!("refused as {class}, {length} bytes: {advice}"), Some(refused));
            }
            (Answer::Unavailable | Answer::Broken, _) => {
                self.metrics.count("webhooks_not_stored_total", source, 1);
                step.error("refused", Some(refused));
            }
            _ => {
                self.metrics.count("webhooks_refused_total", source, 1);
                step.info("refused");
            }
        }
    }
}

fn verify<'a>(
    feed: &Feed,
    arrival: &'a Arrival,
    body: &'a [u8],
    now: Timestamp,
) -> Result<Verified<'a>, Rejected> {
    let request = Request {
        method: &arrival.method,
        url: &arrival.url,
        headers: &arrival.headers,
        body,
        path_secret: None,
    };
    signing::verify(&feed.scheme, &feed.keys(now), &request, now)
}

/// Notes which sources are alive.
#[derive(Debug)]
pub struct Heart<'a, T> {
    state: &'a T,
    last: Mutex<BTreeMap<SourceName, Timestamp>>,
}

impl<'a, T: Watch> Heart<'a, T> {
    /// Notes them in this table.
    pub fn new(state: &'a T) -> Self {
        Self { state, last: Mutex::default() }
    }

    /// Notes that a source's event came in, unless that was noted a moment ago. Failing is nobody's concern but the
    /// alarm's.
    async fn beat(&self, source: &SourceName, now: Timestamp) {
        if !self.is_due(source, now) {
            return;
        }
        let report = AcceptReport { at: now, key_id: None, is_new: true };
        if let Err(error) = self.state.note_accepted(source, &report).await {
            tracing::warn!(source = %source, error = %chain(&error), "a heartbeat was not noted");
        }
    }

    fn is_due(&self, source: &SourceName, now: Timestamp) -> bool {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let due = last
            .get(source)
            .is_none_or(|at| now.duration_since(*at).unsigned_abs() >= BETWEEN_BEATS);
        if due {
            last.insert(source.clone(), now);
        }
        due
    }
}
