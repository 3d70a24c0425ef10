//! The one place of the compute side that reads the wall clock: AWS stamps events with it.

use jiff::Timestamp;

/// Now, for time stamps in events and headers. Waits and deadlines use tokio's clock.
#[expect(
    clippy::disallowed_methods,
    reason = "the host plays the part of AWS, which stamps events with the real time"
)]
#[must_use]
pub fn now() -> Timestamp {
    Timestamp::now()
}
