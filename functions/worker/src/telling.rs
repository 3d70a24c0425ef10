//! One wide log line for each message, and the metrics. Neither holds a word of the event's body.

use std::{collections::BTreeSet, error::Error};

use domain::{
    commit::CommitOutcome,
    id::InboxKey,
    inbox::{Applied, ChangeResult, NewRow, Row, Status, children},
    plan::Plan,
};
use jiff::Timestamp;
use runtime::telemetry::{Step, Unit};

use crate::{Outcome, Worker, attempt::Ended, fetching::Asked};

impl Outcome {
    /// What became of the message, in one stable word.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Finished { status: Status::Ignored, .. } => "ignored",
            Self::Finished { .. } => "processed",
            Self::FinishedBefore => "finished_before",
            Self::Retry { .. } => "retry",
            Self::Waits { .. } => "waits",
            Self::Paused { .. } => "paused",
            Self::Parked(_) => "parked",
            Self::ParkedBefore => "parked_before",
            Self::Missing => "no_such_event",
            Self::Unreadable(_) => "unreadable_message",
            Self::Restless => "moved",
            Self::Unsure(_) => "store_error",
        }
    }

    /// A sentence for whoever reads the log.
    fn sentence(&self) -> String {
        match self {
            Self::Finished { reason: Some(reason), .. } => reason.clone(),
            Self::Finished { results, .. } => summary(results),
            Self::FinishedBefore => "nothing is owed: the event was finished before".to_owned(),
            Self::Retry { wait, failure } => {
                let wait = wait.as_secs_f64();
                format!("failed ({}: {}); tried again in {wait:.1} s", failure.code, failure.message)
            }
            Self::Waits { until, reason } => {
                format!("waits until {until} ({}: {})", reason.code, reason.message)
            }
            Self::Paused { since, until } => {
                format!("the source is paused since {since}; looked at again after {until}")
            }
            Self::Parked(failure) => format!(
                "parked ({}: {}); fix the cause, then replay the event",
                failure.code, failure.message
            ),
            Self::ParkedBefore => "the event is parked; its message goes to the dead-letter queue".to_owned(),
            Self::Missing => {
                "the message names an event that is not in the inbox, though it must have been: somebody removed it, or \
                 the table was restored; the message goes to the dead-letter queue"
                    .to_owned()
            }
            Self::Unreadable(_) => {
                "the message cannot be read and goes to the dead-letter queue".to_owned()
            }
            Self::Restless => "others moved the event's row each time it was read".to_owned(),
            Self::Unsure(_) => {
                "the store could not be read or written; the message comes back".to_owned()
            }
        }
    }

    fn error(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Unreadable(bad) => Some(bad),
            Self::Unsure(error) => Some(error),
            _ => None,
        }
    }
}

/// How many changes ended in which way, such as `2 applied, 1 stale`.
fn summary(results: &[ChangeResult]) -> String {
    if let Some(children) = children(results) {
        return format!("split into {children} events");
    }
    let ways = [
        (Applied::Applied, "applied"),
        (Applied::Stale, "stale"),
        (Applied::DuplicateEffect, "done before"),
        (Applied::AlreadyEmitted, "emitted before"),
        (Applied::Refused, "refused"),
        (Applied::Covered, "covered by what was fetched later"),
    ];
    let counts = ways.map(|(way, word)| (results.iter().filter(|r| r.result == way).count(), word));
    let told: Vec<String> =
        counts.iter().filter(|(n, _)| *n > 0).map(|(n, word)| format!("{n} {word}")).collect();
    if told.is_empty() { "nothing to change".to_owned() } else { told.join(", ") }
}

/// A sentence for whoever reads the log.
const fn said(outcome: CommitOutcome) -> &'static str {
    match outcome {
        CommitOutcome::Applied => "what the plan says is true",
        CommitOutcome::AlreadyFinished => {
            "somebody else had finished, parked or re-armed the event"
        }
        CommitOutcome::Stale => "an object was newer already, and stays",
        CommitOutcome::DuplicateEffect => "an effect was there already, and is not repeated",
        CommitOutcome::LeaseLost => "the lease had passed to another attempt; nothing was written",
        CommitOutcome::Conflict => "somebody else changed or held an item; nothing was written",
        CommitOutcome::Throttled => "the store took no more; nothing was written",
        CommitOutcome::TooLarge => "the store will never take so much; nothing was written",
    }
}

impl<I, S, R, B, Q, N: Fn() -> Timestamp> Worker<'_, I, S, R, B, Q, N> {
    /// Tells what the handler wants.
    pub(crate) fn tell_plan(&self, row: &NewRow, plan: &Plan) {
        let result = match plan {
            Plan::Apply(_) => "apply",
            Plan::Ignored(_) => "ignored",
            Plan::Requeue { .. } => "requeue",
            Plan::Reject(_) => "reject",
        };
        let step = Step {
            stage: "plan",
            source: Some(row.key.source().as_str()),
            event_id: Some(row.key.event_id()),
            event_type: row.event_type.as_deref(),
            result,
            ..Step::default()
        };
        step.info("planned");
    }

    /// Tells how one try to make a plan true came out. An answer that decides nothing has no outcome.
    pub(crate) fn tell_commit(&self, row: &NewRow, outcomes: &BTreeSet<CommitOutcome>) {
        let source = row.key.source().as_str();
        for outcome in outcomes {
            self.metrics.count(outcome.metric(), Some(source), 1);
            let step = Step {
                stage: "commit",
                source: Some(source),
                event_id: Some(row.key.event_id()),
                event_type: row.event_type.as_deref(),
                result: outcome.word(),
                ..Step::default()
            };
            step.info(said(*outcome));
        }
    }

    /// The line of a fetch.
    pub(crate) fn fetch_step<'r>(&self, row: &'r Row, result: &'r str) -> Step<'r> {
        Step {
            stage: "fetch",
            source: Some(row.new.key.source().as_str()),
            event_id: Some(row.new.key.event_id()),
            event_type: row.new.event_type.as_deref(),
            attempt: Some(row.attempts + 1),
            result,
            ..Step::default()
        }
    }

    /// Tells how asking a provider went. Never with its answer, nor with the address, which has ids in it.
    pub(crate) fn tell_fetch(
        &self,
        row: &Row,
        asked: &Asked,
        ended: Option<&Ended>,
        began: Timestamp,
    ) {
        let source = Some(row.new.key.source().as_str());
        let duration = (self.now)().duration_since(began).try_into().ok();
        if matches!(asked, Asked::Answered(..) | Asked::NoAnswer(_)) {
            self.metrics.count("fetches_total", source, 1);
        }
        let step = |result| Step { duration, ..self.fetch_step(row, result) };
        match ended {
            None => step("fetched").info("the provider was asked"),
            Some(Ended::Waits { reason, .. }) => {
                step(&reason.code).info(&reason.message);
            }
            Some(Ended::Failed { failure, .. }) => {
                self.metrics.count("fetches_failed_total", source, 1);
                let cause = match asked {
                    Asked::NoAnswer(no) => Some(no as &(dyn Error + 'static)),
                    _ => None,
                };
                step(&failure.code).warn(&failure.message, cause);
            }
            Some(_) => {}
        }
    }

    /// Tells what became of a message.
    pub(crate) fn tell(
        &self,
        key: Option<&InboxKey>,
        row: Option<&Row>,
        outcome: &Outcome,
        began: Timestamp,
    ) {
        let now = (self.now)();
        let source = key.map(|key| key.source().as_str());
        match outcome {
            // From when it was received or re-armed: how long the world did not know.
            Outcome::Finished { .. } => {
                if let Some(row) = row {
                    let took = now.duration_since(row.armed_at).as_secs_f64().max(0.0) * 1000.0;
                    let unit = Unit::Milliseconds;
                    self.metrics.record("webhooks_processing_latency", unit, source, took);
                }
            }
            Outcome::Retry { .. }
            | Outcome::Missing
            | Outcome::Unreadable(_)
            | Outcome::Unsure(_) => {
                self.metrics.count("webhooks_processing_failed_total", source, 1);
            }
            Outcome::Parked(_) => {
                self.metrics.count("webhooks_processing_failed_total", source, 1);
                self.metrics.count("webhooks_dead_lettered_total", source, 1);
            }
            Outcome::FinishedBefore
            | Outcome::Waits { .. }
            | Outcome::Paused { .. }
            | Outcome::ParkedBefore
            | Outcome::Restless => {}
        }
        let step = Step {
            stage: "process",
            source,
            event_id: key.map(InboxKey::event_id),
            event_type: row.and_then(|row| row.new.event_type.as_deref()),
            attempt: row.map(|row| row.attempts + 1),
            duration: now.duration_since(began).try_into().ok(),
            result: outcome.word(),
        };
        let sentence = outcome.sentence();
        match outcome {
            Outcome::Parked(_) | Outcome::Missing | Outcome::Unreadable(_) => {
                step.error(&sentence, outcome.error());
            }
            Outcome::Retry { .. } | Outcome::Unsure(_) | Outcome::Restless => {
                step.warn(&sentence, outcome.error());
            }
            _ => step.info(&sentence),
        }
    }
}
