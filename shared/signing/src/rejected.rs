//! Why a request was refused, for the operator. The sender is told nothing of it.

use std::fmt;

/// A refusal: a class for counting, and the strongest true statement about why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected(Reason);

/// What kind of refusal it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// A signature is there and no key made it.
    BadSignature,
    /// The signature is right, its time is not near now.
    Stale,
    /// Something that the scheme needs is missing, doubled or not in its form.
    Malformed,
    /// The request names a published key that has not been fetched yet. Not the sender's fault: ask it to try again.
    KeyUnknown,
}

/// The precise reason. Names in it come from the scheme, never from the request, so that it can be logged as it is; the one
/// exception, the id of a key, has a strict form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// There is no key to try.
    NoKeys,
    /// The request names a key that is not among those that were fetched from the provider.
    KeyUnknown {
        /// In the strict form that the scheme demands.
        id: String,
    },
    /// What names a key is not of the scheme's form.
    KeyIdMalformed,
    /// The key made the signature, but now is outside of the time in which it may be used.
    KeyNotValid,
    /// What the signature covers is meant for somebody else.
    NotOurs {
        /// The key under `config` that says what would be ours.
        name: &'static str,
    },
    /// The scheme needs a value from the source's configuration.
    NotConfigured {
        /// The key under `config`.
        name: String,
    },
    /// A header that the scheme needs is missing or blank.
    HeaderMissing {
        /// In lower case.
        name: String,
    },
    /// A header that must be single came twice.
    HeaderRepeated {
        /// In lower case.
        name: String,
    },
    /// A header that must be single contains a comma: a gateway may have joined two.
    HeaderJoined {
        /// In lower case.
        name: String,
    },
    /// A header does not have the one value that the scheme allows.
    HeaderUnexpected {
        /// In lower case.
        name: String,
    },
    /// A header that must be among those that are signed is not.
    HeaderUnsigned {
        /// In lower case.
        name: String,
    },
    /// The body is empty and the provider never sends an empty one.
    BodyEmpty,
    /// The body is not JSON and the scheme demands it.
    BodyNotJson,
    /// A value inside the body that the scheme signs or needs is missing.
    BodyValueMissing,
    /// No signature: no header, or nothing in it.
    SignatureMissing,
    /// There is something where the signature belongs, but no signature in the scheme's form.
    SignatureMalformed,
    /// More signatures than any rotation needs.
    SignaturesTooMany,
    /// A digest of the right length in a spelling that the provider does not use: capitals, no padding, another alphabet.
    SignatureSpelling,
    /// No key made any of the signatures.
    SignatureMismatch {
        /// Keys that were tried.
        keys: usize,
        /// Whether the time is near now, or the scheme has none.
        fresh: bool,
    },
    /// No time where the scheme has it.
    TimestampMissing,
    /// More than one time.
    TimestampRepeated,
    /// Not a time in the scheme's form.
    TimestampMalformed,
    /// Digits, but more than the unit can need.
    TimestampOutOfRange,
    /// Signed too long ago.
    TimestampTooOld {
        /// How long ago.
        age_seconds: i64,
        /// How long is allowed.
        tolerance_seconds: i64,
    },
    /// Signed in the future.
    TimestampInFuture {
        /// How far ahead.
        ahead_seconds: i64,
        /// How far is allowed.
        tolerance_seconds: i64,
    },
    /// A handshake that the source does not wait for: somebody may want to replace its secret.
    HandshakeUnexpected,
    /// A handshake carries something that the provider would not send.
    HandshakeMalformed {
        /// As the scheme writes it.
        place: String,
    },
    /// The token of a handshake is not the one that is configured.
    HandshakeToken,
    /// The secret that a handshake brings cannot be used.
    HandshakeSecret,
}

impl Rejected {
    /// The kind of refusal.
    #[must_use]
    pub fn class(&self) -> Class {
        match self.0 {
            Reason::NoKeys
            | Reason::KeyNotValid
            | Reason::NotOurs { .. }
            | Reason::SignatureSpelling
            | Reason::SignatureMismatch { .. }
            | Reason::HandshakeUnexpected
            | Reason::HandshakeToken => Class::BadSignature,
            Reason::TimestampOutOfRange
            | Reason::TimestampTooOld { .. }
            | Reason::TimestampInFuture { .. } => Class::Stale,
            Reason::KeyUnknown { .. } => Class::KeyUnknown,
            _ => Class::Malformed,
        }
    }

    /// Why, precisely.
    #[must_use]
    pub fn reason(&self) -> &Reason {
        &self.0
    }

    /// Whether newer secrets could change the verdict: a well-formed signature with a fresh time that no key made, or a key
    /// that may have been fetched meanwhile.
    #[must_use]
    pub fn is_refreshable(&self) -> bool {
        matches!(
            self.0,
            Reason::NoKeys
                | Reason::KeyUnknown { .. }
                | Reason::SignatureMismatch { fresh: true, .. }
        )
    }

    /// The id of the published key that the request names and that is not there: fetch it. Always in the strict form that
    /// the scheme demands.
    #[must_use]
    pub fn wanted_key(&self) -> Option<&str> {
        match &self.0 {
            Reason::KeyUnknown { id } => Some(id),
            _ => None,
        }
    }
}

impl Class {
    /// For metrics and logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BadSignature => "bad_signature",
            Self::Stale => "stale",
            Self::Malformed => "malformed",
            Self::KeyUnknown => "key_unknown",
        }
    }
}

impl Reason {
    /// A short stable name, for logs and for comparing.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoKeys => "no_keys",
            Self::KeyUnknown { .. } => "key_unknown",
            Self::KeyIdMalformed => "key_id_malformed",
            Self::KeyNotValid => "key_not_valid",
            Self::NotOurs { .. } => "not_ours",
            Self::NotConfigured { .. } => "not_configured",
            Self::HeaderMissing { .. } => "header_missing",
            Self::HeaderRepeated { .. } => "header_repeated",
            Self::HeaderJoined { .. } => "header_joined",
            Self::HeaderUnexpected { .. } => "header_unexpected",
            Self::HeaderUnsigned { .. } => "header_unsigned",
            Self::BodyEmpty => "body_empty",
            Self::BodyNotJson => "body_not_json",
            Self::BodyValueMissing => "body_value_missing",
            Self::SignatureMissing => "signature_missing",
            Self::SignatureMalformed => "signature_malformed",
            Self::SignaturesTooMany => "signatures_too_many",
            Self::SignatureSpelling => "signature_spelling",
            Self::SignatureMismatch { .. } => "signature_mismatch",
            Self::TimestampMissing => "timestamp_missing",
            Self::TimestampRepeated => "timestamp_repeated",
            Self::TimestampMalformed => "timestamp_malformed",
            Self::TimestampOutOfRange => "timestamp_out_of_range",
            Self::TimestampTooOld { .. } => "timestamp_too_old",
            Self::TimestampInFuture { .. } => "timestamp_in_future",
            Self::HandshakeUnexpected => "handshake_unexpected",
            Self::HandshakeMalformed { .. } => "handshake_malformed",
            Self::HandshakeToken => "handshake_token",
            Self::HandshakeSecret => "handshake_secret",
        }
    }

    /// What a person could do about it.
    #[must_use]
    pub fn advice(&self) -> &'static str {
        match self {
            Self::NoKeys => {
                "Set the signing secret of this source; one that cannot be read counts as none."
            }
            Self::KeyUnknown { .. } => {
                "It is fetched from the provider; if this goes on, check that the source belongs to this provider and that its keys can be reached."
            }
            Self::KeyNotValid => {
                "Check this machine's clock; otherwise the provider signs with a key that it has retired."
            }
            Self::NotOurs { .. } => {
                "Correct the source's configuration if it is wrong; otherwise somebody sends what the provider signed for somebody else."
            }
            Self::NotConfigured { .. } => "Set it in the source's configuration.",
            Self::HeaderMissing { .. } | Self::SignatureMissing | Self::TimestampMissing => {
                "Check that the provider signs this webhook and that nothing on the way removes headers."
            }
            Self::HeaderRepeated { .. } | Self::HeaderJoined { .. } | Self::TimestampRepeated => {
                "Two values could be read differently by two readers. Look for a proxy that adds headers; otherwise somebody is trying."
            }
            Self::HeaderUnexpected { .. } | Self::HeaderUnsigned { .. } => {
                "The provider may have a new version of its signatures; check its documentation."
            }
            Self::BodyEmpty | Self::BodyNotJson | Self::BodyValueMissing => {
                "Check that the body arrives untouched, and that this source belongs to this provider."
            }
            Self::SignatureMalformed
            | Self::SignaturesTooMany
            | Self::SignatureSpelling
            | Self::KeyIdMalformed
            | Self::TimestampMalformed => {
                "Check that this source has the right scheme; the provider itself does not send this."
            }
            Self::SignatureMismatch { .. } => {
                "Usual causes: the secret of another endpoint or mode, a secret rotated at the provider only, or a body changed on the way."
            }
            Self::TimestampOutOfRange => {
                "Check the unit: these look like milliseconds where the scheme has seconds."
            }
            Self::TimestampTooOld { .. } => {
                "A replay, a long delay on the way, or a clock that is wrong."
            }
            Self::TimestampInFuture { .. } => "One of the two clocks is wrong.",
            Self::HandshakeUnexpected => {
                "If you are setting this webhook up, let the source wait for its secret and start again; otherwise somebody is trying."
            }
            Self::HandshakeMalformed { .. } | Self::HandshakeSecret => {
                "Check that this source belongs to this provider; the provider itself does not send this."
            }
            Self::HandshakeToken => {
                "Type the same text at the provider and as the source's secret of that name."
            }
        }
    }
}

impl From<Reason> for Rejected {
    fn from(reason: Reason) -> Self {
        Self(reason)
    }
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Rejected {}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoKeys => f.write_str("no usable secret is configured"),
            Self::KeyUnknown { id } => write!(f, "the published key {id} has not been fetched yet"),
            Self::KeyIdMalformed => f.write_str("what names the published key is not an id of the scheme's form"),
            Self::KeyNotValid => f.write_str("the published key is not valid at this time"),
            Self::NotOurs { name } => write!(f, "the request is about another `{name}` than the configured one"),
            Self::NotConfigured { name } => write!(f, "the scheme needs `{name}` from the configuration"),
            Self::HeaderMissing { name } => write!(f, "the header {name} is missing or empty"),
            Self::HeaderRepeated { name } => write!(f, "the header {name} came more than once"),
            Self::HeaderJoined { name } => write!(f, "the header {name} has several values joined by a comma"),
            Self::HeaderUnexpected { name } => write!(f, "the header {name} does not have the value that the scheme demands"),
            Self::HeaderUnsigned { name } => write!(f, "the header {name} is not among those that are signed"),
            Self::BodyEmpty => f.write_str("the body is empty"),
            Self::BodyNotJson => f.write_str("the body is not JSON"),
            Self::BodyValueMissing => f.write_str("the body lacks a value that the signature covers"),
            Self::SignatureMissing => f.write_str("there is no signature"),
            Self::SignatureMalformed => f.write_str("what stands in the signature's place is not a signature of this scheme"),
            Self::SignaturesTooMany => f.write_str("there are more signatures than any rotation needs"),
            Self::SignatureSpelling => {
                f.write_str("the signature is spelled in a way that the provider does not use (capitals, padding or alphabet)")
            }
            Self::SignatureMismatch { keys, fresh } => {
                let keys_text = if *keys == 1 { "the one active secret".into() } else { format!("any of {keys} active secrets") };
                let time = if *fresh { "" } else { "; its time is not near now either" };
                write!(f, "the signature was not made with {keys_text} over these bytes{time}")
            }
            Self::TimestampMissing => f.write_str("there is no timestamp"),
            Self::TimestampRepeated => f.write_str("there is more than one timestamp"),
            Self::TimestampMalformed => f.write_str("the timestamp is not a time in the scheme's form"),
            Self::TimestampOutOfRange => f.write_str("the timestamp has more digits than its unit can need"),
            Self::TimestampTooOld { age_seconds, tolerance_seconds } => {
                write!(f, "the signature is right but {age_seconds} s old; {tolerance_seconds} s are allowed")
            }
            Self::TimestampInFuture { ahead_seconds, tolerance_seconds } => {
                write!(f, "the signature is right but from {ahead_seconds} s in the future; {tolerance_seconds} s are allowed")
            }
            Self::HandshakeUnexpected => f.write_str("a handshake came, and the source does not wait for one"),
            Self::HandshakeMalformed { place } => write!(f, "a handshake came, and what it has at {place} does not have the form that the provider uses"),
            Self::HandshakeToken => f.write_str("a handshake came with a token that is not the configured one"),
            Self::HandshakeSecret => f.write_str("a handshake came with a secret that cannot be used"),
        }
    }
}
