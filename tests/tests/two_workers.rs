//! Two workers on two copies at the same moment, over the real code of the tables: one effect each.
//!
//! Both are real workers on real threads, which set out together, wait for each other when both have read the row as
//! pending, and then race for it. After each round the tables are looked at past all ports, and emptied.

#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a suite may fail where it stands"
)]

#[path = "two_workers/race.rs"]
mod race;
#[expect(dead_code, reason = "the tables are all this suite asks of the template")]
#[path = "template/stack.rs"]
mod stack;
#[expect(dead_code, reason = "shared with the suite of contracts, which asks more of it")]
#[path = "contract/tables.rs"]
mod tables;

use domain::{event::Version, inbox::Status};
use race::{Race, Store, applied, counted, rejected};
use worker::Outcome;

/// Rounds of the race that matters most: two copies of one message.
const ROUNDS: u64 = 1_000;

/// Rounds of each other race.
const FEWER: u64 = 100;

/// C4, C5, C31, L5, L7, L8, L21: two copies of one message. One of them finishes the row, the other one finds it
/// finished; nothing else is an answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_thousand_times_two_workers_on_two_copies_have_one_effect() {
    let race = Race::new(Store::AsItIs).await;
    for n in 0..ROUNDS {
        let key = race.came(n, "a", 1).await;
        let outcomes = race.run([(&key, applied), (&key, applied)]).await;
        let finished = outcomes.iter().filter(|o| matches!(o, Outcome::Finished { .. })).count();
        let before = outcomes.iter().filter(|o| matches!(o, Outcome::FinishedBefore)).count();
        assert_eq!((finished, before), (1, 1), "round {n}: {outcomes:?}");
        assert_eq!(race.commits(), 1, "round {n}: {outcomes:?}");
        race.has_one_effect(n, Version::Number(1)).await;
        race.is(&key, Status::Processed).await;
        race.clear().await;
    }
}

/// C18, C22, C23, L8, L12: two events that are one operation of the business, and one of which is older.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_workers_on_two_events_of_one_invoice_grant_one_credit_and_keep_the_newer() {
    let race = Race::new(Store::AsItIs).await;
    for n in 0..FEWER {
        let older = race.came(n, "a", 1).await;
        let newer = race.came(n, "b", 2).await;
        let outcomes = race.run([(&older, applied), (&newer, applied)]).await;
        let is_finished = |outcome: &Outcome| matches!(outcome, Outcome::Finished { .. });
        assert!(outcomes.iter().all(is_finished), "round {n}: {outcomes:?}");
        race.has_one_effect(n, Version::Number(2)).await;
        for key in [&older, &newer] {
            race.is(key, Status::Processed).await;
        }
        race.clear().await;
    }
}

/// D11, D13: two events that both look at one object before they change it. Neither change is lost: who comes second looks
/// and plans again.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_workers_on_two_events_that_build_on_one_object_lose_neither() {
    let race = Race::new(Store::AsItIs).await;
    for n in 0..FEWER {
        let (one, other) = (race.came(n, "a", 1).await, race.came(n, "b", 1).await);
        let outcomes = race.run([(&one, counted), (&other, counted)]).await;
        let is_finished = |outcome: &Outcome| matches!(outcome, Outcome::Finished { .. });
        assert!(outcomes.iter().all(is_finished), "round {n}: {outcomes:?}");
        race.is_counted_twice(n).await;
        race.clear().await;
    }
}

/// C6, C37: two deploys at once, one of which refuses what the other one carries out. The row ends in one way, and the
/// effect is there exactly if it is that one.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_two_workers_that_disagree_one_decides_all() {
    let race = Race::new(Store::AsItIs).await;
    for n in 0..FEWER {
        let key = race.came(n, "a", 1).await;
        let outcomes = race.run([(&key, applied), (&key, rejected)]).await;
        match &outcomes {
            [Outcome::Finished { .. }, Outcome::FinishedBefore] => {
                race.is(&key, Status::Processed).await;
                race.has_one_effect(n, Version::Number(1)).await;
            }
            [Outcome::ParkedBefore, Outcome::Parked(_)] => {
                race.is(&key, Status::DeadLetter).await;
                race.has_no_effect().await;
            }
            other => panic!("round {n}: {other:?}"),
        }
        race.clear().await;
    }
}

/// OUT-error-after-commit: both make the same transaction at the same nanosecond, and the store takes them for one of which
/// the answer was lost. It is carried out once, and both are told that it was.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_workers_at_the_same_nanosecond_make_one_transaction() {
    let race = Race::new(Store::SameMoment).await;
    for n in 0..FEWER {
        let key = race.came(n, "a", 1).await;
        let outcomes = race.run([(&key, applied), (&key, applied)]).await;
        let is_well = |outcome: &Outcome| {
            matches!(outcome, Outcome::Finished { .. } | Outcome::FinishedBefore)
        };
        assert!(outcomes.iter().all(is_well), "round {n}: {outcomes:?}");
        race.has_one_effect(n, Version::Number(1)).await;
        race.is(&key, Status::Processed).await;
        race.clear().await;
    }
}

/// C31, OUT-transaction-conflict: the store refuses a transaction while another one holds an item, as AWS does and the
/// one in this process does not. A copy that meets the conflict in every round waits; that is no failure, and no attempt.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_workers_whose_transactions_conflict_have_one_effect() {
    let race = Race::new(Store::Conflicts).await;
    for n in 0..FEWER {
        let key = race.came(n, "a", 1).await;
        let outcomes = race.run([(&key, applied), (&key, applied)]).await;
        let is_well = |outcome: &Outcome| {
            matches!(
                outcome,
                Outcome::Finished { .. } | Outcome::FinishedBefore | Outcome::Waits { .. }
            )
        };
        assert!(outcomes.iter().all(is_well), "round {n}: {outcomes:?}");
        assert_eq!(race.commits(), 1, "round {n}: {outcomes:?}");
        race.has_one_effect(n, Version::Number(1)).await;
        race.is(&key, Status::Processed).await;
        assert_eq!(race.row(&key).await.attempts, 0, "round {n}: {outcomes:?}");
        race.clear().await;
    }
    assert!(race.conflicts() > 0, "no transaction met another one");
}
