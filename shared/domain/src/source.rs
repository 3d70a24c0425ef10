//! A source: one configured inbound feed of a provider.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::id::{SourceName, TenantId};

/// The configuration of a source, as it stands in the registry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// Its name, which is in its URL.
    pub name: SourceName,
    /// How requests are verified and read: the name of a shipped scheme, or a scheme of the user's own.
    pub scheme: SchemeChoice,
    /// What is done with its events.
    pub handler: Handler,
    /// When it was made.
    pub created_at: Timestamp,
}

/// How a source names its scheme.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SchemeChoice {
    /// A scheme that ships with the product.
    Preset(String),
    /// A scheme as data, in JSON.
    Own(serde_json::Value),
}

/// What is done with a source's events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Handler {
    /// Objects follow the provider.
    Mirror {
        /// Also tell this tenant's endpoints when an object changes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        emit_to: Option<TenantId>,
    },
    /// Events go out to a tenant's endpoints as they came.
    Forward {
        /// Whose endpoints.
        tenant: TenantId,
        /// Which event types; see [`crate::endpoint::Pattern`]. Empty: all.
        #[serde(default)]
        types: Vec<crate::endpoint::Pattern>,
    },
}
