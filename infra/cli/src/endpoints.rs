//! `postern endpoints`: where a tenant wants its events, from the first to the last day.

mod form;
mod secrets;
mod show;

use std::io::Write;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header};
use serde_json::{Map, Value, json};

pub(crate) use self::show::place;
use self::{
    form::{At, Options, Place, Setting, Without},
    secrets::{Making, Rotating, SecretOut},
};
use crate::{
    client::{Client, segment},
    complaint::Complaint,
    print::{self, table},
};

/// What can be asked. No secret is ever given on the command line, where everybody on the machine could read it.
#[derive(clap::Subcommand, Debug)]
#[expect(missing_docs, reason = "what is flattened is documented where it is written")]
pub enum Endpoints {
    /// List a tenant's endpoints, without what may be a token in their URLs
    List {
        /// The tenant
        tenant: String,
        /// Only those that fail, are paused or are disabled; exit code 1 if there are any
        #[arg(long)]
        unhealthy: bool,
    },
    /// Show one endpoint with its whole URL
    Show(At),
    /// Add an endpoint: a URL, or a queue or an event bus of the deployment's account; a URL's secret is shown this once
    #[command(
        group = clap::ArgGroup::new("place").required(true).args(["url", "queue", "bus"]),
        override_usage = "postern endpoints add [OPTIONS] <TENANT> <URL | --queue URL | --bus NAME>"
    )]
    Add {
        /// The tenant; `internal` is the usual name for the team's own targets
        tenant: String,
        #[command(flatten)]
        place: Place,
        #[command(flatten)]
        options: Options,
        #[command(flatten)]
        making: Making,
        #[command(flatten)]
        secret_out: SecretOut,
    },
    /// Set an endpoint up by a key of your own: added the first time, made what is said each other time
    ///
    /// For programs: the same call twice leaves one endpoint. What is left out has its default. Only the first call shows
    /// the secret; later ones rotate none.
    #[command(
        group = clap::ArgGroup::new("place").required(true).args(["url", "queue", "bus"]),
        override_usage = "postern endpoints configure [OPTIONS] <TENANT> <KEY> <URL | --queue URL | --bus NAME>",
        verbatim_doc_comment
    )]
    Configure {
        /// The tenant
        tenant: String,
        /// Names the endpoint for you, such as the customer's number
        key: String,
        #[command(flatten)]
        place: Place,
        #[command(flatten)]
        options: Options,
        #[command(flatten)]
        making: Making,
        #[command(flatten)]
        secret_out: SecretOut,
    },
    /// Change an endpoint; what is not named stays as it is
    Update {
        #[command(flatten)]
        at: At,
        /// Another https URL; checked like the first one
        #[arg(long)]
        url: Option<String>,
        #[command(flatten)]
        options: Options,
        #[command(flatten)]
        without: Without,
    },
    /// List an endpoint's secrets by their fingerprints, never their values
    Secrets(At),
    /// Give an endpoint a new secret, shown this once; the old one signs beside it for a while
    #[command(after_help = "Examples:
  postern endpoints rotate acme ep_...                              the old one ends in a day
  postern endpoints rotate acme ep_... --overlap 0s                 it has leaked: end it now
  postern endpoints rotate acme ep_... --ed25519 --overlap 7d       a key pair; its public key is shown")]
    Rotate {
        #[command(flatten)]
        at: At,
        #[command(flatten)]
        rotating: Rotating,
        #[command(flatten)]
        secret_out: SecretOut,
    },
    /// Stop an endpoint for a while: what it would get is held until `resume`
    Pause {
        #[command(flatten)]
        at: At,
        /// Why, for whoever finds it paused
        #[arg(long)]
        reason: String,
    },
    /// End a pause: what was held goes out
    Resume(At),
    /// Stop an endpoint until somebody has looked: what it would get is held until `enable`
    Disable {
        #[command(flatten)]
        at: At,
        /// Why, for whoever finds it disabled
        #[arg(long)]
        reason: String,
    },
    /// Start an endpoint again, whoever had stopped it; what was held goes out at a rate
    Enable {
        #[command(flatten)]
        at: At,
        /// How many held deliveries go out in a second
        #[arg(long, value_name = "N", default_value = "10")]
        release_rate: u32,
    },
    /// Delete an endpoint: what is pending is cancelled; what was sent can still be seen
    Delete {
        #[command(flatten)]
        at: At,
        /// Do it; without this it is only said what would be done
        #[arg(long)]
        yes: bool,
    },
    /// Send an endpoint a signed test event (`postern.test`) by the way of all others
    Test(At),
}

impl Endpoints {
    /// Whether it changes something.
    pub fn changes(&self) -> bool {
        match self {
            Self::List { .. } | Self::Show(_) | Self::Secrets(_) => false,
            Self::Delete { yes, .. } => *yes,
            _ => true,
        }
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
        Endpoints::List { tenant, unhealthy } => list(tenant, *unhealthy, client, json, out).await,
        Endpoints::Show(at) => print::pretty(out, &client.get(&at.path()).await?),
        Endpoints::Secrets(at) => {
            let list = client.get(&format!("{}/secrets", at.path())).await?;
            print::either(json, out, &list, |out| show::secrets(out, &list))
        }
        Endpoints::Add { .. }
        | Endpoints::Configure { .. }
        | Endpoints::Update { .. }
        | Endpoints::Rotate { .. } => set(command, client, json, out).await,
        Endpoints::Pause { .. }
        | Endpoints::Resume(_)
        | Endpoints::Disable { .. }
        | Endpoints::Enable { .. }
        | Endpoints::Delete { .. }
        | Endpoints::Test(_) => steer(command, client, json, out).await,
    }
}

async fn list(
    tenant: &str,
    unhealthy: bool,
    client: &Client,
    json: bool,
    out: &mut dyn Write,
) -> Result<(), Complaint> {
    let only = if unhealthy { "?unhealthy=true" } else { "" };
    let endpoints = client.get(&format!("{}{only}", all(tenant))).await?;
    print::either(json, out, &endpoints, |out| {
        let rows = print::list(&endpoints, "endpoints", show::row);
        table(out, &["id", "types", "where", "health", "made"], rows)
    })?;
    let count = endpoints.get("endpoints").and_then(Value::as_array).map_or(0, Vec::len);
    if !unhealthy || count == 0 {
        return Ok(());
    }
    let next = format!("`postern endpoints show {tenant} ID` says what to do about each");
    Err(Complaint::new(
        format!("{count} endpoints of {tenant} are not healthy"),
        "they fail, are paused or are disabled",
        next,
    )
    .as_no())
}

/// What says how an endpoint is to be.
async fn set(
    command: &Endpoints,
    client: &Client,
    json: bool,
    out: &mut dyn Write,
) -> Result<(), Complaint> {
    match command {
        Endpoints::Add { tenant, place, options, making, secret_out } => {
            let wanted = form::new(place, options, making)?;
            secret_out.ready()?;
            let made = client.post(&all(tenant), &wanted).await?;
            let made = secret_out.keep(made)?;
            print::either(json, out, &made, |out| show::made(out, &made, secret_out))
        }
        Endpoints::Configure { tenant, key, place, options, making, secret_out } => {
            let wanted = form::new(place, options, making)?;
            secret_out.ready()?;
            let path = format!("{}/by-key/{}", all(tenant), segment(key));
            let there = secret_out.keep(put(client, &path, &wanted).await?)?;
            print::either(json, out, &there, |out| match there.get("changed") {
                None => show::made(out, &there, secret_out),
                Some(changed) => {
                    let id = print::text(&there, "id");
                    let what = if changed == &json!(true) { "is changed" } else { "is as it was" };
                    writeln!(out, "Endpoint {id} {what}.")
                }
            })
        }
        Endpoints::Update { at, url, options, without } => {
            let change = form::change(url.as_deref(), options, without)?;
            let changed = client.patch(&at.path(), &change).await?;
            print::either(json, out, &changed, |out| {
                writeln!(out, "Endpoint {} is changed.", at.endpoint)
            })
        }
        Endpoints::Rotate { at, rotating, secret_out } => {
            let rotation = rotating.body()?;
            secret_out.ready()?;
            let path = format!("{}/secrets/rotate", at.path());
            let rotated = secret_out.keep(client.post(&path, &rotation).await?)?;
            print::either(json, out, &rotated, |out| show::rotated(out, &rotated, secret_out))
        }
        _ => Ok(()),
    }
}

/// What stops an endpoint, starts it, tries it or ends it.
async fn steer(
    command: &Endpoints,
    client: &Client,
    json: bool,
    out: &mut dyn Write,
) -> Result<(), Complaint> {
    let (at, verb, body) = match command {
        Endpoints::Pause { at, reason } => (at, "pause".to_owned(), json!({ "reason": reason })),
        Endpoints::Disable { at, reason } => {
            (at, "disable".to_owned(), json!({ "reason": reason }))
        }
        Endpoints::Resume(at) => (at, "resume".to_owned(), json!({})),
        Endpoints::Enable { at, release_rate } => {
            (at, format!("enable?release_rate={release_rate}"), json!({}))
        }
        Endpoints::Test(at) => return test(at, client, json, out).await,
        Endpoints::Delete { at, yes } => return delete(at, *yes, client, json, out).await,
        _ => return Ok(()),
    };
    let steered = client.post(&format!("{}/{verb}", at.path()), &body).await?;
    print::either(json, out, &steered, |out| {
        writeln!(out, "Endpoint {}: {}.", at.endpoint, show::health(&steered))?;
        writeln!(out, "{}", show::told(&steered))
    })
}

async fn test(at: &At, client: &Client, json: bool, out: &mut dyn Write) -> Result<(), Complaint> {
    let trial = client.post(&format!("{}/test", at.path()), &json!({})).await?;
    print::either(json, out, &trial, |out| {
        let event = print::text(&trial, "event");
        writeln!(out, "{event} is on its way to {}.", at.endpoint)?;
        writeln!(out, "Follow it with: postern events show {} {event}", at.tenant)
    })
}

async fn delete(
    at: &At,
    yes: bool,
    client: &Client,
    json: bool,
    out: &mut dyn Write,
) -> Result<(), Complaint> {
    if yes {
        let gone = client.delete(&at.path()).await?;
        return print::either(json, out, &gone, |out| {
            writeln!(out, "Endpoint {} is deleted; what is pending is cancelled.", at.endpoint)
        });
    }
    let found = client.get(&at.path()).await?;
    print::either(json, out, &found, |out| {
        writeln!(out, "would delete {}: {}", at.endpoint, place(&found))?;
        writeln!(out, "  what is pending for it is cancelled, and its secrets are gone for ever")?;
        writeln!(out, "Nothing was changed. To do it:")?;
        writeln!(out, "  postern endpoints delete {} {} --yes", at.tenant, at.endpoint)
    })
}

async fn put(client: &Client, path: &str, body: &Value) -> Result<Value, Complaint> {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    client.call_good(Method::PUT, path, headers, Bytes::from(body.to_string())).await
}

fn all(tenant: &str) -> String {
    format!("/v1/tenants/{}/endpoints", segment(tenant))
}

/// Members, as the body of a request.
fn object(members: Vec<Setting>) -> Value {
    let members = members.into_iter().map(|(name, value)| (name.to_owned(), value));
    members.collect::<Map<String, Value>>().into()
}
