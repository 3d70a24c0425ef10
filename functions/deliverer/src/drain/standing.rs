//! How the endpoint stands: what is learned of it, and what its owner has to hear.

use domain::{
    endpoint::{Endpoint, Health, Seen},
    inbox::Noted,
    message::WakeMessage,
    ports::{Deliveries, Lanes, Notices, Queue, Registry, Stored},
};
use jiff::Timestamp;
use runtime::telemetry::chain;

use super::{Pass, Sender, Stop, later, turn::Tried};

/// An endpoint and its health, as they were read last.
#[derive(Debug)]
pub(super) struct Standing {
    pub(super) endpoint: Endpoint,
    pub(super) health: Health,
}

/// How often a change of the health is tried again because another lane's holder was faster. In each round one of them
/// gets through.
const ROUNDS: u32 = 20;

impl<L, R, Q, S, N> Pass<'_, '_, L, R, Q, S, N>
where
    L: Lanes + Deliveries,
    R: Registry,
    Q: Queue<WakeMessage>,
    S: Sender,
    N: Notices,
{
    /// What the end of an attempt means for the lane and the endpoint.
    pub(super) async fn learn(&mut self, tried: &Tried) -> Stored<Option<Stop>> {
        let now = self.drain.now();
        if let Some(outcome) = &tried.outcome {
            let limits = &self.drain.rules.breaker;
            self.left.breaker = self.left.breaker.after(limits, outcome, now);
        }
        self.note_end(tried.seen(), now).await?;
        let disabled =
            self.standing.as_ref().is_some_and(|standing| standing.health.disabled.is_some());
        let leave = disabled || self.left.breaker.open(now).is_some();
        Ok(leave.then_some(Stop::Look))
    }

    /// Writes down what an end means for the endpoint's health, if it means anything.
    pub(super) async fn note_end(&mut self, seen: Seen<'_>, now: Timestamp) -> Stored<()> {
        let limits = self.drain.rules.health;
        self.note(|health| health.after(&limits, seen, now)).await
    }

    async fn note(&mut self, change: impl Fn(&Health) -> Option<Health> + Send) -> Stored<()> {
        let lanes = self.drain.lanes;
        let Some(Standing { endpoint, health }) = &mut self.standing else { return Ok(()) };
        for _ in 0..ROUNDS {
            let Some(changed) = change(health) else { return Ok(()) };
            match lanes.note_health(&endpoint.tenant, endpoint.id, &changed).await? {
                Noted::Yes => {
                    let newly = changed.disabled.is_some() && health.disabled.is_none();
                    self.drain.metrics.count("endpoints_disabled_total", None, u32::from(newly));
                    *health = changed;
                    return Ok(());
                }
                Noted::Moved => {
                    let found = lanes.health(&endpoint.tenant, endpoint.id).await?;
                    *health = endpoint.health_now(found);
                }
            }
        }
        // The next end tries again.
        tracing::warn!(
            tenant = %endpoint.tenant, endpoint = %endpoint.id,
            "the endpoint's health was not written: too many lanes write it at once"
        );
        Ok(())
    }

    /// Tells the endpoint's owner what he has yet to hear, and strikes out what was taken. In this order: a death in
    /// between tells it again, under the same id.
    pub(super) async fn tell_owed(&mut self) {
        let Some(Standing { endpoint, health }) = &self.standing else { return };
        let mut taken = Vec::new();
        for notice in &health.owed {
            match self.drain.notices.tell(endpoint, notice).await {
                Ok(()) => taken.push(notice.clone()),
                Err(error) => {
                    tracing::warn!(
                        tenant = %endpoint.tenant, endpoint = %endpoint.id,
                        notice = notice.what.name(), error = %chain(&error),
                        "a notice was not taken; it stays owed"
                    );
                    break;
                }
            }
        }
        if taken.is_empty() {
            return;
        }
        let strike = |health: &Health| {
            health.owed.iter().any(|notice| taken.contains(notice)).then(|| health.told(&taken))
        };
        if let Err(error) = self.note(strike).await {
            tracing::warn!(error = %chain(&error), "a notice that was taken is still owed, and comes again");
        }
    }

    /// When a lane that goes to sleep is woken: soon, while somebody has yet to be told something.
    pub(super) fn awake_until_told(
        &self,
        wake_at: Option<Timestamp>,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let owes = self.standing.as_ref().is_some_and(|standing| !standing.health.owed.is_empty());
        let again = owes.then(|| later(now, self.drain.rules.breaker.probe));
        wake_at.into_iter().chain(again).min()
    }
}
