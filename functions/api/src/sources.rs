//! Sources: added, listed, shown.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    extract::{Path, State},
    http::StatusCode,
};
use domain::{
    id::SourceName,
    ports::{AuditEntry, Configure as _, Registry as _, SetSourceSecrets as _, SourceSecret},
    secret::SecretText,
    source::{Handler, SchemeChoice, Source},
};
use serde::{Deserialize, Serialize};

use crate::{Actor, Api, Json, Ports, Problem};

/// A source to add.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewSource {
    name: SourceName,
    scheme: SchemeChoice,
    handler: Handler,
    /// Secrets by id, as the provider shows them.
    secrets: BTreeMap<String, signing::Secret>,
}

/// A source, as it is shown. Its secrets are not.
#[derive(Debug, Serialize)]
pub struct SourceView {
    #[serde(flatten)]
    source: Source,
    /// Where the provider sends its requests.
    url: String,
}

/// Adds a source. Made so that a call that died half way can be sent again.
pub async fn add<P: Ports>(
    State(api): State<Arc<Api<P>>>,
    Actor(actor): Actor,
    Json(new): Json<NewSource>,
) -> Result<(StatusCode, axum::Json<SourceView>), Problem> {
    let secrets = parse_secrets(&new)?;
    let now = (api.edge.now)();
    let source =
        Source { name: new.name, scheme: new.scheme, handler: new.handler, created_at: now };

    // The row first: until its secrets are there, ingress answers 503, and nothing is lost. Of two concurrent calls
    // one creates the secrets, and only that one answers that it made the source.
    if !api.registry.add_source(&source).await? && !is_same(&api, &source).await? {
        return Err(taken(&source.name));
    }
    if !api.secrets.create(&source.name, &secrets).await? {
        return Err(taken(&source.name));
    }
    let subject = source.name.to_string();
    let action = "source.add".to_owned();
    let tenant = "-".to_owned();
    api.registry.audit(&AuditEntry { tenant, at: now, actor, action, subject }).await?;
    Ok((StatusCode::CREATED, axum::Json(view(&api, source))))
}

/// Lists all sources.
pub async fn list<P: Ports>(
    State(api): State<Arc<Api<P>>>,
) -> Result<axum::Json<Vec<SourceView>>, Problem> {
    let sources = api.registry.sources().await?;
    Ok(axum::Json(sources.into_iter().map(|source| view(&api, source)).collect()))
}

/// Shows one source.
pub async fn show<P: Ports>(
    State(api): State<Arc<Api<P>>>,
    Path(name): Path<String>,
) -> Result<axum::Json<SourceView>, Problem> {
    let absent = || Problem::absent("source of this name");
    let name: SourceName = name.parse().map_err(|_| absent())?;
    let source = api.registry.source(&name).await?.ok_or_else(absent)?;
    Ok(axum::Json(view(&api, source)))
}

fn view<P: Ports>(api: &Api<P>, source: Source) -> SourceView {
    let url = format!("{}/webhooks/{}", api.limits.ingress_url, source.name);
    SourceView { source, url }
}

fn taken(name: &SourceName) -> Problem {
    Problem::conflict(&format!("There is a source named {name} already. Choose another name."))
}

/// Whether the row that is there is what a call that died before it made the secrets would have left.
async fn is_same<P: Ports>(api: &Api<P>, wanted: &Source) -> Result<bool, Problem> {
    let found = api.registry.source(&wanted.name).await?;
    Ok(found.is_some_and(|found| Source { created_at: wanted.created_at, ..found } == *wanted))
}

/// Checks the scheme and every secret, and names all problems at once.
fn parse_secrets(new: &NewSource) -> Result<Vec<SourceSecret>, Problem> {
    let scheme = match &new.scheme {
        SchemeChoice::Preset(name) => signing::Scheme::preset(name).ok_or_else(|| {
            let known: Vec<_> = signing::preset_names().collect();
            Problem::invalid(&format!(
                "No scheme ships under this name. There are: {}. Or describe your own under `scheme.own`.",
                known.join(", ")
            ))
        })?,
        SchemeChoice::Own(value) => signing::Scheme::from_value(value.clone())
            .map_err(|problems| Problem::invalid(&problems.to_string()))?,
    };
    if new.secrets.is_empty() {
        return Err(Problem::invalid(
            "A source needs at least one secret: without one, nothing could be verified.",
        ));
    }
    let mut problems = Vec::new();
    let mut secrets = Vec::new();
    for (id, secret) in &new.secrets {
        match signing::Key::parse(&scheme, id.as_str(), secret) {
            Ok(key) => match key.weakness() {
                Some(weakness) => problems.push(format!("secret {id:?}: {weakness}")),
                None => secrets.push(SourceSecret {
                    id: id.clone(),
                    text: SecretText::new(secret.expose().to_owned()),
                    expires_at: None,
                }),
            },
            Err(error) => problems.push(format!("secret {id:?}: {error}")),
        }
    }
    if problems.is_empty() { Ok(secrets) } else { Err(Problem::invalid(&problems.join("; "))) }
}
