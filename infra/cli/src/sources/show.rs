//! A source at a glance, and what was refused in its name.

use std::io::{self, Write};

use jiff::SignedDuration;
use serde_json::Value;

use crate::{complaint::printable, print::text};

/// The source: what it is, whether it can be believed, how it is doing.
pub(super) fn source(out: &mut dyn Write, source: &Value) -> io::Result<()> {
    writeln!(out, "{}: {}, {}", text(source, "name"), scheme(source), handler(source))?;
    line(out, "url", &text(source, "url"))?;
    line(out, "health", &at(source, "/health/words"))?;
    if let Some(paused) = source.get("paused").filter(|paused| paused.is_object()) {
        let (since, reason) = (text(paused, "since"), sentence_of(paused, "reason"));
        line(out, "paused", &format!("since {since}: {reason}"))?;
        let name = text(source, "name");
        line(out, "", &format!("go on with: postern sources resume {name}"))?;
    }
    refused(out, source)?;
    match source.get("verification") {
        Some(Value::Object(_)) => {
            line(out, "trust", &at(source, "/verification/words"))?;
            line(out, "replays", &at(source, "/verification/replays"))?;
        }
        _ => line(out, "trust", "-")?,
    }
    if is(source, "/verification/is_batch") {
        line(out, "batch", "a request carries several events, and each has a story of its own")?;
    }
    if let Some(other) = source.get("same_as").and_then(Value::as_str) {
        line(out, "same as", &format!("{}: its events are filed there", printable(other)))?;
    }
    for (pointer, value) in source.get("only").and_then(Value::as_object).into_iter().flatten() {
        let (pointer, value) = (printable(pointer), printable(&value.to_string()));
        line(
            out,
            "only",
            &format!("events with {pointer} = {value}; others are kept, and ignored"),
        )?;
    }
    if let Some(seconds) = source.get("silent_after_seconds").and_then(Value::as_i64) {
        let limit = SignedDuration::from_secs(seconds);
        line(out, "silence", &format!("of more than {limit:#} is not usual"))?;
    }
    states(out, source)?;
    if let Some(until) = source.get("awaits_secret_until").and_then(Value::as_str) {
        line(out, "waits", &format!("for the provider's handshake, until {until}"))?;
    }
    for secret in items(source, "/secrets") {
        let (id, words) = (text(secret, "id"), text(secret, "words"));
        line(out, "secret", &format!("{id}: {words}"))?;
    }
    fetch(out, source)?;
    for token in items(source, "/fetch/tokens") {
        let end = token.get("expires_at").and_then(Value::as_str);
        let end = end.map_or_else(|| "has no end".to_owned(), |end| format!("ends at {end}"));
        line(out, "token", &format!("{}: {end}", text(token, "id")))?;
    }
    if let Some(config) = source.get("config").and_then(Value::as_object) {
        for (key, value) in config {
            let value = value.as_str().unwrap_or_default();
            line(out, "config", &format!("{} = {}", printable(key), printable(value)))?;
        }
    }
    let (title, checked) =
        (at(source, "/verification/title"), at(source, "/verification/facts_checked_on"));
    if !checked.is_empty() {
        let mark = at(source, "/verification/facts_mark");
        line(out, "facts", &format!("of {title} were checked on {checked} ({mark})"))?;
    }
    warnings(out, source)
}

fn refused(out: &mut dyn Write, source: &Value) -> io::Result<()> {
    let counts = source.pointer("/health/rejected_24h").and_then(Value::as_object);
    let counts: Vec<_> = counts
        .into_iter()
        .flatten()
        .map(|(code, count)| format!("{} {count}", printable(code)))
        .collect();
    if !counts.is_empty() {
        line(out, "refused", &format!("in 24 hours: {}", counts.join(", ")))?;
    }
    let Some(last) = source.pointer("/health/last_rejected").filter(|last| last.is_object()) else {
        return Ok(());
    };
    line(
        out,
        "",
        &format!("last at {}: {}, {}", text(last, "at"), text(last, "code"), text(last, "words")),
    )?;
    line(out, "", &text(last, "advice"))?;
    let name = text(source, "name");
    line(out, "", &format!("more: postern sources rejected {name}"))
}

/// Refused requests, newest first.
pub(super) fn rejected(out: &mut dyn Write, list: &Value) -> io::Result<()> {
    let mut none = true;
    for sample in items(list, "/rejected") {
        none = false;
        let (when, code, class) =
            (text(sample, "at"), text(sample, "reason"), text(sample, "class"));
        let (method, bytes) = (text(sample, "method"), text(sample, "body_length"));
        writeln!(out, "{when}  {code} ({class}): {method}, {bytes} bytes")?;
        line(out, "advice", &text(sample, "advice"))?;
        line(out, "sha256", &text(sample, "body_sha256"))?;
        for (name, value) in sample.get("headers").and_then(Value::as_object).into_iter().flatten()
        {
            line(
                out,
                "header",
                &format!("{}: {}", printable(name), printable(value.as_str().unwrap_or_default())),
            )?;
        }
    }
    if none { writeln!(out, "none") } else { Ok(()) }
}

/// That a source is not verified by a signature over the body, if it is not.
pub(super) fn weaker(out: &mut dyn Write, source: &Value) -> io::Result<()> {
    if !is(source, "/verification/is_weaker") {
        return Ok(());
    }
    writeln!(out, "Note: {}.", at(source, "/verification/words"))
}

/// How the provider is asked, if it is.
pub(super) fn fetch(out: &mut dyn Write, source: &Value) -> io::Result<()> {
    let Some(fetch) = source.get("fetch").filter(|fetch| fetch.is_object()) else { return Ok(()) };
    line(out, "fetch", &at(fetch, "/words"))?;
    let checked = at(fetch, "/facts_checked_on");
    if !checked.is_empty() {
        let (title, mark) = (at(fetch, "/title"), at(fetch, "/facts_mark"));
        line(out, "", &format!("the facts of {title} were checked on {checked} ({mark})"))?;
    }
    Ok(())
}

/// What somebody should look at.
pub(super) fn warnings(out: &mut dyn Write, answer: &Value) -> io::Result<()> {
    let mut warnings = items(answer, "/warnings").filter_map(Value::as_str).map(sentence);
    warnings.try_for_each(|warning| writeln!(out, "Note: {warning}"))
}

/// Addresses that are shown this once, by their secrets' ids.
pub(super) fn secret_urls(answer: &Value) -> Vec<(String, String)> {
    let urls = answer.get("secret_urls").and_then(Value::as_object);
    let urls = urls.into_iter().flatten();
    urls.filter_map(|(id, url)| Some((printable(id), printable(url.as_str()?)))).collect()
}

/// The scheme in one word or two.
pub(super) fn scheme(source: &Value) -> String {
    if let Some(preset) = source.pointer("/scheme/preset").and_then(Value::as_str) {
        return printable(preset);
    }
    let titles = ["/verification/title", "/scheme/own/title", "/scheme/own/like"];
    let title = titles.iter().map(|pointer| at(source, pointer)).find(|title| !title.is_empty());
    title.map_or_else(|| "(own)".to_owned(), |title| format!("{title} (own)"))
}

/// The handler in some words.
pub(super) fn handler(source: &Value) -> String {
    let of = |pointer: &str| source.pointer(pointer).and_then(Value::as_str).map(printable);
    let kind = match of("/handler/kind").as_deref() {
        Some("own") => of("/handler/name"),
        _ => of("/handler/kind"),
    };
    match (kind, of("/handler/tenant").or_else(|| of("/handler/emit_to"))) {
        (Some(kind), Some(tenant)) => format!("{kind} to {tenant}"),
        (kind, _) => kind.unwrap_or_else(|| "-".to_owned()),
    }
}

/// Between which states the source's objects move, if it says so.
fn states(out: &mut dyn Write, source: &Value) -> io::Result<()> {
    let Some(moves) = source.pointer("/handler/states/states/moves").and_then(Value::as_object)
    else {
        return Ok(());
    };
    let kind = at(source, "/handler/states/kind");
    let whose = if kind.is_empty() { "objects".to_owned() } else { format!("{kind} objects") };
    let where_to = at(source, "/handler/states/at");
    line(out, "states", &format!("of {whose}, at {where_to}; other moves are refused"))?;
    for (from, to) in moves {
        let to: Vec<_> =
            to.as_array().into_iter().flatten().filter_map(Value::as_str).map(printable).collect();
        let to = if to.is_empty() { "(the end)".to_owned() } else { to.join(", ") };
        line(out, "", &format!("{} → {to}", printable(from)))?;
    }
    Ok(())
}

fn line(out: &mut dyn Write, name: &str, words: &str) -> io::Result<()> {
    writeln!(out, "  {name:<8} {words}")
}

fn at(value: &Value, pointer: &str) -> String {
    value.pointer(pointer).and_then(Value::as_str).map(sentence).unwrap_or_default()
}

fn sentence_of(value: &Value, name: &str) -> String {
    value.get(name).and_then(Value::as_str).map(sentence).unwrap_or_default()
}

/// Sentences of ours can be longer than what a stranger may say.
fn sentence(text: &str) -> String {
    text.split_inclusive(' ').map(printable).collect()
}

fn is(value: &Value, pointer: &str) -> bool {
    value.pointer(pointer).and_then(Value::as_bool).unwrap_or_default()
}

fn items<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    value.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}
