//! What a verified request says of itself. Whatever cannot be read is absent; nothing here is an error.

use jiff::Timestamp;

use crate::digest;
use crate::freshness::{self, Sent};
use crate::json::{self, Leaf, Pointer};
use crate::request::Request;
use crate::scheme::{Lookup, Part, Scheme, Template, Unit, VersionKind};

/// Where an event comes from and what it is about. Texts are as long as they were sent: hash them before they become keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The provider's id of the event. `None` if there is none, or it is blank, or it contains control characters: then the
    /// hash of the body is the identity.
    pub id: Option<String>,
    /// Whether the signature covers the id.
    pub id_is_signed: bool,
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
}

pub(crate) fn extract(scheme: &Scheme, request: &Request<'_>) -> Identity {
    let rules = &scheme.identity;
    let found = Found::look_up(scheme, request);
    Identity {
        id: found.text(&rules.id),
        id_is_signed: rules.id_is_signed,
        event_type: found.text(&rules.event_type),
        object_type: found.text(&rules.object_type),
        object_id: found.text(&rules.object_id),
        version: rules
            .version
            .as_ref()
            .and_then(|(lookup, kind, _)| version(found.text(lookup)?, *kind)),
        version_is_trusted: rules.version.as_ref().is_some_and(|(.., trusted)| *trusted),
        occurred_at: rules
            .occurred_at
            .as_ref()
            .and_then(|(lookup, unit)| time(&found.text(lookup)?, *unit)),
    }
}

/// The request with all values of the body that the scheme asks for, read in one pass.
struct Found<'a> {
    scheme: &'a Scheme,
    request: &'a Request<'a>,
    values: Vec<(&'a Pointer, Option<Leaf>)>,
}

impl<'a> Found<'a> {
    fn look_up(scheme: &'a Scheme, request: &'a Request<'a>) -> Self {
        let pointers: Vec<&Pointer> = scheme
            .identity
            .lookups()
            .flat_map(|lookup| &lookup.from)
            .flat_map(Template::parts)
            .filter_map(|part| if let Part::Json(pointer) = part { Some(pointer) } else { None })
            .collect();
        let leaves =
            if pointers.is_empty() { Vec::new() } else { json::pick(request.body, &pointers) };
        Self { scheme, request, values: pointers.into_iter().zip(leaves).collect() }
    }

    /// The first template that is complete and gives something usable.
    fn text(&self, lookup: &Lookup) -> Option<String> {
        lookup.from.iter().find_map(|template| {
            let text: String =
                template.parts().iter().map(|part| self.part(part)).collect::<Option<_>>()?;
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

    fn part(&self, part: &Part) -> Option<String> {
        match part {
            Part::Literal(text) => Some(text.clone()),
            Part::Header(names) => {
                let line = self.request.single(names).ok().flatten()?;
                std::str::from_utf8(line)
                    .ok()
                    .filter(|line| !line.trim().is_empty())
                    .map(ToOwned::to_owned)
            }
            Part::Json(wanted) => {
                let (_, leaf) = self.values.iter().find(|(pointer, _)| *pointer == wanted)?;
                leaf.clone().map(Leaf::into_text)
            }
            Part::BodySha256 => Some(hex::encode(digest::sha256(self.request.body))),
            Part::Config(name) => self.scheme.config.get(name).cloned(),
            Part::Body | Part::Timestamp | Part::Method | Part::Url | Part::Pair(_) => None,
        }
    }
}

fn version(text: String, kind: VersionKind) -> Option<Version> {
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
