//! From the text of signature headers to candidates, as bytes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::encoding::{NotADigest, decode};
use crate::rejected::Reason;
use crate::scheme::{Algorithm, Part, Shape, SignatureFormat};
use crate::{asymmetric, digest};

/// Rotation needs two signatures, some providers send a handful; more only makes us work.
const MOST_CANDIDATES: usize = 16;
/// An ECDSA signature on P-256 in DER is never longer, and no digest is.
const LONGEST: usize = 72;

/// What may be a signature: the bytes, and the place it was found in. For a token its hash stands here, so that lengths
/// are equal whatever was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    place: usize,
    bytes: [u8; LONGEST],
    length: usize,
}

impl Candidate {
    /// A digest in the scheme's spelling.
    fn read(
        format: &SignatureFormat,
        algorithm: Algorithm,
        place: usize,
        text: &[u8],
    ) -> Result<Self, NotADigest> {
        let mut candidate = Self { place, bytes: [0; LONGEST], length: 0 };
        let accepts = |bytes: &[u8]| match algorithm {
            Algorithm::HmacSha1 => bytes.len() == 20,
            Algorithm::HmacSha256 | Algorithm::Sha256 => bytes.len() == 32,
            Algorithm::HmacSha512 | Algorithm::Ed25519 => bytes.len() == 64,
            Algorithm::EcdsaP256 => asymmetric::is_der_signature(bytes),
            Algorithm::Token | Algorithm::Basic | Algorithm::None => false,
        };
        candidate.length = decode(text, format.encoding, &mut candidate.bytes, accepts)?;
        Ok(candidate)
    }

    /// A secret that was shown.
    fn shown(place: usize, secret: &[u8]) -> Self {
        let mut candidate = Self { place, bytes: [0; LONGEST], length: 0 };
        for (byte, hashed) in candidate.bytes.iter_mut().zip(digest::sha256(secret)) {
            *byte = hashed;
            candidate.length += 1;
        }
        candidate
    }

    pub(crate) fn place(&self) -> usize {
        self.place
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

/// Candidates in the order they were found. Most requests have one, which needs no allocation.
#[derive(Debug, Default)]
pub(crate) struct Candidates {
    first: Option<Candidate>,
    more: Vec<Candidate>,
    misspelled: bool,
}

impl Candidates {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Candidate> + Clone {
        self.first.iter().chain(&self.more)
    }

    fn push(&mut self, candidate: Candidate) -> Result<(), Reason> {
        if self.first.is_none() {
            self.first = Some(candidate);
        } else if self.more.len() + 1 < MOST_CANDIDATES {
            self.more.push(candidate);
        } else {
            return Err(Reason::SignaturesTooMany);
        }
        Ok(())
    }

    /// Adds every signature in the text that has the scheme's form. Values of other versions, and broken ones beside a good
    /// one, are passed over.
    pub(crate) fn read(
        &mut self,
        format: &SignatureFormat,
        algorithm: Algorithm,
        place: usize,
        text: &[u8],
    ) -> Result<(), Reason> {
        if let Some(name) = joined(format, place, text) {
            return Err(Reason::HeaderJoined { name });
        }
        match &format.shape {
            Shape::Plain { prefix } => match text.strip_prefix(prefix.as_bytes()) {
                Some(value) => self.take(format, algorithm, place, value),
                None => Ok(()),
            },
            Shape::Pairs { field, .. } => fields(&format.shape, text, field)
                .try_for_each(|value| self.take(format, algorithm, place, value)),
        }
    }

    fn take(
        &mut self,
        format: &SignatureFormat,
        algorithm: Algorithm,
        place: usize,
        value: &[u8],
    ) -> Result<(), Reason> {
        if !algorithm.signs() {
            return if value.is_empty() { Ok(()) } else { self.show(place, value) };
        }
        match Candidate::read(format, algorithm, place, value) {
            Ok(candidate) => self.push(candidate),
            Err(NotADigest::Spelling) => {
                self.misspelled = true;
                Ok(())
            }
            Err(NotADigest::Malformed) => Ok(()),
        }
    }

    /// Adds a secret that was shown instead of a signature.
    pub(crate) fn show(&mut self, place: usize, secret: &[u8]) -> Result<(), Reason> {
        let shown = Candidate::shown(place, secret);
        if self.iter().any(|known| known.bytes() == shown.bytes()) {
            return Ok(()); // two values that were sent, compared with each other
        }
        self.push(shown)
    }

    /// The candidates, if there are any.
    pub(crate) fn found(self) -> Result<Self, Reason> {
        match (self.first, self.misspelled) {
            (Some(_), _) => Ok(self),
            (None, true) => Err(Reason::SignatureSpelling),
            (None, false) => Err(Reason::SignatureMalformed),
        }
    }
}

/// The header, if it was sent twice and joined: a comma in a list of pairs whose grammar has none. Where single signatures
/// are plain, a comma is part of none of them.
fn joined(format: &SignatureFormat, place: usize, text: &[u8]) -> Option<String> {
    let Some(Part::Header(names)) = format.from.get(place) else { return None };
    let Shape::Pairs { item_sep, kv_sep, .. } = &format.shape else { return None };
    let in_grammar = item_sep.contains(',') || kv_sep.contains(',');
    let name = names.first().filter(|_| !in_grammar && text.contains(&b','))?;
    Some(name.to_string())
}

/// The `user:password` of an `Authorization` header with basic credentials.
pub(crate) fn basic(line: &[u8]) -> Option<Vec<u8>> {
    let (scheme, rest) = line.split_at_checked(5)?;
    let encoded = rest.strip_prefix(b" ")?;
    let credentials = STANDARD.decode(encoded).ok()?;
    (scheme.eq_ignore_ascii_case(b"basic") && credentials.contains(&b':')).then_some(credentials)
}

/// The values of one field of a list of pairs. A scheme without pairs has none.
pub(crate) fn fields<'t>(
    shape: &'t Shape,
    text: &'t [u8],
    wanted: &'t str,
) -> impl Iterator<Item = &'t [u8]> {
    let (item_sep, kv_sep, trim) = match shape {
        Shape::Pairs { item_sep, kv_sep, trim, .. } => (item_sep.as_str(), kv_sep.as_str(), *trim),
        Shape::Plain { .. } => ("", "", false),
    };
    let text = if kv_sep.is_empty() { &[][..] } else { text };
    split(text, item_sep.as_bytes()).filter_map(move |item| {
        let item = if trim { item.trim_ascii() } else { item };
        let at = find(item, kv_sep.as_bytes())?;
        let (name, value) = (item.get(..at)?, item.get(at + kv_sep.len()..)?);
        (name == wanted.as_bytes()).then_some(value)
    })
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
    match pattern {
        [] => None,
        [byte] => text.iter().position(|other| other == byte),
        _ => text.windows(pattern.len()).position(|window| window == pattern),
    }
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
