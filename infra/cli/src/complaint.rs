//! What a person reads when a command cannot do its work, and how text from outside is made safe to print.

use std::fmt;

/// What went wrong, why, and what to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// What could not be done.
    pub what: String,
    /// The cause.
    pub why: String,
    /// What to do about it.
    pub next: String,
    /// Whether the question was answered, and the answer is no: exit code 1, not 2.
    pub is_no: bool,
}

impl Complaint {
    /// All three.
    pub fn new(what: impl Into<String>, why: impl Into<String>, next: impl Into<String>) -> Self {
        Self { what: what.into(), why: why.into(), next: next.into(), is_no: false }
    }

    /// The same, as an answer: whoever was asked has understood, and says no.
    #[must_use]
    pub fn as_no(self) -> Self {
        Self { is_no: true, ..self }
    }
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n  why:  {}\n  next: {}", self.what, self.why, self.next)
    }
}

impl std::error::Error for Complaint {}

/// The most characters of a foreign text that a terminal gets.
const SHOWN: usize = 200;

/// Makes foreign text safe for a terminal: no control characters, nothing that turns the direction of writing, not endless.
#[must_use]
pub fn printable(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", whole(text.get(..end).unwrap_or_default())),
        None => whole(text),
    }
}

/// The same, however long: for words of the deployment's own, which may end in a command to copy.
#[must_use]
pub fn whole(text: &str) -> String {
    let mut shown = String::new();
    for character in text.chars() {
        if character.is_control() || is_invisible(character) {
            shown.extend(character.escape_unicode());
        } else {
            shown.push(character);
        }
    }
    shown
}

fn is_invisible(character: char) -> bool {
    matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_cannot_move_the_cursor_or_turn_the_line() {
        assert_eq!(printable("evt_1"), "evt_1");
        assert_eq!(printable("a\u{1b}[31mb\r\n"), "a\\u{1b}[31mb\\u{d}\\u{a}");
        assert_eq!(printable("a\u{202e}b\u{9b}"), "a\\u{202e}b\\u{9b}");
        assert_eq!(printable(&"é".repeat(5000)).chars().count(), SHOWN + 1);
        assert_eq!(printable(&"é".repeat(SHOWN)).chars().count(), SHOWN);
        assert_eq!(
            whole(&format!("{}\u{1b}", "é".repeat(5000))),
            format!("{}\\u{{1b}}", "é".repeat(5000))
        );
    }
}
