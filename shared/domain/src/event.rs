//! What a received event says about the provider's things: objects, and versions of them.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// One of a provider's things, in the words of one source.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectRef {
    /// The kind of thing, such as `invoice`.
    pub kind: String,
    /// The provider's id of it.
    pub id: String,
}

/// How new an event's knowledge of an object is. Versions of one object must be of one variant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Version {
    /// A number that the provider counts up.
    Number(u64),
    /// The time of the change.
    Time(Timestamp),
    /// A text that sorts.
    Text(String),
}

/// The latest known state of an object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Object {
    /// Its version.
    pub version: Version,
    /// Decides between two different contents with the same version, so that every order of arrival ends alike: the
    /// SHA-256 of the content, in hexadecimal.
    pub tie: String,
    /// What is known of it.
    pub fields: serde_json::Value,
    /// Whether the provider deleted it. The row stays, so that a late update does not revive the thing.
    pub deleted: bool,
    /// When we last changed it.
    pub updated_at: Timestamp,
}

/// Where an event in the inbox came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The provider called us.
    Webhook,
    /// We asked the provider.
    Reconcile,
    /// A person asked for it again.
    Replay,
}
