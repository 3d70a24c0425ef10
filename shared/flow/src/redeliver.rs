//! A redelivery of many, advanced by one page: `api` does the first ones at once, the sweeper the others each minute.
//!
//! The order makes a death anywhere harmless. A delivery is changed only as it was read, and is marked with the work;
//! delivery, pointer and lane are written together, so that its lane remembers it if no message is sent; the work's own
//! row comes last, under the version that was read. Who finds a page half done, or done by somebody beside him, finds the
//! marks, and counts what is marked as taken.

mod look;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use domain::{
    bulk::PAGE,
    delivery::{Delivery, NewDelivery},
    id::{EventId, RedeliveryId},
    lane::LaneId,
    message::WakeMessage,
    outbox::OutboxEvent,
    ports::{
        Again, Bodies, Deliveries, Events, Fanout, Outbox, Queue, Redeliver, Redeliveries,
        Registry, StoreError, Stored,
    },
    redelivery::{Done, Leg, Outcome, State, Survey, Told, Work, due_again, made_now},
};
use futures_util::{StreamExt as _, stream};
use jiff::Timestamp;

use self::look::{Looked, Seen};
use crate::paged::{self, Paged, Progress};

/// Deliveries under way at once.
const WIDTH: usize = 16;

/// How much longer than the last try an event is kept.
const MARGIN: Duration = Duration::from_hours(24);

/// What advances redeliveries.
#[derive(Debug)]
pub struct Redeliverer<'a, D, O, R, B, Q> {
    /// Deliveries.
    pub deliveries: &'a D,
    /// Their events.
    pub outbox: &'a O,
    /// Endpoints, and the rows of the work.
    pub registry: &'a R,
    /// Large payloads, for endpoints that choose by what is in them.
    pub bodies: &'a B,
    /// The deliverer's queue.
    pub wakes: &'a Q,
    /// How long a delivery is tried.
    pub tried_for: Duration,
}

/// What became of one advance.
pub type Step = paged::Step<Work>;

/// Messages to send, by the second at which they go.
type Messages = BTreeMap<Duration, BTreeSet<LaneId>>;

impl<D, O, R, B, Q> Paged for Redeliverer<'_, D, O, R, B, Q>
where
    D: Deliveries + Fanout + Redeliver,
    O: Outbox + Events,
    R: Registry + Redeliveries,
    B: Bodies,
    Q: Queue<WakeMessage>,
{
    type Id = RedeliveryId;
    type Work = Work;

    async fn open(&self) -> Stored<Vec<RedeliveryId>> {
        self.registry.open_redeliveries().await
    }

    async fn read(&self, id: RedeliveryId) -> Stored<Option<Work>> {
        self.registry.redelivery(id).await
    }

    async fn close(&self, id: RedeliveryId) -> Stored<()> {
        self.registry.close_redelivery(id).await
    }

    async fn advance(&self, work: &Work, now: Timestamp) -> Stored<Step> {
        self.step(work, now).await
    }

    fn progress(work: &Work) -> Progress {
        Progress { looked_at: work.counts.looked_at, taken: work.counts.redelivered }
    }
}

impl<D, O, R, B, Q> Redeliverer<'_, D, O, R, B, Q>
where
    D: Deliveries + Fanout + Redeliver,
    O: Outbox + Events,
    R: Registry + Redeliveries,
    B: Bodies,
    Q: Queue<WakeMessage>,
{
    /// Advances a work by one page.
    ///
    /// # Errors
    /// The store could not do it. The page is done again by the next advance.
    pub async fn step(&self, work: &Work, now: Timestamp) -> Stored<Step> {
        match work.state() {
            State::Running => {}
            State::Paused => return Ok(Step::Waits),
            State::Completed | State::Cancelled => {
                self.registry.close_redelivery(work.id).await?;
                return Ok(Step::Over);
            }
        }
        let most = work.pace().allowance(now);
        if most == 0 {
            return Ok(Step::Waits);
        }
        let (page, leg) = self.look(work, most).await?;
        let (told, taken) = self.carry_out(work, page, now).await?;
        let after = work.after(&Done { told, taken, leg }, now);
        let Some(after) = self.registry.advance_redelivery(&after).await? else {
            return Ok(Step::Lost);
        };
        if after.is_over() {
            self.registry.close_redelivery(after.id).await?;
        }
        Ok(Step::Went(Box::new(after)))
    }

    /// Looks at no more than `most` deliveries, or until it `is_late`, and changes nothing.
    ///
    /// # Errors
    /// The store could not be read.
    pub async fn survey(
        &self,
        mut work: Work,
        most: u64,
        is_late: impl Fn() -> bool,
    ) -> Stored<Survey> {
        let mut survey = Survey::default();
        while work.leg != Leg::End {
            if survey.counts.looked_at >= most || is_late() {
                survey.more = true;
                break;
            }
            let (page, leg) = self.look(&work, PAGE).await?;
            work.leg = leg;
            for Looked { event, endpoint, seen } in page {
                let outcome = match &seen {
                    Seen::Take { delivery, .. } => {
                        let stands = stands(delivery);
                        survey.take(endpoint, event, &delivery.event_type, stands);
                        Outcome::Redelivered
                    }
                    Seen::Make { event: made, .. } => {
                        survey.take(endpoint, event, &made.event_type, "missing");
                        Outcome::Redelivered
                    }
                    Seen::Leave(outcome) => {
                        survey.counts.add(*outcome);
                        *outcome
                    }
                };
                if !work.selection.events.is_empty() {
                    survey.told.push(Told { event, endpoint, outcome });
                }
            }
        }
        Ok(survey)
    }

    /// Makes due again what is to be taken, then wakes its lanes. What became of each delivery, and how many were taken.
    async fn carry_out(
        &self,
        work: &Work,
        page: Vec<Looked>,
        now: Timestamp,
    ) -> Stored<(Vec<Told>, u32)> {
        let pace = work.pace();
        let mut place = 0;
        let (mut told, mut queues) = (Vec::new(), BTreeMap::<LaneId, Vec<_>>::new());
        for (at, Looked { event, endpoint, seen }) in page.into_iter().enumerate() {
            let entry = Told { event, endpoint, outcome: Outcome::Failed };
            let lane = match &seen {
                Seen::Leave(outcome) => {
                    told.push((at, Told { outcome: *outcome, ..entry }));
                    continue;
                }
                Seen::Take { lane, .. } | Seen::Make { lane, .. } => lane.clone(),
            };
            let delay = pace.delay(now, place);
            place += 1;
            queues.entry(lane).or_default().push((at, entry, seen, delay));
        }
        // Within a lane one after the other: each take writes the lane's own item, and of transactions that write one
        // item at once the store lets one through and cancels the others.
        let mut ends = stream::iter(queues.into_values())
            .map(async |queue| self.take_each(work, queue, now).await)
            .buffer_unordered(WIDTH);
        let (mut messages, mut taken, mut broken) = (Messages::new(), 0, None);
        while let Some(ended) = ends.next().await {
            for (at, entry, delay, outcome) in ended {
                let outcome = match outcome {
                    Ok(Taken::Now(lane)) => {
                        taken += 1;
                        messages.entry(delay).or_default().insert(lane);
                        Outcome::Redelivered
                    }
                    Ok(Taken::Not(outcome)) => outcome,
                    Err(error) if error.is_transient() => {
                        broken.get_or_insert(error);
                        continue;
                    }
                    // One delivery that nobody can write must not hold the others.
                    Err(error) => {
                        let (id, event_id) = (work.id, entry.event);
                        let error = &error as &dyn std::error::Error;
                        tracing::error!(stage = "redeliver", %id, %event_id, error, result = "failed", "it cannot be taken");
                        Outcome::Failed
                    }
                };
                told.push((at, Told { outcome, ..entry }));
            }
        }
        told.sort_by_key(|(at, _)| *at);
        let told = told.into_iter().map(|(_, told)| told).collect();
        // Also if some could not be taken: these are due now.
        self.wake(work, messages).await;
        broken.map_or(Ok((told, taken)), Err)
    }

    /// Takes what one lane has of a page, and stops where the store is busy or down.
    async fn take_each(&self, work: &Work, queue: Vec<Planned>, now: Timestamp) -> Vec<TriedOne> {
        let mut ended = Vec::with_capacity(queue.len());
        for (at, entry, seen, delay) in queue {
            let taken = self.take(work, entry.event, seen, (now, delay)).await;
            let is_down = taken.as_ref().is_err_and(StoreError::is_transient);
            ended.push((at, entry, delay, taken));
            if is_down {
                break;
            }
        }
        ended
    }

    async fn take(
        &self,
        work: &Work,
        event: EventId,
        seen: Seen,
        (now, delay): (Timestamp, Duration),
    ) -> Stored<Taken> {
        let due_at = later(now, delay);
        let times = (now, due_at, self.tried_for);
        let (lane, after) = match &seen {
            Seen::Leave(outcome) => return Ok(Taken::Not(*outcome)),
            Seen::Take { lane, delivery } => (lane, due_again(delivery, work.id, false, times)),
            Seen::Make { lane, event } => {
                (lane, made_now(event.id, event.event_type.clone(), work.id, times))
            }
        };
        // It must outlive the tries. What is past its retention has nothing to send.
        let until = later(after.deadline, MARGIN);
        if self.outbox.keep(&lane.tenant, event, until, now).await?.is_none() {
            return Ok(Taken::Not(Outcome::Expired));
        }
        let Seen::Take { delivery: before, .. } = &seen else {
            self.outbox.also_to(&lane.tenant, event, lane.endpoint).await?;
            // Put again it changes nothing, and the lane hears of it once more.
            let new = NewDelivery { lane: lane.clone(), delivery: after };
            self.deliveries.put(&new).await?;
            self.deliveries.wake(lane, now).await?;
            return Ok(Taken::Now(new.lane));
        };
        Ok(match self.deliveries.redeliver_as(lane, before, &after, now).await? {
            Again::Yes => Taken::Now(lane.clone()),
            Again::Before => Taken::Not(Outcome::Redelivered),
            Again::Moved => Taken::Not(Outcome::Moved),
        })
    }

    async fn wake(&self, work: &Work, messages: Messages) {
        for (delay, lanes) in messages {
            let messages: Vec<_> = lanes.into_iter().map(WakeMessage).collect();
            let unsent = self.wakes.send(&messages, delay).await.len();
            if unsent > 0 {
                let id = work.id;
                tracing::warn!(stage = "redeliver", %id, unsent, "the sweeper wakes their lanes");
            }
        }
    }
}

/// A delivery that is to be taken: its place on the page, and how long its message waits.
type Planned = (usize, Told, Seen, Duration);

/// What became of it.
type TriedOne = (usize, Told, Duration, Stored<Taken>);

/// What became of a delivery that was to be taken.
enum Taken {
    /// It is due again, by us.
    Now(LaneId),
    /// Something else.
    Not(Outcome),
}

const fn stands(delivery: &Delivery) -> &'static str {
    use domain::delivery::State::{Cancelled, Dead, Pending, Succeeded};
    match delivery.state {
        Pending => "pending",
        Succeeded => "succeeded",
        Dead => "dead",
        Cancelled => "cancelled",
    }
}

fn later(from: Timestamp, by: Duration) -> Timestamp {
    from.saturating_add(by).unwrap_or(Timestamp::MAX)
}

/// An event that an endpoint lacks.
type Lacking = Box<OutboxEvent>;
