//! Configuration, written.

use domain::{
    commit::Reason,
    endpoint::Endpoint,
    id::TenantId,
    ports::{AuditEntry, Configure, SealedSecret, Stored},
    source::Source,
};

use aws_sdk_dynamodb::types::TransactWriteItem;

use crate::{
    error::cancelled,
    expression::Expression,
    item::s,
    items::registry::{
        write_audit, write_endpoint, write_secrets, write_source, write_source_name,
    },
    keys,
    registry::RegistryTable,
    table::{Transacted, transact},
};

impl RegistryTable {
    /// Writes all of it, if the condition of the first action holds.
    async fn write(&self, actions: Vec<TransactWriteItem>) -> Stored<bool> {
        match transact(&self.client, actions, None).await? {
            Transacted::Done => Ok(true),
            Transacted::Cancelled(reasons) if reasons.first() == Some(&Reason::ConditionFailed) => {
                Ok(false)
            }
            Transacted::Cancelled(reasons) => Err(cancelled(&reasons)),
        }
    }

    fn next_epoch(&self, tenant: &TenantId) -> Stored<TransactWriteItem> {
        let change = Expression::new().set("kind", s("endpoints_epoch")).count_up("epoch");
        self.table().updating(keys::endpoints_epoch(tenant), &change)
    }
}

impl Configure for RegistryTable {
    async fn add_source(&self, source: &Source) -> Stored<bool> {
        let table = self.table();
        self.write(vec![
            table.putting(write_source(source)?, &Expression::absent())?,
            table.putting(write_source_name(&source.name), &Expression::new())?,
        ])
        .await
    }

    async fn add_endpoint(&self, endpoint: &Endpoint, secrets: &[SealedSecret]) -> Stored<bool> {
        let table = self.table();
        let sealed = write_secrets(&endpoint.tenant, endpoint.id, secrets);
        self.write(vec![
            table.putting(write_endpoint(endpoint)?, &Expression::absent())?,
            table.putting(sealed, &Expression::new())?,
            self.next_epoch(&endpoint.tenant)?,
        ])
        .await
    }

    async fn replace_endpoint(&self, endpoint: &Endpoint) -> Stored<bool> {
        let present = Expression::new().when("attribute_exists(#pk)", []);
        self.write(vec![
            self.table().putting(write_endpoint(endpoint)?, &present)?,
            self.next_epoch(&endpoint.tenant)?,
        ])
        .await
    }

    async fn audit(&self, entry: &AuditEntry) -> Stored<()> {
        self.table().put_anyway(write_audit(entry)).await
    }
}
