//! Sources: added, listed, shown.

use domain::ports::SourceSecrets as _;
use serde_json::{Value, json};
use testkit::chaos::{Fault, When};

use crate::deployment::{Deployment, SECRET, source};

#[tokio::test]
async fn a_source_is_added_shown_and_listed_without_its_secrets() {
    let postern = Deployment::new();
    let made = postern.post("/v1/sources", &source("stripe")).await;
    assert!(!made.text.contains("CANARY"), "{}", made.text);
    let made = made.good(201);
    assert_eq!(made["url"], "https://in.example.com/webhooks/stripe");
    assert_eq!(made["scheme"], json!({"preset": "stripe"}));
    let handler = json!({"kind": "forward", "tenant": "acme", "types": ["invoice.*"]});
    assert_eq!(made["handler"], handler);
    assert_eq!(postern.get("/v1/sources/stripe").await.good(200), made);
    let listed = postern.get("/v1/sources").await;
    assert!(!listed.text.contains("CANARY"), "{}", listed.text);
    let line = &listed.good(200)["sources"][0];
    for field in ["name", "scheme", "handler", "url", "dedupe", "same_as"] {
        assert_eq!(line[field], made[field], "{field}");
    }

    let secrets = postern.0.secrets.of(&"stripe".parse().unwrap()).await.unwrap();
    let secrets: Vec<_> = secrets.iter().map(|s| (s.id.as_str(), s.text.expose())).collect();
    assert_eq!(secrets, [("2026", SECRET)]);
}

#[tokio::test]
async fn a_mirror_and_a_scheme_of_ones_own_are_taken_too() {
    let postern = Deployment::new();
    let mut new = source("own");
    new["scheme"] = json!({"own": {"like": "stripe", "timestamp": {"tolerance": 600}}});
    new["handler"] = json!({"kind": "mirror", "emit_to": "acme"});
    assert_eq!(postern.post("/v1/sources", &new).await.good(201)["handler"], new["handler"]);
}

#[tokio::test]
async fn a_written_handler_is_taken_by_its_name() {
    let postern = Deployment::new();
    let mut new = source("own");
    for handler in [
        json!({"kind": "own", "name": "payments", "tenant": "acme"}),
        json!({"kind": "own", "name": "of-mine"}),
    ] {
        new["handler"] = handler;
        new["name"] = new["handler"]["name"].clone();
        assert_eq!(postern.post("/v1/sources", &new).await.good(201)["handler"], new["handler"]);
    }
    new["handler"] = json!({"kind": "own", "name": "Not A Name", "tenant": "A#B"});
    let answer = postern.post("/v1/sources", &new).await;
    answer.problem(422, "invalid-request");
    assert_eq!(answer.fields(), ["handler.tenant", "handler.name"]);
}

/// D11, D12
#[tokio::test]
async fn the_states_of_a_mirror_are_checked_whole() {
    let postern = Deployment::new();
    let mut new = source("states");
    let moves = json!({"PENDING": ["FAILED", "PAID"], "FAILED": ["PAID"], "PAID": []});
    let states = json!({"at": "/data/object/status", "kind": "order", "states": {"start": "PENDING", "moves": moves}});
    new["handler"] = json!({"kind": "mirror", "states": states});
    let made = postern.post("/v1/sources", &new).await.good(201);
    assert_eq!((&made["handler"], &made["warnings"]), (&new["handler"], &json!([])));

    // FAILED and PAID both end it: where an order ends depends on which of the two comes first.
    new["name"] = json!("both");
    new["handler"]["states"]["states"]["moves"]["FAILED"] = json!([]);
    let made = postern.post("/v1/sources", &new).await.good(201);
    let warnings = made["warnings"].to_string();
    assert!(warnings.contains("whether FAILED or PAID arrives first"), "{warnings}");

    new["name"] = json!("bad");
    new["handler"] = json!({
        "kind": "mirror", "emit_to": "A#B", "states": {
            "at": "status",
            "states": {"start": "NOWHERE", "moves": {"": ["A", "B"], "A": ["A"]}},
        },
    });
    let answer = postern.post("/v1/sources", &new).await;
    let detail = answer.problem(422, "invalid-request");
    let states = ["handler.states"; 5];
    assert_eq!(answer.fields(), [&["handler.emit_to"][..], &states].concat(), "{detail}");
    for wrong in
        ["\"\"", "\"NOWHERE\"", "\"B\"", "\"A\" may follow itself", "\"status\" is no JSON pointer"]
    {
        assert!(detail.contains(wrong), "{wrong} in {detail}");
    }
}

#[tokio::test]
async fn a_source_that_is_not_there_is_told() {
    let postern = Deployment::new();
    assert_eq!(postern.get("/v1/sources").await.good(200), json!({"sources": []}));
    for name in ["nobody", "No%20Name", "%ff"] {
        postern.get(&format!("/v1/sources/{name}")).await.problem(404, "not-found");
    }
}

#[tokio::test]
async fn of_two_that_add_one_source_at_once_one_has_made_it() {
    let postern = Deployment::new();
    let new = source("stripe");
    let (a, b) = tokio::join!(postern.post("/v1/sources", &new), postern.post("/v1/sources", &new));
    let mut answers = [a, b];
    answers.sort_by_key(|answer| answer.status);
    let [made, taken] = answers;
    made.good(201);
    assert!(taken.problem(409, "name-taken").contains("GET /v1/sources/stripe"));
}

/// OUT-error-after-commit
#[tokio::test]
async fn adding_a_source_that_died_half_way_can_be_repeated() {
    for when in [When::Before, When::After] {
        let postern = Deployment::new();
        postern.0.registry.chaos.on("configure.add_source", when, Fault::Unavailable);
        let answer = postern.post("/v1/sources", &source("stripe")).await;
        answer.problem(503, "unavailable");
        postern.0.registry.chaos.heal();
        postern.post("/v1/sources", &source("stripe")).await.good(201);
    }
    let postern = Deployment::new();
    postern.0.secrets.chaos.on("secrets.create", When::Before, Fault::Unavailable);
    postern.post("/v1/sources", &source("stripe")).await.problem(503, "unavailable");
    let name = "stripe".parse().unwrap();
    assert!(postern.0.registry.tables().sources.contains_key(&name));
    postern.0.secrets.chaos.heal();
    // Another source of that name is not what died.
    let mut other = source("stripe");
    other["handler"] = json!({"kind": "mirror"});
    postern.post("/v1/sources", &other).await.problem(409, "name-taken");
    postern.post("/v1/sources", &source("stripe")).await.good(201);
    assert_eq!(postern.0.secrets.of(&name).await.unwrap().len(), 1);
    // And after that it is there, whoever asks.
    postern.post("/v1/sources", &source("stripe")).await.problem(409, "name-taken");
}

#[tokio::test]
async fn everything_that_is_wrong_with_a_source_is_told_at_once() {
    let postern = Deployment::new();
    let wrong = json!({
        "name": "Not A Name",
        "scheme": {"preset": "stripe"},
        "handler": {"kind": "forward", "tenant": "A#B", "types": ["ok", "", "a b"]},
        "secrets": {"1": "", "a b": SECRET},
    });
    let answer = postern.post("/v1/sources", &wrong).await;
    let detail = answer.problem(422, "invalid-request");
    let fields = [
        "name",
        "handler.tenant",
        "handler.types[1]",
        "handler.types[2]",
        "secrets[0]",
        "secrets[1]",
    ];
    assert_eq!(answer.fields(), fields, "{detail}");
    assert!(fields.iter().all(|field| detail.contains(field)), "{detail}");
    assert!(postern.0.registry.tables().sources.is_empty());
}

/// SEC-secret-in-output
#[tokio::test]
async fn what_is_wrong_with_a_secret_is_told_without_the_secret() {
    let postern = Deployment::new();
    let check = async |secrets: Value, says: &str| {
        let mut wrong = source("stripe");
        wrong["secrets"] = secrets;
        let answer = postern.post("/v1/sources", &wrong).await;
        let detail = answer.problem(422, "invalid-request");
        assert!(detail.contains(says), "{detail}");
        assert!(!answer.text.contains("CANARY"), "{}", answer.text);
    };
    check(json!({}), "secrets: a source needs at least one").await;
    check(json!(SECRET), "secrets: it is an object of texts").await;
    check(json!([SECRET]), "secrets: it is an object of texts").await;
    check(json!({"1": [SECRET]}), "secrets: it is an object of texts").await;
    check(json!({"1": format!(" {SECRET}")}), "secrets[0]: ").await;
    check(json!({"1": "CANARY"}), "secrets[0]: ").await;
    // Id and secret swapped.
    check(json!({ format!("{SECRET} {SECRET}"): "1" }), "secrets[0]: ").await;
    check(json!({ SECRET: "1" }), "secrets[0]: ").await;
}

#[tokio::test]
async fn schemes_that_cannot_work_are_refused_with_what_there_is() {
    let postern = Deployment::new();
    let check = async |scheme: Value, says: &str| {
        let mut wrong = source("x");
        wrong["scheme"] = scheme;
        let answer = postern.post("/v1/sources", &wrong).await;
        let detail = answer.problem(422, "invalid-request");
        assert!(detail.contains(says), "{detail}");
    };
    check(json!({"preset": "strpe"}), "perhaps standard_webhooks, standard_webhooks_v1a, stripe)")
        .await;
    check(json!({"preset": "sns"}), "perhaps aws_sns").await;
    check(json!({"preset": "\u{1b}"}), "no such scheme ships; `postern schemes`").await;
    check(json!({"preset": ""}), "no such scheme ships; `postern schemes`").await;
    check(json!({"own": {"like": "stripe", "tolerence": 5}}), "tolerence").await;
    check(json!({"own": 5}), "scheme.own").await;
    check(json!({"prest": "stripe"}), "unknown variant `prest`").await;
}

#[tokio::test]
async fn unknown_and_missing_fields_are_refused_by_name() {
    let postern = Deployment::new();
    let check = async |change: fn(&mut Value), says: &str| {
        let mut wrong = source("x");
        change(&mut wrong);
        let answer = postern.post("/v1/sources", &wrong).await;
        let detail = answer.problem(422, "invalid-request");
        assert!(detail.contains(says), "{detail}");
    };
    check(|new| new["secret"] = json!("x"), "unknown field `secret`").await;
    check(|new| new["handler"]["typs"] = json!([]), "unknown field `typs`").await;
    check(|new| new["handler"] = json!({"kind": "mirror", "tenant": "x"}), "`tenant`").await;
    check(|new| new["handler"] = json!({"kind": "forward"}), "missing field `tenant`").await;
    check(|new| new["handler"]["kind"] = json!("forwad"), "unknown variant `forwad`").await;
    check(|new| new["name"] = json!(5), "name: invalid type").await;
    let without = |new: &mut Value| new.as_object_mut().unwrap().remove("handler").map_or((), drop);
    check(without, "missing field `handler`").await;
}

/// What a store would refuse is refused before the row: a row whose secrets cannot be made takes the name for ever.
#[tokio::test]
async fn what_no_store_would_take_is_told_before_anything_is_done() {
    let many = |count: usize, of: &Value| {
        Value::Object((0..count).map(|n| (format!("k{n}"), of.clone())).collect())
    };
    let mut too_large = Vec::new();
    for (field, value) in [
        ("secrets", many(11, &json!(SECRET))),
        ("secrets", json!({"k": "x".repeat(1025)})),
        ("handler", json!({"kind": "forward", "tenant": "acme", "types": vec!["a.b"; 101]})),
        ("scheme", json!({"own": {"like": "stripe", "title": "x".repeat(17_000)}})),
    ] {
        let mut new = source("large");
        new[field] = value;
        too_large.push(new);
    }
    let postern = Deployment::new();
    for new in too_large {
        let detail = postern.post("/v1/sources", &new).await.problem(422, "invalid-request");
        assert!(detail.contains("at most") || detail.contains("more than"), "{detail}");
    }
    assert!(postern.0.registry.tables().sources.is_empty());
    let mut new = source("large");
    new["secrets"] = many(10, &json!(SECRET));
    new["handler"]["types"] = json!(vec!["a.b"; 100]);
    postern.post("/v1/sources", &new).await.good(201);
}
