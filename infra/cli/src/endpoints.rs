//! `postern endpoints`: where a tenant wants its events.

use std::io::Write;

use serde_json::{Value, json};

use crate::{
    client::{Client, segment},
    complaint::Complaint,
    print::{self, table},
};

/// What can be asked.
#[derive(clap::Subcommand, Debug)]
pub enum Endpoints {
    /// List a tenant's endpoints, without what may be a token in their URLs
    List {
        /// The tenant
        tenant: String,
    },
    /// Show one endpoint with its whole URL
    Show {
        /// The tenant
        tenant: String,
        /// The endpoint's id (`ep_...`)
        endpoint: String,
    },
    /// Add an endpoint; its secret is shown this once
    Add {
        /// The tenant
        tenant: String,
        /// The endpoint's https URL
        url: String,
        /// Only event types that match, such as `invoice.*`; may be given more than once
        #[arg(long = "type", value_name = "PATTERN")]
        patterns: Vec<String>,
    },
}

impl Endpoints {
    /// Whether it changes something.
    pub fn changes(&self) -> bool {
        matches!(self, Self::Add { .. })
    }
}

/// Runs one of them.
pub async fn run(
    command: &Endpoints,
    client: &Client,
    json: bool,
    out: &mut dyn Write,
) -> Result<(), Complaint> {
    match command {
        Endpoints::List { tenant } => {
            let path = format!("/v1/tenants/{}/endpoints", segment(tenant));
            let endpoints = client.get(&path).await?;
            print::either(json, out, &endpoints, |out| {
                let rows = print::list(&endpoints, "endpoints", row);
                table(out, &["id", "types", "url", "health", "made"], rows)
            })
        }
        Endpoints::Show { tenant, endpoint } => {
            let path = format!("/v1/tenants/{}/endpoints/{}", segment(tenant), segment(endpoint));
            print::pretty(out, &client.get(&path).await?)
        }
        Endpoints::Add { tenant, url, patterns } => {
            let path = format!("/v1/tenants/{}/endpoints", segment(tenant));
            let made = client.post(&path, &json!({"url": url, "patterns": patterns})).await?;
            print::either(json, out, &made, |out| {
                writeln!(out, "Endpoint {} is ready.", print::text(&made, "id"))?;
                writeln!(out, "Its secret, shown this once: {}", print::text(&made, "secret"))
            })
        }
    }
}

fn row(endpoint: &Value) -> Vec<String> {
    let patterns = endpoint.get("patterns").and_then(Value::as_array);
    let patterns: Vec<_> = patterns.into_iter().flatten().filter_map(Value::as_str).collect();
    let types = if patterns.is_empty() { "all".to_owned() } else { patterns.join(" ") };
    let text = |name| print::text(endpoint, name);
    vec![text("id"), types, text("url"), health(endpoint), text("created_at")]
}

fn health(endpoint: &Value) -> String {
    let at = |pointer: &str| endpoint.pointer(pointer).and_then(Value::as_str);
    match (at("/health/disabled/reason"), at("/health/failing_since")) {
        (Some(reason), _) => format!("disabled: {reason}"),
        (None, Some(since)) => format!("failing since {since}"),
        (None, None) => "good".to_owned(),
    }
}
