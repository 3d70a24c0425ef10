//! Sources: added, listed, shown, changed, and the requests that were refused in their names.
//!
//! Reading order: the routes here; [`wanted`] reads what callers want; `proof` knows schemes; [`secrets`] has the routes
//! of secrets, and [`pause`] those of pausing; [`view`] shows sources without them.

mod fetching;
pub mod pause;
mod proof;
mod reuse;
pub mod secrets;
pub mod tokens;
pub mod view;
pub mod wanted;

use std::sync::Arc;

use axum::{extract::State, http::StatusCode};
use domain::{
    ports::{
        Configure as _, Registry as _, RejectSample, SetSourceSecrets as _, SourceHealth,
        SourceSecret, SourceSecrets as _, Watch as _, watch::MAX_SAMPLES,
    },
    source::Source,
};
use serde::{Deserialize, Serialize};
use signing::Secret;

use self::{
    proof::Proof,
    secrets::{Addresses, Force},
    view::{Known, SourceLine, SourceView, is_over},
    wanted::{NewSource, SourceChange, Wanted},
};
use crate::{
    Api, OF_THE_DEPLOYMENT, Ports, Problem, at_once,
    problem::Findings,
    request::{Actor, Json, Path, Query},
};

/// A source that was just made.
#[derive(Debug, Serialize)]
pub struct MadeSource {
    #[serde(flatten)]
    source: SourceView,
    #[serde(flatten)]
    addresses: Addresses,
}

/// All sources.
#[derive(Debug, Serialize)]
pub struct SourceList {
    sources: Vec<SourceLine>,
}

/// Requests that were refused, newest first.
#[derive(Debug, Serialize)]
pub struct RejectList {
    rejected: Vec<RejectSample>,
}

/// How many refused requests are asked for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    #[serde(default = "usual_limit")]
    limit: usize,
}

fn usual_limit() -> usize {
    20
}

/// Adds a source. A call that died half way can be sent again: what it began, the next one ends.
pub async fn add<P: Ports>(
    State(api): State<Arc<Api<P>>>,
    Actor(actor): Actor,
    Json(new): Json<NewSource>,
) -> Result<(StatusCode, axum::Json<MadeSource>), Problem> {
    let now = api.now();
    let Wanted { source, proof, secrets } = new.read(now, (api.edge.random)())?;
    check_fetch(&api, &source, &proof)?;
    check_same_as(&api, &source, &proof).await?;
    let warnings = reuse::warnings(&api, &source.name, &secrets).await;

    api.audit(OF_THE_DEPLOYMENT, actor, "source.add", source.name.as_str(), now).await?;
    // The row first: until its secrets are there, ingress answers 503, and nothing is lost. Of two concurrent calls
    // one creates the secrets, be they none, and only that one answers that it made the source.
    let begun = !api.registry.add_source(&source).await?;
    if begun && !is_same(&api, &source).await? {
        return Err(taken(&source));
    }
    if !api.secrets.create(&source.name, &secrets).await? {
        return Err(taken(&source));
    }
    // The row of the call that died has an earlier time.
    let source =
        if begun { api.registry.source(&source.name).await?.unwrap_or(source) } else { source };
    let ingress = &api.limits.ingress_url;
    let addresses = Addresses::of(ingress, &source.name, &proof, &secrets);
    // Nothing more is read: the answer may hold a secret, and must not be lost to a store that fails.
    let (secrets, health) = (Some(secrets.as_slice()), SourceHealth::default());
    let known = Known { source, secrets, tokens: Some(&[]), health, last_reject: None, warnings };
    let source = known.shown(ingress, now);
    Ok((StatusCode::CREATED, axum::Json(MadeSource { source, addresses })))
}

/// Lists all sources, each with its health in short.
pub async fn list<P: Ports>(
    State(api): State<Arc<Api<P>>>,
) -> Result<axum::Json<SourceList>, Problem> {
    let now = api.now();
    let sources = api.registry.sources().await?;
    let lines = sources.into_iter().map(|source| {
        let api = &api;
        async move {
            let health = api.watch.health(&source.name, now).await?;
            let warnings = Vec::new();
            let known =
                Known { source, secrets: None, tokens: None, health, last_reject: None, warnings };
            Ok(known.line(&api.limits.ingress_url, now))
        }
    });
    Ok(axum::Json(SourceList { sources: at_once(lines.collect()).await? }))
}

/// Shows one source, with its secrets' ids and its health.
pub async fn show<P: Ports>(
    State(api): State<Arc<Api<P>>>,
    Path(name): Path<String>,
) -> Result<axum::Json<SourceView>, Problem> {
    let source = find(&api, &name).await?;
    Ok(axum::Json(shown(&api, source, Vec::new()).await?))
}

/// Changes a source. What the call leaves out stays as it is.
pub async fn change<P: Ports>(
    State(api): State<Arc<Api<P>>>,
    Path(name): Path<String>,
    Query(Force { force }): Query<Force>,
    Actor(actor): Actor,
    Json(change): Json<SourceChange>,
) -> Result<axum::Json<SourceView>, Problem> {
    let now = api.now();
    let old = find(&api, &name).await?;
    let (new, proof) = change.applied(&old, now)?;
    if new.same_as != old.same_as || proof.is_some() {
        let known = Proof::of(&new).ok();
        if let Some(proof) = proof.as_ref().or(known.as_ref()) {
            check_same_as(&api, &new, proof).await?;
        }
    }
    if let Some(known) = proof.as_ref().or(Proof::of(&new).ok().as_ref()) {
        check_fetch(&api, &new, known)?;
    }
    if let Some(proof) = proof.filter(|_| !force) {
        check_secrets_fit(&api, &new, &proof).await?;
    }
    api.audit(OF_THE_DEPLOYMENT, actor, "source.change", &name, now).await?;
    if !api.registry.replace_source(&old, &new).await? {
        let detail = "Somebody or a handshake changed the source at the same time. Look at it, and send the change again.";
        return Err(Problem::conflict("changed-meanwhile", detail));
    }
    let delay =
        "Ingress works with what it knows for some minutes yet (the parameter SourceFreshMs).";
    Ok(axum::Json(shown(&api, new, vec![delay.to_owned()]).await?))
}

/// Lists requests that were refused in a source's name, newest first.
pub async fn rejected<P: Ports>(
    State(api): State<Arc<Api<P>>>,
    Path(name): Path<String>,
    Query(Limit { limit }): Query<Limit>,
) -> Result<axum::Json<RejectList>, Problem> {
    let mut found = Findings::default();
    if !(1..=MAX_SAMPLES).contains(&limit) {
        found.note("limit", format!("it is 1 to {MAX_SAMPLES}: more are not kept"));
    }
    found.done()?;
    let source = find(&api, &name).await?;
    let rejected = api.watch.rejected(&source.name, limit, api.now()).await?;
    Ok(axum::Json(RejectList { rejected }))
}

/// The source of a name in a path.
async fn find<P: Ports>(api: &Api<P>, name: &str) -> Result<Source, Problem> {
    let absent = || Problem::absent("source of this name");
    let name = name.parse().map_err(|_| absent())?;
    api.registry.source(&name).await?.ok_or_else(absent)
}

async fn shown<P: Ports>(
    api: &Api<P>,
    source: Source,
    warnings: Vec<String>,
) -> Result<SourceView, Problem> {
    let now = api.now();
    let secrets = api.secrets.of(&source.name).await?;
    let health = api.watch.health(&source.name, now).await?;
    // Only what was refused last says what to do about it.
    let last_reject = match health.last_rejected_at {
        Some(_) => api.watch.rejected(&source.name, 1, now).await?.into_iter().next(),
        None => None,
    };
    let tokens = match source.fetch {
        Some(_) => api.tokens.of(&source.name).await?,
        None => Vec::new(),
    };
    let (secrets, tokens) = (Some(secrets.as_slice()), Some(tokens.as_slice()));
    let known = Known { source, secrets, tokens, health, last_reject, warnings };
    Ok(known.shown(&api.limits.ingress_url, now))
}

fn taken(source: &Source) -> Problem {
    let name = &source.name;
    let detail = format!(
        "There is a source named {name} already. GET /v1/sources/{name} shows it; choose another name for another one."
    );
    Problem::conflict("name-taken", detail)
}

/// Whether the row that is there is what a call that died before it made the secrets would have left.
async fn is_same<P: Ports>(api: &Api<P>, wanted: &Source) -> Result<bool, Problem> {
    let Some(found) = api.registry.source(&wanted.name).await? else { return Ok(false) };
    // Its times are those of the call that died.
    let waits = found.awaits_secret_until.and(wanted.awaits_secret_until);
    let found = Source {
        created_at: wanted.created_at,
        awaits_secret_until: waits.or(found.awaits_secret_until),
        ..found
    };
    Ok(found == *wanted)
}

/// The other source must be there, and events go one step: a chain would file them where nobody looks. The worker takes
/// requests apart as the scheme of the source says that they are filed under, so both must agree about that.
async fn check_same_as<P: Ports>(
    api: &Api<P>,
    source: &Source,
    proof: &Proof,
) -> Result<(), Problem> {
    let mut found = Findings::default();
    let is_alike = |other: &Source| Proof::of(other).is_ok_and(|other| other.splits_like(proof));
    if let Some(other) = &source.same_as {
        if *other == source.name {
            found.note("same_as", "a source is the same as another one, not as itself");
            return found.done();
        }
        match api.registry.source(other).await? {
            None => found.note("same_as", "there is no source of this name"),
            Some(Source { same_as: Some(next), .. }) => {
                found.note(
                    "same_as",
                    format!("this source is itself the same as {next}; name that one"),
                );
            }
            Some(other) if !is_alike(&other) => found.note("same_as", ALIKE),
            Some(_) => {}
        }
    }
    let sources = api.registry.sources().await?;
    let mut filed_here = sources.iter().filter(|one| one.same_as.as_ref() == Some(&source.name));
    if source.same_as.is_none() {
        if filed_here.any(|one| !is_alike(one)) {
            found.note("scheme", ALIKE);
        }
    } else if let Some(Source { name, .. }) = filed_here.next() {
        found.note(
            "same_as",
            format!("the events of {name} are filed under this source; change that first"),
        );
    }
    found.done()
}

/// A source that asks its provider must be able to.
fn check_fetch<P: Ports>(api: &Api<P>, source: &Source, proof: &Proof) -> Result<(), Problem> {
    let mut found = Findings::default();
    fetching::check(source, proof.scheme.trusts_versions(), &api.limits, &mut found);
    found.done()
}

/// Why two sources cannot be the same.
const ALIKE: &str = "the schemes of two sources that are the same must agree about where several events in one request are, \
                     in `batch` and `element`";

/// A new scheme that none of the secrets fits stops the source.
async fn check_secrets_fit<P: Ports>(
    api: &Api<P>,
    source: &Source,
    proof: &Proof,
) -> Result<(), Problem> {
    let now = api.now();
    let secrets = api.secrets.of(&source.name).await?;
    let fits = |secret: &SourceSecret| {
        !is_over(secret.expires_at, now)
            && !proof.is_of_handshakes(&secret.id)
            && proof.fault_of(&secret.id, &Secret::new(secret.text.expose())).is_none()
    };
    let waits = proof.waits() && source.awaits_secret_until.is_some_and(|until| until > now);
    if proof.is_published() || waits || secrets.iter().any(fits) {
        return Ok(());
    }
    let detail = "None of the source's secrets fits this scheme, so that every request would be refused. Say \
                  `?force=true` if you add one right after.";
    Err(Problem::conflict("secrets-do-not-fit", detail))
}
