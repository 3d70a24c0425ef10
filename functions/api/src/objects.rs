//! Objects: what we hold of a provider's things, as of when, and what speaks against believing it.

use std::sync::Arc;

use axum::extract::State;
use domain::{
    event::{Object, ObjectRef, Version},
    ports::{Registry as _, State as _, Watch as _},
    source::Source,
    stale::{Doubt, Evidence, doubts},
};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use crate::{Api, Ports, Problem, at_once, request::Path};

/// An object, as it is shown.
#[derive(Debug, Serialize)]
pub struct ObjectView {
    source: String,
    kind: String,
    id: String,
    fields: Value,
    /// How new the provider says it is; null if it says nothing.
    version: Value,
    /// Whether the provider has deleted it. What it was last stays.
    deleted: bool,
    /// The world as of then.
    as_of: Timestamp,
    /// Whether the provider was asked. Otherwise an event said so.
    fetched: bool,
    /// When we wrote it.
    updated_at: Timestamp,
    /// Whether there is a reason to doubt that it still is so.
    possibly_stale: bool,
    why: Vec<Doubt>,
}

/// Shows one object.
pub async fn show<P: Ports>(
    State(api): State<Arc<Api<P>>>,
    Path((source, kind, id)): Path<(String, String, String)>,
) -> Result<axum::Json<ObjectView>, Problem> {
    let now = api.now();
    let sources = api.registry.sources().await?;
    let of = |name: &str| sources.iter().find(|one| one.name.as_str() == name);
    let asked = of(&source).ok_or_else(|| Problem::absent("source of this name"))?;
    // Of two sources that are the same, one holds the objects.
    let holder = of(asked.filed_under().as_str()).unwrap_or(asked);
    let object = ObjectRef { kind, id };
    let Some(held) = api.watch.object(&holder.name, &object).await? else {
        return Err(Problem::absent("object of this kind and id at this source"));
    };
    let feeds = sources.iter().filter(|one| *one.filed_under() == holder.name);
    let why = doubts(&evidence(&api, holder, feeds.collect(), now).await?, now);
    let Object { version, fields, deleted, updated_at, as_of, fetched, .. } = held;
    Ok(axum::Json(ObjectView {
        source: holder.name.to_string(),
        kind: object.kind,
        id: object.id,
        fields,
        version: told(&version),
        deleted,
        as_of,
        fetched,
        updated_at,
        possibly_stale: !why.is_empty(),
        why,
    }))
}

/// What is known of a source, and of those whose events are filed there: as long as one of them is heard, it is.
async fn evidence<P: Ports>(
    api: &Api<P>,
    holder: &Source,
    feeds: Vec<&Source>,
    now: Timestamp,
) -> Result<Evidence, Problem> {
    let healths = feeds.iter().map(|feed| {
        let name = &feed.name;
        async move { Ok(api.watch.health(name, now).await?) }
    });
    let healths = at_once(healths.collect()).await?;
    let refused: Option<Vec<_>> = healths.iter().map(|health| health.failing_since).collect();
    Ok(Evidence {
        made_at: holder.created_at,
        silent_after: holder.silent_after,
        heard_at: healths.iter().filter_map(|health| health.last_accepted_at).max(),
        refused_since: refused.and_then(|all| all.into_iter().max()),
        paused_since: holder.paused.as_ref().map(|paused| paused.since),
        reconciled_until: api.watch.reconciled_until(&holder.name).await?,
    })
}

/// A version as the provider says it. Ours, of an object that was read or that ended without one, are none of its words.
fn told(version: &Version) -> Value {
    match version {
        Version::Number(number) => json!(number),
        Version::Time(time) => json!(time),
        Version::Text(text) => json!(text),
        Version::Composite(parts) => parts.iter().map(told).collect(),
        Version::End | Version::Reading(_) => Value::Null,
    }
}
