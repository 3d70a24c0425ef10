//! The rules of [`domain::ports::State`].

use domain::{
    commit::{Answer, Commit, LeaseProof, MAX_ROUNDS, Next, Reason, tie_of},
    event::Version,
    id::SourceName,
    inbox::{Applied, ChangeResult, Status},
    outbox::OutboxEvent,
    plan::Guard,
    ports::{Inbox as _, Lease, Outbox as _, State as _, StoreError},
};
use futures_util::future::join_all;
use serde_json::json;

use super::{
    Kept, Tables,
    given::{
        accepted, at, claim, commit, event_id, failure, invoice, key, newer, once, outgoing, read,
        under,
    },
    objects, rules,
};

/// Runs the rules of [`domain::ports::State`], each on fresh tables.
pub async fn state<T: Tables>(fresh: impl AsyncFn() -> T) {
    rules!(fresh:
        a_commit_makes_all_of_it_true,
        a_commit_of_a_row_that_has_moved_on_changes_nothing,
        a_refusal_names_each_action_that_failed_and_nothing_happens,
        what_is_old_is_dropped_and_the_rest_is_committed,
        objects::an_object_ends_with_the_newest_version_in_every_order,
        objects::any_two_versions_compare_in_the_store_as_they_do_in_memory,
        objects::an_object_is_changed_only_if_it_is_as_it_was_read,
        objects::a_plan_that_saw_another_state_is_asked_for_again_and_nothing_happens,
        objects::changes_that_depend_on_an_object_lose_nothing,
        objects::an_object_says_of_when_it_is_and_whether_it_was_fetched,
        an_operation_is_done_once_whoever_asks,
        a_lost_lease_refuses_the_commit,
        a_commit_whose_answer_was_lost_may_be_repeated,
        writers_of_one_object_lose_nothing,
        a_lease_is_held_by_one_until_its_end,
        a_lease_given_back_is_free_and_the_fence_goes_on,
        only_the_holder_gives_a_lease_back,
    );
}

pub(super) fn stripe() -> SourceName {
    "stripe".parse().unwrap()
}

pub(super) async fn there(on: &impl Tables, event: &OutboxEvent) -> Result<bool, StoreError> {
    let row = on.outbox().event(&event.tenant, event.id).await?;
    Ok(row.is_some_and(|row| row.event == *event && row.relayed.is_none()))
}

fn result(what: &str, result: Applied) -> ChangeResult {
    ChangeResult::new(what, result)
}

async fn a_commit_makes_all_of_it_true(on: &impl Tables) -> Kept {
    accepted(on, "evt_1").await?;
    assert_eq!(on.state().object(&stripe(), &invoice("in_1")).await?, None);
    let fields = json!({ "status": "paid", "amount": 9_007_199_254_740_993_u64, "note": "ü\n" });
    let (first, second) = (outgoing(event_id(0, 1), b"1"), outgoing(event_id(0, 2), b"2"));
    let commit = commit(
        "evt_1",
        vec![
            (newer("in_1", Version::Number(3), fields.clone()), vec![first.clone()]),
            (once("credit#in_1"), Vec::new()),
            (Guard::Free, vec![second.clone()]),
        ],
    );
    assert_eq!(on.state().commit(&commit).await?, Answer::Applied);

    let row = read(on, "evt_1").await?;
    assert_eq!((row.status, row.finished_at), (Status::Processed, Some(commit.now)));
    assert_eq!((row.due_at, row.results), (None, commit.results_if_applied()));
    let object = on.state().object(&stripe(), &invoice("in_1")).await?.unwrap();
    assert_eq!((object.version, object.deleted), (Version::Number(3), false));
    assert_eq!((object.tie, object.fields), (tie_of(&fields, false), fields));
    assert_eq!(object.updated_at, commit.now);
    assert_eq!((object.as_of, object.fetched), (commit.knowledge.as_of, false));
    // One id, two sources: two objects.
    assert_eq!(on.state().object(&"github".parse().unwrap(), &invoice("in_1")).await?, None);
    assert!(there(on, &first).await? && there(on, &second).await?);
    Ok(())
}

async fn a_commit_of_a_row_that_has_moved_on_changes_nothing(on: &impl Tables) -> Kept {
    let event = outgoing(event_id(0, 1), b"1");
    let commit = commit("evt_1", vec![(once("credit"), vec![event.clone()])]);
    let moved = async |why: &str| {
        let answer = on.state().commit(&commit).await?;
        let Answer::Refused(reasons) = &answer else { panic!("{why}: {answer:?}") };
        assert_eq!(reasons.first(), Some(&Reason::ConditionFailed), "{why}");
        assert_eq!(commit.clone().after(&answer), Next::Moved, "{why}");
        assert!(!there(on, &event).await?, "{why}");
        Ok::<_, StoreError>(())
    };
    moved("absent").await?;
    assert!(on.inbox().read(&key("stripe", "evt_1")).await?.is_none());
    let new = accepted(on, "evt_1").await?;
    let _ = on.inbox().park(&claim("evt_1", 0), 1, &failure(), at(5)).await?;
    moved("parked").await?;
    let _ = on.inbox().rearm(&new.key, at(300), at(200)).await?;
    moved("re-armed").await?;
    let _ = on.inbox().finish(&claim("evt_1", 1), &super::given::processed(at(210))).await?;
    moved("finished").await?;
    assert_eq!(read(on, "evt_1").await?.finished_at, Some(at(210)));
    Ok(())
}

/// ING-error-taken-for-duplicate, OUT-transaction-conflict
async fn a_refusal_names_each_action_that_failed_and_nothing_happens(on: &impl Tables) -> Kept {
    accepted(on, "evt_0").await?;
    let known = outgoing(event_id(0, 1), b"1");
    let before = commit(
        "evt_0",
        vec![
            (newer("in_1", Version::Number(5), json!({})), vec![known.clone()]),
            (once("credit"), Vec::new()),
        ],
    );
    assert_eq!(on.state().commit(&before).await?, Answer::Applied);

    accepted(on, "evt_1").await?;
    let fresh = outgoing(event_id(0, 2), b"2");
    let commit = commit(
        "evt_1",
        vec![
            (newer("in_1", Version::Number(4), json!({})), Vec::new()),
            (newer("in_2", Version::Number(1), json!({})), vec![fresh.clone()]),
            (once("credit"), Vec::new()),
            (once("other"), vec![known.clone()]),
        ],
    );
    let answer = on.state().commit(&commit).await?;
    let (ok, failed) = (Reason::None, Reason::ConditionFailed);
    assert_eq!(answer, Answer::Refused(vec![ok, failed, ok, failed, ok, ok, failed]));
    assert_eq!(read(on, "evt_1").await?.status, Status::Pending);
    assert_eq!(on.state().object(&stripe(), &invoice("in_2")).await?, None);
    assert!(!there(on, &fresh).await?);
    Ok(())
}

async fn what_is_old_is_dropped_and_the_rest_is_committed(on: &impl Tables) -> Kept {
    accepted(on, "evt_0").await?;
    let known = outgoing(event_id(0, 1), b"1");
    let newest = newer("in_1", Version::Number(5), json!({ "v": 5 }));
    let before = commit("evt_0", vec![(newest, vec![known.clone()])]);
    assert_eq!(on.state().commit(&before).await?, Answer::Applied);

    accepted(on, "evt_1").await?;
    let (gone, fresh) = (outgoing(event_id(0, 2), b"2"), outgoing(event_id(0, 3), b"3"));
    let first = commit(
        "evt_1",
        vec![
            (newer("in_1", Version::Number(4), json!({ "v": 4 })), vec![gone.clone()]),
            (once("credit"), vec![known.clone(), fresh.clone()]),
        ],
    );
    let results = committed(on, first).await?;
    assert!(results.contains(&result("object invoice in_1", Applied::Stale)));
    assert!(results.contains(&result("operation credit", Applied::Applied)));
    assert!(results.contains(&result(&format!("event {}", known.id), Applied::AlreadyEmitted)));
    assert!(results.contains(&result(&format!("event {}", fresh.id), Applied::Applied)));
    assert_eq!(read(on, "evt_1").await?.results, results);
    let object = on.state().object(&stripe(), &invoice("in_1")).await?.unwrap();
    assert_eq!(object.fields, json!({ "v": 5 }));
    assert!(there(on, &fresh).await? && !there(on, &gone).await?);
    Ok(())
}

/// Commits as a worker does: narrows, and tries again what was not decided.
async fn committed(on: &impl Tables, mut commit: Commit) -> Result<Vec<ChangeResult>, StoreError> {
    let mut rounds = 0;
    loop {
        let answer = on.state().commit(&commit).await?;
        commit = match commit.clone().after(&answer) {
            Next::Done(results) => return Ok(results),
            Next::Narrowed(narrower) => narrower,
            Next::Later(_) => commit,
            other => panic!("{other:?}"),
        };
        rounds += 1;
        // Conflicts do not count as rounds, but here they end some time.
        assert!(rounds < MAX_ROUNDS + 1_000, "no end of it");
    }
}

async fn an_operation_is_done_once_whoever_asks(on: &impl Tables) -> Kept {
    let events: Vec<_> = (0..16).map(|n| format!("evt_{n}")).collect();
    for event in &events {
        accepted(on, event).await?;
    }
    let ask =
        |event: &String| committed(on, commit(event, vec![(once("credit#in_1"), Vec::new())]));
    let mut done = 0;
    for results in join_all(events.iter().map(ask)).await {
        let [ChangeResult { what, result, .. }] = results?.try_into().unwrap();
        assert_eq!(what, "operation credit#in_1");
        match result {
            Applied::Applied => done += 1,
            other => assert_eq!(other, Applied::DuplicateEffect),
        }
    }
    assert_eq!(done, 1);
    Ok(())
}

async fn held(
    on: &impl Tables,
    owner: &str,
    now: i64,
    until: i64,
) -> Result<LeaseProof, StoreError> {
    match on.state().lease("stripe#invoice#in_1", owner, at(now), at(until)).await? {
        Lease::Held(lease) => Ok(lease),
        busy @ Lease::Busy(_) => panic!("{owner}: {busy:?}"),
    }
}

async fn a_lost_lease_refuses_the_commit(on: &impl Tables) -> Kept {
    accepted(on, "evt_1").await?;
    let never = LeaseProof { what: "nothing".to_owned(), owner: "me".to_owned(), fence: 1 };
    let mine = held(on, "me", 0, 45).await?;
    let theirs = held(on, "they", 50, 95).await?;
    let event = outgoing(event_id(0, 1), b"1");
    let plan = || {
        let guard = newer("in_1", Version::Number(1), json!({}));
        commit("evt_1", vec![(guard, vec![event.clone()])])
    };
    let (ok, failed) = (Reason::None, Reason::ConditionFailed);
    for lost in [never, mine, LeaseProof { owner: "me".to_owned(), ..theirs.clone() }] {
        let commit = under(lost, plan());
        let answer = on.state().commit(&commit).await?;
        assert_eq!(answer, Answer::Refused(vec![ok, ok, failed, ok]));
        assert_eq!(commit.after(&answer), Next::LeaseLost);
    }
    assert!(!there(on, &event).await?);
    assert_eq!(on.state().commit(&under(theirs, plan())).await?, Answer::Applied);
    assert!(there(on, &event).await?);
    Ok(())
}

/// OUT-error-after-commit
async fn a_commit_whose_answer_was_lost_may_be_repeated(on: &impl Tables) -> Kept {
    accepted(on, "evt_1").await?;
    let event = outgoing(event_id(0, 1), b"1");
    let commit = commit("evt_1", vec![(once("credit"), vec![event.clone()])]);
    assert_eq!(on.state().commit(&commit).await?, Answer::Applied);
    let again = on.state().commit(&commit).await?;
    // Known as the same, or refused by the row: never a second effect.
    assert!(again == Answer::Applied || commit.clone().after(&again) == Next::Moved, "{again:?}");
    assert_eq!(read(on, "evt_1").await?.results, commit.results_if_applied());
    assert!(there(on, &event).await?);
    Ok(())
}

/// OUT-transaction-conflict
async fn writers_of_one_object_lose_nothing(on: &impl Tables) -> Kept {
    const WRITERS: u32 = 8;
    const WRITES: u32 = 10;
    let write = async |writer: u32| {
        for n in 0..WRITES {
            let number = n * WRITERS + writer;
            let event = format!("evt_{number}");
            accepted(on, &event).await?;
            let guard = newer("in_1", Version::Number(number.into()), json!({ "n": number }));
            let told = outgoing(event_id(0, number), b"told");
            let changes = vec![(guard, Vec::new()), (Guard::Free, vec![told])];
            committed(on, commit(&event, changes)).await?;
        }
        Ok::<_, StoreError>(())
    };
    for done in join_all((0..WRITERS).map(write)).await {
        done?;
    }
    let last = WRITERS * WRITES - 1;
    let object = on.state().object(&stripe(), &invoice("in_1")).await?.unwrap();
    assert_eq!(object.version, Version::Number(last.into()));
    for number in 0..=last {
        assert!(there(on, &outgoing(event_id(0, number), b"told")).await?, "event {number}");
        assert_eq!(read(on, &format!("evt_{number}")).await?.status, Status::Processed);
    }
    Ok(())
}

/// INB-in-progress-stuck: whoever died holding it holds it no longer than that.
async fn a_lease_is_held_by_one_until_its_end(on: &impl Tables) -> Kept {
    let first = held(on, "me", 0, 45).await?;
    assert_eq!((first.owner.as_str(), first.what.as_str()), ("me", "stripe#invoice#in_1"));
    let busy = on.state().lease("stripe#invoice#in_1", "they", at(44), at(90)).await?;
    assert_eq!(busy, Lease::Busy(at(45)));
    let other = on.state().lease("stripe#invoice#in_2", "they", at(44), at(90)).await?;
    assert!(matches!(other, Lease::Held(_)), "another thing is another lease");
    let second = held(on, "they", 45, 90).await?;
    assert!(second.fence > first.fence);

    let owners: Vec<_> = (0..16).map(|n| format!("o{n}")).collect();
    let tries = owners.iter().map(|owner| on.state().lease("sweep", owner, at(0), at(60)));
    let tries = futures_util::future::try_join_all(tries).await?;
    assert_eq!(tries.iter().filter(|lease| matches!(lease, Lease::Held(_))).count(), 1);
    Ok(())
}

async fn a_lease_given_back_is_free_and_the_fence_goes_on(on: &impl Tables) -> Kept {
    let first = held(on, "me", 0, 45).await?;
    on.state().give_back(&first, at(10)).await?;
    on.state().give_back(&first, at(10)).await?;
    let second = held(on, "they", 10, 55).await?;
    assert!(second.fence > first.fence);
    Ok(())
}

async fn only_the_holder_gives_a_lease_back(on: &impl Tables) -> Kept {
    let first = held(on, "me", 0, 45).await?;
    let second = held(on, "they", 45, 90).await?;
    on.state().give_back(&first, at(50)).await?;
    on.state().give_back(&LeaseProof { owner: "me".to_owned(), ..second }, at(50)).await?;
    let never = LeaseProof { what: "nothing".to_owned(), ..first };
    on.state().give_back(&never, at(50)).await?;
    let busy = on.state().lease("stripe#invoice#in_1", "me", at(60), at(100)).await?;
    assert_eq!(busy, Lease::Busy(at(90)));
    assert!(matches!(on.state().lease("nothing", "me", at(60), at(100)).await?, Lease::Held(_)));
    Ok(())
}
