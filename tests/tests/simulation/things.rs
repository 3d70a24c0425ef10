//! A provider whose events carry no version: of each thing only its current state can be asked for, and every answer may be
//! old when it comes.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    task::Poll,
    time::Duration,
};

use domain::{
    fetch::{Fetch, FetchChoice, Pace},
    id::{InboxKey, SourceName},
    ports::{SourceSecret, SourceSecrets, Stored, Turn, Turns},
    secret::SecretText,
    source::{Handler, SchemeChoice, Source},
};
use fetch::{Answered, Call};
use http::HeaderMap;
use jiff::Timestamp;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use serde_json::{Value, json};
use testkit::memory::Tables;
use worker::fetching::{Asker, NoAnswer, Provider};

use crate::{
    subscriber,
    world::{Fact, Nature, tenant},
};

/// The source of things without versions.
pub(crate) const THINGS: &str = "things";

/// Longest time that a thing is held. Longer than a process of the simulation may sleep, or not.
const LEASE: Duration = Duration::from_secs(45);

/// The provider: how far each thing is, and how reliably it answers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Truth {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    things: BTreeMap<String, u64>,
    luck: Option<(StdRng, f64)>,
}

impl Truth {
    /// A thing changes: it is so far now, unless it is further already.
    pub(crate) fn change(&self, fact: &Fact) {
        if let Some((id, n)) = &fact.thing {
            let mut inner = self.inner.lock().unwrap();
            let is = inner.things.entry(id.clone()).or_default();
            *is = (*is).max(*n);
        }
    }

    /// Which share of its answers is none.
    pub(crate) fn set_failures(&self, seed: u64, share: f64) {
        let luck = (share > 0.0).then(|| (StdRng::seed_from_u64(seed), share));
        self.inner.lock().unwrap().luck = luck;
    }

    /// The way to ask it.
    pub(crate) fn asker(&self) -> Asker<Self, Self, Self, fn() -> Timestamp> {
        let fresh = (Duration::from_secs(300), Duration::from_secs(3600));
        let now: fn() -> Timestamp = subscriber::now;
        Asker::new(
            self.clone(),
            self.clone(),
            self.clone(),
            now,
            (Duration::from_secs(10), LEASE),
            fresh,
        )
    }

    fn draw<T>(&self, draw: impl FnOnce(&mut StdRng, f64) -> T) -> Option<T> {
        let mut inner = self.inner.lock().unwrap();
        inner.luck.as_mut().map(|(rng, share)| draw(rng, *share))
    }
}

impl Turns for Truth {
    async fn take_turn(
        &self,
        _: &SourceName,
        _: Pace,
        _: Duration,
        now: Timestamp,
    ) -> Stored<Turn> {
        let waits = self.draw(|rng, share| rng.random_bool(share / 2.0)).unwrap_or_default();
        let later = now.saturating_add(Duration::from_secs(20)).unwrap();
        Ok(if waits { Turn::Later(later) } else { Turn::Now })
    }

    async fn hold_turns(&self, _: &SourceName, _: Timestamp) -> Stored<()> {
        Ok(())
    }
}

impl SourceSecrets for Truth {
    async fn of(&self, _: &SourceName) -> Stored<Vec<SourceSecret>> {
        let text = SecretText::new("sk_simulated".to_owned());
        Ok(vec![SourceSecret { id: "1".to_owned(), text, expires_at: None }])
    }
}

impl Provider for Truth {
    /// Looks at once, and answers when it likes.
    async fn get(&self, call: &Call, _: Duration) -> Result<Answered, NoAnswer> {
        let id = call.url.rsplit('/').next().unwrap_or_default().to_owned();
        let is = self.inner.lock().unwrap().things.get(&id).copied();
        let luck = self.draw(|rng, share| {
            (rng.random_range(0..12), rng.random_bool(share), rng.random_bool(0.5))
        });
        let (mut polls, fails, is_late) = luck.unwrap_or((1, false, false));
        std::future::poll_fn(|_| {
            if polls == 0 {
                return Poll::Ready(());
            }
            polls -= 1;
            Poll::Pending
        })
        .await;
        if fails && is_late {
            return Err(NoAnswer::Late);
        }
        let body = json!({ "id": id, "object": "invoice", "n": is }).to_string().into_bytes();
        let status = if fails { 503 } else { 200 };
        Ok(Answered { status, headers: HeaderMap::new(), body })
    }
}

/// Its events say which thing, and not how new.
pub(crate) fn scheme() -> Value {
    json!({ "like": "stripe", "identity": { "version": null } })
}

/// How the source is configured.
pub(crate) fn source() -> Source {
    let scheme = SchemeChoice::Own(scheme());
    let handler = Handler::Mirror { emit_to: Some(tenant()), states: None };
    let source = Source::new(THINGS.parse().unwrap(), scheme, handler, Timestamp::UNIX_EPOCH);
    let choice = FetchChoice::Preset("stripe".to_owned());
    Source { fetch: Some(Fetch { choice, when: None }), ..source }
}

/// A thing has changed for the `n`-th time. The event does not say so.
pub(crate) fn changed(id: &str, thing: &str, n: u64) -> Fact {
    let object = json!({ "object": "invoice", "id": thing });
    let body =
        json!({ "id": id, "type": "invoice.updated", "created": 1, "data": { "object": object } });
    Fact {
        key: InboxKey::new(THINGS.parse().unwrap(), id).unwrap(),
        body: body.to_string().into_bytes(),
        object: None,
        says: None,
        thing: Some((thing.to_owned(), n)),
        nature: Nature::Good,
    }
}

/// How far each thing is held to be.
pub(crate) fn held(tables: &Tables) -> BTreeMap<String, u64> {
    let things = tables.objects.iter().filter(|((source, _), _)| source.as_str() == THINGS);
    let n = |fields: &Value| fields.get("n").and_then(Value::as_u64).unwrap_or_default();
    things.map(|((_, object), is)| (object.id.clone(), n(&is.fields))).collect()
}

/// How far each thing is, by the facts.
pub(crate) fn furthest(facts: &[Fact]) -> BTreeMap<String, u64> {
    let mut furthest = BTreeMap::<String, u64>::new();
    for (thing, n) in facts.iter().filter_map(|fact| fact.thing.as_ref()) {
        let is = furthest.entry(thing.clone()).or_default();
        *is = (*is).max(*n);
    }
    furthest
}
