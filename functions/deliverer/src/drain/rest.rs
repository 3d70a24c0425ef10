//! What happens to deliveries that are not tried: held, given up, cancelled.

use std::time::Duration;

use domain::{
    delivery::{Cause, Delivery, State},
    destination::Destination,
    endpoint::{Endpoint, Seen},
    id::EventId,
    inbox::Noted,
    lane::{Found, Pointer},
    message::WakeMessage,
    polling,
    ports::{Deliveries, Lanes, Notices, Queue, Registry, Stored},
};
use jiff::Timestamp;

use super::{PAGE, Pass, Sender, Stop, later, tell};

impl<L, R, Q, S, N> Pass<'_, '_, L, R, Q, S, N>
where
    L: Lanes + Deliveries,
    R: Registry,
    Q: Queue<WakeMessage>,
    S: Sender,
    N: Notices,
{
    /// The endpoint is disabled: its deliveries stay, and those that were held for too long are given up. The lane sleeps
    /// until the next one has been.
    pub(super) async fn hold_all(&mut self, endpoint: &Endpoint, since: Timestamp) -> Stored<Stop> {
        let (drain, lane) = (self.drain, self.hold.lane.clone());
        // What was fetched and not acknowledged leaves no doubt about what we sent.
        let polled = matches!(endpoint.destination, Destination::Poll(_));
        loop {
            if let Some(stop) = self.must_stop().await? {
                return Ok(stop);
            }
            let Some(first_due) = drain.next_due(&lane).await? else {
                return Ok(Stop::Sleep(None));
            };
            let now = drain.now();
            let held_until = |due_at| Delivery::held_until(due_at, Some(since), drain.rules.hold);
            if held_until(first_due) > now {
                return Ok(Stop::Sleep(Some(held_until(first_due))));
            }
            let page = drain.due(&lane, now, PAGE).await?;
            let held = page.into_iter().filter(|pointer| held_until(pointer.due_at) <= now);
            let give_up = |delivery: &Delivery| {
                Some(match polled {
                    true => polling::given_up(delivery, Cause::HeldExpired, now),
                    false => delivery.given_up(Cause::HeldExpired, now),
                })
            };
            self.end_each(held.collect(), give_up).await?;
        }
    }

    /// The endpoint is gone: nothing is owed to it any more.
    pub(super) async fn cancel_all(&mut self) -> Stored<Stop> {
        let (drain, lane) = (self.drain, self.hold.lane.clone());
        loop {
            if let Some(stop) = self.must_stop().await? {
                return Ok(stop);
            }
            let now = drain.now();
            let Some(first_due) = drain.next_due(&lane).await? else {
                return self.cancel_without_pointers(now).await;
            };
            let page = drain.due(&lane, first_due.max(now), PAGE).await?;
            self.end_each(page, |delivery| Some(delivery.cancelled(now))).await?;
        }
    }

    /// A relay that died between a delivery and its pointer finds the endpoint gone when it comes back, and puts none. So
    /// all is looked at that may be pending: once for each wake of a lane that nobody will wake again.
    async fn cancel_without_pointers(&mut self, now: Timestamp) -> Stored<Stop> {
        let (drain, lane) = (self.drain, self.hold.lane.clone());
        let kept = drain.rules.tried_for + drain.rules.hold;
        let oldest = now.saturating_sub(kept).unwrap_or(Timestamp::MIN);
        let mut after = EventId::floor(oldest);
        loop {
            if let Some(stop) = self.must_stop().await? {
                return Ok(stop);
            }
            let page = drain.lanes.list(&lane, Some(after), PAGE).await?;
            let Some(last) = page.last() else { return Ok(Stop::Sleep(None)) };
            after = last.event;
            let pending = page.iter().filter(|delivery| delivery.state == State::Pending);
            let pointers = pending.map(Pointer::of).collect();
            self.end_each(pointers, |delivery| Some(delivery.cancelled(now))).await?;
        }
    }

    /// The endpoint is left alone: of the oldest that are due, those past their deadline are given up, or one probe at a
    /// time would have to do it.
    pub(super) async fn give_up_overdue(
        &mut self,
        endpoint: &Endpoint,
        now: Timestamp,
    ) -> Stored<()> {
        let tried_for = self.drain.rules.tried_for;
        let mut page = self.drain.due(&self.hold.lane, now, PAGE).await?;
        page.retain(|pointer| may_be_overdue(pointer, tried_for) <= now);
        let give_up = |delivery: &Delivery| {
            let is_overdue = endpoint.untried_until(delivery, tried_for) <= now;
            is_overdue.then(|| delivery.given_up(Cause::Expired, now))
        };
        self.end_each(page, give_up).await
    }

    /// Ends the deliveries behind some pointers, as far as `end` says how, and repairs the others.
    pub(super) async fn end_each(
        &mut self,
        pointers: Vec<Pointer>,
        end: impl Fn(&Delivery) -> Option<Delivery> + Send,
    ) -> Stored<()> {
        let (drain, lane) = (self.drain, &self.hold.lane);
        if pointers.is_empty() {
            return Ok(());
        }
        let mut died = None;
        let events: Vec<_> = pointers.iter().map(|pointer| pointer.event).collect();
        let deliveries = drain.lanes.read(lane, &events).await?;
        for pointer in pointers {
            let delivery = deliveries.iter().find(|delivery| delivery.event == pointer.event);
            match pointer.judge(delivery) {
                Found::Due(before) => {
                    let Some(after) = end(before) else { continue };
                    match drain.lanes.record(lane, before, &after).await? {
                        Noted::Yes => {
                            tell::ended(lane, before, &after);
                            tell::count(drain.metrics, &after);
                            died = died.or((after.state == State::Dead).then_some(before.event));
                            drain.lanes.unpoint(lane, &pointer).await?;
                        }
                        Noted::Moved => drain.repair(lane, &pointer).await?,
                    }
                }
                found => drain.put_right(lane, &pointer, found).await?,
            }
            self.did = true;
        }
        if let Some(event) = died {
            let seen = Seen { event, outcome: None, by_hand: false, died: true };
            self.note_end(seen, drain.now()).await?;
        }
        Ok(())
    }
}

/// The earliest end of the time for which the delivery behind a pointer is tried: that of one that was never held, relayed
/// late or redelivered. Each wake of a lane that is left alone looks for what is overdue, and deliveries are dear to read:
/// a pointer says by itself that there is no need.
pub(super) fn may_be_overdue(pointer: &Pointer, tried_for: Duration) -> Timestamp {
    later(pointer.event.time(), tried_for)
}
