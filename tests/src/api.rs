//! The admin API of a host, asked as an operator or the team's own program would.

use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header};
use serde::Deserialize;
use serde_json::{Value, json};
use signing::{Key, Scheme, Secret};

use crate::{
    client::{Answer, Client},
    eventually,
    provider::Provider,
};

/// The admin API.
#[derive(Clone, Debug)]
pub struct Api(Client);

/// An endpoint that was just made.
#[derive(Clone, Debug, Deserialize)]
pub struct Endpoint {
    /// Its id.
    pub id: String,
    /// Its secret, shown this once.
    pub secret: String,
}

impl Endpoint {
    /// What its subscriber verifies with.
    ///
    /// # Errors
    /// The secret is not of the form that Standard Webhooks says.
    pub fn key(&self) -> Result<Key> {
        let scheme = Scheme::preset("standard_webhooks").context("the preset ships")?;
        Ok(Key::parse(&scheme, self.id.as_str(), &Secret::new(self.secret.clone()))?)
    }
}

impl Api {
    pub(crate) fn of(client: Client) -> Self {
        Self(client)
    }

    /// The client below, for what has no word here.
    pub fn client(&self) -> &Client {
        &self.0
    }

    /// Adds a provider's source whose events become objects, of which `emit_to` is told.
    ///
    /// # Errors
    /// It is refused.
    pub async fn mirror(&self, provider: &Provider, emit_to: Option<&str>) -> Result<()> {
        let mut handler = json!({ "kind": "mirror" });
        if let (Some(tenant), Some(handler)) = (emit_to, handler.as_object_mut()) {
            handler.insert("emit_to".to_owned(), tenant.into());
        }
        self.add_provider(provider, &handler).await
    }

    /// Adds a provider's source whose events go out to `tenant` as they came.
    ///
    /// # Errors
    /// It is refused.
    pub async fn forward(&self, provider: &Provider, tenant: &str) -> Result<()> {
        self.add_provider(provider, &json!({ "kind": "forward", "tenant": tenant })).await
    }

    async fn add_provider(&self, provider: &Provider, handler: &Value) -> Result<()> {
        let source = json!({
            "name": provider.source(),
            "scheme": provider.choice(),
            "handler": handler,
            "secrets": { "1": provider.secret() },
        });
        self.add_source(&source).await
    }

    /// Adds a source, described as the API takes it.
    ///
    /// # Errors
    /// It is refused.
    pub async fn add_source(&self, source: &Value) -> Result<()> {
        let answer = self.0.post("/v1/sources", source).await?;
        let name = source.get("name").and_then(Value::as_str).unwrap_or_default();
        ensure!(answer.code() == 201, "source {name}: {answer:?}");
        Ok(())
    }

    /// Changes a source; what is left out stays as it is.
    ///
    /// # Errors
    /// It is refused.
    pub async fn change_source(&self, source: &str, change: &Value) -> Result<()> {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let path = format!("/v1/sources/{source}");
        let answer = self.0.call(Method::PATCH, &path, headers, change.to_string().into()).await?;
        answer.good().map(drop).with_context(|| format!("{change} of {source}"))
    }

    /// Adds a provider's source whose events this handler carries out, described as the API takes it.
    ///
    /// # Errors
    /// It is refused.
    pub async fn handle(&self, provider: &Provider, handler: &Value) -> Result<()> {
        self.add_provider(provider, handler).await
    }

    /// Adds an endpoint for all event types.
    ///
    /// # Errors
    /// It is refused.
    pub async fn endpoint(&self, tenant: &str, url: &str) -> Result<Endpoint> {
        let body = json!({ "url": url, "patterns": [] });
        let answer = self.0.post(&format!("/v1/tenants/{tenant}/endpoints"), &body).await?;
        ensure!(answer.code() == 201, "endpoint of {tenant}: {answer:?}");
        Ok(serde_json::from_value(answer.json()?)?)
    }

    /// Adds an endpoint for all event types, described as the API takes it. Gives its id.
    ///
    /// # Errors
    /// It is refused.
    pub async fn add_endpoint(&self, tenant: &str, endpoint: &Value) -> Result<String> {
        let answer = self.0.post(&format!("/v1/tenants/{tenant}/endpoints"), endpoint).await?;
        ensure!(answer.code() == 201, "endpoint of {tenant}: {answer:?}");
        answer.text("/id")
    }

    /// The story of a received event.
    ///
    /// # Errors
    /// There is none.
    pub async fn story(&self, source: &str, event: &str) -> Result<Story> {
        let path = format!("/v1/sources/{source}/events/{event}");
        Ok(Story(self.0.get(&path).await?.good().context(path)?))
    }

    /// The story of an outgoing event.
    ///
    /// # Errors
    /// There is none.
    pub async fn outgoing(&self, tenant: &str, event: &str) -> Result<Outgoing> {
        let path = format!("/v1/tenants/{tenant}/events/{event}");
        Ok(Outgoing(self.0.get(&path).await?.good().context(path)?))
    }

    /// Publishes an event, with an idempotency key if there is one.
    ///
    /// # Errors
    /// No answer.
    pub async fn publish(&self, event: &str, key: Option<&str>) -> Result<Answer> {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(key) = key {
            headers.insert("idempotency-key", HeaderValue::try_from(key)?);
        }
        self.0.call(Method::POST, "/v1/events", headers, Bytes::from(event.to_owned())).await
    }

    /// Runs a received event through its handler again.
    ///
    /// # Errors
    /// No answer.
    pub async fn replay(&self, source: &str, event: &str) -> Result<Answer> {
        let path = format!("/v1/sources/{source}/events/{event}/replay");
        self.0.post(&path, &json!({})).await
    }

    /// Delivers an outgoing event to an endpoint again, even if the endpoint has taken it.
    ///
    /// # Errors
    /// No answer.
    pub async fn redeliver(&self, tenant: &str, event: &str, endpoint: &str) -> Result<Answer> {
        let path = format!(
            "/v1/tenants/{tenant}/events/{event}/endpoints/{endpoint}/redeliver?include_delivered=true"
        );
        self.0.post(&path, &json!({})).await
    }

    /// Waits until a received event stands so.
    ///
    /// # Errors
    /// It does not come to that.
    pub async fn until(&self, source: &str, event: &str, status: &str) -> Result<Story> {
        eventually(&format!("{source}/{event} is {status}"), async || {
            let story = self.story(source, event).await?;
            ensure!(story.status() == status, "{}", story.0);
            Ok(story)
        })
        .await
    }

    /// Waits until a received event is processed, and all that followed from it is delivered.
    ///
    /// # Errors
    /// It does not come to that.
    pub async fn until_delivered(&self, source: &str, event: &str) -> Result<Story> {
        eventually(&format!("{source}/{event} is delivered"), async || {
            let story = self.story(source, event).await?;
            ensure!(story.status() == "processed", "{}", story.0);
            for outgoing in story.outgoing() {
                outgoing.ensure_all("succeeded")?;
            }
            Ok(story)
        })
        .await
    }

    /// Waits until every delivery of an outgoing event stands so.
    ///
    /// # Errors
    /// It does not come to that.
    pub async fn until_outgoing(&self, tenant: &str, event: &str, state: &str) -> Result<Outgoing> {
        eventually(&format!("{tenant}/{event} is {state}"), async || {
            let outgoing = self.outgoing(tenant, event).await?;
            outgoing.ensure_all(state)?;
            Ok(outgoing)
        })
        .await
    }
}

/// The story of a received event.
#[derive(Clone, Debug)]
pub struct Story(pub Value);

impl Story {
    /// Where it stands.
    pub fn status(&self) -> &str {
        self.0.get("status").and_then(Value::as_str).unwrap_or_default()
    }

    /// What became of each change, in words such as `applied` and `stale`.
    pub fn results(&self) -> Vec<&str> {
        let results = self.0.get("results").and_then(Value::as_array).into_iter().flatten();
        results.filter_map(|result| result.get("result")?.as_str()).collect()
    }

    /// The outgoing events that followed.
    pub fn outgoing(&self) -> Vec<Outgoing> {
        let outgoing = self.0.get("outgoing").and_then(Value::as_array).into_iter().flatten();
        outgoing.cloned().map(Outgoing).collect()
    }

    /// The only outgoing event that followed.
    ///
    /// # Errors
    /// There is none, or another.
    pub fn only_outgoing(&self) -> Result<Outgoing> {
        match self.outgoing().as_slice() {
            [only] => Ok(only.clone()),
            others => bail!("{} outgoing events: {}", others.len(), self.0),
        }
    }
}

/// The story of an outgoing event.
#[derive(Clone, Debug)]
pub struct Outgoing(pub Value);

impl Outgoing {
    /// Its id, which is its `webhook-id`.
    pub fn id(&self) -> &str {
        self.0.get("id").and_then(Value::as_str).unwrap_or_default()
    }

    /// Its deliveries.
    pub fn deliveries(&self) -> Vec<&Value> {
        self.0.get("deliveries").and_then(Value::as_array).into_iter().flatten().collect()
    }

    /// The statuses that the attempts of its only delivery were answered with; 0 for an attempt without an answer.
    ///
    /// # Errors
    /// It has no delivery, or several.
    pub fn statuses(&self) -> Result<Vec<u64>> {
        let deliveries = self.deliveries();
        let [delivery] = deliveries.as_slice() else { bail!("not one delivery: {}", self.0) };
        let log = delivery.get("log").and_then(Value::as_array).into_iter().flatten();
        Ok(log
            .map(|end| end.pointer("/outcome/status").and_then(Value::as_u64).unwrap_or(0))
            .collect())
    }

    /// That it has deliveries, and all stand so.
    ///
    /// # Errors
    /// It is not so.
    pub fn ensure_all(&self, state: &str) -> Result<()> {
        let deliveries = self.deliveries();
        let all = deliveries.iter().all(|d| d.get("state").and_then(Value::as_str) == Some(state));
        ensure!(all && !deliveries.is_empty(), "not {state}: {}", self.0);
        Ok(())
    }
}
