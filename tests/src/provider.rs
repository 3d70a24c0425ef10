//! A provider: signs as it does, sends, and sends again what was not accepted.

use anyhow::{Context as _, Result, ensure};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use signing::{Scheme, Secret, SigningKey, sign};

use crate::{
    client::{Answer, Client},
    eventually,
    host::Host,
    now, seed,
};

/// A provider with one source at the host.
#[derive(Clone)]
pub struct Provider {
    source: String,
    choice: Value,
    scheme: Scheme,
    secret: String,
}

impl std::fmt::Debug for Provider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Provider").field("source", &self.source).finish_non_exhaustive()
    }
}

/// A request as a provider makes it.
#[derive(Clone, Debug)]
pub struct Event {
    /// Its id, as the story is asked for.
    pub id: String,
    /// Its type.
    pub kind: String,
    /// Its bytes.
    pub body: Bytes,
    /// Headers besides those of the scheme.
    pub headers: HeaderMap,
}

impl Event {
    /// An event of any bytes.
    pub fn new(id: &str, kind: &str, body: impl Into<Bytes>) -> Self {
        let (id, kind) = (id.to_owned(), kind.to_owned());
        Self { id, kind, body: body.into(), headers: HeaderMap::new() }
    }

    /// An event as Stripe makes it, about an invoice, `created` in seconds.
    pub fn stripe(id: &str, kind: &str, invoice: &str, created: i64) -> Self {
        Self::stripe_with(id, kind, invoice, created, &json!({ "amount_paid": 1999 }))
    }

    /// An event as Stripe makes it, with more about the invoice.
    pub fn stripe_with(id: &str, kind: &str, invoice: &str, created: i64, more: &Value) -> Self {
        let mut object = json!({ "id": invoice, "object": "invoice", "currency": "eur" });
        for (name, value) in more.as_object().into_iter().flatten() {
            if let Some(object) = object.as_object_mut() {
                object.insert(name.clone(), value.clone());
            }
        }
        let body = json!({
            "id": id,
            "object": "event",
            "type": kind,
            "created": created,
            "livemode": false,
            "data": { "object": object },
        });
        Self::new(id, kind, body.to_string())
    }

    /// A request that carries several events. Its id is what the inbox calls it: the hash of its bytes.
    pub fn request(events: &[Self]) -> Self {
        let bodies: Vec<&[u8]> = events.iter().map(|event| event.body.as_ref()).collect();
        let body = [&b"{\"events\":["[..], &bodies.join(&b", "[..]), b"]}"].concat();
        let id = format!("sha256:{}", hex::encode(Sha256::digest(&body)));
        Self::new(&id, "request", body)
    }

    /// The same with a header more.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: &str) -> Self {
        if let Ok(value) = HeaderValue::try_from(value) {
            self.headers.insert(HeaderName::from_static(name), value);
        }
        self
    }
}

impl Provider {
    /// Stripe, calling this source.
    ///
    /// # Errors
    /// The preset does not ship.
    pub fn stripe(source: &str) -> Result<Self> {
        Self::of("stripe", source, format!("whsec_{}", seed::text_of(source)))
    }

    /// GitHub, calling this source.
    ///
    /// # Errors
    /// The preset does not ship.
    pub fn github(source: &str) -> Result<Self> {
        Self::of("github", source, seed::text_of(source))
    }

    /// Shopify, calling this source.
    ///
    /// # Errors
    /// The preset does not ship.
    pub fn shopify(source: &str) -> Result<Self> {
        Self::of("shopify", source, seed::text_of(source))
    }

    /// Anybody who keeps to Standard Webhooks, calling this source.
    ///
    /// # Errors
    /// The preset does not ship.
    pub fn standard(source: &str) -> Result<Self> {
        let secret = format!("whsec_{}", BASE64_STANDARD.encode(seed::bytes_of(source)));
        Self::of("standard_webhooks", source, secret)
    }

    fn of(preset: &str, source: &str, secret: String) -> Result<Self> {
        let scheme = Scheme::preset(preset).with_context(|| format!("no preset {preset}"))?;
        let choice = json!({ "preset": preset });
        Ok(Self { source: source.to_owned(), choice, scheme, secret })
    }

    /// Somebody with a scheme of the user's own, which signs its bodies as GitHub does and says everything else in
    /// headers: what it sends need not be JSON.
    ///
    /// # Errors
    /// The scheme is no scheme.
    pub fn homemade(source: &str) -> Result<Self> {
        let own = json!({
            "like": "github",
            "identity": {
                "id": "{header:x-id}",
                "type": "{header:x-type}",
                "object_type": "{header:x-object-type}",
                "object_id": "{header:x-object-id}",
                "version": { "from": "{header:x-version}", "kind": "number" },
            },
        });
        let scheme = Scheme::from_value(own.clone())?;
        let (choice, secret) = (json!({ "own": own }), seed::text_of(source));
        Ok(Self { source: source.to_owned(), choice, scheme, secret })
    }

    /// Somebody who signs like Stripe and sends several events in one request: see [`Event::request`].
    ///
    /// # Errors
    /// The scheme is no scheme.
    pub fn batching(source: &str) -> Result<Self> {
        let own = json!({ "like": "stripe", "batch": "/events" });
        let scheme = Scheme::from_value(own.clone())?;
        let secret = format!("whsec_{}", seed::text_of(source));
        Ok(Self { source: source.to_owned(), choice: json!({ "own": own }), scheme, secret })
    }

    /// The same provider, signing with another secret.
    #[must_use]
    pub fn with_secret(&self, secret: &str) -> Self {
        Self { secret: secret.to_owned(), ..self.clone() }
    }

    /// The name of its source.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// How the api is told of its scheme.
    pub fn choice(&self) -> &Value {
        &self.choice
    }

    /// What it signs with.
    pub fn secret(&self) -> &str {
        &self.secret
    }

    /// Where it sends.
    pub fn path(&self) -> String {
        format!("/webhooks/{}", self.source)
    }

    /// The headers of a request made at `at`, signature included.
    ///
    /// # Errors
    /// The event lacks something that the scheme signs.
    pub fn sign(&self, event: &Event, at: Timestamp) -> Result<HeaderMap> {
        let key = SigningKey::parse(&self.scheme, &Secret::new(self.secret.clone()))?;
        let mut headers = event.headers.clone();
        headers.entry(header::CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
        let outgoing = sign::Outgoing {
            method: "POST",
            url: &self.path(),
            headers,
            id: Some(&event.id),
            event_type: Some(&event.kind),
            body: &event.body,
        };
        Ok(sign::sign_as(&self.scheme, &key, &outgoing, at)?)
    }

    /// Sends an event, signed now.
    ///
    /// # Errors
    /// No answer.
    pub async fn send(&self, ingress: &Client, event: &Event) -> Result<Answer> {
        let headers = self.sign(event, now())?;
        self.send_as(ingress, headers, event.body.clone()).await
    }

    /// Sends these headers and bytes, whatever they are.
    ///
    /// # Errors
    /// No answer.
    pub async fn send_as(
        &self,
        ingress: &Client,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Answer> {
        ingress.call(Method::POST, &self.path(), headers, body).await
    }

    /// Sends an event until it is accepted, as providers do: what got no 2xx is sent again. The host may be restarted
    /// meanwhile.
    ///
    /// # Errors
    /// It is never accepted.
    pub async fn send_until_accepted(&self, host: &Host, event: &Event) -> Result<Answer> {
        eventually(&format!("{} is accepted", event.id), async || {
            let answer = self.send(&host.ingress()?, event).await?;
            ensure!(answer.status.is_success(), "{answer:?}");
            Ok(answer)
        })
        .await
    }
}
