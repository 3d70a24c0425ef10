//! Where the walk over a tenant's deliveries stands.

use serde::{Deserialize, Serialize};

use super::{Selection, Work};
use crate::id::{EndpointId, EventId};

/// Where a walk stands: endpoint by endpoint, lane by lane, in the order of the events' times.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "in")]
pub enum Leg {
    /// At the events that were named, each of them with each endpoint.
    Named {
        /// The number of the next pair: endpoints vary first.
        next: usize,
    },
    /// In a lane.
    Lane {
        /// The number of the endpoint.
        endpoint: usize,
        /// Its lane.
        lane: u16,
        /// After this event.
        after: Option<EventId>,
    },
    /// In a shard of the tenant's events, looking for those that never came to an endpoint.
    Missing {
        /// The number of the endpoint.
        endpoint: usize,
        /// The shard.
        shard: u16,
        /// After this event.
        after: Option<EventId>,
    },
    /// Over.
    #[default]
    End,
}

impl Leg {
    /// Where a walk over so many endpoints begins.
    pub fn first(selection: &Selection, endpoints: usize) -> Self {
        if endpoints == 0 {
            return Self::End;
        }
        if !selection.events.is_empty() {
            return Self::Named { next: 0 };
        }
        let after = selection.floor();
        if selection.missing {
            Self::Missing { endpoint: 0, shard: 0, after }
        } else {
            Self::Lane { endpoint: 0, lane: 0, after }
        }
    }

    /// The endpoint that is walked over.
    pub fn endpoint(&self, work: &Work) -> Option<EndpointId> {
        match self {
            Self::Lane { endpoint, .. } | Self::Missing { endpoint, .. } => {
                work.endpoints.get(*endpoint).copied()
            }
            Self::Named { .. } | Self::End => None,
        }
    }

    /// The same place, after an event.
    #[must_use]
    pub fn past(&self, event: EventId) -> Self {
        let mut past = self.clone();
        if let Self::Lane { after, .. } | Self::Missing { after, .. } = &mut past {
            *after = Some(event);
        }
        past
    }

    /// The next lane or shard, of which there are so many, or the next endpoint.
    #[must_use]
    pub fn next(&self, work: &Work, count: u16) -> Self {
        let after = work.selection.floor();
        match self {
            Self::Lane { endpoint, lane, .. } if lane + 1 < count => {
                Self::Lane { endpoint: *endpoint, lane: lane + 1, after }
            }
            Self::Missing { endpoint, shard, .. } if shard + 1 < count => {
                Self::Missing { endpoint: *endpoint, shard: shard + 1, after }
            }
            _ => self.next_endpoint(work),
        }
    }

    /// The next endpoint, if there is one more.
    #[must_use]
    pub fn next_endpoint(&self, work: &Work) -> Self {
        let after = work.selection.floor();
        match self {
            Self::Lane { endpoint, .. } if endpoint + 1 < work.endpoints.len() => {
                Self::Lane { endpoint: endpoint + 1, lane: 0, after }
            }
            Self::Missing { endpoint, .. } if endpoint + 1 < work.endpoints.len() => {
                Self::Missing { endpoint: endpoint + 1, shard: 0, after }
            }
            _ => Self::End,
        }
    }

    /// Pairs of named events and endpoints from here on, at most `most`, and where the walk goes on behind them.
    pub fn named(work: &Work, next: usize, most: usize) -> (Vec<(EventId, EndpointId)>, Self) {
        let width = work.endpoints.len().max(1);
        let all = work.selection.events.len().saturating_mul(width);
        let end = next.saturating_add(most).min(all);
        let pair = |at: usize| {
            let event = work.selection.events.get(at / width)?;
            Some((*event, *work.endpoints.get(at % width)?))
        };
        let leg = if end >= all { Self::End } else { Self::Named { next: end } };
        ((next..end).filter_map(pair).collect(), leg)
    }
}

impl Selection {
    /// The place before the first event of the range.
    fn floor(&self) -> Option<EventId> {
        self.from.map(EventId::floor)
    }
}
