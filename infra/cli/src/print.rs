//! Answers on a terminal: a table or a sentence for people, JSON for programs.

use std::{
    fs,
    io::{self, Read as _, Write},
};

use comfy_table::{Table, presets};
use serde_json::Value;

use crate::complaint::{Complaint, printable};

/// The most bytes of a file that holds a secret.
const MAX_SECRET: u64 = 64 << 10;

/// JSON where a program asked for it, else what `for_people` writes.
pub fn either(
    json: bool,
    out: &mut dyn Write,
    value: &Value,
    for_people: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), Complaint> {
    if json { pretty(out, value) } else { for_people(out).map_err(|error| closed(&error)) }
}

/// JSON on several lines.
pub fn pretty(out: &mut dyn Write, value: &Value) -> Result<(), Complaint> {
    writeln!(out, "{value:#}").map_err(|error| closed(&error))
}

/// A table, or a word that there is nothing.
pub fn table(out: &mut dyn Write, head: &[&str], rows: Vec<Vec<String>>) -> io::Result<()> {
    if rows.is_empty() {
        return writeln!(out, "none");
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(head.iter().copied());
    for row in rows {
        table.add_row(row.iter().map(|cell| printable(cell)));
    }
    writeln!(out, "{table}")
}

/// A member of an object, as text that is safe for a terminal.
pub fn text(value: &Value, name: &str) -> String {
    match value.get(name) {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => printable(text),
        Some(other) => printable(&other.to_string()),
    }
}

/// A secret from a file or from standard input, without the newline at its end.
pub fn read_secret(file: &str) -> Result<String, Complaint> {
    let read = || -> io::Result<String> {
        let mut text = String::new();
        match file {
            "-" => io::stdin().take(MAX_SECRET).read_to_string(&mut text)?,
            file => fs::File::open(file)?.take(MAX_SECRET).read_to_string(&mut text)?,
        };
        Ok(text.trim_end_matches(['\n', '\r']).to_owned())
    };
    read().map_err(|error| {
        Complaint::new(
            "the secret cannot be read",
            error.to_string(),
            "give a file that holds the secret and nothing else, or `-` and pipe it in",
        )
    })
}

/// The reader of our output has gone.
pub(crate) fn closed(error: &io::Error) -> Complaint {
    Complaint::new("the answer cannot be written", error.to_string(), "check where the output goes")
}
