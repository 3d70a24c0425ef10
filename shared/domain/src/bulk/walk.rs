//! Where the walk over a source's events stands.

use jiff::{Timestamp, civil::Date, tz::TimeZone};
use serde::{Deserialize, Serialize};

use super::{Kind, Selection, Work};
use crate::{id::InboxKey, inbox::Status};

/// An entry of an index: a row, and the time by which the index is in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// The row.
    pub key: InboxKey,
    /// The time.
    pub at: Timestamp,
}

/// One partition of an index. Oldest first, if it says nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Parked rows, until a time.
    Dead {
        /// The shard.
        shard: u16,
        /// The last time at which they may have been parked.
        until: Timestamp,
    },
    /// Parked rows until a time, the latest first: for people.
    Parked {
        /// The shard.
        shard: u16,
        /// The last time at which they may have been parked.
        until: Timestamp,
    },
    /// Rows of a source that were received on one day (UTC), in whatever status.
    Received {
        /// The source.
        source: crate::id::SourceName,
        /// The day.
        day: Date,
        /// The shard.
        shard: u16,
    },
    /// Pending rows that are due later than a time.
    Due {
        /// The shard.
        shard: u16,
        /// Due later than this.
        after: Timestamp,
    },
}

/// Entries of a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The entries, in order.
    pub marks: Vec<Mark>,
    /// Whether there may be more after them.
    pub more: bool,
}

/// Where a walk stands. The parked come first, then the finished day by day.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "in")]
pub enum Leg {
    /// At the events that were named.
    Named {
        /// The index of the next.
        next: usize,
    },
    /// In a shard of the parked.
    Dead {
        /// The shard.
        shard: u16,
        /// After this entry.
        after: Option<Mark>,
    },
    /// In a day's shard.
    Finished {
        /// The day.
        day: Date,
        /// The shard.
        shard: u16,
        /// After this entry.
        after: Option<Mark>,
    },
    /// In a shard of the pending.
    Due {
        /// The shard.
        shard: u16,
        /// After this entry.
        after: Option<Mark>,
    },
    /// Over.
    #[default]
    End,
}

fn day(at: Timestamp) -> Date {
    TimeZone::UTC.to_datetime(at).date()
}

impl Leg {
    /// Where a walk begins.
    pub fn first(kind: Kind, selection: &Selection) -> Self {
        if !selection.events.is_empty() {
            return Self::Named { next: 0 };
        }
        match kind {
            Kind::Resume => Self::Due { shard: 0, after: None },
            Kind::Replay if selection.status.contains(&Status::DeadLetter) => {
                Self::Dead { shard: 0, after: None }
            }
            Kind::Replay => Self::finished(selection),
        }
    }

    /// The first day, if the selection is of anything that only days list. Who asks has filled in `from`.
    fn finished(selection: &Selection) -> Self {
        match selection.from {
            Some(from) if selection.walks_days() => {
                Self::Finished { day: day(from), shard: 0, after: None }
            }
            _ => Self::End,
        }
    }

    /// The partition to read, and after which of its entries.
    pub fn part(&self, work: &Work, due_soon: Timestamp) -> Option<(Part, Option<&Mark>)> {
        let (part, after) = match self {
            Self::Named { .. } | Self::End => return None,
            Self::Dead { shard, after } => (Part::Dead { shard: *shard, until: work.began }, after),
            Self::Finished { day, shard, after } => {
                let source = work.source.clone();
                (Part::Received { source, day: *day, shard: *shard }, after)
            }
            Self::Due { shard, after } => (Part::Due { shard: *shard, after: due_soon }, after),
        };
        Some((part, after.as_ref()))
    }

    /// Whether the row of an entry must be read: not if the entry alone says that it is none of ours.
    pub fn may_be(&self, work: &Work, mark: &Mark) -> bool {
        let is_received = matches!(self, Self::Finished { .. });
        *mark.key.source() == work.source
            && (!is_received || work.selection.is_received_then(mark.at))
    }

    /// The same partition, after an entry.
    #[must_use]
    pub fn past(&self, mark: Mark) -> Self {
        let mut past = self.clone();
        match &mut past {
            Self::Dead { after, .. } | Self::Finished { after, .. } | Self::Due { after, .. } => {
                *after = Some(mark);
            }
            Self::Named { .. } | Self::End => {}
        }
        past
    }

    /// The next partition.
    #[must_use]
    pub fn next(&self, work: &Work, shards: u16) -> Self {
        match self {
            Self::Named { .. } | Self::End => Self::End,
            Self::Dead { shard, .. } if shard + 1 < shards => {
                Self::Dead { shard: shard + 1, after: None }
            }
            Self::Dead { .. } => Self::finished(&work.selection),
            Self::Due { shard, .. } if shard + 1 < shards => {
                Self::Due { shard: shard + 1, after: None }
            }
            Self::Due { .. } => Self::End,
            Self::Finished { day, shard, .. } if shard + 1 < shards => {
                Self::Finished { day: *day, shard: shard + 1, after: None }
            }
            Self::Finished { day, .. } => {
                let next = day.tomorrow().ok().filter(|next| *next <= last_day(work));
                next.map_or(Self::End, |day| Self::Finished { day, shard: 0, after: None })
            }
        }
    }
}

/// What is received after the work began is not at rest when it begins.
fn last_day(work: &Work) -> Date {
    day(work.selection.to.unwrap_or(work.began).min(work.began))
}

impl Selection {
    /// Whether it is of finished events by anything but their names, which only the list of days knows.
    pub fn walks_days(&self) -> bool {
        let finished = [Status::Processed, Status::Ignored];
        self.events.is_empty() && finished.iter().any(|status| self.status.contains(status))
    }
}
