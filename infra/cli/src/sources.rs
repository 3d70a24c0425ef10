//! `postern sources`: the inbound feeds of a deployment.

use std::{collections::BTreeMap, io::Write};

use serde_json::{Value, json};

use crate::{
    client::{Client, segment},
    complaint::Complaint,
    print::{self, table},
};

/// Inbound feeds of providers
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

/// Add a source
#[derive(clap::Args, Debug)]
pub struct Add {
    /// The source's name, which becomes part of its URL
    name: String,
    /// How requests are verified: a scheme that ships, such as `stripe`
    #[arg(long)]
    scheme: String,
    /// A file that holds the provider's secret; `-` reads standard input (an argument would be seen by everyone)
    #[arg(long, value_name = "FILE")]
    secret_file: String,
    /// Send matching events out to the endpoints of this tenant
    #[arg(long, value_name = "TENANT", conflicts_with = "mirror")]
    forward: Option<String>,
    /// Forward only these types; may be given more than once
    #[arg(long, value_name = "PATTERN", requires = "forward")]
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
                table(out, &["name", "scheme", "handler", "url"], rows(&sources))
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
                writeln!(out, "Source {} is ready. Let the provider call {url}", add.name)
            })
        }
    }
}

fn rows(sources: &Value) -> Vec<Vec<String>> {
    let sources = sources.as_array().map(Vec::as_slice).unwrap_or_default();
    let row = |source: &Value| {
        let scheme = source.pointer("/scheme/preset").and_then(Value::as_str).unwrap_or("own");
        let handler = source.pointer("/handler/kind").and_then(Value::as_str).unwrap_or_default();
        vec![
            print::text(source, "name"),
            scheme.to_owned(),
            handler.to_owned(),
            print::text(source, "url"),
        ]
    };
    sources.iter().map(row).collect()
}
