//! Where a request, or one of its elements, says what it is.

use super::reader::Reader;
use super::rules::Whole;
use super::spot::{Spot, template};
use super::{IdentityRules, Lookup, Names, Part, Template, Unit, VersionKind, VersionRules};

/// Most parts of a composite version. More would be a document, not a version.
const MAX_VERSION_PARTS: usize = 4;

/// Reads `[identity]` or `[element]`.
pub(super) fn rules(reader: &mut Reader<'_>, spot: Spot) -> IdentityRules {
    IdentityRules {
        id: lookup(reader, "id", spot),
        id_is_signed: false,
        delivery: lookup(reader, "delivery", spot),
        event_type: lookup(reader, "type", spot),
        object_type: lookup(reader, "object_type", spot),
        object_id: lookup(reader, "object_id", spot),
        version: reader.within("version", |version| VersionRules {
            parts: version_parts(version, spot),
            trusted: version.flag("trusted"),
        }),
        occurred_at: reader.within("occurred_at", |time| {
            (lookup_here(time, spot), time.choice("unit", &Unit::ALL).unwrap_or(Unit::Rfc3339))
        }),
    }
}

/// One part, which stands in the table of the version itself, or several in a list.
fn version_parts(reader: &mut Reader<'_>, spot: Spot) -> Vec<(Lookup, VersionKind)> {
    let part = |reader: &mut Reader<'_>| {
        let kind = reader.choice("kind", &VersionKind::ALL).unwrap_or(VersionKind::Number);
        (lookup_here(reader, spot), kind)
    };
    if !reader.has("parts") {
        return vec![part(reader)];
    }
    let parts = reader.each("parts", |reader| Some(part(reader)));
    if !(2..=MAX_VERSION_PARTS).contains(&parts.len()) && !reader.is_wrong("parts") {
        let what = format!(
            "must be a list of 2 to {MAX_VERSION_PARTS} tables with `from` and `kind`; one part needs no list"
        );
        reader.problem("parts", what);
    }
    if parts.iter().any(|(lookup, _)| lookup.from.is_empty()) {
        reader.problem("parts", "must each say `from` where they are found");
    }
    parts
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

/// The headers that an identity is read from, each once.
pub(super) fn headers_of(identity: &IdentityRules) -> Vec<Names> {
    let mut headers: Vec<Names> = Vec::new();
    for part in identity.templates().flat_map(Template::parts) {
        match part {
            Part::Header(names) if !headers.contains(names) => headers.push(names.clone()),
            _ => {}
        }
    }
    headers
}

/// What belongs to the request, and what to each of its elements.
pub(super) fn split(whole: &Whole) -> (IdentityRules, IdentityRules) {
    let identity = &whole.identity;
    if let Some(element) = &whole.element {
        return (identity.clone(), element.clone());
    }
    if whole.batch.is_none() {
        return (identity.clone(), IdentityRules::default());
    }
    let json = |part: &Part| matches!(part, Part::Json(_) | Part::EveryJson(_));
    let plain = |part: &Part| matches!(part, Part::Literal(_) | Part::Config(_));
    let reads_json = |template: &Template| template.parts().iter().any(json);
    let only_json = |template: &Template| {
        reads_json(template) && template.parts().iter().all(|part| json(part) || plain(part))
    };
    let request = identity.keep(|template| !reads_json(template));
    let delivery = identity.delivery.clone();
    (IdentityRules { delivery, ..request }, identity.keep(only_json))
}
