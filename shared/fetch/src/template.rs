//! Text with holes: `repos/{event:/repository/name}/issues/{id}`.

use std::collections::BTreeMap;

use serde_json::Value;

/// Longest value that fills a hole, in bytes.
const MAX_VALUE: usize = 512;

/// Literal text and holes, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Template(pub(crate) Vec<Part>);

/// One piece of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Literal(String),
    /// The object's kind.
    Kind,
    /// The object's id.
    Id,
    /// What `paths` says for the kind.
    Path,
    /// A text or a number of the event's body, by JSON pointer.
    Event(String),
    /// A value of the source's configuration.
    Config(String),
}

/// What fills holes.
pub(crate) struct Filling<'a> {
    pub(crate) kind: &'a str,
    pub(crate) id: &'a str,
    pub(crate) event: &'a Value,
    pub(crate) config: &'a BTreeMap<String, String>,
}

/// A hole for which there is no value, or none that may stand there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Empty(pub(crate) String);

impl Template {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            let (before, from) = rest.split_at(at);
            let hole = from.strip_prefix('{').and_then(|from| from.split_once('}'));
            let (name, after) = hole.ok_or("a brace has no partner")?;
            if !before.is_empty() {
                parts.push(Part::Literal(before.to_owned()));
            }
            parts.push(part(name)?);
            rest = after;
        }
        if !rest.is_empty() {
            parts.push(Part::Literal(rest.to_owned()));
        }
        Ok(Self(parts))
    }

    pub(crate) fn has(&self, wanted: &Part) -> bool {
        self.0.contains(wanted)
    }

    /// The names of the configuration that it needs.
    pub(crate) fn config(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|part| match part {
            Part::Config(name) => Some(name.as_str()),
            _ => None,
        })
    }

    /// The template with its holes filled, each value escaped by `escape`.
    pub(crate) fn fill(
        &self,
        filling: &Filling<'_>,
        path: Option<&str>,
        escape: fn(&str) -> Option<String>,
    ) -> Result<String, Empty> {
        let mut out = String::new();
        for part in &self.0 {
            match part {
                Part::Literal(text) => out.push_str(text),
                Part::Path => out.push_str(path.ok_or_else(|| Empty("{path}".to_owned()))?),
                hole => {
                    let value = filling.value(hole).filter(|value| value.len() <= MAX_VALUE);
                    let value = value.as_deref().and_then(escape);
                    out.push_str(&value.ok_or_else(|| Empty(hole.name()))?);
                }
            }
        }
        Ok(out)
    }
}

impl Part {
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Literal(text) => text.clone(),
            Self::Kind => "{kind}".to_owned(),
            Self::Id => "{id}".to_owned(),
            Self::Path => "{path}".to_owned(),
            Self::Event(pointer) => format!("{{event:{pointer}}}"),
            Self::Config(name) => format!("{{config:{name}}}"),
        }
    }
}

impl Filling<'_> {
    fn value(&self, hole: &Part) -> Option<String> {
        match hole {
            Part::Literal(_) | Part::Path => None,
            Part::Kind => Some(self.kind.to_owned()),
            Part::Id => Some(self.id.to_owned()),
            Part::Event(pointer) => leaf(self.event.pointer(pointer)?),
            Part::Config(name) => self.config.get(name).cloned(),
        }
        .filter(|value| !value.is_empty())
    }
}

/// A text or a whole number, as text.
pub(crate) fn leaf(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) if number.is_u64() || number.is_i64() => Some(number.to_string()),
        _ => None,
    }
}

/// Everything but the unreserved characters of RFC 3986 as `%XX`: a slash, a question mark or a dot-dot of a stranger's
/// stays inside its segment.
pub(crate) fn percent(value: &str) -> Option<String> {
    let mut out = String::new();
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    Some(out)
}

/// A label of a host: no dot that would make another host of it.
pub(crate) fn label(value: &str) -> Option<String> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let fits = (1..=63).contains(&value.len()) && value.bytes().all(plain);
    (fits && !value.starts_with('-') && !value.ends_with('-')).then(|| value.to_owned())
}

/// The value of a header: visible characters.
pub(crate) fn visible(value: &str) -> Option<String> {
    value.bytes().all(|byte| byte.is_ascii_graphic()).then(|| value.to_owned())
}

fn part(name: &str) -> Result<Part, String> {
    match name.split_once(':') {
        None => match name {
            "kind" => Ok(Part::Kind),
            "id" => Ok(Part::Id),
            "path" => Ok(Part::Path),
            _ => Err(unknown(name)),
        },
        Some(("event", pointer)) if pointer.starts_with('/') => Ok(Part::Event(pointer.to_owned())),
        Some(("config", key)) if !key.is_empty() => Ok(Part::Config(key.to_owned())),
        Some(_) => Err(unknown(name)),
    }
}

fn unknown(name: &str) -> String {
    format!(
        "`{{{name}}}` is unknown; there are {{kind}}, {{id}}, {{path}}, {{event:/pointer}} and {{config:name}}"
    )
}
