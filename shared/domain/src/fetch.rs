//! What a provider says of an object when it is asked.

use jiff::Timestamp;

use crate::event::Version;

/// The current state of an object, from the provider's API.
#[derive(Clone, Debug, PartialEq)]
pub enum Fetched {
    /// It is there.
    State {
        /// What the provider says of it.
        fields: serde_json::Value,
        /// Its version, if the answer has one.
        version: Option<Version>,
        /// When the fetch began.
        as_of: Timestamp,
    },
    /// It is not there any more.
    Gone {
        /// When the fetch began.
        as_of: Timestamp,
    },
}

impl Fetched {
    /// When the fetch began: the world may have changed since, and had not changed before.
    pub const fn as_of(&self) -> Timestamp {
        match self {
            Self::State { as_of, .. } | Self::Gone { as_of } => *as_of,
        }
    }
}
