//! What every implementation of a port must do, sentence by sentence of the port's own documentation.
//!
//! Each suite takes a way to make fresh tables and runs its rules one by one on tables of their own. A rule that fails
//! panics where it is written.
//!
//! Times are whole seconds where a table may round to them, and whole milliseconds elsewhere.

#![expect(clippy::panic, clippy::unwrap_used, reason = "a contract suite is a test")]

mod bulk;
mod deliveries;
mod due_inbox;
mod given;
mod health;
mod inbox;
mod lanes;
mod notes;
mod objects;
mod outbox;
mod pointers;
mod published_keys;
mod redelivery;
mod registry;
mod secrets;
mod state;
mod turns;
mod walk;
mod watch;

use domain::ports::{
    Bulk, Configure, Deliveries, DueInbox, Events, Fanout, Inbox, Lanes, Learning, Outbox,
    PublishedKeys, Redeliver, Redeliveries, State, StoreError, Turns, Walk, Watch,
};

pub use self::{
    bulk::bulk, deliveries::deliveries, due_inbox::due_inbox, inbox::inbox, lanes::lanes,
    outbox::outbox, published_keys::published_keys, redelivery::redelivery, registry::registry,
    secrets::secrets, state::state, turns::turns, walk::walk, watch::watch,
};
use crate::memory;

/// The tables of one deployment, whatever they are made of.
pub trait Tables: Sync {
    /// The inbox.
    fn inbox(&self) -> &(impl Inbox + DueInbox + Walk);
    /// Objects, operation keys, leases; the sources' health; what is owed to providers; turns at calling them.
    fn state(&self) -> &(impl State + Watch + PublishedKeys + Turns);
    /// Outgoing events.
    fn outbox(&self) -> &(impl Outbox + Events);
    /// Lanes and deliveries.
    fn lanes(&self) -> &(impl Fanout + Lanes + Deliveries + Redeliver);
    /// Configuration.
    fn registry(&self) -> &(impl Configure + Learning + Bulk + Redeliveries);
    /// Shards of every sharded index.
    fn shards(&self) -> u16;
}

impl Tables for memory::Store {
    fn inbox(&self) -> &(impl Inbox + DueInbox + Walk) {
        self
    }

    fn state(&self) -> &(impl State + Watch + PublishedKeys + Turns) {
        self
    }

    fn outbox(&self) -> &(impl Outbox + Events) {
        self
    }

    fn lanes(&self) -> &(impl Fanout + Lanes + Deliveries + Redeliver) {
        self
    }

    fn registry(&self) -> &(impl Configure + Learning + Bulk + Redeliveries) {
        self
    }

    fn shards(&self) -> u16 {
        self.shards
    }
}

/// What a rule ends with. A store that fails where nothing was made to fail breaks the rule.
type Kept = Result<(), StoreError>;

/// Runs each rule on fresh tables.
macro_rules! rules {
    ($fresh:ident: $($rule:path),+ $(,)?) => {$(
        if let Err(error) = Box::pin($rule(&$fresh().await)).await {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            panic!("{}: {error}: {}", stringify!($rule), cause.unwrap_or_default());
        }
    )+};
}
use rules;
