//! Reading a table key by key, and remembering everything that is wrong with it.

use std::fmt;
use std::ops::RangeInclusive;

use serde_json::{Map, Value};

/// One thing wrong with a scheme, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The key it is about, as in `signature.encoding`.
    pub at: String,
    /// What is wrong and what would be right.
    pub what: String,
}

/// Everything wrong with a scheme, so that it can be mended in one go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl Problems {
    pub(crate) fn one(at: &str, what: String) -> Self {
        Self(vec![Problem { at: at.into(), what }])
    }
}

impl fmt::Display for Problem {
    /// One line that a terminal can show: what was written in the scheme is repeated, so control characters are escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let colon = if self.at.is_empty() { "" } else { ": " };
        for part in [self.at.as_str(), colon, self.what.as_str()] {
            for shown in part.chars() {
                if shown.is_control() {
                    write!(f, "{}", shown.escape_debug())?;
                } else {
                    write!(f, "{shown}")?;
                }
            }
        }
        Ok(())
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the scheme cannot be used")?;
        self.0.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
    }
}

impl std::error::Error for Problems {}

/// One table of a scheme. Every key is taken out once; what is left over at the end is a mistake.
pub(super) struct Reader<'p> {
    at: String,
    table: Map<String, Value>,
    problems: &'p mut Vec<Problem>,
}

impl<'p> Reader<'p> {
    pub(super) fn new(at: &str, table: Map<String, Value>, problems: &'p mut Vec<Problem>) -> Self {
        Self { at: at.into(), table, problems }
    }

    pub(super) fn problem(&mut self, key: &str, what: impl Into<String>) {
        self.problems.push(Problem { at: path(&self.at, key), what: what.into() });
    }

    /// Whether something is wrong with the value already.
    pub(super) fn is_wrong(&self, key: &str) -> bool {
        let at = path(&self.at, key);
        self.problems.iter().any(|problem| problem.at == at)
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.table.get(key).is_some_and(|value| !value.is_null())
    }

    /// Null counts as absent.
    fn take(&mut self, key: &str) -> Option<Value> {
        self.table.remove(key).filter(|value| !value.is_null())
    }

    pub(super) fn text(&mut self, key: &str) -> Option<String> {
        match self.take(key)? {
            Value::String(text) => Some(text),
            _ => {
                self.problem(key, "must be text in quotes");
                None
            }
        }
    }

    /// A text or a list of texts.
    pub(super) fn texts(&mut self, key: &str) -> Vec<String> {
        let texts = match self.take(key) {
            None => return Vec::new(),
            Some(Value::String(text)) => Some(vec![text]),
            Some(Value::Array(values)) => {
                values.into_iter().map(|value| value.as_str().map(ToOwned::to_owned)).collect()
            }
            Some(_) => None,
        };
        texts.unwrap_or_else(|| {
            self.problem(key, "must be text in quotes, or a list of such");
            Vec::new()
        })
    }

    pub(super) fn flag(&mut self, key: &str) -> bool {
        match self.take(key) {
            None => false,
            Some(Value::Bool(flag)) => flag,
            Some(_) => {
                self.problem(key, "must be true or false");
                false
            }
        }
    }

    /// A whole number of seconds. Out of range is refused, never clamped: a check that is off by mistake stays unseen.
    pub(super) fn seconds(&mut self, key: &str, range: RangeInclusive<u32>) -> Option<u32> {
        let value = self.take(key)?;
        let seconds = value.as_u64().and_then(|seconds| u32::try_from(seconds).ok());
        let valid = seconds.filter(|seconds| range.contains(seconds));
        if valid.is_none() {
            let (least, most) = (range.start(), range.end());
            self.problem(
                key,
                format!("must be a whole number of seconds from {least} to {most}; 300 is usual"),
            );
        }
        valid
    }

    pub(super) fn choice<T: Copy>(&mut self, key: &str, choices: &[(&str, T)]) -> Option<T> {
        let text = self.text(key)?;
        let chosen = choices.iter().find(|(name, _)| *name == text).map(|(_, choice)| *choice);
        if chosen.is_none() {
            let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
            self.problem(
                key,
                format!("`{}` is unknown; use one of: {}", text.escape_debug(), names.join(", ")),
            );
        }
        chosen
    }

    pub(super) fn table(&mut self, key: &str) -> Option<Map<String, Value>> {
        match self.take(key)? {
            Value::Object(table) => Some(table),
            _ => {
                self.problem(key, "must be a table");
                None
            }
        }
    }

    /// Goes into each table of a list, and reports what it leaves unread.
    pub(super) fn each<T>(
        &mut self,
        key: &str,
        read: impl Fn(&mut Reader<'_>) -> Option<T>,
    ) -> Vec<T> {
        let mut all = Vec::new();
        for (index, table) in self.tables(key).into_iter().enumerate() {
            let at = path(&self.at, &format!("{key}[{index}]"));
            let mut inner = Reader::new(&at, table, self.problems);
            all.extend(read(&mut inner));
            inner.finish();
        }
        all
    }

    /// A text, or a whole number.
    pub(super) fn text_or_number(&mut self, key: &str) -> Option<Result<String, i64>> {
        let value = self.take(key)?;
        match (&value, value.as_i64()) {
            (Value::String(text), _) => Some(Ok(text.clone())),
            (_, Some(number)) => Some(Err(number)),
            _ => {
                self.problem(key, "must be text in quotes, or a whole number");
                None
            }
        }
    }

    /// A whole number within bounds.
    pub(super) fn count(&mut self, key: &str, range: RangeInclusive<usize>) -> Option<usize> {
        let value = self.take(key)?;
        let count = value.as_u64().and_then(|count| usize::try_from(count).ok());
        let valid = count.filter(|count| range.contains(count));
        if valid.is_none() {
            let (least, most) = (range.start(), range.end());
            self.problem(key, format!("must be a whole number from {least} to {most}"));
        }
        valid
    }

    /// A list of tables.
    fn tables(&mut self, key: &str) -> Vec<Map<String, Value>> {
        let tables = match self.take(key) {
            None => return Vec::new(),
            Some(Value::Array(values)) => values
                .into_iter()
                .map(|value| if let Value::Object(table) = value { Some(table) } else { None })
                .collect(),
            Some(_) => None,
        };
        tables.unwrap_or_else(|| {
            self.problem(key, "must be a list of tables");
            Vec::new()
        })
    }

    /// The status of an answer that means success.
    pub(super) fn status(&mut self, key: &str) -> Option<u16> {
        let value = self.take(key)?;
        let status = value.as_u64().and_then(|status| u16::try_from(status).ok());
        let status = status.filter(|status| (200..300).contains(status));
        if status.is_none() {
            self.problem(key, "must be a number from 200 to 299");
        }
        status
    }

    /// A table of texts.
    pub(super) fn texts_by_name(&mut self, key: &str) -> Vec<(String, String)> {
        let mut texts = Vec::new();
        for (name, value) in self.table(key).unwrap_or_default() {
            match value {
                Value::String(text) => texts.push((name, text)),
                _ => self.problem(&path(key, &name), "must be text in quotes"),
            }
        }
        texts
    }

    /// Whether the value is a table or something simpler.
    pub(super) fn is_table(&self, key: &str) -> bool {
        self.table.get(key).is_some_and(Value::is_object)
    }

    /// Goes into a table, and reports what it leaves unread.
    pub(super) fn within<T>(
        &mut self,
        key: &str,
        read: impl FnOnce(&mut Reader<'_>) -> T,
    ) -> Option<T> {
        let table = self.table(key)?;
        let mut inner = Reader::new(&path(&self.at, key), table, self.problems);
        let value = read(&mut inner);
        inner.finish();
        Some(value)
    }

    pub(super) fn finish(self) {
        for key in self.table.keys() {
            let at = path(&self.at, &key.escape_debug().to_string());
            self.problems
                .push(Problem { at, what: "is not a key of a scheme; check the spelling".into() });
        }
    }
}

fn path(at: &str, key: &str) -> String {
    match (at, key) {
        ("", key) => key.into(),
        (at, "") => at.into(),
        (at, key) => format!("{at}.{key}"),
    }
}
