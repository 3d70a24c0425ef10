//! What opens an endpoint to its owner. Only its hash is kept: it is as good as sealed, and nobody need open it.

use std::fmt::Write as _;

use axum::{
    extract::FromRequestParts,
    http::{StatusCode, header, request::Parts},
};
use domain::{
    body::Sha256Hash,
    ports::{Purpose, SealedSecret},
    secret::SecretText,
};
use jiff::Timestamp;

use crate::Problem;

/// What a token begins with, so that people and scanners know what they see.
const PREFIX: &str = "whpoll_";

/// The bearer token of a request. It does not print.
#[derive(Clone, Debug)]
pub struct Token(SecretText);

impl<S: Send + Sync> FromRequestParts<S> for Token {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let mut values = parts.headers.get_all(header::AUTHORIZATION).iter();
        let (Some(value), None) = (values.next(), values.next()) else { return Err(refused()) };
        let text = value.to_str().ok().and_then(|text| text.split_once(' '));
        match text {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => {
                Ok(Self(SecretText::new(token.trim().to_owned())))
            }
            _ => Err(refused()),
        }
    }
}

impl Token {
    /// Whether it is one of an endpoint's that are active now. Every one is looked at to its end, whatever the first
    /// said.
    pub(super) fn opens(&self, secrets: &[SealedSecret], now: Timestamp) -> bool {
        let Sha256Hash(shown) = Sha256Hash::of(self.0.expose().as_bytes());
        let active = secrets.iter().filter(|secret| {
            secret.purpose == Purpose::Polling && secret.expires_at.is_none_or(|at| at > now)
        });
        active.fold(false, |opens, secret| opens | is_same(&shown, &secret.sealed))
    }
}

/// A new token, of bytes that nobody can guess.
pub(crate) fn mint(random: [u8; 32]) -> SecretText {
    let mut text = PREFIX.to_owned();
    for byte in random {
        // Writing to a text cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    SecretText::new(text)
}

/// A token, as it is kept.
pub(crate) fn sealed(token: &SecretText) -> SealedSecret {
    let Sha256Hash(hash) = Sha256Hash::of(token.expose().as_bytes());
    let (purpose, sealed) = (Purpose::Polling, hash.to_vec());
    SealedSecret { id: purpose.word().to_owned(), purpose, sealed, expires_at: None }
}

/// In constant time for hashes, which have one length.
fn is_same(shown: &[u8], kept: &[u8]) -> bool {
    let differs = shown.iter().zip(kept).fold(0, |differs, (a, b)| differs | (a ^ b));
    std::hint::black_box(differs) == 0 && shown.len() == kept.len()
}

/// The one answer to whoever may not.
pub(super) fn refused() -> Problem {
    let detail = "Send the header `Authorization: Bearer <token>` with the token that was shown when this endpoint was \
                  made, to the URL of this endpoint. Whoever made it can make another token.";
    Problem::outside(StatusCode::UNAUTHORIZED, "unauthorized", "Not with this token.", detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_token_opens_only_while_it_is_active_and_for_polling_only() {
        let text = mint([7; 32]);
        assert_eq!(text.expose().len(), PREFIX.len() + 64);
        let kept = sealed(&text);
        assert!(
            !kept.sealed.windows(4).any(|part| part == b"0707"),
            "the token itself is not kept"
        );
        let shown = Token(text);
        assert!(shown.opens(std::slice::from_ref(&kept), at(5)));
        let until = |second| SealedSecret { expires_at: Some(at(second)), ..kept.clone() };
        assert!(shown.opens(&[until(6)], at(5)) && !shown.opens(&[until(5)], at(5)));
        let signing = SealedSecret { purpose: Purpose::Signing, ..kept.clone() };
        assert!(!shown.opens(&[signing], at(5)) && !shown.opens(&[], at(5)));
        let other = Token(mint([8; 32]));
        assert!(!other.opens(&[kept.clone(), until(9)], at(5)));
        let shorter = SealedSecret { sealed: kept.sealed[..31].to_vec(), ..kept.clone() };
        let empty = SealedSecret { sealed: Vec::new(), ..kept };
        assert!(!shown.opens(&[shorter, empty], at(5)));
    }
}
