//! From one outgoing event to one delivery for each endpoint that wants it.
//!
//! The relay runs this on what the stream brings, and the sweeper on what has stayed NEW: the same steps, in this order.
//! Deliveries and their pointers; then one wake for each lane touched; then one message for each lane; then the mark.
//! Each step may be the last, and all of them may be done again: until the mark, the event is NEW, and the sweeper finds
//! it. A delivery that was put before its lane was woken is put again and changes nothing.
//!
//! An event for more than [`STEP`] endpoints goes in steps of so many, in the order of the endpoints' ids, and its row
//! says after each step how far it is: whoever goes on, goes on from there. Who wants an event does not depend on when
//! that is asked (see [`domain::endpoint::Facts`]), so that all who go on agree.
//!
//! An event that fails on its own stays NEW and is [`Fate::Left`] to the sweeper. Only a store that is down is worth a
//! retry of the whole batch: one tenant's trouble must not hold a shard of the stream for all.

mod course;
mod endpoints;
mod matching;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use domain::{
    delivery::NewDelivery,
    id::EndpointId,
    lane::LaneId,
    message::WakeMessage,
    outbox::{OutboxEvent, Relayed},
    ports::{Bodies, Fanout, Outbox, Queue, Registry, StoreError, Stored},
};
use futures_util::{StreamExt as _, stream};
use jiff::Timestamp;

use self::course::Course;
pub use self::endpoints::EndpointCache;
use crate::document::Unread;

/// Calls of the store that one fan-out has under way at once: enough to hide the latency of a batch of 100 events.
const WIDTH: usize = 16;

/// Deliveries that are put before the clock is looked at, and before an event with more of them is written down as begun:
/// about half a second's work, which is what a death costs at most.
pub const STEP: usize = 500;

/// What a fan-out needs.
#[derive(Clone, Copy, Debug)]
pub struct FanOut<'a, F, O, R, Q, B, N> {
    /// Where deliveries go.
    pub lanes: &'a F,
    /// Where events come from.
    pub outbox: &'a O,
    /// Where endpoints stand.
    pub registry: &'a R,
    /// The wake queue.
    pub queue: &'a Q,
    /// Where large payloads are, for filters to read.
    pub bodies: &'a B,
    /// Endpoints as they were read before.
    pub cache: &'a EndpointCache,
    /// How long a delivery is tried, from its event on.
    pub deadline: Duration,
    /// How many deliveries are a step: [`STEP`].
    pub step: usize,
    /// The edge's clock.
    pub now: N,
}

/// What became of an event.
#[derive(Clone, Debug)]
pub enum Fate {
    /// It is relayed.
    Relayed {
        /// To these endpoints. None: nobody wanted it.
        endpoints: Vec<EndpointId>,
        /// Why no filter let it pass, if there were filters and they could not read its payload.
        unread: Option<Unread>,
    },
    /// It failed on its own and stays NEW: the sweeper owns it.
    Left(Arc<StoreError>),
    /// The time was up before it was done. Run again, it goes on from where it is.
    Unfinished,
    /// The store is down: try again.
    Down(Arc<StoreError>),
}

impl Fate {
    fn failed(error: StoreError) -> Self {
        let is_down = matches!(error, StoreError::Unavailable(_));
        let error = Arc::new(error);
        if is_down { Self::Down(error) } else { Self::Left(error) }
    }

    /// Of two fates the worse one stands: what has failed stays failed, and a store that is down is worth a retry.
    const fn badness(&self) -> u8 {
        match self {
            Self::Relayed { .. } => 0,
            Self::Left(_) => 1,
            Self::Unfinished => 2,
            Self::Down(_) => 3,
        }
    }
}

impl<F, O, R, Q, B, N> FanOut<'_, F, O, R, Q, B, N>
where
    F: Fanout,
    O: Outbox,
    R: Registry,
    Q: Queue<WakeMessage>,
    B: Bodies,
    N: Fn() -> Timestamp + Sync,
{
    /// Relays events until the time is up; the first of them is always begun. One fate for each, in their order.
    pub async fn run(&self, events: &[OutboxEvent], until: Timestamp) -> Vec<Fate> {
        let endpoints = self.endpoints_of(events).await;
        let mut courses = self.courses(events, &endpoints).await;
        let mut rest = courses.as_mut_slice();
        let mut is_late = false;
        while !rest.is_empty() {
            let count = course::wave(rest, self.step);
            let (wave, later) = std::mem::take(&mut rest).split_at_mut(count);
            rest = later;
            match wave {
                late if is_late => late.iter_mut().for_each(|course| course.meet(Fate::Unfinished)),
                [large] if large.left() > self.step => self.in_steps(large, until).await,
                small => self.at_once(small).await,
            }
            is_late = (self.now)() >= until;
        }
        courses.into_iter().map(Course::fate).collect()
    }

    /// Events with few endpoints, all together: a lane that several of them touch is woken once.
    async fn at_once(&self, courses: &mut [Course<'_>]) {
        let now = (self.now)();
        let puts: Vec<(usize, NewDelivery)> = courses
            .iter()
            .enumerate()
            .flat_map(|(index, course)| {
                let new = course.deliveries(usize::MAX, self.deadline, now);
                new.map(move |new| (index, new))
            })
            .collect();
        for (index, fate) in self.deliver(puts, now).await {
            if let Some(course) = courses.get_mut(index) {
                course.meet(fate);
            }
        }
        courses.iter_mut().for_each(|course| course.advance(usize::MAX));
        let marks: Vec<Option<&Course<'_>>> =
            courses.iter().map(|course| course.is_well().then_some(course)).collect();
        let ended: Vec<Stored<()>> = stream::iter(marks)
            .map(|course| async move {
                match course {
                    Some(course) => self.mark(course, now).await,
                    None => Ok(()),
                }
            })
            .buffered(WIDTH)
            .collect()
            .await;
        for (course, mark) in courses.iter_mut().zip(ended) {
            course.meet_error(mark);
        }
    }

    /// An event with many endpoints, from where it is.
    async fn in_steps(&self, course: &mut Course<'_>, until: Timestamp) {
        let OutboxEvent { tenant, id, .. } = course.event;
        match self.outbox.reached(tenant, *id).await {
            Ok(reached) => course.resume(reached),
            Err(error) => return course.meet(Fate::failed(error)),
        }
        loop {
            let now = (self.now)();
            let puts = course.deliveries(self.step, self.deadline, now).map(|new| (0, new));
            for (_, fate) in self.deliver(puts.collect(), now).await {
                course.meet(fate);
            }
            course.advance(self.step);
            // One lane that fails holds up no other, but the place on the row: the steps from here on are done again.
            let is_last = course.left() == 0;
            if course.is_well() {
                let kept = if is_last {
                    self.mark(course, now).await
                } else {
                    self.outbox.checkpoint(tenant, *id, course.done()).await
                };
                course.meet_error(kept);
            }
            if is_last || course.is_down() {
                return;
            }
            if (self.now)() >= until {
                return course.meet(Fate::Unfinished);
            }
        }
    }

    /// Puts deliveries with their pointers, then wakes each lane once, and sends one message for each that was woken.
    /// Gives what failed, with the number that stood beside the delivery.
    ///
    /// Lanes of events that failed elsewhere are woken too: what is there may as well go.
    async fn deliver(&self, puts: Vec<(usize, NewDelivery)>, now: Timestamp) -> Vec<(usize, Fate)> {
        let put = |(index, new): (usize, NewDelivery)| async move {
            let put = self.lanes.put(&new).await;
            (index, new.lane, put)
        };
        let put: Vec<_> = stream::iter(puts).map(put).buffer_unordered(WIDTH).collect().await;
        let (mut lanes, mut failed) = (BTreeMap::<LaneId, Vec<usize>>::new(), Vec::new());
        for (index, lane, put) in put {
            match put {
                Ok(()) => lanes.entry(lane).or_default().push(index),
                Err(error) => failed.push((index, Fate::failed(error))),
            }
        }
        let wake = |(lane, indexes): (LaneId, Vec<usize>)| async move {
            let woken = self.lanes.wake(&lane, now).await;
            (lane, indexes, woken)
        };
        let woken: Vec<_> = stream::iter(lanes).map(wake).buffer_unordered(WIDTH).collect().await;
        let mut messages = Vec::new();
        for (lane, indexes, woken) in woken {
            match woken.map_err(Fate::failed) {
                Ok(()) => messages.push(WakeMessage(lane)),
                Err(fate) => {
                    failed.extend(indexes.into_iter().map(|index| (index, fate.clone())));
                }
            }
        }
        self.send(&messages).await;
        failed
    }

    async fn send(&self, messages: &[WakeMessage]) {
        if messages.is_empty() {
            return;
        }
        let lost = self.queue.send(messages, Duration::ZERO).await;
        if !lost.is_empty() {
            // No failure of an event: `wake_at` stands in the lane, and the sweeper reads it.
            tracing::warn!(lost = lost.len(), sent = messages.len(), "wake messages did not go");
        }
    }

    async fn mark(&self, course: &Course<'_>, now: Timestamp) -> Stored<()> {
        let relayed = Relayed { at: now, endpoints: course.done().to_vec() };
        self.outbox.mark(&course.event.tenant, course.event.id, &relayed).await
    }
}

#[cfg(test)]
mod tests;
