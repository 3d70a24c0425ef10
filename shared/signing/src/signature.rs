//! From the text of a signature header to candidates, as bytes.

use crate::Reason;
use crate::encoding::{NotADigest, decode};
use crate::scheme::{Part, Scheme, Shape};

/// Rotation needs two signatures, some providers send a handful; more only makes us work.
const MOST_CANDIDATES: usize = 16;

/// Every signature in the text that has the scheme's form. Values of other versions, and broken ones beside a good one,
/// are passed over.
pub(crate) fn candidates(scheme: &Scheme, text: &[u8]) -> Result<Vec<Vec<u8>>, Reason> {
    if text.trim_ascii().is_empty() {
        return Err(Reason::SignatureMissing);
    }
    if let Some(name) = joined(scheme, text) {
        return Err(Reason::HeaderJoined { name: name.clone() });
    }
    let values = match &scheme.signature.shape {
        Shape::Plain { prefix } => text.strip_prefix(prefix.as_bytes()).into_iter().collect(),
        Shape::Pairs { field, .. } => fields(&scheme.signature.shape, text, field),
    };
    let mut candidates = Vec::new();
    let mut misspelled = false;
    for value in values {
        match read(scheme, value) {
            Ok(candidate) if candidates.len() < MOST_CANDIDATES => candidates.push(candidate),
            Ok(_) => return Err(Reason::SignaturesTooMany),
            Err(NotADigest::Spelling) => misspelled = true,
            Err(NotADigest::Malformed) => {}
        }
    }
    match (candidates.is_empty(), misspelled) {
        (false, _) => Ok(candidates),
        (true, true) => Err(Reason::SignatureSpelling),
        (true, false) => Err(Reason::SignatureMalformed),
    }
}

/// The header, if it was sent twice and joined: a comma in a list of pairs whose grammar has none. Where single signatures
/// are plain, a comma is part of none of them.
fn joined<'s>(scheme: &'s Scheme, text: &[u8]) -> Option<&'s String> {
    let Part::Header(names) = &scheme.signature.from else { return None };
    let Shape::Pairs { item_sep, kv_sep, .. } = &scheme.signature.shape else { return None };
    let in_grammar = item_sep.contains(',') || kv_sep.contains(',');
    names.first().filter(|_| !in_grammar && text.contains(&b','))
}

fn read(scheme: &Scheme, value: &[u8]) -> Result<Vec<u8>, NotADigest> {
    match scheme.algorithm.length() {
        Some(length) => decode(value, scheme.signature.encoding, length),
        None if value.is_empty() => Err(NotADigest::Malformed),
        None => Ok(value.to_vec()),
    }
}

/// The values of one field of a list of pairs. A scheme without pairs has none.
pub(crate) fn fields<'t>(shape: &'t Shape, text: &'t [u8], wanted: &str) -> Vec<&'t [u8]> {
    let Shape::Pairs { item_sep, kv_sep, trim, .. } = shape else { return Vec::new() };
    split(text, item_sep.as_bytes())
        .filter_map(|item| {
            let item = if *trim { item.trim_ascii() } else { item };
            let at = find(item, kv_sep.as_bytes())?;
            let (name, value) = (item.get(..at)?, item.get(at + kv_sep.len()..)?);
            (name == wanted.as_bytes()).then_some(value)
        })
        .collect()
}

fn split<'t>(text: &'t [u8], separator: &'t [u8]) -> impl Iterator<Item = &'t [u8]> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let at = find(text, separator);
        rest = at.and_then(|at| text.get(at + separator.len()..));
        at.map_or(Some(text), |at| text.get(..at))
    })
}

fn find(text: &[u8], pattern: &[u8]) -> Option<usize> {
    text.windows(pattern.len().max(1)).position(|window| window == pattern)
}

/// Writes the text of a signature header: `pairs` first, then the signature.
pub(crate) fn write(shape: &Shape, pairs: &[(&str, &str)], signature: &str) -> String {
    match shape {
        Shape::Plain { prefix } => format!("{prefix}{signature}"),
        Shape::Pairs { item_sep, kv_sep, field, .. } => pairs
            .iter()
            .chain([&(field.as_str(), signature)])
            .map(|(name, value)| format!("{name}{kv_sep}{value}"))
            .collect::<Vec<_>>()
            .join(item_sep),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[&str]) {
        let shape = Shape::Pairs {
            item_sep: ",".into(),
            kv_sep: "=".into(),
            field: "v1".into(),
            trim: false,
        };
        let found: Vec<&str> = fields(&shape, text.as_bytes(), "v1")
            .into_iter()
            .map(|value| std::str::from_utf8(value).unwrap())
            .collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn pairs_are_split_at_the_first_separator_and_never_guessed() {
        check("t=1,v1=a", &["a"]);
        check("v1=a,t=1,v1=b,v0=c", &["a", "b"]);
        check("v1=a=b=c", &["a=b=c"]);
        check("t=1, v1=a", &[]);
        check("V1=a", &[]);
        check("v1", &[]);
        check("v1=", &[""]);
        check("=,,,==,v11=x", &[]);
        check("", &[]);
    }
}
