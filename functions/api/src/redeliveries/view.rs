//! Redeliveries, as callers see them.

use domain::{
    id::{EndpointId, RedeliveryId, TenantId},
    redelivery::{Counts, Selection, State, Survey, Told, Work},
};
use jiff::Timestamp;
use serde::Serialize;

/// One redelivery.
#[derive(Debug, Serialize)]
pub struct WorkView {
    id: RedeliveryId,
    tenant: TenantId,
    /// The endpoint that was named; left out: all the tenant had.
    #[serde(skip_serializing_if = "Option::is_none")]
    endpoint: Option<EndpointId>,
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
    paused_at: Option<Timestamp>,
    paused_by: Option<String>,
    counts: Counts,
    /// Of named events each; of a selection those that a person may want to look at. A bounded number.
    told: Vec<Told>,
    next_action: &'static str,
    /// Whether an earlier call had done it.
    repeated: bool,
}

fn named(work: &Work) -> Option<EndpointId> {
    work.endpoints.first().copied().filter(|_| work.is_named)
}

impl WorkView {
    pub(super) fn of(work: Work, repeated: bool) -> Self {
        let (state, endpoint) = (work.state(), named(&work));
        let (cancelled_at, cancelled_by) = work.cancelled.unzip();
        let (paused_at, paused_by) = work.paused.unzip();
        Self {
            id: work.id,
            tenant: work.tenant,
            endpoint,
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
            paused_at,
            paused_by,
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
        State::Paused => "a person lets it go on, or cancels it",
        State::Completed => "none: every delivery of the selection was looked at",
        State::Cancelled => "none: it was stopped; what it had taken is sent all the same",
    }
}

/// Redeliveries, the latest first, without what is told of single deliveries.
#[derive(Debug, Serialize)]
pub struct WorkList {
    redeliveries: Vec<WorkView>,
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
        Self { redeliveries: works.into_iter().take(most).map(short).collect(), more }
    }
}

/// What a redelivery would do.
#[derive(Debug, Serialize)]
pub struct SurveyView {
    dry_run: bool,
    tenant: TenantId,
    #[serde(skip_serializing_if = "Option::is_none")]
    endpoint: Option<EndpointId>,
    select: Selection,
    rate: u32,
    #[serde(flatten)]
    survey: Survey,
}

impl SurveyView {
    pub(super) fn of(work: Work, survey: Survey) -> Self {
        let endpoint = named(&work);
        let Work { tenant, selection, rate, .. } = work;
        Self { dry_run: true, tenant, endpoint, select: selection, rate, survey }
    }
}
