//! Bulk work: started, surveyed, shown, stopped.

use domain::{
    bulk::{AHEAD, MAX_OPEN},
    id::InboxKey,
    inbox::{Failure, Noted, Status},
    ports::{Bulk as _, Inbox as _},
};
use serde_json::{Value, json};
use testkit::chaos::{Fault, When};

use crate::deployment::{Deployment, at, now, source};

fn key(event: &str) -> InboxKey {
    InboxKey::new("stripe".parse().unwrap(), event).unwrap()
}

impl Deployment {
    async fn with_source() -> Self {
        let postern = Self::new();
        postern.post("/v1/sources", &source("stripe")).await.good(201);
        postern.0.registry.tables().audit.clear();
        postern
    }

    /// With so many parked events, `dead_0` and so on.
    async fn with_dead(count: usize) -> Self {
        let postern = Self::with_source().await;
        for n in 0..count {
            postern.park(&format!("dead_{n}"), -100).await;
        }
        postern
    }

    fn count(&self, status: Status) -> usize {
        let tables = self.0.inbox.tables();
        tables.inbox.values().filter(|item| item.row.status == status).count()
    }
}

fn replay(select: &Value) -> Value {
    json!({"source": "stripe", "select": select, "reason": "the handler is mended"})
}

/// WRK-dlq-redrive, K2, K6
#[tokio::test]
async fn what_is_parked_is_surveyed_and_then_replayed_from_the_table() {
    let postern = Deployment::with_dead(30).await;
    let before = postern.0.inbox.tables().inbox.clone();
    let dry = json!({"source": "stripe", "dry_run": true});
    let survey = postern.post("/v1/replays", &dry).await.good(200);
    assert_eq!((&survey["counts"]["replayed"], &survey["more"]), (&json!(30), &json!(false)));
    assert_eq!(survey["by_status"], json!({"dead_letter": 30}));
    assert_eq!(survey["by_type"], json!({"invoice.paid": 30}));
    assert_eq!(survey["first"].as_array().unwrap().len(), 20);
    assert_eq!(postern.0.inbox.tables().inbox, before);
    assert!(postern.0.registry.tables().audit.is_empty() && postern.inbound().is_empty());

    let work = postern.post("/v1/replays", &replay(&json!({}))).await.good(202);
    assert_eq!((&work["state"], &work["counts"]["replayed"]), (&json!("completed"), &json!(30)));
    assert_eq!((postern.count(Status::Pending), postern.inbound().len()), (30, 30));
    let id = work["id"].as_str().unwrap();
    let shown = postern.get(&format!("/v1/replays/{id}")).await.good(200);
    assert_eq!(shown, work);
    let story = postern.get("/v1/sources/stripe/events/dead_1").await.good(200);
    assert_eq!(story["replay"], id);
    let list = postern.get("/v1/replays").await.good(200);
    assert_eq!((&list["replays"][0]["id"], &list["more"]), (&json!(id), &json!(false)));
}

/// RPL-inbound-repair: who, why and which events, before anything is done.
#[tokio::test]
async fn a_replay_is_written_down_before_it_is_done() {
    let postern = Deployment::with_dead(3).await;
    postern.0.registry.chaos.on("configure.audit", When::Before, Fault::Unavailable);
    let select = json!({"types": ["invoice.*"], "error": "handler_failed"});
    postern.post("/v1/replays", &replay(&select)).await.problem(503, "unavailable");
    postern.0.registry.chaos.heal();
    assert_eq!(postern.count(Status::DeadLetter), 3);
    assert!(postern.0.registry.tables().bulks.is_empty());

    let work = postern.post("/v1/replays", &replay(&select)).await.good(202);
    let id = work["id"].as_str().unwrap();
    let entry = postern.0.registry.tables().audit[0].clone();
    assert_eq!((entry.action.as_str(), entry.actor.as_str()), ("replay.start", "unknown"));
    assert_eq!(
        entry.subject,
        format!(
            "{id} of stripe: {{\"status\":[\"dead_letter\"],\"types\":[\"invoice.*\"],\"error\":\"handler_failed\"}}, \
             50 per second; reason: the handler is mended"
        )
    );
}

/// RPL-already-delivered, RPL-in-flight, K1, K9
#[tokio::test]
async fn named_events_are_told_of_one_by_one_and_what_is_processed_stays() {
    let postern = Deployment::with_dead(1).await;
    postern.process("done", "x").await;
    postern.receive("pending").await;
    let names = json!({"events": ["dead_0", "done", "pending", "nowhere", "dead_0"]});
    let work = postern.post("/v1/replays", &replay(&names)).await.good(202);
    let told = |event: &str, outcome: &str| json!({"event_id": event, "outcome": outcome});
    let expected = json!([
        told("dead_0", "replayed"),
        told("done", "already_done"),
        told("pending", "in_flight"),
        told("nowhere", "absent"),
    ]);
    assert_eq!(work["told"], expected);
    assert_eq!(postern.status("done").0, Status::Processed);
    // By its name, it is run again.
    let named = json!({"events": ["done"], "status": ["processed"]});
    let work = postern.post("/v1/replays", &replay(&named)).await.good(202);
    assert_eq!(work["told"], json!([told("done", "replayed")]));
    assert_eq!(postern.status("done"), (Status::Pending, 1, 0));
}

#[tokio::test]
async fn finished_events_are_selected_from_the_day_on_which_their_source_was_made() {
    let postern = Deployment::with_source().await;
    postern.process("done", "x").await;
    let select = json!({"status": ["processed"]});
    let work = postern.post("/v1/replays", &replay(&select)).await.good(202);
    assert_eq!(work["counts"]["replayed"], 1);
    assert_eq!(work["select"]["from"], json!(at(-86_400)));
    postern.process("done_2", "x").await;
    let range = json!({"status": ["processed"], "from": at(-20), "to": at(-10)});
    let work = postern.post("/v1/replays", &replay(&range)).await.good(202);
    assert_eq!(work["counts"]["replayed"], 0);
}

#[tokio::test]
async fn a_deployment_that_lists_no_days_says_so() {
    let mut postern = Deployment::with_dead(1).await;
    std::sync::Arc::get_mut(&mut postern.0).unwrap().limits.list_by_source = false;
    let select = json!({"status": ["ignored"]});
    let detail = postern.post("/v1/replays", &replay(&select)).await.problem(409, "not-listed");
    assert!(detail.contains("ListBySource"), "{detail}");
    postern.post("/v1/replays", &replay(&json!({}))).await.good(202);
    let named = json!({"status": ["ignored"], "events": ["x"]});
    postern.post("/v1/replays", &replay(&named)).await.good(202);
}

#[tokio::test]
async fn events_of_a_source_that_is_the_same_as_another_are_found_where_they_are_filed() {
    let postern = Deployment::with_dead(2).await;
    let other = domain::source::Source {
        same_as: Some("stripe".parse().unwrap()),
        ..domain::source::Source::new(
            "stripe-thin".parse().unwrap(),
            domain::source::SchemeChoice::Preset("stripe".to_owned()),
            domain::source::Handler::Mirror { emit_to: None, states: None },
            now(),
        )
    };
    let name = other.name.clone();
    postern.0.registry.tables().sources.insert(name, other);
    let body = json!({"source": "stripe-thin", "reason": "x"});
    let work = postern.post("/v1/replays", &body).await.good(202);
    assert_eq!((&work["source"], &work["counts"]["replayed"]), (&json!("stripe"), &json!(2)));
    let parked = postern.get("/v1/parked?source=stripe-thin").await.good(200);
    assert_eq!(parked["parked"], json!([]));
}

#[tokio::test]
async fn everything_that_is_wrong_with_a_replay_is_told_at_once() {
    let postern = Deployment::with_source().await;
    let bad = json!({
        "source": "A B", "rate": 0, "reason": "a\nb",
        "select": {"status": ["pending"], "error": "A B", "from": at(5), "to": at(5), "events": [""]},
    });
    let answer = postern.post("/v1/replays", &bad).await;
    answer.problem(422, "invalid-request");
    assert_eq!(
        answer.fields(),
        [
            "source",
            "select.status",
            "select.from",
            "select.events",
            "select.error",
            "rate",
            "reason"
        ]
    );
    let nowhere = json!({"source": "nowhere", "reason": "x"});
    postern.post("/v1/replays", &nowhere).await.problem(404, "not-found");
    let unreasoned = postern.post("/v1/replays", &json!({"source": "stripe"})).await;
    assert!(unreasoned.problem(422, "invalid-request").contains("say why"));
    let fast = json!({"source": "stripe", "reason": "x", "rate": 1001});
    assert_eq!(postern.post("/v1/replays", &fast).await.fields(), ["rate"]);
    let resume = json!({"source": "stripe", "reason": "x", "kind": "resume", "select": {"status": ["ignored"]}});
    assert_eq!(postern.post("/v1/replays", &resume).await.fields(), ["select.status"]);
    let unknown = json!({"source": "stripe", "reason": "x", "select": {"kind": "y"}});
    postern.post("/v1/replays", &unknown).await.problem(422, "invalid-request");
    assert!(postern.0.registry.tables().bulks.is_empty());
}

/// RPL-already-delivered: a double submit runs once.
#[tokio::test]
async fn a_call_with_a_key_starts_one_replay_however_often_it_is_made() {
    let postern = Deployment::with_dead(2).await;
    let key = [("idempotency-key", "k1")];
    let body = replay(&json!({}));
    let first = postern.post_with("/v1/replays", &body, &key).await.good(202);
    let again = postern.post_with("/v1/replays", &body, &key).await.good(200);
    assert_eq!((&first["id"], &again["repeated"]), (&again["id"], &json!(true)));
    assert_eq!(postern.0.registry.tables().bulks.len(), 1);
    let other = replay(&json!({"types": ["x"]}));
    postern.post_with("/v1/replays", &other, &key).await.problem(409, "key-reused");
}

#[tokio::test]
async fn a_long_replay_goes_on_after_the_answer_and_can_be_stopped() {
    let postern = Deployment::with_dead(300).await;
    let work = postern.post("/v1/replays", &replay(&json!({}))).await.good(202);
    assert_eq!(work["state"], "running");
    let id = work["id"].as_str().unwrap();
    let begun = usize::try_from(work["counts"]["replayed"].as_u64().unwrap()).unwrap();
    assert!((100..200).contains(&begun), "{begun}");
    let path = format!("/v1/replays/{id}/cancel");
    let stopped = postern.post(&path, &json!({})).await.good(200);
    assert_eq!(
        (&stopped["state"], &stopped["cancelled_by"]),
        (&json!("cancelled"), &json!("unknown"))
    );
    assert_eq!(stopped["counts"], work["counts"]);
    postern.post(&path, &json!({})).await.problem(409, "over");
    assert_eq!(postern.count(Status::DeadLetter), 300 - begun);
    assert!(postern.0.registry.open().await.unwrap().is_empty());
    let actions = postern.0.registry.tables().audit.clone();
    let actions: Vec<_> = actions.iter().map(|entry| entry.action.as_str()).collect();
    assert_eq!(actions, ["replay.start", "replay.cancel"]);
    for path in ["/v1/replays/rpl_1", "/v1/replays/rpl_00000000000000000000000000000009"] {
        postern.get(path).await.problem(404, "not-found");
        postern.ask(&format!("{path}/cancel")).await.problem(404, "not-found");
    }
}

#[tokio::test]
async fn a_rate_of_one_takes_no_more_than_a_minute_ahead() {
    let postern = Deployment::with_dead(100).await;
    let body = json!({"source": "stripe", "reason": "x", "rate": 1});
    let work = postern.post("/v1/replays", &body).await.good(202);
    assert_eq!(work["counts"]["replayed"], AHEAD.as_secs());
    assert_eq!(postern.inbound().len(), 1, "the others are delayed");
}

#[tokio::test]
async fn what_cannot_be_done_at_once_is_the_sweepers() {
    let postern = Deployment::with_dead(3).await;
    postern.0.inbox.chaos.set(|_, _| Some((When::Before, Fault::Throttled)));
    let work = postern.post("/v1/replays", &replay(&json!({}))).await.good(202);
    assert_eq!((&work["state"], &work["counts"]["replayed"]), (&json!("running"), &json!(0)));
    assert_eq!(postern.0.registry.open().await.unwrap().len(), 1);
}

#[tokio::test]
async fn no_more_replays_than_a_sweep_can_look_at_are_under_way() {
    let postern = Deployment::with_dead(3).await;
    postern.0.inbox.chaos.set(|_, _| Some((When::Before, Fault::Throttled)));
    for _ in 0..MAX_OPEN {
        postern.post("/v1/replays", &replay(&json!({}))).await.good(202);
    }
    let detail = postern.post("/v1/replays", &replay(&json!({}))).await;
    assert!(detail.problem(409, "too-many-replays").contains("cancel one"));
}

#[tokio::test]
async fn a_resume_sends_what_waits_for_later() {
    let postern = Deployment::with_source().await;
    let claim = postern.receive("waits").await;
    let note = domain::ports::AttemptNote {
        attempts: 0,
        failure: None,
        due_at: at(21_600),
        next_action: "waits".to_owned(),
        waits_until: None,
        waits_since: None,
        split: None,
    };
    assert_eq!(postern.0.inbox.note(&claim, &note).await.unwrap(), Noted::Yes);
    let body = json!({"source": "stripe", "kind": "resume", "reason": "mended"});
    let work = postern.post("/v1/replays", &body).await.good(202);
    assert_eq!((&work["kind"], &work["counts"]["replayed"]), (&json!("resume"), &json!(1)));
    assert_eq!(postern.0.inbox.tables().inbox[&key("waits")].row.due_at, Some(at(120)));
    assert_eq!((postern.status("waits"), postern.inbound().len()), ((Status::Pending, 0, 0), 1));
    assert_eq!(postern.0.registry.tables().audit[0].action, "resume.start");
}

/// K3, K4, K8, K9, C12, C36: what is parked shows its error, its attempts, what is next, and since when.
#[tokio::test]
async fn parked_events_are_listed_by_source_and_page_by_page() {
    let postern = Deployment::with_source().await;
    for n in 0..25 {
        // Many of one moment.
        postern.park(&format!("evt_{n}"), i64::from(n / 7)).await;
    }
    let row = postern.0.inbox.read(&key("evt_0")).await.unwrap().unwrap();
    let other = InboxKey::new("github".parse().unwrap(), "evt_x").unwrap();
    let new = domain::inbox::NewRow { key: other.clone(), ..row.new };
    postern.0.inbox.accept(&new).await.unwrap();
    let claim = domain::inbox::Claim { key: other, cycle: 0 };
    let failure = Failure::new("no_handler", "nobody");
    assert_eq!(postern.0.inbox.park(&claim, 3, &failure, at(2)).await.unwrap(), Noted::Yes);

    let github = postern.get("/v1/parked?source=github").await.good(200);
    let expected = json!({
        "parked": [{
            "source": "github", "event_id": "evt_x", "event_type": "invoice.paid", "status": "dead_letter",
            "received_at": at(-10), "parked_at": at(2), "attempts": 3, "cycle": 0,
            "error": {"code": "no_handler", "message": "nobody"},
            "next_action": "a person mends the cause and replays it",
        }],
        "more": false, "next": null,
    });
    assert_eq!(github, expected);

    let (mut seen, mut times, mut query) = (Vec::new(), Vec::new(), String::new());
    loop {
        let page = postern.get(&format!("/v1/parked?source=stripe&limit=4{query}")).await.good(200);
        for event in page["parked"].as_array().unwrap() {
            seen.push(event["event_id"].as_str().unwrap().to_owned());
            times.push(event["parked_at"].as_str().unwrap().to_owned());
        }
        let Some(next) = page["next"].as_str() else { break };
        query = format!("&before={}", next.replace('#', "%23"));
    }
    assert!(times.iter().rev().is_sorted(), "{times:?}");
    seen.sort();
    seen.dedup();
    assert_eq!((seen.len(), times.len()), (25, 25));
    for query in ["limit=0", "limit=101", "before=x", "source=A%20B", "what=1"] {
        postern.get(&format!("/v1/parked?{query}")).await.problem(422, "invalid-request");
    }
}
