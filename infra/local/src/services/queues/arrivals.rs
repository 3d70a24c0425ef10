//! Who waits for messages of a queue.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, RwLock},
};

use tokio::sync::Notify;

/// One bell per queue, by ARN.
#[derive(Debug, Default)]
pub(super) struct Arrivals(RwLock<BTreeMap<String, Arc<Notify>>>);

impl Arrivals {
    /// Bells for these queues.
    pub(super) fn of<'a>(arns: impl Iterator<Item = &'a String>) -> Self {
        let bells = arns.map(|arn| (arn.clone(), Arc::default())).collect();
        Self(RwLock::new(bells))
    }

    /// A queue's bell.
    pub(super) fn get(&self, arn: &str) -> Option<Arc<Notify>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(arn).cloned()
    }

    /// Rings every bell.
    pub(super) fn wake_all(&self) {
        for bell in self.0.read().unwrap_or_else(PoisonError::into_inner).values() {
            bell.notify_waiters();
        }
    }

    /// A bell for a queue that was just made.
    pub(super) fn add(&self, arn: &str) {
        let mut bells = self.0.write().unwrap_or_else(PoisonError::into_inner);
        bells.entry(arn.to_owned()).or_default();
    }
}
