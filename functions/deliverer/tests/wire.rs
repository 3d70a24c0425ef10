//! What a receiver sees of an attempt on the wire, and what an authorization server sees before it.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

mod receiver;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use deliverer::{
    Keys,
    attempt::Attempts,
    drain::{Edge, Prepared, Sender as _},
    transport::{Answered, Entry, Failed, Message, Targets},
};
use domain::{
    delivery::{Attempt, Cause, Delivery, Outcome},
    destination::{BusArn, Destination, QueueUrl},
    endpoint::{Auth, CredentialsIn, Endpoint},
    id::EventId,
    lane::LaneId,
    outbox::{OutboxEvent, OutboxRow, Payload},
    ports::{Keyring as _, Purpose, SealedSecret},
    secret::SecretText,
};
use jiff::Timestamp;
use receiver::{Authority, BOUNDS, Port, Script, listen, read_request, receive};
use runtime::telemetry::Metrics;
use signing::EndpointSecret;
use testkit::memory::{MemoryKeyring, Store};
use tokio::{io::AsyncWriteExt as _, time::timeout};

/// Long after every bound: an attempt that takes this long was not bounded at all.
const FOR_EVER: Duration = Duration::from_secs(20);

fn clock() -> Timestamp {
    Timestamp::from_second(1_760_000_000).unwrap()
}

/// Everything here goes to URLs.
struct NoTargets;

impl Targets for NoTargets {
    async fn message(&self, _: Message) -> Result<Answered, Failed> {
        unreachable!("no endpoint is a queue")
    }

    async fn put(&self, _: Entry) -> Result<Answered, Failed> {
        unreachable!("no endpoint is a bus")
    }

    fn is_own(&self, _: &QueueUrl) -> bool {
        unreachable!("no endpoint is a queue")
    }

    async fn is_missing(&self, _: &BusArn) -> bool {
        unreachable!("no endpoint is a bus")
    }
}

type Heads = Arc<Mutex<Vec<String>>>;

/// A receiver that is its own authorization server, and keeps the head of each request.
async fn serve(authority: &Authority) -> (Port, Heads) {
    let heads = Heads::default();
    let (tls, kept) = (authority.good_receiver(), Arc::clone(&heads));
    let port = listen(move |stream| {
        let (tls, kept) = (tls.clone(), Arc::clone(&kept));
        async move {
            let Ok(mut stream) = tls.accept(stream).await else { return };
            while let Some((head, _)) = read_request(&mut stream).await {
                let body = if head.starts_with("POST /token ") {
                    r#"{"access_token":"t1","token_type":"Bearer","expires_in":60}"#
                } else {
                    ""
                };
                kept.lock().unwrap().push(head.to_ascii_lowercase());
                let length = body.len();
                let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}");
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        }
    })
    .await;
    (port, heads)
}

/// The attempt at an endpoint with this auth and these secrets, by a resolver that says this.
async fn attempt(
    (authority, resolver): (&Authority, Script),
    url: &str,
    auth: Option<Auth>,
    secrets: &[(Purpose, &str)],
) -> Attempt {
    let tenant: domain::id::TenantId = "acme".parse().unwrap();
    let id = format!("ep_{:032x}", 7).parse().unwrap();
    let endpoint = Endpoint::new(tenant.clone(), id, Destination::Https(url.to_owned()), clock());
    let endpoint = Endpoint { auth, headers: vec!["x-key".to_owned()], ..endpoint };
    let (store, keys) = (Store::new(1), Keys::new(MemoryKeyring::default()));
    let mut sealed = Vec::new();
    let signing = EndpointSecret::shared([7; 32]).expose();
    let signing = [(Purpose::Signing, signing.expose())];
    for (purpose, text) in signing.iter().chain(secrets) {
        let text = SecretText::new((*text).to_owned());
        let bytes = keys.keyring().seal(&tenant, id, &text).await.unwrap();
        let id = sealed.len().to_string();
        sealed.push(SealedSecret { id, purpose: *purpose, sealed: bytes, expires_at: None });
    }
    let event = OutboxEvent {
        id: EventId::derived(clock(), &["x"]),
        tenant: tenant.clone(),
        event_type: "invoice.paid".to_owned(),
        schema_version: 1,
        aggregate_id: "in_1".to_owned(),
        aggregate_version: None,
        payload: Payload::Inline(b"{}".to_vec()),
        occurred_at: clock(),
        traceparent: None,
        labels: std::collections::BTreeMap::new(),
    };
    let row = OutboxRow { event: event.clone(), relayed: None };
    store.tables().outbox.insert((tenant.clone(), event.id), row);
    let (client, metrics) = (authority.dialler(resolver, BOUNDS).client(), Metrics::new("test"));
    let sender = Attempts {
        outbox: &store,
        keys: &keys,
        bodies: &store,
        transport: &client,
        targets: &NoTargets,
        policy: BOUNDS.policy,
        within: BOUNDS.attempt,
        metrics: &metrics,
        edge: Edge { now: clock, jitter: || 0.5 },
    };
    let target = sender.open(endpoint, sealed).await.unwrap();
    let lane = LaneId { tenant, endpoint: id, lane: 0 };
    let delivery = Delivery::new(event.id, event.event_type, Timestamp::MAX, clock());
    match sender.prepare(&target, &lane, &delivery).await.unwrap() {
        Prepared::Ready(ready) => sender.send(&lane, &delivery, ready).await,
        Prepared::Failed(attempt) => attempt,
    }
}

fn client(token_url: String) -> Option<Auth> {
    let (client_id, scope) = ("postern".to_owned(), None);
    Some(Auth::OAuth2 { token_url, client_id, scope, credentials_in: CredentialsIn::Header })
}

/// DLV-custom-headers: whatever a row holds, the request has one of each that is reserved, and it is ours.
#[tokio::test]
async fn a_request_has_one_of_each_reserved_header() {
    let authority = Authority::new();
    let (port, heads) = serve(&authority).await;
    let evil = r#"{"Host":"evil","Content-Length":"0","transfer-encoding":"chunked","Connection":"close",
        "Webhook-Id":"evil","WEBHOOK-SIGNATURE":"v1,evil","webhook-timestamp":"1","webhook_id":"evil",
        "authorization":"evil","X-Forwarded-For":"127.0.0.1",":authority":"evil","x-key":"a b"}"#;
    let secrets = [(Purpose::Headers, evil)];
    let attempt = attempt((&authority, Script::loopback()), &port.url(), None, &secrets).await;
    assert!(attempt.outcome.is_success(), "{attempt:?}");
    let [head] = <[String; 1]>::try_from(heads.lock().unwrap().clone()).unwrap();
    let count =
        |name: &str| head.lines().filter(|line| line.starts_with(&format!("{name}:"))).count();
    for name in ["host", "content-length", "webhook-id", "webhook-signature", "webhook-timestamp"] {
        assert_eq!(count(name), 1, "{name} in {head}");
    }
    for name in
        ["transfer-encoding", "connection", "authorization", "x-forwarded-for", "webhook_id"]
    {
        assert_eq!(count(name), 0, "{name} in {head}");
    }
    assert!(head.contains("\r\nx-key: a b\r\n") && !head.contains("evil"), "{head}");
    assert!(head.contains("\r\ncontent-length: 2\r\n"), "{head}");
}

/// RFC 6749: by the same guarded way out, and then with the token.
#[tokio::test]
async fn a_token_comes_over_the_same_way_out() {
    let authority = Authority::new();
    let (port, heads) = serve(&authority).await;
    let auth = client(port.url().replace("/hook", "/token"));
    let secrets = [(Purpose::Headers, "{}"), (Purpose::Auth, "s3cret")];
    let attempt = attempt((&authority, Script::loopback()), &port.url(), auth, &secrets).await;
    assert!(attempt.outcome.is_success(), "{attempt:?}");
    let [ask, post] = <[String; 2]>::try_from(heads.lock().unwrap().clone()).unwrap();
    assert!(ask.starts_with("post /token ") && ask.contains("\r\nauthorization: basic "), "{ask}");
    assert!(post.starts_with("post /hook ") && post.contains("\r\nauthorization: bearer t1\r\n"));
}

/// SSRF-update-and-test-paths, SSRF-ipv4-mapped: the address of a token URL is checked like any other.
#[tokio::test]
async fn a_token_url_that_leads_inside_is_not_dialled() {
    let authority = Authority::new();
    for inside in ["169.254.169.254", "10.0.0.1", "::ffff:10.0.0.1"] {
        let auth = client("https://login.example.com/token".to_owned());
        let secrets = [(Purpose::Headers, "{}"), (Purpose::Auth, "s3cret")];
        let resolver = Script::new(&[&[inside]]);
        let url = "https://receiver.example/hook";
        let attempt = attempt((&authority, resolver), url, auth, &secrets).await;
        assert_eq!(attempt.outcome, Outcome::Failed { cause: Cause::Token });
        let said = "no access token: the authorization server gave no answer (blocked_address)";
        assert_eq!(attempt.excerpt, said);
    }
}

/// DLV-slow-drip: one deadline around the token and the delivery.
#[tokio::test]
async fn an_authorization_server_that_never_answers_ends_within_the_attempt() {
    let authority = Authority::new();
    let silent = receive(authority.good_receiver(), |stream| async move {
        let _stream = stream;
        std::future::pending::<()>().await;
    })
    .await;
    let secrets = [(Purpose::Headers, "{}"), (Purpose::Auth, "s3cret")];
    let (auth, url) = (client(silent.url()), silent.url());
    let attempt = attempt((&authority, Script::loopback()), &url, auth, &secrets);
    let attempt = timeout(FOR_EVER, attempt).await.expect("an attempt without an end");
    assert_eq!(attempt.outcome, Outcome::Failed { cause: Cause::Token });
    assert_eq!(silent.connections(), 1);
}
