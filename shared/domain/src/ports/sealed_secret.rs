//! Secrets of endpoints, as they stand in the registry.

use jiff::Timestamp;

/// What a secret of an endpoint is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Purpose {
    /// Signing what we send.
    #[default]
    Signing,
    /// The password, token or client secret that goes with [`crate::endpoint::Auth`].
    Auth,
    /// The values of its own static headers: a JSON object of texts, at most 3,500 bytes.
    Headers,
    /// What its owner polls with.
    Polling,
}

impl Purpose {
    const WORDS: [(Self, &'static str); 4] = [
        (Self::Signing, "signing"),
        (Self::Auth, "auth"),
        (Self::Headers, "headers"),
        (Self::Polling, "polling"),
    ];

    /// Its word in the table.
    pub fn word(self) -> &'static str {
        Self::WORDS.iter().find(|(purpose, _)| *purpose == self).map_or("signing", |(_, word)| word)
    }

    /// Reads its word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::WORDS.iter().find(|(_, known)| *known == word).map(|(purpose, _)| *purpose)
    }
}

/// A secret of an endpoint, encrypted with the tenant and the endpoint as encryption context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedSecret {
    /// Its id.
    pub id: String,
    /// What it is for.
    pub purpose: Purpose,
    /// The encrypted bytes.
    pub sealed: Vec<u8>,
    /// When it stops being used; `None`: it is the current one.
    pub expires_at: Option<Timestamp>,
}
