//! Why a secret cannot be used, and why one that can is still a poor one.

use std::fmt;

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
    /// Not a public key of the scheme's algorithm.
    #[error(
        "this is not a public key of the scheme's algorithm in base64 or PEM; copy it again, from its first to its last character"
    )]
    NotAPublicKey,
    /// Not a private key of the scheme's algorithm.
    #[error("this is not a private key of the scheme's algorithm in base64 or PEM (PKCS#8)")]
    NotAPrivateKey,
    /// Basic credentials without a user or a password.
    #[error(
        "the secret must be a user and a password with a colon between them, as in `user:password`"
    )]
    NotCredentials,
    /// A published key under an id that the scheme does not have.
    #[error("the provider does not publish keys by that id; check the scheme's `key.lookup`")]
    NotPublished,
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
