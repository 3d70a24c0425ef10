//! What proves a request: one pinned algorithm, or code for the few that no table can describe.

use std::fmt;

/// How a signature is made. One for each scheme: a request never chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// HMAC with SHA-1. Only for providers that offer nothing better.
    HmacSha1,
    /// HMAC with SHA-256.
    HmacSha256,
    /// HMAC with SHA-512.
    HmacSha512,
    /// SHA-256 over the secret and the content. Bytes can be appended to the content by whoever sees one signature, so
    /// that only providers without anything better use it.
    Sha256,
    /// Ed25519; the receiver holds a public key.
    Ed25519,
    /// ECDSA on the curve P-256 with SHA-256, the signature in DER; the receiver holds a public key.
    EcdsaP256,
    /// The secret itself travels with the request; the body is not protected.
    Token,
    /// `Authorization: Basic`, with the secret `user:password`; the body is not protected.
    Basic,
    /// The provider proves nothing; a secret address is all there is.
    None,
}

impl Algorithm {
    pub(crate) const ALL: [(&'static str, Self); 9] = [
        ("hmac-sha1", Self::HmacSha1),
        ("hmac-sha256", Self::HmacSha256),
        ("hmac-sha512", Self::HmacSha512),
        ("sha256", Self::Sha256),
        ("ed25519", Self::Ed25519),
        ("ecdsa-p256-sha256", Self::EcdsaP256),
        ("token", Self::Token),
        ("basic", Self::Basic),
        ("none", Self::None),
    ];

    /// Whether it makes a signature over content, instead of showing a secret or nothing.
    pub(crate) fn signs(self) -> bool {
        !matches!(self, Self::Token | Self::Basic | Self::None)
    }

    /// Whether the receiver holds a public key.
    pub(crate) fn is_asymmetric(self) -> bool {
        matches!(self, Self::Ed25519 | Self::EcdsaP256)
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(name_in(&Self::ALL, *self))
    }
}

/// A provider whose signatures need code; see [`crate::named`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verifier {
    /// Twilio: the address and the sorted form, or the address with a hash of the body.
    Twilio,
    /// Adyen's payment notifications: a few fields of each item.
    Adyen,
    /// Braintree: a form with a payload and signatures by several keys.
    Braintree,
    /// PayPal: RSA with a certificate from PayPal, over a checksum of the body.
    PayPal,
    /// Amazon SNS: RSA with a certificate from Amazon, over some members of the body.
    Sns,
    /// Plaid: a signed token that holds the hash of the body, with a key from Plaid.
    Plaid,
    /// Netlify and LiveKit: a token signed with a shared secret that holds the hash of the body.
    JwtBodyHash,
}

impl Verifier {
    pub(crate) const ALL: [(&'static str, Self); 7] = [
        ("twilio", Self::Twilio),
        ("adyen", Self::Adyen),
        ("braintree", Self::Braintree),
        ("paypal", Self::PayPal),
        ("sns", Self::Sns),
        ("plaid", Self::Plaid),
        ("jwt-body-hash", Self::JwtBodyHash),
    ];
}

impl fmt::Display for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(name_in(&Self::ALL, *self))
    }
}

fn name_in<T: Copy + PartialEq>(all: &[(&'static str, T)], wanted: T) -> &'static str {
    all.iter().find(|(_, one)| *one == wanted).map_or("", |(name, _)| name)
}

/// One of the two ways to judge a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    Algorithm(Algorithm),
    Verifier(Verifier),
}

/// How far a verified request can be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Trust {
    /// The signature covers the body.
    Signed,
    /// There is a signature, but the body, or some of it, is not what it covers.
    BodyUnsigned,
    /// A secret is shown with each request, and nothing is signed.
    Token,
    /// The provider proves nothing.
    None,
}

impl Trust {
    /// Whether people should be told that a signature over the body would be better.
    #[must_use]
    pub fn is_weaker(self) -> bool {
        self != Self::Signed
    }

    /// A short stable name, for logs and tables.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Signed => "signed",
            Self::BodyUnsigned => "body_unsigned",
            Self::Token => "token",
            Self::None => "none",
        }
    }
}

impl fmt::Display for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Signed => "the provider signs the body",
            Self::BodyUnsigned => {
                "weaker: the signature leaves out the body or a part of it, so whoever sees one request can change what is left out; fetch the facts from the provider before acting on them"
            }
            Self::Token => {
                "weaker: a fixed secret travels with each request and the body is not signed, so whoever sees one request can forge others"
            }
            Self::None => {
                "weakest: the provider proves nothing, only the secret address keeps others out; fetch the facts from the provider before acting on them"
            }
        })
    }
}
