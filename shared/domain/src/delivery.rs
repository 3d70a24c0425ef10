//! A delivery: one event on its way to one endpoint. And what one attempt's end leads to.

mod outcome;
mod words;

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use self::{
    outcome::{Cause, Outcome, Steer, retry_after},
    words::Words,
};
use crate::{
    id::{EventId, RedeliveryId},
    lane::LaneId,
};

/// Where a delivery stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Owed.
    Pending,
    /// The endpoint answered 2xx.
    Succeeded,
    /// Given up, with the last outcome; a person can redeliver it.
    Dead,
    /// Its endpoint is gone.
    Cancelled,
}

/// A delivery, as it stands in its lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Which event.
    pub event: EventId,
    /// The event's type.
    pub event_type: String,
    /// Where it stands.
    pub state: State,
    /// Attempts ended so far. Never goes back, not even on redelivery.
    pub attempts: u32,
    /// When the next attempt is due, while pending.
    pub due_at: Timestamp,
    /// When it is given up.
    pub deadline: Timestamp,
    /// When the delivery was made.
    pub created_at: Timestamp,
    /// The last attempts, oldest first; at most [`MAX_LOG`].
    pub log: Vec<Attempt>,
    /// When it was finished.
    pub finished_at: Option<Timestamp>,
    /// The attempt that was begun and has not ended, where a second request could do a second thing.
    pub begun: Option<Begun>,
    /// Who made it due again, the last time.
    pub redelivered: Option<Redelivered>,
    /// When a person last asked for it again. What becomes of it then says nothing about the endpoint's health.
    pub asked_at: Option<Timestamp>,
}

/// The mark of a redelivery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Redelivered {
    /// The work, or the call that asked for this one delivery.
    pub by: RedeliveryId,
    /// When.
    pub at: Timestamp,
    /// How it stood before. `None`: there was none, its event had never come to the endpoint.
    pub from: Option<State>,
    /// Attempts that had been made before. What is still heard of them is no answer to this.
    pub after: u32,
}

/// The mark that is written before a request leaves for a target that does not recognise repetitions.
///
/// Whoever finds it with its attempt not ended does not know whether the request arrived: its holder died, or is slow.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Begun {
    /// The number of the attempt.
    pub attempt: u32,
    /// When it began.
    pub at: Timestamp,
    /// The holder who began it: nobody else may send this attempt.
    pub by: String,
}

/// Attempts that a delivery keeps in its log.
pub const MAX_LOG: usize = 30;

/// One attempt, ended. Immutable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// Its number, from 1.
    pub number: u32,
    /// When it began.
    pub at: Timestamp,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// The first part of the answer's body, control characters escaped.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub excerpt: String,
}

/// The rule that says what follows from an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Wait between attempts.
    pub backoff: crate::retry::Backoff,
    /// The longest wait that an endpoint can ask for.
    pub retry_after_cap: Duration,
}

/// What happens to the delivery now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It is done.
    Succeeded,
    /// Try again then.
    RetryAt(Timestamp),
    /// Give up: the deadline has passed, or trying again would not help.
    Dead,
    /// Stop and wait for a person: nobody knows whether it happened, and a second request could make it happen twice.
    Unknown,
    /// The endpoint said that it wants no more: it is disabled, and this delivery is held.
    Gone(Timestamp),
}

/// Decides what follows attempt number `attempt` (counted from 1) of a delivery with this deadline.
pub fn after(
    schedule: &Schedule,
    attempt: u32,
    outcome: &Outcome,
    deadline: Timestamp,
    now: Timestamp,
    jitter: f64,
) -> Next {
    let wait = schedule.backoff.after(attempt, jitter);
    let later = |wait: Duration| now.saturating_add(wait).unwrap_or(Timestamp::MAX);
    match outcome {
        outcome if outcome.is_success() => Next::Succeeded,
        // Held, not counted out: enabling the endpoint gives it its time back.
        outcome if outcome.disables().is_some() => Next::Gone(later(wait)),
        Outcome::Steered { steer: Steer::Abort, .. } => Next::Dead,
        Outcome::Failed {
            cause: Cause::Expired | Cause::HeldExpired | Cause::TooLarge | Cause::Unacceptable,
        } => Next::Dead,
        Outcome::Failed { cause: Cause::OutcomeUnknown } => Next::Unknown,
        Outcome::Answered { .. } | Outcome::Steered { .. } | Outcome::Failed { .. } => {
            let asked = outcome.retry_after().unwrap_or_default().min(schedule.retry_after_cap);
            let at = later(wait.max(asked));
            if at > deadline { Next::Dead } else { Next::RetryAt(at) }
        }
    }
}

/// Decides the same for a target that does not recognise repetitions.
pub fn after_once(
    schedule: &Schedule,
    attempt: u32,
    outcome: &Outcome,
    deadline: Timestamp,
    now: Timestamp,
    jitter: f64,
) -> Next {
    if outcome.may_have_happened() {
        return Next::Unknown;
    }
    after(schedule, attempt, outcome, deadline, now, jitter)
}

/// A delivery that the relay puts into a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewDelivery {
    /// Which lane.
    pub lane: LaneId,
    /// The delivery.
    pub delivery: Delivery,
}

impl Delivery {
    /// A delivery of an event that has just been relayed.
    pub fn new(event: EventId, event_type: String, deadline: Timestamp, now: Timestamp) -> Self {
        Self {
            event,
            event_type,
            state: State::Pending,
            attempts: 0,
            due_at: now,
            deadline,
            created_at: now,
            log: Vec::new(),
            finished_at: None,
            begun: None,
            redelivered: None,
            asked_at: None,
        }
    }

    /// The same delivery, due again because a person asked. The count of attempts never goes back.
    #[must_use]
    pub fn asked_for(&self, deadline: Timestamp, now: Timestamp) -> Self {
        Self {
            state: State::Pending,
            due_at: now,
            deadline,
            finished_at: None,
            begun: None,
            asked_at: Some(now),
            ..self.clone()
        }
    }

    /// The same delivery with the mark that its next attempt begins.
    #[must_use]
    pub fn begins(&self, by: &str, at: Timestamp) -> Self {
        let attempt = self.attempts.saturating_add(1);
        Self { begun: Some(Begun { attempt, at, by: by.to_owned() }), ..self.clone() }
    }

    /// Whether it stands as it was written, as far as tables keep times. Of two who end one attempt, each has its own outcome
    /// and its own times.
    pub fn stands_as(&self, written: &Self) -> bool {
        let times = |of: &Self| {
            let finished_at = of.finished_at.map(Timestamp::as_millisecond);
            (of.due_at.as_millisecond(), finished_at)
        };
        let last = |of: &Self| {
            let last = of.log.last()?;
            Some((last.number, last.at.as_millisecond(), last.duration_ms, last.outcome.clone()))
        };
        self.state == written.state
            && self.attempts == written.attempts
            && self.begun == written.begun
            && times(self) == times(written)
            && last(self) == last(written)
    }

    /// The same delivery after an attempt.
    #[must_use]
    pub fn ended(&self, attempt: Attempt, next: Next, now: Timestamp) -> Self {
        let mut after = Self { begun: None, ..self.clone() };
        let (number, outcome) = (attempt.number, Outcome::Failed { cause: Cause::OutcomeUnknown });
        let is_said = attempt.outcome == outcome;
        after.attempts = number.max(self.attempts);
        // One excerpt is kept, the last: thirty of them would make every further write of the row thirty times as dear.
        for earlier in &mut after.log {
            earlier.excerpt.clear();
        }
        after.log.push(attempt);
        if next == Next::Unknown && !is_said {
            // How the request ended, and then what follows from it.
            let excerpt = String::new();
            after.log.push(Attempt { number, at: now, duration_ms: 0, outcome, excerpt });
        }
        let surplus = after.log.len().saturating_sub(MAX_LOG);
        after.log.drain(..surplus);
        match next {
            Next::Succeeded => (after.state, after.finished_at) = (State::Succeeded, Some(now)),
            Next::Dead | Next::Unknown => {
                (after.state, after.finished_at) = (State::Dead, Some(now));
            }
            Next::RetryAt(at) | Next::Gone(at) => after.due_at = at,
        }
        after
    }

    /// Whether it waits for a person because nobody knows whether it happened.
    pub fn is_unknown(&self) -> bool {
        let unknown = Outcome::Failed { cause: Cause::OutcomeUnknown };
        self.state == State::Dead && self.log.last().is_some_and(|last| last.outcome == unknown)
    }

    /// The same delivery, given up without a further attempt: [`Cause::Expired`] or [`Cause::HeldExpired`]. One whose
    /// attempt was begun and has not ended is given up for that reason.
    #[must_use]
    pub fn given_up(&self, cause: Cause, now: Timestamp) -> Self {
        let (number, at, cause) = match &self.begun {
            Some(begun) => (begun.attempt, begun.at, Cause::OutcomeUnknown),
            None => (self.attempts, now, cause),
        };
        let outcome = Outcome::Failed { cause };
        let entry = Attempt { number, at, duration_ms: 0, outcome, excerpt: String::new() };
        self.ended(entry, Next::Dead, now)
    }

    /// The same delivery when its endpoint is gone.
    #[must_use]
    pub fn cancelled(&self, now: Timestamp) -> Self {
        Self { state: State::Cancelled, finished_at: Some(now), ..self.clone() }
    }

    /// The end of the time for which it is held, if its endpoint has been disabled since then and is still.
    ///
    /// It counts from its due time, not from when it was made: pointers are in this order, so that a holder that looks
    /// at the first one knows when to look again.
    pub fn held_until(due_at: Timestamp, disabled: Option<Timestamp>, hold: Duration) -> Timestamp {
        let from = disabled.map_or(due_at, |since| since.max(due_at));
        from.saturating_add(hold).unwrap_or(Timestamp::MAX)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;
    use crate::retry::Backoff;

    const HOUR: i64 = 3600;
    const SCHEDULE: Schedule = Schedule {
        backoff: Backoff {
            floor: Duration::from_secs(1),
            base: Duration::from_secs(30),
            cap: Duration::from_secs(12 * 3600),
        },
        retry_after_cap: Duration::from_secs(24 * 3600),
    };
    const DEADLINE: i64 = 96 * HOUR;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn answered(status: u16) -> Outcome {
        Outcome::Answered { status, retry_after_ms: None }
    }

    fn failed(cause: Cause) -> Outcome {
        Outcome::Failed { cause }
    }

    fn pending() -> Delivery {
        let event = EventId::new(Uuid::from_u128(1));
        Delivery::new(event, "invoice.paid".to_owned(), at(DEADLINE), at(0))
    }

    fn attempt(number: u32, outcome: Outcome) -> Attempt {
        Attempt { number, at: at(0), duration_ms: 5, outcome, excerpt: format!("answer {number}") }
    }

    /// F6, F7, F8, F13, RTY-status-classes: the whole table, with the longest wait of a first attempt.
    #[test]
    fn each_outcome_leads_to_one_thing() {
        let check = |outcome: Outcome, expected: Next| {
            let next = after(&SCHEDULE, 1, &outcome, at(DEADLINE), at(0), 1.0);
            assert_eq!(next, expected, "{outcome:?}");
        };
        for status in [200, 201, 202, 204, 299] {
            check(answered(status), Next::Succeeded);
        }
        check(answered(410), Next::Gone(at(30)));
        for status in [
            100, 101, 199, 300, 301, 302, 303, 304, 307, 308, 400, 401, 403, 404, 405, 408, 409,
            413, 415, 421, 422, 423, 425, 429, 451, 500, 502, 503, 504, 599, 999,
        ] {
            check(answered(status), Next::RetryAt(at(30)));
        }
        for cause in [
            Cause::Dns,
            Cause::BlockedAddress,
            Cause::Refused,
            Cause::ConnectTimeout,
            Cause::TlsExpired,
            Cause::TlsWrongHost,
            Cause::TlsUnknownIssuer,
            Cause::Tls,
            Cause::Timeout,
            Cause::Reset,
            Cause::BadAnswer,
            Cause::Internal,
        ] {
            check(failed(cause), Next::RetryAt(at(30)));
        }
        for cause in [Cause::NoSuchTarget, Cause::Denied, Cause::Throttled, Cause::Unavailable] {
            check(failed(cause), Next::RetryAt(at(30)));
        }
        for cause in [Cause::Expired, Cause::HeldExpired, Cause::TooLarge, Cause::Unacceptable] {
            check(failed(cause), Next::Dead);
        }
        check(failed(Cause::OutcomeUnknown), Next::Unknown);
        for cause in [Cause::Redirect, Cause::Token] {
            check(failed(cause), Next::RetryAt(at(30)));
        }
    }

    /// A receiver may say what to do with what it is sent: nothing more of this, or nothing more at all.
    #[test]
    fn a_receiver_can_steer() {
        let check = |status: u16, steer: Option<Steer>, expected: Next, of_once: Next| {
            let outcome = Outcome::answered(status, Some(7_000), steer);
            let decide = |decide: fn(&_, u32, &_, _, _, f64) -> Next| {
                decide(&SCHEDULE, 1, &outcome, at(DEADLINE), at(0), 1.0)
            };
            assert_eq!((decide(after), decide(after_once)), (expected, of_once), "{outcome:?}");
        };
        let (abort, disable, later) =
            (Some(Steer::Abort), Some(Steer::Disable), Next::RetryAt(at(30)));
        check(422, abort, Next::Dead, Next::Dead);
        check(500, abort, Next::Dead, Next::Dead);
        // A success is one, and there is nothing to abort.
        check(200, abort, Next::Succeeded, Next::Succeeded);
        assert_eq!(Outcome::answered(204, None, abort), answered(204));
        check(200, disable, Next::Succeeded, Next::Succeeded);
        check(404, disable, Next::Gone(at(30)), Next::Gone(at(30)));
        check(500, disable, Next::Gone(at(30)), Next::Unknown);
        check(500, None, later, Next::Unknown);
        let reasons = [(200, disable), (404, disable), (410, None), (404, None), (404, abort)]
            .map(|(status, steer)| Outcome::answered(status, None, steer).disables());
        assert_eq!(reasons, [Some("asked"), Some("asked"), Some("gone"), None, None]);
    }

    /// What is stored keeps its form, and what an older version stored is read.
    #[test]
    fn an_outcome_is_stored_by_its_kind() {
        let check = |outcome: Outcome, text: &str| {
            assert_eq!(serde_json::to_string(&outcome).unwrap(), text);
            assert_eq!(serde_json::from_str::<Outcome>(text).unwrap(), outcome);
        };
        check(answered(500), r#"{"kind":"answered","status":500}"#);
        let abort = Outcome::answered(422, None, Some(Steer::Abort));
        check(abort, r#"{"kind":"steered","status":422,"steer":"abort"}"#);
        let disable = Outcome::answered(200, Some(9), Some(Steer::Disable));
        check(disable, r#"{"kind":"steered","status":200,"steer":"disable"}"#);
        check(failed(Cause::Redirect), r#"{"kind":"failed","cause":"redirect"}"#);
    }

    /// C17, C24, INB-lease-expires-side-effect-repeats
    #[test]
    fn without_idempotency_only_what_surely_did_not_happen_is_tried_again() {
        let check = |outcome: Outcome, expected: Next| {
            let next = after_once(&SCHEDULE, 1, &outcome, at(DEADLINE), at(0), 1.0);
            assert_eq!(next, expected, "{outcome:?}");
        };
        check(answered(200), Next::Succeeded);
        check(answered(410), Next::Gone(at(30)));
        for status in [301, 400, 401, 404, 408, 409, 425, 429, 499] {
            check(answered(status), Next::RetryAt(at(30)));
        }
        for status in [500, 501, 502, 503, 504, 520, 599, 999] {
            check(answered(status), Next::Unknown);
        }
        check(Outcome::Answered { status: 503, retry_after_ms: Some(1) }, Next::RetryAt(at(30)));
        for cause in [
            Cause::Dns,
            Cause::BlockedAddress,
            Cause::Refused,
            Cause::ConnectTimeout,
            Cause::TlsExpired,
            Cause::TlsWrongHost,
            Cause::TlsUnknownIssuer,
            Cause::Tls,
            Cause::Internal,
            Cause::NoSuchTarget,
            Cause::Denied,
            Cause::Throttled,
        ] {
            check(failed(cause), Next::RetryAt(at(30)));
        }
        for cause in [
            Cause::Timeout,
            Cause::Reset,
            Cause::BadAnswer,
            Cause::Unavailable,
            Cause::OutcomeUnknown,
        ] {
            check(failed(cause), Next::Unknown);
        }
        for cause in [Cause::TooLarge, Cause::Unacceptable, Cause::Expired, Cause::HeldExpired] {
            check(failed(cause), Next::Dead);
        }
    }

    /// C29, DLV-crash-after-post
    #[test]
    fn an_attempt_that_was_begun_and_did_not_end_is_counted_and_said() {
        let begun = pending().begins("holder-1", at(3));
        assert_eq!((begun.state, begun.attempts), (State::Pending, 0));
        let unknown = begun.given_up(Cause::Expired, at(99));
        assert_eq!((unknown.state, unknown.attempts), (State::Dead, 1));
        assert_eq!((unknown.finished_at, unknown.begun.clone()), (Some(at(99)), None));
        let [entry] = unknown.log.as_slice() else { panic!("{:?}", unknown.log) };
        assert_eq!((entry.number, entry.at), (1, at(3)));
        assert_eq!(entry.outcome, failed(Cause::OutcomeUnknown));
        assert!(unknown.is_unknown() && !begun.is_unknown());
        // One that ended takes its mark away, whatever came of it.
        let retried = begun.ended(attempt(1, answered(429)), Next::RetryAt(at(9)), at(5));
        assert_eq!((retried.state, retried.begun), (State::Pending, None));
    }

    #[test]
    fn an_unknown_outcome_is_logged_as_what_was_seen_and_what_follows() {
        let timeout = attempt(1, failed(Cause::Timeout));
        let parked = pending().begins("holder-1", at(3)).ended(timeout, Next::Unknown, at(23));
        assert_eq!((parked.state, parked.attempts), (State::Dead, 1));
        let outcomes: Vec<_> = parked.log.iter().map(|entry| entry.outcome.clone()).collect();
        assert_eq!(outcomes, [failed(Cause::Timeout), failed(Cause::OutcomeUnknown)]);
    }

    /// F12, RTY-retry-after
    #[test]
    fn a_pause_can_lengthen_a_wait_but_not_shorten_it() {
        let check = |status: u16, asked_s: u64, jitter: f64, expected_s: i64| {
            let outcome = Outcome::Answered { status, retry_after_ms: Some(asked_s * 1000) };
            let next = after(&SCHEDULE, 1, &outcome, at(DEADLINE), at(0), jitter);
            assert_eq!(next, Next::RetryAt(at(expected_s)), "{status} {asked_s} {jitter}");
        };
        check(429, 120, 0.0, 120);
        check(503, 120, 1.0, 120);
        check(429, 5, 1.0, 30);
        check(429, u64::MAX / 1000, 0.5, 24 * HOUR);
        // Elsewhere it means nothing.
        check(500, 120, 0.0, 1);
        check(302, 120, 0.0, 1);
        let polite = Outcome::Answered { status: 200, retry_after_ms: Some(120_000) };
        assert_eq!(after(&SCHEDULE, 1, &polite, at(DEADLINE), at(0), 0.0), Next::Succeeded);
    }

    #[test]
    fn a_retry_after_the_deadline_is_none() {
        let next = |now| after(&SCHEDULE, 1, &answered(500), at(DEADLINE), now, 1.0);
        assert_eq!(next(at(DEADLINE - 30)), Next::RetryAt(at(DEADLINE)));
        assert_eq!(next(at(DEADLINE - 29)), Next::Dead);
        assert_eq!(next(at(DEADLINE + HOUR)), Next::Dead);
        // A success after the deadline is a success.
        let late = after(&SCHEDULE, 30, &answered(200), at(DEADLINE), at(DEADLINE + 1), 1.0);
        assert_eq!(late, Next::Succeeded);
    }

    /// F11: with waits as long as they can be there are 18 attempts in 96 hours, with average ones 26.
    #[test]
    fn the_schedule_spans_days() {
        let attempts = |jitter: f64| {
            let (mut now, mut number) = (at(0), 1);
            while let Next::RetryAt(at) =
                after(&SCHEDULE, number, &answered(500), at(DEADLINE), now, jitter)
            {
                (now, number) = (at, number + 1);
            }
            number
        };
        assert_eq!((attempts(1.0), attempts(0.5)), (18, 26));
    }

    /// RTY-retry-after
    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now: Timestamp = "2026-11-30T12:00:00Z".parse().unwrap();
        let check = |value: &str, expected: Option<u64>| {
            assert_eq!(retry_after(value, now), expected.map(Duration::from_secs), "{value:?}");
        };
        check("120", Some(120));
        check(" 120 ", Some(120));
        check("0120", Some(120));
        check("9999999999", Some(9_999_999_999));
        check("18446744073709551616", Some(u64::MAX));
        check("1771404540", Some(1_771_404_540));
        check("Mon, 30 Nov 2026 13:00:00 GMT", Some(3600));
        check("Mon, 30 Nov 2026 13:00:00 +0000", Some(3600));
        check("Monday, 30-Nov-26 13:00:00 GMT", Some(3600));
        check("Mon Nov 30 13:00:00 2026", Some(3600));
        check("Tue Dec  1 12:00:00 2026", Some(86_400));
        check("Thu, 31 Dec 2099 23:59:59 GMT", Some(2_306_404_799));
        for none in [
            "",
            " ",
            "0",
            "000",
            "-5",
            "+5",
            "1.5",
            "120s",
            "1e3",
            "soon",
            "１２０",
            "Wed, 21 Oct 2015 07:28:00 GMT",
            "Mon, 30 Nov 2026 12:00:00 GMT",
            "2026-11-30T13:00:00Z",
            "Tuesday, 30-Nov-26 13:00:00 GMT",
            "Monday, 30-Nov-26 13:00:00 CET",
            "Mon Nov 31 13:00:00 2026",
            "Sunday, 06-Nov-94 08:49:37 GMT",
        ] {
            check(none, None);
        }
    }

    #[test]
    fn an_ended_attempt_is_counted_and_logged() {
        let retried = pending().ended(attempt(1, answered(500)), Next::RetryAt(at(9)), at(5));
        assert_eq!((retried.state, retried.attempts, retried.due_at), (State::Pending, 1, at(9)));
        assert_eq!((retried.finished_at, retried.deadline), (None, at(DEADLINE)));
        let done = retried.ended(attempt(2, answered(200)), Next::Succeeded, at(9));
        assert_eq!(
            (done.state, done.attempts, done.finished_at),
            (State::Succeeded, 2, Some(at(9)))
        );
        let excerpts: Vec<_> = done.log.iter().map(|entry| entry.excerpt.as_str()).collect();
        assert_eq!(excerpts, ["", "answer 2"]);
    }

    #[test]
    fn a_gone_endpoint_holds_the_delivery() {
        let held = pending().ended(attempt(1, answered(410)), Next::Gone(at(30)), at(5));
        assert_eq!((held.state, held.due_at), (State::Pending, at(30)));
    }

    /// RTY-attempt-count
    #[test]
    fn giving_up_without_an_attempt_does_not_count_one() {
        let tried = pending().ended(attempt(1, answered(500)), Next::RetryAt(at(9)), at(5));
        let dead = tried.given_up(Cause::HeldExpired, at(99));
        assert_eq!((dead.state, dead.attempts, dead.finished_at), (State::Dead, 1, Some(at(99))));
        assert_eq!(dead.log.last().unwrap().outcome, failed(Cause::HeldExpired));
    }

    #[test]
    fn a_hold_counts_from_the_disabling_or_the_due_time_whichever_is_later() {
        let hold = Duration::from_secs(100);
        let check = |due: i64, since: Option<i64>, expected: i64| {
            assert_eq!(Delivery::held_until(at(due), since.map(at), hold), at(expected));
        };
        check(10, Some(50), 150);
        check(70, Some(50), 170);
        check(10, None, 110);
    }

    proptest! {
        #[test]
        fn the_count_of_attempts_never_goes_back_and_the_log_stays_bounded(
            numbers in prop::collection::vec(0_u32..100, 0..80)
        ) {
            let mut delivery = pending();
            for number in numbers {
                let ended = delivery.ended(attempt(number, answered(500)), Next::RetryAt(at(1)), at(0));
                prop_assert!(ended.attempts >= delivery.attempts);
                prop_assert!(ended.log.len() <= MAX_LOG);
                delivery = ended;
            }
        }

        #[test]
        fn a_retry_never_comes_before_the_floor_or_after_the_deadline(
            number: u32, status in 300_u16..600, asked: Option<u32>, now in 0..2 * DEADLINE, jitter: f64
        ) {
            let outcome = Outcome::Answered { status, retry_after_ms: asked.map(u64::from) };
            if let Next::RetryAt(then) = after(&SCHEDULE, number, &outcome, at(DEADLINE), at(now), jitter) {
                prop_assert!(then >= at(now + 1) && then <= at(DEADLINE));
            }
        }
    }
}
