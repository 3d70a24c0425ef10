//! Answers, for people and for programs.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde_json::{Map, Value, json};
use signing::handshake::Reply;
use signing::{Identity, Version};

use super::case::Case;
use super::compare::Comparison;
use super::judge::{Outcome, Then, Verdict};
use crate::complaint::{Complaint, printable};

/// Elements of a request that a person gets to see.
const MOST_ELEMENTS: usize = 10;

/// One paragraph for each case.
pub(super) fn verdicts(out: &mut dyn Write, verdicts: &[(&Case, Verdict)]) -> io::Result<()> {
    for (case, verdict) in verdicts {
        let Verdict { scheme, trust, outcome, weak, body_bytes, body_sha256 } = verdict;
        match outcome {
            Outcome::Accepted { key, identity, elements, .. } => {
                writeln!(out, "{}: accepted", case.title())?;
                writeln!(out, "  signature  {} ({})", printable(scheme), printable(key))?;
                writeln!(out, "  trust      {trust}")?;
                self::identity(out, identity)?;
                if let Some(elements) = elements {
                    self::elements(out, elements)?;
                }
            }
            Outcome::Answered { reply, then, .. } => {
                writeln!(out, "{}: answered as a handshake, no event", case.title())?;
                writeln!(out, "  scheme     {}", printable(scheme))?;
                self::reply(out, reply, then)?;
            }
            Outcome::Rejected { class, code, why, next } => {
                writeln!(out, "{}: rejected as {class} ({code})", case.title())?;
                writeln!(out, "  scheme     {}", printable(scheme))?;
                writeln!(out, "  why        {why}")?;
                writeln!(out, "  next       {next}")?;
            }
        }
        writeln!(out, "  body       {body_bytes} bytes, sha256 {body_sha256}")?;
        for (key, weakness) in weak {
            writeln!(out, "  warning    {}: {weakness}", printable(key))?;
        }
    }
    Ok(())
}

fn identity(out: &mut dyn Write, identity: &Identity) -> io::Result<()> {
    let signed = if identity.id_is_signed { "signed" } else { "not signed" };
    match &identity.id {
        Some(id) => writeln!(out, "  id         {} ({signed})", printable(id))?,
        None => writeln!(out, "  id         none; the sha256 of the body stands in for it")?,
    }
    if let Some(delivery) = &identity.delivery {
        writeln!(out, "  delivery   {}", printable(delivery))?;
    }
    writeln!(
        out,
        "  type       {}",
        identity.event_type.as_deref().map_or_else(|| "none".into(), printable)
    )?;
    if let Some(id) = &identity.object_id {
        let kind = identity.object_type.as_deref().map(printable).unwrap_or_default();
        writeln!(out, "  object     {kind} {}", printable(id))?;
    }
    if let Some(version) = &identity.version {
        let trust = if identity.version_is_trusted { "" } else { " (not enough to order by)" };
        writeln!(out, "  version    {}{trust}", printable(&self::version(version)))?;
    }
    if let Some(time) = identity.occurred_at {
        writeln!(out, "  happened   {time}")?;
    }
    Ok(())
}

/// How many events the request carries, and what the first ones are.
fn elements(out: &mut dyn Write, elements: &[Identity]) -> io::Result<()> {
    writeln!(out, "  events     {}, one after another:", elements.len())?;
    for element in elements.iter().take(MOST_ELEMENTS) {
        let text = |text: &Option<String>| text.as_deref().map_or_else(|| "none".into(), printable);
        let object = match (&element.object_type, &element.object_id) {
            (kind, Some(id)) => format!(", object {} {}", text(kind), printable(id)),
            (_, None) => String::new(),
        };
        writeln!(out, "    id {}, type {}{object}", text(&element.id), text(&element.event_type))?;
    }
    if elements.len() > MOST_ELEMENTS {
        writeln!(out, "    and {} more", elements.len() - MOST_ELEMENTS)?;
    }
    Ok(())
}

/// An answer to a handshake that brings a secret may repeat it; a terminal does not.
fn shown_headers<'r>(reply: &'r Reply, then: &Then) -> BTreeMap<&'r str, &'r str> {
    let hide = matches!(then, Then::StoreSecret);
    let shown = |(name, value): &'r (String, String)| {
        (name.as_str(), if hide { "(not shown)" } else { value.as_str() })
    };
    reply.headers.iter().map(shown).collect()
}

fn reply(out: &mut dyn Write, reply: &Reply, then: &Then) -> io::Result<()> {
    writeln!(out, "  answer     {}", reply.status)?;
    for (name, value) in shown_headers(reply, then) {
        writeln!(out, "             {}: {}", printable(name), printable(value))?;
    }
    if !reply.body.is_empty() {
        writeln!(out, "             {}", printable(&String::from_utf8_lossy(&reply.body)))?;
    }
    match then {
        Then::Nothing => Ok(()),
        Then::StoreSecret => {
            writeln!(
                out,
                "  then       the secret that it brings is stored, while the source waits for one"
            )
        }
        Then::Fetch(url) => writeln!(out, "  then       {} is fetched", printable(url)),
    }
}

fn version(version: &Version) -> String {
    match version {
        Version::Number(number) => number.to_string(),
        Version::Time(time) => time.to_string(),
        Version::Text(text) => text.clone(),
        Version::Composite(parts) => {
            parts.iter().map(self::version).collect::<Vec<_>>().join(", then ")
        }
    }
}

/// Disagreements first, the sum last.
pub(super) fn comparison(out: &mut dyn Write, comparison: &Comparison) -> io::Result<()> {
    for mismatch in &comparison.mismatches {
        let (case, detail) = (&mismatch.case, &mismatch.detail);
        writeln!(out, "{case}: expected {}, got {}\n  {detail}", mismatch.expected, mismatch.got)?;
    }
    let differ = comparison.mismatches.len();
    writeln!(
        out,
        "{} compared, {differ} {}",
        cases(comparison.compared),
        plural(differ, "mismatch", "mismatches")
    )?;
    if !comparison.not_covered.is_empty() {
        let (count, providers) =
            (comparison.not_covered.values().sum(), comparison.not_covered.len());
        let names: Vec<&str> = comparison.not_covered.keys().map(String::as_str).collect();
        let providers_text = plural(providers, "provider", "providers");
        writeln!(
            out,
            "not covered: {} of {providers} {providers_text} ({})",
            cases(count),
            names.join(", ")
        )?;
    }
    for contradiction in &comparison.contradictions {
        writeln!(out, "a mistake of the case: {contradiction}")?;
    }
    if comparison.without_expectation > 0 {
        writeln!(out, "without an expectation: {}", cases(comparison.without_expectation))?;
    }
    Ok(())
}

fn cases(count: usize) -> String {
    format!("{count} {}", plural(count, "case", "cases"))
}

fn plural(count: usize, one: &'static str, many: &'static str) -> &'static str {
    if count == 1 { one } else { many }
}

/// One JSON document; strings as they are, because JSON escapes control characters itself.
pub(super) fn verdicts_as_json(
    out: &mut dyn Write,
    verdicts: &[(&Case, Verdict)],
    complaints: &[Complaint],
) -> io::Result<()> {
    let cases: Vec<Value> =
        verdicts.iter().map(|(case, verdict)| verdict_as_json(case, verdict)).collect();
    write_json(out, &json!({ "cases": cases, "problems": problems(complaints) }))
}

fn verdict_as_json(case: &Case, verdict: &Verdict) -> Value {
    let mut value = match &verdict.outcome {
        Outcome::Accepted { key, identity, elements, .. } => {
            let mut value = identity_as_json(identity);
            value.insert("accepted".into(), Value::from(true));
            value.insert("key".into(), Value::from(key.as_str()));
            if let Some(elements) = elements {
                let elements: Vec<_> = elements.iter().map(identity_as_json).collect();
                value.insert("elements".into(), Value::from(elements));
            }
            Value::Object(value)
        }
        Outcome::Answered { reply, then, .. } => json!({
            "accepted": true,
            "handshake": {
                "status": reply.status,
                "headers": shown_headers(reply, then),
                "body": String::from_utf8_lossy(&reply.body),
                "stores_secret": matches!(then, Then::StoreSecret),
                "fetches": if let Then::Fetch(url) = then { Some(url) } else { None },
            },
        }),
        Outcome::Rejected { class, code, why, next } => {
            json!({ "accepted": false, "class": class, "reason": code, "why": why, "next": next })
        }
    };
    let common = json!({
        "name": case.title(),
        "scheme": verdict.scheme,
        "trust": verdict.trust.as_str(),
        "body_bytes": verdict.body_bytes,
        "body_sha256": verdict.body_sha256,
        "warnings": verdict.weak.iter().map(|(key, weakness)| format!("{key}: {weakness}")).collect::<Vec<_>>(),
    });
    if let (Value::Object(value), Value::Object(common)) = (&mut value, common) {
        value.extend(common);
    }
    value
}

fn identity_as_json(identity: &Identity) -> Map<String, Value> {
    let value = json!({
        "event_id": identity.id,
        "event_id_is_signed": identity.id_is_signed,
        "delivery": identity.delivery,
        "event_type": identity.event_type,
        "object_type": identity.object_type,
        "object_id": identity.object_id,
        "version": identity.version.as_ref().map(version),
        "occurred_at": identity.occurred_at.map(|time| time.to_string()),
    });
    if let Value::Object(value) = value { value } else { Map::new() }
}

pub(super) fn comparison_as_json(
    out: &mut dyn Write,
    comparison: &Comparison,
    complaints: &[Complaint],
) -> io::Result<()> {
    let not_covered = json!({ "cases": comparison.not_covered.values().sum::<usize>(), "providers": comparison.not_covered });
    let value = json!({
        "compared": comparison.compared,
        "mismatches": comparison.mismatches,
        "not_covered": not_covered,
        "contradictions": comparison.contradictions,
        "without_expectation": comparison.without_expectation,
        "problems": problems(complaints),
    });
    write_json(out, &value)
}

fn problems(complaints: &[Complaint]) -> Vec<Value> {
    complaints
        .iter()
        .map(|complaint| json!({ "what": complaint.what, "why": complaint.why, "next": complaint.next }))
        .collect()
}

fn write_json(out: &mut dyn Write, value: &Value) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    writeln!(out)
}
