//! Configuration, read.

use aws_sdk_dynamodb::Client;
use domain::{
    endpoint::Endpoint,
    id::{EndpointId, SourceName, TenantId},
    ports::{Registry, Stored, WithSecrets},
    source::Source,
};
use futures_util::future::try_join;

use crate::{
    item::{Reader, s},
    items::registry::{read_endpoint, read_secrets, read_source, read_source_name},
    keys,
    table::{Range, Table, partition},
};

/// The table of the configuration.
#[derive(Clone, Debug)]
pub struct RegistryTable {
    /// The SDK's client.
    pub client: Client,
    /// The name of the table.
    pub table: String,
}

impl RegistryTable {
    pub(crate) fn table(&self) -> Table<'_> {
        Table { client: &self.client, name: &self.table }
    }
}

impl Registry for RegistryTable {
    async fn source(&self, name: &SourceName) -> Stored<Option<Source>> {
        self.table().get(keys::source(name)).await?.as_ref().map(read_source).transpose()
    }

    async fn endpoints_epoch(&self, tenant: &TenantId) -> Stored<u64> {
        let item = self.table().get(keys::endpoints_epoch(tenant)).await?;
        item.map_or(Ok(0), |item| Reader(&item).number("epoch"))
    }

    async fn endpoints(&self, tenant: &TenantId) -> Stored<Vec<Endpoint>> {
        let all = partition(keys::tenant_partition(tenant));
        let all = all.when("begins_with(#sk, :endpoints)", [("endpoints", s(keys::ENDPOINTS))]);
        self.table().rows(&Range::partition(all), read_endpoint).await
    }

    async fn endpoint(&self, tenant: &TenantId, id: EndpointId) -> Stored<Option<WithSecrets>> {
        let table = self.table();
        let endpoint = table.get(keys::endpoint(tenant, id));
        let secrets = table.get(keys::secrets(tenant, id));
        let (endpoint, secrets) = try_join(endpoint, secrets).await?;
        let Some(endpoint) = endpoint else { return Ok(None) };
        let secrets = secrets.as_ref().map(read_secrets).transpose()?.unwrap_or_default();
        Ok(Some((read_endpoint(&endpoint)?, secrets)))
    }

    async fn sources(&self) -> Stored<Vec<Source>> {
        let all = Range::partition(partition(keys::SOURCES.to_owned()));
        let names = self.table().rows(&all, read_source_name).await?;
        let items = self.table().get_all(names.iter().map(keys::source)).await?;
        let mut sources = items.iter().map(read_source).collect::<Stored<Vec<_>>>()?;
        sources.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(sources)
    }
}
