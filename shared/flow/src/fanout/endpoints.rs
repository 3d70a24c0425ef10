//! A tenant's endpoints, kept between batches.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use domain::{
    endpoint::Endpoint,
    id::TenantId,
    ports::{Registry, Stored},
};

/// Most bytes of endpoints that are kept, as JSON; in memory they are about three times as many. A thousand tenants of
/// fifty endpoints are about 16 MB.
const MAX_KEPT: usize = 16_000_000;

/// Endpoints by tenant, each list valid for one epoch: one strong read of a number validates it, so that an endpoint
/// created a moment ago does not miss its first event.
#[derive(Default)]
pub struct EndpointCache {
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    lists: HashMap<TenantId, Listed>,
    size: usize,
}

/// The endpoints of a tenant.
struct Listed {
    /// For which epoch they hold.
    epoch: u64,
    endpoints: Arc<[Endpoint]>,
    size: usize,
}

impl fmt::Debug for EndpointCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointCache").finish_non_exhaustive()
    }
}

impl EndpointCache {
    /// A tenant's endpoints as of now.
    ///
    /// # Errors
    /// Those of the registry.
    pub async fn of<R: Registry>(
        &self,
        registry: &R,
        tenant: &TenantId,
    ) -> Stored<Arc<[Endpoint]>> {
        // The epoch before the list: a list that is read while it changes is at worst kept under the epoch before it,
        // and read once more than needed.
        let epoch = registry.endpoints_epoch(tenant).await?;
        if let Some(kept) = self.kept(tenant, epoch) {
            return Ok(kept);
        }
        let endpoints: Arc<[Endpoint]> = registry.endpoints(tenant).await?.into();
        self.keep(tenant, epoch, &endpoints, MAX_KEPT);
        Ok(endpoints)
    }

    fn kept(&self, tenant: &TenantId, epoch: u64) -> Option<Arc<[Endpoint]>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let listed = kept.lists.get(tenant)?;
        (listed.epoch == epoch).then(|| Arc::clone(&listed.endpoints))
    }

    fn keep(&self, tenant: &TenantId, epoch: u64, endpoints: &Arc<[Endpoint]>, most: usize) {
        let size = endpoints.iter().map(size).sum();
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = kept.lists.remove(tenant) {
            kept.size -= before.size;
        }
        if kept.size + size > most {
            *kept = Kept::default();
        }
        // One tenant may have more than there is room for; it is read anew each time.
        if size <= most {
            kept.size += size;
            let endpoints = Arc::clone(endpoints);
            kept.lists.insert(tenant.clone(), Listed { epoch, endpoints, size });
        }
    }
}

fn size(endpoint: &Endpoint) -> usize {
    serde_json::to_vec(endpoint).map_or(0, |json| json.len())
}

#[cfg(test)]
mod tests {
    use domain::destination::Destination;
    use jiff::Timestamp;
    use uuid::Uuid;

    use super::*;

    fn list(tenant: &str, count: u128) -> (TenantId, Arc<[Endpoint]>) {
        let tenant: TenantId = tenant.parse().unwrap();
        let endpoint = |n| {
            let url = Destination::Https("https://example.com/".to_owned());
            let id = domain::id::EndpointId::new(Uuid::from_u128(n));
            Endpoint::new(tenant.clone(), id, url, Timestamp::UNIX_EPOCH)
        };
        (tenant.clone(), (0..count).map(endpoint).collect())
    }

    #[test]
    fn no_more_is_kept_than_there_is_room_for() {
        let cache = EndpointCache::default();
        let one = size(&list("a", 1).1[0]);
        let keep = |name: &str, count| {
            let (tenant, endpoints) = list(name, count);
            cache.keep(&tenant, 1, &endpoints, 10 * one);
        };
        let has = |name: &str| cache.kept(&name.parse().unwrap(), 1).map(|list| list.len());
        keep("a", 4);
        keep("b", 6);
        assert_eq!((has("a"), has("b")), (Some(4), Some(6)));
        // The same tenant again takes its own room, and not more.
        keep("a", 3);
        assert_eq!((has("a"), has("b")), (Some(3), Some(6)));
        keep("c", 2);
        assert_eq!((has("a"), has("b"), has("c")), (None, None, Some(2)));
        keep("d", 11);
        assert_eq!((has("c"), has("d")), (None, None));
    }
}
