//! `StartMessageMoveTask`, `ListMessageMoveTasks` and `CancelMessageMoveTask`.
//!
//! Errors and their words follow answers recorded from SQS, which says `InvalidParameterValue` where its reference would
//! let one expect `UnsupportedOperation`: for a queue that is nobody's dead-letter queue, and for a second move of one.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::{
    Queues, Shared,
    error::QueueError,
    fifo,
    moves::{Move, State, Target, Wanted},
    wire::limited,
};
use crate::services::answer::{fresh_id, text};

/// `MaxNumberOfMessagesPerSecond` is at most so many.
const RATE: u64 = 500;
/// `MaxResults` is at most so many.
const RESULTS: u64 = 10;

impl Shared {
    /// Makes the steps of moves that are due by now. Everybody who looks at a queue comes by here first.
    pub(super) fn advance(&self) -> Result<(), QueueError> {
        let target = |arn: &str| {
            let settings = self.settings(arn).ok()?;
            Some(Target { delay_ms: settings.delay_ms, retention_ms: settings.retention_ms })
        };
        for reached in self.store.advance_moves(&target, self.clock.now_ms())? {
            self.wake(&reached);
        }
        Ok(())
    }

    fn is_dead_letter_queue(&self, arn: &str) -> bool {
        let all = self.settings.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        all.values().any(|queue| queue.redrive.as_ref().is_some_and(|(target, _)| target == arn))
    }
}

impl Queues {
    /// Whether a message move task is not over.
    ///
    /// # Errors
    /// The file.
    pub fn is_moving(&self) -> Result<bool, QueueError> {
        self.shared.advance()?;
        Ok(self.shared.store.next_move_at()?.is_some())
    }

    pub(super) fn start_move(&self, request: &Value) -> Result<Value, QueueError> {
        let source = self.queue(request, "SourceArn")?.ok_or(QueueError::Missing("SourceArn"))?;
        if !self.shared.is_dead_letter_queue(source) {
            return invalid("Source queue must be configured as a Dead Letter Queue.");
        }
        let destination = self.queue(request, "DestinationArn")?;
        if destination == Some(source) {
            return invalid("Source queue arn and destination queue arn cannot be the same.");
        }
        if destination.is_some_and(|destination| fifo::is(destination) != fifo::is(source)) {
            return invalid(
                "The source queue and destination queue must be of the same queue type.",
            );
        }
        let rate = limited(request, "MaxNumberOfMessagesPerSecond", 1, RATE)?;
        let rate = rate.and_then(|rate| i64::try_from(rate).ok());
        // what an earlier move still owes is done first, so that one that is over does not stand in the way
        self.shared.advance()?;
        let id = fresh_id();
        let wanted = Wanted { id: &id, source, destination, rate };
        if !self.shared.store.begin_move(wanted, self.shared.clock.now_ms())? {
            return invalid(
                "There is already a task running. Only one active task is allowed for a source queue arn at a given time.",
            );
        }
        // whoever waits has not reckoned with it
        self.shared.arrivals.wake_all();
        Ok(json!({ "TaskHandle": handle(&id, source) }))
    }

    pub(super) fn list_moves(&self, request: &Value) -> Result<Value, QueueError> {
        let source = self.queue(request, "SourceArn")?.ok_or(QueueError::Missing("SourceArn"))?;
        let most = limited(request, "MaxResults", 1, RESULTS)?.unwrap_or(1);
        self.shared.advance()?;
        let moves = self.shared.store.moves(source, most)?;
        Ok(json!({ "Results": moves.iter().map(listed).collect::<Vec<_>>() }))
    }

    pub(super) fn cancel_move(&self, request: &Value) -> Result<Value, QueueError> {
        let handle = text(request, "TaskHandle").ok_or(QueueError::Missing("TaskHandle"))?;
        let Some((id, source)) = opened(handle) else {
            return invalid("Value for parameter TaskHandle is invalid.");
        };
        if self.shared.settings(&source).is_err() {
            return Err(QueueError::NoSuchResource("SourceArn"));
        }
        self.shared.advance()?;
        let moved = self.shared.store.cancel_move(&id, self.shared.clock.now_ms())?;
        Ok(json!({ "ApproximateNumberOfMessagesMoved": moved }))
    }

    /// The queue whose ARN a member names, if it names one.
    fn queue<'r>(
        &self,
        request: &'r Value,
        member: &'static str,
    ) -> Result<Option<&'r str>, QueueError> {
        let Some(arn) = text(request, member) else { return Ok(None) };
        if !arn.starts_with("arn:aws:sqs:") {
            return Err(QueueError::Invalid(format!("Value for parameter {member} is invalid.")));
        }
        self.shared.settings(arn).map(|_| Some(arn)).map_err(|_| QueueError::NoSuchResource(member))
    }
}

fn invalid<T>(why: &str) -> Result<T, QueueError> {
    Err(QueueError::Invalid(why.to_owned()))
}

/// A move as SQS lists it: its handle only while it runs, and nothing that was not given.
fn listed(one: &Move) -> Value {
    let mut listed = json!({
        "ApproximateNumberOfMessagesMoved": one.moved,
        "ApproximateNumberOfMessagesToMove": one.to_move,
        "SourceArn": one.source,
        "StartedTimestamp": one.started_at,
        "Status": one.state.name(),
    });
    let handle = (one.state == State::Running).then(|| handle(&one.id, &one.source));
    let optional = [
        ("TaskHandle", handle.map(Value::from)),
        ("DestinationArn", one.destination.as_deref().map(Value::from)),
        ("MaxNumberOfMessagesPerSecond", one.rate.map(Value::from)),
        ("FailureReason", one.failure.as_deref().map(Value::from)),
    ];
    if let Some(map) = listed.as_object_mut() {
        for (name, value) in optional {
            if let Some(value) = value {
                map.insert(name.to_owned(), value);
            }
        }
    }
    listed
}

/// The handle of a move: opaque to clients, on AWS as here its id and its queue.
fn handle(id: &str, source: &str) -> String {
    STANDARD.encode(json!({ "taskId": id, "sourceArn": source }).to_string())
}

fn opened(handle: &str) -> Option<(String, String)> {
    let value: Value = serde_json::from_slice(&STANDARD.decode(handle).ok()?).ok()?;
    Some((text(&value, "taskId")?.to_owned(), text(&value, "sourceArn")?.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_comes_back_as_it_was_and_anything_else_is_refused() {
        let opened_again = opened(&handle("id", "arn:aws:sqs:x:0:dead"));
        assert_eq!(opened_again, Some(("id".to_owned(), "arn:aws:sqs:x:0:dead".to_owned())));
        for bad in ["", "!", "e30=", "MQ==", "\u{1f600}"] {
            assert_eq!(opened(bad), None, "{bad}");
        }
    }
}
