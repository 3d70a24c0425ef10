//! What others see of a pool.

use serde::Serialize;

use super::{Pool, state::Entry};

/// One line of `/_local/processes`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Seen {
    /// The function's logical id.
    pub function: String,
    /// The process number.
    pub pid: Option<u32>,
    /// `starting`, `idle` or `busy`.
    pub state: &'static str,
    /// The invocation it works on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
}

/// How much a pool has to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Load {
    /// Invocations that wait for a process.
    pub waiting: usize,
    /// Invocations that a process works on.
    pub running: usize,
    /// Invocations ever, also those that are over.
    pub begun: u64,
}

impl Pool {
    /// The processes alive.
    #[must_use]
    pub fn processes(&self) -> Vec<Seen> {
        let seen = |entry: &Entry| Seen {
            function: self.0.spec.logical_id.clone(),
            pid: entry.pid,
            state: match (&entry.current, entry.ready) {
                (Some(_), _) => "busy",
                (None, true) => "idle",
                (None, false) => "starting",
            },
            request: entry.current.as_ref().map(|current| current.request.clone()),
        };
        self.state().processes.values().map(seen).collect()
    }

    /// How much there is to do.
    #[must_use]
    pub fn load(&self) -> Load {
        let state = self.state();
        Load {
            waiting: state.queue.len(),
            running: state.processes.values().filter(|entry| entry.current.is_some()).count(),
            begun: state.begun,
        }
    }
}
