//! If it dies right there, for what people and pollers do to endpoints: the function is killed after each of its calls of a
//! table, whoever got no answer asks again, and everything ends as if nothing had been.

use std::{cell::Cell, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use serde_json::{Value, json};
use tests::{
    api::Api,
    client::{Answer, Client},
    control::Fault,
    eventually,
    host::{Host, Setup},
    subscriber::{Reply, Subscriber},
};

/// Longer than any function waits for an answer: who is to be killed must still be waiting.
const KEPT_BACK_MS: u64 = 30_000;

/// Nothing dies of age while a busy machine is slow.
const PATIENT: Setup = Setup {
    parameters: &[("HoldMs", "600000"), ("DeliveryDeadlineMs", "600000")],
    ..Setup::IN_MEMORY
};

/// A function by its binary and its resource, and what it calls.
#[derive(Clone, Copy)]
struct Victim {
    binary: &'static str,
    function: &'static str,
    action: &'static str,
}

const API: Victim = Victim { binary: "api", function: "ApiFunction", action: "*" };

/// Kills a function after its `n`-th call while something is done. Whether it made so many.
async fn kill_at(
    host: &Host,
    victim: Victim,
    n: u32,
    act: impl Future<Output = Result<()>>,
) -> Result<bool> {
    let control = host.control()?;
    let fault = Fault::new("dynamodb", victim.action, "delay").of(victim.binary).by(KEPT_BACK_MS);
    control.fault(&fault.after().skip(n).times(1)).await?;
    let is_over = Cell::new(false);
    let acting = async {
        let ended = act.await;
        is_over.set(true);
        Ok::<_, anyhow::Error>(ended)
    };
    let striking = async {
        let is_struck = eventually("the call is made, or all is done", async || {
            if control.faults_left().await? == 0 {
                return Ok(true);
            }
            ensure!(is_over.get());
            Ok(false)
        })
        .await?;
        if is_struck {
            control.kill(victim.function).await?;
        }
        Ok(is_struck)
    };
    let (ended, is_struck) = tokio::try_join!(acting, striking)?;
    control.heal().await?;
    // Who is struck may have had its answer all the same: the call may have been one of another request's.
    if !is_struck {
        ended?;
    }
    Ok(is_struck)
}

async fn call(api: &Api, method: Method, path: &str, body: &Value) -> Result<Answer> {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert("idempotency-key", HeaderValue::from_static("once"));
    api.client().call(method, path, headers, Bytes::from(body.to_string())).await
}

/// An endpoint of a tenant of its own.
struct Scene<'a> {
    host: &'a Host,
    subscriber: Subscriber,
    tenant: String,
    path: String,
    token: Option<String>,
}

impl<'a> Scene<'a> {
    async fn set(host: &'a Host, name: &str, n: u32, is_polled: bool) -> Result<Self> {
        let subscriber = host.subscriber().await?;
        let tenant = format!("{name}-{n}");
        let all = format!("/v1/tenants/{tenant}/endpoints");
        let wanted =
            if is_polled { json!({ "poll": true }) } else { json!({ "url": subscriber.url() }) };
        let made = call(&host.api()?, Method::POST, &all, &wanted).await?.good()?;
        let text = |member: &str| made.get(member).and_then(Value::as_str).map(str::to_owned);
        let path = format!("{all}/{}", text("id").context("an id")?);
        Ok(Self { host, subscriber, tenant, path, token: text("token") })
    }

    async fn publish(&self) -> Result<String> {
        let event = json!({
            "tenant": self.tenant, "type": "order.paid", "aggregate_id": "order-1", "payload": {},
        });
        self.host.api()?.publish(&event.to_string(), None).await?.text("/id")
    }

    async fn until(&self, event: &str, state: &str) -> Result<()> {
        self.host.api()?.until_outgoing(&self.tenant, event, state).await.map(drop)
    }

    async fn ask(&self, method: Method, more: &str, body: &Value) -> Result<()> {
        let path = format!("{}{more}", self.path);
        call(&self.host.api()?, method, &path, body).await?.good().map(drop)
    }

    async fn poll(&self, wanted: &Value) -> Result<Value> {
        let base = self.host.ready()?.apis.get("SubscriberApi").context("an API")?.clone();
        let client = Client::new(&base, self.token.as_deref())?;
        let id = self.path.rsplit('/').next().context("an id")?;
        client.post(&format!("/poll/{}/{id}", self.tenant), wanted).await?.good()
    }

    /// Polls until something comes; the cursor.
    async fn polled(&self, event: &str) -> Result<String> {
        eventually("the delivery is handed out", async || {
            let answer = self.poll(&json!({})).await?;
            ensure!(answer.pointer("/deliveries/0/event") == Some(&json!(event)), "{answer}");
            Ok(answer.pointer("/cursor").and_then(Value::as_str).context("a cursor")?.to_owned())
        })
        .await
    }
}

/// Runs a scene with the victim killed at its first call, at its second, and so on, until one is through without it.
async fn at_every_call(
    name: &str,
    least: u32,
    scene: impl AsyncFn(u32) -> Result<bool>,
) -> Result<()> {
    for n in 0.. {
        let is_struck = scene(n).await.with_context(|| format!("{name}, killed at call {n}"))?;
        if !is_struck {
            ensure!(n >= least, "{name}: {n} calls, not {least}");
            return Ok(());
        }
    }
    bail!("{name} never stops calling")
}

/// A pause and a disabling hold, whenever the api died in them, and what was held goes out afterwards.
#[tokio::test]
async fn an_endpoint_is_stopped_though_the_api_dies_while_it_stops_it() -> Result<()> {
    let host = Host::start(PATIENT).await?;
    for (stop, start) in [("pause", "resume"), ("disable", "enable")] {
        at_every_call(stop, 2, async |n| {
            let scene = Scene::set(&host, stop, n, false).await?;
            let reason = json!({ "reason": "a deploy" });
            let path = format!("/{stop}");
            let asked = scene.ask(Method::POST, &path, &reason);
            let is_struck = kill_at(&host, API, n, asked).await?;
            eventually("it is stopped", async || scene.ask(Method::POST, &path, &reason).await)
                .await?;
            let held = scene.publish().await?;
            scene.until(&held, "pending").await?;
            host.control()?.idle().await?;
            ensure!(scene.subscriber.count() == 0, "a {stop} let something out");
            scene.ask(Method::POST, &format!("/{start}"), &json!({})).await?;
            scene.until(&held, "succeeded").await?;
            Ok(is_struck)
        })
        .await?;
    }
    Ok(())
}

/// What is pending at an endpoint that is deleted is cancelled, whenever the api died in it.
#[tokio::test]
async fn what_is_pending_is_cancelled_though_the_api_dies_while_it_deletes() -> Result<()> {
    let host = Host::start(PATIENT).await?;
    at_every_call("delete", 3, async |n| {
        let scene = Scene::set(&host, "delete", n, false).await?;
        scene.subscriber.otherwise(Reply::status(500));
        let event = scene.publish().await?;
        scene.subscriber.until(1).await?;
        let nothing = json!({});
        let is_struck = kill_at(&host, API, n, scene.ask(Method::DELETE, "", &nothing)).await?;
        eventually("it is deleted", async || {
            let again = call(&host.api()?, Method::DELETE, &scene.path, &nothing).await?;
            ensure!(again.code() < 300 || again.status == StatusCode::NOT_FOUND, "{again:?}");
            Ok(())
        })
        .await?;
        scene.until(&event, "cancelled").await?;
        Ok(is_struck)
    })
    .await
}

/// A delivery whose hand-out died comes again, and one that is acknowledged is done, whenever the api died in it.
#[tokio::test]
async fn a_delivery_is_fetched_and_acknowledged_though_the_api_dies_in_it() -> Result<()> {
    let host = Host::start(PATIENT).await?;
    at_every_call("poll", 3, async |n| {
        let scene = Scene::set(&host, "poll", n, true).await?;
        let event = scene.publish().await?;
        scene.until(&event, "pending").await?;
        let polled = async { scene.poll(&json!({})).await.map(drop) };
        let is_struck = kill_at(&host, API, n, polled).await?;
        let cursor = scene.polled(&event).await?;
        scene.poll(&json!({ "cursor": cursor })).await?;
        scene.until(&event, "succeeded").await?;
        Ok(is_struck)
    })
    .await?;
    at_every_call("acknowledge", 2, async |n| {
        let scene = Scene::set(&host, "acknowledge", n, true).await?;
        let event = scene.publish().await?;
        scene.until(&event, "pending").await?;
        let cursor = json!({ "cursor": scene.polled(&event).await? });
        let acknowledged = async { scene.poll(&cursor).await.map(drop) };
        let is_struck = kill_at(&host, API, n, acknowledged).await?;
        eventually("it is acknowledged", async || scene.poll(&cursor).await).await?;
        scene.until(&event, "succeeded").await?;
        Ok(is_struck)
    })
    .await
}

/// A redelivery that is asked for twice, because the api died in the first, is one.
#[tokio::test]
async fn a_redelivery_happens_once_though_the_api_dies_while_it_starts_it() -> Result<()> {
    let host = Host::start(PATIENT).await?;
    at_every_call("redeliver", 4, async |n| {
        let scene = Scene::set(&host, "redeliver", n, false).await?;
        let event = scene.publish().await?;
        scene.until(&event, "succeeded").await?;
        let wanted = json!({ "select": { "include_delivered": true }, "reason": "it was lost" });
        let path = format!("/v1/tenants/{}/redeliveries", scene.tenant);
        let start = async || call(&host.api()?, Method::POST, &path, &wanted).await?.good();
        let is_struck = kill_at(&host, API, n, async { start().await.map(drop) }).await?;
        let work = eventually("it is started", start).await?;
        let work =
            format!("{path}/{}", work.pointer("/id").and_then(Value::as_str).context("an id")?);
        eventually("it is over", async || {
            let work = host.api()?.client().get(&work).await?.good()?;
            ensure!(work.pointer("/state") == Some(&json!("completed")), "{work}");
            ensure!(work.pointer("/counts/redelivered") == Some(&json!(1)), "{work}");
            Ok(())
        })
        .await?;
        scene.until(&event, "succeeded").await?;
        let seen = scene.subscriber.until(2).await?;
        ensure!(seen.iter().all(|seen| seen.id() == event), "{seen:?}");
        Ok(is_struck)
    })
    .await
}

/// How many are redelivered where the sweeper has to do it: more than the api does before it answers.
const MANY: usize = 130;

/// The sweeper is killed while it advances a redelivery: nothing is left out.
#[tokio::test]
async fn a_redelivery_is_finished_though_the_sweeper_dies_in_it() -> Result<()> {
    let host = Host::start(PATIENT).await?;
    let scene = Scene::set(&host, "swept", 0, false).await?;
    let mut events = Vec::new();
    for _ in 0..MANY {
        events.push(scene.publish().await?);
    }
    for event in &events {
        scene.until(event, "succeeded").await?;
    }
    let sweeper =
        Victim { binary: "sweeper", function: "SweeperFunction", action: "TransactWriteItems" };
    let path = format!("/v1/tenants/{}/redeliveries", scene.tenant);
    let wanted = json!({
        "select": { "include_delivered": true }, "reason": "all was lost", "rate": 1000,
    });
    let control = host.control()?;
    let start = async {
        let work = call(&host.api()?, Method::POST, &path, &wanted).await?.good()?;
        let id = work.pointer("/id").and_then(Value::as_str).context("an id")?.to_owned();
        ensure!(work.pointer("/state") == Some(&json!("running")), "the api did all of it: {work}");
        let work = format!("{path}/{id}");
        eventually("it is over", async || {
            control.run("SweeperFunction").await.ok();
            let work = host.api()?.client().get(&work).await?.good()?;
            ensure!(work.pointer("/state") == Some(&json!("completed")), "{work}");
            Ok(work)
        })
        .await
        .map(drop)
    };
    ensure!(kill_at(&host, sweeper, 7, start).await?, "the sweeper redelivered nothing");
    for event in &events {
        scene.until(event, "succeeded").await?;
        eventually("it came again", async || {
            let came = scene.subscriber.seen().iter().filter(|seen| seen.id() == event).count();
            ensure!(came >= 2, "{event} came {came} times");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

const DELIVERER: Victim =
    Victim { binary: "deliverer", function: "DelivererFunction", action: "UpdateItem" };

/// The deliverer is killed at each of its writes while a slow receiver makes it renew its lease.
#[tokio::test]
async fn what_waits_is_delivered_though_the_deliverer_dies_while_it_renews_its_lease() -> Result<()>
{
    let host = Host::start(PATIENT).await?;
    for n in [1, 3, 5] {
        let scene = Scene::set(&host, "renewed", n, false).await?;
        scene.ask(Method::PATCH, "", &json!({ "concurrency": 1 })).await?;
        scene.subscriber.otherwise(Reply::status(204).after(Duration::from_millis(700)));
        let events = [scene.publish().await?, scene.publish().await?, scene.publish().await?];
        let all = async {
            for event in &events {
                scene.until(event, "succeeded").await?;
            }
            Ok(())
        };
        let is_struck = kill_at(&host, DELIVERER, n, all).await?;
        ensure!(is_struck, "it made no {n} writes");
        for event in &events {
            scene.until(event, "succeeded").await?;
        }
    }
    Ok(())
}

/// The deliverer is killed after each of its writes while an endpoint says that it is gone: it is disabled in the end, what it
/// did not take is held, and goes out when somebody enables it.
#[tokio::test]
async fn an_endpoint_that_is_gone_is_disabled_though_the_deliverer_dies_in_it() -> Result<()> {
    let host = Host::start(PATIENT).await?;
    at_every_call("gone", 3, async |n| {
        let scene = Scene::set(&host, "gone", n, false).await?;
        scene.subscriber.otherwise(Reply::status(410));
        let disabled = async || {
            let shown = host.api()?.client().get(&scene.path).await?.good()?;
            ensure!(shown.pointer("/health/state") == Some(&json!("disabled")), "{shown}");
            Ok(())
        };
        let event = scene.publish().await?;
        let until_disabled = eventually("it is disabled", disabled);
        let is_struck = kill_at(&host, DELIVERER, n, until_disabled).await?;
        eventually("it is disabled after all", disabled).await?;
        scene.subscriber.otherwise(Reply::status(204));
        let held = scene.publish().await?;
        scene.until(&held, "pending").await?;
        scene.ask(Method::POST, "/enable", &json!({})).await?;
        scene.until(&held, "succeeded").await?;
        scene.until(&event, "succeeded").await?;
        Ok(is_struck)
    })
    .await
}
