//! What the README says of retries is what the code does.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

use std::{fmt::Write as _, time::Duration};

use domain::{
    breaker::{Breaker, Limits},
    delivery::{self, Cause, Next, Outcome, Schedule, Steer},
    retry::Backoff,
};
use jiff::Timestamp;

const README: &str = include_str!("../README.md");
const TEMPLATE: &str = include_str!("../../../template.yaml");

/// The default of one of the template's parameters, in milliseconds.
fn default_of(parameter: &str) -> Duration {
    let (_, rest) = TEMPLATE.split_once(&format!("\n  {parameter}:\n")).expect(parameter);
    let (_, rest) = rest.split_once("Default: ").unwrap();
    let value = rest.lines().next().unwrap().trim_matches('"');
    Duration::from_millis(value.parse().unwrap())
}

fn schedule() -> Schedule {
    let backoff = Backoff {
        floor: default_of("RetryFloorMs"),
        base: default_of("RetryBaseMs"),
        cap: default_of("RetryCapMs"),
    };
    Schedule { backoff, retry_after_cap: default_of("RetryAfterCapMs") }
}

fn at(offset: Duration) -> Timestamp {
    Timestamp::UNIX_EPOCH + offset
}

/// In its largest unit and the one below.
fn spelled(wait: Duration) -> String {
    let mut rest = wait.as_secs_f64().round();
    let mut words = Vec::new();
    for (unit, name) in [(86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s")] {
        let whole = (rest / unit).floor();
        rest -= whole * unit;
        if whole > 0.0 || !words.is_empty() {
            words.push((whole, name));
        }
    }
    words.truncate(2);
    words.retain(|(whole, _)| *whole > 0.0);
    let words: Vec<_> = words.iter().map(|(whole, name)| format!("{whole} {name}")).collect();
    if words.is_empty() { "0 s".to_owned() } else { words.join(" ") }
}

/// When each attempt of a delivery that always fails begins, with waits that are all this part of the longest.
fn attempts(jitter: f64) -> Vec<Duration> {
    let (schedule, deadline) = (schedule(), at(default_of("DeliveryDeadlineMs")));
    let (mut begins, broken) = (vec![Duration::ZERO], Outcome::answered(500, None, None));
    loop {
        let now = at(*begins.last().unwrap());
        let number = u32::try_from(begins.len()).unwrap();
        match delivery::after(&schedule, number, &broken, deadline, now, jitter) {
            Next::RetryAt(then) => {
                let since = then.duration_since(at(Duration::ZERO));
                begins.push(Duration::try_from(since).unwrap());
            }
            Next::Dead => return begins,
            other => panic!("{other:?}"),
        }
    }
}

fn schedule_table() -> String {
    let mut table = "| attempt | after the one before: at most | on average | since the first: at most | on average |\n|---|---|---|---|---|\n| 1 | | | 0 s | 0 s |\n".to_owned();
    let (longest, average) = (attempts(1.0), attempts(0.5));
    for (n, pair) in longest.windows(2).zip(average.windows(2)).enumerate() {
        let ([before, most], [mean_before, mean]) = pair else { continue };
        let (after, mean_after) = (spelled(*most - *before), spelled(*mean - *mean_before));
        let (most, mean) = (spelled(*most), spelled(*mean));
        writeln!(table, "| {} | {after} | {mean_after} | {most} | {mean} |", n + 2).unwrap();
    }
    let (fewest, usual) = (longest.len(), average.len());
    writeln!(table, "\nWith waits as long as they can be there are {fewest} attempts, with average ones {usual}.").unwrap();
    table
}

fn what_follows(outcome: &Outcome) -> (&'static str, &'static str) {
    let schedule = schedule();
    let deadline = at(default_of("DeliveryDeadlineMs"));
    let next = delivery::after(&schedule, 1, outcome, deadline, at(Duration::ZERO), 1.0);
    let soon = at(schedule.backoff.base);
    let then = match (next, outcome.disables()) {
        (Next::Succeeded, None) => "succeeded",
        (Next::Succeeded, Some(_)) => "succeeded; the endpoint is disabled",
        (Next::RetryAt(at), _) if at == soon => "tried again",
        (Next::RetryAt(_), _) => "tried again, not before it asked for; the lane waits too",
        (Next::Dead, _) => "`dead` at once",
        (Next::Gone(_), _) => "held; the endpoint is disabled",
        (Next::Unknown, _) => "`dead`: a person has to ask",
    };
    let blamed = outcome.blames_endpoint() && !outcome.is_success();
    (then, if blamed { "yes" } else { "no" })
}

fn outcome_table() -> String {
    let status = |list: &[u16]| list.iter().map(|s| Outcome::answered(*s, None, None)).collect();
    let steered = |list: &[u16], steer| -> Vec<Outcome> {
        list.iter().map(|status| Outcome::answered(*status, None, Some(steer))).collect()
    };
    let causes =
        |list: &[Cause]| list.iter().map(|cause| Outcome::Failed { cause: *cause }).collect();
    let later = |list: &[u16]| {
        list.iter().map(|status| Outcome::answered(*status, Some(120_000), None)).collect()
    };
    let rows: [(&str, Vec<Outcome>); 15] = [
        ("2xx", status(&[200, 201, 202, 204, 299])),
        ("2xx with `webhook-delivery: disable`", steered(&[200, 204], Steer::Disable)),
        ("410", status(&[410])),
        (
            "another status with `webhook-delivery: disable`",
            steered(&[400, 404, 500, 503], Steer::Disable),
        ),
        (
            "another status with `webhook-delivery: abort`",
            steered(&[400, 404, 422, 500], Steer::Abort),
        ),
        ("429, 503 with `Retry-After` (seconds, or a date)", later(&[429, 503])),
        (
            "other 4xx",
            status(&[400, 401, 403, 404, 405, 408, 409, 413, 415, 421, 422, 423, 425, 429, 451]),
        ),
        ("5xx", status(&[500, 502, 503, 504, 599])),
        (
            "1xx, 3xx: a redirect is never followed",
            [status(&[101, 300, 301, 302, 303, 304, 307, 308]), causes(&[Cause::Redirect])]
                .concat(),
        ),
        (
            "no answer: DNS, refused, connect time-out, TLS, time-out, reset, not HTTP",
            causes(&[
                Cause::Dns,
                Cause::Refused,
                Cause::ConnectTimeout,
                Cause::TlsExpired,
                Cause::TlsWrongHost,
                Cause::TlsUnknownIssuer,
                Cause::Tls,
                Cause::Timeout,
                Cause::Reset,
                Cause::BadAnswer,
            ]),
        ),
        ("an address or a URL that is not allowed", causes(&[Cause::BlockedAddress])),
        ("no token from the endpoint's own authorization server", causes(&[Cause::Token])),
        (
            "queue or bus: absent, denied, throttled, unavailable",
            causes(&[Cause::NoSuchTarget, Cause::Denied, Cause::Throttled, Cause::Unavailable]),
        ),
        ("queue or bus: what it can never take", causes(&[Cause::TooLarge, Cause::Unacceptable])),
        ("something of our own: a key, a body", causes(&[Cause::Internal])),
    ];
    let mut table =
        "| what came back | then | counts against the endpoint |\n|---|---|---|\n".to_owned();
    for (name, outcomes) in rows {
        let first = what_follows(outcomes.first().unwrap());
        assert!(
            outcomes.iter().all(|outcome| what_follows(outcome) == first),
            "{name}: {outcomes:?}"
        );
        writeln!(table, "| {name} | {} | {} |", first.0, first.1).unwrap();
    }
    table
}

fn breaker_line() -> String {
    let limits = Limits {
        opens_after: u32::try_from(default_of("BreakerOpensAfter").as_millis()).unwrap(),
        probe: default_of("BreakerProbeMs"),
        probe_cap: default_of("BreakerProbeCapMs"),
        retry_after_cap: default_of("RetryAfterCapMs"),
    };
    let broken = Outcome::answered(500, None, None);
    let (mut breaker, mut now, mut waits) = (Breaker::default(), at(Duration::ZERO), Vec::new());
    let mut failures = 0;
    while waits.len() < 6 {
        breaker = breaker.after(&limits, &broken, now);
        failures += u32::from(waits.is_empty());
        if let Some(until) = breaker.open(now) {
            waits.push(spelled(Duration::try_from(until.duration_since(now)).unwrap()));
            now = until;
        }
    }
    format!(
        "Opens after {failures} failures in a row; then one probe after {}.\n",
        waits.join(", ")
    )
}

fn check(name: &str, generated: &str) {
    let (begins, ends) =
        (format!("<!-- {name}, from the code -->\n"), format!("<!-- end of {name} -->"));
    let (_, rest) = README.split_once(&begins).expect(name);
    let (written, _) = rest.split_once(&ends).expect(name);
    assert_eq!(written, generated, "the README's {name} should be:\n{generated}");
}

/// RTY-attempt-count: attempt 1 is the first request.
#[test]
fn the_schedule_is_as_the_readme_says() {
    check("schedule", &schedule_table());
}

/// RTY-status-classes
#[test]
fn what_follows_from_an_answer_is_as_the_readme_says() {
    check("outcomes", &outcome_table());
}

#[test]
fn the_breaker_is_as_the_readme_says() {
    check("breaker", &breaker_line());
}
