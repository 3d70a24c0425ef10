//! Endpoints: added, listed, shown; what their URLs may be.

use domain::{
    address::AddressPolicy,
    endpoint::{Disabled, Health},
    inbox::Noted,
    ports::{Deliveries as _, Keyring as _},
};
use serde_json::{Value, json};
use testkit::chaos::{Fault, When};

use crate::deployment::{Deployment, acme, at};

const PATH: &str = "/v1/tenants/acme/endpoints";

fn endpoint(url: &str) -> Value {
    json!({"url": url, "patterns": ["invoice.*"], "concurrency": 9})
}

/// SEC-secret-in-output, SEC-url-token
#[tokio::test]
async fn an_endpoint_shows_its_secret_once_and_its_url_only_where_it_is_asked_for() {
    let postern = Deployment::new();
    let url = "https://hooks.example.com/in/TOKEN?key=TOKEN";
    let made = postern.post(PATH, &endpoint(url)).await;
    let place = made.header("location").to_owned();
    assert_eq!(made.header("cache-control"), "no-store");
    let made = made.good(201);
    let (id, secret) = (made["id"].as_str().unwrap(), made["secret"].as_str().unwrap());
    assert_eq!(place, format!("{PATH}/{id}"));
    assert!(secret.starts_with("whsec_"), "{secret}");
    assert_eq!((&made["url"], &made["concurrency"]), (&json!(url), &json!(9)));

    let shown = postern.get(&place).await;
    let listed = postern.get(PATH).await;
    for answer in [&shown, &listed] {
        let bare = secret.trim_start_matches("whsec_");
        assert!(!answer.text.contains(bare) && !answer.text.contains("secret"), "{}", answer.text);
    }
    assert!(!listed.text.contains("TOKEN"), "{}", listed.text);
    let listed = listed.good(200);
    assert_eq!(listed["endpoints"][0]["url"], "https://hooks.example.com/in/…?…");
    assert_eq!(listed["endpoints"][0]["patterns"], json!(["invoice.*"]));
    let shown = shown.good(200);
    assert_eq!((&shown["url"], &shown["id"]), (&json!(url), &json!(id)));
    let good = json!({"state": "good", "words": "good", "failing_since": null, "disabled": null});
    assert_eq!(shown["health"], good);

    // What is stored opens for this endpoint, and is what was shown.
    let (tenant, id) = (acme(), id.parse().unwrap());
    let sealed = postern.0.registry.tables().endpoints[&(tenant.clone(), id)].1[0].sealed.clone();
    assert_eq!(postern.0.keyring.unseal(&tenant, id, &sealed).await.unwrap().expose(), secret);
}

#[tokio::test]
async fn an_endpoint_is_shown_with_its_health() {
    let postern = Deployment::new();
    let made = postern.post(PATH, &endpoint("https://example.com/")).await.good(201);
    let id = made["id"].as_str().unwrap();
    let disabled = Some(Disabled { since: at(9), reason: "gone".to_owned() });
    let health = Health {
        version: 1,
        failing_since: Some(at(5)),
        consecutive_failures: 1,
        disabled,
        ..Health::default()
    };
    let parsed = id.parse().unwrap();
    let noted = postern.0.deliveries.note_health(&acme(), parsed, &health).await.unwrap();
    assert_eq!(noted, Noted::Yes);
    let words = format!(
        "disabled since {}: it answered 410 Gone; what it would get is held: mend the receiver, then `enable`",
        at(9)
    );
    let expected = json!({
        "state": "disabled", "words": words, "failing_since": at(5),
        "disabled": {"since": at(9), "reason": "gone"},
    });
    assert_eq!(postern.get(&format!("{PATH}/{id}")).await.good(200)["health"], expected);
    assert_eq!(postern.get(PATH).await.good(200)["endpoints"][0]["health"], expected);
}

#[tokio::test]
async fn tenants_do_not_see_each_other() {
    let postern = Deployment::new();
    let made = postern.post(PATH, &endpoint("https://example.com/")).await.good(201);
    let id = made["id"].as_str().unwrap();
    let other = "/v1/tenants/other/endpoints";
    assert_eq!(postern.get(other).await.good(200), json!({"endpoints": []}));
    postern.get(&format!("{other}/{id}")).await.problem(404, "not-found");
    postern.get(&format!("{PATH}/ep_1")).await.problem(404, "not-found");
    let answer = postern.get("/v1/tenants/A%23B/endpoints").await;
    answer.problem(422, "invalid-request");
    assert_eq!(answer.fields(), ["tenant"]);
}

/// SSRF-update-and-test-paths
#[tokio::test]
async fn urls_that_lead_to_our_own_side_are_refused_and_it_is_said_why() {
    let postern = Deployment::new();
    let check = async |url: &str, says: &str| {
        let answer = postern.post(PATH, &json!({"url": url})).await;
        let detail = answer.problem(422, "invalid-request");
        assert_eq!(answer.fields(), ["url"]);
        assert!(detail.contains(says), "{url}: {detail}");
    };
    check("http://example.com/", "must begin with https://").await;
    check("file:///etc/passwd", "must begin with https://").await;
    check("ftp://example.com/", "must begin with https://").await;
    check("gopher://example.com/", "must begin with https://").await;
    check("https://169.254.169.254/latest/meta-data", "169.254.169.254 is a link-local address")
        .await;
    check("https://127.0.0.1:8443/", "a loopback address").await;
    check("https://[::ffff:10.0.0.1]/", "a private address").await;
    check("https://2130706433/", "loopback").await;
    check("https://localhost/", ".localhost").await;
    check("https://metadata.google.internal/", ".internal").await;
    check("https://user:pw@example.com/", "a user name or a password").await;
    check("https://example.com:22/", "port 22 is not allowed; use 443 or 8443").await;
    check("nonsense", "must begin with https://").await;
    assert!(postern.0.registry.tables().endpoints.is_empty());
}

#[tokio::test]
async fn the_local_host_may_allow_loopback() {
    let mut postern = Deployment::new();
    let api = std::sync::Arc::get_mut(&mut postern.0).unwrap();
    api.limits.addresses = AddressPolicy::THIS_MACHINE;
    postern.post(PATH, &json!({"url": "https://127.0.0.1:8703/webhooks"})).await.good(201);
    postern
        .post(PATH, &json!({"url": "http://127.0.0.1:8703/"}))
        .await
        .problem(422, "invalid-request");
}

#[tokio::test]
async fn everything_that_is_wrong_with_an_endpoint_is_told_at_once() {
    let postern = Deployment::new();
    let wrong = json!({"url": "https://10.0.0.1/", "patterns": ["ok", "**"], "concurrency": 0});
    let answer = postern.post("/v1/tenants/No%20Name/endpoints", &wrong).await;
    answer.problem(422, "invalid-request");
    assert_eq!(answer.fields(), ["tenant", "url", "concurrency", "patterns[1]"]);
    let many = json!({"url": "https://example.com/", "patterns": vec!["a"; 101]});
    let answer = postern.post(PATH, &many).await;
    assert_eq!(answer.fields(), ["patterns"]);
    let unknown = json!({"url": "https://example.com/", "pattern": ["a"]});
    let detail = postern.post(PATH, &unknown).await.problem(422, "invalid-request");
    assert!(detail.contains("unknown field `pattern`"), "{detail}");
}

const QUEUE: &str = "https://sqs.eu-central-1.amazonaws.com/123456789012/mail";
const BUS: &str = "arn:aws:events:eu-central-1:123456789012:event-bus/orders";

#[tokio::test]
async fn an_endpoint_may_be_a_queue_or_a_bus_and_then_has_no_secret() {
    let postern = Deployment::new();
    for (given, member, place) in [
        (json!({"queue": QUEUE}), "queue", QUEUE),
        (json!({"bus": "orders"}), "bus", BUS),
        (json!({"bus": BUS, "idempotent": false}), "bus", BUS),
    ] {
        let made = postern.post(PATH, &given).await.good(201);
        assert_eq!((&made[member], &made["secret"]), (&json!(place), &Value::Null), "{given}");
        let id = made["id"].as_str().unwrap();
        let shown = postern.get(&format!("{PATH}/{id}")).await.good(200);
        assert_eq!((&shown[member], &shown["url"]), (&json!(place), &Value::Null), "{given}");
        assert_eq!(shown["idempotent"], given["idempotent"], "{given}");
        let listed = postern.get(PATH).await.good(200);
        let listed = listed["endpoints"].as_array().unwrap();
        assert!(listed.iter().any(|endpoint| endpoint[member] == place), "{given}");
        let key = (acme(), id.parse().unwrap());
        assert!(postern.0.registry.tables().endpoints[&key].1.is_empty());
    }
}

/// An endpoint must not borrow our rights.
#[tokio::test]
async fn queues_and_buses_of_others_and_of_the_stack_itself_are_refused() {
    let postern = Deployment::new();
    let check = async |member: &str, place: &str, says: &str| {
        let answer = postern.post(PATH, &json!({member: place})).await;
        let detail = answer.problem(422, "invalid-request");
        assert_eq!(answer.fields(), [member], "{place}");
        assert!(detail.contains(says), "{place}: {detail}");
    };
    check("queue", "mail", "not the URL of a queue").await;
    check(
        "queue",
        "https://sqs.eu-central-1.amazonaws.com.evil.example/123456789012/mail",
        "not the URL",
    )
    .await;
    check(
        "queue",
        &QUEUE.replace("eu-central-1", "eu-west-1"),
        "account and region (123456789012, eu-central-1)",
    )
    .await;
    check("queue", &QUEUE.replace("123456789012", "999999999999"), "account and region").await;
    check(
        "queue",
        &QUEUE.replace("mail", "postern-WakeQueue"),
        "belongs to this deployment itself",
    )
    .await;
    check("bus", "a b", "neither the name of a bus nor its ARN").await;
    check("bus", &BUS.replace("123456789012", "999999999999"), "account and region").await;
    check("bus", "postern-ops", "belongs to this deployment itself").await;
    assert!(postern.0.registry.tables().endpoints.is_empty());
}

#[tokio::test]
async fn an_endpoint_is_in_one_place() {
    let postern = Deployment::new();
    for (given, says) in [
        (json!({}), "say where the endpoint is"),
        (json!({"queue": QUEUE, "bus": BUS}), "in one place"),
        (json!({"url": "https://example.com/", "queue": QUEUE}), "in one place"),
    ] {
        let answer = postern.post(PATH, &given).await;
        let detail = answer.problem(422, "invalid-request");
        assert!(detail.contains(says), "{given}: {detail}");
    }
}

#[tokio::test]
async fn a_tenant_has_as_many_endpoints_as_the_deployment_allows() {
    let postern = Deployment::new();
    for n in 0..3 {
        postern.post(PATH, &endpoint(&format!("https://example.com/{n}"))).await.good(201);
    }
    let answer = postern.post(PATH, &endpoint("https://example.com/3")).await;
    assert!(answer.problem(409, "limit-reached").contains("EndpointsPerTenant"));
    let other = "/v1/tenants/other/endpoints";
    postern.post(other, &endpoint("https://example.com/")).await.good(201);
    assert_eq!(postern.0.registry.tables().epochs[&acme()], 3);
}

#[tokio::test]
async fn nothing_is_made_when_the_secret_cannot_be_sealed() {
    let postern = Deployment::new();
    postern.0.keyring.chaos.on("keyring.seal", When::Before, Fault::Throttled);
    let answer = postern.post(PATH, &endpoint("https://example.com/")).await;
    answer.problem(503, "unavailable");
    let tables = postern.0.registry.tables();
    assert!(tables.endpoints.is_empty() && tables.audit.is_empty());
}
