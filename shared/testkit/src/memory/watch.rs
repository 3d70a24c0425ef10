//! The health of sources in memory.

use std::collections::{BTreeMap, VecDeque};

use domain::{
    id::SourceName,
    ports::{
        AcceptReport, RejectReport, RejectSample, SourceHealth, Stored, Watch,
        watch::{MAX_SAMPLES, REJECTS_COUNTED, SAMPLE_LIFE, hour_of},
    },
};
use jiff::Timestamp;

use super::Store;

/// How a source is doing.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    /// When its last new event was accepted.
    pub accepted_at: Option<Timestamp>,
    /// When a request was last accepted, new or not.
    pub matched_at: Option<Timestamp>,
    /// When a request was first refused after that.
    pub failing_since: Option<Timestamp>,
    /// When a request was last refused, and why.
    pub rejected: Option<(Timestamp, String)>,
    /// How many were refused, by hour and reason.
    pub rejects: BTreeMap<(Timestamp, String), u64>,
    /// When each secret last matched.
    pub secrets: BTreeMap<String, Timestamp>,
    /// Refused requests, newest first.
    pub samples: VecDeque<RejectSample>,
    /// Up to when reconciliation has asked the provider.
    pub reconciled_until: Option<Timestamp>,
}

impl Watch for Store {
    async fn note_accepted(&self, source: &SourceName, report: &AcceptReport) -> Stored<()> {
        self.call("watch.note_accepted", |tables| {
            let watched = tables.watched.entry(source.clone()).or_default();
            let at = Some(report.at);
            if report.is_new {
                watched.accepted_at = watched.accepted_at.max(at);
            }
            if watched.matched_at < at {
                watched.matched_at = at;
                watched.failing_since = None;
            }
            if let Some(id) = &report.key_id {
                let last = watched.secrets.entry(id.clone()).or_insert(report.at);
                *last = (*last).max(report.at);
            }
        })
        .await
    }

    async fn note_rejects(&self, source: &SourceName, report: &RejectReport) -> Stored<()> {
        self.call("watch.note_rejects", |tables| {
            let watched = tables.watched.entry(source.clone()).or_default();
            watched.rejected = Some((report.at, report.last_reason.clone()));
            if watched.matched_at < Some(report.at) {
                watched.failing_since.get_or_insert(report.at);
            }
            for (code, count) in &report.counts {
                let hour = (hour_of(report.at), code.clone());
                *watched.rejects.entry(hour).or_default() += count;
            }
            watched.samples.extend(report.sample.clone());
            watched.samples.rotate_right(usize::from(report.sample.is_some()));
            watched.samples.truncate(MAX_SAMPLES);
        })
        .await
    }

    async fn health(&self, source: &SourceName, now: Timestamp) -> Stored<SourceHealth> {
        self.call("watch.health", |tables| {
            let watched = tables.watched.get(source).cloned().unwrap_or_default();
            let (rejected_at, reason) = watched.rejected.unzip();
            let mut rejects = BTreeMap::new();
            for ((hour, code), count) in watched.rejects {
                if now.duration_since(hour) < REJECTS_COUNTED {
                    *rejects.entry(code).or_default() += count;
                }
            }
            SourceHealth {
                last_accepted_at: watched.accepted_at,
                last_rejected_at: rejected_at,
                last_reject_reason: reason,
                failing_since: watched.failing_since,
                rejects,
                secrets: watched.secrets,
            }
        })
        .await
    }

    async fn reconciled_until(&self, source: &SourceName) -> Stored<Option<Timestamp>> {
        self.call("watch.reconciled_until", |tables| {
            tables.watched.get(source).and_then(|watched| watched.reconciled_until)
        })
        .await
    }

    async fn rejected(
        &self,
        source: &SourceName,
        limit: usize,
        now: Timestamp,
    ) -> Stored<Vec<RejectSample>> {
        self.call("watch.rejected", |tables| {
            let samples = tables.watched.get(source).map(|watched| watched.samples.clone());
            let kept = samples.unwrap_or_default().into_iter();
            let mut kept: Vec<_> =
                kept.filter(|sample| now.duration_since(sample.at) < SAMPLE_LIFE).collect();
            kept.sort_by_key(|sample| std::cmp::Reverse(sample.at));
            kept.truncate(limit);
            kept
        })
        .await
    }
}
