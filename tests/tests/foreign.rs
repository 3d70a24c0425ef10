//! Parties that nobody here wrote. The providers' own libraries sign at the present time, and the running ingress accepts
//! it and refuses whatever differs; the public libraries of Standard Webhooks verify what our deliverer sent.
//!
//! Most libraries sign, be it for the tests of their users. Some only verify: then `tests/foreign/` signs as they verify,
//! and both must say the same of every request. The names of the tests tell which is which.
//!
//! The libraries are installed on first use, in the versions that `tests/foreign/` names. Where Python or Node, or what
//! they would install, cannot be had, these tests say so and pass; with `POSTERN_REQUIRE_ALL=1` they fail instead.

#[path = "foreign/change.rs"]
mod change;
#[path = "foreign/library.rs"]
mod library;
#[path = "foreign/ours.rs"]
mod ours;
#[path = "foreign/parties.rs"]
mod parties;
#[path = "foreign/party.rs"]
mod party;

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail, ensure};
use change::Change;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use jiff::{SignedDuration, Timestamp};
use library::{Call, Language, Library};
use party::Party;
use serde_json::json;
use signing::{Scheme, Secret, SigningKey, sign};
use tests::{client::Answer, host::Host, now};

/// What providers call; the gateway tells the function so.
const ORIGIN: &str = "https://hooks.example.test";

/// Old beyond every tolerance.
const LONG: SignedDuration = SignedDuration::from_hours(2);

/// A request of this party at `at`, not yet signed.
fn request(party: &Party, secret: &str, at: Timestamp) -> Call {
    let (seconds, millis) = (at.as_second().to_string(), at.as_millisecond().to_string());
    let headers = party.headers.iter();
    Call {
        secret: party.secret(secret),
        id: "evt_1".to_owned(),
        at: at.as_millisecond(),
        method: "POST",
        url: format!("{ORIGIN}{}", party.path()),
        headers: headers.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        body: party.body.replace("{s}", &seconds).replace("{ms}", &millis),
    }
}

/// The library's signature of a request with this change, made now.
fn signed(party: &Party, library: &mut Library, change: Change) -> Result<Call> {
    let good = request(party, party.source, now());
    match change {
        Change::Old => library.sign(&request(party, party.source, now() - LONG)),
        Change::Secret => {
            let stranger = library.sign(&request(party, "somebody else", now()))?;
            // Judged by what the receiver holds.
            Ok(Call { secret: library.sign(&good)?.secret, ..stranger })
        }
        change => change.apply(party, &library.sign(&good)?),
    }
}

async fn send(host: &Host, call: &Call) -> Result<Answer> {
    let mut headers = HeaderMap::new();
    headers.insert("host", HeaderValue::try_from(ORIGIN.trim_start_matches("https://"))?);
    for (name, value) in &call.headers {
        headers.insert(HeaderName::try_from(name)?, HeaderValue::try_from(value)?);
    }
    let path = call.url.strip_prefix(ORIGIN).context("an address of ours")?;
    host.ingress()?.call(Method::POST, path, headers, call.body.clone().into()).await
}

/// The ids of the requests that are stored for a source.
async fn stored(host: &Host, source: &str) -> Result<Vec<String>> {
    let (rows, start) = (host.aws()?.items("InboxTable").await?, format!("{source}#"));
    let requests = rows.iter().filter(|row| row.text("sk") == Some("EVENT"));
    let requests = requests.filter(|row| row.text("parent").is_none());
    let ids = requests.filter_map(|row| row.text("pk")?.strip_prefix(start.as_str()));
    Ok(ids.map(str::to_owned).collect())
}

/// What a party's library signs now is accepted and stored; with anything changed it is refused, and nothing is. The
/// library agrees about every request.
async fn is_believed(party: &Party) -> Result<()> {
    if !party.language.is_there()? {
        return Ok(());
    }
    let who = party.source;
    let (host, mut library) =
        (Host::shared().await?, Library::load(party.language, party.library)?);
    let good = library.sign(&request(party, who, now()))?;
    let url = format!("{ORIGIN}{}", party.path());
    let source = json!({
        "name": who,
        "scheme": party.scheme(&url),
        "handler": { "kind": "forward", "tenant": who },
        "secrets": { "1": good.secret },
    });
    host.api()?.add_source(&source).await?;

    for change in Change::all(party) {
        let call = signed(party, &mut library, change)?;
        let objection = library.objects_to(&call)?;
        let may_pass = change == Change::Old && party.takes_old;
        assert_eq!(objection.is_none(), may_pass, "{who}'s library, of a request {change}");
        let answer = send(&host, &call).await?;
        assert_eq!(answer.code(), 401, "{who}, {change}: {answer:?}");
    }
    assert_eq!(stored(&host, who).await?, Vec::<String>::new(), "{who}: refused, and yet stored");

    let good = library.sign(&request(party, who, now()))?;
    // Sent twice, as providers do.
    for _ in 0..2 {
        let answer = send(&host, &good).await?;
        assert!(answer.status.is_success(), "{who}: {answer:?}");
    }
    assert_eq!(library.objects_to(&good)?, None, "{who}'s library, of its own signature");
    let ids = stored(&host, who).await?;
    let [id] = ids.as_slice() else { bail!("{who} is stored as {ids:?}") };
    assert!(party.id.is_none_or(|expected| expected == id), "{who} is stored as {id}");
    let story = host.api()?.story(who, id).await?;
    assert_eq!(story.0.get("body_bytes"), Some(&json!(good.body.len())), "{who}: {}", story.0);

    if party.is_ours {
        ours_is_believed(party, &mut library)?;
    }
    Ok(())
}

/// What our own tools sign in a party's name, its library believes: other suites stand on it.
fn ours_is_believed(party: &Party, library: &mut Library) -> Result<()> {
    let at = now();
    let mut call = request(party, party.source, at);
    let scheme = party.scheme(&call.url);
    let scheme = match scheme.get("own") {
        Some(own) => Scheme::from_value(own.clone())?,
        None => Scheme::preset(party.preset).context("the preset ships")?,
    };
    let key = SigningKey::parse(&scheme, &Secret::new(call.secret.clone()))?;
    let mut headers = HeaderMap::new();
    for (name, value) in &call.headers {
        headers.insert(HeaderName::try_from(name)?, HeaderValue::try_from(value)?);
    }
    let (url, body) = (call.url.as_str(), call.body.as_bytes());
    let id = Some(call.id.as_str());
    let outgoing = sign::Outgoing { method: "POST", url, headers, id, event_type: None, body };
    let headers = sign::sign_as(&scheme, &key, &outgoing, at)?;
    let headers = headers
        .iter()
        .map(|(name, value)| Ok((name.as_str().to_owned(), value.to_str()?.to_owned())));
    call.headers = headers.collect::<Result<_>>()?;
    let who = party.source;
    assert_eq!(library.objects_to(&call)?, None, "{who}'s library, of our signature");
    let tampered = Change::Body.apply(party, &call)?;
    assert!(library.objects_to(&tampered)?.is_some(), "{who}'s library, of our signature");
    Ok(())
}

macro_rules! parties {
    ($($name:ident: $party:ident;)+) => {$(
        /// L14, L17
        #[tokio::test]
        async fn $name() -> anyhow::Result<()> {
            crate::is_believed(&crate::parties::$party).await
        }
    )+};
}

mod the_library_signs_and_is_believed {
    parties! {
        adyen_payments_in_python: ADYEN;
        adyen_platform_in_python: ADYEN_PLATFORM;
        braintree_in_node: BRAINTREE;
        coinbase_commerce_in_python: COINBASE_COMMERCE;
        contentful_in_node: CONTENTFUL;
        github_in_node: GITHUB;
        hubspot_v1_in_node: HUBSPOT_V1;
        hubspot_v2_in_node: HUBSPOT_V2;
        hubspot_v3_in_node: HUBSPOT_V3;
        livekit_in_node: LIVEKIT;
        notion_in_node: NOTION;
        sanity_in_node: SANITY;
        shopify_in_node: SHOPIFY;
        slack_in_python: SLACK;
        standard_webhooks_in_node: STANDARD_NODE;
        standard_webhooks_in_python: STANDARD_PYTHON;
        stripe_in_node: STRIPE_NODE;
        stripe_in_python: STRIPE_PYTHON;
        svix_in_node: SVIX_NODE;
        svix_in_python: SVIX_PYTHON;
        twilio_forms_in_node: TWILIO_FORM;
        twilio_json_in_node: TWILIO_JSON;
        workos_in_node: WORKOS;
    }
}

/// Their libraries have no signer for these keys; what signs is the cryptography that they verify with.
mod the_library_verifies_and_its_own_cryptography_signs {
    parties! {
        discord_in_node: DISCORD;
        sendgrid_in_node: SENDGRID;
    }
}

mod the_library_only_verifies_and_agrees_with_us {
    parties! {
        gocardless_in_python: GOCARDLESS;
        linear_in_node: LINEAR;
        openai_in_node: OPENAI;
        paddle_in_node: PADDLE;
        razorpay_in_node: RAZORPAY;
        replicate_in_node: REPLICATE;
        resend_in_node: RESEND;
        square_in_python: SQUARE;
        zoom_in_node: ZOOM;
    }
}

/// The public library of Standard Webhooks verifies what the deliverer sent, and refuses it with a byte changed.
async fn our_webhooks_are_believed(
    language: Language,
    library: &'static str,
    tenant: &str,
) -> Result<()> {
    if !language.is_there()? {
        return Ok(());
    }
    let host = Host::shared().await?;
    let (api, subscriber) = (host.api()?, host.subscriber().await?);
    let endpoint = api.endpoint(tenant, &subscriber.url()).await?;
    for payload in [r#"{"n":1.0, "name":"Zo\u00eb ☃"}"#, "[]"] {
        let event =
            format!(r#"{{"tenant":"{tenant}","type":"t","aggregate_id":"a","payload":{payload}}}"#);
        let id = api.publish(&event, None).await?.text("/id")?;
        api.until_outgoing(tenant, &id, "succeeded").await?;
    }
    let mut library = Library::load(language, library)?;
    let seen = subscriber.seen();
    ensure!(seen.len() == 2, "{} webhooks came", seen.len());
    for seen in seen {
        // All headers, as a framework would hand them over.
        let names = seen.headers.keys().map(|name| name.to_string());
        let headers: BTreeMap<_, _> =
            names.map(|name| (name.clone(), seen.header(&name).to_owned())).collect();
        let body = String::from_utf8(seen.body.to_vec())?;
        let call = Call {
            secret: endpoint.secret.clone(),
            id: seen.id().to_owned(),
            at: seen.at.as_millisecond(),
            method: "POST",
            url: subscriber.url(),
            headers,
            body,
        };
        assert_eq!(library.objects_to(&call)?, None, "{call:?}");
        let tampered = Call { body: format!("{} ", call.body), ..call };
        assert!(library.objects_to(&tampered)?.is_some(), "{tampered:?}");
    }
    Ok(())
}

/// L17
#[tokio::test]
async fn standard_webhooks_library_for_node_believes_our_webhooks() -> Result<()> {
    our_webhooks_are_believed(Language::Node, "standardwebhooks", "standard-node").await
}

/// L17
#[tokio::test]
async fn standard_webhooks_library_for_python_believes_our_webhooks() -> Result<()> {
    our_webhooks_are_believed(Language::Python, "standardwebhooks", "standard-python").await
}

/// L17
#[tokio::test]
async fn svix_library_for_node_believes_our_webhooks() -> Result<()> {
    our_webhooks_are_believed(Language::Node, "svix", "svix-node").await
}

/// L17
#[tokio::test]
async fn svix_library_for_python_believes_our_webhooks() -> Result<()> {
    our_webhooks_are_believed(Language::Python, "svix", "svix-python").await
}
