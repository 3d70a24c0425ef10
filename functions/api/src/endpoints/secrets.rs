//! What an endpoint's events are signed with: listed without values, and rotated without a gap.

use std::sync::Arc;

use axum::{extract::State, http::StatusCode};
use domain::{
    endpoint::Endpoint,
    ports::{Purpose, Registry as _, SealedSecret},
};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use signing::EndpointSecret;

use super::{
    absent, named, replace,
    reuse::reused,
    sealing::{is_active, rotated, seal_signing, signing, with_public_keys},
    shows_secret,
    strength::{self, Kind, fingerprint},
};
use crate::{
    Api, Ports, Problem,
    problem::Findings,
    request::{Actor, Json, Path},
};

/// How long the secrets before a new one are used beside it, in milliseconds: their owner needs time to change over.
/// A day, and seven days at most.
const OVERLAP_MS: (u64, u64) = (86_400_000, 604_800_000);

/// Most secrets that sign at once: each adds to a header that every receiver must take.
const MAX_SIGNING: usize = 5;

/// How secrets are rotated.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rotation {
    /// For how long the secrets that sign now are used beside the new one.
    overlap_ms: u64,
    /// What kind of secret is made.
    kind: Option<Kind>,
    /// The owner's own secret, instead of one that is made. Read by hand: serde quotes what it does not expect.
    secret: Option<Box<RawValue>>,
}

impl Default for Rotation {
    fn default() -> Self {
        Self { overlap_ms: OVERLAP_MS.0, kind: None, secret: None }
    }
}

impl std::fmt::Debug for Rotation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Rotation(..)")
    }
}

/// The secrets of an endpoint, as they are shown.
#[derive(Debug, Serialize)]
pub struct SecretList {
    secrets: Vec<SecretView>,
}

/// A secret, as it is shown.
#[derive(Debug, Serialize)]
pub struct SecretView {
    /// The beginning of the SHA-256 of what signs; of others, what they are for.
    id: String,
    purpose: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<Kind>,
    /// What its owner verifies with.
    #[serde(skip_serializing_if = "Option::is_none")]
    public_key: Option<String>,
    /// When it is no longer used; `None`: it is the current one.
    expires_at: Option<Timestamp>,
}

/// A new secret, which is shown this once.
#[derive(Serialize)]
pub struct Rotated {
    /// Its id, which is its fingerprint.
    id: String,
    /// The secret. Of a key pair that was made here only the public key is shown, which is all that a receiver needs; and
    /// what an owner brought along he has.
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    public_key: Option<String>,
    /// When the secrets before it are no longer used.
    others_end_at: Timestamp,
    #[serde(flatten)]
    list: SecretList,
    warnings: Vec<String>,
}

impl std::fmt::Debug for Rotated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rotated").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Lists an endpoint's secrets, never their values.
pub async fn list<P: Ports>(
    State(api): State<Arc<Api<P>>>,
    Path(names): Path<(String, String)>,
) -> Result<axum::Json<SecretList>, Problem> {
    let (tenant, id) = named(&names)?;
    let (endpoint, secrets) = api.registry.endpoint(&tenant, id).await?.ok_or_else(absent)?;
    Ok(axum::Json(listed(&endpoint, &secrets, api.now())))
}

/// Gives an endpoint a new secret; what signed before signs beside it for a while.
///
/// A caller who loses the answer has lost the secret, and rotates again: the one that nobody knows signs, too, until it
/// ends with the others.
pub async fn rotate<P: Ports>(
    State(api): State<Arc<Api<P>>>,
    Path(names): Path<(String, String)>,
    Actor(actor): Actor,
    Json(how): Json<Rotation>,
) -> Result<(StatusCode, axum::Json<Rotated>), Problem> {
    let now = api.now();
    let (own, overlap) = read(&how)?;
    let (tenant, id) = named(&names)?;
    let (endpoint, _) = api.registry.endpoint(&tenant, id).await?.ok_or_else(absent)?;
    if !shows_secret(&endpoint.destination) {
        let detail =
            "Nothing is signed for this endpoint: the deployment writes to it with its own rights.";
        return Err(Problem::conflict("no-secret", detail));
    }
    let warnings = match &own {
        Some(secret) => reused(&api, &tenant, id, &fingerprint(secret)).await,
        None => Vec::new(),
    };
    let is_own = own.is_some();
    let secret = own.unwrap_or_else(|| how.kind.unwrap_or_default().make((api.edge.random)()));
    let sealed = seal_signing(&api, &tenant, id, &secret).await?;
    let subject = format!("{id} {}", sealed.id);
    api.audit(tenant.as_str(), actor, "endpoint.rotate", &subject, now).await?;
    let ends = now.checked_add(overlap).unwrap_or(Timestamp::MAX);
    let public_key = secret.public_key();
    let (endpoint, secrets) = replace(&api, &tenant, id, |(old, secrets)| {
        check(&sealed.id, secrets, ends, now)?;
        let secrets = rotated(secrets, sealed.clone(), ends, now);
        let new = public_key.clone().map(|key| (sealed.id.clone(), key));
        Ok((with_public_keys(old, &secrets, new), secrets))
    })
    .await?;
    let answer = Rotated {
        id: sealed.id.clone(),
        secret: shown_once(&secret, is_own),
        public_key,
        others_end_at: ends,
        list: listed(&endpoint, &secrets, now),
        warnings,
    };
    Ok((StatusCode::CREATED, axum::Json(answer)))
}

/// What is shown of a new secret: nothing of a private key, and nothing that its owner has.
pub(super) fn shown_once(secret: &EndpointSecret, is_own: bool) -> Option<String> {
    let is_shown = !is_own && secret.public_key().is_none();
    is_shown.then(|| secret.expose().expose().to_owned())
}

/// Whether the secret of this id may be the next one.
fn check(
    id: &str,
    secrets: &[SealedSecret],
    ends: Timestamp,
    now: Timestamp,
) -> Result<(), Problem> {
    let signing = signing(secrets, now);
    if let Some(same) = signing.iter().find(|secret| secret.id == id) {
        let detail = match same.expires_at {
            None => "The endpoint signs with this secret already: nothing was changed.".to_owned(),
            Some(ends) => format!(
                "The endpoint had this secret before, and uses it until {ends}. Bring another one, or leave it out, and one \
                 is made; nothing was changed."
            ),
        };
        return Err(Problem::conflict("same-secret", detail));
    }
    let left = signing.len() + 1;
    if left > MAX_SIGNING && ends > now {
        let detail = format!(
            "The endpoint signs with {} secrets already, and with {MAX_SIGNING} at most. Wait until some end, or rotate \
             with `overlap_ms` 0, which ends all others at once.",
            signing.len()
        );
        return Err(Problem::conflict("limit-reached", detail));
    }
    Ok(())
}

fn read(how: &Rotation) -> Result<(Option<EndpointSecret>, SignedDuration), Problem> {
    let mut found = Findings::default();
    if how.overlap_ms > OVERLAP_MS.1 {
        found.note("overlap_ms", format!("it is 0 to {} milliseconds (7 days)", OVERLAP_MS.1));
    }
    let text = how.secret.as_ref();
    let secret = text.and_then(|text| strength::read("secret", text, how.kind, &mut found));
    found.done()?;
    let overlap = i64::try_from(how.overlap_ms).unwrap_or(i64::MAX);
    Ok((secret, SignedDuration::from_millis(overlap)))
}

fn listed(endpoint: &Endpoint, secrets: &[SealedSecret], now: Timestamp) -> SecretList {
    let signs = signing(secrets, now).into_iter();
    let others = secrets.iter().filter(|secret| secret.purpose != Purpose::Signing);
    let others = others.filter(|secret| is_active(secret, now));
    let view = |secret: &SealedSecret| {
        let public_key = endpoint.public_keys.get(&secret.id).cloned();
        let kind = if public_key.is_some() { Kind::Ed25519 } else { Kind::Hmac };
        SecretView {
            id: secret.id.clone(),
            purpose: secret.purpose.word(),
            kind: (secret.purpose == Purpose::Signing).then_some(kind),
            public_key,
            expires_at: secret.expires_at,
        }
    };
    SecretList { secrets: signs.chain(others).map(view).collect() }
}
