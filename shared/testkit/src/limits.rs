//! The limits that the suites of the worker go by.

use std::time::Duration;

use domain::{inbox::Limits, retry::Backoff};

/// The worker's limits: the template's defaults.
pub const LIMITS: Limits = Limits {
    attempts: 12,
    backoff: Backoff {
        floor: Duration::ZERO,
        base: Duration::from_secs(10),
        cap: Duration::from_secs(900),
    },
    visibility: Duration::from_secs(180),
    horizon: Duration::from_secs(86_400),
    wait_margin: Duration::from_secs(60),
    pause_wait: Duration::from_secs(6 * 3600),
    redrive_margin: Duration::from_secs(120),
    retention: Duration::from_secs(35 * 86_400),
};
