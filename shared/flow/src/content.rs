//! What a row's event says: its body, read back, checked against its hash, and decoded.

use domain::{
    inbox::NewRow,
    ports::{Bodies, Inbox, Stored},
};

use crate::{
    body::{self, Opened},
    encoding::{self, NotDecoded},
};

/// The header that says how a body is encoded.
pub(crate) const ENCODING: &str = "content-encoding";

/// The bytes that an event of the inbox means. They can only be made of a row's own body, so whatever follows from them
/// was vouched for as the row was.
///
/// ```compile_fail
/// let forged = flow::content::Content { bytes: todo!() }; // private fields
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    bytes: Vec<u8>,
}

/// Why a row's event cannot be read. Trying again would not help.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// The body is not where it should be.
    #[error("the event's body is gone from its place; fetch the event from the provider again")]
    Missing,
    /// The body is not what was signed.
    #[error(
        "the stored body is not the one that was signed; fetch the event from the provider again"
    )]
    Corrupt,
    /// More than is ever read.
    #[error("the stored body exceeds the size limit")]
    TooLarge,
    /// The body cannot be decoded.
    #[error(transparent)]
    Encoded(#[from] NotDecoded),
}

impl Unreadable {
    /// The reason in one stable word.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Missing => "payload_missing",
            Self::Corrupt => "payload_corrupt",
            Self::TooLarge => "payload_too_large",
            Self::Encoded(NotDecoded::TooLarge) => "decompressed_too_large",
            Self::Encoded(NotDecoded::Corrupt(_)) => "encoding_corrupt",
            Self::Encoded(NotDecoded::Unknown(_)) => "encoding_unknown",
        }
    }
}

impl Content {
    /// Reads what a row's event says. In memory at once are at most the body as it is kept, as it was signed, and as it
    /// is read: each is dropped when the next is there.
    ///
    /// # Errors
    /// When the store cannot be had. What is wrong with the bytes is an outcome.
    pub async fn of<I: Inbox, B: Bodies>(
        row: &NewRow,
        inbox: &I,
        bodies: &B,
    ) -> Stored<Result<Self, Unreadable>> {
        Ok(match body::open(row, inbox, bodies).await? {
            Opened::Bytes(bytes) => Self::decoded(row, bytes).map_err(Unreadable::Encoded),
            Opened::Missing => Err(Unreadable::Missing),
            Opened::Corrupt => Err(Unreadable::Corrupt),
            Opened::TooLarge => Err(Unreadable::TooLarge),
        })
    }

    fn decoded(row: &NewRow, signed: Vec<u8>) -> Result<Self, NotDecoded> {
        let encoding = row.headers.get(ENCODING).map(String::as_str);
        let inflated = match encoding::decode(encoding, &signed)? {
            std::borrow::Cow::Borrowed(_) => None,
            std::borrow::Cow::Owned(inflated) => Some(inflated),
        };
        Ok(Self { bytes: inflated.unwrap_or(signed) })
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}
