//! A small deployment that suites about failures share: two sources, one endpoint, and what must be true in the end.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use crate::{
    host::{Host, Setup},
    now,
    provider::{Event, Provider},
    subscriber::Subscriber,
};

/// Whose endpoints are told.
pub const TENANT: &str = "stage";

/// A host with one forwarded source, one mirrored one, and one endpoint that hears of both.
#[derive(Debug)]
pub struct Stage {
    /// The host.
    pub host: Host,
    /// Who listens at the endpoint.
    pub subscriber: Subscriber,
    /// Calls the source whose events go out as they came.
    pub forwarded: Provider,
    /// Calls the source whose objects are followed.
    pub mirrored: Provider,
}

impl Stage {
    /// Starts a host of its own, whose faults strike nobody else.
    ///
    /// # Errors
    /// The host does not come up.
    pub async fn set() -> Result<Self> {
        let host = Host::start(Setup::IN_MEMORY).await?;
        let subscriber = host.subscriber().await?;
        let (forwarded, mirrored) = (Provider::stripe("forwarded")?, Provider::stripe("mirrored")?);
        let api = host.api()?;
        api.endpoint(TENANT, &subscriber.url()).await?;
        api.forward(&forwarded, TENANT).await?;
        api.mirror(&mirrored, Some(TENANT)).await?;
        Ok(Self { host, subscriber, forwarded, mirrored })
    }

    /// The event of this name, about an object of its own.
    pub fn event(name: &str) -> Event {
        let (id, invoice) = (format!("evt_{name}"), format!("in_{name}"));
        Event::stripe(&id, "invoice.paid", &invoice, now().as_second())
    }

    /// So many events of this name, of both sources.
    pub fn events(&self, name: &str, count: usize) -> Vec<(&Provider, Event)> {
        let of = |n: usize| if n.is_multiple_of(2) { &self.forwarded } else { &self.mirrored };
        (0..count).map(|n| (of(n), Self::event(&format!("{name}_{n}")))).collect()
    }

    /// Sends events, a few at a time, each until it is accepted.
    ///
    /// # Errors
    /// One is never accepted.
    pub async fn send(&self, events: &[(&Provider, Event)]) -> Result<()> {
        stream::iter(events)
            .map(|(provider, event)| provider.send_until_accepted(&self.host, event))
            .buffer_unordered(6)
            .try_for_each(|_| async { Ok(()) })
            .await
    }

    /// Waits until all that was ever sent had its effect, once, and its webhook has arrived, under one id and with its own
    /// bytes.
    ///
    /// # Errors
    /// It is not so.
    pub async fn ensure_whole(&self, events: &[(&Provider, Event)]) -> Result<()> {
        let (mut owed, api) = (BTreeMap::new(), self.host.api()?);
        for (provider, event) in events {
            let story = api.until_delivered(provider.source(), &event.id).await?;
            owed.insert(story.only_outgoing()?.id().to_owned(), event.body.clone());
        }
        ensure!(owed.len() == events.len(), "{} outgoing events", owed.len());
        let seen = self.subscriber.seen();
        for seen in &seen {
            ensure!(owed.get(seen.id()) == Some(&seen.body), "{} came with other bytes", seen.id());
        }
        let arrived: BTreeSet<_> = seen.iter().map(|seen| seen.id()).collect();
        ensure!(arrived.len() == owed.len(), "{} of {} webhooks came", arrived.len(), owed.len());
        let outbox = self.host.aws()?.items("OutboxTable").await?;
        let outbox: BTreeSet<_> = outbox.iter().filter_map(|item| item.text("sk")).collect();
        ensure!(outbox.len() == owed.len(), "{} outgoing events in the table", outbox.len());
        Ok(())
    }
}
