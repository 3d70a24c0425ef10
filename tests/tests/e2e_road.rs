//! The whole road, with the real binaries on the local host: from a provider's signed request to a subscriber's, and
//! every way in which a request, an event or a delivery can end.

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use futures_util::future::try_join_all;
use http::{HeaderMap, Method};
use serde_json::{Value, json};
use tests::{
    client::Answer,
    control::Fault,
    eventually,
    host::{Host, Setup},
    now,
    provider::{Event, Provider},
    seed,
    subscriber::Reply,
};

/// Far enough in the past that no clock is to blame.
const LONG_AGO: i64 = 3600;

/// A random body that no compression makes small: it stands in the bucket, not in the row.
fn large(name: &str) -> String {
    (0..2000).map(|n| seed::text_of(&format!("{name}-{n}"))).collect()
}

#[tokio::test]
async fn a_signed_event_goes_in_and_a_signed_one_comes_out() -> Result<()> {
    let host = Host::shared().await?;
    let (api, subscriber) = (host.api()?, host.subscriber().await?);
    let stripe = Provider::stripe("road-stripe")?;
    let endpoint = api.endpoint("road", &subscriber.url()).await?;
    api.mirror(&stripe, Some("road")).await?;

    let event = Event::stripe("evt_1", "invoice.paid", "in_1", now().as_second());
    let answer = stripe.send(&host.ingress()?, &event).await?;
    assert!(answer.status.is_success(), "{answer:?}");

    let story = api.until_delivered("road-stripe", "evt_1").await?;
    let seen = subscriber.until(1).await?;
    let outgoing = story.only_outgoing()?;
    assert_eq!(seen[0].id(), outgoing.id());
    assert_eq!(seen[0].body, event.body);
    seen[0].verify(&endpoint.key()?)?;
    let tampered = tests::subscriber::Seen { body: "{}".into(), ..seen[0].clone() };
    assert!(tampered.verify(&endpoint.key()?).is_err());

    // Every stage of the road is in the story.
    for stage in ["received_at", "finished_at", "event_type", "body_sha256", "key_id"] {
        assert!(story.0.get(stage).is_some_and(|at| !at.is_null()), "{stage} of {}", story.0);
    }
    assert_eq!(story.results(), ["applied", "applied"]);
    assert!(outgoing.0.get("relayed_at").is_some_and(|at| !at.is_null()), "{}", outgoing.0);
    assert_eq!(outgoing.statuses()?, [204]);
    Ok(())
}

#[tokio::test]
async fn every_provider_is_believed_by_its_own_signature() -> Result<()> {
    let host = Host::shared().await?;
    let api = host.api()?;
    let providers = [
        (Provider::github("any-github")?, "push", "72d3162e-cc78-11e3-81ab-4c9367dc0958"),
        (
            Provider::shopify("any-shopify")?,
            "orders/updated",
            "b54557e4-bdd9-4b37-8a5f-bf7d70bcd043",
        ),
        (Provider::standard("any-standard")?, "order.paid", "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W"),
    ];
    let subscriber = host.subscriber().await?;
    let endpoint = api.endpoint("any", &subscriber.url()).await?;
    for (count, (provider, kind, id)) in providers.iter().enumerate() {
        api.forward(provider, "any").await?;
        let body = format!(r#"{{"id": 7,  "updated_at":"2026-11-30T10:00:0{count}Z", "n": 1.0}}"#);
        let event = Event::new(id, kind, body);
        let answer = provider.send(&host.ingress()?, &event).await?;
        assert!(answer.status.is_success(), "{provider:?}: {answer:?}");
        api.until_delivered(provider.source(), id).await?;
        let seen = subscriber.until(count + 1).await?;
        assert_eq!(seen[count].body, event.body, "as it came, byte for byte");
        seen[count].verify(&endpoint.key()?)?;
        let forged = provider.with_secret(Provider::standard("other")?.secret());
        assert_eq!(forged.send(&host.ingress()?, &event).await?.code(), 401, "{provider:?}");
    }
    Ok(())
}

/// L11, L15, L21
#[tokio::test]
async fn twenty_copies_at_once_are_one_event_one_effect_and_one_webhook() -> Result<()> {
    let host = Host::shared().await?;
    let (api, subscriber) = (host.api()?, host.subscriber().await?);
    let stripe = Provider::stripe("copies")?;
    api.endpoint("copies", &subscriber.url()).await?;
    api.mirror(&stripe, Some("copies")).await?;

    let event = Event::stripe("evt_1", "invoice.paid", "in_1", now().as_second());
    let ingress = host.ingress()?;
    let answers = try_join_all((0..20).map(|_| stripe.send(&ingress, &event))).await?;
    assert!(answers.iter().all(|answer| answer.status.is_success()), "{answers:?}");
    let story = api.until_delivered("copies", "evt_1").await?;
    story.only_outgoing()?;

    let aws = host.aws()?;
    let of = |start: &'static str| move |item: &tests::aws::Item| item.is_of(start);
    let rows = aws.items("InboxTable").await?.into_iter().filter(of("copies#")).count();
    let events = aws.items("OutboxTable").await?.into_iter().filter(of("copies#")).count();
    assert_eq!((rows, events), (1, 1));
    let ids: std::collections::BTreeSet<_> =
        subscriber.seen().iter().map(|seen| seen.id().to_owned()).collect();
    assert_eq!(ids.len(), 1, "{ids:?}");
    Ok(())
}

/// L12, L16
#[tokio::test]
async fn an_older_version_that_comes_late_changes_nothing() -> Result<()> {
    let host = Host::shared().await?;
    let api = host.api()?;
    let stripe = Provider::stripe("late")?;
    api.mirror(&stripe, None).await?;
    let (newer, older) = (now().as_second(), now().as_second() - 60);
    let newer = Event::stripe("evt_2", "invoice.paid", "in_1", newer);
    let older = Event::stripe("evt_1", "invoice.created", "in_1", older);

    stripe.send_until_accepted(&host, &newer).await?;
    assert_eq!(api.until("late", "evt_2", "processed").await?.results(), ["applied"]);
    let object = || async {
        let items = host.aws()?.items("StateTable").await?;
        let object = items.into_iter().find(|item| item.is_of("OBJECT#late#invoice#"));
        Ok::<_, anyhow::Error>(object.context("no object")?.raw().clone())
    };
    let before = object().await?;
    stripe.send_until_accepted(&host, &older).await?;
    assert_eq!(api.until("late", "evt_1", "processed").await?.results(), ["stale"]);
    assert_eq!(object().await?, before);
    Ok(())
}

/// An answer that tells a stranger nothing: no body, or a problem without a reason.
fn says_nothing(answer: &Answer) -> Result<()> {
    let is_problem = answer.header("content-type") == Some("application/problem+json");
    ensure!(answer.body.is_empty() || is_problem, "{answer:?}");
    let text = String::from_utf8_lossy(&answer.body).to_lowercase();
    for reason in ["stale", "timestamp", "malformed", "mismatch", "missing", "source"] {
        ensure!(!text.contains(reason), "{reason}: {text}");
    }
    Ok(())
}

#[tokio::test]
async fn what_is_not_the_providers_is_refused_without_a_reason() -> Result<()> {
    let host = Host::shared().await?;
    let stripe = Provider::stripe("refused")?;
    host.api()?.mirror(&stripe, None).await?;
    let ingress = host.ingress()?;
    let event = Event::stripe("evt_1", "invoice.paid", "in_1", now().as_second());
    let at = |seconds: i64| jiff::Timestamp::from_second(now().as_second() + seconds);
    let signed = stripe.sign(&event, now())?;

    let check = async |what: &str, expected: u16, headers: HeaderMap, body: Bytes| {
        let answer = stripe.send_as(&ingress, headers, body).await?;
        assert_eq!(answer.code(), expected, "{what}: {answer:?}");
        says_nothing(&answer).with_context(|| what.to_owned())
    };
    let with = |value: &'static str| {
        let mut headers = signed.clone();
        headers.insert("stripe-signature", http::HeaderValue::from_static(value));
        headers
    };
    let without = {
        let mut headers = signed.clone();
        headers.remove("stripe-signature");
        headers
    };
    let body = event.body.clone();
    let other = Provider::stripe("refused-other")?;
    check("another body", 401, signed.clone(), Bytes::from_static(b"{}")).await?;
    check("another secret", 401, other.sign(&event, now())?, body.clone()).await?;
    check("no signature", 401, without, body.clone()).await?;
    check("no form of a signature", 401, with("nonsense"), body.clone()).await?;
    check("a signature without a time", 401, with("v1=00"), body.clone()).await?;
    check("an old one", 401, stripe.sign(&event, at(-LONG_AGO)?)?, body.clone()).await?;
    check("one of the future", 401, stripe.sign(&event, at(LONG_AGO)?)?, body.clone()).await?;
    assert!(host.api()?.story("refused", "evt_1").await.is_err(), "nothing was taken in");
    check("a good one", 200, signed, body).await
}

#[tokio::test]
async fn what_has_no_place_is_refused_by_the_gateway_or_as_unknown() -> Result<()> {
    let host = Host::shared().await?;
    let ingress = host.ingress()?;
    let nobody = Provider::stripe("nobody")?;
    let event = Event::stripe("evt_1", "invoice.paid", "in_1", now().as_second());
    let unknown = nobody.send(&ingress, &event).await?;
    assert_eq!(unknown.code(), 404);
    says_nothing(&unknown)?;

    let large = Event::new("evt_1", "invoice.paid", "x".repeat(7_000_000));
    assert_eq!(nobody.send(&ingress, &large).await?.code(), 413);
    for path in ["/", "/webhooks/", "/webhooks/a/b", "/v1/sources"] {
        let call = ingress.call(Method::POST, path, HeaderMap::new(), Bytes::new());
        assert_eq!(call.await?.code(), 404, "{path}");
    }
    // The admin API is guarded, and speaks in problems.
    let stranger = tests::client::Client::new(
        host.ready()?.apis.get("AdminApi").context("an admin API")?,
        None,
    )?;
    assert_eq!(stranger.get("/v1/sources").await?.code(), 403);
    let missing = host.api()?.client().get("/v1/sources/nobody").await?;
    assert_eq!(missing.code(), 404);
    assert_eq!(missing.header("content-type"), Some("application/problem+json"));
    Ok(())
}

#[tokio::test]
async fn a_large_body_arrives_whole() -> Result<()> {
    let host = Host::shared().await?;
    let (api, subscriber) = (host.api()?, host.subscriber().await?);
    let github = Provider::github("large")?;
    let endpoint = api.endpoint("large", &subscriber.url()).await?;
    api.forward(&github, "large").await?;
    let body = json!({ "large": large("large") }).to_string();
    let event = Event::new("large-1", "push", body);
    github.send_until_accepted(&host, &event).await?;
    api.until_delivered("large", "large-1").await?;
    let seen = subscriber.until(1).await?;
    assert_eq!(seen[0].body, event.body);
    seen[0].verify(&endpoint.key()?)
}

#[tokio::test]
async fn a_replay_runs_the_handler_and_not_its_effect_again() -> Result<()> {
    let host = Host::shared().await?;
    let (api, subscriber) = (host.api()?, host.subscriber().await?);
    let stripe = Provider::stripe("replayed")?;
    api.endpoint("replayed", &subscriber.url()).await?;
    api.mirror(&stripe, Some("replayed")).await?;
    let event = Event::stripe("evt_1", "invoice.paid", "in_1", now().as_second());
    stripe.send_until_accepted(&host, &event).await?;
    let first = api.until_delivered("replayed", "evt_1").await?;

    assert_eq!(api.replay("replayed", "evt_1").await?.code(), 202);
    let again = eventually("the replay is done", async || {
        let story = api.story("replayed", "evt_1").await?;
        let is_done = story.status() == "processed" && story.0.get("cycle") == Some(&json!(1));
        ensure!(is_done, "{}", story.0);
        Ok(story)
    })
    .await?;
    assert!(!again.results().contains(&"applied"), "{}", again.0);
    assert_eq!(subscriber.count(), 1);
    assert_eq!(first.only_outgoing()?.id(), subscriber.seen()[0].id());
    assert_eq!(api.replay("replayed", "evt_none").await?.code(), 404);
    Ok(())
}

#[tokio::test]
async fn a_redelivery_has_the_same_id_and_the_same_bytes() -> Result<()> {
    let host = Host::shared().await?;
    let (api, subscriber) = (host.api()?, host.subscriber().await?);
    let endpoint = api.endpoint("again", &subscriber.url()).await?;
    let event =
        r#"{"tenant":"again","type":"order.paid","aggregate_id":"o_1","payload":{"n" : 1.0}}"#;
    let published = api.publish(event, None).await?;
    assert_eq!(published.code(), 202);
    let id = published.text("/id")?;
    api.until_outgoing("again", &id, "succeeded").await?;

    assert_eq!(api.redeliver("again", &id, &endpoint.id).await?.code(), 202);
    let seen = subscriber.until(2).await?;
    let outgoing = api.until_outgoing("again", &id, "succeeded").await?;
    assert_eq!(outgoing.statuses()?, [204, 204]);
    for seen in &seen {
        assert_eq!(seen.id(), id);
        assert_eq!(seen.body, r#"{"n" : 1.0}"#, "byte for byte as it was published");
        seen.verify(&endpoint.key()?)?;
    }
    Ok(())
}

#[tokio::test]
async fn an_idempotency_key_publishes_one_event() -> Result<()> {
    let host = Host::shared().await?;
    let (api, subscriber) = (host.api()?, host.subscriber().await?);
    api.endpoint("keyed", &subscriber.url()).await?;
    let event = |n: u32| {
        json!({ "tenant": "keyed", "type": "t", "aggregate_id": "a", "payload": { "n": n } })
            .to_string()
    };
    let first = api.publish(&event(1), Some("key-1")).await?;
    let second = api.publish(&event(1), Some("key-1")).await?;
    let other_body = api.publish(&event(2), Some("key-1")).await?;
    let other_key = api.publish(&event(1), Some("key-2")).await?;
    assert_eq!([&first, &second, &other_body, &other_key].map(Answer::code), [202, 200, 409, 202]);
    assert_eq!(first.json()?["id"], second.json()?["id"]);
    assert_ne!(first.json()?["id"], other_key.json()?["id"]);
    assert_eq!(other_body.header("content-type"), Some("application/problem+json"));
    for published in [first, other_key] {
        let id = published.text("/id")?;
        api.until_outgoing("keyed", &id, "succeeded").await?;
    }
    assert_eq!(subscriber.count(), 2);
    Ok(())
}

/// DLV-retry-resigned: each attempt has its own time and signature; id and bytes stay.
#[tokio::test]
async fn a_failed_attempt_is_made_again_and_signed_anew() -> Result<()> {
    let host = Host::shared().await?;
    let (api, subscriber) = (host.api()?, host.subscriber().await?);
    let endpoint = api.endpoint("retried", &subscriber.url()).await?;
    // Redirects are not followed, and a subscriber that asks for time gets it.
    subscriber.then([
        Reply::status(500),
        Reply::status(302).header("location", "https://127.0.0.1:1/"),
        Reply::never(),
        Reply::status(503).header("retry-after", "2"),
        Reply::status(200).body("thanks"),
    ]);
    let event = r#"{"tenant":"retried","type":"t","aggregate_id":"a","payload":[1]}"#;
    let id = api.publish(event, None).await?.text("/id")?;
    let outgoing = api.until_outgoing("retried", &id, "succeeded").await?;
    assert_eq!(outgoing.statuses()?, [500, 0, 0, 503, 200]);
    assert!(outgoing.0.to_string().contains(r#""cause":"redirect""#), "{}", outgoing.0);
    assert!(outgoing.0.to_string().contains("thanks"), "{}", outgoing.0);

    let seen = subscriber.seen();
    for seen in &seen {
        assert_eq!((seen.id(), &seen.body[..]), (id.as_str(), &b"[1]"[..]));
        seen.verify(&endpoint.key()?)?;
    }
    let [.., asked, last] = &*seen else { panic!("{} requests", seen.len()) };
    assert!(last.at.duration_since(asked.at).as_secs() >= 2, "it asked for two seconds");
    assert_ne!(asked.header("webhook-timestamp"), last.header("webhook-timestamp"));
    assert_ne!(asked.header("webhook-signature"), last.header("webhook-signature"));
    Ok(())
}

#[tokio::test]
async fn an_endpoint_that_says_gone_gets_nothing_more_and_loses_nothing() -> Result<()> {
    let host = Host::start(Setup::IN_MEMORY).await?;
    let (api, subscriber) = (host.api()?, host.subscriber().await?);
    api.endpoint("gone", &subscriber.url()).await?;
    subscriber.otherwise(Reply::status(410));
    let publish = async || {
        let event = r#"{"tenant":"gone","type":"t","aggregate_id":"a","payload":{}}"#;
        api.publish(event, None).await?.text("/id")
    };
    let first = publish().await?;
    eventually("the endpoint is disabled", async || {
        let items = host.aws()?.items("DeliveriesTable").await?;
        ensure!(items.iter().any(|item| item.is_of("HEALTH#gone#")), "no health is written");
        Ok(())
    })
    .await?;
    let second = publish().await?;
    eventually("the second is relayed", async || {
        let story = api.outgoing("gone", &second).await?;
        ensure!(!story.deliveries().is_empty(), "{}", story.0);
        Ok(())
    })
    .await?;
    host.control()?.run("SweeperFunction").await?;
    for id in [&first, &second] {
        api.outgoing("gone", id).await?.ensure_all("pending")?;
    }
    // Nobody enabled it while they were held: they end, and say why.
    for id in [&first, &second] {
        let story = api.until_outgoing("gone", id, "dead").await?;
        assert!(story.0.to_string().contains("held_expired"), "{}", story.0);
    }
    assert_eq!(subscriber.count(), 1);
    Ok(())
}

/// A host of its own: its faults would strike others too.
#[tokio::test]
async fn while_the_secrets_or_the_store_cannot_be_had_providers_are_asked_to_come_back()
-> Result<()> {
    let host = Host::start(Setup::IN_MEMORY).await?;
    let (api, control) = (host.api()?, host.control()?);
    let stripe = Provider::stripe("unavailable")?;
    api.mirror(&stripe, None).await?;
    let event = Event::stripe("evt_1", "invoice.paid", "in_1", now().as_second());
    let faults = [
        Fault::new("secretsmanager", "GetSecretValue", "internal"),
        Fault::new("dynamodb", "GetItem", "throttle").of("ingress"),
        Fault::new("dynamodb", "PutItem", "throttle").of("ingress"),
        Fault::new("dynamodb", "PutItem", "drop").of("ingress"),
    ];
    for fault in faults {
        control.fault(&fault).await?;
        // A new process has nothing in its cache.
        control.kill("IngressFunction").await?;
        let answer = stripe.send(&host.ingress()?, &event).await?;
        assert_eq!(answer.code(), 503, "{fault:?}: {answer:?}");
        let seconds = answer.header("retry-after").and_then(|text| text.parse::<u32>().ok());
        assert!(seconds.is_some_and(|seconds| seconds > 0), "{fault:?}: {answer:?}");
        says_nothing(&answer)?;
        control.heal().await?;
    }
    // The put happened and its answer was lost: asked again, the store shows our own row, which is no duplicate.
    control
        .fault(&Fault::new("dynamodb", "PutItem", "drop").of("ingress").after().times(1))
        .await?;
    let answer = stripe.send(&host.ingress()?, &event).await?;
    assert!(answer.status.is_success(), "{answer:?}");
    api.until("unavailable", "evt_1", "processed").await?;
    Ok(())
}

/// WRK-dlq-redrive: the table holds the event; the message holds only its name.
#[tokio::test]
async fn a_parked_event_comes_back_by_its_provider_or_by_the_console_and_says_why_it_waits()
-> Result<()> {
    let host = Host::start(Setup::IN_MEMORY).await?;
    let (api, control, aws) = (host.api()?, host.control()?, host.aws()?);
    let subscriber = host.subscriber().await?;
    api.endpoint("parked", &subscriber.url()).await?;
    let stripe = Provider::stripe("parked")?;
    api.forward(&stripe, "parked").await?;
    control
        .fault(&Fault::new("dynamodb", "TransactWriteItems", "access_denied").of("worker"))
        .await?;
    let event = |n: i64| {
        let invoice = format!("in_{n}");
        Event::stripe(&format!("evt_{n}"), "invoice.paid", &invoice, now().as_second())
    };
    for n in [1, 2] {
        stripe.send_until_accepted(&host, &event(n)).await?;
    }
    for id in ["evt_1", "evt_2"] {
        let story = api.until("parked", id, "dead_letter").await?;
        assert_eq!(story.0["attempts"], 4, "as many as the test environment says");
        assert!(story.0["last_error"]["code"].is_string(), "{}", story.0);
    }
    let parked = api.client().get("/v1/parked").await?.good()?;
    assert_eq!(parked["parked"].as_array().map(Vec::len), Some(2), "{parked}");
    eventually("both messages are where the console shows them", async || {
        let depth = aws.depth("InboundDlq").await?;
        ensure!(depth == 2, "{depth}");
        Ok(())
    })
    .await?;
    control.heal().await?;

    // The provider's own redelivery, from its dashboard.
    stripe.send_until_accepted(&host, &event(1)).await?;
    api.until_delivered("parked", "evt_1").await?;
    // The console's redrive. One that comes too soon after the parking parks the message again: asked until it works.
    eventually("the redriven event is delivered", async || {
        aws.redrive("InboundDlq").await?;
        let story = api.story("parked", "evt_2").await?;
        ensure!(story.status() == "processed", "{}", story.0);
        Ok(())
    })
    .await?;
    api.until_delivered("parked", "evt_2").await?;
    let ids: Vec<_> = subscriber.until(2).await?.iter().map(|seen| seen.id().to_owned()).collect();
    assert_eq!(ids.len(), 2, "{ids:?}");
    let parked = api.client().get("/v1/parked").await?.good()?;
    assert_eq!((&parked["parked"], &parked["more"]), (&json!([]), &json!(false)), "{parked}");
    Ok(())
}

#[tokio::test]
async fn what_can_never_work_is_parked_at_once_with_the_reason() -> Result<()> {
    let host = Host::shared().await?;
    let api = host.api()?;
    let homemade = Provider::homemade("hopeless")?;
    api.mirror(&homemade, None).await?;
    let event = Event::new("e-1", "thing.changed", "this is no JSON")
        .with("x-object-type", "thing")
        .with("x-object-id", "t-1")
        .with("x-version", "1");
    homemade.send_until_accepted(&host, &event).await?;
    let story = api.until("hopeless", "e-1", "dead_letter").await?;
    assert_eq!(story.0["attempts"], 1);
    let why = story.0.pointer("/last_error/message").and_then(Value::as_str).unwrap_or_default();
    assert!(why.contains("JSON") && !why.contains("this is no"), "{why}");
    Ok(())
}
