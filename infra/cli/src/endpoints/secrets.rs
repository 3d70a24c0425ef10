//! Secrets of endpoints on their way: from a file, and into one.

use std::{fs::OpenOptions, io::Write as _, os::unix::fs::OpenOptionsExt as _, path::PathBuf};

use serde_json::{Value, json};

use super::{form::Setting, object};
use crate::{complaint::Complaint, secret::read_file, sources::seconds};

/// What a new endpoint signs with.
#[derive(clap::Args, Clone, Debug)]
pub struct Making {
    /// Sign with a key pair (`v1a`): its owner verifies with the public key, and nobody else can sign
    #[arg(long)]
    ed25519: bool,
    /// A file that holds your own secret (`whsec_...`) and nothing else; `-` reads standard input. Without it: one is made
    #[arg(long, value_name = "FILE")]
    pub(super) secret_file: Option<String>,
    /// Send a test event at once
    #[arg(long)]
    test: bool,
}

impl Making {
    pub(super) fn members(&self) -> Result<Vec<Setting>, Complaint> {
        let mut members = what_signs(self.ed25519, self.secret_file.as_deref())?;
        members.extend(self.test.then_some(("test", Value::Bool(true))));
        Ok(members)
    }
}

/// How a secret is rotated.
#[derive(clap::Args, Clone, Debug)]
pub struct Rotating {
    /// For how long the secrets before sign beside the new one: 0 to 7d
    #[arg(long, value_name = "TIME", value_parser = seconds, default_value = "24h")]
    overlap: u32,
    /// Make a key pair (`v1a`): its owner verifies with the public key, and nobody else can sign
    #[arg(long)]
    ed25519: bool,
    /// A file that holds your own secret (`whsec_...`) and nothing else; `-` reads standard input. Without it: one is made
    #[arg(long, value_name = "FILE")]
    secret_file: Option<String>,
}

impl Rotating {
    pub(super) fn body(&self) -> Result<Value, Complaint> {
        let mut members = vec![("overlap_ms", json!(u64::from(self.overlap) * 1000))];
        members.extend(what_signs(self.ed25519, self.secret_file.as_deref())?);
        Ok(object(members))
    }
}

fn what_signs(ed25519: bool, file: Option<&str>) -> Result<Vec<Setting>, Complaint> {
    let mut members: Vec<Setting> =
        ed25519.then(|| ("kind", json!("ed25519"))).into_iter().collect();
    if let Some(file) = file {
        members.push(("secret", json!(read_file(file)?.expose())));
    }
    Ok(members)
}

/// Where a secret that is shown once goes instead of the screen.
#[derive(clap::Args, Clone, Debug)]
pub struct SecretOut {
    /// Write the secret into this new file, for you alone, and not to the screen
    #[arg(long, value_name = "FILE")]
    secret_out: Option<PathBuf>,
}

impl SecretOut {
    /// Where it went, if it did.
    pub(super) fn file(&self) -> Option<String> {
        self.secret_out.as_ref().map(|file| file.display().to_string())
    }

    /// Whether the file can be written: before the secret is made, which is shown only once.
    pub(super) fn ready(&self) -> Result<(), Complaint> {
        match &self.secret_out {
            Some(file) if file.exists() => {
                Err(self.refused("there is a file of that name, which is not overwritten"))
            }
            Some(file)
                if file
                    .parent()
                    .is_some_and(|in_it| !in_it.as_os_str().is_empty() && !in_it.is_dir()) =>
            {
                Err(self.refused("there is no such folder"))
            }
            _ => Ok(()),
        }
    }

    /// Takes the secret out of an answer, and writes it.
    pub(super) fn keep(&self, mut answer: Value) -> Result<Value, Complaint> {
        let Some(file) = &self.secret_out else { return Ok(answer) };
        let taken = answer.as_object_mut().and_then(|answer| answer.remove("secret"));
        let Some(Value::String(secret)) = taken else { return Ok(answer) };
        let write = || {
            let mut file =
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?;
            writeln!(file, "{secret}")
        };
        write().map_err(|error| {
            let mut complaint = self.refused(&error.to_string());
            complaint.next =
                "the secret is made and lost: rotate it, with another --secret-out".to_owned();
            complaint
        })?;
        Ok(answer)
    }

    fn refused(&self, why: &str) -> Complaint {
        let file = self.file().unwrap_or_default();
        Complaint::new(
            format!("the secret cannot be written to {file}"),
            why,
            "give --secret-out with a new file in a folder that is there",
        )
    }
}
