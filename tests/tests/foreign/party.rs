//! Who signs, and what of it is signed.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};
use tests::seed;

use crate::library::Language;

/// A provider, as one of its libraries knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Party {
    /// The name of its source, and of its endpoint.
    pub(crate) source: &'static str,
    /// What the script calls it.
    pub(crate) library: &'static str,
    pub(crate) language: Language,
    /// The scheme that our ingress verifies it by.
    pub(crate) preset: &'static str,
    /// A value of the scheme's configuration that holds the address of the source.
    pub(crate) address_in: Option<&'static str>,
    pub(crate) secret: Form,
    /// Added to the address.
    pub(crate) query: &'static str,
    /// What it sends besides the signature, names in lower case.
    pub(crate) headers: &'static [(&'static str, &'static str)],
    /// Its body, with `{s}` and `{ms}` for the time.
    pub(crate) body: &'static str,
    /// What stands under the signature: tampering is replacing the first by the second.
    pub(crate) tampered: (&'static str, &'static str),
    /// The id that the event is filed under; `None` if it is made from the content.
    pub(crate) id: Option<&'static str>,
    pub(crate) signature: Place,
    pub(crate) clock: Clock,
    /// Headers besides those of the signature and of its time that are signed too.
    pub(crate) signed: &'static [&'static str],
    /// Whether the address is signed.
    pub(crate) is_addressed: bool,
    /// Whether the library lets an old request pass. Our ingress does not.
    pub(crate) takes_old: bool,
    /// Whether our own tools can sign in its name.
    pub(crate) is_ours: bool,
}

/// How a secret is written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Form {
    /// Text after this.
    Text(&'static str),
    /// Base64 after this.
    Base64(&'static str),
}

/// Where a signature is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    Header(&'static str),
    /// In the body, after this.
    Body(&'static str),
}

/// Where the time of the signature is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Clock {
    /// Nothing tells an old request from a new one.
    Absent,
    Header(&'static str),
    /// Beside the signature, after this.
    Pair(&'static str),
    /// In the body, after this.
    Body(&'static str),
    /// Inside a signed token.
    Token,
}

impl Party {
    /// Where it sends.
    pub(crate) fn path(&self) -> String {
        format!("/webhooks/{}{}", self.source, self.query)
    }

    /// The scheme, as the api is told of it.
    pub(crate) fn scheme(&self, url: &str) -> Value {
        match self.address_in {
            None => json!({ "preset": self.preset }),
            Some(name) => json!({ "own": { "like": self.preset, "config": { name: url } } }),
        }
    }

    /// The secret that belongs to a name.
    pub(crate) fn secret(&self, of: &str) -> String {
        match self.secret {
            Form::Text(start) => format!("{start}{}", seed::text_of(of)),
            Form::Base64(start) => format!("{start}{}", BASE64_STANDARD.encode(seed::bytes_of(of))),
        }
    }
}
