//! What arrived, as the verifier sees it.

use std::fmt;

use http::{HeaderMap, HeaderName};

use crate::Reason;

/// A request as it came over the wire. Repeated headers stay repeated; the body is untouched.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// In capitals.
    pub method: &'a str,
    /// The address as the provider has it configured, never as a proxy rewrote it. Only some schemes sign it.
    pub url: &'a str,
    /// All of them, in the order of the wire.
    pub headers: &'a HeaderMap,
    /// The bytes that were sent, before any parsing.
    pub body: &'a [u8],
    /// The last segment of a secret address, for schemes that have nothing better.
    pub path_secret: Option<&'a str>,
}

impl<'a> Request<'a> {
    /// The one line of a header: the first of `names` that is there at all. More than one line is refused, because two
    /// readers could pick different ones.
    pub(crate) fn line(&self, names: &[HeaderName]) -> Result<Option<&'a [u8]>, Reason> {
        for name in names {
            let mut lines = self.headers.get_all(name).iter();
            let Some(first) = lines.next() else { continue };
            if lines.next().is_some() {
                return Err(Reason::HeaderRepeated { name: name.to_string() });
            }
            return Ok(Some(first.as_bytes()));
        }
        Ok(None)
    }

    /// Like [`Request::line`], for a header that names something. API Gateway joins repeats with commas, so a comma means
    /// that somebody may have added a second value.
    pub(crate) fn single(&self, names: &[HeaderName]) -> Result<Option<&'a [u8]>, Reason> {
        let line = self.line(names)?;
        if line.is_some_and(|line| line.contains(&b',')) {
            return Err(Reason::HeaderJoined { name: present(self.headers, names) });
        }
        Ok(line)
    }

    /// Like [`Request::single`], but absent or blank is a refusal.
    pub(crate) fn required(&self, names: &[HeaderName]) -> Result<&'a [u8], Reason> {
        match self.single(names)? {
            Some(line) if !line.trim_ascii().is_empty() => Ok(line),
            _ => Err(Reason::HeaderMissing {
                name: names.first().map_or_else(String::new, HeaderName::to_string),
            }),
        }
    }
}

fn present(headers: &HeaderMap, names: &[HeaderName]) -> String {
    names
        .iter()
        .find(|name| headers.contains_key(*name))
        .map_or_else(String::new, HeaderName::to_string)
}

impl fmt::Debug for Request<'_> {
    /// Method and length only: tokens stand in headers and addresses.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("method", &self.method)
            .field("body_length", &self.body.len())
            .finish_non_exhaustive()
    }
}
