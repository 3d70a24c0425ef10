//! The demo: a provider, a source, a tenant and an endpoint that need nothing from outside.

use std::{
    fs::{self, DirBuilder},
    os::unix::fs::DirBuilderExt as _,
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
#[derive(Deserialize, Serialize)]
struct Memory {
    provider_secret: String,
    source_made: bool,
    /// The subscriber's port, which it takes again if it can.
    port: Option<u16>,
    /// The subscriber's endpoint, once it is made.
    endpoint: Option<KnownEndpoint>,
    last_event: Option<String>,
}

#[derive(Clone, Deserialize, Serialize)]
struct KnownEndpoint {
    /// Where it is; its path is not known to any endpoint that was made without an answer.
    url: String,
    id: String,
    secret: String,
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
                format!("remove the folder {} to start from nothing", state.display()),
            )
        };
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
        made.map_err(|error| broken(error.to_string()))?;
        let file = folder.join("demo.json");
        let memory = match fs::read(&file) {
            // Not the parser's words: it may quote a secret.
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map_err(|_| broken("demo.json is not what an earlier start wrote".to_owned()))?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Memory {
                provider_secret: format!("whsec_{}", hex::encode(rand::random::<[u8; 24]>())),
                source_made: false,
                port: None,
                endpoint: None,
                last_event: None,
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

    /// The subscriber's port of the last start.
    pub(super) fn port(&self) -> Option<u16> {
        self.memory.port
    }

    /// The id of the subscriber's endpoint.
    pub(super) fn endpoint_id(&self) -> String {
        self.memory.endpoint.as_ref().map(|known| known.id.clone()).unwrap_or_default()
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
        make_source(&api, &files.memory.provider_secret).await?;
        files.memory.source_made = true;
        files.save()?;
    }
    let here = subscriber.origin();
    let known = files.memory.endpoint.clone();
    match known.filter(|known| known.url.starts_with(&format!("{here}/"))) {
        Some(known) => subscriber.trust(&known.url, &known.secret)?,
        None => {
            let known = make_endpoint(&api, &here).await?;
            subscriber.trust(&known.url, &known.secret)?;
            files.memory.endpoint = Some(known);
            files.memory.port = Some(subscriber.port());
            files.save()?;
        }
    }
    match files.memory.last_event.clone() {
        Some(event) => Ok(Some(earlier(&api, event).await?)),
        None => Ok(None),
    }
}

async fn make_source(api: &Client, secret: &str) -> Result<(), Complaint> {
    let source = json!({
        "name": SOURCE,
        "scheme": {"preset": "stripe"},
        "handler": {"kind": "forward", "tenant": TENANT},
        "secrets": {"1": secret},
    });
    let answer = api.post_raw("/v1/sources", &source).await?;
    // Made by a start that died before it could remember.
    if answer.status == http::StatusCode::CONFLICT {
        return Ok(());
    }
    api.good("/v1/sources", &answer).map(drop)
}

/// Makes an endpoint under a path of its own. One that was made by a start that died before it learnt the secret has
/// another path; the subscriber answers there that it is gone.
async fn make_endpoint(api: &Client, here: &str) -> Result<KnownEndpoint, Complaint> {
    let url = format!("{here}/webhooks/{}", hex::encode(rand::random::<[u8; 8]>()));
    let path = format!("/v1/tenants/{TENANT}/endpoints");
    let made = api.post(&path, &json!({"url": url, "patterns": []})).await?;
    let text = |name: &str| made.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    Ok(KnownEndpoint { url, id: text("id"), secret: text("secret") })
}

async fn earlier(api: &Client, event: String) -> Result<Earlier, Complaint> {
    let path = format!("/v1/sources/{SOURCE}/events/{}", segment(&event));
    let answer = api.call(Method::GET, &path, HeaderMap::new(), bytes::Bytes::new()).await?;
    // It was remembered before it was sent, and that start died in between.
    let status = if answer.status == http::StatusCode::NOT_FOUND {
        "not here: it was never accepted".to_owned()
    } else {
        crate::print::text(&api.good(&path, &answer)?, "status")
    };
    Ok(Earlier { event, status })
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
    if answer.status == http::StatusCode::UNAUTHORIZED {
        return Err(Complaint::new(
            "the demo's source does not know the demo's provider",
            "the source was made with another secret: the demo's files are of another state folder, or were removed",
            "remove the whole state folder to start from nothing",
        ));
    }
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_demos_files_are_private_and_stay_the_same() {
        let outer = tempfile::tempdir().unwrap();
        let state = outer.path().join(".postern");
        let secret = Files::open(&state).unwrap().memory.provider_secret;
        let files = Files::open(&state).unwrap();
        assert_eq!(files.memory.provider_secret, secret);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&state), 0o700);
        let demo = state.join("demo/demo.json");
        let kept = [files.key_file(), files.certificate_file(), demo];
        assert_eq!(kept.map(|file| mode(&file)), [0o600; 3]);
    }

    /// SEC-secret-in-output
    #[test]
    fn files_that_cannot_be_used_are_named_and_not_quoted() {
        let outer = tempfile::tempdir().unwrap();
        let state = outer.path().join(".postern");
        Files::open(&state).unwrap();
        fs::write(state.join("demo/demo.json"), r#"{"provider_secret":["CANARY"]}"#).unwrap();
        let Err(complaint) = Files::open(&state) else { panic!("it opens") };
        let text = complaint.to_string();
        assert!(text.contains("demo.json") && text.contains("remove the folder"), "{text}");
        assert!(!text.contains("CANARY"), "{text}");

        let file = outer.path().join("file");
        fs::write(&file, "").unwrap();
        let Err(complaint) = Files::open(&file) else { panic!("it opens") };
        assert!(complaint.to_string().contains("the demo's files cannot be used"));
    }
}
