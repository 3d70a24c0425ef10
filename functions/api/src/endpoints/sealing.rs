//! The sealed secrets of an endpoint: what is put beside it, and how they follow one another.

use domain::{
    endpoint::{Auth, Endpoint, StaticHeaders},
    id::{EndpointId, TenantId},
    ports::{Keyring as _, Purpose, SealedSecret},
    secret::SecretText,
};
use jiff::Timestamp;
use signing::EndpointSecret;

use super::strength::fingerprint;
use crate::{Api, Ports, Problem};

/// What an owner gives us to send along. The outer `None`: it stays as it is.
#[derive(Debug)]
pub(super) struct Own {
    pub(super) auth: Option<Option<(Auth, SecretText)>>,
    pub(super) headers: Option<StaticHeaders>,
}

/// The same, sealed: for each purpose that is changed, the secret that takes the place of the old one, if any does.
pub(super) struct SealedOwn(Vec<(Purpose, Option<SealedSecret>)>);

impl Own {
    /// Seals what there is.
    pub(super) async fn seal<P: Ports>(
        &self,
        api: &Api<P>,
        tenant: &TenantId,
        id: EndpointId,
    ) -> Result<SealedOwn, Problem> {
        let mut sealed = Vec::new();
        if let Some(auth) = &self.auth {
            let secret = match auth {
                Some((_, text)) => Some(seal(api, (tenant, id), Purpose::Auth, text).await?),
                None => None,
            };
            sealed.push((Purpose::Auth, secret));
        }
        if let Some(headers) = &self.headers {
            let secret = if headers.is_empty() {
                None
            } else {
                Some(seal(api, (tenant, id), Purpose::Headers, &headers.to_json()).await?)
            };
            sealed.push((Purpose::Headers, secret));
        }
        Ok(SealedOwn(sealed))
    }
}

impl SealedOwn {
    /// The secrets of an endpoint with these in the place of those of the same purposes.
    pub(super) fn onto(&self, old: &[SealedSecret]) -> Vec<SealedSecret> {
        let is_replaced =
            |secret: &&SealedSecret| self.0.iter().any(|(purpose, _)| *purpose == secret.purpose);
        let kept = old.iter().filter(|secret| !is_replaced(secret)).cloned();
        kept.chain(self.0.iter().filter_map(|(_, secret)| secret.clone())).collect()
    }
}

async fn seal<P: Ports>(
    api: &Api<P>,
    (tenant, endpoint): (&TenantId, EndpointId),
    purpose: Purpose,
    text: &SecretText,
) -> Result<SealedSecret, Problem> {
    let sealed = api.keyring.seal(tenant, endpoint, text).await?;
    Ok(SealedSecret { id: purpose.word().to_owned(), purpose, sealed, expires_at: None })
}

/// Seals what signs. Its fingerprint is its id: two people who compare what they have need nothing else.
pub(super) async fn seal_signing<P: Ports>(
    api: &Api<P>,
    tenant: &TenantId,
    endpoint: EndpointId,
    secret: &EndpointSecret,
) -> Result<SealedSecret, Problem> {
    let text = SecretText::new(secret.expose().expose().to_owned());
    let sealed = seal(api, (tenant, endpoint), Purpose::Signing, &text).await?;
    Ok(SealedSecret { id: fingerprint(secret), ..sealed })
}

/// Whether a secret is used at a time.
pub(super) fn is_active(secret: &SealedSecret, now: Timestamp) -> bool {
    secret.expires_at.is_none_or(|expires_at| expires_at > now)
}

/// The secrets that sign and are used, the current one first.
pub(super) fn signing(secrets: &[SealedSecret], now: Timestamp) -> Vec<&SealedSecret> {
    let signs = |secret: &&SealedSecret| secret.purpose == Purpose::Signing;
    let mut signing: Vec<_> =
        secrets.iter().filter(signs).filter(|secret| is_active(secret, now)).collect();
    signing.sort_by_key(|secret| std::cmp::Reverse(secret.expires_at.unwrap_or(Timestamp::MAX)));
    signing
}

/// The secrets after a rotation: the new one is current, and the others that sign end at `ends`, if they do not end before.
/// Those that are over are gone.
pub(super) fn rotated(
    old: &[SealedSecret],
    new: SealedSecret,
    ends: Timestamp,
    now: Timestamp,
) -> Vec<SealedSecret> {
    let end = |secret: &SealedSecret| {
        let expires_at = match secret.purpose {
            Purpose::Signing => {
                Some(secret.expires_at.map_or(ends, |expires_at| expires_at.min(ends)))
            }
            Purpose::Auth | Purpose::Headers | Purpose::Polling => secret.expires_at,
        };
        SealedSecret { expires_at, ..secret.clone() }
    };
    let others = old.iter().map(end).filter(|secret| is_active(secret, now));
    std::iter::once(new).chain(others).collect()
}

/// The endpoint with the public keys of those secrets only that it still has.
pub(super) fn with_public_keys(
    endpoint: &Endpoint,
    secrets: &[SealedSecret],
    new: Option<(String, String)>,
) -> Endpoint {
    let all = endpoint.public_keys.clone().into_iter().chain(new);
    let has = |id: &str| secrets.iter().any(|secret| secret.id == id);
    let public_keys = all.filter(|(id, _)| has(id)).collect();
    Endpoint { public_keys, ..endpoint.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn secret(id: &str, purpose: Purpose, ends: Option<i64>) -> SealedSecret {
        SealedSecret { id: id.to_owned(), purpose, sealed: vec![1], expires_at: ends.map(at) }
    }

    /// I9
    #[test]
    fn a_rotation_ends_what_signed_before_and_nothing_else() {
        let check = |old: &[SealedSecret], overlap: i64, expected: &[(&str, Option<i64>)]| {
            let new = secret("new", Purpose::Signing, None);
            let after = rotated(old, new, at(100 + overlap), at(100));
            let after: Vec<_> = after.iter().map(|s| (s.id.as_str(), s.expires_at)).collect();
            let expected: Vec<_> = expected.iter().map(|(id, ends)| (*id, ends.map(at))).collect();
            assert_eq!(after, expected);
        };
        let old = [
            secret("a", Purpose::Signing, None),
            secret("b", Purpose::Signing, Some(120)),
            secret("over", Purpose::Signing, Some(100)),
            secret("auth", Purpose::Auth, None),
            secret("polling", Purpose::Polling, Some(900)),
        ];
        let others = [("auth", None), ("polling", Some(900))];
        let with = |signing: &[(&'static str, Option<i64>)]| [signing, &others[..]].concat();
        check(&old, 50, &with(&[("new", None), ("a", Some(150)), ("b", Some(120))]));
        check(&old, 10, &with(&[("new", None), ("a", Some(110)), ("b", Some(110))]));
        check(&old, 0, &with(&[("new", None)]));
        check(&[], 50, &[("new", None)]);
    }

    #[test]
    fn the_current_secret_is_first() {
        let all = [
            secret("ending", Purpose::Signing, Some(150)),
            secret("auth", Purpose::Auth, None),
            secret("over", Purpose::Signing, Some(100)),
            secret("current", Purpose::Signing, None),
        ];
        let ids: Vec<_> = signing(&all, at(100)).iter().map(|s| s.id.clone()).collect();
        assert_eq!(ids, ["current", "ending"]);
    }
}
