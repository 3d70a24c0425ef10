//! Bulk work: many received events that are run again, or sent again, at a bounded rate.
//!
//! A [`Work`] is a row. Whoever has time advances it by one page: [`walk::Leg`] says where the walk stands,
//! [`judge`] what is done with one row, [`Work::after`] what the row of the work says when the page is done. The row names
//! the events of the next page before any of them is touched, and is written last and under its version: a page that was
//! cut off is done again with the same events, although they have left the index that named them. Two who do one page at
//! once leave what one would have left, because each row is changed only as it was read and is marked with the work.

pub mod pace;
pub mod selection;
pub mod walk;

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use self::{
    pace::Pace,
    selection::{BadSelection, MAX_EVENTS, Selection},
    walk::{Leg, Mark, Page, Part},
};
use crate::{
    id::{ReplayId, SourceName},
    inbox::{Row, Status},
};

/// Rows that are changed for one write of the work's own row.
pub const PAGE: usize = 50;

/// How far ahead messages are sent with a delay, so that a low rate needs nobody who waits: the time between two sweeps.
pub const AHEAD: Duration = Duration::from_secs(60);

/// Events per second, if nobody says otherwise: a trickle beside what a worker does on an ordinary day.
pub const RATE: u32 = 50;

/// The most events per second: what one sweep can send in its time.
pub const MAX_RATE: u32 = 1000;

/// Works that may be under way at once: a sweep looks at each.
pub const MAX_OPEN: usize = 20;

/// How many there may be when a resume is started: it is short, and comes after the source was resumed, when it is late to
/// refuse it.
pub const MAX_OPEN_FOR_RESUME: usize = 200;

/// How long after it began a resume walks once more: by then the index knows every row that was put off before.
pub const SETTLES: Duration = Duration::from_secs(60);

/// Events that a work tells of one by one, besides counting them.
pub const MAX_TOLD: usize = 200;

/// Longest reason, in characters.
pub const MAX_REASON: usize = 500;

/// What is done with the events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Parked and finished events are run again, in a new cycle.
    #[default]
    Replay,
    /// Pending events that wait for later are sent now.
    Resume,
}

/// Where a work stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Each sweep advances it.
    Running,
    /// The walk is over.
    Completed,
    /// Somebody stopped it. What was taken before stays taken.
    Cancelled,
}

/// Bulk work, as its row says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// Its id. Rows that it takes are marked with it, and are not taken by it again.
    pub id: ReplayId,
    /// What is done.
    pub kind: Kind,
    /// The source under which the events are filed.
    pub source: SourceName,
    /// Which of its events.
    pub selection: Selection,
    /// Events per second.
    pub rate: u32,
    /// Why, in the words of who asked.
    pub reason: String,
    /// Who asked.
    pub actor: String,
    /// When. Events that came to rest later are left alone.
    pub began: Timestamp,
    /// Where the walk goes on behind the page.
    pub leg: Leg,
    /// The page: what is looked at next.
    pub page: Batch,
    /// Whether the walk was over once, and is done again: a resume's is done twice.
    #[serde(default)]
    pub is_again: bool,
    /// Until when the rate is used up.
    pub paced_until: Timestamp,
    /// What became of the events so far.
    pub counts: Counts,
    /// Some of them one by one.
    pub told: Vec<Told>,
    /// When it was last advanced.
    pub advanced_at: Option<Timestamp>,
    /// When its walk was over.
    pub ended_at: Option<Timestamp>,
    /// When, and by whom, it was stopped. Written beside the rest, so that stopping never undoes a count.
    #[serde(skip)]
    pub cancelled: Option<(Timestamp, String)>,
    /// Counts the writes of the walk. Whoever writes the next state must have read this one.
    #[serde(skip)]
    pub version: u64,
}

/// The events of one page.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    /// Their ids.
    pub events: Vec<String>,
    /// Whether a list of days named them, which lists every status.
    pub by_day: bool,
}

/// Who asks for what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// The id that the work gets.
    pub id: ReplayId,
    /// What is done.
    pub kind: Kind,
    /// The source under which the events are filed.
    pub source: SourceName,
    /// Which of its events.
    pub selection: Selection,
    /// Events per second.
    pub rate: u32,
    /// Why.
    pub reason: String,
    /// Who.
    pub actor: String,
}

/// How many events came to what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Rows that were looked at.
    pub looked_at: u64,
    /// Taken: pending again, or sent again.
    pub replayed: u64,
    /// Pending already: processed without being asked.
    pub in_flight: u64,
    /// Changed since the work began, or while it was looked at.
    pub moved: u64,
    /// Processed, and `processed` was not asked for.
    pub already_done: u64,
    /// Named, and not there.
    pub absent: u64,
    /// Refused by the store, for ever.
    pub failed: u64,
}

/// What became of one event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// Its id.
    pub event_id: String,
    /// What became of it.
    pub outcome: Outcome,
}

/// What can become of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Taken.
    Replayed,
    /// Pending already.
    InFlight,
    /// Changed since the work began, or while it was looked at.
    Moved,
    /// Processed, and `processed` was not asked for.
    AlreadyDone,
    /// There, but not of the selection.
    NotSelected,
    /// Not there.
    Absent,
    /// Refused by the store, for ever.
    Failed,
}

/// What is to be done with a row, as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Take it.
    Take,
    /// Leave it, and say why.
    Leave(Outcome),
}

/// Decides about one row. `due_soon`: until when a pending row counts as on its way.
pub fn judge(work: &Work, row: &Row, due_soon: Timestamp) -> Verdict {
    let leave = Verdict::Leave;
    if !work.selection.wants(row) {
        return leave(Outcome::NotSelected);
    }
    // Marked by this very work: by the page that was cut off, or by who does the same page beside us. If it came to rest
    // again since, it has had its turn: a replay takes nothing twice, whatever the clocks say.
    if let Some(taken) = row.replay.filter(|taken| taken.by == work.id) {
        // The walk before took and counted it, and it was put off since.
        if work.is_again && row.due_at.is_some_and(|at| at > due_soon) {
            return leave(Outcome::NotSelected);
        }
        // It was counted among the parked.
        let elsewhere = work.page.by_day && taken.from == Status::DeadLetter;
        return leave(if elsewhere { Outcome::NotSelected } else { Outcome::Replayed });
    }
    match (row.status, work.kind) {
        (Status::Pending, Kind::Replay) => leave(Outcome::InFlight),
        (Status::Pending, Kind::Resume) if row.due_at.is_some_and(|at| at > due_soon) => {
            Verdict::Take
        }
        (Status::Pending, Kind::Resume) => leave(Outcome::InFlight),
        (status, _) if !work.selection.status.contains(&status) => {
            let is_done = status == Status::Processed;
            leave(if is_done { Outcome::AlreadyDone } else { Outcome::NotSelected })
        }
        // It stands in another index, and is taken there: never counted twice.
        (Status::DeadLetter, _) if work.page.by_day => leave(Outcome::NotSelected),
        _ if row.dead_at.or(row.finished_at).is_some_and(|at| at >= work.began) => {
            leave(Outcome::Moved)
        }
        _ => Verdict::Take,
    }
}

/// What one page came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// What became of each row that was looked at.
    pub told: Vec<Told>,
    /// How many of them this advance took: they use up the rate.
    pub taken: u32,
    /// The next page.
    pub page: Batch,
    /// Where the walk goes on behind it.
    pub leg: Leg,
}

impl Work {
    /// New work, at its beginning.
    pub fn new(order: Order, now: Timestamp) -> Self {
        let Order { id, kind, source, selection, rate, reason, actor } = order;
        Self {
            leg: Leg::first(kind, &selection),
            id,
            kind,
            source,
            selection,
            rate: rate.clamp(1, MAX_RATE),
            reason,
            actor,
            began: now,
            page: Batch::default(),
            is_again: false,
            paced_until: now,
            counts: Counts::default(),
            told: Vec::new(),
            advanced_at: None,
            ended_at: None,
            cancelled: None,
            version: 0,
        }
    }

    /// Where it stands.
    pub fn state(&self) -> State {
        match (&self.ended_at, &self.cancelled) {
            (Some(_), _) => State::Completed,
            (None, Some(_)) => State::Cancelled,
            (None, None) => State::Running,
        }
    }

    /// Whether it waits before it walks again.
    pub fn rests(&self, now: Timestamp) -> bool {
        let is_at_the_start = self.page.events.is_empty() && self.leg == self.first_leg();
        let settled_at = self.began.saturating_add(SETTLES).unwrap_or(Timestamp::MAX);
        self.is_again && is_at_the_start && now < settled_at
    }

    fn first_leg(&self) -> Leg {
        Leg::first(self.kind, &self.selection)
    }

    const fn pace(&self) -> Pace {
        Pace { rate: self.rate, paced_until: self.paced_until }
    }

    /// How many rows may be taken now, so that the last of their messages goes within [`AHEAD`].
    pub fn allowance(&self, now: Timestamp) -> usize {
        self.pace().allowance(now)
    }

    /// How long the message of the `n`-th row of a page waits.
    pub fn delay(&self, now: Timestamp, n: usize) -> Duration {
        self.pace().delay(now, n)
    }

    /// When the rate is used up until, after a page.
    #[must_use]
    pub fn paced_after(&self, taken: u32, now: Timestamp) -> Self {
        Self { paced_until: self.pace().after(taken, now), ..self.clone() }
    }

    /// Whether the end of this walk is the beginning of another. Names need no index.
    fn walks_again(&self) -> bool {
        self.kind == Kind::Resume && !self.is_again && self.selection.events.is_empty()
    }

    /// The work after a page.
    #[must_use]
    pub fn after(&self, done: &Done, now: Timestamp) -> Self {
        let mut after = self.paced_after(done.taken, now);
        (after.leg, after.page) = (done.leg.clone(), done.page.clone());
        for told in &done.told {
            after.counts.add(told.outcome);
            // Of named events each is told; of a walk only what a person may want to look at.
            let worth = !self.selection.events.is_empty()
                || matches!(told.outcome, Outcome::InFlight | Outcome::Moved | Outcome::Failed);
            if worth && after.told.len() < MAX_TOLD {
                after.told.push(told.clone());
            }
        }
        after.advanced_at = Some(now);
        let is_over = after.leg == Leg::End && after.page.events.is_empty();
        if is_over && self.walks_again() {
            // The index lags. What a worker put off just before the resume may not have been in it.
            (after.leg, after.is_again) = (self.first_leg(), true);
        } else {
            after.ended_at = is_over.then_some(now);
        }
        after.version = self.version + 1;
        after
    }
}

impl Counts {
    /// Counts one row.
    pub fn add(&mut self, outcome: Outcome) {
        self.looked_at += 1;
        match outcome {
            Outcome::Replayed => self.replayed += 1,
            Outcome::InFlight => self.in_flight += 1,
            Outcome::Moved => self.moved += 1,
            Outcome::AlreadyDone => self.already_done += 1,
            Outcome::Absent => self.absent += 1,
            Outcome::Failed => self.failed += 1,
            Outcome::NotSelected => {}
        }
    }
}

/// Types that a survey names; the events of others are counted together.
pub const MAX_TYPES: usize = 100;

/// Events that a survey names.
pub const SHOWN: usize = 20;

/// What a work would do, without doing it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Survey {
    /// What would become of the rows.
    pub counts: Counts,
    /// Rows that would be taken, by their status.
    pub by_status: BTreeMap<String, u64>,
    /// Rows that would be taken, by their type.
    pub by_type: BTreeMap<String, u64>,
    /// The first of them.
    pub first: Vec<String>,
    /// Named events, one by one.
    pub told: Vec<Told>,
    /// Whether the survey was cut: there are more rows than were looked at.
    pub more: bool,
}

impl Survey {
    /// Counts a row that would be taken.
    pub fn take(&mut self, row: &Row) {
        self.counts.add(Outcome::Replayed);
        *self.by_status.entry(row.status.to_string()).or_default() += 1;
        let kind = row.new.event_type.as_deref().unwrap_or("(no type)");
        let is_full = self.by_type.len() >= MAX_TYPES && !self.by_type.contains_key(kind);
        let kind = if is_full { "(other types)" } else { kind };
        *self.by_type.entry(kind.to_owned()).or_default() += 1;
        if self.first.len() < SHOWN {
            self.first.push(row.new.key.event_id().to_owned());
        }
    }
}

#[cfg(test)]
mod tests;
