//! Redelivery: finished deliveries of a tenant that are sent again, with the same event ids.
//!
//! A [`Work`] is a row, advanced by pages as replays are (see [`crate::bulk`]). It walks over deliveries where they
//! stand: each lane in the order of its events' times, which nothing that is taken leaves. So a page that was cut off is
//! found again, and what was taken carries the work's mark: it is counted, and not sent twice. [`judge`] says what is
//! done with one delivery, [`Work::after`] what the row of the work says when the page is done.
//!
//! It never touches a delivery that is pending: that one is under way, and is reported.

pub mod selection;
pub mod walk;

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::{
    selection::{BadSelection, MAX_EVENTS, Selection},
    walk::Leg,
};
use crate::{
    bulk::{MAX_RATE, MAX_TOLD, MAX_TYPES, Pace, SHOWN},
    delivery::{Delivery, Redelivered, State as Stands},
    endpoint::{Endpoint, Facts},
    id::{EndpointId, EventId, RedeliveryId, TenantId},
};

/// Deliveries per second, if nobody says otherwise: an endpoint that has just recovered is not hit with its backlog.
pub const RATE: u32 = 10;

/// Works that may be under way at once in a deployment: a sweep looks at each.
pub const MAX_OPEN: usize = 20;

/// Endpoints of one work. A work says in its row which ones, so that what is made later does not move the walk.
pub const MAX_ENDPOINTS: usize = 500;

/// Where a work stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Each sweep advances it.
    Running,
    /// Somebody has stopped it for a while.
    Paused,
    /// The walk is over.
    Completed,
    /// Somebody stopped it for good. What was taken before stays taken.
    Cancelled,
}

/// A redelivery of many, as its row says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// Its id. Deliveries that it takes are marked with it, and are not taken by it again.
    pub id: RedeliveryId,
    /// Whose deliveries.
    pub tenant: TenantId,
    /// To which endpoints, in the order of the walk.
    pub endpoints: Vec<EndpointId>,
    /// Whether the endpoint was named. If not, an event that never went to one of them is none of the selection.
    pub is_named: bool,
    /// Which of their deliveries.
    pub selection: Selection,
    /// Deliveries per second.
    pub rate: u32,
    /// Why, in the words of who asked.
    pub reason: String,
    /// Who asked.
    pub actor: String,
    /// When. Deliveries that came to rest later are left alone.
    pub began: Timestamp,
    /// Where the walk stands.
    pub leg: Leg,
    /// Until when the rate is used up.
    pub paced_until: Timestamp,
    /// What became of the deliveries so far.
    pub counts: Counts,
    /// Some of them one by one.
    pub told: Vec<Told>,
    /// When it was last advanced.
    pub advanced_at: Option<Timestamp>,
    /// When its walk was over.
    pub ended_at: Option<Timestamp>,
    /// When, and by whom, it was cancelled. Written beside the rest, so that stopping never undoes a count.
    #[serde(skip)]
    pub cancelled: Option<(Timestamp, String)>,
    /// When, and by whom, it was paused.
    #[serde(skip)]
    pub paused: Option<(Timestamp, String)>,
    /// Counts the writes of the walk. Whoever writes the next state must have read this one.
    #[serde(skip)]
    pub version: u64,
}

/// Who asks for what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// The id that the work gets.
    pub id: RedeliveryId,
    /// Whose deliveries.
    pub tenant: TenantId,
    /// To which endpoints.
    pub endpoints: Vec<EndpointId>,
    /// Whether the endpoint was named.
    pub is_named: bool,
    /// Which of them.
    pub selection: Selection,
    /// Deliveries per second.
    pub rate: u32,
    /// Why.
    pub reason: String,
    /// Who.
    pub actor: String,
}

/// How many deliveries came to what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Deliveries, and events without one, that were looked at.
    pub looked_at: u64,
    /// Due again.
    pub redelivered: u64,
    /// Pending already: tried without being asked.
    pub in_flight: u64,
    /// Changed since the work began, or while it was looked at.
    pub moved: u64,
    /// Delivered, and that was not asked for.
    pub already_delivered: u64,
    /// Cancelled with an endpoint, and that was not asked for.
    pub cancelled: u64,
    /// Their endpoint is stopped.
    pub stopped: u64,
    /// Their event is past its retention.
    pub expired: u64,
    /// Named, and there is no such delivery.
    pub absent: u64,
    /// Refused by the store, for ever.
    pub failed: u64,
}

/// What became of one delivery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// The event.
    pub event: EventId,
    /// To which endpoint.
    pub endpoint: EndpointId,
    /// What became of it.
    pub outcome: Outcome,
}

/// What can become of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Due again.
    Redelivered,
    /// Pending already.
    InFlight,
    /// Changed since the work began, or while it was looked at.
    Moved,
    /// Delivered, and that was not asked for.
    AlreadyDelivered,
    /// Cancelled, and that was not asked for.
    Cancelled,
    /// There, but not of the selection.
    NotSelected,
    /// Its endpoint is stopped: nothing would send it.
    Stopped,
    /// Its event is past its retention.
    Expired,
    /// There is no such delivery.
    Absent,
    /// Refused by the store, for ever.
    Failed,
}

/// What is to be done with a delivery, as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Take it.
    Take,
    /// Leave it, and say why.
    Leave(Outcome),
}

/// Whether an endpoint would get an event now, whatever it had chosen when the event was relayed, and whether or not it
/// was there then.
pub fn would_get(endpoint: &Endpoint, event: &Facts<'_>, payload: Option<&Value>) -> bool {
    let now = Endpoint { created_at: Timestamp::MIN, earlier: Vec::new(), ..endpoint.clone() };
    now.wants(event, payload)
}

/// Decides about one delivery. It has one state, and only a finished one is taken.
pub fn judge(work: &Work, found: &Delivery) -> Verdict {
    let leave = Verdict::Leave;
    if !work.selection.wants(&found.event_type, found.event.time()) {
        return leave(Outcome::NotSelected);
    }
    // Marked by this very work: by the page that was cut off, or by who does the same page beside us. Whatever became of
    // it since, it has had its turn.
    if found.redelivered.as_ref().is_some_and(|mark| mark.by == work.id) {
        return leave(Outcome::Redelivered);
    }
    let Selection { missing, include_delivered, include_cancelled, .. } = work.selection;
    match found.state {
        Stands::Pending => leave(Outcome::InFlight),
        // The events that never came to it were asked for, and this one did.
        _ if missing => leave(Outcome::NotSelected),
        Stands::Succeeded if !include_delivered => leave(Outcome::AlreadyDelivered),
        Stands::Cancelled if !include_cancelled => leave(Outcome::Cancelled),
        _ if found.finished_at.is_some_and(|at| at >= work.began) => leave(Outcome::Moved),
        Stands::Succeeded | Stands::Cancelled | Stands::Dead => Verdict::Take,
    }
}

/// A finished delivery, due again: the same event, a new deadline, and a count of attempts that does not go back.
///
/// An attempt that was begun and never ended is counted, so that whatever is still heard of it is no answer to this one.
/// `by_hand`: a person asked for this one, so that what becomes of it says nothing about the endpoint's health.
#[must_use]
pub fn due_again(
    found: &Delivery,
    by: RedeliveryId,
    by_hand: bool,
    (now, due_at, tried_for): (Timestamp, Timestamp, Duration),
) -> Delivery {
    let begun = found.begun.as_ref().map_or(0, |begun| begun.attempt);
    let attempts = found.attempts.max(begun);
    let mark = Redelivered { by, at: now, from: Some(found.state), after: attempts };
    Delivery {
        state: Stands::Pending,
        attempts,
        due_at,
        deadline: due_at.saturating_add(tried_for).unwrap_or(Timestamp::MAX),
        finished_at: None,
        begun: None,
        asked_at: by_hand.then_some(now),
        redelivered: Some(mark),
        ..found.clone()
    }
}

/// A delivery of an event that never came to an endpoint.
#[must_use]
pub fn made_now(
    event: EventId,
    event_type: String,
    by: RedeliveryId,
    (now, due_at, tried_for): (Timestamp, Timestamp, Duration),
) -> Delivery {
    let deadline = due_at.saturating_add(tried_for).unwrap_or(Timestamp::MAX);
    let mark = Redelivered { by, at: now, from: None, after: 0 };
    let new = Delivery::new(event, event_type, deadline, now);
    Delivery { due_at, redelivered: Some(mark), ..new }
}

/// What one page came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// What became of each delivery that was looked at.
    pub told: Vec<Told>,
    /// How many of them this advance took: they use up the rate.
    pub taken: u32,
    /// Where the walk goes on.
    pub leg: Leg,
}

impl Work {
    /// New work, at its beginning.
    pub fn new(order: Order, now: Timestamp) -> Self {
        let Order { id, tenant, endpoints, is_named, selection, rate, reason, actor } = order;
        Self {
            leg: Leg::first(&selection, endpoints.len()),
            id,
            tenant,
            endpoints,
            is_named,
            selection,
            rate: rate.clamp(1, MAX_RATE),
            reason,
            actor,
            began: now,
            paced_until: now,
            counts: Counts::default(),
            told: Vec::new(),
            advanced_at: None,
            ended_at: None,
            cancelled: None,
            paused: None,
            version: 0,
        }
    }

    /// Where it stands.
    pub const fn state(&self) -> State {
        match (&self.ended_at, &self.cancelled, &self.paused) {
            (Some(_), _, _) => State::Completed,
            (None, Some(_), _) => State::Cancelled,
            (None, None, Some(_)) => State::Paused,
            (None, None, None) => State::Running,
        }
    }

    /// Whether it has come to its end, the one way or the other.
    pub const fn is_over(&self) -> bool {
        matches!(self.state(), State::Completed | State::Cancelled)
    }

    /// How fast it goes.
    pub const fn pace(&self) -> Pace {
        Pace { rate: self.rate, paced_until: self.paced_until }
    }

    /// Whether an event of this time may be one that the walk is about: of the selection's range, and not of the time
    /// after it began.
    pub fn reaches(&self, event: EventId) -> bool {
        event.time() <= self.began && self.selection.to.is_none_or(|to| event.time() < to)
    }

    /// The work after a page.
    #[must_use]
    pub fn after(&self, done: &Done, now: Timestamp) -> Self {
        let paced_until = self.pace().after(done.taken, now);
        let mut after = Self { paced_until, leg: done.leg.clone(), ..self.clone() };
        for told in &done.told {
            after.counts.add(told.outcome);
            // Of named events each is told; of a walk only what a person may want to look at.
            let worth = !self.selection.events.is_empty() || told.outcome.is_worth_telling();
            if worth && after.told.len() < MAX_TOLD {
                after.told.push(told.clone());
            }
        }
        after.advanced_at = Some(now);
        after.ended_at = (after.leg == Leg::End).then_some(now);
        after.version = self.version + 1;
        after
    }
}

impl Outcome {
    const fn is_worth_telling(self) -> bool {
        matches!(self, Self::InFlight | Self::Moved | Self::Failed | Self::Expired | Self::Stopped)
    }
}

impl Counts {
    /// Counts one delivery.
    pub const fn add(&mut self, outcome: Outcome) {
        self.looked_at += 1;
        let count = match outcome {
            Outcome::Redelivered => &mut self.redelivered,
            Outcome::InFlight => &mut self.in_flight,
            Outcome::Moved => &mut self.moved,
            Outcome::AlreadyDelivered => &mut self.already_delivered,
            Outcome::Cancelled => &mut self.cancelled,
            Outcome::Stopped => &mut self.stopped,
            Outcome::Expired => &mut self.expired,
            Outcome::Absent => &mut self.absent,
            Outcome::Failed => &mut self.failed,
            Outcome::NotSelected => return,
        };
        *count += 1;
    }
}

/// What a work would do, without doing it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Survey {
    /// What would become of the deliveries.
    pub counts: Counts,
    /// Deliveries that would be due again, by how they stand: `dead`, `succeeded`, `cancelled` or `missing`.
    pub by_state: BTreeMap<String, u64>,
    /// The same, by the types of their events.
    pub by_type: BTreeMap<String, u64>,
    /// The same, by endpoint.
    pub by_endpoint: BTreeMap<EndpointId, u64>,
    /// The first of their events.
    pub first: Vec<EventId>,
    /// Deliveries of named events, one by one.
    pub told: Vec<Told>,
    /// Whether the survey was cut: there is more than was looked at.
    pub more: bool,
}

impl Survey {
    /// Counts a delivery that would be due again. `stands`: how it stands now.
    pub fn take(&mut self, endpoint: EndpointId, event: EventId, event_type: &str, stands: &str) {
        self.counts.add(Outcome::Redelivered);
        *self.by_state.entry(stands.to_owned()).or_default() += 1;
        *self.by_endpoint.entry(endpoint).or_default() += 1;
        let is_full = self.by_type.len() >= MAX_TYPES && !self.by_type.contains_key(event_type);
        let kind = if is_full { "(other types)" } else { event_type };
        *self.by_type.entry(kind.to_owned()).or_default() += 1;
        if self.first.len() < SHOWN {
            self.first.push(event);
        }
    }
}

#[cfg(test)]
mod tests;
