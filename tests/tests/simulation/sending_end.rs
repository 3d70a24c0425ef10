//! Where a deployment that sends comes to rest, and what is there then.

use std::collections::{BTreeMap, BTreeSet};

use domain::{
    delivery::State,
    id::{EndpointId, EventId},
    lane::LaneId,
    redelivery::State as Stands,
};

use crate::{
    sending::{Sending, Step},
    subscriber::now,
};

/// How often a minute passes before everything is at rest.
const ROUNDS: usize = 400;

/// What a world has come to, without ids and times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct End {
    /// Each delivery, where it stands at rest, and where after every endpoint was enabled.
    pub(crate) stands: [BTreeSet<String>; 2],
    /// Endpoints that are there, stopped or not, and those that are gone.
    pub(crate) endpoints: Vec<String>,
    /// How often each event came to each endpoint.
    pub(crate) received: BTreeMap<String, u32>,
}

impl Sending {
    /// Brings everything to rest, has every endpoint enabled, brings everything to rest again, and looks.
    pub(crate) async fn end(&self, told: &str) -> End {
        self.heal();
        self.rest(told).await;
        let first = self.stands();
        let endpoints = self.endpoints();
        self.receivers.recover();
        let many = self.made.borrow().len();
        for n in 0..many {
            // One that is gone stays so.
            self.take(Step::Endpoint(n, "enable?release_rate=1000")).await;
        }
        self.rest(told).await;
        let tables = self.api.deliveries.tables();
        assert!(tables.pointers.is_empty(), "{told}: {:?}", tables.pointers);
        drop(tables);
        assert!(self.stands().iter().all(|one| !one.ends_with("Pending")), "{told}");
        let mut received = BTreeMap::new();
        for ((endpoint, event), times) in self.receivers.received.lock().unwrap().iter() {
            *received
                .entry(format!("{} {}", self.event(*event), self.place(*endpoint)))
                .or_default() += times;
        }
        End { stands: [first, self.stands()], endpoints, received }
    }

    pub(crate) async fn rest(&self, told: &str) {
        for _ in 0..ROUNDS {
            self.take(Step::Sweep).await;
            if self.has_relay {
                self.take(Step::Relay).await;
            }
            while self.api.wakes.next_visible().is_some_and(|at| at <= now()) {
                self.take(Step::Drain).await;
                self.advance(0);
            }
            let polled: Vec<_> =
                self.made.borrow().iter().map(|(_, token)| token.is_some()).collect();
            for (n, is_polled) in polled.into_iter().enumerate() {
                if is_polled && !self.is_silent.get() && self.ack(n).await && self.poll(n).await {
                    self.ack(n).await;
                }
            }
            if self.is_at_rest() {
                return;
            }
            self.advance(60);
        }
        assert!(self.is_at_rest(), "{told}: not at rest: {:?}", self.stands());
    }

    /// Whether no lane is due, and nobody owes anything to an endpoint that may get it.
    fn is_at_rest(&self) -> bool {
        let registry = self.api.registry.tables();
        let tables = self.api.deliveries.tables();
        let is_held = |lane: &LaneId| {
            let key = (lane.tenant.clone(), lane.endpoint);
            let health = tables.health.get(&key).cloned().unwrap_or_default();
            registry.endpoints.get(&key).is_some_and(|(e, _)| e.stopped_since(&health).is_some())
        };
        let is_owed = tables
            .deliveries
            .iter()
            .any(|((lane, _), delivery)| delivery.state == State::Pending && !is_held(lane));
        let pointed = tables.pointers.iter().any(|(lane, _)| !is_held(lane));
        let is_due = tables.lanes.values().any(|lane| lane.wake_at.is_some_and(|at| at <= now()));
        let is_at_work = registry.open_redeliveries.iter().any(|id| {
            registry.redeliveries.get(id).is_some_and(|work| work.state() == Stands::Running)
        });
        let unrelayed = self.api.outbox.tables().outbox.values().any(|row| row.relayed.is_none());
        !is_owed && !pointed && !is_due && !unrelayed && !is_at_work
    }

    fn stands(&self) -> BTreeSet<String> {
        let tables = self.api.deliveries.tables();
        let told = tables.deliveries.iter().map(|((lane, event), delivery)| {
            let (event, place) = (self.event(*event), self.place(lane.endpoint));
            format!("{event} {place} {:?}", delivery.state)
        });
        told.collect()
    }

    fn endpoints(&self) -> Vec<String> {
        let registry = self.api.registry.tables();
        let health = &self.api.deliveries.tables().health;
        let there = registry.endpoints.iter().map(|(key, (endpoint, _))| {
            let health = health.get(key).cloned().unwrap_or_default();
            let stopped = endpoint.stopped_since(&health).is_some();
            format!("{} stopped: {stopped}", self.place(endpoint.id))
        });
        let gone = registry.gone.keys().map(|(_, id)| format!("{} gone", self.place(*id)));
        there.chain(gone).collect()
    }

    pub(crate) fn event(&self, id: EventId) -> String {
        let tables = self.api.outbox.tables();
        let event = tables.outbox.values().find(|row| row.event.id == id).map(|row| &row.event);
        let event = event.expect("a delivery has an event");
        match event.event_type.as_str() {
            "order.paid" => event.aggregate_id.clone(),
            other => other.to_owned(),
        }
    }

    fn place(&self, id: EndpointId) -> String {
        let made = self.made.borrow();
        made.iter().position(|(one, _)| *one == id).map_or("unknown".to_owned(), |n| n.to_string())
    }
}
