//! `postern endpoints`: where a tenant wants its events.

use std::io::Write;

use serde_json::{Map, Value, json};

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
    /// Add an endpoint: a URL, or a queue or an event bus of the deployment's account; a URL's secret is shown this once
    #[command(
        group = clap::ArgGroup::new("place").required(true).args(["url", "queue", "bus"]),
        override_usage = "postern endpoints add [OPTIONS] <TENANT> <URL | --queue URL | --bus NAME>"
    )]
    Add {
        /// The tenant; `internal` is the usual name for the team's own targets
        tenant: String,
        /// The endpoint's https URL
        url: Option<String>,
        /// An SQS queue instead, by its URL; the deployment's account and region only
        #[arg(long, value_name = "URL")]
        queue: Option<String>,
        /// An EventBridge bus instead, by its name or ARN; the deployment's account and region only
        #[arg(long, value_name = "NAME")]
        bus: Option<String>,
        /// The target does not recognise the event's id as an idempotency key: what may have happened is not sent again, but
        /// waits for a person as `outcome_unknown`
        #[arg(long)]
        not_idempotent: bool,
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
                table(out, &["id", "types", "where", "health", "made"], rows)
            })
        }
        Endpoints::Show { tenant, endpoint } => {
            let path = format!("/v1/tenants/{}/endpoints/{}", segment(tenant), segment(endpoint));
            print::pretty(out, &client.get(&path).await?)
        }
        Endpoints::Add { tenant, url, queue, bus, not_idempotent, patterns } => {
            let path = format!("/v1/tenants/{}/endpoints", segment(tenant));
            let places = [("url", url), ("queue", queue), ("bus", bus)];
            let place =
                places.into_iter().filter_map(|(name, place)| Some((name, json!(place.as_ref()?))));
            let repeats = not_idempotent.then(|| ("idempotent", json!(false)));
            let members = place.chain(repeats).chain([("patterns", json!(patterns))]);
            let new: Map<String, Value> =
                members.map(|(name, value)| (name.to_owned(), value)).collect();
            let made = client.post(&path, &new.into()).await?;
            print::either(json, out, &made, |out| {
                writeln!(out, "Endpoint {} is ready.", print::text(&made, "id"))?;
                match made.get("secret") {
                    Some(_) => {
                        let secret = print::text(&made, "secret");
                        writeln!(out, "Its secret, shown this once: {secret}")
                    }
                    None => writeln!(
                        out,
                        "It has no secret: the deployment writes to it with its own rights."
                    ),
                }
            })
        }
    }
}

fn row(endpoint: &Value) -> Vec<String> {
    let patterns = endpoint.get("patterns").and_then(Value::as_array);
    let patterns: Vec<_> = patterns.into_iter().flatten().filter_map(Value::as_str).collect();
    let types = if patterns.is_empty() { "all".to_owned() } else { patterns.join(" ") };
    let text = |name| print::text(endpoint, name);
    vec![text("id"), types, place(endpoint), health(endpoint), text("created_at")]
}

/// Where an endpoint is, and whether what may have happened there is not sent again.
pub(crate) fn place(endpoint: &Value) -> String {
    let place = match ["url", "queue", "bus"].into_iter().find(|name| endpoint.get(name).is_some())
    {
        Some(name @ ("queue" | "bus")) => format!("{name} {}", print::text(endpoint, name)),
        _ => print::text(endpoint, "url"),
    };
    match endpoint.get("idempotent") {
        Some(Value::Bool(false)) => format!("{place} (not idempotent)"),
        _ => place,
    }
}

fn health(endpoint: &Value) -> String {
    let at = |pointer: &str| endpoint.pointer(pointer).and_then(Value::as_str);
    match (at("/health/disabled/reason"), at("/health/failing_since")) {
        (Some(reason), _) => format!("disabled: {reason}"),
        (None, Some(since)) => format!("failing since {since}"),
        (None, None) => "good".to_owned(),
    }
}
