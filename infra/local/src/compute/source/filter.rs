//! Filter criteria of an event source: EventBridge patterns, as far as the template needs them.
//!
//! A pattern is an object of fields; a leaf is a list of which one must match: a text, a boolean, null, `prefix` or `exists`.
//! `exists` looks at leaves only, as on AWS: a field that holds an object does not exist. Anything else is refused when
//! the template is read.

use std::collections::BTreeMap;

use serde_json::Value;

/// A pattern that was read and understood.
#[derive(Clone, Debug, PartialEq)]
pub struct Pattern(Node);

#[derive(Clone, Debug, PartialEq)]
enum Node {
    Fields(BTreeMap<String, Node>),
    AnyOf(Vec<Test>),
}

#[derive(Clone, Debug, PartialEq)]
enum Test {
    Equals(Value),
    Prefix(String),
    Exists(bool),
}

/// A pattern that the local host does not know.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "the filter pattern has something at `{at}` that the local host does not know ({what}); it knows texts, booleans, null, prefix and exists"
)]
pub struct Unknown {
    at: String,
    what: String,
}

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// [`Unknown`] names the place of what is not known.
    pub fn parse(pattern: &Value) -> Result<Self, Unknown> {
        match pattern {
            // In a template the pattern is JSON in a text.
            Value::String(text) => match serde_json::from_str(text) {
                Ok(Value::String(_)) | Err(_) => Err(unknown("", pattern)),
                Ok(pattern) => Self::parse(&pattern),
            },
            Value::Object(_) => node(pattern, "").map(Self),
            other => Err(unknown("", other)),
        }
    }

    /// Whether the event passes.
    #[must_use]
    pub fn matches(&self, event: &Value) -> bool {
        self.0.matches(Some(event))
    }
}

impl Node {
    fn matches(&self, value: Option<&Value>) -> bool {
        match self {
            Self::Fields(fields) => fields
                .iter()
                .all(|(name, node)| node.matches(value.and_then(|value| value.get(name)))),
            Self::AnyOf(tests) => tests.iter().any(|test| test.matches(value)),
        }
    }
}

impl Test {
    fn matches(&self, value: Option<&Value>) -> bool {
        match (self, value) {
            (Self::Exists(wanted), value) => {
                value.is_some_and(|value| !value.is_object()) == *wanted
            }
            (_, Some(Value::Array(values))) => values.iter().any(|value| self.matches(Some(value))),
            (Self::Equals(expected), Some(value)) => value == expected,
            (Self::Prefix(prefix), Some(value)) => {
                value.as_str().is_some_and(|text| text.starts_with(prefix))
            }
            (Self::Equals(_) | Self::Prefix(_), None) => false,
        }
    }
}

fn node(pattern: &Value, at: &str) -> Result<Node, Unknown> {
    match pattern {
        Value::Object(fields) if !fields.is_empty() => {
            let field = |(name, pattern): (&String, &Value)| {
                Ok((name.clone(), node(pattern, &format!("{at}.{name}"))?))
            };
            fields.iter().map(field).collect::<Result<_, _>>().map(Node::Fields)
        }
        Value::Array(tests) if !tests.is_empty() => {
            tests.iter().map(|value| test(value, at)).collect::<Result<_, _>>().map(Node::AnyOf)
        }
        other => Err(unknown(at, other)),
    }
}

fn test(value: &Value, at: &str) -> Result<Test, Unknown> {
    match value {
        Value::String(_) | Value::Bool(_) | Value::Null => Ok(Test::Equals(value.clone())),
        Value::Object(rule) if rule.len() == 1 => match (rule.get("prefix"), rule.get("exists")) {
            (Some(Value::String(prefix)), None) => Ok(Test::Prefix(prefix.clone())),
            (None, Some(Value::Bool(exists))) => Ok(Test::Exists(*exists)),
            _ => Err(unknown(at, value)),
        },
        other => Err(unknown(at, other)),
    }
}

fn unknown(at: &str, what: &Value) -> Unknown {
    Unknown { at: at.trim_start_matches('.').to_owned(), what: what.to_string() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(pattern: &Value, image: &Value, expected: bool) {
        let event = json!({"eventName": "INSERT", "dynamodb": {"NewImage": image}});
        assert_eq!(Pattern::parse(pattern).unwrap().matches(&event), expected, "{pattern} {image}");
    }

    #[test]
    fn the_filter_of_the_relay_lets_new_rows_pass() {
        let pattern = json!({"dynamodb": {"NewImage": {"relay_state": {"S": ["NEW"]}, "checkpoint": {"S": [{"exists": false}]}}}});
        check(&pattern, &json!({"relay_state": {"S": "NEW"}}), true);
        check(&pattern, &json!({"relay_state": {"S": "DONE"}}), false);
        check(&pattern, &json!({}), false);
        check(&pattern, &json!({"relay_state": {"S": "NEW"}, "checkpoint": {"S": "ep_1"}}), false);
        check(&Value::String(pattern.to_string()), &json!({"relay_state": {"S": "NEW"}}), true);
    }

    #[test]
    fn one_test_of_a_leaf_is_enough_and_all_fields_are_needed() {
        check(&json!({"eventName": ["MODIFY", "INSERT"]}), &json!({}), true);
        check(&json!({"eventName": ["MODIFY"]}), &json!({}), false);
        check(&json!({"eventName": [{"prefix": "INS"}]}), &json!({}), true);
        check(
            &json!({"eventName": ["INSERT"], "dynamodb": {"NewImage": {"a": {"S": ["x"]}}}}),
            &json!({"a": {"S": "y"}}),
            false,
        );
        check(
            &json!({"dynamodb": {"NewImage": {"tags": {"SS": ["b"]}}}}),
            &json!({"tags": {"SS": ["a", "b"]}}),
            true,
        );
        check(
            &json!({"dynamodb": {"NewImage": {"on": {"BOOL": [true]}}}}),
            &json!({"on": {"BOOL": true}}),
            true,
        );
    }

    #[test]
    fn exists_looks_at_leaves_only() {
        check(
            &json!({"dynamodb": {"NewImage": {"a": {"S": [{"exists": true}]}}}}),
            &json!({"a": {"S": "x"}}),
            true,
        );
        check(
            &json!({"dynamodb": {"NewImage": {"a": [{"exists": true}]}}}),
            &json!({"a": {"S": "x"}}),
            false,
        );
        check(
            &json!({"dynamodb": {"NewImage": {"a": [{"exists": false}]}}}),
            &json!({"a": {"S": "x"}}),
            true,
        );
    }

    #[test]
    fn what_is_not_known_is_refused_with_its_place() {
        for pattern in [
            json!({"a": {"b": [{"anything-but": ["x"]}]}}),
            json!({"a": {"b": [{"numeric": [">", 1]}]}}),
            json!({"a": {"b": [1]}}),
            json!({"a": {"b": "x"}}),
            json!({"a": {"b": []}}),
            json!({"a": {"b": {}}}),
            json!({"a": {"b": [{"prefix": "x", "exists": true}]}}),
        ] {
            assert_eq!(Pattern::parse(&pattern).unwrap_err().at, "a.b", "{pattern}");
        }
        assert!(Pattern::parse(&json!("not json")).is_err() && Pattern::parse(&json!([])).is_err());
    }
}
