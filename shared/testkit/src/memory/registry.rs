//! Configuration in memory.

use domain::{
    endpoint::{Endpoint, Gone},
    id::{EndpointId, SourceName, TenantId},
    ports::{AuditEntry, Configure, Learning, Registry, SealedSecret, Stored, WithSecrets},
    source::Source,
};
use jiff::Timestamp;

use super::Store;

impl Registry for Store {
    async fn source(&self, name: &SourceName) -> Stored<Option<Source>> {
        self.call("registry.source", |tables| tables.sources.get(name).cloned()).await
    }

    async fn endpoints_epoch(&self, tenant: &TenantId) -> Stored<u64> {
        self.call("registry.endpoints_epoch", |tables| {
            tables.epochs.get(tenant).copied().unwrap_or_default()
        })
        .await
    }

    async fn endpoints(&self, tenant: &TenantId) -> Stored<Vec<Endpoint>> {
        self.call("registry.endpoints", |tables| {
            let of_tenant = tables.endpoints.values().map(|(endpoint, _)| endpoint);
            of_tenant.filter(|endpoint| endpoint.tenant == *tenant).cloned().collect()
        })
        .await
    }

    async fn endpoint(&self, tenant: &TenantId, id: EndpointId) -> Stored<Option<WithSecrets>> {
        let key = (tenant.clone(), id);
        self.call("registry.endpoint", |tables| tables.endpoints.get(&key).cloned()).await
    }

    async fn sources(&self) -> Stored<Vec<Source>> {
        self.call("registry.sources", |tables| tables.sources.values().cloned().collect()).await
    }
}

impl Configure for Store {
    async fn add_source(&self, source: &Source) -> Stored<bool> {
        self.call("configure.add_source", |tables| {
            if tables.sources.contains_key(&source.name) {
                return false;
            }
            tables.sources.insert(source.name.clone(), source.clone());
            true
        })
        .await
    }

    async fn replace_source(&self, old: &Source, new: &Source) -> Stored<bool> {
        self.call("configure.replace_source", |tables| {
            if tables.sources.get(&old.name) != Some(old) {
                return false;
            }
            tables.sources.insert(old.name.clone(), new.clone());
            true
        })
        .await
    }

    async fn add_endpoint(&self, endpoint: &Endpoint, secrets: &[SealedSecret]) -> Stored<bool> {
        let key = (endpoint.tenant.clone(), endpoint.id);
        self.call("configure.add_endpoint", |tables| {
            let of_tenant = tables.endpoints.values().map(|(endpoint, _)| endpoint);
            let mut of_tenant = of_tenant.filter(|other| other.tenant == endpoint.tenant);
            let has_key = |other: &Endpoint| other.key.is_some() && other.key == endpoint.key;
            if tables.endpoints.contains_key(&key) || of_tenant.any(has_key) {
                return false;
            }
            *tables.epochs.entry(endpoint.tenant.clone()).or_default() += 1;
            tables.endpoints.insert(key, (endpoint.clone(), secrets.to_vec()));
            true
        })
        .await
    }

    async fn replace_endpoint(&self, old: &WithSecrets, new: &WithSecrets) -> Stored<bool> {
        let key = (old.0.tenant.clone(), old.0.id);
        self.call("configure.replace_endpoint", |tables| {
            let there = tables.endpoints.get_mut(&key).filter(|there| *there == old);
            let Some(there) = there else { return false };
            *there = new.clone();
            *tables.epochs.entry(key.0).or_default() += 1;
            true
        })
        .await
    }

    async fn remove_endpoint(&self, old: &Endpoint, now: Timestamp) -> Stored<bool> {
        let key = (old.tenant.clone(), old.id);
        self.call("configure.remove_endpoint", |tables| {
            if tables.endpoints.get(&key).is_none_or(|(there, _)| there != old) {
                return false;
            }
            tables.endpoints.remove(&key);
            *tables.epochs.entry(old.tenant.clone()).or_default() += 1;
            tables.gone.insert(key, Gone { endpoint: old.clone(), deleted_at: now });
            true
        })
        .await
    }

    async fn gone(&self, tenant: &TenantId, ids: &[EndpointId]) -> Stored<Vec<Gone>> {
        self.call("configure.gone", |tables| {
            let of = |id: &EndpointId| tables.gone.get(&(tenant.clone(), *id)).cloned();
            let ids: std::collections::BTreeSet<_> = ids.iter().collect();
            ids.into_iter().filter_map(of).collect()
        })
        .await
    }

    async fn audit(&self, entry: &AuditEntry) -> Stored<()> {
        self.call("configure.audit", |tables| tables.audit.push(entry.clone())).await
    }
}

impl Learning for Store {
    async fn claim_secret(
        &self,
        source: &SourceName,
        owner: &str,
        now: Timestamp,
        until: Timestamp,
    ) -> Stored<bool> {
        self.call("learning.claim_secret", |tables| {
            let waits = tables.sources.get(source).and_then(|source| source.awaits_secret_until);
            let claim = tables.claims.get(source);
            let free = claim.is_none_or(|(holder, until)| holder == owner || *until <= now);
            if !free || waits.is_none_or(|until| until <= now) {
                return false;
            }
            tables.claims.insert(source.clone(), (owner.to_owned(), until));
            true
        })
        .await
    }

    async fn learned(&self, source: &SourceName, owner: &str) -> Stored<bool> {
        self.call("learning.learned", |tables| {
            if tables.claims.get(source).is_none_or(|(holder, _)| holder != owner) {
                return false;
            }
            tables.claims.remove(source);
            if let Some(source) = tables.sources.get_mut(source) {
                source.awaits_secret_until = None;
            }
            true
        })
        .await
    }
}
