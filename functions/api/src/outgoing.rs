//! Outgoing events: published, shown with their deliveries, delivered again.

mod publish;
mod story;

pub(crate) use self::{publish::idempotency_key, story::tell};
pub use self::{
    publish::{NewEvent, PublishedEvent, publish},
    story::{DeliveryStory, OutgoingStory, Redelivery, redeliver, story},
};
