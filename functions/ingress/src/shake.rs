//! Handshakes: a provider makes sure of us, brings a secret, or wants a subscription confirmed. Never an event.
//!
//! What is answered, and to what exactly, `signing` decides. Here is only what must be stored before the answer is given.

use std::time::Duration;

use domain::{
    id::SourceName,
    message::InboundMessage,
    ports::{
        Bodies, Changed, Inbox, Learning, ProviderKeys, Queue, SetSourceSecrets, SourceSecret,
        StoreError, Want, Watch,
    },
    secret::SecretText,
};
use jiff::Timestamp;
use signing::{Reason, Rejected, Secret, handshake};

use crate::{Answer, Ingress, Refused, gateway::Arrival, request, sources::Feed};

/// How long a claim on a source that waits for a secret holds: longer than the work on one request, so that the other of
/// two handshakes at once cannot slip in between; short, so that a death in between costs the provider one more try.
const CLAIM: Duration = Duration::from_secs(30);

/// A request that was a handshake.
#[derive(Clone, Debug)]
pub(crate) struct Shaken {
    /// What it was about, for the log.
    pub(crate) what: &'static str,
    /// What the provider waits for.
    pub(crate) answer: Answer,
}

impl<R, S, I, Q, B, T> Ingress<'_, R, S, I, Q, B, T>
where
    R: Learning,
    S: SetSourceSecrets,
    I: Inbox,
    Q: Queue<InboundMessage>,
    B: Bodies,
    T: Watch + ProviderKeys,
{
    /// Answers a handshake. `None`: it is none.
    pub(crate) async fn shake(
        &self,
        feed: &Feed,
        arrival: &Arrival,
        token: &str,
        now: Timestamp,
    ) -> Result<Option<Shaken>, Refused> {
        let Some(answer) = self.answer_of(feed, arrival, now).await else { return Ok(None) };
        let name = &feed.source.name;
        let (what, reply) = match answer {
            handshake::Answer::Reply(reply) => ("replied", reply),
            handshake::Answer::Learn { secret, reply } => {
                self.learn(name, &secret, token, now).await?;
                ("learned", reply)
            }
            handshake::Answer::Confirm { url, reply } => {
                let want = Want::Confirm(url);
                let owed = self.lookout.state().want(name, &want, now).await;
                if !owed.map_err(Refused::Owing)? {
                    return Err(Refused::OwedTooMuch);
                }
                ("confirms", reply)
            }
            handshake::Answer::Refused(rejected) => return Err(Refused::Untrusted(rejected)),
        };
        Ok(Some(Shaken { what, answer: Answer::Said(reply) }))
    }

    /// What is to be answered, by the secrets as they are now if those at hand do not do.
    async fn answer_of(
        &self,
        feed: &Feed,
        arrival: &Arrival,
        now: Timestamp,
    ) -> Option<handshake::Answer> {
        let answer = |feed: &Feed| {
            let request = request(arrival);
            handshake::answer(&feed.scheme, &feed.keys(now), &request, feed.waits(now), now)
        };
        match answer(feed) {
            Some(handshake::Answer::Refused(rejected)) if may_change(&rejected) => {
                match self.sources.refresh(&feed.source.name, now).await {
                    Some(newer) => answer(&newer),
                    None => Some(handshake::Answer::Refused(rejected)),
                }
            }
            answer => answer,
        }
    }

    /// Stores the secret that a handshake brought. Whoever comes first sets the secret, and for that the window is open
    /// only while the source waits. The race: two handshakes at once see the same waiting source; the claim in the
    /// registry is conditional, one of them has it, and the other is refused before it has stored anything.
    async fn learn(
        &self,
        name: &SourceName,
        secret: &Secret,
        token: &str,
        now: Timestamp,
    ) -> Result<(), Refused> {
        let (registry, secrets) = (self.sources.registry(), self.sources.secrets());
        let until = now.saturating_add(CLAIM).unwrap_or(Timestamp::MAX);
        let claimed = registry.claim_secret(name, token, now, until).await;
        if !claimed.map_err(Refused::Learning)? {
            return Err(Refused::NotWaiting);
        }
        // Dying here leaves a claim that ends by itself, and dying after the next line a secret that the provider does
        // not use: its next handshake brings another, under another id.
        let secret = SourceSecret {
            id: format!("learned-{}", now.strftime("%Y%m%dT%H%M%SZ")),
            text: SecretText::new(secret.expose().to_owned()),
            expires_at: None,
        };
        match secrets.add(name, &secret, None).await.map_err(Refused::Learning)? {
            Changed::Yes => {}
            Changed::NoSuchId | Changed::IdTaken => {
                let taken = "another secret was learned in this very second";
                return Err(Refused::Learning(StoreError::Throttled(taken.into())));
            }
        }
        if !registry.learned(name, token).await.map_err(Refused::Learning)? {
            return Err(Refused::NotWaiting);
        }
        self.sources.forget(name);
        Ok(())
    }
}

/// Whether a newer configuration could change the verdict: other secrets, or a source that waits by now.
fn may_change(rejected: &Rejected) -> bool {
    rejected.is_refreshable() || matches!(rejected.reason(), Reason::HandshakeUnexpected)
}
