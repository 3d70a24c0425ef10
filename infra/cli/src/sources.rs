//! `postern sources`: the inbound feeds of a deployment.

use std::{collections::BTreeMap, io::Write};

use serde_json::{Value, json};

use crate::{
    client::{Client, segment},
    complaint::Complaint,
    print::{self, table},
};

/// What can be asked.
#[derive(clap::Subcommand, Debug)]
pub enum Sources {
    /// List all sources
    List,
    /// Show one source
    Show {
        /// The source's name
        name: String,
    },
    /// Add a source
    Add(Add),
}

impl Sources {
    /// Whether it changes something.
    pub fn changes(&self) -> bool {
        matches!(self, Self::Add(_))
    }
}

/// Add a source
#[derive(clap::Args, Debug)]
pub struct Add {
    /// The source's name, which becomes part of its URL
    name: String,
    /// How requests are verified: a scheme that ships, such as `stripe`
    #[arg(long, value_name = "NAME")]
    scheme: String,
    /// A file that holds the provider's secret and nothing else; `-` reads standard input
    #[arg(long, value_name = "FILE")]
    secret_file: String,
    /// Send matching events out to the endpoints of this tenant
    #[arg(long, value_name = "TENANT", conflicts_with = "mirror")]
    forward: Option<String>,
    /// Forward only these types; may be given more than once
    #[arg(long = "type", value_name = "PATTERN", requires = "forward")]
    types: Vec<String>,
    /// Keep the provider's objects in the State table
    #[arg(long, required_unless_present = "forward")]
    mirror: bool,
}

/// Runs one of them.
pub async fn run(
    command: &Sources,
    client: &Client,
    json: bool,
    out: &mut dyn Write,
) -> Result<(), Complaint> {
    match command {
        Sources::List => {
            let sources = client.get("/v1/sources").await?;
            print::either(json, out, &sources, |out| {
                table(
                    out,
                    &["name", "scheme", "handler", "url"],
                    print::list(&sources, "sources", row),
                )
            })
        }
        Sources::Show { name } => {
            let source = client.get(&format!("/v1/sources/{}", segment(name))).await?;
            print::pretty(out, &source)
        }
        Sources::Add(add) => {
            let secret = print::read_secret(&add.secret_file)?;
            let handler = match &add.forward {
                Some(tenant) => json!({"kind": "forward", "tenant": tenant, "types": add.types}),
                None => json!({"kind": "mirror"}),
            };
            let secrets = BTreeMap::from([("1", secret)]);
            let new = json!({
                "name": add.name,
                "scheme": {"preset": add.scheme},
                "handler": handler,
                "secrets": secrets,
            });
            let source = client.post("/v1/sources", &new).await?;
            print::either(json, out, &source, |out| {
                let url = print::text(&source, "url");
                writeln!(out, "Source {} is ready. Let the provider call\n  {url}", add.name)
            })
        }
    }
}

fn row(source: &Value) -> Vec<String> {
    let at = |pointer: &str| source.pointer(pointer).and_then(Value::as_str);
    let handler = match (at("/handler/kind"), at("/handler/tenant"), at("/handler/emit_to")) {
        (Some(kind), Some(tenant), _) | (Some(kind), None, Some(tenant)) => {
            format!("{kind} to {tenant}")
        }
        (kind, ..) => kind.unwrap_or("-").to_owned(),
    };
    let scheme = at("/scheme/preset").unwrap_or("(own)").to_owned();
    vec![print::text(source, "name"), scheme, handler, print::text(source, "url")]
}
