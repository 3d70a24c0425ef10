//! What an event must be to be published, whichever way it comes in.

use std::collections::BTreeMap;

/// Longest event type, aggregate id and idempotency key, in bytes.
pub const MAX_TEXT: usize = 256;

/// Most labels of one event.
pub const MAX_LABELS: usize = 20;
/// Longest name of a label, in bytes.
pub const MAX_LABEL_NAME: usize = 64;
/// Longest value of a label, in bytes.
pub const MAX_LABEL_VALUE: usize = 256;

/// Something that is wrong with an event, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct Flaw {
    /// The member it is about.
    pub field: &'static str,
    /// What the member is, if it is right.
    pub problem: String,
}

/// What is judged of an event: everything but its tenant, which cannot be wrong any more, and its payload, whose limit
/// depends on where it goes.
#[derive(Clone, Copy, Debug)]
pub struct Draft<'a> {
    /// The type.
    pub event_type: &'a str,
    /// The version of the type's schema.
    pub schema_version: u32,
    /// What the event is about.
    pub aggregate_id: &'a str,
    /// The labels.
    pub labels: &'a BTreeMap<String, String>,
}

impl Draft<'_> {
    /// Everything that is wrong, in the order of the members. Empty: nothing.
    pub fn flaws(&self) -> Vec<Flaw> {
        let Self { event_type, schema_version, aggregate_id, labels } = self;
        let mut flaws = Vec::new();
        let mut note = |field, problem| flaws.push(Flaw { field, problem });
        if !is_visible(event_type, MAX_TEXT) {
            note("type", format!("it is 1 to {MAX_TEXT} visible ASCII characters"));
        }
        if *schema_version == 0 {
            note("schema_version", "versions are counted from 1".to_owned());
        }
        if !is_text(aggregate_id, MAX_TEXT) {
            let problem = format!("it is 1 to {MAX_TEXT} bytes without control characters");
            note("aggregate_id", problem);
        }
        if labels.len() > MAX_LABELS {
            let problem =
                format!("there are {}, and an event has {MAX_LABELS} at most", labels.len());
            note("labels", problem);
        }
        if !labels.keys().all(|name| is_visible(name, MAX_LABEL_NAME)) {
            let problem = format!("a name is 1 to {MAX_LABEL_NAME} visible ASCII characters");
            note("labels", problem);
        }
        if !labels.values().all(|value| is_text(value, MAX_LABEL_VALUE)) {
            let problem =
                format!("a value is 1 to {MAX_LABEL_VALUE} bytes without control characters");
            note("labels", problem);
        }
        flaws
    }
}

/// Whether a text can be an idempotency key, in a header too: visible ASCII, with spaces inside.
pub fn is_key(text: &str) -> bool {
    is_visible(&text.replace(' ', "-"), MAX_TEXT) && text.trim() == text
}

/// Whether a text is a W3C trace context of version 00: `00-<32 hexadecimal digits>-<16>-<2>`, in lower case, and no id
/// of zeros only.
pub fn is_trace(text: &str) -> bool {
    trace_parts(text).is_some()
}

/// Trace id, span id and flags of a `traceparent` (W3C trace context, version 00), if it is one.
pub fn trace_parts(text: &str) -> Option<(&str, &str, &str)> {
    let is_hex = |part: &str, length: usize| {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        part.len() == length && part.bytes().all(is_digit)
    };
    let is_id =
        |part: &str, length: usize| is_hex(part, length) && part.bytes().any(|byte| byte != b'0');
    match text.split('-').collect::<Vec<_>>().as_slice() {
        ["00", trace, span, flags] if is_id(trace, 32) && is_id(span, 16) && is_hex(flags, 2) => {
            Some((trace, span, flags))
        }
        _ => None,
    }
}

/// Letters, digits and signs of ASCII: what looks the same in a log, a header and a table.
fn is_visible(text: &str, most: usize) -> bool {
    (1..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

fn is_text(text: &str, most: usize) -> bool {
    (1..=most).contains(&text.len()) && !text.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(of: &[(&str, &str)]) -> BTreeMap<String, String> {
        of.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn good(labels: &BTreeMap<String, String>) -> Draft<'_> {
        Draft { event_type: "a.b", schema_version: 1, aggregate_id: "an aggregate é", labels }
    }

    #[track_caller]
    fn check(draft: &Draft<'_>, fields: &[&str]) {
        let found: Vec<_> = draft.flaws().iter().map(|flaw| flaw.field).collect();
        assert_eq!(found, fields, "{draft:?}");
    }

    #[test]
    fn texts_have_their_letters_and_their_length() {
        let none = BTreeMap::new();
        check(&good(&none), &[]);
        for bad in ["", "a b", "é", "a\n", &"a".repeat(257)] {
            check(&Draft { event_type: bad, ..good(&none) }, &["type"]);
        }
        for bad in ["", "a\u{0}", "\u{85}", &"a".repeat(257)] {
            check(&Draft { aggregate_id: bad, ..good(&none) }, &["aggregate_id"]);
        }
        let longest = "a".repeat(256);
        check(&Draft { event_type: &longest, aggregate_id: &longest, ..good(&none) }, &[]);
        check(&Draft { schema_version: 0, ..good(&none) }, &["schema_version"]);
    }

    #[test]
    fn labels_are_few_and_short() {
        let many = |count: usize| (0..count).map(|n| (n.to_string(), "x".to_owned())).collect();
        check(&good(&many(20)), &[]);
        check(&good(&many(21)), &["labels"]);
        let (name, value) = ("n".repeat(64), "v".repeat(256));
        check(&good(&labels(&[(&name, &value)])), &[]);
        for (name, value) in [("", "v"), ("a b", "v"), (&*format!("{name}n"), "v")] {
            check(&good(&labels(&[(name, value)])), &["labels"]);
        }
        for value in ["", "a\tb", &format!("{value}v")] {
            check(&good(&labels(&[("n", value)])), &["labels"]);
        }
    }

    #[test]
    fn everything_that_is_wrong_is_named_at_once() {
        let labels = labels(&[("a b", "")]);
        let worst = Draft { event_type: "", schema_version: 0, aggregate_id: "", labels: &labels };
        check(&worst, &["type", "schema_version", "aggregate_id", "labels", "labels"]);
    }
}
