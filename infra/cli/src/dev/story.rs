//! One event's story, told stage by stage as it happens, from what the deployment itself says.
//!
//! The times are those of the table, of the functions' logs and of the subscriber, never of this program's loop.

use std::{
    fmt::Write as _,
    fs,
    io::Write,
    path::Path,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use serde_json::Value;

use super::{
    demo::{Earlier, SOURCE, Sent, TENANT},
    subscriber::{Seen, Subscriber},
};
use crate::{
    client::{Client, Proof, segment},
    complaint::{Complaint, printable},
    deployment::Ready,
    print::closed,
};

/// Time between two looks at the deployment.
const LOOK_EVERY: Duration = Duration::from_millis(25);

/// The stages, in order.
const STAGES: [&str; 7] =
    ["accepted", "enqueued", "planned", "committed", "relayed", "delivered", "verified"];

/// What is known of a stage.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stage {
    name: &'static str,
    at: Timestamp,
    /// What happened, in words; or why the stage failed.
    told: Result<String, String>,
}

/// The story of one event.
#[derive(Clone, Debug)]
pub(super) struct Story {
    began: Timestamp,
    stages: Vec<Stage>,
    hint: String,
}

/// Everything that could be learnt at one moment.
#[derive(Debug, Default)]
struct Facts {
    row: Value,
    enqueued_at: Option<Timestamp>,
    planned_at: Option<Timestamp>,
    seen: Option<Seen>,
}

impl Story {
    fn of(sent: &Sent) -> Self {
        let ok = (200..300).contains(&sent.status);
        let took = sent.took.as_millis();
        let told = if ok {
            Ok(format!("signed as Stripe signs; answered {} after {took} ms", sent.status))
        } else {
            Err(format!("answered {} after {took} ms", sent.status))
        };
        let at = sent.at.saturating_add(sent.took).unwrap_or(sent.at);
        let hint = format!("postern events story {SOURCE} {}", sent.event);
        Self { began: sent.at, stages: vec![Stage { name: "accepted", at, told }], hint }
    }

    /// Whether every stage was reached, and none failed.
    pub(super) fn is_whole(&self) -> bool {
        self.stages.len() == STAGES.len() && !self.has_failed()
    }

    fn has_failed(&self) -> bool {
        self.stages.iter().any(|stage| stage.told.is_err())
    }

    /// Adds the next stages, as far as the facts reach.
    fn learn(&mut self, facts: &Facts) {
        while let Some(name) = STAGES.get(self.stages.len()) {
            let Some((at, told)) = facts.stage(name) else { return };
            self.stages.push(Stage { name, at, told });
        }
    }

    /// One line of the story.
    fn line(&self, stage: &Stage) -> String {
        let after = stage.at.duration_since(self.began).as_secs_f64().max(0.0);
        let (mark, words) = match &stage.told {
            Ok(words) => (" ", words),
            Err(why) => ("!", why),
        };
        format!("{mark} +{after:6.3} s  {:<10} {words}\n", stage.name)
    }

    /// The last words.
    pub(super) fn closing(&self) -> String {
        if self.is_whole() {
            return "\nThe event went in signed, and came out signed.\n".to_owned();
        }
        let missing = STAGES.get(self.stages.len()).copied().unwrap_or("the failed stage");
        format!(
            "\nThe story stopped before: {missing}.\n  next: look into the logs, or ask `{}`\n",
            self.hint
        )
    }
}

impl Facts {
    /// When a stage was reached, and how.
    fn stage(&self, name: &str) -> Option<(Timestamp, Result<String, String>)> {
        let outgoing = self.row.pointer("/outgoing/0").unwrap_or(&Value::Null);
        let delivery = outgoing.pointer("/deliveries/0").unwrap_or(&Value::Null);
        let ok = |at: Timestamp, words: &str| Some((at, Ok(words.to_owned())));
        match name {
            "enqueued" => ok(self.enqueued_at?, "the worker was told by a message with its name"),
            "planned" => ok(self.planned_at?, "the handler said what should change"),
            "committed" => {
                let at = time(&self.row, "/finished_at")?;
                let status = text(&self.row, "status");
                let words = format!("{status}; effect and outgoing event in one transaction");
                Some((at, if status == "processed" { Ok(words) } else { Err(status) }))
            }
            "relayed" => {
                ok(time(outgoing, "/relayed_at")?, "one delivery for each endpoint that wants it")
            }
            "delivered" => delivered(delivery),
            "verified" => {
                let seen = self.seen.as_ref()?;
                let good = "the subscriber checked webhook-signature".to_owned();
                Some((seen.at, seen.verdict.clone().map(|()| good)))
            }
            _ => None,
        }
    }
}

fn delivered(delivery: &Value) -> Option<(Timestamp, Result<String, String>)> {
    let last = delivery.get("log")?.as_array()?.last()?;
    let attempts = delivery.get("attempts").and_then(Value::as_u64).unwrap_or_default();
    let took = last.get("duration_ms").and_then(Value::as_u64).unwrap_or_default();
    let at = time(last, "/at")?.saturating_add(Duration::from_millis(took)).ok()?;
    match text(delivery, "state").as_str() {
        "succeeded" => Some((at, Ok(format!("attempt {attempts} answered after {took} ms")))),
        "pending" => None,
        other => Some((at, Err(format!("the delivery is {other}")))),
    }
}

fn time(value: &Value, pointer: &str) -> Option<Timestamp> {
    value.pointer(pointer)?.as_str()?.parse().ok()
}

fn text(value: &Value, name: &str) -> String {
    crate::print::text(value, name)
}

/// Follows an event until its story is whole, has failed, or takes too long; prints each stage as it is reached.
pub(super) async fn follow(
    ready: &Ready,
    state: &Path,
    sent: &Sent,
    subscriber: &mut Subscriber,
    patience: Duration,
    out: &mut dyn Write,
) -> Result<Story, Complaint> {
    let api = Client::new(ready.api("AdminApi")?, Proof::Token(ready.token.clone()))?;
    let path = format!("/v1/sources/{SOURCE}/events/{}", segment(&sent.event));
    let mut story = Story::of(sent);
    let mut facts = Facts::default();
    let began = Instant::now();
    let mut shown = 0;
    loop {
        for stage in story.stages.iter().skip(shown) {
            out.write_all(story.line(stage).as_bytes())
                .and_then(|()| out.flush())
                .map_err(|error| closed(&error))?;
        }
        shown = story.stages.len();
        if story.is_whole() || story.has_failed() || began.elapsed() > patience {
            return Ok(story);
        }
        // A delivery of an earlier start may come first; ours is told by its id.
        if let Ok(Some(seen)) = tokio::time::timeout(LOOK_EVERY, subscriber.next()).await
            && facts.seen.is_none()
        {
            facts.seen = Some(seen);
        }
        facts.row = api.get(&path).await?;
        let ours = facts.row.pointer("/outgoing/0/id").and_then(Value::as_str);
        if ours.is_some() && facts.seen.as_ref().is_some_and(|seen| Some(seen.id.as_str()) != ours)
        {
            facts.seen = None;
        }
        let logged = |function: &str, stage: &str| logged(state, function, stage, &sent.event);
        facts.enqueued_at = facts.enqueued_at.or_else(|| logged("Ingress", "enqueue"));
        facts.planned_at = facts.planned_at.or_else(|| logged("Worker", "plan"));
        story.learn(&facts);
    }
}

/// When a function said that an event reached a stage.
fn logged(state: &Path, function: &str, stage: &str, event: &str) -> Option<Timestamp> {
    let log =
        fs::read_to_string(state.join("logs").join(format!("{function}Function.log"))).ok()?;
    log.lines().rev().filter(|line| line.contains(event)).find_map(|line| {
        let line: Value = serde_json::from_str(line.get(line.find('{')?..)?).ok()?;
        let fields = line.get("fields").unwrap_or(&line);
        let says = |name: &str| fields.get(name).and_then(Value::as_str);
        let is_it = says("event_id") == Some(event) && says("stage") == Some(stage);
        is_it.then(|| time(&line, "/timestamp")).flatten()
    })
}

/// The first words.
pub(super) fn opening(took: Duration, earlier: Option<Earlier>, state: &Path) -> String {
    let mut words = format!("Postern runs on this machine after {:.1} s.\n", took.as_secs_f64());
    if let Some(Earlier { event, status }) = earlier {
        let folder = printable(&state.display().to_string());
        let _ = writeln!(
            words,
            "The last event of an earlier start, {event}, is {status} in {folder}."
        );
    }
    words.push_str("\nOne Stripe event on its way:\n\n");
    words
}

/// What a visitor can do now.
pub(super) fn things_to_try(ready: &Ready, state: &Path) -> Result<String, Complaint> {
    let ingress = ready.api("IngressApi")?;
    let api = ready.api("AdminApi")?;
    let logs = printable(&state.join("logs").display().to_string());
    Ok(format!(
        "
  receives   {ingress}/webhooks/{SOURCE}
  api        {api}/v1
  logs       {logs}

Three things to try, in another terminal:

  1. cargo run -q --bin postern -- events publish {TENANT} invoice.sent --aggregate in_1 '{{\"id\": 1}}'
  2. pkill -9 -x worker; cargo run -q --bin postern -- send {SOURCE}
     The killed function starts again, and the event arrives all the same.
  3. cargo run -q --bin postern -- events story {SOURCE} EVENT
     The whole story of an event; the second command prints its id.

Ctrl-C stops everything. What was accepted is there at the next start.
"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(1_760_000_000_000 + millis).unwrap()
    }

    fn sent(status: u16) -> Sent {
        Sent { event: "evt_1".to_owned(), at: at(0), status, took: Duration::from_millis(9) }
    }

    fn whole() -> Facts {
        let row = json!({
            "status": "processed",
            "finished_at": at(40),
            "outgoing": [{"id": "evt_2", "relayed_at": at(55), "deliveries": [{
                "state": "succeeded", "attempts": 1, "log": [{"at": at(60), "duration_ms": 7}],
            }]}],
        });
        let seen = Seen { id: "evt_2".to_owned(), at: at(66), verdict: Ok(()) };
        Facts { row, enqueued_at: Some(at(11)), planned_at: Some(at(31)), seen: Some(seen) }
    }

    fn told(facts: &Facts) -> String {
        let mut story = Story::of(&sent(200));
        story.learn(facts);
        let lines: String = story.stages.iter().map(|stage| story.line(stage)).collect();
        lines + &story.closing()
    }

    #[test]
    fn a_whole_story_reads_like_this() {
        insta::assert_snapshot!(told(&whole()), @r"
          + 0.009 s  accepted   signed as Stripe signs; answered 200 after 9 ms
          + 0.011 s  enqueued   the worker was told by a message with its name
          + 0.031 s  planned    the handler said what should change
          + 0.040 s  committed  processed; effect and outgoing event in one transaction
          + 0.055 s  relayed    one delivery for each endpoint that wants it
          + 0.067 s  delivered  attempt 1 answered after 7 ms
          + 0.066 s  verified   the subscriber checked webhook-signature

        The event went in signed, and came out signed.
        ");
    }

    #[test]
    fn a_story_stops_where_the_facts_stop() {
        let facts = Facts { planned_at: None, ..whole() };
        insta::assert_snapshot!(told(&facts), @r"
          + 0.009 s  accepted   signed as Stripe signs; answered 200 after 9 ms
          + 0.011 s  enqueued   the worker was told by a message with its name

        The story stopped before: planned.
          next: look into the logs, or ask `postern events story stripe-demo evt_1`
        ");
    }

    #[test]
    fn a_refused_signature_at_the_subscriber_is_a_failed_stage() {
        let seen = Seen { id: String::new(), at: at(66), verdict: Err("no".to_owned()) };
        let mut story = Story::of(&sent(200));
        story.learn(&Facts { seen: Some(seen), ..whole() });
        assert!(!story.is_whole() && story.has_failed());
    }

    #[test]
    fn an_event_that_is_not_accepted_has_a_failed_story() {
        assert!(Story::of(&sent(503)).has_failed());
    }
}
