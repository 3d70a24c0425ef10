//! What becomes of a piece of a stream's batch: pure.
//!
//! As Lambda documents it for streams: item failures are a place to go back to; a function that fails as a whole has its batch
//! split, which does not count as a try; what is too old or has used up its tries is given up, and the message about it names the
//! records' place in the stream.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::verdict::Verdict;
use crate::services::StreamRecord;

/// Records that go to the function together, in order.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) records: Vec<StreamRecord>,
    /// How often the first of them was tried.
    pub(super) tries: u32,
}

/// One lane of several that read a shard together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Which, from 0.
    pub lane: u64,
    /// Of how many.
    pub of: u64,
}

impl Share {
    /// The only lane.
    pub const WHOLE: Self = Self { lane: 0, of: 1 };

    /// Whether a record's item is this lane's.
    pub(super) fn has(self, event: &Value) -> bool {
        // FNV-1a: it must not change, or what one lane has passed over would be another's that is past it already.
        let keys = event.pointer("/dynamodb/Keys").map(Value::to_string).unwrap_or_default();
        let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let hash = keys.bytes().fold(0xcbf2_9ce4_8422_2325, step);
        hash % self.of.max(1) == self.lane
    }
}

impl Piece {
    /// The event that Lambda makes.
    pub(super) fn event(&self) -> Value {
        let records: Vec<_> = self.records.iter().map(|record| &record.event).collect();
        json!({ "Records": records })
    }

    pub(super) fn ids(&self) -> Vec<&str> {
        self.records.iter().map(|record| record.sequence.as_str()).collect()
    }

    /// Takes the records from the front that are too old.
    pub(super) fn too_old(&mut self, most: Option<Duration>, now_ms: i64) -> Vec<StreamRecord> {
        let Some(most) = most.and_then(|most| i64::try_from(most.as_millis()).ok()) else {
            return Vec::new();
        };
        let is_old = |record: &&StreamRecord| {
            written_ms(&record.event).is_some_and(|written| now_ms.saturating_sub(written) > most)
        };
        let count = self.records.iter().take_while(is_old).count();
        let rest = self.records.split_off(count);
        if count > 0 {
            // Another record is first now.
            self.tries = 0;
        }
        std::mem::replace(&mut self.records, rest)
    }
}

/// When a record came into the stream.
fn written_ms(event: &Value) -> Option<i64> {
    let seconds = event.pointer("/dynamodb/ApproximateCreationDateTime")?.as_f64()?;
    #[expect(clippy::cast_possible_truncation, reason = "milliseconds of this age of the world")]
    let ms = (seconds * 1000.0).round() as i64;
    Some(ms)
}

/// What the next step with a piece is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Done,
    /// Records before this place are done; it and what follows come again.
    Again {
        from: usize,
    },
    /// Each half comes again.
    Halve,
    /// The tries are used up: what is left of the piece is left behind.
    Leave,
}

/// Decides. `tries` counts how often the first of these `count` records was tried, this time included.
pub(super) fn step(
    verdict: &Verdict,
    count: usize,
    tries: u32,
    retries: Option<u32>,
    bisect: bool,
) -> Step {
    let from = match verdict {
        Verdict::Succeeded => return Step::Done,
        Verdict::Failed(failed) => failed.first().copied().unwrap_or_default(),
        Verdict::AllFailed(_) if bisect && count > 1 => return Step::Halve,
        Verdict::AllFailed(_) => 0,
    };
    match retries {
        // Another record is first from here on, with tries of its own.
        _ if from > 0 => Step::Again { from },
        Some(retries) if tries > retries => Step::Leave,
        _ => Step::Again { from },
    }
}

/// Why records are given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    TriesUsedUp,
    TooOld,
}

/// Records that were given up.
pub(super) struct Discarded<'a> {
    pub(super) stream: &'a str,
    pub(super) records: &'a [StreamRecord],
    pub(super) condition: Condition,
    /// Whether the last invocation failed as a whole; `None`: there was none.
    pub(super) function_error: Option<bool>,
    pub(super) tries: u32,
}

impl Discarded<'_> {
    /// The message that Lambda sends to an on-failure queue.
    pub(super) fn message(&self, (request, function): (String, &str), now_ms: i64) -> Value {
        let condition = match self.condition {
            Condition::TriesUsedUp => "RetryAttemptsExhausted",
            Condition::TooOld => "RecordAgeExceeded",
        };
        let (first, last) = (self.records.first(), self.records.last());
        let sequence = |record: Option<&StreamRecord>| record.map(|record| record.sequence.clone());
        let arrival = |record: Option<&StreamRecord>| {
            record.and_then(|record| written_ms(&record.event)).map(|ms| time(ms / 1000 * 1000))
        };
        let mut message = json!({
            "requestContext": {
                "requestId": request,
                "functionArn": function,
                "condition": condition,
                "approximateInvokeCount": self.tries,
            },
            "version": "1.0",
            "timestamp": time(now_ms),
            "DDBStreamBatchInfo": {
                // dynoxide keeps one shard for each stream.
                "shardId": "shardId-00000000000000000000-00000000",
                "startSequenceNumber": sequence(first),
                "endSequenceNumber": sequence(last),
                "approximateArrivalOfFirstRecord": arrival(first),
                "approximateArrivalOfLastRecord": arrival(last),
                "batchSize": self.records.len(),
                "streamArn": self.stream,
            },
        });
        if let (Some(failed), Some(message)) = (self.function_error, message.as_object_mut()) {
            let mut context = json!({ "statusCode": 200, "executedVersion": "$LATEST" });
            if let (true, Some(context)) = (failed, context.as_object_mut()) {
                context.insert("functionError".to_owned(), json!("Unhandled"));
            }
            message.insert("responseContext".to_owned(), context);
        }
        message
    }
}

fn time(ms: i64) -> Option<String> {
    Some(Timestamp::from_millisecond(ms).ok()?.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(sequence: u64, ms: i64) -> StreamRecord {
        #[expect(clippy::cast_precision_loss, reason = "a small number of a test")]
        let seconds = ms as f64 / 1000.0;
        let event = json!({ "dynamodb": {
            "Keys": { "pk": { "S": format!("k{sequence}") } },
            "ApproximateCreationDateTime": seconds,
        } });
        StreamRecord { sequence: sequence.to_string(), event }
    }

    fn failed(places: &[usize]) -> Verdict {
        if places.is_empty() {
            Verdict::Succeeded
        } else {
            Verdict::Failed(places.iter().copied().collect())
        }
    }

    #[track_caller]
    fn check(places: &[usize], tries: u32, retries: Option<u32>, expected: &Step) {
        for bisect in [false, true] {
            let found = step(&failed(places), 10, tries, retries, bisect);
            assert_eq!(found, *expected, "{places:?} {tries} {retries:?} {bisect}");
        }
    }

    /// `OUT-stream-checkpoint`
    #[test]
    fn item_failures_are_a_point_to_go_back_to() {
        check(&[], 1, Some(0), &Step::Done);
        check(&[3, 7], 1, Some(5), &Step::Again { from: 3 });
        check(&[7, 3], 9, Some(5), &Step::Again { from: 3 });
        check(&[0, 7], 1, Some(5), &Step::Again { from: 0 });
    }

    #[test]
    fn the_first_record_has_its_retries_and_no_more() {
        check(&[0], 1, Some(0), &Step::Leave);
        check(&[0], 5, Some(5), &Step::Again { from: 0 });
        check(&[0], 6, Some(5), &Step::Leave);
        check(&[0], 1_000, None, &Step::Again { from: 0 });
    }

    #[test]
    fn a_batch_that_failed_as_a_whole_is_halved_down_to_one_record() {
        let whole = Verdict::AllFailed(String::new());
        assert_eq!(step(&whole, 10, 6, Some(5), false), Step::Leave);
        assert_eq!(step(&whole, 10, 6, Some(5), true), Step::Halve);
        assert_eq!(step(&whole, 2, 1, Some(0), true), Step::Halve);
        assert_eq!(step(&whole, 1, 5, Some(5), true), Step::Again { from: 0 });
        assert_eq!(step(&whole, 1, 6, Some(5), true), Step::Leave);
    }

    #[test]
    fn only_what_is_older_than_the_limit_is_taken_from_the_front() {
        let all = || vec![record(1, 1_000), record(2, 2_000), record(3, 9_000), record(4, 500)];
        let check = |most: Option<u64>, now: i64, old: usize, tries: u32| {
            let mut piece = Piece { records: all(), tries: 3 };
            let taken = piece.too_old(most.map(Duration::from_millis), now);
            assert_eq!((taken.len(), piece.records.len(), piece.tries), (old, 4 - old, tries));
        };
        check(None, i64::MAX, 0, 3);
        check(Some(5_000), 6_000, 0, 3);
        check(Some(5_000), 6_001, 1, 0);
        check(Some(5_000), 7_001, 2, 0);
        check(Some(5_000), 14_001, 4, 0);
        check(Some(5_000), 0, 0, 3);
    }

    #[test]
    fn each_item_is_the_same_lanes_for_ever_and_all_lanes_have_some() {
        let lanes = |of: u64| -> Vec<Vec<u64>> {
            let has = |lane| (0..60).filter(move |n| Share { lane, of }.has(&record(*n, 0).event));
            (0..of).map(|lane| has(lane).collect()).collect()
        };
        assert_eq!(lanes(1), [(0..60).collect::<Vec<_>>()]);
        let three = lanes(3);
        assert_eq!(three.iter().map(Vec::len).sum::<usize>(), 60);
        assert!(three.iter().all(|lane| lane.len() > 5), "{three:?}");
        // A change of this would let a lane pass over what another has left to it.
        assert_eq!(three[0][..4], [6, 7, 9, 11]);
    }

    /// The forms are those of Lambda's own messages.
    #[test]
    fn the_message_about_what_was_given_up_names_its_place_in_the_stream() {
        let records = [record(7, 1_790_000_000_123), record(9, 1_790_000_003_000)];
        let discarded = Discarded {
            stream: "arn:aws:dynamodb:x",
            records: &records,
            condition: Condition::TriesUsedUp,
            function_error: Some(true),
            tries: 6,
        };
        let ids = || ("r-1".to_owned(), "arn:aws:lambda:relay");
        let message = discarded.message(ids(), 1_790_000_009_456);
        let expected = json!({
            "requestContext": {
                "requestId": "r-1",
                "functionArn": "arn:aws:lambda:relay",
                "condition": "RetryAttemptsExhausted",
                "approximateInvokeCount": 6,
            },
            "responseContext": {
                "statusCode": 200,
                "executedVersion": "$LATEST",
                "functionError": "Unhandled",
            },
            "version": "1.0",
            "timestamp": "2026-09-21T14:13:29.456Z",
            "DDBStreamBatchInfo": {
                "shardId": "shardId-00000000000000000000-00000000",
                "startSequenceNumber": "7",
                "endSequenceNumber": "9",
                "approximateArrivalOfFirstRecord": "2026-09-21T14:13:20Z",
                "approximateArrivalOfLastRecord": "2026-09-21T14:13:23Z",
                "batchSize": 2,
                "streamArn": "arn:aws:dynamodb:x",
            },
        });
        assert_eq!(message, expected);
        let named = Discarded { function_error: Some(false), ..discarded }.message(ids(), 0);
        assert_eq!(
            named["responseContext"],
            json!({ "statusCode": 200, "executedVersion": "$LATEST" })
        );
        let old =
            Discarded { condition: Condition::TooOld, function_error: None, tries: 0, ..discarded };
        let old = old.message(ids(), 0);
        assert_eq!(old["requestContext"]["condition"], "RecordAgeExceeded");
        assert_eq!(old.get("responseContext"), None);
    }
}
