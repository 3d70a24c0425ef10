//! Events to publish that EventBridge hands over.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    Api, Ports, Problem,
    outgoing::{self, NewEvent, PublishedEvent},
    problem::Findings,
};

/// The source of events on the bus that are to be published. The template's rule names it too.
///
/// What the deliverer puts on a subscriber's bus has the source `postern.<tenant>`: no tenant's name may make it this one,
/// or whoever feeds that tenant could publish for all others.
pub const SOURCE: &str = "postern/publish";

/// An event of a bus, as EventBridge shows it.
#[derive(Debug, Deserialize)]
pub struct Carried {
    /// EventBridge's id of it, the same however often it comes.
    id: String,
    source: String,
    // Only events of a bus have one.
    #[serde(rename = "detail-type")]
    _detail_type: String,
    /// An event to publish, as `POST /v1/events` takes it.
    detail: Box<RawValue>,
}

impl Carried {
    /// The event in what called this function; `None`: it is a request over HTTP.
    pub fn read(event: &RawValue) -> Option<Self> {
        serde_json::from_str(event.get()).ok()
    }
}

/// Publishes an event of a bus.
///
/// EventBridge and Lambda repeat what they are not sure of, so that its id is the idempotency key, unless the publisher
/// gave one. An event that cannot be published is an error like any other: Lambda tries it again in vain, and then puts it
/// where people look.
pub async fn publish<P: Ports>(api: &Api<P>, carried: Carried) -> Result<PublishedEvent, Problem> {
    let Carried { id, source, detail, .. } = carried;
    let mut found = Findings::default();
    if source != SOURCE {
        found.note("source", format!("the rule lets through what is of {SOURCE}"));
    }
    let event = NewEvent::read(&detail, api.limits.payload_bytes, &mut found);
    let Some(mut event) = event else { return Err(found.problem()) };
    found.done()?;
    event.idempotency_key.get_or_insert(id);
    outgoing::put(api, event, (api.edge.uuid)(), None).await
}
