//! Putting an event into the inbox, and telling the worker.
//!
//! Two halves. [`Door::put`] decides the answer: when it says yes, the row is in the table, and something will find it
//! there. [`Door::announce`] only makes it fast: when it fails, the sweeper finds the row at its due time.

use std::{io, time::Duration};

use domain::{
    body::{Place, Sha256Hash, StoredBody},
    event::{ObjectRef, Origin, Version},
    id::{InboxKey, MAX_PROVIDER_ID},
    inbox::{Accepted, NewRow, Noted, OtherBody, Status},
    message::InboundMessage,
    ports::{Bodies, Inbox, Queue, StoreError, Stored, may_rearm},
};
use jiff::Timestamp;

use crate::{
    body::{self, MAX_BODY},
    incoming::Incoming,
};

/// Where events come in.
#[derive(Debug)]
pub struct Door<'a, I, Q, B> {
    /// Where they are put.
    pub inbox: &'a I,
    /// Where the worker hears of them.
    pub queue: &'a Q,
    /// Where large bodies go.
    pub bodies: &'a B,
    /// When the sweeper looks for an event that no message has brought to the worker.
    pub first_due: Duration,
}

/// An event that is in the inbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What it is called.
    pub key: InboxKey,
    /// The provider's word for what happened.
    pub event_type: Option<String>,
    /// Who brought it this time.
    pub origin: Origin,
    /// Whether it was there before.
    pub accepted: Accepted,
    /// The hash of the body that came this time.
    pub sha256: Sha256Hash,
    /// Its length in bytes.
    pub length: u64,
    /// Whether it had been parked, and is pending again.
    pub rearmed: bool,
    /// Whether the worker was told.
    pub enqueued: Enqueued,
}

impl Entry {
    /// What is to be noted of the body that came this time, at `now`, if another one stands under its id.
    pub fn other_body(&self, now: Timestamp) -> Option<OtherBody> {
        let is_other = matches!(self.accepted, Accepted::Duplicate { same_body: false, .. });
        is_other.then_some(OtherBody { sha256: self.sha256, length: self.length, at: now })
    }
}

/// Whether the worker was told of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enqueued {
    /// It has to be, by [`Door::announce`].
    NotYet,
    /// It was.
    Sent,
    /// It was not, as far as we know; the sweeper will.
    Failed,
    /// Nothing is owed.
    NotNeeded,
}

/// Why an event is not in the inbox, as far as we know.
#[derive(Debug, thiserror::Error)]
pub enum AcceptError {
    /// Larger than what can be read back.
    #[error("the body has {0} bytes, and {MAX_BODY} is the most")]
    TooLarge(usize),
    /// No memory to compress it.
    #[error("the body could not be compressed")]
    Compress(#[source] io::Error),
    /// The body could not be put where it belongs. There is no row yet.
    #[error("the body could not be stored")]
    Body(#[source] StoreError),
    /// The row could not be put. It may be there all the same.
    #[error("the row could not be stored")]
    Row(#[source] StoreError),
    /// The row is there, parked, and could not be made pending again. The provider may send it once more.
    #[error("the parked row could not be re-armed")]
    Rearm(#[source] StoreError),
}

impl AcceptError {
    /// Whether the same event may be accepted later.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::TooLarge(_) | Self::Compress(_) => false,
            Self::Body(cause) | Self::Row(cause) | Self::Rearm(cause) => cause.is_transient(),
        }
    }
}

impl<I: Inbox, Q: Queue<InboundMessage>, B: Bodies> Door<'_, I, Q, B> {
    /// Puts an event into the inbox, and tells the worker. `token` tells this try apart from every other.
    ///
    /// # Errors
    /// See [`Door::put`].
    pub async fn accept(
        &self,
        incoming: Incoming<'_>,
        token: String,
        now: Timestamp,
    ) -> Result<Entry, AcceptError> {
        let mut entry = self.put(incoming, token, now).await?;
        self.announce(&mut entry).await;
        Ok(entry)
    }

    /// Puts an event into the inbox. Its body goes first, so that no row ever points at nothing.
    ///
    /// # Errors
    /// When the row is not there, or not known to be. Nothing but a failed condition is taken for a duplicate.
    pub async fn put(
        &self,
        incoming: Incoming<'_>,
        token: String,
        now: Timestamp,
    ) -> Result<Entry, AcceptError> {
        if incoming.body.len() > MAX_BODY {
            return Err(AcceptError::TooLarge(incoming.body.len()));
        }
        let compressed = body::compress(incoming.body).map_err(AcceptError::Compress)?;
        let revival = revival(&incoming, now);
        let row = row(incoming, &compressed, token, self.due_at(now), now);
        match row.body.place {
            Place::Inline(_) => Ok(()),
            Place::Beside => self.inbox.put_beside(&row, &compressed).await,
            Place::Bucket => {
                let name = body::name(row.key.source(), row.body.sha256);
                self.bodies.put(&name, compressed).await
            }
        }
        .map_err(AcceptError::Body)?;
        let accepted = self.inbox.accept(&row).await.map_err(AcceptError::Row)?;
        let (is_owed, rearmed) = match accepted {
            // A duplicate is sent again unless it is at rest: the first try may have died between row and message.
            Accepted::New | Accepted::Duplicate { status: Status::Pending, .. } => (true, false),
            Accepted::Duplicate { status, .. } => {
                let revived = self.revive(&row.key, status, revival, now).await;
                let revived = revived.map_err(AcceptError::Rearm)?;
                (revived, revived)
            }
        };
        Ok(Entry {
            key: row.key,
            event_type: row.event_type,
            origin: row.origin,
            accepted,
            sha256: row.body.sha256,
            length: row.body.length,
            rearmed,
            enqueued: if is_owed { Enqueued::NotYet } else { Enqueued::NotNeeded },
        })
    }

    /// Makes a row that is at rest pending again, if it is to be. Whether it is owed now.
    async fn revive(
        &self,
        key: &InboxKey,
        status: Status,
        revival: Revival,
        now: Timestamp,
    ) -> Stored<bool> {
        let since = match (status, revival) {
            (Status::DeadLetter, Revival::Parked | Revival::OrProcessedBefore(_)) => {
                // Moved: somebody else re-armed it a moment ago. It is owed all the same.
                let _ = self.inbox.rearm(key, self.due_at(now), now).await?;
                return Ok(true);
            }
            (Status::DeadLetter, Revival::ParkedBefore(before))
            | (Status::Processed, Revival::OrProcessedBefore(before)) => (status, before),
            _ => return Ok(false),
        };
        // Moved: too recent, or somebody else has revived it and tells of it.
        Ok(self.inbox.revive(key, since, self.due_at(now), now).await? == Noted::Yes)
    }

    /// Tells the worker of an event, if something is owed. Failing is not an error: the row has a due time.
    pub async fn announce(&self, entry: &mut Entry) {
        self.announce_all(std::slice::from_mut(entry)).await;
    }

    /// Tells the worker of those events of which something is owed.
    pub async fn announce_all(&self, entries: &mut [Entry]) {
        let owed = entries.iter_mut().filter(|entry| entry.enqueued == Enqueued::NotYet);
        let owed: Vec<&mut Entry> = owed.collect();
        if owed.is_empty() {
            return;
        }
        let messages: Vec<_> = owed.iter().map(|entry| InboundMessage(entry.key.clone())).collect();
        let lost = self.queue.send(&messages, Duration::ZERO).await;
        for (position, entry) in owed.into_iter().enumerate() {
            let is_lost = lost.contains(&position);
            entry.enqueued = if is_lost { Enqueued::Failed } else { Enqueued::Sent };
        }
    }

    fn due_at(&self, now: Timestamp) -> Timestamp {
        now.saturating_add(self.first_due).unwrap_or(Timestamp::MAX)
    }
}

/// Which rows at rest an event makes pending again by coming once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Revival {
    /// None.
    Nothing,
    /// Parked ones: the provider sends it again, after somebody has fixed the cause.
    Parked,
    /// Ones that were parked before somebody asked. An event of a request comes once more with every try to split the
    /// request, and a try is nobody's asking.
    ParkedBefore(Timestamp),
    /// Parked ones, and ones that were processed a while ago: whoever sends a request with several events again
    /// means those that are parked, and they are found by splitting it again.
    OrProcessedBefore(Timestamp),
}

/// How long a request with several events is not split again because it came again. Splitting looks at each of its
/// events, and a signed request can be repeated by anybody who has seen it, where the provider signs no time.
const BETWEEN_SPLITS: Duration = Duration::from_secs(60);

fn revival(incoming: &Incoming<'_>, now: Timestamp) -> Revival {
    match &incoming.child {
        _ if !may_rearm(incoming.origin) => Revival::Nothing,
        Some(child) => Revival::ParkedBefore(child.asked_at),
        None if incoming.is_batch => {
            Revival::OrProcessedBefore(now.saturating_sub(BETWEEN_SPLITS).unwrap_or(Timestamp::MIN))
        }
        None => Revival::Parked,
    }
}

/// Whether a version has no text that is longer than an id may be.
fn is_short(version: &Version) -> bool {
    match version {
        Version::Text(text) => text.len() <= MAX_PROVIDER_ID,
        Version::Composite(parts) => parts.iter().all(is_short),
        Version::Number(_) | Version::Time(_) | Version::End | Version::Reading(_) => true,
    }
}

fn row(
    incoming: Incoming<'_>,
    compressed: &[u8],
    token: String,
    due_at: Timestamp,
    now: Timestamp,
) -> NewRow {
    let sha256 = Sha256Hash::of(incoming.body);
    let key = key(&incoming, sha256);
    let mut row = NewRow {
        key,
        object: incoming
            .object()
            .map(|object| ObjectRef { kind: bounded(object.kind), id: bounded(object.id) }),
        // A hash would sort anyhow: without a version the object is not mirrored, and the event still goes out.
        version: incoming.version().filter(is_short),
        body: StoredBody { sha256, length: incoming.body.len() as u64, place: Place::Beside },
        event_type: incoming.identity.event_type.map(bounded),
        // An event of a request came with it. Ids of outgoing events follow from this time: a request that is split again
        // after its events are forgotten must not tell them under other ids.
        received_at: incoming.child.as_ref().map_or(now, |child| child.received_at),
        due_at,
        headers: incoming.headers,
        occurred_at: incoming.identity.occurred_at,
        origin: incoming.origin,
        key_id: incoming.key_id,
        token,
        traceparent: incoming.traceparent,
        // Where content is the key, the provider's id tells only one delivery from another.
        delivery_id: incoming
            .content
            .and(incoming.identity.id)
            .or(incoming.identity.delivery)
            .map(bounded),
        parent: incoming.child.map(|child| child.parent),
    };
    row.body.place = body::place(compressed, body::room(&row));
    row
}

fn key(incoming: &Incoming<'_>, sha256: Sha256Hash) -> InboxKey {
    let source = || incoming.source.clone();
    if let Some(child) = &incoming.child {
        return child.key.clone();
    }
    if let Some(content) = &incoming.content {
        return InboxKey::of_body(source(), content);
    }
    match incoming.identity.id.as_deref().map(|id| InboxKey::new(source(), id)) {
        Some(Ok(key)) => key,
        // No id, or none that can be used: every event has one that follows from what it is.
        Some(Err(_)) | None => InboxKey::of_body(source(), &sha256.0),
    }
}

/// A text of the provider as the row holds it. The store takes 400 KB a row and refuses more for ever, so a text that no
/// key would hold stands as its hash; the body still has it whole.
fn bounded(text: String) -> String {
    if text.len() <= MAX_PROVIDER_ID {
        text
    } else {
        format!("sha256:{}", Sha256Hash::of(text.as_bytes()))
    }
}

#[cfg(test)]
pub(crate) mod tests;
