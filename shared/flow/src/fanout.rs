//! From one outgoing event to one delivery for each endpoint that wants it.
//!
//! The relay runs this on what the stream brings, and the sweeper on what has stayed NEW: the same steps, in this order.
//! Deliveries and their pointers; then one wake for each lane touched; then one message for each lane; then the mark.
//! Each step may be the last, and all of them may be done again: until the mark, the event is NEW, and the sweeper finds
//! it. A delivery that was put before its lane was woken is put again and changes nothing.
//!
//! An event that fails on its own stays NEW and is [`Fate::Left`] to the sweeper. Only a store that is down is worth a
//! retry of the whole batch: one tenant's trouble must not hold a shard of the stream for all.

mod endpoints;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use domain::{
    delivery::{Delivery, NewDelivery},
    endpoint::{Endpoint, Facts},
    id::{EndpointId, TenantId},
    lane::LaneId,
    message::WakeMessage,
    outbox::{OutboxEvent, Relayed},
    ports::{Fanout, Outbox, Queue, Registry, StoreError, Stored},
};
use futures_util::{StreamExt as _, stream};
use jiff::Timestamp;

pub use self::endpoints::EndpointCache;

/// Calls of the store that one fan-out has under way at once: enough to hide the latency of a batch of 100 events.
const WIDTH: usize = 16;

/// What a fan-out needs.
#[derive(Clone, Copy, Debug)]
pub struct FanOut<'a, F, O, R, Q> {
    /// Where deliveries go.
    pub lanes: &'a F,
    /// Where events come from.
    pub outbox: &'a O,
    /// Where endpoints stand.
    pub registry: &'a R,
    /// The wake queue.
    pub queue: &'a Q,
    /// Endpoints as they were read before.
    pub cache: &'a EndpointCache,
    /// How long a delivery is tried, from its event on.
    pub deadline: Duration,
}

/// What became of an event.
#[derive(Clone, Debug)]
pub enum Fate {
    /// It is relayed, to these endpoints. None: nobody wanted it.
    Relayed(Vec<EndpointId>),
    /// It failed on its own and stays NEW: the sweeper owns it.
    Left(Arc<StoreError>),
    /// The store is down: try again.
    Down(Arc<StoreError>),
}

impl Fate {
    fn failed(error: StoreError) -> Self {
        let is_down = matches!(error, StoreError::Unavailable(_));
        let error = Arc::new(error);
        if is_down { Self::Down(error) } else { Self::Left(error) }
    }

    /// The worse of two: what has failed stays failed, and a store that is down is worth a retry.
    fn and(self, other: Self) -> Self {
        match (&self, &other) {
            (Self::Down(_), _) | (Self::Left(_), Self::Relayed(_)) => self,
            (_, Self::Down(_)) | (Self::Relayed(_), Self::Left(_)) => other,
            (Self::Left(_) | Self::Relayed(_), _) => self,
        }
    }
}

/// An event on its way through the steps.
struct Course<'e> {
    event: &'e OutboxEvent,
    deliveries: Vec<NewDelivery>,
    fate: Fate,
}

impl<F, O, R, Q> FanOut<'_, F, O, R, Q>
where
    F: Fanout,
    O: Outbox,
    R: Registry,
    Q: Queue<WakeMessage>,
{
    /// Relays events. One fate for each, in their order.
    pub async fn run(&self, events: &[OutboxEvent], now: Timestamp) -> Vec<Fate> {
        let mut courses = self.match_endpoints(events, now).await;
        let lanes = self.put_deliveries(&mut courses).await;
        self.wake_lanes(lanes, &mut courses, now).await;
        self.mark(&mut courses, now).await;
        courses.into_iter().map(|course| course.fate).collect()
    }

    /// Finds who wants each event, with one strong read of the epoch for each tenant.
    async fn match_endpoints<'e>(
        &self,
        events: &'e [OutboxEvent],
        now: Timestamp,
    ) -> Vec<Course<'e>> {
        let tenants: BTreeSet<&TenantId> = events.iter().map(|event| &event.tenant).collect();
        let endpoints: BTreeMap<&TenantId, Result<Arc<[Endpoint]>, Fate>> = stream::iter(tenants)
            .map(|tenant| async move {
                let endpoints = self.cache.of(self.registry, tenant).await;
                (tenant, endpoints.map_err(Fate::failed))
            })
            .buffer_unordered(WIDTH)
            .collect()
            .await;
        let course = |event: &'e OutboxEvent| match endpoints.get(&event.tenant) {
            Some(Ok(endpoints)) => self.course(event, endpoints, now),
            Some(Err(fate)) => Course { event, deliveries: Vec::new(), fate: fate.clone() },
            None => Course { event, deliveries: Vec::new(), fate: Fate::Relayed(Vec::new()) },
        };
        events.iter().map(course).collect()
    }

    fn course<'e>(
        &self,
        event: &'e OutboxEvent,
        endpoints: &[Endpoint],
        now: Timestamp,
    ) -> Course<'e> {
        // Disabled endpoints too: what they would have got is held, and not lost without a trace.
        let wanting = endpoints.iter().filter(|endpoint| endpoint.wants(&Facts::from(event), None));
        let deadline = deadline(event, self.deadline, now);
        let (ids, deliveries) = wanting
            .map(|endpoint| {
                let lane = LaneId::of(endpoint, event.id, &event.aggregate_id);
                let delivery = Delivery::new(event.id, event.event_type.clone(), deadline, now);
                (endpoint.id, NewDelivery { lane, delivery })
            })
            .unzip();
        Course { event, deliveries, fate: Fate::Relayed(ids) }
    }

    /// Puts every delivery and its pointer. Gives the lanes that now hold something new, also those of events that
    /// failed elsewhere: what is there may as well go.
    async fn put_deliveries(&self, courses: &mut [Course<'_>]) -> BTreeSet<LaneId> {
        let puts: Vec<(usize, &NewDelivery)> = courses
            .iter()
            .enumerate()
            .flat_map(|(index, course)| course.deliveries.iter().map(move |new| (index, new)))
            .collect();
        let put = |(index, new): (usize, _)| async move { (index, self.put(new).await) };
        let ended: Vec<(usize, Result<LaneId, Fate>)> =
            stream::iter(puts).map(put).buffer_unordered(WIDTH).collect().await;
        let mut lanes = BTreeSet::new();
        for (index, put) in ended {
            match (put, courses.get_mut(index)) {
                (Ok(lane), _) => {
                    lanes.insert(lane);
                }
                (Err(fate), Some(course)) => course.worsen(fate),
                (Err(_), None) => {}
            }
        }
        lanes
    }

    async fn put(&self, new: &NewDelivery) -> Result<LaneId, Fate> {
        self.lanes.put(new).await.map_err(Fate::failed)?;
        Ok(new.lane.clone())
    }

    /// Wakes each lane once, and sends one message for each that was woken.
    async fn wake_lanes(
        &self,
        lanes: BTreeSet<LaneId>,
        courses: &mut [Course<'_>],
        now: Timestamp,
    ) {
        let woken: Vec<(LaneId, Stored<()>)> = stream::iter(lanes)
            .map(|lane| async move {
                let woken = self.lanes.wake(&lane, now).await;
                (lane, woken)
            })
            .buffer_unordered(WIDTH)
            .collect()
            .await;
        let mut messages = Vec::new();
        for (lane, woken) in woken {
            match woken {
                Ok(()) => messages.push(WakeMessage(lane)),
                Err(error) => {
                    let fate = Fate::failed(error);
                    for course in courses.iter_mut().filter(|course| course.touches(&lane)) {
                        course.worsen(fate.clone());
                    }
                }
            }
        }
        if messages.is_empty() {
            return;
        }
        let lost = self.queue.send(&messages, Duration::ZERO).await;
        if !lost.is_empty() {
            // No failure of an event: `wake_at` stands in the lane, and the sweeper reads it.
            tracing::warn!(lost = lost.len(), sent = messages.len(), "wake messages did not go");
        }
    }

    /// Marks what has come through.
    async fn mark(&self, courses: &mut [Course<'_>], now: Timestamp) {
        let marks: Vec<_> = courses
            .iter()
            .map(|course| match &course.fate {
                Fate::Relayed(endpoints) => {
                    Some((course.event, Relayed { at: now, endpoints: endpoints.clone() }))
                }
                Fate::Left(_) | Fate::Down(_) => None,
            })
            .collect();
        let ended: Vec<Option<StoreError>> = stream::iter(marks)
            .map(|mark| async move {
                let (event, relayed) = mark?;
                self.outbox.mark(&event.tenant, event.id, &relayed).await.err()
            })
            .buffered(WIDTH)
            .collect()
            .await;
        for (course, error) in courses.iter_mut().zip(ended) {
            if let Some(error) = error {
                course.worsen(Fate::failed(error));
            }
        }
    }
}

impl Course<'_> {
    fn worsen(&mut self, fate: Fate) {
        let before = std::mem::replace(&mut self.fate, Fate::Relayed(Vec::new()));
        self.fate = before.and(fate);
    }

    fn touches(&self, lane: &LaneId) -> bool {
        self.deliveries.iter().any(|new| new.lane == *lane)
    }
}

/// When a delivery is given up: some time after its event. An event that is relayed only after that has as long from
/// now on, or it would be given up untried.
fn deadline(event: &OutboxEvent, tried_for: Duration, now: Timestamp) -> Timestamp {
    let from = |time: Timestamp| time.saturating_add(tried_for).unwrap_or(Timestamp::MAX);
    let deadline = from(event.id.time());
    if deadline > now { deadline } else { from(now) }
}

#[cfg(test)]
mod tests;
