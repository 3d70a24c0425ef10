//! Stopping an endpoint and starting it again, and its end.
//!
//! What an endpoint would have got while it is stopped is held, and nothing is lost by any of this. Two operators at once,
//! or one whose answer was lost, do no harm: each of these calls can be repeated, changes nothing the second time, and does
//! what a first call that died has left undone.

use std::{sync::Arc, time::Duration};

use axum::extract::State;
use domain::{
    endpoint::{Endpoint, Stop},
    id::{EndpointId, TenantId},
    lane::LaneId,
    message::WakeMessage,
    ports::{Configure as _, Deliveries as _, Fanout as _, Queue as _, Registry as _},
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{TRIES, absent, busy, named, replace, view::EndpointView};
use crate::{
    Api, Ports, Problem, at_once,
    problem::Findings,
    request::{Actor, Json, Path, Query},
};

/// Most characters of a reason.
const MAX_REASON: usize = 500;

/// How many held deliveries go out in a second when nothing is said, and at most: a receiver that was down for a day does
/// not get a day's events at once.
const RELEASE: (u32, u32) = (10, 10_000);

/// When the sweeper looks at the lanes of an endpoint should the api die between the change and waking them: an attempt to
/// write takes far less.
const REMINDER: Duration = Duration::from_secs(60);

/// Why an endpoint is stopped.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Why {
    reason: String,
}

/// An endpoint after it was stopped or started.
#[derive(Debug, Serialize)]
pub struct Steered {
    #[serde(flatten)]
    endpoint: EndpointView,
    /// What has happened, and what follows.
    told: String,
}

/// Stops an endpoint for a while.
pub async fn pause<P: Ports>(
    State(api): State<Arc<Api<P>>>,
    Path(names): Path<(String, String)>,
    Actor(actor): Actor,
    Json(Why { reason }): Json<Why>,
) -> Result<axum::Json<Steered>, Problem> {
    stop(&api, names, actor, Stop::Paused, &reason).await
}

/// Stops an endpoint until somebody has looked.
pub async fn disable<P: Ports>(
    State(api): State<Arc<Api<P>>>,
    Path(names): Path<(String, String)>,
    Actor(actor): Actor,
    Json(Why { reason }): Json<Why>,
) -> Result<axum::Json<Steered>, Problem> {
    stop(&api, names, actor, Stop::Disabled, &reason).await
}

async fn stop<P: Ports>(
    api: &Api<P>,
    names: (String, String),
    actor: String,
    how: Stop,
    reason: &str,
) -> Result<axum::Json<Steered>, Problem> {
    let (now, reason) = (api.now(), read(reason)?);
    let (tenant, id) = named(&names)?;
    api.registry.endpoint(&tenant, id).await?.ok_or_else(absent)?;
    let action = if how == Stop::Paused { "endpoint.pause" } else { "endpoint.disable" };
    api.audit(tenant.as_str(), actor, action, &id.to_string(), now).await?;
    let (endpoint, _) = replace(api, &tenant, id, |(old, secrets)| {
        Ok((old.stop(how, reason, now), secrets.clone()))
    })
    .await?;
    let told = match &endpoint.stopped {
        Some(stopped) if stopped.how != how => format!(
            "The endpoint was disabled before, since {}, and stays so: {}",
            stopped.since, stopped.reason
        ),
        Some(stopped) if stopped.reason != reason => format!(
            "The endpoint was stopped before, since {}, for this reason: {}",
            stopped.since, stopped.reason
        ),
        _ => {
            let end = if how == Stop::Paused { "resume" } else { "enable" };
            format!("Attempts under way come to their end; everything else is held until `{end}`.")
        }
    };
    steered(api, endpoint, told).await
}

/// Ends a pause: what was held goes out as the endpoint takes it.
pub async fn resume<P: Ports>(
    State(api): State<Arc<Api<P>>>,
    Path(names): Path<(String, String)>,
    Actor(actor): Actor,
) -> Result<axum::Json<Steered>, Problem> {
    let (now, (tenant, id)) = (api.now(), named(&names)?);
    let (found, _) = api.registry.endpoint(&tenant, id).await?.ok_or_else(absent)?;
    if found.stopped.as_ref().is_some_and(|stopped| stopped.how == Stop::Disabled) {
        let detail = "The endpoint is disabled, not paused: see the reason, and enable it with POST …/enable.";
        return Err(Problem::conflict("disabled", detail));
    }
    api.audit(tenant.as_str(), actor, "endpoint.resume", &id.to_string(), now).await?;
    start(&api, &tenant, id, now, |old| old.resume(now)).await
}

/// How fast what was held goes out.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pace {
    /// Deliveries per second.
    #[serde(default = "usual_rate")]
    release_rate: u32,
}

const fn usual_rate() -> u32 {
    RELEASE.0
}

/// Enables an endpoint, whoever had stopped it, and lets what was held go out at a rate.
pub async fn enable<P: Ports>(
    State(api): State<Arc<Api<P>>>,
    Path(names): Path<(String, String)>,
    Query(Pace { release_rate }): Query<Pace>,
    Actor(actor): Actor,
) -> Result<axum::Json<Steered>, Problem> {
    let mut found = Findings::default();
    if !(1..=RELEASE.1).contains(&release_rate) {
        found.note("release_rate", format!("it is 1 to {} deliveries per second", RELEASE.1));
    }
    found.done()?;
    let (now, (tenant, id)) = (api.now(), named(&names)?);
    api.registry.endpoint(&tenant, id).await?.ok_or_else(absent)?;
    let health = api.deliveries.health(&tenant, id).await?;
    api.audit(tenant.as_str(), actor, "endpoint.enable", &id.to_string(), now).await?;
    start(&api, &tenant, id, now, |old| old.enable(&health, release_rate, now)).await
}

/// Starts an endpoint again and wakes its lanes, also if it runs: a call before this one may have died in between.
async fn start<P: Ports>(
    api: &Api<P>,
    tenant: &TenantId,
    id: EndpointId,
    now: Timestamp,
    change: impl Fn(&Endpoint) -> Endpoint,
) -> Result<axum::Json<Steered>, Problem> {
    let (old, _) = api.registry.endpoint(tenant, id).await?.ok_or_else(absent)?;
    let is_stopped = change(&old) != old;
    if is_stopped {
        remind(api, &old, now).await?;
    }
    let (endpoint, _) =
        replace(api, tenant, id, |(old, secrets)| Ok((change(old), secrets.clone()))).await?;
    wake(api, &endpoint, now).await?;
    let health = api.deliveries.health(tenant, id).await?;
    let told = match (endpoint.stopped_since(&health), is_stopped, endpoint.release) {
        (Some(since), _, _) => format!(
            "The endpoint still gets nothing, since {since}: its health says why. Enable it with POST …/enable."
        ),
        (None, false, _) => "The endpoint was not stopped. Its lanes were woken.".to_owned(),
        (None, true, Some(release)) => format!(
            "What was held goes out at {} a second, and later deliveries as before. Deadlines are later by the time for \
             which deliveries were held.",
            release.rate
        ),
        (None, true, None) => {
            "What was held goes out. Deadlines are later by the time for which deliveries were held.".to_owned()
        }
    };
    steered(api, endpoint, told).await
}

/// Deletes an endpoint: what is pending is cancelled, and what was sent stays to be seen.
pub async fn delete<P: Ports>(
    State(api): State<Arc<Api<P>>>,
    Path(names): Path<(String, String)>,
    Actor(actor): Actor,
) -> Result<axum::Json<EndpointView>, Problem> {
    let (now, (tenant, id)) = (api.now(), named(&names)?);
    if gone(&api, &tenant, id).await?.is_none() {
        api.registry.endpoint(&tenant, id).await?.ok_or_else(absent)?;
        api.audit(tenant.as_str(), actor, "endpoint.delete", &id.to_string(), now).await?;
    }
    for left in (0..=TRIES).rev() {
        if let Some(gone) = gone(&api, &tenant, id).await? {
            // Also of one that was gone before: whoever deleted it may have died before this.
            wake(&api, &gone.endpoint, now).await?;
            return Ok(axum::Json(EndpointView::gone(gone)));
        }
        // The last try, too, is looked at.
        if left == 0 {
            break;
        }
        let Some((old, _)) = api.registry.endpoint(&tenant, id).await? else { continue };
        remind(&api, &old, now).await?;
        api.registry.remove_endpoint(&old, now).await?;
    }
    Err(busy())
}

/// What is left of an endpoint, if it was deleted.
pub(super) async fn gone<P: Ports>(
    api: &Api<P>,
    tenant: &TenantId,
    id: EndpointId,
) -> Result<Option<domain::endpoint::Gone>, Problem> {
    Ok(api.registry.gone(tenant, &[id]).await?.into_iter().next())
}

fn read(reason: &str) -> Result<&str, Problem> {
    let (reason, mut found) = (reason.trim(), Findings::default());
    if reason.is_empty() {
        found.note("reason", "say why, for whoever finds the endpoint stopped");
    }
    if reason.chars().count() > MAX_REASON || reason.chars().any(char::is_control) {
        found.note("reason", format!("it is one line of at most {MAX_REASON} characters"));
    }
    found.done().map(|()| reason)
}

async fn steered<P: Ports>(
    api: &Api<P>,
    endpoint: Endpoint,
    told: String,
) -> Result<axum::Json<Steered>, Problem> {
    Ok(axum::Json(Steered { endpoint: EndpointView::whole(api, endpoint).await?, told }))
}

fn lanes(endpoint: &Endpoint) -> Vec<LaneId> {
    let Endpoint { tenant, id, .. } = endpoint;
    let lane = |lane| LaneId { tenant: tenant.clone(), endpoint: *id, lane };
    (0..endpoint.lanes_ever()).map(lane).collect()
}

async fn wake_at<P: Ports>(api: &Api<P>, lanes: &[LaneId], at: Timestamp) -> Result<(), Problem> {
    let wakes = lanes.iter().map(|lane| async move { Ok(api.deliveries.wake(lane, at).await?) });
    at_once(wakes.collect()).await.map(drop)
}

/// Lets the sweeper look at the lanes in a while. Before a change that nobody would tell them of if this died after it.
async fn remind<P: Ports>(
    api: &Api<P>,
    endpoint: &Endpoint,
    now: Timestamp,
) -> Result<(), Problem> {
    let at = now.saturating_add(REMINDER).unwrap_or(Timestamp::MAX);
    wake_at(api, &lanes(endpoint), at).await
}

/// Wakes every lane, so that its holder looks at the endpoint again.
async fn wake<P: Ports>(api: &Api<P>, endpoint: &Endpoint, now: Timestamp) -> Result<(), Problem> {
    let lanes = lanes(endpoint);
    wake_at(api, &lanes, now).await?;
    // A lost message only costs time: the lanes' `wake_at` stands.
    let messages: Vec<_> = lanes.into_iter().map(WakeMessage).collect();
    api.wakes.send(&messages, Duration::ZERO).await;
    Ok(())
}
