//! Making a plan true in one transaction, and reading what a refusal means.
//!
//! A failed condition cancels the *whole* transaction, the mark on the inbox row included. So a refusal is read reason
//! by reason: what is merely old is dropped, and the rest is committed again.

mod outcome;
#[cfg(test)]
mod tests;

use jiff::Timestamp;

pub use self::outcome::CommitOutcome;

use crate::{
    body::Sha256Hash,
    event::{Object, ObjectRef, Stamp, Version},
    id::EventId,
    inbox::{Applied, ChangeResult, Claim, with_earlier},
    outbox::OutboxEvent,
    plan::{BadPlan, Change, Guard, check},
};

/// Most times that one attempt asks the store to carry a commit out, narrowed or as it was.
pub const MAX_ROUNDS: u32 = 3;

/// Most times that one attempt plans its event, because an object was no longer as the plan had seen it. Each time,
/// one of those who change the object gets through.
pub const MAX_PLANS: u32 = 5;

/// What an attempt waits for when another transaction held an item in every round.
pub const HELD: &str = "another transaction holds one of the items";

/// What an attempt waits for when the object had changed every time it was planned.
pub const RESTLESS: &str = "others changed the object each time the event was planned";

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

/// Of when a plan's knowledge of the world is. Written into every object that it changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Knowledge {
    /// See [`Object::as_of`].
    pub as_of: Timestamp,
    /// Whether the provider was asked.
    pub fetched: bool,
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
    /// Of when the plan's knowledge is.
    pub knowledge: Knowledge,
    /// What is still to be made true.
    pub changes: Vec<Staged>,
    /// The lease under which it was planned.
    pub lease: Option<LeaseProof>,
    /// What is already known of changes that were dropped.
    pub results: Vec<ChangeResult>,
    /// The results of the row's runs before this one.
    pub earlier: Vec<ChangeResult>,
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
    /// A guard. Condition: the object is absent or older, or as it was read, or the operation is absent.
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
    /// The store takes no more for the moment.
    Throttled,
    /// Another fault that passes.
    Transient,
    /// The store will never take it: it is larger than an item, or a transaction, may be.
    TooLarge,
    /// The store will never take it: malformed.
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
    /// Nothing was decided, and soon may be: another transaction holds one of the items for a moment.
    Again(Commit),
    /// Nothing was decided, for the store takes no more. Try the attempt again later; does not count as an attempt.
    Throttled,
    /// Nothing was decided: try the attempt again later. Does not count as an attempt.
    Later(&'static str),
    /// The lease is lost: whatever was planned under it may be old. Try again later.
    LeaseLost,
    /// An object is not as the plan saw it: read, and plan again.
    Replan,
    /// Commit this instead: what is old has been dropped. It may be [empty](Commit::is_empty).
    Narrowed(Commit),
    /// Never: it is too large.
    TooLarge,
    /// Never.
    Invalid,
}

impl Commit {
    /// Stages changes: checks them, gives each outgoing event its derived id, and makes refused transitions results.
    pub fn stage(
        claim: Claim,
        received_at: Timestamp,
        now: Timestamp,
        expires_at: Timestamp,
        changes: Vec<Change>,
        knowledge: Knowledge,
        lease: Option<LeaseProof>,
    ) -> Result<Self, BadPlan> {
        check(&changes)?;
        let refused = |change: &Change| match &change.guard {
            Guard::Refused { why, .. } => {
                Some(ChangeResult::refused(change.guard.what().unwrap_or_default(), why))
            }
            _ => None,
        };
        let results: Vec<_> = changes.iter().filter_map(refused).collect();
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
        let written = changes.into_iter().filter(|c| !matches!(c.guard, Guard::Refused { .. }));
        let changes = written.map(stage).collect();
        let earlier = Vec::new();
        Ok(Self { claim, now, expires_at, knowledge, changes, lease, results, earlier })
    }

    /// The same commit, of a row that was carried out before, with these results.
    #[must_use]
    pub fn after_runs(self, earlier: &[ChangeResult]) -> Self {
        Self { earlier: earlier.to_vec(), ..self }
    }

    /// The same commit, whose outgoing events carry the trace of their cause.
    #[must_use]
    pub fn traced(mut self, traceparent: Option<&str>) -> Self {
        for event in self.changes.iter_mut().flat_map(|change| &mut change.events) {
            event.traceparent = traceparent.map(str::to_owned);
        }
        self
    }

    /// The same commit without the changes that an object's state, read before, outranks already. That state can only
    /// have become newer, so a transaction with them is bound to be refused, and a refused transaction costs as much
    /// as one that is carried out.
    #[must_use]
    pub fn without_stale(self, read: &ObjectRef, current: &Object) -> Self {
        let old = (&current.version, current.tie.as_str());
        let is_stale = |action: &Action<'_>| match action {
            Action::Guard(Guard::Newer { object, version, fields, deleted }) => {
                object == read && !is_newer((version, &tie_of(fields, *deleted)), Some(old))
            }
            _ => false,
        };
        let failed: Vec<bool> = self.actions().iter().map(is_stale).collect();
        self.without_failed(&failed)
    }

    /// Whether nothing is left to be made true but the end of the row.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// The actions, in the order in which they are written and their reasons are read.
    pub fn actions(&self) -> Vec<Action<'_>> {
        let guards = self.changes.iter().map(|change| &change.guard);
        let guards = guards.filter(|guard| guard.is_action()).map(Action::Guard);
        let events = self.changes.iter().flat_map(|change| &change.events).map(Action::Emit);
        std::iter::once(Action::Finish)
            .chain(guards)
            .chain(self.lease.as_ref().map(Action::Lease))
            .chain(events)
            .collect()
    }

    /// Every change with its result, should the commit be applied as it is.
    pub fn results_if_applied(&self) -> Vec<ChangeResult> {
        let applied = |what: String| ChangeResult::new(what, Applied::Applied);
        let staged = self.changes.iter().flat_map(|change| {
            let events = change.events.iter().map(|event| applied(format!("event {}", event.id)));
            change.guard.what().map(applied).into_iter().chain(events).collect::<Vec<_>>()
        });
        with_earlier(self.results.iter().cloned().chain(staged).collect(), &self.earlier)
    }

    /// Reads an answer. The order of the questions matters: a finished row outranks everything, and a conflict or a
    /// fault outranks a failed guard, because beside them "none" means unknown. A lost lease outranks a plan that has
    /// to be made again, for that one would be made under the same lease; and that outranks what is merely old,
    /// because the plan that is made again says anew what there is to do.
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
        if reasons.contains(&Reason::TooLarge) {
            return Next::TooLarge;
        }
        if reasons.contains(&Reason::Throttled) {
            return Next::Throttled;
        }
        if reasons.contains(&Reason::Transient) {
            return Next::Later("the store is busy");
        }
        if reasons.contains(&Reason::Conflict) {
            return Next::Again(self);
        }
        let failed: Vec<bool> = reasons.iter().map(|r| *r == Reason::ConditionFailed).collect();
        let any_failed = |is: fn(&Action<'_>) -> bool| {
            actions.iter().zip(&failed).any(|(action, failed)| *failed && is(action))
        };
        if any_failed(|action| matches!(action, Action::Lease(_))) {
            return Next::LeaseLost;
        }
        if any_failed(|action| matches!(action, Action::Guard(Guard::Unchanged { .. }))) {
            return Next::Replan;
        }
        if !failed.contains(&true) {
            return Next::Later("the store refused the transaction without a reason");
        }
        Next::Narrowed(self.without_failed(&failed))
    }

    /// The same commit without the changes whose guards failed and without the events that exist.
    fn without_failed(self, failed: &[bool]) -> Self {
        let guards = self.changes.iter().filter(|change| change.guard.is_action()).count();
        let events_from = 1 + guards + usize::from(self.lease.is_some());
        let mut guard_failed = failed.iter().copied().skip(1);
        let mut event_failed = failed.iter().copied().skip(events_from);
        let mut results = self.results;
        let mut changes = Vec::new();
        for Staged { guard, events } in self.changes {
            let dropped = guard.is_action() && guard_failed.next().unwrap_or_default();
            let verdicts: Vec<bool> =
                events.iter().map(|_| event_failed.next().unwrap_or_default()).collect();
            if dropped {
                // What follows from a change that does not happen does not happen either.
                let result = match guard {
                    // One that has to be planned again is never dropped; see `after`.
                    Guard::Newer { .. } | Guard::Unchanged { .. } => Applied::Stale,
                    Guard::Once(_) | Guard::Free => Applied::DuplicateEffect,
                    Guard::Refused { .. } => Applied::Refused,
                };
                results.extend(guard.what().map(|what| ChangeResult::new(what, result)));
                continue;
            }
            let (exist, absent): (Vec<_>, Vec<_>) =
                events.into_iter().zip(verdicts).partition(|(_, exists)| *exists);
            results.extend(exist.into_iter().map(|(event, _)| {
                ChangeResult::new(format!("event {}", event.id), Applied::AlreadyEmitted)
            }));
            let events: Vec<_> = absent.into_iter().map(|(event, _)| event).collect();
            if guard.is_action() || !events.is_empty() {
                changes.push(Staged { guard, events });
            }
        }
        Self { changes, results, ..self }
    }
}

/// Decides between two contents of one object, so that every order of arrival ends alike: by version, then by the
/// tie-breaker of the content.
pub fn is_newer(new: (&Version, &str), old: Option<(&Version, &str)>) -> bool {
    old.is_none_or(|old| new > old)
}

/// Whether an object is still as a plan saw it.
pub fn is_unchanged(read: Option<&Stamp>, now: Option<(&Version, &str)>) -> bool {
    read.map(|read| (&read.version, read.tie.as_str())) == now
}

/// The tie-breaker of a content: its hash; and of two contents of one version, the one that is deleted wins, for a
/// thing is changed and then deleted in one second, and not the other way round.
pub fn tie_of(fields: &serde_json::Value, deleted: bool) -> String {
    // `g` comes after every hexadecimal digit.
    let mark = if deleted { "gone:" } else { "" };
    format!("{mark}{}", Sha256Hash::of(format!("{deleted}{fields}").as_bytes()))
}
