//! What an endpoint is sent of an event, and how we show who we are.

use serde::{Deserialize, Serialize};

/// What is sent of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Style {
    /// The payload, byte for byte.
    #[default]
    Full,
    /// Ids, type, time and versions; the receiver fetches the rest.
    Thin,
    /// The payload inside a `CloudEvents` 1.0 envelope (structured mode, JSON).
    CloudEvents,
}

impl Style {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks with a reference")]
    pub(super) const fn is_full(&self) -> bool {
        matches!(self, Self::Full)
    }
}

/// How a request shows who we are, beside its signature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Auth {
    /// `Authorization: Basic`. The password is sealed.
    Basic {
        /// The user.
        user: String,
    },
    /// `Authorization: Bearer`. The token is sealed.
    Bearer,
    /// A token from the receiver's own authorization server (RFC 6749, client credentials). The client's secret is sealed.
    #[serde(rename = "oauth2")]
    OAuth2 {
        /// Where tokens are had. The same rules as for an endpoint's URL.
        token_url: String,
        /// Who we are there.
        client_id: String,
        /// What the token is for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        scope: Option<String>,
        /// Where the client's id and secret go.
        #[serde(default)]
        credentials_in: CredentialsIn,
    },
}

/// Where the client's id and secret go in a request for a token (RFC 6749, 2.3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CredentialsIn {
    /// Into `Authorization: Basic`.
    #[default]
    Header,
    /// Into the body.
    Body,
}
