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
//! algorithm = "hmac-sha256"       # one of the table below; or `verifier`, never both
//! signed = "{ts}.{body}"          # the content that is signed: literal text and parts, see below
//! body_unsigned = false           # true admits that the signature leaves out the body or a part of it
//! body = "any"                    # any, nonempty, json, json-or-empty, object (a JSON object): else it is malformed
//! require = ["x-topic|topic"]     # headers that must be there; `|` separates alternatives, the first present counts
//! require_with = { "topic" = "x-id" }     # if the first is there, the second must be
//! require_equal = { "x-version" = "1" }
//! config = { notification_url = "https://..." }   # what {config:..} stands for, set for each source
//! sample = { "x-topic" = "test" } # headers for requests that we make ourselves
//! batch = "/events"               # several events in one request: where the array is; "" = the body is the array
//!
//! [key]
//! encoding = "utf8"               # utf8, hex, base64; spki-base64 for public keys, which also takes PEM
//! strip_prefix = "whsec_"         # taken off before decoding, if it is there
//! lookup = { id = "{header:x-key-id}", id_form = "uuid", url = "https://api.example.com/keys/{id}", answer = "/data/key" }
//!                                 # the provider publishes its public keys; id_form is uuid or text, answer a JSON pointer
//!
//! [signature]
//! from = "{header:x-signature}"   # or {json:/ptr}; or a list of headers, each of which may carry a signature
//! paired = false                  # true: each header only counts with its own secret: the one whose id is the header's last
//!                                 # word (`primary` for box-signature-primary), or else the one in the same place
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
//! [identity]                      # each a template or a list of them: the first that is there counts
//! id = "{json:/id}"
//! delivery = "{header:x-delivery}" # names the delivery, for correlation only
//! type = "{header:x-event}"
//! object_type = { from = "{header:x-topic}", before = "/" }
//! object_id = "{json:/data/id}"
//! version = { from = "{json:/version}", kind = "number", trusted = true } # number, rfc3339, lexical
//! # or several, compared part by part: { parts = [{ from = "..", kind = ".." }, { from = "..", kind = ".." }], trusted = true }
//! occurred_at = { from = "{json:/created}", unit = "s" }
//!
//! [element]                       # with `batch`: the same for each element, whose JSON pointers start at the element;
//! id = "{json:/id}"               # without it, what [identity] reads from JSON (its delivery aside) is of the elements
//!
//! [acknowledge]                   # what the provider takes for "received", if not a 200 without a body
//! status = 202
//! body = "[accepted]"
//! content_type = "text/plain"
//!
//! [[handshake]]                   # requests that are no events: see `Handshake`
//! ```
//!
//! | `algorithm` | the secret | what it proves |
//! |---|---|---|
//! | `hmac-sha1`, `hmac-sha256`, `hmac-sha512` | shared | `signed` |
//! | `sha256` | shared; `signed` contains it as `{secret}` | `signed`, but bytes can be appended by whoever sees one signature |
//! | `ed25519` | the provider's public key (hex, base64, spki-base64) | `signed` |
//! | `ecdsa-p256-sha256` | the provider's public key (spki-base64), or looked up; the signature is DER | `signed` |
//! | `token` | is sent with each request, in a header, in JSON (`{json:/value/*/token}`: in each element), or as `{path-secret}` | nothing about the body |
//! | `basic` | `user:password`, sent in `Authorization` | nothing about the body |
//! | `none` | the last segment of a secret address | nothing |
//!
//! `verifier` stands in the place of `algorithm`, `signed`, `signature` and `timestamp` for providers that need code: twilio,
//! adyen, braintree, paypal, sns, plaid, jwt-body-hash.
//!
//! Parts of `signed`: `{body}`, `{ts}` (as it was sent), `{method}`, `{url}` (as configured at the provider), `{url:hubspot}`
//! (with some escapes undone, as HubSpot does), `{path-query}` (path and twice escaped query, as Contentful does),
//! `{header:a|b}`, `{signed-headers:x-list}` (the headers that this one lists, sorted, `name:value` joined by `;`),
//! `{json:/ptr}`, `{config:x}`, `{secret}`. Parts of an identity: `{header:a|b}`, `{json:/ptr}`, `{form:field}` (of a body
//! that is a form), `{has-form:field}` (nothing, but only if the field is there), `{body-sha256}`, `{received}` (the time in
//! milliseconds: every delivery is then an event of its own), `{config:x}`, and literal text. In a JSON pointer a step `*`
//! stands for every element of an array, as in `{json:/changes/*/field}`: the value counts if all have the same.

mod algorithm;
mod form;
mod handshake;
mod names;
mod published;
mod read;
mod reader;
mod rules;
mod spot;
mod template;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use http::HeaderName;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

pub(crate) use algorithm::Proof;
pub use algorithm::{Algorithm, Trust, Verifier};
pub use form::Acknowledge;
pub(crate) use form::{
    BodyRule, Clock, Encoding, IdentityRules, KeyEncoding, KeyFormat, Lookup, Names, Shape,
    SignatureFormat, Unit, VersionKind, VersionRules,
};
pub use handshake::Handshake;
pub(crate) use handshake::{
    Condition, Confirm, Content, Fixed, Member, Piece, Place, ReplyForm, Shown,
};
pub use published::KeyLookup;
pub use reader::{Problem, Problems};
pub(crate) use template::{Part, Spelling, Template};

use crate::json::Pointer;
use crate::key::KeyId;
use crate::{named, preset};

/// A checked scheme: one that has a problem cannot be made. A clone costs next to nothing.
#[derive(Clone)]
pub struct Scheme {
    pub(crate) terms: Arc<Terms>,
}

/// What a scheme says.
pub(crate) struct Terms {
    source: Value,
    pub(crate) name: String,
    about: About,
    pub(crate) proof: Proof,
    pub(crate) key: KeyFormat,
    /// `None` where nothing is signed, or code knows better.
    pub(crate) signature: Option<SignatureFormat>,
    pub(crate) signed: Template,
    pub(crate) body_unsigned: bool,
    pub(crate) clock: Option<Clock>,
    pub(crate) body: BodyRule,
    pub(crate) require: Vec<Names>,
    pub(crate) require_with: Vec<(HeaderName, HeaderName)>,
    pub(crate) require_equal: Vec<(HeaderName, String)>,
    pub(crate) identity: IdentityRules,
    /// The headers that the identity is read from, each of which must be single.
    pub(crate) named_by: Vec<Names>,
    /// What each element of a request is, and where they are.
    pub(crate) batch: Option<(Pointer, IdentityRules)>,
    pub(crate) config: BTreeMap<String, String>,
    pub(crate) sample: Vec<(HeaderName, String)>,
    acknowledge: Acknowledge,
    pub(crate) handshakes: Vec<Handshake>,
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
        &self.terms.name
    }

    /// Title, documentation and the age of the facts.
    #[must_use]
    pub fn about(&self) -> &About {
        &self.terms.about
    }

    /// The one algorithm; `None` for a provider whose signatures need code.
    #[must_use]
    pub fn algorithm(&self) -> Option<Algorithm> {
        match self.terms.proof {
            Proof::Algorithm(algorithm) => Some(algorithm),
            Proof::Verifier(_) => None,
        }
    }

    /// The code that verifies, for a provider that needs some.
    #[must_use]
    pub fn verifier(&self) -> Option<Verifier> {
        match self.terms.proof {
            Proof::Algorithm(_) => None,
            Proof::Verifier(verifier) => Some(verifier),
        }
    }

    /// How far a verified request can be believed.
    #[must_use]
    pub fn trust(&self) -> Trust {
        match self.terms.proof {
            Proof::Algorithm(Algorithm::None) => Trust::None,
            Proof::Algorithm(Algorithm::Token | Algorithm::Basic) => Trust::Token,
            _ if self.terms.body_unsigned => Trust::BodyUnsigned,
            _ => Trust::Signed,
        }
    }

    /// Whether a request carries several events; [`crate::elements`] takes them apart.
    #[must_use]
    pub fn is_batch(&self) -> bool {
        self.terms.batch.is_some()
    }

    /// Whether events say how new their knowledge of an object is.
    #[must_use]
    pub fn has_versions(&self) -> bool {
        self.version_rules().is_some()
    }

    /// Whether the versions that events say order all changes of an object. If not, two changes can share one, and which
    /// of them is newer is known only to the provider.
    #[must_use]
    pub fn trusts_versions(&self) -> bool {
        self.version_rules().is_some_and(|version| version.trusted)
    }

    fn version_rules(&self) -> Option<&VersionRules> {
        let rules = self.terms.batch.as_ref().map_or(&self.terms.identity, |(_, element)| element);
        // A batch keeps of its rules what stands in an element, which may be nothing.
        let found = |(lookup, _): &(Lookup, VersionKind)| !lookup.from.is_empty();
        rules.version.as_ref().filter(|version| version.parts.iter().all(found))
    }

    /// Where the provider publishes its keys by id, if the scheme says so. Providers that need code have theirs in
    /// [`crate::lookup`].
    #[must_use]
    pub fn lookup(&self) -> Option<&KeyLookup> {
        self.terms.key.lookup.as_ref()
    }

    /// Whether the provider publishes its keys by id, whoever knows where: the scheme or the code of a named verifier.
    #[must_use]
    pub fn publishes_keys(&self) -> bool {
        self.lookup().is_some() || self.verifier().is_some_and(named::publishes_keys)
    }

    /// What the provider takes for "received".
    #[must_use]
    pub fn acknowledge(&self) -> &Acknowledge {
        &self.terms.acknowledge
    }

    /// Whether the signature covers the event's id. If not, a replay can carry a new one, and a source may want the
    /// hash of the signed content as a second key.
    #[must_use]
    pub fn signs_id(&self) -> bool {
        self.of_events().id_is_signed
    }

    /// Whether the provider gives its events an id. If not, a hash stands in for it.
    #[must_use]
    pub fn has_id(&self) -> bool {
        !self.of_events().id.from.is_empty()
    }

    /// Whether every request counts, because the provider may send the same bytes for one change after another. Then no
    /// request may be taken for a repeat of an earlier one; the events in it may, if they have ids.
    #[must_use]
    pub fn counts_every_request(&self) -> bool {
        let mut parts = self.terms.identity.id.from.iter().flat_map(Template::parts);
        parts.any(|part| *part == Part::Received)
    }

    fn of_events(&self) -> &IdentityRules {
        self.terms.batch.as_ref().map_or(&self.terms.identity, |(_, element)| element)
    }

    /// The requests that are no events; [`crate::handshake::answer`] answers them.
    pub fn handshakes(&self) -> impl Iterator<Item = &Handshake> {
        self.terms.handshakes.iter()
    }

    /// Whether a handshake brings the secret, so that a source starts without one and waits.
    #[must_use]
    pub fn learns_its_secret(&self) -> bool {
        self.terms.handshakes.iter().any(|handshake| handshake.learn.is_some())
    }

    /// Ids of secrets that only serve handshakes. They never verify an event.
    pub fn secrets_of_handshakes(&self) -> impl Iterator<Item = &str> {
        self.terms.handshakes.iter().filter_map(|handshake| match &handshake.proof {
            Shown::Token { secret, .. } => Some(secret.as_str()),
            _ => None,
        })
    }

    /// Ids that secrets have where each place of a signature has a secret of its own: the last words of the headers.
    /// Empty where any secret may make any signature.
    pub fn secrets_of_places(&self) -> impl Iterator<Item = &str> {
        let paired = self.terms.signature.as_ref().filter(|_| self.is_paired());
        paired.into_iter().flat_map(|signature| &signature.from).filter_map(|part| match part {
            Part::Header(names) => names.first().map(last_word),
            _ => None,
        })
    }

    /// How many seconds a request may be old; `None` where the provider signs no time, so that only deduplication stands
    /// against a replay.
    #[must_use]
    pub fn tolerance_seconds(&self) -> Option<u32> {
        let by_code = || self.verifier().and_then(named::tolerance);
        self.terms.clock.as_ref().map(|clock| clock.tolerance).or_else(by_code)
    }

    /// Names of `{config:..}` parts that have no value yet. Requests are refused until they have.
    #[must_use]
    pub fn missing_config(&self) -> Vec<&str> {
        let element = self.terms.batch.iter().flat_map(|(_, rules)| rules.templates());
        let parts = std::iter::once(&self.terms.signed)
            .chain(self.terms.identity.templates())
            .chain(element)
            .flat_map(Template::parts);
        let named = self.verifier().map_or(&[][..], named::config);
        // For code, blank counts as absent.
        let is_blank = |name: &&str| self.config(name).is_none_or(|value| value.trim().is_empty());
        let mut missing: Vec<&str> = parts
            .filter_map(
                |part| if let Part::Config(name) = part { Some(name.as_str()) } else { None },
            )
            .filter(|name| !self.terms.config.contains_key(*name))
            .chain(named.iter().copied().filter(is_blank))
            .collect();
        missing.sort_unstable();
        missing.dedup();
        missing
    }

    /// Whether a key only serves handshakes, so that it never verifies an event.
    pub(crate) fn is_of_handshakes(&self, key: &KeyId) -> bool {
        self.secrets_of_handshakes().any(|secret| secret == key.as_str())
    }

    /// The place to which a key belongs by its id, where each place has a key of its own.
    pub(crate) fn place_of(&self, key: &KeyId) -> Option<usize> {
        let is_its = |part: &Part| match part {
            Part::Header(names) => names.iter().any(|name| last_word(name) == key.as_str()),
            _ => false,
        };
        self.terms.signature.as_ref()?.from.iter().position(is_its)
    }

    /// Whether each place of a signature only counts with a key of its own.
    pub(crate) fn is_paired(&self) -> bool {
        self.terms.signature.as_ref().is_some_and(|signature| signature.paired)
    }

    /// The header with the time, if it is in one.
    pub(crate) fn clock_header(&self) -> Option<&HeaderName> {
        match &self.terms.clock.as_ref()?.from {
            Part::Header(names) => names.first(),
            _ => None,
        }
    }

    /// The value for `{config:..}`.
    pub(crate) fn config(&self, name: &str) -> Option<&str> {
        self.terms.config.get(name).map(String::as_str)
    }
}

/// As in `primary` of `box-signature-primary`.
fn last_word(name: &HeaderName) -> &str {
    name.as_str().rsplit('-').next().unwrap_or_default()
}

impl fmt::Debug for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheme").field("name", &self.terms.name).finish_non_exhaustive()
    }
}

impl Serialize for Scheme {
    /// Writes the scheme whole, with what it inherited, so that a row does not change when a preset does.
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.terms.source.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Scheme {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::from_value(Value::deserialize(from)?).map_err(serde::de::Error::custom)
    }
}
