//! Secrets Manager: one sealed file per secret, with its versions.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{
    answer::{AwsError, fresh_id, text},
    clock::Clock,
    files::{self, Existing},
    sealed::Key,
};

/// Secrets Manager's limit for a secret value.
const VALUE_BYTES: usize = 65_536;

#[derive(Clone, Deserialize, Serialize)]
struct Secret {
    name: String,
    description: Option<String>,
    created_ms: i64,
    deleted_ms: Option<i64>,
    /// Oldest first.
    versions: Vec<Version>,
}

#[derive(Clone, Deserialize, PartialEq, Serialize)]
struct Version {
    id: String,
    stages: Vec<String>,
    string: Option<String>,
    /// Base64.
    binary: Option<String>,
    created_ms: i64,
}

/// The secrets in the state folder.
#[derive(Clone)]
pub(super) struct Secrets {
    folder: PathBuf,
    region: String,
    key: Arc<Key>,
    clock: Clock,
    /// One change at a time.
    turn: Arc<Mutex<()>>,
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secrets").field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl Secrets {
    pub(super) fn open(folder: &Path, key: &Path, region: &str, clock: Clock) -> io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        Ok(Self {
            folder: folder.to_owned(),
            region: region.to_owned(),
            key: Arc::new(Key::at(key)?),
            clock,
            turn: Arc::default(),
        })
    }

    /// The ARN of the secret that a request names; `*` for none.
    pub(super) fn resource(&self, request: &Value) -> String {
        let name = text(request, "SecretId").or_else(|| text(request, "Name"));
        name.map_or_else(|| "*".to_owned(), |name| self.arn(name_of(name)))
    }

    /// An ARN as Secrets Manager makes it: the name and six letters, here always the same ones.
    fn arn(&self, name: &str) -> String {
        let suffix: String = hex::encode(Sha256::digest(name.as_bytes())).chars().take(6).collect();
        format!("arn:aws:secretsmanager:{}:000000000000:secret:{name}-{suffix}", self.region)
    }

    pub(super) fn call(&self, action: &str, request: &Value) -> Result<Value, AwsError> {
        let _turn: MutexGuard<'_, ()> = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        match action {
            "CreateSecret" => self.create(request),
            "PutSecretValue" => self.put(request),
            "GetSecretValue" => self.get(request),
            "DescribeSecret" => Ok(self.description(&self.named(request)?)),
            "DeleteSecret" => self.delete(request),
            "ListSecrets" => self.list(),
            other => Err(AwsError::sender(
                "UnsupportedOperationException",
                format!("{other} is not offered by the local host"),
            )),
        }
    }

    fn create(&self, request: &Value) -> Result<Value, AwsError> {
        let name = text(request, "Name").unwrap_or_default();
        let plain = |letter: char| letter.is_ascii_alphanumeric() || "/_+=.@-".contains(letter);
        if name.is_empty() || name.len() > 512 || !name.chars().all(plain) {
            return Err(parameter("Name must have 1 to 512 letters, digits or any of /_+=.@-"));
        }
        if let Some(existing) = self.load(name)? {
            let message = match existing.deleted_ms {
                None => format!("The operation failed because the secret {name} already exists."),
                Some(_) => "You can't create this secret because a secret with this name is already scheduled for deletion.".to_owned(),
            };
            let kind = if existing.deleted_ms.is_some() {
                "InvalidRequestException"
            } else {
                "ResourceExistsException"
            };
            return Err(AwsError::sender(kind, message));
        }
        let mut secret = Secret {
            name: name.to_owned(),
            description: text(request, "Description").map(str::to_owned),
            created_ms: self.clock.now_ms(),
            deleted_ms: None,
            versions: Vec::new(),
        };
        let version = match value_of(request)? {
            None => None,
            Some(value) => Some(self.add_version(&mut secret, request, value)?),
        };
        self.store(&secret)?;
        Ok(
            json!({ "ARN": self.arn(name), "Name": name, "VersionId": version.map(|version| version.id) }),
        )
    }

    fn put(&self, request: &Value) -> Result<Value, AwsError> {
        let mut secret = self.living(request)?;
        let value = value_of(request)?
            .ok_or_else(|| parameter("You must provide either SecretString or SecretBinary."))?;
        let version = self.add_version(&mut secret, request, value)?;
        self.store(&secret)?;
        Ok(
            json!({ "ARN": self.arn(&secret.name), "Name": secret.name, "VersionId": version.id, "VersionStages": version.stages }),
        )
    }

    /// Adds a version and moves the stages: what was current becomes previous. The same token with the same value is the same version.
    fn add_version(
        &self,
        secret: &mut Secret,
        request: &Value,
        (string, binary): (Option<String>, Option<String>),
    ) -> Result<Version, AwsError> {
        let id = text(request, "ClientRequestToken").map_or_else(fresh_id, str::to_owned);
        if let Some(existing) = secret.versions.iter().find(|version| version.id == id) {
            if (&existing.string, &existing.binary) == (&string, &binary) {
                return Ok(existing.clone());
            }
            return Err(AwsError::sender(
                "ResourceExistsException",
                format!("A version {id} with another value exists."),
            ));
        }
        let stages: Vec<String> = match request.get("VersionStages").and_then(Value::as_array) {
            Some(stages) => stages.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            None => vec!["AWSCURRENT".to_owned()],
        };
        if stages.iter().any(|stage| stage == "AWSCURRENT") {
            for version in &mut secret.versions {
                version.stages.retain(|stage| stage != "AWSPREVIOUS");
                for stage in &mut version.stages {
                    if stage == "AWSCURRENT" {
                        "AWSPREVIOUS".clone_into(stage);
                    }
                }
            }
        }
        for version in &mut secret.versions {
            version.stages.retain(|stage| !stages.contains(stage));
        }
        secret.versions.retain(|version| !version.stages.is_empty());
        let version = Version { id, stages, string, binary, created_ms: self.clock.now_ms() };
        secret.versions.push(version.clone());
        Ok(version)
    }

    fn get(&self, request: &Value) -> Result<Value, AwsError> {
        let secret = self.living(request)?;
        let stage = text(request, "VersionStage").unwrap_or("AWSCURRENT");
        let id = text(request, "VersionId");
        let version = secret.versions.iter().find(|version| match id {
            Some(id) => version.id == id,
            None => version.stages.iter().any(|own| own == stage),
        });
        let version = version.ok_or_else(|| {
            let wanted = id
                .map_or_else(|| format!("staging label: {stage}"), |id| format!("VersionId: {id}"));
            not_found(format!("Secrets Manager can't find the specified secret value for {wanted}"))
        })?;
        let mut answer = json!({
            "ARN": self.arn(&secret.name),
            "Name": secret.name,
            "VersionId": version.id,
            "VersionStages": version.stages,
            "CreatedDate": seconds(version.created_ms),
        });
        if let Some(map) = answer.as_object_mut() {
            let value = [("SecretString", &version.string), ("SecretBinary", &version.binary)];
            map.extend(
                value.into_iter().filter_map(|(name, value)| {
                    Some((name.to_owned(), Value::from(value.clone()?)))
                }),
            );
        }
        Ok(answer)
    }

    fn delete(&self, request: &Value) -> Result<Value, AwsError> {
        let mut secret = self.named(request)?;
        let now = self.clock.now_ms();
        if request.get("ForceDeleteWithoutRecovery").and_then(Value::as_bool) == Some(true) {
            std::fs::remove_file(self.path(&secret.name)).map_err(|error| broken(&error))?;
        } else {
            secret.deleted_ms = Some(now);
            self.store(&secret)?;
        }
        Ok(
            json!({ "ARN": self.arn(&secret.name), "Name": secret.name, "DeletionDate": seconds(now) }),
        )
    }

    fn list(&self) -> Result<Value, AwsError> {
        let mut secrets = Vec::new();
        for entry in std::fs::read_dir(&self.folder).map_err(|error| broken(&error))? {
            let path = entry.map_err(|error| broken(&error))?.path();
            if path.extension().is_some_and(|extension| extension == "sealed") {
                secrets.extend(self.read(&path)?.filter(|secret| secret.deleted_ms.is_none()));
            }
        }
        secrets.sort_by(|left, right| left.name.cmp(&right.name));
        let list: Vec<Value> = secrets.iter().map(|secret| self.description(secret)).collect();
        Ok(json!({ "SecretList": list }))
    }

    fn description(&self, secret: &Secret) -> Value {
        let stages: serde_json::Map<String, Value> = secret
            .versions
            .iter()
            .map(|version| (version.id.clone(), json!(version.stages)))
            .collect();
        json!({
            "ARN": self.arn(&secret.name),
            "Name": secret.name,
            "Description": secret.description,
            "CreatedDate": seconds(secret.created_ms),
            "DeletedDate": secret.deleted_ms.map(seconds),
            "VersionIdsToStages": stages,
        })
    }

    /// The secret that a request names, also one marked for deletion.
    fn named(&self, request: &Value) -> Result<Secret, AwsError> {
        let id = text(request, "SecretId").ok_or_else(|| parameter("SecretId is missing"))?;
        self.load(name_of(id))?
            .ok_or_else(|| not_found("Secrets Manager can't find the specified secret.".to_owned()))
    }

    fn living(&self, request: &Value) -> Result<Secret, AwsError> {
        let secret = self.named(request)?;
        if secret.deleted_ms.is_some() {
            let message = "You can't perform this operation on the secret because it was marked for deletion.";
            return Err(AwsError::sender("InvalidRequestException", message));
        }
        Ok(secret)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{}.sealed", hex::encode(Sha256::digest(name.as_bytes()))))
    }

    fn load(&self, name: &str) -> Result<Option<Secret>, AwsError> {
        self.read(&self.path(name))
    }

    fn read(&self, path: &Path) -> Result<Option<Secret>, AwsError> {
        let sealed = match std::fs::read(path) {
            Ok(sealed) => sealed,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(broken(&error)),
        };
        let plain = self.key.open(&sealed, bound(path));
        let secret = plain.and_then(|plain| serde_json::from_slice(&plain).ok());
        secret.map(Some).ok_or_else(|| {
            AwsError::sender(
                "DecryptionFailure",
                "the secret's file does not open with the key in the state folder",
            )
        })
    }

    fn store(&self, secret: &Secret) -> Result<(), AwsError> {
        let path = self.path(&secret.name);
        let plain = serde_json::to_vec(secret).map_err(|error| broken(&error.into()))?;
        let sealed = self
            .key
            .seal(&plain, bound(&path))
            .ok_or_else(|| broken(&io::Error::other("cannot seal")))?;
        files::write(&path, &sealed, Existing::Replace).map_err(|error| broken(&error))
    }
}

/// A secret's file is bound to its name, so that two files cannot be exchanged.
fn bound(path: &Path) -> &[u8] {
    path.file_name().map(std::ffi::OsStr::as_encoded_bytes).unwrap_or_default()
}

/// The name in a `SecretId`, which may be an ARN.
fn name_of(id: &str) -> &str {
    match id.split_once(":secret:") {
        Some((_, rest)) if id.starts_with("arn:") => {
            rest.rsplit_once('-').map_or(rest, |(name, _)| name)
        }
        _ => id,
    }
}

type SecretValue = (Option<String>, Option<String>);

fn value_of(request: &Value) -> Result<Option<SecretValue>, AwsError> {
    let string = text(request, "SecretString").map(str::to_owned);
    let binary = text(request, "SecretBinary").map(str::to_owned);
    if binary.as_deref().is_some_and(|binary| STANDARD.decode(binary).is_err()) {
        return Err(parameter("SecretBinary is not base64"));
    }
    if string.is_some() && binary.is_some() {
        return Err(parameter(
            "You can't specify both a binary secret value and a string secret value in the same secret.",
        ));
    }
    if string.as_ref().or(binary.as_ref()).is_some_and(|value| value.len() > VALUE_BYTES) {
        return Err(parameter("A secret value may have at most 65536 bytes"));
    }
    Ok((string.is_some() || binary.is_some()).then_some((string, binary)))
}

fn seconds(ms: i64) -> i64 {
    ms / 1000
}

fn parameter(message: &str) -> AwsError {
    AwsError::sender("InvalidParameterException", message)
}

fn not_found(message: String) -> AwsError {
    AwsError::sender("ResourceNotFoundException", message)
}

fn broken(error: &io::Error) -> AwsError {
    AwsError::internal(
        "InternalServiceError",
        format!("the secrets' folder cannot be used: {error}"),
    )
}
