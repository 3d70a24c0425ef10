//! Both sides of a secret, and the schemes that requests can be signed for: what the suites share.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue};
use jiff::Timestamp;
use serde_json::{Value, json};
use signing::scheme::Algorithm;
use signing::sign::{Outgoing, SignError, sign_as};
use signing::{EndpointSecret, Key, Scheme, Secret, SigningKey, preset_names};

/// Two key pairs of the curve P-256, private (PKCS#8) and public, made for these tests.
const P256: [(&str, &str); 2] = [
    (
        "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgisQVdznb5Si7ZyhmMdggUytgojO4JuPHFK94pzdI85GhRANCAARHh+kowY1LA2nfissQVL0F1+Rrjy11v6DDUIepJPDWNLjFZLPbpqiHPCuJuzWZIF7eju93eOVNJitHNA3qNmJN",
        "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAER4fpKMGNSwNp34rLEFS9Bdfka48tdb+gw1CHqSTw1jS4xWSz26aohzwribs1mSBe3o7vd3jlTSYrRzQN6jZiTQ==",
    ),
    (
        "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQglPSjODxAWfJ3h47MRkTvEDXrENT4/+s67mXWEF2YpFyhRANCAAT6gF6OD7wLsOaGcGhC48Dbp+qaxlLmbxTZ3SJvEmszM7FbQ6fK3ee4k4s+MHs1vsfE9pr4v50PPx7aGBM22+Ei",
        "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE+oBejg+8C7DmhnBoQuPA26fqmsZS5m8U2d0ibxJrMzOxW0Onyt3nuJOLPjB7Nb7HxPaa+L+dDz8e2hgTNtvhIg==",
    ),
];
/// What stands before the 32 bytes of an Ed25519 key.
const ED25519_SPKI: &str = "302a300506032b6570032100";
const KEY_ID: &str = "879dc113-5ca4-4ff7-a6b7-54652083fcf8";

/// A scheme that requests can be signed for.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) name: String,
    pub(crate) scheme: Scheme,
}

/// Every preset whose requests can be made by `sign_as`, and schemes for what no preset has.
pub(crate) static SUBJECTS: LazyLock<Vec<Subject>> = LazyLock::new(|| {
    let presets = preset_names().map(|name| (name.to_owned(), configured(name)));
    let ours =
        ours().into_iter().map(|(name, json)| (name.into(), Scheme::from_value(json).unwrap()));
    presets
        .chain(ours)
        .filter(|(name, scheme)| can_be_made(name, scheme))
        .map(|(name, scheme)| Subject { name, scheme })
        .collect()
});

/// A preset with a value for everything that it wants from the configuration.
pub(crate) fn configured(name: &str) -> Scheme {
    let scheme = Scheme::preset(name).unwrap();
    let missing: serde_json::Map<String, Value> = scheme
        .missing_config()
        .into_iter()
        .map(|name| (name.to_owned(), json!("https://hooks.example/in")))
        .collect();
    let mut source = serde_json::to_value(&scheme).unwrap();
    if !missing.is_empty() {
        source["config"] = Value::Object(missing);
    }
    Scheme::from_value(source).unwrap()
}

fn ours() -> [(&'static str, Value); 8] {
    let signed = |algorithm: &str, signed: &str, encoding: &str| {
        json!({ "algorithm": algorithm, "signed": signed, "key": { "encoding": encoding },
            "signature": { "from": "{header:x-signature}" }, "timestamp": { "from": "{header:x-time}" } })
    };
    let mut places = signed("hmac-sha512", "{ts}{method}{url}{body}", "hex");
    places["signature"] = json!({ "from": ["{header:x-one}", "{header:x-two}"], "paired": true, "encoding": "base64url" });
    [
        ("our ecdsa", signed("ecdsa-p256-sha256", "{ts}.{body}", "spki-base64")),
        ("our ed25519", signed("ed25519", "{ts}.{body}", "spki-base64")),
        ("our hash", signed("sha256", "{ts}{body}{secret}", "base64")),
        ("our sha1", signed("hmac-sha1", "{ts}{header:x-one|x-time}{body}", "utf8")),
        ("our places", places),
        (
            "our list",
            signed("hmac-sha256", "{path-query}{url:hubspot}{signed-headers:x-list}{body}", "utf8"),
        ),
        ("our basic", json!({ "algorithm": "basic" })),
        (
            "our token",
            json!({ "algorithm": "token", "signature": { "from": "{header:x-token}", "prefix": "Bearer " } }),
        ),
    ]
}

fn can_be_made(name: &str, scheme: &Scheme) -> bool {
    if scheme.algorithm().is_none_or(|algorithm| algorithm == Algorithm::None) {
        return false;
    }
    let body = br#"{"id":"evt_1","webhookTimestamp":1760000000000}"#;
    let now = Timestamp::from_second(1_760_000_000).unwrap();
    match sign_as(scheme, &keys(scheme, [7; 32]).1, &outgoing(scheme, "msg_1", "a.b", body), now) {
        Ok(headers) => !headers.is_empty(),
        Err(SignError::InBody { .. }) => false,
        Err(error) => unreachable!("{name}: {error}"),
    }
}

/// A request that is still to be signed, with the header that names the key where the scheme has one.
pub(crate) fn outgoing<'a>(
    scheme: &Scheme,
    id: &'a str,
    event_type: &'a str,
    body: &'a [u8],
) -> Outgoing<'a> {
    let mut headers = HeaderMap::new();
    let source = serde_json::to_value(scheme).unwrap();
    if let Some(place) = source["key"]["lookup"]["id"].as_str() {
        let name = place.trim_start_matches("{header:").trim_end_matches('}');
        headers.insert(HeaderName::try_from(name).unwrap(), HeaderValue::from_static(KEY_ID));
    }
    Outgoing {
        method: "POST",
        url: "https://hooks.example/in",
        headers,
        id: Some(id),
        event_type: Some(event_type),
        body,
    }
}

/// The two sides of a secret, written as the scheme has it.
pub(crate) fn keys(scheme: &Scheme, seed: [u8; 32]) -> (Key, SigningKey) {
    let (verifying, signing) = secrets(scheme, seed);
    let key = match scheme.lookup() {
        Some(_) => Key::published(scheme, KEY_ID, verifying.expose()),
        None => Key::parse(scheme, "k1", &verifying),
    };
    (key.unwrap(), SigningKey::parse(scheme, &signing).unwrap())
}

/// What the receiver holds, and what the provider does.
pub(crate) fn secrets(scheme: &Scheme, seed: [u8; 32]) -> (Secret, Secret) {
    let source = serde_json::to_value(scheme).unwrap();
    let encoding = source["key"]["encoding"].as_str().unwrap_or("utf8");
    let shared = EndpointSecret::shared(seed).expose();
    match (scheme.algorithm(), encoding) {
        (Some(Algorithm::Ed25519), encoding) => pair(seed, encoding),
        (Some(Algorithm::EcdsaP256), _) => {
            let (private, public) = P256[usize::from(seed[0] & 1)];
            (Secret::new(public), Secret::new(private))
        }
        (Some(Algorithm::Basic), _) => {
            let secret = Secret::new(format!("user:{}", shared.expose()));
            (secret.clone(), secret)
        }
        (_, "hex") => (Secret::new(hex::encode(seed)), Secret::new(hex::encode(seed))),
        (_, "base64") if source["key"]["strip_prefix"] != "whsec_" => {
            (Secret::new(STANDARD.encode(seed)), Secret::new(STANDARD.encode(seed)))
        }
        _ => (shared.clone(), shared),
    }
}

fn pair(seed: [u8; 32], encoding: &str) -> (Secret, Secret) {
    let pair = EndpointSecret::pair(seed);
    let text = pair.public_key().unwrap();
    let public = STANDARD.decode(text.strip_prefix("whpk_").unwrap()).unwrap();
    match encoding {
        "hex" => (Secret::new(hex::encode(public)), Secret::new(hex::encode(seed))),
        "spki-base64" => {
            let spki = [hex::decode(ED25519_SPKI).unwrap(), public].concat();
            (Secret::new(STANDARD.encode(spki)), pair.expose())
        }
        _ => (Secret::new(text), pair.expose()),
    }
}

/// The headers in which the scheme has signatures.
pub(crate) fn signature_headers(scheme: &Scheme) -> Vec<HeaderName> {
    let source = serde_json::to_value(scheme).unwrap();
    let from = match &source["signature"]["from"] {
        Value::Null => return vec![http::header::AUTHORIZATION],
        Value::Array(places) => places.clone(),
        place => vec![place.clone()],
    };
    from.iter()
        .flat_map(|place| {
            place.as_str().unwrap().trim_start_matches("{header:").trim_end_matches('}').split('|')
        })
        .map(|name| HeaderName::try_from(name).unwrap())
        .collect()
}
