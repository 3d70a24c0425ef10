//! Verification by code, for the few providers whose signatures no table can describe.

use jiff::Timestamp;

use crate::asymmetric::PublicKey;
use crate::identity::Identity;
use crate::key::{Key, KeyError, KeyId};
use crate::rejected::Reason;
use crate::request::Request;
use crate::scheme::{Scheme, Verifier};

/// A request that code found to be right.
#[derive(Clone, Debug)]
pub(crate) struct Match {
    /// The key that made the signature.
    pub(crate) key: KeyId,
    /// SHA-256 over what the signature covers of the content; `None` where that is the body as a whole.
    pub(crate) signed: Option<[u8; 32]>,
    /// What the request says of itself, where no pointer could find it.
    pub(crate) identity: Option<Identity>,
}

/// Judges a request by the code of `verifier`. Structure and body rule of the scheme are checked by the caller.
pub(crate) fn verify(
    _verifier: Verifier,
    _scheme: &Scheme,
    _keys: &[Key],
    _request: &Request<'_>,
    _now: Timestamp,
) -> Result<Match, Reason> {
    Err(Reason::SignatureMalformed)
}

/// Reads a key that the provider publishes: a certificate or a JWK.
pub(crate) fn published(_verifier: Verifier, _text: &str) -> Result<PublicKey, KeyError> {
    Err(KeyError::NotAPublicKey)
}

/// The values under `config` that the code needs.
pub(crate) fn config(_verifier: Verifier) -> &'static [&'static str] {
    &[]
}
