//! Configuration, written.

use jiff::Timestamp;

use super::{Registry, SealedSecret, Stored};
use crate::{
    endpoint::{Endpoint, Gone},
    id::{EndpointId, TenantId},
    source::Source,
};

/// An endpoint with its sealed secrets, as [`Registry::endpoint`] reads it.
pub type WithSecrets = (Endpoint, Vec<SealedSecret>);

/// Configuration, written by `api` only.
pub trait Configure: Registry {
    /// Puts a source; `false` if there is one of that name.
    fn add_source(&self, source: &Source) -> impl Future<Output = Stored<bool>> + Send;

    /// Replaces a source by what was made of `old`. `false`: it is not `old` any more, or gone: look again.
    fn replace_source(
        &self,
        old: &Source,
        new: &Source,
    ) -> impl Future<Output = Stored<bool>> + Send;

    /// Puts an endpoint and its secrets, and counts the tenant's epoch up, in one transaction. `false`: it exists, or
    /// another one of the tenant's has its key.
    fn add_endpoint(
        &self,
        endpoint: &Endpoint,
        secrets: &[SealedSecret],
    ) -> impl Future<Output = Stored<bool>> + Send;

    /// Replaces an endpoint and its secrets by what was made of `old`, and counts the tenant's epoch up, in one
    /// transaction. `false`: it is not `old` any more, or gone: look again. Its id and its key stay as they are.
    fn replace_endpoint(
        &self,
        old: &WithSecrets,
        new: &WithSecrets,
    ) -> impl Future<Output = Stored<bool>> + Send;

    /// Deletes an endpoint, its secrets and its key, leaves a tombstone, and counts the tenant's epoch up, in one
    /// transaction. `false`: it is not `old` any more, or gone: look again.
    fn remove_endpoint(
        &self,
        old: &Endpoint,
        now: Timestamp,
    ) -> impl Future<Output = Stored<bool>> + Send;

    /// Those of these endpoints that were deleted, in no order.
    fn gone(
        &self,
        tenant: &TenantId,
        ids: &[EndpointId],
    ) -> impl Future<Output = Stored<Vec<Gone>>> + Send;

    /// Writes down who did what.
    fn audit(&self, entry: &AuditEntry) -> impl Future<Output = Stored<()>> + Send;
}

/// Who did what, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// Whose things, or `-` for the deployment's.
    pub tenant: String,
    /// When.
    pub at: Timestamp,
    /// Who, as the gateway named the caller.
    pub actor: String,
    /// What, such as `endpoint.create`.
    pub action: String,
    /// To what.
    pub subject: String,
}
