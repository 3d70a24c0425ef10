//! `postern sources`: the inbound feeds of a deployment.

mod add;
mod form;
mod secrets;
mod show;
mod tokens;

use std::io::Write;

use jiff::Timestamp;
use serde_json::{Value, json};

pub(crate) use self::form::seconds;
use crate::{
    client::{Client, segment},
    complaint::{Complaint, printable},
    print::{self, table},
};

/// What can be asked.
#[derive(clap::Subcommand, Debug)]
pub enum Sources {
    /// List all sources, each with its health in short
    List,
    /// Show one source: how far it can be believed, how it is doing, which secrets it has
    Show {
        /// The source's name
        name: String,
    },
    /// Add a source
    Add(Box<add::Add>),
    /// Change a source; what is left out stays as it is
    Set(Box<add::Set>),
    /// Pause a source: its events are accepted, and wait until it is resumed
    Pause {
        /// The source's name
        name: String,
        /// Why, for whoever finds it paused
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
    /// Resume a source: what waits is carried out. May be repeated
    Resume {
        /// The source's name
        name: String,
        /// How many waiting events are sent per second, up to 1000
        #[arg(long, value_name = "NUMBER", default_value_t = 50)]
        rate: u32,
    },
    /// List requests that were refused in a source's name, with what to do about it
    Rejected {
        /// The source's name
        name: String,
        /// How many, the newest first; 50 are kept
        #[arg(long, value_name = "NUMBER", default_value_t = 20)]
        limit: u32,
    },
    /// Rotate a source's secrets: list, add, remove
    #[command(subcommand)]
    Secrets(secrets::Secrets),
    /// Rotate the tokens with which a source's provider is asked: list, add, remove
    #[command(subcommand)]
    Tokens(tokens::Tokens),
}

impl Sources {
    /// Whether it changes something.
    pub fn changes(&self) -> bool {
        match self {
            Self::Add(_) | Self::Set(_) | Self::Pause { .. } | Self::Resume { .. } => true,
            Self::Secrets(secrets) => secrets.changes(),
            Self::Tokens(tokens) => tokens.changes(),
            Self::List | Self::Show { .. } | Self::Rejected { .. } => false,
        }
    }
}

/// Runs one of them.
pub async fn run(
    command: &Sources,
    client: &Client,
    json: bool,
    now: Timestamp,
    out: &mut dyn Write,
) -> Result<(), Complaint> {
    match command {
        Sources::List => {
            let sources = client.get("/v1/sources").await?;
            print::either(json, out, &sources, |out| {
                let head = ["name", "scheme", "trust", "handler", "health", "url"];
                table(out, &head, print::list(&sources, "sources", row))
            })
        }
        Sources::Show { name } => {
            let source = client.get(&path(name)).await?;
            print::either(json, out, &source, |out| show::source(out, &source))
        }
        Sources::Add(add) => {
            let source = client.post("/v1/sources", &add.form()?).await?;
            print::either(json, out, &source, |out| add.done(out, &source))
        }
        Sources::Set(set) => {
            let force = if set.force { "?force=true" } else { "" };
            let changed = client.patch(&format!("{}{force}", path(&set.name)), &set.form()?).await;
            let source = changed.map_err(with_our_words)?;
            print::either(json, out, &source, |out| {
                writeln!(out, "Source {} is changed.\n", set.name)?;
                show::source(out, &source)
            })
        }
        Sources::Pause { name, reason } => {
            let body = json!({ "reason": reason });
            let source = client.post(&format!("{}/pause", path(name)), &body).await?;
            print::either(json, out, &source, |out| {
                writeln!(out, "Source {name} is paused.")?;
                show::warnings(out, &source)?;
                writeln!(out, "Go on with: postern sources resume {name}")
            })
        }
        Sources::Resume { name, rate } => {
            let resume = format!("{}/resume?rate={rate}", path(name));
            let source = client.post(&resume, &json!({})).await;
            let source = source.map_err(|complaint| again(complaint, name))?;
            print::either(json, out, &source, |out| {
                writeln!(out, "Source {name} is not paused any more.")?;
                show::warnings(out, &source)?;
                match source.get("resume").and_then(Value::as_str) {
                    None => Ok(()),
                    Some(id) => {
                        writeln!(out, "Follow it with: postern replays show {}", printable(id))
                    }
                }
            })
        }
        Sources::Rejected { name, limit } => {
            let refused = client.get(&format!("{}/rejected?limit={limit}", path(name))).await?;
            print::either(json, out, &refused, |out| show::rejected(out, &refused))
        }
        Sources::Secrets(command) => secrets::run(command, client, json, now, out).await,
        Sources::Tokens(command) => tokens::run(command, client, json, now, out).await,
    }
}

fn path(name: &str) -> String {
    format!("/v1/sources/{}", segment(name))
}

/// A resume whose answer is lost may have done a part.
fn again(complaint: Complaint, name: &str) -> Complaint {
    if complaint.is_no {
        return complaint;
    }
    let next = format!("repeat it, which does no harm: postern sources resume {name}");
    Complaint { next, ..complaint }
}

/// The api speaks of its query; here it is an option.
fn with_our_words(complaint: Complaint) -> Complaint {
    Complaint { why: complaint.why.replace("`?force=true`", "--force"), ..complaint }
}

fn row(source: &Value) -> Vec<String> {
    let weaker = source.get("is_weaker") == Some(&json!(true));
    let trust = print::text(source, "trust");
    let health = source.get("health").unwrap_or(&Value::Null);
    vec![
        print::text(source, "name"),
        show::scheme(source),
        if weaker { format!("weaker: {trust}") } else { trust },
        show::handler(source),
        print::text(health, "words"),
        print::text(source, "url"),
    ]
}
