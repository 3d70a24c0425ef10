//! How tries to make a plan true come out, all told apart.

use std::collections::BTreeSet;

use super::Next;
use crate::inbox::{Applied, ChangeResult};

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
