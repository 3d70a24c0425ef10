//! The secrets of sources: read by whoever verifies, set by `api`, or brought by a handshake.

use jiff::Timestamp;

use super::{Registry, Stored};
use crate::{body::Sha256Hash, id::SourceName, secret::SecretText};

/// A secret of a source, as its provider gave it.
#[derive(Clone, Debug)]
pub struct SourceSecret {
    /// Its id, for people.
    pub id: String,
    /// The secret.
    pub text: SecretText,
    /// When it stops being accepted.
    pub expires_at: Option<Timestamp>,
}

/// Secrets of sources.
pub trait SourceSecrets: Sync {
    /// All secrets of a source; empty if it has none.
    fn of(&self, source: &SourceName) -> impl Future<Output = Stored<Vec<SourceSecret>>> + Send;
}

/// What became of a change of a source's secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    /// It is so now.
    Yes,
    /// No secret has that id.
    NoSuchId,
    /// Another secret has that id.
    IdTaken,
}

/// Setting the secrets of sources; done by `api`, and by `ingress` with what a handshake brings.
///
/// A change is a read and a write, and the store of secrets knows no conditions: of two changes of one source at once the
/// later one stands, and the earlier one is lost as if it had never been made. A person sees the list that came of a
/// change; a handshake is made only while its source waits, and a provider that is not heeded makes another.
pub trait SetSourceSecrets: SourceSecrets {
    /// Creates the secrets of a source that has none. `false`: it has some, and they stay.
    fn create(
        &self,
        source: &SourceName,
        secrets: &[SourceSecret],
    ) -> impl Future<Output = Stored<bool>> + Send;

    /// Adds a secret, also to a source that has none. The others end at `others_end` at the latest; `None`: they stay as
    /// they are. The same secret under the same id is [`Changed::Yes`]: the answer to the first try was lost.
    fn add(
        &self,
        source: &SourceName,
        secret: &SourceSecret,
        others_end: Option<Timestamp>,
    ) -> impl Future<Output = Stored<Changed>> + Send;

    /// Removes a secret. Whether it was the last one is for the caller to have asked.
    fn remove(&self, source: &SourceName, id: &str)
    -> impl Future<Output = Stored<Changed>> + Send;

    /// Sets when a secret ends; `None`: it does not.
    fn expire(
        &self,
        source: &SourceName,
        id: &str,
        at: Option<Timestamp>,
    ) -> impl Future<Output = Stored<Changed>> + Send;
}

/// Which source waits for a secret that a handshake brings.
pub trait Learning: Registry {
    /// Claims a source that still waits at `now`, until `until`. `false`: it does not wait, or somebody else's claim has
    /// not ended. A claim that ends by itself is what keeps a death between the claim and the secret from locking the
    /// source for ever.
    fn claim_secret(
        &self,
        source: &SourceName,
        owner: &str,
        now: Timestamp,
        until: Timestamp,
    ) -> impl Future<Output = Stored<bool>> + Send;

    /// The source waits no more: its secret is stored. `false`: the claim is somebody else's.
    fn learned(
        &self,
        source: &SourceName,
        owner: &str,
    ) -> impl Future<Output = Stored<bool>> + Send;
}

/// A list of secrets with one added.
///
/// Pure, so that every store of secrets changes the list alike.
pub fn with_added(
    mut secrets: Vec<SourceSecret>,
    secret: &SourceSecret,
    others_end: Option<Timestamp>,
) -> (Changed, Vec<SourceSecret>) {
    if let Some(same) = secrets.iter().find(|other| other.id == secret.id) {
        let hash = |secret: &SourceSecret| Sha256Hash::of(secret.text.expose().as_bytes());
        let same = hash(same) == hash(secret);
        return (if same { Changed::Yes } else { Changed::IdTaken }, secrets);
    }
    if let Some(end) = others_end {
        for other in &mut secrets {
            other.expires_at = Some(other.expires_at.map_or(end, |earlier| earlier.min(end)));
        }
    }
    secrets.insert(0, secret.clone());
    (Changed::Yes, secrets)
}

/// A list of secrets without one.
pub fn with_removed(mut secrets: Vec<SourceSecret>, id: &str) -> (Changed, Vec<SourceSecret>) {
    let before = secrets.len();
    secrets.retain(|secret| secret.id != id);
    let changed = if secrets.len() < before { Changed::Yes } else { Changed::NoSuchId };
    (changed, secrets)
}

/// A list of secrets of which one ends at another time.
pub fn with_expiry(
    mut secrets: Vec<SourceSecret>,
    id: &str,
    at: Option<Timestamp>,
) -> (Changed, Vec<SourceSecret>) {
    match secrets.iter_mut().find(|secret| secret.id == id) {
        Some(secret) => {
            secret.expires_at = at;
            (Changed::Yes, secrets)
        }
        None => (Changed::NoSuchId, secrets),
    }
}
