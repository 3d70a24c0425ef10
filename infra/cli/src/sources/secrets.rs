//! Rotating a source's secrets.

use std::io::Write;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{form::seconds, path, show, with_our_words};
use crate::{
    client::{Client, segment},
    complaint::Complaint,
    print::{self, table},
    secret::SecretFrom,
};

/// What can be done with secrets. None is ever shown, except an address that the deployment makes.
#[derive(clap::Subcommand, Debug)]
pub enum Secrets {
    /// List a source's secrets: when each last matched, when it ends, whether it can go
    List {
        /// The source's name
        name: String,
    },
    /// Add a secret; the others are accepted for a while yet
    #[command(after_help = "Examples:
  postern sources secrets add shop                                  asks for the secret
  postern sources secrets add shop --id 2027 --expire-others-in 7d --secret-file secret.txt
  postern sources secrets add alerts --make                         a new secret address")]
    Add {
        /// The source's name
        name: String,
        /// Names the secret; `postern schemes NAME` says where a name has a meaning; default: today's date
        #[arg(long, value_name = "ID")]
        id: Option<String>,
        #[command(flatten)]
        secret: SecretFrom,
        /// Let the deployment make a secret address
        #[arg(long, conflicts_with = "secret_file")]
        make: bool,
        /// How long the other secrets are accepted: 0 to 7d
        #[arg(long, value_name = "TIME", value_parser = seconds, default_value = "24h")]
        expire_others_in: u32,
    },
    /// Remove a secret: requests that are signed with it are refused
    Remove {
        /// The source's name
        name: String,
        /// The secret's id
        id: String,
        /// Also if it is the last one, so that every request is refused
        #[arg(long)]
        force: bool,
    },
}

impl Secrets {
    /// Whether it changes something.
    pub(super) fn changes(&self) -> bool {
        !matches!(self, Self::List { .. })
    }
}

/// Runs one of them.
pub(super) async fn run(
    command: &Secrets,
    client: &Client,
    json: bool,
    now: Timestamp,
    out: &mut dyn Write,
) -> Result<(), Complaint> {
    match command {
        Secrets::List { name } => {
            let list = client.get(&secrets(name)).await?;
            print::either(json, out, &list, |out| rows(out, &list))
        }
        Secrets::Add { name, id, secret, make, expire_others_in } => {
            let id = id.clone().unwrap_or_else(|| now.strftime("%Y-%m-%d").to_string());
            let mut new = json!({ "id": id, "expire_others_in": expire_others_in });
            if !make && let Some(new) = new.as_object_mut() {
                let secret = secret.read()?;
                new.insert("secret".to_owned(), json!(secret.expose()));
            }
            let list = client.post(&secrets(name), &new).await?;
            print::either(json, out, &list, |out| {
                writeln!(out, "Source {name} has the secret {id}.")?;
                for (_, url) in show::secret_urls(&list) {
                    writeln!(out, "Let the provider call\n  {url}")?;
                    writeln!(out, "The last part is the secret, shown this once.")?;
                }
                writeln!(out)?;
                rows(out, &list)?;
                show::warnings(out, &list)
            })
        }
        Secrets::Remove { name, id, force } => {
            let force = if *force { "?force=true" } else { "" };
            let path = format!("{}/{}{force}", secrets(name), segment(id));
            let list = client.delete(&path).await.map_err(with_our_words)?;
            print::either(json, out, &list, |out| {
                writeln!(
                    out,
                    "The secret {id} of {name} is removed; it may be accepted for some minutes yet."
                )?;
                writeln!(out)?;
                rows(out, &list)
            })
        }
    }
}

fn secrets(name: &str) -> String {
    format!("{}/secrets", path(name))
}

fn rows(out: &mut dyn Write, list: &Value) -> std::io::Result<()> {
    let head = ["id", "fingerprint", "ends", ""];
    let row = |secret: &Value| {
        let text = |name| print::text(secret, name);
        vec![text("id"), text("fingerprint"), text("expires_at"), text("words")]
    };
    table(out, &head, print::list(list, "secrets", row))
}
