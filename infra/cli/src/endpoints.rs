//! `postern endpoints`: where a tenant wants its events.

use std::io::Write;

use serde_json::{Value, json};

use crate::{
    client::{Client, segment},
    complaint::Complaint,
    print::{self, table},
};

/// Where tenants want their events
#[derive(clap::Subcommand, Debug)]
pub enum Endpoints {
    /// List a tenant's endpoints
    List {
        /// The tenant
        tenant: String,
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
                table(out, &["id", "types", "url", "made"], rows(&endpoints))
            })
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

fn rows(endpoints: &Value) -> Vec<Vec<String>> {
    let endpoints = endpoints.as_array().map(Vec::as_slice).unwrap_or_default();
    let row = |endpoint: &Value| {
        let patterns = endpoint.get("patterns").and_then(Value::as_array);
        let patterns: Vec<_> = patterns.into_iter().flatten().filter_map(Value::as_str).collect();
        let types = if patterns.is_empty() { "all".to_owned() } else { patterns.join(" ") };
        let text = |name| print::text(endpoint, name);
        vec![text("id"), types, text("url"), text("created_at")]
    };
    endpoints.iter().map(row).collect()
}
