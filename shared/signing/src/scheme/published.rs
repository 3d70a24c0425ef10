//! Keys that a provider publishes under an id that the request names.

use http::HeaderName;

use crate::json::Pointer;
use crate::rejected::Reason;
use crate::request::Request;

/// An id is never longer.
const LONGEST_ID: usize = 128;

/// Where a key with an id is fetched. The host is the scheme's, never the request's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyLookup {
    pub(crate) id: HeaderName,
    pub(crate) id_form: IdForm,
    pub(crate) url: String,
    pub(crate) answer: Pointer,
}

/// What an id may look like. Strict, because it becomes part of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IdForm {
    /// Lower-case hexadecimal in groups of 8, 4, 4, 4 and 12.
    Uuid,
    /// Letters, digits, `-`, `_` and inner dots.
    Text,
}

impl IdForm {
    pub(crate) const ALL: [(&'static str, Self); 2] = [("uuid", Self::Uuid), ("text", Self::Text)];

    pub(crate) fn allows(self, id: &str) -> bool {
        match self {
            Self::Uuid => {
                id.len() == 36
                    && id.bytes().enumerate().all(|(at, byte)| match at {
                        8 | 13 | 18 | 23 => byte == b'-',
                        _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
                    })
            }
            Self::Text => {
                (1..=LONGEST_ID).contains(&id.len())
                    && !id.starts_with('.')
                    && !id.contains("..")
                    && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
            }
        }
    }
}

impl KeyLookup {
    /// The address of the key with that id. `None` for an id that is not of the scheme's form.
    #[must_use]
    pub fn url(&self, id: &str) -> Option<String> {
        self.id_form.allows(id).then(|| self.url.replace("{id}", id))
    }

    /// Where in the answer's JSON the key stands.
    pub(crate) fn answer(&self) -> &Pointer {
        &self.answer
    }

    /// The id that the request names.
    pub(crate) fn wanted<'a>(&self, request: &Request<'a>) -> Result<&'a str, Reason> {
        let text = request.required(std::slice::from_ref(&self.id))?;
        std::str::from_utf8(text)
            .ok()
            .filter(|id| self.id_form.allows(id))
            .ok_or(Reason::KeyIdMalformed)
    }
}

/// Checks the address of a lookup: `https`, a plain host name, and `{id}` once, in the path.
pub(crate) fn check_url(url: &str) -> Result<(), &'static str> {
    let Some(rest) = url.strip_prefix("https://") else {
        return Err("must start with https://");
    };
    let Some((host, path)) = rest.split_once('/') else {
        return Err("must have a path that contains {id}");
    };
    let plain =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    let named = host.split('.').all(|label| !label.is_empty());
    if !host.bytes().all(plain)
        || !named
        || !host.bytes().any(|byte| byte.is_ascii_lowercase())
        || !host.contains('.')
    {
        return Err("must name a host in lower case, without port, user or number");
    }
    let (mut pieces, allowed) =
        (path.split("{id}"), |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte));
    if path.matches("{id}").count() != 1 {
        return Err("must contain {id} once, in its path");
    }
    if pieces.all(|piece| piece.bytes().all(allowed) && !piece.contains("..")) {
        Ok(())
    } else {
        Err("may have letters, digits and - . _ ~ / around {id} in its path")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_id_of_the_strict_form_becomes_part_of_an_address() {
        let lookup = |id_form| KeyLookup {
            id: HeaderName::from_static("x-key-id"),
            id_form,
            url: "https://api.example.com/v2/keys/{id}".into(),
            answer: Pointer::parse("/data/publicKey").unwrap(),
        };
        let id = "879dc113-5ca4-4ff7-a6b7-54652083fcf8";
        let expected = Some(format!("https://api.example.com/v2/keys/{id}"));
        assert_eq!(lookup(IdForm::Uuid).url(id), expected);
        assert_eq!(lookup(IdForm::Text).url(id), expected);
        assert!(lookup(IdForm::Text).url("a.b_C-9").is_some());
        for bad in [
            "",
            ".",
            "..",
            "a..b",
            ".a",
            "a/b",
            "a?b",
            "a#b",
            "a%2fb",
            "a b",
            "a\n",
            "ä",
            "{id}",
            &"a".repeat(129),
        ] {
            assert_eq!(lookup(IdForm::Text).url(bad), None, "{bad:?}");
            assert_eq!(lookup(IdForm::Uuid).url(bad), None, "{bad:?}");
        }
        for bad in [
            "879DC113-5ca4-4ff7-a6b7-54652083fcf8",
            "879dc113-5ca4-4ff7-a6b7-54652083fcf",
            "879dc1135-ca4-4ff7-a6b7-54652083fcf8",
            "879dc113-5ca4-4ff7-a6b7-54652083fcg8",
        ] {
            assert_eq!(lookup(IdForm::Uuid).url(bad), None, "{bad}");
        }
    }

    #[test]
    fn an_address_of_keys_pins_its_host() {
        assert_eq!(check_url("https://api.circle.com/v2/notifications/publicKey/{id}"), Ok(()));
        assert_eq!(check_url("https://a.example/{id}.pem"), Ok(()));
        for bad in [
            "",
            "http://a.example/{id}",
            "https://{id}/x",
            "https://{id}.example/x",
            "https://a.example",
            "https://a.example/",
            "https://a.example/x",
            "https://a.example/{id}/{id}",
            "https://u@a.example/{id}",
            "https://a.example:8443/{id}",
            "https://A.example/{id}",
            "https://localhost/{id}",
            "https://127.0.0.1/{id}",
            "https://a..example/{id}",
            "https://a.example/../{id}",
            "https://a.example/{id}?x=1",
            "https://a.example/{id}#x",
        ] {
            assert!(check_url(bad).is_err(), "{bad}");
        }
    }
}
