//! `postern replays`: replays of many events, how far they are, and how to stop one.

use std::io::{self, Write};

use serde_json::{Value, json};

use crate::{
    client::{Client, segment},
    complaint::Complaint,
    print::{self, list, table, text},
};

/// What can be asked.
#[derive(clap::Subcommand, Debug)]
pub enum Replays {
    /// List replays, the latest first
    List,
    /// Show how far a replay is, and what it left alone
    Show {
        /// Its id (`rpl_...`)
        replay: String,
    },
    /// Stop a replay; events that it has taken are processed all the same
    Cancel {
        /// Its id (`rpl_...`)
        replay: String,
    },
}

impl Replays {
    /// Whether it changes something.
    pub fn changes(&self) -> bool {
        matches!(self, Self::Cancel { .. })
    }
}

/// Runs one of them.
pub async fn run(
    command: &Replays,
    client: &Client,
    json: bool,
    out: &mut dyn Write,
) -> Result<(), Complaint> {
    match command {
        Replays::List => {
            let replays = client.get("/v1/replays").await?;
            print::either(json, out, &replays, |out| {
                let head = ["replay", "source", "state", "began", "replayed", "by", "reason"];
                table(out, &head, list(&replays, "replays", row))?;
                match replays.get("more") {
                    Some(Value::Bool(true)) => writeln!(out, "... and more, begun earlier"),
                    _ => Ok(()),
                }
            })
        }
        Replays::Show { replay } => {
            let shown = client.get(&path(replay)).await?;
            print::either(json, out, &shown, |out| show(out, &shown))
        }
        Replays::Cancel { replay } => {
            let shown = client.post(&format!("{}/cancel", path(replay)), &json!({})).await?;
            print::either(json, out, &shown, |out| show(out, &shown))
        }
    }
}

fn path(replay: &str) -> String {
    format!("/v1/replays/{}", segment(replay))
}

fn row(replay: &Value) -> Vec<String> {
    let counts = replay.get("counts").unwrap_or(&Value::Null);
    let of = |name| text(replay, name);
    let replayed = text(counts, "replayed");
    vec![of("id"), of("source"), of("state"), of("began_at"), replayed, of("actor"), of("reason")]
}

/// How far a replay is.
pub(crate) fn show(out: &mut dyn Write, replay: &Value) -> io::Result<()> {
    let of = |name| text(replay, name);
    let counts = replay.get("counts").unwrap_or(&Value::Null);
    let verb = if of("kind") == "resume" { "sent" } else { "run again" };
    writeln!(out, "{} of {} is {}", of("id"), of("source"), of("state"))?;
    writeln!(out, "  began {} by {}: {}", of("began_at"), of("actor"), of("reason"))?;
    if replay.get("cancelled_at").is_some_and(Value::is_string) {
        writeln!(out, "  stopped {} by {}", of("cancelled_at"), of("cancelled_by"))?;
    }
    let looked_at = text(counts, "looked_at");
    writeln!(
        out,
        "  {} {verb}, {looked_at} looked at, {} a second at most",
        text(counts, "replayed"),
        of("rate")
    )?;
    left_alone(out, counts)?;
    told(out, replay)?;
    writeln!(out, "  next: {}", of("next_action"))
}

/// What was not taken, and why.
pub(crate) fn left_alone(out: &mut dyn Write, counts: &Value) -> io::Result<()> {
    for (name, why) in [
        ("in_flight", "pending already: processed without being asked"),
        ("already_done", "processed already: taken only with `--status processed`"),
        ("moved", "changed since the replay began: look at them"),
        ("absent", "not there: check the ids and the source"),
        ("failed", "refused by the store: the log of `api` and of `sweeper` says why"),
    ] {
        match counts.get(name).and_then(Value::as_u64) {
            None | Some(0) => {}
            Some(count) => writeln!(out, "  {count} {why}")?,
        }
    }
    Ok(())
}

/// What became of events one by one.
pub(crate) fn told(out: &mut dyn Write, answer: &Value) -> io::Result<()> {
    let is_dry = answer.get("dry_run") == Some(&Value::Bool(true));
    for told in answer.get("told").and_then(Value::as_array).into_iter().flatten() {
        let outcome = match text(told, "outcome").as_str() {
            "replayed" if is_dry => "would be replayed".to_owned(),
            other => other.replace('_', " "),
        };
        writeln!(out, "    {}: {outcome}", text(told, "event_id"))?;
    }
    Ok(())
}
