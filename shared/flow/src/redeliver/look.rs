//! Looking at the next page of a walk, which changes nothing.

use std::collections::{BTreeMap, btree_map::Entry};

use domain::{
    bulk::PAGE,
    delivery::{Delivery, State},
    endpoint::{Endpoint, Facts},
    id::{EndpointId, EventId, TenantId},
    lane::LaneId,
    message::WakeMessage,
    outbox::{OutboxEvent, OutboxRow},
    ports::{
        Bodies, Deliveries, Events, Fanout, Outbox, Queue, Redeliver, Redeliveries, Registry,
        Stored,
    },
    redelivery::{Leg, Outcome, Verdict, Work, judge, would_get},
};
use futures_util::{StreamExt as _, stream};

use super::{Lacking, Redeliverer, WIDTH};
use crate::document;

/// Lanes and shards that are read for one page: many may be empty, and the work's row need not be written after each.
const QUERIES: usize = 20;

/// A delivery that was looked at.
pub(super) struct Looked {
    pub(super) event: EventId,
    pub(super) endpoint: EndpointId,
    pub(super) seen: Seen,
}

/// What is to be done with it.
pub(super) enum Seen {
    /// Make it due again.
    Take { lane: LaneId, delivery: Box<Delivery> },
    /// Make it: its event never came to the endpoint.
    Make { lane: LaneId, event: Lacking },
    /// Leave it.
    Leave(Outcome),
}

/// An endpoint, and whether it is stopped.
struct Way {
    endpoint: Endpoint,
    is_stopped: bool,
}

impl Way {
    /// What is done with a delivery of this endpoint.
    fn judge(&self, work: &Work, lane: &LaneId, delivery: Delivery) -> Looked {
        let event = delivery.event;
        let seen = match judge(work, &delivery) {
            Verdict::Leave(outcome) => Seen::Leave(outcome),
            // Nothing would send it until somebody enables the endpoint.
            Verdict::Take if self.is_stopped => Seen::Leave(Outcome::Stopped),
            Verdict::Take => Seen::Take { lane: lane.clone(), delivery: Box::new(delivery) },
        };
        Looked { event, endpoint: self.endpoint.id, seen }
    }

    fn lane(&self, number: u16) -> LaneId {
        let Endpoint { tenant, id, .. } = &self.endpoint;
        LaneId { tenant: tenant.clone(), endpoint: *id, lane: number }
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
    /// The next page, with at most `most` to take, and where the walk goes on behind it.
    pub(super) async fn look(&self, work: &Work, most: usize) -> Stored<(Vec<Looked>, Leg)> {
        if let Leg::Named { next } = work.leg {
            let (pairs, leg) = Leg::named(work, next, most.min(PAGE));
            return Ok((self.named(work, pairs).await?, leg));
        }
        let mut leg = work.leg.clone();
        for _ in 0..QUERIES {
            let Some(id) = leg.endpoint(work) else { break };
            let Some(way) = self.way(&work.tenant, id).await? else {
                // Deleted since the work began: nothing is owed to it.
                leg = leg.next_endpoint(work);
                continue;
            };
            let (looked, is_full, count) = match &leg {
                Leg::Lane { lane, after, .. } => {
                    let count = way.endpoint.lanes_ever();
                    let (looked, is_full) = self.in_lane(work, &way, *lane, *after).await?;
                    (looked, is_full, count)
                }
                Leg::Missing { shard, after, .. } => {
                    let count = self.outbox.event_shards();
                    let (looked, is_full) = self.missing(work, &way, *shard, *after).await?;
                    (looked, is_full, count)
                }
                Leg::Named { .. } | Leg::End => break,
            };
            let (looked, is_cut) = cut(looked, most);
            leg = match looked.last() {
                Some(last) if is_cut || is_full => leg.past(last.event),
                _ => leg.next(work, count),
            };
            if !looked.is_empty() {
                return Ok((looked, leg));
            }
        }
        Ok((Vec::new(), leg))
    }

    async fn way(&self, tenant: &TenantId, id: EndpointId) -> Stored<Option<Way>> {
        let Some((endpoint, _)) = self.registry.endpoint(tenant, id).await? else {
            return Ok(None);
        };
        let health = self.deliveries.health(tenant, id).await?;
        let is_stopped = endpoint.stopped_since(&health).is_some();
        Ok(Some(Way { endpoint, is_stopped }))
    }

    /// A page of a lane, and whether there may be more in it that the walk is about.
    async fn in_lane(
        &self,
        work: &Work,
        way: &Way,
        lane: u16,
        after: Option<EventId>,
    ) -> Stored<(Vec<Looked>, bool)> {
        let lane = way.lane(lane);
        let page = self.deliveries.log(&lane, after, false, PAGE).await?;
        let read = page.len();
        let within = page.into_iter().take_while(|delivery| work.reaches(delivery.event));
        let looked: Vec<_> = within.map(|delivery| way.judge(work, &lane, delivery)).collect();
        let is_full = read == PAGE && looked.len() == read;
        Ok((looked, is_full))
    }

    /// A page of a shard of the tenant's events, and whether there may be more in it.
    async fn missing(
        &self,
        work: &Work,
        way: &Way,
        shard: u16,
        after: Option<EventId>,
    ) -> Stored<(Vec<Looked>, bool)> {
        let page = self.outbox.events(&work.tenant, shard, after, PAGE).await?;
        let read = page.len();
        let within: Vec<_> =
            page.into_iter().take_while(|row| work.reaches(row.event.id)).collect();
        let is_full = read == PAGE && within.len() == read;
        let mut looks = stream::iter(within)
            .map(async |row| {
                let (event, endpoint) = (row.event.id, way.endpoint.id);
                let seen = self.lacks(work, way, row).await?;
                Ok(Looked { event, endpoint, seen })
            })
            .buffered(WIDTH);
        let mut looked = Vec::new();
        while let Some(one) = looks.next().await {
            looked.push(one?);
        }
        Ok((looked, is_full))
    }

    /// Whether an event never came to an endpoint that would get it now.
    async fn lacks(&self, work: &Work, way: &Way, row: OutboxRow) -> Stored<Seen> {
        let OutboxRow { event, relayed } = row;
        let leave = |outcome| Ok(Seen::Leave(outcome));
        if !work.selection.wants(&event.event_type, event.id.time())
            || !self.would_get(&way.endpoint, &event).await?
        {
            return leave(Outcome::NotSelected);
        }
        let lane = LaneId::of(&way.endpoint, event.id, &event.aggregate_id);
        let found = self.deliveries.read(&lane, &[event.id]).await?;
        if let Some(delivery) = found.into_iter().next() {
            let made = delivery.redelivered.as_ref();
            let is_made = made.is_some_and(|mark| mark.by == work.id && mark.from.is_none());
            // Whoever made it may have died before its pointer, or before its lane was woken.
            return Ok(if is_made && delivery.state == State::Pending {
                Seen::Make { lane, event: Box::new(event) }
            } else {
                way.judge(work, &lane, delivery).seen
            });
        }
        match relayed {
            // The relay has not come to it, and may make it yet.
            None => leave(Outcome::InFlight),
            Some(_) if way.is_stopped => leave(Outcome::Stopped),
            Some(_) => Ok(Seen::Make { lane, event: Box::new(event) }),
        }
    }

    async fn would_get(&self, endpoint: &Endpoint, event: &OutboxEvent) -> Stored<bool> {
        let facts = Facts::from(event);
        if endpoint.filter.is_none() {
            return Ok(would_get(endpoint, &facts, None));
        }
        let payload = document::read(event, self.bodies).await?.ok();
        Ok(would_get(endpoint, &facts, payload.as_ref()))
    }

    /// Named events, each with each endpoint.
    async fn named(&self, work: &Work, pairs: Vec<(EventId, EndpointId)>) -> Stored<Vec<Looked>> {
        let mut ways = BTreeMap::new();
        let mut rows = BTreeMap::new();
        let mut looked = Vec::with_capacity(pairs.len());
        for (event, endpoint) in pairs {
            let way = match ways.entry(endpoint) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => new.insert(self.way(&work.tenant, endpoint).await?),
            };
            let row = match rows.entry(event) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => new.insert(self.outbox.event(&work.tenant, event).await?),
            };
            looked.push(match way {
                Some(way) => self.by_name(work, way, event, row.as_ref()).await?,
                None => Looked { event, endpoint, seen: Seen::Leave(Outcome::Absent) },
            });
        }
        Ok(looked)
    }

    async fn by_name(
        &self,
        work: &Work,
        way: &Way,
        event: EventId,
        row: Option<&OutboxRow>,
    ) -> Stored<Looked> {
        let lanes = match row {
            Some(row) => vec![LaneId::of(&way.endpoint, event, &row.event.aggregate_id)],
            // Without its event nobody knows its lane.
            None => (0..way.endpoint.lanes_ever()).map(|lane| way.lane(lane)).collect(),
        };
        for lane in lanes {
            let found = self.deliveries.read(&lane, &[event]).await?;
            let Some(delivery) = found.into_iter().next() else { continue };
            let looked = way.judge(work, &lane, delivery);
            let is_taken = matches!(looked.seen, Seen::Take { .. });
            return Ok(if row.is_none() && is_taken {
                Looked { seen: Seen::Leave(Outcome::Expired), ..looked }
            } else {
                looked
            });
        }
        let outcome = match row {
            Some(row) if row.relayed.is_none() => Outcome::InFlight,
            _ if work.is_named => Outcome::Absent,
            _ => Outcome::NotSelected,
        };
        Ok(Looked { event, endpoint: way.endpoint.id, seen: Seen::Leave(outcome) })
    }
}

/// What may be taken now, and whether something was left for later.
fn cut(mut looked: Vec<Looked>, most: usize) -> (Vec<Looked>, bool) {
    let takes = |looked: &Looked| !matches!(looked.seen, Seen::Leave(_));
    let end = looked.iter().enumerate().filter(|(_, one)| takes(one)).nth(most).map(|(at, _)| at);
    match end {
        Some(end) => {
            looked.truncate(end);
            (looked, true)
        }
        None => (looked, false),
    }
}
