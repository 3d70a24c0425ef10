//! Answers on a terminal: a table or a sentence for people, JSON for programs.

use std::io::{self, Write};

use comfy_table::{Table, presets};
use serde_json::Value;

use crate::complaint::{Complaint, printable};

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
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    writeln!(out, "{}", table.trim_fmt())
}

/// The rows of a list that stands in an answer under a name.
pub fn list(answer: &Value, name: &str, row: impl Fn(&Value) -> Vec<String>) -> Vec<Vec<String>> {
    let items = answer.get(name).and_then(Value::as_array).map(Vec::as_slice);
    items.unwrap_or_default().iter().map(row).collect()
}

/// A member of an object, as text that is safe for a terminal.
pub fn text(value: &Value, name: &str) -> String {
    match value.get(name) {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => printable(text),
        Some(other) => printable(&other.to_string()),
    }
}

/// Our output cannot be written.
pub(crate) fn closed(error: &io::Error) -> Complaint {
    Complaint::new("the answer cannot be written", error.to_string(), "check where the output goes")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn foreign_text_in_a_table_cannot_move_the_cursor() {
        let mut out = Vec::new();
        let rows = vec![vec!["evt_1".to_owned(), "a\u{1b}[2Jb".to_owned()]];
        table(&mut out, &["event", "why"], rows).unwrap();
        let out = String::from_utf8(out).unwrap();
        assert!(out.contains("evt_1") && out.contains("a\\u{1b}[2Jb"), "{out:?}");
    }

    #[test]
    fn a_list_without_anything_in_it_says_none() {
        let mut out = Vec::new();
        let rows = list(&json!({"sources": []}), "sources", |_| Vec::new());
        table(&mut out, &["name"], rows).unwrap();
        assert_eq!(out, b"none\n");
        assert!(list(&json!(null), "sources", |_| Vec::new()).is_empty());
    }

    #[test]
    fn members_are_shown_as_text() {
        let value = json!({"a": "x", "b": 5, "c": null, "d": "\u{9b}"});
        let all = ["a", "b", "c", "d", "e"].map(|name| text(&value, name));
        assert_eq!(all, ["x", "5", "-", "\\u{9b}", "-"]);
    }
}
