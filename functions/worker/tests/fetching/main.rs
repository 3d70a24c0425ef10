//! Events of a source whose provider is asked, over the tables in memory and a provider's API over TLS on this machine.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a suite may fail where it stands"
)]
#![expect(clippy::disallowed_methods, reason = "the provider works beside the test")]

mod answers;
mod leases;
mod provider;
mod states;
mod tokens;
mod world;
