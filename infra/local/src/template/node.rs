//! The template as a tree in which every value knows its line and column.
//!
//! Both spellings of an intrinsic function (`!Sub x` and `{Fn::Sub: x}`) become the same [`Data::Call`].

use saphyr::{LoadableYamlNode as _, MarkedYaml, Marker, Scalar, YamlData};
use serde_json::Value;

/// A place in a file, counted from 1.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct At {
    pub(super) line: usize,
    pub(super) column: usize,
}

impl At {
    fn of(marker: Marker) -> Self {
        Self { line: marker.line(), column: marker.col() + 1 }
    }
}

/// A value and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    pub(super) at: At,
    pub(super) data: Data,
}

/// One entry of a mapping; `at` is the place of its name.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) at: At,
    pub(super) name: String,
    pub(super) value: Node,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Data {
    Null,
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
    /// An intrinsic function (`Sub`, `GetAtt`, ...) and its argument, not yet resolved.
    Call(String, Box<Node>),
    /// A value that could not be resolved; the problem is already noted.
    Unknown,
}

const INTRINSICS: [&str; 19] = [
    "Ref",
    "GetAtt",
    "Sub",
    "Join",
    "Select",
    "Split",
    "FindInMap",
    "If",
    "Equals",
    "Not",
    "And",
    "Or",
    "Base64",
    "Cidr",
    "GetAZs",
    "ImportValue",
    "Transform",
    "Length",
    "ToJsonString",
];

impl Node {
    /// Reads one YAML document.
    ///
    /// # Errors
    /// The place and the text of a syntax error, a duplicate key among them.
    pub(super) fn parse(text: &str) -> Result<Self, (At, String)> {
        let documents = MarkedYaml::load_from_str(text).map_err(|error| {
            (At::of(*error.marker()), format!("not readable as YAML: {}", error.info()))
        })?;
        match documents.as_slice() {
            [document] => convert(document),
            _ => Err((At { line: 1, column: 1 }, "a template is one YAML document".to_owned())),
        }
    }

    pub(super) fn text(at: At, text: impl Into<String>) -> Self {
        Self { at, data: Data::Text(text.into()) }
    }

    pub(super) fn unknown(at: At) -> Self {
        Self { at, data: Data::Unknown }
    }

    pub(super) fn entries(&self) -> Option<&[Entry]> {
        match &self.data {
            Data::Map(entries) => Some(entries),
            _ => None,
        }
    }

    pub(super) fn items(&self) -> Option<&[Node]> {
        match &self.data {
            Data::List(items) => Some(items),
            _ => None,
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&Node> {
        self.entries()?.iter().find(|entry| entry.name == name).map(|entry| &entry.value)
    }

    /// A scalar as CloudFormation writes it into a string.
    pub(super) fn scalar(&self) -> Option<String> {
        match &self.data {
            Data::Bool(value) => Some(value.to_string()),
            Data::Integer(value) => Some(value.to_string()),
            Data::Float(value) => Some(value.to_string()),
            Data::Text(value) => Some(value.clone()),
            _ => None,
        }
    }

    /// A whole number, also one written as text: a parameter's value always is text.
    pub(super) fn number(&self) -> Option<i64> {
        match &self.data {
            Data::Integer(value) => Some(*value),
            Data::Text(value) => value.parse().ok(),
            _ => None,
        }
    }

    pub(super) fn boolean(&self) -> Option<bool> {
        match &self.data {
            Data::Bool(value) => Some(*value),
            Data::Text(value) => value.parse().ok(),
            _ => None,
        }
    }

    pub(super) fn json(&self) -> Value {
        match &self.data {
            Data::Null | Data::Unknown | Data::Call(..) => Value::Null,
            Data::Bool(value) => Value::from(*value),
            Data::Integer(value) => Value::from(*value),
            Data::Float(value) => Value::from(*value),
            Data::Text(value) => Value::from(value.as_str()),
            Data::List(items) => items.iter().map(Self::json).collect(),
            Data::Map(entries) => Value::Object(
                entries.iter().map(|entry| (entry.name.clone(), entry.value.json())).collect(),
            ),
        }
    }

    /// As SAM merges a global section into a resource: mappings are joined, lists put behind one another, else the resource wins.
    pub(super) fn over(self, global: &Node) -> Node {
        let data = match (self.data, &global.data) {
            (Data::Map(own), Data::Map(shared)) => {
                let mut merged: Vec<Entry> = shared
                    .iter()
                    .filter(|entry| own.iter().all(|mine| mine.name != entry.name))
                    .cloned()
                    .collect();
                merged.extend(own.into_iter().map(|mut entry| {
                    if let Some(below) = global.get(&entry.name) {
                        entry.value = entry.value.over(below);
                    }
                    entry
                }));
                Data::Map(merged)
            }
            (Data::List(own), Data::List(shared)) => {
                Data::List(shared.iter().cloned().chain(own).collect())
            }
            (own, _) => own,
        };
        Node { at: self.at, data }
    }
}

fn convert(yaml: &MarkedYaml<'_>) -> Result<Node, (At, String)> {
    let at = At::of(yaml.span.start);
    let data = match &yaml.data {
        YamlData::Value(Scalar::Null) => Data::Null,
        YamlData::Value(Scalar::Boolean(value)) => Data::Bool(*value),
        YamlData::Value(Scalar::Integer(value)) => Data::Integer(*value),
        YamlData::Value(Scalar::FloatingPoint(value)) => Data::Float(value.into_inner()),
        YamlData::Value(Scalar::String(value)) => Data::Text(value.to_string()),
        YamlData::Sequence(items) => {
            Data::List(items.iter().map(convert).collect::<Result<_, _>>()?)
        }
        YamlData::Mapping(entries) => {
            let mut converted = Vec::with_capacity(entries.len());
            for (key, value) in entries {
                let name = convert(key)?;
                let Some(text) = name.scalar() else {
                    return Err((name.at, "the name of an entry must be text".to_owned()));
                };
                converted.push(Entry { at: name.at, name: text, value: convert(value)? });
            }
            match intrinsic(&converted) {
                Some(function) => {
                    let argument =
                        converted.pop().map_or_else(|| Node::unknown(at), |entry| entry.value);
                    Data::Call(function, Box::new(argument))
                }
                None => Data::Map(converted),
            }
        }
        YamlData::Tagged(tag, inner) => {
            let inner = convert(inner)?;
            Data::Call(tag.suffix.clone(), Box::new(inner))
        }
        YamlData::Representation(..) | YamlData::Alias(_) | YamlData::BadValue => {
            return Err((at, "this value is not readable as YAML".to_owned()));
        }
    };
    Ok(Node { at, data })
}

/// The function that a mapping with one entry spells out.
fn intrinsic(entries: &[Entry]) -> Option<String> {
    let [entry] = entries else { return None };
    let name = match entry.name.as_str() {
        "Ref" => "Ref",
        other => other.strip_prefix("Fn::")?,
    };
    INTRINSICS.contains(&name).then(|| name.to_owned())
}
