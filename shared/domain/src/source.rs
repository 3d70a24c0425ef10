//! A source: one configured inbound feed of a provider.

use std::collections::BTreeMap;

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
    /// What makes two of its events one.
    #[serde(default, skip_serializing_if = "Dedupe::is_id")]
    pub dedupe: Dedupe,
    /// Its events are filed under this other source: the provider sends each of them to both, and one is enough. They
    /// are verified with this source's own secrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same_as: Option<SourceName>,
    /// Until then, a handshake may bring the secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub awaits_secret_until: Option<Timestamp>,
    /// What `{config:..}` stands for in its scheme, beside what the scheme says itself: the address as the provider
    /// knows it, the id of the account.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub config: BTreeMap<String, String>,
}

impl Source {
    /// A source without anything out of the ordinary.
    pub fn new(
        name: SourceName,
        scheme: SchemeChoice,
        handler: Handler,
        created_at: Timestamp,
    ) -> Self {
        Self {
            name,
            scheme,
            handler,
            created_at,
            dedupe: Dedupe::default(),
            same_as: None,
            awaits_secret_until: None,
            config: BTreeMap::new(),
        }
    }

    /// The source under whose name its events are filed.
    pub fn filed_under(&self) -> &SourceName {
        self.same_as.as_ref().unwrap_or(&self.name)
    }
}

/// What makes two events of a source one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dedupe {
    /// The provider's id.
    #[default]
    Id,
    /// The hash of what the provider signed. For providers that do not sign the id: whoever has seen one request could
    /// send it again under ever new ids. The id is kept for correlation.
    Content,
}

impl Dedupe {
    fn is_id(&self) -> bool {
        *self == Self::Id
    }
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
