//! A request that carries several events: each of them gets a row of its own, and the request's row is finished.
//!
//! Any step may be the last, and a copy of this may do the same beside it; the end is the same:
//!
//! * Died among the puts, or another copy put some: a row is put if it is absent, under a name that follows from the
//!   request, so whoever comes later finds it there.
//! * Died between a row and its message: the row has a due time of its own, from when it is put.
//! * An event was finished before its request: nothing of it depends on the request's row any more.
//! * Parked meanwhile: only a row that was parked before somebody asked for the request is armed again, so a second try
//!   revives nothing that the first one put.
//! * Died before the request's row is finished: the next try finds every row there, counts them, and finishes.
//! * The request was armed again under a slow copy: that copy's finish meets the next cycle and does nothing, and what it
//!   put is what the next one would have put.

use domain::{
    body::Sha256Hash,
    inbox::{Accepted, Applied, ChangeResult, Failure, Noted, Row, Status, due_while_running},
    message::InboundMessage,
    ports::{AttemptNote, Bodies, Inbox, Queue, Registry, State, StoreError, Stored},
};
use flow::{
    accept::{AcceptError, Door, Enqueued, Entry},
    content::Content,
    element,
    incoming::Incoming,
};
use futures_util::{StreamExt as _, stream};
use jiff::Timestamp;
use runtime::telemetry::Step;
use signing::Scheme;

use crate::{
    Worker,
    attempt::{Ended, failed, hopeless},
};

/// Rows that are put at once. At 5 ms for each, 10,000 take 3 s of the function's 30.
const WIDTH: usize = 16;

/// Events after which is written down how far the request is split. A smaller request is split without such a note; of
/// the largest they are 1 in 250 writes.
const BETWEEN_NOTES: usize = 250;

/// What became of the events of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    /// They have new rows.
    new: usize,
    /// They had rows before.
    before: usize,
    /// Of those, the row has other bytes: it stays.
    conflicting: usize,
    /// Rows that were parked, and are pending again.
    rearmed: usize,
    /// The worker was not told; the sweeper will.
    unsent: usize,
}

impl Tally {
    fn count(&mut self, entry: &Entry) {
        match entry.accepted {
            Accepted::New => self.new += 1,
            Accepted::Duplicate { same_body, .. } => {
                self.before += 1;
                self.conflicting += usize::from(!same_body);
            }
        }
        self.rearmed += usize::from(entry.rearmed);
        self.unsent += usize::from(entry.enqueued == Enqueued::Failed);
    }

    fn results(self) -> Vec<ChangeResult> {
        let counts = [(self.new, Applied::Applied), (self.before, Applied::AlreadyEmitted)];
        let counts = counts.into_iter().filter(|(count, _)| *count > 0);
        let mut results: Vec<_> =
            counts.map(|(count, result)| ChangeResult::children(count, result)).collect();
        if self.conflicting > 0 {
            let what = format!("{} of them have a known id and other bytes", self.conflicting);
            results.push(ChangeResult::new(what, Applied::DuplicateEffect));
        }
        results
    }
}

impl<I, S, R, B, Q, N> Worker<'_, I, S, R, B, Q, N>
where
    I: Inbox,
    S: State,
    R: Registry,
    B: Bodies,
    Q: Queue<InboundMessage>,
    N: Fn() -> Timestamp,
{
    /// Splits a request. `receipt` is that of the message that brought it: no other try has it.
    pub(crate) async fn split(
        &self,
        row: &Row,
        content: &Content,
        scheme: &Scheme,
        receipt: &str,
    ) -> Stored<Ended> {
        let elements = match element::elements(row, content, scheme) {
            Ok(elements) => elements,
            Err(not) => return Ok(hopeless("not_a_batch", &not.to_string())),
        };
        let total = elements.events.len();
        if total == 0 {
            let reason = "no_events: there are no events in this request".to_owned();
            return self.finish(row, Status::Ignored, Vec::new(), Some(reason)).await;
        }
        let token = Sha256Hash::of(format!("{}:{receipt}", row.cycle).as_bytes()).to_string();
        // As long as those of ingress: rows are paid by size.
        let token: String = token.chars().take(32).collect();
        let done = usize::try_from(row.split).unwrap_or(usize::MAX).min(total);
        let mut tally =
            Tally { before: done, conflicting: elements.conflicting, ..Tally::default() };
        let mut rest = elements.events.into_iter().skip(done);
        let mut put = done;
        loop {
            let some: Vec<_> = rest.by_ref().take(BETWEEN_NOTES).collect();
            if some.is_empty() {
                break;
            }
            put += some.len();
            if let Err(ended) = self.put_all(row, some, &token, &mut tally).await? {
                return Ok(ended);
            }
            if put < total && self.note_split(row, put, total).await? == Noted::Moved {
                return Ok(Ended::Moved);
            }
        }
        self.count_conflicting(row, elements.conflicting);
        self.tell_split(row, tally, elements.repeated);
        self.finish(row, Status::Processed, tally.results(), None).await
    }

    /// Puts some of the events, and tells of those that are there even if others are not.
    async fn put_all(
        &self,
        row: &Row,
        events: Vec<Incoming<'_>>,
        token: &str,
        tally: &mut Tally,
    ) -> Stored<Result<(), Ended>> {
        let door = Door {
            inbox: self.inbox,
            queue: self.queue,
            bodies: self.bodies,
            // The message gets its chance first.
            first_due: self.limits.visibility,
        };
        let door = &door;
        let put = |event| async move { door.put(event, token.to_owned(), (self.now)()).await };
        let put: Vec<Result<Entry, AcceptError>> =
            stream::iter(events).map(put).buffer_unordered(WIDTH).collect().await;
        let (mut entries, mut error) = (Vec::with_capacity(put.len()), None);
        for put in put {
            match put {
                Ok(entry) => entries.push(entry),
                Err(first) => error = error.or(Some(first)),
            }
        }
        door.announce_all(&mut entries).await;
        let conflicting = tally.conflicting;
        entries.iter().for_each(|entry| tally.count(entry));
        self.count_conflicting(row, tally.conflicting - conflicting);
        error.map_or(Ok(Ok(())), not_put)
    }

    /// Writes down how far the request is split: the next try begins there. The attempt is taken back if it was counted
    /// before it ran, for it got somewhere.
    async fn note_split(&self, row: &Row, put: usize, total: usize) -> Stored<Noted> {
        let note = AttemptNote {
            attempts: row.attempts,
            failure: None,
            due_at: due_while_running((self.now)(), &self.limits),
            next_action: format!(
                "{put} of the {total} events have rows of their own; the others follow"
            ),
            waits_until: None,
            waits_since: row.waits_since,
            split: Some(u32::try_from(put).unwrap_or(u32::MAX)),
        };
        self.inbox.note(&row.claim(), &note).await
    }

    /// The end of an attempt whose time is over. Whether a commit that was under way happened is seen when the row is next
    /// written: that write is conditional on a pending row.
    ///
    /// A request with many events that was split further than before did not fail. It goes on where it stands.
    pub(crate) async fn out_of_time(&self, row: &Row) -> Stored<Ended> {
        let now = match row.new.parent {
            None => self.inbox.read(&row.new.key).await?,
            Some(_) => None,
        };
        Ok(match now {
            Some(now) if now.cycle == row.cycle && now.split > row.split => Ended::Waits {
                delay: Some(std::time::Duration::ZERO),
                reason: Failure::new(
                    "splitting",
                    &format!("{} of its events have rows of their own", now.split),
                ),
            },
            _ => failed("timed_out", "the attempt took longer than the function has time"),
        })
    }

    /// Another body under the id of an event: the first one stays, in whichever request it came.
    fn count_conflicting(&self, row: &Row, count: usize) {
        if count == 0 {
            return;
        }
        let (source, count) = (row.new.key.source().as_str(), u32::try_from(count));
        self.metrics.count("webhooks_conflicting_total", Some(source), count.unwrap_or(u32::MAX));
    }

    fn tell_split(&self, row: &Row, tally: Tally, repeated: usize) {
        let source = row.new.key.source().as_str();
        let step = Step {
            stage: "split",
            source: Some(source),
            event_id: Some(row.new.key.event_id()),
            event_type: row.new.event_type.as_deref(),
            result: if tally.conflicting > 0 { "same_id_other_body" } else { "split" },
            ..Step::default()
        };
        let Tally { new, before, conflicting, rearmed, unsent } = tally;
        let told = format!(
            "{new} events have new rows, {before} had rows ({conflicting} with other bytes, {rearmed} parked before and \
             now pending), {repeated} came twice, {unsent} wait for the sweeper"
        );
        if conflicting > 0 {
            step.warn(&told, None);
        } else {
            step.info(&told);
        }
    }
}

/// Why an event has no row, as far as we know.
fn not_put(error: AcceptError) -> Stored<Result<(), Ended>> {
    match error {
        AcceptError::Body(cause) | AcceptError::Row(cause) | AcceptError::Rearm(cause) => {
            Err(cause)
        }
        // A part of a body that could be read is not larger than it.
        AcceptError::TooLarge(_) => Ok(Err(hopeless("payload_too_large", &error.to_string()))),
        AcceptError::Compress(_) => Err(StoreError::Unavailable(error.into())),
    }
}
