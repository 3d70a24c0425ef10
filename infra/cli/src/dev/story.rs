//! One event's story, told stage by stage as it happens, from what the deployment itself says.
//!
//! The times are those of the table, of the functions' logs and of the subscriber, not those of this program's loop.

use std::{
    fmt::Write as _,
    fs,
    io::{Read as _, Seek as _, SeekFrom, Write},
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
    event: String,
}

/// Everything that could be learnt at one moment.
#[derive(Debug, Default)]
struct Facts {
    row: Value,
    enqueued_at: Option<Timestamp>,
    planned_at: Option<Timestamp>,
    seen: Option<Seen>,
    /// The demo's endpoint. The tenant may have others by now.
    endpoint: String,
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
        let event = sent.event.clone();
        Self { began: sent.at, stages: vec![Stage { name: "accepted", at, told }], event }
    }

    /// The event's id.
    pub(super) fn event(&self) -> &str {
        &self.event
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
            // The end of a stage is told by whoever heard of it, some milliseconds late: ingress has sent its message
            // before its answer arrives. A story goes forward.
            let at = self.stages.last().map_or(at, |before| at.max(before.at));
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
            "\nThe story stopped before: {missing}.\n  next: look into the logs, or ask `postern events story {SOURCE} {}`\n",
            self.event
        )
    }
}

impl Facts {
    /// When a stage was reached, and how.
    fn stage(&self, name: &str) -> Option<(Timestamp, Result<String, String>)> {
        let outgoing = self.row.pointer("/outgoing/0").unwrap_or(&Value::Null);
        let deliveries = outgoing.get("deliveries").and_then(Value::as_array);
        let ours = |delivery: &&Value| text(delivery, "endpoint") == self.endpoint;
        let delivery = deliveries.into_iter().flatten().find(ours).unwrap_or(&Value::Null);
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

/// What an event is followed with.
pub(super) struct Way<'a> {
    pub(super) ready: &'a Ready,
    pub(super) state: &'a Path,
    /// The demo's endpoint.
    pub(super) endpoint: String,
    /// How long the event may take.
    pub(super) patience: Duration,
}

impl Way<'_> {
    /// Follows an event until its story is whole, has failed, or takes too long; prints each stage as it is reached.
    pub(super) async fn follow(
        &self,
        sent: &Sent,
        subscriber: &mut Subscriber,
        out: &mut dyn Write,
    ) -> Result<Story, Complaint> {
        let token = Proof::Token(self.ready.token.clone());
        let api = Client::new(self.ready.api("AdminApi")?, token)?;
        let path = format!("/v1/sources/{SOURCE}/events/{}", segment(&sent.event));
        let mut story = Story::of(sent);
        let mut facts = Facts { endpoint: self.endpoint.clone(), ..Facts::default() };
        let mut arrived = Vec::new();
        let began = Instant::now();
        let mut shown = 0;
        loop {
            for stage in story.stages.iter().skip(shown) {
                out.write_all(story.line(stage).as_bytes())
                    .and_then(|()| out.flush())
                    .map_err(|error| closed(&error))?;
            }
            shown = story.stages.len();
            if story.is_whole() || story.has_failed() || began.elapsed() > self.patience {
                return Ok(story);
            }
            if let Ok(Some(seen)) = tokio::time::timeout(LOOK_EVERY, subscriber.next()).await {
                arrived.push(seen);
            }
            // A store that is busy for a moment does not end the story.
            match api.get(&path).await {
                Ok(row) => facts.row = row,
                Err(complaint) if complaint.is_no => return Err(complaint),
                Err(_) => continue,
            }
            // Deliveries of an earlier start may come first; ours is told by its id.
            let ours = facts.row.pointer("/outgoing/0/id").and_then(Value::as_str);
            facts.seen = arrived.iter().find(|seen| Some(seen.id.as_str()) == ours).cloned();
            let logged = |function, stage| logged(self.state, function, stage, &sent.event);
            facts.enqueued_at = facts.enqueued_at.or_else(|| logged("IngressFunction", "enqueue"));
            facts.planned_at = facts.planned_at.or_else(|| logged("WorkerFunction", "plan"));
            story.learn(&facts);
        }
    }
}

/// How much of the end of a log is read: far more than one event leaves in it.
const LOG_END: u64 = 256 * 1024;

/// When a function said that an event reached a stage.
fn logged(state: &Path, function: &str, stage: &str, event: &str) -> Option<Timestamp> {
    let mut log = fs::File::open(state.join("logs").join(format!("{function}.log"))).ok()?;
    let length = log.metadata().ok()?.len();
    log.seek(SeekFrom::Start(length.saturating_sub(LOG_END))).ok()?;
    let mut end = Vec::new();
    log.take(LOG_END).read_to_end(&mut end).ok()?;
    at_stage(&String::from_utf8_lossy(&end), stage, event)
}

/// The last line of a log that says so.
fn at_stage(log: &str, stage: &str, event: &str) -> Option<Timestamp> {
    log.lines().rev().filter(|line| line.contains(event)).find_map(|line| {
        let line: Value = serde_json::from_str(line).ok()?;
        let says = |name: &str| line.get(name).and_then(Value::as_str);
        let is_it = says("event_id") == Some(event) && says("stage") == Some(stage);
        is_it.then(|| time(&line, "/timestamp")).flatten()
    })
}

/// A delivery that reached the subscriber after the story.
pub(super) fn arrival(seen: &Seen) -> String {
    let id = printable(&seen.id);
    match &seen.verdict {
        Ok(()) => format!("{:.3}  the subscriber got {id}, and its signature is good\n", seen.at),
        Err(why) => format!("{:.3}  the subscriber refused {id}: {}\n", seen.at, printable(why)),
    }
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
    words.push('\n');
    words
}

/// What a visitor can do now. `state` is the folder that commands have to be told, if it is not the usual one.
pub(super) fn things_to_try(
    ready: &Ready,
    state: Option<&Path>,
    event: &str,
) -> Result<String, Complaint> {
    let ingress = ready.api("IngressApi")?;
    let api = ready.api("AdminApi")?;
    let folder = state.map(|state| format!(" --state {}", printable(&state.display().to_string())));
    let folder = folder.unwrap_or_default();
    let postern = "cargo run -q --bin postern --";
    Ok(format!(
        "
  receives   {ingress}/webhooks/{SOURCE}
  api        {api}/v1

Three things to try, in another terminal:

  1. {postern} events publish{folder} {TENANT} order.sent --aggregate o_1 '{{\"id\": 1}}'
     An event of your own, from the outbox to the subscriber.
  2. {postern} send{folder} --kill worker
     Kills the worker, then sends an event: it arrives all the same.
  3. {postern} events story{folder} {SOURCE} {event}
     The whole story of the event above, as an operator asks for it.

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
            "outgoing": [{"id": "evt_2", "relayed_at": at(55), "deliveries": [
                {"endpoint": "ep_1", "state": "pending", "attempts": 3, "log": []},
                {"endpoint": "ep_2", "state": "succeeded", "attempts": 1, "log": [{"at": at(60), "duration_ms": 7}]},
            ]}],
        });
        let seen = Some(Seen { id: "evt_2".to_owned(), at: at(66), verdict: Ok(()) });
        let (enqueued_at, planned_at) = (Some(at(11)), Some(at(31)));
        Facts { row, enqueued_at, planned_at, seen, endpoint: "ep_2".to_owned() }
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
          + 0.067 s  verified   the subscriber checked webhook-signature

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
    fn a_stage_is_found_in_a_log_by_its_event() {
        let line = |stage: &str, event: &str, millis: i64| {
            let line = json!({"timestamp": at(millis), "stage": stage, "event_id": event});
            format!("{line}\n")
        };
        let log = format!(
            "panicked at evt_1\n{}{}{}{}",
            line("plan", "evt_1", 1),
            line("plan", "evt_1", 2),
            line("process", "evt_1", 3),
            line("plan", "evt_10", 4)
        );
        assert_eq!(at_stage(&log, "plan", "evt_1"), Some(at(2)));
        assert_eq!(at_stage(&log, "plan", "evt_2"), None);
        assert_eq!(at_stage("{\"event_id\": \"evt_1\"", "plan", "evt_1"), None);
    }

    #[test]
    fn an_event_that_is_not_accepted_has_a_failed_story() {
        assert!(Story::of(&sent(503)).has_failed());
    }
}
