//! One lane's part of the tables, and the gate that lets one actor take one step.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex, MutexGuard},
    task::{Poll, Waker},
    time::Duration,
};

use deliverer::drain::{Prepared, Sender};
use domain::{
    delivery::{Attempt, Delivery, NewDelivery, Outcome, State},
    endpoint::{Endpoint, Health, Notice, Stop, Stopped},
    id::{EndpointId, EventId, SourceName, TenantId},
    inbox::Noted,
    lane::{Hold, Kind, LaneId, Left, Pointer, Release, Take},
    message::WakeMessage,
    outbox::{OutboxEvent, OutboxRow, Relayed},
    ports::{
        Backlog, Bodies, Deliveries, Due, Fanout, Lanes, Notices, Outbox, Published, Queue,
        Registry, SealedSecret, Stored,
    },
    source::Source,
};
use jiff::Timestamp;

/// A mistake that is built into the store, so that the search can show that it would find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mistake {
    /// None.
    None,
    /// A release puts the lane to sleep although somebody has woken it.
    ReleaseIgnoresWakes,
    /// A repair deletes the wrong pointer and does not put the right one.
    RepairDropsPut,
    /// Whoever wakes a lane sends its message and does not write `wake_at`.
    WakeForgets,
    /// A holder that looks whether anything is left reads the pointers of retries before the fresh ones.
    RetriesReadFirst,
    /// A holder that recorded a failure deletes the old pointer and does not put the next one.
    RetryNotPointed,
    /// A delivery is written whatever mark it carries, so that two holders can begin one attempt.
    MarkIgnored,
}

/// What the tables say of one lane.
#[derive(Clone, Debug, Default)]
pub(crate) struct World {
    pub(crate) now: Timestamp,
    pub(crate) lane: Option<Lane>,
    pub(crate) deliveries: BTreeMap<EventId, Delivery>,
    pub(crate) pointers: BTreeSet<Pointer>,
    /// Events of the outbox that have no mark.
    pub(crate) unrelayed: BTreeSet<EventId>,
    /// Requests that the endpoint has seen.
    pub(crate) posts: BTreeMap<EventId, u32>,
    /// How many of each event's requests it answers with 500.
    pub(crate) failures: u32,
    /// Since when a person has stopped the endpoint.
    pub(crate) stopped: Option<Timestamp>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Lane {
    pub(crate) holder: Option<(String, Timestamp)>,
    pub(crate) fence: u64,
    pub(crate) wakes: u64,
    pub(crate) wake_at: Option<Timestamp>,
    pub(crate) left: Left,
}

impl Hash for World {
    fn hash<H: Hasher>(&self, hash: &mut H) {
        let Self { now, lane, deliveries, pointers, unrelayed, posts, failures, stopped } = self;
        let lane = lane.as_ref();
        let breaker = lane.map(|lane| lane.left.breaker);
        let breaker = breaker.map(|breaker| (breaker.failures, breaker.open_until));
        lane.map(|lane| (&lane.holder, lane.fence, lane.wakes, lane.wake_at)).hash(hash);
        for delivery in deliveries.values() {
            // The log follows from the attempts, and they from the requests.
            (delivery.event, delivery.state as u8, delivery.attempts).hash(hash);
            (delivery.due_at, delivery.deadline, &delivery.begun).hash(hash);
        }
        for pointer in pointers {
            (pointer.kind, pointer.due_at, pointer.event).hash(hash);
        }
        (now, breaker, unrelayed, posts, failures, stopped).hash(hash);
    }
}

/// The world, and who may step.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) world: World,
    /// Whose step it is. `None`: everybody runs freely, one after the other.
    turn: Option<usize>,
    is_free: bool,
    wakers: BTreeMap<usize, Waker>,
    /// Everything that each actor has done and seen. Its code is deterministic, so this is its local state.
    pub(crate) seen: BTreeMap<usize, u64>,
    /// The delivery whose outcome each actor has just recorded: what it points next is no repair.
    recorded: BTreeMap<usize, EventId>,
}

impl Shared {
    /// A world at its beginning. `is_free`: nobody waits for a turn.
    pub(crate) fn new(world: World, is_free: bool) -> Self {
        Self { world, is_free, ..Self::default() }
    }
}

/// One actor's way to the store.
#[derive(Clone, Debug)]
pub(crate) struct Door {
    pub(crate) shared: Arc<Mutex<Shared>>,
    pub(crate) actor: usize,
    pub(crate) mistake: Mistake,
    pub(crate) endpoint: Arc<Endpoint>,
    /// Whether somebody may stop the endpoint.
    pub(crate) stops: bool,
}

impl Door {
    /// A person stops the endpoint.
    pub(crate) async fn stop(&self) {
        self.step("stop", |shared| {
            let now = shared.world.now;
            shared.world.stopped.get_or_insert(now);
        })
        .await;
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap()
    }

    /// Gives an actor its turn. It takes one step when it is polled next.
    pub(crate) fn admit(shared: &Mutex<Shared>, actor: usize) {
        let mut shared = shared.lock().unwrap();
        shared.turn = Some(actor);
        if let Some(waker) = shared.wakers.remove(&actor) {
            waker.wake();
        }
    }

    async fn step<T: Debug>(&self, name: &str, effect: impl FnOnce(&mut Shared) -> T) -> T {
        std::future::poll_fn(|context| {
            let mut shared = self.lock();
            if shared.is_free || shared.turn == Some(self.actor) {
                shared.turn = None;
                return Poll::Ready(());
            }
            shared.wakers.insert(self.actor, context.waker().clone());
            Poll::Pending
        })
        .await;
        let mut shared = self.lock();
        let done = effect(&mut shared);
        let mut hash = DefaultHasher::new();
        (shared.seen.get(&self.actor), name, format!("{done:?}"), shared.world.now).hash(&mut hash);
        shared.seen.insert(self.actor, hash.finish());
        done
    }
}

fn wake(lane: &mut Option<Lane>, mistake: Mistake, now: Timestamp) {
    let lane = lane.get_or_insert_default();
    lane.wakes += 1;
    if mistake != Mistake::WakeForgets {
        lane.wake_at = Some(now);
    }
}

impl Fanout for Door {
    async fn put(&self, new: &NewDelivery) -> Stored<()> {
        let event = new.delivery.event;
        let delivery = self
            .step("put_delivery", |shared| {
                let entry = shared.world.deliveries.entry(event);
                entry.or_insert_with(|| new.delivery.clone()).clone()
            })
            .await;
        if delivery.state == State::Pending {
            self.step("put_pointer", |shared| {
                shared.world.pointers.insert(Pointer::of(&delivery));
            })
            .await;
        }
        Ok(())
    }

    async fn put_awake(&self, _: &NewDelivery, _: Timestamp) -> Stored<()> {
        unreachable!("what the relay owes is put step by step")
    }

    async fn wake(&self, _: &LaneId, now: Timestamp) -> Stored<()> {
        self.step("wake", |shared| wake(&mut shared.world.lane, self.mistake, now)).await;
        Ok(())
    }
}

impl Lanes for Door {
    async fn take(
        &self,
        lane: &LaneId,
        owner: &str,
        now: Timestamp,
        until: Timestamp,
    ) -> Stored<Take> {
        let take = |shared: &mut Shared| {
            let Some(item) = &mut shared.world.lane else { return Take::Absent };
            if item.holder.as_ref().is_some_and(|(_, ends)| *ends > now) {
                return Take::Busy;
            }
            item.fence += 1;
            item.holder = Some((owner.to_owned(), until));
            let (fence, seen, left) = (item.fence, item.wakes, item.left);
            let owner = owner.to_owned();
            Take::Held(Hold { lane: lane.clone(), owner, fence, seen, until, left })
        };
        Ok(self.step("take", take).await)
    }

    async fn renew(&self, hold: &Hold, until: Timestamp) -> Stored<bool> {
        let renew = |shared: &mut Shared| match &mut shared.world.lane {
            Some(item) if item.fence == hold.fence => {
                item.holder = Some((hold.owner.clone(), until));
                true
            }
            _ => false,
        };
        Ok(self.step("renew", renew).await)
    }

    async fn release(
        &self,
        hold: &Hold,
        wake_at: Option<Timestamp>,
        left: Left,
    ) -> Stored<Release> {
        let ignores = self.mistake == Mistake::ReleaseIgnoresWakes;
        let release = |shared: &mut Shared| match &mut shared.world.lane {
            Some(item) if item.fence != hold.fence => Release::Lost,
            Some(item) if item.wakes != hold.seen && !ignores => Release::Woken(item.wakes),
            Some(item) => {
                (item.holder, item.wake_at, item.left) = (None, wake_at, left);
                Release::Done
            }
            None => Release::Lost,
        };
        Ok(self.step("release", release).await)
    }

    async fn sleepers(&self, _: u16, _: Timestamp, _: usize) -> Stored<Vec<LaneId>> {
        unreachable!("the sweeper is part of the healing")
    }

    async fn due_backlog(&self, _: u16, _: Timestamp) -> Stored<Backlog> {
        unreachable!("nobody asks for gauges")
    }
}

impl Deliveries for Door {
    async fn due(&self, _: &LaneId, kind: Kind, due: Due, limit: usize) -> Stored<Vec<Pointer>> {
        let due = |shared: &mut Shared| {
            let of_kind = shared.world.pointers.iter().filter(|pointer| pointer.kind == kind);
            of_kind.filter(|pointer| pointer.due_at <= due.until).take(limit).cloned().collect()
        };
        Ok(self.step("due", due).await)
    }

    async fn next_due(&self, _: &LaneId, kind: Kind) -> Stored<Option<Timestamp>> {
        let kind = match (self.mistake, kind) {
            (Mistake::RetriesReadFirst, Kind::Fresh) => Kind::Retry,
            (Mistake::RetriesReadFirst, Kind::Retry) => Kind::Fresh,
            (_, kind) => kind,
        };
        let first = |shared: &mut Shared| {
            let mut pointers = shared.world.pointers.iter();
            pointers.find(|pointer| pointer.kind == kind).map(|first| first.due_at)
        };
        Ok(self.step("next_due", first).await)
    }

    async fn list(
        &self,
        _: &LaneId,
        after: Option<EventId>,
        limit: usize,
    ) -> Stored<Vec<Delivery>> {
        let list = |shared: &mut Shared| {
            let deliveries = shared.world.deliveries.iter();
            let behind = deliveries.filter(|(event, _)| Some(**event) > after);
            behind.take(limit).map(|(_, delivery)| delivery.clone()).collect()
        };
        Ok(self.step("list", list).await)
    }

    async fn read(&self, _: &LaneId, events: &[EventId]) -> Stored<Vec<Delivery>> {
        let read = |shared: &mut Shared| {
            let deliveries = events.iter().filter_map(|event| shared.world.deliveries.get(event));
            deliveries.cloned().collect()
        };
        Ok(self.step("read", read).await)
    }

    async fn record(&self, _: &LaneId, before: &Delivery, after: &Delivery) -> Stored<Noted> {
        let ignores = self.mistake == Mistake::MarkIgnored;
        let record = |shared: &mut Shared| match shared.world.deliveries.get_mut(&before.event) {
            Some(item)
                if item.state == State::Pending
                    && item.attempts == before.attempts
                    && (ignores || item.begun == before.begun) =>
            {
                *item = after.clone();
                shared.recorded.insert(self.actor, before.event);
                Noted::Yes
            }
            _ => Noted::Moved,
        };
        Ok(self.step("record", record).await)
    }

    async fn point(&self, _: &LaneId, pointer: &Pointer) -> Stored<()> {
        self.step("point", |shared| {
            let is_next = shared.recorded.remove(&self.actor) == Some(pointer.event);
            let dropped = if is_next { Mistake::RetryNotPointed } else { Mistake::RepairDropsPut };
            if self.mistake != dropped {
                shared.world.pointers.insert(pointer.clone());
            }
        })
        .await;
        Ok(())
    }

    async fn unpoint(&self, _: &LaneId, pointer: &Pointer) -> Stored<()> {
        self.step("unpoint", |shared| {
            shared.recorded.remove(&self.actor);
            shared.world.pointers.remove(pointer);
        })
        .await;
        Ok(())
    }

    async fn redeliver(
        &self,
        _: &LaneId,
        event: EventId,
        deadline: Timestamp,
        now: Timestamp,
    ) -> Stored<Noted> {
        let redeliver = |shared: &mut Shared| {
            match shared.world.deliveries.get_mut(&event) {
                Some(item) if item.state != State::Pending => {
                    *item = item.asked_for(deadline, now);
                    let due = Pointer::of(item);
                    shared.world.pointers.insert(due);
                }
                _ => return Noted::Moved,
            }
            wake(&mut shared.world.lane, self.mistake, now);
            Noted::Yes
        };
        Ok(self.step("redeliver", redeliver).await)
    }

    // Nothing here changes an endpoint's health, except that failures are noted; no step of the protocol hangs on it.
    async fn health(&self, _: &TenantId, _: EndpointId) -> Stored<Health> {
        Ok(Health::default())
    }

    async fn note_health(&self, _: &TenantId, _: EndpointId, _: &Health) -> Stored<Noted> {
        Ok(Noted::Yes)
    }
}

impl Registry for Door {
    async fn source(&self, _: &SourceName) -> Stored<Option<Source>> {
        Ok(None)
    }

    async fn endpoints_epoch(&self, _: &TenantId) -> Stored<u64> {
        Ok(1)
    }

    async fn endpoints(&self, _: &TenantId) -> Stored<Vec<Endpoint>> {
        Ok(vec![Endpoint::clone(&self.endpoint)])
    }

    /// No step, unless somebody may stop it: otherwise it is the same at any time.
    async fn endpoint(
        &self,
        _: &TenantId,
        _: EndpointId,
    ) -> Stored<Option<(Endpoint, Vec<SealedSecret>)>> {
        let mut endpoint = Endpoint::clone(&self.endpoint);
        if self.stops {
            let since = self.step("endpoint", |shared| shared.world.stopped).await;
            let (how, reason) = (Stop::Disabled, String::new());
            endpoint.stopped = since.map(|since| Stopped { since, how, reason });
        }
        Ok(Some((endpoint, Vec::new())))
    }

    async fn sources(&self) -> Stored<Vec<Source>> {
        Ok(Vec::new())
    }
}

impl Outbox for Door {
    async fn publish(&self, _: &OutboxEvent, _: Option<&str>) -> Stored<Published> {
        unreachable!("everything is published before")
    }

    async fn publish_to(&self, _: &OutboxEvent, _: &Relayed) -> Stored<()> {
        unreachable!("nobody publishes")
    }

    async fn event(&self, _: &TenantId, _: EventId) -> Stored<Option<OutboxRow>> {
        Ok(None)
    }

    async fn mark(&self, _: &TenantId, id: EventId, _: &Relayed) -> Stored<()> {
        self.step("mark", |shared| {
            shared.world.unrelayed.remove(&id);
        })
        .await;
        Ok(())
    }

    async fn checkpoint(&self, _: &TenantId, _: EventId, _: &[EndpointId]) -> Stored<()> {
        unreachable!("one endpoint is one step")
    }

    async fn reached(&self, _: &TenantId, _: EventId) -> Stored<Vec<EndpointId>> {
        unreachable!("one endpoint is one step")
    }

    async fn unmatched(
        &self,
        _: &TenantId,
        _: Timestamp,
        _: usize,
    ) -> Stored<Vec<(Timestamp, EventId)>> {
        unreachable!("nobody asks")
    }

    async fn unrelayed(&self, _: u16, _: Timestamp, _: usize) -> Stored<Vec<(TenantId, EventId)>> {
        unreachable!("the sweeper is part of the healing")
    }

    async fn unrelayed_backlog(&self, _: u16) -> Stored<Backlog> {
        unreachable!("nobody asks for gauges")
    }
}

/// Nothing here is worth a notice.
impl Notices for Door {
    async fn tell(&self, _: &Endpoint, _: &Notice) -> Stored<()> {
        Ok(())
    }
}

impl Bodies for Door {
    async fn put(&self, _: &str, _: Vec<u8>) -> Stored<()> {
        unreachable!("the payload is small")
    }

    async fn get(&self, _: &str, _: usize) -> Stored<Option<Vec<u8>>> {
        unreachable!("the payload is small")
    }
}

/// Every message is lost.
impl Queue<WakeMessage> for Door {
    async fn send(&self, _: &[WakeMessage], _: Duration) -> Vec<usize> {
        Vec::new()
    }

    async fn defer(&self, _: &str, _: Duration) {}

    async fn visible(&self) -> Stored<u64> {
        Ok(0)
    }
}

impl Sender for Door {
    type Target = ();
    type Request = ();

    async fn open(&self, _: Endpoint, _: Vec<SealedSecret>) -> Stored<()> {
        Ok(())
    }

    async fn prepare(&self, (): &(), _: &LaneId, _: &Delivery) -> Stored<Prepared<()>> {
        Ok(Prepared::Ready(()))
    }

    /// No time passes while a request is under way.
    async fn look_again(&self, _: Duration) {
        std::future::pending::<()>().await;
    }

    async fn send(&self, _: &LaneId, delivery: &Delivery, (): ()) -> Attempt {
        let post = |shared: &mut Shared| {
            let posts = shared.world.posts.entry(delivery.event).or_default();
            *posts += 1;
            let status = if *posts <= shared.world.failures { 500 } else { 200 };
            Attempt {
                number: delivery.attempts + 1,
                at: shared.world.now,
                duration_ms: 0,
                outcome: Outcome::Answered { status, retry_after_ms: None },
                excerpt: String::new(),
            }
        };
        self.step("post", post).await
    }
}
