//! What a verified request says of itself. Whatever cannot be read is absent; nothing here is an error.

use std::borrow::Cow;

use jiff::Timestamp;

use crate::MAX_ELEMENTS;
use crate::digest;
use crate::form;
use crate::freshness::{self, Sent};
use crate::json::{self, Leaf, Pointer};
use crate::request::Request;
use crate::scheme::{
    IdentityRules, Lookup, Part, Scheme, Template, Unit, VersionKind, VersionRules,
};

/// Where an event comes from and what it is about. Texts are as long as they were sent: hash them before they become keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The provider's id of the event. `None` if there is none, or it is blank, or it contains control characters: then the
    /// hash of the body is the identity.
    pub id: Option<String>,
    /// Whether the signature covers the id.
    pub id_is_signed: bool,
    /// Names the delivery, for correlation with the provider's log only.
    pub delivery: Option<String>,
    /// As in `invoice.paid`.
    pub event_type: Option<String>,
    /// The kind of thing that the event is about.
    pub object_type: Option<String>,
    /// Which one.
    pub object_id: Option<String>,
    /// Its version after the event.
    pub version: Option<Version>,
    /// Whether the version orders all changes of an object. If not, two changes can carry the same one, and the current
    /// state has to be fetched.
    pub version_is_trusted: bool,
    /// When it happened, as the provider says.
    pub occurred_at: Option<Timestamp>,
}

/// The version of an object. Only versions of the same kind can be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Version {
    /// Counts up.
    Number(u64),
    /// A time of change.
    Time(Timestamp),
    /// Compared as text, byte by byte.
    Text(String),
    /// Several, compared part by part: the first that differs decides.
    Composite(Vec<Version>),
}

/// What a request says of itself, whoever vouches for it: for one whose body had to be decoded after it was verified.
#[must_use]
pub fn identify(scheme: &Scheme, request: &Request<'_>, now: Timestamp) -> Identity {
    of_request(scheme, request, now)
}

/// What the whole request says.
pub(crate) fn of_request(scheme: &Scheme, request: &Request<'_>, now: Timestamp) -> Identity {
    let found = Found::look_up(scheme, &scheme.terms.identity, Some((request, now)), request.body);
    extract(&scheme.terms.identity, &found)
}

/// What one element of a request says, by its own bytes alone.
pub(crate) fn of_element(scheme: &Scheme, rules: &IdentityRules, element: &[u8]) -> Identity {
    extract(rules, &Found::look_up(scheme, rules, None, element))
}

fn extract(rules: &IdentityRules, found: &Found<'_>) -> Identity {
    Identity {
        id: found.text(&rules.id),
        id_is_signed: rules.id_is_signed,
        delivery: found.text(&rules.delivery),
        event_type: found.text(&rules.event_type),
        object_type: found.text(&rules.object_type),
        object_id: found.text(&rules.object_id),
        version: rules.version.as_ref().and_then(|rules| version(rules, found)),
        version_is_trusted: rules.version.as_ref().is_some_and(|rules| rules.trusted),
        occurred_at: rules
            .occurred_at
            .as_ref()
            .and_then(|(lookup, unit)| time(&found.text(lookup)?, *unit)),
    }
}

/// A body with all values that the rules ask for, read in one pass, and the headers it came with.
struct Found<'a> {
    scheme: &'a Scheme,
    /// None for an element: it has neither headers nor a time of its own.
    request: Option<(&'a Request<'a>, Timestamp)>,
    body: &'a [u8],
    values: Vec<(&'a Pointer, Option<Leaf>)>,
}

impl<'a> Found<'a> {
    fn look_up(
        scheme: &'a Scheme,
        rules: &'a IdentityRules,
        request: Option<(&'a Request<'a>, Timestamp)>,
        body: &'a [u8],
    ) -> Self {
        let pointers: Vec<&Pointer> = rules
            .templates()
            .flat_map(Template::parts)
            .filter_map(|part| if let Part::Json(pointer) = part { Some(pointer) } else { None })
            .collect();
        let leaves = if pointers.is_empty() { Vec::new() } else { json::pick(body, &pointers) };
        Self { scheme, request, body, values: pointers.into_iter().zip(leaves).collect() }
    }

    /// The first template that is complete and gives something usable.
    fn text(&self, lookup: &Lookup) -> Option<String> {
        lookup.from.iter().find_map(|template| {
            let text = self.filled(template)?;
            let text = match &lookup.before {
                Some(before) => text
                    .split_once(before.as_str())
                    .map_or(text.as_str(), |(start, _)| start)
                    .to_owned(),
                None => text,
            };
            (!text.trim().is_empty() && !text.chars().any(char::is_control)).then_some(text)
        })
    }

    fn filled(&self, template: &Template) -> Option<String> {
        let mut text = String::new();
        for part in template.parts() {
            text.push_str(&self.part(part)?);
        }
        Some(text)
    }

    fn part<'s>(&'s self, part: &'s Part) -> Option<Cow<'s, str>> {
        match part {
            Part::Literal(text) => Some(text.as_str().into()),
            Part::Header(names) => {
                let line = self.request?.0.single(names).ok().flatten()?;
                std::str::from_utf8(line)
                    .ok()
                    .filter(|line| !line.trim().is_empty())
                    .map(Cow::Borrowed)
            }
            Part::Json(wanted) => {
                let (_, leaf) = self.values.iter().find(|(pointer, _)| *pointer == wanted)?;
                leaf.as_ref().map(|leaf| leaf.text().into())
            }
            Part::EveryJson(pointers) => {
                let mut leaves = json::every(self.body, pointers, MAX_ELEMENTS)?;
                leaves.dedup();
                match leaves.as_slice() {
                    [only] => Some(only.text().to_owned().into()),
                    _ => None,
                }
            }
            Part::Received => Some(self.request?.1.as_millisecond().to_string().into()),
            Part::Form(field) => form::field(self.body, field).map(Cow::Owned),
            Part::HasForm(field) => form::field(self.body, field).map(|_| "".into()),
            Part::BodySha256 => Some(hex::encode(digest::sha256(self.body)).into()),
            Part::Config(name) => self.scheme.config(name).map(Cow::Borrowed),
            Part::Body
            | Part::Timestamp
            | Part::Method
            | Part::Url(_)
            | Part::PathQuery
            | Part::SignedHeaders(_)
            | Part::Pair(_)
            | Part::Secret
            | Part::PathSecret => None,
        }
    }
}

/// A version of several parts needs all of them.
fn version(rules: &VersionRules, found: &Found<'_>) -> Option<Version> {
    let part = |(lookup, kind): &(Lookup, VersionKind)| part(found.text(lookup)?, *kind);
    match rules.parts.as_slice() {
        [only] => part(only),
        parts => parts.iter().map(part).collect::<Option<_>>().map(Version::Composite),
    }
}

fn part(text: String, kind: VersionKind) -> Option<Version> {
    match kind {
        VersionKind::Number => text.parse().ok().map(Version::Number),
        VersionKind::Rfc3339 => freshness::rfc3339(text.as_bytes()).map(Version::Time),
        VersionKind::Lexical => Some(Version::Text(text)),
    }
}

fn time(text: &str, unit: Unit) -> Option<Timestamp> {
    match (unit, freshness::read(text.as_bytes(), unit)?) {
        (Unit::Rfc3339, _) => freshness::rfc3339(text.as_bytes()),
        (Unit::Seconds, Sent::At(seconds)) => Timestamp::from_second(seconds).ok(),
        (Unit::Milliseconds, Sent::At(milliseconds)) => {
            Timestamp::from_millisecond(milliseconds).ok()
        }
        (_, Sent::OutOfRange) => None,
    }
}
