//! How a request shows who we are, beside its signature.

use std::sync::Arc;

use domain::{
    address::AddressPolicy,
    endpoint::{Auth, BadAuth, Endpoint},
    secret::SecretText,
};
use http::HeaderValue;
use zeroize::Zeroizing;

use super::token::{Client, basic, secret_value};

/// What goes into `Authorization`.
#[derive(Clone, Debug)]
pub(super) enum Shown {
    /// Nothing: the signature does.
    Nothing,
    /// The same for every attempt.
    Always(HeaderValue),
    /// A token, which we get as this client.
    Token(Arc<Client>),
}

/// Why what is stored cannot be sent.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unusable {
    #[error("the endpoint's auth has no secret that can be opened; set it anew")]
    Secret,
    #[error("the endpoint's auth cannot be used; set it anew")]
    Bad(#[source] BadAuth),
    #[error("the endpoint's auth cannot be written as a header; set it anew")]
    Header,
}

impl Shown {
    /// What an endpoint is shown. Checked once more: the row may be older than a rule.
    pub(super) fn of(
        endpoint: &Endpoint,
        secret: Option<SecretText>,
        policy: &AddressPolicy,
    ) -> Result<Self, Unusable> {
        let Some(auth) = &endpoint.auth else { return Ok(Self::Nothing) };
        let secret = secret.ok_or(Unusable::Secret)?;
        let problems = auth.check(&secret, policy).err().unwrap_or_default();
        // A URL that may not be dialled is the endpoint's own trouble, and is told as such by its attempts.
        let bad = problems.into_iter().find(|problem| !matches!(problem, BadAuth::TokenUrl(_)));
        if let Some(bad) = bad {
            return Err(Unusable::Bad(bad));
        }
        match auth {
            Auth::Basic { user } => {
                basic(user, secret.expose()).map(Self::Always).ok_or(Unusable::Header)
            }
            Auth::Bearer => bearer(&secret).map(Self::Always).ok_or(Unusable::Header),
            Auth::OAuth2 { token_url, client_id, scope, credentials_in } => {
                let client = Client::new(
                    endpoint,
                    policy,
                    (token_url, client_id),
                    scope.as_deref(),
                    *credentials_in,
                    secret,
                );
                Ok(Self::Token(Arc::new(client)))
            }
        }
    }
}

/// `Authorization: Bearer` (RFC 6750).
pub(super) fn bearer(token: &SecretText) -> Option<HeaderValue> {
    secret_value(&Zeroizing::new(format!("Bearer {}", token.expose())))
}
