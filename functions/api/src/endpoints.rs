//! Endpoints: added, listed.

use std::sync::Arc;

use axum::{
    extract::{Path, State},
    http::StatusCode,
};
use domain::{
    address::EndpointUrl,
    endpoint::{Endpoint, LaneCount, Pattern},
    id::{EndpointId, TenantId},
    ports::{AuditEntry, Configure as _, Keyring as _, Registry as _, SealedSecret},
    secret::SecretText,
};
use serde::{Deserialize, Serialize};

use crate::{Actor, Api, Json, Ports, Problem};

/// An endpoint to add.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewEndpoint {
    url: String,
    /// Which event types it gets. Empty: all.
    #[serde(default)]
    patterns: Vec<Pattern>,
    /// How many deliveries may be under way at once.
    #[serde(default)]
    concurrency: Option<u32>,
}

/// An endpoint that was just made, with its secret, which is shown this once.
#[derive(Serialize)]
pub struct MadeEndpoint {
    #[serde(flatten)]
    endpoint: Endpoint,
    secret: String,
}

/// Most deliveries that one endpoint may have under way.
const MAX_CONCURRENCY: u32 = 100;

/// Most patterns of one endpoint.
const MAX_PATTERNS: usize = 100;

/// Adds an endpoint.
pub async fn add<P: Ports>(
    State(api): State<Arc<Api<P>>>,
    Path(tenant): Path<String>,
    Actor(actor): Actor,
    Json(new): Json<NewEndpoint>,
) -> Result<(StatusCode, axum::Json<MadeEndpoint>), Problem> {
    let tenant = tenant_of(&tenant)?;
    check(&api, &new)?;
    // Two concurrent calls may both pass this check: the limit is a guard against a loop, not a quota that is sold.
    let existing = api.registry.endpoints(&tenant).await?.len();
    if existing >= api.limits.endpoints_per_tenant {
        return Err(Problem::conflict(&format!(
            "The tenant has {existing} endpoints, as many as this deployment allows. \
             Remove one, or raise the parameter EndpointsPerTenant."
        )));
    }

    let now = (api.edge.now)();
    let id = EndpointId::new((api.edge.uuid)());
    let secret = signing::EndpointSecret::shared((api.edge.random)()).expose();
    let text = SecretText::new(secret.expose().to_owned());
    let sealed = api.keyring.seal(&tenant, id, &text).await?;
    let sealed = SealedSecret { id: "1".to_owned(), sealed, expires_at: None };
    let endpoint = Endpoint {
        tenant: tenant.clone(),
        id,
        url: new.url,
        patterns: new.patterns,
        concurrency: new.concurrency,
        lanes: vec![LaneCount { from: now, count: 1 }],
        created_at: now,
        disabled: false,
    };
    if !api.registry.add_endpoint(&endpoint, &[sealed]).await? {
        return Err(Problem::conflict("The new id is taken. Send the request again."));
    }
    let (tenant, subject) = (tenant.to_string(), id.to_string());
    let action = "endpoint.add".to_owned();
    api.registry.audit(&AuditEntry { tenant, at: now, actor, action, subject }).await?;
    let secret = text.expose().to_owned();
    Ok((StatusCode::CREATED, axum::Json(MadeEndpoint { endpoint, secret })))
}

/// Lists a tenant's endpoints.
pub async fn list<P: Ports>(
    State(api): State<Arc<Api<P>>>,
    Path(tenant): Path<String>,
) -> Result<axum::Json<Vec<Endpoint>>, Problem> {
    Ok(axum::Json(api.registry.endpoints(&tenant_of(&tenant)?).await?))
}

/// A tenant's name in a path.
pub(crate) fn tenant_of(name: &str) -> Result<TenantId, Problem> {
    name.parse().map_err(|error: domain::id::InvalidId| Problem::invalid(&error.to_string()))
}

fn check<P: Ports>(api: &Api<P>, new: &NewEndpoint) -> Result<(), Problem> {
    let mut problems = Vec::new();
    if let Err(error) = EndpointUrl::parse(&new.url, &api.limits.addresses) {
        problems.push(error.to_string());
    }
    if new.patterns.len() > MAX_PATTERNS {
        problems.push(format!("an endpoint has at most {MAX_PATTERNS} patterns"));
    }
    if new.concurrency.is_some_and(|n| !(1..=MAX_CONCURRENCY).contains(&n)) {
        problems.push(format!("concurrency is 1 to {MAX_CONCURRENCY}"));
    }
    if problems.is_empty() { Ok(()) } else { Err(Problem::invalid(&problems.join("; "))) }
}
