//! A fetcher: where the current state of a provider's objects is had. Data, not code.
//!
//! The form, in TOML (a fetcher of a source's own is the same in JSON):
//!
//! ```toml
//! like = "stripe"                 # optional: start from a preset, then change what is written here; null removes
//! title = "Example"               # for people
//! docs = "https://..."            # where the provider explains it
//! facts = { checked = "2026-12-01", mark = "D", from = "..." } # S in its SDK, D documentation, T third party, M unconfirmed
//!
//! url = "https://api.example.com/v1/{path}/{id}"   # https only; the host is pinned
//! auth = "bearer"                 # bearer, basic, none, or header:<name>
//! gone = [404, 410]               # statuses that mean: it was deleted
//! doubtful = []                   # statuses that mean so only if the event, or an earlier one, said that it was deleted
//! rate = 10                       # calls per second, shared by all workers: 1 to 1000
//! burst = 10                      # calls at once after a pause: 1 to 1000
//!
//! [paths]                         # optional: `{path}` for each kind of object. Others are not fetched
//! invoice = "invoices"
//!
//! [headers]                       # besides accept and user-agent; one whose hole has no value is left out
//! "x-api-version" = "2026-01"
//!
//! [answer]
//! state = "/data"                 # where in the answer the state stands; "" or nothing: all of it
//! states = { order = "/order" }   # the same for single kinds
//! id = "/id"                      # from within the state: must be the id that was asked for
//! deleted = "/deleted"            # from within the state: true there means that it was deleted
//!
//! [version]                       # from within the state
//! from = "/updated_at"
//! kind = "rfc3339"                # number, rfc3339, lexical; or `parts`, a list of such tables
//! trusted = false                 # true: no two changes share a version, so that it compares with those of events
//!
//! [deletion]                      # how an event says that its object was deleted; for `doubtful`
//! type_ends = [".deleted"]
//! at = "/action"                  # or what it says there is one of
//! is = ["deleted"]
//!
//! [spent]                         # for providers that refuse with 403 when too much was asked
//! header = "x-ratelimit-remaining"
//! is = "0"
//! until = "x-ratelimit-reset"     # a header with the second since 1970
//! ```
//!
//! Holes of `url`, of `paths` and of headers: `{kind}` and `{id}` of the object, `{event:/pointer}` into the event's body,
//! `{config:name}` of the source. In a URL each value is percent-encoded, so that it stays one segment. In the host only
//! `{config:..}` may stand, as a whole label before the last two.

use std::{collections::BTreeMap, sync::Arc};

use domain::fetch::Pace;
use http::HeaderName;
use serde_json::Value;

use crate::{
    preset, read,
    reader::Problems,
    template::{Filling, Template, label},
};

/// How the state of one provider's objects is had.
#[derive(Clone, Debug)]
pub struct Fetcher {
    pub(crate) terms: Arc<Terms>,
}

#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) about: About,
    pub(crate) host: Template,
    pub(crate) rest: Template,
    pub(crate) paths: Option<BTreeMap<String, Template>>,
    pub(crate) auth: Auth,
    pub(crate) headers: Vec<(HeaderName, Template)>,
    pub(crate) gone: Vec<u16>,
    pub(crate) doubtful: Vec<u16>,
    pub(crate) pace: Pace,
    pub(crate) state: String,
    pub(crate) states: BTreeMap<String, String>,
    pub(crate) id: Option<String>,
    pub(crate) deleted: Option<String>,
    pub(crate) version: Option<VersionRules>,
    pub(crate) deletion: Deletion,
    pub(crate) spent: Option<Spent>,
}

/// For people: whose API it is, and how far its facts are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// The provider's name.
    pub title: String,
    /// Where the provider explains it.
    pub docs: String,
    /// When somebody last looked.
    pub checked_on: String,
    /// How the facts are known.
    pub mark: String,
    /// From where.
    pub facts_from: String,
}

/// How a call shows who we are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Auth {
    /// `Authorization: Bearer <token>`.
    Bearer,
    /// `Authorization: Basic`, of a token `user:password`; without a colon, the token is the user.
    Basic,
    /// The token alone, in this header.
    Header(HeaderName),
    /// Not at all.
    None,
}

/// Where the version of a state stands.
#[derive(Clone, Debug)]
pub(crate) struct VersionRules {
    pub(crate) parts: Vec<(String, VersionKind)>,
    pub(crate) trusted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VersionKind {
    Number,
    Rfc3339,
    Lexical,
}

impl VersionKind {
    pub(crate) const ALL: [(&'static str, Self); 3] =
        [("number", Self::Number), ("rfc3339", Self::Rfc3339), ("lexical", Self::Lexical)];
}

/// How an event says that its object was deleted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Deletion {
    pub(crate) type_ends: Vec<String>,
    pub(crate) at: Option<String>,
    pub(crate) is: Vec<String>,
}

/// How an answer says that too much was asked.
#[derive(Clone, Debug)]
pub(crate) struct Spent {
    pub(crate) header: HeaderName,
    pub(crate) is: String,
    pub(crate) until: Option<HeaderName>,
}

/// A fetcher's table, from the text of a file.
///
/// # Errors
/// Where it is not one, in words that do not repeat it.
pub fn parse(text: &str, is_json: bool) -> Result<Value, String> {
    if is_json {
        return serde_json::from_str(text).map_err(|error| {
            format!("it is no JSON: line {}, column {}", error.line(), error.column())
        });
    }
    toml::from_str(text).map_err(|error| format!("it is no TOML: {}", error.message()))
}

impl Fetcher {
    /// A fetcher that ships.
    pub fn preset(name: &str) -> Option<Self> {
        preset::load(name)
    }

    /// A fetcher as data.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn from_value(value: Value) -> Result<Self, Problems> {
        let terms = read::terms(preset::inherit(value)?)?;
        Ok(Self { terms: Arc::new(terms) })
    }

    /// Whose API it is.
    pub fn about(&self) -> &About {
        &self.terms.about
    }

    /// How often it may be asked.
    pub fn pace(&self) -> Pace {
        self.terms.pace
    }

    /// How a call shows who we are.
    pub fn auth(&self) -> &Auth {
        &self.terms.auth
    }

    /// The kinds of objects that it fetches; `None`: any.
    pub fn kinds(&self) -> Option<impl Iterator<Item = &str>> {
        self.terms.paths.as_ref().map(|paths| paths.keys().map(String::as_str))
    }

    /// Whether it fetches objects of this kind.
    pub fn fetches(&self, kind: &str) -> bool {
        self.terms.paths.as_ref().is_none_or(|paths| paths.contains_key(kind))
    }

    /// Whether answers say how new they are.
    pub fn has_versions(&self) -> bool {
        self.terms.version.is_some()
    }

    /// Whether the versions of answers order all changes of an object.
    pub fn trusts_versions(&self) -> bool {
        self.terms.version.as_ref().is_some_and(|version| version.trusted)
    }

    /// The host that is called, and its port if it names one; `None`: the configuration lacks a label of it.
    pub fn host(&self, config: &BTreeMap<String, String>) -> Option<String> {
        let filling = Filling { kind: "", id: "", event: &Value::Null, config };
        self.terms.host.fill(&filling, None, label).ok()
    }

    /// The values of the source's configuration without which nothing can be fetched.
    pub fn needs_config(&self) -> Vec<&str> {
        let paths = self.terms.paths.iter().flat_map(BTreeMap::values);
        let all = [&self.terms.host, &self.terms.rest].into_iter().chain(paths);
        let mut names: Vec<_> = all.flat_map(Template::config).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}
