//! Pausing and resuming a source.

use std::collections::BTreeSet;

use domain::{
    body::{Place, Sha256Hash, StoredBody},
    bulk::MAX_OPEN,
    event::Origin,
    id::InboxKey,
    inbox::{Accepted, Claim, NewRow, Noted},
    message::{InboundMessage, Message as _},
    ports::{AttemptNote, Bulk as _, Inbox as _, Registry as _},
};
use flow::bulk::{Bulks, Step};
use serde_json::{Value, json};
use testkit::chaos::{Fault, When};

use crate::deployment::{Deployment, at, now, source};

const PAUSE: &str = "/v1/sources/shop/pause";
const RESUME: &str = "/v1/sources/shop/resume";

async fn with_source() -> Deployment {
    let postern = Deployment::new();
    postern.post("/v1/sources", &source("shop")).await.good(201);
    postern
}

async fn stored(postern: &Deployment) -> domain::source::Source {
    postern.0.registry.source(&"shop".parse().unwrap()).await.unwrap().unwrap()
}

fn actions(postern: &Deployment) -> Vec<String> {
    let audit = postern.0.registry.tables().audit.clone();
    audit.into_iter().map(|entry| entry.action).collect()
}

/// C33
#[tokio::test]
async fn a_source_is_paused_with_a_reason_and_resumed() {
    let postern = with_source().await;
    let paused = postern.post(PAUSE, &json!({"reason": " the books are wrong "})).await.good(200);
    let expected = json!({"since": now().to_string(), "reason": "the books are wrong"});
    assert_eq!(paused["paused"], expected);
    assert!(paused["warnings"][0].as_str().unwrap().starts_with("Events are accepted, and wait."));
    let words = format!(
        "paused since {} (less than a minute ago): events are accepted, and wait; no event has been accepted yet",
        now()
    );
    assert_eq!(paused["health"]["words"], words);
    let line = &postern.get("/v1/sources").await.good(200)["sources"][0];
    assert_eq!((&line["paused"], &line["health"]["words"]), (&expected, &json!(words)));

    let resumed = postern.ask(RESUME).await.good(200);
    assert_eq!(resumed["paused"], Value::Null);
    assert_eq!(stored(&postern).await.resumed_at, Some(now()));
    let expected = ["source.add", "source.pause", "source.resume", "resume.start"];
    assert_eq!(actions(&postern), expected);
}

/// Events that wait, as a worker has put them off.
async fn waiting(postern: &Deployment, count: usize) -> Vec<InboxKey> {
    let mut keys = Vec::new();
    for n in 0..count {
        let row = row(&format!("evt_{n}"));
        assert_eq!(postern.0.inbox.accept(&row).await.unwrap(), Accepted::New);
        let claim = Claim { key: row.key.clone(), cycle: 0 };
        let note = AttemptNote {
            attempts: 0,
            failure: None,
            due_at: at(6 * 3600),
            next_action: "waits".to_owned(),
            waits_until: Some(at(6 * 3600)),
            waits_since: None,
            split: None,
        };
        assert_eq!(postern.0.inbox.note(&claim, &note).await.unwrap(), Noted::Yes);
        keys.push(row.key);
    }
    keys
}

fn row(id: &str) -> NewRow {
    let body =
        StoredBody { sha256: Sha256Hash::of(b"{}"), length: 2, place: Place::Inline(Vec::new()) };
    NewRow {
        key: InboxKey::new("shop".parse().unwrap(), id).unwrap(),
        event_type: None,
        received_at: at(-60),
        due_at: at(60),
        body,
        headers: Default::default(),
        object: None,
        version: None,
        occurred_at: None,
        origin: Origin::Webhook,
        key_id: None,
        token: "t".to_owned(),
        traceparent: None,
        delivery_id: None,
        parent: None,
    }
}

fn messages(postern: &Deployment) -> BTreeSet<String> {
    postern.0.inbound.set_now(at(3600));
    std::iter::from_fn(|| postern.0.inbound.receive(|_| 0)).map(|message| message.text).collect()
}

#[tokio::test]
async fn what_waits_is_sent_when_the_source_is_resumed_and_not_before() {
    let postern = with_source().await;
    postern.post(PAUSE, &json!({"reason": "a bug"})).await.good(200);
    let keys = waiting(&postern, 7).await;
    assert!(messages(&postern).is_empty());
    let resumed = postern.ask(&format!("{RESUME}?rate=1000")).await.good(200);
    let told =
        "7 waiting events are on their way; if there are more, they follow at 1000 per second.";
    assert_eq!(resumed["warnings"][0], told);
    let expected: BTreeSet<_> =
        keys.iter().map(|key| InboundMessage(key.clone()).to_text()).collect();
    assert_eq!(messages(&postern), expected);
    for key in keys {
        let row = postern.0.inbox.read(&key).await.unwrap().unwrap();
        assert!(row.due_at.unwrap() < at(3600), "{row:?}");
    }
    let work = postern.get(&format!("/v1/replays/{}", resumed["resume"].as_str().unwrap())).await;
    assert_eq!(work.good(200)["reason"], "the source was resumed");
    for rate in ["0", "1001", "x"] {
        postern.ask(&format!("{RESUME}?rate={rate}")).await.problem(422, "invalid-request");
    }
}

/// If it dies right there: the source is resumed, and nobody looks for its events. Whoever got no answer asks again.
#[tokio::test]
async fn a_resume_that_was_cut_off_is_ended_by_the_next_one() {
    let postern = with_source().await;
    postern.post(PAUSE, &json!({"reason": "a bug"})).await.good(200);
    waiting(&postern, 3).await;
    let chaos = &postern.0.registry.chaos;
    chaos.on("bulk.start", When::Before, Fault::Unavailable);
    postern.ask(RESUME).await.problem(503, "unavailable");
    assert!(stored(&postern).await.paused.is_none() && messages(&postern).is_empty());
    chaos.heal();
    let first = postern.ask(RESUME).await.good(200);
    assert_eq!(messages(&postern).len(), 3);
    let again = postern.ask(RESUME).await.good(200);
    assert_eq!(first["resume"], again["resume"], "one work for one resume");

    // A source that was never paused has nothing to send.
    postern.post("/v1/sources", &source("calm")).await.good(201);
    let calm = postern.ask("/v1/sources/calm/resume").await.good(200);
    assert_eq!(calm["resume"], Value::Null);
    assert_eq!(postern.get("/v1/replays").await.good(200)["replays"].as_array().unwrap().len(), 1);
}

/// As one sweep does, so many seconds after the resume.
async fn sweep(postern: &Deployment, resume: &Value, second: i64) {
    let api = &postern.0;
    let bulks = Bulks {
        inbox: &api.inbox,
        bulk: &api.registry,
        queue: &api.inbound,
        shards: api.limits.pending_shards,
        first_due: api.limits.first_due,
    };
    let id = resume["resume"].as_str().unwrap().parse().unwrap();
    loop {
        let work = api.registry.bulk(id).await.unwrap().unwrap();
        let Step::Went(_) = bulks.step(&work, at(second)).await.unwrap() else { break };
    }
}

async fn state(postern: &Deployment, resume: &Value) -> String {
    let work = postern.get(&format!("/v1/replays/{}", resume["resume"].as_str().unwrap())).await;
    work.good(200)["state"].as_str().unwrap().to_owned()
}

/// C33: a call that is repeated within moments starts nothing more; one that comes when the work is over starts another,
/// which finds what was put off since.
#[tokio::test]
async fn a_resume_whose_work_is_over_starts_again_and_one_under_way_does_not() {
    let postern = with_source().await;
    postern.post(PAUSE, &json!({"reason": "a bug"})).await.good(200);
    let keys = waiting(&postern, 2).await;
    postern.0.inbox.tables().unlisted.insert(keys[1].clone());
    postern.0.inbox.chaos.set(|_, _| None);
    let first = postern.ask(RESUME).await.good(200);
    let pages = postern.0.inbox.chaos.calls().into_iter().filter(|call| *call == "walk.page");
    assert!(pages.count() <= 2 * usize::from(postern.0.limits.pending_shards), "it does not spin");
    postern.0.inbox.chaos.heal();
    assert_eq!((messages(&postern).len(), state(&postern, &first).await), (1, "running".into()));
    let again = postern.ask(RESUME).await.good(200);
    assert_eq!((&first["resume"], messages(&postern).len()), (&again["resume"], 0));

    // The index stays behind for longer than anybody thought, and the work ends without the row.
    sweep(&postern, &first, 60).await;
    assert_eq!(state(&postern, &first).await, "completed");
    postern.0.inbox.tables().unlisted.clear();
    let second = postern.ask(RESUME).await.good(200);
    assert_ne!(first["resume"], second["resume"]);
    assert_eq!(messages(&postern), [InboundMessage(keys[1].clone()).to_text()].into());
    let again = postern.ask(RESUME).await.good(200);
    assert_eq!((&second["resume"], messages(&postern).len()), (&again["resume"], 0));

    sweep(&postern, &second, 60).await;
    let third = postern.ask(RESUME).await.good(200);
    assert!(![&first["resume"], &second["resume"]].contains(&&third["resume"]));
    assert_eq!(postern.get("/v1/replays").await.good(200)["replays"].as_array().unwrap().len(), 3);
}

/// The source is resumed by then: what waits must not stay because of replays that have nothing to do with it.
#[tokio::test]
async fn a_resume_starts_beside_as_many_replays_as_may_be_under_way() {
    let postern = with_source().await;
    postern.post(PAUSE, &json!({"reason": "a bug"})).await.good(200);
    let keys = waiting(&postern, 1).await;
    let replay = json!({"source": "shop", "reason": "mended"});
    postern.0.inbox.chaos.set(|_, _| Some((When::Before, Fault::Throttled)));
    for _ in 0..MAX_OPEN {
        postern.post("/v1/replays", &replay).await.good(202);
    }
    postern.0.inbox.chaos.heal();
    postern.post("/v1/replays", &replay).await.problem(409, "too-many-replays");
    let resumed = postern.ask(RESUME).await.good(200);
    assert_eq!((&resumed["paused"], messages(&postern).len()), (&Value::Null, keys.len()));
}

#[tokio::test]
async fn of_two_operators_the_first_ones_reason_stands_and_both_are_told() {
    let postern = with_source().await;
    postern.post(PAUSE, &json!({"reason": "mine"})).await.good(200);
    let second = postern.post(PAUSE, &json!({"reason": "yours"})).await.good(200);
    assert_eq!(second["paused"]["reason"], "mine");
    let told = format!(
        "The source was paused before, since {}, and stays so for that reason: mine",
        now()
    );
    assert_eq!(second["warnings"][0], told);
    postern.ask(RESUME).await.good(200);
    let before = stored(&postern).await;
    postern.ask(RESUME).await.good(200);
    assert_eq!(stored(&postern).await, before);
}

/// Who comes second looks again, and does not undo what the first one did.
#[tokio::test]
async fn a_change_at_the_same_moment_is_kept() {
    let postern = with_source().await;
    let other = json!({"silent_after_seconds": 60});
    let mine = json!({"reason": "a bug"});
    let (paused, changed) =
        tokio::join!(postern.post(PAUSE, &mine), postern.patch("/v1/sources/shop", &other));
    paused.good(200);
    // The change may have lost the race, and says so.
    let is_changed = changed.status.is_success();
    assert!(is_changed || changed.status == 409, "{changed:?}");
    let stored = stored(&postern).await;
    assert!(stored.paused.is_some() && stored.silent_after.is_some() == is_changed, "{stored:?}");
}

#[tokio::test]
async fn a_pause_needs_a_reason_a_source_and_its_own_events() {
    let postern = with_source().await;
    for reason in ["", "  ", "two\nlines", &"x".repeat(501)] {
        let refused = postern.post(PAUSE, &json!({ "reason": reason })).await;
        refused.problem(422, "invalid-request");
        assert_eq!(refused.fields(), ["reason"]);
    }
    postern.post(PAUSE, &json!({})).await.problem(422, "invalid-request");
    postern.post("/v1/sources/x/pause", &json!({"reason": "r"})).await.problem(404, "not-found");
    postern.ask("/v1/sources/x/resume").await.problem(404, "not-found");

    let mut twin = source("twin");
    twin["same_as"] = json!("shop");
    postern.post("/v1/sources", &twin).await.good(201);
    let refused = postern.post("/v1/sources/twin/pause", &json!({"reason": "r"})).await;
    let detail = refused.problem(409, "filed-elsewhere");
    assert!(detail.contains("filed under shop") && detail.contains("Pause that one"), "{detail}");
    assert_eq!(actions(&postern), ["source.add", "source.add"]);
}

/// What waits under its own name from before waits until it is resumed.
#[tokio::test]
async fn a_paused_source_that_became_the_same_as_another_can_be_resumed() {
    let postern = with_source().await;
    postern.post("/v1/sources", &source("other")).await.good(201);
    postern.post(PAUSE, &json!({"reason": "a bug"})).await.good(200);
    let changed = postern.patch("/v1/sources/shop", &json!({"same_as": "other"})).await.good(200);
    assert_eq!(changed["paused"]["reason"], "a bug");
    assert_eq!(postern.ask(RESUME).await.good(200)["paused"], Value::Null);
}

#[tokio::test]
async fn nothing_is_paused_or_resumed_without_its_entry() {
    let postern = with_source().await;
    let chaos = &postern.0.registry.chaos;
    chaos.on("configure.audit", When::Before, Fault::Unavailable);
    postern.post(PAUSE, &json!({"reason": "r"})).await.problem(503, "unavailable");
    assert_eq!(stored(&postern).await.paused, None);
    chaos.heal();
    postern.post(PAUSE, &json!({"reason": "r"})).await.good(200);
    chaos.on("configure.audit", When::Before, Fault::Unavailable);
    postern.ask(RESUME).await.problem(503, "unavailable");
    assert!(stored(&postern).await.paused.is_some());
}
