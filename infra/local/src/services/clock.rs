//! Time as the queues see it: the system's, or one that a test moves.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

/// Milliseconds since the epoch.
#[derive(Clone)]
pub struct Clock(Source);

#[derive(Clone)]
enum Source {
    System,
    Manual(Arc<AtomicI64>),
}

impl Clock {
    /// The machine's clock.
    #[must_use]
    pub fn system() -> Self {
        Self(Source::System)
    }

    /// A clock that stands still until it is moved.
    #[must_use]
    pub fn manual(start_ms: i64) -> Self {
        Self(Source::Manual(Arc::new(AtomicI64::new(start_ms))))
    }

    /// Now, in epoch milliseconds.
    #[must_use]
    #[expect(
        clippy::disallowed_methods,
        reason = "the host stands for AWS, whose clock this is; tests pass a manual one"
    )]
    pub fn now_ms(&self) -> i64 {
        match &self.0 {
            Source::System => jiff::Timestamp::now().as_millisecond(),
            Source::Manual(now) => now.load(Ordering::SeqCst),
        }
    }

    /// Moves a manual clock; the system's goes by itself.
    pub fn advance(&self, by: Duration) {
        if let Source::Manual(now) = &self.0 {
            now.fetch_add(millis(by), Ordering::SeqCst);
        }
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Clock({})", self.now_ms())
    }
}

/// A duration in milliseconds; longer than any queue keeps anything is as good as for ever.
pub(super) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX / 4)
}
