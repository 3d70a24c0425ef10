//! From the text of a secret to its bytes, strictly.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use ed25519_dalek as dalek;
use zeroize::Zeroizing;

use super::problem::KeyError;
use crate::scheme::{Algorithm, KeyEncoding, Scheme};

/// The least bytes that a decoded key may have: a badly copied secret must not collapse into one that can be guessed.
const LEAST_BYTES: usize = 16;

/// From text to the bytes that go into the algorithm.
pub(super) fn key_bytes(scheme: &Scheme, text: &str) -> Result<Zeroizing<Vec<u8>>, KeyError> {
    plain(text)?;
    let format = &scheme.terms.key;
    let text = match text.strip_prefix(format.strip_prefix.as_str()) {
        Some(stripped) if !format.strip_prefix.is_empty() => {
            if stripped.starts_with(format.strip_prefix.as_str()) {
                return Err(KeyError::PrefixTwice);
            }
            stripped
        }
        _ => text,
    };
    if format.encoding != KeyEncoding::Utf8 {
        mistaken(text, scheme.algorithm())?;
    }
    decoded(format.encoding, text)
}

/// Refuses what no scheme can mean.
pub(super) fn plain(text: &str) -> Result<&str, KeyError> {
    if text.trim().is_empty() {
        return Err(KeyError::Empty);
    }
    if text.trim() != text {
        return Err(KeyError::Surrounded);
    }
    if text.chars().any(char::is_control) {
        return Err(KeyError::Control);
    }
    let quoted = |mark| text.len() > 1 && text.starts_with(mark) && text.ends_with(mark);
    if quoted('"') || quoted('\'') || quoted('`') { Err(KeyError::Quoted) } else { Ok(text) }
}

/// Recognises keys of another kind, for the message.
fn mistaken(text: &str, algorithm: Option<Algorithm>) -> Result<(), KeyError> {
    match text {
        text if text.starts_with("v1,") => Err(KeyError::SignatureLabel),
        text if text.starts_with("whsk_") => Err(KeyError::PrivateKey),
        text if text.starts_with("whpk_") => Err(KeyError::PublicKey),
        text if text.starts_with("whsec_") && algorithm == Some(Algorithm::Ed25519) => {
            Err(KeyError::SharedSecret)
        }
        _ => Ok(()),
    }
}

pub(super) fn decoded(encoding: KeyEncoding, text: &str) -> Result<Zeroizing<Vec<u8>>, KeyError> {
    let bytes = match encoding {
        KeyEncoding::Utf8 => return Ok(Zeroizing::new(text.as_bytes().to_vec())),
        KeyEncoding::Hex => hex::decode(text).map_err(|_| KeyError::NotHex)?,
        KeyEncoding::Base64 => base64(text)?,
        KeyEncoding::SpkiBase64 => return Err(KeyError::NotAPublicKey),
    };
    let bytes = Zeroizing::new(bytes);
    if bytes.len() < LEAST_BYTES {
        return Err(KeyError::TooShort { bytes: bytes.len(), least: LEAST_BYTES });
    }
    Ok(bytes)
}

/// Strict base64, and a guess at the mistake otherwise.
pub(crate) fn base64(text: &str) -> Result<Vec<u8>, KeyError> {
    // 32 and more characters that happen to use only 16 of 64 letters: nobody generates that
    if text.len() >= 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(KeyError::LooksLikeHex);
    }
    STANDARD.decode(text).map_err(|_| {
        let unpadded = text.trim_end_matches('=');
        if STANDARD_NO_PAD.decode(unpadded).is_ok() {
            KeyError::Padding
        } else if URL_SAFE.decode(text).is_ok() || URL_SAFE_NO_PAD.decode(unpadded).is_ok() {
            KeyError::Alphabet
        } else {
            KeyError::NotBase64
        }
    })
}

/// A private key: the seed of 32 bytes, alone or followed by the public key that belongs to it.
pub(crate) fn private(bytes: &[u8]) -> Result<dalek::SigningKey, KeyError> {
    match <&[u8; 64]>::try_from(bytes) {
        Ok(pair) => dalek::SigningKey::from_keypair_bytes(pair).map_err(|_| KeyError::NotAKey),
        Err(_) => sized(bytes).map(dalek::SigningKey::from_bytes),
    }
}

pub(crate) fn sized(bytes: &[u8]) -> Result<&[u8; 32], KeyError> {
    <&[u8; 32]>::try_from(bytes).map_err(|_| match bytes.len() {
        bytes @ 0..32 => KeyError::TooShort { bytes, least: 32 },
        bytes => KeyError::TooLong { bytes, most: 32 },
    })
}
