//! A scheme: how one provider signs, and where its requests say what they are. Data, not code.
//!
//! The form, in TOML (a scheme in a table row is the same in JSON):
//!
//! ```toml
//! like = "stripe"                 # optional: start from a preset, then change what is written here; null removes
//! title = "Example"               # for people
//! docs = "https://..."            # where the provider explains it
//! facts = { checked = "2026-11-30", mark = "S", from = "npm:example 1.2.3" } # S ran the SDK, D documentation, T third party, M unconfirmed
//!
//! algorithm = "hmac-sha256"       # hmac-sha1, hmac-sha256, hmac-sha512, ed25519, token
//! signed = "{ts}.{body}"          # literal text and parts: {body} {ts} {method} {url} {header:a|b} {json:/ptr} {config:x}
//! body_unsigned = false           # true admits that the provider does not sign the body
//! body = "any"                    # any, nonempty, json: what else is refused as malformed
//! require = ["x-topic|topic"]     # headers that must be there; `|` separates alternatives, the first present counts
//! require_with = { "topic" = "x-id" }     # if the first is there, the second must be
//! require_equal = { "x-version" = "1" }
//! config = { notification_url = "https://..." }   # what {config:..} stands for, set for each source
//! sample = { "x-topic" = "test" } # headers for requests that we make ourselves
//!
//! [key]
//! encoding = "utf8"               # utf8, hex, base64
//! strip_prefix = "whsec_"         # taken off before decoding, if it is there
//!
//! [signature]
//! from = "{header:x-signature}"   # or {json:/ptr}
//! encoding = "hex"                # hex, hex-any-case, base64, base64url
//! prefix = "sha256="              # of a plain signature; or
//! pairs = { item_sep = ",", kv_sep = "=", field = "v1", trim = false }
//!
//! [timestamp]
//! from = "{pair:t}"               # or {header:..}, {json:/ptr}; must be covered by the signature
//! unit = "s"                      # s, ms, rfc3339
//! number = false                  # inside a body: true refuses digits in quotes
//! tolerance = 300                 # seconds, 5 to 3600
//! future = 300                    # seconds, 0 to 3600; the tolerance if not given
//!
//! [identity]                      # each a template or a list of them: the first that is there counts; {body-sha256} also exists
//! id = "{json:/id}"
//! type = "{header:x-event}"
//! object_type = { from = "{header:x-topic}", before = "/" }
//! object_id = "{json:/data/id}"
//! version = { from = "{json:/version}", kind = "number", trusted = true } # number, rfc3339, lexical
//! occurred_at = { from = "{json:/created}", unit = "s" }
//! ```

mod read;
mod reader;
mod template;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

pub use reader::{Problem, Problems};
pub(crate) use template::{Part, Template};

use crate::preset;

/// A checked scheme: one that has a problem cannot be made.
#[derive(Clone)]
pub struct Scheme {
    source: Value,
    pub(crate) name: String,
    about: About,
    pub(crate) algorithm: Algorithm,
    pub(crate) key: KeyFormat,
    pub(crate) signature: SignatureFormat,
    pub(crate) signed: Template,
    pub(crate) clock: Option<Clock>,
    pub(crate) body: BodyRule,
    pub(crate) require: Vec<Names>,
    pub(crate) require_with: Vec<(String, String)>,
    pub(crate) require_equal: Vec<(String, String)>,
    pub(crate) identity: IdentityRules,
    pub(crate) config: BTreeMap<String, String>,
    pub(crate) sample: Vec<(String, String)>,
}

/// What a person should know of a scheme.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// The provider's name as people write it.
    pub title: String,
    /// The provider's own page about it.
    pub docs: String,
    /// The day the facts were last checked, `2026-11-30`.
    pub checked_on: String,
    /// `S` the provider's SDK was read and run, `D` its documentation, `T` third-party text only, `M` unconfirmed.
    pub mark: String,
    /// What the facts were taken from, with versions.
    pub facts_from: String,
}

/// Header names of which the first that is present counts.
pub(crate) type Names = Vec<String>;

/// How a signature is made. One for each scheme: a request never chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// HMAC with SHA-1. Only for providers that offer nothing better.
    HmacSha1,
    /// HMAC with SHA-256.
    HmacSha256,
    /// HMAC with SHA-512.
    HmacSha512,
    /// Ed25519; the receiver holds a public key.
    Ed25519,
    /// The secret itself travels with the request; the body is not protected.
    Token,
}

impl Algorithm {
    pub(crate) const ALL: [(&'static str, Self); 5] = [
        ("hmac-sha1", Self::HmacSha1),
        ("hmac-sha256", Self::HmacSha256),
        ("hmac-sha512", Self::HmacSha512),
        ("ed25519", Self::Ed25519),
        ("token", Self::Token),
    ];

    /// Bytes of a signature; a token has no fixed length.
    pub(crate) fn length(self) -> Option<usize> {
        match self {
            Self::HmacSha1 => Some(20),
            Self::HmacSha256 => Some(32),
            Self::HmacSha512 | Self::Ed25519 => Some(64),
            Self::Token => None,
        }
    }
}

/// How a digest is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Hex,
    HexAnyCase,
    Base64,
    Base64Url,
}

impl Encoding {
    const ALL: [(&'static str, Self); 4] = [
        ("hex", Self::Hex),
        ("hex-any-case", Self::HexAnyCase),
        ("base64", Self::Base64),
        ("base64url", Self::Base64Url),
    ];
}

#[derive(Clone, Debug)]
pub(crate) struct KeyFormat {
    pub(crate) encoding: KeyEncoding,
    pub(crate) strip_prefix: String,
}

/// How a secret is written where people copy it from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyEncoding {
    Utf8,
    Hex,
    Base64,
}

impl KeyEncoding {
    const ALL: [(&'static str, Self); 3] =
        [("utf8", Self::Utf8), ("hex", Self::Hex), ("base64", Self::Base64)];
}

#[derive(Clone, Debug)]
pub(crate) struct SignatureFormat {
    pub(crate) from: Part,
    pub(crate) encoding: Encoding,
    pub(crate) shape: Shape,
}

#[derive(Clone, Debug)]
pub(crate) enum Shape {
    /// The whole text is one signature, after a prefix.
    Plain { prefix: String },
    /// A list of named values; every value of `field` is a candidate.
    Pairs { item_sep: String, kv_sep: String, field: String, trim: bool },
}

/// The signed time of a scheme.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    pub(crate) from: Part,
    pub(crate) unit: Unit,
    /// Inside a body: only a JSON number, not digits in quotes.
    pub(crate) number: bool,
    /// Seconds into the past.
    pub(crate) tolerance: u32,
    /// Seconds into the future.
    pub(crate) future: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Seconds,
    Milliseconds,
    Rfc3339,
}

impl Unit {
    const ALL: [(&'static str, Self); 3] =
        [("s", Self::Seconds), ("ms", Self::Milliseconds), ("rfc3339", Self::Rfc3339)];
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyRule {
    Any,
    NonEmpty,
    Json,
}

impl BodyRule {
    const ALL: [(&'static str, Self); 3] =
        [("any", Self::Any), ("nonempty", Self::NonEmpty), ("json", Self::Json)];
}

#[derive(Clone, Debug, Default)]
pub(crate) struct IdentityRules {
    pub(crate) id: Lookup,
    pub(crate) id_is_signed: bool,
    pub(crate) event_type: Lookup,
    pub(crate) object_type: Lookup,
    pub(crate) object_id: Lookup,
    pub(crate) version: Option<(Lookup, VersionKind, bool)>,
    pub(crate) occurred_at: Option<(Lookup, Unit)>,
}

/// Where a value is found: the first template that is complete.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lookup {
    pub(crate) from: Vec<Template>,
    /// Only the text before this.
    pub(crate) before: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VersionKind {
    Number,
    Rfc3339,
    Lexical,
}

impl VersionKind {
    const ALL: [(&'static str, Self); 3] =
        [("number", Self::Number), ("rfc3339", Self::Rfc3339), ("lexical", Self::Lexical)];
}

impl Scheme {
    /// A scheme that ships, by name. `None` if there is none of that name.
    #[must_use]
    pub fn preset(name: &str) -> Option<Self> {
        preset::load(name)
    }

    /// Reads a scheme as people write it.
    ///
    /// # Errors
    /// Every problem found, not only the first.
    pub fn from_toml(text: &str) -> Result<Self, Problems> {
        match toml::from_str::<Value>(text) {
            Ok(value) => Self::from_value(value),
            Err(error) => Err(Problems::one("", format!("this is not TOML: {}", error.message()))),
        }
    }

    /// Reads a scheme as a table row holds it.
    ///
    /// # Errors
    /// Every problem found, not only the first.
    pub fn from_json(text: &str) -> Result<Self, Problems> {
        match serde_json::from_str::<Value>(text) {
            Ok(value) => Self::from_value(value),
            Err(error) => {
                Err(Problems::one("", format!("this is not JSON: line {}", error.line())))
            }
        }
    }

    /// Reads a scheme from JSON that is already parsed.
    ///
    /// # Errors
    /// Every problem found, not only the first.
    pub fn from_value(value: Value) -> Result<Self, Problems> {
        read::scheme(preset::inherit(value)?)
    }

    /// The preset's name, or what the scheme calls itself.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Title, documentation and the age of the facts.
    #[must_use]
    pub fn about(&self) -> &About {
        &self.about
    }

    /// The one algorithm.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Whether the signature covers the event's id. If not, a replay can carry a new one, and a source may want the
    /// hash of the signed content as a second key.
    #[must_use]
    pub fn signs_id(&self) -> bool {
        self.identity.id_is_signed
    }

    /// How many seconds a request may be old; `None` where the provider signs no time, so that only deduplication stands
    /// against a replay.
    #[must_use]
    pub fn tolerance_seconds(&self) -> Option<u32> {
        self.clock.as_ref().map(|clock| clock.tolerance)
    }

    /// Names of `{config:..}` parts that have no value yet. Requests are refused until they have.
    #[must_use]
    pub fn missing_config(&self) -> Vec<&str> {
        let templates = std::iter::once(&self.signed).chain(self.identity.templates());
        let mut missing: Vec<&str> = templates
            .flat_map(Template::parts)
            .filter_map(|part| match part {
                Part::Config(name) if !self.config.contains_key(name) => Some(name.as_str()),
                _ => None,
            })
            .collect();
        missing.dedup();
        missing
    }
}

impl IdentityRules {
    fn templates(&self) -> impl Iterator<Item = &Template> {
        self.lookups().flat_map(|lookup| &lookup.from)
    }

    pub(crate) fn lookups(&self) -> impl Iterator<Item = &Lookup> {
        [&self.id, &self.event_type, &self.object_type, &self.object_id]
            .into_iter()
            .chain(self.version.as_ref().map(|(lookup, ..)| lookup))
            .chain(self.occurred_at.as_ref().map(|(lookup, _)| lookup))
    }
}

impl fmt::Debug for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheme").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Serialize for Scheme {
    /// Writes the scheme whole, with what it inherited, so that a row does not change when a preset does.
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.source.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Scheme {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::from_value(Value::deserialize(from)?).map_err(serde::de::Error::custom)
    }
}
