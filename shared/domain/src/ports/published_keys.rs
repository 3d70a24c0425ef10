//! Keys that providers publish, and what is owed to providers because a request asked for it. Ingress never calls out:
//! it writes down what it wants, and the sweeper fetches it.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::Stored;
use crate::id::SourceName;

/// How long a published key is believed without asking again: a provider that withdraws a key is heeded after this.
pub const KEY_LIFE: SignedDuration = SignedDuration::from_hours(7 * 24);

/// Most things of one source that are owed at a time. Strangers can name keys that do not exist; above this, what is
/// wanted is not noted, and the provider's next try asks again.
pub const MAX_OWED: usize = 20;

/// Most of them that are keys: the rest is for confirmations, which are owed only after a right signature, so that
/// strangers cannot take their places.
pub const MAX_KEYS_OWED: usize = 15;

/// The keys that providers publish, and the confirmations that are owed to them.
pub trait PublishedKeys: Sync {
    /// The keys of a source that were fetched, also those older than [`KEY_LIFE`].
    fn published(
        &self,
        source: &SourceName,
    ) -> impl Future<Output = Stored<Vec<PublishedKey>>> + Send;

    /// Asks for something. `true`: it is owed now, or was already. `false`: [`MAX_OWED`] other things are, or
    /// [`MAX_KEYS_OWED`] other keys.
    fn want(
        &self,
        source: &SourceName,
        want: &Want,
        now: Timestamp,
    ) -> impl Future<Output = Stored<bool>> + Send;

    /// What is owed and due, longest wanted first.
    fn owed(&self, now: Timestamp, limit: usize) -> impl Future<Output = Stored<Vec<Owed>>> + Send;

    /// Something is owed no more: here is the key, or the confirmation was made (`None`).
    fn keep(
        &self,
        owed: &Owed,
        key: Option<&PublishedKey>,
    ) -> impl Future<Output = Stored<()>> + Send;

    /// It did not work; the next try is at `due_at`.
    fn put_off(
        &self,
        owed: &Owed,
        due_at: Timestamp,
        error: &str,
    ) -> impl Future<Output = Stored<()>> + Send;

    /// It is owed no more, although it was not had.
    fn give_up(&self, owed: &Owed) -> impl Future<Output = Stored<()>> + Send;
}

/// A key as its provider published it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedKey {
    /// Its id, as requests name it.
    pub id: String,
    /// The key, as `signing` read it from the provider's answer.
    pub text: String,
    /// When it was fetched.
    pub fetched_at: Timestamp,
}

/// What ingress asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Want {
    /// The key with this id.
    Key(String),
    /// A visit to this address, which confirms a subscription.
    Confirm(String),
}

/// Something that is owed to, or wanted from, a provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owed {
    /// For which source.
    pub source: SourceName,
    /// What.
    pub want: Want,
    /// Since when.
    pub since: Timestamp,
    /// How often it was tried.
    pub attempts: u32,
    /// When it is tried next.
    pub due_at: Timestamp,
    /// What went wrong last.
    pub last_error: Option<String>,
}

impl Owed {
    /// Something that is wanted from now on.
    pub fn new(source: SourceName, want: Want, now: Timestamp) -> Self {
        Self { source, want, since: now, attempts: 0, due_at: now, last_error: None }
    }
}

/// The list of what is owed for one source, with one thing more. `None`: it stays as it is; see [`is_owed`].
pub fn with_want(
    mut list: Vec<Owed>,
    source: &SourceName,
    want: &Want,
    now: Timestamp,
) -> Option<Vec<Owed>> {
    let is_key = |want: &Want| matches!(want, Want::Key(_));
    let keys = list.iter().filter(|owed| is_key(&owed.want)).count();
    let is_full = list.len() >= MAX_OWED || (is_key(want) && keys >= MAX_KEYS_OWED);
    if is_full || is_owed(&list, want) {
        return None;
    }
    list.push(Owed::new(source.clone(), want.clone(), now));
    Some(list)
}

/// Whether something is in the list.
pub fn is_owed(list: &[Owed], want: &Want) -> bool {
    list.iter().any(|owed| owed.want == *want)
}

/// The list with one thing tried once more, in vain. `None`: it is not owed any more.
pub fn with_put_off(
    mut list: Vec<Owed>,
    want: &Want,
    due_at: Timestamp,
    error: &str,
) -> Option<Vec<Owed>> {
    let owed = list.iter_mut().find(|owed| owed.want == *want)?;
    owed.attempts = owed.attempts.saturating_add(1);
    owed.due_at = due_at;
    owed.last_error = Some(error.chars().take(crate::inbox::MAX_ERROR).collect());
    Some(list)
}

/// The list without one thing. `None`: it is not in it.
pub fn without(mut list: Vec<Owed>, want: &Want) -> Option<Vec<Owed>> {
    let before = list.len();
    list.retain(|owed| owed.want != *want);
    (list.len() < before).then_some(list)
}

/// What is due, longest wanted first.
pub fn due(mut all: Vec<Owed>, now: Timestamp, limit: usize) -> Vec<Owed> {
    all.retain(|owed| owed.due_at <= now);
    all.sort_by(|a, b| (a.since, &a.source).cmp(&(b.since, &b.source)));
    all.truncate(limit);
    all
}
