//! Configuration, written.

use domain::{
    commit::Reason,
    endpoint::Endpoint,
    id::{SourceName, TenantId},
    ports::{AuditEntry, Configure, Learning, SealedSecret, Stored},
    source::Source,
};
use jiff::Timestamp;

use aws_sdk_dynamodb::types::TransactWriteItem;

use crate::{
    error::cancelled,
    expression::Expression,
    item::{ms, s},
    items::registry::{
        read_source, write_audit, write_endpoint, write_secrets, write_source, write_source_name,
    },
    keys,
    registry::RegistryTable,
    table::{Transacted, Write, transact},
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

    async fn replace_source(&self, old: &Source, new: &Source) -> Stored<bool> {
        let (table, key) = (self.table(), keys::source(&old.name));
        let Some(item) = table.get(key.clone()).await? else { return Ok(false) };
        if read_source(&item)? != *old {
            return Ok(false);
        }
        // The condition is on the text as it stands, which an earlier version may have written in another way. Only these
        // attributes: a handshake's claim stands beside them.
        let mut written = write_source(new)?;
        let mut change = Expression::new()
            .set_or_clear("source", written.remove("source"))
            .set_or_clear("awaits_until", written.remove("awaits_until"));
        change = match item.get("source") {
            Some(text) => change.when("#source = :old_source", [("old_source", text.clone())]),
            None => return Ok(false),
        };
        change = match item.get("awaits_until") {
            Some(until) => {
                change.when("#awaits_until = :old_until", [("old_until", until.clone())])
            }
            None => change.when("attribute_not_exists(#awaits_until)", []),
        };
        Ok(matches!(table.update(key, &change).await?, Write::Done(_)))
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

impl Learning for RegistryTable {
    async fn claim_secret(
        &self,
        source: &SourceName,
        owner: &str,
        now: Timestamp,
        until: Timestamp,
    ) -> Stored<bool> {
        // Only these attributes: the role of whoever learns may write no others.
        let change = Expression::new()
            .set("claim_owner", s(owner))
            .set("claim_until", ms(until))
            .when("#awaits_until > :now", [("now", ms(now))])
            .when(
                "attribute_not_exists(#claim_until) OR #claim_until <= :now OR #claim_owner = :claim_owner",
                [],
            );
        let write = self.table().update(keys::source(source), &change).await?;
        Ok(matches!(write, Write::Done(_)))
    }

    async fn learned(&self, source: &SourceName, owner: &str) -> Stored<bool> {
        let change = Expression::new()
            .clear(["awaits_until", "claim_owner", "claim_until"])
            .when("#claim_owner = :owner", [("owner", s(owner))]);
        let write = self.table().update(keys::source(source), &change).await?;
        Ok(matches!(write, Write::Done(_)))
    }
}
