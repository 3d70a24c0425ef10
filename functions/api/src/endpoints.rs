//! Endpoints: added, listed, shown.

use std::sync::Arc;

use axum::{
    extract::State,
    http::{HeaderName, StatusCode, header},
};
use domain::{
    address::EndpointUrl,
    destination::Destination,
    endpoint::{Endpoint, LaneCount, Pattern},
    id::{EndpointId, TenantId},
    ports::{Configure as _, Deliveries as _, Keyring as _, Purpose, Registry as _, SealedSecret},
    secret::SecretText,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    Api, Ports, Problem, at_once,
    problem::Findings,
    request::{Actor, Json, Path},
};

/// An endpoint to add. Exactly one of `url`, `queue` and `bus` says where it is.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewEndpoint {
    #[serde(default)]
    url: Option<String>,
    /// The URL of a queue. Like a bus it is written to with the deployment's own rights, so that it is only for those who
    /// may call this api: never to be offered to a tenant.
    #[serde(default)]
    queue: Option<String>,
    /// The name or the ARN of an event bus.
    #[serde(default)]
    bus: Option<String>,
    /// Whether the target recognises the event's id as an idempotency key.
    #[serde(default = "yes")]
    idempotent: bool,
    /// Which event types it gets. Empty: all.
    #[serde(default)]
    patterns: Vec<String>,
    /// How many deliveries may be under way at once; left out: the deployment's default.
    #[serde(default)]
    concurrency: Option<u32>,
}

fn yes() -> bool {
    true
}

/// An endpoint that was just made, with its secret, which is shown this once. Queues and buses have none.
#[derive(Serialize)]
pub struct MadeEndpoint {
    #[serde(flatten)]
    endpoint: Endpoint,
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
}

impl std::fmt::Debug for MadeEndpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MadeEndpoint").field("id", &self.endpoint.id).finish_non_exhaustive()
    }
}

/// An endpoint, and how it has been doing.
#[derive(Debug, Serialize)]
pub struct EndpointView {
    #[serde(flatten)]
    endpoint: Endpoint,
    health: HealthView,
}

/// How an endpoint has been doing.
#[derive(Debug, Serialize)]
pub struct HealthView {
    /// Since when every attempt has failed.
    failing_since: Option<Timestamp>,
    /// Since when it gets nothing, and why: `gone`, `failing` or `person`.
    disabled: Option<domain::endpoint::Disabled>,
}

/// A tenant's endpoints. In their URLs, `…` stands for what may hold a token; each endpoint by itself is shown whole.
#[derive(Debug, Serialize)]
pub struct EndpointList {
    endpoints: Vec<EndpointView>,
}

/// Most deliveries that one endpoint may have under way.
const MAX_CONCURRENCY: u32 = 100;

/// Most patterns of one endpoint.
const MAX_PATTERNS: usize = 100;

/// Adds an endpoint.
///
/// A caller who loses the answer has lost the secret, too, and sends the request again: the endpoint that nobody knows
/// the secret of stays, and its URL gets each event twice, once with a signature that does not fit.
pub async fn add<P: Ports>(
    State(api): State<Arc<Api<P>>>,
    Path(tenant): Path<String>,
    Actor(actor): Actor,
    Json(new): Json<NewEndpoint>,
) -> Result<(StatusCode, [(HeaderName, String); 1], axum::Json<MadeEndpoint>), Problem> {
    let now = api.now();
    let endpoint = read(&api, &tenant, &new, now)?;
    let (tenant, id) = (&endpoint.tenant, endpoint.id);
    // Two concurrent calls may both pass this check: the limit is a guard against a loop, not a quota that is sold.
    let existing = api.registry.endpoints(tenant).await?.len();
    if existing >= api.limits.endpoints_per_tenant {
        let detail = format!(
            "The tenant has {existing} endpoints, as many as this deployment allows. Use one of them with more \
             patterns, or raise the parameter EndpointsPerTenant."
        );
        return Err(Problem::conflict("limit-reached", detail));
    }

    let (secret, sealed) = match &endpoint.destination {
        Destination::Https(_) => {
            let secret = signing::EndpointSecret::shared((api.edge.random)()).expose();
            let text = SecretText::new(secret.expose().to_owned());
            let sealed = api.keyring.seal(tenant, id, &text).await?;
            let sealed = SealedSecret {
                id: "1".to_owned(),
                purpose: Purpose::Signing,
                sealed,
                expires_at: None,
            };
            (Some(text.expose().to_owned()), vec![sealed])
        }
        Destination::Queue(_) | Destination::Bus(_) => (None, Vec::new()),
    };
    api.audit(tenant.as_str(), actor, "endpoint.add", &id.to_string(), now).await?;
    if !api.registry.add_endpoint(&endpoint, &sealed).await? {
        let detail = "The new endpoint's id is taken. Send the request again.";
        return Err(Problem::conflict("id-taken", detail));
    }
    let place = [(header::LOCATION, format!("/v1/tenants/{tenant}/endpoints/{id}"))];
    Ok((StatusCode::CREATED, place, axum::Json(MadeEndpoint { endpoint, secret })))
}

/// Lists a tenant's endpoints.
pub async fn list<P: Ports>(
    State(api): State<Arc<Api<P>>>,
    Path(tenant): Path<String>,
) -> Result<axum::Json<EndpointList>, Problem> {
    let endpoints = api.registry.endpoints(&tenant_of(&tenant)?).await?;
    let views = endpoints.into_iter().map(|endpoint| {
        let destination = shown(&endpoint.destination);
        view(&api, Endpoint { destination, ..endpoint })
    });
    let endpoints = at_once(views.collect()).await?;
    Ok(axum::Json(EndpointList { endpoints }))
}

/// Shows one endpoint, with its whole URL.
pub async fn show<P: Ports>(
    State(api): State<Arc<Api<P>>>,
    Path((tenant, endpoint)): Path<(String, String)>,
) -> Result<axum::Json<EndpointView>, Problem> {
    let id = endpoint.parse().map_err(|_| absent())?;
    let found = api.registry.endpoint(&tenant_of(&tenant)?, id).await?;
    let (endpoint, _) = found.ok_or_else(absent)?;
    Ok(axum::Json(view(&api, endpoint).await?))
}

async fn view<P: Ports>(api: &Api<P>, endpoint: Endpoint) -> Result<EndpointView, Problem> {
    let health = api.deliveries.health(&endpoint.tenant, endpoint.id).await?;
    let health = HealthView { failing_since: health.failing_since, disabled: health.disabled };
    Ok(EndpointView { endpoint, health })
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

/// A destination as lists show it. The address of a queue or a bus opens nothing by itself.
pub(crate) fn shown(destination: &Destination) -> Destination {
    match destination {
        Destination::Https(url) => Destination::Https(shape(url)),
        other @ (Destination::Queue(_) | Destination::Bus(_)) => other.clone(),
    }
}

/// Longest first part of a path that is shown.
const SHOWN: usize = 20;

/// The URL as lists show it: the host, and the first part of the path if it is a plain word. Many receivers put a token
/// into the path or the query.
fn shape(url: &str) -> String {
    let Ok(url) = url::Url::parse(url) else { return "…".to_owned() };
    let mut shape = url[..url::Position::BeforePath].to_owned();
    let mut parts = url.path_segments().into_iter().flatten();
    let first = parts.next().unwrap_or_default();
    let is_word = |part: &str| {
        let is_version =
            part.strip_prefix('v').is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()));
        let is_plain = |b: u8| b.is_ascii_lowercase() || b == b'-' || b == b'_';
        part.len() <= SHOWN && (is_version || part.bytes().all(is_plain))
    };
    shape.push('/');
    shape.push_str(if is_word(first) { first } else { "…" });
    if parts.any(|part| !part.is_empty()) {
        shape.push_str("/…");
    }
    if url.query().is_some() {
        shape.push_str("?…");
    }
    shape
}

/// Checks the whole request, and names all that is wrong with it at once.
fn read<P: Ports>(
    api: &Api<P>,
    tenant: &str,
    new: &NewEndpoint,
    now: Timestamp,
) -> Result<Endpoint, Problem> {
    let mut found = Findings::default();
    let tenant = found.keep("tenant", tenant.parse());
    let destination = destination(api, new, &mut found);
    if new.patterns.len() > MAX_PATTERNS {
        found.note("patterns", format!("an endpoint has at most {MAX_PATTERNS}"));
    }
    let patterns: Vec<Option<Pattern>> = (new.patterns.iter().take(MAX_PATTERNS).enumerate())
        .map(|(at, text)| found.keep(&format!("patterns[{at}]"), text.parse()))
        .collect();
    if new.concurrency.is_some_and(|n| !(1..=MAX_CONCURRENCY).contains(&n)) {
        found.note("concurrency", format!("it is 1 to {MAX_CONCURRENCY}"));
    }
    match (tenant, destination) {
        (Some(tenant), Some(destination)) => {
            found.done()?;
            let id = EndpointId::new((api.edge.uuid)());
            Ok(Endpoint {
                idempotent: new.idempotent,
                patterns: patterns.into_iter().flatten().collect(),
                concurrency: new.concurrency,
                lanes: vec![LaneCount { from: now, count: 1 }],
                ..Endpoint::new(tenant, id, destination, now)
            })
        }
        _ => Err(found.problem()),
    }
}

/// Where the new endpoint is.
fn destination<P: Ports>(
    api: &Api<P>,
    new: &NewEndpoint,
    found: &mut Findings,
) -> Option<Destination> {
    let (addresses, reach) = (&api.limits.addresses, &api.limits.reach);
    match (&new.url, &new.queue, &new.bus) {
        (Some(url), None, None) => {
            let url = found.keep("url", EndpointUrl::parse(url, addresses))?;
            Some(Destination::Https(url.as_str().to_owned()))
        }
        (None, Some(queue), None) => {
            found.keep("queue", reach.queue(queue)).map(Destination::Queue)
        }
        (None, None, Some(bus)) => found.keep("bus", reach.bus(bus)).map(Destination::Bus),
        (None, None, None) => {
            found.note("url", "say where the endpoint is, with one of `url`, `queue` and `bus`");
            None
        }
        _ => {
            found.note("url", "an endpoint is in one place: name one of `url`, `queue` and `bus`");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SEC-url-token
    #[test]
    fn the_shape_of_a_url_holds_no_token() {
        let check = |url: &str, expected: &str| assert_eq!(shape(url), expected, "{url}");
        check("https://example.com/", "https://example.com/");
        check("https://example.com/webhooks", "https://example.com/webhooks");
        check("https://example.com:8443/v1/receive", "https://example.com:8443/v1/…");
        check(
            "https://hooks.example.com/v1/receive?token=CANARY",
            "https://hooks.example.com/v1/…?…",
        );
        check("https://example.com/hooks/CANARY", "https://example.com/hooks/…");
        check("https://example.com/hooks/", "https://example.com/hooks");
        check("https://example.com/CANARY/in", "https://example.com/…/…");
        check("https://example.com/c4n4ry", "https://example.com/…");
        check("https://example.com/?CANARY", "https://example.com/?…");
        check("https://example.com/canarycanarycanarycanary", "https://example.com/…");
        check("https://example.com/v1canary", "https://example.com/…");
        check("https://[2606:4700::1]/in", "https://[2606:4700::1]/in");
        check("canary", "…");
    }
}
