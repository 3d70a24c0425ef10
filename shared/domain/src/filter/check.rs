//! Reading a filter: what it may hold, and every problem with what it does.

use std::fmt;

use serde_json::{Map, Number, Value};

use super::{Bound, Rule, Test, number};

/// Longest filter, in bytes of compact JSON: all filters of a tenant are kept in memory while its events are relayed.
pub const MAX_FILTER: usize = 4096;

/// Deepest nesting of `any`, `all` and `not`; the filter itself is the first level.
pub const MAX_DEPTH: usize = 5;

/// Most tests in a filter, all levels together; each value of an `in` counts.
pub const MAX_TESTS: usize = 100;

/// Longest pointer, prefix or value, in bytes.
const MAX_TEXT: usize = 512;

/// Most problems that are named; who has more has not begun to read.
const MAX_PROBLEMS: usize = 20;

/// A value that is not a filter, with all that is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidFilter(Vec<Problem>);

/// One thing that is wrong with a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where, as an RFC 6901 pointer into the filter; empty: the filter itself.
    pub at: String,
    /// What, and what to do.
    pub what: String,
}

impl InvalidFilter {
    /// What is wrong: at least one problem, and at most 20.
    pub fn problems(&self) -> &[Problem] {
        &self.0
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.at.is_empty() {
            f.write_str(&self.what)
        } else {
            write!(f, "at {}: {}", self.at.escape_debug(), self.what)
        }
    }
}

impl fmt::Display for InvalidFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the filter cannot be used: ")?;
        for (index, problem) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("; ")?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for InvalidFilter {}

/// The rules of a filter.
pub(super) fn rules(source: &Value) -> Result<Vec<Rule>, InvalidFilter> {
    let mut reading = Reading { problems: Vec::new(), tests: 0 };
    let bytes = source.to_string().len();
    if bytes > MAX_FILTER {
        let what = format!("a filter has at most {MAX_FILTER} bytes, and this has {bytes}");
        reading.problem("", what);
        return Err(InvalidFilter(reading.problems));
    }
    let rules = reading.filter(source, "", 1);
    if reading.tests > MAX_TESTS {
        let what = format!(
            "a filter has at most {MAX_TESTS} tests, each value of an `in` counted, and this has {}",
            reading.tests
        );
        reading.problem("", what);
    }
    if reading.problems.is_empty() { Ok(rules) } else { Err(InvalidFilter(reading.problems)) }
}

struct Reading {
    problems: Vec<Problem>,
    tests: usize,
}

impl Reading {
    fn problem(&mut self, at: &str, what: impl Into<String>) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(Problem { at: at.to_owned(), what: what.into() });
        }
    }

    fn filter(&mut self, source: &Value, at: &str, depth: usize) -> Vec<Rule> {
        if depth > MAX_DEPTH {
            self.problem(at, format!("filters nest at most {MAX_DEPTH} deep"));
            return Vec::new();
        }
        match source {
            Value::Object(members) if !members.is_empty() => members
                .iter()
                .filter_map(|(name, value)| self.rule(name, value, at, depth))
                .collect(),
            Value::Object(_) => {
                self.problem(at, "an empty filter says nothing; leave it out to get every event");
                Vec::new()
            }
            _ => {
                self.problem(at, "a filter is an object, such as {\"/amount\": {\"gte\": 100}}");
                Vec::new()
            }
        }
    }

    fn rule(&mut self, name: &str, value: &Value, at: &str, depth: usize) -> Option<Rule> {
        let here = below(at, name);
        match name {
            "any" => Some(Rule::Any(self.filters(value, &here, depth)?)),
            "all" => Some(Rule::All(self.filters(value, &here, depth)?)),
            "not" => Some(Rule::Not(self.filter(value, &here, depth + 1))),
            pointer if pointer.starts_with('/') => self.field(pointer, value, &here),
            _ => {
                let what = "a field of the payload is named by a pointer that begins with `/`, as in `/data/amount`; the \
                            other members are `any`, `all` and `not`";
                self.problem(&here, what);
                None
            }
        }
    }

    fn filters(&mut self, value: &Value, at: &str, depth: usize) -> Option<Vec<Vec<Rule>>> {
        let Some(filters) = value.as_array().filter(|filters| !filters.is_empty()) else {
            self.problem(at, "this is a list of filters, with at least one");
            return None;
        };
        let each = filters.iter().enumerate();
        Some(
            each.map(|(index, filter)| {
                self.filter(filter, &below(at, &index.to_string()), depth + 1)
            })
            .collect(),
        )
    }

    fn field(&mut self, pointer: &str, value: &Value, at: &str) -> Option<Rule> {
        if pointer.len() > MAX_TEXT {
            self.problem(at, format!("a pointer has at most {MAX_TEXT} bytes"));
        }
        if bad_escape(pointer) {
            self.problem(at, "in a pointer `~` is written `~0`, and a `/` within a name `~1`");
        }
        let Some(members) = value.as_object().filter(|members| !members.is_empty()) else {
            let what = "a field has an object of tests: equals, in, exists, prefix, gt, gte, lt, lte; to compare with a \
                        value, write {\"equals\": value}";
            self.problem(at, what);
            return None;
        };
        let tests: Vec<Test> = members
            .iter()
            .filter_map(|(name, value)| self.test(name, value, &below(at, name)))
            .collect();
        self.together(&tests, members, at);
        Some(Rule::Field { pointer: pointer.to_owned(), tests })
    }

    fn test(&mut self, name: &str, value: &Value, at: &str) -> Option<Test> {
        self.tests += 1;
        let test = match name {
            "exists" => value.as_bool().map(Test::Exists).ok_or("exists is true or false"),
            "prefix" => text(value)
                .map(|prefix| Test::Prefix(prefix.to_owned()))
                .ok_or("prefix is a text of 1 to 512 bytes"),
            "equals" => scalar(value)
                .map(Test::Equals)
                .ok_or("equals is a text of at most 512 bytes, a number, true, false or null"),
            "in" => self.list(value).ok_or(
                "in is a list of texts of at most 512 bytes, numbers, true, false or null, with at least one",
            ),
            _ => match bound(name) {
                Some(bound) => value
                    .as_number()
                    .map(|limit| Test::Range(bound, limit.clone()))
                    .ok_or("the bound of a range is a number"),
                None => Err("the tests are equals, in, exists, prefix, gt, gte, lt and lte"),
            },
        };
        test.map_err(|what| self.problem(at, what)).ok()
    }

    fn list(&mut self, value: &Value) -> Option<Test> {
        let values = value.as_array().filter(|values| !values.is_empty())?;
        self.tests += values.len() - 1;
        values.iter().map(scalar).collect::<Option<_>>().map(Test::In)
    }

    /// What tests of one field must not say together.
    fn together(&mut self, tests: &[Test], members: &Map<String, Value>, at: &str) {
        if tests.contains(&Test::Exists(false)) && members.len() > 1 {
            self.problem(at, "what does not exist passes no other test; leave `exists` out");
        }
        let bounds = |upper: bool| {
            tests.iter().filter_map(move |test| match test {
                Test::Range(bound, limit) if is_upper(*bound) == upper => Some((*bound, limit)),
                _ => None,
            })
        };
        if bounds(false).count() > 1 || bounds(true).count() > 1 {
            self.problem(at, "a range has one lower bound and one upper bound");
        } else if let (Some(lower), Some(upper)) = (bounds(false).next(), bounds(true).next())
            && is_empty(lower, upper)
        {
            self.problem(at, "no number lies in this range");
        }
    }
}

fn bound(name: &str) -> Option<Bound> {
    match name {
        "gt" => Some(Bound::Gt),
        "gte" => Some(Bound::Gte),
        "lt" => Some(Bound::Lt),
        "lte" => Some(Bound::Lte),
        _ => None,
    }
}

const fn is_upper(bound: Bound) -> bool {
    matches!(bound, Bound::Lt | Bound::Lte)
}

fn is_empty(lower: (Bound, &Number), upper: (Bound, &Number)) -> bool {
    let order = number::compare(lower.1, upper.1);
    order.is_gt() || (order.is_eq() && (lower.0, upper.0) != (Bound::Gte, Bound::Lte))
}

fn text(value: &Value) -> Option<&str> {
    value.as_str().filter(|text| (1..=MAX_TEXT).contains(&text.len()))
}

fn scalar(value: &Value) -> Option<Value> {
    match value {
        Value::Array(_) | Value::Object(_) => None,
        Value::String(text) if text.len() > MAX_TEXT => None,
        _ => Some(value.clone()),
    }
}

fn bad_escape(pointer: &str) -> bool {
    pointer.split('~').skip(1).any(|after| !after.starts_with(['0', '1']))
}

/// The pointer to a member, cut to what a person can read.
fn below(at: &str, name: &str) -> String {
    let name: String = name.chars().take(64).collect();
    format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"))
}
