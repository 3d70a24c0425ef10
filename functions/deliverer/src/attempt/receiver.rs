//! Who listens at a URL, ready to be sent to: what is signed with, what he is shown, what else he wants to see.

use domain::{
    address::{BadUrl, EndpointUrl},
    endpoint::{Endpoint, StaticHeaders, Style},
    id::EndpointId,
    ports::{Bodies, Keyring, Outbox, Purpose, SealedSecret, Stored},
    secret::SecretText,
};
use jiff::Timestamp;
use runtime::telemetry::chain;
use signing::{EndpointSecret, Secret};

use super::{Attempts, auth::Shown};

/// Who listens at a URL, and what he is sent.
#[derive(Debug)]
pub(super) struct Receiver {
    pub(super) endpoint: EndpointId,
    pub(super) url: Result<EndpointUrl, BadUrl>,
    pub(super) style: Style,
    /// What is signed with, each until it expires.
    secrets: Vec<(EndpointSecret, Option<Timestamp>)>,
    /// The endpoint's own headers; `None` if they cannot be had.
    pub(super) own: Option<StaticHeaders>,
    /// What it is shown; `None` if that cannot be had.
    pub(super) shown: Option<Shown>,
}

impl Receiver {
    /// What is signed with at a time. At the second at which a secret expires it is not used any more.
    pub(super) fn active(&self, at: Timestamp) -> Vec<EndpointSecret> {
        let active = self.secrets.iter().filter(|(_, expires_at)| is_active(*expires_at, at));
        active.map(|(secret, _)| secret.clone()).collect()
    }
}

impl<O, K, B, T, A> Attempts<'_, O, K, B, T, A>
where
    O: Outbox,
    K: Keyring,
    B: Bodies,
{
    /// An endpoint at a URL. What can be had of it is had now; what cannot, its attempts will say.
    pub(super) async fn receiver(
        &self,
        endpoint: &Endpoint,
        url: &str,
        sealed: &[SealedSecret],
    ) -> Stored<Receiver> {
        let own = if endpoint.headers.is_empty() {
            Some(StaticHeaders::default())
        } else {
            self.current(endpoint, sealed, Purpose::Headers)
                .await?
                .and_then(|text| own(endpoint, &text))
        };
        let secret = match &endpoint.auth {
            Some(_) => self.current(endpoint, sealed, Purpose::Auth).await?,
            None => None,
        };
        let shown = Shown::of(endpoint, secret, &self.policy);
        let shown = shown.inspect_err(|error| log_unusable(endpoint, "auth", error)).ok();
        Ok(Receiver {
            endpoint: endpoint.id,
            // Checked again at every send: the row may be older than a rule.
            url: EndpointUrl::parse(url, &self.policy),
            style: endpoint.style,
            secrets: self.secrets(endpoint, sealed).await?,
            own,
            shown,
        })
    }

    /// The secrets of an endpoint that can sign, as long as they are active.
    async fn secrets(
        &self,
        endpoint: &Endpoint,
        sealed: &[SealedSecret],
    ) -> Stored<Vec<(EndpointSecret, Option<Timestamp>)>> {
        let mut secrets = Vec::new();
        for secret in self.active(sealed, Purpose::Signing) {
            // Another secret may still do. Without any, nothing is sent.
            let Some(text) = self.unseal(endpoint, secret).await? else { continue };
            match EndpointSecret::parse(&Secret::new(text.expose())) {
                Ok(opened) => secrets.push((opened, secret.expires_at)),
                Err(error) => log_unusable(endpoint, &secret.id, &error),
            }
        }
        Ok(secrets)
    }

    /// The current secret for this purpose: one that does not expire, else the one that expires last.
    async fn current(
        &self,
        endpoint: &Endpoint,
        sealed: &[SealedSecret],
        purpose: Purpose,
    ) -> Stored<Option<SecretText>> {
        let active = self.active(sealed, purpose);
        let latest = active.max_by_key(|secret| secret.expires_at.unwrap_or(Timestamp::MAX));
        match latest {
            Some(secret) => self.unseal(endpoint, secret).await,
            None => Ok(None),
        }
    }

    fn active<'s>(
        &self,
        sealed: &'s [SealedSecret],
        purpose: Purpose,
    ) -> impl Iterator<Item = &'s SealedSecret> + use<'s, O, K, B, T, A> {
        let now = (self.edge.now)();
        sealed
            .iter()
            .filter(move |secret| secret.purpose == purpose && is_active(secret.expires_at, now))
    }

    async fn unseal(
        &self,
        endpoint: &Endpoint,
        secret: &SealedSecret,
    ) -> Stored<Option<SecretText>> {
        match self.keys.unseal(endpoint, &secret.sealed).await {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.is_transient() => Err(error),
            Err(error) => {
                log_unusable(endpoint, &secret.id, &error);
                Ok(None)
            }
        }
    }
}

fn is_active(expires_at: Option<Timestamp>, now: Timestamp) -> bool {
    expires_at.is_none_or(|expires_at| expires_at > now)
}

/// An endpoint's own headers, of which those are left out that a younger rule forbids.
fn own(endpoint: &Endpoint, text: &SecretText) -> Option<StaticHeaders> {
    match StaticHeaders::from_json(text) {
        Ok((own, problems)) => {
            for problem in &problems {
                log_unusable(endpoint, "headers", problem);
            }
            Some(own)
        }
        Err(error) => {
            log_unusable(endpoint, "headers", &error);
            None
        }
    }
}

fn log_unusable(endpoint: &Endpoint, what: &str, error: &(dyn std::error::Error + 'static)) {
    tracing::error!(
        tenant = %endpoint.tenant, endpoint = %endpoint.id, secret = what, error = %chain(error),
        "a secret of an endpoint cannot be used"
    );
}
