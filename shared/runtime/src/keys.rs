//! Sealing secrets of endpoints, with KMS.

use std::collections::HashMap;

use aws_sdk_kms::{Client, primitives::Blob};
use domain::{
    id::{EndpointId, TenantId},
    ports::{Keyring, StoreError, Stored},
    secret::SecretText,
};
use zeroize::Zeroizing;

use crate::aws::failed;

/// A KMS key. The tenant and the endpoint are the encryption context, so that a sealed secret that was copied to another
/// endpoint does not open there.
#[derive(Clone, Debug)]
pub struct KmsKeyring {
    client: Client,
    key_arn: Option<String>,
}

impl KmsKeyring {
    /// Seals and opens with the key at an ARN.
    pub fn new(client: Client, key_arn: String) -> Self {
        Self { client, key_arn: Some(key_arn) }
    }

    /// Opens only: what was sealed names its key itself.
    pub fn opening(client: Client) -> Self {
        Self { client, key_arn: None }
    }
}

fn context(tenant: &TenantId, endpoint: EndpointId) -> HashMap<String, String> {
    [("tenant", tenant.to_string()), ("endpoint", endpoint.to_string())]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
}

impl Keyring for KmsKeyring {
    async fn seal(
        &self,
        tenant: &TenantId,
        endpoint: EndpointId,
        secret: &SecretText,
    ) -> Stored<Vec<u8>> {
        let Some(key_arn) = &self.key_arn else {
            return Err(StoreError::Refused(
                "this function may open secrets, not seal them".into(),
            ));
        };
        let answer = self
            .client
            .encrypt()
            .key_id(key_arn)
            .plaintext(Blob::new(secret.expose().as_bytes()))
            .set_encryption_context(Some(context(tenant, endpoint)))
            .send()
            .await
            .map_err(failed)?;
        let sealed = answer
            .ciphertext_blob
            .ok_or_else(|| unreadable("KMS answered without the sealed secret"))?;
        Ok(sealed.into_inner())
    }

    async fn unseal(
        &self,
        tenant: &TenantId,
        endpoint: EndpointId,
        sealed: &[u8],
    ) -> Stored<SecretText> {
        let answer = self
            .client
            .decrypt()
            .set_key_id(self.key_arn.clone())
            .ciphertext_blob(Blob::new(sealed))
            .set_encryption_context(Some(context(tenant, endpoint)))
            .send()
            .await
            .map_err(failed)?;
        let opened =
            answer.plaintext.ok_or_else(|| unreadable("KMS answered without the secret"))?;
        let opened = Zeroizing::new(opened.into_inner());
        let text = std::str::from_utf8(&opened)
            .map_err(|_| unreadable("the opened secret is not text"))?;
        Ok(SecretText::new(text.to_owned()))
    }
}

fn unreadable(what: &str) -> StoreError {
    StoreError::Unreadable(what.to_owned())
}
