//! What an effect is called, so that it happens once.

use std::{fmt, str::FromStr};

use crate::body::Sha256Hash;

/// Longest operation key, in bytes.
pub const MAX_OPERATION_KEY: usize = 512;

/// The business identity of an effect (credit for one invoice), taken once for ever.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationKey(String);

/// A text that cannot be an operation key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an operation key is 1 to {MAX_OPERATION_KEY} bytes without control characters")]
pub struct InvalidOperationKey;

impl OperationKey {
    /// The key of these parts, such as `credit` and the invoice's id: joined by `#`. Other parts make another key,
    /// whatever they contain, and every list of parts makes one: one that is too long stands as its hash.
    pub fn of(parts: &[&str]) -> Self {
        let plain = |c: char| !c.is_control() && c != '#' && c != '%';
        let part = |part: &&str| {
            let mut told = String::with_capacity(part.len());
            for c in part.chars() {
                if plain(c) {
                    told.push(c);
                } else {
                    told.push_str(&format!("%{:02X}", u32::from(c)));
                }
            }
            told
        };
        let joined = parts.iter().map(part).collect::<Vec<_>>().join("#");
        // No joined key looks like that: there, two digits follow each `%`.
        let hashed =
            || Self(format!("%sha256:{}", Sha256Hash::of(format!("{parts:?}").as_bytes())));
        joined.parse().unwrap_or_else(|InvalidOperationKey| hashed())
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for OperationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for OperationKey {
    type Err = InvalidOperationKey;

    fn from_str(text: &str) -> Result<Self, InvalidOperationKey> {
        let good =
            (1..=MAX_OPERATION_KEY).contains(&text.len()) && !text.chars().any(char::is_control);
        if good { Ok(Self(text.to_owned())) } else { Err(InvalidOperationKey) }
    }
}
