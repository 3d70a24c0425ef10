//! The ports of [`domain::ports`] in DynamoDB, and the only crate that sees its SDK.
//!
//! Policy does not live here: no limit, no wait, no clock, no random number. A method is one call, or a few whose order
//! makes every crash between them harmless; each says which refusal of the store is an outcome. Nothing but a failed
//! condition on the row itself is ever taken for "it was there before".
//!
//! Reading order: `keys` spells every key; `item` and `expression` are how items are read and how writes are worded;
//! `table` makes the calls and `error` names their failures; `items` has one reader and one writer for each kind of item;
//! then one file for each port: [`InboxTable`] (inbox, due inbox, walk), [`StateTable`] (state, commit, watch, provider
//! keys), [`OutboxTable`], [`DeliveriesTable`] (fan-out, lanes, deliveries), [`RegistryTable`] (registry, configure, bulk, of which
//! `book` is what all of it has in common). `redelivery` is a port of three of them.
//!
//! Times in items are epoch milliseconds; `expires_at`, which the store itself reads, is epoch seconds. Only what is
//! finished carries it, and code compares it instead of trusting that the store has deleted in time.
//!
//! The client comes configured. Give it time-outs below the function's own, and few retries: every write here may be
//! repeated by the SDK after its answer was lost.

mod beside;
mod book;
mod bulk;
mod commit;
mod configure;
mod deliveries;
mod due_inbox;
mod error;
mod expression;
mod fanout;
mod inbox;
mod item;
mod items;
mod keys;
mod lanes;
mod outbox;
mod published_keys;
mod redelivery;
mod registry;
mod state;
mod table;
mod turns;
mod walk;
mod watch;

/// The SDK's client, which only the wiring makes.
pub use aws_sdk_dynamodb::Client;

pub use crate::{
    commit::Commits, fanout::DeliveriesTable, inbox::InboxTable, items::outgoing::from_stream,
    keys::TENANT_SHARDS, outbox::OutboxTable, outbox::in_transaction, registry::RegistryTable,
    state::StateTable,
};
