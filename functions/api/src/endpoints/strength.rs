//! Secrets that an owner brings along: as strong as those that are made here, or refused.

use std::{collections::BTreeSet, fmt};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use domain::body::Sha256Hash;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use signing::{EndpointSecret, Secret};

use crate::problem::Findings;

/// What signs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    /// A shared secret (`v1`).
    #[default]
    Hmac,
    /// A key pair (`v1a`): its owner verifies, and cannot sign.
    Ed25519,
}

impl Kind {
    /// A new secret of this kind.
    pub(super) fn make(self, random: [u8; 32]) -> EndpointSecret {
        match self {
            Self::Hmac => EndpointSecret::shared(random),
            Self::Ed25519 => EndpointSecret::pair(random),
        }
    }

    fn of(secret: &EndpointSecret) -> Self {
        if secret.public_key().is_some() { Self::Ed25519 } else { Self::Hmac }
    }
}

/// Fewest different bytes in a shared secret. Random bytes have far more, and 32 random hexadecimal digits have fewer once
/// in some hundreds; words and repetitions rarely have as many.
const DIFFERENT: usize = 11;

/// Secrets of the public documentation of Standard Webhooks and of Svix, by the SHA-256 of what stands behind `whsec_`:
/// the secrets themselves would be found here by whoever searches for them.
const DOCUMENTED: [&str; 2] = [
    "0c47dd30c7da14ce8078bc464742122187d516456e901ac0c3006dabcec0f743",
    "d772992fc6f855001ba15284c76b744b43f6db137e7cb1f91de80ef32ade87f7",
];

/// Why a secret is refused that could be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weak {
    Documented,
    Repeats,
    OtherKind,
}

impl fmt::Display for Weak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Documented => "the secret stands in public documentation; leave it out, and one is made",
            Self::Repeats => {
                "the secret is a word or repeats itself, and can be guessed from one signature; leave it out, and one is made"
            }
            Self::OtherKind => {
                "it is of another kind than `kind` says: a shared secret begins with whsec_, a private key with whsk_"
            }
        })
    }
}

/// Reads an owner's secret; notes why it cannot be used.
pub(super) fn read(
    field: &str,
    text: &RawValue,
    kind: Option<Kind>,
    found: &mut Findings,
) -> Option<EndpointSecret> {
    let Ok(text) = serde_json::from_str::<Secret>(text.get()) else {
        found.note(field, "it is a text");
        return None;
    };
    let secret = found.keep(field, EndpointSecret::parse(&text))?;
    let weak = weakness(&secret)
        .or_else(|| kind.is_some_and(|kind| kind != Kind::of(&secret)).then_some(Weak::OtherKind));
    match weak {
        Some(weak) => {
            found.note(field, weak);
            None
        }
        None => Some(secret),
    }
}

fn weakness(secret: &EndpointSecret) -> Option<Weak> {
    let text = secret.expose();
    // A private key is checked by what it is.
    let text = text.expose().strip_prefix("whsec_")?;
    let hash = Sha256Hash::of(text.as_bytes()).to_string();
    if DOCUMENTED.contains(&hash.as_str()) {
        return Some(Weak::Documented);
    }
    let bytes = zeroize::Zeroizing::new(STANDARD.decode(text).unwrap_or_default());
    let different: BTreeSet<u8> = bytes.iter().copied().collect();
    (different.len() < DIFFERENT).then_some(Weak::Repeats)
}

/// What names a secret: the beginning of the SHA-256 of its text. It tells two secrets apart and does not help to guess
/// one of 24 random bytes.
pub(super) fn fingerprint(secret: &EndpointSecret) -> String {
    let hash = Sha256Hash::of(secret.expose().expose().as_bytes()).to_string();
    hash.chars().take(6).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn judged(text: &str, kind: Option<Kind>) -> Result<Kind, String> {
        let mut found = Findings::default();
        let raw = serde_json::value::to_raw_value(&json!(text)).unwrap();
        let read = read("secret", &raw, kind, &mut found);
        read.map(|secret| Kind::of(&secret)).ok_or_else(|| format!("{:?}", found.problem()))
    }

    /// SEC-key-strength
    #[test]
    fn a_secret_that_can_be_guessed_is_refused() {
        let check = |text: &str, says: &str| {
            let refused = judged(text, None).unwrap_err();
            assert!(refused.contains(says), "{text}: {refused}");
        };
        check("test", "everybody tries first");
        check("development", "everybody tries first");
        check("", "empty");
        check("MTIzNDU2Nzg5MDEyMzQ1", "only 15 bytes");
        check(&format!("whsec_{}", STANDARD.encode([7; 23])), "only 23 bytes");
        check(&format!("whsec_{}", STANDARD.encode([7; 24])), "repeats itself");
        check(&STANDARD.encode("developmentdevelopment!!"), "repeats itself");
        check("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "public documentation");
        check("C2FVsBQIhrscChlQIMV+b5sSYspob7oD", "public documentation");
        check(&format!("whsec_{}", STANDARD.encode([7; 65])), "at most 64");
        let long: Vec<u8> = (0..24).collect();
        assert_eq!(judged(&format!("whsec_{}", STANDARD.encode(&long)), None), Ok(Kind::Hmac));
        // Never the secret itself.
        let refused = judged("CANARY-CANARY", None).unwrap_err();
        assert!(!refused.contains("CANARY"), "{refused}");
    }

    #[test]
    fn a_secret_is_of_the_kind_that_is_asked_for() {
        let pair = EndpointSecret::pair([9; 32]).expose();
        let shared: Vec<u8> = (0..32).collect();
        let shared = STANDARD.encode(shared);
        assert_eq!(judged(pair.expose(), None), Ok(Kind::Ed25519));
        assert_eq!(judged(pair.expose(), Some(Kind::Ed25519)), Ok(Kind::Ed25519));
        assert_eq!(judged(&shared, Some(Kind::Hmac)), Ok(Kind::Hmac));
        assert!(judged(pair.expose(), Some(Kind::Hmac)).unwrap_err().contains("another kind"));
        assert!(judged(&shared, Some(Kind::Ed25519)).unwrap_err().contains("another kind"));
    }

    /// SEC-key-strength
    #[test]
    fn no_two_secrets_that_are_made_are_alike_and_none_is_refused() {
        use rand::{RngExt as _, SeedableRng as _};
        let mut random = rand::rngs::StdRng::seed_from_u64(93);
        let made = (0..10_000).map(|_| Kind::Hmac.make(random.random()));
        let texts: BTreeSet<String> = made
            .map(|secret| {
                assert_eq!(weakness(&secret), None);
                secret.expose().expose().to_owned()
            })
            .collect();
        assert_eq!(texts.len(), 10_000);
    }
}
