//! Bulk work, as callers see it.

use domain::bulk::{Counts, Kind, Selection, State, Survey, Told, Work};
use domain::id::{ReplayId, SourceName};
use jiff::Timestamp;
use serde::Serialize;

/// One work.
#[derive(Debug, Serialize)]
pub struct WorkView {
    id: ReplayId,
    kind: Kind,
    /// The source under which the events are filed: not the one that was asked for, if that one is the same as another.
    source: SourceName,
    state: State,
    select: Selection,
    rate: u32,
    reason: String,
    actor: String,
    began_at: Timestamp,
    advanced_at: Option<Timestamp>,
    ended_at: Option<Timestamp>,
    cancelled_at: Option<Timestamp>,
    cancelled_by: Option<String>,
    counts: Counts,
    /// Named events, each; of a selection those that a person may want to look at. A bounded number.
    told: Vec<Told>,
    next_action: &'static str,
    /// Whether an earlier call with the same idempotency key had started it.
    repeated: bool,
}

impl WorkView {
    pub(super) fn of(work: Work, repeated: bool) -> Self {
        let state = work.state();
        let (cancelled_at, cancelled_by) = work.cancelled.unzip();
        Self {
            id: work.id,
            kind: work.kind,
            source: work.source,
            state,
            select: work.selection,
            rate: work.rate,
            reason: work.reason,
            actor: work.actor,
            began_at: work.began,
            advanced_at: work.advanced_at,
            ended_at: work.ended_at,
            cancelled_at,
            cancelled_by,
            counts: work.counts,
            told: work.told,
            next_action: next_action(state),
            repeated,
        }
    }
}

const fn next_action(state: State) -> &'static str {
    match state {
        State::Running => "the sweeper goes on with it each minute, as fast as its rate allows",
        State::Completed => "none: every event of the selection was looked at",
        State::Cancelled => "none: it was stopped; what it had taken is processed all the same",
    }
}

/// Works, the latest first, without what is told of single events.
#[derive(Debug, Serialize)]
pub struct WorkList {
    replays: Vec<WorkView>,
    /// Whether there are more, begun earlier.
    more: bool,
}

impl WorkList {
    pub(super) fn of(works: Vec<Work>, most: usize) -> Self {
        let more = works.len() > most;
        let short = |work: Work| {
            let selection = Selection { events: Vec::new(), ..work.selection.clone() };
            WorkView::of(Work { told: Vec::new(), selection, ..work }, false)
        };
        Self { replays: works.into_iter().take(most).map(short).collect(), more }
    }
}

/// What a work would do.
#[derive(Debug, Serialize)]
pub struct SurveyView {
    dry_run: bool,
    kind: Kind,
    source: SourceName,
    select: Selection,
    rate: u32,
    #[serde(flatten)]
    survey: Survey,
}

impl SurveyView {
    pub(super) fn of(work: Work, survey: Survey) -> Self {
        let Work { kind, source, selection, rate, .. } = work;
        Self { dry_run: true, kind, source, select: selection, rate, survey }
    }
}
