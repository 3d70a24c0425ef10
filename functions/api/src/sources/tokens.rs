//! The tokens with which a source's provider is asked: added, listed by their ids, removed. A token is never in an answer.
//!
//! They are kept apart from the secrets that requests are verified with: whoever verifies must not be able to ask, and a
//! token must never count as a key for a signature.

use std::sync::Arc;

use axum::{extract::State, http::StatusCode};
use domain::{
    ports::{Changed, SetSourceSecrets as _, SourceSecret, SourceSecrets as _},
    secret::SecretText,
};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use signing::Secret;

use super::{find, secrets::check_id};
use crate::{
    Api, OF_THE_DEPLOYMENT, Ports, Problem,
    problem::Findings,
    request::{Actor, Json, Path},
};

/// Most tokens of one source: two are active in a rotation.
const MAX_TOKENS: usize = 4;

/// Most bytes of a token. All of a source's stay below the 64 KiB that the store of secrets takes.
const MAX_TOKEN: usize = 8 * 1024;

/// How long the other tokens are used beside a new one, in seconds; seven days at most.
const OVERLAP: (u32, u32) = (86_400, 604_800);

/// A token to add.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    id: String,
    /// Read by hand: serde quotes what it does not expect.
    token: Box<RawValue>,
    /// In how many seconds the others end.
    #[serde(default)]
    expire_others_in: Option<u32>,
}

impl std::fmt::Debug for NewToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NewToken(..)")
    }
}

/// The tokens of a source, as they are shown.
#[derive(Debug, Serialize)]
pub struct TokenList {
    tokens: Vec<Token>,
    warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Token {
    id: String,
    expires_at: Option<Timestamp>,
}

/// Lists a source's tokens: ids and ends.
pub async fn list<P: Ports>(
    State(api): State<Arc<Api<P>>>,
    Path(name): Path<String>,
) -> Result<axum::Json<TokenList>, Problem> {
    let source = find(&api, &name).await?;
    let tokens = api.tokens.of(&source.name).await?;
    Ok(axum::Json(listed(tokens, source.fetch.is_some())))
}

/// Adds a token, which is used first from then on; the others end after a while.
pub async fn add<P: Ports>(
    State(api): State<Arc<Api<P>>>,
    Path(name): Path<String>,
    Actor(actor): Actor,
    Json(new): Json<NewToken>,
) -> Result<(StatusCode, axum::Json<TokenList>), Problem> {
    let now = api.now();
    let source = find(&api, &name).await?;
    let (token, overlap) = new.read()?;
    let there = api.tokens.of(&source.name).await?;
    if there.len() >= MAX_TOKENS && there.iter().all(|other| other.id != token.id) {
        let detail = format!(
            "The source has {MAX_TOKENS} tokens, as many as it may have. Remove one that has ended or is not used any more."
        );
        return Err(Problem::conflict("limit-reached", detail));
    }
    let subject = format!("{name}#{}", token.id);
    api.audit(OF_THE_DEPLOYMENT, actor, "source.add_token", &subject, now).await?;
    let end = now.checked_add(overlap).unwrap_or(Timestamp::MAX);
    if api.tokens.add(&source.name, &token, Some(end)).await? == Changed::IdTaken {
        let detail =
            "Another token of this source has this id. Choose another id; nothing was changed.";
        return Err(Problem::conflict("id-taken", detail));
    }
    let tokens = api.tokens.of(&source.name).await?;
    Ok((StatusCode::CREATED, axum::Json(listed(tokens, source.fetch.is_some()))))
}

/// Removes a token. Without any, the source's events fail until there is one.
pub async fn remove<P: Ports>(
    State(api): State<Arc<Api<P>>>,
    Path((name, id)): Path<(String, String)>,
    Actor(actor): Actor,
) -> Result<axum::Json<TokenList>, Problem> {
    let source = find(&api, &name).await?;
    let absent = || Problem::absent("token of this id at this source");
    if api.tokens.of(&source.name).await?.iter().all(|token| token.id != id) {
        return Err(absent());
    }
    let subject = format!("{name}#{id}");
    api.audit(OF_THE_DEPLOYMENT, actor, "source.remove_token", &subject, api.now()).await?;
    if api.tokens.remove(&source.name, &id).await? == Changed::NoSuchId {
        return Err(absent());
    }
    let tokens = api.tokens.of(&source.name).await?;
    Ok(axum::Json(listed(tokens, source.fetch.is_some())))
}

impl NewToken {
    fn read(&self) -> Result<(SourceSecret, SignedDuration), Problem> {
        let mut found = Findings::default();
        let (usual, most) = OVERLAP;
        let overlap = self.expire_others_in.unwrap_or(usual);
        if overlap > most {
            found.note("expire_others_in", format!("it is 0 to {most} seconds"));
        }
        check_id("id", &self.id, &mut found);
        let token = serde_json::from_str::<Secret>(self.token.get()).ok();
        let good = |token: &Secret| {
            let text = token.expose();
            (1..=MAX_TOKEN).contains(&text.len())
                && text.bytes().all(|byte| byte.is_ascii_graphic())
        };
        let token = token.filter(good);
        if token.is_none() {
            found.note(
                "token",
                format!(
                    "it is a text of 1 to {MAX_TOKEN} visible ASCII characters, without blanks"
                ),
            );
        }
        found.done()?;
        let text =
            SecretText::new(token.map(|token| token.expose().to_owned()).unwrap_or_default());
        let token = SourceSecret { id: self.id.clone(), text, expires_at: None };
        Ok((token, SignedDuration::from_secs(overlap.into())))
    }
}

fn listed(tokens: Vec<SourceSecret>, is_used: bool) -> TokenList {
    let view = |token: SourceSecret| Token { id: token.id, expires_at: token.expires_at };
    let tokens: Vec<_> = tokens.into_iter().map(view).collect();
    let mut warnings = Vec::new();
    if !is_used && !tokens.is_empty() {
        warnings.push(
            "the source does not ask its provider, so that nothing uses its tokens".to_owned(),
        );
    }
    if is_used && tokens.is_empty() {
        warnings.push(
            "the source asks its provider and has no token: its events fail until there is one"
                .to_owned(),
        );
    }
    TokenList { tokens, warnings }
}
