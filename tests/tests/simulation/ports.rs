//! The store as the simulated processes see it: with conflicts, with events that kill their process, and, on request,
//! with one of its promises broken.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use domain::{
    commit::{Action, Answer, Commit, LeaseProof, Reason, tie_of},
    endpoint::Endpoint,
    event::{Object, ObjectRef},
    id::{EndpointId, EventId, InboxKey, SourceName, TenantId},
    inbox::Status,
    outbox::OutboxRow,
    plan::Guard,
    ports::{Lease, Registry, SealedSecret, State, StoreError, Stored},
    source::Source,
};
use jiff::Timestamp;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use testkit::memory::Store;

use crate::subscriber;

/// A promise that is broken on purpose, to see that the simulation would notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// The sweeper never runs.
    NoSweeper,
    /// The provider gets its 2xx whether or not the row was stored.
    AnswersBeforeStoring,
    /// Objects are written whatever their version.
    UnguardedObjects,
    /// Operation keys are not kept.
    ForgetsOperations,
    /// Neither operation keys nor the states of orders are kept.
    ForgetsOrders,
    /// The row is finished after the transaction, in a write of its own.
    FinishesApart,
    /// The outgoing event is written after the transaction, in a write of its own.
    EmitsApart,
    /// The commit does not look at the row's status.
    FinishesWhatever,
    /// The worker is not told how often a message was received, so no attempt is counted before it runs.
    CountsLate,
    /// Each try of an outgoing event gets an id of its own.
    FreshIds,
    /// Nobody reads the provider's list.
    NoReconciler,
    /// What cannot be done is given up without a word: its row goes away.
    DropsParked,
}

/// The tables, as processes see them.
#[derive(Debug)]
pub(crate) struct Sim {
    /// The tables themselves.
    pub(crate) store: Store,
    /// What is broken.
    pub(crate) broken: Option<Broken>,
    /// Events whose handling kills the process, each time.
    pub(crate) killers: Mutex<BTreeSet<InboxKey>>,
    /// Events whose handling fails until then, because of a mistake in the code that is mended by then.
    pub(crate) mistakes: Mutex<BTreeMap<InboxKey, Timestamp>>,
    killed: AtomicBool,
    conflicts: Mutex<Option<(StdRng, f64)>>,
}

impl Sim {
    /// Empty tables.
    pub(crate) fn new(broken: Option<Broken>) -> Self {
        Self {
            store: Store::new(4),
            broken,
            killers: Mutex::default(),
            mistakes: Mutex::default(),
            killed: AtomicBool::new(false),
            conflicts: Mutex::default(),
        }
    }

    /// How many of the transactions meet another one.
    pub(crate) fn set_conflicts(&self, seed: u64, share: f64) {
        *self.conflicts.lock().unwrap_or_else(PoisonError::into_inner) =
            (share > 0.0).then(|| (StdRng::seed_from_u64(seed), share));
    }

    /// Whether the process that was polled last has died. Reading it brings the next one to life.
    pub(crate) fn crashed(&self) -> bool {
        self.store.chaos.crashed() | self.killed.swap(false, Ordering::Relaxed)
    }

    fn is_killer(&self, key: &InboxKey) -> bool {
        self.killers.lock().unwrap_or_else(PoisonError::into_inner).contains(key)
    }

    /// Whether the code that handles an event is wrong at the moment.
    fn is_mistaken(&self, key: &InboxKey) -> bool {
        let mistakes = self.mistakes.lock().unwrap_or_else(PoisonError::into_inner);
        mistakes.get(key).is_some_and(|mended| subscriber::now() < *mended)
    }

    /// A refusal in which one item, perhaps the row itself, is held by somebody else.
    fn conflict(&self, commit: &Commit) -> Option<Answer> {
        let mut conflicts = self.conflicts.lock().unwrap_or_else(PoisonError::into_inner);
        let (rng, share) = conflicts.as_mut()?;
        if !rng.random_bool(*share) {
            return None;
        }
        let held = rng.random_range(0..commit.actions().len());
        let reason = |n| if n == held { Reason::Conflict } else { Reason::None };
        Some(Answer::Refused((0..commit.actions().len()).map(reason).collect()))
    }

    fn set_objects(&self, commit: &Commit) {
        let mut tables = self.store.tables();
        for action in commit.actions() {
            let Action::Guard(
                Guard::Newer { object, version, fields, deleted }
                | Guard::Unchanged { object, version, fields, deleted, .. },
            ) = action
            else {
                continue;
            };
            let written = Object {
                version: version.clone(),
                tie: tie_of(fields, *deleted),
                fields: fields.clone(),
                deleted: *deleted,
                updated_at: commit.now,
                as_of: commit.knowledge.as_of,
                fetched: commit.knowledge.fetched,
            };
            tables.objects.insert((commit.claim.key.source().clone(), object.clone()), written);
        }
    }

    /// Carries a commit out although its row is not pending.
    fn finish(&self, commit: &Commit) {
        self.set_objects(commit);
        if let Some(item) = self.store.tables().inbox.get_mut(&commit.claim.key) {
            (item.row.status, item.row.due_at) = (Status::Processed, None);
        }
    }

    fn forget_objects(&self, commit: &Commit) {
        let mut tables = self.store.tables();
        for action in commit.actions() {
            if let Action::Guard(Guard::Newer { object, .. } | Guard::Unchanged { object, .. }) =
                action
            {
                tables.objects.remove(&(commit.claim.key.source().clone(), object.clone()));
            }
        }
    }

    /// Writes the outgoing events of a commit that was carried out without them.
    async fn emit(&self, commit: &Commit) -> Stored<()> {
        // A call, so that a process may die between the transaction and this.
        let _ = self.store.object(commit.claim.key.source(), &nothing()).await?;
        let mut tables = self.store.tables();
        for event in commit.changes.iter().flat_map(|change| &change.events) {
            let row = OutboxRow { event: event.clone(), relayed: None };
            tables.outbox.entry((event.tenant.clone(), event.id)).or_insert(row);
        }
        Ok(())
    }
}

fn nothing() -> ObjectRef {
    ObjectRef { kind: "nothing".to_owned(), id: "nothing".to_owned() }
}

impl State for Sim {
    async fn object(&self, source: &SourceName, object: &ObjectRef) -> Stored<Option<Object>> {
        let found = self.store.object(source, object).await?;
        // Without the guard nothing would notice that the state is newer, so the shortcut may not either.
        Ok(found.filter(|_| self.broken != Some(Broken::UnguardedObjects)))
    }

    async fn commit(&self, commit: &Commit) -> Stored<Answer> {
        if self.is_killer(&commit.claim.key) {
            self.killed.store(true, Ordering::Relaxed);
            return std::future::pending().await;
        }
        if self.broken == Some(Broken::DropsParked) {
            self.store.tables().inbox.retain(|_, item| item.row.status != Status::DeadLetter);
        }
        if self.is_mistaken(&commit.claim.key) {
            return Err(StoreError::Refused("the code is wrong".into()));
        }
        if let Some(conflict) = self.conflict(commit) {
            return Ok(conflict);
        }
        match self.broken {
            Some(Broken::UnguardedObjects) => {
                let objects = self.store.tables().objects.clone();
                self.forget_objects(commit);
                let answer = self.store.commit(commit).await?;
                if answer != Answer::Applied {
                    self.store.tables().objects = objects;
                }
                Ok(answer)
            }
            Some(Broken::ForgetsOperations) => {
                let answer = self.store.commit(commit).await?;
                self.store.tables().operations.clear();
                Ok(answer)
            }
            Some(Broken::ForgetsOrders) => {
                let answer = self.store.commit(commit).await?;
                let mut tables = self.store.tables();
                tables.operations.clear();
                tables.objects.retain(|(_, object), _| object.kind != "order");
                Ok(answer)
            }
            Some(Broken::FinishesApart) => {
                self.set_objects(commit);
                self.emit(commit).await?;
                self.store.commit(commit).await
            }
            Some(Broken::EmitsApart) => {
                let mut first = commit.clone();
                for change in &mut first.changes {
                    change.events.clear();
                }
                let answer = self.store.commit(&first).await?;
                if answer == Answer::Applied {
                    self.emit(commit).await?;
                }
                // The refusal of the whole has one reason more for each event.
                Ok(match answer {
                    Answer::Refused(mut reasons) => {
                        reasons.resize(commit.actions().len(), Reason::None);
                        Answer::Refused(reasons)
                    }
                    Answer::Applied => Answer::Applied,
                })
            }
            Some(Broken::FinishesWhatever) => {
                let answer = self.store.commit(commit).await?;
                let only_the_row = |reasons: &[Reason]| {
                    matches!(reasons, [Reason::ConditionFailed, rest @ ..]
                        if rest.iter().all(|reason| *reason == Reason::None))
                };
                match &answer {
                    Answer::Refused(reasons) if only_the_row(reasons) => {
                        self.finish(commit);
                        Ok(Answer::Applied)
                    }
                    _ => Ok(answer),
                }
            }
            Some(Broken::FreshIds) => {
                let mut commit = commit.clone();
                let fresh = commit.now.as_nanosecond().to_string();
                for event in commit.changes.iter_mut().flat_map(|change| &mut change.events) {
                    event.id = EventId::derived(commit.now, &[&event.id.to_string(), &fresh]);
                }
                self.store.commit(&commit).await
            }
            _ => self.store.commit(commit).await,
        }
    }

    async fn lease(
        &self,
        what: &str,
        owner: &str,
        now: Timestamp,
        until: Timestamp,
    ) -> Stored<Lease> {
        self.store.lease(what, owner, now, until).await
    }

    async fn give_back(&self, lease: &LeaseProof, now: Timestamp) -> Stored<()> {
        self.store.give_back(lease, now).await
    }
}

/// The registry as workers see it: it is always there.
#[derive(Clone, Debug)]
pub(crate) struct AlwaysThere(pub(crate) Arc<Store>);

impl Registry for AlwaysThere {
    async fn source(&self, name: &SourceName) -> Stored<Option<Source>> {
        self.0.source(name).await
    }

    async fn endpoints_epoch(&self, tenant: &TenantId) -> Stored<u64> {
        self.0.endpoints_epoch(tenant).await
    }

    async fn endpoints(&self, tenant: &TenantId) -> Stored<Vec<Endpoint>> {
        self.0.endpoints(tenant).await
    }

    async fn endpoint(
        &self,
        tenant: &TenantId,
        id: EndpointId,
    ) -> Stored<Option<(Endpoint, Vec<SealedSecret>)>> {
        self.0.endpoint(tenant, id).await
    }

    async fn sources(&self) -> Stored<Vec<Source>> {
        self.0.sources().await
    }
}
