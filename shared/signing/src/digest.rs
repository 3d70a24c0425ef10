//! The primitives: a message in pieces, a key, a digest.

use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha512};
use subtle::{Choice, ConstantTimeEq as _};

use crate::scheme::Algorithm;

/// A keyed HMAC before its first byte: the two blocks that the key fills are already hashed. Wiped on drop.
#[derive(Clone)]
pub(crate) enum Keyed {
    Sha1(Box<Hmac<Sha1>>),
    Sha256(Box<Hmac<Sha256>>),
    Sha512(Box<Hmac<Sha512>>),
}

impl Keyed {
    /// `None` for an algorithm that is no HMAC.
    pub(crate) fn new(algorithm: Algorithm, key: &[u8]) -> Option<Self> {
        Some(match algorithm {
            Algorithm::HmacSha1 => Self::Sha1(Box::new(KeyInit::new_from_slice(key).ok()?)),
            Algorithm::HmacSha256 => Self::Sha256(Box::new(KeyInit::new_from_slice(key).ok()?)),
            Algorithm::HmacSha512 => Self::Sha512(Box::new(KeyInit::new_from_slice(key).ok()?)),
            _ => return None,
        })
    }

    /// Whether one of the candidates is the MAC of the message.
    pub(crate) fn made<'m>(
        &self,
        message: impl Iterator<Item = &'m [u8]>,
        candidates: impl Iterator<Item = &'m [u8]>,
    ) -> Choice {
        match self {
            Self::Sha1(mac) => among(finish(&**mac, message).as_slice(), candidates),
            Self::Sha256(mac) => among(finish(&**mac, message).as_slice(), candidates),
            Self::Sha512(mac) => among(finish(&**mac, message).as_slice(), candidates),
        }
    }

    /// The MAC of the message.
    pub(crate) fn mac<'m>(&self, message: impl Iterator<Item = &'m [u8]>) -> Vec<u8> {
        match self {
            Self::Sha1(mac) => finish(&**mac, message).to_vec(),
            Self::Sha256(mac) => finish(&**mac, message).to_vec(),
            Self::Sha512(mac) => finish(&**mac, message).to_vec(),
        }
    }
}

fn finish<'m, M: Mac + Clone>(
    keyed: &M,
    message: impl Iterator<Item = &'m [u8]>,
) -> hmac::digest::Output<M> {
    let mut mac = keyed.clone();
    message.for_each(|piece| mac.update(piece));
    mac.finalize().into_bytes()
}

/// Whether one of the candidates is the expected digest, without telling by time which, or how nearly.
pub(crate) fn among<'c>(expected: &[u8], candidates: impl Iterator<Item = &'c [u8]>) -> Choice {
    candidates.fold(Choice::from(0), |found, candidate| found | candidate.ct_eq(expected))
}

/// Whether the public key stands behind the signature. Strict: no second signature of the same message passes that was
/// derived from a first one, and no weak key.
pub(crate) fn ed25519_verifies(key: &VerifyingKey, message: &[u8], signature: &[u8]) -> bool {
    Signature::from_slice(signature)
        .is_ok_and(|signature| key.verify_strict(message, &signature).is_ok())
}

pub(crate) fn ed25519_sign(key: &SigningKey, message: &[u8]) -> Vec<u8> {
    key.sign(message).to_bytes().to_vec()
}

pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// SHA-256 over a message in pieces.
pub(crate) fn sha256_of<'m>(pieces: impl Iterator<Item = &'m [u8]>) -> [u8; 32] {
    let mut hash = Sha256::new();
    pieces.for_each(|piece| hash.update(piece));
    hash.finalize().into()
}
