//! From a table to a scheme. The rules about several keys at once are in `rules`.

use std::collections::BTreeMap;

use http::HeaderName;
use serde_json::Value;

use super::algorithm::Proof;
use super::handshake::handshakes;
use super::published::{IdForm, check_url};
use super::reader::Reader;
use super::rules::{Whole, check};
use super::template::{header_name, header_names};
use super::{
    About, Acknowledge, Algorithm, BodyRule, Clock, Encoding, IdentityRules, KeyEncoding,
    KeyFormat, KeyLookup, Lookup, Names, Part, Problems, Scheme, Shape, SignatureFormat, Template,
    Unit, Verifier, VersionKind,
};
use crate::json::Pointer;

/// Seconds that a request may be old. Below the least nothing gets through a slow network, above the most a captured
/// request stays good for too long; zero would read as "no check" to many.
const TOLERANCE: std::ops::RangeInclusive<u32> = 5..=3600;
const USUAL_TOLERANCE: u32 = 300;

pub(super) fn scheme(source: Value) -> Result<Scheme, Problems> {
    let Value::Object(table) = source.clone() else {
        return Err(Problems::one(
            "",
            "a scheme is a table with keys such as `algorithm` and `signature`".into(),
        ));
    };
    let mut problems = Vec::new();
    let mut reader = Reader::new("", table, &mut problems);
    let name = reader.text("name").unwrap_or_else(|| "custom".into());
    let about = about(&mut reader);
    let written = Written::of(&reader);
    let proof = proof(&mut reader);
    let key = reader.within("key", key).unwrap_or_default();
    let signature = reader.within("signature", signature).flatten();
    let body_unsigned = reader.flag("body_unsigned");
    let signed = match reader.text("signed") {
        Some(text) => template(&mut reader, "signed", &text, Spot::Signed),
        None => Template::default(),
    };
    let clock = reader.within("timestamp", clock).flatten();
    let body = reader.choice("body", &BodyRule::ALL).unwrap_or(BodyRule::Any);
    let require = reader
        .texts("require")
        .iter()
        .filter_map(|names| headers(&mut reader, "require", names))
        .collect();
    let require_with = headers_by_name(&mut reader, "require_with");
    let require_equal = texts_by_header(&mut reader, "require_equal");
    let sample = texts_by_header(&mut reader, "sample");
    let identity = reader.within("identity", |r| rules(r, Spot::Identity)).unwrap_or_default();
    let batch = pointer(&mut reader, "batch", true);
    let element = reader.within("element", |r| rules(r, Spot::Element));
    let config: BTreeMap<String, String> = reader.texts_by_name("config").into_iter().collect();
    let acknowledge = reader.within("acknowledge", acknowledge).unwrap_or_default();
    // whatever a handshake signs has no brace
    let handshakes = handshakes(&mut reader, body == BodyRule::Object, proof);
    let whole = Whole {
        written,
        proof,
        key: &key,
        signature: signature.as_ref(),
        signed: &signed,
        clock: clock.as_ref(),
        body_unsigned,
        element: element.as_ref(),
        is_batch: batch.is_some(),
    };
    check(&mut reader, &whole);
    let (request, element_rules) = split(identity, element.clone(), batch.is_some());
    let (request_signed, element_signed) =
        (whole.signs_id(&request), whole.signs_id(&element_rules));
    reader.finish();
    match proof {
        Some(proof) if problems.is_empty() => Ok(Scheme {
            source,
            name,
            about,
            proof,
            key,
            signature,
            signed,
            body_unsigned,
            clock,
            body,
            require,
            require_with,
            require_equal,
            identity: IdentityRules { id_is_signed: request_signed, ..request },
            batch: batch.map(|pointer| {
                (pointer, IdentityRules { id_is_signed: element_signed, ..element_rules })
            }),
            config,
            sample,
            acknowledge,
            handshakes,
        }),
        _ => Err(Problems(problems)),
    }
}

/// Which keys are there at all, right or wrong: what is wrong has its own problem and is not also missing.
#[derive(Clone, Copy)]
pub(super) struct Written {
    pub(super) algorithm: bool,
    pub(super) verifier: bool,
    pub(super) signature: bool,
    pub(super) signed: bool,
    pub(super) timestamp: bool,
}

impl Written {
    fn of(reader: &Reader<'_>) -> Self {
        Self {
            algorithm: reader.has("algorithm"),
            verifier: reader.has("verifier"),
            signature: reader.has("signature"),
            signed: reader.has("signed"),
            timestamp: reader.has("timestamp"),
        }
    }
}

fn proof(reader: &mut Reader<'_>) -> Option<Proof> {
    let algorithm = reader.choice("algorithm", &Algorithm::ALL).map(Proof::Algorithm);
    let verifier = reader.choice("verifier", &Verifier::ALL).map(Proof::Verifier);
    algorithm.or(verifier)
}

/// What belongs to the request, and what to each of its elements.
fn split(
    identity: IdentityRules,
    element: Option<IdentityRules>,
    is_batch: bool,
) -> (IdentityRules, IdentityRules) {
    match element {
        Some(element) => (identity, element),
        None if is_batch => {
            let json = |part: &Part| matches!(part, Part::Json(_) | Part::EveryJson(_));
            let reads_json = |template: &Template| template.parts().iter().any(json);
            let plain = |part: &Part| matches!(part, Part::Literal(_) | Part::Config(_));
            let only_json = |template: &Template| {
                reads_json(template)
                    && template.parts().iter().all(|part| json(part) || plain(part))
            };
            let delivery = identity.delivery.clone();
            let request = identity.keep(|template| !reads_json(template));
            (IdentityRules { delivery, ..request }, identity.keep(only_json))
        }
        None => (identity, IdentityRules::default()),
    }
}

/// Reads something that must be there. A value that is there but wrong has its own problem already.
fn required<T>(
    reader: &mut Reader<'_>,
    key: &str,
    read: impl FnOnce(&mut Reader<'_>) -> Option<T>,
) -> Option<T> {
    let missing = !reader.has(key);
    let value = read(reader);
    if missing {
        reader.problem(key, "is missing; see the documentation of schemes for the form");
    }
    value
}

fn about(reader: &mut Reader<'_>) -> About {
    let (title, docs) =
        (reader.text("title").unwrap_or_default(), reader.text("docs").unwrap_or_default());
    let facts = reader.within("facts", |facts| {
        let checked_on = facts.text("checked").unwrap_or_default();
        if !checked_on.is_empty() && checked_on.parse::<jiff::civil::Date>().is_err() {
            facts.problem("checked", "must be a day such as 2026-11-30");
        }
        let mark = facts
            .choice("mark", &[("S", "S"), ("D", "D"), ("T", "T"), ("M", "M")])
            .unwrap_or_default();
        (checked_on, mark.to_owned(), facts.text("from").unwrap_or_default())
    });
    let (checked_on, mark, facts_from) = facts.unwrap_or_default();
    About { title, docs, checked_on, mark, facts_from }
}

fn key(reader: &mut Reader<'_>) -> KeyFormat {
    KeyFormat {
        encoding: reader.choice("encoding", &KeyEncoding::ALL).unwrap_or_default(),
        strip_prefix: reader.text("strip_prefix").unwrap_or_default(),
        lookup: reader.within("lookup", key_lookup).flatten(),
    }
}

fn key_lookup(reader: &mut Reader<'_>) -> Option<KeyLookup> {
    let id = required(reader, "id", |r| lone(r, "id", Spot::KeyId));
    let id_form = reader.choice("id_form", &IdForm::ALL).unwrap_or(IdForm::Uuid);
    let url = required(reader, "url", |r| r.text("url"));
    if let Some(Err(what)) = url.as_deref().map(check_url) {
        reader.problem("url", what);
    }
    let answer = required(reader, "answer", |r| pointer(r, "answer", false));
    match (id, url, answer) {
        (Some(Part::Header(names)), Some(url), Some(answer)) => match names.as_slice() {
            [id] => Some(KeyLookup { id: id.clone(), id_form, url, answer }),
            _ => {
                reader.problem("id", "must be one header, without alternatives");
                None
            }
        },
        _ => None,
    }
}

fn pointer(reader: &mut Reader<'_>, key: &str, whole: bool) -> Option<Pointer> {
    let text = reader.text(key)?;
    let parsed = if whole { Pointer::parse_or_whole(&text) } else { Pointer::parse(&text) };
    if parsed.is_none() {
        let or_whole = if whole { ", or is empty for the whole body" } else { "" };
        reader.problem(
            key,
            format!("must be a JSON pointer, which starts with a slash as in `/data/id`{or_whole}"),
        );
    }
    parsed
}

fn signature(reader: &mut Reader<'_>) -> Option<SignatureFormat> {
    let from = required(reader, "from", |r| Some(places(r, "from"))).unwrap_or_default();
    let encoding = reader.choice("encoding", &Encoding::ALL).unwrap_or(Encoding::Hex);
    let paired = reader.flag("paired");
    let prefix = reader.text("prefix");
    let pairs = reader.within("pairs", |pairs| {
        let mut text = |key| {
            let text = required(pairs, key, |r| r.text(key));
            if text.as_deref() == Some("") {
                pairs.problem(key, "must not be empty");
            }
            text.unwrap_or_default()
        };
        let (item_sep, kv_sep, field) = (text("item_sep"), text("kv_sep"), text("field"));
        Shape::Pairs { item_sep, kv_sep, field, trim: pairs.flag("trim") }
    });
    if prefix.is_some() && pairs.is_some() {
        reader.problem("prefix", "belongs to a plain signature; remove it or `pairs`");
    }
    let shape = pairs.unwrap_or(Shape::Plain { prefix: prefix.unwrap_or_default() });
    (!from.is_empty()).then_some(SignatureFormat { from, paired, encoding, shape })
}

/// Where signatures stand: one place of any kind, or several headers.
fn places(reader: &mut Reader<'_>, key: &str) -> Vec<Part> {
    let is_there = reader.has(key);
    let texts = reader.texts(key);
    if texts.is_empty() && is_there && !reader.is_wrong(key) {
        reader.problem(key, "must be at least one {header:..}");
    }
    if texts.len() > MOST_PLACES {
        reader.problem(key, format!("has more than {MOST_PLACES} places"));
    }
    let places: Vec<Part> =
        texts.iter().filter_map(|text| lone_text(reader, key, text, Spot::Signature)).collect();
    if places.len() > 1 && !places.iter().all(|place| matches!(place, Part::Header(_))) {
        reader.problem(key, "is a list, so each must be one {header:..}");
    }
    places
}

/// More headers than any provider signs in.
const MOST_PLACES: usize = 8;

fn clock(reader: &mut Reader<'_>) -> Option<Clock> {
    let from = required(reader, "from", |r| lone(r, "from", Spot::Timestamp));
    let unit = reader.choice("unit", &Unit::ALL).unwrap_or(Unit::Seconds);
    let number = reader.flag("number");
    let tolerance = reader.seconds("tolerance", TOLERANCE).unwrap_or(USUAL_TOLERANCE);
    let future = reader.seconds("future", 0..=*TOLERANCE.end()).unwrap_or(tolerance);
    Some(Clock { from: from?, unit, number, tolerance, future })
}

fn acknowledge(reader: &mut Reader<'_>) -> Acknowledge {
    let status = reader.status("status").unwrap_or(200);
    let body = reader.text("body").unwrap_or_default();
    let content_type = reader.text("content_type");
    let plain = |text: &str| http::HeaderValue::from_str(text).is_ok() && text.contains('/');
    if content_type.as_deref().is_some_and(|text| !plain(text)) {
        reader.problem("content_type", "must be a media type such as text/plain");
    }
    if body.is_empty() && content_type.is_some() {
        reader.problem("content_type", "belongs to a body; remove it, or give `body`");
    }
    Acknowledge { status, body, content_type }
}

fn rules(reader: &mut Reader<'_>, spot: Spot) -> IdentityRules {
    let kind =
        |r: &mut Reader<'_>| r.choice("kind", &VersionKind::ALL).unwrap_or(VersionKind::Number);
    IdentityRules {
        id: lookup(reader, "id", spot),
        id_is_signed: false,
        delivery: lookup(reader, "delivery", spot),
        event_type: lookup(reader, "type", spot),
        object_type: lookup(reader, "object_type", spot),
        object_id: lookup(reader, "object_id", spot),
        version: reader.within("version", |version| {
            (lookup_here(version, spot), kind(version), version.flag("trusted"))
        }),
        occurred_at: reader.within("occurred_at", |time| {
            (lookup_here(time, spot), time.choice("unit", &Unit::ALL).unwrap_or(Unit::Rfc3339))
        }),
    }
}

/// A template, a list of them, or a table with `from`.
fn lookup(reader: &mut Reader<'_>, key: &str, spot: Spot) -> Lookup {
    if reader.is_table(key) {
        return reader.within(key, |table| lookup_here(table, spot)).unwrap_or_default();
    }
    let texts = reader.texts(key);
    Lookup { from: templates(reader, key, &texts, spot), before: None }
}

fn lookup_here(reader: &mut Reader<'_>, spot: Spot) -> Lookup {
    let texts = reader.texts("from");
    Lookup {
        from: templates(reader, "from", &texts, spot),
        before: reader.text("before").filter(|before| !before.is_empty()),
    }
}

fn templates(reader: &mut Reader<'_>, key: &str, texts: &[String], spot: Spot) -> Vec<Template> {
    texts.iter().map(|text| template(reader, key, text, spot)).collect()
}

/// Where a template stands, which decides what it may contain.
#[derive(Clone, Copy, PartialEq)]
enum Spot {
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

fn template(reader: &mut Reader<'_>, key: &str, text: &str, spot: Spot) -> Template {
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

fn lone(reader: &mut Reader<'_>, key: &str, spot: Spot) -> Option<Part> {
    let text = reader.text(key)?;
    lone_text(reader, key, &text, spot)
}

fn lone_text(reader: &mut Reader<'_>, key: &str, text: &str, spot: Spot) -> Option<Part> {
    match Template::parse(text).map(Template::lone) {
        Ok(Some(part)) if spot.allows(&part) => return Some(part),
        Ok(_) => reader.problem(key, format!("must be {}", spot.allowed())),
        Err(what) => reader.problem(key, what),
    }
    None
}

fn headers(reader: &mut Reader<'_>, key: &str, names: &str) -> Option<Names> {
    header_names(names).map_err(|what| reader.problem(key, what)).ok()
}

fn texts_by_header(reader: &mut Reader<'_>, key: &str) -> Vec<(HeaderName, String)> {
    let texts = reader.texts_by_name(key);
    let mut found = Vec::new();
    for (name, value) in texts {
        match header_name(&name) {
            Ok(name) => found.push((name, value)),
            Err(what) => reader.problem(key, what),
        }
    }
    found
}

fn headers_by_name(reader: &mut Reader<'_>, key: &str) -> Vec<(HeaderName, HeaderName)> {
    let texts = texts_by_header(reader, key);
    let mut found = Vec::new();
    for (name, value) in texts {
        match header_name(&value) {
            Ok(value) => found.push((name, value)),
            Err(what) => reader.problem(key, what),
        }
    }
    found
}
