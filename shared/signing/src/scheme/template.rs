//! Text with holes: `{ts}.{body}`.

use crate::json::Pointer;
use crate::scheme::Names;

/// Literal text and named parts, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Template(Vec<Part>);

/// One piece of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Literal(String),
    /// The untouched bytes.
    Body,
    /// Lower-case hexadecimal.
    BodySha256,
    /// The signed time, as it was sent.
    Timestamp,
    Method,
    Url,
    Header(Names),
    Json(Pointer),
    /// A field of the signature header.
    Pair(String),
    Config(String),
}

impl Template {
    /// Reads a template; `{{` and `}}` stand for braces.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            let (before, from) = rest.split_at(at);
            literal.push_str(before);
            if let Some(after) = from.strip_prefix("{{").or_else(|| from.strip_prefix("}}")) {
                literal.extend(from.chars().next());
                rest = after;
            } else if let Some((name, after)) =
                from.strip_prefix('{').and_then(|from| from.split_once('}'))
            {
                if !literal.is_empty() {
                    parts.push(Part::Literal(std::mem::take(&mut literal)));
                }
                parts.push(part(name)?);
                rest = after;
            } else {
                return Err("a brace has no partner; write `{{` or `}}` for a brace itself".into());
            }
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            parts.push(Part::Literal(literal));
        }
        Ok(Self(parts))
    }

    pub(crate) fn parts(&self) -> &[Part] {
        &self.0
    }

    /// The one part, of a template that is nothing else.
    pub(crate) fn lone(self) -> Option<Part> {
        let mut parts = self.0;
        let part = parts.pop()?;
        parts.is_empty().then_some(part)
    }
}

fn part(name: &str) -> Result<Part, String> {
    match name.split_once(':') {
        None => match name {
            "body" => Ok(Part::Body),
            "body-sha256" => Ok(Part::BodySha256),
            "ts" => Ok(Part::Timestamp),
            "method" => Ok(Part::Method),
            "url" => Ok(Part::Url),
            _ => Err(unknown(name)),
        },
        Some(("header", names)) => header_names(names).map(Part::Header),
        Some(("json", pointer)) => Pointer::parse(pointer).map(Part::Json).ok_or_else(|| {
            format!("`{pointer}` is not a JSON pointer; it starts with a slash, as in `/data/id`")
        }),
        Some(("pair", field)) if !field.is_empty() => Ok(Part::Pair(field.into())),
        Some(("config", key)) if !key.is_empty() => Ok(Part::Config(key.into())),
        Some(_) => Err(unknown(name)),
    }
}

fn unknown(name: &str) -> String {
    format!(
        "`{{{name}}}` is unknown; there are {{body}}, {{body-sha256}}, {{ts}}, {{method}}, {{url}}, {{header:name}}, \
         {{json:/pointer}}, {{pair:field}}, {{config:name}}"
    )
}

/// Reads `a|b`: header names, any of which may be the one.
pub(crate) fn header_names(text: &str) -> Result<Names, String> {
    text.split('|').map(header_name).collect()
}

/// Reads one header name, in lower case.
pub(crate) fn header_name(text: &str) -> Result<String, String> {
    match http::HeaderName::from_bytes(text.as_bytes()) {
        Ok(name) => Ok(name.as_str().to_owned()),
        Err(_) => Err(format!("`{text}` cannot be the name of a header")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_is_literal_text_and_parts() {
        let header = |name: &str| Part::Header(vec![name.into()]);
        let literal = |text: &str| Part::Literal(text.into());
        let parse = |text: &str| Template::parse(text).unwrap().0;
        assert_eq!(parse("{ts}.{body}"), [Part::Timestamp, literal("."), Part::Body]);
        assert_eq!(parse("v0:{header:X-A}"), [literal("v0:"), header("x-a")]);
        assert_eq!(parse("{header:a|b}"), [Part::Header(vec!["a".into(), "b".into()])]);
        assert_eq!(parse("{{{method}}}"), [literal("{"), Part::Method, literal("}")]);
        assert_eq!(parse(""), []);
    }

    #[test]
    fn what_a_template_does_not_know_it_refuses() {
        for bad in [
            "{",
            "}",
            "{ts",
            "{what}",
            "{header:}",
            "{header:a b}",
            "{json:id}",
            "{json:}",
            "{pair:}",
            "{config:}",
            "{:}",
        ] {
            assert!(Template::parse(bad).is_err(), "{bad}");
        }
    }
}
