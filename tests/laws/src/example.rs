//! Requests that the providers' own libraries signed, and what these libraries say of them: `tests/vectors/*.json`.

use std::{fs, path::Path};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{HeaderMap, HeaderName, HeaderValue};
use jiff::Timestamp;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use signing::{Key, Rejected, Request, Scheme, Secret, Trust, Verified, verify};

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
    /// The id of the event.
    pub event_id: Option<String>,
    /// The answer to a handshake.
    pub response: Option<Value>,
    /// What else belongs to the case.
    pub params: Value,
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
                "ok" => Expected::Accepted,
                "either" => Expected::Either,
                class => {
                    let is_known = case["any_reject"] != true && !is_policy;
                    Expected::Refused(is_known.then(|| class.to_owned()))
                }
            },
            event_id: case["event_id"].as_str().map(ToOwned::to_owned),
            response: Some(case["expect_response"].clone()).filter(|value| !value.is_null()),
            params: case["params"].clone(),
        }
    }

    /// The scheme that judges it, as it ships.
    pub fn scheme(&self) -> Option<Scheme> {
        Scheme::preset(&self.provider)
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
        let secrets = case.secrets.iter().map(|secret| Secret::new(secret.as_str()));
        let keys =
            secrets.filter_map(|secret| Key::parse(&scheme, "k", &secret).ok()).collect::<Vec<_>>();
        let mut example = Example { scheme, keys, case, id: None };
        let Ok(verified) = example.judge() else { continue };
        let id = verified.into_identity().id;
        example.id = id;
        examples.push(example);
    }
    examples
}

impl Example {
    /// The request, as it stands now.
    pub fn request(&self) -> Request<'_> {
        let Case { method, url, headers, body, .. } = &self.case;
        Request { method, url, headers, body, path_secret: None }
    }

    /// The verdict on the request, as it stands now.
    ///
    /// # Errors
    /// As [`verify`] has them.
    pub fn judge(&self) -> Result<Verified<'_>, Rejected> {
        verify(&self.scheme, &self.keys, &self.request(), self.case.now)
    }

    /// Whether every byte of the body is signed.
    pub fn signs_body(&self) -> bool {
        self.scheme.trust() == Trust::Signed
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
