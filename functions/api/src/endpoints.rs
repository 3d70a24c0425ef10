//! Endpoints: their whole life, from being added to being deleted.
//!
//! `wanted` is what may be asked of one, `sealing` and `strength` are about their secrets, [`life`] stops and starts
//! them, [`configure`] sets one up in one call, [`token`] lets its owner poll it, [`trial`] sends a test event, [`view`] is how they are shown. Every change
//! is written on the condition that the endpoint is as it was read, and every one has its entry in the audit.

pub mod configure;
pub mod life;
mod reuse;
mod sealing;
pub mod secrets;
mod strength;
pub mod token;
pub mod trial;
pub mod view;
mod wanted;

use std::sync::Arc;

use axum::{
    Router,
    extract::State,
    http::{HeaderName, StatusCode, header},
    routing::{get, post, put},
};
use domain::{
    destination::Destination,
    endpoint::Endpoint,
    id::{EndpointId, TenantId},
    ports::{Configure as _, Registry as _, WithSecrets},
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub(crate) use self::view::shown;
use self::{
    reuse::reused,
    sealing::{seal_signing, with_public_keys},
    secrets::shown_once,
    strength::fingerprint,
    trial::Trial,
    view::EndpointView,
    wanted::{Checked, Wanted},
};
use crate::{
    Api, Ports, Problem, at_once, polling,
    problem::Findings,
    request::{Actor, Json, Path, Query},
};

/// How often a change is tried against others who change the endpoint at the same time.
const TRIES: u32 = 4;

/// An endpoint that was just made, with its secret, which is shown this once. Queues and buses have none.
#[derive(Serialize)]
pub struct MadeEndpoint {
    #[serde(flatten)]
    endpoint: Endpoint,
    /// What its owner verifies with. Of a key pair, its `public_keys` say it.
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
    /// What its owner polls with, shown this once.
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    /// The test event that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    test: Option<Trial>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

impl std::fmt::Debug for MadeEndpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MadeEndpoint").field("id", &self.endpoint.id).finish_non_exhaustive()
    }
}

/// A tenant's endpoints. In their URLs, `…` stands for what may hold a token; each endpoint by itself is shown whole.
#[derive(Debug, Serialize)]
pub struct EndpointList {
    endpoints: Vec<EndpointView>,
}

/// Which of them are listed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Which {
    /// Only those that fail, or get nothing.
    #[serde(default)]
    unhealthy: bool,
}

/// The routes of endpoints.
pub(crate) fn routes<P: Ports>() -> Router<Arc<Api<P>>> {
    const ALL: &str = "/v1/tenants/{tenant}/endpoints";
    let one = |rest: &str| format!("{ALL}/{{endpoint}}{rest}");
    Router::new()
        .route(ALL, get(list::<P>).post(add::<P>))
        .route(&format!("{ALL}/by-key/{{key}}"), put(configure::configure::<P>))
        .route(&one(""), get(show::<P>).patch(change::<P>).delete(life::delete::<P>))
        .route(&one("/secrets"), get(secrets::list::<P>))
        .route(&one("/secrets/rotate"), post(secrets::rotate::<P>))
        .route(&one("/token"), post(token::renew::<P>))
        .route(&one("/pause"), post(life::pause::<P>))
        .route(&one("/resume"), post(life::resume::<P>))
        .route(&one("/disable"), post(life::disable::<P>))
        .route(&one("/enable"), post(life::enable::<P>))
        .route(&one("/test"), post(trial::test::<P>))
}

/// Adds an endpoint.
///
/// A caller who loses the answer has lost the secret, too, and sends the request again: the endpoint that nobody knows
/// the secret of stays, and its URL gets each event twice, once with a signature that does not fit. Whoever cannot have
/// that names the endpoint by a key: see [`configure`].
pub async fn add<P: Ports>(
    State(api): State<Arc<Api<P>>>,
    Path(tenant): Path<String>,
    Actor(actor): Actor,
    Json(wanted): Json<Wanted>,
) -> Result<(StatusCode, [(HeaderName, String); 1], axum::Json<MadeEndpoint>), Problem> {
    let mut found = Findings::default();
    let tenant = found.keep("tenant", tenant.parse());
    let checked = wanted.new_endpoint(&api.limits, &mut found);
    let Some(tenant) = tenant else { return Err(found.problem()) };
    found.done()?;
    is_full(&api, api.registry.endpoints(&tenant).await?.len())?;
    let made = make(&api, &tenant, &checked, None, &actor).await?;
    let made = made.ok_or_else(|| {
        let detail = "The new endpoint's id is taken. Send the request again.";
        Problem::conflict("id-taken", detail)
    })?;
    let place = format!("/v1/tenants/{tenant}/endpoints/{}", made.endpoint.id);
    Ok((StatusCode::CREATED, [(header::LOCATION, place)], axum::Json(made)))
}

/// Whether a tenant that has so many endpoints may have no more. Two concurrent calls may both pass: the limit is a guard
/// against a loop, not a quota that is sold.
fn is_full<P: Ports>(api: &Api<P>, existing: usize) -> Result<(), Problem> {
    if existing < api.limits.endpoints_per_tenant {
        return Ok(());
    }
    let detail = format!(
        "The tenant has {existing} endpoints, as many as this deployment allows. Use one of them with more patterns, delete \
         one, or raise the parameter EndpointsPerTenant."
    );
    Err(Problem::conflict("limit-reached", detail))
}

/// Makes an endpoint. `None`: its id or its key is taken.
async fn make<P: Ports>(
    api: &Api<P>,
    tenant: &TenantId,
    checked: &Checked,
    key: Option<String>,
    actor: &str,
) -> Result<Option<MadeEndpoint>, Problem> {
    let (now, id) = (api.now(), EndpointId::new((api.edge.uuid)()));
    // Whoever asks for an endpoint says where it is: this is never met.
    let destination = checked.destination.clone().ok_or_else(|| Findings::default().problem())?;
    let new = Endpoint { key, ..Endpoint::new(tenant.clone(), id, destination, now) };
    let endpoint = checked.onto_new(new)?;
    let mut sealed = checked.own.seal(api, tenant, id).await?.onto(&[]);
    let (mut shown, mut public) = (None, None);
    let mut warnings: Vec<String> =
        view::may_hold_token(&endpoint.destination).into_iter().collect();
    if shows_secret(&endpoint.destination) {
        let own = checked.secret.clone();
        if let Some(secret) = &own {
            warnings.extend(reused(api, tenant, id, &fingerprint(secret)).await);
        }
        let is_own = own.is_some();
        let secret = own.unwrap_or_else(|| checked.kind.make((api.edge.random)()));
        let signs = seal_signing(api, tenant, id, &secret).await?;
        shown = shown_once(&secret, is_own);
        public = secret.public_key().map(|key| (signs.id.clone(), key));
        sealed.insert(0, signs);
    }
    let token = matches!(endpoint.destination, Destination::Poll(_))
        .then(|| polling::mint((api.edge.random)()));
    sealed.extend(token.as_ref().map(polling::sealed));
    let endpoint = with_public_keys(&endpoint, &sealed, public);
    api.audit(tenant.as_str(), actor.to_owned(), "endpoint.add", &id.to_string(), now).await?;
    if !api.registry.add_endpoint(&endpoint, &sealed).await? {
        return Ok(None);
    }
    let mut test = None;
    if checked.test {
        // The endpoint is there, and its secret must be shown, whatever becomes of the test.
        match trial::send(api, &endpoint, actor.to_owned()).await {
            Ok(trial) => test = Some(trial),
            Err(_) => warnings.push(
                "The test event could not be sent. Ask for it again with POST …/test.".to_owned(),
            ),
        }
    }
    let token = token.map(|token| token.expose().to_owned());
    Ok(Some(MadeEndpoint { endpoint, secret: shown, token, test, warnings }))
}

/// Whether what goes there is signed, and somebody needs the secret.
fn shows_secret(destination: &Destination) -> bool {
    match destination {
        Destination::Https(_) | Destination::Poll(_) => true,
        Destination::Queue(_) | Destination::Bus(_) => false,
    }
}

/// Changes an endpoint; what is left out stays as it is.
pub async fn change<P: Ports>(
    State(api): State<Arc<Api<P>>>,
    Path(names): Path<(String, String)>,
    Actor(actor): Actor,
    Json(wanted): Json<Wanted>,
) -> Result<axum::Json<EndpointView>, Problem> {
    let now = api.now();
    let mut found = Findings::default();
    let checked = wanted.change(&api.limits, &mut found);
    found.done()?;
    let (tenant, id) = named(&names)?;
    let (old, _) = api.registry.endpoint(&tenant, id).await?.ok_or_else(absent)?;
    // Its kind never changes.
    let mut found = Findings::default();
    wanted.fits(&old.destination, &mut found);
    found.done()?;
    api.audit(tenant.as_str(), actor, "endpoint.change", &id.to_string(), now).await?;
    let (endpoint, _) = change_to(&api, &tenant, id, &checked, now).await?;
    Ok(axum::Json(EndpointView::whole(&api, endpoint).await?))
}

/// Makes an endpoint what was asked for.
async fn change_to<P: Ports>(
    api: &Api<P>,
    tenant: &TenantId,
    id: EndpointId,
    checked: &Checked,
    now: Timestamp,
) -> Result<WithSecrets, Problem> {
    let sealed = checked.own.seal(api, tenant, id).await?;
    replace(api, tenant, id, |(old, secrets)| {
        let new = checked.onto_place(checked.onto(old.clone(), now)?)?;
        Ok((new, sealed.onto(secrets)))
    })
    .await
}

/// Changes an endpoint and its secrets whatever others do to it at the same time. A change that changes nothing is not
/// written.
async fn replace<P: Ports>(
    api: &Api<P>,
    tenant: &TenantId,
    id: EndpointId,
    change: impl Fn(&WithSecrets) -> Result<WithSecrets, Problem>,
) -> Result<WithSecrets, Problem> {
    for _ in 0..TRIES {
        let old = api.registry.endpoint(tenant, id).await?.ok_or_else(absent)?;
        let new = change(&old)?;
        if new == old || api.registry.replace_endpoint(&old, &new).await? {
            return Ok(new);
        }
    }
    Err(busy())
}

/// Others are always quicker.
fn busy() -> Problem {
    let detail = "Others change the endpoint all the time. Send the request again.";
    Problem::conflict("changed-meanwhile", detail)
}

/// Lists a tenant's endpoints.
pub async fn list<P: Ports>(
    State(api): State<Arc<Api<P>>>,
    Path(tenant): Path<String>,
    Query(Which { unhealthy }): Query<Which>,
) -> Result<axum::Json<EndpointList>, Problem> {
    let endpoints = api.registry.endpoints(&tenant_of(&tenant)?).await?;
    let views = endpoints.into_iter().map(|endpoint| EndpointView::listed(&api, endpoint));
    let mut endpoints = at_once(views.collect()).await?;
    endpoints.retain(|endpoint| !unhealthy || endpoint.health.is_unhealthy());
    Ok(axum::Json(EndpointList { endpoints }))
}

/// Shows one endpoint, with its whole URL; or what is left of one that was deleted.
pub async fn show<P: Ports>(
    State(api): State<Arc<Api<P>>>,
    Path(names): Path<(String, String)>,
) -> Result<axum::Json<EndpointView>, Problem> {
    let (tenant, id) = named(&names)?;
    if let Some((endpoint, _)) = api.registry.endpoint(&tenant, id).await? {
        return Ok(axum::Json(EndpointView::whole(&api, endpoint).await?));
    }
    let gone = life::gone(&api, &tenant, id).await?.ok_or_else(absent)?;
    Ok(axum::Json(EndpointView::gone(gone)))
}

/// No such endpoint.
pub(crate) fn absent() -> Problem {
    Problem::absent("endpoint of this id at this tenant")
}

/// A tenant's name in a path.
pub(crate) fn tenant_of(name: &str) -> Result<TenantId, Problem> {
    let mut found = Findings::default();
    found.keep("tenant", name.parse()).ok_or_else(|| found.problem())
}

/// The tenant and the endpoint in a path.
fn named((tenant, endpoint): &(String, String)) -> Result<(TenantId, EndpointId), Problem> {
    let tenant = tenant_of(tenant)?;
    Ok((tenant, endpoint.parse().map_err(|_| absent())?))
}
