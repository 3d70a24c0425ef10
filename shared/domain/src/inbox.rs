//! The life of a received event: `pending → processed | ignored | dead_letter`, and back when somebody asks.

use std::{collections::BTreeMap, fmt, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    body::{Sha256Hash, StoredBody},
    event::{ObjectRef, Origin, Version},
    id::{InboxKey, ReplayId},
    retry::Backoff,
};

/// Where an event stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Accepted, and owed: it has a due time, and the sweeper finds it.
    Pending,
    /// Done; what it proposed is true, or was refused by a guard.
    Processed,
    /// Done; nobody wanted it.
    Ignored,
    /// Parked: it waits for a person, with a reason.
    DeadLetter,
}

impl Status {
    /// Whether nothing is owed any more.
    pub const fn is_finished(self) -> bool {
        matches!(self, Self::Processed | Self::Ignored)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pending => "pending",
            Self::Processed => "processed",
            Self::Ignored => "ignored",
            Self::DeadLetter => "dead_letter",
        })
    }
}

/// An event that has been verified and identified, on its way into the inbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRow {
    /// What it is called.
    pub key: InboxKey,
    /// The provider's word for what happened.
    pub event_type: Option<String>,
    /// When we got it.
    pub received_at: Timestamp,
    /// When the sweeper looks for it, if no message has brought it to the worker by then.
    pub due_at: Timestamp,
    /// Its bytes.
    pub body: StoredBody,
    /// The headers that are kept: those on the scheme's allow-list.
    pub headers: BTreeMap<String, String>,
    /// The object it speaks of.
    pub object: Option<ObjectRef>,
    /// How new its knowledge of the object is.
    pub version: Option<Version>,
    /// When the provider says it happened.
    pub occurred_at: Option<Timestamp>,
    /// Who brought it.
    pub origin: Origin,
    /// Which of the source's secrets it was signed with, so that an operator sees when an old one can go.
    pub key_id: Option<String>,
    /// Told apart from every other try to put this row: a retry that meets its own row is not a duplicate.
    pub token: String,
    /// The W3C trace context that came with it.
    pub traceparent: Option<String>,
    /// The provider's id of this delivery, or of the event where that is not the key: for correlation only.
    pub delivery_id: Option<String>,
    /// The event id of the request's row, if this event came with others in one request.
    pub parent: Option<String>,
}

/// What became of a try to put a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// The row is there, and it is ours.
    New,
    /// The row was there before.
    Duplicate {
        /// Where the old row stands.
        status: Status,
        /// Whether the old row has the same body.
        same_body: bool,
    },
}

/// A row of the inbox, as read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// What was put.
    pub new: NewRow,
    /// Where it stands.
    pub status: Status,
    /// Attempts of this cycle that have failed, or were counted before they ran.
    pub attempts: u32,
    /// How often it was re-armed. Every write of a worker is conditional on it, so that a slow worker of an
    /// earlier cycle cannot end a later one.
    pub cycle: u32,
    /// How often the sweeper has claimed it in this cycle.
    pub sweeps: u32,
    /// When the sweeper looks for it next; pending rows only.
    pub due_at: Option<Timestamp>,
    /// When it was parked; parked rows only.
    pub dead_at: Option<Timestamp>,
    /// When it was finished.
    pub finished_at: Option<Timestamp>,
    /// What went wrong last.
    pub last_error: Option<Failure>,
    /// What will happen next and when, in plain words.
    pub next_action: Option<String>,
    /// Until when it waits for something that is not its own failure, since the last attempt.
    pub waits_until: Option<Timestamp>,
    /// When it first had to wait so in this cycle, since its source was last paused.
    pub waits_since: Option<Timestamp>,
    /// What became of each change it proposed.
    pub results: Vec<ChangeResult>,
    /// When this cycle began: received, or re-armed.
    pub armed_at: Timestamp,
    /// Of a request with many events: so many, the first ones, are known in this cycle to have rows of their own.
    pub split: u32,
    /// Other bodies that came under its id, if any was noted. Its own is the first and stays, in every cycle.
    pub other_bodies: Option<OtherBodies>,
    /// The bulk work that armed it last, if one has. That work does not take it again.
    pub replay: Option<Replayed>,
}

/// That bulk work took a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// The work.
    pub by: ReplayId,
    /// Where the row stood.
    pub from: Status,
}

/// Another body that came, verified, under the id of a row. Its bytes are not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherBody {
    /// Its hash.
    pub sha256: Sha256Hash,
    /// Its length in bytes.
    pub length: u64,
    /// When it came.
    pub at: Timestamp,
}

/// The other bodies that were noted of one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherBodies {
    /// How many notes there are. More may have come: who notes them may leave some out, and a note may fail.
    pub count: u64,
    /// The one that was noted last.
    pub last: OtherBody,
}

impl Row {
    /// The proof that this row was read as it is.
    pub fn claim(&self) -> Claim {
        Claim { key: self.new.key.clone(), cycle: self.cycle }
    }
}

/// What became of one change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeResult {
    /// Which change: an object, an operation key, or an outgoing event.
    pub what: String,
    /// What became of it.
    pub result: Applied,
    /// Why, if the result's word does not say it all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl ChangeResult {
    /// A change, and what became of it.
    pub fn new(what: impl Into<String>, result: Applied) -> Self {
        Self { what: what.into(), result, why: None }
    }

    /// A transition of `what` that was proposed and is not allowed. The reason is cut as a [`Failure`]'s is.
    pub fn refused(what: impl Into<String>, why: &str) -> Self {
        let why = Some(sanitised(why));
        Self { what: what.into(), result: Applied::Refused, why }
    }

    /// So many events of a request have rows of their own: put now, or there before.
    pub fn children(count: usize, result: Applied) -> Self {
        Self::new(format!("{CHILDREN} {count}"), result)
    }
}

/// How many rows a request was split into, by its results.
pub fn children(results: &[ChangeResult]) -> Option<u64> {
    let counts = results.iter().filter_map(|result| {
        let (name, count) = result.what.split_once(' ')?;
        (name == CHILDREN).then(|| count.parse::<u64>().ok()).flatten()
    });
    counts.reduce(u64::saturating_add)
}

/// Most outgoing events of earlier runs that a row's results go on naming.
const MAX_EARLIER: usize = 50;

/// The results of a run, followed by the outgoing events of earlier ones that it does not name. They went out, whatever
/// became of this run, and the row is all that leads to them.
#[must_use]
pub fn with_earlier(mut results: Vec<ChangeResult>, earlier: &[ChangeResult]) -> Vec<ChangeResult> {
    let went_out = |past: &&ChangeResult| {
        past.what.starts_with("event ")
            && matches!(past.result, Applied::Applied | Applied::AlreadyEmitted)
    };
    let is_named = |past: &ChangeResult| results.iter().any(|result| result.what == past.what);
    let missing = earlier.iter().filter(went_out).filter(|past| !is_named(past));
    let missing = missing.map(|past| ChangeResult::new(&past.what, Applied::AlreadyEmitted));
    let missing: Vec<_> = missing.take(MAX_EARLIER).collect();
    results.extend(missing);
    results
}

/// What the rows of a request's events are called in its results.
const CHILDREN: &str = "children";

/// The ways a change can end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Applied {
    /// It is true now.
    Applied,
    /// A newer version was there already.
    Stale,
    /// The operation had been done already.
    DuplicateEffect,
    /// The outgoing event had been written already.
    AlreadyEmitted,
    /// The object may not go where the event would have it; nothing that follows from it happens.
    Refused,
    /// The object was read from its provider after the event came: what the event says is in it.
    Covered,
}

/// Longest error text that is kept, in characters.
pub const MAX_ERROR: usize = 500;

/// Why an attempt failed, or why an event was parked: a stable code, and words for a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// A stable word, such as `handler_failed`.
    pub code: String,
    /// Words for a person, sanitised.
    pub message: String,
}

impl Failure {
    /// A failure whose message is cut to [`MAX_ERROR`] characters and holds no control characters.
    pub fn new(code: &str, message: &str) -> Self {
        Self { code: code.to_owned(), message: sanitised(message) }
    }
}

fn sanitised(text: &str) -> String {
    text.chars().take(MAX_ERROR).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

impl Row {
    /// How many rows this one was split into, if it is a request with several events.
    pub fn children(&self) -> Option<u64> {
        children(&self.results)
    }

    /// Why this row is parked when its attempts are used up although none of them parked it: the last left no trace.
    pub fn attempts_used_up(&self) -> Failure {
        let seen = self.last_error.as_ref();
        let seen = seen.map(|last| format!("; last seen: {}: {}", last.code, last.message));
        let message = format!(
            "all {} attempts were made, and the last left no trace, as of an event that exceeds the function's memory or \
             time{}",
            self.attempts,
            seen.unwrap_or_default()
        );
        Failure::new("attempts_used_up", &message)
    }
}

/// Proof that a row was read as pending in one cycle. What ends an attempt is conditional on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The row.
    pub key: InboxKey,
    /// Its cycle when it was read.
    pub cycle: u32,
}

/// Whether a conditional write found the row as its claim says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Noted {
    /// Written.
    Yes,
    /// The row has moved on: finished, parked, or re-armed by somebody else. Read it again.
    Moved,
}

/// The limits of processing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Attempts before an event is parked.
    pub attempts: u32,
    /// Wait between attempts.
    pub backoff: Backoff,
    /// How long a message stays hidden after it was received. The sweeper waits longer than this.
    pub visibility: Duration,
    /// How long an event may wait for something (a missing parent, a conflict) before it is parked.
    pub horizon: Duration,
    /// How much later than the end of a wait the sweeper looks: the delayed message gets its chance first.
    pub wait_margin: Duration,
    /// How long an event of a paused source waits until it is looked at again, whether or not anybody resumes the source.
    pub pause_wait: Duration,
    /// How much younger than the parking a message must be to count as an operator's redrive.
    pub redrive_margin: Duration,
    /// How long a finished row stays, to recognise duplicates.
    pub retention: Duration,
}

/// What a worker does with a message whose row it has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Triage {
    /// Run the handler.
    Run {
        /// Count the attempt before the handler runs: earlier receives ended without a trace, so this event may be
        /// one that kills its process.
        count_first: bool,
    },
    /// Nothing is owed: acknowledge.
    Finished,
    /// An operator moved the message back from the dead-letter queue: re-arm the row, then run.
    Redriven,
    /// Parked: let the message fail at once, until SQS moves it to the dead-letter queue.
    Parked,
    /// Attempts are used up, although nothing parked the row: park it now.
    Exhausted,
}

/// Receives of one message from which on an attempt is counted before it runs.
pub const COUNT_FIRST_FROM: u32 = 3;

/// Decides what to do with a message, received `receives` times, sent at `sent_at`, for `row`.
pub fn triage(row: &Row, receives: u32, sent_at: Timestamp, limits: &Limits) -> Triage {
    match row.status {
        Status::Processed | Status::Ignored => Triage::Finished,
        Status::DeadLetter => {
            // Only a redrive sends an old message with a new time; the margin exceeds clock skew and any sender's
            // time-out, so a message that was under way when the row was parked does not look like one.
            let dead_at = row.dead_at.unwrap_or(Timestamp::MAX);
            let redriven =
                dead_at.saturating_add(limits.redrive_margin).is_ok_and(|at| sent_at > at);
            if redriven { Triage::Redriven } else { Triage::Parked }
        }
        Status::Pending if row.attempts >= limits.attempts => Triage::Exhausted,
        Status::Pending => Triage::Run { count_first: receives >= COUNT_FIRST_FROM },
    }
}

/// What is written after an attempt that did not finish its event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// Try again.
    Retry {
        /// When the next try may begin.
        wait: Duration,
        /// When the sweeper looks.
        due_at: Timestamp,
    },
    /// Stop and wait for a person.
    Park,
}

/// Decides what follows the failure that makes the count of attempts `attempts` (counted from 1).
pub fn after_failure(
    attempts: u32,
    permanent: bool,
    now: Timestamp,
    jitter: f64,
    limits: &Limits,
) -> After {
    if permanent || attempts >= limits.attempts {
        return After::Park;
    }
    let wait = limits.backoff.after(attempts, jitter);
    // Past the next visibility: the message gets its chance first, and the sweeper only finds what was lost.
    After::Retry { wait, due_at: later(now, wait.saturating_add(limits.visibility)) }
}

/// What is written when an event has to wait for something that is not its own failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterWaiting {
    /// Wait.
    Wait(Wait),
    /// It has waited for long enough: a person has to look.
    Park,
}

/// How an event waits. Its message is acknowledged meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// When the next try may begin.
    pub until: Timestamp,
    /// When the sweeper looks.
    pub due_at: Timestamp,
    /// The delay of the message that brings the event back. `None`: one is under way already, or no message can be
    /// delayed for so long, and the sweeper brings it.
    pub message: Option<Duration>,
}

/// Longest that SQS delays a message.
pub const MAX_DELAY: Duration = Duration::from_secs(900);

/// How much the clocks of two machines may differ.
const SKEW: Duration = Duration::from_secs(1);

/// Decides what follows when the event of a row has to wait.
///
/// `since` is from when on it counts as waiting: its first wait, or when its source was resumed. Not when it was armed: it
/// may be that nobody could try it for days.
pub fn after_waiting(
    row: &Row,
    since: Timestamp,
    delay: Duration,
    now: Timestamp,
    limits: &Limits,
) -> AfterWaiting {
    if later(since, limits.horizon) <= now {
        return AfterWaiting::Park;
    }
    // The queue counts whole seconds.
    let up = u64::from(delay.subsec_nanos() > 0);
    let delay = Duration::from_secs(delay.as_secs().saturating_add(up));
    let until = later(now, delay);
    // A copy that comes while the event waits already. Another message for each copy would never become fewer.
    let under_way = |at: &Timestamp| later(now, SKEW) < *at && *at <= until;
    if let (Some(until), Some(due_at)) = (row.waits_until.filter(under_way), row.due_at) {
        return AfterWaiting::Wait(Wait { until, due_at, message: None });
    }
    AfterWaiting::Wait(match delay {
        _ if delay > MAX_DELAY => Wait { until, due_at: until, message: None },
        _ => Wait { until, due_at: later(until, limits.wait_margin), message: Some(delay) },
    })
}

/// How an event of a paused source waits: for the message of whoever resumes the source, and should that be lost, for the
/// sweeper. Nothing of it counts.
pub fn while_paused(now: Timestamp, limits: &Limits) -> Wait {
    let until = later(now, limits.pause_wait);
    Wait { until, due_at: until, message: None }
}

/// When the sweeper looks for a row whose message is being worked on: past the time at which the queue shows the
/// message again.
pub fn due_while_running(now: Timestamp, limits: &Limits) -> Timestamp {
    later(now, limits.visibility.saturating_mul(2))
}

/// When a row that the sweeper claims for the `sweeps`-th time (counted from 0) is due again.
pub fn claimed_until(sweeps: u32, base: Duration, cap: Duration, now: Timestamp) -> Timestamp {
    later(now, base.saturating_mul(1_u32 << sweeps.min(20)).min(cap))
}

/// What will happen next, in words: `attempt 3 of 12 at 12:00:05Z`.
pub fn next_attempt(number: u32, of: u32, at: Timestamp) -> String {
    format!("attempt {number} of {of} at {}", clock(at))
}

/// A time of day to the second, rounded up: nothing happens before the time that was told.
pub fn clock(at: Timestamp) -> String {
    let up = later(at, Duration::from_millis(999));
    up.strftime("%H:%M:%SZ").to_string()
}

fn later(at: Timestamp, by: Duration) -> Timestamp {
    at.saturating_add(by).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::body::{Place, Sha256Hash, StoredBody};

    const LIMITS: Limits = Limits {
        attempts: 12,
        backoff: Backoff {
            floor: Duration::ZERO,
            base: Duration::from_secs(10),
            cap: Duration::from_secs(900),
        },
        visibility: Duration::from_secs(180),
        horizon: Duration::from_secs(86_400),
        wait_margin: Duration::from_secs(60),
        pause_wait: Duration::from_secs(6 * 3600),
        redrive_margin: Duration::from_secs(120),
        retention: Duration::from_secs(35 * 86_400),
    };

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    fn row(status: Status, attempts: u32, dead_at: Option<Timestamp>) -> Row {
        Row {
            new: NewRow {
                key: InboxKey::new("stripe".parse().unwrap(), "evt_1").unwrap(),
                event_type: None,
                received_at: at(0),
                due_at: at(120),
                body: StoredBody {
                    sha256: Sha256Hash::of(b""),
                    length: 0,
                    place: Place::Inline(Vec::new()),
                },
                headers: BTreeMap::new(),
                object: None,
                version: None,
                occurred_at: None,
                origin: Origin::Webhook,
                key_id: None,
                token: "token".to_owned(),
                traceparent: None,
                delivery_id: None,
                parent: None,
            },
            status,
            attempts,
            cycle: 0,
            sweeps: 0,
            due_at: None,
            dead_at,
            finished_at: None,
            last_error: None,
            next_action: None,
            waits_until: None,
            waits_since: None,
            results: Vec::new(),
            armed_at: at(0),
            split: 0,
            other_bodies: None,
            replay: None,
        }
    }

    #[track_caller]
    fn says(row: &Row, receives: u32, sent_at: i64, expected: Triage) {
        assert_eq!(triage(row, receives, at(sent_at), &LIMITS), expected);
    }

    #[test]
    fn a_finished_row_owes_nothing_however_its_message_looks() {
        for status in [Status::Processed, Status::Ignored] {
            says(&row(status, 0, None), 1, 0, Triage::Finished);
            says(&row(status, 12, None), 16, 99_999, Triage::Finished);
        }
    }

    /// WRK-dlq-redrive
    #[test]
    fn only_a_message_sent_well_after_the_parking_is_an_operators_redrive() {
        let parked = row(Status::DeadLetter, 12, Some(at(1000)));
        says(&parked, 1, 0, Triage::Parked);
        says(&parked, 1, 1000, Triage::Parked);
        says(&parked, 1, 1120, Triage::Parked);
        says(&parked, 1, 1121, Triage::Redriven);
        // A parked row without its time is never taken for redriven: a wrong guess would revive it for ever.
        says(&row(Status::DeadLetter, 12, None), 1, i64::from(u32::MAX), Triage::Parked);
    }

    /// WRK-receive-count-not-attempts, WRK-throttle-to-dlq
    #[test]
    fn receives_decide_how_an_attempt_is_counted_and_never_how_many_there_are() {
        says(&row(Status::Pending, 0, None), 1, 0, Triage::Run { count_first: false });
        says(&row(Status::Pending, 0, None), 2, 0, Triage::Run { count_first: false });
        says(&row(Status::Pending, 0, None), 3, 0, Triage::Run { count_first: true });
        says(&row(Status::Pending, 0, None), 15, 0, Triage::Run { count_first: true });
        says(&row(Status::Pending, 11, None), 1, 0, Triage::Run { count_first: false });
        says(&row(Status::Pending, 12, None), 1, 0, Triage::Exhausted);
    }

    #[test]
    fn a_failure_waits_and_the_last_one_parks() {
        let after = |attempts, permanent| after_failure(attempts, permanent, at(0), 1.0, &LIMITS);
        let retry = |wait, due| After::Retry { wait: Duration::from_secs(wait), due_at: at(due) };
        assert_eq!(after(1, false), retry(10, 190));
        assert_eq!(after(2, false), retry(20, 200));
        assert_eq!(after(11, false), retry(900, 1080));
        assert_eq!(after(12, false), After::Park);
        assert_eq!(after(1, true), After::Park);
    }

    fn waits(row: &Row, since: i64, delay: Duration, now: i64) -> AfterWaiting {
        after_waiting(row, at(since), delay, at(now), &LIMITS)
    }

    fn until(until: i64, due_at: i64, message: Option<u64>) -> AfterWaiting {
        let message = message.map(Duration::from_secs);
        AfterWaiting::Wait(Wait { until: at(until), due_at: at(due_at), message })
    }

    /// D7, C34
    #[test]
    fn an_event_waits_for_others_up_to_the_horizon() {
        let row = row(Status::Pending, 0, None);
        let after = |since, now| waits(&row, since, Duration::from_secs(60), now);
        assert_eq!(after(0, 0), until(60, 120, Some(60)));
        assert_eq!(after(0, 86_399), until(86_459, 86_519, Some(60)));
        assert_eq!(after(0, 86_400), AfterWaiting::Park);
        // Tried for the first time, armed again, or resumed: the wait begins anew.
        assert_eq!(after(86_000, 86_400), until(86_460, 86_520, Some(60)));
    }

    #[test]
    fn a_message_brings_a_short_wait_to_its_end_and_the_sweeper_a_long_one() {
        let row = row(Status::Pending, 0, None);
        let after = |delay| waits(&row, 0, delay, 0);
        assert_eq!(after(Duration::ZERO), until(0, 60, Some(0)));
        assert_eq!(after(Duration::from_secs(900)), until(900, 960, Some(900)));
        assert_eq!(after(Duration::from_secs(901)), until(901, 901, None));
        // The queue counts whole seconds, and nothing happens before the time that was told.
        assert_eq!(after(Duration::from_millis(1)), until(1, 61, Some(1)));
        assert_eq!(after(Duration::from_millis(900_001)), until(901, 901, None));
        let AfterWaiting::Wait(wait) = after(Duration::MAX) else { panic!() };
        assert_eq!((wait.until, wait.message), (Timestamp::MAX, None));
    }

    /// Otherwise each copy would bring the next one, and each late sweep one more.
    #[test]
    fn a_copy_that_comes_during_a_wait_adds_no_message() {
        let second = Duration::from_secs;
        let waiting = Row {
            waits_until: Some(at(60)),
            due_at: Some(at(120)),
            ..row(Status::Pending, 0, None)
        };
        assert_eq!(waits(&waiting, 0, second(60), 0), until(60, 120, None));
        assert_eq!(waits(&waiting, 0, second(60), 30), until(60, 120, None));
        // The message of this wait itself, be the other machine's clock a little behind or not.
        assert_eq!(waits(&waiting, 0, second(60), 60), until(120, 180, Some(60)));
        assert_eq!(waits(&waiting, 0, second(60), 59), until(119, 179, Some(60)));
        // The sweeper's, after the message was lost.
        let swept = Row { due_at: Some(at(720)), sweeps: 1, ..waiting.clone() };
        assert_eq!(waits(&swept, 0, second(60), 121), until(181, 241, Some(60)));
        // It has to wait less than before: what was under way would come too late.
        let paused = Row { waits_until: Some(at(9999)), due_at: Some(at(9999)), ..waiting };
        assert_eq!(waits(&paused, 0, second(60), 30), until(90, 150, Some(60)));
    }

    #[test]
    fn an_event_of_a_paused_source_is_looked_at_again_though_nobody_resumes_it() {
        let six_hours = 6 * 3600;
        let wait = Wait { until: at(six_hours), due_at: at(six_hours), message: None };
        assert_eq!(while_paused(at(0), &LIMITS), wait);
    }

    #[test]
    fn claims_of_the_sweeper_double_up_to_the_cap() {
        let (base, cap) = (Duration::from_secs(600), Duration::from_secs(21_600));
        let waits: Vec<_> = (0..8)
            .map(|sweeps| claimed_until(sweeps, base, cap, at(0)).duration_since(at(0)).as_secs())
            .collect();
        assert_eq!(waits, [600, 1200, 2400, 4800, 9600, 19_200, 21_600, 21_600]);
    }

    /// C36
    #[test]
    fn the_next_action_reads_like_a_sentence() {
        let at: Timestamp = "2026-03-01T12:00:04.001Z".parse().unwrap();
        assert_eq!(next_attempt(3, 12, at), "attempt 3 of 12 at 12:00:05Z");
        assert_eq!(clock("2026-03-01T12:00:05Z".parse().unwrap()), "12:00:05Z");
    }

    #[test]
    fn a_request_says_how_many_rows_it_was_split_into() {
        let mut row = row(Status::Processed, 0, None);
        assert_eq!(row.children(), None);
        row.results = vec![
            ChangeResult::new("object children 7", Applied::Applied),
            ChangeResult::children(3, Applied::Applied),
            ChangeResult::children(2, Applied::AlreadyEmitted),
        ];
        assert_eq!(row.children(), Some(5));
    }

    #[test]
    fn an_error_text_is_short_and_one_line() {
        let failure = Failure::new("x", &"é\n".repeat(600));
        assert_eq!(failure.message.chars().count(), MAX_ERROR);
        assert!(!failure.message.contains('\n'));
    }

    proptest! {
        /// REC-orphan-states, RTY-backoff-overflow
        #[test]
        fn whatever_follows_is_a_due_time_ahead_or_a_parking(
            attempts: u32, permanent: bool, jitter: f64, now in 0_i64..4_000_000_000, sweeps: u32,
        ) {
            let now = Timestamp::from_second(now).unwrap();
            match after_failure(attempts, permanent, now, jitter, &LIMITS) {
                // The message is hidden for `wait`, then for one visibility: the sweeper comes after that.
                After::Retry { wait, due_at } => {
                    prop_assert!(attempts < LIMITS.attempts && !permanent);
                    prop_assert!(due_at >= now + wait + LIMITS.visibility);
                }
                After::Park => prop_assert!(permanent || attempts >= LIMITS.attempts),
            }
            let claimed = claimed_until(sweeps, Duration::from_secs(600), Duration::from_secs(21_600), now);
            prop_assert!(claimed > now);
        }

        #[test]
        fn triage_always_says_something_that_ends(
            attempts in 0_u32..20, receives in 1_u32..20, sent in 0_i64..5000, dead in 0_i64..5000,
        ) {
            for status in [Status::Pending, Status::Processed, Status::Ignored, Status::DeadLetter] {
                let said = triage(&row(status, attempts, Some(at(dead))), receives, at(sent), &LIMITS);
                prop_assert_eq!(matches!(said, Triage::Finished), status.is_finished());
                prop_assert_eq!(
                    matches!(said, Triage::Run { .. }),
                    status == Status::Pending && attempts < LIMITS.attempts
                );
            }
        }
    }
}
