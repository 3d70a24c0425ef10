//! KMS: Encrypt, Decrypt and `GenerateDataKey` with keys from the template, each in a file of its own.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::{
    answer::{AwsError, text},
    sealed::Key,
};

/// KMS's limit for `Encrypt`.
const PLAINTEXT_BYTES: usize = 4096;
/// First byte of every blob.
const BLOB_VERSION: u8 = 1;

/// The keys of the stack, by ARN.
#[derive(Clone, Debug)]
pub(super) struct Keys(Arc<BTreeMap<String, Key>>);

impl Keys {
    pub(super) fn open(arns: &[String], folder: &Path) -> io::Result<Self> {
        let file = |arn: &str| -> PathBuf { folder.join(format!("{}.key", id_of(arn))) };
        let keys = arns
            .iter()
            .map(|arn| Ok((arn.clone(), Key::at(&file(arn))?)))
            .collect::<io::Result<_>>()?;
        Ok(Self(Arc::new(keys)))
    }

    /// The ARN that a request's `KeyId`, or else its blob, names; `*` for none.
    pub(super) fn resource(&self, request: &Value) -> String {
        let named = text(request, "KeyId").map(str::to_owned);
        let named = named.or_else(|| Some(split(&blob(request).ok()?)?.0.to_owned()));
        let Some(named) = named else { return "*".to_owned() };
        self.find(&named).map_or(named, |(arn, _)| arn.to_owned())
    }

    fn find(&self, id: &str) -> Result<(&str, &Key), AwsError> {
        let found = self.0.iter().find(|(arn, _)| *arn == id || id_of(arn) == id);
        found.map(|(arn, key)| (arn.as_str(), key)).ok_or_else(|| {
            AwsError::sender(
                "NotFoundException",
                format!("Key '{id}' does not exist; keys come from the template"),
            )
        })
    }

    pub(super) fn call(&self, action: &str, request: &Value) -> Result<Value, AwsError> {
        match action {
            "Encrypt" => self.encrypt(request),
            "Decrypt" => self.decrypt(request),
            "GenerateDataKey" => self.generate(request),
            other => Err(AwsError::sender(
                "UnsupportedOperationException",
                format!("{other} is not offered by the local host"),
            )),
        }
    }

    fn encrypt(&self, request: &Value) -> Result<Value, AwsError> {
        let (arn, key) = self.find(required(request, "KeyId")?)?;
        let plain = bytes(request, "Plaintext")?;
        if plain.is_empty() || plain.len() > PLAINTEXT_BYTES {
            return Err(validation(format!(
                "Plaintext must have 1 to {PLAINTEXT_BYTES} bytes; for more use GenerateDataKey"
            )));
        }
        let blob = seal(arn, key, &plain, &context(request)?)?;
        Ok(
            json!({ "CiphertextBlob": STANDARD.encode(blob), "KeyId": arn, "EncryptionAlgorithm": "SYMMETRIC_DEFAULT" }),
        )
    }

    fn decrypt(&self, request: &Value) -> Result<Value, AwsError> {
        let blob = blob(request)?;
        let invalid = || {
            AwsError::sender(
                "InvalidCiphertextException",
                "the blob was not made by this key with this encryption context",
            )
        };
        let (id, sealed) = split(&blob).ok_or_else(invalid)?;
        let (arn, key) = self.find(id).map_err(|_| invalid())?;
        if let Some(wanted) = text(request, "KeyId")
            && self.find(wanted)?.0 != arn
        {
            let message = "The key ID in the request does not identify a CMK that can perform this operation.";
            return Err(AwsError::sender("IncorrectKeyException", message));
        }
        let plain = key.open(sealed, &context(request)?).ok_or_else(invalid)?;
        Ok(
            json!({ "KeyId": arn, "Plaintext": STANDARD.encode(plain), "EncryptionAlgorithm": "SYMMETRIC_DEFAULT" }),
        )
    }

    fn generate(&self, request: &Value) -> Result<Value, AwsError> {
        let (arn, key) = self.find(required(request, "KeyId")?)?;
        let size = match (
            text(request, "KeySpec"),
            request.get("NumberOfBytes").and_then(Value::as_u64),
        ) {
            (Some("AES_256"), None) => 32,
            (Some("AES_128"), None) => 16,
            (None, Some(size @ 1..=1024)) => usize::try_from(size).unwrap_or(32),
            _ => {
                return Err(validation(
                    "Please specify either number of bytes (1 to 1024) or key spec.".to_owned(),
                ));
            }
        };
        let plain: Vec<u8> = (0..size).map(|_| rand::random()).collect();
        let blob = seal(arn, key, &plain, &context(request)?)?;
        Ok(
            json!({ "CiphertextBlob": STANDARD.encode(blob), "Plaintext": STANDARD.encode(plain), "KeyId": arn }),
        )
    }
}

fn id_of(arn: &str) -> &str {
    arn.rsplit('/').next().unwrap_or(arn)
}

fn validation(message: String) -> AwsError {
    AwsError::sender("ValidationException", message)
}

fn required<'v>(request: &'v Value, member: &str) -> Result<&'v str, AwsError> {
    text(request, member).ok_or_else(|| validation(format!("{member} is missing")))
}

fn bytes(request: &Value, member: &str) -> Result<Vec<u8>, AwsError> {
    STANDARD
        .decode(required(request, member)?)
        .map_err(|_| validation(format!("{member} is not base64")))
}

fn blob(request: &Value) -> Result<Vec<u8>, AwsError> {
    bytes(request, "CiphertextBlob")
}

/// The encryption context, in an order of its own, so that the order it was written in does not matter.
fn context(request: &Value) -> Result<Vec<u8>, AwsError> {
    let context: BTreeMap<String, String> = match request.get("EncryptionContext") {
        None | Some(Value::Null) => BTreeMap::new(),
        Some(value) => serde_json::from_value(value.clone())
            .map_err(|_| validation("EncryptionContext must map texts to texts".to_owned()))?,
    };
    serde_json::to_vec(&context)
        .map_err(|_| validation("EncryptionContext cannot be written".to_owned()))
}

/// Version, length of the key id, key id, sealed bytes.
fn seal(arn: &str, key: &Key, plain: &[u8], bound: &[u8]) -> Result<Vec<u8>, AwsError> {
    let failed = || AwsError::internal("KMSInternalException", "the bytes could not be sealed");
    let id = id_of(arn);
    let mut blob = vec![BLOB_VERSION, u8::try_from(id.len()).map_err(|_| failed())?];
    blob.extend_from_slice(id.as_bytes());
    blob.extend(key.seal(plain, bound).ok_or_else(failed)?);
    Ok(blob)
}

fn split(blob: &[u8]) -> Option<(&str, &[u8])> {
    let (head, rest) = blob.split_first_chunk::<2>()?;
    let [BLOB_VERSION, length] = *head else { return None };
    let (id, sealed) = rest.split_at_checked(usize::from(length))?;
    Some((std::str::from_utf8(id).ok()?, sealed))
}
