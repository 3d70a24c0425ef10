//! Bulk work, advanced by one page: `api` does the first ones at once, the sweeper the others each minute.
//!
//! The order makes a death anywhere harmless. A row is changed only as it was read, and is marked with the work; its due
//! time remembers it if its message is never sent; the work's own row comes last, under the version that was read. Who
//! finds a page half done, or done by somebody beside him, finds the marks, and counts what is marked as taken.

use std::{collections::BTreeMap, time::Duration};

use domain::{
    bulk::{Batch, Done, Leg, Outcome, State, Survey, Told, Verdict, Work, judge},
    id::{InboxKey, ReplayId},
    inbox::Row,
    message::InboundMessage,
    ports::{Again, Bulk, Inbox, Queue, StoreError, Stored, Walk},
};
use futures_util::{StreamExt as _, stream};
use jiff::Timestamp;

use crate::paged::{self, Paged, Progress};

/// Entries of an index that are read at once. Those of other sources cost nothing more.
const SCAN: usize = 1000;

/// Queries for one page. A walk over days may meet many empty partitions, and its row need not be written after each.
const QUERIES: usize = 20;

/// Rows under way at once.
const WIDTH: usize = 16;

/// What advances bulk work.
#[derive(Debug)]
pub struct Bulks<'a, I, B, Q> {
    /// Events received.
    pub inbox: &'a I,
    /// The rows of the work.
    pub bulk: &'a B,
    /// The worker's queue.
    pub queue: &'a Q,
    /// Shards of the inbox's indexes.
    pub shards: u16,
    /// When the sweeper looks for an event whose message was sent.
    pub first_due: Duration,
}

/// What became of one advance.
pub type Step = paged::Step<Work>;

/// A row that is to be taken, and when its message goes.
struct Taking {
    place: usize,
    row: Row,
    delay: Duration,
}

impl<I, B, Q> Paged for Bulks<'_, I, B, Q>
where
    I: Inbox + Walk,
    B: Bulk,
    Q: Queue<InboundMessage>,
{
    type Id = ReplayId;
    type Work = Work;

    async fn open(&self) -> Stored<Vec<ReplayId>> {
        self.bulk.open().await
    }

    async fn read(&self, id: ReplayId) -> Stored<Option<Work>> {
        self.bulk.bulk(id).await
    }

    async fn close(&self, id: ReplayId) -> Stored<()> {
        self.bulk.close(id).await
    }

    async fn advance(&self, work: &Work, now: Timestamp) -> Stored<Step> {
        self.step(work, now).await
    }

    fn progress(work: &Work) -> Progress {
        Progress { looked_at: work.counts.looked_at, taken: work.counts.replayed }
    }
}

impl<I, B, Q> Bulks<'_, I, B, Q>
where
    I: Inbox + Walk,
    B: Bulk,
    Q: Queue<InboundMessage>,
{
    /// Advances a work by one page.
    ///
    /// # Errors
    /// The store could not do it. The page is done again by the next advance.
    pub async fn step(&self, work: &Work, now: Timestamp) -> Stored<Step> {
        if work.state() != State::Running {
            self.bulk.close(work.id).await?;
            return Ok(Step::Over);
        }
        if work.rests(now) || (work.page.events.is_empty() && work.allowance(now) == 0) {
            return Ok(Step::Waits);
        }
        let (told, taken) = self.page(work, now).await?;
        let most = work.paced_after(taken, now).allowance(now);
        // It is written down before it is touched: what is taken leaves the index.
        let (next, broken) = match self.next(work, most, now).await {
            Ok(next) => (next, None),
            // What was done counts all the same; the walk goes on from here the next time.
            Err(error) => ((Batch::default(), work.leg.clone()), Some(error)),
        };
        let (page, leg) = next;
        let done = Done { told, taken, page, leg };
        let Some(after) = self.bulk.advance(&work.after(&done, now)).await? else {
            return Ok(Step::Lost);
        };
        if let Some(error) = broken {
            return Err(error);
        }
        if after.state() != State::Running {
            self.bulk.close(after.id).await?;
        }
        Ok(Step::Went(Box::new(after)))
    }

    /// Looks at no more than `most` rows, or until it `is_late`, and changes nothing.
    ///
    /// # Errors
    /// The store could not be read.
    pub async fn survey(
        &self,
        mut work: Work,
        most: u64,
        is_late: impl Fn() -> bool,
    ) -> Stored<Survey> {
        let (mut survey, now) = (Survey::default(), work.began);
        while work.leg != Leg::End {
            if survey.counts.looked_at >= most || is_late() {
                survey.more = true;
                break;
            }
            (work.page, work.leg) = self.next(&work, domain::bulk::PAGE, now).await?;
            for (event_id, read) in self.read(&work, now).await {
                let outcome = match read? {
                    Seen::Take(row) => {
                        survey.take(&row);
                        Outcome::Replayed
                    }
                    Seen::Leave(outcome) => {
                        survey.counts.add(outcome);
                        outcome
                    }
                };
                if !work.selection.events.is_empty() {
                    survey.told.push(Told { event_id, outcome });
                }
            }
        }
        Ok(survey)
    }

    /// Until when a pending row counts as on its way.
    fn due_soon(&self, now: Timestamp) -> Timestamp {
        let soon = self.first_due.saturating_add(domain::bulk::AHEAD);
        now.saturating_add(soon).unwrap_or(Timestamp::MAX)
    }

    /// The next page, and where the walk goes on behind it.
    async fn next(&self, work: &Work, most: usize, now: Timestamp) -> Stored<(Batch, Leg)> {
        if let Leg::Named { next } = work.leg {
            return Ok(named(work, next, most));
        }
        let (due_soon, mut leg) = (self.due_soon(now), work.leg.clone());
        for _ in 0..if most == 0 { 0 } else { QUERIES } {
            let Some((part, after)) = leg.part(work, due_soon) else { break };
            let page = self.inbox.page(&part, after, SCAN).await?;
            let last = page.marks.last().cloned();
            let ours = page.marks.into_iter().filter(|mark| leg.may_be(work, mark));
            let mut ours: Vec<_> = ours.take(most + 1).collect();
            let is_cut = ours.len() > most;
            ours.truncate(most);
            let by_day = matches!(leg, Leg::Finished { .. });
            leg = match (is_cut, ours.last(), last) {
                (true, Some(mark), _) => leg.past(mark.clone()),
                (false, _, Some(last)) if page.more => leg.past(last),
                _ => leg.next(work, self.shards),
            };
            if !ours.is_empty() {
                let events = ours.into_iter().map(|mark| mark.key.event_id().to_owned());
                return Ok((Batch { events: events.collect(), by_day }, leg));
            }
        }
        Ok((Batch::default(), leg))
    }

    /// Takes what is to be taken, then sends its messages. What became of each row, and how many were taken.
    async fn page(&self, work: &Work, now: Timestamp) -> Stored<(Vec<Told>, u32)> {
        let (mut told, mut taking) = (Vec::new(), Vec::new());
        for (event_id, read) in self.read(work, now).await {
            let outcome = match read? {
                Seen::Take(row) => {
                    let (place, delay) = (told.len(), work.delay(now, taking.len()));
                    taking.push(Taking { place, row: *row, delay });
                    Outcome::Replayed
                }
                Seen::Leave(outcome) => outcome,
            };
            told.push(Told { event_id, outcome });
        }
        let mut takes = stream::iter(taking)
            .map(async |taking| {
                let again = self.take(work, &taking, now).await;
                (taking, again)
            })
            .buffered(WIDTH);
        // By the second at which they go.
        let mut messages: BTreeMap<Duration, Vec<InboundMessage>> = BTreeMap::new();
        let (mut taken, mut broken) = (0, None);
        while let Some((Taking { place, row, delay }, again)) = takes.next().await {
            let outcome = match again {
                Ok(Again::Yes) => {
                    taken += 1;
                    messages.entry(delay).or_default().push(InboundMessage(row.new.key));
                    continue;
                }
                Ok(Again::Before) => continue,
                Ok(Again::Moved) => Outcome::Moved,
                Err(error) if error.is_transient() => {
                    broken.get_or_insert(error);
                    continue;
                }
                Err(error) => {
                    failed(work, row.new.key.event_id(), &error);
                    Outcome::Failed
                }
            };
            if let Some(told) = told.get_mut(place) {
                told.outcome = outcome;
            }
        }
        // Also if some rows could not be taken: these are pending now.
        for (delay, messages) in messages {
            let unsent = self.queue.send(&messages, delay).await.len();
            if unsent > 0 {
                let id = work.id;
                tracing::warn!(stage = "bulk", %id, unsent, "the sweeper sends them when they are due");
            }
        }
        broken.map_or(Ok((told, taken)), Err)
    }

    async fn take(&self, work: &Work, taking: &Taking, now: Timestamp) -> Stored<Again> {
        let wait = self.first_due.saturating_add(taking.delay);
        let due_at = now.saturating_add(wait).unwrap_or(Timestamp::MAX);
        match work.kind {
            domain::bulk::Kind::Replay => self.inbox.again(&taking.row, work.id, due_at, now).await,
            domain::bulk::Kind::Resume => self.inbox.sooner(&taking.row, work.id, due_at).await,
        }
    }

    /// Reads the rows of the page, in order, and says what is to be done with each.
    async fn read(&self, work: &Work, now: Timestamp) -> Vec<(String, Stored<Seen>)> {
        let due_soon = self.due_soon(now);
        stream::iter(work.page.events.clone())
            .map(async |event_id| {
                let seen = match InboxKey::new(work.source.clone(), &event_id) {
                    Ok(key) => self.look(work, &key, due_soon).await,
                    Err(_) => Ok(Seen::Leave(Outcome::Absent)),
                };
                (event_id, seen)
            })
            .buffered(WIDTH)
            .collect()
            .await
    }

    async fn look(&self, work: &Work, key: &InboxKey, due_soon: Timestamp) -> Stored<Seen> {
        let row = match self.inbox.read(key).await {
            Ok(Some(row)) => row,
            Ok(None) => return Ok(Seen::Leave(Outcome::Absent)),
            Err(error) if error.is_transient() => return Err(error),
            // One row that nobody can read must not hold the others.
            Err(error) => {
                failed(work, key.event_id(), &error);
                return Ok(Seen::Leave(Outcome::Failed));
            }
        };
        Ok(match judge(work, &row, due_soon) {
            Verdict::Take => Seen::Take(Box::new(row)),
            Verdict::Leave(outcome) => Seen::Leave(outcome),
        })
    }
}

/// What is to be done with a row.
enum Seen {
    Take(Box<Row>),
    Leave(Outcome),
}

fn named(work: &Work, next: usize, most: usize) -> (Batch, Leg) {
    let events: Vec<_> = work.selection.events.iter().skip(next).take(most).cloned().collect();
    let next = next + events.len();
    let is_over = next >= work.selection.events.len();
    let leg = if is_over { Leg::End } else { Leg::Named { next } };
    (Batch { events, by_day: false }, leg)
}

fn failed(work: &Work, event_id: &str, error: &StoreError) {
    let (id, error) = (work.id, error as &dyn std::error::Error);
    tracing::error!(stage = "bulk", %id, event_id, error, result = "failed", "an event cannot be taken");
}
