//! What is owed to providers, or wanted from them: a published key that a request named, a confirmation that a handshake
//! asked for.
//!
//! Ingress never calls out: it writes down what it wants, and here it is fetched. Which address is called, and what an
//! answer is worth, `signing` says; the host is always one that the scheme pins.

use std::{collections::BTreeMap, time::Duration};

use domain::{
    id::SourceName,
    ports::{Owed, PublishedKey, PublishedKeys, Registry, SourceSecrets, Stored, Want},
};
use flow::scheme;
use futures_util::{StreamExt as _, stream};
use jiff::{SignedDuration, Timestamp};
use runtime::telemetry::{Step, chain};
use signing::{Scheme, Secret, lookup};

use crate::{
    Part, Sweeper, after,
    provider::{Answered, Provider},
};

/// Most calls of one sweep, and of one source in it. Strangers can name keys that do not exist, and a provider must not
/// hear from us for each.
const MAX_CALLS: usize = 20;
const MAX_CALLS_OF_ONE: usize = 5;

/// Most things owed that are looked at: more than one flooded source can owe, so that it does not hide the others.
const MAX_READ: usize = 1000;

/// Calls at the same time.
const WIDTH: usize = 4;

/// The first wait after a call that did not work; it doubles.
const WAIT: Duration = Duration::from_mins(1);

/// The longest wait.
const MAX_WAIT: Duration = Duration::from_hours(1);

/// After this, nobody tries any more. A request that still needs the key asks for it again.
const TRIED_FOR: SignedDuration = SignedDuration::from_hours(24);

/// What errands need besides the tables.
#[derive(Debug)]
pub struct Errands<'a, K, P> {
    /// Some providers give their keys to customers only.
    pub secrets: &'a K,
    /// The way to providers.
    pub provider: &'a P,
}

/// How one errand went.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Ran {
    /// The provider gave its key.
    Key(PublishedKey),
    /// The provider heard our confirmation.
    Confirmed,
    /// Another try may work.
    NotNow(String),
    /// No other try will.
    Never(String),
}

/// What follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Keep,
    PutOff(Timestamp),
    GiveUp,
}

fn next(owed: &Owed, ran: &Ran, now: Timestamp) -> Next {
    match ran {
        Ran::Key(_) | Ran::Confirmed => Next::Keep,
        Ran::Never(_) => Next::GiveUp,
        Ran::NotNow(_) if now.duration_since(owed.since) >= TRIED_FOR => Next::GiveUp,
        Ran::NotNow(_) => {
            let wait = WAIT.saturating_mul(2_u32.saturating_pow(owed.attempts)).min(MAX_WAIT);
            Next::PutOff(after(now, wait))
        }
    }
}

pub(crate) async fn sweep<I, S, O, L, R, Q, W, N, K, P, B>(
    sweeper: &Sweeper<'_, I, S, O, L, R, Q, W, N, K, P, B>,
    until: Timestamp,
) -> Part
where
    S: PublishedKeys,
    R: Registry,
    N: Fn() -> Timestamp + Sync,
    K: SourceSecrets,
    P: Provider,
{
    let mut part = Part::default();
    let owed = match sweeper.state.owed((sweeper.now)(), MAX_READ).await {
        Ok(owed) => fair(owed),
        Err(error) => {
            part.fail(error);
            return part;
        }
    };
    let runs = stream::iter(&owed).map(async |owed| {
        if (sweeper.now)() >= until { Ok(None) } else { run(sweeper, owed).await.map(Some) }
    });
    let mut runs = runs.buffer_unordered(WIDTH);
    while let Some(ended) = runs.next().await {
        match ended {
            Ok(Some(Next::Keep)) => part.started += 1,
            Ok(Some(Next::GiveUp)) => part.parked += 1,
            Ok(Some(Next::PutOff(_)) | None) => {}
            Err(error) => part.fail(error),
        }
    }
    part
}

/// No more than a few of each source, and no more than a sweep has time for.
fn fair(owed: Vec<Owed>) -> Vec<Owed> {
    let mut of_one: BTreeMap<SourceName, usize> = BTreeMap::new();
    let mut fits = |owed: &Owed| {
        let count = of_one.entry(owed.source.clone()).or_default();
        *count += 1;
        *count <= MAX_CALLS_OF_ONE
    };
    owed.into_iter().filter(|owed| fits(owed)).take(MAX_CALLS).collect()
}

async fn run<I, S, O, L, R, Q, W, N, K, P, B>(
    sweeper: &Sweeper<'_, I, S, O, L, R, Q, W, N, K, P, B>,
    owed: &Owed,
) -> Stored<Next>
where
    S: PublishedKeys,
    R: Registry,
    N: Fn() -> Timestamp + Sync,
    K: SourceSecrets,
    P: Provider,
{
    let errands = &sweeper.errands;
    let ran = fetch(sweeper.registry, errands, owed, (sweeper.now)()).await?;
    let now = (sweeper.now)();
    let next = next(owed, &ran, now);
    tell(owed, &ran, next);
    let source = Some(owed.source.as_str());
    match (next, &ran) {
        (Next::Keep, Ran::Key(key)) => sweeper.state.keep(owed, Some(key)).await?,
        (Next::Keep, _) => sweeper.state.keep(owed, None).await?,
        (Next::PutOff(due_at), Ran::NotNow(why)) => {
            sweeper.state.put_off(owed, due_at, why).await?;
        }
        (Next::PutOff(_) | Next::GiveUp, _) => {
            sweeper.metrics.count("provider_calls_given_up_total", source, 1);
            sweeper.state.give_up(owed).await?;
        }
    }
    Ok(next)
}

async fn fetch<R: Registry, K: SourceSecrets, P: Provider>(
    registry: &R,
    errands: &Errands<'_, K, P>,
    owed: &Owed,
    now: Timestamp,
) -> Stored<Ran> {
    let Some(source) = registry.source(&owed.source).await? else {
        return Ok(Ran::Never("the source is gone".to_owned()));
    };
    let Ok(scheme) = scheme::of(&source) else {
        return Ok(Ran::Never("the source has no scheme that this version knows".to_owned()));
    };
    let call = match &owed.want {
        Want::Key(id) => {
            let secrets = errands.secrets.of(&owed.source).await?;
            let active =
                secrets.iter().filter(|secret| secret.expires_at.is_none_or(|end| now < end));
            let credentials: Vec<_> =
                active.map(|secret| Secret::new(secret.text.expose())).collect();
            lookup::call(&scheme, id, &credentials)
        }
        Want::Confirm(url) => lookup::confirmation(url),
    };
    let call = match call {
        Ok(call) => call,
        Err(refused) => return Ok(Ran::Never(refused.to_string())),
    };
    Ok(match errands.provider.call(&call).await {
        Ok(answered) => judge(&scheme, &owed.want, &answered, now),
        Err(error) => Ran::NotNow(chain(&error).to_string()),
    })
}

/// What a provider's answer is worth.
fn judge(scheme: &Scheme, want: &Want, answered: &Answered, now: Timestamp) -> Ran {
    match want {
        Want::Key(id) => match lookup::read(scheme, id, answered.status, &answered.body) {
            Ok(text) => Ran::Key(PublishedKey { id: id.clone(), text, fetched_at: now }),
            Err(refused) if refused.is_transient() => Ran::NotNow(refused.to_string()),
            Err(refused) => Ran::Never(refused.to_string()),
        },
        Want::Confirm(_) => match answered.status {
            200..=299 => Ran::Confirmed,
            status @ 400..=499 if status != 429 => {
                Ran::Never(format!("the provider says {status}"))
            }
            status => Ran::NotNow(format!("the provider says {status}")),
        },
    }
}

/// Never the address: a confirmation's has a token in it.
fn tell(owed: &Owed, ran: &Ran, next: Next) {
    let what = match owed.want {
        Want::Key(_) => "a published key",
        Want::Confirm(_) => "a confirmation",
    };
    let (source, stage) = (Some(owed.source.as_str()), "errand");
    let step = |result| Step { stage, source, result, ..Step::default() };
    match (ran, next) {
        (Ran::Key(_), _) => step("fetched").info("a published key was fetched"),
        (Ran::Confirmed, _) => step("confirmed").info("a confirmation was made"),
        (Ran::NotNow(why), Next::PutOff(_)) => {
            step("put_off").warn(&format!("{what} will be tried again: {why}"), None);
        }
        (Ran::NotNow(why) | Ran::Never(why), _) => {
            step("given_up").error(&format!("{what} was given up: {why}"), None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_760_000_000 + second).unwrap()
    }

    fn owed(source: &str, attempts: u32) -> Owed {
        let want = Want::Key(format!("k{attempts}"));
        Owed { attempts, ..Owed::new(source.parse().unwrap(), want, at(0)) }
    }

    #[test]
    fn what_did_not_work_waits_longer_each_time_and_a_day_at_most() {
        let not_now = Ran::NotNow("no answer".to_owned());
        for (attempts, now, expected) in [
            (0, 10, Next::PutOff(at(70))),
            (1, 10, Next::PutOff(at(130))),
            (5, 10, Next::PutOff(at(10 + 32 * 60))),
            (6, 10, Next::PutOff(at(3610))),
            (u32::MAX, 86_399, Next::PutOff(at(86_399 + 3600))),
            (0, 86_400, Next::GiveUp),
        ] {
            assert_eq!(next(&owed("a", attempts), &not_now, at(now)), expected, "{attempts} {now}");
        }
        assert_eq!(next(&owed("a", 0), &Ran::Never(String::new()), at(0)), Next::GiveUp);
        assert_eq!(next(&owed("a", 9), &Ran::Confirmed, at(90_000)), Next::Keep);
    }

    #[test]
    fn one_source_does_not_take_all_calls() {
        let mut all: Vec<_> = (0..15).map(|n| owed("flooded", n)).collect();
        all.push(owed("quiet", 0));
        let fair = fair(all);
        assert_eq!(fair.len(), MAX_CALLS_OF_ONE + 1);
        assert!(fair.iter().any(|owed| owed.source.as_str() == "quiet"));
    }
}
