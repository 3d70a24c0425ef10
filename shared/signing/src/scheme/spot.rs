//! Where a template stands in a scheme, which decides what it may contain.

use super::reader::Reader;
use super::{Part, Template};

/// Where a template stands.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Spot {
    Signed,
    Signature,
    Timestamp,
    Identity,
    Element,
    KeyId,
}

impl Spot {
    fn allows(self, part: &Part) -> bool {
        match part {
            Part::Literal(_) | Part::Config(_) => {
                matches!(self, Self::Signed | Self::Identity | Self::Element)
            }
            Part::Body
            | Part::Timestamp
            | Part::Method
            | Part::Url(_)
            | Part::PathQuery
            | Part::SignedHeaders(_)
            | Part::Secret => self == Self::Signed,
            Part::BodySha256 | Part::Received | Part::Form(_) | Part::HasForm(_) => {
                self == Self::Identity
            }
            Part::Pair(_) => self == Self::Timestamp,
            Part::EveryJson(_) => matches!(self, Self::Signature | Self::Identity | Self::Element),
            Part::PathSecret => self == Self::Signature,
            Part::Header(_) => self != Self::Element,
            Part::Json(_) => self != Self::KeyId,
        }
    }

    fn allowed(self) -> &'static str {
        match self {
            Self::Signed => {
                "{body}, {ts}, {method}, {url}, {url:hubspot}, {path-query}, {header:..}, {signed-headers:..}, {json:/..}, \
                 {config:..} and {secret}"
            }
            Self::Signature => {
                "exactly one {header:..}, {json:/..}, {json:/../*/..} or {path-secret}"
            }
            Self::Timestamp => "exactly one {header:..}, {pair:..} or {json:/..}",
            Self::Identity => {
                "{header:..}, {json:/..}, {form:..}, {has-form:..}, {body-sha256}, {received} and {config:..}"
            }
            Self::Element => "{json:/..} and {config:..}",
            Self::KeyId => "exactly one {header:..}",
        }
    }
}

pub(super) fn template(reader: &mut Reader<'_>, key: &str, text: &str, spot: Spot) -> Template {
    match Template::parse(text) {
        Ok(template) if template.parts().iter().all(|part| spot.allows(part)) => template,
        Ok(_) => {
            reader.problem(
                key,
                format!("has a part that makes no sense here; it may use {}", spot.allowed()),
            );
            Template::default()
        }
        Err(what) => {
            reader.problem(key, what);
            Template::default()
        }
    }
}

/// The one part of a template that may have no other.
pub(super) fn lone(reader: &mut Reader<'_>, key: &str, spot: Spot) -> Option<Part> {
    let text = reader.text(key)?;
    lone_text(reader, key, &text, spot)
}

pub(super) fn lone_text(
    reader: &mut Reader<'_>,
    key: &str,
    text: &str,
    spot: Spot,
) -> Option<Part> {
    match Template::parse(text).map(Template::lone) {
        Ok(Some(part)) if spot.allows(&part) => return Some(part),
        Ok(_) => reader.problem(key, format!("must be {}", spot.allowed())),
        Err(what) => reader.problem(key, what),
    }
    None
}
