//! Reading a table key by key, and remembering everything that is wrong with it.

use std::{fmt, ops::RangeInclusive};

use serde_json::{Map, Value};

/// One thing wrong with a fetcher, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The key it is about, as in `version.kind`.
    pub at: String,
    /// What is wrong and what would be right.
    pub what: String,
}

/// Everything wrong with a fetcher, so that it can be mended in one go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problem {
    /// One line that a terminal can show: what was written is repeated, so control characters are escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let colon = if self.at.is_empty() { "" } else { ": " };
        for shown in [self.at.as_str(), colon, self.what.as_str()].into_iter().flat_map(str::chars)
        {
            if shown.is_control() {
                write!(f, "{}", shown.escape_debug())?;
            } else {
                write!(f, "{shown}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the fetcher cannot be used")?;
        self.0.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
    }
}

impl std::error::Error for Problems {}

/// One table. Every key is taken out once; what is left over at the end is a mistake.
pub(crate) struct Reader<'p> {
    at: String,
    table: Map<String, Value>,
    problems: &'p mut Vec<Problem>,
}

impl<'p> Reader<'p> {
    pub(crate) fn new(table: Map<String, Value>, problems: &'p mut Vec<Problem>) -> Self {
        Self { at: String::new(), table, problems }
    }

    pub(crate) fn problem(&mut self, key: &str, what: impl Into<String>) {
        self.problems.push(Problem { at: path(&self.at, key), what: what.into() });
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.table.get(key).is_some_and(|value| !value.is_null())
    }

    /// Null counts as absent.
    pub(crate) fn take(&mut self, key: &str) -> Option<Value> {
        self.table.remove(key).filter(|value| !value.is_null())
    }

    pub(crate) fn text(&mut self, key: &str) -> Option<String> {
        match self.take(key)? {
            Value::String(text) => Some(text),
            _ => {
                self.problem(key, "must be text in quotes");
                None
            }
        }
    }

    pub(crate) fn flag(&mut self, key: &str) -> bool {
        match self.take(key) {
            None => false,
            Some(Value::Bool(flag)) => flag,
            Some(_) => {
                self.problem(key, "must be true or false");
                false
            }
        }
    }

    /// A text or a list of texts.
    pub(crate) fn texts(&mut self, key: &str) -> Vec<String> {
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

    /// A table of texts.
    pub(crate) fn texts_by_name(&mut self, key: &str) -> Vec<(String, String)> {
        let mut texts = Vec::new();
        for (name, value) in self.table(key).unwrap_or_default() {
            match value {
                Value::String(text) => texts.push((name, text)),
                Value::Null => {}
                _ => self.problem(&path(key, &name), "must be text in quotes"),
            }
        }
        texts
    }

    pub(crate) fn choice<T: Copy>(&mut self, key: &str, choices: &[(&str, T)]) -> Option<T> {
        let text = self.text(key)?;
        let chosen = choices.iter().find(|(name, _)| *name == text).map(|(_, choice)| *choice);
        if chosen.is_none() {
            let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
            let what = format!("`{text}` is unknown; use one of: {}", names.join(", "));
            self.problem(key, what);
        }
        chosen
    }

    /// A whole number within bounds. Out of range is refused, never clamped.
    pub(crate) fn number(&mut self, key: &str, range: RangeInclusive<u32>) -> Option<u32> {
        let value = self.take(key)?;
        let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
        let valid = number.filter(|number| range.contains(number));
        if valid.is_none() {
            let (least, most) = (range.start(), range.end());
            self.problem(key, format!("must be a whole number from {least} to {most}"));
        }
        valid
    }

    /// A list of HTTP statuses that are refusals.
    pub(crate) fn statuses(&mut self, key: &str) -> Option<Vec<u16>> {
        let value = self.take(key)?;
        let status = |value: &Value| {
            let status = value.as_u64().and_then(|status| u16::try_from(status).ok());
            status.filter(|status| (400..500).contains(status) && ![401, 403, 429].contains(status))
        };
        let statuses = value.as_array().and_then(|all| all.iter().map(status).collect());
        if statuses.is_none() {
            let what = "must be a list of statuses from 400 to 499, such as [404, 410]; 401, 403 and 429 have a meaning of their own";
            self.problem(key, what);
        }
        statuses
    }

    fn table(&mut self, key: &str) -> Option<Map<String, Value>> {
        match self.take(key)? {
            Value::Object(table) => Some(table),
            _ => {
                self.problem(key, "must be a table");
                None
            }
        }
    }

    /// Goes into a table, and reports what it leaves unread.
    pub(crate) fn within<T>(
        &mut self,
        key: &str,
        read: impl FnOnce(&mut Reader<'_>) -> T,
    ) -> Option<T> {
        let table = self.table(key)?;
        let mut inner = Reader { at: path(&self.at, key), table, problems: self.problems };
        let value = read(&mut inner);
        inner.finish();
        Some(value)
    }

    /// Goes into each table of a list.
    pub(crate) fn each<T>(
        &mut self,
        key: &str,
        read: impl Fn(&mut Reader<'_>) -> Option<T>,
    ) -> Vec<T> {
        let tables: Option<Vec<_>> = match self.take(key) {
            None => return Vec::new(),
            Some(Value::Array(values)) => values
                .into_iter()
                .map(|value| if let Value::Object(table) = value { Some(table) } else { None })
                .collect(),
            Some(_) => None,
        };
        let Some(tables) = tables else {
            self.problem(key, "must be a list of tables");
            return Vec::new();
        };
        let mut all = Vec::new();
        for (index, table) in tables.into_iter().enumerate() {
            let at = path(&self.at, &format!("{key}[{index}]"));
            let mut inner = Reader { at, table, problems: self.problems };
            all.extend(read(&mut inner));
            inner.finish();
        }
        all
    }

    pub(crate) fn finish(self) {
        for key in self.table.keys() {
            let what = "is not a key of a fetcher; check the spelling".to_owned();
            self.problems.push(Problem { at: path(&self.at, key), what });
        }
    }
}

fn path(at: &str, key: &str) -> String {
    match (at, key) {
        ("", key) => key.to_owned(),
        (at, "") => at.to_owned(),
        (at, key) => format!("{at}.{key}"),
    }
}
