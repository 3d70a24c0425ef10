//! What a sender is told, and what an operator is told of it.

use std::time::Duration;

use domain::ports::StoreError;
use flow::accept::AcceptError;
use http::StatusCode;
use signing::{Rejected, handshake::Reply, scheme::Acknowledge};

use crate::sources::SourceError;

/// What a sender is told. A 2xx of an event says that it is in the table; a 5xx asks to try again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is in the table.
    Accepted,
    /// The words that the provider waits for: of an event that is in the table, or of a handshake.
    Said(Reply),
    /// Not a request that could ever be one.
    Malformed,
    /// We do not believe who sent it.
    Untrusted,
    /// Nothing is here.
    NotFound,
    /// More bytes than we take.
    TooLarge,
    /// Trying again will not help, until somebody has looked.
    Broken,
    /// Trying again will help.
    Unavailable,
}

impl Answer {
    /// That an event is in the table, as its provider wants to hear it.
    pub fn to_event(acknowledge: &Acknowledge) -> Self {
        if *acknowledge == Acknowledge::default() {
            return Self::Accepted;
        }
        let kind = acknowledge.content_type.iter();
        Self::Said(Reply {
            status: acknowledge.status,
            headers: kind.map(|kind| ("content-type".to_owned(), kind.clone())).collect(),
            body: acknowledge.body.clone().into_bytes(),
        })
    }

    /// The HTTP status.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Accepted => StatusCode::OK,
            Self::Said(reply) => StatusCode::from_u16(reply.status).unwrap_or_default(),
            Self::Malformed => StatusCode::BAD_REQUEST,
            Self::Untrusted => StatusCode::UNAUTHORIZED,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Broken => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// When to try again. A minute: shorter than any provider's patience, longer than a throttle.
    pub fn retry_after(&self) -> Option<Duration> {
        (*self == Self::Unavailable).then_some(Duration::from_mins(1))
    }
}

/// Why a request was not accepted: for the log, never for the sender.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// No such source, or no such method.
    #[error("there is no source of this name, or it does not answer to this method")]
    NoSource,
    /// The gateway handed over something that it did not receive.
    #[error("the gateway says that the body is base64, and it is not")]
    BadBase64,
    /// Too many bytes.
    #[error("the body has {0} bytes, which is more than is taken")]
    TooLarge(usize),
    /// The signature does not prove who sent it.
    #[error("the request is not trusted: {}", .0.reason())]
    Untrusted(Rejected),
    /// The published key that the request names has not been fetched yet, or the secret that a handshake is to bring is on
    /// its way.
    #[error("a key is not there yet: {}", .0.reason())]
    KeyUnknown(Rejected),
    /// A handshake brought a secret that nobody waits for, or another one brings one at this moment.
    #[error("the source does not wait for a secret, or another handshake brings one now")]
    NotWaiting,
    /// What a handshake brought could not be stored.
    #[error("the secret that a handshake brought could not be stored")]
    Learning(#[source] StoreError),
    /// What a handshake asks for could not be written down.
    #[error("the confirmation could not be written down")]
    Owing(#[source] StoreError),
    /// So much is owed already that no more is written down.
    #[error("too many confirmations are owed already")]
    OwedTooMuch,
    /// The source could not be read.
    #[error("the source cannot be used")]
    Source(#[from] SourceError),
    /// The event could not be stored, as far as we know.
    #[error("the event could not be stored")]
    NotStored(#[from] AcceptError),
    /// The budget is used up. The event may be stored.
    #[error("the work took longer than its budget")]
    Late,
}

impl Refused {
    /// What the sender is told.
    pub fn answer(&self) -> Answer {
        match self {
            Self::NoSource => Answer::NotFound,
            Self::BadBase64 => Answer::Malformed,
            Self::TooLarge(_) => Answer::TooLarge,
            Self::Untrusted(_) | Self::NotWaiting => Answer::Untrusted,
            Self::Late | Self::KeyUnknown(_) | Self::OwedTooMuch => Answer::Unavailable,
            Self::Source(error) if error.is_transient() => Answer::Unavailable,
            Self::NotStored(error) if error.is_transient() => Answer::Unavailable,
            Self::Learning(error) | Self::Owing(error) if error.is_transient() => {
                Answer::Unavailable
            }
            Self::Source(_) | Self::NotStored(_) | Self::Learning(_) | Self::Owing(_) => {
                Answer::Broken
            }
        }
    }

    /// A stable word for logs and counts.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoSource => "no_source",
            Self::BadBase64 => "bad_base64",
            Self::TooLarge(_) => "too_large",
            Self::Untrusted(rejected) | Self::KeyUnknown(rejected) => rejected.reason().code(),
            Self::NotWaiting => "not_waiting",
            Self::Learning(_) => "not_learned",
            Self::Owing(_) | Self::OwedTooMuch => "not_owed",
            Self::Source(_) => "source_unavailable",
            Self::NotStored(_) => "not_stored",
            Self::Late => "late",
        }
    }

    /// What the source's owner should hear of it: a stable class, and advice. `None`: it is our own trouble, or nobody's.
    pub fn complaint(&self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Untrusted(rejected) | Self::KeyUnknown(rejected) => {
                Some((rejected.class().as_str(), rejected.reason().advice()))
            }
            Self::BadBase64 => {
                Some(("malformed", "Look at what stands between the gateway and us."))
            }
            Self::TooLarge(_) => {
                Some(("too_large", "Ask the provider for smaller events, or fetch them instead."))
            }
            Self::NotWaiting => Some((
                "handshake",
                "If the provider was just set up again, let the source wait for a secret, then repeat it.",
            )),
            _ => None,
        }
    }
}
