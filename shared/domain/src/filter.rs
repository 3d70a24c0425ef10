//! Filters: which events an endpoint wants by what is in them.
//!
//! A filter is data, a JSON object all of whose members must hold. A member that begins with `/` is an RFC 6901 pointer
//! into the payload, with the tests that its value must pass; `any`, `all` and `not` combine filters:
//!
//! ```json
//! {"/data/amount": {"gte": 100}, "any": [{"/data/currency": {"in": ["eur", "chf"]}}, {"/livemode": {"equals": false}}]}
//! ```
//!
//! A filter is checked when it is made, and [`Filter::matches`] then answers for every document: it reads, compares and
//! ends. There is nothing in it that loops or calls.

mod check;
mod number;

use std::{cmp::Ordering, fmt};

use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

pub use self::check::{InvalidFilter, MAX_DEPTH, MAX_FILTER, MAX_TESTS, Problem};

/// Which payloads pass.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
pub struct Filter {
    /// As it was given, which is how it is stored and shown.
    source: Value,
    rules: Vec<Rule>,
}

/// One member of a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Rule {
    Field { pointer: String, tests: Vec<Test> },
    Any(Vec<Vec<Rule>>),
    All(Vec<Vec<Rule>>),
    Not(Vec<Rule>),
}

/// What one value must be.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    Exists(bool),
    /// A text, a number, a boolean or null.
    Equals(Value),
    In(Vec<Value>),
    Prefix(String),
    Range(Bound, Number),
}

/// The bounds of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    Gt,
    Gte,
    Lt,
    Lte,
}

impl Filter {
    /// Reads a filter.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn new(source: Value) -> Result<Self, InvalidFilter> {
        let rules = check::rules(&source)?;
        Ok(Self { source, rules })
    }

    /// Whether a payload passes. Linear in the filter, whatever the payload is.
    pub fn matches(&self, payload: &Value) -> bool {
        hold(&self.rules, payload)
    }
}

fn hold(rules: &[Rule], payload: &Value) -> bool {
    rules.iter().all(|rule| rule.holds(payload))
}

impl Rule {
    fn holds(&self, payload: &Value) -> bool {
        match self {
            Self::Field { pointer, tests } => passes(tests, payload.pointer(pointer)),
            Self::Any(filters) => filters.iter().any(|rules| hold(rules, payload)),
            Self::All(filters) => filters.iter().all(|rules| hold(rules, payload)),
            Self::Not(rules) => !hold(rules, payload),
        }
    }
}

/// A list passes if one of its elements passes every test: who asks for a tag means "has this tag".
fn passes(tests: &[Test], found: Option<&Value>) -> bool {
    if let [Test::Exists(wanted)] = tests {
        return found.is_some() == *wanted;
    }
    let all = |value: &Value| tests.iter().all(|test| test.passes(value));
    match found {
        None => false,
        Some(Value::Array(elements)) => elements.iter().any(all),
        Some(value) => all(value),
    }
}

impl Test {
    fn passes(&self, value: &Value) -> bool {
        match self {
            Self::Exists(wanted) => *wanted,
            Self::Equals(expected) => same(expected, value),
            Self::In(expected) => expected.iter().any(|expected| same(expected, value)),
            Self::Prefix(prefix) => value.as_str().is_some_and(|text| text.starts_with(prefix)),
            Self::Range(bound, limit) => {
                value.as_number().is_some_and(|number| bound.holds(number::compare(number, limit)))
            }
        }
    }
}

impl Bound {
    const fn holds(self, number_to_limit: Ordering) -> bool {
        match self {
            Self::Gt => number_to_limit.is_gt(),
            Self::Gte => number_to_limit.is_ge(),
            Self::Lt => number_to_limit.is_lt(),
            Self::Lte => number_to_limit.is_le(),
        }
    }
}

/// Equal as JSON means it: `1` and `1.0` are one number, `"1"` is a text.
fn same(expected: &Value, value: &Value) -> bool {
    match (expected, value) {
        (Value::Number(expected), Value::Number(value)) => number::compare(expected, value).is_eq(),
        (expected, value) => expected == value,
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

impl TryFrom<Value> for Filter {
    type Error = InvalidFilter;

    fn try_from(source: Value) -> Result<Self, InvalidFilter> {
        Self::new(source)
    }
}

impl From<Filter> for Value {
    fn from(filter: Filter) -> Self {
        filter.source
    }
}

#[cfg(test)]
mod tests;
