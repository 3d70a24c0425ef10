//! Handshakes, as literal events of the gateway: answered in their strict shape, and never an event.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod world;

use std::time::Duration;

use domain::{
    ports::{SourceSecrets as _, Want},
    source::SchemeChoice,
};
use ingress::Answer;
use serde_json::{Value, json};
use signing::Scheme;
use testkit::chaos::{Fault, When};
use world::{World, arrival, at, event, key, name, preset, request, signed};

/// Longer than a weak secret, and of the documented alphabet.
const HOOK_SECRET: &str = "b537207f20cbfa02357cf448134da559e8bd39d61597dcd5";

fn meta() -> World {
    let world = World::new();
    world.add("meta", preset("meta"), "the-app-secret-of-this-test");
    let secrets = vec![
        key("k1", "the-app-secret-of-this-test"),
        key("verify_token", "the token that was typed in"),
    ];
    world.secrets.set(&name("meta"), secrets);
    world
}

fn subscribe(token: &str, challenge: &str) -> Value {
    let query = format!("hub.mode=subscribe&hub.verify_token={token}&hub.challenge={challenge}");
    request("GET", &format!("/webhooks/meta?{query}"), &[], "")
}

const TYPED_IN: &str = "the+token+that+was+typed+in";

#[tokio::test]
async fn a_challenge_is_echoed_as_text_and_is_no_event() {
    let world = meta();
    let response = world.response(subscribe(TYPED_IN, "1158201444"), 0).await;
    assert_eq!(response["statusCode"], 200);
    assert_eq!(response["body"], "1158201444");
    assert_eq!(response["headers"]["x-content-type-options"], "nosniff");
    let kind = response["headers"]["content-type"].as_str().unwrap();
    assert!(kind.starts_with("text/plain"), "{kind}");
    assert_eq!((world.rows().len(), world.messages()), (0, 0));
}

/// ING-challenge-reflection
#[tokio::test]
async fn nothing_else_is_reflected() {
    for (token, challenge) in [
        (TYPED_IN, "%3Cscript%3Ealert(1)%3C/script%3E".to_owned()),
        (TYPED_IN, "a".repeat(10 * 1024)),
        (TYPED_IN, "a%0Ab".to_owned()),
        (TYPED_IN, String::new()),
        ("wrong", "1158201444".to_owned()),
        ("", "1158201444".to_owned()),
    ] {
        let world = meta();
        let response = world.response(subscribe(token, &challenge), 0).await;
        let status = response["statusCode"].as_u64().unwrap();
        assert!([401, 404].contains(&status), "{token} {challenge}: {status}");
        assert_eq!(response["body"], "", "{token} {challenge}");
        assert!(world.rows().is_empty());
    }
    // Slack's challenge comes in JSON: without a right signature it is an event like any other that nobody signed.
    let world = World::new();
    world.add("slack", preset("slack"), "8f742231b10e8888abcd99yyyzzz85a5");
    let html = r#"{"type":"url_verification","challenge":"<img src=x onerror=alert(1)>"}"#;
    let scheme = Scheme::preset("slack").unwrap();
    let html = signed("slack", &scheme, "8f742231b10e8888abcd99yyyzzz85a5", html, 0);
    let response = world.response(html, 0).await;
    assert_eq!((&response["statusCode"], &response["body"]), (&json!(401), &json!("")));
    let unsigned = r#"{"type":"url_verification","challenge":"abc"}"#;
    let response = world.response(request("POST", "/webhooks/slack", &[], unsigned), 0).await;
    assert_eq!((&response["statusCode"], &response["body"]), (&json!(401), &json!("")));
    assert!(world.rows().is_empty());
}

#[tokio::test]
async fn a_signed_challenge_is_answered_in_json() {
    let world = World::new();
    world.add("slack", preset("slack"), "8f742231b10e8888abcd99yyyzzz85a5");
    let scheme = Scheme::preset("slack").unwrap();
    let body = r#"{"token":"x","challenge":"3eZbrw1aBm2rZgRNFdxV2595","type":"url_verification"}"#;
    let event = signed("slack", &scheme, "8f742231b10e8888abcd99yyyzzz85a5", body, 0);
    let response = world.response(event, 0).await;
    assert_eq!(response["statusCode"], 200);
    let said: Value = serde_json::from_str(response["body"].as_str().unwrap()).unwrap();
    assert_eq!(said, json!({ "challenge": "3eZbrw1aBm2rZgRNFdxV2595" }));
    assert!(world.rows().is_empty());
}

#[tokio::test]
async fn what_asks_whether_anybody_is_there_is_answered_only_where_the_provider_asks() {
    let world = World::new();
    world.add("circle", preset("circle"), "unused-unused-unused-unused");
    let head = |source: &str| request("HEAD", &format!("/webhooks/{source}"), &[], "");
    let response = world.response(head("circle"), 0).await;
    assert_eq!((&response["statusCode"], &response["body"]), (&json!(200), &json!("")));
    for method in ["HEAD", "GET", "PUT", "DELETE", "OPTIONS"] {
        let response = world.response(request(method, "/webhooks/github", &[], ""), 0).await;
        assert_eq!(response["statusCode"], 404, "{method}");
    }
    assert_eq!(world.response(head("nobody"), 0).await["statusCode"], 404);
    assert!(world.rows().is_empty());
}

/// An answer to `HEAD` has no body, whatever the provider waits for.
#[tokio::test]
async fn an_answer_to_head_has_no_body() {
    let world = World::new();
    let scheme = json!({
        "like": "github",
        "handshake": [{ "method": "HEAD", "proof": "none", "reply": { "status": 200, "text": "here" } }],
    });
    world.add("own", SchemeChoice::Own(scheme), "field-secret-1");
    let response = world.response(request("HEAD", "/webhooks/own", &[], ""), 0).await;
    assert_eq!((&response["statusCode"], &response["body"]), (&json!(200), &json!("")));
}

/// A source of Asana's, which has no secret until a handshake brings one.
fn asana(waits_until: Option<i64>) -> World {
    let world = World::new();
    world.add("asana", preset("asana"), "");
    world.secrets.set(&name("asana"), Vec::new());
    world.configure("asana", |source| source.awaits_secret_until = waits_until.map(at));
    world
}

fn hook(secret: &str) -> Value {
    request("POST", "/webhooks/asana", &[("x-hook-secret", secret)], "{}")
}

async fn secrets(world: &World) -> Vec<(String, String)> {
    let all = world.secrets.of(&name("asana")).await.unwrap();
    all.into_iter().map(|secret| (secret.id, secret.text.expose().to_owned())).collect()
}

#[tokio::test]
async fn a_secret_is_learned_once_and_then_verifies() {
    let world = asana(Some(600));
    let sandboxes = [world.ingress(), world.ingress()];
    let receive = |sandbox: usize, event: Value, second| {
        let (ingress, arrival) = (&sandboxes[sandbox], arrival(event));
        async move { ingress.receive(&arrival, format!("t{sandbox}-{second}"), at(second)).await }
    };
    let scheme = Scheme::preset("asana").unwrap();
    let event = |second| signed("asana", &scheme, HOOK_SECRET, r#"{"events":[]}"#, second);
    // The other sandbox knows the source from before.
    assert_eq!(receive(1, event(0), 0).await, Answer::Unavailable);

    let Answer::Said(reply) = receive(0, hook(HOOK_SECRET), 1).await else { unreachable!() };
    assert_eq!(reply.status, 200);
    assert!(reply.headers.contains(&("x-hook-secret".to_owned(), HOOK_SECRET.to_owned())));
    assert_eq!(secrets(&world).await, [("learned-20251009T085321Z".into(), HOOK_SECRET.into())]);
    assert!(world.rows().is_empty());

    // Nobody waits any more, in either sandbox.
    for sandbox in [0, 1] {
        let answer = receive(sandbox, hook(&HOOK_SECRET.replace('b', "c")), 2).await;
        assert_eq!(answer, Answer::Untrusted, "{sandbox}");
    }
    assert_eq!(secrets(&world).await.len(), 1);
    assert_eq!(receive(0, event(3), 3).await, Answer::Accepted);
    assert_eq!(receive(1, event(3), 3).await, Answer::Unavailable, "no refusal: it comes again");
    assert_eq!(receive(1, event(7), 7).await, Answer::Accepted, "looked again after 5 s");
}

#[tokio::test]
async fn a_secret_for_which_nobody_waits_is_not_learned() {
    for waits_until in [None, Some(0), Some(-5)] {
        let world = asana(waits_until);
        assert_eq!(world.response(hook(HOOK_SECRET), 0).await["statusCode"], 401);
        assert!(secrets(&world).await.is_empty());
    }
    // Nor one that could be guessed.
    let world = asana(Some(600));
    assert_eq!(world.response(hook("development"), 0).await["statusCode"], 401);
    assert!(secrets(&world).await.is_empty());
}

/// An operator sets the source to wait while a sandbox knows it from before.
#[tokio::test]
async fn that_a_source_waits_by_now_is_seen_within_a_minute() {
    let world = asana(None);
    world.secrets.set(&name("asana"), vec![key("k1", "the-secret-of-another-webhook")]);
    let ingress = world.ingress();
    let receive = async |second| {
        ingress.receive(&arrival(hook(HOOK_SECRET)), "t".to_owned(), at(second)).await.status()
    };
    assert_eq!(receive(0).await, 401);
    world.configure("asana", |source| source.awaits_secret_until = Some(at(600)));
    assert_eq!(receive(59).await, 401);
    assert_eq!(receive(60).await, 200);
    assert_eq!(secrets(&world).await.len(), 2);
}

/// Another handshake is between its claim and its secret.
#[tokio::test]
async fn of_two_handshakes_at_once_one_is_refused() {
    let world = asana(Some(600));
    let claim = ("the-other".to_owned(), at(30));
    world.store.tables().claims.insert(name("asana"), claim);
    assert_eq!(world.response(hook(HOOK_SECRET), 0).await["statusCode"], 401);
    assert!(secrets(&world).await.is_empty());
}

#[tokio::test]
async fn a_death_before_the_secret_is_stored_does_not_lock_the_source() {
    for (call, when) in [
        ("learning.claim_secret", When::After),
        ("secrets.add", When::Before),
        ("secrets.add", When::After),
        ("learning.learned", When::Before),
    ] {
        let world = World { budget: Duration::from_millis(50), ..asana(Some(600)) };
        world.store.chaos.on(call, when, Fault::Crash);
        world.secrets.chaos.on(call, when, Fault::Crash);
        assert_eq!(world.response(hook(HOOK_SECRET), 0).await["statusCode"], 503, "{call}");
        world.store.chaos.heal();
        world.secrets.chaos.heal();
        assert_eq!(world.response(hook(HOOK_SECRET), 29).await["statusCode"], 401, "{call}");
        assert_eq!(world.response(hook(HOOK_SECRET), 30).await["statusCode"], 200, "{call}");
        let scheme = Scheme::preset("asana").unwrap();
        let event = signed("asana", &scheme, HOOK_SECRET, r#"{"events":[]}"#, 31);
        assert_eq!(world.response(event, 31).await["statusCode"], 200, "{call} {when:?}");
    }
}

/// The answer that the provider gets says that the secret is stored.
#[tokio::test]
async fn a_secret_that_cannot_be_stored_is_a_503() {
    for call in ["learning.claim_secret", "secrets.add", "learning.learned"] {
        let world = asana(Some(600));
        world.store.chaos.on(call, When::Before, Fault::Throttled);
        world.secrets.chaos.on(call, When::Before, Fault::Throttled);
        assert_eq!(world.response(hook(HOOK_SECRET), 0).await["statusCode"], 503, "{call}");
    }
}

fn topic() -> (World, Scheme) {
    let value = json!({
        "like": "github",
        "handshake": [{
            "method": "POST",
            "when": [{ "from": "{json:/Type}", "is": "SubscriptionConfirmation" }],
            "proof": "signature",
            "only_waiting": true,
            "confirm": { "url": "{json:/SubscribeURL}", "hosts": ["sns.*.amazonaws.com"] },
            "reply": { "status": 200 },
        }],
    });
    let world = World::new();
    world.add("topic", SchemeChoice::Own(value.clone()), "field-secret-1");
    (world, Scheme::from_value(value).unwrap())
}

#[tokio::test]
async fn a_subscription_is_confirmed_later_and_by_somebody_else() {
    let (world, scheme) = topic();
    let url = "https://sns.us-east-1.amazonaws.com/?Action=ConfirmSubscription&Token=abc";
    let ask = |url: &str, second| {
        let body = json!({ "Type": "SubscriptionConfirmation", "SubscribeURL": url }).to_string();
        signed("topic", &scheme, "field-secret-1", &body, second)
    };
    assert_eq!(world.response(ask(url, 0), 0).await["statusCode"], 401, "nobody waits");
    world.configure("topic", |source| source.awaits_secret_until = Some(at(600)));
    for second in [1, 2] {
        assert_eq!(world.response(ask(url, second), second).await["statusCode"], 200);
    }
    let elsewhere = ask("https://sns.evil.example/?Action=ConfirmSubscription", 3);
    assert_eq!(world.response(elsewhere, 3).await["statusCode"], 401);
    let owed: Vec<_> = world.store.tables().owed[&name("topic")].clone();
    assert_eq!(owed.len(), 1);
    assert_eq!(owed[0].want, Want::Confirm(url.to_owned()));
    assert!(world.rows().is_empty());
    // What cannot be written down is not answered as if it were.
    world.store.chaos.on("published_keys.want", When::Before, Fault::Unavailable);
    assert_eq!(world.response(ask(url, 4), 4).await["statusCode"], 503);
}

/// What a provider hears of an event that is in the table, where it waits for certain words.
#[tokio::test]
async fn an_event_is_acknowledged_as_its_provider_waits_for() {
    let world = World::new();
    let scheme = json!({
        "like": "github",
        "acknowledge": { "status": 202, "body": "[accepted]", "content_type": "text/plain" },
    });
    world.add("adyen", SchemeChoice::Own(scheme), "field-secret-1");
    for _ in 0..2 {
        let event = world::with(event("github"), "/pathParameters/source", "adyen");
        let response = world.response(event, 0).await;
        assert_eq!(
            (&response["statusCode"], &response["body"]),
            (&json!(202), &json!("[accepted]"))
        );
        assert_eq!(response["headers"]["content-type"], "text/plain");
        assert_eq!(response["headers"]["x-content-type-options"], "nosniff");
    }
    let bad = world::with_header(event("github"), "x-hub-signature-256", None);
    let bad = world::with(bad, "/pathParameters/source", "adyen");
    let response = world.response(bad, 0).await;
    assert_eq!((&response["statusCode"], &response["body"]), (&json!(401), &json!("")));
    assert_eq!(world.rows().len(), 1);
}
