//! One attempt of a delivery, and its end.

use domain::{
    delivery::{self, Attempt, Cause, Delivery, Outcome, State},
    endpoint::{Endpoint, Seen},
    id::EventId,
    inbox::Noted,
    lane::{LaneId, Pointer},
    message::WakeMessage,
    ports::{Deliveries, Lanes, Notices, Queue, Registry, StoreError, Stored},
};

use super::{Drain, Prepared, Repeats, Sender, tell};

/// What the attempts of one look have in common.
pub(super) struct Turn<'t, 'a, L, R, Q, S: Sender, N> {
    pub(super) drain: &'t Drain<'a, L, R, Q, S, N>,
    pub(super) lane: &'t LaneId,
    pub(super) owner: &'t str,
    pub(super) endpoint: &'t Endpoint,
    pub(super) target: &'t S::Target,
    pub(super) repeats: Repeats,
}

/// What became of a delivery's turn.
#[derive(Debug)]
pub(super) struct Tried {
    pub(super) event: EventId,
    /// How its attempt ended; `None`: the endpoint was not asked.
    pub(super) outcome: Option<Outcome>,
    by_hand: bool,
    died: bool,
}

impl Tried {
    fn not(before: &Delivery) -> Self {
        let by_hand = before.asked_at.is_some();
        Self { event: before.event, outcome: None, by_hand, died: false }
    }

    /// As the endpoint's health sees it.
    pub(super) const fn seen(&self) -> Seen<'_> {
        let Self { event, outcome, by_hand, died } = self;
        Seen { event: *event, outcome: outcome.as_ref(), by_hand: *by_hand, died: *died }
    }
}

impl<L, R, Q, S, N> Turn<'_, '_, L, R, Q, S, N>
where
    L: Lanes + Deliveries,
    R: Registry,
    Q: Queue<WakeMessage>,
    S: Sender,
    N: Notices,
{
    /// One attempt, and its end: update the delivery, put the next pointer, delete the old one. In this order.
    pub(super) async fn attempt(
        &self,
        pointer: Pointer,
        before: Delivery,
    ) -> (EventId, Stored<Tried>) {
        (before.event, self.try_once(&pointer, before).await)
    }

    async fn try_once(&self, pointer: &Pointer, before: Delivery) -> Result<Tried, StoreError> {
        if before.begun.is_some() && self.repeats == Repeats::Forbidden {
            return Box::pin(self.park(pointer, &before)).await;
        }
        let not_tried = Tried::not(&before);
        // Each part on the heap, and gone when the next begins: while a receiver thinks, an attempt holds little more than its
        // connection.
        match Box::pin(self.make(pointer, before)).await? {
            Some((before, attempt)) => Box::pin(self.end(pointer, before, attempt)).await,
            None => Ok(not_tried),
        }
    }

    /// The attempt itself, with the delivery as it stands then. `None`: somebody else has begun or ended it.
    async fn make(
        &self,
        pointer: &Pointer,
        before: Delivery,
    ) -> Stored<Option<(Delivery, Attempt)>> {
        let (sender, lane) = (self.drain.sender, self.lane);
        let request = match Box::pin(sender.prepare(self.target, lane, &before)).await? {
            Prepared::Failed(attempt) => return Ok(Some((before, attempt))),
            Prepared::Ready(request) => request,
        };
        let Some(begun) = Box::pin(self.begin(pointer, before)).await? else { return Ok(None) };
        let attempt = sender.send(lane, &begun, request).await;
        Ok(Some((begun, attempt)))
    }

    /// What the end of an attempt means for its delivery.
    async fn end(&self, pointer: &Pointer, before: Delivery, attempt: Attempt) -> Stored<Tried> {
        let (drain, lane) = (self.drain, self.lane);
        let now = drain.now();
        let after = match self.repeats {
            Repeats::Harmless => delivery::after,
            Repeats::Forbidden => delivery::after_once,
        };
        let next = after(
            &drain.rules.schedule,
            attempt.number,
            &attempt.outcome,
            self.endpoint.deadline_of(&before, drain.rules.tried_for),
            now,
            (drain.edge.jitter)(),
        );
        let outcome = attempt.outcome.clone();
        let how = (attempt.number, attempt.duration_ms);
        let after = before.ended(attempt, next, now);
        let noted = drain.lanes.record(lane, &before, &after).await;
        tell::attempt(lane, &before, how, &outcome, next, noted.as_ref().ok());
        let died = self.settle(pointer, &after, noted?).await?;
        Ok(Tried { outcome: Some(outcome), died, ..Tried::not(&before) })
    }

    /// Whoever began it died before it ended, or is slow. Nobody knows what the endpoint has seen.
    async fn park(&self, pointer: &Pointer, before: &Delivery) -> Stored<Tried> {
        let (drain, lane) = (self.drain, self.lane);
        let after = before.given_up(Cause::OutcomeUnknown, drain.now());
        let noted = drain.lanes.record(lane, before, &after).await?;
        tell::unknown(lane, &after, noted);
        let died = self.settle(pointer, &after, noted).await?;
        Ok(Tried { died, ..Tried::not(before) })
    }

    /// Writes down that the attempt begins, where nobody may make it twice. `None`: somebody else has begun or ended it.
    async fn begin(&self, pointer: &Pointer, before: Delivery) -> Stored<Option<Delivery>> {
        if self.repeats == Repeats::Harmless {
            return Ok(Some(before));
        }
        let (lanes, lane) = (self.drain.lanes, self.lane);
        let begun = before.begins(self.owner, self.drain.now());
        match lanes.record(lane, &before, &begun).await {
            Ok(Noted::Yes) => return Ok(Some(begun)),
            Ok(Noted::Moved) => {}
            Err(error) => {
                // It may stand. Nothing was sent, so nobody shall have to ask: as well as can be.
                let _ = lanes.record(lane, &begun, &before).await;
                return Err(error);
            }
        }
        // It may be our own mark, whose answer was lost on the way.
        let found = lanes.read(lane, &[before.event]).await?;
        let is_ours = |found: &Delivery| {
            (found.state, found.attempts) == (State::Pending, begun.attempts)
                && found.begun == begun.begun
        };
        if found.first().is_some_and(is_ours) {
            return Ok(Some(begun));
        }
        self.drain.repair(lane, pointer).await?;
        Ok(None)
    }

    /// Makes the pointers right after what was written. Whether the delivery was given up, by us.
    async fn settle(&self, pointer: &Pointer, after: &Delivery, noted: Noted) -> Stored<bool> {
        let (lanes, lane) = (self.drain.lanes, self.lane);
        // Somebody slower or faster has ended this attempt.
        if noted == Noted::Moved {
            self.drain.repair(lane, pointer).await?;
            return Ok(false);
        }
        tell::count(self.drain.metrics, after);
        let right = Pointer::of(after);
        if after.state == State::Pending && right != *pointer {
            lanes.point(lane, &right).await?;
        }
        if after.state != State::Pending || right != *pointer {
            lanes.unpoint(lane, pointer).await?;
        }
        Ok(after.state == State::Dead)
    }
}
