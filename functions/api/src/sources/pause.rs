//! Pausing and resuming a source: its events are accepted all the time, and wait meanwhile.
//!
//! Two operators at once, or one whose answer was lost, do no harm: pausing what is paused and resuming what is not
//! change nothing, except that a resume looks for waiting events again.

use std::sync::Arc;

use axum::extract::State;
use domain::{
    bulk::{MAX_RATE, RATE},
    id::ReplayId,
    ports::Configure as _,
    source::Source,
};
use serde::{Deserialize, Serialize};

use super::{find, shown, view::SourceView};
use crate::{
    Api, OF_THE_DEPLOYMENT, Ports, Problem,
    problem::Findings,
    replays,
    request::{Actor, Json, Path, Query},
};

/// Most characters of a reason.
const MAX_REASON: usize = 500;

/// How often a change is tried against others who change the source at the same time.
const TRIES: u32 = 4;

/// Why a source is paused.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pause {
    reason: String,
}

/// Pauses a source.
pub async fn pause<P: Ports>(
    State(api): State<Arc<Api<P>>>,
    Path(name): Path<String>,
    Actor(actor): Actor,
    Json(Pause { reason }): Json<Pause>,
) -> Result<axum::Json<SourceView>, Problem> {
    let (now, reason) = (api.now(), read(&reason)?);
    let source = find(&api, &name).await?;
    if let Some(other) = &source.same_as {
        let detail = format!(
            "The events of this source are filed under {other}, and are carried out as its events. Pause that one."
        );
        return Err(Problem::conflict("filed-elsewhere", detail));
    }
    api.audit(OF_THE_DEPLOYMENT, actor, "source.pause", &name, now).await?;
    let source = replace(&api, &name, |old| old.pause(reason, now)).await?;
    let told = match &source.paused {
        Some(paused) if paused.since != now || paused.reason != reason => format!(
            "The source was paused before, since {}, and stays so for that reason: {}",
            paused.since, paused.reason
        ),
        _ => "Events are accepted, and wait. Workers see it within seconds (the parameter PauseSeenMs); attempts under \
              way come to their end."
            .to_owned(),
    };
    Ok(axum::Json(shown(&api, source, vec![told]).await?))
}

/// How fast waiting events are sent.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pace {
    /// Events per second.
    #[serde(default = "usual_rate")]
    rate: u32,
}

const fn usual_rate() -> u32 {
    RATE
}

/// A source that is not paused.
#[derive(Debug, Serialize)]
pub struct ResumedSource {
    #[serde(flatten)]
    source: SourceView,
    /// The bulk work that sends its waiting events; `None`: it was never paused.
    resume: Option<ReplayId>,
}

/// Resumes a source, and sends what waits to the worker. May be repeated: what one call began, the next one ends.
pub async fn resume<P: Ports>(
    State(api): State<Arc<Api<P>>>,
    Path(name): Path<String>,
    Query(Pace { rate }): Query<Pace>,
    Actor(actor): Actor,
) -> Result<axum::Json<ResumedSource>, Problem> {
    let mut found = Findings::default();
    if !(1..=MAX_RATE).contains(&rate) {
        found.note("rate", format!("it is 1 to {MAX_RATE} events per second"));
    }
    found.done()?;
    let now = api.now();
    find(&api, &name).await?;
    api.audit(OF_THE_DEPLOYMENT, actor.clone(), "source.resume", &name, now).await?;
    // Before anything is sent: a worker that saw the source paused still would put it off again.
    let source = replace(&api, &name, |old| old.resume(now)).await?;
    let Some(resumed_at) = source.resumed_at else {
        let told = "The source was never paused: nothing waits for a resume.".to_owned();
        let source = shown(&api, source, vec![told]).await?;
        return Ok(axum::Json(ResumedSource { source, resume: None }));
    };
    // Should this die here, the source is resumed and nobody looks for its events: each comes when it is due, within
    // hours, or at once when this call is repeated.
    let work = replays::resume(&api, &source, resumed_at, rate, actor).await?;
    let told = format!(
        "{} waiting events are on their way; if there are more, they follow at {} per second.",
        work.counts.replayed, work.rate
    );
    let source = shown(&api, source, vec![told]).await?;
    Ok(axum::Json(ResumedSource { source, resume: Some(work.id) }))
}

fn read(reason: &str) -> Result<&str, Problem> {
    let (reason, mut found) = (reason.trim(), Findings::default());
    if reason.is_empty() {
        found.note("reason", "say why, for whoever finds the source paused");
    }
    if reason.chars().count() > MAX_REASON || reason.chars().any(char::is_control) {
        found.note("reason", format!("it is one line of at most {MAX_REASON} characters"));
    }
    found.done().map(|()| reason)
}

/// Changes a source whatever others do to it at the same time. A change that changes nothing is not written.
async fn replace<P: Ports>(
    api: &Api<P>,
    name: &str,
    change: impl Fn(&Source) -> Source,
) -> Result<Source, Problem> {
    for _ in 0..TRIES {
        let old = find(api, name).await?;
        let new = change(&old);
        if new == old || api.registry.replace_source(&old, &new).await? {
            return Ok(new);
        }
    }
    let detail = "Others change the source all the time. Send the request again.";
    Err(Problem::conflict("changed-meanwhile", detail))
}
