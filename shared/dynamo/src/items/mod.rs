//! One reader and one writer for each kind of item. Each kind has a snapshot: a changed snapshot is a question about
//! the rows that are already there.

pub(crate) mod bulk;
pub(crate) mod delivery;
pub(crate) mod event;
pub(crate) mod health;
pub(crate) mod lane;
pub(crate) mod object;
pub(crate) mod outgoing;
pub(crate) mod published;
pub(crate) mod redelivery;
pub(crate) mod registry;
pub(crate) mod version;
pub(crate) mod watched;
