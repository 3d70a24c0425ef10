//! Secrets of sources, in Secrets Manager.

use aws_sdk_secretsmanager::{
    Client,
    operation::{
        create_secret::CreateSecretError, get_secret_value::GetSecretValueError,
        put_secret_value::PutSecretValueError,
    },
};
use domain::{
    id::SourceName,
    ports::{
        Changed, SetSourceSecrets, SourceSecret, SourceSecrets, StoreError, Stored,
        source_secrets::{with_added, with_expiry, with_removed},
    },
    secret::SecretText,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::aws::failed;

/// The secrets `<prefix>/in/<source>`, or the tokens `<prefix>/fetch/<source>`.
///
/// Each is a JSON text `{"keys": [{"id", "secret", "expires_at"}]}`.
#[derive(Clone, Debug)]
pub struct SecretsManager {
    client: Client,
    prefix: String,
    folder: &'static str,
    key_arn: Option<String>,
}

// No `Debug`: it would print the secret.
#[derive(Serialize, Deserialize)]
struct Stock<T> {
    keys: Vec<Key<T>>,
}

#[derive(Serialize, Deserialize)]
struct Key<T> {
    id: T,
    secret: T,
    /// Epoch milliseconds; absent or null: never.
    #[serde(default)]
    expires_at: Option<i64>,
}

impl SecretsManager {
    /// Secrets whose names begin with `prefix`.
    pub fn new(client: Client, prefix: String) -> Self {
        Self { client, prefix, folder: "in", key_arn: None }
    }

    /// The tokens with which the sources' providers are asked, instead of the secrets with which requests are verified.
    ///
    /// They are apart: who verifies needs none of these, and who asks none of those.
    #[must_use]
    pub fn tokens(mut self) -> Self {
        self.folder = "fetch";
        self
    }

    /// The same; secrets that are made are encrypted with this KMS key instead of the account's default.
    #[must_use]
    pub fn encrypting_with(mut self, key_arn: String) -> Self {
        self.key_arn = Some(key_arn);
        self
    }

    /// Replaces all secrets of a source. `false`: it has none.
    ///
    /// # Errors
    /// When the store cannot be had, or does not permit it. The old secrets stay then.
    pub async fn replace(&self, source: &SourceName, secrets: &[SourceSecret]) -> Stored<bool> {
        let text = print(secrets)?;
        let put = self
            .client
            .put_secret_value()
            .secret_id(self.name(source))
            .secret_string(text.as_str())
            .send()
            .await;
        match put {
            Ok(_) => Ok(true),
            Err(error)
                if error
                    .as_service_error()
                    .is_some_and(PutSecretValueError::is_resource_not_found_exception) =>
            {
                Ok(false)
            }
            Err(error) => Err(failed(error)),
        }
    }

    fn name(&self, source: &SourceName) -> String {
        format!("{}/{}/{source}", self.prefix, self.folder)
    }

    /// Reads all secrets of a source, changes the list, and writes it back. See [`SetSourceSecrets`] for two at once.
    async fn change(
        &self,
        source: &SourceName,
        change: impl FnOnce(Vec<SourceSecret>) -> (Changed, Vec<SourceSecret>) + Send,
    ) -> Stored<Changed> {
        let (changed, list) = change(self.of(source).await?);
        if changed != Changed::Yes || self.replace(source, &list).await? {
            return Ok(changed);
        }
        // There is none yet. Should there be one by now, the next try adds to it.
        if self.create(source, &list).await? {
            return Ok(Changed::Yes);
        }
        Err(StoreError::Throttled("the secrets were made by somebody else just now".into()))
    }
}

impl SourceSecrets for SecretsManager {
    async fn of(&self, source: &SourceName) -> Stored<Vec<SourceSecret>> {
        let answer = match self.client.get_secret_value().secret_id(self.name(source)).send().await
        {
            Ok(answer) => answer,
            Err(error)
                if error
                    .as_service_error()
                    .is_some_and(GetSecretValueError::is_resource_not_found_exception) =>
            {
                return Ok(Vec::new());
            }
            Err(error) => return Err(failed(error)),
        };
        let text = Zeroizing::new(answer.secret_string.unwrap_or_default());
        parse(&text)
    }
}

impl SetSourceSecrets for SecretsManager {
    async fn create(&self, source: &SourceName, secrets: &[SourceSecret]) -> Stored<bool> {
        let text = print(secrets)?;
        let made = self
            .client
            .create_secret()
            .name(self.name(source))
            .secret_string(text.as_str())
            .set_kms_key_id(self.key_arn.clone())
            .send()
            .await;
        match made {
            Ok(_) => Ok(true),
            Err(error)
                if error
                    .as_service_error()
                    .is_some_and(CreateSecretError::is_resource_exists_exception) =>
            {
                Ok(false)
            }
            Err(error) => Err(failed(error)),
        }
    }

    async fn add(
        &self,
        source: &SourceName,
        secret: &SourceSecret,
        others_end: Option<Timestamp>,
    ) -> Stored<Changed> {
        self.change(source, |list| with_added(list, secret, others_end)).await
    }

    async fn remove(&self, source: &SourceName, id: &str) -> Stored<Changed> {
        self.change(source, |list| with_removed(list, id)).await
    }

    async fn expire(
        &self,
        source: &SourceName,
        id: &str,
        at: Option<Timestamp>,
    ) -> Stored<Changed> {
        self.change(source, |list| with_expiry(list, id, at)).await
    }
}

fn parse(text: &str) -> Stored<Vec<SourceSecret>> {
    // The parser's own message could quote the secret.
    let unreadable =
        || StoreError::Unreadable("the secret is not of the form {\"keys\": [...]}".to_owned());
    let stock: Stock<String> = serde_json::from_str(text).map_err(|_| unreadable())?;
    let secret = |key: Key<String>| {
        let text = SecretText::new(key.secret);
        let expires_at = key
            .expires_at
            .map(Timestamp::from_millisecond)
            .transpose()
            .map_err(|_| unreadable())?;
        Ok(SourceSecret { id: key.id, text, expires_at })
    };
    stock.keys.into_iter().map(secret).collect()
}

fn print(secrets: &[SourceSecret]) -> Stored<Zeroizing<String>> {
    let keys = secrets.iter().map(|secret| Key {
        id: secret.id.as_str(),
        secret: secret.text.expose(),
        expires_at: secret.expires_at.map(Timestamp::as_millisecond),
    });
    let stock = Stock { keys: keys.collect() };
    serde_json::to_string(&stock)
        .map(Zeroizing::new)
        .map_err(|error| StoreError::Refused(Box::new(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_read_back_as_they_were_written() {
        let text = r#"{"keys":[{"id":"2026","secret":"whsec_a","expires_at":1760000000000},{"id":"old","secret":"b"}]}"#;
        let secrets = parse(text).unwrap();
        let seen: Vec<_> = secrets
            .iter()
            .map(|secret| {
                (
                    secret.id.as_str(),
                    secret.text.expose(),
                    secret.expires_at.map(Timestamp::as_millisecond),
                )
            })
            .collect();
        assert_eq!(seen, [("2026", "whsec_a", Some(1_760_000_000_000)), ("old", "b", None)]);
        let again = print(&secrets).unwrap();
        assert_eq!(
            again.as_str(),
            r#"{"keys":[{"id":"2026","secret":"whsec_a","expires_at":1760000000000},{"id":"old","secret":"b","expires_at":null}]}"#
        );
    }

    /// SEC-secret-in-logs
    #[test]
    fn an_unreadable_secret_is_not_quoted() {
        for text in
            ["canary", r#"{"keys":[{"id":"a","secret":["canary"]}]}"#, r#"{"keys":"canary"}"#, ""]
        {
            let error = parse(text).unwrap_err();
            assert!(!error.is_transient());
            assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
        }
    }
}
