use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::{id::RedeliveryId, redelivery::due_again};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_790_000_000 + second).unwrap()
}

fn event() -> EventId {
    EventId::derived(at(0), &["x"])
}

fn owed() -> Delivery {
    Delivery::new(event(), "invoice.paid".to_owned(), at(1000), at(0))
}

fn ended(acked: Acked) -> Delivery {
    match acked {
        Acked::Ends(delivery) => *delivery,
        other => panic!("{other:?}"),
    }
}

fn causes(delivery: &Delivery) -> Vec<(u32, bool)> {
    delivery.log.iter().map(|entry| (entry.number, entry.outcome.is_success())).collect()
}

#[test]
fn a_hand_out_is_an_attempt_that_an_acknowledgement_ends() {
    let out = handed_out(&owed(), "poll-1", at(61), at(1));
    assert_eq!((out.state, out.attempts, out.due_at), (State::Pending, 0, at(61)));
    let done = ended(acknowledged(&out, 1, at(4)));
    assert_eq!((done.state, done.attempts, done.finished_at), (State::Succeeded, 1, Some(at(4))));
    assert_eq!((done.log[0].number, done.log[0].at, done.log[0].duration_ms), (1, at(1), 3000));
    assert_eq!(acknowledged(&done, 1, at(5)), Acked::Before);
}

/// Whoever died had it, and it comes again; that he had it is said.
#[test]
fn what_nobody_acknowledged_is_handed_out_again_and_counted() {
    let first = handed_out(&owed(), "poll-1", at(61), at(1));
    let second = handed_out(&first, "poll-2", at(121), at(61));
    assert_eq!((second.attempts, second.begun.clone().unwrap().attempt), (1, 2));
    assert_eq!(second.log[0].outcome, Outcome::Failed { cause: Cause::Unacknowledged });
    // The first one was slow, not dead: its acknowledgement is as good, and the second hand-out is counted too.
    let done = ended(acknowledged(&second, 1, at(62)));
    assert_eq!((done.state, done.attempts), (State::Succeeded, 2));
    assert_eq!(causes(&done), [(1, false), (2, false), (1, true)]);
    assert_eq!(acknowledged(&done, 2, at(63)), Acked::Before);
}

/// H11: attempts never go back, so that a late outcome of an old attempt cannot close the new one.
#[test]
fn an_acknowledgement_of_before_a_redelivery_does_not_close_it() {
    let done = ended(acknowledged(&handed_out(&owed(), "poll-1", at(61), at(1)), 1, at(2)));
    let by = RedeliveryId::new(Uuid::from_u128(1));
    let again = due_again(&done, by, true, (at(10), at(10), Duration::from_secs(100)));
    for attempt in [0, 1, 2] {
        assert_eq!(acknowledged(&again, attempt, at(11)), Acked::Unknown, "{attempt}");
    }
    let out = handed_out(&again, "poll-2", at(71), at(11));
    assert_eq!(acknowledged(&out, 1, at(12)), Acked::Unknown);
    assert_eq!(ended(acknowledged(&out, 2, at(12))).attempts, 2);
}

#[test]
fn what_was_given_up_is_acknowledged_too_late() {
    let out = handed_out(&owed(), "poll-1", at(61), at(1));
    let dead = given_up(&out, Cause::Expired, at(1000));
    assert_eq!((dead.state, dead.attempts), (State::Dead, 1));
    let said: Vec<_> = dead.log.iter().map(|entry| entry.outcome.clone()).collect();
    let failed = |cause| Outcome::Failed { cause };
    assert_eq!(said, [failed(Cause::Unacknowledged), failed(Cause::Expired)]);
    assert!(!dead.is_unknown());
    assert_eq!(acknowledged(&dead, 1, at(1001)), Acked::TooLate);
    assert_eq!(acknowledged(&out.cancelled(at(5)), 1, at(6)), Acked::TooLate);
    let never = given_up(&owed(), Cause::Expired, at(1000));
    assert_eq!((never.attempts, never.log.len()), (0, 1));
}

#[test]
fn what_was_never_handed_out_is_not_acknowledged() {
    assert_eq!(acknowledged(&owed(), 1, at(1)), Acked::Unknown);
    assert_eq!(acknowledged(&owed(), 0, at(1)), Acked::Unknown);
    let out = handed_out(&owed(), "poll-1", at(61), at(1));
    assert_eq!(acknowledged(&out, 2, at(2)), Acked::Unknown);
}

#[test]
fn texts_that_are_no_receipts_are_refused() {
    let good = Receipt { event: event(), lane: 3, attempt: 7 };
    let text = good.to_string();
    assert_eq!(text.parse(), Ok(good));
    for bad in [
        "",
        ".",
        "a.0.1",
        &format!("{text}.1"),
        &text.replace(".7", ".07"),
        &text.replace(".7", ".+7"),
        &text.replace(".3", ".70000"),
        &text.replace(".7", ""),
        &text.to_uppercase(),
    ] {
        assert_eq!(bad.parse::<Receipt>(), Err(InvalidReceipt), "{bad:?}");
    }
}

proptest! {
    #[test]
    fn a_receipt_reads_back_as_itself(bits: u128, lane: u16, attempt: u32) {
        let receipt = Receipt { event: EventId::new(Uuid::from_u128(bits)), lane, attempt };
        prop_assert_eq!(receipt.to_string().parse(), Ok(receipt));
    }

    #[test]
    fn no_text_breaks_the_reader(text in "\\PC{0,80}") {
        let _ = text.parse::<Receipt>();
    }

    /// However hand-outs, acknowledgements and redeliveries follow each other: the count never goes back, and only a
    /// receipt of this round ends it.
    #[test]
    fn only_a_hand_out_of_this_round_ends_it(steps in prop::collection::vec((0_u8..3, 0_u32..8), 0..40)) {
        let (mut delivery, mut round, mut now) = (owed(), Vec::<u32>::new(), 1);
        for (what, attempt) in steps {
            now += 1;
            let before = delivery.attempts;
            match what {
                0 if delivery.state == State::Pending => {
                    delivery = handed_out(&delivery, "p", at(now + 60), at(now));
                    round.push(delivery.begun.as_ref().unwrap().attempt);
                }
                1 if delivery.state != State::Pending => {
                    let by = RedeliveryId::new(Uuid::from_u128(1));
                    delivery = due_again(&delivery, by, true, (at(now), at(now), Duration::from_secs(9)));
                    round.clear();
                }
                _ => {
                    let is_owed = delivery.state == State::Pending;
                    if let Acked::Ends(after) = acknowledged(&delivery, attempt, at(now)) {
                        prop_assert!(is_owed && round.contains(&attempt));
                        delivery = *after;
                    } else {
                        prop_assert!(!is_owed || !round.contains(&attempt));
                    }
                }
            }
            prop_assert!(delivery.attempts >= before);
        }
    }
}
