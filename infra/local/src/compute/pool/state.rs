//! What a pool remembers: who waits, who works, and on what.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use crate::compute::{
    function::{Failure, Outcome},
    log::Tail,
};

#[derive(Default)]
pub(super) struct State {
    pub(super) queue: VecDeque<Invocation>,
    pub(super) parked: Vec<Parked>,
    pub(super) processes: BTreeMap<String, Entry>,
    pub(super) trouble: Option<Trouble>,
    pub(super) closed: bool,
    pub(super) begun: u64,
}

pub(super) struct Invocation {
    pub(super) request: String,
    pub(super) event: Bytes,
    pub(super) answer: oneshot::Sender<Outcome>,
}

/// A process that waits for its next event.
pub(super) struct Parked {
    pub(super) process: String,
    pub(super) hand: oneshot::Sender<Handed>,
    pub(super) since: Instant,
}

pub(super) struct Entry {
    pub(super) pid: Option<u32>,
    pub(super) ready: bool,
    pub(super) current: Option<Current>,
    pub(super) end: Option<EndedBy>,
    pub(super) said: Option<Failure>,
    pub(super) orders: mpsc::UnboundedSender<Order>,
    pub(super) tail: Arc<Tail>,
}

pub(super) struct Current {
    pub(super) request: String,
    pub(super) answer: oneshot::Sender<Outcome>,
    pub(super) until: Instant,
}

/// Why the pool itself ended a process.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum EndedBy {
    Order,
    InitTimeout,
}

pub(super) struct Trouble {
    pub(super) failure: Failure,
    pub(super) wait: Duration,
    pub(super) until: Instant,
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

impl State {
    pub(super) fn refuse_waiting(&mut self, failure: &Failure) {
        for invocation in self.queue.drain(..) {
            let _ = invocation.answer.send(Outcome::Failed(failure.clone()));
        }
    }
}

impl Entry {
    pub(super) fn order(&self, order: Order) {
        // Nobody listens once the process is gone; then there is nothing to do either.
        let _ = self.orders.send(order);
    }
}

impl Current {
    pub(super) fn end(self, outcome: Outcome) {
        // A gateway may have given up long ago.
        let _ = self.answer.send(outcome);
    }
}
