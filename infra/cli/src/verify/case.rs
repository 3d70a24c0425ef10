//! Cases as files hold them.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue};
use jiff::Timestamp;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use signing::{Scheme, Secret};

use crate::complaint::{Complaint, printable};

/// More than any gateway lets through; a recipe that makes more is a mistake or a trap.
const MOST_BYTES: usize = 64 * 1024 * 1024;

/// One request with everything needed to judge it. Fields that it does not know it passes over.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Case {
    #[serde(skip)]
    pub(super) at: String,
    /// Set if a field has the wrong kind of value. Only then a complaint when the case is one that we would judge: files of
    /// other providers may have fields of other shapes.
    #[serde(skip)]
    pub(super) broken: Option<Complaint>,
    #[serde(default)]
    pub(super) name: Option<String>,
    #[serde(default)]
    pub(super) provider: Option<String>,
    #[serde(default)]
    pub(super) secrets: Option<Vec<Secret>>,
    #[serde(default)]
    pub(super) method: Option<String>,
    #[serde(default)]
    pub(super) url: Option<String>,
    /// The last segment of a secret address.
    #[serde(default)]
    pub(super) path_secret: Option<String>,
    #[serde(default)]
    headers: Option<Vec<(String, String)>>,
    #[serde(default)]
    body_base64: Option<String>,
    #[serde(default)]
    body_recipe: Option<Recipe>,
    #[serde(default)]
    now: Option<i64>,
    #[serde(default)]
    pub(super) expect: Option<String>,
    #[serde(default)]
    pub(super) recommended_expect: Option<String>,
    #[serde(default)]
    pub(super) tier: Option<String>,
    #[serde(default)]
    pub(super) any_reject: Option<bool>,
    /// `None`: the case does not say; `Some(None)`: there is none.
    #[serde(default, deserialize_with = "said")]
    pub(super) event_id: Option<Option<String>>,
    #[serde(default, deserialize_with = "said")]
    pub(super) event_type: Option<Option<String>>,
    #[serde(default)]
    params: Option<Params>,
    #[serde(default)]
    pub(super) expect_response: Option<ExpectedResponse>,
    /// What the provider's own libraries said of the case.
    #[serde(default)]
    sdk_verdicts: Option<Map<String, Value>>,
}

/// What else it takes to judge the case; fields of other kinds of value mean something to others.
#[derive(Debug, Default, Deserialize)]
struct Params {
    #[serde(default)]
    kind: Option<Value>,
    #[serde(default)]
    keys: Option<Value>,
    #[serde(default)]
    certs: Option<Value>,
    #[serde(default)]
    config: Option<Value>,
}

/// What ought to go back to the provider.
#[derive(Debug, Default, Deserialize)]
pub(super) struct ExpectedResponse {
    #[serde(default)]
    pub(super) status: Option<u16>,
    #[serde(default)]
    pub(super) body: Option<String>,
    #[serde(default)]
    pub(super) body_contains: Option<String>,
    #[serde(default)]
    pub(super) json: Option<Value>,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
}

/// A large body in few words.
#[derive(Debug, Deserialize)]
struct Recipe {
    #[serde(default)]
    prefix_base64: String,
    #[serde(default)]
    repeat_base64: String,
    #[serde(default)]
    count: usize,
    #[serde(default)]
    suffix_base64: String,
    #[serde(default)]
    sha256: Option<String>,
}

fn said<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(from).map(Some)
}

/// Reads the cases of a file: one object, or a list of them. A case that cannot be read does not hide the others.
pub(super) fn read(path: &Path) -> Result<Vec<Result<Case, Complaint>>, Complaint> {
    let text = contents(path)?;
    let file = shown(path);
    let unreadable = |why: String| {
        let next = "A file holds one case, or a list of cases: objects with provider, secrets, headers, body_base64, now.";
        Complaint::new(format!("{file} cannot be read as cases"), why, next)
    };
    let value: Value = serde_json::from_slice(&text).map_err(|error| {
        unreadable(format!("it is not JSON (line {}, column {})", error.line(), error.column()))
    })?;
    let values = match value {
        Value::Array(values) => values,
        one @ Value::Object(_) => vec![one],
        _ => return Err(unreadable("it is neither an object nor a list".into())),
    };
    Ok(values.into_iter().enumerate().map(|(index, value)| one(value, &file, index)).collect())
}

fn one(value: Value, file: &str, index: usize) -> Result<Case, Complaint> {
    let name = value.get("name").and_then(Value::as_str).map(printable);
    let at = match name {
        Some(name) => format!("{file}: {name}"),
        None => format!("{file}: case {}", index + 1),
    };
    let why = "a field does not have the kind of value that it should (its content may be secret and is not shown)";
    let next = "secrets: list of texts; headers: list of [name, value]; body_base64: text; now: whole number of seconds.";
    let complaint = Complaint::new(format!("{at}: this is not a case"), why, next);
    if !value.is_object() {
        return Err(complaint);
    }
    let provider = value.get("provider").and_then(Value::as_str).map(ToOwned::to_owned);
    Ok(match serde_json::from_value::<Case>(value) {
        Ok(case) => Case { at, ..case },
        Err(_) => Case { at, provider, broken: Some(complaint), ..Case::default() },
    })
}

/// Reads a scheme from a TOML or JSON file.
pub(super) fn read_scheme(path: &Path) -> Result<Scheme, Complaint> {
    let file = shown(path);
    let next = "Start from a preset with `like = \"stripe\"`; the form is described in shared/signing/src/scheme.rs.";
    let text = String::from_utf8(contents(path)?).map_err(|_| {
        Complaint::new(format!("{file} cannot be read as a scheme"), "it is not UTF-8", next)
    })?;
    let scheme = if text.trim_start().starts_with('{') {
        Scheme::from_json(&text)
    } else {
        Scheme::from_toml(&text)
    };
    scheme.map_err(|problems| {
        Complaint::new(format!("{file} cannot be read as a scheme"), problems.to_string(), next)
    })
}

fn contents(path: &Path) -> Result<Vec<u8>, Complaint> {
    let read = if path == Path::new("-") {
        let mut text = Vec::new();
        std::io::stdin().lock().read_to_end(&mut text).map(|_| text)
    } else {
        std::fs::read(path)
    };
    read.map_err(|error| {
        let next = "Give the path of a readable file, or `-` to read standard input.";
        Complaint::new(
            format!("{} cannot be read", shown(path)),
            printable(&error.to_string()),
            next,
        )
    })
}

fn shown(path: &Path) -> String {
    if path == Path::new("-") {
        "standard input".into()
    } else {
        printable(&path.display().to_string())
    }
}

/// A time that fits into a calendar.
pub(super) fn timestamp(seconds: i64) -> Result<Timestamp, Complaint> {
    Timestamp::from_second(seconds).map_err(|_| {
        let next = "Give seconds since 1970, such as 1767225600; milliseconds are a thousand times too many.";
        Complaint::new(format!("{seconds} cannot be taken as the present"), "it is no time of this calendar", next)
    })
}

impl Case {
    /// What to call it in an answer.
    pub(super) fn title(&self) -> String {
        self.name.as_deref().map_or_else(|| self.at.clone(), printable)
    }

    /// The preset of the case: that of its provider, or, where a provider signs in several ways, of `params.kind` of it;
    /// with `params.config`, as a source would have it.
    pub(super) fn preset(&self) -> Option<Scheme> {
        let scheme = self.plain_preset()?;
        let config = self.params.as_ref().and_then(|params| params.config.clone());
        let Some(config) = config.filter(Value::is_object) else { return Some(scheme) };
        let configured = serde_json::json!({ "like": scheme.name(), "config": config });
        Scheme::from_value(configured).ok()
    }

    fn plain_preset(&self) -> Option<Scheme> {
        let provider = self.provider.as_deref()?;
        let kind = self.params.as_ref().and_then(|params| params.kind.as_ref()?.as_str());
        let particular = kind.and_then(|kind| Scheme::preset(&format!("{provider}_{kind}")));
        particular.or_else(|| Scheme::preset(provider))
    }

    /// Keys that the provider publishes, by id: `params.keys`, or `params.certs` by address.
    pub(super) fn published(&self) -> Vec<(&str, &str)> {
        let params = self.params.iter();
        let tables = params.flat_map(|params| [&params.keys, &params.certs]).flatten();
        let entries = tables.filter_map(Value::as_object).flatten();
        entries.filter_map(|(id, text)| Some((id.as_str(), text.as_str()?))).collect()
    }

    /// Whether a missing name of the case means that there is none: not in cases that were made by hand from documentation,
    /// which no library judged, and not where whoever made the case could not read the body.
    pub(super) fn knows_that_names_are_absent(&self) -> bool {
        let judged = self.sdk_verdicts.as_ref().is_none_or(|verdicts| !verdicts.is_empty());
        let body = self.body_base64.as_ref().and_then(|text| STANDARD.decode(text).ok());
        let is_json = body.is_some_and(|body| serde_json::from_slice::<Value>(&body).is_ok());
        judged && is_json
    }

    /// Whether the name that the case expects, or a part of it, occurs nowhere in its request, but one that was found does.
    pub(super) fn contradicts_itself(&self, expected: &str, got: &[&str]) -> bool {
        let body = self.body_base64.as_ref().and_then(|text| STANDARD.decode(text).ok());
        let body = body.unwrap_or_default();
        let body = String::from_utf8_lossy(&body);
        let headers = self.headers.iter().flatten();
        let texts: Vec<&str> = headers.map(|(_, value)| value.as_str()).chain([&*body]).collect();
        let occurs = |text: &str| texts.iter().any(|within| within.contains(text));
        !expected.split([':', '.']).all(occurs) && got.iter().any(|got| occurs(got))
    }

    pub(super) fn now(&self) -> Result<Option<Timestamp>, Complaint> {
        self.now.map(timestamp).transpose()
    }

    /// The headers, or the name of the one that HTTP could not carry.
    pub(super) fn headers(&self) -> Result<HeaderMap, String> {
        let mut headers = HeaderMap::new();
        for (name, value) in self.headers.iter().flatten() {
            let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| name.clone())?;
            let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| name.clone())?;
            headers.try_append(header, value).map_err(|_| name.clone())?;
        }
        Ok(headers)
    }

    /// The bytes of the body; empty if the case has none.
    pub(super) fn body(&self) -> Result<Vec<u8>, Complaint> {
        match (&self.body_base64, &self.body_recipe) {
            (Some(text), _) => self.decode("body_base64", text),
            (None, Some(recipe)) => self.cook(recipe),
            (None, None) => Ok(Vec::new()),
        }
    }

    fn cook(&self, recipe: &Recipe) -> Result<Vec<u8>, Complaint> {
        let mut body = self.decode("body_recipe.prefix_base64", &recipe.prefix_base64)?;
        let repeat = self.decode("body_recipe.repeat_base64", &recipe.repeat_base64)?;
        let suffix = self.decode("body_recipe.suffix_base64", &recipe.suffix_base64)?;
        let total = repeat
            .len()
            .checked_mul(recipe.count)
            .and_then(|all| all.checked_add(body.len() + suffix.len()));
        if total.is_none_or(|total| total > MOST_BYTES) {
            return Err(Complaint::new(
                format!("{}: the body is too large", self.at),
                format!("its recipe makes more than {MOST_BYTES} bytes"),
                "Lower `count`; a gateway passes about 5 million bytes at most.",
            ));
        }
        body.extend(repeat.repeat(recipe.count));
        body.extend(suffix);
        let made = hex::encode(Sha256::digest(&body));
        match &recipe.sha256 {
            Some(wanted) if !wanted.eq_ignore_ascii_case(&made) => Err(Complaint::new(
                format!("{}: the body is not the one that was meant", self.at),
                "what the recipe makes does not have the sha256 that it names",
                "Correct `body_recipe`, or remove its sha256.",
            )),
            _ => Ok(body),
        }
    }

    fn decode(&self, field: &str, text: &str) -> Result<Vec<u8>, Complaint> {
        STANDARD.decode(text).map_err(|_| {
            let next = "Encode the untouched bytes of the body with base64, with padding and without line breaks.";
            Complaint::new(format!("{}: the body cannot be read", self.at), format!("{field} is not base64"), next)
        })
    }
}
