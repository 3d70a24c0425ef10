//! What a sender is told, and what an operator is told of it.

use std::time::Duration;

use flow::accept::AcceptError;
use http::StatusCode;
use signing::Rejected;

use crate::sources::SourceError;

/// What a sender is told. A 2xx says that the event is in the table; a 5xx asks to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is in the table.
    Accepted,
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
    /// The HTTP status.
    pub const fn status(self) -> StatusCode {
        match self {
            Self::Accepted => StatusCode::OK,
            Self::Malformed => StatusCode::BAD_REQUEST,
            Self::Untrusted => StatusCode::UNAUTHORIZED,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Broken => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// When to try again. A minute: shorter than any provider's patience, longer than a throttle.
    pub fn retry_after(self) -> Option<Duration> {
        (self == Self::Unavailable).then_some(Duration::from_secs(60))
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
            Self::Untrusted(_) => Answer::Untrusted,
            Self::Late => Answer::Unavailable,
            Self::Source(error) if error.is_transient() => Answer::Unavailable,
            Self::NotStored(error) if error.is_transient() => Answer::Unavailable,
            Self::Source(_) | Self::NotStored(_) => Answer::Broken,
        }
    }

    /// A stable word for logs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoSource => "no_source",
            Self::BadBase64 => "bad_base64",
            Self::TooLarge(_) => "too_large",
            Self::Untrusted(rejected) => rejected.reason().code(),
            Self::Source(_) => "source_unavailable",
            Self::NotStored(_) => "not_stored",
            Self::Late => "late",
        }
    }
}
