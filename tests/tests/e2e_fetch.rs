//! A source whose provider is asked, through the real binaries on the local host: and a provider's API that behaves badly.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tests::{
    eventually,
    host::{Host, Setup},
    now,
    provider::{Event, Provider},
    subscriber::{Reply, Subscriber},
};

const TENANT: &str = "asked";

/// A host, a source `billing` that asks, the API that it asks, and who is told.
struct Asking {
    host: Host,
    stripe: Provider,
    api_of_stripe: Subscriber,
    told: Subscriber,
}

fn answers(object: &Value) -> Reply {
    Reply::status(200).header("content-type", "application/json").body(object.to_string())
}

fn invoice(status: &str) -> Value {
    json!({ "id": "in_1", "object": "invoice", "status": status })
}

impl Asking {
    /// Without a token yet.
    async fn set() -> Result<Self> {
        let host = Host::start(Setup::IN_MEMORY).await?;
        let (api_of_stripe, told) = (host.subscriber().await?, host.subscriber().await?);
        let (stripe, api) = (Provider::stripe("billing")?, host.api()?);
        api.endpoint(TENANT, &told.url()).await?;
        let base = api_of_stripe.url().replace("/hooks", "/v1/{path}/{id}");
        let source = json!({
            "name": "billing",
            "scheme": stripe.choice(),
            "handler": { "kind": "mirror", "emit_to": TENANT },
            "secrets": { "1": stripe.secret() },
            "fetch": { "own": { "like": "stripe", "url": base } },
        });
        api.add_source(&source).await?;
        Ok(Self { host, stripe, api_of_stripe, told })
    }

    async fn token(&self, id: &str, token: &str) -> Result<()> {
        let body = json!({ "id": id, "token": token });
        let answer = self.host.api()?.client().post("/v1/sources/billing/tokens", &body).await?;
        ensure!(answer.code() == 201, "{answer:?}");
        Ok(())
    }

    async fn send(&self, id: &str, kind: &str) -> Result<()> {
        let event = Event::stripe(id, kind, "in_1", now().as_second());
        self.stripe.send_until_accepted(&self.host, &event).await?;
        Ok(())
    }

    async fn object(&self) -> Result<Value> {
        let path = "/v1/sources/billing/objects/invoice/in_1";
        self.host.api()?.client().get(path).await?.good().context(path)
    }

    /// Waits until the story of an event says this of its trouble.
    async fn until_trouble(&self, id: &str, code: &str) -> Result<Value> {
        let api = self.host.api()?;
        eventually(&format!("{id} meets {code}"), async || {
            let story = api.story("billing", id).await?;
            let found = story.0.pointer("/last_error/code").and_then(Value::as_str);
            ensure!(found == Some(code), "{}", story.0);
            Ok(story.0)
        })
        .await
    }
}

/// D3, D4, ORD-stale-overwrites-new
#[tokio::test]
async fn events_in_any_order_end_as_the_provider_has_it_in_few_calls() -> Result<()> {
    let asking = Asking::set().await?;
    asking.token("1", "rk_test_1").await?;
    asking.api_of_stripe.otherwise(answers(&invoice("paid")));
    for (id, kind) in
        [("evt_3", "invoice.paid"), ("evt_1", "invoice.created"), ("evt_2", "invoice.updated")]
    {
        asking.send(id, kind).await?;
    }
    let api = asking.host.api()?;
    for id in ["evt_1", "evt_2", "evt_3"] {
        api.until_delivered("billing", id).await?;
    }
    let object = asking.object().await?;
    ensure!(object["fields"] == invoice("paid"), "{object}");
    let asked = asking.api_of_stripe.seen();
    ensure!((1..=3).contains(&asked.len()), "{asked:?}");
    for call in &asked {
        ensure!(call.path == "/v1/invoices/in_1", "{call:?}");
        ensure!(call.header("authorization") == "Bearer rk_test_1", "{call:?}");
    }
    let told = asking.told.seen();
    ensure!(told.len() == 1, "what did not change is not told again: {told:?}");
    ensure!(told[0].body == invoice("paid").to_string(), "{told:?}");
    Ok(())
}

/// A token that is missing, then wrong, then replaced; and a provider that is slow, busy and broken in between.
#[tokio::test]
async fn an_event_outlives_all_that_can_go_wrong_with_asking() -> Result<()> {
    let asking = Asking::set().await?;
    asking.api_of_stripe.otherwise(Reply::status(401).body("CANARY"));
    asking.send("evt_1", "invoice.paid").await?;
    let story = asking.until_trouble("evt_1", "fetch_no_token").await?;
    ensure!(
        story["last_error"]["message"].as_str().is_some_and(|m| m.contains("tokens add billing")),
        "{story}"
    );
    asking.token("1", "rk_wrong").await?;
    let api = asking.host.api()?;
    // Used up while nobody looked: as an operator does it after adding the token.
    eventually("the wrong token is used", async || {
        api.replay("billing", "evt_1").await?;
        let story = api.story("billing", "evt_1").await?;
        ensure!(
            story.0.pointer("/last_error/code") == Some(&json!("fetch_refused")),
            "{}",
            story.0
        );
        ensure!(
            !story.0.to_string().contains("CANARY") && !story.0.to_string().contains("rk_wrong"),
            "{}",
            story.0
        );
        Ok(())
    })
    .await?;
    asking.token("2", "rk_right").await?;
    asking.api_of_stripe.then([
        Reply::never(),
        Reply::status(429).header("retry-after", "1"),
        Reply::status(500),
    ]);
    asking.api_of_stripe.otherwise(answers(&invoice("paid")));
    eventually("the event is carried out", async || {
        let story = api.story("billing", "evt_1").await?;
        // Only what is parked: a replay of what is done would make it pending again, each time it is looked at.
        if story.status() == "dead_letter" {
            api.replay("billing", "evt_1").await?;
        }
        ensure!(story.status() == "processed", "{}", story.0);
        Ok(())
    })
    .await?;
    let object = asking.object().await?;
    ensure!(object["fields"] == invoice("paid"), "{object}");
    Ok(())
}

/// SSRF-redirect: nobody is led anywhere with a token; and what is too large, or a page, is no state.
#[tokio::test]
async fn what_is_no_answer_changes_nothing_and_is_told() -> Result<()> {
    let asking = Asking::set().await?;
    asking.token("1", "rk_test_1").await?;
    let lured = asking.host.subscriber().await?;
    let location: &'static str = lured.url().leak();
    for (id, reply) in [
        ("evt_redirect", Reply::status(302).header("location", location)),
        ("evt_page", Reply::status(200).header("content-type", "text/html").body("<html>")),
        ("evt_other", answers(&json!({ "id": "in_2" }))),
        ("evt_large", Reply::status(200).body(" ".repeat(8 * 1024 * 1024 + 1))),
        ("evt_unknown", Reply::status(404)),
    ] {
        asking.api_of_stripe.otherwise(reply);
        asking.send(id, "invoice.paid").await?;
        asking.until_trouble(id, "fetch_unusable").await?;
    }
    ensure!(lured.seen().is_empty(), "{:?}", lured.seen());
    ensure!(asking.object().await.is_err(), "nothing is held of it");
    ensure!(asking.told.seen().is_empty());
    Ok(())
}
