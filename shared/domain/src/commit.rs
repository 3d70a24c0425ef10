//! Making a plan true in one transaction, and reading what a refusal means.
//!
//! A failed condition cancels the *whole* transaction, the mark on the inbox row included. So a refusal is read reason
//! by reason: what is merely old is dropped, and the rest is committed again.

use std::collections::BTreeSet;

use jiff::Timestamp;

use crate::{
    body::Sha256Hash,
    event::{Object, ObjectRef, Stamp, Version},
    id::EventId,
    inbox::{Applied, ChangeResult, Claim},
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

/// How a try to make a plan true came out. Each is a metric, `commits_<word>_total`, and a line in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CommitOutcome {
    /// It is true.
    Applied,
    /// The event had been finished, parked or re-armed by somebody else.
    AlreadyFinished,
    /// An object was newer already.
    Stale,
    /// An effect was there already: an operation key was taken, or an outgoing event written.
    DuplicateEffect,
    /// The lease under which it was planned was somebody else's by then.
    LeaseLost,
    /// Somebody else changed, or held, one of the items.
    Conflict,
    /// The store took no more.
    Throttled,
    /// The store will never take so much.
    TooLarge,
}

impl CommitOutcome {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Applied,
        Self::AlreadyFinished,
        Self::Stale,
        Self::DuplicateEffect,
        Self::LeaseLost,
        Self::Conflict,
        Self::Throttled,
        Self::TooLarge,
    ];

    /// One stable word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::AlreadyFinished => "already_finished",
            Self::Stale => "stale",
            Self::DuplicateEffect => "duplicate_effect",
            Self::LeaseLost => "lease_lost",
            Self::Conflict => "conflict",
            Self::Throttled => "throttled",
            Self::TooLarge => "too_large",
        }
    }

    /// The name of its metric.
    pub const fn metric(self) -> &'static str {
        match self {
            Self::Applied => "commits_applied_total",
            Self::AlreadyFinished => "commits_already_finished_total",
            Self::Stale => "commits_stale_total",
            Self::DuplicateEffect => "commits_duplicate_effect_total",
            Self::LeaseLost => "commits_lease_lost_total",
            Self::Conflict => "commits_conflict_total",
            Self::Throttled => "commits_throttled_total",
            Self::TooLarge => "commits_too_large_total",
        }
    }

    /// What results say of changes that did not happen.
    pub fn of_dropped(results: &[ChangeResult]) -> BTreeSet<Self> {
        let outcome = |result: &ChangeResult| match result.result {
            Applied::Stale => Some(Self::Stale),
            Applied::DuplicateEffect | Applied::AlreadyEmitted => Some(Self::DuplicateEffect),
            Applied::Applied | Applied::Refused | Applied::Covered => None,
        };
        results.iter().filter_map(outcome).collect()
    }
}

impl Next {
    /// What there is to tell of one answer, to a commit that knew `known` results before. Nothing, where nothing is
    /// known or the store refused what it always will for another reason than its size.
    pub fn outcomes(&self, known: usize) -> BTreeSet<CommitOutcome> {
        let outcome = match self {
            Self::Done(_) => CommitOutcome::Applied,
            Self::Moved => CommitOutcome::AlreadyFinished,
            Self::Again(_) | Self::Replan => CommitOutcome::Conflict,
            Self::Throttled => CommitOutcome::Throttled,
            Self::LeaseLost => CommitOutcome::LeaseLost,
            Self::TooLarge => CommitOutcome::TooLarge,
            Self::Narrowed(commit) => {
                return CommitOutcome::of_dropped(commit.results.get(known..).unwrap_or_default());
            }
            Self::Later(_) | Self::Invalid => return BTreeSet::new(),
        };
        BTreeSet::from([outcome])
    }
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
        Ok(Self { claim, now, expires_at, knowledge, changes, lease, results })
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
        self.results.iter().cloned().chain(staged).collect()
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

/// Decides between two contents of one object, so that every order of arrival ends alike: by version, then by the hash
/// of the content.
pub fn is_newer(new: (&Version, &str), old: Option<(&Version, &str)>) -> bool {
    old.is_none_or(|old| new > old)
}

/// Whether an object is still as a plan saw it.
pub fn is_unchanged(read: Option<&Stamp>, now: Option<(&Version, &str)>) -> bool {
    read.map(|read| (&read.version, read.tie.as_str())) == now
}

/// The tie-breaker of a content.
pub fn tie_of(fields: &serde_json::Value, deleted: bool) -> String {
    Sha256Hash::of(format!("{deleted}{fields}").as_bytes()).to_string()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::{id::InboxKey, plan::Emit};

    const KNOWLEDGE: Knowledge = Knowledge { as_of: Timestamp::UNIX_EPOCH, fetched: false };

    fn claim() -> Claim {
        Claim { key: InboxKey::new("stripe".parse().unwrap(), "evt_1").unwrap(), cycle: 0 }
    }

    fn object(id: &str) -> ObjectRef {
        ObjectRef { kind: "invoice".to_owned(), id: id.to_owned() }
    }

    fn newer(id: &str, version: u64) -> Change {
        Change::newer(object(id), Version::Number(version), json!({ "v": version }))
    }

    fn once(key: &str) -> Change {
        Change::once(key.parse().unwrap())
    }

    fn emit(name: &str) -> Emit {
        Emit::new("demo".parse().unwrap(), "invoice.paid", "in_1", "{}").name(name)
    }

    fn lease() -> LeaseProof {
        LeaseProof { what: "invoice in_1".to_owned(), owner: "me".to_owned(), fence: 1 }
    }

    fn staged(changes: Vec<Change>, lease: Option<LeaseProof>) -> Commit {
        let at = Timestamp::from_second(1_700_000_000).unwrap();
        Commit::stage(claim(), at, at, at, changes, KNOWLEDGE, lease).unwrap()
    }

    /// An object with an event, a taken operation with an event, and an event of its own.
    fn mixed() -> Commit {
        staged(
            vec![
                newer("in_1", 2).then_emit(emit("a")),
                once("credit in_1").then_emit(emit("b")),
                Change::emit(emit("c")),
            ],
            Some(lease()),
        )
    }

    /// What a commit would still make true, in short.
    fn content(commit: &Commit) -> Vec<String> {
        commit
            .actions()
            .iter()
            .map(|action| match action {
                Action::Finish => "finish".to_owned(),
                Action::Guard(guard) => guard.what().unwrap_or_default(),
                Action::Lease(lease) => format!("lease {}", lease.fence),
                Action::Emit(event) => format!("event {}", event.id),
            })
            .collect()
    }

    fn ids(commit: &Commit) -> Vec<String> {
        let events = commit.changes.iter().flat_map(|change| &change.events);
        events.map(|event| event.id.to_string()).collect()
    }

    use super::Reason::{
        ConditionFailed as Failed, Conflict, Invalid, None as Fine, Throttled, TooLarge, Transient,
    };

    #[track_caller]
    fn means(reasons: [Reason; 7], expected: &str) {
        let next = match mixed().after(&Answer::Refused(reasons.to_vec())) {
            Next::Done(_) => "done",
            Next::Moved => "moved",
            Next::Again(same) => {
                assert_eq!(same, mixed());
                "again"
            }
            Next::Throttled => "throttled",
            Next::Later(_) => "later",
            Next::LeaseLost => "lease lost",
            Next::Replan => "replan",
            Next::Narrowed(_) => "narrowed",
            Next::TooLarge => "too large",
            Next::Invalid => "invalid",
        };
        assert_eq!(next, expected, "{reasons:?}");
    }

    #[test]
    fn the_actions_stand_in_the_order_in_which_their_reasons_are_read() {
        let commit = mixed();
        let [a, b, c] = <[String; 3]>::try_from(ids(&commit)).unwrap();
        assert_eq!(
            content(&commit),
            [
                "finish".to_owned(),
                "object invoice in_1".to_owned(),
                "operation credit in_1".to_owned(),
                "lease 1".to_owned(),
                format!("event {a}"),
                format!("event {b}"),
                format!("event {c}"),
            ]
        );
    }

    /// C4, C31
    #[test]
    fn the_reasons_are_read_in_the_order_of_what_outranks_what() {
        // A row that is finished outranks everything.
        means([Failed, Conflict, Invalid, Failed, Failed, Transient, Fine], "moved");
        means([Fine, Invalid, Conflict, Fine, Fine, Fine, Fine], "invalid");
        means([Fine, Failed, Conflict, Transient, Fine, Fine, Fine], "later");
        // Beside a conflict `None` means unknown, and a failed guard or a lost lease means nothing yet.
        means([Fine, Failed, Fine, Failed, Fine, Conflict, Failed], "again");
        means([Conflict, Failed, Fine, Fine, Fine, Fine, Fine], "again");
        means([Fine, Failed, Fine, Failed, Fine, Fine, Failed], "lease lost");
        means([Fine, Failed, Fine, Fine, Fine, Fine, Fine], "narrowed");
        means([Fine, Fine, Fine, Fine, Fine, Fine, Failed], "narrowed");
        means([Fine; 7], "later");
    }

    #[test]
    fn a_refusal_of_another_shape_decides_nothing() {
        for reasons in [vec![], vec![Failed; 6], vec![Fine; 8]] {
            assert!(matches!(mixed().after(&Answer::Refused(reasons)), Next::Later(_)));
        }
    }

    #[track_caller]
    fn narrows(reasons: [Reason; 7], kept: &[&str], results: &[(&str, Applied)]) {
        let whole = mixed();
        let ids = ids(&whole);
        let named = |what: &str| match what {
            "a" => format!("event {}", ids[0]),
            "b" => format!("event {}", ids[1]),
            "c" => format!("event {}", ids[2]),
            other => other.to_owned(),
        };
        let Next::Narrowed(commit) = whole.clone().after(&Answer::Refused(reasons.to_vec())) else {
            panic!("not narrowed: {reasons:?}");
        };
        let kept: Vec<String> = kept.iter().map(|what| named(what)).collect();
        assert_eq!(content(&commit), kept);
        let results: Vec<ChangeResult> =
            results.iter().map(|(what, result)| ChangeResult::new(named(what), *result)).collect();
        assert_eq!(commit.results, results);
        assert_eq!(commit.is_empty(), !commit.actions().iter().any(is_change));
    }

    fn is_change(action: &Action<'_>) -> bool {
        matches!(action, Action::Guard(_) | Action::Emit(_))
    }

    /// ORD-stale-overwrites-new, C22
    #[test]
    fn what_is_old_is_dropped_with_what_follows_from_it_and_the_rest_stays() {
        let (invoice, credit, lease) = ("object invoice in_1", "operation credit in_1", "lease 1");
        narrows(
            [Fine, Failed, Fine, Fine, Fine, Fine, Fine],
            &["finish", credit, lease, "b", "c"],
            &[(invoice, Applied::Stale)],
        );
        narrows(
            [Fine, Fine, Failed, Fine, Fine, Fine, Fine],
            &["finish", invoice, lease, "a", "c"],
            &[(credit, Applied::DuplicateEffect)],
        );
        narrows(
            [Fine, Fine, Fine, Fine, Failed, Fine, Failed],
            &["finish", invoice, credit, lease, "b"],
            &[("a", Applied::AlreadyEmitted), ("c", Applied::AlreadyEmitted)],
        );
        // An event that exists, of a change that does not happen, is not told apart from it.
        narrows(
            [Fine, Failed, Failed, Fine, Failed, Fine, Failed],
            &["finish", lease],
            &[
                (invoice, Applied::Stale),
                (credit, Applied::DuplicateEffect),
                ("c", Applied::AlreadyEmitted),
            ],
        );
    }

    #[test]
    fn a_state_that_was_read_before_saves_the_transaction_it_would_refuse() {
        let current = |version, fields: &Value| Object {
            version: Version::Number(version),
            tie: tie_of(fields, false),
            fields: fields.clone(),
            deleted: false,
            updated_at: Timestamp::UNIX_EPOCH,
            as_of: Timestamp::UNIX_EPOCH,
            fetched: false,
        };
        let stage = || staged(vec![newer("in_1", 5).then_emit(emit("a")), newer("in_2", 1)], None);
        let kept =
            |current: &Object| content(&stage().without_stale(&object("in_1"), current)).len();
        assert_eq!(kept(&current(4, &json!({ "v": 4 }))), 4);
        assert_eq!(kept(&current(6, &json!({ "v": 6 }))), 2);
        // The same version: the same content is nothing new, and of two contents one wins in every order.
        assert_eq!(kept(&current(5, &json!({ "v": 5 }))), 2);
        let other = json!({ "v": 5, "other": true });
        let wins = tie_of(&json!({ "v": 5 }), false) > tie_of(&other, false);
        assert_eq!(kept(&current(5, &other)), if wins { 4 } else { 2 });
    }

    /// ORD-same-second
    #[test]
    fn two_contents_of_one_version_end_alike_in_both_orders() {
        let (a, b) = (json!({ "status": "active" }), json!({ "status": "cancelled" }));
        let (a, b) = (tie_of(&a, false), tie_of(&b, false));
        let version = Version::Number(1_760_000_000);
        let newer = |new: &str, old: &str| is_newer((&version, new), Some((&version, old)));
        assert_ne!(newer(&a, &b), newer(&b, &a));
        assert!(!newer(&a, &a));
        assert!(is_newer((&version, &a), None));
    }

    /// E4: the same thing has the same id for ever, wherever it stands in the plan.
    #[test]
    fn an_outgoing_event_keeps_its_id_when_the_plan_is_reordered() {
        let one = staged(vec![Change::emit(emit("a")), Change::emit(emit("b"))], None);
        let other = staged(vec![once("x").then_emit(emit("b")), Change::emit(emit("a"))], None);
        let set = |commit: &Commit| ids(commit).into_iter().collect::<BTreeSet<_>>();
        assert_eq!(set(&one), set(&other));
        assert_eq!(set(&one).len(), 2);
    }

    #[test]
    fn outgoing_events_carry_the_trace_of_their_cause() {
        let traced = mixed().traced(Some("00-a-b-01"));
        let mut events = traced.changes.iter().flat_map(|change| &change.events);
        assert!(events.all(|event| event.traceparent.as_deref() == Some("00-a-b-01")));
    }

    /// A store of which only the conditions matter.
    #[derive(Clone, Debug, Default)]
    struct Model {
        objects: BTreeMap<ObjectRef, u64>,
        operations: BTreeSet<String>,
        events: BTreeSet<EventId>,
    }

    impl Model {
        fn holds(&self, action: &Action<'_>) -> bool {
            match action {
                Action::Guard(Guard::Newer { object, version, .. }) => {
                    let Version::Number(new) = version else { return false };
                    self.objects.get(object).is_none_or(|old| new > old)
                }
                Action::Guard(Guard::Once(key)) => !self.operations.contains(key.as_str()),
                Action::Emit(event) => !self.events.contains(&event.id),
                Action::Guard(Guard::Unchanged { .. }) => false,
                Action::Finish
                | Action::Lease(_)
                | Action::Guard(Guard::Free | Guard::Refused { .. }) => true,
            }
        }

        fn answer(&self, commit: &Commit) -> Answer {
            let actions = commit.actions();
            if actions.iter().all(|action| self.holds(action)) {
                return Answer::Applied;
            }
            let reason = |action| if self.holds(action) { Fine } else { Failed };
            Answer::Refused(actions.iter().map(reason).collect())
        }
    }

    fn changes() -> impl Strategy<Value = Vec<Change>> {
        // Guard by number: 0 to 2 objects, 3 to 5 operations, 6 none; and how many events follow.
        prop::collection::btree_map(0_usize..7, 0_usize..3, 1..6).prop_map(|chosen| {
            chosen
                .into_iter()
                .map(|(guard, events)| {
                    let change = match guard {
                        0..=2 => newer(&format!("in_{guard}"), 5),
                        3..=5 => once(&format!("op_{guard}")),
                        _ => Change::emit(emit("free")),
                    };
                    (0..events)
                        .fold(change, |change, n| change.then_emit(emit(&format!("{guard}-{n}"))))
                })
                .collect()
        })
    }

    proptest! {
        /// C5, D17: narrowing against a store that stands still takes one round, never commits a change whose guard
        /// failed, never loses one whose guard holds, and tells each once.
        #[test]
        fn narrowing_keeps_exactly_what_is_still_to_be_done(
            changes in changes(),
            versions in prop::array::uniform3(0_u64..10),
            taken in prop::array::uniform3(any::<bool>()),
            written in prop::collection::vec(any::<bool>(), 20),
            held in any::<bool>(),
        ) {
            let whole = staged(changes, held.then(lease));
            let events = whole.changes.iter().flat_map(|change| &change.events).map(|event| event.id);
            let model = Model {
                objects: (0..).zip(versions).map(|(n, version)| (object(&format!("in_{n}")), version)).collect(),
                operations: (3..).zip(taken).filter(|(_, taken)| *taken).map(|(n, _)| format!("op_{n}")).collect(),
                events: events.zip(&written).filter(|(_, written)| **written).map(|(id, _)| id).collect(),
            };
            let last = match whole.clone().after(&model.answer(&whole)) {
                Next::Done(results) => {
                    prop_assert_eq!(results, whole.results_if_applied());
                    whole.clone()
                }
                Next::Narrowed(narrower) => narrower,
                other => return Err(TestCaseError::fail(format!("{other:?}"))),
            };
            prop_assert_eq!(model.answer(&last), Answer::Applied);
            prop_assert_eq!(&last.lease, &whole.lease);

            let kept = content(&last);
            for change in &whole.changes {
                let guard = Action::Guard(&change.guard);
                let holds = model.holds(&guard);
                if let Some(what) = change.guard.what() {
                    prop_assert_eq!(kept.contains(&what), holds);
                }
                for event in &change.events {
                    let owed = holds && model.holds(&Action::Emit(event));
                    prop_assert_eq!(kept.contains(&format!("event {}", event.id)), owed);
                }
            }

            let told = last.results_if_applied();
            let once: BTreeSet<_> = told.iter().map(|result| &result.what).collect();
            prop_assert_eq!(once.len(), told.len(), "told twice: {:?}", told);
            for change in &whole.changes {
                let happens = model.holds(&Action::Guard(&change.guard));
                let mut whats: Vec<_> = change.guard.what().into_iter().collect();
                if happens {
                    whats.extend(change.events.iter().map(|event| format!("event {}", event.id)));
                }
                for what in whats {
                    let told = told.iter().filter(|result| result.what == what).count();
                    prop_assert_eq!(told, 1, "{}", what);
                }
            }
        }

        #[test]
        fn no_refusal_makes_a_commit_grow_or_panic(
            changes in changes(), held in any::<bool>(), raw in prop::collection::vec(0_usize..7, 0..30),
        ) {
            let whole = staged(changes, held.then(lease));
            let size = whole.actions().len();
            let kinds = [Fine, Failed, Conflict, Throttled, Transient, TooLarge, Invalid];
            let reasons: Vec<_> =
                raw.into_iter().chain(std::iter::repeat(0)).take(size).map(|n| kinds[n]).collect();
            match whole.clone().after(&Answer::Refused(reasons.clone())) {
                Next::Narrowed(narrower) => prop_assert!(narrower.actions().len() < size),
                Next::Done(_) => prop_assert!(false, "a refusal was taken for a success"),
                Next::Again(same) => prop_assert_eq!(same, whole),
                Next::Moved => prop_assert_eq!(reasons[0], Failed),
                Next::Throttled
                | Next::Later(_)
                | Next::LeaseLost
                | Next::Replan
                | Next::TooLarge
                | Next::Invalid => {}
            }
        }
    }
}
