//! One event on its way through the steps.

use std::time::Duration;

use domain::{
    delivery::{Delivery, NewDelivery},
    endpoint::Endpoint,
    id::EndpointId,
    lane::LaneId,
    outbox::OutboxEvent,
    ports::Stored,
};
use jiff::Timestamp;

use super::Fate;
use crate::document::Unread;

pub(super) struct Course<'e> {
    pub(super) event: &'e OutboxEvent,
    /// Who wants it and is still to get it, in the order of their ids.
    wanting: Vec<&'e Endpoint>,
    /// Who has got it.
    done: Vec<EndpointId>,
    unread: Option<Unread>,
    /// The worst that has happened to it.
    trouble: Option<Fate>,
}

/// How many courses are taken together: as many as have a step's worth of deliveries, and at least one.
pub(super) fn wave(courses: &[Course<'_>], step: usize) -> usize {
    let mut deliveries = 0_usize;
    let fits = |course: &&Course<'_>| {
        deliveries = deliveries.saturating_add(course.left());
        deliveries <= step
    };
    courses.iter().take_while(fits).count().max(1)
}

impl<'e> Course<'e> {
    pub(super) fn new(
        event: &'e OutboxEvent,
        mut wanting: Vec<&'e Endpoint>,
        unread: Option<Unread>,
    ) -> Self {
        wanting.sort_unstable_by_key(|endpoint| endpoint.id);
        Self { event, wanting, done: Vec::new(), unread, trouble: None }
    }

    pub(super) fn failed(event: &'e OutboxEvent, trouble: Fate) -> Self {
        Self { trouble: Some(trouble), ..Self::new(event, Vec::new(), None) }
    }

    /// How many are still to get it.
    pub(super) fn left(&self) -> usize {
        self.wanting.len()
    }

    pub(super) fn done(&self) -> &[EndpointId] {
        &self.done
    }

    /// Goes on behind the last endpoint that has got it before. Those before that one were decided then, whoever wants
    /// the event now.
    pub(super) fn resume(&mut self, reached: Vec<EndpointId>) {
        if let Some(last) = reached.last() {
            self.wanting.retain(|endpoint| endpoint.id > *last);
        }
        self.done = reached;
    }

    /// The deliveries of the next `count` endpoints.
    pub(super) fn deliveries(
        &self,
        count: usize,
        tried_for: Duration,
        now: Timestamp,
    ) -> impl Iterator<Item = NewDelivery> {
        let event = self.event;
        let deadline = deadline(event, tried_for, now);
        self.wanting.iter().take(count).map(move |endpoint| NewDelivery {
            lane: LaneId::of(endpoint, event.id, &event.aggregate_id),
            delivery: Delivery::new(event.id, event.event_type.clone(), deadline, now),
        })
    }

    /// The next `count` endpoints have had their turn.
    pub(super) fn advance(&mut self, count: usize) {
        let count = count.min(self.wanting.len());
        self.done.extend(self.wanting.drain(..count).map(|endpoint| endpoint.id));
    }

    /// Keeps the worst that happens.
    pub(super) fn meet(&mut self, fate: Fate) {
        let is_worse = self.trouble.as_ref().is_none_or(|before| before.badness() < fate.badness());
        if is_worse {
            self.trouble = Some(fate);
        }
    }

    pub(super) fn meet_error(&mut self, stored: Stored<()>) {
        if let Err(error) = stored {
            self.meet(Fate::failed(error));
        }
    }

    pub(super) const fn is_well(&self) -> bool {
        self.trouble.is_none()
    }

    pub(super) const fn is_down(&self) -> bool {
        matches!(self.trouble, Some(Fate::Down(_)))
    }

    pub(super) fn fate(self) -> Fate {
        let Self { done, unread, trouble, .. } = self;
        trouble.unwrap_or(Fate::Relayed { endpoints: done, unread })
    }
}

/// When a delivery is given up: some time after its event. An event that is relayed only after that has as long from
/// now on, or it would be given up untried.
pub(super) fn deadline(event: &OutboxEvent, tried_for: Duration, now: Timestamp) -> Timestamp {
    let from = |time: Timestamp| time.saturating_add(tried_for).unwrap_or(Timestamp::MAX);
    let deadline = from(event.id.time());
    if deadline > now { deadline } else { from(now) }
}
