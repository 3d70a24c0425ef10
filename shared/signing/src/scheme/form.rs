//! The pieces of a scheme: how keys, signatures and times are written, and where names are found.

use http::HeaderName;

use super::template::{Part, Template};

/// Header names of which the first that is present counts.
pub(crate) type Names = Vec<HeaderName>;

/// How a digest is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Hex,
    HexAnyCase,
    Base64,
    Base64Url,
}

impl Encoding {
    pub(crate) const ALL: [(&'static str, Self); 4] = [
        ("hex", Self::Hex),
        ("hex-any-case", Self::HexAnyCase),
        ("base64", Self::Base64),
        ("base64url", Self::Base64Url),
    ];
}

#[derive(Clone, Debug, Default)]
pub(crate) struct KeyFormat {
    pub(crate) encoding: KeyEncoding,
    pub(crate) strip_prefix: String,
    pub(crate) lookup: Option<super::KeyLookup>,
}

/// How a secret is written where people copy it from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum KeyEncoding {
    #[default]
    Utf8,
    Hex,
    Base64,
    /// A public key with its algorithm (`SubjectPublicKeyInfo`), in base64 or PEM.
    SpkiBase64,
}

impl KeyEncoding {
    pub(crate) const ALL: [(&'static str, Self); 4] = [
        ("utf8", Self::Utf8),
        ("hex", Self::Hex),
        ("base64", Self::Base64),
        ("spki-base64", Self::SpkiBase64),
    ];
}

#[derive(Clone, Debug)]
pub(crate) struct SignatureFormat {
    /// Several headers can carry one.
    pub(crate) from: Vec<Part>,
    /// The nth place only counts with the nth key.
    pub(crate) paired: bool,
    pub(crate) encoding: Encoding,
    pub(crate) shape: Shape,
}

impl SignatureFormat {
    /// Whether a secret must be shown in every element of an array.
    pub(crate) fn shows_in_every_element(&self) -> bool {
        self.from.iter().any(|part| matches!(part, Part::EveryJson(_)))
    }
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
    pub(crate) const ALL: [(&'static str, Self); 3] =
        [("s", Self::Seconds), ("ms", Self::Milliseconds), ("rfc3339", Self::Rfc3339)];
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyRule {
    Any,
    NonEmpty,
    Json,
    /// JSON, or nothing at all.
    JsonOrEmpty,
    /// A JSON object.
    Object,
}

impl BodyRule {
    pub(crate) const ALL: [(&'static str, Self); 5] = [
        ("any", Self::Any),
        ("nonempty", Self::NonEmpty),
        ("json", Self::Json),
        ("json-or-empty", Self::JsonOrEmpty),
        ("object", Self::Object),
    ];
}

/// What a provider takes for "received".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acknowledge {
    /// From 200 to 299.
    pub status: u16,
    /// Empty with most providers.
    pub body: String,
    /// Of the body; `None` for an empty one.
    pub content_type: Option<String>,
}

impl Default for Acknowledge {
    fn default() -> Self {
        Self { status: 200, body: String::new(), content_type: None }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct IdentityRules {
    pub(crate) id: Lookup,
    pub(crate) id_is_signed: bool,
    pub(crate) delivery: Lookup,
    pub(crate) event_type: Lookup,
    pub(crate) object_type: Lookup,
    pub(crate) object_id: Lookup,
    pub(crate) version: Option<VersionRules>,
    pub(crate) occurred_at: Option<(Lookup, Unit)>,
}

/// Where a version is found.
#[derive(Clone, Debug)]
pub(crate) struct VersionRules {
    /// More than one: a composite version.
    pub(crate) parts: Vec<(Lookup, VersionKind)>,
    /// Whether it orders all changes of an object.
    pub(crate) trusted: bool,
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
    pub(crate) const ALL: [(&'static str, Self); 3] =
        [("number", Self::Number), ("rfc3339", Self::Rfc3339), ("lexical", Self::Lexical)];
}

impl IdentityRules {
    pub(crate) fn templates(&self) -> impl Iterator<Item = &Template> {
        self.lookups().flat_map(|lookup| &lookup.from)
    }

    pub(crate) fn lookups(&self) -> impl Iterator<Item = &Lookup> {
        [&self.id, &self.delivery, &self.event_type, &self.object_type, &self.object_id]
            .into_iter()
            .chain(self.version.iter().flat_map(|version| &version.parts).map(|(lookup, _)| lookup))
            .chain(self.occurred_at.as_ref().map(|(lookup, _)| lookup))
    }

    /// The same rules with the templates that pass; the delivery stays with the whole request.
    pub(crate) fn keep(&self, passes: impl Fn(&Template) -> bool) -> Self {
        let keep = |lookup: &Lookup| Lookup {
            from: lookup.from.iter().filter(|template| passes(template)).cloned().collect(),
            before: lookup.before.clone(),
        };
        Self {
            id: keep(&self.id),
            id_is_signed: self.id_is_signed,
            delivery: Lookup::default(),
            event_type: keep(&self.event_type),
            object_type: keep(&self.object_type),
            object_id: keep(&self.object_id),
            version: self.version.as_ref().map(|version| VersionRules {
                parts: version.parts.iter().map(|(lookup, kind)| (keep(lookup), *kind)).collect(),
                trusted: version.trusted,
            }),
            occurred_at: self.occurred_at.as_ref().map(|(lookup, unit)| (keep(lookup), *unit)),
        }
    }
}
