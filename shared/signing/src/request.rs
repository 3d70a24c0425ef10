//! What arrived, as the verifier sees it.

use http::HeaderMap;

use crate::Reason;

/// A request as it came over the wire. Repeated headers stay repeated; the body is untouched.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// In capitals.
    pub method: &'a str,
    /// The address as the provider has it configured, never as a proxy rewrote it. Only some schemes sign it.
    pub url: &'a str,
    /// All of them, in the order of the wire.
    pub headers: &'a HeaderMap,
    /// The bytes that were sent, before any parsing.
    pub body: &'a [u8],
}

impl<'a> Request<'a> {
    /// The one line of a header: the first of `names` that is there at all. More than one line is refused, because two
    /// readers could pick different ones.
    pub(crate) fn line(&self, names: &[String]) -> Result<Option<&'a [u8]>, Reason> {
        for name in names {
            let mut lines = self.headers.get_all(name.as_str()).iter();
            let Some(first) = lines.next() else { continue };
            if lines.next().is_some() {
                return Err(Reason::HeaderRepeated { name: name.clone() });
            }
            return Ok(Some(first.as_bytes()));
        }
        Ok(None)
    }

    /// Like [`Request::line`], for a header that names something. API Gateway joins repeats with commas, so a comma means
    /// that somebody may have added a second value.
    pub(crate) fn single(&self, names: &[String]) -> Result<Option<&'a [u8]>, Reason> {
        let line = self.line(names)?;
        if line.is_some_and(|line| line.contains(&b',')) {
            return Err(Reason::HeaderJoined { name: present(self.headers, names) });
        }
        Ok(line)
    }

    /// Like [`Request::single`], but absent or blank is a refusal.
    pub(crate) fn required(&self, names: &[String]) -> Result<&'a [u8], Reason> {
        match self.single(names)? {
            Some(line) if !line.trim_ascii().is_empty() => Ok(line),
            _ => Err(Reason::HeaderMissing { name: names.first().cloned().unwrap_or_default() }),
        }
    }
}

fn present(headers: &HeaderMap, names: &[String]) -> String {
    names.iter().find(|name| headers.contains_key(name.as_str())).cloned().unwrap_or_default()
}
