//! What is left to do where an endpoint's owner fetches: nothing is sent, and what nobody fetched in time is given up.

use std::time::Duration;

use domain::{
    delivery::{Cause, Delivery},
    endpoint::Endpoint,
    message::WakeMessage,
    polling,
    ports::{Deliveries, Lanes, Notices, Queue, Registry, Stored},
};

use super::{PAGE, Pass, Sender, Stop, later, rest::may_be_overdue};

/// The longest sleep of a lane that something is owed in. What is fetched and comes again has its pointer elsewhere then,
/// and its deadline is seen this late at most.
const LONGEST: Duration = Duration::from_hours(1);

impl<L, R, Q, S, N> Pass<'_, '_, L, R, Q, S, N>
where
    L: Lanes + Deliveries,
    R: Registry,
    Q: Queue<WakeMessage>,
    S: Sender,
    N: Notices,
{
    /// Gives up what is due and past its deadline, and lets the lane sleep until the next one is.
    pub(super) async fn leave_to_poller(&mut self, endpoint: &Endpoint) -> Stored<Stop> {
        let (drain, lane) = (self.drain, self.hold.lane.clone());
        let deadline = |of: &Delivery| endpoint.untried_until(of, drain.rules.tried_for);
        loop {
            if let Some(stop) = self.must_stop().await? {
                return Ok(stop);
            }
            let now = drain.now();
            if drain.next_due(&lane).await?.is_none() {
                return Ok(Stop::Sleep(None));
            }
            let page = drain.due(&lane, now, PAGE).await?;
            let tried_for = drain.rules.tried_for;
            let (old, young): (Vec<_>, Vec<_>) =
                page.into_iter().partition(|pointer| may_be_overdue(pointer, tried_for) <= now);
            let events: Vec<_> = old.iter().map(|pointer| pointer.event).collect();
            let found = match events.is_empty() {
                true => Vec::new(),
                false => drain.lanes.read(&lane, &events).await?,
            };
            if found.iter().all(|delivery| deadline(delivery) > now) {
                let later_ones = young.iter().map(|pointer| may_be_overdue(pointer, tried_for));
                let first = found.iter().map(deadline).chain(later_ones).min();
                let longest = later(now, LONGEST);
                return Ok(Stop::Sleep(Some(first.map_or(longest, |first| first.min(longest)))));
            }
            let give_up = |delivery: &Delivery| {
                let is_overdue = deadline(delivery) <= now;
                is_overdue.then(|| polling::given_up(delivery, Cause::Expired, now))
            };
            self.end_each(old, give_up).await?;
        }
    }
}
