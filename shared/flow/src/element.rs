//! The events of one request that carries several, as events of their own.

use std::collections::{BTreeMap, btree_map::Entry};

use domain::{
    id::InboxKey,
    inbox::{NewRow, Row},
};
use jiff::Timestamp;
use signing::{Identity, NotABatch, Scheme};

use crate::{
    content::{Content, ENCODING},
    incoming::Incoming,
};

/// What an event takes from the row of its request.
#[derive(Clone, Debug)]
pub(crate) struct Child {
    pub(crate) key: InboxKey,
    /// The request's id.
    pub(crate) parent: String,
    /// When the request came.
    pub(crate) received_at: Timestamp,
    /// When somebody last asked for the request: the provider or a person.
    pub(crate) asked_at: Timestamp,
}

/// The events of a request.
#[derive(Debug)]
pub struct Elements<'a> {
    /// Those that have names of their own, in their order.
    pub events: Vec<Incoming<'a>>,
    /// How many repeat an earlier one, name and bytes.
    pub repeated: usize,
    /// How many have the name of an earlier one and other bytes. The first one stands, whoever splits the request; the
    /// others are in the request's body only.
    pub conflicting: usize,
}

/// Takes a request apart. `content` is what `parent` says; its events were vouched for when it was.
///
/// # Errors
/// The content is not what the scheme says.
pub fn elements<'a>(
    parent: &Row,
    content: &'a Content,
    scheme: &Scheme,
) -> Result<Elements<'a>, NotABatch> {
    let all = signing::elements(scheme, content.bytes())?;
    let (mut first, mut events) = (BTreeMap::new(), Vec::with_capacity(all.len()));
    let (mut repeated, mut conflicting) = (0, 0);
    for (index, element) in all.into_iter().enumerate() {
        match first.entry(key(&parent.new.key, &element.identity, index)) {
            Entry::Occupied(known) if *known.get() == element.body => repeated += 1,
            Entry::Occupied(_) => conflicting += 1,
            Entry::Vacant(new) => {
                let key = new.key().clone();
                new.insert(element.body);
                events.push(event(parent, key, element.body, element.identity));
            }
        }
    }
    Ok(Elements { events, repeated, conflicting })
}

fn key(parent: &InboxKey, identity: &Identity, index: usize) -> InboxKey {
    let own = identity.id.as_deref();
    let own = own.and_then(|id| InboxKey::new(parent.source().clone(), id).ok());
    // One that calls itself what its request is called would be taken for its request, and lost.
    own.filter(|key| key != parent).unwrap_or_else(|| InboxKey::of_element(parent, index))
}

fn event<'a>(row: &Row, key: InboxKey, body: &'a [u8], mut identity: Identity) -> Incoming<'a> {
    let NewRow { key: parent, event_type, headers, key_id, .. } = &row.new;
    // What a header said of the whole request holds for each of its events.
    identity.event_type = identity.event_type.or_else(|| event_type.clone());
    identity.delivery = identity.delivery.or_else(|| row.new.delivery_id.clone());
    let mut headers = headers.clone();
    // The parts of a body are cut out after it was decoded.
    headers.remove(ENCODING);
    Incoming {
        source: parent.source().clone(),
        body,
        identity,
        origin: row.new.origin,
        headers,
        key_id: key_id.clone(),
        traceparent: row.new.traceparent.clone(),
        content: None,
        is_batch: false,
        child: Some(Child {
            key,
            parent: parent.event_id().to_owned(),
            received_at: row.new.received_at,
            asked_at: row.armed_at,
        }),
    }
}

#[cfg(test)]
mod tests;
