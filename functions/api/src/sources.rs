//! Sources: added, listed, shown.

use std::{collections::BTreeMap, sync::Arc};

use axum::{extract::State, http::StatusCode};
use domain::{
    ports::{Configure as _, Registry as _, SetSourceSecrets as _, SourceSecret},
    secret::SecretText,
    source::{Handler, SchemeChoice, Source},
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use signing::{Key, Scheme, Secret};

use crate::{
    Api, OF_THE_DEPLOYMENT, Ports, Problem,
    problem::Findings,
    request::{Actor, Json, Path},
};

/// A source to add.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewSource {
    name: String,
    scheme: SchemeChoice,
    handler: NewHandler,
    /// Secrets by id, as the provider shows them. Read by hand: serde quotes what it does not expect.
    secrets: Box<RawValue>,
}

/// What is done with the events of a source to add.
#[derive(Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
enum NewHandler {
    Mirror {
        #[serde(default)]
        emit_to: Option<String>,
    },
    Forward {
        tenant: String,
        #[serde(default)]
        types: Vec<String>,
    },
}

impl std::fmt::Debug for NewSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewSource").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A source, as it is shown. Its secrets are not.
#[derive(Debug, Serialize)]
pub struct SourceView {
    #[serde(flatten)]
    source: Source,
    /// Where the provider sends its requests.
    url: String,
}

/// All sources.
#[derive(Debug, Serialize)]
pub struct SourceList {
    sources: Vec<SourceView>,
}

/// Most secrets of one source: two are active in a rotation.
const MAX_SECRETS: usize = 10;

/// Most bytes of a secret. All of a source's, escaped as JSON, stay below the 64 KiB that the store of secrets takes.
const MAX_SECRET: usize = 1024;

/// Most types of a forwarding source, as of an endpoint.
const MAX_TYPES: usize = 100;

/// Most bytes of a scheme of one's own, as JSON. Presets have a thousand, and a row of the registry takes 400 KB.
const MAX_SCHEME: usize = 16 * 1024;

/// Most bytes of a secret's id.
const MAX_SECRET_ID: usize = 64;

/// Adds a source. A call that died half way can be sent again: what it began, the next one ends.
pub async fn add<P: Ports>(
    State(api): State<Arc<Api<P>>>,
    Actor(actor): Actor,
    Json(new): Json<NewSource>,
) -> Result<(StatusCode, axum::Json<SourceView>), Problem> {
    let now = api.now();
    let (source, secrets) = read(&new, now)?;

    api.audit(OF_THE_DEPLOYMENT, actor, "source.add", source.name.as_str(), now).await?;
    // The row first: until its secrets are there, ingress answers 503, and nothing is lost. Of two concurrent calls
    // one creates the secrets, and only that one answers that it made the source.
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
    Ok((StatusCode::CREATED, axum::Json(view(&api, source))))
}

/// Lists all sources.
pub async fn list<P: Ports>(
    State(api): State<Arc<Api<P>>>,
) -> Result<axum::Json<SourceList>, Problem> {
    let sources = api.registry.sources().await?;
    let sources = sources.into_iter().map(|source| view(&api, source)).collect();
    Ok(axum::Json(SourceList { sources }))
}

/// Shows one source.
pub async fn show<P: Ports>(
    State(api): State<Arc<Api<P>>>,
    Path(name): Path<String>,
) -> Result<axum::Json<SourceView>, Problem> {
    let absent = || Problem::absent("source of this name");
    let name = name.parse().map_err(|_| absent())?;
    let source = api.registry.source(&name).await?.ok_or_else(absent)?;
    Ok(axum::Json(view(&api, source)))
}

fn view<P: Ports>(api: &Api<P>, source: Source) -> SourceView {
    let url = format!("{}/webhooks/{}", api.limits.ingress_url, source.name);
    SourceView { source, url }
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
    let found = api.registry.source(&wanted.name).await?;
    Ok(found.is_some_and(|found| Source { created_at: wanted.created_at, ..found } == *wanted))
}

/// Checks the whole request, and names all that is wrong with it at once.
fn read(new: &NewSource, now: jiff::Timestamp) -> Result<(Source, Vec<SourceSecret>), Problem> {
    let mut found = Findings::default();
    let name = found.keep("name", new.name.parse());
    let handler = handler(&new.handler, &mut found);
    let secrets = match scheme(&new.scheme, &mut found) {
        Some(scheme) => secrets(&scheme, &new.secrets, &mut found),
        // Which secrets fit is not known without a scheme.
        None => Vec::new(),
    };
    match (name, handler) {
        (Some(name), Some(handler)) => {
            found.done()?;
            Ok((Source::new(name, new.scheme.clone(), handler, now), secrets))
        }
        _ => Err(found.problem()),
    }
}

fn handler(new: &NewHandler, found: &mut Findings) -> Option<Handler> {
    match new {
        NewHandler::Mirror { emit_to: None } => Some(Handler::Mirror { emit_to: None }),
        NewHandler::Mirror { emit_to: Some(tenant) } => {
            let tenant = found.keep("handler.emit_to", tenant.parse())?;
            Some(Handler::Mirror { emit_to: Some(tenant) })
        }
        NewHandler::Forward { tenant, types } => {
            let tenant = found.keep("handler.tenant", tenant.parse());
            if types.len() > MAX_TYPES {
                found.note("handler.types", format!("a source has at most {MAX_TYPES}"));
                return None;
            }
            let types = types
                .iter()
                .enumerate()
                .map(|(at, text)| found.keep(&format!("handler.types[{at}]"), text.parse()));
            // All of them are read before the first one that is missing counts.
            let types: Vec<_> = types.collect();
            Some(Handler::Forward {
                tenant: tenant?,
                types: types.into_iter().collect::<Option<_>>()?,
            })
        }
    }
}

fn scheme(choice: &SchemeChoice, found: &mut Findings) -> Option<Scheme> {
    let scheme = match choice {
        SchemeChoice::Preset(name) => {
            let scheme = Scheme::preset(name);
            if scheme.is_none() {
                let known: Vec<_> = signing::preset_names().collect();
                let known = known.join(", ");
                found.note(
                    "scheme.preset",
                    format!("no such scheme ships; there are {known}; or describe one of your own under `scheme.own`"),
                );
            }
            scheme?
        }
        SchemeChoice::Own(value) if value.to_string().len() > MAX_SCHEME => {
            found.note("scheme.own", format!("it has more than {MAX_SCHEME} bytes"));
            return None;
        }
        SchemeChoice::Own(value) => {
            let read = Scheme::from_value(value.clone());
            read.map_err(|problems| found.note("scheme.own", problems)).ok()?
        }
    };
    for name in scheme.missing_config() {
        let problem = format!(
            "it needs `config.{name}`; describe it under `scheme.own`, as {{\"like\": ..., \"config\": {{\"{name}\": ...}}}}"
        );
        found.note("scheme", problem);
    }
    Some(scheme)
}

fn secrets(scheme: &Scheme, text: &RawValue, found: &mut Findings) -> Vec<SourceSecret> {
    let Ok(all) = serde_json::from_str::<BTreeMap<String, Secret>>(text.get()) else {
        found.note("secrets", "it is an object of texts: each secret by an id of your choice");
        return Vec::new();
    };
    if all.is_empty() {
        found.note("secrets", "a source needs at least one: without it, nothing can be verified");
    }
    if all.len() > MAX_SECRETS {
        found.note("secrets", format!("a source has at most {MAX_SECRETS}"));
        return Vec::new();
    }
    let mut good = Vec::new();
    for (at, (id, secret)) in all.iter().enumerate() {
        // By number, not by id: whoever swaps the two would find the secret in the answer.
        let field = format!("secrets[{at}]");
        if !(1..=MAX_SECRET_ID).contains(&id.len()) || !id.bytes().all(|b| b.is_ascii_graphic()) {
            found.note(&field, format!("its id is 1 to {MAX_SECRET_ID} visible ASCII characters"));
            continue;
        }
        if secret.expose().len() > MAX_SECRET {
            found.note(&field, format!("it has more than {MAX_SECRET} bytes"));
            continue;
        }
        let Some(key) = found.keep(&field, Key::parse(scheme, id.as_str(), secret)) else {
            continue;
        };
        if let Some(weakness) = key.weakness() {
            found.note(&field, weakness);
            continue;
        }
        let text = SecretText::new(secret.expose().to_owned());
        good.push(SourceSecret { id: id.clone(), text, expires_at: None });
    }
    good
}
