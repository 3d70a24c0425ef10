//! The demo: a provider, a source, a tenant and an endpoint that need nothing from outside.

use std::{
    fs,
    path::{Path, PathBuf},
};

use http::{HeaderMap, HeaderValue, Method, header};
use jiff::Timestamp;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use signing::{Scheme, Secret, SigningKey, sign};
use uuid::Uuid;

use super::{host::write_private, subscriber::Subscriber};
use crate::{
    client::{Client, Proof, segment},
    complaint::Complaint,
    deployment::Ready,
};

/// The demo's source.
pub(super) const SOURCE: &str = "stripe-demo";

/// The demo's tenant.
pub(super) const TENANT: &str = "demo";

/// What the demo remembers from one start to the next.
#[derive(Default, Deserialize, Serialize)]
struct Memory {
    provider_secret: String,
    source_made: bool,
    /// The subscriber's URL, endpoint id and secret, once the endpoint is made.
    endpoint: Option<KnownEndpoint>,
    last_event: Option<String>,
}

#[derive(Clone, Deserialize, Serialize)]
pub(super) struct KnownEndpoint {
    pub(super) url: String,
    pub(super) id: String,
    pub(super) secret: String,
}

/// The demo's files in the state folder, readable by their owner only.
pub(super) struct Files {
    folder: PathBuf,
    memory: Memory,
}

/// An event that was sent, and how it was taken.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) event: String,
    pub(super) at: Timestamp,
    pub(super) status: u16,
    pub(super) took: std::time::Duration,
}

/// The newest of the events of an earlier start, and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Earlier {
    pub(super) event: String,
    pub(super) status: String,
}

impl Files {
    /// Opens them, or makes them: a certificate for the subscriber, a secret for the provider.
    pub(super) fn open(state: &Path) -> Result<Self, Complaint> {
        let folder = state.join("demo");
        let broken = |why: String| {
            Complaint::new(
                "the demo's files cannot be used",
                format!("{}: {why}", folder.display()),
                format!("remove {} to start from nothing", state.display()),
            )
        };
        fs::create_dir_all(&folder).map_err(|error| broken(error.to_string()))?;
        let file = folder.join("demo.json");
        let memory = match fs::read(&file) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|e| broken(e.to_string()))?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Memory {
                provider_secret: format!("whsec_{}", hex::encode(rand::random::<[u8; 24]>())),
                ..Memory::default()
            },
            Err(error) => return Err(broken(error.to_string())),
        };
        let files = Self { folder: folder.clone(), memory };
        if !files.certificate_file().is_file() || !files.key_file().is_file() {
            let names = ["127.0.0.1".to_owned(), "localhost".to_owned()];
            let CertifiedKey { cert, signing_key } =
                generate_simple_self_signed(names).map_err(|error| broken(error.to_string()))?;
            write_private(&files.key_file(), signing_key.serialize_pem().as_bytes())
                .and_then(|()| write_private(&files.certificate_file(), cert.pem().as_bytes()))
                .map_err(|error| broken(error.to_string()))?;
        }
        files.save()?;
        Ok(files)
    }

    /// The subscriber's certificate, which the deliverer is told to trust.
    pub(super) fn certificate_file(&self) -> PathBuf {
        self.folder.join("certificate.pem")
    }

    /// The subscriber's key.
    pub(super) fn key_file(&self) -> PathBuf {
        self.folder.join("key.pem")
    }

    /// The endpoint of the last start.
    pub(super) fn endpoint(&self) -> Option<&KnownEndpoint> {
        self.memory.endpoint.as_ref()
    }

    fn save(&self) -> Result<(), Complaint> {
        let file = self.folder.join("demo.json");
        let bytes = serde_json::to_vec_pretty(&self.memory).unwrap_or_default();
        write_private(&file, &bytes).map_err(|error| {
            Complaint::new(
                "the demo cannot remember what it did",
                format!("{}: {error}", file.display()),
                "make the folder writable",
            )
        })
    }
}

/// Makes the source and the endpoint unless they are there, and finds the newest event of an earlier start.
pub(super) async fn prepare(
    ready: &Ready,
    files: &mut Files,
    subscriber: &mut Subscriber,
) -> Result<Option<Earlier>, Complaint> {
    let api = Client::new(ready.api("AdminApi")?, Proof::Token(ready.token.clone()))?;
    if !files.memory.source_made {
        let source = json!({
            "name": SOURCE,
            "scheme": {"preset": "stripe"},
            "handler": {"kind": "forward", "tenant": TENANT},
            "secrets": {"1": files.memory.provider_secret},
        });
        let answer = api.post_raw("/v1/sources", &source).await?;
        // 409: made by a start that died before it could remember.
        if !answer.status.is_success() && answer.status != http::StatusCode::CONFLICT {
            api.post("/v1/sources", &source).await?;
        }
        files.memory.source_made = true;
        files.save()?;
    }
    let url = subscriber.url();
    match files.endpoint().filter(|known| known.url == url).cloned() {
        Some(known) => subscriber.trust(&known.secret)?,
        None => {
            let path = format!("/v1/tenants/{TENANT}/endpoints");
            let made = api.post(&path, &json!({"url": url, "patterns": []})).await?;
            let text =
                |name: &str| made.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
            let known = KnownEndpoint { url, id: text("id"), secret: text("secret") };
            subscriber.trust(&known.secret)?;
            files.memory.endpoint = Some(known);
            files.save()?;
        }
    }
    let Some(event) = files.memory.last_event.clone() else { return Ok(None) };
    let story = api.get(&format!("/v1/sources/{SOURCE}/events/{}", segment(&event))).await?;
    Ok(Some(Earlier { event, status: crate::print::text(&story, "status") }))
}

/// Sends one event as Stripe does: signed now, with the source's secret.
#[expect(clippy::disallowed_methods, reason = "the edge reads the clock and mints the id")]
pub(super) async fn send_event(ready: &Ready, files: &mut Files) -> Result<Sent, Complaint> {
    let now = Timestamp::now();
    let event = format!("evt_{}", Uuid::now_v7().simple());
    let body = json!({
        "id": event,
        "object": "event",
        "type": "invoice.paid",
        "created": now.as_second(),
        "livemode": false,
        "data": {"object": {"id": "in_demo", "object": "invoice", "amount_paid": 1999, "currency": "eur"}},
    });
    let body = serde_json::to_vec(&body).unwrap_or_default();
    let path = format!("/webhooks/{SOURCE}");
    let headers = stripe_headers(&path, &files.memory.provider_secret, &event, &body, now)?;
    let provider = Client::new(ready.api("IngressApi")?, Proof::None)?;
    // Remembered first: what is sent can be found again.
    files.memory.last_event = Some(event.clone());
    files.save()?;
    let clock = std::time::Instant::now();
    let answer = provider.call(Method::POST, &path, headers, body.into()).await?;
    Ok(Sent { event, at: now, status: answer.status.as_u16(), took: clock.elapsed() })
}

fn stripe_headers(
    url: &str,
    secret: &str,
    event: &str,
    body: &[u8],
    now: Timestamp,
) -> Result<HeaderMap, Complaint> {
    let fail = |why: String| {
        Complaint::new(
            "the demo's event cannot be signed",
            why,
            "remove the state folder and start again",
        )
    };
    let scheme = Scheme::preset("stripe").ok_or_else(|| fail("no such scheme".to_owned()))?;
    let key = SigningKey::parse(&scheme, &Secret::new(secret)).map_err(|e| fail(e.to_string()))?;
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::USER_AGENT, HeaderValue::from_static("Stripe/1.0 (postern demo)"));
    let outgoing = sign::Outgoing {
        method: "POST",
        url,
        headers,
        id: Some(event),
        event_type: Some("invoice.paid"),
        body,
    };
    sign::sign_as(&scheme, &key, &outgoing, now).map_err(|error| fail(error.to_string()))
}
