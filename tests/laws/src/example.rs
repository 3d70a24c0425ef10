//! Requests that the providers' own libraries signed, and what these libraries say of them: `tests/vectors/*.json`.

use std::{collections::BTreeMap, fs, path::Path};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{HeaderMap, HeaderName, HeaderValue};
use jiff::Timestamp;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use signing::{Key, Rejected, Request, Scheme, Secret, Trust, Verified, scheme::Verifier, verify};

/// One request with its verdict.
#[derive(Clone, Debug)]
pub struct Case {
    /// Whose it is.
    pub provider: String,
    /// What it is about; unique for each provider.
    pub name: String,
    /// In capitals.
    pub method: String,
    /// As the provider has it configured.
    pub url: String,
    /// As they were sent, repeats included.
    pub headers: HeaderMap,
    /// The bytes that were sent.
    pub body: Vec<u8>,
    /// All that are active.
    pub secrets: Vec<String>,
    /// The clock of the receiver.
    pub now: Timestamp,
    /// What a careful receiver says.
    pub expected: Expected,
    /// The id of the event; `None` where the file knows of none. Of a batch it is some id in it.
    pub event_id: Option<String>,
    /// The answer to a handshake.
    pub response: Option<Value>,
    /// What the provider publishes: keys and certificates by their ids.
    pub published: BTreeMap<String, String>,
    preset: String,
}

/// What a careful receiver says of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Yes.
    Accepted,
    /// No; with the class of the refusal where it is known.
    Refused(Option<String>),
    /// Both are fine.
    Either,
}

/// The cases of all files, in the order of their names.
pub fn cases() -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../vectors");
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    files.sort();
    let read = |path| serde_json::from_slice::<Vec<Value>>(&fs::read(path).unwrap()).unwrap();
    files.into_iter().flat_map(read).map(|case| Case::read(&case)).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

fn bytes(base64: &Value) -> Vec<u8> {
    STANDARD.decode(base64.as_str().unwrap()).unwrap()
}

fn body(case: &Value) -> Vec<u8> {
    let Some(recipe) = case.get("body_recipe") else { return bytes(&case["body_base64"]) };
    let count = usize::try_from(recipe["count"].as_u64().unwrap()).unwrap();
    let [prefix, repeat, suffix] =
        ["prefix_base64", "repeat_base64", "suffix_base64"].map(|part| bytes(&recipe[part]));
    let body = [prefix, repeat.repeat(count), suffix].concat();
    assert_eq!(hex::encode(Sha256::digest(&body)), text(&recipe["sha256"]));
    body
}

/// Keys and certificates that belong to a case, by their ids.
fn published(params: &Value) -> BTreeMap<String, String> {
    let all = ["keys", "certs"].into_iter().filter_map(|kind| params[kind].as_object()).flatten();
    all.map(|(id, key)| (id.clone(), text(key))).collect()
}

/// Some providers have two schemes in one file.
fn preset(case: &Value) -> String {
    let provider = text(&case["provider"]);
    match provider.as_str() {
        "adyen" if case["params"]["kind"] == "platform" => "adyen_platform".to_owned(),
        "discord" if case["name"] == "valid_ping_must_answer_pong" => {
            "discord_interactions".to_owned()
        }
        _ => provider,
    }
}

impl Case {
    fn read(case: &Value) -> Self {
        let header = |pair: &Value| {
            let name = HeaderName::try_from(pair[0].as_str().unwrap()).unwrap();
            (name, HeaderValue::from_bytes(pair[1].as_str().unwrap().as_bytes()).unwrap())
        };
        let mut headers = HeaderMap::new();
        for (name, value) in case["headers"].as_array().unwrap().iter().map(header) {
            headers.append(name, value);
        }
        let is_policy = case["tier"] == "policy";
        let may_be_refused = case["note"].as_str().is_some_and(|note| note.ends_with("or refused"));
        let expected = &case[if is_policy { "recommended_expect" } else { "expect" }];
        Self {
            provider: text(&case["provider"]),
            name: text(&case["name"]),
            method: text(&case["method"]),
            url: text(&case["url"]),
            headers,
            body: body(case),
            secrets: case["secrets"].as_array().unwrap().iter().map(text).collect(),
            now: Timestamp::from_second(case["now"].as_i64().unwrap()).unwrap(),
            expected: match expected.as_str().unwrap() {
                "either" => Expected::Either,
                "ok" if may_be_refused => Expected::Either,
                "ok" => Expected::Accepted,
                class => {
                    let is_known = case["any_reject"] != true && !is_policy;
                    Expected::Refused(is_known.then(|| class.to_owned()))
                }
            },
            event_id: case["event_id"].as_str().map(ToOwned::to_owned),
            response: Some(case["expect_response"].clone()).filter(|value| !value.is_null()),
            published: published(&case["params"]),
            preset: preset(case),
        }
    }

    /// The name of the scheme that judges it.
    pub fn preset(&self) -> &str {
        &self.preset
    }

    /// The scheme that judges it, as it ships.
    pub fn scheme(&self) -> Option<Scheme> {
        Scheme::preset(&self.preset)
    }

    /// What its secrets are called. The last one has the name that a handshake of the scheme asks for, if one does.
    pub fn secret_ids(&self) -> Vec<String> {
        let mut ids: Vec<_> = (0..self.secrets.len()).map(|index| format!("k{index}")).collect();
        let scheme = self.scheme().map(|scheme| serde_json::to_value(scheme).unwrap());
        let handshakes = scheme.as_ref().and_then(|scheme| scheme["handshake"].as_array());
        let asked = |handshake: &Value| handshake["proof"]["secret"].as_str().map(str::to_owned);
        if let (Some(last), Some(asked)) = (
            ids.get_mut(1..).and_then(<[_]>::last_mut),
            handshakes.into_iter().flatten().find_map(asked),
        ) {
            *last = asked;
        }
        ids
    }

    /// Whether the provider asks or tells something, and brings no event.
    pub fn is_handshake(&self) -> bool {
        const WORDS: [&str; 6] = [
            "handshake",
            "challenge",
            "hook_secret",
            "probe",
            "ping_must_answer",
            "subscription_confirmation",
        ];
        WORDS.iter().any(|word| self.name.contains(word))
    }

    /// The request.
    pub fn request(&self) -> Request<'_> {
        let Self { method, url, headers, body, .. } = self;
        Request { method, url, headers, body, path_secret: None }
    }

    /// All keys, as `ingress` would have them.
    pub fn keys(&self, scheme: &Scheme) -> Vec<Key> {
        let secrets = self.secret_ids().into_iter().zip(&self.secrets);
        let secrets = secrets
            .filter_map(|(id, secret)| Key::parse(scheme, id, &Secret::new(secret.as_str())).ok());
        let published =
            self.published.iter().filter_map(|(id, text)| Key::published(scheme, id, text).ok());
        secrets.chain(published).collect()
    }
}

/// A request that is right, with all that is needed to judge what becomes of it.
#[derive(Clone, Debug)]
pub struct Example {
    /// How it is verified.
    pub scheme: Scheme,
    /// Its keys.
    pub keys: Vec<Key>,
    /// The request and its clock.
    pub case: Case,
    /// The id of the event, as it is read of the untouched request.
    pub id: Option<String>,
    /// The hash of what is signed of the untouched request.
    pub signed_hash: [u8; 32],
}

/// For each scheme with cases two small requests that are right. Files come and go: an input of the corpus must not mean
/// another scheme after that, so that each is found by a hash of its name.
pub fn examples() -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    for case in cases() {
        let of_provider = examples.iter().filter(|example| example.case.provider == case.provider);
        if case.expected != Expected::Accepted || case.body.len() > 2000 || of_provider.count() == 2
        {
            continue;
        }
        let Some(scheme) = case.scheme() else { continue };
        let keys = case.keys(&scheme);
        let mut example = Example { scheme, keys, case, id: None, signed_hash: [0; 32] };
        let Ok(verified) = example.judge() else { continue };
        (example.signed_hash, example.id) = (verified.signed_hash(), verified.into_identity().id);
        examples.push(example);
    }
    examples
}

impl Example {
    /// The verdict on the request, as it stands now.
    ///
    /// # Errors
    /// As [`verify`] has them.
    pub fn judge(&self) -> Result<Verified<'_>, Rejected> {
        verify(&self.scheme, &self.keys, &self.case.request(), self.case.now)
    }

    /// Whether every byte of the body is signed. Twilio and Braintree sign what a form says, however it is spelled.
    pub fn signs_body(&self) -> bool {
        let signs_meaning =
            matches!(self.scheme.verifier(), Some(Verifier::Twilio | Verifier::Braintree));
        self.scheme.trust() == Trust::Signed && !signs_meaning
    }

    /// Headers that carry the signature or are covered by it, as far as the request has them once.
    pub fn signed_headers(&self) -> Vec<HeaderName> {
        let source = serde_json::to_value(&self.scheme).unwrap();
        let places =
            [&source["signature"]["from"], &source["timestamp"]["from"], &source["signed"]]
                .map(Value::to_string)
                .concat();
        let covered = |name: &&HeaderName| {
            places.contains(name.as_str()) && self.case.headers.get_all(*name).iter().count() == 1
        };
        self.case.headers.keys().filter(covered).cloned().collect()
    }
}
