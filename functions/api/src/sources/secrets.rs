//! Secrets of sources: added, listed by their ids, removed. A secret is never in an answer, except the one that was made
//! here and is a part of the address that the provider needs.

use std::{collections::BTreeMap, sync::Arc};

use axum::{extract::State, http::StatusCode};
use domain::{
    id::SourceName,
    ports::{Changed, SetSourceSecrets as _, SourceSecret, SourceSecrets as _, Watch as _},
    secret::SecretText,
    source::Source,
};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use signing::Secret;

use super::{
    find,
    proof::Proof,
    reuse,
    view::{SecretView, is_over, secret_views, url},
};
use crate::{
    Api, OF_THE_DEPLOYMENT, Ports, Problem,
    problem::Findings,
    request::{Actor, Json, Path, Query},
};

/// Most secrets of one source: two are active in a rotation.
const MAX_SECRETS: usize = 10;

/// Most bytes of a secret. All of a source's, escaped as JSON, stay below the 64 KiB that the store of secrets takes.
const MAX_SECRET: usize = 1024;

/// Most bytes of a secret's id.
const MAX_SECRET_ID: usize = 64;

/// How long the other secrets are accepted beside a new one, in seconds: a provider needs time to change over, and its
/// late tries are signed with the old one. Seven days at most.
const OVERLAP: (u32, u32) = (86_400, 604_800);

/// A secret to add.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewSecret {
    id: String,
    /// Read by hand: serde quotes what it does not expect. Left out where the secret is a part of the address: one is made.
    #[serde(default)]
    secret: Option<Box<RawValue>>,
    /// In how many seconds the others end.
    #[serde(default)]
    expire_others_in: Option<u32>,
}

impl std::fmt::Debug for NewSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NewSecret(..)")
    }
}

/// The secrets of a source, as they are shown.
#[derive(Debug, Serialize)]
pub struct SecretList {
    secrets: Vec<SecretView>,
    #[serde(flatten)]
    addresses: Addresses,
    warnings: Vec<String>,
}

/// Addresses with the secrets in them, by the secrets' ids: shown once, when the secrets are set.
#[derive(Default, Serialize)]
pub(super) struct Addresses {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    secret_urls: BTreeMap<String, String>,
}

impl std::fmt::Debug for Addresses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Addresses(..)")
    }
}

impl Addresses {
    /// The addresses of secrets that were just set; none where the secret is no part of it.
    pub(super) fn of(
        ingress: &str,
        name: &SourceName,
        proof: &Proof,
        secrets: &[SourceSecret],
    ) -> Self {
        let whole = |secret: &SourceSecret| {
            let base = url(ingress, name, None);
            (secret.id.clone(), format!("{base}/{}", secret.text.expose()))
        };
        let set = secrets.iter().filter(|_| proof.is_in_path());
        Self { secret_urls: set.map(whole).collect() }
    }
}

/// Whether something is done that stops the source.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Force {
    #[serde(default)]
    pub(super) force: bool,
}

/// Lists a source's secrets: ids, ends, when each last matched, and which one can go.
pub async fn list<P: Ports>(
    State(api): State<Arc<Api<P>>>,
    Path(name): Path<String>,
) -> Result<axum::Json<SecretList>, Problem> {
    let source = find(&api, &name).await?;
    Ok(axum::Json(listed(&api, &source, Addresses::default(), Vec::new()).await?))
}

/// Adds a secret; the others end after a while. The same call again changes nothing more.
pub async fn add<P: Ports>(
    State(api): State<Arc<Api<P>>>,
    Path(name): Path<String>,
    Actor(actor): Actor,
    Json(new): Json<NewSecret>,
) -> Result<(StatusCode, axum::Json<SecretList>), Problem> {
    let now = api.now();
    let source = find(&api, &name).await?;
    let proof = Proof::of(&source).map_err(|problem| unusable(&problem))?;
    let (secret, overlap) = read(&new, &proof, (api.edge.random)())?;
    let there = api.secrets.of(&source.name).await?;
    if there.len() >= MAX_SECRETS && there.iter().all(|other| other.id != secret.id) {
        let detail = format!(
            "The source has {MAX_SECRETS} secrets, as many as it may have. Remove one that can go: \
             GET /v1/sources/{name}/secrets says which."
        );
        return Err(Problem::conflict("limit-reached", detail));
    }
    let warnings = reuse::warnings(&api, &source.name, std::slice::from_ref(&secret)).await;

    let subject = format!("{name}#{}", secret.id);
    api.audit(OF_THE_DEPLOYMENT, actor, "source.add_secret", &subject, now).await?;
    let end = now.checked_add(overlap).unwrap_or(Timestamp::MAX);
    let serves_handshakes = |id: &str| proof.is_of_handshakes(id);
    let is_apart =
        there.iter().any(|other| serves_handshakes(&other.id)) || serves_handshakes(&secret.id);
    // A new secret takes the place of those that did the same. Where each has a place of its own, none did.
    let has_place = !proof.places().is_empty();
    let others_end = (!is_apart && !has_place).then_some(end);
    if api.secrets.add(&source.name, &secret, others_end).await? == Changed::IdTaken {
        let detail =
            "Another secret of this source has this id. Choose another id; nothing was changed.";
        return Err(Problem::conflict("id-taken", detail));
    }
    if is_apart && !has_place && !serves_handshakes(&secret.id) {
        let others =
            there.iter().filter(|other| other.id != secret.id && !serves_handshakes(&other.id));
        for other in others.filter(|other| other.expires_at.is_none_or(|earlier| earlier > end)) {
            api.secrets.expire(&source.name, &other.id, Some(end)).await?;
        }
    }
    let addresses = Addresses::of(&api.limits.ingress_url, &source.name, &proof, &[secret]);
    Ok((StatusCode::CREATED, axum::Json(listed(&api, &source, addresses, warnings).await?)))
}

/// Removes a secret. The last one only by `?force=true`: without one, every request is refused.
pub async fn remove<P: Ports>(
    State(api): State<Arc<Api<P>>>,
    Path((name, id)): Path<(String, String)>,
    Query(Force { force }): Query<Force>,
    Actor(actor): Actor,
) -> Result<axum::Json<SecretList>, Problem> {
    let now = api.now();
    let source = find(&api, &name).await?;
    let there = api.secrets.of(&source.name).await?;
    let absent = || Problem::absent("secret of this id at this source");
    let secret = there.iter().find(|secret| secret.id == id).ok_or_else(absent)?;
    let is_active = |secret: &SourceSecret| !is_over(secret.expires_at, now);
    let proof = Proof::of(&source).ok();
    let verifies = |secret: &SourceSecret| {
        is_active(secret) && !proof.as_ref().is_some_and(|proof| proof.is_of_handshakes(&secret.id))
    };
    let others = || there.iter().filter(|other| other.id != id && verifies(other));
    let needs_none = proof.as_ref().is_some_and(Proof::is_published);
    let is_kept = verifies(secret) && !force && !needs_none;
    // Whoever takes back a rotation would be left with what the rotation has put an end to.
    let lasts = |secret: &SourceSecret| secret.expires_at.is_none();
    if is_kept && lasts(secret) && others().next().is_some() && !others().any(lasts) {
        let detail = "The other secrets end soon, and after that every request of the source would be refused. Add the \
                      one that is to stay first, under a new id if it is one of them; or say `?force=true`.";
        return Err(Problem::conflict("last-secret", detail));
    }
    if is_kept && others().next().is_none() {
        let detail = "This is the last secret that is accepted: without it, every request of the source is refused. \
                      Add the new one first; or say `?force=true` if that is what you want.";
        return Err(Problem::conflict("last-secret", detail));
    }
    let subject = format!("{name}#{id}");
    api.audit(OF_THE_DEPLOYMENT, actor, "source.remove_secret", &subject, now).await?;
    if api.secrets.remove(&source.name, &id).await? == Changed::NoSuchId {
        return Err(absent());
    }
    Ok(axum::Json(listed(&api, &source, Addresses::default(), Vec::new()).await?))
}

async fn listed<P: Ports>(
    api: &Api<P>,
    source: &Source,
    addresses: Addresses,
    warnings: Vec<String>,
) -> Result<SecretList, Problem> {
    let now = api.now();
    let secrets = api.secrets.of(&source.name).await?;
    let matched = api.watch.health(&source.name, now).await?.secrets;
    let proof = Proof::of(source).ok();
    let secrets = secret_views(&secrets, proof.as_ref(), &matched, now);
    Ok(SecretList { secrets, addresses, warnings })
}

/// The scheme of a source does not work in this version.
fn unusable(problem: &str) -> Problem {
    let detail = format!(
        "The source's scheme cannot be used by this version, so that no secret can be judged: {problem}. Change it first, \
         with PATCH."
    );
    Problem::conflict("scheme-unusable", detail)
}

fn read(
    new: &NewSecret,
    proof: &Proof,
    random: [u8; 32],
) -> Result<(SourceSecret, SignedDuration), Problem> {
    let mut found = Findings::default();
    let (usual, most) = OVERLAP;
    let overlap = new.expire_others_in.unwrap_or(usual);
    if overlap > most {
        found.note("expire_others_in", format!("it is 0 to {most} seconds"));
    }
    let secret = match &new.secret {
        None if proof.is_in_path() => {
            check_id("id", &new.id, &mut found);
            Some(slot_secret(&new.id, random))
        }
        None => {
            found.note("secret", "it is missing; copy it from the provider's dashboard");
            None
        }
        Some(text) => match serde_json::from_str::<Secret>(text.get()) {
            Ok(secret) => read_secret(proof, ("id", "secret"), &new.id, &secret, &mut found),
            Err(_) => {
                found.note("secret", "it is a text");
                None
            }
        },
    };
    match secret {
        Some(secret) => {
            found.done()?;
            Ok((secret, SignedDuration::from_secs(overlap.into())))
        }
        None => Err(found.problem()),
    }
}

/// Reads secrets by id. `None`: not all of them can be used.
pub(super) fn read_secrets(
    proof: &Proof,
    text: &RawValue,
    found: &mut Findings,
) -> Option<Vec<SourceSecret>> {
    let Ok(all) = serde_json::from_str::<BTreeMap<String, Secret>>(text.get()) else {
        found.note("secrets", "it is an object of texts: each secret by an id of your choice");
        return None;
    };
    if all.len() > MAX_SECRETS {
        found.note("secrets", format!("a source has at most {MAX_SECRETS}"));
        return None;
    }
    let read = all.iter().enumerate().map(|(at, (id, secret))| {
        // By number, not by id: whoever swaps the two would find the secret in the answer.
        let field = format!("secrets[{at}]");
        read_secret(proof, (&field, &field), id, secret, found)
    });
    // All of them are read before the first one that is missing counts.
    let read: Vec<_> = read.collect();
    read.into_iter().collect()
}

fn read_secret(
    proof: &Proof,
    (id_field, field): (&str, &str),
    id: &str,
    secret: &Secret,
    found: &mut Findings,
) -> Option<SourceSecret> {
    if !check_id(id_field, id, found) {
        return None;
    }
    let places = proof.places();
    if !places.is_empty() && !places.contains(&id) {
        let which = places.join(", ");
        found.note(
            id_field,
            format!("each header of this scheme has a secret of its own: the id is one of {which}"),
        );
        return None;
    }
    if secret.expose().len() > MAX_SECRET {
        found.note(field, format!("it has more than {MAX_SECRET} bytes"));
        return None;
    }
    if let Some(fault) = proof.fault_of(id, secret) {
        found.note(field, fault);
        return None;
    }
    let text = SecretText::new(secret.expose().to_owned());
    Some(SourceSecret { id: id.to_owned(), text, expires_at: None })
}

pub(super) fn check_id(field: &str, id: &str, found: &mut Findings) -> bool {
    let is_good = (1..=MAX_SECRET_ID).contains(&id.len())
        && id.bytes().all(|b| b.is_ascii_graphic() && b != b'/');
    if !is_good {
        let limit = format!("its id is 1 to {MAX_SECRET_ID} visible ASCII characters, without `/`");
        found.note(field, limit);
    }
    is_good
}

/// A secret for an address.
pub(super) fn slot_secret(id: &str, random: [u8; 32]) -> SourceSecret {
    let hex: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    SourceSecret { id: id.to_owned(), text: SecretText::new(hex), expires_at: None }
}
