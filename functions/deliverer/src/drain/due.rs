//! L3: delivering what is due.

use std::collections::{BTreeSet, VecDeque};

use domain::{
    breaker::Ramp,
    delivery::{self, Cause, Delivery, Next, Outcome, State},
    endpoint::{Health, Seen},
    id::EventId,
    inbox::Noted,
    lane::{Found, LaneId, Pointer},
    message::WakeMessage,
    ports::{Deliveries, Lanes, Queue, Registry, StoreError, Stored},
};
use futures_util::{StreamExt as _, stream::FuturesUnordered};

use super::{Drain, PAGE, Pass, Prepared, Repeats, Sender, Stop, first};

/// What has been read and not yet been tried, and what is under way.
#[derive(Default)]
struct Agenda {
    ready: VecDeque<(Pointer, Delivery)>,
    under_way: BTreeSet<EventId>,
    /// Whether the last page was full, so that another may hold something new.
    more: bool,
}

impl<L, R, Q, S> Pass<'_, '_, L, R, Q, S>
where
    L: Lanes + Deliveries,
    R: Registry,
    Q: Queue<WakeMessage>,
    S: Sender,
{
    /// Delivers until nothing is due, the endpoint is to be left alone, or the pass ends. Whatever the reason to stop,
    /// what is under way is brought to its end: a request without a written outcome is sent again.
    pub(super) async fn deliver(
        &mut self,
        target: &S::Target,
        repeats: Repeats,
        width: usize,
        mut health: Health,
    ) -> Stored<Stop> {
        let (drain, lane, owner) = (self.drain, self.hold.lane.clone(), self.hold.owner.clone());
        let turn = Turn { drain, lane: &lane, owner: &owner, target, repeats };
        let mut ramp = Ramp::new(&self.left.breaker, width);
        let mut agenda = Agenda { more: true, ..Agenda::default() };
        let mut running = FuturesUnordered::new();
        let (mut stop, mut trouble) = (None, None);
        loop {
            if stop.is_none() && trouble.is_none() {
                match self.fill(&mut agenda, ramp.width()).await {
                    Ok(reason) => stop = reason,
                    Err(error) => first(&mut trouble, error),
                }
            }
            while stop.is_none() && trouble.is_none() && running.len() < ramp.width() {
                let Some((pointer, delivery)) = agenda.ready.pop_front() else { break };
                agenda.under_way.insert(delivery.event);
                running.push(turn.attempt(pointer, delivery));
            }
            let Some((event, ended)) = running.next().await else { break };
            agenda.under_way.remove(&event);
            self.did = true;
            let learned = match ended {
                Ok(Some(outcome)) => {
                    ramp = ramp.after(&outcome);
                    self.learn(event, &outcome, &mut health).await
                }
                // The endpoint was not asked.
                Ok(None) => Ok(None),
                Err(error) => Err(error),
            };
            match learned {
                Ok(None) => {}
                Ok(Some(look)) => stop = stop.or(Some(look)),
                Err(error) => first(&mut trouble, error),
            }
        }
        match trouble {
            Some(error) => Err(error),
            // Only `fill` ends it without a reason of its own, when it was called off; look again.
            None => Ok(stop.unwrap_or(Stop::Look)),
        }
    }

    /// Reads what is due if there is room for it. `Some`: stop, for that reason.
    async fn fill(&mut self, agenda: &mut Agenda, width: usize) -> Stored<Option<Stop>> {
        loop {
            if let Some(stop) = self.must_stop().await? {
                return Ok(Some(stop));
            }
            let idle = agenda.under_way.is_empty();
            let room = agenda.under_way.len() < width;
            if !agenda.ready.is_empty() || !room || !(idle || agenda.more) {
                return Ok(None);
            }
            let (drain, lane) = (self.drain, &self.hold.lane);
            let limit = PAGE + agenda.under_way.len();
            let page = drain.due(lane, drain.now(), limit).await?;
            agenda.more = page.len() >= limit;
            if page.is_empty() && idle {
                // Nothing is due: L4.
                let next = drain.next_due(lane).await?;
                if next.is_none_or(|next| next > drain.now()) {
                    return Ok(Some(Stop::Sleep(next)));
                }
                continue;
            }
            self.sort_out(agenda, page).await?;
            if !agenda.under_way.is_empty() && agenda.ready.is_empty() {
                return Ok(None);
            }
        }
    }

    /// Reads the deliveries behind pointers. What is due gets ready; the rest is repaired.
    async fn sort_out(&mut self, agenda: &mut Agenda, page: Vec<Pointer>) -> Stored<()> {
        let (drain, lane) = (self.drain, &self.hold.lane);
        // The old pointer of a delivery that is under way still stands.
        let fresh: Vec<Pointer> =
            page.into_iter().filter(|p| !agenda.under_way.contains(&p.event)).collect();
        let events: BTreeSet<EventId> = fresh.iter().map(|pointer| pointer.event).collect();
        if events.is_empty() {
            return Ok(());
        }
        let events: Vec<EventId> = events.into_iter().collect();
        let deliveries = drain.lanes.read(lane, &events).await?;
        for pointer in fresh {
            let delivery = deliveries.iter().find(|delivery| delivery.event == pointer.event);
            match pointer.judge(delivery) {
                Found::Due(delivery) => agenda.ready.push_back((pointer, delivery.clone())),
                found => {
                    drain.put_right(lane, &pointer, found).await?;
                    self.did = true;
                }
            }
        }
        Ok(())
    }

    /// What an outcome means for the lane and the endpoint.
    async fn learn(
        &mut self,
        event: EventId,
        outcome: &Outcome,
        health: &mut Health,
    ) -> Stored<Option<Stop>> {
        let (drain, LaneId { tenant, endpoint, .. }) = (self.drain, &self.hold.lane);
        let now = drain.now();
        self.left.breaker = self.left.breaker.after(&drain.rules.breaker, outcome, now);
        let seen = Seen { event, outcome: Some(outcome), by_hand: false, died: false };
        if let Some(changed) = health.after(&drain.rules.health, seen, now) {
            let _ = drain.lanes.note_health(tenant, *endpoint, &changed).await?;
            *health = changed;
        }
        let leave = health.disabled.is_some() || self.left.breaker.open(now).is_some();
        Ok(leave.then_some(Stop::Look))
    }
}

/// What the attempts of one look have in common.
struct Turn<'t, 'a, L, R, Q, S: Sender> {
    drain: &'t Drain<'a, L, R, Q, S>,
    lane: &'t LaneId,
    owner: &'t str,
    target: &'t S::Target,
    repeats: Repeats,
}

impl<L, R, Q, S> Turn<'_, '_, L, R, Q, S>
where
    L: Lanes + Deliveries,
    R: Registry,
    Q: Queue<WakeMessage>,
    S: Sender,
{
    /// One attempt, and its end: update the delivery, put the next pointer, delete the old one. In this order.
    async fn attempt(
        &self,
        pointer: Pointer,
        before: Delivery,
    ) -> (EventId, Stored<Option<Outcome>>) {
        (before.event, self.try_once(&pointer, before).await)
    }

    async fn try_once(
        &self,
        pointer: &Pointer,
        before: Delivery,
    ) -> Result<Option<Outcome>, StoreError> {
        let (drain, lane) = (self.drain, self.lane);
        if before.begun.is_some() && self.repeats == Repeats::Forbidden {
            // Whoever began it died before it ended, or is slow. Nobody knows what the endpoint has seen.
            let after = before.given_up(Cause::OutcomeUnknown, drain.now());
            let noted = drain.lanes.record(lane, &before, &after).await?;
            tell_unknown(lane, &after, noted);
            self.settle(pointer, &after, noted).await?;
            return Ok(None);
        }
        let (before, attempt) = match drain.sender.prepare(self.target, lane, &before).await? {
            Prepared::Failed(attempt) => (before, attempt),
            Prepared::Ready(request) => {
                let Some(begun) = self.begin(pointer, before).await? else { return Ok(None) };
                let attempt = drain.sender.send(lane, &begun, request).await;
                (begun, attempt)
            }
        };
        let now = drain.now();
        let after = match self.repeats {
            Repeats::Harmless => delivery::after,
            Repeats::Forbidden => delivery::after_once,
        };
        let next = after(
            &drain.rules.schedule,
            attempt.number,
            &attempt.outcome,
            before.deadline,
            now,
            (drain.edge.jitter)(),
        );
        let outcome = attempt.outcome.clone();
        let (number, duration_ms) = (attempt.number, attempt.duration_ms);
        let after = before.ended(attempt, next, now);
        let noted = drain.lanes.record(lane, &before, &after).await;
        tell(lane, &before, number, duration_ms, &outcome, next, noted.as_ref().ok());
        self.settle(pointer, &after, noted?).await?;
        Ok(Some(outcome))
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

    /// Makes the pointers right after what was written.
    async fn settle(&self, pointer: &Pointer, after: &Delivery, noted: Noted) -> Stored<()> {
        let (lanes, lane) = (self.drain.lanes, self.lane);
        // Somebody slower or faster has ended this attempt.
        if noted == Noted::Moved {
            return self.drain.repair(lane, pointer).await;
        }
        let right = Pointer::of(after);
        if after.state == State::Pending && right != *pointer {
            lanes.point(lane, &right).await?;
        }
        if after.state != State::Pending || right != *pointer {
            lanes.unpoint(lane, pointer).await?;
        }
        Ok(())
    }
}

/// The line of a delivery that waits for a person because nobody knows how its attempt ended.
fn tell_unknown(lane: &LaneId, after: &Delivery, noted: Noted) {
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
fn tell(
    lane: &LaneId,
    before: &Delivery,
    attempt: u32,
    duration_ms: u64,
    outcome: &Outcome,
    next: Next,
    noted: Option<&Noted>,
) {
    let cause = match outcome {
        Outcome::Answered { .. } | Outcome::Steered { .. } => None,
        Outcome::Failed { cause } => Some(tracing::field::debug(cause)),
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
        next_at = next_at.map(tracing::field::display),
        noted,
        "attempt"
    );
}
