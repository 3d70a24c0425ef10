//! The life of an endpoint on the real binaries: made, tried, rotated, stopped, started, moved and deleted, and never an
//! event that is lost by any of it.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use http::{HeaderMap, HeaderValue, Method, header};
use serde_json::{Value, json};
use signing::Key;
use tests::{
    api::{Api, Endpoint},
    control::Fault,
    eventually,
    host::{Host, Setup},
    subscriber::{Reply, Seen, Subscriber},
};

/// A call of the admin API with a body; its answer.
async fn call(api: &Api, method: Method, path: &str, body: &Value) -> Result<Value> {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let body = Bytes::from(body.to_string());
    api.client().call(method, path, headers, body).await?.good().with_context(|| path.to_owned())
}

async fn post(api: &Api, path: &str, body: &Value) -> Result<Value> {
    call(api, Method::POST, path, body).await
}

/// Calls that are under way at once.
const WIDTH: usize = 8;

/// Publishes so many events; their ids.
async fn publish(api: &Api, tenant: &str, count: usize) -> Result<Vec<String>> {
    let one = |n| async move {
        let event = json!({
            "tenant": tenant, "type": "order.paid", "aggregate_id": format!("order-{}", n % 7), "payload": {"n": n},
        });
        api.publish(&event.to_string(), None).await?.text("/id")
    };
    stream::iter(0..count).map(one).buffered(WIDTH).try_collect().await
}

/// What a subscriber got of these events, by id.
fn got(subscriber: &Subscriber, ids: &[String]) -> BTreeMap<String, usize> {
    let mut counts: BTreeMap<String, usize> = ids.iter().map(|id| (id.clone(), 0)).collect();
    for seen in subscriber.seen() {
        if let Some(count) = counts.get_mut(seen.id()) {
            *count += 1;
        }
    }
    counts
}

/// Waits until each of these was got, and says how often.
async fn until_got(subscriber: &Subscriber, ids: &[String]) -> Result<BTreeMap<String, usize>> {
    eventually(&format!("{} events are got", ids.len()), async || {
        let got = got(subscriber, ids);
        let missing = got.values().filter(|count| **count == 0).count();
        ensure!(missing == 0, "{missing} are missing");
        Ok(got)
    })
    .await
}

/// Waits until each of these is relayed and waits in its lane.
async fn until_held(api: &Api, tenant: &str, ids: &[String]) -> Result<()> {
    let one = |id: String| async move {
        eventually("the delivery is there", async || {
            api.outgoing(tenant, &id).await?.ensure_all("pending")
        })
        .await
    };
    stream::iter(ids.to_vec()).map(one).buffer_unordered(WIDTH).try_collect().await
}

fn key(endpoint: &str, secret: &str) -> Result<Key> {
    Endpoint { id: endpoint.to_owned(), secret: secret.to_owned() }.key()
}

fn of<'a>(value: &'a Value, pointer: &str) -> Result<&'a str> {
    value.pointer(pointer).and_then(Value::as_str).with_context(|| format!("{pointer} of {value}"))
}

/// F1, DLV-disabled-events-vanish
#[tokio::test]
async fn an_endpoint_is_made_tried_paused_disabled_moved_and_deleted_and_no_event_is_lost()
-> Result<()> {
    // A busy machine needs longer than a hundredth of 14 days for all of it.
    let parameters = &[("HoldMs", "600000"), ("DeliveryDeadlineMs", "600000")];
    let host = Host::start(Setup { parameters, ..Setup::IN_MEMORY }).await?;
    let (api, subscriber, other) =
        (host.api()?, host.subscriber().await?, host.subscriber().await?);
    let all = "/v1/tenants/life/endpoints";
    let wanted = json!({ "url": subscriber.url(), "patterns": ["order.*"], "test": true });
    let made = post(&api, all, &wanted).await?;
    let id = of(&made, "/id")?;
    let one = format!("{all}/{id}");
    let key = key(id, of(&made, "/secret")?)?;

    // The test event comes signed, though the endpoint asks for other types; and to nobody else.
    let beside = post(&api, all, &json!({ "url": other.url() })).await?;
    let trial = subscriber.until(1).await?;
    let [trial] = trial.as_slice() else { anyhow::bail!("{trial:?}") };
    trial.verify(&key)?;
    ensure!(trial.id() == of(&made, "/test/event")?, "{trial:?}");
    let again = post(&api, &format!("{one}/test"), &json!({})).await?;
    api.until_outgoing("life", of(&again, "/event")?, "succeeded").await?;
    ensure!(other.count() == 0, "a test of one endpoint went to another");
    call(&api, Method::DELETE, &format!("{all}/{}", of(&beside, "/id")?), &json!({})).await?;

    // Paused: nothing leaves, and all of it comes after the resume, without another event.
    post(&api, &format!("{one}/pause"), &json!({ "reason": "a deploy" })).await?;
    let paused = publish(&api, "life", 5).await?;
    until_held(&api, "life", &paused).await?;
    host.control()?.idle().await?;
    ensure!(
        got(&subscriber, &paused).values().all(|count| *count == 0),
        "a pause let something out"
    );
    post(&api, &format!("{one}/resume"), &json!({})).await?;
    until_got(&subscriber, &paused).await?;

    // Disabled for 300 events: each comes once, with its own id, to where the endpoint is by then.
    post(&api, &format!("{one}/disable"), &json!({ "reason": "it went wrong" })).await?;
    let held = publish(&api, "life", 300).await?;
    until_held(&api, "life", &held).await?;
    host.control()?.idle().await?;
    ensure!(got(&subscriber, &held).values().all(|count| *count == 0), "something was not held");
    let listed = api.client().get(&format!("{all}?unhealthy=true")).await?.good()?;
    ensure!(of(&listed, "/endpoints/0/health/state")? == "disabled", "{listed}");
    call(&api, Method::PATCH, &one, &json!({ "url": other.url(), "concurrency": 20 })).await?;
    let enabled = post(&api, &format!("{one}/enable?release_rate=1000"), &json!({})).await?;
    ensure!(of(&enabled, "/health/state")? == "good", "{enabled}");
    let counts = until_got(&other, &held).await?;
    host.control()?.idle().await?;
    ensure!(counts.values().all(|count| *count == 1), "{counts:?}");
    let ids: BTreeSet<String> = other.seen().iter().map(|seen| seen.id().to_owned()).collect();
    ensure!(ids == held.iter().cloned().collect(), "{} ids", ids.len());
    for seen in other.seen() {
        seen.verify(&key)?;
    }

    // Deleted with something pending: it is cancelled, and can still be seen.
    other.otherwise(Reply::status(500));
    let pending = publish(&api, "life", 3).await?;
    until_got(&other, &pending).await?;
    call(&api, Method::DELETE, &one, &json!({})).await?;
    for id in &pending {
        api.until_outgoing("life", id, "cancelled").await?;
    }
    let after = publish(&api, "life", 1).await?;
    let unmatched = eventually("the event is relayed", async || {
        let story = api.outgoing("life", after.first().context("one")?).await?;
        story
            .0
            .get("unmatched")
            .and_then(Value::as_bool)
            .filter(|is| *is)
            .context(story.0.to_string())
    });
    ensure!(unmatched.await?);
    let gone = api.client().get(&one).await?.good()?;
    ensure!(of(&gone, "/health/state")? == "deleted", "{gone}");
    Ok(())
}

/// I4: while a secret is rotated, a receiver that knows one of the two verifies everything.
#[tokio::test]
async fn a_secret_is_rotated_without_a_gap() -> Result<()> {
    let host = Host::start(Setup::IN_MEMORY).await?;
    let (api, subscriber) = (host.api()?, host.subscriber().await?);
    let made = api.endpoint("rotation", &subscriber.url()).await?;
    let path = format!("/v1/tenants/rotation/endpoints/{}/secrets/rotate", made.id);
    let mut keys = vec![made.key()?];
    let before = publish(&api, "rotation", 5).await?;
    until_got(&subscriber, &before).await?;
    // Events go on while it is rotated, by a day and at once.
    let usual = json!({});
    let (during, rotated) = tokio::join!(publish(&api, "rotation", 40), post(&api, &path, &usual));
    let (during, rotated) = (during?, rotated?);
    keys.push(key(&made.id, of(&rotated, "/secret")?)?);
    until_got(&subscriber, &during).await?;
    let overlap = publish(&api, "rotation", 5).await?;
    until_got(&subscriber, &overlap).await?;
    let verifies =
        |seen: &Seen, at: usize| keys.get(at).is_some_and(|key| seen.verify(key).is_ok());
    for seen in subscriber.seen() {
        ensure!(verifies(&seen, 0), "who has not changed over cannot verify {}", seen.id());
        if overlap.iter().any(|id| id == seen.id()) {
            ensure!(verifies(&seen, 1), "who has changed over cannot verify {}", seen.id());
        }
    }

    // It has leaked: the old one ends now.
    post(&api, &path, &json!({ "overlap_ms": 0 })).await?;
    let last = publish(&api, "rotation", 3).await?;
    until_got(&subscriber, &last).await?;
    let late: Vec<Seen> = subscriber
        .seen()
        .into_iter()
        .filter(|seen| last.iter().any(|id| id == seen.id()))
        .collect();
    ensure!(
        late.iter().all(|seen| !verifies(seen, 0) && !verifies(seen, 1)),
        "an ended secret signs"
    );
    Ok(())
}

/// If it dies right there: the api is killed between enabling an endpoint and waking its lanes.
#[tokio::test]
async fn what_is_held_goes_out_though_the_api_dies_while_it_enables() -> Result<()> {
    let host = Host::start(Setup::IN_MEMORY).await?;
    let (api, control, subscriber) = (host.api()?, host.control()?, host.subscriber().await?);
    let made = api.endpoint("killed", &subscriber.url()).await?;
    let one = format!("/v1/tenants/killed/endpoints/{}", made.id);
    post(&api, &format!("{one}/disable"), &json!({ "reason": "x" })).await?;
    let held = publish(&api, "killed", 4).await?;
    until_held(&api, "killed", &held).await?;
    control.idle().await?;
    let late = Fault::new("dynamodb", "TransactWriteItems", "delay").of("api").by(30_000).after();
    control.fault(&late.times(1)).await?;
    let (enable, usual) = (format!("{one}/enable"), json!({}));
    let (lost, killed) = tokio::join!(post(&api, &enable, &usual), async {
        eventually("the api writes", async || {
            ensure!(control.faults_left().await? == 0);
            Ok(())
        })
        .await?;
        control.kill("ApiFunction").await
    });
    killed?;
    ensure!(lost.is_err(), "the answer was not lost: {lost:?}");
    control.heal().await?;
    // Whoever asks again ends what the first call had begun.
    eventually("the endpoint is enabled", async || post(&api, &enable, &usual).await).await?;
    until_got(&subscriber, &held).await?;
    Ok(())
}

/// SSRF-update-and-test-paths: a row that another hand wrote, or that is older than a rule, is refused by the test and at
/// the send.
#[tokio::test]
async fn an_address_in_the_row_is_no_way_around_the_check() -> Result<()> {
    let host = Host::start(Setup::IN_MEMORY).await?;
    let (api, aws, subscriber) = (host.api()?, host.aws()?, host.subscriber().await?);
    let made = api.endpoint("row", &subscriber.url()).await?;
    let one = format!("/v1/tenants/row/endpoints/{}", made.id);
    let table = aws.table("RegistryTable").await?;
    for bad in
        ["https://169.254.169.254/latest/meta-data", "http://10.0.0.1/", "file:///etc/passwd"]
    {
        let row = aws.items("RegistryTable").await?.into_iter();
        let mut row =
            row.filter(|item| item.text("sk") == Some(format!("ENDPOINT#{}", made.id).as_str()));
        let mut item = row.next_back().context("the endpoint's row")?.raw().clone();
        let mut endpoint: Value = serde_json::from_str(of(&item, "/endpoint/S")?)?;
        *endpoint.get_mut("url").context("a url")? = json!(bad);
        *item.pointer_mut("/endpoint/S").context("a document")? = json!(endpoint.to_string());
        aws.dynamodb("PutItem", &json!({ "TableName": table, "Item": item })).await?;
        let refused = api.client().post(&format!("{one}/test"), &json!({})).await?;
        ensure!(refused.code() == 422, "{bad}: {refused:?}");
        let id = publish(&api, "row", 1).await?.remove(0);
        eventually("the send is refused", async || {
            let story = api.outgoing("row", &id).await?.0;
            let outcome = story.pointer("/deliveries/0/log/0").context("an attempt")?.to_string();
            ensure!(outcome.contains("blocked_address"), "{outcome}");
            Ok(())
        })
        .await?;
    }
    ensure!(subscriber.count() == 0);
    Ok(())
}

/// Setting up by key, from two programs at once and again: one endpoint, and one of them has its secret.
#[tokio::test]
async fn an_endpoint_is_set_up_once_whoever_asks_and_however_often() -> Result<()> {
    let host = Host::start(Setup::IN_MEMORY).await?;
    let (api, subscriber) = (host.api()?, host.subscriber().await?);
    let path = "/v1/tenants/setup/endpoints/by-key/shop-7";
    let wanted = json!({ "url": subscriber.url(), "patterns": ["order.*"] });
    let put = || async {
        eventually("it is set up", async || call(&api, Method::PUT, path, &wanted).await).await
    };
    let (a, b, c) = tokio::join!(put(), put(), put());
    let all = [a?, b?, c?, put().await?];
    let secrets: Vec<&str> = all.iter().filter_map(|one| one.get("secret")?.as_str()).collect();
    let [secret] = secrets.as_slice() else { anyhow::bail!("{} secrets", secrets.len()) };
    let ids: BTreeSet<&str> = all.iter().filter_map(|one| one.get("id")?.as_str()).collect();
    ensure!(ids.len() == 1, "{ids:?}");
    let sent = publish(&api, "setup", 2).await?;
    until_got(&subscriber, &sent).await?;
    for seen in subscriber.seen() {
        seen.verify(&key(ids.first().context("one")?, secret)?)?;
    }
    Ok(())
}
