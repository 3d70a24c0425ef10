//! The tokens with which a source's provider is asked for the state of objects.

use std::io::Write;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{form::seconds, path, show};
use crate::{
    client::{Client, segment},
    complaint::Complaint,
    print::{self, table},
    secret::SecretFrom,
};

/// What can be done with tokens. None is ever shown.
#[derive(clap::Subcommand, Debug)]
pub enum Tokens {
    /// List a source's tokens: their names, and when they end
    List {
        /// The source's name
        name: String,
    },
    /// Add a token; it is used first, the others for a while yet if it is refused
    #[command(after_help = "Examples:
  postern sources tokens add shop                                   asks for the token
  postern sources tokens add shop --id 2027 --expire-others-in 1h --secret-file token.txt

Give a token that may read, and nothing else: a restricted key of Stripe's with read rights, a fine-grained token of
GitHub's, a custom app's Admin API token of Shopify's. It is kept apart from the secrets that requests are verified with.")]
    Add {
        /// The source's name
        name: String,
        /// Names the token; default: today's date
        #[arg(long, value_name = "ID")]
        id: Option<String>,
        #[command(flatten)]
        token: SecretFrom,
        /// How long the other tokens are used: 0 to 7d
        #[arg(long, value_name = "TIME", value_parser = seconds, default_value = "24h")]
        expire_others_in: u32,
    },
    /// Remove a token
    Remove {
        /// The source's name
        name: String,
        /// The token's id
        id: String,
    },
}

impl Tokens {
    /// Whether it changes something.
    pub(super) fn changes(&self) -> bool {
        !matches!(self, Self::List { .. })
    }
}

/// Runs one of them.
pub(super) async fn run(
    command: &Tokens,
    client: &Client,
    json: bool,
    now: Timestamp,
    out: &mut dyn Write,
) -> Result<(), Complaint> {
    let (list, done) = match command {
        Tokens::List { name } => (client.get(&tokens(name)).await?, None),
        Tokens::Add { name, id, token, expire_others_in } => {
            let id = id.clone().unwrap_or_else(|| now.strftime("%Y-%m-%d").to_string());
            let token = token.read()?;
            let new =
                json!({ "id": id, "token": token.expose(), "expire_others_in": expire_others_in });
            let list = client.post(&tokens(name), &new).await?;
            (
                list,
                Some(format!("Source {name} has the token {id}; workers know it in some minutes.")),
            )
        }
        Tokens::Remove { name, id } => {
            let list = client.delete(&format!("{}/{}", tokens(name), segment(id))).await?;
            (
                list,
                Some(format!(
                    "The token {id} of {name} is removed; it may be used for some minutes yet."
                )),
            )
        }
    };
    print::either(json, out, &list, |out| {
        if let Some(done) = done {
            writeln!(out, "{done}\n")?;
        }
        let row = |token: &Value| vec![print::text(token, "id"), print::text(token, "expires_at")];
        table(out, &["id", "ends"], print::list(&list, "tokens", row))?;
        show::warnings(out, &list)
    })
}

fn tokens(name: &str) -> String {
    format!("{}/tokens", path(name))
}
