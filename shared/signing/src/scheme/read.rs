//! From a table to a scheme. The rules about several keys at once are in `rules`.

use std::collections::BTreeMap;

use http::HeaderName;
use serde_json::Value;

use super::algorithm::Proof;
use super::handshake::handshakes;
use super::names::{headers_of, rules, split};
use super::published::{IdForm, check_url};
use super::reader::Reader;
use super::rules::{Whole, check};
use super::spot::{Spot, lone, lone_text, template};
use super::template::{header_name, header_names};
use super::{
    About, Acknowledge, Algorithm, BodyRule, Clock, Encoding, KeyEncoding, KeyFormat, KeyLookup,
    Names, Part, Problems, Scheme, Shape, SignatureFormat, Template, Unit, Verifier,
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
    let whole = whole(&mut reader);
    let demands = demands(&mut reader);
    let config: BTreeMap<String, String> = reader.texts_by_name("config").into_iter().collect();
    let sample = texts_by_header(&mut reader, "sample");
    let acknowledge = reader.within("acknowledge", acknowledge).unwrap_or_default();
    // whatever a handshake signs has no brace
    let is_object = demands.body == BodyRule::Object;
    let handshakes = handshakes(&mut reader, is_object, whole.proof);
    check(&mut reader, &whole);
    reader.finish();
    let Some(proof) = whole.proof.filter(|_| problems.is_empty()) else {
        return Err(Problems(problems));
    };
    let (mut request, mut element) = split(&whole);
    request.id_is_signed = whole.signs_id(&request);
    element.id_is_signed = whole.signs_id(&element);
    let Whole { key, signature, signed, clock, body_unsigned, batch, .. } = whole;
    let Demands { body, require, require_with, require_equal } = demands;
    Ok(Scheme {
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
        named_by: headers_of(&request),
        identity: request,
        batch: batch.map(|pointer| (pointer, element)),
        config,
        sample,
        acknowledge,
        handshakes,
    })
}

/// What the rules about several keys look at.
fn whole(reader: &mut Reader<'_>) -> Whole {
    Whole {
        written: Written::of(reader),
        proof: proof(reader),
        key: reader.within("key", key).unwrap_or_default(),
        signature: reader.within("signature", signature).flatten(),
        body_unsigned: reader.flag("body_unsigned"),
        signed: match reader.text("signed") {
            Some(text) => template(reader, "signed", &text, Spot::Signed),
            None => Template::default(),
        },
        clock: reader.within("timestamp", clock).flatten(),
        identity: reader.within("identity", |r| rules(r, Spot::Identity)).unwrap_or_default(),
        batch: pointer(reader, "batch", true),
        element: reader.within("element", |r| rules(r, Spot::Element)),
    }
}

/// What must be there, before any secret is touched.
struct Demands {
    body: BodyRule,
    require: Vec<Names>,
    require_with: Vec<(HeaderName, HeaderName)>,
    require_equal: Vec<(HeaderName, String)>,
}

fn demands(reader: &mut Reader<'_>) -> Demands {
    let require = reader.texts("require");
    Demands {
        body: reader.choice("body", &BodyRule::ALL).unwrap_or(BodyRule::Any),
        require: require.iter().filter_map(|names| headers(reader, "require", names)).collect(),
        require_with: headers_by_name(reader, "require_with"),
        require_equal: texts_by_header(reader, "require_equal"),
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
