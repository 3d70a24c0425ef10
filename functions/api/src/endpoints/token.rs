//! What the owner of an endpoint polls it with.

use std::sync::Arc;

use axum::{extract::State, http::StatusCode};
use domain::{
    destination::Destination,
    ports::{Purpose, Registry as _},
};
use serde::Serialize;

use super::{absent, named, replace};
use crate::{
    Api, Ports, Problem, polling,
    request::{Actor, Path},
};

/// A new token, which is shown this once.
#[derive(Serialize)]
pub struct NewToken {
    token: String,
}

impl std::fmt::Debug for NewToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NewToken(..)")
    }
}

/// Gives an endpoint another token. The one before opens nothing any more: it may be in wrong hands.
pub async fn renew<P: Ports>(
    State(api): State<Arc<Api<P>>>,
    Path(names): Path<(String, String)>,
    Actor(actor): Actor,
) -> Result<(StatusCode, axum::Json<NewToken>), Problem> {
    let (tenant, id) = named(&names)?;
    let (endpoint, _) = api.registry.endpoint(&tenant, id).await?.ok_or_else(absent)?;
    if !matches!(endpoint.destination, Destination::Poll(_)) {
        let detail =
            "Nobody polls this endpoint: its events are sent. Add one with `\"poll\": true`.";
        return Err(Problem::conflict("not-polled", detail));
    }
    let token = polling::mint((api.edge.random)());
    api.audit(tenant.as_str(), actor, "endpoint.token", &id.to_string(), api.now()).await?;
    let sealed = polling::sealed(&token);
    replace(&api, &tenant, id, |(old, secrets)| {
        let others = secrets.iter().filter(|secret| secret.purpose != Purpose::Polling);
        Ok((old.clone(), others.cloned().chain([sealed.clone()]).collect()))
    })
    .await?;
    let token = token.expose().to_owned();
    Ok((StatusCode::CREATED, axum::Json(NewToken { token })))
}
