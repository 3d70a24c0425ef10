//! What is done with each source's events, and how they are read, remembered for a while.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use domain::{
    id::SourceName,
    ports::{Registry, SourceSecrets, Stored, Turns},
    source::{Paused, Source},
};
use fetch::{Fetcher, NoFetcher};
use flow::scheme::{self, NoScheme};
use jiff::Timestamp;
use signing::Scheme;

use crate::fetching::{Ask, Asker, Provider};

/// A source, ready to read its events.
#[derive(Debug)]
pub struct Feed {
    /// Its configuration.
    pub source: Source,
    /// What its requests look like, if this version knows.
    pub scheme: Result<Scheme, NoScheme>,
    /// How its provider is asked, if it is and this version knows.
    pub fetcher: Option<Result<Fetcher, NoFetcher>>,
}

impl Feed {
    /// Whether the versions of its events order all changes of an object.
    pub fn trusts_versions(&self) -> bool {
        self.scheme.as_ref().is_ok_and(Scheme::trusts_versions)
    }
}

/// Sources as the registry had them. A change of a source is seen after `fresh` at the latest.
#[derive(Debug)]
pub struct Sources<R> {
    registry: R,
    fresh: Duration,
    stale: Duration,
    known: Mutex<BTreeMap<SourceName, (Timestamp, Arc<Feed>)>>,
    asker: Option<Arc<dyn Ask>>,
}

impl<R: Registry> Sources<R> {
    /// Remembers each source for `fresh`, and for `stale` while the registry cannot be read.
    pub fn new(registry: R, fresh: Duration, stale: Duration) -> Self {
        Self { registry, fresh, stale, known: Mutex::default(), asker: None }
    }

    /// The same, with a way to their providers.
    #[must_use]
    pub fn asking<T, K, P, N>(mut self, asker: Asker<T, K, P, N>) -> Self
    where
        T: Turns + Send + 'static,
        K: SourceSecrets + Send + 'static,
        P: Provider + Send + 'static,
        N: Fn() -> Timestamp + Send + Sync + 'static,
    {
        self.asker = Some(Arc::new(asker));
        self
    }

    /// The way to their providers.
    pub(crate) fn asker(&self) -> Option<&dyn Ask> {
        self.asker.as_deref()
    }

    /// A source as it was read last, however long ago.
    pub fn known_of(&self, name: &SourceName) -> Option<Arc<Feed>> {
        self.known().get(name).map(|(_, feed)| Arc::clone(feed))
    }

    /// A source; `None` if there is none. That there is none is not remembered.
    pub async fn of(&self, name: &SourceName, now: Timestamp) -> Stored<Option<Arc<Feed>>> {
        let known = self.known().get(name).cloned();
        let younger = |than: Duration| {
            known.clone().filter(|(at, _)| at.saturating_add(than).is_ok_and(|until| now < until))
        };
        if let Some((_, feed)) = younger(self.fresh) {
            return Ok(Some(feed));
        }
        match (self.registry.source(name).await, younger(self.stale)) {
            (Ok(Some(source)), _) => Ok(Some(self.remember(source, now))),
            (Ok(None), _) => Ok(None),
            (Err(error), Some((_, feed))) if error.is_transient() => Ok(Some(feed)),
            (Err(error), _) => Err(error),
        }
    }

    /// Whether a source is paused. A pause is asked for again before it is believed: an event that is put off after its
    /// source was resumed would wait for hours. That there is none is believed as long as the source is.
    pub async fn paused(&self, name: &SourceName, now: Timestamp) -> Stored<Option<Paused>> {
        if self.of(name, now).await?.is_none_or(|feed| feed.source.paused.is_none()) {
            return Ok(None);
        }
        let Some(source) = self.registry.source(name).await? else {
            self.known().remove(name);
            return Ok(None);
        };
        Ok(self.remember(source, now).source.paused.clone())
    }

    fn remember(&self, source: Source, now: Timestamp) -> Arc<Feed> {
        let feed = Arc::new(Feed {
            scheme: scheme::of(&source),
            fetcher: fetch::source::of(&source),
            source,
        });
        self.known().insert(feed.source.name.clone(), (now, Arc::clone(&feed)));
        feed
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<SourceName, (Timestamp, Arc<Feed>)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use domain::source::{Handler, SchemeChoice};
    use testkit::{
        chaos::{Fault, When},
        memory::Store,
    };

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn shop() -> SourceName {
        "shop".parse().unwrap()
    }

    fn known() -> Sources<Store> {
        let scheme = SchemeChoice::Preset("stripe".to_owned());
        let source =
            Source::new(shop(), scheme, Handler::Mirror { emit_to: None, states: None }, at(0));
        let sources =
            Sources::new(Store::new(1), Duration::from_secs(300), Duration::from_secs(3600));
        sources.registry.tables().sources.insert(shop(), source);
        sources
    }

    #[tokio::test]
    async fn a_source_is_read_once_while_it_is_fresh() {
        let sources = known();
        for (second, reads) in [(0, 1), (299, 1), (300, 2), (599, 2), (600, 3)] {
            assert!(sources.of(&shop(), at(second)).await.unwrap().is_some());
            assert_eq!(sources.registry.chaos.calls().len(), reads, "{second}");
        }
    }

    /// RTY-store-outage
    #[tokio::test]
    async fn a_stale_source_is_better_than_none_for_a_while_and_for_passing_faults_only() {
        for (second, fault, is_known) in [
            (3599, Fault::Unavailable, true),
            (3599, Fault::Throttled, true),
            (3600, Fault::Unavailable, false),
            (300, Fault::Refused, false),
        ] {
            let sources = known();
            sources.of(&shop(), at(0)).await.unwrap();
            sources.registry.chaos.on("registry.source", When::Before, fault);
            let found = sources.of(&shop(), at(second)).await;
            assert_eq!(found.is_ok(), is_known, "{second} {fault:?}");
        }
    }

    #[tokio::test]
    async fn a_source_that_was_not_there_is_asked_for_again() {
        let sources = known();
        let source = sources.registry.tables().sources.remove(&shop()).unwrap();
        assert!(sources.of(&shop(), at(0)).await.unwrap().is_none());
        sources.registry.tables().sources.insert(shop(), source);
        assert!(sources.of(&shop(), at(0)).await.unwrap().is_some());
    }
}
