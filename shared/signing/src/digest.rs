//! The primitives: a message in pieces, a key, a digest.

use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha512};

use crate::scheme::Algorithm;

/// HMAC over a message in pieces. `None` for an algorithm that is no HMAC.
pub(crate) fn hmac(algorithm: Algorithm, key: &[u8], message: &[&[u8]]) -> Option<Vec<u8>> {
    match algorithm {
        Algorithm::HmacSha1 => mac::<Hmac<Sha1>>(key, message),
        Algorithm::HmacSha256 => mac::<Hmac<Sha256>>(key, message),
        Algorithm::HmacSha512 => mac::<Hmac<Sha512>>(key, message),
        Algorithm::Ed25519 | Algorithm::Token => None,
    }
}

fn mac<M: Mac + KeyInit>(key: &[u8], message: &[&[u8]]) -> Option<Vec<u8>> {
    let mut mac = <M as KeyInit>::new_from_slice(key).ok()?;
    message.iter().for_each(|piece| mac.update(piece));
    Some(mac.finalize().into_bytes().to_vec())
}

/// Whether the public key stands behind the signature. Strict: no second signature of the same message passes that was
/// derived from a first one, and no weak key.
pub(crate) fn ed25519_verifies(key: &VerifyingKey, message: &[&[u8]], signature: &[u8]) -> bool {
    Signature::from_slice(signature)
        .is_ok_and(|signature| key.verify_strict(&message.concat(), &signature).is_ok())
}

pub(crate) fn ed25519_sign(key: &SigningKey, message: &[&[u8]]) -> Vec<u8> {
    key.sign(&message.concat()).to_bytes().to_vec()
}

pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}
