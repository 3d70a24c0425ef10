//! A queue in memory, with a clock of its own.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use domain::{
    message::Message,
    ports::{Queue, Stored},
};
use jiff::Timestamp;

use crate::chaos::Chaos;

/// A standard queue with delay, visibility and a dead-letter queue, as SQS has them.
#[derive(Debug)]
pub struct MemoryQueue {
    /// Decides which calls fail.
    pub chaos: Chaos,
    visibility: Duration,
    max_receives: u32,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    now: Timestamp,
    next_id: u64,
    messages: Vec<Held>,
    dead: Vec<Held>,
}

#[derive(Clone, Debug)]
struct Held {
    id: u64,
    text: String,
    sent_at: Timestamp,
    visible_at: Timestamp,
    receives: u32,
    receipt: String,
}

/// A message as a worker receives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Deletes or defers this receive of the message.
    pub receipt: String,
    /// Its text.
    pub text: String,
    /// How often it was received, this time included.
    pub receives: u32,
    /// When it was sent.
    pub sent_at: Timestamp,
}

impl MemoryQueue {
    /// An empty queue at the beginning of time.
    pub fn new(visibility: Duration, max_receives: u32) -> Self {
        let inner = Inner {
            now: Timestamp::UNIX_EPOCH,
            next_id: 0,
            messages: Vec::new(),
            dead: Vec::new(),
        };
        Self { chaos: Chaos::default(), visibility, max_receives, inner: Mutex::new(inner) }
    }

    /// Sets the queue's clock.
    pub fn set_now(&self, now: Timestamp) {
        self.lock().now = now;
    }

    /// Receives a visible message, picked among them by `pick`, or none. A message received too often moves to the
    /// dead-letter queue instead.
    pub fn receive(&self, pick: impl FnOnce(usize) -> usize) -> Option<Received> {
        let (visibility, max) = (self.visibility, self.max_receives);
        let mut inner = self.lock();
        let now = inner.now;
        let spent = |m: &Held| m.visible_at <= now && m.receives >= max;
        let (dead, alive) = inner.messages.drain(..).partition(spent);
        inner.messages = alive;
        let dead: Vec<Held> = dead;
        inner.dead.extend(dead);
        let visible: Vec<usize> = inner
            .messages
            .iter()
            .enumerate()
            .filter(|(_, m)| m.visible_at <= now)
            .map(|(index, _)| index)
            .collect();
        let index = *visible.get(pick(visible.len()).min(visible.len().checked_sub(1)?))?;
        let message = inner.messages.get_mut(index)?;
        message.receives += 1;
        message.visible_at = now.saturating_add(visibility).unwrap_or(Timestamp::MAX);
        message.receipt = format!("{}-{}", message.id, message.receives);
        Some(Received {
            receipt: message.receipt.clone(),
            text: message.text.clone(),
            receives: message.receives,
            sent_at: message.sent_at,
        })
    }

    /// Deletes a message by the receipt of its latest receive.
    pub fn delete(&self, receipt: &str) {
        self.lock().messages.retain(|message| message.receipt != receipt);
    }

    /// Sends a copy of a random message again, as a standard queue may.
    pub fn duplicate(&self, pick: impl FnOnce(usize) -> usize) {
        let mut inner = self.lock();
        let index = pick(inner.messages.len());
        if let Some(copy) = inner.messages.get(index).cloned() {
            inner.next_id += 1;
            let id = inner.next_id;
            inner.messages.push(Held { id, receipt: String::new(), ..copy });
        }
    }

    /// Drops every message.
    pub fn purge(&self) {
        self.lock().messages.clear();
    }

    /// Moves every dead message back, as the console's redrive does: a new message, a new time, the same text.
    pub fn redrive(&self) {
        let mut inner = self.lock();
        let dead: Vec<_> = inner.dead.drain(..).collect();
        for message in dead {
            push(&mut inner, message.text, Duration::ZERO);
        }
    }

    /// Messages in the dead-letter queue.
    pub fn dead(&self) -> usize {
        self.lock().dead.len()
    }

    /// When the next message becomes visible.
    pub fn next_visible(&self) -> Option<Timestamp> {
        self.lock().messages.iter().map(|message| message.visible_at).min()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn push(inner: &mut Inner, text: String, delay: Duration) {
    inner.next_id += 1;
    let visible_at = inner.now.saturating_add(delay).unwrap_or(Timestamp::MAX);
    let message = Held {
        id: inner.next_id,
        text,
        sent_at: inner.now,
        visible_at,
        receives: 0,
        receipt: String::new(),
    };
    inner.messages.push(message);
}

impl<M: Message> Queue<M> for MemoryQueue {
    async fn send(&self, messages: &[M], delay: Duration) -> Vec<usize> {
        let sent = self
            .chaos
            .call("queue.send", || {
                let mut inner = self.lock();
                for message in messages {
                    push(&mut inner, message.to_text(), delay);
                }
            })
            .await;
        match sent {
            Ok(()) => Vec::new(),
            Err(_) => (0..messages.len()).collect(),
        }
    }

    async fn defer(&self, receipt: &str, wait: Duration) {
        let _ = self
            .chaos
            .call("queue.defer", || {
                let mut inner = self.lock();
                let visible_at = inner.now.saturating_add(wait).unwrap_or(Timestamp::MAX);
                for message in inner.messages.iter_mut().filter(|m| m.receipt == receipt) {
                    message.visible_at = visible_at;
                }
            })
            .await;
    }

    async fn visible(&self) -> Stored<u64> {
        let count = || {
            let inner = self.lock();
            inner.messages.iter().filter(|message| message.visible_at <= inner.now).count() as u64
        };
        self.chaos.call("queue.visible", count).await
    }
}
