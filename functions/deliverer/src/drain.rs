//! Draining a lane, by the protocol that keeps every delivery found.
//!
//! L1 take the lease. L2 look at the endpoint: gone, disabled, left alone, or open. L3 deliver what is due. L4 release, if
//! nobody has woken the lane meanwhile; else look again.
//!
//! Every step may be the last. Delivery and pointer repair each other, the lease expires, and `wake_at` stands until a
//! release by a holder that saw nothing. The lease only saves work: a holder that outlives it does no harm, because each
//! write has its own condition. `tests/tests/lane_model.rs` runs this code through every order of steps of two holders.

mod agenda;
mod due;
mod polled;
mod rest;
mod standing;
mod tell;
mod turn;

use std::time::Duration;

use domain::{
    breaker::Limits,
    delivery::{Attempt, Delivery, Schedule},
    destination::Destination,
    endpoint::{Endpoint, HealthLimits},
    lane::{Found, Hold, Kind, LaneId, Left, Pointer, Release, Take},
    message::WakeMessage,
    ports::{Deliveries, Due, Lanes, Notices, Queue, Registry, SealedSecret, StoreError, Stored},
};
use jiff::Timestamp;
use runtime::telemetry::Metrics;

use self::standing::Standing;

/// Pointers that are read at once.
const PAGE: usize = 50;

/// Longest time for which a message can wait in a queue (SQS).
const LONGEST_DELAY: Duration = Duration::from_secs(900);

/// The rules of draining.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// For how long a lane is taken; renewed at half of it.
    pub lease: Duration,
    /// When a failed delivery is tried again.
    pub schedule: Schedule,
    /// When a lane is left alone.
    pub breaker: Limits,
    /// For how long a delivery is tried, without the time for which it was held.
    pub tried_for: Duration,
    /// When an endpoint has failed for too long.
    pub health: HealthLimits,
    /// For how long the deliveries of a disabled endpoint are held.
    pub hold: Duration,
    /// Deliveries under way at once to an endpoint that does not say.
    pub concurrency: u32,
}

/// Time and chance, which are read at the function's edge only.
#[derive(Clone, Copy, Debug)]
pub struct Edge {
    /// The time.
    pub now: fn() -> Timestamp,
    /// A number drawn evenly from 0 to 1.
    pub jitter: fn() -> f64,
}

/// Makes attempts.
pub trait Sender: Sync {
    /// An endpoint, ready to be sent to.
    type Target: Send + Sync;

    /// A request, ready to leave.
    type Request: Send;

    /// Prepares an endpoint. An error says nothing about it: the store or the keyring is busy or down.
    fn open(
        &self,
        endpoint: Endpoint,
        secrets: Vec<SealedSecret>,
    ) -> impl Future<Output = Stored<Self::Target>> + Send;

    /// Prepares the next attempt of a delivery; nothing has left us when this ends. An error means that there is none.
    fn prepare(
        &self,
        target: &Self::Target,
        lane: &LaneId,
        delivery: &Delivery,
    ) -> impl Future<Output = Stored<Prepared<Self::Request>>> + Send;

    /// Makes the attempt that was prepared.
    fn send(
        &self,
        lane: &LaneId,
        delivery: &Delivery,
        request: Self::Request,
    ) -> impl Future<Output = Attempt> + Send;

    /// Waits until the next request may leave an endpoint with a rate.
    fn wait(&self, wait: Duration) -> impl Future<Output = ()> + Send {
        tokio::time::sleep(wait)
    }

    /// Waits until what is new is looked for again, while others are under way and there is room for more.
    fn look_again(&self, after: Duration) -> impl Future<Output = ()> + Send {
        self.wait(after)
    }
}

/// An attempt before its request leaves.
#[derive(Debug)]
pub enum Prepared<R> {
    /// It can be made.
    Ready(R),
    /// It has failed, and the endpoint has seen nothing of it.
    Failed(Attempt),
}

/// What draining needs.
#[derive(Debug)]
pub struct Drain<'a, L, R, Q, S, N> {
    /// Lanes and deliveries.
    pub lanes: &'a L,
    /// Endpoints.
    pub registry: &'a R,
    /// The wake queue.
    pub queue: &'a Q,
    /// Makes the attempts.
    pub sender: &'a S,
    /// What owners of endpoints are told.
    pub notices: &'a N,
    /// What is counted.
    pub metrics: &'a Metrics,
    /// The rules.
    pub rules: &'a Rules,
    /// Time and chance.
    pub edge: Edge,
}

/// How a drain ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Somebody else drains the lane, and will see what this was about.
    Busy,
    /// There is no such lane.
    Absent,
    /// The lane sleeps until then, or until it is woken.
    Asleep(Option<Timestamp>),
    /// Time was short: the lane is awake, and a message is on its way to the next holder.
    Continued,
    /// The lease was lost to somebody else, who goes on.
    Lost,
}

/// Why a holder stops delivering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// Nothing can be done until then, or until the lane is woken.
    Sleep(Option<Timestamp>),
    /// Something about the endpoint or its breaker has changed: back to L2.
    Look,
    /// The pass is over.
    OutOfTime,
    /// The lease is somebody else's.
    Lost,
}

/// Whether a request whose outcome is unknown may be made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Repeats {
    /// The target recognises the idempotency key.
    Harmless,
    /// It does not: what may have happened waits for a person.
    Forbidden,
}

/// A holder at work.
struct Pass<'d, 'a, L, R, Q, S, N> {
    drain: &'d Drain<'a, L, R, Q, S, N>,
    hold: Hold,
    left: Left,
    /// The endpoint and its health, as they were read last.
    standing: Option<Standing>,
    /// When the pass ends.
    until: Timestamp,
    /// Whether it has changed anything.
    did: bool,
}

impl<L, R, Q, S, N> Drain<'_, L, R, Q, S, N>
where
    L: Lanes + Deliveries,
    R: Registry,
    Q: Queue<WakeMessage>,
    S: Sender,
    N: Notices,
{
    /// Drains a lane until nothing is due or the pass ends. `owner` must be new for each call.
    ///
    /// # Errors
    /// If the store fails. The lane is let go as well as can be, and its `wake_at` stands.
    pub async fn lane(&self, lane: &LaneId, owner: &str, until: Timestamp) -> Stored<Ended> {
        let now = self.now();
        let hold = match self.lanes.take(lane, owner, now, later(now, self.rules.lease)).await? {
            Take::Held(hold) => hold,
            Take::Busy => return Ok(Ended::Busy),
            Take::Absent => return Ok(Ended::Absent),
        };
        let left = hold.left;
        let mut pass = Pass { drain: self, hold, left, standing: None, until, did: false };
        let ended = pass.run().await;
        if ended.is_err() {
            pass.let_go().await;
        }
        ended
    }

    fn now(&self) -> Timestamp {
        (self.edge.now)()
    }

    /// The time of the first pointer. Fresh ones first: see [`Kind`].
    async fn next_due(&self, lane: &LaneId) -> Stored<Option<Timestamp>> {
        let mut first: Option<Timestamp> = None;
        for kind in Kind::ALL {
            let next = self.lanes.next_due(lane, kind).await?;
            first = first.into_iter().chain(next).min();
        }
        Ok(first)
    }

    /// Pointers of both kinds that are due by then.
    async fn due(&self, lane: &LaneId, until: Timestamp, limit: usize) -> Stored<Vec<Pointer>> {
        let mut both = Vec::new();
        for kind in Kind::ALL {
            both.extend(self.lanes.due(lane, kind, Due::by(until), limit).await?);
        }
        Ok(both)
    }

    /// Reads a delivery again and makes its pointer right: put the right one, then delete this one.
    async fn repair(&self, lane: &LaneId, pointer: &Pointer) -> Stored<()> {
        let delivery = self.lanes.read(lane, &[pointer.event]).await?;
        match pointer.judge(delivery.first()) {
            Found::Due(_) => Ok(()),
            found => self.put_right(lane, pointer, found).await,
        }
    }

    async fn put_right(&self, lane: &LaneId, pointer: &Pointer, found: Found<'_>) -> Stored<()> {
        if let Found::Elsewhere(right) = found {
            self.lanes.point(lane, &right).await?;
        }
        self.lanes.unpoint(lane, pointer).await
    }
}

impl<L, R, Q, S, N> Pass<'_, '_, L, R, Q, S, N>
where
    L: Lanes + Deliveries,
    R: Registry,
    Q: Queue<WakeMessage>,
    S: Sender,
    N: Notices,
{
    async fn run(&mut self) -> Stored<Ended> {
        loop {
            let stop = self.look().await?;
            self.tell_owed().await;
            if let Some(ended) = self.release(stop).await? {
                return Ok(ended);
            }
        }
    }

    /// L2, and then L3 if the endpoint is open.
    async fn look(&mut self) -> Stored<Stop> {
        if let Some(stop) = self.must_stop().await? {
            return Ok(stop);
        }
        let (drain, LaneId { tenant, endpoint, .. }) = (self.drain, &self.hold.lane);
        let Some((found, secrets)) = drain.registry.endpoint(tenant, *endpoint).await? else {
            self.standing = None;
            return self.cancel_all().await;
        };
        let health = found.health_now(drain.lanes.health(tenant, *endpoint).await?);
        let stopped = found.stopped_since(&health);
        self.standing = Some(Standing { endpoint: found.clone(), health });
        let now = drain.now();
        if let Some(since) = stopped {
            // Whatever it was stopped for, what waits meanwhile must not hit it all at once.
            self.left.breaker = self.left.breaker.rested(now);
            return self.hold_all(&found, since).await;
        }
        if matches!(found.destination, Destination::Poll(_)) {
            return self.leave_to_poller(&found).await;
        }
        if let Some(open_until) = self.left.breaker.open(now) {
            self.give_up_overdue(&found, now).await?;
            return Ok(Stop::Sleep(Some(open_until)));
        }
        let target = drain.sender.open(found.clone(), secrets).await?;
        self.deliver(&target, &found).await
    }

    /// L4. `None`: back to L2.
    async fn release(&mut self, stop: Stop) -> Stored<Option<Ended>> {
        let now = self.drain.now();
        let (wake_at, ended) = match stop {
            Stop::Look => return Ok(None),
            Stop::Lost => return Ok(Some(Ended::Lost)),
            Stop::Sleep(wake_at) => {
                let wake_at = self.awake_until_told(wake_at, now);
                (wake_at, Ended::Asleep(wake_at))
            }
            Stop::OutOfTime => (Some(now), Ended::Continued),
        };
        match self.drain.lanes.release(&self.hold, wake_at, self.left).await? {
            Release::Done => {
                if let Some(wait) = self.message_after(ended, now) {
                    // If it is lost, the sweeper finds `wake_at`.
                    let message = [WakeMessage(self.hold.lane.clone())];
                    self.drain.queue.send(&message, wait).await;
                }
                Ok(Some(ended))
            }
            Release::Woken(seen) => {
                self.hold.seen = seen;
                Ok(None)
            }
            Release::Lost => Ok(Some(Ended::Lost)),
        }
    }

    /// How long the message to the next holder waits; `None` if the sweeper wakes the lane.
    fn message_after(&self, ended: Ended, now: Timestamp) -> Option<Duration> {
        match ended {
            Ended::Continued => Some(Duration::ZERO),
            // Only a pass that did something sends one. If each did, every wake of a lane that waits would leave a
            // message behind, which finds nothing to do and leaves another.
            Ended::Asleep(Some(wake_at)) if self.did => {
                let wait = Duration::try_from(wake_at.duration_since(now)).unwrap_or_default();
                // Upwards to whole seconds, which is all a queue knows: too early would find nothing due.
                let wait = Duration::from_secs(wait.as_secs() + u64::from(wait.subsec_nanos() > 0));
                (wait <= LONGEST_DELAY).then_some(wait)
            }
            Ended::Asleep(_) | Ended::Busy | Ended::Absent | Ended::Lost => None,
        }
    }

    /// After an error: lets the lane go, awake, so that the message may find it free when it comes again.
    async fn let_go(&mut self) {
        let wake_at = Some(self.drain.now());
        for _ in 0..2 {
            match self.drain.lanes.release(&self.hold, wake_at, self.left).await {
                Ok(Release::Woken(seen)) => self.hold.seen = seen,
                Ok(Release::Done | Release::Lost) | Err(_) => return,
            }
        }
    }

    /// Whether the pass or the lease is over. Renews the lease at half its life.
    async fn must_stop(&mut self) -> Stored<Option<Stop>> {
        let now = self.drain.now();
        if now >= self.until {
            return Ok(Some(Stop::OutOfTime));
        }
        let lease = self.drain.rules.lease;
        if later(now, lease / 2) < self.hold.until {
            return Ok(None);
        }
        let until = later(now, lease);
        if self.drain.lanes.renew(&self.hold, until).await? {
            self.hold.until = until;
            Ok(None)
        } else {
            Ok(Some(Stop::Lost))
        }
    }
}

/// The error that ends a pass, kept until what is under way has ended too.
fn first(kept: &mut Option<StoreError>, error: StoreError) {
    kept.get_or_insert(error);
}

fn later(from: Timestamp, by: Duration) -> Timestamp {
    from.saturating_add(by).unwrap_or(Timestamp::MAX)
}
