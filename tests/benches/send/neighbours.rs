//! A hundred endpoints, and what one beside them that never answers does to them.
//!
//! Sandboxes take wake messages as Lambda's poller hands them out: up to ten at once, to whichever is idle. The dead endpoint
//! gets as many events as each of the others, and holds the sandbox that drains it for as long as it can.

use std::{
    cell::RefCell,
    collections::{HashMap, VecDeque},
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use domain::{
    delivery::State,
    message::{Message as _, WakeMessage},
};
use futures_util::future::join_all;
use jiff::Timestamp;
use tokio::{
    sync::Notify,
    time::{MissedTickBehavior, interval},
};

use crate::{
    receiver::Arrival,
    sandbox::{Sender, invoke, publish, sender, subscribe},
};

/// Endpoints that are well.
const HEALTHY: u128 = 100;

/// Sandboxes that drain: what the template's concurrency lets Lambda begin.
const SANDBOXES: usize = 10;

/// Between two events: far from what one core can send, so that waiting for others is all that is measured.
const PACE: Duration = Duration::from_millis(4);

/// When each event arrived, by its id, in microseconds since the epoch.
pub(crate) type Arrivals = Arc<Mutex<HashMap<String, i64>>>;

/// When each event was published.
pub(crate) type Published = Vec<(String, i64)>;

/// How long events took, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    /// Half of them were faster.
    pub(crate) median: f64,
    /// All but a hundredth of them were.
    pub(crate) slowest: f64,
}

#[expect(
    clippy::disallowed_methods,
    reason = "two processes compare what the machine's clock says"
)]
fn now() -> i64 {
    Timestamp::now().as_microsecond()
}

/// Writes down what arrives.
pub(crate) fn writing(arrivals: &Arrivals) -> Arrival {
    let arrivals = Arc::clone(arrivals);
    Box::new(move |id| {
        arrivals.lock().unwrap().entry(id.to_owned()).or_insert_with(now);
    })
}

/// How long events took that were published and arrived. All have to.
pub(crate) fn spread(published: &Published, arrivals: &Arrivals) -> Spread {
    let arrivals = arrivals.lock().unwrap();
    let took = |(id, at): &(String, i64)| (arrivals[id] - at) as f64 / 1000.0;
    let mut took: Vec<f64> = published.iter().map(took).collect();
    took.sort_by(f64::total_cmp);
    Spread { median: took[took.len() / 2], slowest: took[took.len() * 99 / 100] }
}

/// Publishes so many events to each endpoint, and drains them.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn run(folder: &Path, healthy: u16, dead: Option<u16>, each: usize) -> Published {
    let sender = sender(folder);
    let mut lanes = Vec::new();
    for n in 0..HEALTHY {
        lanes.push(subscribe(&sender, n, healthy, 5).await);
    }
    let dead = match dead {
        Some(port) => Some(subscribe(&sender, HEALTHY, port, 5).await),
        None => None,
    };
    let wakes = Wakes::default();
    let publishing = async {
        let (mut published, mut pace) = (Published::new(), interval(PACE));
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for n in 0..each {
            for lane in dead.iter().chain(&lanes) {
                pace.tick().await;
                let at = now();
                let id = publish(&sender, lane, n).await;
                if Some(lane) != dead.as_ref() {
                    published.push((id.to_string(), at));
                }
                wakes.push(WakeMessage(lane.clone()).to_text());
            }
        }
        while succeeded(&sender) < published.len() {
            pace.tick().await;
        }
        published
    };
    let draining = join_all((0..SANDBOXES).map(|n| drain(&sender, &wakes, n)));
    tokio::select! {
        published = publishing => published,
        _ = draining => unreachable!("a sandbox does not end"),
    }
}

fn succeeded(sender: &Sender) -> usize {
    let tables = sender.lanes.tables();
    tables.deliveries.values().filter(|delivery| delivery.state == State::Succeeded).count()
}

#[derive(Default)]
struct Wakes {
    waiting: RefCell<VecDeque<String>>,
    more: Notify,
}

impl Wakes {
    fn push(&self, text: String) {
        self.waiting.borrow_mut().push_back(text);
        self.more.notify_one();
    }

    async fn take(&self) -> Vec<String> {
        loop {
            let taken: Vec<String> = {
                let mut waiting = self.waiting.borrow_mut();
                let most = waiting.len().min(10);
                waiting.drain(..most).collect()
            };
            if !taken.is_empty() {
                return taken;
            }
            self.more.notified().await;
        }
    }
}

/// One sandbox: one invocation after the other.
async fn drain(sender: &Sender, wakes: &Wakes, sandbox: usize) {
    for invocation in 0_u64.. {
        let texts = wakes.take().await;
        invoke(sender, &format!("{sandbox}-{invocation}"), &texts).await;
    }
}
