//! Compact JSON Web Signatures, strictly: the scheme pins the algorithm, and the header of a token only has to agree.
//!
//! Nothing in a header is obeyed. `alg` other than the pinned one, `none` included, is refused; `jwk`, `jku` and `x5u`
//! are never looked at; a header that declares something critical is refused.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;

use crate::asymmetric::PublicKey;

/// Bytes of a whole token. Those of webhooks have a few hundred.
const MOST_BYTES: usize = 8 * 1024;

/// A token taken apart. Nothing in it is true before its signature was checked.
#[derive(Debug)]
pub(crate) struct Token<'t> {
    /// Header and payload as they were signed.
    pub(crate) signed: &'t [u8],
    pub(crate) header: Claims,
    pub(crate) claims: Claims,
    pub(crate) signature: Vec<u8>,
}

/// Takes a token apart. `None` for everything that is not exactly a token with this `alg`.
pub(crate) fn read<'t>(text: &'t [u8], algorithm: &str) -> Option<Token<'t>> {
    if text.len() > MOST_BYTES {
        return None;
    }
    let last = text.iter().rposition(|byte| *byte == b'.')?;
    let (signed, signature) = (text.get(..last)?, text.get(last + 1..)?);
    let first = signed.iter().position(|byte| *byte == b'.')?;
    // a dot that is left in a part is not in the alphabet
    let (header, payload) = (signed.get(..first)?, signed.get(first + 1..)?);
    let header: Claims = serde_json::from_slice(&decoded(header)?).ok()?;
    let plain = header.text("alg") == Some(algorithm)
        && header.is_absent_or("typ", "JWT")
        && !header.0.contains_key("crit")
        && !header.0.contains_key("b64");
    if !plain {
        return None;
    }
    let claims = serde_json::from_slice(&decoded(payload)?).ok()?;
    Some(Token { signed, header, claims, signature: decoded(signature)? })
}

fn decoded(part: &[u8]) -> Option<Vec<u8>> {
    if part.is_empty() { None } else { URL_SAFE_NO_PAD.decode(part).ok() }
}

/// The members of an object, none of them twice: two readers could take different ones.
#[derive(Debug, Default)]
pub(crate) struct Claims(BTreeMap<String, Value>);

impl Claims {
    /// A member that is text.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.as_str()
    }

    fn is_absent_or(&self, name: &str, value: &str) -> bool {
        self.0.get(name).is_none_or(|present| present == value)
    }

    /// A time in whole seconds: `Ok(None)` if there is none, an error if it is something else.
    pub(crate) fn seconds(&self, name: &str) -> Result<Option<i64>, NotATime> {
        match self.0.get(name) {
            None => Ok(None),
            Some(value) => value.as_i64().map(Some).ok_or(NotATime),
        }
    }
}

/// A member that should be a time is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotATime;

impl<'de> Deserialize<'de> for Claims {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Claims;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Claims, A::Error> {
                let mut members = BTreeMap::new();
                while let Some((name, value)) = map.next_entry::<String, Value>()? {
                    if members.insert(name, value).is_some() {
                        return Err(serde::de::Error::custom("a member occurs twice"));
                    }
                }
                Ok(Claims(members))
            }
        }
        from.deserialize_map(Members)
    }
}

/// Reads a JSON Web Key, and its id: only P-256 for ES256, only the public half. A member `expired_at`, which is not of the
/// standard but Plaid's, ends the time in which the key may be used.
pub(crate) fn web_key(json: &str) -> Option<(PublicKey, Option<String>)> {
    if json.len() > MOST_BYTES {
        return None;
    }
    let key: Claims = serde_json::from_str(json).ok()?;
    let fits = key.text("kty") == Some("EC")
        && key.text("crv") == Some("P-256")
        && key.is_absent_or("alg", "ES256")
        && key.is_absent_or("use", "sig")
        && !key.0.contains_key("d");
    let not_after = match key.0.get("expired_at") {
        None | Some(Value::Null) => None,
        Some(time) => Some(Timestamp::from_second(time.as_i64()?).ok()?),
    };
    let (x, y) = (decoded(key.text("x")?.as_bytes())?, decoded(key.text("y")?.as_bytes())?);
    if !fits || x.len() != 32 || y.len() != 32 {
        return None;
    }
    let point = PublicKey::p256(&[&[4], x.as_slice(), y.as_slice()].concat()).ok()?;
    Some((point.within(None, not_after), key.text("kid").map(ToOwned::to_owned)))
}
