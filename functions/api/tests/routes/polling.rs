//! Polling, as the owner of an endpoint sees it.

use axum::body::Body;
use domain::{
    delivery::{Cause, Delivery, Outcome, State},
    endpoint::{Disabled, Health},
    id::{EndpointId, EventId},
    lane::{LaneId, Pointer},
    ports::Purpose,
};
use http::Request;
use lambda_http::request::RequestContext;
use serde_json::{Value, json};
use testkit::chaos::{Fault, When};

use crate::deployment::{Answer, Deployment, acme, at, now};

struct Polled {
    postern: Deployment,
    endpoint: EndpointId,
    token: String,
    secret: String,
}

fn event(n: usize) -> EventId {
    EventId::derived(at(-100), &[&n.to_string()])
}

impl Polled {
    async fn new() -> Self {
        let postern = Deployment::new();
        let made =
            postern.post("/v1/tenants/acme/endpoints", &json!({"poll": true})).await.good(201);
        let text = |name: &str| made[name].as_str().unwrap().to_owned();
        let endpoint = text("id").parse().unwrap();
        Self { endpoint, token: text("token"), secret: text("secret"), postern }
    }

    /// Something that is due since a while.
    async fn owe(&self, n: usize) -> (LaneId, EventId) {
        let id = event(n);
        let lane = self.postern.relayed(id, self.endpoint, State::Pending).await;
        let mut tables = self.postern.0.deliveries.tables();
        let new = Delivery::new(id, "invoice.paid".to_owned(), at(500), at(-100));
        tables.pointers.insert((lane.clone(), Pointer::of(&new)));
        tables.deliveries.insert((lane.clone(), id), new);
        (lane, id)
    }

    fn path(&self) -> String {
        format!("/poll/acme/{}", self.endpoint)
    }

    async fn call(&self, path: &str, body: &Value) -> Answer {
        let bearer = format!("Bearer {}", self.token);
        self.postern.post_with(path, body, &[("authorization", &bearer)]).await
    }

    async fn poll(&self, body: Value) -> Value {
        self.call(&self.path(), &body).await.good(200)
    }

    async fn ack(&self, receipts: &[&str]) -> Vec<String> {
        let path = format!("{}/ack", self.path());
        let answer = self.call(&path, &json!({"receipts": receipts})).await.good(200);
        let results = answer["acknowledged"].as_array().unwrap();
        results.iter().map(|one| one["result"].as_str().unwrap().to_owned()).collect()
    }

    fn delivery(&self, (lane, id): &(LaneId, EventId)) -> Delivery {
        self.postern.0.deliveries.tables().deliveries[&(lane.clone(), *id)].clone()
    }

    /// Time goes on for what was handed out: it is due again.
    fn time_passes(&self, of: &(LaneId, EventId)) {
        let mut tables = self.postern.0.deliveries.tables();
        let delivery = tables.deliveries.get_mut(of).unwrap();
        let old = Pointer::of(delivery);
        delivery.due_at = at(-1);
        let new = Pointer::of(delivery);
        tables.pointers.remove(&(of.0.clone(), old));
        tables.pointers.insert((of.0.clone(), new));
    }
}

fn receipt(polled: &Value, n: usize) -> &str {
    polled["deliveries"][n]["receipt"].as_str().unwrap()
}

/// The exact headers and bytes of a request, which any library of Standard Webhooks accepts.
#[tokio::test]
async fn what_is_handed_out_is_what_a_request_would_bring() {
    let polled = Polled::new().await;
    let of = polled.owe(0).await;
    let answer = polled.poll(json!({})).await;
    let [one] = answer["deliveries"].as_array().unwrap().as_slice() else { panic!("{answer}") };
    assert_eq!((&one["event"], &one["attempt"]), (&json!(of.1), &json!(1)));
    assert_eq!((&one["body"], &one["until"]), (&json!("{\"amount\":1}"), &json!(at(60))));
    let headers: http::HeaderMap = one["headers"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, value)| {
            (name.parse::<http::HeaderName>().unwrap(), value.as_str().unwrap().parse().unwrap())
        })
        .collect();
    assert_eq!(headers["webhook-id"].to_str().unwrap(), of.1.to_string());
    let scheme = signing::Scheme::preset("standard_webhooks").unwrap();
    let key = signing::Key::parse(&scheme, "1", &signing::Secret::new(&polled.secret)).unwrap();
    let request = signing::Request {
        method: "POST",
        url: "/",
        headers: &headers,
        body: one["body"].as_str().unwrap().as_bytes(),
        path_secret: None,
    };
    signing::verify(&scheme, &[key], &request, now()).unwrap();
    // It is an attempt, and comes again when its time is over.
    let delivery = polled.delivery(&of);
    assert_eq!((delivery.state, delivery.due_at), (State::Pending, at(60)));
    assert_eq!(delivery.begun.unwrap().attempt, 1);
    assert_eq!(polled.poll(json!({})).await["deliveries"], json!([]));
}

#[tokio::test]
async fn an_acknowledgement_delivers_and_can_be_repeated() {
    let polled = Polled::new().await;
    let of = polled.owe(0).await;
    let answer = polled.poll(json!({})).await;
    let receipt = receipt(&answer, 0);
    assert_eq!(polled.ack(&[receipt]).await, ["acknowledged"]);
    assert_eq!(polled.ack(&[receipt, receipt]).await, ["before", "before"]);
    let delivery = polled.delivery(&of);
    assert_eq!((delivery.state, delivery.attempts), (State::Succeeded, 1));
    assert!(polled.postern.0.deliveries.tables().pointers.is_empty());
    let log = format!("/v1/tenants/acme/endpoints/{}/deliveries", polled.endpoint);
    let log = polled.postern.get(&log).await.good(200);
    assert_eq!(log["deliveries"][0]["state"], "succeeded");
}

/// The poller dies between the two: what it had comes again, counted and said.
#[tokio::test]
async fn a_poller_that_dies_loses_nothing() {
    let polled = Polled::new().await;
    let of = polled.owe(0).await;
    let first = polled.poll(json!({})).await;
    polled.time_passes(&of);
    let second = polled.poll(json!({"visibility_ms": 5000})).await;
    let one = &second["deliveries"][0];
    assert_eq!(
        (&one["attempt"], &one["event"], &one["until"]),
        (&json!(2), &json!(of.1), &json!(at(5)))
    );
    let delivery = polled.delivery(&of);
    assert_eq!(delivery.log[0].outcome, Outcome::Failed { cause: Cause::Unacknowledged });
    // The first was slow, not dead: its late acknowledgement is as good, and the second one's says so.
    assert_eq!(polled.ack(&[receipt(&first, 0)]).await, ["acknowledged"]);
    assert_eq!(polled.ack(&[receipt(&second, 0)]).await, ["before"]);
    assert_eq!(polled.delivery(&of).attempts, 2);
}

#[tokio::test]
async fn what_was_given_up_or_never_handed_out_is_not_acknowledged() {
    let polled = Polled::new().await;
    let of = polled.owe(0).await;
    let answer = polled.poll(json!({})).await;
    let (lane, id) = of.clone();
    polled.postern.0.deliveries.tables().deliveries.get_mut(&of).unwrap().state = State::Dead;
    assert_eq!(polled.ack(&[receipt(&answer, 0)]).await, ["too_late"]);
    let never = [format!("{id}.0.9"), format!("{}.0.1", event(9)), format!("{id}.7.1")];
    polled.postern.0.deliveries.tables().deliveries.get_mut(&(lane, id)).unwrap().state =
        State::Pending;
    let never: Vec<_> = never.iter().map(String::as_str).collect();
    assert_eq!(polled.ack(&never).await, ["unknown"; 3]);
    let path = format!("{}/ack", polled.path());
    let answer = polled.call(&path, &json!({"receipts": ["x", receipt(&answer, 0)]})).await;
    answer.problem(422, "invalid-request");
    assert_eq!(answer.fields(), ["receipts[0]"]);
    for receipts in [json!([]), json!(vec!["x"; 101])] {
        let answer = polled.call(&path, &json!({"receipts": receipts})).await;
        assert_eq!(answer.fields()[0], "receipts");
    }
}

/// One call fetches the next page and acknowledges the last.
#[tokio::test]
async fn a_cursor_acknowledges_all_that_came_with_it() {
    let polled = Polled::new().await;
    for n in 0..25 {
        polled.owe(n).await;
    }
    let (mut seen, mut cursor, mut acknowledged) = (Vec::new(), Value::Null, 0);
    loop {
        let answer = polled.poll(json!({"max": 10, "cursor": cursor})).await;
        let page = answer["deliveries"].as_array().unwrap();
        acknowledged += answer["acknowledged"].as_array().map_or(0, Vec::len);
        assert_eq!(answer["more"], json!(seen.len() < 15));
        if page.is_empty() {
            break;
        }
        seen.extend(page.iter().map(|one| one["event"].as_str().unwrap().to_owned()));
        cursor = answer["cursor"].clone();
    }
    let mut expected: Vec<_> = (0..25).map(|n| event(n).to_string()).collect();
    expected.sort();
    assert_eq!((seen, acknowledged), (expected, 25));
    let tables = polled.postern.0.deliveries.tables();
    assert!(tables.deliveries.values().all(|delivery| delivery.state == State::Succeeded));
}

/// Every way of being nobody gets one answer, and nothing is handed out.
#[tokio::test]
async fn a_wrong_token_opens_nothing_and_hears_nothing() {
    let polled = Polled::new().await;
    let of = polled.owe(0).await;
    let other = Polled::new().await;
    let hooks = json!({"url": "https://hooks.example.com/"});
    let hooks = polled.postern.post("/v1/tenants/acme/endpoints", &hooks).await.good(201);
    let bearer = |token: &str| format!("Bearer {token}");
    let right = bearer(&polled.token);
    let truncated = bearer(polled.token.trim_end_matches('7'));
    let hooks = format!("/poll/acme/{}", hooks["id"].as_str().unwrap());
    let absent = "/poll/acme/ep_00000000000000000000000000000001".to_owned();
    let elsewhere = format!("/poll/other/{}", polled.endpoint);
    let attempts: Vec<(String, Option<String>)> = vec![
        (polled.path(), None),
        (polled.path(), Some(String::new())),
        (polled.path(), Some("Bearer ".to_owned())),
        (polled.path(), Some(polled.token.clone())),
        (polled.path(), Some(format!("Basic {}", polled.token))),
        (polled.path(), Some(truncated)),
        (polled.path(), Some(bearer(&polled.token.to_uppercase()))),
        (polled.path(), Some(bearer(&polled.secret))),
        (hooks, Some(right.clone())),
        (absent, Some(right.clone())),
        (elsewhere, Some(right.clone())),
        ("/poll/ACME/x".to_owned(), Some(right.clone())),
        (other.path().replace(&other.endpoint.to_string(), "ep_x"), Some(right.clone())),
    ];
    let mut answers = std::collections::BTreeSet::new();
    for (path, token) in attempts {
        let headers: Vec<_> = token.iter().map(|token| ("authorization", token.as_str())).collect();
        for (path, body) in
            [(path.clone(), json!({})), (format!("{path}/ack"), json!({"receipts": ["x"]}))]
        {
            let answer = polled.postern.post_with(&path, &body, &headers).await;
            answer.problem(401, "unauthorized");
            answers.insert(answer.text);
        }
    }
    assert_eq!(answers.len(), 1, "{answers:?}");
    assert_eq!(polled.delivery(&of).begun, None);
    // Two at once are none.
    let twice = [("authorization", right.as_str()), ("authorization", right.as_str())];
    polled.postern.post_with(&polled.path(), &json!({}), &twice).await.problem(401, "unauthorized");
}

/// SEC-secret-in-output
#[tokio::test]
async fn a_token_is_shown_once_and_kept_as_a_hash_and_another_ends_it() {
    let polled = Polled::new().await;
    let kept = polled.postern.0.registry.tables().endpoints[&(acme(), polled.endpoint)].1.clone();
    let token = kept.iter().find(|secret| secret.purpose == Purpose::Polling).unwrap();
    assert_eq!(token.sealed.len(), 32);
    let path = format!("/v1/tenants/acme/endpoints/{}", polled.endpoint);
    for path in [path.clone(), format!("{path}/secrets"), "/v1/tenants/acme/endpoints".to_owned()] {
        let shown = polled.postern.get(&path).await;
        assert!(!shown.text.contains(&polled.token), "{path}");
    }
    polled.poll(json!({})).await;
    // The fixed randomness of this deployment makes the same token again: by its id it would be another.
    let renewed = polled.postern.ask(&format!("{path}/token")).await.good(201);
    assert!(renewed["token"].as_str().unwrap().starts_with("whpoll_"));
    let kept = polled.postern.0.registry.tables().endpoints[&(acme(), polled.endpoint)].1.clone();
    assert_eq!(kept.iter().filter(|secret| secret.purpose == Purpose::Polling).count(), 1);
    assert_eq!(kept.iter().filter(|secret| secret.purpose == Purpose::Signing).count(), 1);
    let hooks = json!({"url": "https://hooks.example.com/"});
    let hooks = polled.postern.post("/v1/tenants/acme/endpoints", &hooks).await.good(201);
    let path = format!("/v1/tenants/acme/endpoints/{}/token", hooks["id"].as_str().unwrap());
    polled.postern.ask(&path).await.problem(409, "not-polled");
}

#[tokio::test]
async fn a_stopped_endpoint_hands_out_nothing_and_still_takes_acknowledgements() {
    let polled = Polled::new().await;
    let of = polled.owe(0).await;
    polled.owe(1).await;
    let answer = polled.poll(json!({"max": 1})).await;
    let disabled = Disabled { since: at(-9), reason: "gone".to_owned() };
    let health = Health { disabled: Some(disabled), ..Health::default() };
    polled.postern.0.deliveries.tables().health.insert((acme(), polled.endpoint), health);
    polled.call(&polled.path(), &json!({})).await.problem(409, "endpoint-stopped");
    assert_eq!(polled.ack(&[receipt(&answer, 0)]).await, ["acknowledged"]);
    let first = answer["deliveries"][0]["event"].as_str().unwrap().to_owned();
    let of = (of.0, first.parse().unwrap());
    assert_eq!(polled.delivery(&of).state, State::Succeeded);
}

/// Two at once: each delivery goes to one of them.
#[tokio::test]
async fn two_pollers_at_once_get_different_deliveries() {
    let polled = Polled::new().await;
    for n in 0..20 {
        polled.owe(n).await;
    }
    let (a, b) = futures_util::future::join(
        polled.poll(json!({"max": 20})),
        polled.poll(json!({"max": 20})),
    )
    .await;
    let events = |of: &Value| -> Vec<String> {
        let page = of["deliveries"].as_array().unwrap();
        page.iter().map(|one| one["event"].as_str().unwrap().to_owned()).collect()
    };
    let mut all = [events(&a), events(&b)].concat();
    all.sort();
    all.dedup();
    assert_eq!((all.len(), events(&a).len() + events(&b).len()), (20, 20));
}

/// Whatever dies where: what is owed is handed out sooner or later, and its pointer is right in the end.
#[tokio::test]
async fn a_death_after_any_call_loses_no_delivery() {
    for skip in 0..12 {
        for when in [When::Before, When::After] {
            let polled = Polled::new().await;
            let of = polled.owe(0).await;
            let mut left = skip;
            polled.postern.0.deliveries.chaos.set(move |_, _| {
                left -= 1;
                (left == -1).then_some((when, Fault::Unavailable))
            });
            let _ = polled.call(&polled.path(), &json!({})).await;
            polled.postern.0.deliveries.chaos.heal();
            // Whoever comes next finds the old pointer, and puts it right.
            let mut again = polled.poll(json!({})).await;
            if again["deliveries"] == json!([]) {
                polled.time_passes(&of);
                again = polled.poll(json!({})).await;
            }
            assert_eq!(
                polled.ack(&[receipt(&again, 0)]).await,
                ["acknowledged"],
                "{skip} {when:?}"
            );
            let _ = polled.poll(json!({})).await;
            polled.time_passes_for_all();
            let _ = polled.poll(json!({})).await;
            assert!(polled.postern.0.deliveries.tables().pointers.is_empty(), "{skip} {when:?}");
        }
    }
}

impl Polled {
    /// Pointers that were left behind come up.
    fn time_passes_for_all(&self) {
        let mut tables = self.postern.0.deliveries.tables();
        let all = std::mem::take(&mut tables.pointers);
        tables.pointers = all
            .into_iter()
            .map(|(lane, pointer)| (lane, Pointer { due_at: at(-1), ..pointer }))
            .collect();
    }
}

/// One that cannot be sent does not stand in front of all others.
#[tokio::test]
async fn an_event_that_is_not_there_is_put_off_and_the_others_go() {
    let polled = Polled::new().await;
    let lost = polled.owe(0).await;
    polled.owe(1).await;
    polled.postern.0.outbox.tables().outbox.remove(&(acme(), lost.1));
    let answer = polled.poll(json!({})).await;
    assert_eq!(answer["deliveries"].as_array().unwrap().len(), 1);
    let put_off = polled.delivery(&lost);
    assert_eq!((put_off.state, put_off.attempts, put_off.due_at), (State::Pending, 1, at(60)));
    assert_eq!(put_off.log[0].outcome, Outcome::Failed { cause: Cause::Internal });
}

#[tokio::test]
async fn what_cannot_be_asked_is_told_at_once() {
    let polled = Polled::new().await;
    let bad = json!({"max": 101, "visibility_ms": 999});
    let answer = polled.call(&polled.path(), &bad).await;
    assert_eq!(answer.fields(), ["max", "visibility_ms"]);
    let answer = polled.call(&polled.path(), &json!({"cursor": "x,y"})).await;
    assert_eq!(answer.fields(), ["cursor"]);
    let both = json!({"poll": true, "url": "https://example.com/"});
    let answer = polled.postern.post("/v1/tenants/acme/endpoints", &both).await;
    assert_eq!(answer.fields(), ["url"]);
    let more = json!({"poll": true, "rate": 5, "concurrency": 2, "headers": {"x-a": "b"}});
    let answer = polled.postern.post("/v1/tenants/acme/endpoints", &more).await;
    assert_eq!(answer.fields(), ["headers", "concurrency", "rate"]);
}

/// A request through one gateway does not reach the routes of the other, however its path is spelled.
#[tokio::test]
async fn no_gateway_opens_the_routes_of_another() {
    let polled = Polled::new().await;
    let through = async |door: &str, path: &str| {
        let mut context =
            lambda_http::aws_lambda_events::apigw::ApiGatewayV2httpRequestContext::default();
        context.route_key = Some(door.to_owned());
        let mut request = Request::get(path).body(Body::empty()).unwrap();
        request.extensions_mut().insert(RequestContext::ApiGatewayV2(context));
        polled.postern.send(request).await
    };
    through("ANY /v1/{proxy+}", "/v1/sources").await.good(200);
    for path in ["/v1/sources", "/v1/tenants/acme/endpoints", "//v1/sources", "/poll/../v1/sources"]
    {
        through("ANY /poll/{proxy+}", path).await.problem(404, "no-such-route");
    }
    through("ANY /v1/{proxy+}", &polled.path()).await.problem(404, "no-such-route");
}

/// Lambda takes 6 MB of answer, in which ours stands as a text: each of its quotes costs four bytes there. What it does not
/// take was handed out to nobody, and would be chosen again for ever.
#[tokio::test]
async fn a_page_fits_into_an_answer_of_lambda_whatever_the_payloads_are_made_of() {
    let polled = Polled::new().await;
    let payload = format!("[{}\"\"]", "\"\",".repeat(80_000)).into_bytes();
    for n in 0..20 {
        let (_, id) = polled.owe(n).await;
        let mut tables = polled.postern.0.outbox.tables();
        let row = tables.outbox.values_mut().find(|row| row.event.id == id).unwrap();
        row.event.payload = domain::outbox::Payload::Inline(payload.clone());
    }
    let mut seen = 0;
    loop {
        let answer = polled.call(&polled.path(), &json!({"max": 20})).await;
        let handed = serde_json::to_string(&answer.text).unwrap().len();
        assert!(handed < 6 * 1024 * 1024, "{handed} bytes");
        let answer = answer.good(200);
        seen += answer["deliveries"].as_array().unwrap().len();
        assert_eq!(answer["more"], json!(seen < 20), "{seen}");
        if seen == 20 {
            break;
        }
    }
}
