//! A story for people: what happened to an event, in order, with what is still to come.

use std::io::{self, Write};

use serde_json::Value;

use crate::{
    complaint::{printable, whole},
    endpoints::place,
    print::text,
};

/// The story of a received event, and of the outgoing events that followed from it.
pub(super) fn received(out: &mut dyn Write, story: &Value) -> io::Result<()> {
    let (source, event, kind) =
        (text(story, "source"), text(story, "event_id"), text(story, "event_type"));
    writeln!(out, "{event} of {source} ({kind}) is {}", text(story, "status"))?;
    let (origin, bytes) = (text(story, "origin"), text(story, "body_bytes"));
    line(out, "", at(story, "/received_at"), &format!("received by {origin}, {bytes} bytes"))?;
    if let Some(parent) = at(story, "/parent") {
        let words = format!("came with others in one request: {}", printable(parent));
        line(out, "", None, &words)?;
    }
    if let Some(delivery) = at(story, "/delivery_id") {
        line(out, "", None, &format!("the provider's delivery: {}", printable(delivery)))?;
    }
    if let Some(other) = story.get("other_bodies").filter(|other| other.is_object()) {
        let (count, bytes) = (text(other, "count"), text(other, "length"));
        let words =
            format!("{}; noted: {count}; the last one, {bytes} bytes", text(other, "meaning"));
        line(out, "", at(other, "/at"), &words)?;
        let (first, last) = (text(story, "body_sha256"), text(other, "sha256"));
        line(out, "", None, &format!("sha256 of the first: {first}"))?;
        line(out, "", None, &format!("sha256 of the last:  {last}"))?;
    }
    let cycle = story.get("cycle").and_then(Value::as_u64).unwrap_or_default();
    if cycle > 0 {
        line(out, "", None, &format!("times it was armed again: {cycle}"))?;
    }
    let attempts = story.get("attempts").and_then(Value::as_u64).unwrap_or_default();
    let error = story.get("last_error").filter(|error| error.is_object());
    let why = error.map(|error| format!("{}: {}", text(error, "code"), text(error, "message")));
    let is_there = |name: &str| at(story, name).is_some();
    match why {
        why if attempts > 0 => {
            let why = why.unwrap_or_else(|| "-".to_owned());
            line(out, "", None, &format!("failed attempts: {attempts}; the last one: {why}"))?;
        }
        Some(why) if is_there("/parked_at") => line(out, "", None, &format!("why: {why}"))?,
        // Nothing has failed: it waits for what is named. An event that was armed again keeps an older error, but no next step.
        Some(_) if is_there("/next_action") && !is_there("/finished_at") => {
            let what = at(story, "/last_error/message").map(printable).unwrap_or_default();
            line(out, "", None, &format!("waits: {what}"))?;
        }
        Some(why) => line(out, "", None, &format!("an earlier error: {why}"))?,
        None => {}
    }
    if let Some(parked) = at(story, "/parked_at") {
        line(out, "", Some(parked), "parked; mend the cause, then `postern events replay` it")?;
    }
    if let Some(due) = at(story, "/due_at") {
        line(out, "", Some(due), "looked for by the sweeper, if nothing comes first")?;
    }
    if let Some(next) = at(story, "/next_action") {
        line(out, "", None, &format!("next: {}", whole(next)))?;
    }
    if let Some(finished) = at(story, "/finished_at") {
        line(out, "", Some(finished), "finished")?;
    }
    for result in items(story, "results") {
        line(out, "", None, &format!("{}: {}", text(result, "what"), became(result)))?;
    }
    for event in items(story, "outgoing") {
        outgoing(out, event, "  ")?;
    }
    Ok(())
}

/// The story of an outgoing event and its deliveries.
pub(super) fn outgoing(out: &mut dyn Write, story: &Value, indent: &str) -> io::Result<()> {
    let (id, kind, about) = (text(story, "id"), text(story, "type"), text(story, "aggregate_id"));
    writeln!(out, "{indent}{id} ({kind}) about {about}, to {}", text(story, "tenant"))?;
    line(out, indent, at(story, "/occurred_at"), "written to the outbox")?;
    match at(story, "/relayed_at") {
        None => line(out, indent, None, "not relayed yet")?,
        Some(time) if story.get("unmatched") == Some(&Value::Bool(true)) => {
            line(out, indent, Some(time), "relayed; no endpoint wanted it")?;
        }
        Some(time) => line(out, indent, Some(time), "relayed")?,
    }
    for delivery in items(story, "deliveries") {
        let (endpoint, place) = (text(delivery, "endpoint"), place(delivery));
        let unknown = delivery.get("outcome_unknown") == Some(&Value::Bool(true));
        let why = if unknown { ": outcome unknown" } else { "" };
        writeln!(out, "{indent}  {endpoint} {place} is {}{why}", text(delivery, "state"))?;
        for attempt in items(delivery, "log") {
            let (number, took) = (text(attempt, "number"), text(attempt, "duration_ms"));
            let words = match at(attempt, "/outcome/cause") {
                Some("outcome_unknown") => {
                    format!("attempt {number}: nobody knows whether it happened")
                }
                _ => format!("attempt {number} {} after {took} ms", outcome(attempt)),
            };
            line(out, indent, at(attempt, "/at"), &words)?;
        }
        if let Some(begun) = at(delivery, "/begun_at") {
            line(out, indent, Some(begun), "an attempt began, and its end is not written")?;
        }
        if let Some(next) = at(delivery, "/next_attempt_at") {
            line(out, indent, Some(next), "the next attempt is due")?;
        }
        if let Some(next) = at(delivery, "/next_action") {
            line(out, indent, None, &format!("next: {}", whole(next)))?;
        }
    }
    Ok(())
}

/// What became of a change.
fn became(result: &Value) -> String {
    let word = text(result, "result");
    let words = match word.as_str() {
        "stale" => "stale; it was newer already, so nothing changed",
        "duplicate_effect" => "done before; it is not done again",
        "already_emitted" => "written before, under this id",
        "refused" => "refused",
        "covered" => "covered; its provider was asked after the event came",
        other => other,
    };
    match at(result, "/why") {
        Some(why) => format!("{words} ({})", printable(why)),
        None => words.to_owned(),
    }
}

fn outcome(attempt: &Value) -> String {
    let outcome = attempt.get("outcome").unwrap_or(&Value::Null);
    match outcome.get("kind").and_then(Value::as_str) {
        Some("answered") => format!("was answered {}", text(outcome, "status")),
        _ => format!("failed ({})", text(outcome, "cause").replace('_', " ")),
    }
}

fn items<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    value.get(name).and_then(Value::as_array).into_iter().flatten()
}

fn at<'a>(value: &'a Value, pointer: &str) -> Option<&'a str> {
    value.pointer(pointer).and_then(Value::as_str)
}

/// A time, or the room for one, and what happened then.
fn line(out: &mut dyn Write, indent: &str, time: Option<&str>, words: &str) -> io::Result<()> {
    let time = time.and_then(|time| time.parse::<jiff::Timestamp>().ok());
    let time = time.map(|time| format!("{time:.3}")).unwrap_or_default();
    writeln!(out, "{indent}    {time:<24}  {words}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(story: &Value) -> String {
        let mut out = Vec::new();
        received(&mut out, story).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_story_of_a_delivered_event_reads_like_this() {
        let story = json!({
            "source": "stripe-demo", "event_id": "evt_1", "event_type": "invoice.paid", "status": "processed",
            "origin": "webhook", "received_at": "2026-09-21T14:13:20.0017Z", "finished_at": "2026-09-21T14:13:20.040Z",
            "parent": "batch-1", "delivery_id": "d\u{1b}1",
            "attempts": 0, "cycle": 0, "body_bytes": 230, "due_at": null,
            "results": [
                {"what": "object order 7", "result": "refused", "why": "PAID → FAILED is not a move"},
                {"what": "event evt_2", "result": "applied"},
            ],
            "outgoing": [{
                "id": "evt_2", "tenant": "demo", "type": "invoice.paid", "aggregate_id": "in_1",
                "occurred_at": "2026-09-21T14:13:20.030Z", "relayed_at": "2026-09-21T14:13:20.055Z", "unmatched": false,
                "deliveries": [{
                    "endpoint": "ep_1", "url": "https://127.0.0.1:8703/webhooks/…", "state": "pending",
                    "attempts": 2, "next_attempt_at": "2026-09-21T14:14:20Z", "log": [
                        {"number": 1, "at": "2026-09-21T14:13:20.060Z", "duration_ms": 7,
                         "outcome": {"kind": "answered", "status": 503}},
                        {"number": 2, "at": "2026-09-21T14:13:50Z", "duration_ms": 5000,
                         "outcome": {"kind": "failed", "cause": "connect_timeout"}},
                    ],
                }],
            }],
        });
        insta::assert_snapshot!(told(&story), @r"
        evt_1 of stripe-demo (invoice.paid) is processed
            2026-09-21T14:13:20.001Z  received by webhook, 230 bytes
                                      came with others in one request: batch-1
                                      the provider's delivery: d\u{1b}1
            2026-09-21T14:13:20.040Z  finished
                                      object order 7: refused (PAID → FAILED is not a move)
                                      event evt_2: applied
          evt_2 (invoice.paid) about in_1, to demo
              2026-09-21T14:13:20.030Z  written to the outbox
              2026-09-21T14:13:20.055Z  relayed
            ep_1 https://127.0.0.1:8703/webhooks/… is pending
              2026-09-21T14:13:20.060Z  attempt 1 was answered 503 after 7 ms
              2026-09-21T14:13:50.000Z  attempt 2 failed (connect timeout) after 5000 ms
              2026-09-21T14:14:20.000Z  the next attempt is due
        ");
    }

    /// C29: what was done where, and what a person is asked to do.
    #[test]
    fn the_story_of_an_effect_says_what_nobody_knows_and_what_to_do() {
        let delivery = |place: &str, at: &str, more: &Value| {
            let mut delivery = json!({
                "endpoint": "ep_1", "state": "succeeded", "attempts": 1,
                "log": [{"number": 1, "at": "2026-09-21T14:13:20.060Z", "duration_ms": 7,
                         "outcome": {"kind": "answered", "status": 200}}],
            });
            delivery[place] = at.into();
            for (name, value) in more.as_object().unwrap() {
                delivery[name] = value.clone();
            }
            delivery
        };
        let unknown = json!({
            "state": "dead", "outcome_unknown": true, "next_action": "ask the target",
            "log": [
                {"number": 1, "at": "2026-09-21T14:13:20.060Z", "duration_ms": 20000,
                 "outcome": {"kind": "failed", "cause": "timeout"}},
                {"number": 1, "at": "2026-09-21T14:13:40.060Z", "duration_ms": 0,
                 "outcome": {"kind": "failed", "cause": "outcome_unknown"}},
            ],
        });
        let begun = json!({"state": "pending", "begun_at": "2026-09-21T14:13:20Z", "log": []});
        let story = json!({
            "id": "evt_2", "tenant": "internal", "type": "charge", "aggregate_id": "in_1",
            "occurred_at": "2026-09-21T14:13:20.030Z", "relayed_at": "2026-09-21T14:13:20.055Z",
            "deliveries": [
                delivery("queue", "https://sqs.eu-central-1.amazonaws.com/123456789012/mail", &json!({})),
                delivery("bus", "arn:aws:events:eu-central-1:123456789012:event-bus/b", &begun),
                delivery("url", "https://payments.example/…", &unknown),
            ],
        });
        let mut out = Vec::new();
        outgoing(&mut out, &story, "").unwrap();
        insta::assert_snapshot!(String::from_utf8(out).unwrap(), @r"
        evt_2 (charge) about in_1, to internal
            2026-09-21T14:13:20.030Z  written to the outbox
            2026-09-21T14:13:20.055Z  relayed
          ep_1 queue https://sqs.eu-central-1.amazonaws.com/123456789012/mail is succeeded
            2026-09-21T14:13:20.060Z  attempt 1 was answered 200 after 7 ms
          ep_1 bus arn:aws:events:eu-central-1:123456789012:event-bus/b is pending
            2026-09-21T14:13:20.000Z  an attempt began, and its end is not written
          ep_1 https://payments.example/… is dead: outcome unknown
            2026-09-21T14:13:20.060Z  attempt 1 failed (timeout) after 20000 ms
            2026-09-21T14:13:40.060Z  attempt 1: nobody knows whether it happened
                                      next: ask the target
        ");
    }

    #[test]
    fn the_story_of_a_parked_event_says_why_and_what_to_do() {
        let story = json!({
            "source": "s", "event_id": "a\u{1b}b", "event_type": null, "status": "dead_letter", "origin": "webhook",
            "received_at": "2026-09-21T14:13:20Z", "parked_at": "2026-09-21T15:13:20Z", "attempts": 12, "cycle": 1,
            "body_bytes": 2, "last_error": {"code": "handler_failed", "message": "no such\u{1b}invoice"},
            "results": [], "outgoing": [],
        });
        insta::assert_snapshot!(told(&story), @r"
        a\u{1b}b of s (-) is dead_letter
            2026-09-21T14:13:20.000Z  received by webhook, 2 bytes
                                      times it was armed again: 1
                                      failed attempts: 12; the last one: handler_failed: no such\u{1b}invoice
            2026-09-21T15:13:20.000Z  parked; mend the cause, then `postern events replay` it
        ");
    }

    #[test]
    fn the_story_of_a_waiting_event_says_what_for_and_its_next_step_whole() {
        let next = format!("{}run\u{1b}: postern sources tokens add s", "wait ".repeat(60));
        let mut story = json!({
            "source": "s", "event_id": "evt_1", "event_type": "x", "status": "pending", "origin": "webhook",
            "received_at": "2026-09-21T14:13:20Z", "due_at": "2026-09-21T14:23:20Z", "attempts": 0, "body_bytes": 2,
            "last_error": {"code": "no_token", "message": "there is no token"}, "next_action": next,
        });
        let waiting = told(&story);
        assert!(waiting.contains("  waits: there is no token\n"), "{waiting}");
        let whole = waiting.ends_with("wait run\\u{1b}: postern sources tokens add s\n");
        assert!(whole, "{waiting}");
        // Armed again: what it died of before is no reason to wait.
        story["next_action"] = Value::Null;
        let again = told(&story);
        assert!(again.contains("  an earlier error: no_token: there is no token\n"), "{again}");
        story["parked_at"] = "2026-09-21T15:13:20Z".into();
        let parked = told(&story);
        assert!(parked.contains("  why: no_token: there is no token\n"), "{parked}");
    }

    /// C22, D13, D17, L11: what did not happen is told as plainly as what did.
    #[test]
    fn the_story_says_what_was_refused_and_what_had_happened_before() {
        let story = json!({
            "source": "s", "event_id": "evt_1", "event_type": "x", "status": "processed", "origin": "webhook",
            "received_at": "2026-09-21T14:13:20Z", "body_bytes": 58, "outgoing": [],
            "results": [
                {"what": "object order or_1", "result": "refused", "why": "PAID → FAILED is not\u{1b} a move"},
                {"what": "object order or_2", "result": "stale"},
                {"what": "operation credit#in_1", "result": "duplicate_effect"},
                {"what": "event evt_2", "result": "already_emitted"},
                {"what": "object order or_3", "result": "covered"},
                {"what": "object order or_4", "result": "applied"},
            ],
        });
        insta::assert_snapshot!(told(&story), @r"
        evt_1 of s (x) is processed
            2026-09-21T14:13:20.000Z  received by webhook, 58 bytes
                                      object order or_1: refused (PAID → FAILED is not\u{1b} a move)
                                      object order or_2: stale; it was newer already, so nothing changed
                                      operation credit#in_1: done before; it is not done again
                                      event evt_2: written before, under this id
                                      object order or_3: covered; its provider was asked after the event came
                                      object order or_4: applied
        ");
    }

    /// ING-same-id-other-body
    #[test]
    fn a_story_with_another_body_under_its_id_shows_both_hashes() {
        let story = json!({
            "source": "s", "event_id": "evt_1", "event_type": "x", "status": "processed", "origin": "webhook",
            "received_at": "2026-09-21T14:13:20Z", "body_bytes": 58, "body_sha256": "aa11", "results": [], "outgoing": [],
            "other_bodies": {
                "count": 2, "sha256": "bb22", "at": "2026-09-21T14:20:00Z", "length": 61,
                "meaning": "another body came under this id; the first one stands",
            },
        });
        insta::assert_snapshot!(told(&story), @r"
        evt_1 of s (x) is processed
            2026-09-21T14:13:20.000Z  received by webhook, 58 bytes
            2026-09-21T14:20:00.000Z  another body came under this id; the first one stands; noted: 2; the last one, 61 bytes
                                      sha256 of the first: aa11
                                      sha256 of the last:  bb22
        ");
    }

    #[test]
    fn a_story_that_is_hardly_one_is_told_all_the_same() {
        assert!(told(&json!({})).starts_with("- of - (-) is -"));
        assert!(told(&json!(null)).starts_with("- of - (-) is -"));
    }
}
