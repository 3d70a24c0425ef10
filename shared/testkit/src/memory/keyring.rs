//! Secrets in memory.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use domain::{
    id::{EndpointId, SourceName, TenantId},
    ports::{
        Changed, Keyring, SetSourceSecrets, SourceSecret, SourceSecrets, StoreError, Stored,
        source_secrets::{with_added, with_expiry, with_removed},
    },
    secret::SecretText,
};
use jiff::Timestamp;

use crate::chaos::Chaos;

/// A keyring that binds a secret to its endpoint by writing the endpoint in front of it.
#[derive(Debug, Default)]
pub struct MemoryKeyring {
    /// Decides which calls fail.
    pub chaos: Chaos,
}

fn context(tenant: &TenantId, endpoint: EndpointId) -> Vec<u8> {
    format!("{tenant}#{endpoint}#").into_bytes()
}

impl Keyring for MemoryKeyring {
    async fn seal(
        &self,
        tenant: &TenantId,
        endpoint: EndpointId,
        secret: &SecretText,
    ) -> Stored<Vec<u8>> {
        let text = secret.expose().as_bytes();
        self.chaos.call("keyring.seal", || [&context(tenant, endpoint), text].concat()).await
    }

    async fn unseal(
        &self,
        tenant: &TenantId,
        endpoint: EndpointId,
        sealed: &[u8],
    ) -> Stored<SecretText> {
        let context = context(tenant, endpoint);
        let unseal = || {
            let text = sealed.strip_prefix(context.as_slice())?;
            Some(SecretText::new(String::from_utf8(text.to_vec()).ok()?))
        };
        let refused = || StoreError::Refused("sealed for another endpoint".into());
        self.chaos.call("keyring.unseal", unseal).await?.ok_or_else(refused)
    }
}

/// The secrets of sources.
#[derive(Debug, Default)]
pub struct MemorySecrets {
    /// Decides which calls fail.
    pub chaos: Chaos,
    secrets: Mutex<BTreeMap<SourceName, Vec<SourceSecret>>>,
}

impl MemorySecrets {
    /// Replaces the secrets of a source.
    pub fn set(&self, source: &SourceName, secrets: Vec<SourceSecret>) {
        let mut all = self.secrets.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(source.clone(), secrets);
    }

    async fn change(
        &self,
        name: &'static str,
        source: &SourceName,
        change: impl FnOnce(Vec<SourceSecret>) -> (Changed, Vec<SourceSecret>),
    ) -> Stored<Changed> {
        let change = || {
            let mut all = self.secrets.lock().unwrap_or_else(PoisonError::into_inner);
            let (changed, list) = change(all.get(source).cloned().unwrap_or_default());
            if changed == Changed::Yes {
                all.insert(source.clone(), list);
            }
            changed
        };
        self.chaos.call(name, change).await
    }
}

impl SourceSecrets for MemorySecrets {
    async fn of(&self, source: &SourceName) -> Stored<Vec<SourceSecret>> {
        let read = || {
            let all = self.secrets.lock().unwrap_or_else(PoisonError::into_inner);
            all.get(source).cloned().unwrap_or_default()
        };
        self.chaos.call("secrets.of", read).await
    }
}

impl SetSourceSecrets for MemorySecrets {
    async fn create(&self, source: &SourceName, secrets: &[SourceSecret]) -> Stored<bool> {
        let create = || {
            let mut all = self.secrets.lock().unwrap_or_else(PoisonError::into_inner);
            if all.contains_key(source) {
                return false;
            }
            all.insert(source.clone(), secrets.to_vec());
            true
        };
        self.chaos.call("secrets.create", create).await
    }

    async fn add(
        &self,
        source: &SourceName,
        secret: &SourceSecret,
        others_end: Option<Timestamp>,
    ) -> Stored<Changed> {
        self.change("secrets.add", source, |list| with_added(list, secret, others_end)).await
    }

    async fn remove(&self, source: &SourceName, id: &str) -> Stored<Changed> {
        self.change("secrets.remove", source, |list| with_removed(list, id)).await
    }

    async fn expire(
        &self,
        source: &SourceName,
        id: &str,
        at: Option<Timestamp>,
    ) -> Stored<Changed> {
        self.change("secrets.expire", source, |list| with_expiry(list, id, at)).await
    }
}
