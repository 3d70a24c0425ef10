//! SQS: standard queues with delay, visibility, retention and dead letters, and faults on request.
//!
//! [`Queues`] is the handle for this process (the event sources), `wire` the same over HTTP (the functions); `redrive` and
//! `moves` are message move tasks.

mod arrivals;
mod attributes;
mod create;
mod digest;
mod error;
mod fifo;
mod message;
mod moves;
mod receipt;
mod redrive;
mod store;
pub(super) mod wire;

use std::{
    collections::BTreeMap,
    path::Path,
    pin::pin,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use arrivals::Arrivals;
pub use error::QueueError;
pub use message::{Counts, Message};
use message::{Outgoing, Sent};
use receipt::Receipt;
use store::{Store, Taking};
use tokio::time::{Instant, timeout_at};

use super::{
    Service,
    clock::{Clock, millis},
    faults::{Faults, Kind, Rule, Strike, When, rule_of},
    recorder::{Observed, Recorder},
};
use crate::wiring::Queue;

/// What a queue is set to.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Settings {
    name: String,
    visibility_ms: i64,
    retention_ms: i64,
    delay_ms: i64,
    receive_wait_ms: i64,
    redrive: Option<(String, u32)>,
}

#[derive(Debug)]
struct Shared {
    store: Store,
    region: String,
    clock: Clock,
    /// By ARN.
    settings: RwLock<BTreeMap<String, Settings>>,
    arrivals: Arrivals,
    seen: fifo::Seen,
    recorder: Recorder,
    faults: Faults,
}

/// All queues of the stack.
#[derive(Clone, Debug)]
pub struct Queues {
    shared: Arc<Shared>,
    /// Whose calls these are; nobody's are not recorded.
    function: Option<String>,
}

impl Queues {
    pub(super) fn open(
        queues: &[Queue],
        region: &str,
        path: Option<&Path>,
        clock: Clock,
        recorder: Recorder,
        faults: Faults,
    ) -> Result<Self, QueueError> {
        let mut settings: BTreeMap<String, Settings> = queues
            .iter()
            .map(|queue| {
                let settings = Settings {
                    name: queue.name.clone(),
                    visibility_ms: millis(queue.visibility),
                    retention_ms: millis(queue.retention),
                    delay_ms: millis(queue.delay),
                    receive_wait_ms: millis(queue.receive_wait),
                    redrive: queue.redrive.clone(),
                };
                (queue.arn.clone(), settings)
            })
            .collect();
        let store = Store::open(path)?;
        store.made(&mut settings, |name| wire::arn_for(region, name))?;
        let arrivals = Arrivals::of(settings.keys());
        let shared = Shared {
            store,
            region: region.to_owned(),
            clock,
            settings: RwLock::new(settings),
            arrivals,
            seen: fifo::Seen::default(),
            recorder,
            faults,
        };
        shared.store.resume_moves(shared.clock.now_ms())?;
        Ok(Self { shared: Arc::new(shared), function: None })
    }

    /// The same queues; what is done through this handle is recorded as the function's and meets its faults, as an event
    /// source on AWS acts under the function's role.
    #[must_use]
    pub fn acting_for(&self, function: &str) -> Self {
        Self { shared: Arc::clone(&self.shared), function: Some(function.to_owned()) }
    }

    /// The ARNs of all queues.
    #[must_use]
    pub fn arns(&self) -> Vec<String> {
        let all = self.shared.settings.read().unwrap_or_else(PoisonError::into_inner);
        all.keys().cloned().collect()
    }

    /// Takes up to `max` (1 to 10) messages, waiting at most `wait` for the first. Cancel-safe: nothing is taken until it returns.
    ///
    /// # Errors
    /// No such queue, a fault rule, or the file.
    pub async fn receive(
        &self,
        arn: &str,
        max: usize,
        wait: Duration,
    ) -> Result<Vec<Message>, QueueError> {
        let strike = self.strike("ReceiveMessage", arn);
        self.faulted(rule_of(strike.as_ref()), When::Before).await?;
        let messages = self.shared.receive(arn, max, None, wait, rule_of(strike.as_ref())).await?;
        self.faulted(strike.map(Strike::happened).as_ref(), When::After).await?;
        Ok(messages)
    }

    /// Deletes a message.
    ///
    /// # Errors
    /// No such queue, not a receipt, a fault rule, or the file. A receipt that is outdated is no error, and deletes nothing.
    pub async fn delete(&self, arn: &str, receipt: &str) -> Result<(), QueueError> {
        let strike = self.strike("DeleteMessage", arn);
        self.faulted(rule_of(strike.as_ref()), When::Before).await?;
        self.shared.delete(arn, receipt, is(rule_of(strike.as_ref()), Kind::Lost))?;
        self.faulted(strike.map(Strike::happened).as_ref(), When::After).await
    }

    /// Sets how long a message in flight stays invisible from now on.
    ///
    /// # Errors
    /// No such queue, not a receipt, not in flight, a fault rule, or the file.
    pub async fn change_visibility(
        &self,
        arn: &str,
        receipt: &str,
        visibility: Duration,
    ) -> Result<(), QueueError> {
        let strike = self.strike("ChangeMessageVisibility", arn);
        self.faulted(rule_of(strike.as_ref()), When::Before).await?;
        self.shared.change_visibility(
            arn,
            receipt,
            millis(visibility),
            is(rule_of(strike.as_ref()), Kind::Lost),
        )?;
        self.faulted(strike.map(Strike::happened).as_ref(), When::After).await
    }

    /// Sends a message without attributes; returns its id.
    ///
    /// # Errors
    /// No such queue, a fault rule, or the file.
    pub async fn send(&self, arn: &str, body: &str) -> Result<String, QueueError> {
        let strike = self.strike("SendMessage", arn);
        self.faulted(rule_of(strike.as_ref()), When::Before).await?;
        let sender = self.function.clone().unwrap_or_else(|| "local".to_owned());
        let outgoing = Outgoing { body: body.to_owned(), sender, ..Outgoing::default() };
        let sent = self.shared.send(arn, outgoing, rule_of(strike.as_ref()))?;
        self.faulted(strike.map(Strike::happened).as_ref(), When::After).await?;
        Ok(sent.id)
    }

    /// How many messages a queue holds.
    ///
    /// # Errors
    /// No such queue, or the file.
    pub fn counts(&self, arn: &str) -> Result<Counts, QueueError> {
        self.shared.settings(arn)?;
        self.shared.advance()?;
        self.shared.store.counts(arn, self.shared.clock.now_ms())
    }

    fn strike(&self, action: &str, arn: &str) -> Option<Strike> {
        let function = self.function.as_deref()?;
        self.shared.recorder.record(Observed {
            function: function.to_owned(),
            action: format!("sqs:{action}"),
            resource: arn.to_owned(),
            leading_keys: Vec::new(),
        });
        self.shared.faults.strike(Service::Sqs, action, function)
    }

    async fn faulted(&self, strike: Option<&Rule>, when: When) -> Result<(), QueueError> {
        match strike.filter(|rule| rule.when == when) {
            Some(Rule { error: Kind::Delay, delay_ms, .. }) => {
                tokio::time::sleep(Duration::from_millis(*delay_ms)).await;
                Ok(())
            }
            Some(Rule {
                error: Kind::Throttle | Kind::Internal | Kind::AccessDenied | Kind::Drop,
                ..
            }) => Err(QueueError::Injected),
            _ => Ok(()),
        }
    }
}

fn is(strike: Option<&Rule>, kind: Kind) -> bool {
    strike.is_some_and(|rule| rule.error == kind)
}

impl Shared {
    fn settings(&self, arn: &str) -> Result<Settings, QueueError> {
        let all = self.settings.read().unwrap_or_else(PoisonError::into_inner);
        all.get(arn).cloned().ok_or_else(|| QueueError::NoSuchQueue(arn.to_owned()))
    }

    fn wake(&self, arn: &str) {
        if let Some(arrivals) = self.arrivals.get(arn) {
            arrivals.notify_waiters();
        }
    }

    fn send(
        &self,
        arn: &str,
        mut outgoing: Outgoing,
        strike: Option<&Rule>,
    ) -> Result<Sent, QueueError> {
        let settings = self.settings(arn)?;
        if let Some(Rule { error: Kind::Hold, delay_ms, .. }) = strike {
            let held = i64::try_from(*delay_ms).unwrap_or(i64::MAX / 4);
            outgoing.delay_ms = Some(outgoing.delay_ms.unwrap_or(settings.delay_ms) + held);
        }
        let copies = if is(strike, Kind::Duplicate) { 2 } else { 1 };
        let sent = self.store.send(arn, &settings, &outgoing, self.clock.now_ms(), copies)?;
        self.wake(arn);
        Ok(sent)
    }

    async fn receive(
        &self,
        arn: &str,
        max: usize,
        visibility_ms: Option<i64>,
        wait: Duration,
        strike: Option<&Rule>,
    ) -> Result<Vec<Message>, QueueError> {
        let deadline = Instant::now() + wait;
        let arrivals =
            self.arrivals.get(arn).ok_or_else(|| QueueError::NoSuchQueue(arn.to_owned()))?;
        loop {
            // registered before looking, so that a message sent between the look and the wait still wakes
            let mut arrival = pin!(arrivals.notified());
            arrival.as_mut().enable();
            self.advance()?;
            let settings = self.settings(arn)?;
            let taking = Taking {
                max: max.clamp(1, 10),
                visibility_ms: visibility_ms.unwrap_or(settings.visibility_ms),
                newest_first: is(strike, Kind::Reorder),
            };
            let messages = self.take(arn, &settings, taking)?;
            if !messages.is_empty() {
                if is(strike, Kind::Duplicate) {
                    let receipts = messages
                        .iter()
                        .map(|message| Receipt::decode(&message.receipt))
                        .collect::<Result<Vec<_>, _>>()?;
                    self.store.release(arn, &receipts, self.clock.now_ms())?;
                    self.wake(arn);
                }
                return Ok(messages);
            }
            if Instant::now() >= deadline {
                return Ok(messages);
            }
            let next = [self.store.next_visible(arn)?, self.store.next_move_at()?];
            let next = next.into_iter().flatten().min().map(|next| next - self.clock.now_ms());
            let until = match next.and_then(|next| u64::try_from(next.max(1)).ok()) {
                Some(next) => deadline.min(Instant::now() + Duration::from_millis(next)),
                None => deadline,
            };
            let _woken_or_due = timeout_at(until, arrival).await;
        }
    }

    fn take(
        &self,
        arn: &str,
        settings: &Settings,
        taking: Taking,
    ) -> Result<Vec<Message>, QueueError> {
        let target = settings.redrive.as_ref().and_then(|(target, most)| {
            let retention_ms = self.settings(target).ok()?.retention_ms;
            Some((target.as_str(), *most, retention_ms))
        });
        let (messages, moved) = self.store.take(arn, target, taking, self.clock.now_ms())?;
        if let (true, Some((target, ..))) = (moved, target) {
            self.wake(target);
        }
        Ok(messages)
    }

    fn delete(&self, arn: &str, receipt: &str, lost: bool) -> Result<(), QueueError> {
        self.settings(arn)?;
        let receipt = Receipt::decode(receipt)?;
        if lost { Ok(()) } else { self.store.delete(arn, &receipt) }
    }

    fn change_visibility(
        &self,
        arn: &str,
        receipt: &str,
        visibility_ms: i64,
        lost: bool,
    ) -> Result<(), QueueError> {
        self.settings(arn)?;
        let receipt = Receipt::decode(receipt)?;
        if lost {
            return Ok(());
        }
        self.store.change_visibility(arn, &receipt, visibility_ms, self.clock.now_ms())?;
        // someone may wait for a later moment than the new one
        self.wake(arn);
        Ok(())
    }
}
