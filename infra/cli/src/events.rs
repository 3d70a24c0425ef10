//! `postern events`: one event's story, replay, redelivery, publishing.

mod publish;
pub(crate) mod replay;
mod story;

use std::io::Write;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    client::{Client, query, segment},
    complaint::{Complaint, printable},
    print::{self, table},
};

/// What can be asked.
#[derive(clap::Subcommand, Debug)]
pub enum Events {
    /// Show the whole story of a received event
    Story {
        /// The source
        source: String,
        /// The provider's id of the event
        event: String,
    },
    #[expect(missing_docs, reason = "words here would hide those of its options from `--help`")]
    Replay(replay::Replay),
    /// List what is parked and waits for a person, the latest first
    Parked {
        /// Only events of this source
        #[arg(long, value_name = "SOURCE")]
        source: Option<String>,
        /// How many at most, 1 to 100
        #[arg(long, value_name = "NUMBER")]
        limit: Option<u32>,
        /// Go on behind a list, with what it said
        #[arg(long, value_name = "MARK")]
        before: Option<String>,
    },
    #[expect(missing_docs, reason = "words here would hide those of its options from `--help`")]
    Publish(publish::Publish),
    /// List outgoing events that no endpoint wanted, the latest first
    ///
    /// That is no failure; most often it is a type, a label or a filter that was written differently on the two sides.
    Unmatched {
        /// The tenant
        tenant: String,
        /// How many at most, 1 to 50
        #[arg(long, value_name = "NUMBER")]
        limit: Option<u32>,
        /// Events published before then: `2026-09-21` or `2026-09-21T14:00:00Z`
        #[arg(long, value_name = "TIME", value_parser = replay::time)]
        before: Option<Timestamp>,
    },
    /// Show an outgoing event with its deliveries
    Show {
        /// The tenant
        tenant: String,
        /// The event's id (`evt_...`)
        event: String,
    },
    /// Deliver an event to an endpoint again, with the same id, after it was given up
    Redeliver {
        /// The tenant
        tenant: String,
        /// The event's id (`evt_...`)
        event: String,
        /// The endpoint's id (`ep_...`)
        endpoint: String,
        /// Also if the endpoint has taken it already
        #[arg(long)]
        include_delivered: bool,
    },
}

impl Events {
    /// Whether it changes something.
    pub fn changes(&self) -> bool {
        match self {
            Self::Replay(replay) => replay.changes(),
            Self::Publish(_) | Self::Redeliver { .. } => true,
            Self::Story { .. }
            | Self::Parked { .. }
            | Self::Unmatched { .. }
            | Self::Show { .. } => false,
        }
    }
}

/// Runs one of them.
pub async fn run(
    command: &Events,
    client: &Client,
    deployment: &[String],
    json: bool,
    out: &mut dyn Write,
) -> Result<(), Complaint> {
    match command {
        Events::Story { source, event } => {
            let story = client.get(&received(source, event)).await?;
            print::either(json, out, &story, |out| story::received(out, &story))
        }
        Events::Replay(replay) => replay::run(replay, client, deployment, json, out).await,
        Events::Parked { source, limit, before } => {
            let query = query([
                ("source", source.clone()),
                ("limit", limit.map(|limit| limit.to_string())),
                ("before", before.clone()),
            ]);
            let parked = client.get(&format!("/v1/parked{query}")).await?;
            print::either(json, out, &parked, |out| {
                let head = ["source", "event", "type", "parked", "attempts", "why", "next"];
                table(out, &head, print::list(&parked, "parked", row))?;
                match parked.get("next") {
                    Some(Value::String(_)) => {
                        let next = print::text(&parked, "next");
                        writeln!(out, "... and more, parked earlier: --before '{next}'")
                    }
                    _ => Ok(()),
                }
            })
        }
        Events::Publish(publish) => publish::run(publish, client, json, out).await,
        Events::Unmatched { tenant, limit, before } => {
            let query = query([
                ("limit", limit.map(|limit| limit.to_string())),
                ("before", before.map(|time| time.to_string())),
            ]);
            let path = format!("/v1/tenants/{}/events/unmatched{query}", segment(tenant));
            let found = client.get(&path).await?;
            print::either(json, out, &found, |out| {
                let head = ["event", "type", "labels", "published"];
                table(out, &head, print::list(&found, "unmatched", unmatched))?;
                match found.get("next") {
                    Some(Value::String(_)) => {
                        let next = print::text(&found, "next");
                        writeln!(out, "... and more, published earlier: --before {next}")
                    }
                    _ => Ok(()),
                }
            })
        }
        Events::Show { tenant, event } => {
            let story = client.get(&outgoing(tenant, event)).await?;
            print::either(json, out, &story, |out| story::outgoing(out, &story, ""))
        }
        Events::Redeliver { tenant, event, endpoint, include_delivered } => {
            let all = if *include_delivered { "?include_delivered=true" } else { "" };
            let of = outgoing(tenant, event);
            let path = format!("{of}/endpoints/{}/redeliver{all}", segment(endpoint));
            let done = client.post(&path, &json!({})).await.map_err(with_our_words)?;
            print::either(json, out, &done, |out| {
                writeln!(out, "{event} is due again at {endpoint}{}.", starts(&done))?;
                writeln!(out, "Follow it with: postern events show {tenant} {event}")
            })
        }
    }
}

/// When what was asked for begins.
fn starts(done: &Value) -> &'static str {
    match done.get("enqueued") {
        Some(Value::Bool(false)) => {
            "; its message could not be sent, so the sweeper starts it within minutes"
        }
        _ => "",
    }
}

/// The api speaks of its query; here it is an option.
fn with_our_words(complaint: Complaint) -> Complaint {
    let why = complaint.why.replace("`?include_delivered=true`", "--include-delivered");
    Complaint { why, ..complaint }
}

fn received(source: &str, event: &str) -> String {
    format!("/v1/sources/{}/events/{}", segment(source), segment(event))
}

fn outgoing(tenant: &str, event: &str) -> String {
    format!("/v1/tenants/{}/events/{}", segment(tenant), segment(event))
}

fn unmatched(event: &Value) -> Vec<String> {
    let labels = event.get("labels").and_then(Value::as_object).into_iter().flatten();
    let labels: Vec<_> = labels
        .map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default()))
        .map(|label| printable(&label).to_string())
        .collect();
    let text = |name| print::text(event, name);
    let labels = if labels.is_empty() { "-".to_owned() } else { labels.join(" ") };
    vec![text("event_id"), text("event_type"), labels, text("occurred_at")]
}

fn row(event: &Value) -> Vec<String> {
    let error = event.get("error").unwrap_or(&Value::Null);
    let why = format!("{}: {}", print::text(error, "code"), print::text(error, "message"));
    let text = |name| print::text(event, name);
    vec![
        text("source"),
        text("event_id"),
        text("event_type"),
        text("parked_at"),
        text("attempts"),
        if error.is_null() { "-".to_owned() } else { why },
        text("next_action"),
    ]
}
