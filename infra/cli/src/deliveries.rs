//! `postern deliveries`: what was sent to an endpoint and what became of it; sending it again.

mod redeliver;

use std::io::{self, Write};

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    client::{Client, query, segment},
    complaint::Complaint,
    events::replay::time,
    print::{self, list, table, text},
};

/// What can be asked.
#[derive(clap::Subcommand, Debug)]
pub enum Deliveries {
    /// List an endpoint's deliveries, the latest event first, each with its last attempt in plain words
    List {
        /// The tenant
        tenant: String,
        /// The endpoint's id (`ep_...`); also of one that was deleted
        endpoint: String,
        /// Only those that stand so: `pending`, `succeeded`, `dead` or `cancelled`
        #[arg(long, value_name = "STATUS", value_parser = ["pending", "succeeded", "dead", "cancelled"])]
        status: Option<String>,
        /// Only of types that match, such as `invoice.*`
        #[arg(long, value_name = "PATTERN")]
        r#type: Option<String>,
        /// Of events of then or later: `2026-09-21` or `2026-09-21T14:00:00Z`
        #[arg(long, value_name = "TIME", value_parser = time)]
        from: Option<Timestamp>,
        /// Of events of before then
        #[arg(long, value_name = "TIME", value_parser = time)]
        to: Option<Timestamp>,
        /// How many at most, 1 to 200
        #[arg(long, value_name = "NUMBER")]
        limit: Option<u32>,
        /// Go on behind a list, with what it said
        #[arg(long, value_name = "MARK")]
        cursor: Option<String>,
    },
    #[expect(missing_docs, reason = "words here would hide those of its options from `--help`")]
    Redeliver(redeliver::Redeliver),
    /// Show how far redeliveries of a tenant are: all of them, or one with what it left alone
    Progress {
        /// The tenant
        tenant: String,
        /// Its id (`rdl_...`); left out: all, the latest first
        redelivery: Option<String>,
    },
    /// Stop a redelivery for a while
    Pause {
        /// The tenant
        tenant: String,
        /// Its id (`rdl_...`)
        redelivery: String,
    },
    /// Let a paused redelivery go on
    Resume {
        /// The tenant
        tenant: String,
        /// Its id (`rdl_...`)
        redelivery: String,
    },
    /// Stop a redelivery for good; what it has taken is sent all the same
    Cancel {
        /// The tenant
        tenant: String,
        /// Its id (`rdl_...`)
        redelivery: String,
    },
}

impl Deliveries {
    /// Whether it changes something.
    pub fn changes(&self) -> bool {
        match self {
            Self::Redeliver(redeliver) => redeliver.changes(),
            Self::Pause { .. } | Self::Resume { .. } | Self::Cancel { .. } => true,
            Self::List { .. } | Self::Progress { .. } => false,
        }
    }
}

/// Runs one of them.
pub async fn run(
    command: &Deliveries,
    client: &Client,
    deployment: &[String],
    json: bool,
    out: &mut dyn Write,
) -> Result<(), Complaint> {
    let halt = async |tenant: &str, redelivery: &str, how: &str| {
        client.post(&format!("{}/{how}", path(tenant, redelivery)), &json!({})).await
    };
    let shown = match command {
        Deliveries::List { tenant, endpoint, status, r#type, from, to, limit, cursor } => {
            let query = query([
                ("state", status.clone()),
                ("type", r#type.clone()),
                ("from", from.map(|time| time.to_string())),
                ("to", to.map(|time| time.to_string())),
                ("limit", limit.map(|limit| limit.to_string())),
                ("cursor", cursor.clone()),
            ]);
            let (tenant, endpoint) = (segment(tenant), segment(endpoint));
            let path = format!("/v1/tenants/{tenant}/endpoints/{endpoint}/deliveries{query}");
            let log = client.get(&path).await?;
            return print::either(json, out, &log, |out| log_of(out, &log));
        }
        Deliveries::Redeliver(redeliver) => {
            return redeliver::run(redeliver, client, deployment, json, out).await;
        }
        Deliveries::Progress { tenant, redelivery: None } => {
            let path = format!("/v1/tenants/{}/redeliveries", segment(tenant));
            let all = client.get(&path).await?;
            return print::either(json, out, &all, |out| {
                let head =
                    ["redelivery", "endpoint", "state", "began", "redelivered", "by", "reason"];
                table(out, &head, list(&all, "redeliveries", row))?;
                more(out, &all)
            });
        }
        Deliveries::Progress { tenant, redelivery: Some(redelivery) } => {
            client.get(&path(tenant, redelivery)).await?
        }
        Deliveries::Pause { tenant, redelivery } => halt(tenant, redelivery, "pause").await?,
        Deliveries::Resume { tenant, redelivery } => halt(tenant, redelivery, "resume").await?,
        Deliveries::Cancel { tenant, redelivery } => halt(tenant, redelivery, "cancel").await?,
    };
    print::either(json, out, &shown, |out| show(out, &shown))
}

fn path(tenant: &str, redelivery: &str) -> String {
    format!("/v1/tenants/{}/redeliveries/{}", segment(tenant), segment(redelivery))
}

fn more(out: &mut dyn Write, all: &Value) -> io::Result<()> {
    match all.get("more") {
        Some(Value::Bool(true)) => writeln!(out, "... and more, begun earlier"),
        _ => Ok(()),
    }
}

fn row(redelivery: &Value) -> Vec<String> {
    let of = |name| text(redelivery, name);
    let endpoint =
        if redelivery.get("endpoint").is_some() { of("endpoint") } else { "all".to_owned() };
    let counts = redelivery.get("counts").unwrap_or(&Value::Null);
    let redelivered = text(counts, "redelivered");
    vec![of("id"), endpoint, of("state"), of("began_at"), redelivered, of("actor"), of("reason")]
}

/// A delivery with its last attempt.
fn log_of(out: &mut dyn Write, log: &Value) -> io::Result<()> {
    let head = ["event", "type", "state", "attempts", "last", "why"];
    let rows = list(log, "deliveries", |delivery| {
        let last = delivery.get("log").and_then(Value::as_array).and_then(|log| log.last());
        let last = last.unwrap_or(&Value::Null);
        let why = text(last.get("words").unwrap_or(&Value::Null), "what");
        let of = |name| text(delivery, name);
        vec![of("event"), of("type"), of("state"), of("attempts"), text(last, "at"), why]
    });
    table(out, &head, rows)?;
    match log.get("next") {
        Some(Value::String(_)) => {
            writeln!(out, "... and perhaps more, of earlier events: --cursor {}", text(log, "next"))
        }
        _ => Ok(()),
    }
}

/// How far a redelivery is.
fn show(out: &mut dyn Write, redelivery: &Value) -> io::Result<()> {
    let of = |name| text(redelivery, name);
    let counts = redelivery.get("counts").unwrap_or(&Value::Null);
    let to = if redelivery.get("endpoint").is_some() {
        of("endpoint")
    } else {
        "all endpoints".to_owned()
    };
    writeln!(out, "{} of {} to {to} is {}", of("id"), of("tenant"), of("state"))?;
    writeln!(out, "  began {} by {}: {}", of("began_at"), of("actor"), of("reason"))?;
    for (what, at, by) in
        [("cancelled", "cancelled_at", "cancelled_by"), ("paused", "paused_at", "paused_by")]
    {
        if redelivery.get(at).is_some_and(Value::is_string) {
            writeln!(out, "  {what} {} by {}", of(at), of(by))?;
        }
    }
    let (redelivered, looked_at) = (text(counts, "redelivered"), text(counts, "looked_at"));
    writeln!(
        out,
        "  {redelivered} sent again, {looked_at} looked at, {} a second at most",
        of("rate")
    )?;
    left_alone(out, counts)?;
    told(out, redelivery)?;
    writeln!(out, "  next: {}", of("next_action"))
}

/// What was not taken, and why.
fn left_alone(out: &mut dyn Write, counts: &Value) -> io::Result<()> {
    for (name, why) in [
        ("in_flight", "pending already: sent without being asked"),
        ("already_delivered", "delivered already: sent again only with --include-delivered"),
        ("cancelled", "cancelled with an endpoint: sent only with --include-cancelled"),
        ("moved", "changed since the redelivery began: look at them"),
        ("stopped", "of an endpoint that is stopped: enable it, then do the same again"),
        ("expired", "of events past their retention: nothing is left to send"),
        ("absent", "not there: check the ids and the endpoint"),
        ("failed", "refused by the store: the log of `api` and of `sweeper` says why"),
    ] {
        match counts.get(name).and_then(Value::as_u64) {
            None | Some(0) => {}
            Some(count) => writeln!(out, "  {count} {why}")?,
        }
    }
    Ok(())
}

/// What became of deliveries one by one.
fn told(out: &mut dyn Write, answer: &Value) -> io::Result<()> {
    let is_dry = answer.get("dry_run") == Some(&Value::Bool(true));
    for told in answer.get("told").and_then(Value::as_array).into_iter().flatten() {
        let outcome = match text(told, "outcome").as_str() {
            "redelivered" if is_dry => "would be sent again".to_owned(),
            "redelivered" => "sent again".to_owned(),
            other => other.replace('_', " "),
        };
        writeln!(out, "    {} to {}: {outcome}", text(told, "event"), text(told, "endpoint"))?;
    }
    Ok(())
}
