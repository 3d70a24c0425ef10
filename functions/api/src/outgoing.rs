//! Outgoing events: published, shown with their deliveries, delivered again.

mod publish;
mod story;
mod wanted;

pub use self::{
    publish::{MAX_BODY, MAX_EVENTS, PublishedEvent, publish},
    story::{DeliveryStory, OutgoingStory, Redelivery, redeliver, story},
};
pub(crate) use self::{
    publish::{idempotency_key, put},
    story::tell,
    wanted::NewEvent,
};
