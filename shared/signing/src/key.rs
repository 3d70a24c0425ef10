//! Secrets made ready for use.

mod problem;
mod text;

use std::fmt;
use std::sync::Arc;

use ed25519_dalek as dalek;
use ring::signature::EcdsaKeyPair;
use subtle::{Choice, ConstantTimeEq as _};
use zeroize::Zeroizing;

pub(crate) use problem::weakness;
pub use problem::{KeyError, Weakness};
pub(crate) use text::{base64, private, sized};
use text::{decoded, key_bytes};

use crate::asymmetric::{self, PublicKey};
use crate::digest::{self, Keyed};
use crate::message::Piece;
use crate::named;
use crate::scheme::{Algorithm, KeyEncoding, Proof, Scheme};
use crate::secret::Secret;
use crate::signature::Candidate;

/// Names a key, so that a caller learns which one matched. Not secret.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyId(Arc<str>);

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
        Self(text.into())
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One secret of a source, decoded for its scheme and made ready.
#[derive(Clone)]
pub struct Key {
    id: KeyId,
    material: Material,
    weakness: Option<Weakness>,
}

#[derive(Clone)]
enum Material {
    /// Of an HMAC.
    Keyed(Keyed),
    /// Goes into a plain hash, in the place of `{secret}`.
    Hashed(Zeroizing<Vec<u8>>),
    /// Is shown with each request; only its hash is needed.
    Shown([u8; 32]),
    Public(PublicKey),
    /// For code, which knows what to do with it.
    Raw(Zeroizing<Vec<u8>>),
    /// Is shown in a handshake, and never stands behind an event; only its hash is needed.
    OfHandshakes([u8; 32]),
}

impl Key {
    /// Reads a secret strictly, as the scheme has it.
    ///
    /// # Errors
    /// What is wrong with the secret; see [`KeyError`].
    pub fn parse(scheme: &Scheme, id: impl Into<KeyId>, secret: &Secret) -> Result<Self, KeyError> {
        let id = id.into();
        if scheme.is_of_handshakes(&id) {
            let text = text::plain(secret.expose())?;
            let material = Material::OfHandshakes(digest::sha256(text.as_bytes()));
            return Ok(Self { id, material, weakness: None });
        }
        if scheme.terms.key.encoding == KeyEncoding::SpkiBase64 {
            let algorithm = scheme.algorithm().unwrap_or(Algorithm::EcdsaP256);
            let key = PublicKey::from_spki(algorithm, secret.expose())?;
            return Ok(Self { id, material: Material::Public(key), weakness: None });
        }
        let bytes = key_bytes(scheme, secret.expose())?;
        let weakness = weakness(&bytes);
        let material = match scheme.terms.proof {
            Proof::Verifier(_) => Material::Raw(bytes),
            Proof::Algorithm(algorithm) => ready(algorithm, bytes)?,
        };
        let weakness = weakness.filter(|_| !matches!(material, Material::Public(_)));
        Ok(Self { id, material, weakness })
    }

    /// Reads a key that the provider publishes under `id`: what [`Scheme::lookup`] and the code of named verifiers find.
    ///
    /// # Errors
    /// It is not a key of the scheme's algorithm, or the scheme has no such ids.
    pub fn published(scheme: &Scheme, id: &str, text: &str) -> Result<Self, KeyError> {
        let key = match scheme.terms.proof {
            Proof::Verifier(verifier) => named::published(verifier, text)?,
            Proof::Algorithm(algorithm) => {
                let lookup = scheme.lookup().ok_or(KeyError::NotPublished)?;
                lookup.url(id).ok_or(KeyError::NotPublished)?;
                PublicKey::from_spki(algorithm, text)?
            }
        };
        Ok(Self { id: id.into(), material: Material::Public(key), weakness: None })
    }

    /// Its name.
    #[must_use]
    pub fn id(&self) -> &KeyId {
        &self.id
    }

    /// Whether it should be replaced although it works.
    #[must_use]
    pub fn weakness(&self) -> Option<Weakness> {
        self.weakness
    }

    /// The bytes of a shared secret, for code that verifies.
    pub(crate) fn raw(&self) -> Option<&[u8]> {
        match &self.material {
            Material::Raw(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The public key, for code that verifies.
    pub(crate) fn public(&self) -> Option<&PublicKey> {
        match &self.material {
            Material::Public(key) => Some(key),
            _ => None,
        }
    }

    /// Whether this key made one of the candidates, without telling by time how nearly one matched.
    pub(crate) fn made<'c>(
        &self,
        message: &'c [Piece<'_>],
        candidates: impl Iterator<Item = &'c Candidate>,
    ) -> Choice {
        let candidates = candidates.map(Candidate::bytes);
        match &self.material {
            Material::Keyed(keyed) => keyed.made(message.iter().map(Piece::bytes), candidates),
            Material::Hashed(secret) => {
                let pieces = message.iter().map(|piece| piece.bytes_with(secret));
                digest::among(&digest::sha256_of(pieces), candidates)
            }
            Material::Shown(hash) => digest::among(hash, candidates),
            Material::Public(key) => {
                let message = Piece::whole(message);
                candidates.fold(Choice::from(0), |found, candidate| {
                    found | Choice::from(u8::from(key.verifies(&message, candidate)))
                })
            }
            Material::Raw(_) | Material::OfHandshakes(_) => Choice::from(0),
        }
    }

    /// Whether the text is this secret of handshakes, without telling by time how nearly.
    pub(crate) fn is_shown(&self, text: &[u8]) -> Choice {
        match &self.material {
            Material::OfHandshakes(hash) => digest::sha256(text).ct_eq(hash),
            _ => Choice::from(0),
        }
    }

    /// The MAC of a message, if this is the key of one.
    pub(crate) fn mac(&self, message: &[u8]) -> Option<Vec<u8>> {
        match &self.material {
            Material::Keyed(keyed) => Some(keyed.mac(std::iter::once(message))),
            _ => None,
        }
    }
}

fn ready(algorithm: Algorithm, bytes: Zeroizing<Vec<u8>>) -> Result<Material, KeyError> {
    Ok(match algorithm {
        Algorithm::HmacSha1 | Algorithm::HmacSha256 | Algorithm::HmacSha512 => {
            Keyed::new(algorithm, &bytes).map_or(Material::Raw(bytes), Material::Keyed)
        }
        Algorithm::Sha256 => Material::Hashed(bytes),
        Algorithm::Ed25519 => Material::Public(PublicKey::ed25519(&bytes)?),
        Algorithm::EcdsaP256 => return Err(KeyError::NotAPublicKey),
        Algorithm::Token | Algorithm::None => Material::Shown(digest::sha256(&bytes)),
        Algorithm::Basic => {
            credentials(&bytes)?;
            Material::Shown(digest::sha256(&bytes))
        }
    })
}

/// A user, which has no colon, and a password.
fn credentials(bytes: &[u8]) -> Result<(), KeyError> {
    let colon = bytes.iter().position(|byte| *byte == b':');
    match colon {
        Some(at) if at > 0 && at + 1 < bytes.len() => Ok(()),
        _ => Err(KeyError::NotCredentials),
    }
}

/// A key that makes signatures the way a provider does, for tests and for `postern send`.
#[derive(Clone)]
pub struct SigningKey(SigningMaterial);

#[derive(Clone)]
enum SigningMaterial {
    Keyed(Keyed),
    Hashed(Zeroizing<Vec<u8>>),
    Shown(Zeroizing<Vec<u8>>),
    Ed25519(Box<dalek::SigningKey>),
    P256(Arc<EcdsaKeyPair>),
}

impl SigningKey {
    /// Reads what the provider holds: the same shared secret as the receiver, an Ed25519 private key (`whsk_...`, or
    /// seed or seed and public key in the scheme's encoding), or an ECDSA private key (PKCS#8 in base64 or PEM).
    ///
    /// # Errors
    /// What is wrong with the secret; see [`KeyError`].
    pub fn parse(scheme: &Scheme, secret: &Secret) -> Result<Self, KeyError> {
        let text = secret.expose();
        Ok(Self(match scheme.algorithm() {
            Some(Algorithm::Ed25519) => {
                if text.starts_with("whpk_") {
                    return Err(KeyError::PublicKey);
                }
                let encoding = match scheme.terms.key.encoding {
                    KeyEncoding::SpkiBase64 => KeyEncoding::Base64,
                    encoding => encoding,
                };
                let bytes = decoded(encoding, text.strip_prefix("whsk_").unwrap_or(text))?;
                SigningMaterial::Ed25519(Box::new(private(&bytes)?))
            }
            Some(Algorithm::EcdsaP256) => {
                SigningMaterial::P256(Arc::new(asymmetric::p256_private(text)?))
            }
            Some(Algorithm::Sha256) => SigningMaterial::Hashed(key_bytes(scheme, text)?),
            Some(algorithm) => {
                let bytes = key_bytes(scheme, text)?;
                match Keyed::new(algorithm, &bytes) {
                    Some(keyed) => SigningMaterial::Keyed(keyed),
                    None => SigningMaterial::Shown(bytes),
                }
            }
            None => SigningMaterial::Shown(key_bytes(scheme, text)?),
        }))
    }

    /// The signature's bytes; for a secret that is shown the secret.
    pub(crate) fn sign(&self, message: &[Piece<'_>]) -> Vec<u8> {
        let pieces = || message.iter().map(Piece::bytes);
        let whole = || Piece::whole(message);
        match &self.0 {
            SigningMaterial::Keyed(keyed) => keyed.mac(pieces()),
            SigningMaterial::Hashed(secret) => {
                digest::sha256_of(message.iter().map(|piece| piece.bytes_with(secret))).to_vec()
            }
            SigningMaterial::Shown(secret) => secret.to_vec(),
            SigningMaterial::Ed25519(key) => digest::ed25519_sign(key, &whole()),
            SigningMaterial::P256(key) => asymmetric::p256_sign(key, &whole()),
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
