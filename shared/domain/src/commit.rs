//! Making a plan true in one transaction, and reading what a refusal means.
//!
//! A failed condition cancels the *whole* transaction, the mark on the inbox row included. So a refusal is read reason
//! by reason: what is merely old is dropped, and the rest is committed again.

use jiff::Timestamp;

use crate::{
    body::Sha256Hash,
    event::Version,
    id::EventId,
    inbox::{Applied, ChangeResult, Claim},
    outbox::OutboxEvent,
    plan::{BadPlan, Change, Guard, check},
};

/// Most times that a commit is narrowed and tried again within one attempt.
pub const MAX_ROUNDS: u32 = 3;

/// Proof of an object's lease, checked inside the transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseProof {
    /// What is leased.
    pub what: String,
    /// Who holds it.
    pub owner: String,
    /// The fence it was taken with; a later holder has a higher one.
    pub fence: u64,
}

/// One transaction: the inbox row is finished, and these changes are true.
#[derive(Clone, Debug, PartialEq)]
pub struct Commit {
    /// The row, as it was read.
    pub claim: Claim,
    /// When.
    pub now: Timestamp,
    /// When the finished row may go, in the table's own time.
    pub expires_at: Timestamp,
    /// What is still to be made true.
    pub changes: Vec<Staged>,
    /// The lease under which it was planned.
    pub lease: Option<LeaseProof>,
    /// What is already known of changes that were dropped.
    pub results: Vec<ChangeResult>,
}

/// A change whose outgoing events have their ids.
#[derive(Clone, Debug, PartialEq)]
pub struct Staged {
    /// What must hold.
    pub guard: Guard,
    /// The rows of the outbox.
    pub events: Vec<OutboxEvent>,
}

/// One action of the transaction. An item appears in one action only.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action<'a> {
    /// The inbox row becomes processed. Condition: pending, this cycle.
    Finish,
    /// A guard. Condition: the object is absent or older, or the operation is absent.
    Guard(&'a Guard),
    /// The lease is still ours. A check without a write.
    Lease(&'a LeaseProof),
    /// A row of the outbox. Condition: absent.
    Emit(&'a OutboxEvent),
}

/// Why an action did not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It would have happened, as far as the store looked. Beside a conflict this means unknown.
    None,
    /// Its condition does not hold.
    ConditionFailed,
    /// Another transaction holds the item.
    Conflict,
    /// The store is throttled, or another fault that passes.
    Transient,
    /// The store will never take it: too large, or malformed.
    Invalid,
}

/// What the store answered to a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// All of it is true.
    Applied,
    /// None of it is true, and why: one reason for each action, in order.
    Refused(Vec<Reason>),
}

/// What follows from an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// It is true now; these are the results.
    Done(Vec<ChangeResult>),
    /// The row was finished, parked or re-armed by somebody else.
    Moved,
    /// Nothing was decided: try the attempt again later. Does not count as an attempt.
    Later(&'static str),
    /// The lease is lost: whatever was planned under it may be old. Try again later.
    LeaseLost,
    /// Commit this instead: what is old has been dropped.
    Narrowed(Commit),
    /// Never.
    Invalid,
}

impl Commit {
    /// Stages changes: checks them, and gives each outgoing event its derived id.
    pub fn stage(
        claim: Claim,
        received_at: Timestamp,
        now: Timestamp,
        expires_at: Timestamp,
        changes: Vec<Change>,
        lease: Option<LeaseProof>,
    ) -> Result<Self, BadPlan> {
        check(&changes)?;
        let key = claim.key.to_string();
        let stage = |change: Change| Staged {
            guard: change.guard,
            events: change
                .events
                .into_iter()
                .map(|emit| {
                    let parts = [
                        key.as_str(),
                        emit.tenant.as_str(),
                        &emit.event_type,
                        &emit.aggregate_id,
                        &emit.name,
                    ];
                    OutboxEvent::from_emit(EventId::derived(received_at, &parts), emit, now)
                })
                .collect(),
        };
        let changes = changes.into_iter().map(stage).collect();
        Ok(Self { claim, now, expires_at, changes, lease, results: Vec::new() })
    }

    /// The actions, in the order in which they are written and their reasons are read.
    pub fn actions(&self) -> Vec<Action<'_>> {
        let guards = self.changes.iter().map(|change| &change.guard);
        let guards = guards.filter(|guard| **guard != Guard::Free).map(Action::Guard);
        let events = self.changes.iter().flat_map(|change| &change.events).map(Action::Emit);
        std::iter::once(Action::Finish)
            .chain(guards)
            .chain(self.lease.as_ref().map(Action::Lease))
            .chain(events)
            .collect()
    }

    /// Every change with its result, should the commit be applied as it is.
    pub fn results_if_applied(&self) -> Vec<ChangeResult> {
        let applied = |what: String| ChangeResult { what, result: Applied::Applied };
        let staged = self.changes.iter().flat_map(|change| {
            let events = change.events.iter().map(|event| applied(format!("event {}", event.id)));
            change.guard.what().map(applied).into_iter().chain(events).collect::<Vec<_>>()
        });
        self.results.iter().cloned().chain(staged).collect()
    }

    /// Reads an answer. The order of the questions matters: a finished row outranks everything, and a conflict or a
    /// fault outranks a failed guard, because beside them "none" means unknown.
    pub fn after(self, answer: &Answer) -> Next {
        let reasons = match answer {
            Answer::Applied => return Next::Done(self.results_if_applied()),
            Answer::Refused(reasons) => reasons,
        };
        let actions = self.actions();
        if actions.len() != reasons.len() {
            return Next::Later("the store's refusal has another shape than the transaction");
        }
        if reasons.first() == Some(&Reason::ConditionFailed) {
            return Next::Moved;
        }
        if reasons.contains(&Reason::Invalid) {
            return Next::Invalid;
        }
        if reasons.contains(&Reason::Conflict) {
            return Next::Later("another transaction holds one of the items");
        }
        if reasons.contains(&Reason::Transient) {
            return Next::Later("the store is busy");
        }
        let failed: Vec<bool> = reasons.iter().map(|r| *r == Reason::ConditionFailed).collect();
        let lease_lost = actions
            .iter()
            .zip(&failed)
            .any(|(action, failed)| *failed && matches!(action, Action::Lease(_)));
        if lease_lost {
            return Next::LeaseLost;
        }
        if !failed.contains(&true) {
            return Next::Later("the store refused the transaction without a reason");
        }
        Next::Narrowed(self.without_failed(&failed))
    }

    /// The same commit without the changes whose guards failed and without the events that exist.
    fn without_failed(self, failed: &[bool]) -> Self {
        let guards = self.changes.iter().filter(|change| change.guard != Guard::Free).count();
        let events_from = 1 + guards + usize::from(self.lease.is_some());
        let mut guard_failed = failed.iter().copied().skip(1);
        let mut event_failed = failed.iter().copied().skip(events_from);
        let mut results = self.results;
        let mut changes = Vec::new();
        for Staged { guard, events } in self.changes {
            let dropped = guard != Guard::Free && guard_failed.next().unwrap_or_default();
            let verdicts: Vec<bool> =
                events.iter().map(|_| event_failed.next().unwrap_or_default()).collect();
            if dropped {
                // What follows from a change that does not happen does not happen either.
                let result = match guard {
                    Guard::Newer { .. } => Applied::Stale,
                    Guard::Once(_) | Guard::Free => Applied::DuplicateEffect,
                };
                results.extend(guard.what().map(|what| ChangeResult { what, result }));
                continue;
            }
            let (exist, absent): (Vec<_>, Vec<_>) =
                events.into_iter().zip(verdicts).partition(|(_, exists)| *exists);
            results.extend(exist.into_iter().map(|(event, _)| ChangeResult {
                what: format!("event {}", event.id),
                result: Applied::AlreadyEmitted,
            }));
            let events: Vec<_> = absent.into_iter().map(|(event, _)| event).collect();
            if guard != Guard::Free || !events.is_empty() {
                changes.push(Staged { guard, events });
            }
        }
        Self { changes, results, ..self }
    }
}

/// Decides between two contents of one object, so that every order of arrival ends alike: by version, then by the hash
/// of the content.
pub fn is_newer(new: (&Version, &str), old: Option<(&Version, &str)>) -> bool {
    old.is_none_or(|old| new > old)
}

/// The tie-breaker of a content.
pub fn tie_of(fields: &serde_json::Value, deleted: bool) -> String {
    Sha256Hash::of(format!("{deleted}{fields}").as_bytes()).to_string()
}
