//! The processes of one function, and the invocations that wait for them.
//!
//! * [`Pool::invoke`] puts an invocation into the queue; a process that asks for its next event takes the first one.
//! * A process has one invocation at a time. There are as many processes as the function's limit allows and the queue asks for.
//! * A process that ends takes only its own invocation with it. When no process comes as far as asking for an event,
//!   everybody who waits hears why, and for a while nobody tries again: a broken binary neither hangs its callers nor spins.

use std::{
    fmt, io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use state::{Current, EndedBy, Entry, Invocation, Parked, State};
use tokio::{
    sync::{Notify, mpsc, oneshot},
    time::{Instant, timeout},
};

use super::{
    clock,
    function::{Cause, EVENT_LIMIT, Failure, Invoke, Outcome, Spec},
    log::{Log, TURN_OVER_AT, Tail},
    process,
    runtime_api::Runtime,
};

mod ending;
mod seen;
mod state;

pub(crate) use ending::Ending;
pub use seen::{Load, Seen};
pub use state::Handed;
pub(crate) use state::Order;

/// How long killed processes get to be gone.
const BURIAL: Duration = Duration::from_secs(2);

/// The processes of one function.
#[derive(Clone)]
pub struct Pool(Arc<Inner>);

struct Inner {
    spec: Spec,
    runtime: Runtime,
    log: Arc<Log>,
    state: Mutex<State>,
    changed: Notify,
}

impl Pool {
    /// A pool without processes: the first invocation starts one.
    ///
    /// # Errors
    /// When the log cannot be opened.
    pub fn new(spec: Spec, runtime: Runtime) -> io::Result<Self> {
        let log = Arc::new(Log::open(&spec.log, TURN_OVER_AT)?);
        Ok(Self(Arc::new(Inner {
            spec,
            runtime,
            log,
            state: Mutex::default(),
            changed: Notify::new(),
        })))
    }

    /// The function.
    #[must_use]
    pub fn spec(&self) -> &Spec {
        &self.0.spec
    }

    pub(crate) fn log(&self) -> &Arc<Log> {
        &self.0.log
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.0.runtime
    }

    /// Runs one event to its end. Waits while all processes that the limit allows are busy.
    ///
    /// Dropping the future does not stop an invocation that has begun: neither does a gateway that gives up.
    pub async fn invoke(&self, event: Bytes) -> Outcome {
        if event.len() > EVENT_LIMIT {
            let message = format!(
                "{} byte payload is too large for an event (limit {EVENT_LIMIT} bytes)",
                event.len()
            );
            return Outcome::Failed(Failure::new(
                Cause::Reported,
                "RequestTooLargeException",
                message,
            ));
        }
        let (answer, end) = oneshot::channel();
        if let Err(failure) =
            self.enqueue(Invocation { request: process::random_id(), event, answer })
        {
            return Outcome::Failed(failure);
        }
        end.await.unwrap_or_else(|_| Outcome::Failed(stopping()))
    }

    fn enqueue(&self, invocation: Invocation) -> Result<(), Failure> {
        let mut state = self.state();
        if state.closed {
            return Err(stopping());
        }
        state.begun += 1;
        state.queue.push_back(invocation);
        self.dispatch(&mut state);
        Ok(())
    }

    /// Waits for the next event of a process. `None`: there is no such process (any more).
    pub async fn next(&self, process: &str) -> Option<Handed> {
        let handed = {
            let mut state = self.state();
            let closed = state.closed;
            let entry = state.processes.get_mut(process)?;
            entry.ready = true;
            entry.order(Order::Until(None));
            if let Some(current) = entry.current.take() {
                let message = format!(
                    "RequestId: {} asked for the next event before it answered",
                    current.request
                );
                current.end(Outcome::Failed(Failure::new(
                    Cause::Reported,
                    "Runtime.NoResponse",
                    message,
                )));
            }
            if closed {
                entry.order(Order::Kill);
            }
            state.trouble = None;
            let (hand, handed) = oneshot::channel();
            state.parked.push(Parked { process: process.to_owned(), hand, since: Instant::now() });
            self.dispatch(&mut state);
            handed
        };
        self.0.changed.notify_waiters();
        handed.await.ok()
    }

    /// Ends an invocation. False: the process does not work on it (any more).
    pub fn complete(&self, process: &str, request: &str, outcome: Outcome) -> bool {
        let mut state = self.state();
        let closed = state.closed;
        let Some(entry) = state.processes.get_mut(process) else { return false };
        let Some(current) = entry.current.take_if(|current| current.request == request) else {
            return false;
        };
        entry.order(Order::Until(None));
        if closed {
            entry.order(Order::Kill);
        }
        current.end(outcome);
        self.0.changed.notify_waiters();
        true
    }

    /// A process says why it cannot start; it should end soon.
    pub fn init_failed(&self, process: &str, failure: Failure) {
        if let Some(entry) = self.state().processes.get_mut(process) {
            entry.said = Some(failure);
        }
    }

    pub(crate) fn born(&self, process: &str, pid: u32) {
        if let Some(entry) = self.state().processes.get_mut(process) {
            entry.pid = Some(pid);
        }
    }

    /// Brings waiting invocations and waiting processes together, and starts processes for the rest.
    fn dispatch(&self, state: &mut State) {
        state.queue.retain(|invocation| !invocation.answer.is_closed());
        while !state.queue.is_empty() {
            // The one that waited least: its memory is warm, and those at the bottom grow old and are ended.
            let Some(parked) = state.parked.pop() else { break };
            let Some(entry) =
                state.processes.get_mut(&parked.process).filter(|_| !parked.hand.is_closed())
            else {
                continue;
            };
            let Some(invocation) = state.queue.pop_front() else { break };
            if let Some(back) = self.hand(entry, parked, invocation) {
                state.queue.push_front(back);
            }
        }
        if state.closed {
            return;
        }
        if let Some(trouble) =
            state.trouble.as_ref().filter(|trouble| Instant::now() < trouble.until)
        {
            let failure = trouble.failure.clone();
            if state.processes.is_empty() {
                state.refuse_waiting(&failure);
            }
            return;
        }
        // Those that start, and those that have just answered, will ask for an event in a moment.
        let soon = |entry: &&Entry| entry.current.is_none() && entry.end.is_none();
        let mut coming =
            state.processes.values().filter(soon).count().saturating_sub(state.parked.len());
        while state.queue.len() > coming && state.processes.len() < self.0.spec.limit {
            self.start(state);
            coming += 1;
        }
    }

    /// Gives the invocation back when the process went away meanwhile.
    fn hand(
        &self,
        entry: &mut Entry,
        parked: Parked,
        invocation: Invocation,
    ) -> Option<Invocation> {
        let Invocation { request, event, answer } = invocation;
        let timeout = self.0.spec.timeout;
        let deadline_ms = clock::now()
            .as_millisecond()
            .saturating_add(i64::try_from(timeout.as_millis()).unwrap_or(i64::MAX));
        if let Err(Handed { request, event, .. }) =
            parked.hand.send(Handed { request: request.clone(), event, deadline_ms })
        {
            return Some(Invocation { request, event, answer });
        }
        let until = Instant::now() + timeout;
        entry.current = Some(Current { request, answer, until });
        entry.order(Order::Until(Some(until)));
        None
    }

    fn start(&self, state: &mut State) {
        let (orders, received) = mpsc::unbounded_channel();
        let (process, tail) = (process::random_id(), Arc::new(Tail::default()));
        let entry = Entry {
            pid: None,
            ready: false,
            current: None,
            end: None,
            said: None,
            orders,
            tail: Arc::clone(&tail),
        };
        state.processes.insert(process.clone(), entry);
        self.0.runtime.attend(self.clone(), process, tail, received);
    }

    /// Kills all processes of the function, and gives their number. What they work on fails.
    pub fn kill(&self) -> usize {
        let mut state = self.state();
        for entry in state.processes.values_mut() {
            entry.end = Some(EndedBy::Order);
            entry.order(Order::Kill);
        }
        state.processes.len()
    }

    /// Ends processes that have had nothing to do for this long.
    pub fn retire(&self, idle: Duration) {
        let mut state = self.state();
        let State { parked, processes, .. } = &mut *state;
        parked.retain(|parked| {
            let stays = parked.since.elapsed() < idle;
            if let Some(entry) = processes.get_mut(&parked.process).filter(|_| !stays) {
                entry.end = Some(EndedBy::Order);
                entry.order(Order::Kill);
            }
            stays
        });
    }

    /// Ends everything: what waits fails at once, what runs has `grace` to finish, then all processes are killed.
    pub async fn stop(&self, grace: Duration) {
        {
            let mut state = self.state();
            state.closed = true;
            state.refuse_waiting(&stopping());
            for entry in state.processes.values_mut().filter(|entry| entry.current.is_none()) {
                entry.end = Some(EndedBy::Order);
                entry.order(Order::Kill);
            }
        }
        self.wait_until(grace, |state| {
            state.processes.values().all(|entry| entry.current.is_none())
        })
        .await;
        self.kill();
        self.wait_until(BURIAL, |state| state.processes.is_empty()).await;
    }

    async fn wait_until(&self, limit: Duration, done: impl Fn(&State) -> bool) {
        let wait = async {
            loop {
                let changed = self.0.changed.notified();
                if done(&self.state()) {
                    break;
                }
                changed.await;
            }
        };
        let _ = timeout(limit, wait).await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Invoke for Pool {
    async fn invoke(&self, event: Bytes) -> Outcome {
        Self::invoke(self, event).await
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("function", &self.0.spec.logical_id)
            .field("load", &self.load())
            .finish_non_exhaustive()
    }
}

fn stopping() -> Failure {
    Failure::new(Cause::Stopping, "ServiceException", "the local host is stopping")
}
