//! What is said of endpoints.

use std::io::{self, Write};

use serde_json::Value;

use super::secrets::SecretOut;
use crate::{
    complaint::whole,
    print::{self, table},
};

/// A line of the list.
pub(super) fn row(endpoint: &Value) -> Vec<String> {
    let patterns = endpoint.get("patterns").and_then(Value::as_array);
    let patterns: Vec<_> = patterns.into_iter().flatten().filter_map(Value::as_str).collect();
    let types = if patterns.is_empty() { "all".to_owned() } else { patterns.join(" ") };
    let text = |name| print::text(endpoint, name);
    vec![text("id"), types, place(endpoint), health(endpoint), text("created_at")]
}

/// Where an endpoint is, and whether what may have happened there is not sent again.
pub(crate) fn place(endpoint: &Value) -> String {
    let place = match ["url", "queue", "bus"].into_iter().find(|name| endpoint.get(name).is_some())
    {
        Some(name @ ("queue" | "bus")) => format!("{name} {}", print::text(endpoint, name)),
        _ => print::text(endpoint, "url"),
    };
    match endpoint.get("idempotent") {
        Some(Value::Bool(false)) => format!("{place} (not idempotent)"),
        _ => place,
    }
}

/// How an endpoint has been doing, up to what follows from it.
pub(super) fn health(endpoint: &Value) -> String {
    let words = endpoint.pointer("/health/words").and_then(Value::as_str).unwrap_or("-");
    whole(words.split("; what it would get").next().unwrap_or(words))
}

/// What has happened, in the deployment's own words.
pub(super) fn told(answer: &Value) -> String {
    whole(answer.get("told").and_then(Value::as_str).unwrap_or("-"))
}

/// A new endpoint.
pub(super) fn made(out: &mut dyn Write, made: &Value, kept: &SecretOut) -> io::Result<()> {
    writeln!(out, "Endpoint {} is ready.", print::text(made, "id"))?;
    let keys = made.get("public_keys").and_then(Value::as_object);
    let keys: Vec<&str> = keys.into_iter().flatten().filter_map(|(_, key)| key.as_str()).collect();
    match (secret(made, kept), keys.as_slice()) {
        (Some(secret), _) => writeln!(out, "{secret}")?,
        (None, [key, ..]) => writeln!(out, "Its owner verifies with: {}", whole(key))?,
        (None, []) if made.get("url").is_some() => {
            writeln!(out, "It signs with the secret that you gave.")?;
        }
        (None, []) => {
            writeln!(out, "It has no secret: the deployment writes to it with its own rights.")?;
        }
    }
    if let Some(event) = made.pointer("/test/event").and_then(Value::as_str) {
        writeln!(out, "A test event is on its way: {}", whole(event))?;
    }
    warnings(out, made)
}

/// A secret that was rotated.
pub(super) fn rotated(out: &mut dyn Write, rotated: &Value, kept: &SecretOut) -> io::Result<()> {
    let key = rotated.get("public_key").and_then(Value::as_str);
    match (secret(rotated, kept), key) {
        (Some(secret), _) => writeln!(out, "{secret}")?,
        (None, Some(key)) => writeln!(out, "Its owner verifies with: {}", whole(key))?,
        (None, None) => writeln!(out, "It signs with the secret that you gave.")?,
    }
    writeln!(out, "The secrets before it end at {}.", print::text(rotated, "others_end_at"))?;
    writeln!(out)?;
    secrets(out, rotated)?;
    warnings(out, rotated)
}

/// The secret that is shown this once, or where it went.
fn secret(answer: &Value, kept: &SecretOut) -> Option<String> {
    if let Some(secret) = answer.get("secret").and_then(Value::as_str) {
        return Some(format!("Its secret, shown this once: {}", whole(secret)));
    }
    let has_another = answer.get("public_key").or_else(|| answer.get("public_keys")).is_some();
    let file = kept.file().filter(|file| !has_another && std::path::Path::new(file).exists())?;
    Some(format!("Its secret is in {file}."))
}

/// A list of secrets.
pub(super) fn secrets(out: &mut dyn Write, list: &Value) -> io::Result<()> {
    let row = |secret: &Value| {
        let text = |name| print::text(secret, name);
        let ends = match text("expires_at").as_str() {
            "-" => "never".to_owned(),
            ends => ends.to_owned(),
        };
        vec![text("id"), text("purpose"), text("kind"), ends, text("public_key")]
    };
    let head = ["fingerprint", "for", "kind", "ends", "public key"];
    table(out, &head, print::list(list, "secrets", row))
}

fn warnings(out: &mut dyn Write, answer: &Value) -> io::Result<()> {
    let all = answer.get("warnings").and_then(Value::as_array);
    for warning in all.into_iter().flatten().filter_map(Value::as_str) {
        writeln!(out, "Note: {}", whole(warning))?;
    }
    Ok(())
}
