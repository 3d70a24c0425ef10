//! Public keys and their signatures, beyond Ed25519 by `ring`.

use std::ops::RangeInclusive;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek as dalek;
use jiff::Timestamp;
use ring::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P256_SHA256_FIXED, EcdsaKeyPair,
    RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey,
    VerificationAlgorithm,
};
use x509_parser::prelude::FromDer as _;
use x509_parser::public_key::RSAPublicKey;

use crate::digest;
use crate::key::KeyError;
use crate::scheme::Algorithm;

/// What stands before the 32 bytes of an Ed25519 key (RFC 8410).
const ED25519_SPKI: [u8; 12] =
    [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
/// What stands before the point of a P-256 key (RFC 5480): the algorithm, the named curve, a bit string of 65 bytes.
const P256_SPKI: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
    0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
/// An uncompressed point.
const P256_POINT: usize = 65;
/// A PEM text of a public or private key is never longer.
const LONGEST_PEM: usize = 16 * 1024;

/// Bits of an RSA modulus. Below, it can be factored; above, one check costs milliseconds.
const RSA_BITS: RangeInclusive<usize> = 2048..=8192;

/// How a signature is made and written, where a kind of key leaves it open. The scheme names it, never the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// RSA, PKCS #1 v1.5, SHA-1. Only for providers that offer nothing better.
    RsaSha1,
    /// RSA, PKCS #1 v1.5, SHA-256.
    RsaSha256,
    /// ECDSA on P-256 with SHA-256, the two numbers in DER.
    P256Der,
    /// The same, the two numbers as 32 bytes each: what a JWT calls `ES256`.
    P256Fixed,
}

/// What a provider's signatures are verified with.
#[derive(Clone)]
pub(crate) struct PublicKey {
    kind: Kind,
    /// The time in which it may be used, as far as its provider limits it.
    not_before: Option<Timestamp>,
    not_after: Option<Timestamp>,
}

#[derive(Clone)]
enum Kind {
    Ed25519(Box<dalek::VerifyingKey>),
    /// An uncompressed point.
    P256(Box<[u8]>),
    /// `RSAPublicKey` of PKCS #1, in DER.
    Rsa(Box<[u8]>),
}

impl PublicKey {
    /// Reads a `SubjectPublicKeyInfo` in base64 or PEM, of the one kind that the scheme's algorithm has.
    pub(crate) fn from_spki(algorithm: Algorithm, text: &str) -> Result<Self, KeyError> {
        let der = der(text, "PUBLIC KEY")?;
        match algorithm {
            Algorithm::Ed25519 => {
                Self::ed25519(der.strip_prefix(&ED25519_SPKI).ok_or(KeyError::NotAPublicKey)?)
            }
            Algorithm::EcdsaP256 => {
                Self::p256(der.strip_prefix(&P256_SPKI).ok_or(KeyError::NotAPublicKey)?)
            }
            _ => Err(KeyError::NotAPublicKey),
        }
    }

    /// A key of 32 bytes that is a point of full order.
    pub(crate) fn ed25519(bytes: &[u8]) -> Result<Self, KeyError> {
        let bytes: &[u8; 32] = crate::key::sized(bytes)?;
        let key = dalek::VerifyingKey::from_bytes(bytes).map_err(|_| KeyError::NotAKey)?;
        if key.is_weak() { Err(KeyError::NotAKey) } else { Ok(Kind::Ed25519(Box::new(key)).into()) }
    }

    /// An uncompressed point: 4, x, y. Whether it lies on the curve shows at the first signature.
    pub(crate) fn p256(point: &[u8]) -> Result<Self, KeyError> {
        if point.len() != P256_POINT || point.first() != Some(&4) {
            return Err(KeyError::NotAPublicKey);
        }
        Ok(Kind::P256(point.into()).into())
    }

    /// Modulus and exponent in DER, as a certificate holds them.
    pub(crate) fn rsa(der: &[u8]) -> Result<Self, KeyError> {
        match RSAPublicKey::from_der(der) {
            Ok(([], key)) if RSA_BITS.contains(&bits(key.modulus)) => {
                Ok(Kind::Rsa(der.into()).into())
            }
            _ => Err(KeyError::NotAPublicKey),
        }
    }

    /// The same key, limited to a time.
    pub(crate) fn within(
        self,
        not_before: Option<Timestamp>,
        not_after: Option<Timestamp>,
    ) -> Self {
        Self { not_before, not_after, ..self }
    }

    /// Whether the holder of the private key signed the message, in the one way that a scheme in data has for the key.
    pub(crate) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        match &self.kind {
            Kind::Ed25519(key) => digest::ed25519_verifies(key, message, signature),
            Kind::P256(_) => self.verifies_by(Method::P256Der, message, signature),
            Kind::Rsa(_) => false,
        }
    }

    /// Whether the holder of the private key signed the message that way. A key of another kind signed nothing.
    pub(crate) fn verifies_by(&self, method: Method, message: &[u8], signature: &[u8]) -> bool {
        let (algorithm, key): (&'static dyn VerificationAlgorithm, _) = match (method, &self.kind) {
            (Method::RsaSha1, Kind::Rsa(key)) => {
                (&RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY, key)
            }
            (Method::RsaSha256, Kind::Rsa(key)) => (&RSA_PKCS1_2048_8192_SHA256, key),
            (Method::P256Der, Kind::P256(key)) => (&ECDSA_P256_SHA256_ASN1, key),
            (Method::P256Fixed, Kind::P256(key)) => (&ECDSA_P256_SHA256_FIXED, key),
            _ => return false,
        };
        UnparsedPublicKey::new(algorithm, key).verify(message, signature).is_ok()
    }

    /// Whether the time in which it may be used has not begun.
    pub(crate) fn is_early(&self, now: Timestamp) -> bool {
        self.not_before.is_some_and(|start| now < start)
    }

    /// Whether the time in which it may be used is over.
    pub(crate) fn is_expired(&self, now: Timestamp) -> bool {
        self.not_after.is_some_and(|end| now > end)
    }
}

impl From<Kind> for PublicKey {
    fn from(kind: Kind) -> Self {
        Self { kind, not_before: None, not_after: None }
    }
}

/// Length of a number in big-endian bytes.
fn bits(number: &[u8]) -> usize {
    let mut digits = number.iter().skip_while(|byte| **byte == 0);
    let head = digits.next().map_or(0, |byte| 8 - byte.leading_zeros() as usize);
    head + digits.count() * 8
}

/// A private key of the curve P-256, for requests that we make as a provider does.
pub(crate) fn p256_private(text: &str) -> Result<EcdsaKeyPair, KeyError> {
    let der = der(text, "PRIVATE KEY")?;
    let random = ring::rand::SystemRandom::new();
    EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &der, &random)
        .map_err(|_| KeyError::NotAPrivateKey)
}

/// The signature in DER. Empty if the system has no randomness.
pub(crate) fn p256_sign(key: &EcdsaKeyPair, message: &[u8]) -> Vec<u8> {
    let random = ring::rand::SystemRandom::new();
    key.sign(&random, message).map(|signature| signature.as_ref().to_vec()).unwrap_or_default()
}

/// The bytes of a key in base64, or between the lines of PEM with this label.
fn der(text: &str, label: &str) -> Result<Vec<u8>, KeyError> {
    let text = text.trim_ascii();
    if text.is_empty() {
        return Err(KeyError::Empty);
    }
    if text.len() > LONGEST_PEM {
        return Err(KeyError::TooLong { bytes: text.len(), most: LONGEST_PEM });
    }
    let (begin, end) = (format!("-----BEGIN {label}-----"), format!("-----END {label}-----"));
    let pem = text.strip_prefix(&begin).and_then(|text| text.strip_suffix(&end));
    if text.contains("-----") && pem.is_none() {
        return Err(if label == "PUBLIC KEY" {
            KeyError::NotAPublicKey
        } else {
            KeyError::NotAPrivateKey
        });
    }
    match pem {
        Some(lines) => {
            let joined: String = lines.split_ascii_whitespace().collect();
            STANDARD.decode(joined).map_err(|_| KeyError::NotBase64)
        }
        None => crate::key::base64(text),
    }
}

/// Whether the bytes have the form of an ECDSA signature in DER: two positive whole numbers of at most 33 bytes, and not a
/// byte more. Whether it is a signature of anything is for the key to say.
pub(crate) fn is_der_signature(bytes: &[u8]) -> bool {
    let numbers = match bytes {
        [0x30, length, numbers @ ..] if usize::from(*length) == numbers.len() => numbers,
        _ => return false,
    };
    number(numbers).and_then(number).is_some_and(<[u8]>::is_empty)
}

/// Skips one whole number in its shortest form, positive.
fn number(bytes: &[u8]) -> Option<&[u8]> {
    let [0x02, length, rest @ ..] = bytes else { return None };
    let (digits, rest) = rest.split_at_checked(usize::from(*length))?;
    let shortest = match digits {
        [0, second, ..] => *second >= 0x80,
        [first, ..] => (1..0x80).contains(first),
        [] => false,
    };
    (shortest && digits.len() <= 33).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The public key that SendGrid's own example has, as it is shown.
    const SPKI: &str = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE9prUYd8WUhtWd91G8zGXQewEvP7oRZFTcNkz1VfDd+70RahQMJZWD5I5N88eh2Xzf36wRJOKbHDOh8xWtLrX+A==";

    #[test]
    fn a_public_key_is_read_from_base64_and_from_pem_and_from_nothing_else() {
        let read = |text: &str| PublicKey::from_spki(Algorithm::EcdsaP256, text).map(|_| ()).err();
        let pem = format!(
            "-----BEGIN PUBLIC KEY-----\n{}\r\n{}\n-----END PUBLIC KEY-----\n",
            SPKI.split_at(64).0,
            SPKI.split_at(64).1
        );
        assert_eq!((read(SPKI), read(&pem)), (None, None));
        let check =
            |text: &str, expected: KeyError| assert_eq!(read(text), Some(expected), "{text}");
        check("", KeyError::Empty);
        check(" \n", KeyError::Empty);
        check("hello!", KeyError::NotBase64);
        check(SPKI.split_at(120).0, KeyError::NotAPublicKey);
        check(&SPKI.replacen("MFkw", "MFow", 1), KeyError::NotAPublicKey);
        check(&pem.replace("PUBLIC", "PRIVATE"), KeyError::NotAPublicKey);
        check(&pem.replace("-----END PUBLIC KEY-----", ""), KeyError::NotAPublicKey);
        check(&"A".repeat(20_000), KeyError::TooLong { bytes: 20_000, most: LONGEST_PEM });
        let ed25519 = "MCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=";
        check(ed25519, KeyError::NotAPublicKey);
        assert!(PublicKey::from_spki(Algorithm::Ed25519, ed25519).is_ok());
        assert!(PublicKey::from_spki(Algorithm::Ed25519, SPKI).is_err());
    }

    #[test]
    fn a_signature_in_der_has_one_form() {
        let good = [0x30, 0x08, 0x02, 0x02, 0x00, 0x80, 0x02, 0x02, 0x01, 0x00];
        assert!(is_der_signature(&good));
        for bad in [
            &[][..],
            &[0x30],
            &[0x30, 0x00],
            &good[..9],
            &[&good[..], &[0]].concat(),
            &[0x31, 0x08, 0x02, 0x02, 0x00, 0x80, 0x02, 0x02, 0x01, 0x00],
            &[0x30, 0x06, 0x02, 0x01, 0x80, 0x02, 0x01, 0x01],
            &[0x30, 0x07, 0x02, 0x02, 0x00, 0x01, 0x02, 0x01, 0x01],
            &[0x30, 0x06, 0x02, 0x01, 0x00, 0x02, 0x01, 0x01],
            &[0x30, 0x05, 0x02, 0x00, 0x02, 0x01, 0x01],
            &[0x30, 0x03, 0x02, 0x01, 0x01],
            &[0x30, 0x81, 0x06, 0x02, 0x01, 0x01, 0x02, 0x01, 0x01],
            &[0x30, 0x80, 0x02, 0x01, 0x01, 0x02, 0x01, 0x01, 0x00, 0x00],
            &[7; 64],
        ] {
            assert!(!is_der_signature(bad), "{bad:?}");
        }
    }
}
