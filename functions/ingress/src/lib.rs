//! Accepts webhooks from providers.
//!
//! A 2xx answer to an event means one thing: the event is in the table, and something will find it there even if every
//! queue is lost. Never here: a handler, a second meaning of 2xx, work after the answer, a call to a provider, a reason
//! told to the sender.
//!
//! The steps: I1 the source and its keys; I2 the untouched body; I3 its signature; I4 what the event is called; I5 where
//! its body goes; I6 the row, put if absent; I7 what it means that one was there; I8 a message to the worker; I9 the
//! answer. A handshake is answered between I2 and I3, and is never an event.
//!
//! Reading order: [`Ingress::receive`] is the story; [`sources`] is I1; `shake` is the handshakes; `signing` is I3; `flow`
//! is I4 to I8; [`lookout`] is what the operators see of it; [`gateway`] and [`Answer`] are the outside.

mod answer;
pub mod config;
pub mod gateway;
pub mod lookout;
mod shake;
pub mod sources;
mod told;

use std::{sync::Arc, time::Duration};

use domain::{
    id::SourceName,
    inbox::Accepted,
    message::InboundMessage,
    ports::{AcceptReport, Bodies, Inbox, Learning, PublishedKeys, Queue, SetSourceSecrets, Watch},
};
use flow::{
    accept::{Door, Entry},
    incoming::Incoming,
};
use jiff::Timestamp;
use runtime::telemetry::Metrics;
use signing::{Reason, Rejected, Request, Verified};
use tokio::time::{Instant, timeout_at};

pub use crate::{
    answer::{Answer, Refused},
    config::Config,
    lookout::Lookout,
};
use crate::{
    gateway::Arrival,
    shake::Shaken,
    sources::{Feed, Sources},
};

/// Most bytes of a body. Lambda takes no request of more than 6 MB, so that only other hosts could bring more.
pub const MAX_BODY: usize = 6 * 1024 * 1024;

/// What the function needs, built once at cold start.
#[derive(Debug)]
pub struct Ingress<'a, R, S, I, Q, B, T> {
    /// Who may send.
    pub sources: Sources<'a, R, S, T>,
    /// Where events go.
    pub door: Door<'a, I, Q, B>,
    /// Who keeps an eye on the sources.
    pub lookout: Lookout<'a, T>,
    /// What is counted.
    pub metrics: Metrics,
    /// For the work on one request.
    pub budget: Duration,
}

/// What was taken in.
enum Taken {
    Event(Receipt),
    Handshake(SourceName, Shaken),
}

/// An event that is in the table.
struct Receipt {
    /// The source that it came to, whatever name it is filed under.
    source: SourceName,
    entry: Entry,
    /// The secret that matched.
    key_id: String,
    /// The key that matched was published long ago: time to ask for it again.
    is_ageing: bool,
    answer: Answer,
}

impl<R, S, I, Q, B, T> Ingress<'_, R, S, I, Q, B, T>
where
    R: Learning,
    S: SetSourceSecrets,
    I: Inbox,
    Q: Queue<InboundMessage>,
    B: Bodies,
    T: Watch + PublishedKeys,
{
    /// Takes one request in. `token` tells this try apart from every other.
    pub async fn receive(&self, arrival: &Arrival, token: String, now: Timestamp) -> Answer {
        let began = Instant::now();
        let deadline = began + self.budget;
        let taken = timeout_at(deadline, self.take(arrival, token, now)).await;
        match taken.unwrap_or(Err(Refused::Late)) {
            Ok(Taken::Event(mut receipt)) => {
                // The row is there: whatever happens from here on, the answer is yes.
                let _ = timeout_at(deadline, self.follow(&mut receipt, now)).await;
                self.tell_accepted(&receipt, began.elapsed());
                receipt.answer
            }
            Ok(Taken::Handshake(source, shaken)) => {
                self.tell_shaken(&source, &shaken, began.elapsed());
                shaken.answer
            }
            Err(refused) => {
                let _ = timeout_at(deadline, self.regret(arrival, &refused, now)).await;
                self.tell_refused(arrival, &refused, began.elapsed());
                refused.answer()
            }
        }
        // I9. Nothing runs after the answer: a frozen sandbox would never finish it.
    }

    /// I1 to I7: everything that decides the answer.
    async fn take(
        &self,
        arrival: &Arrival,
        token: String,
        now: Timestamp,
    ) -> Result<Taken, Refused> {
        // I1
        let name = arrival.source.parse::<SourceName>().map_err(|_| Refused::NoSource)?;
        let feed = self.sources.find(&name, now).await?.ok_or(Refused::NoSource)?;
        // I2
        let body = arrival.body.as_deref().ok_or(Refused::BadBase64)?;
        if body.len() > MAX_BODY {
            return Err(Refused::TooLarge(body.len()));
        }
        if let Some(shaken) = self.shake(&feed, arrival, &token, now).await? {
            return Ok(Taken::Handshake(name, shaken));
        }
        if arrival.method != "POST" {
            return Err(Refused::NoSource);
        }
        // I3
        let (feed, verdict) = self.judge(feed, arrival, now).await;
        let verified =
            verdict.map_err(|rejected| match (rejected.wanted_key(), rejected.reason()) {
                // Not the sender's fault, and the sweeper will have fetched it when the provider tries again.
                (Some(_), _) => Refused::KeyUnknown(rejected),
                // Another sandbox may have learned it a moment ago, and events follow at once.
                (None, Reason::NoKeys) if feed.waits(now) => Refused::KeyUnknown(rejected),
                _ => Refused::Untrusted(rejected),
            })?;
        // I4 to I7
        let key_id = verified.key().as_str().to_owned();
        let incoming = Incoming::verified(&feed.source, verified, &arrival.headers).under(
            &feed.scheme,
            &request(arrival),
            now,
        );
        let entry = self.door.put(incoming, token, now).await?;
        let answer = Answer::to_event(feed.scheme.acknowledge());
        let is_ageing = feed.is_ageing(&key_id, now);
        Ok(Taken::Event(Receipt { source: name, entry, key_id, is_ageing, answer }))
    }

    /// I3: the verdict, by the secrets as they are now if those at hand do not do; and the feed that it is by.
    async fn judge<'r>(
        &self,
        feed: Arc<Feed>,
        arrival: &'r Arrival,
        now: Timestamp,
    ) -> (Arc<Feed>, Result<Verified<'r>, Rejected>) {
        match verify(&feed, arrival, now) {
            Err(rejected) if rejected.is_refreshable() => {
                match self.sources.refresh(&feed.source.name, now).await {
                    Some(newer) => {
                        let verdict = verify(&newer, arrival, now);
                        (newer, verdict)
                    }
                    None => (feed, Err(rejected)),
                }
            }
            verdict => (feed, verdict),
        }
    }

    /// I8, and what the operators see. None of it can change the answer.
    async fn follow(&self, receipt: &mut Receipt, now: Timestamp) {
        self.door.announce(&mut receipt.entry).await;
        self.tell_enqueued(receipt);
        if receipt.is_ageing {
            self.lookout.renew(&receipt.source, &receipt.key_id, now).await;
        }
        let is_new = receipt.entry.accepted == Accepted::New;
        let report = AcceptReport { at: now, key_id: Some(receipt.key_id.clone()), is_new };
        self.lookout.accepted(&receipt.source, &report).await;
        if let Some(other) = receipt.entry.other_body(now) {
            let (inbox, key) = (self.door.inbox, &receipt.entry.key);
            self.lookout.other_body(&receipt.source, inbox, key, &other).await;
        }
    }

    /// What a refused request leaves behind: a count, now and then a sample, and the wish for a key.
    async fn regret(&self, arrival: &Arrival, refused: &Refused, now: Timestamp) {
        let Some(name) = self.known(arrival) else { return };
        if let Refused::KeyUnknown(rejected) = refused
            && let Some(id) = rejected.wanted_key()
        {
            self.lookout.want(&name, id, now).await;
        }
        self.lookout.refused(&name, arrival, refused, now).await;
    }

    /// The source that a request names, if there is one of this name: each value of a dimension is a metric, each source
    /// has its rows, and strangers choose the other names.
    fn known(&self, arrival: &Arrival) -> Option<SourceName> {
        arrival.source.parse().ok().filter(|name| self.sources.is_known(name))
    }
}

fn verify<'a>(feed: &Feed, arrival: &'a Arrival, now: Timestamp) -> Result<Verified<'a>, Rejected> {
    signing::verify(&feed.scheme, &feed.keys(now), &request(arrival), now)
}

/// A request as `signing` looks at it.
fn request(arrival: &Arrival) -> Request<'_> {
    Request {
        method: &arrival.method,
        url: &arrival.url,
        headers: &arrival.headers,
        body: arrival.body.as_deref().unwrap_or_default(),
        path_secret: arrival.slot.as_deref(),
    }
}
