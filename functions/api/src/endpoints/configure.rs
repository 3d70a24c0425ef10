//! An endpoint that a program sets up: one call, which may be repeated, says all that it is to be.
//!
//! The caller names the endpoint by a key of its own. The first call makes it and shows its secret; each later one makes it
//! what that call says, and shows no secret. Secrets are rotated elsewhere, never by this.

use std::sync::Arc;

use axum::{extract::State, http::StatusCode};
use domain::{endpoint::Endpoint, id::TenantId, ports::Registry as _};
use serde::Serialize;

use super::{
    MadeEndpoint, TRIES, busy, change_to, is_full, make,
    sealing::signing,
    strength::fingerprint,
    view::EndpointView,
    wanted::{Checked, Wanted},
};
use crate::{
    Api, Ports, Problem,
    problem::Findings,
    request::{Actor, Json, Path},
};

/// Most bytes of a key.
const MAX_KEY: usize = 128;

/// What became of an endpoint that a program sets up.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Configured {
    /// It was made, with its secret, which is shown this once.
    Made(Box<MadeEndpoint>),
    /// It was there.
    There(Box<ThereEndpoint>),
}

/// An endpoint that was there.
#[derive(Debug, Serialize)]
pub struct ThereEndpoint {
    #[serde(flatten)]
    endpoint: EndpointView,
    /// Whether this call has changed it.
    changed: bool,
}

/// Makes an endpoint what is said, whether it is there or not.
pub async fn configure<P: Ports>(
    State(api): State<Arc<Api<P>>>,
    Path((tenant, key)): Path<(String, String)>,
    Actor(actor): Actor,
    Json(wanted): Json<Wanted>,
) -> Result<(StatusCode, axum::Json<Configured>), Problem> {
    let (tenant, checked) = read(&api, &tenant, &key, wanted)?;
    for _ in 0..TRIES {
        let all = api.registry.endpoints(&tenant).await?;
        let found = all.iter().find(|endpoint| endpoint.key.as_ref() == Some(&key));
        if let Some(found) = found {
            let there = change(&api, found, &checked, &actor).await?;
            return Ok((StatusCode::OK, axum::Json(Configured::There(Box::new(there)))));
        }
        is_full(&api, all.len())?;
        // `None`: another call has made one of this key meanwhile.
        let made = make(&api, &tenant, &checked, Some(key.clone()), &actor).await?;
        if let Some(made) = made {
            return Ok((StatusCode::CREATED, axum::Json(Configured::Made(Box::new(made)))));
        }
    }
    Err(busy())
}

fn read<P: Ports>(
    api: &Api<P>,
    tenant: &str,
    key: &str,
    wanted: Wanted,
) -> Result<(TenantId, Checked), Problem> {
    let mut found = Findings::default();
    let tenant = found.keep("tenant", tenant.parse());
    if !(1..=MAX_KEY).contains(&key.len()) || !key.bytes().all(|b| b.is_ascii_graphic()) {
        found.note("key", format!("it is 1 to {MAX_KEY} visible ASCII characters"));
    }
    let checked = wanted.in_full().new_endpoint(&api.limits, &mut found);
    match tenant {
        Some(tenant) => found.done().map(|()| (tenant, checked)),
        None => Err(found.problem()),
    }
}

async fn change<P: Ports>(
    api: &Api<P>,
    found: &Endpoint,
    checked: &Checked,
    actor: &str,
) -> Result<ThereEndpoint, Problem> {
    let now = api.now();
    let Endpoint { tenant, id, .. } = found;
    let there = api.registry.endpoint(tenant, *id).await?;
    let (old, secrets) = there.ok_or_else(busy)?;
    if let Some(secret) = &checked.secret {
        let name = fingerprint(secret);
        if !signing(&secrets, now).iter().any(|secret| secret.id == name) {
            let detail = format!(
                "The endpoint of this key is {id}, and it signs with another secret. Rotate it (POST …/secrets/rotate), or \
                 leave `secret` out."
            );
            return Err(Problem::conflict("other-secret", detail));
        }
    }
    // What is sealed cannot be compared, and is sealed anew.
    let brings_secrets = matches!(checked.own.auth, Some(Some(_)))
        || checked.own.headers.as_ref().is_some_and(|headers| !headers.is_empty());
    if !brings_secrets && checked.onto_place(checked.onto(old.clone(), now)?)? == old {
        let endpoint = EndpointView::whole(api, old).await?;
        return Ok(ThereEndpoint { endpoint, changed: false });
    }
    let subject = id.to_string();
    api.audit(tenant.as_str(), actor.to_owned(), "endpoint.configure", &subject, now).await?;
    let (endpoint, _) = change_to(api, tenant, *id, checked, now).await?;
    let endpoint = EndpointView::whole(api, endpoint).await?;
    Ok(ThereEndpoint { endpoint, changed: true })
}
