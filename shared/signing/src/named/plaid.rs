//! Plaid: a token signed with ES256 that holds the SHA-256 of the body; the key is fetched by its id.

use subtle::ConstantTimeEq as _;

use super::{Ask, Found, Proven, header};
use crate::asymmetric::Method;
use crate::{Reason, digest, jwt, lookup};

const TOKEN: &str = "plaid-verification";
/// Seconds that a token may be old.
pub(super) const TOLERANCE: i64 = 300;
/// Seconds that its clock may be ahead of ours.
const AHEAD: i64 = 60;

pub(super) fn verify(ask: &Ask<'_>) -> Result<Proven, Reason> {
    let text = header(ask.request, TOKEN)?.ok_or(Reason::SignatureMissing)?;
    let token = jwt::read(text, "ES256").ok_or(Reason::SignatureMalformed)?;
    let id = token.header.text("kid").and_then(lookup::plaid_key).ok_or(Reason::KeyIdMalformed)?;
    let issued = token.claims.seconds("iat").map_err(|_| Reason::TimestampMalformed)?;
    let issued = issued.ok_or(Reason::TimestampMissing)?;
    let age = super::age(issued, ask.now, TOLERANCE, AHEAD);
    let claimed = token.claims.text("request_body_sha256").ok_or(Reason::SignatureMalformed)?;
    let hash = digest::sha256(ask.request.body);
    // both can be judged without a key, so that a request that cannot pass makes nobody fetch one
    let same = bool::from(hex::encode(hash).as_bytes().ct_eq(claimed.as_bytes()));
    if !same || (age.is_err() && !ask.has_published(id)) {
        return Err(Reason::SignatureMismatch { keys: ask.keys.len(), fresh: age.is_ok() });
    }

    let (key, published) = ask.published(id)?;
    if !published.verifies_by(Method::P256Fixed, token.signed, &token.signature) {
        return Err(Reason::SignatureMismatch { keys: 1, fresh: age.is_ok() });
    }
    age?;
    if published.is_expired(ask.now) {
        return Err(Reason::KeyNotValid);
    }
    Ok(Proven { key, signed: hash, found: Found::default() })
}
