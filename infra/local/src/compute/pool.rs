//! The processes of one function, and the invocations that wait for them.
//!
//! * [`Pool::invoke`] puts an invocation into the queue; a process that asks for its next event takes the first one.
//! * A process has one invocation at a time. There are as many processes as the function's limit allows and the queue asks for.
//! * A process that ends takes only its own invocation with it. When no process comes as far as asking for an event,
//!   everybody who waits hears why, and for a while nobody tries again: a broken binary neither hangs its callers nor spins.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt, io,
    process::ExitStatus,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use serde::Serialize;
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

/// The first wait after a process that did not come up; it doubles up to the second.
const INIT_BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));

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

#[derive(Default)]
struct State {
    queue: VecDeque<Invocation>,
    parked: Vec<Parked>,
    processes: BTreeMap<String, Entry>,
    trouble: Option<Trouble>,
    closed: bool,
    begun: u64,
}

struct Invocation {
    request: String,
    event: Bytes,
    answer: oneshot::Sender<Outcome>,
}

/// A process that waits for its next event.
struct Parked {
    process: String,
    hand: oneshot::Sender<Handed>,
    since: Instant,
}

struct Entry {
    pid: Option<u32>,
    ready: bool,
    current: Option<Current>,
    end: Option<EndedBy>,
    said: Option<Failure>,
    orders: mpsc::UnboundedSender<Order>,
    tail: Arc<Tail>,
}

struct Current {
    request: String,
    answer: oneshot::Sender<Outcome>,
    until: Instant,
}

/// Why the pool itself ended a process.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EndedBy {
    Order,
    InitTimeout,
}

struct Trouble {
    failure: Failure,
    wait: Duration,
    until: Instant,
}

/// What a process gets to work on.
#[derive(Debug)]
pub struct Handed {
    /// The id of the invocation.
    pub request: String,
    /// The event.
    pub event: Bytes,
    /// When it is killed, in epoch milliseconds.
    pub deadline_ms: i64,
}

/// What the pool tells whoever attends a process.
#[derive(Debug)]
pub(crate) enum Order {
    /// Ask [`Pool::overdue`] at this time; `None`: no more.
    Until(Option<Instant>),
    Kill,
}

/// How a process came to its end.
#[derive(Debug)]
pub(crate) enum Ending {
    NotStarted(io::Error),
    Exited(io::Result<ExitStatus>),
}

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
        let none_up = !state.processes.values().any(|entry| entry.ready);
        if let Some(trouble) =
            state.trouble.as_ref().filter(|trouble| none_up && Instant::now() < trouble.until)
        {
            return Err(trouble.failure.clone());
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
            Ending::Exited(Ok(status)) => format!("exited with error: {status}"),
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
                    format!("{logical_id} {how}, before it asked for its first event{lines}");
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

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn refuse_waiting(&mut self, failure: &Failure) {
        for invocation in self.queue.drain(..) {
            let _ = invocation.answer.send(Outcome::Failed(failure.clone()));
        }
    }
}

impl Entry {
    fn order(&self, order: Order) {
        // Nobody listens once the process is gone; then there is nothing to do either.
        let _ = self.orders.send(order);
    }
}

impl Current {
    fn end(self, outcome: Outcome) {
        // A gateway may have given up long ago.
        let _ = self.answer.send(outcome);
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
