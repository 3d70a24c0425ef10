//! One secret at several endpoints: whoever gets hold of it at one place can speak for us at all of them.

use domain::{
    endpoint::Endpoint,
    id::{EndpointId, TenantId},
    ports::{Purpose, Registry as _},
};

use crate::{Api, Ports, Problem, at_once};

/// Most other endpoints that are looked at: each costs a read.
const MOST_COMPARED: usize = 100;

/// Warnings about a secret that other endpoints of the tenant have, too. Their fingerprints are compared, so that nothing
/// is unsealed. A failure to look warns, and stops nothing.
pub(super) async fn reused<P: Ports>(
    api: &Api<P>,
    tenant: &TenantId,
    id: EndpointId,
    fingerprint: &str,
) -> Vec<String> {
    match sharers(api, tenant, id, fingerprint).await {
        Ok(shared) => shared.iter().map(warning).collect(),
        Err(_) => {
            vec!["Whether other endpoints have the same secret could not be looked up.".to_owned()]
        }
    }
}

fn warning(other: &EndpointId) -> String {
    format!(
        "The endpoint {other} has the same secret: whoever learns it can send events to both. Use one for each; left out, \
         it is made."
    )
}

async fn sharers<P: Ports>(
    api: &Api<P>,
    tenant: &TenantId,
    id: EndpointId,
    fingerprint: &str,
) -> Result<Vec<EndpointId>, Problem> {
    let all = api.registry.endpoints(tenant).await?;
    let others = all.into_iter().filter(|other| other.id != id).take(MOST_COMPARED);
    let reads = others.map(|Endpoint { id, .. }| async move {
        let found = api.registry.endpoint(tenant, id).await?;
        let secrets = found.map(|(_, secrets)| secrets).unwrap_or_default();
        let signs = secrets.iter().filter(|secret| secret.purpose == Purpose::Signing);
        let mut same = signs.filter(|secret| secret.id == fingerprint);
        Ok(same.next().map(|_| id))
    });
    Ok(at_once(reads.collect()).await?.into_iter().flatten().collect())
}
