//! How a source is doing: what it was last heard to say, and what was refused in its name.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::Stored;
use crate::id::SourceName;

/// What is known of the sources' health. Its writers collect: what happens each second is written every ten seconds.
pub trait Watch: Sync {
    /// Notes that a request of a source was accepted. An older time than the noted one changes nothing.
    fn note_accepted(
        &self,
        source: &SourceName,
        report: &AcceptReport,
    ) -> impl Future<Output = Stored<()>> + Send;

    /// Notes requests that were refused.
    fn note_rejects(
        &self,
        source: &SourceName,
        report: &RejectReport,
    ) -> impl Future<Output = Stored<()>> + Send;

    /// How a source is doing.
    fn health(
        &self,
        source: &SourceName,
        now: Timestamp,
    ) -> impl Future<Output = Stored<SourceHealth>> + Send;

    /// Up to when reconciliation has asked the provider. `None`: it never has.
    fn reconciled_until(
        &self,
        source: &SourceName,
    ) -> impl Future<Output = Stored<Option<Timestamp>>> + Send;

    /// Requests that were refused, newest first. A bounded number of them is kept, for a bounded time.
    fn rejected(
        &self,
        source: &SourceName,
        limit: usize,
        now: Timestamp,
    ) -> impl Future<Output = Stored<Vec<RejectSample>>> + Send;
}

/// Most refused requests of one source that are kept; above, the oldest goes.
pub const MAX_SAMPLES: usize = 50;

/// How long a refused request is kept.
pub const SAMPLE_LIFE: SignedDuration = SignedDuration::from_hours(14 * 24);

/// How far back [`SourceHealth::rejects`] counts, in whole hours.
pub const REJECTS_COUNTED: SignedDuration = SignedDuration::from_hours(24);

/// That a request was accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptReport {
    /// When.
    pub at: Timestamp,
    /// With which of the source's secrets.
    pub key_id: Option<String>,
    /// Whether the event is new. Only new ones end a silence: a provider that repeats itself has nothing to say.
    pub is_new: bool,
}

/// Requests that were refused, since the last report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectReport {
    /// When the latest of them came.
    pub at: Timestamp,
    /// How many for each reason, by its stable code.
    pub counts: BTreeMap<String, u64>,
    /// Why the latest was refused, in words.
    pub last_reason: String,
    /// One of them.
    pub sample: Option<RejectSample>,
}

/// A request that was refused, as an operator may see it: never its body, its signature or a secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RejectSample {
    /// When it came.
    pub at: Timestamp,
    /// Why it was refused: a stable code.
    pub reason: String,
    /// The class of the reason: whether the sender or the configuration is at fault.
    pub class: String,
    /// What to do about it.
    pub advice: String,
    /// Its method.
    pub method: String,
    /// Headers on the list of those that are kept, each cut to a bounded length.
    pub headers: BTreeMap<String, String>,
    /// The SHA-256 of its body, in hexadecimal.
    pub body_sha256: String,
    /// How many bytes its body has.
    pub body_length: u64,
}

/// How a source is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SourceHealth {
    /// When its last new event was accepted.
    pub last_accepted_at: Option<Timestamp>,
    /// When a request in its name was last refused.
    pub last_rejected_at: Option<Timestamp>,
    /// Why, in words.
    pub last_reject_reason: Option<String>,
    /// Since when every request is refused. `None`: the last one was accepted, or there was none.
    pub failing_since: Option<Timestamp>,
    /// How many were refused in the last 24 hours, in whole hours, by the reason's code.
    pub rejects: BTreeMap<String, u64>,
    /// When each secret last matched, by its id: an old one that no longer does can go.
    pub secrets: BTreeMap<String, Timestamp>,
}

/// The beginning of the hour of a time: what counts of refused requests are kept under.
pub fn hour_of(at: Timestamp) -> Timestamp {
    let hour = at.as_second().div_euclid(3600) * 3600;
    Timestamp::from_second(hour).unwrap_or(at)
}
