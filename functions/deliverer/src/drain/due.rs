//! L3: delivering what is due.

use std::{collections::BTreeSet, pin::pin, time::Duration};

use domain::{
    breaker::Ramp,
    endpoint::Endpoint,
    id::EventId,
    lane::{Class, Found, Pointer},
    message::WakeMessage,
    ports::{Deliveries, Lanes, Notices, Queue, Registry, Stored},
};
use futures_util::{
    StreamExt as _,
    future::{Either, select, try_join_all},
    stream::FuturesUnordered,
};
use jiff::Timestamp;

use super::{
    Pass, Repeats, Sender, Stop,
    agenda::{Agenda, Begin, FRESH_EVERY, Window},
    first, later,
    turn::Turn,
};

/// The longest wait for an endpoint's rate that a holder sits out with nothing under way. A lane that has to wait for
/// longer is given back.
const PATIENCE: Duration = Duration::from_secs(2);

impl<L, R, Q, S, N> Pass<'_, '_, L, R, Q, S, N>
where
    L: Lanes + Deliveries,
    R: Registry,
    Q: Queue<WakeMessage>,
    S: Sender,
    N: Notices,
{
    /// Delivers until nothing is due, the endpoint is to be left alone, or the pass ends. Whatever the reason to stop,
    /// what is under way is brought to its end: a request without a written outcome is sent again.
    pub(super) async fn deliver(
        &mut self,
        target: &S::Target,
        endpoint: &Endpoint,
    ) -> Stored<Stop> {
        let (drain, lane, owner) = (self.drain, self.hold.lane.clone(), self.hold.owner.clone());
        let repeats = if endpoint.idempotent { Repeats::Harmless } else { Repeats::Forbidden };
        let turn = Turn { drain, lane: &lane, owner: &owner, endpoint, target, repeats };
        let now = drain.now();
        let width = endpoint.lane_width(lane.lane, drain.rules.concurrency, now);
        let mut ramp = Ramp::new(&self.left.breaker, self.left.ramp, width);
        let mut agenda = Agenda::new(endpoint, now);
        let mut running = FuturesUnordered::new();
        let (mut stop, mut trouble) = (None, None);
        loop {
            let mut waits = None;
            if stop.is_none() && trouble.is_none() {
                match self.fill(&mut agenda, ramp.width()).await {
                    Ok(reason) => stop = reason,
                    Err(error) => first(&mut trouble, error),
                }
            }
            while stop.is_none() && trouble.is_none() && running.len() < ramp.width() {
                match agenda.next(&mut self.left.paced, drain.now()) {
                    Begin::Now(pointer, delivery) => running.push(turn.attempt(pointer, delivery)),
                    Begin::Not(until) => {
                        waits = Some(until);
                        break;
                    }
                    Begin::Nothing => break,
                }
            }
            let (event, ended) = match (running.is_empty(), waits) {
                (true, None) => break,
                (true, Some(until)) if until > later(drain.now(), PATIENCE) => {
                    stop = Some(Stop::Sleep(waits));
                    break;
                }
                (true, Some(until)) => {
                    drain.sender.wait(left_until(until, drain.now())).await;
                    continue;
                }
                (false, None)
                    if stop.is_some() || trouble.is_some() || running.len() >= ramp.width() =>
                {
                    match running.next().await {
                        Some(ended) => ended,
                        None => break,
                    }
                }
                (false, waits) => {
                    // There is room. What comes meanwhile finds the lane taken, and its message is dropped: without a
                    // look now and then it would wait for the slowest of those under way.
                    let wait = pin!(async {
                        match waits {
                            Some(until) => {
                                drain.sender.wait(left_until(until, drain.now())).await;
                            }
                            None => drain.sender.look_again(FRESH_EVERY).await,
                        }
                    });
                    match select(running.next(), wait).await {
                        Either::Left((Some(ended), _)) => ended,
                        Either::Left((None, _)) | Either::Right(_) => continue,
                    }
                }
            };
            agenda.under_way.remove(&event);
            self.did = true;
            let learned = match ended {
                Ok(tried) => {
                    ramp = tried.outcome.as_ref().map_or(ramp, |outcome| ramp.after(outcome));
                    self.left.ramp = ramp.reached();
                    self.learn(&tried).await
                }
                Err(error) => Err(error),
            };
            match learned {
                Ok(None) => {}
                Ok(Some(look)) => stop = stop.or(Some(look)),
                Err(error) => first(&mut trouble, error),
            }
        }
        match trouble {
            Some(error) => Err(error),
            // Only `fill` ends it without a reason of its own, when it was called off; look again.
            None => Ok(stop.unwrap_or(Stop::Look)),
        }
    }

    /// Reads what is due if there is room for it. `Some`: stop, for that reason.
    async fn fill(&mut self, agenda: &mut Agenda, width: usize) -> Stored<Option<Stop>> {
        loop {
            if let Some(stop) = self.must_stop().await? {
                return Ok(Some(stop));
            }
            let (drain, lane) = (self.drain, &self.hold.lane);
            let (now, idle) = (drain.now(), agenda.is_idle());
            let wanted = agenda.wanted(now);
            if agenda.under_way.len() >= width || wanted.is_empty() {
                return Ok(None);
            }
            let page = agenda.page();
            let read = |window: Window| async move {
                let Window { kind, due, .. } = window;
                Ok::<_, _>((window, drain.lanes.due(lane, kind, due, page).await?))
            };
            let pages = try_join_all(wanted.into_iter().map(read)).await?;
            agenda.read(&pages, now);
            if idle && pages.iter().all(|(_, pointers)| pointers.is_empty()) {
                // Nothing is due: L4.
                let next = drain.next_due(lane).await?;
                if next.is_none_or(|next| next > drain.now()) {
                    return Ok(Some(Stop::Sleep(next)));
                }
                continue;
            }
            self.sort_out(agenda, pages).await?;
            if !agenda.is_idle() {
                return Ok(None);
            }
        }
    }

    /// Reads the deliveries behind pointers. What is due gets ready; the rest is repaired.
    async fn sort_out(
        &mut self,
        agenda: &mut Agenda,
        pages: Vec<(Window, Vec<Pointer>)>,
    ) -> Stored<()> {
        let (drain, lane) = (self.drain, &self.hold.lane);
        // The old pointer of a delivery that is under way still stands.
        let unseen: Vec<(Class, Pointer)> = pages
            .into_iter()
            .flat_map(|(window, pointers)| pointers.into_iter().map(move |p| (window.class, p)))
            .filter(|(_, pointer)| !agenda.under_way.contains(&pointer.event))
            .collect();
        let events: BTreeSet<EventId> = unseen.iter().map(|(_, pointer)| pointer.event).collect();
        if events.is_empty() {
            return Ok(());
        }
        let events: Vec<EventId> = events.into_iter().collect();
        let deliveries = drain.lanes.read(lane, &events).await?;
        for (class, pointer) in unseen {
            let delivery = deliveries.iter().find(|delivery| delivery.event == pointer.event);
            match pointer.judge(delivery) {
                Found::Due(delivery) => agenda.add(class, pointer, delivery.clone()),
                found => {
                    drain.put_right(lane, &pointer, found).await?;
                    self.did = true;
                }
            }
        }
        Ok(())
    }
}

fn left_until(until: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(until.duration_since(now)).unwrap_or_default()
}
