//! Which schemes a source can have, what they need beside them, and how far each can be believed.

use domain::ports::SourceSecrets as _;
use serde_json::{Value, json};

use crate::deployment::{Deployment, SECRET, at, source};

/// Adds a source of this scheme; `more` is laid over it.
async fn add(postern: &Deployment, scheme: Value, more: &Value) -> crate::deployment::Answer {
    let mut new = source("x");
    new["scheme"] = scheme;
    for (field, value) in more.as_object().unwrap() {
        new[field] = value.clone();
    }
    postern.post("/v1/sources", &new).await
}

/// VFY-tolerance-zero
#[tokio::test]
async fn a_tolerance_that_switches_the_check_off_cannot_be_saved() {
    for tolerance in [json!(0), json!(-1), json!("NaN"), json!(""), json!(999_999_999)] {
        let postern = Deployment::new();
        let own = json!({"own": {"like": "stripe", "timestamp": {"tolerance": tolerance}}});
        let answer = add(&postern, own, &json!({})).await;
        answer.problem(422, "invalid-request");
        assert_eq!(answer.fields(), ["scheme.own.timestamp.tolerance"], "{}", answer.text);
    }
    // Left out it is not off either.
    let postern = Deployment::new();
    let own = json!({"own": {"like": "stripe", "timestamp": {"tolerance": null}}});
    let made = add(&postern, own, &json!({})).await.good(201);
    assert_eq!(made["verification"]["tolerance_seconds"], 300);
}

#[tokio::test]
async fn every_problem_of_a_scheme_is_told_by_its_path() {
    let own = json!({"own": {
        "like": "stripe", "algorithm": "md5", "tolerence": 5, "signature": {"encoding": "base63"},
    }});
    let answer = add(&Deployment::new(), own, &json!({})).await;
    answer.problem(422, "invalid-request");
    let mut fields = answer.fields();
    fields.sort();
    let expected =
        ["scheme.own.algorithm", "scheme.own.signature.encoding", "scheme.own.tolerence"];
    assert_eq!(fields, expected, "{}", answer.text);
}

#[tokio::test]
async fn what_a_scheme_asks_of_the_configuration_is_named_and_can_be_given() {
    let own = json!({"own": {"like": "github", "signed": "{config:notification_url}{body}"}});
    let answer = add(&Deployment::new(), own.clone(), &json!({})).await;
    answer.problem(422, "invalid-request");
    assert_eq!(answer.fields(), ["config.notification_url"]);

    let postern = Deployment::new();
    let config = json!({"config": {"notification_url": "https://shop.example/in"}});
    let made = add(&postern, own, &config).await.good(201);
    assert_eq!(made["config"], config["config"]);
    // A change that takes it away is refused as the addition would have been.
    let answer = postern.patch("/v1/sources/x", &json!({"config": {}})).await;
    answer.problem(422, "invalid-request");
    assert_eq!(answer.fields(), ["config.notification_url"]);
    let config = json!({"config": {"notification_url": "https://new.example/in"}});
    assert_eq!(postern.patch("/v1/sources/x", &config).await.good(200)["config"], config["config"]);

    let many: Value =
        (0..21).map(|n| (n.to_string(), json!("x"))).collect::<serde_json::Map<_, _>>().into();
    for config in [many, json!({"a": "x".repeat(1025)})] {
        let answer = add(&postern, json!({"preset": "stripe"}), &json!({"config": config})).await;
        answer.problem(422, "invalid-request");
        assert_eq!(answer.fields(), ["config"]);
    }
}

fn slot() -> Value {
    json!({"preset": "mail_slot_path"})
}

/// SEC-url-token, SEC-secret-in-output
#[tokio::test]
async fn the_secret_of_an_address_is_made_shown_once_and_masked_ever_after() {
    for scheme in [slot(), json!({"preset": "monday"})] {
        let postern = Deployment::new();
        let made = add(&postern, scheme, &json!({"secrets": null})).await;
        let secret = "07".repeat(32);
        let whole = format!("https://in.example.com/webhooks/x/{secret}");
        assert_eq!(made.json()["secret_urls"], json!({"1": whole}), "{}", made.text);
        assert_eq!(made.json()["url"], "https://in.example.com/webhooks/x/…");
        let stored = postern.0.secrets.of(&"x".parse().unwrap()).await.unwrap();
        assert_eq!(stored[0].text.expose(), secret);
        for path in ["/v1/sources", "/v1/sources/x", "/v1/sources/x/secrets"] {
            let answer = postern.get(path).await;
            assert!(!answer.text.contains("0707"), "{path}: {}", answer.text);
        }
        let answer = postern.patch("/v1/sources/x", &json!({"dedupe": "content"})).await;
        assert!(answer.status.is_success() && !answer.text.contains("0707"), "{}", answer.text);
        // A second one is made in the same way.
        let added = postern.post("/v1/sources/x/secrets", &json!({"id": "2"})).await.good(201);
        assert_eq!(added["secret_urls"], json!({"2": whole}));
        assert_eq!(added["secrets"][0]["id"], "2");
    }
    let unfit = json!({"secrets": {"1": "a/b?c=0123456789abcdef"}});
    let answer = add(&Deployment::new(), slot(), &unfit).await;
    assert!(answer.problem(422, "invalid-request").contains("a part of the address"));
}

/// A source without any proof but a secret address cannot do without that either.
#[tokio::test]
async fn a_scheme_that_proves_nothing_still_has_a_secret() {
    let none = json!({"preset": "monday"});
    let answer = add(&Deployment::new(), none.clone(), &json!({"secrets": {}})).await;
    answer.problem(422, "invalid-request");
    assert_eq!(answer.fields(), ["secrets"]);
    let made = add(&Deployment::new(), none, &json!({"secrets": null})).await.good(201);
    assert_eq!(made["verification"]["trust"], "none");
}

#[tokio::test]
async fn weaker_trust_is_said_in_words_wherever_a_source_is_shown() {
    let check = async |scheme: Value, trust: &str, is_weaker: bool, replays: &str| {
        let postern = Deployment::new();
        let secret = json!({"secrets": {"1": "whsec_0123456789abcdef0123456789"}});
        let made = add(&postern, scheme, &secret).await.good(201);
        let shown = postern.get("/v1/sources/x").await.good(200);
        for view in [&made["verification"], &shown["verification"]] {
            assert_eq!((&view["trust"], &view["is_weaker"]), (&json!(trust), &json!(is_weaker)));
            let words = view["words"].as_str().unwrap();
            assert_eq!(words.starts_with("weake"), is_weaker, "{words}");
            let said = view["replays"].as_str().unwrap();
            assert!(said.contains(replays), "{said}");
        }
        let line = &postern.get("/v1/sources").await.good(200)["sources"][0];
        assert_eq!((&line["trust"], &line["is_weaker"]), (&json!(trust), &json!(is_weaker)));
    };
    check(json!({"preset": "stripe"}), "signed", false, "more than 300 s old; the id is signed")
        .await;
    check(json!({"preset": "github"}), "signed", false, "under other ids").await;
    check(slot(), "token", true, "whoever sees one request can send others").await;
    check(json!({"preset": "monday"}), "none", true, "whoever sees one request can send others")
        .await;
    check(json!({"preset": "mailgun"}), "body_unsigned", true, "").await;
    check(json!({"preset": "asana"}), "signed", false, "no id; a hash of the content").await;
}

#[tokio::test]
async fn the_age_of_a_schemes_facts_is_shown() {
    let postern = Deployment::new();
    let view = &postern.post("/v1/sources", &source("x")).await.good(201)["verification"];
    assert_eq!(view["title"], "Stripe");
    assert!(view["facts_checked_on"].as_str().unwrap().starts_with("20"), "{view}");
    assert_eq!(view["is_batch"], false);
}

/// ING-dedupe-key-unsigned-header
#[tokio::test]
async fn deduplication_by_content_is_chosen_changed_and_explained() {
    let postern = Deployment::new();
    let made =
        add(&postern, json!({"preset": "github"}), &json!({"dedupe": "content"})).await.good(201);
    assert_eq!(made["dedupe"], "content");
    let replays = |view: &Value| view["verification"]["replays"].as_str().unwrap().to_owned();
    assert!(replays(&made).contains("the same signed content is taken once"), "{made}");
    let changed = postern.patch("/v1/sources/x", &json!({"dedupe": "id"})).await.good(200);
    assert!(replays(&changed).contains("dedupe by content stands against that"), "{changed}");
}

/// A scheme whose provider brings the secret by a handshake.
fn bringing() -> Value {
    json!({"preset": "asana"})
}

#[tokio::test]
async fn a_source_may_wait_for_the_secret_that_its_provider_brings_but_not_for_ever() {
    let postern = Deployment::new();
    let waits = |hours: Value| json!({"secrets": null, "awaits_secret_hours": hours});
    let made = add(&postern, bringing(), &waits(json!(24))).await.good(201);
    assert_eq!(made["awaits_secret_until"], at(86_400).to_string());
    assert_eq!(made["secrets"], json!([]));
    let words = made["health"]["words"].as_str().unwrap();
    assert!(words.starts_with("waits for the provider to bring its secret, until 20"), "{words}");

    for hours in [0, 73] {
        let answer = add(&postern, bringing(), &waits(json!(hours))).await;
        answer.problem(422, "invalid-request");
        assert_eq!(answer.fields(), ["awaits_secret_hours"]);
    }
    let answer = add(&postern, json!({"preset": "stripe"}), &waits(json!(1))).await;
    assert!(answer.problem(422, "invalid-request").contains("brings no secret"));
    let answer = add(&postern, bringing(), &json!({"secrets": null})).await;
    assert!(answer.problem(422, "invalid-request").contains("with `awaits_secret_hours`"));

    let stopped = postern.patch("/v1/sources/x", &json!({"awaits_secret_hours": null})).await;
    assert_eq!(stopped.good(200)["awaits_secret_until"], json!(null));
    let again = postern.patch("/v1/sources/x", &json!({"awaits_secret_hours": 72})).await;
    assert_eq!(again.good(200)["awaits_secret_until"], at(72 * 3600).to_string());
}

/// OUT-error-after-commit
#[tokio::test]
async fn adding_a_waiting_source_that_died_half_way_can_be_repeated_later() {
    use testkit::chaos::{Fault, When};
    let mut postern = Deployment::new();
    let waits = json!({"secrets": null, "awaits_secret_hours": 24});
    postern.0.secrets.chaos.on("secrets.create", When::Before, Fault::Unavailable);
    add(&postern, bringing(), &waits).await.problem(503, "unavailable");
    postern.0.secrets.chaos.heal();
    std::sync::Arc::get_mut(&mut postern.0).unwrap().edge.now = || at(60);
    let other = json!({"secrets": {"1": SECRET}});
    add(&postern, bringing(), &other).await.problem(409, "name-taken");
    let made = add(&postern, bringing(), &waits).await.good(201);
    assert_eq!(made["awaits_secret_until"], at(86_400).to_string());
    add(&postern, bringing(), &waits).await.problem(409, "name-taken");
}

#[tokio::test]
async fn a_provider_that_publishes_its_keys_needs_no_secret() {
    for preset in ["aws_sns", "paypal", "circle"] {
        let config = json!({"secrets": null, "config": {"webhook_id": "WH-1"}});
        let config = if preset == "paypal" { config } else { json!({"secrets": null}) };
        let made = add(&Deployment::new(), json!({"preset": preset}), &config).await.good(201);
        assert_eq!(made["secrets"], json!([]), "{preset}");
    }
    let plaid =
        add(&Deployment::new(), json!({"preset": "plaid"}), &json!({"secrets": null})).await;
    plaid.problem(422, "invalid-request");
    assert_eq!(plaid.fields(), ["secrets"]);
}

/// Whoever can choose a preset can make a source of it, if he gives what it asks for.
#[tokio::test]
async fn every_preset_can_become_a_source_or_says_what_it_needs() {
    for preset in signing::preset_names() {
        let answer =
            add(&Deployment::new(), json!({"preset": preset}), &json!({"secrets": null})).await;
        if answer.status.as_u16() != 201 {
            answer.problem(422, "invalid-request");
            let fields = answer.fields();
            let known = |field: &String| field == "secrets" || field.starts_with("config.");
            assert!(fields.iter().all(known), "{preset}: {}", answer.text);
        }
    }
}
