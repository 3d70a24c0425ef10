//! How processes end, and who hears what of it.

use std::{io, process::ExitStatus, time::Duration};

use tokio::time::Instant;

use super::{
    Pool,
    state::{EndedBy, State, Trouble},
};
use crate::compute::{
    function::{Cause, Failure, Outcome, Spec},
    log::Tail,
};

/// The first wait after a process that did not come up; it doubles up to the second.
const INIT_BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));

/// How a process came to its end.
#[derive(Debug)]
pub(crate) enum Ending {
    NotStarted(io::Error),
    Exited(io::Result<ExitStatus>),
}

impl Pool {
    /// Whether the process has used up its time, and so has to be killed.
    pub(crate) fn overdue(&self, process: &str) -> bool {
        let mut state = self.state();
        let Some(entry) = state.processes.get_mut(process) else { return true };
        if !entry.ready {
            entry.end = Some(EndedBy::InitTimeout);
            return true;
        }
        let Some(current) = entry.current.take_if(|current| current.until <= Instant::now()) else {
            return false;
        };
        let message = format!(
            "RequestId: {} Error: Task timed out after {:.2} seconds",
            current.request,
            self.0.spec.timeout.as_secs_f64()
        );
        entry.end = Some(EndedBy::Order);
        self.0.log.line(format!("{{\"host\":\"killed: {message}\"}}").as_bytes());
        current.end(Outcome::Failed(Failure::new(Cause::TimedOut, "Sandbox.Timedout", message)));
        true
    }

    pub(crate) fn ended(&self, process: &str, ending: &Ending) {
        let mut state = self.state();
        state.parked.retain(|parked| parked.process != process);
        let Some(entry) = state.processes.remove(process) else { return };
        let how = match ending {
            Ending::NotStarted(error) => format!("could not be started: {error}"),
            Ending::Exited(Ok(status)) => format!("exited with {status}"),
            Ending::Exited(Err(error)) => format!("was lost: {error}"),
        };
        if let Some(current) = entry.current {
            let message = format!(
                "RequestId: {} Error: Runtime {how}{}",
                current.request,
                self.last_lines(&entry.tail)
            );
            current.end(Outcome::Failed(Failure::new(Cause::Died, "Runtime.ExitError", message)));
        } else if !entry.ready && entry.end != Some(EndedBy::Order) && !state.closed {
            let failure = self.why_not_up(&how, entry.said, entry.end, &entry.tail);
            self.trouble(&mut state, &failure);
        }
        self.dispatch(&mut state);
        self.0.changed.notify_waiters();
    }

    fn why_not_up(
        &self,
        how: &str,
        said: Option<Failure>,
        end: Option<EndedBy>,
        tail: &Tail,
    ) -> Failure {
        let Spec { logical_id, init_timeout, .. } = &self.0.spec;
        let lines = self.last_lines(tail);
        match (said, end) {
            (Some(said), _) => Failure {
                message: format!("{logical_id} cannot start: {}{lines}", said.message),
                ..said
            },
            (None, Some(EndedBy::InitTimeout)) => {
                let message = format!(
                    "{logical_id} did not ask for its first event within {} s{lines}",
                    init_timeout.as_secs_f32()
                );
                Failure::new(Cause::Init, "Sandbox.InitTimedout", message)
            }
            (None, _) => {
                let message =
                    format!("{logical_id} {how} before it asked for its first event{lines}");
                Failure::new(Cause::Init, "Runtime.ExitError", message)
            }
        }
    }

    fn last_lines(&self, tail: &Tail) -> String {
        match tail.text() {
            text if text.is_empty() => {
                format!("\nit wrote nothing to its log ({})", self.0.spec.log.display())
            }
            text => format!("\nlast lines of its log ({}):\n{text}", self.0.spec.log.display()),
        }
    }

    /// Tells everybody who waits, unless another process is up and will come round to them.
    fn trouble(&self, state: &mut State, failure: &Failure) {
        tracing::error!(function = self.0.spec.logical_id, "{failure}");
        let wait = state
            .trouble
            .as_ref()
            .map_or(INIT_BACKOFF.0, |last| (last.wait * 2).min(INIT_BACKOFF.1));
        state.trouble =
            Some(Trouble { failure: failure.clone(), wait, until: Instant::now() + wait });
        if !state.processes.values().any(|entry| entry.ready) {
            state.refuse_waiting(failure);
        }
    }
}
