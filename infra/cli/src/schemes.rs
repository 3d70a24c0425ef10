//! `postern schemes`: the providers that ship, and how far each can be trusted.

use std::io::Write;

use serde_json::{Value, json};
use signing::{Scheme, Trust, preset_names};

use crate::complaint::{Complaint, printable};
use crate::print;
use crate::verify::preset;

/// List the providers whose signatures are known, or show one
///
/// `signed` is best. `body_unsigned`, `token` and `none` are weaker: ask the provider before acting on what they say.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Show this one whole
    #[arg(value_name = "NAME")]
    name: Option<String>,

    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
///
/// # Errors
/// When there is no such scheme, or the answer cannot be written.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<(), Complaint> {
    if let Some(name) = &args.name {
        let scheme = preset(name)?;
        let value = as_json(&scheme);
        return print::either(args.json, out, &value, |out| one(out, &scheme));
    }
    let schemes: Vec<Scheme> = preset_names().filter_map(Scheme::preset).collect();
    let value = json!({ "schemes": schemes.iter().map(summary).collect::<Vec<_>>() });
    print::either(args.json, out, &value, |out| {
        let head = ["name", "provider", "trust", "id", "replay", "events", "handshake", "facts"];
        print::table(out, &head, schemes.iter().map(row).collect())?;
        writeln!(
            out,
            "\nfacts: S the provider's library was run, D its documentation, T third-party text, M unconfirmed"
        )
    })
}

fn row(scheme: &Scheme) -> Vec<String> {
    let about = scheme.about();
    vec![
        scheme.name().to_owned(),
        about.title.clone(),
        scheme.trust().as_str().to_owned(),
        id(scheme).to_owned(),
        match scheme.tolerance_seconds() {
            Some(seconds) => format!("{seconds} s"),
            None if every_request(scheme) => "-".to_owned(),
            None => "dedupe".to_owned(),
        },
        if scheme.is_batch() { "many" } else { "one" }.to_owned(),
        handshake_methods(scheme),
        format!("{} {}", about.checked_on, about.mark),
    ]
}

/// Whether nothing is a repeat of anything.
fn every_request(scheme: &Scheme) -> bool {
    scheme.counts_every_request() && !scheme.is_batch()
}

/// Whether a replay can carry another id.
fn id(scheme: &Scheme) -> &'static str {
    match (scheme.has_id(), scheme.signs_id()) {
        _ if every_request(scheme) => "every",
        (false, _) => "none",
        (true, true) => "signed",
        (true, false) => "unsigned",
    }
}

fn handshake_methods(scheme: &Scheme) -> String {
    let mut methods: Vec<&str> = scheme.handshakes().map(|handshake| handshake.method()).collect();
    methods.dedup();
    if methods.is_empty() { "-".to_owned() } else { methods.join(", ") }
}

fn one(out: &mut dyn Write, scheme: &Scheme) -> std::io::Result<()> {
    let about = scheme.about();
    writeln!(out, "{}: {}", scheme.name(), about.title)?;
    writeln!(out, "  docs       {}", about.docs)?;
    writeln!(out, "  facts      {} {}, {}", about.checked_on, about.mark, about.facts_from)?;
    match (scheme.algorithm(), scheme.verifier()) {
        (Some(algorithm), _) => writeln!(out, "  algorithm  {algorithm}")?,
        (None, Some(verifier)) => writeln!(out, "  algorithm  by code ({verifier})")?,
        (None, None) => {}
    }
    writeln!(out, "  trust      {}", scheme.trust())?;
    let id = match id(scheme) {
        "every" => "none: the same bytes come for every change, so each request counts",
        "none" => "none; a hash of the body stands in for it",
        "signed" => "signed",
        _ => "not signed: a replay can carry another one, so a source may deduplicate by content",
    };
    writeln!(out, "  id         {id}")?;
    match scheme.tolerance_seconds() {
        Some(seconds) => {
            writeln!(out, "  replay     refused when older than {seconds} s, and deduplicated")?;
        }
        None => {
            writeln!(out, "  replay     no age is refused: only deduplication stands against it")?;
        }
    }
    if scheme.is_batch() {
        writeln!(out, "  events     many in one request")?;
    }
    for handshake in scheme.handshakes() {
        writeln!(out, "  handshake  {}", printable(&handshake.to_string()))?;
    }
    for id in scheme.secrets_of_handshakes() {
        writeln!(out, "  secret     {} is for the handshake", printable(id))?;
    }
    let missing = scheme.missing_config();
    if !missing.is_empty() {
        writeln!(out, "  config     needs {}", missing.join(", "))?;
    }
    let acknowledge = scheme.acknowledge();
    let line = format!("  answer     {} {}", acknowledge.status, printable(&acknowledge.body));
    writeln!(out, "{}", line.trim_end())
}

fn summary(scheme: &Scheme) -> Value {
    let about = scheme.about();
    json!({
        "name": scheme.name(),
        "title": about.title,
        "docs": about.docs,
        "facts": { "checked": about.checked_on, "mark": about.mark, "from": about.facts_from },
        "algorithm": scheme.algorithm().map(|algorithm| algorithm.to_string()),
        "verifier": scheme.verifier().map(|verifier| verifier.to_string()),
        "trust": scheme.trust().as_str(),
        "is_weaker": Trust::is_weaker(scheme.trust()),
        "id": id(scheme),
        "tolerance_seconds": scheme.tolerance_seconds(),
        "is_batch": scheme.is_batch(),
        "handshakes": scheme.handshakes().map(ToString::to_string).collect::<Vec<_>>(),
        "missing_config": scheme.missing_config(),
    })
}

/// The summary, and the scheme itself: a start for one's own.
fn as_json(scheme: &Scheme) -> Value {
    let mut value = summary(scheme);
    if let Some(value) = value.as_object_mut() {
        value.insert("scheme".into(), serde_json::to_value(scheme).unwrap_or_default());
    }
    value
}
