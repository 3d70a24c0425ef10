//! Text with holes: `{ts}.{body}`.

use http::HeaderName;

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
    /// The address as the provider has it configured, or as it decodes it before signing.
    Url(Spelling),
    /// Path and query of that address, escaped as Contentful does.
    PathQuery,
    Header(Names),
    /// The headers that a header lists, `name:value` joined by `;`.
    SignedHeaders(HeaderName),
    Json(Pointer),
    /// A value that every element of an array has: the pointers to arrays, each from within an element of the one before, and
    /// the pointer to the value.
    EveryJson(Vec<Pointer>),
    /// A field of a body that is a form.
    Form(String),
    /// Nothing, if the form has that field; otherwise the template is incomplete.
    HasForm(String),
    /// A field of the signature header.
    Pair(String),
    Config(String),
    /// When we were given the request, in milliseconds: for what has no name of its own.
    Received,
    /// The key itself, for plain hashes.
    Secret,
    /// The last segment of a secret address.
    PathSecret,
}

/// How a signed address is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spelling {
    AsSent,
    HubSpot,
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
            "url" => Ok(Part::Url(Spelling::AsSent)),
            "path-query" => Ok(Part::PathQuery),
            "received" => Ok(Part::Received),
            "secret" => Ok(Part::Secret),
            "path-secret" => Ok(Part::PathSecret),
            _ => Err(unknown(name)),
        },
        Some(("url", "hubspot")) => Ok(Part::Url(Spelling::HubSpot)),
        Some(("header", names)) => header_names(names).map(Part::Header),
        Some(("signed-headers", name)) => header_name(name).map(Part::SignedHeaders),
        Some(("json", pointer)) => json(pointer).ok_or_else(|| {
            format!("`{pointer}` is not a JSON pointer; it starts with a slash, as in `/data/id`")
        }),
        Some(("form", field)) if !field.is_empty() => Ok(Part::Form(field.into())),
        Some(("has-form", field)) if !field.is_empty() => Ok(Part::HasForm(field.into())),
        Some(("pair", field)) if !field.is_empty() => Ok(Part::Pair(field.into())),
        Some(("config", key)) if !key.is_empty() => Ok(Part::Config(key.into())),
        Some(_) => Err(unknown(name)),
    }
}

/// A pointer in which a step `*` stands for every element of an array.
fn json(text: &str) -> Option<Part> {
    let starred = format!("{text}/");
    let mut pieces: Vec<&str> = starred.split("/*/").collect();
    let last = pieces.pop()?.strip_suffix('/')?;
    if pieces.is_empty() {
        return Pointer::parse(last).map(Part::Json);
    }
    let arrays = pieces.iter().enumerate().map(|(at, piece)| match at {
        0 => Pointer::parse_or_whole(piece),
        _ => Pointer::parse_or_whole(&format!("/{piece}")),
    });
    let value = Pointer::parse(&format!("/{last}"));
    arrays.chain([value]).collect::<Option<_>>().map(Part::EveryJson)
}

fn unknown(name: &str) -> String {
    format!(
        "`{{{name}}}` is unknown; there are {{body}}, {{body-sha256}}, {{ts}}, {{method}}, {{url}}, {{url:hubspot}}, \
         {{path-query}}, {{header:name}}, {{signed-headers:name}}, {{json:/pointer}}, {{form:field}}, {{has-form:field}}, \
         {{pair:field}}, {{config:name}}, {{received}}, {{secret}}, {{path-secret}}"
    )
}

/// Reads `a|b`: header names, any of which may be the one.
pub(crate) fn header_names(text: &str) -> Result<Names, String> {
    text.split('|').map(header_name).collect()
}

/// Reads one header name, in lower case.
pub(crate) fn header_name(text: &str) -> Result<HeaderName, String> {
    HeaderName::from_bytes(text.as_bytes())
        .map_err(|_| format!("`{text}` cannot be the name of a header"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_is_literal_text_and_parts() {
        let name = |name: &'static str| HeaderName::from_static(name);
        let header = |text: &'static str| Part::Header(vec![name(text)]);
        let literal = |text: &str| Part::Literal(text.into());
        let parse = |text: &str| Template::parse(text).unwrap().0;
        assert_eq!(parse("{ts}.{body}"), [Part::Timestamp, literal("."), Part::Body]);
        assert_eq!(parse("v0:{header:X-A}"), [literal("v0:"), header("x-a")]);
        assert_eq!(parse("{header:a|b}"), [Part::Header(vec![name("a"), name("b")])]);
        assert_eq!(parse("{{{method}}}"), [literal("{"), Part::Method, literal("}")]);
        assert_eq!(parse("{url}{url:hubspot}").len(), 2);
        assert_eq!(parse("{signed-headers:X-Signed}"), [Part::SignedHeaders(name("x-signed"))]);
        let every = |pointers: &[&str]| {
            let pointers = pointers.iter().map(|text| Pointer::parse_or_whole(text).unwrap());
            Part::EveryJson(pointers.collect())
        };
        assert_eq!(parse("{json:/value/*/clientState}"), [every(&["/value", "/clientState"])]);
        assert_eq!(parse("{json:/*/clientState}"), [every(&["", "/clientState"])]);
        assert_eq!(parse("{json:/a/*/b/c/*/d}"), [every(&["/a", "/b/c", "/d"])]);
        assert_eq!(parse("{json:/a/*b/c*}"), [Part::Json(Pointer::parse("/a/*b/c*").unwrap())]);
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
            "{json:/a/*}",
            "{json:*/a}",
            "{json:a/*/b}",
            "{url:other}",
            "{signed-headers:a b}",
            "{form:}",
            "{has-form:}",
            "{pair:}",
            "{config:}",
            "{:}",
        ] {
            assert!(Template::parse(bad).is_err(), "{bad}");
        }
    }
}
