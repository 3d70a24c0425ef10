//! The local token: it stands for IAM, where a caller would sign with its credentials.

use std::fmt;

use axum::http::{HeaderMap, header};
use sha2::{Digest as _, Sha256};

/// A secret that callers of guarded APIs present as `Authorization: Bearer <token>`.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// A token that was written down. `None`: it is too short to be one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        (text.len() >= 32 && text.bytes().all(|byte| byte.is_ascii_graphic()))
            .then(|| Self(text.to_owned()))
    }

    /// A fresh one, of 256 random bits.
    #[must_use]
    pub fn random() -> Self {
        Self(hex::encode(rand::random::<[u8; 32]>()))
    }

    /// The secret itself.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether a request presents it.
    #[must_use]
    pub fn is_in(&self, headers: &HeaderMap) -> bool {
        let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let given = given
            .and_then(|value| value.split_once(' '))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        // Comparing digests tells nothing of how much of the token was right.
        given.is_some_and(|(_, token)| Sha256::digest(token.trim()) == Sha256::digest(&self.0))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_opens() {
        let token = Token::parse("0123456789abcdef0123456789abcdef\n").unwrap();
        for (value, expected) in [
            ("Bearer 0123456789abcdef0123456789abcdef", true),
            ("bearer 0123456789abcdef0123456789abcdef", true),
            ("Bearer 0123456789abcdef0123456789abcde", false),
            ("Bearer ", false),
            ("0123456789abcdef0123456789abcdef", false),
            ("Basic 0123456789abcdef0123456789abcdef", false),
        ] {
            let headers = HeaderMap::from_iter([(header::AUTHORIZATION, value.parse().unwrap())]);
            assert_eq!(token.is_in(&headers), expected, "{value}");
        }
        assert!(!token.is_in(&HeaderMap::new()));
        assert!(Token::parse("short").is_none());
        assert_eq!(format!("{token:?}"), "Token(..)");
    }
}
