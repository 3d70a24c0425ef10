//! Bodies: how large they are, what identifies them, and where they are kept.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// A SHA-256, printed in hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Sha256Hash(pub [u8; 32]);

impl Sha256Hash {
    /// The hash of some bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

impl fmt::Display for Sha256Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for Sha256Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sha256Hash({self})")
    }
}

impl TryFrom<String> for Sha256Hash {
    type Error = hex::FromHexError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes)?;
        Ok(Self(bytes))
    }
}

impl From<Sha256Hash> for String {
    fn from(hash: Sha256Hash) -> Self {
        hash.to_string()
    }
}

/// A stored body: what it must be when read back, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredBody {
    /// The hash of the bytes as they were signed, before compression.
    pub sha256: Sha256Hash,
    /// Their number, before compression.
    pub length: u64,
    /// Where they are.
    pub place: Place,
}

/// Where a body is kept. Always compressed with zstd.
#[derive(Clone, PartialEq, Eq)]
pub enum Place {
    /// In the row itself: small enough that changing the row's status stays one write unit.
    Inline(Vec<u8>),
    /// In an item beside the row, named by its hash.
    Beside,
    /// In the bucket, named by its hash.
    Bucket,
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inline(bytes) => write!(f, "Inline({} bytes)", bytes.len()),
            Self::Beside => f.write_str("Beside"),
            Self::Bucket => f.write_str("Bucket"),
        }
    }
}
