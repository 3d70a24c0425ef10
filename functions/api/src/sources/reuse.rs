//! One secret at several sources: whoever gets hold of it at one place can speak for all of them.

use domain::{
    body::Sha256Hash,
    id::SourceName,
    ports::{Registry as _, SourceSecret, SourceSecrets as _},
};

use crate::{Api, Ports, Problem, at_once};

/// Most other sources that are looked at: each costs a read of the store of secrets.
const MOST_COMPARED: usize = 100;

/// Warnings about secrets that other sources have, too. They are found by comparing hashes in memory; nothing is stored.
/// A failure to look warns, and stops nothing.
pub(super) async fn warnings<P: Ports>(
    api: &Api<P>,
    name: &SourceName,
    secrets: &[SourceSecret],
) -> Vec<String> {
    match sharers(api, name, secrets).await {
        Ok(shared) => shared.iter().map(|(id, other)| warning(id, other)).collect(),
        Err(_) => {
            let unknown = "Whether other sources have the same secret could not be looked up.";
            vec![unknown.to_owned()]
        }
    }
}

fn warning(id: &str, other: &SourceName) -> String {
    format!(
        "The source {other} has the same secret as {id} here: whoever learns it can send events to both. Let the provider \
         make one for each, unless both are one endpoint of it."
    )
}

/// The ids of secrets, with the source that has the same.
async fn sharers<P: Ports>(
    api: &Api<P>,
    name: &SourceName,
    secrets: &[SourceSecret],
) -> Result<Vec<(String, SourceName)>, Problem> {
    if secrets.is_empty() {
        return Ok(Vec::new());
    }
    let hash = |secret: &SourceSecret| Sha256Hash::of(secret.text.expose().as_bytes());
    let all = api.registry.sources().await?;
    let others = all.into_iter().map(|source| source.name).filter(|other| other != name);
    let reads = others.take(MOST_COMPARED).map(|other| async move {
        let secrets = api.secrets.of(&other).await?;
        Ok((other, secrets))
    });
    let mut shared = Vec::new();
    for (other, theirs) in at_once(reads.collect()).await? {
        let theirs: Vec<_> = theirs.iter().map(hash).collect();
        let same = secrets.iter().filter(|secret| theirs.contains(&hash(secret)));
        shared.extend(same.map(|secret| (secret.id.clone(), other.clone())));
    }
    Ok(shared)
}
