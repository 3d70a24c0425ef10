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

/// Most tenants that are kept. A thousand tenants of fifty endpoints are about 25 MB.
const MAX_TENANTS: usize = 1000;

/// Endpoints by tenant, each list valid for one epoch: one strong read of a number validates it, so that an endpoint
/// created a moment ago does not miss its first event.
#[derive(Default)]
pub struct EndpointCache {
    lists: Mutex<HashMap<TenantId, Listed>>,
}

/// The epoch for which a list holds, and the list.
type Listed = (u64, Arc<[Endpoint]>);

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
        if let Some(list) = self.kept(tenant, epoch) {
            return Ok(list);
        }
        let list: Arc<[Endpoint]> = registry.endpoints(tenant).await?.into();
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        if lists.len() >= MAX_TENANTS && !lists.contains_key(tenant) {
            lists.clear();
        }
        lists.insert(tenant.clone(), (epoch, Arc::clone(&list)));
        Ok(list)
    }

    fn kept(&self, tenant: &TenantId, epoch: u64) -> Option<Arc<[Endpoint]>> {
        let lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        let (kept, list) = lists.get(tenant)?;
        (*kept == epoch).then(|| Arc::clone(list))
    }
}
