//! Who wants each event of a batch.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use domain::{
    endpoint::{Endpoint, Facts},
    id::TenantId,
    message::WakeMessage,
    outbox::OutboxEvent,
    ports::{Bodies, Fanout, Outbox, Queue, Registry},
};
use futures_util::{StreamExt as _, stream};
use jiff::Timestamp;

use super::{Course, FanOut, Fate, WIDTH};
use crate::document;

/// Payloads that are read at once: each may be 1 MB, and many times that once it is parsed.
const READS: usize = 4;

/// A tenant's endpoints, or why they could not be had.
type Listed = Result<Arc<[Endpoint]>, Fate>;

impl<F, O, R, Q, B, N> FanOut<'_, F, O, R, Q, B, N>
where
    F: Fanout,
    O: Outbox,
    R: Registry,
    Q: Queue<WakeMessage>,
    B: Bodies,
    N: Fn() -> Timestamp + Sync,
{
    /// The endpoints of each tenant, with one strong read of the epoch for each.
    pub(super) async fn endpoints_of<'e>(
        &self,
        events: &'e [OutboxEvent],
    ) -> BTreeMap<&'e TenantId, Listed> {
        let tenants: BTreeSet<&TenantId> = events.iter().map(|event| &event.tenant).collect();
        stream::iter(tenants)
            .map(|tenant| async move {
                let endpoints = self.cache.of(self.registry, tenant).await;
                (tenant, endpoints.map_err(Fate::failed))
            })
            .buffer_unordered(WIDTH)
            .collect()
            .await
    }

    /// The course of each event.
    pub(super) async fn courses<'e>(
        &self,
        events: &'e [OutboxEvent],
        tenants: &'e BTreeMap<&'e TenantId, Listed>,
    ) -> Vec<Course<'e>> {
        let course = |event: &'e OutboxEvent| async move {
            match tenants.get(&event.tenant) {
                Some(Ok(endpoints)) => self.course(event, endpoints).await,
                Some(Err(fate)) => Course::failed(event, fate.clone()),
                None => Course::new(event, Vec::new(), None),
            }
        };
        stream::iter(events).map(course).buffered(READS).collect().await
    }

    async fn course<'e>(&self, event: &'e OutboxEvent, endpoints: &'e [Endpoint]) -> Course<'e> {
        let facts = Facts::from(event);
        // Disabled endpoints too: what they would have got is held, and not lost without a trace.
        let mut wanting: Vec<&Endpoint> =
            endpoints.iter().filter(|endpoint| endpoint.considers(&facts)).collect();
        if wanting.iter().all(|endpoint| endpoint.filter_at(facts.at).is_none()) {
            return Course::new(event, wanting, None);
        }
        match document::read(event, self.bodies).await {
            Ok(read) => {
                let payload = read.as_ref().ok();
                wanting.retain(|endpoint| endpoint.wants(&facts, payload));
                Course::new(event, wanting, read.err())
            }
            // Whatever it is: events without a large payload can go on, and the shard must not wait for the bucket.
            Err(error) => Course::failed(event, Fate::Left(Arc::new(error))),
        }
    }
}
