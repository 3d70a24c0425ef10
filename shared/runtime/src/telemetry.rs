//! What is seen of a function from outside: log lines, and metrics.
//!
//! Logs are JSON, one line for each step, on stderr. Metrics are lines in the embedded metric format on stdout.
//! Neither ever holds a secret, a body, a header or an address: only our own crates write below WARN, because the SDK
//! and the HTTP client print requests when they are asked to be talkative.

mod lines;
mod metrics;

use std::{error::Error, fmt, time::Duration};

use tracing::{Level, Metadata, level_filters::LevelFilter};
use tracing_subscriber::{
    Layer as _,
    filter::{FilterFn, filter_fn},
    layer::SubscriberExt as _,
};

pub use self::metrics::{Metrics, Unit};
use crate::env::Base;

/// The crates whose lines follow `LOG_LEVEL`. Everybody else's are written from WARN on.
const OURS: [&str; 12] = [
    "api",
    "deliverer",
    "domain",
    "dynamo",
    "flow",
    "ingress",
    "reconciler",
    "relay",
    "runtime",
    "signing",
    "sweeper",
    "worker",
];

/// Longest chain of errors that is written, in characters: deep ones repeat themselves.
const MAX_CHAIN: usize = 1500;

/// Starts the logs of this process. A second call changes nothing.
pub fn init(base: &Base) {
    let lines = lines::Lines::new(std::io::stderr).with_filter(filter(base.log_level));
    let subscriber = tracing_subscriber::registry().with(lines);
    // Only tests initialise twice.
    if tracing::subscriber::set_global_default(subscriber).is_ok() {
        std::panic::set_hook(Box::new(|panic| {
            // Not the payload: what a failed `unwrap` prints may come from a request.
            let place = panic.location().map(ToString::to_string);
            tracing::error!(place, "a panic, which is a bug at this place");
        }));
    }
}

fn filter(level: Level) -> FilterFn<impl Fn(&Metadata<'_>) -> bool> {
    // For everybody else: the less talkative of WARN and what is asked for.
    let others = level.min(Level::WARN);
    // The whole name of the crate: a prefix would let `apiary` in with `api`.
    let is_ours = |target: &str| target.split("::").next().is_some_and(|name| OURS.contains(&name));
    filter_fn(move |line| *line.level() <= if is_ours(line.target()) { level } else { others })
        .with_max_level_hint(LevelFilter::from_level(level))
}

/// An error and all that caused it, on one line: `what: why: why that`.
pub fn chain<'a>(error: &'a (dyn Error + 'static)) -> Chain<'a> {
    Chain(error)
}

/// See [`chain`].
#[derive(Clone, Copy, Debug)]
pub struct Chain<'a>(&'a (dyn Error + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.0.to_string();
        let mut next = self.0.source();
        while let Some(cause) = next {
            let cause_text = cause.to_string();
            // Some libraries print their source themselves.
            if !text.ends_with(&cause_text) {
                text = format!("{text}: {cause_text}");
            }
            next = cause.source();
        }
        text.chars()
            .take(MAX_CHAIN)
            .map(|c| if c.is_control() { ' ' } else { c })
            .try_for_each(|c| fmt::Write::write_char(f, c))
    }
}

/// One step of an event's way, as every log line tells it. What is not known is left out.
#[derive(Clone, Copy, Debug, Default)]
pub struct Step<'a> {
    /// Which step, such as `accept`.
    pub stage: &'static str,
    /// Whose event.
    pub source: Option<&'a str>,
    /// Which event.
    pub event_id: Option<&'a str>,
    /// What happened, in the provider's word.
    pub event_type: Option<&'a str>,
    /// Which attempt, counted from 1.
    pub attempt: Option<u32>,
    /// How long it took.
    pub duration: Option<Duration>,
    /// What became of it: a stable word.
    pub result: &'a str,
}

macro_rules! write_step {
    ($level:ident, $step:expr, $message:expr, $error:expr) => {{
        let (step, error): (&Step<'_>, Option<&(dyn Error + 'static)>) = ($step, $error);
        let error = error.map(|error| tracing::field::display(chain(error)));
        let duration_ms = step.duration.map(|took| (took.as_secs_f64() * 10_000.0).round() / 10.0);
        tracing::$level!(
            stage = step.stage,
            source = step.source,
            event_id = step.event_id,
            event_type = step.event_type,
            attempt = step.attempt,
            duration_ms,
            result = step.result,
            error,
            "{}",
            $message
        )
    }};
}

impl Step<'_> {
    /// Writes the step as an ordinary one.
    pub fn info(&self, message: &str) {
        write_step!(info, self, message, None);
    }

    /// Writes the step as one that somebody may want to look at.
    pub fn warn(&self, message: &str, error: Option<&(dyn Error + 'static)>) {
        write_step!(warn, self, message, error);
    }

    /// Writes the step as one that somebody has to look at.
    pub fn error(&self, message: &str, error: Option<&(dyn Error + 'static)>) {
        write_step!(error, self, message, error);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::{Arc, Mutex},
    };

    use serde_json::{Value, json};

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn written(level: Level, work: impl FnOnce()) -> Vec<Value> {
        let to = Written::default();
        let writer = to.clone();
        let lines = lines::Lines::new(move || writer.clone()).with_filter(filter(level));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), work);
        let bytes = to.0.lock().unwrap().clone();
        String::from_utf8(bytes)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    fn without_time(mut line: Value) -> Value {
        let time = line.as_object_mut().unwrap().remove("timestamp").unwrap();
        assert!(time.as_str().unwrap().parse::<jiff::Timestamp>().is_ok(), "{time}");
        line
    }

    #[derive(Debug, thiserror::Error)]
    #[error("the row could not be put")]
    struct Outer(#[source] Inner);

    #[derive(Debug, thiserror::Error)]
    #[error("the store is\nthrottled")]
    struct Inner;

    #[test]
    fn a_step_is_one_flat_line_with_the_fields_of_every_step() {
        let step = Step {
            stage: "accept",
            source: Some("stripe"),
            event_id: Some("evt_1"),
            attempt: Some(2),
            duration: Some(Duration::from_micros(12_345)),
            result: "unavailable",
            ..Step::default()
        };
        let mut lines = written(Level::INFO, || step.warn("not stored", Some(&Outer(Inner))));
        assert_eq!(lines.len(), 1);
        assert_eq!(
            without_time(lines.remove(0)),
            json!({
                "level": "WARN", "message": "not stored", "stage": "accept", "source": "stripe", "event_id": "evt_1",
                "attempt": 2, "duration_ms": 12.3, "result": "unavailable",
                "error": "the row could not be put: the store is throttled",
            })
        );
    }

    #[test]
    fn what_a_span_knows_is_on_each_of_its_lines() {
        let mut lines = written(Level::INFO, || {
            let span =
                tracing::info_span!("event", source = "stripe", event_id = tracing::field::Empty);
            let _in_it = span.enter();
            span.record("event_id", "evt_1");
            tracing::info!(source = "github", ok = true, "inner");
        });
        assert_eq!(
            without_time(lines.remove(0)),
            json!({"level": "INFO", "message": "inner", "source": "github", "event_id": "evt_1", "ok": true})
        );
    }

    /// SEC-secret-in-logs
    #[test]
    fn sdk_and_http_modules_stay_at_warn_whatever_the_level() {
        let lines = written(Level::TRACE, || {
            tracing::trace!(target: "aws_smithy_runtime::client::orchestrator", request = "canary", "sending");
            tracing::debug!(target: "hyper_util::client::legacy", "canary");
            tracing::info!(target: "aws_smithy_runtime", "canary");
            tracing::info!(target: "lambda_runtime", "canary");
            tracing::warn!(target: "hyper", "kept");
            tracing::trace!(target: "ingress::sources", "kept");
            tracing::trace!(target: "ingressive", "canary");
        });
        let messages: Vec<&str> =
            lines.iter().map(|line| line["message"].as_str().unwrap()).collect();
        assert_eq!(messages, ["kept", "kept"]);
    }

    #[test]
    fn the_log_level_holds_for_our_own_lines() {
        let count = |level| {
            written(level, || {
                tracing::error!(target: "flow", "1");
                tracing::warn!(target: "hyper", "2");
                tracing::info!(target: "flow", "3");
                tracing::debug!(target: "flow::accept", "4");
            })
            .len()
        };
        let levels = [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG];
        assert_eq!(levels.map(count), [1, 2, 3, 4]);
    }

    #[test]
    fn a_line_has_a_bounded_size() {
        let long = "é".repeat(1_000_000);
        let lines = written(Level::INFO, || tracing::info!(event_type = long, "{long}"));
        assert!(lines[0].to_string().len() < 10_000);
    }

    #[test]
    fn a_cause_that_was_already_said_is_not_said_again() {
        #[derive(Debug, thiserror::Error)]
        #[error("refused: {0}")]
        struct Loud(#[source] Inner);
        assert_eq!(chain(&Loud(Inner)).to_string(), "refused: the store is throttled");
    }
}
