//! Notes how the sources are doing: when they were last heard, with which secret, and what was refused.
//!
//! What happens with each request is collected in this sandbox and written every ten seconds at most, so that a flood of
//! bad requests costs no write for each. What was collected and not written when the sandbox ends is lost; it counts what
//! strangers do.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use domain::{
    body::Sha256Hash,
    id::{InboxKey, SourceName},
    inbox::OtherBody,
    ports::{AcceptReport, Inbox, PublishedKeys, RejectReport, RejectSample, Stored, Want, Watch},
};
use http::HeaderMap;
use jiff::Timestamp;
use runtime::telemetry::chain;

use crate::{answer::Refused, gateway::Arrival};

/// Least time between two writes about the same thing, from one sandbox.
const BETWEEN_WRITES: Duration = Duration::from_secs(10);

/// Least time between two notes of other bodies under known ids at one source, from one sandbox. Shorter, because each may
/// be of another event; a flood of signed requests is not a write for each all the same, and the metric counts them all.
const BETWEEN_OTHER_BODIES: Duration = Duration::from_secs(1);

/// Headers of a refused request that an operator may see. None holds a signature, a token or a cookie.
const SHOWN: [&str; 9] = [
    "content-encoding",
    "content-length",
    "content-type",
    "stripe-account",
    "user-agent",
    "x-github-event",
    "x-github-hook-id",
    "x-shopify-shop-domain",
    "x-shopify-topic",
];

/// Longest value of a header that is shown, in characters.
const MAX_SHOWN: usize = 120;

/// Who keeps an eye on the sources.
#[derive(Debug)]
pub struct Lookout<'a, T> {
    state: &'a T,
    kept: Mutex<Kept>,
}

/// What this sandbox knows. Bounded: only sources that exist, their own secrets, and our own words for reasons come in.
#[derive(Debug, Default)]
struct Kept {
    /// When an acceptance was last written, by source, secret, and whether the event was new.
    accepted: BTreeMap<(SourceName, Option<String>, bool), Timestamp>,
    refused: BTreeMap<SourceName, Collected>,
    /// When a key that nobody has vouched for was last asked for.
    wanted: BTreeMap<SourceName, Timestamp>,
    /// When a key that made a signature was last asked for again, whatever strangers want.
    renewed: BTreeMap<(SourceName, String), Timestamp>,
    /// When another body was last noted.
    other_bodies: BTreeMap<SourceName, Timestamp>,
}

/// Refused requests that are not written yet.
#[derive(Debug, Default)]
struct Collected {
    counts: BTreeMap<String, u64>,
    last: Option<(Timestamp, String)>,
    written_at: Option<Timestamp>,
}

impl<'a, T: Watch + PublishedKeys> Lookout<'a, T> {
    /// Notes it all in this table.
    pub fn new(state: &'a T) -> Self {
        Self { state, kept: Mutex::default() }
    }

    /// Notes that a request was accepted, unless that was noted a moment ago. Failing is nobody's concern but the alarm's.
    pub async fn accepted(&self, source: &SourceName, report: &AcceptReport) {
        let (is_due, rejects) = {
            let mut kept = self.kept();
            (kept.is_accept_due(source, report), kept.due(source, report.at, || None))
        };
        if let Some(rejects) = rejects {
            self.write(source, "refused requests", self.state.note_rejects(source, &rejects)).await;
        }
        if is_due {
            self.write(source, "a heartbeat", self.state.note_accepted(source, report)).await;
        }
    }

    /// Notes that a request in the name of a source that exists was refused.
    pub async fn refused(
        &self,
        source: &SourceName,
        arrival: &Arrival,
        refused: &Refused,
        now: Timestamp,
    ) {
        let Some(complaint) = refused.complaint() else { return };
        let rejects = {
            let mut kept = self.kept();
            kept.collect(source, refused, now);
            kept.due(source, now, || Some(sample(arrival, refused, complaint, now)))
        };
        if let Some(rejects) = rejects {
            self.write(source, "refused requests", self.state.note_rejects(source, &rejects)).await;
        }
    }

    /// Asks for a published key, unless one was asked for a moment ago: the provider's next try asks again.
    pub async fn want(&self, source: &SourceName, id: &str, now: Timestamp) {
        if take_turn(&mut self.kept().wanted, source.clone(), now, BETWEEN_WRITES) {
            self.ask(source, id, now).await;
        }
    }

    /// The same, for a key that has just proved itself: a flood of keys that do not exist must not let it run out.
    pub async fn renew(&self, source: &SourceName, id: &str, now: Timestamp) {
        if take_turn(&mut self.kept().renewed, (source.clone(), id.to_owned()), now, BETWEEN_WRITES)
        {
            self.ask(source, id, now).await;
        }
    }

    async fn ask(&self, source: &SourceName, id: &str, now: Timestamp) {
        let want = Want::Key(id.to_owned());
        self.write(source, "a key that is wanted", self.state.want(source, &want, now)).await;
    }

    /// Notes at the event's row that another body came under its id, unless one was noted at this source a moment ago.
    pub async fn other_body(
        &self,
        source: &SourceName,
        inbox: &impl Inbox,
        key: &InboxKey,
        other: &OtherBody,
    ) {
        if take_turn(&mut self.kept().other_bodies, source.clone(), other.at, BETWEEN_OTHER_BODIES)
        {
            self.write(source, "another body", inbox.note_other_body(key, other)).await;
        }
    }

    /// The table itself, for what must be written before the answer.
    pub(crate) fn state(&self) -> &'a T {
        self.state
    }

    async fn write<R>(
        &self,
        source: &SourceName,
        what: &str,
        written: impl Future<Output = Stored<R>>,
    ) {
        if let Err(error) = written.await {
            tracing::warn!(source = %source, error = %chain(&error), "{what} could not be noted");
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_due(last: Option<&Timestamp>, now: Timestamp, between: Duration) -> bool {
    last.is_none_or(|at| now.duration_since(*at).unsigned_abs() >= between)
}

/// Whether something is due, and if so, it was done now.
fn take_turn<T: Ord>(
    last: &mut BTreeMap<T, Timestamp>,
    what: T,
    now: Timestamp,
    between: Duration,
) -> bool {
    let is_due = is_due(last.get(&what), now, between);
    if is_due {
        last.insert(what, now);
    }
    is_due
}

impl Kept {
    fn is_accept_due(&mut self, source: &SourceName, report: &AcceptReport) -> bool {
        let key = (source.clone(), report.key_id.clone(), report.is_new);
        let last = self.accepted.get(&key);
        // Refusals that were written since say that the source fails, and nothing else would take that back.
        let written_at = self.refused.get(source).and_then(|collected| collected.written_at);
        let is_due = is_due(last, report.at, BETWEEN_WRITES)
            || written_at.is_some_and(|at| last < Some(&at));
        if is_due {
            self.accepted.insert(key, report.at);
        }
        is_due
    }

    fn collect(&mut self, source: &SourceName, refused: &Refused, now: Timestamp) {
        let collected = self.refused.entry(source.clone()).or_default();
        *collected.counts.entry(refused.code().to_owned()).or_default() += 1;
        collected.last = Some((now, refused.to_string()));
    }

    /// What is to be written of a source's refused requests, if there are any and it is time.
    fn due(
        &mut self,
        source: &SourceName,
        now: Timestamp,
        sample: impl FnOnce() -> Option<RejectSample>,
    ) -> Option<RejectReport> {
        let collected = self.refused.get_mut(source)?;
        if !is_due(collected.written_at.as_ref(), now, BETWEEN_WRITES) {
            return None;
        }
        let (at, last_reason) = collected.last.take()?;
        collected.written_at = Some(now);
        let counts = std::mem::take(&mut collected.counts);
        Some(RejectReport { at, counts, last_reason, sample: sample() })
    }
}

fn sample(
    arrival: &Arrival,
    refused: &Refused,
    (class, advice): (&str, &str),
    now: Timestamp,
) -> RejectSample {
    let body = arrival.body.as_deref().unwrap_or_default();
    RejectSample {
        at: now,
        reason: refused.code().to_owned(),
        class: class.to_owned(),
        advice: advice.to_owned(),
        method: shown(&arrival.method),
        headers: headers(&arrival.headers),
        body_sha256: Sha256Hash::of(body).to_string(),
        body_length: body.len() as u64,
    }
}

fn headers(headers: &HeaderMap) -> BTreeMap<String, String> {
    let one = |name: &str| {
        let value = String::from_utf8_lossy(headers.get(name)?.as_bytes());
        Some((name.to_owned(), shown(&value)))
    };
    SHOWN.into_iter().filter_map(one).collect()
}

/// A stranger's text, cut and made harmless.
fn shown(text: &str) -> String {
    let harmless = |c: char| if c.is_ascii_graphic() || c == ' ' { c } else { '?' };
    let harmless = text.chars().map(harmless);
    harmless.take(MAX_SHOWN).collect()
}
