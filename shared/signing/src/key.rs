//! Secrets made ready for use, and why some cannot be.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use ed25519_dalek as dalek;
use subtle::{Choice, ConstantTimeEq as _};
use zeroize::Zeroizing;

use crate::digest;
use crate::scheme::{Algorithm, KeyEncoding, Scheme};
use crate::secret::Secret;

/// The least bytes that a decoded key may have: a badly copied secret must not collapse into one that can be guessed.
const LEAST_BYTES: usize = 16;
/// Below this, one observed signature is enough to try all likely secrets.
const STRONG_BYTES: usize = 16;
/// Secrets from documentation and examples.
const DENIED: [&str; 12] = [
    "changeme",
    "default",
    "development",
    "example",
    "hunter2",
    "password",
    "secret",
    "test",
    "testing",
    "webhook",
    "webhooksecret",
    "whsec_test",
];

/// Names a key, so that a caller learns which one matched. Not secret.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyId(String);

impl KeyId {
    /// The name as it was given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for KeyId {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl From<String> for KeyId {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One secret of a source, decoded for its scheme.
#[derive(Clone)]
pub struct Key {
    id: KeyId,
    algorithm: Algorithm,
    material: Material,
}

#[derive(Clone)]
enum Material {
    Shared(Zeroizing<Vec<u8>>),
    Public(Box<dalek::VerifyingKey>),
}

/// A key that makes signatures the way a provider does, for tests and for `postern send`.
#[derive(Clone)]
pub struct SigningKey {
    algorithm: Algorithm,
    material: SigningMaterial,
}

#[derive(Clone)]
enum SigningMaterial {
    Shared(Zeroizing<Vec<u8>>),
    Private(Box<dalek::SigningKey>),
}

/// Why a secret cannot be used. Says what is seen, never any part of the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Nothing, or only blanks.
    #[error("the secret is empty; copy it again from the provider's dashboard")]
    Empty,
    /// Blanks or line breaks around it.
    #[error("the secret has blanks or a line break at an end; copy it without them")]
    Surrounded,
    /// Control characters within.
    #[error(
        "the secret contains a line break or another control character; copy it again as one line"
    )]
    Control,
    /// Quotation marks around it.
    #[error("the secret stands in quotation marks; remove them")]
    Quoted,
    /// `v1,whsec_...`.
    #[error("the secret begins with `v1,`, which belongs to signatures; remove that part")]
    SignatureLabel,
    /// `whsec_whsec_...`.
    #[error("the secret has its prefix twice; remove one")]
    PrefixTwice,
    /// `whsk_`.
    #[error(
        "this is a private key (whsk_); here belongs the secret that verifies: the shared one (whsec_) or the public key (whpk_)"
    )]
    PrivateKey,
    /// `whpk_` in a scheme with shared secrets, or for signing.
    #[error(
        "this is a public key (whpk_), which belongs to the scheme standard_webhooks_v1a and cannot sign"
    )]
    PublicKey,
    /// `whsec_` in a scheme with public keys.
    #[error(
        "this is a shared secret (whsec_), but the scheme verifies with a public key; copy the one that begins with whpk_"
    )]
    SharedSecret,
    /// Hexadecimal where base64 is meant.
    #[error(
        "the secret looks like hexadecimal, but the scheme has base64; copy the secret as the provider shows it"
    )]
    LooksLikeHex,
    /// Base64 without its padding.
    #[error("the secret is base64 without all of its padding; copy it to the end, with every `=`")]
    Padding,
    /// The other base64 alphabet.
    #[error("the secret uses `-` or `_`, but the scheme has the base64 alphabet with `+` and `/`")]
    Alphabet,
    /// Not base64.
    #[error("the secret is not base64; copy it again, from its first to its last character")]
    NotBase64,
    /// Not hexadecimal.
    #[error("the secret is not hexadecimal; copy it again, from its first to its last character")]
    NotHex,
    /// Decodes to too few bytes.
    #[error(
        "the secret has only {bytes} bytes when decoded; at least {least} are needed. Most likely it was cut off"
    )]
    TooShort {
        /// Bytes it has.
        bytes: usize,
        /// Bytes it needs.
        least: usize,
    },
    /// More bytes than the scheme's keys have.
    #[error(
        "the secret has {bytes} bytes when decoded; at most {most} are possible. Most likely something was pasted twice"
    )]
    TooLong {
        /// Bytes it has.
        bytes: usize,
        /// Bytes it may have.
        most: usize,
    },
    /// On the list of secrets that everybody knows.
    #[error("the secret is one that everybody tries first; let the provider generate one")]
    WellKnown,
    /// 32 bytes that are no Ed25519 key, or a pair that does not belong together.
    #[error("the bytes are not a valid Ed25519 key; copy it again")]
    NotAKey,
}

/// Why a usable secret is still a poor one. Refuse it where secrets are saved; a feed that runs is not stopped for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weakness {
    /// Fewer than 16 bytes.
    Short,
    /// On the list of secrets that everybody knows.
    WellKnown,
}

impl fmt::Display for Weakness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Short => "the secret is shorter than 16 bytes and can be guessed from one signature; let the provider generate one",
            Self::WellKnown => "the secret is one that everybody tries first; let the provider generate one",
        })
    }
}

impl Key {
    /// Reads a secret strictly, as the scheme has it.
    ///
    /// # Errors
    /// What is wrong with the secret; see [`KeyError`].
    pub fn parse(scheme: &Scheme, id: impl Into<KeyId>, secret: &Secret) -> Result<Self, KeyError> {
        let bytes = key_bytes(scheme, secret.expose())?;
        let material = match scheme.algorithm {
            Algorithm::Ed25519 => Material::Public(Box::new(public(&bytes)?)),
            _ => Material::Shared(bytes),
        };
        Ok(Self { id: id.into(), algorithm: scheme.algorithm, material })
    }

    /// Its name.
    #[must_use]
    pub fn id(&self) -> &KeyId {
        &self.id
    }

    /// Whether it should be replaced although it works.
    #[must_use]
    pub fn weakness(&self) -> Option<Weakness> {
        match &self.material {
            Material::Shared(bytes) => weakness(bytes),
            Material::Public(_) => None,
        }
    }

    /// Which of the candidates this key made, without telling by time how nearly one matched.
    pub(crate) fn made(&self, message: &[&[u8]], candidates: &[Vec<u8>]) -> Choice {
        let any = |matches: &dyn Fn(&[u8]) -> Choice| {
            candidates.iter().fold(Choice::from(0), |found, candidate| found | matches(candidate))
        };
        match (&self.material, self.algorithm) {
            (Material::Public(key), _) => any(&|candidate| {
                Choice::from(u8::from(digest::ed25519_verifies(key, message, candidate)))
            }),
            (Material::Shared(secret), Algorithm::Token) => {
                // through a hash, so that lengths are equal whatever was sent
                let secret = digest::sha256(secret);
                any(&|candidate| digest::sha256(candidate).ct_eq(&secret))
            }
            (Material::Shared(secret), algorithm) => match digest::hmac(algorithm, secret, message)
            {
                Some(expected) => any(&|candidate| candidate.ct_eq(&expected)),
                None => Choice::from(0),
            },
        }
    }
}

impl SigningKey {
    /// Reads what the provider holds: the same shared secret as the receiver, or an Ed25519 private key (`whsk_...`, or
    /// seed or seed and public key in the scheme's encoding).
    ///
    /// # Errors
    /// What is wrong with the secret; see [`KeyError`].
    pub fn parse(scheme: &Scheme, secret: &Secret) -> Result<Self, KeyError> {
        let text = secret.expose();
        let material = if scheme.algorithm == Algorithm::Ed25519 {
            if text.starts_with("whpk_") {
                return Err(KeyError::PublicKey);
            }
            let bytes = decoded(scheme.key.encoding, text.strip_prefix("whsk_").unwrap_or(text))?;
            SigningMaterial::Private(Box::new(private(&bytes)?))
        } else {
            SigningMaterial::Shared(key_bytes(scheme, text)?)
        };
        Ok(Self { algorithm: scheme.algorithm, material })
    }

    /// The signature's bytes; for a token the token.
    pub(crate) fn sign(&self, message: &[&[u8]]) -> Vec<u8> {
        match &self.material {
            SigningMaterial::Private(key) => digest::ed25519_sign(key, message),
            SigningMaterial::Shared(secret) => {
                digest::hmac(self.algorithm, secret, message).unwrap_or_else(|| secret.to_vec())
            }
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("id", &self.id).finish_non_exhaustive()
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey(..)")
    }
}

/// From text to the bytes that go into the algorithm.
fn key_bytes(scheme: &Scheme, text: &str) -> Result<Zeroizing<Vec<u8>>, KeyError> {
    plain(text)?;
    let format = &scheme.key;
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
        mistaken(text, scheme.algorithm)?;
    }
    decoded(format.encoding, text)
}

/// Refuses what no scheme can mean.
fn plain(text: &str) -> Result<(), KeyError> {
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
    if quoted('"') || quoted('\'') || quoted('`') { Err(KeyError::Quoted) } else { Ok(()) }
}

/// Recognises keys of another kind, for the message.
fn mistaken(text: &str, algorithm: Algorithm) -> Result<(), KeyError> {
    match text {
        text if text.starts_with("v1,") => Err(KeyError::SignatureLabel),
        text if text.starts_with("whsk_") => Err(KeyError::PrivateKey),
        text if text.starts_with("whpk_") => Err(KeyError::PublicKey),
        text if text.starts_with("whsec_") && algorithm == Algorithm::Ed25519 => {
            Err(KeyError::SharedSecret)
        }
        _ => Ok(()),
    }
}

fn decoded(encoding: KeyEncoding, text: &str) -> Result<Zeroizing<Vec<u8>>, KeyError> {
    let bytes = match encoding {
        KeyEncoding::Utf8 => return Ok(Zeroizing::new(text.as_bytes().to_vec())),
        KeyEncoding::Hex => hex::decode(text).map_err(|_| KeyError::NotHex)?,
        KeyEncoding::Base64 => base64(text)?,
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

/// A public key of 32 bytes that is a point of full order.
fn public(bytes: &[u8]) -> Result<dalek::VerifyingKey, KeyError> {
    let bytes: &[u8; 32] = sized(bytes)?;
    let key = dalek::VerifyingKey::from_bytes(bytes).map_err(|_| KeyError::NotAKey)?;
    if key.is_weak() { Err(KeyError::NotAKey) } else { Ok(key) }
}

/// A private key: the seed of 32 bytes, alone or followed by the public key that belongs to it.
pub(crate) fn private(bytes: &[u8]) -> Result<dalek::SigningKey, KeyError> {
    match <&[u8; 64]>::try_from(bytes) {
        Ok(pair) => dalek::SigningKey::from_keypair_bytes(pair).map_err(|_| KeyError::NotAKey),
        Err(_) => sized(bytes).map(dalek::SigningKey::from_bytes),
    }
}

fn sized(bytes: &[u8]) -> Result<&[u8; 32], KeyError> {
    <&[u8; 32]>::try_from(bytes).map_err(|_| match bytes.len() {
        bytes @ 0..32 => KeyError::TooShort { bytes, least: 32 },
        bytes => KeyError::TooLong { bytes, most: 32 },
    })
}

/// Whether a shared secret is one of those that are guessed first.
pub(crate) fn weakness(bytes: &[u8]) -> Option<Weakness> {
    let known = |denied: &&str| bytes.eq_ignore_ascii_case(denied.as_bytes());
    if DENIED.iter().any(known) {
        Some(Weakness::WellKnown)
    } else if bytes.len() < STRONG_BYTES {
        Some(Weakness::Short)
    } else {
        None
    }
}
