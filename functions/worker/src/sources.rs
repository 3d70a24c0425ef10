//! What is done with each source's events, remembered for a while.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use domain::{
    id::SourceName,
    ports::{Registry, Stored},
    source::Source,
};
use jiff::Timestamp;

/// Sources as the registry had them. A change of a source is seen after `fresh` at the latest.
#[derive(Debug)]
pub struct Sources<R> {
    registry: R,
    fresh: Duration,
    stale: Duration,
    known: Mutex<BTreeMap<SourceName, (Timestamp, Source)>>,
}

impl<R: Registry> Sources<R> {
    /// Remembers each source for `fresh`, and for `stale` while the registry cannot be read.
    pub fn new(registry: R, fresh: Duration, stale: Duration) -> Self {
        Self { registry, fresh, stale, known: Mutex::default() }
    }

    /// A source; `None` if there is none. That there is none is not remembered.
    pub async fn of(&self, name: &SourceName, now: Timestamp) -> Stored<Option<Source>> {
        let known = self.known().get(name).cloned();
        let younger = |than: Duration| {
            known.clone().filter(|(at, _)| at.saturating_add(than).is_ok_and(|until| now < until))
        };
        if let Some((_, source)) = younger(self.fresh) {
            return Ok(Some(source));
        }
        match (self.registry.source(name).await, younger(self.stale)) {
            (Ok(Some(source)), _) => {
                self.known().insert(name.clone(), (now, source.clone()));
                Ok(Some(source))
            }
            (Err(error), Some((_, source))) if error.is_transient() => Ok(Some(source)),
            (answer, _) => answer,
        }
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<SourceName, (Timestamp, Source)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
