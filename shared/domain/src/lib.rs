//! The words and rules of Postern, as pure values.
//!
//! Nothing here reads a clock, draws a random number, opens a connection or knows AWS: time, jitter and ids are
//! arguments, and what should be done is a value that a shell carries out.
//!
//! Reading order: [`id`], [`event`] and [`body`] say what things are called; [`inbox`] is the life of a received event,
//! and [`bulk`] how many of them are run again; [`plan`], [`states`] and [`commit`] are how it changes the world, once;
//! [`stale`] is how far that can be believed; [`outbox`], [`endpoint`], [`filter`], [`destination`], [`lane`], [`delivery`],
//! [`breaker`] and [`address`] are how that is told to others, [`redelivery`] how it is told again, and [`polling`] how
//! others fetch it; [`source`] is how events come in, and [`fetch`] how the provider
//! is asked; [`ports`] is what all of it needs from a store, a queue and a network.

pub mod address;
pub mod body;
pub mod breaker;
pub mod bulk;
pub mod commit;
pub mod delivery;
pub mod destination;
pub mod endpoint;
pub mod event;
pub mod fetch;
pub mod filter;
pub mod id;
pub mod inbox;
pub mod lane;
pub mod message;
pub mod outbox;
pub mod plan;
pub mod polling;
pub mod ports;
pub mod redelivery;
pub mod retry;
pub mod secret;
pub mod source;
pub mod stale;
pub mod states;
