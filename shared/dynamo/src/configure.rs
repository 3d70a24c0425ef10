//! Configuration, written.

use domain::{
    commit::Reason,
    endpoint::{Endpoint, Gone},
    id::{EndpointId, SourceName, TenantId},
    ports::{AuditEntry, Configure, Learning, SealedSecret, Stored, WithSecrets},
    source::Source,
};
use futures_util::future::try_join;
use jiff::Timestamp;

use aws_sdk_dynamodb::types::TransactWriteItem;

use crate::{
    error::cancelled,
    expression::Expression,
    item::{Item, ms, s},
    items::registry::{
        read_endpoint, read_gone, read_secrets, read_source, write_audit, write_endpoint,
        write_endpoint_key, write_gone, write_secrets, write_source, write_source_name,
    },
    keys,
    registry::RegistryTable,
    table::{Transacted, Write, transact},
};

impl RegistryTable {
    /// Writes all of it, if all of its conditions hold.
    async fn write(&self, actions: Vec<TransactWriteItem>) -> Stored<bool> {
        match transact(&self.client, actions, None).await? {
            Transacted::Done => Ok(true),
            Transacted::Cancelled(reasons) if reasons.contains(&Reason::ConditionFailed) => {
                Ok(false)
            }
            Transacted::Cancelled(reasons) => Err(cancelled(&reasons)),
        }
    }

    /// What stands in the table of an endpoint and of its secrets; an item that is absent is empty.
    async fn stands(&self, endpoint: &Endpoint) -> Stored<(Item, Item)> {
        let (table, Endpoint { tenant, id, .. }) = (self.table(), endpoint);
        let endpoint = table.get(keys::endpoint(tenant, *id));
        let (endpoint, secrets) = try_join(endpoint, table.get(keys::secrets(tenant, *id))).await?;
        Ok((endpoint.unwrap_or_default(), secrets.unwrap_or_default()))
    }

    fn next_epoch(&self, tenant: &TenantId) -> Stored<TransactWriteItem> {
        let change = Expression::new().set("kind", s("endpoints_epoch")).count_up("epoch");
        self.table().updating(keys::endpoints_epoch(tenant), &change)
    }
}

/// Only if an item still has what it had: by what is written there, which an earlier version may have written in another
/// way. An absent item has nothing.
fn as_it_stands(item: &Item, name: &str) -> Expression {
    match item.get(name) {
        Some(value) => Expression::new().when(&format!("#{name} = :old"), [("old", value.clone())]),
        None => Expression::absent(),
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
        let mut actions = vec![
            table.putting(write_endpoint(endpoint)?, &Expression::absent())?,
            table.putting(sealed, &Expression::new())?,
            self.next_epoch(&endpoint.tenant)?,
        ];
        if let Some(key) = &endpoint.key {
            let key = write_endpoint_key(endpoint, key);
            actions.push(table.putting(key, &Expression::absent())?);
        }
        self.write(actions).await
    }

    async fn replace_endpoint(&self, old: &WithSecrets, new: &WithSecrets) -> Stored<bool> {
        let (table, (endpoint, sealed)) = (self.table(), self.stands(&old.0).await?);
        if endpoint.is_empty() || read_endpoint(&endpoint)? != old.0 {
            return Ok(false);
        }
        let secrets = if sealed.is_empty() { Vec::new() } else { read_secrets(&sealed)? };
        if secrets != old.1 {
            return Ok(false);
        }
        let written = write_secrets(&old.0.tenant, old.0.id, &new.1);
        self.write(vec![
            table.putting(write_endpoint(&new.0)?, &as_it_stands(&endpoint, "endpoint"))?,
            table.putting(written, &as_it_stands(&sealed, "secrets"))?,
            self.next_epoch(&old.0.tenant)?,
        ])
        .await
    }

    async fn remove_endpoint(&self, old: &Endpoint, now: Timestamp) -> Stored<bool> {
        let (table, key) = (self.table(), keys::endpoint(&old.tenant, old.id));
        let Some(item) = table.get(key.clone()).await? else { return Ok(false) };
        if read_endpoint(&item)? != *old {
            return Ok(false);
        }
        let (secrets, anyway) = (keys::secrets(&old.tenant, old.id), Expression::new());
        let gone = write_gone(&Gone { endpoint: old.clone(), deleted_at: now })?;
        let mut actions = vec![
            table.deleting(key, &as_it_stands(&item, "endpoint"))?,
            table.deleting(secrets, &anyway)?,
            table.putting(gone, &anyway)?,
            self.next_epoch(&old.tenant)?,
        ];
        if let Some(key) = &old.key {
            actions.push(table.deleting(keys::endpoint_key(&old.tenant, key), &anyway)?);
        }
        self.write(actions).await
    }

    async fn gone(&self, tenant: &TenantId, ids: &[EndpointId]) -> Stored<Vec<Gone>> {
        let keys = ids.iter().map(|id| keys::gone(tenant, *id));
        self.table().get_all(keys).await?.iter().map(read_gone).collect()
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
