//! `postern objects`: what is held of a provider's things.

use std::io::Write;

use serde_json::Value;

use crate::{
    client::{Client, segment},
    complaint::{Complaint, printable},
    print,
};

/// What can be asked.
#[derive(clap::Subcommand, Debug)]
pub enum Objects {
    /// Show an object: as of when it is known, and whether it may be out of date
    Show {
        /// The source
        source: String,
        /// What it is, such as `invoice`
        kind: String,
        /// The provider's id
        id: String,
    },
}

/// Runs one of them.
pub async fn run(
    command: &Objects,
    client: &Client,
    json: bool,
    out: &mut dyn Write,
) -> Result<(), Complaint> {
    let Objects::Show { source, kind, id } = command;
    let [source, kind, id] = [source, kind, id].map(|name| segment(name));
    let object = client.get(&format!("/v1/sources/{source}/objects/{kind}/{id}")).await?;
    print::either(json, out, &object, |out| {
        let text = |name| print::text(&object, name);
        writeln!(out, "{} {} of {}", text("kind"), text("id"), text("source"))?;
        let mut line = |name: &str, words: &str| writeln!(out, "  {name:<8} {words}");
        line("as of", &text("as_of"))?;
        line("version", &text("version"))?;
        if object.get("deleted").and_then(Value::as_bool) == Some(true) {
            line("deleted", "the provider has deleted it; this is what it was last")?;
        }
        let why = object.get("why").and_then(Value::as_array);
        for doubt in why.into_iter().flatten() {
            let words = doubt.get("words").and_then(Value::as_str).unwrap_or_default();
            let words: String = words.split_inclusive(' ').map(printable).collect();
            line("doubt", &words)?;
        }
        let fields = object.get("fields").unwrap_or(&Value::Null);
        for text in format!("{fields:#}").lines() {
            line("", &printable(text))?;
        }
        Ok(())
    })
}
