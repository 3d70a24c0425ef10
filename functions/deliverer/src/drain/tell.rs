//! What is logged and counted of a delivery's way.

use domain::{
    delivery::{Delivery, Next, Outcome, State},
    inbox::Noted,
    lane::LaneId,
};
use runtime::telemetry::Metrics;

/// Counts a delivery that has been given up. One of which nobody knows whether it arrived is counted apart: a person has
/// to ask the other side before anything else.
pub(super) fn count(metrics: &Metrics, after: &Delivery) {
    if after.is_unknown() {
        metrics.count("deliveries_unknown_total", None, 1);
    } else if after.state == State::Dead {
        metrics.count("deliveries_dead_total", None, 1);
    }
}

/// The line of a delivery that ends without an attempt.
pub(super) fn ended(lane: &LaneId, before: &Delivery, after: &Delivery) {
    tracing::info!(
        stage = "deliver",
        tenant = %lane.tenant,
        endpoint = %lane.endpoint,
        lane = lane.lane,
        event_id = %before.event,
        event_type = before.event_type,
        attempt = before.attempts,
        result = ?after.state,
        "a delivery ends without an attempt"
    );
}

/// The line of a delivery that waits for a person because nobody knows how its attempt ended.
pub(super) fn unknown(lane: &LaneId, after: &Delivery, noted: Noted) {
    tracing::warn!(
        stage = "deliver",
        tenant = %lane.tenant,
        endpoint = %lane.endpoint,
        lane = lane.lane,
        event_id = %after.event,
        event_type = after.event_type,
        attempt = after.attempts,
        result = "unknown",
        noted = noted == Noted::Yes,
        "an attempt was begun and did not end; its endpoint does not recognise repetitions"
    );
}

/// The wide line of an attempt.
pub(super) fn attempt(
    lane: &LaneId,
    before: &Delivery,
    (attempt, duration_ms): (u32, u64),
    outcome: &Outcome,
    next: Next,
    noted: Option<&Noted>,
) {
    let (cause, steer) = match outcome {
        Outcome::Answered { .. } => (None, None),
        Outcome::Steered { steer, .. } => (None, Some(tracing::field::debug(steer))),
        Outcome::Failed { cause } => (Some(tracing::field::debug(cause)), None),
    };
    let (result, next_at) = match next {
        Next::Succeeded => ("succeeded", None),
        Next::RetryAt(at) => ("retry", Some(at)),
        Next::Dead => ("dead", None),
        Next::Unknown => ("unknown", None),
        Next::Gone(at) => ("gone", Some(at)),
    };
    let noted = match noted {
        Some(Noted::Yes) => "yes",
        Some(Noted::Moved) => "moved",
        None => "unknown",
    };
    tracing::info!(
        stage = "deliver",
        tenant = %lane.tenant,
        endpoint = %lane.endpoint,
        lane = lane.lane,
        event_id = %before.event,
        event_type = before.event_type,
        attempt,
        duration_ms,
        result,
        status = outcome.status(),
        cause,
        steer,
        next_at = next_at.map(tracing::field::display),
        noted,
        "attempt"
    );
}
