//! What the suites in `tests/` run on: the real binaries on the local host, and somebody at both ends.
//!
//! A [`host::Host`] is a `postern-local` of its own with the `test` environment, its state in a temporary folder. A
//! [`provider::Provider`] signs and sends as Stripe, GitHub, Shopify or anybody does; a [`subscriber::Subscriber`] is an
//! https server that answers as it is told and remembers what it got. Nothing here waits for a fixed time: tests ask
//! until what they wait for is true, or [`PATIENCE`] is over.
//!
//! It must never: reach anything but loopback, use a fixed port, or outlive its test.
//!
//! Reading order: [`host`], [`provider`], [`subscriber`]; [`api`], [`control`] and [`aws`] ask the running host.

pub mod api;
pub mod aws;
pub mod binaries;
pub mod certificate;
pub mod client;
pub mod control;
pub mod host;
mod leftovers;
pub mod provider;
pub mod seed;
pub mod shop;
pub mod stage;
pub mod subscriber;

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use jiff::Timestamp;

/// How long a test waits for what must happen. Far longer than it takes, so that a busy machine does not fail a test.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// How often it is asked whether it has happened.
const PAUSE: Duration = Duration::from_millis(25);

/// Asks until the answer is there; an answer of `Err` is asked again too. The last refusal is in the error.
///
/// # Errors
/// [`PATIENCE`] is over.
pub async fn eventually<T>(what: &str, ask: impl AsyncFnMut() -> Result<T>) -> Result<T> {
    eventually_within(PATIENCE, what, ask).await
}

/// [`eventually`], with another patience.
///
/// # Errors
/// `patience` is over.
pub async fn eventually_within<T>(
    patience: Duration,
    what: &str,
    mut ask: impl AsyncFnMut() -> Result<T>,
) -> Result<T> {
    let began = Instant::now();
    loop {
        match ask().await {
            Ok(answer) => return Ok(answer),
            Err(why) if began.elapsed() >= patience => {
                return Err(anyhow!("after {} s still not: {what}: {why:#}", patience.as_secs()));
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// The present.
#[expect(
    clippy::disallowed_methods,
    reason = "the suites are an edge: they play provider and subscriber"
)]
pub fn now() -> Timestamp {
    Timestamp::now()
}

/// The root of the workspace.
pub fn root() -> &'static std::path::Path {
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
}

/// A variable of the environment that steers a suite.
#[expect(
    clippy::disallowed_methods,
    reason = "the suites are an edge: this is how people steer them"
)]
pub fn setting(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
