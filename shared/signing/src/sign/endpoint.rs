//! Secrets of our own endpoints, and the signature header that their owners verify with any Standard Webhooks library.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek as dalek;
use jiff::Timestamp;
use zeroize::Zeroizing;

use crate::digest::{self, Keyed};
use crate::key::{KeyError, base64, private, weakness};
use crate::scheme::Algorithm;
use crate::secret::Secret;

const SHARED: &str = "whsec_";
const PRIVATE: &str = "whsk_";
const PUBLIC: &str = "whpk_";
/// Bytes of a shared secret, as the specification of Standard Webhooks has it.
const BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// What an endpoint's events are signed with.
#[derive(Clone)]
pub struct EndpointSecret(Kind);

#[derive(Clone)]
enum Kind {
    Shared(Zeroizing<Vec<u8>>),
    Private(Box<dalek::SigningKey>),
}

impl EndpointSecret {
    /// A shared secret (`whsec_...`) from 32 random bytes.
    #[must_use]
    pub fn shared(random: [u8; 32]) -> Self {
        Self(Kind::Shared(Zeroizing::new(random.to_vec())))
    }

    /// A key pair (`whsk_...` and `whpk_...`) from 32 random bytes.
    #[must_use]
    pub fn pair(random: [u8; 32]) -> Self {
        Self(Kind::Private(Box::new(dalek::SigningKey::from_bytes(&random))))
    }

    /// Reads a secret that was shown once, or that an owner brings along: `whsec_` with 24 to 64 bytes, or `whsk_`.
    ///
    /// # Errors
    /// What is wrong with it, see [`KeyError`]; also a secret that is too weak to sign with.
    pub fn parse(secret: &Secret) -> Result<Self, KeyError> {
        let text = secret.expose();
        if text.trim().is_empty() {
            return Err(KeyError::Empty);
        }
        if weakness(text.as_bytes()) == Some(crate::Weakness::WellKnown) {
            return Err(KeyError::WellKnown);
        }
        if text.trim() != text {
            return Err(KeyError::Surrounded);
        }
        if let Some(key) = text.strip_prefix(PRIVATE) {
            let bytes = Zeroizing::new(base64(key)?);
            return Ok(Self(Kind::Private(Box::new(private(&bytes)?))));
        }
        if text.starts_with(PUBLIC) {
            return Err(KeyError::PublicKey);
        }
        let key = text.strip_prefix(SHARED).unwrap_or(text);
        if key.starts_with(SHARED) {
            return Err(KeyError::PrefixTwice);
        }
        if key.starts_with("v1,") {
            return Err(KeyError::SignatureLabel);
        }
        if key.starts_with('"') || key.ends_with('"') {
            return Err(KeyError::Quoted);
        }
        let bytes = Zeroizing::new(base64(key)?);
        match bytes.len() {
            bytes if bytes < *BYTES.start() => {
                Err(KeyError::TooShort { bytes, least: *BYTES.start() })
            }
            bytes if bytes > *BYTES.end() => Err(KeyError::TooLong { bytes, most: *BYTES.end() }),
            _ => Ok(Self(Kind::Shared(bytes))),
        }
    }

    /// The text to store, encrypted, and to show once.
    #[must_use]
    pub fn expose(&self) -> Secret {
        match &self.0 {
            Kind::Shared(bytes) => Secret::new(format!("{SHARED}{}", STANDARD.encode(bytes))),
            Kind::Private(key) => {
                let pair = Zeroizing::new(key.to_keypair_bytes());
                Secret::new(format!("{PRIVATE}{}", STANDARD.encode(pair.as_slice())))
            }
        }
    }

    /// What the owner of the endpoint verifies with: the public key (`whpk_...`), or `None` for a shared secret.
    #[must_use]
    pub fn public_key(&self) -> Option<String> {
        match &self.0 {
            Kind::Shared(_) => None,
            Kind::Private(key) => {
                Some(format!("{PUBLIC}{}", STANDARD.encode(key.verifying_key().as_bytes())))
            }
        }
    }

    fn sign(&self, message: &[&[u8]]) -> String {
        match &self.0 {
            Kind::Shared(key) => {
                let keyed = Keyed::new(Algorithm::HmacSha256, key);
                let mac = keyed.map(|keyed| keyed.mac(message.iter().copied()));
                format!("v1,{}", STANDARD.encode(mac.unwrap_or_default()))
            }
            Kind::Private(key) => {
                format!("v1a,{}", STANDARD.encode(digest::ed25519_sign(key, &message.concat())))
            }
        }
    }
}

impl fmt::Debug for EndpointSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EndpointSecret(..)")
    }
}

/// The value of `webhook-signature`: one signature for each active secret, in the order given, separated by spaces.
/// `sent` must be the time that goes into `webhook-timestamp`, in whole seconds.
#[must_use]
pub fn header_value(secrets: &[EndpointSecret], id: &str, sent: Timestamp, body: &[u8]) -> String {
    let time = sent.as_second().to_string();
    let message: [&[u8]; 5] = [id.as_bytes(), b".", time.as_bytes(), b".", body];
    secrets.iter().map(|secret| secret.sign(&message)).collect::<Vec<_>>().join(" ")
}
