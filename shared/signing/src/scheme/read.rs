//! From a table to a scheme, and the rules that make it safe.

use std::collections::BTreeMap;

use serde_json::Value;

use super::reader::Reader;
use super::template::{header_name, header_names};
use super::{
    About, Algorithm, BodyRule, Clock, Encoding, IdentityRules, KeyEncoding, KeyFormat, Lookup,
    Names, Part, Problems, Scheme, Shape, SignatureFormat, Template, Unit, VersionKind,
};

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
    let algorithm = required(&mut reader, "algorithm", |r| r.choice("algorithm", &Algorithm::ALL));
    let key = reader
        .within("key", key)
        .unwrap_or(KeyFormat { encoding: KeyEncoding::Utf8, strip_prefix: String::new() });
    let signature =
        required(&mut reader, "signature", |r| r.within("signature", signature).flatten());
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
    let require_with = header_pairs(&mut reader, "require_with", true);
    let require_equal = header_pairs(&mut reader, "require_equal", false);
    let sample = header_pairs(&mut reader, "sample", false);
    let identity = reader.within("identity", identity).unwrap_or_default();
    let config: BTreeMap<String, String> = reader.texts_by_name("config").into_iter().collect();
    if let (Some(algorithm), Some(signature)) = (algorithm, &signature) {
        agree(
            &mut reader,
            &Together {
                algorithm,
                key: &key,
                signature,
                signed: &signed,
                clock: &clock,
                body_unsigned,
            },
        );
    }
    reader.finish();
    match (algorithm, signature) {
        (Some(algorithm), Some(signature)) if problems.is_empty() => {
            let id_is_signed = id_is_signed(&identity, &signed, algorithm);
            let identity = IdentityRules { id_is_signed, ..identity };
            Ok(Scheme {
                source,
                name,
                about,
                algorithm,
                key,
                signature,
                signed,
                clock,
                body,
                require,
                require_with,
                require_equal,
                identity,
                config,
                sample,
            })
        }
        _ => Err(Problems(problems)),
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
        encoding: reader.choice("encoding", &KeyEncoding::ALL).unwrap_or(KeyEncoding::Utf8),
        strip_prefix: reader.text("strip_prefix").unwrap_or_default(),
    }
}

fn signature(reader: &mut Reader<'_>) -> Option<SignatureFormat> {
    let from = required(reader, "from", |r| lone(r, "from", Spot::Signature));
    let encoding = reader.choice("encoding", &Encoding::ALL).unwrap_or(Encoding::Hex);
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
    Some(SignatureFormat { from: from?, encoding, shape })
}

fn clock(reader: &mut Reader<'_>) -> Option<Clock> {
    let from = required(reader, "from", |r| lone(r, "from", Spot::Timestamp));
    let unit = reader.choice("unit", &Unit::ALL).unwrap_or(Unit::Seconds);
    let number = reader.flag("number");
    let tolerance = reader.seconds("tolerance", TOLERANCE).unwrap_or(USUAL_TOLERANCE);
    let future = reader.seconds("future", 0..=*TOLERANCE.end()).unwrap_or(tolerance);
    Some(Clock { from: from?, unit, number, tolerance, future })
}

fn identity(reader: &mut Reader<'_>) -> IdentityRules {
    let kind =
        |r: &mut Reader<'_>| r.choice("kind", &VersionKind::ALL).unwrap_or(VersionKind::Number);
    IdentityRules {
        id: lookup(reader, "id"),
        id_is_signed: false,
        event_type: lookup(reader, "type"),
        object_type: lookup(reader, "object_type"),
        object_id: lookup(reader, "object_id"),
        version: reader.within("version", |version| {
            (lookup_here(version), kind(version), version.flag("trusted"))
        }),
        occurred_at: reader.within("occurred_at", |time| {
            (lookup_here(time), time.choice("unit", &Unit::ALL).unwrap_or(Unit::Rfc3339))
        }),
    }
}

/// A template, a list of them, or a table with `from`.
fn lookup(reader: &mut Reader<'_>, key: &str) -> Lookup {
    if reader.is_table(key) {
        return reader.within(key, lookup_here).unwrap_or_default();
    }
    let texts = reader.texts(key);
    Lookup { from: templates(reader, key, &texts), before: None }
}

fn lookup_here(reader: &mut Reader<'_>) -> Lookup {
    let texts = reader.texts("from");
    Lookup {
        from: templates(reader, "from", &texts),
        before: reader.text("before").filter(|before| !before.is_empty()),
    }
}

fn templates(reader: &mut Reader<'_>, key: &str, texts: &[String]) -> Vec<Template> {
    texts.iter().map(|text| template(reader, key, text, Spot::Identity)).collect()
}

/// Where a template stands, which decides what it may contain.
#[derive(Clone, Copy, PartialEq)]
enum Spot {
    Signed,
    Signature,
    Timestamp,
    Identity,
}

impl Spot {
    fn allows(self, part: &Part) -> bool {
        match part {
            Part::Literal(_) | Part::Config(_) => matches!(self, Self::Signed | Self::Identity),
            Part::Body | Part::Timestamp | Part::Method | Part::Url => self == Self::Signed,
            Part::BodySha256 => self == Self::Identity,
            Part::Pair(_) => self == Self::Timestamp,
            Part::Header(_) | Part::Json(_) => true,
        }
    }

    fn allowed(self) -> &'static str {
        match self {
            Self::Signed => {
                "{body}, {ts}, {method}, {url}, {header:..}, {json:/..} and {config:..}"
            }
            Self::Signature => "exactly one {header:..} or {json:/..}",
            Self::Timestamp => "exactly one {header:..}, {pair:..} or {json:/..}",
            Self::Identity => "{header:..}, {json:/..}, {body-sha256} and {config:..}",
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
    match Template::parse(&text).map(Template::lone) {
        Ok(Some(part)) if spot.allows(&part) => return Some(part),
        Ok(_) => reader.problem(key, format!("must be {}", spot.allowed())),
        Err(what) => reader.problem(key, what),
    }
    None
}

fn headers(reader: &mut Reader<'_>, key: &str, names: &str) -> Option<Names> {
    header_names(names).map_err(|what| reader.problem(key, what)).ok()
}

fn header_pairs(
    reader: &mut Reader<'_>,
    key: &str,
    value_is_header: bool,
) -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    for (name, value) in reader.texts_by_name(key) {
        let value = if value_is_header { header_name(&value) } else { Ok(value) };
        match (header_name(&name), value) {
            (Ok(name), Ok(value)) => pairs.push((name, value)),
            (Err(what), _) | (_, Err(what)) => reader.problem(key, what),
        }
    }
    pairs
}

struct Together<'a> {
    algorithm: Algorithm,
    key: &'a KeyFormat,
    signature: &'a SignatureFormat,
    signed: &'a Template,
    clock: &'a Option<Clock>,
    body_unsigned: bool,
}

/// Rules about several keys at once: what would look like a check and be none.
fn agree(reader: &mut Reader<'_>, scheme: &Together<'_>) {
    let signs = |part: &Part| scheme.signed.parts().contains(part);
    let Together { algorithm, key, signature, clock, body_unsigned, .. } = scheme;
    match algorithm {
        Algorithm::Token => {
            if !scheme.signed.parts().is_empty() {
                reader.problem("signed", "a token signs nothing; remove it");
            }
            if key.encoding != KeyEncoding::Utf8 {
                reader.problem("key.encoding", "a token is compared as text; use utf8");
            }
            if clock.is_some() {
                reader.problem("timestamp", "nothing signs it, so it proves nothing; remove it");
            }
            return;
        }
        Algorithm::Ed25519 if key.encoding == KeyEncoding::Utf8 => {
            reader.problem("key.encoding", "an Ed25519 key is 32 bytes; use hex or base64");
        }
        _ => {}
    }
    if !signs(&Part::Body) && !body_unsigned {
        reader.problem("signed", "must contain {body}, or anybody could change it; `body_unsigned = true` if that is really so");
    }
    match clock {
        None if signs(&Part::Timestamp) => {
            reader.problem("timestamp", "`signed` contains {ts}; say where it is found");
        }
        None => {}
        Some(clock) => {
            let covered = signs(&Part::Timestamp)
                || (matches!(clock.from, Part::Json(_)) && signs(&Part::Body));
            if !covered {
                reader.problem("timestamp.from", "is not signed, so a replay could carry a new one; put {ts} into `signed`, or remove `timestamp`");
            }
            if matches!(clock.from, Part::Pair(_)) && matches!(signature.shape, Shape::Plain { .. })
            {
                reader.problem("timestamp.from", "{pair:..} needs `signature.pairs`");
            }
        }
    }
}

/// Whether everything that the id is made of is covered by the signature.
fn id_is_signed(identity: &IdentityRules, signed: &Template, algorithm: Algorithm) -> bool {
    let covers = |part: &Part| match part {
        Part::Literal(_) | Part::Config(_) => true,
        Part::Json(_) | Part::BodySha256 => {
            signed.parts().contains(&Part::Body) || signed.parts().contains(part)
        }
        _ => signed.parts().contains(part),
    };
    algorithm != Algorithm::Token && identity.id.from.iter().flat_map(Template::parts).all(covers)
}
