//! Metrics, as lines that AWS reads out of the log (its "embedded metric format").

use std::{
    collections::BTreeMap,
    io::{self, Write as _},
    sync::{Mutex, PoisonError},
};

use jiff::Timestamp;
use serde_json::{Map, Value, json};

/// The namespace of all our metrics.
const NAMESPACE: &str = "Postern";

/// Most values of one metric that are read from one line.
const MAX_VALUES: usize = 100;

/// What a metric counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Things.
    Count,
    /// Milliseconds.
    Milliseconds,
    /// Seconds.
    Seconds,
    /// A ratio.
    None,
}

impl Unit {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Count => "Count",
            Self::Milliseconds => "Milliseconds",
            Self::Seconds => "Seconds",
            Self::None => "None",
        }
    }
}

/// The metrics of one invocation. They are kept until [`Metrics::flush`], because a frozen sandbox writes nothing: call
/// it before the answer is given.
///
/// Each value counts for the deployment, and, if it has a source, for that source as well. A source that is named here
/// must be a configured one: each name is a metric of its own, and costs.
#[derive(Debug)]
pub struct Metrics {
    env: String,
    kept: Mutex<BTreeMap<Option<String>, BTreeMap<&'static str, Series>>>,
}

#[derive(Debug)]
struct Series {
    unit: Unit,
    values: Vec<f64>,
}

impl Metrics {
    /// No metrics yet, of the deployment `env`.
    pub fn new(env: &str) -> Self {
        Self { env: env.to_owned(), kept: Mutex::default() }
    }

    /// Counts `by` more things.
    pub fn count(&self, name: &'static str, source: Option<&str>, by: u32) {
        self.with(name, Unit::Count, source, |values| match values.first_mut() {
            Some(total) => *total += f64::from(by),
            None => values.push(f64::from(by)),
        });
    }

    /// Keeps one more value: of a duration, an age, a level.
    pub fn record(&self, name: &'static str, unit: Unit, source: Option<&str>, value: f64) {
        self.with(name, unit, source, |values| values.push(value));
    }

    /// Writes what was kept to stdout, and forgets it.
    pub fn flush(&self, now: Timestamp) {
        let lines = self.lines(now);
        if !lines.is_empty() {
            // Metrics that cannot be written have nobody to tell.
            let _ = writeln!(io::stdout().lock(), "{}", lines.join("\n"));
        }
    }

    /// What was kept, as lines, and forgets it.
    pub fn lines(&self, now: Timestamp) -> Vec<String> {
        let kept = std::mem::take(&mut *self.kept.lock().unwrap_or_else(PoisonError::into_inner));
        kept.iter()
            .flat_map(|(source, metrics)| self.of_source(source.as_deref(), metrics, now))
            .collect()
    }

    fn with(
        &self,
        name: &'static str,
        unit: Unit,
        source: Option<&str>,
        change: impl FnOnce(&mut Vec<f64>),
    ) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let metrics = kept.entry(source.map(str::to_owned)).or_default();
        change(&mut metrics.entry(name).or_insert(Series { unit, values: Vec::new() }).values);
    }

    fn of_source(
        &self,
        source: Option<&str>,
        metrics: &BTreeMap<&'static str, Series>,
        now: Timestamp,
    ) -> Vec<String> {
        let lines = metrics
            .values()
            .map(|series| series.values.len().div_ceil(MAX_VALUES))
            .max()
            .unwrap_or(0);
        (0..lines).map(|line| self.line(source, metrics, line, now).to_string()).collect()
    }

    fn line(
        &self,
        source: Option<&str>,
        metrics: &BTreeMap<&'static str, Series>,
        line: usize,
        now: Timestamp,
    ) -> Value {
        let mut root = Map::new();
        let mut described = Vec::new();
        for (name, series) in metrics {
            let values: Vec<f64> =
                series.values.iter().copied().skip(line * MAX_VALUES).take(MAX_VALUES).collect();
            let value = match values.as_slice() {
                [] => continue,
                [one] => json!(one),
                many => json!(many),
            };
            root.insert((*name).to_owned(), value);
            described.push(json!({"Name": name, "Unit": series.unit.as_str()}));
        }
        root.insert("env".to_owned(), json!(self.env));
        let mut dimensions = vec![json!(["env"])];
        if let Some(source) = source {
            root.insert("source".to_owned(), json!(source));
            dimensions.push(json!(["env", "source"]));
        }
        root.insert(
            "_aws".to_owned(),
            json!({
                "Timestamp": now.as_millisecond(),
                "CloudWatchMetrics": [{"Namespace": NAMESPACE, "Dimensions": dimensions, "Metrics": described}],
            }),
        );
        Value::Object(root)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(metrics: &Metrics) -> Vec<Value> {
        let now = Timestamp::from_second(1_760_000_000).unwrap();
        metrics.lines(now).iter().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn counts_add_up_and_values_are_kept_apart() {
        let metrics = Metrics::new("dev");
        metrics.count("webhooks_received_total", Some("stripe"), 1);
        metrics.count("webhooks_received_total", Some("stripe"), 2);
        metrics.record("webhooks_processing_latency", Unit::Milliseconds, Some("stripe"), 1.5);
        metrics.record("webhooks_processing_latency", Unit::Milliseconds, Some("stripe"), 2.0);
        let expected = json!({
            "_aws": {
                "Timestamp": 1_760_000_000_000_i64,
                "CloudWatchMetrics": [{
                    "Namespace": "Postern",
                    "Dimensions": [["env"], ["env", "source"]],
                    "Metrics": [
                        {"Name": "webhooks_processing_latency", "Unit": "Milliseconds"},
                        {"Name": "webhooks_received_total", "Unit": "Count"},
                    ],
                }],
            },
            "env": "dev",
            "source": "stripe",
            "webhooks_processing_latency": [1.5, 2.0],
            "webhooks_received_total": 3.0,
        });
        assert_eq!(lines(&metrics), [expected]);
    }

    #[test]
    fn a_value_without_a_source_counts_for_the_deployment_only() {
        let metrics = Metrics::new("dev");
        metrics.count("a_total", None, 1);
        metrics.count("a_total", Some("s"), 1);
        let lines = lines(&metrics);
        let dimensions = |line: &Value| line["_aws"]["CloudWatchMetrics"][0]["Dimensions"].clone();
        assert_eq!(
            lines.iter().map(dimensions).collect::<Vec<_>>(),
            [json!([["env"]]), json!([["env"], ["env", "source"]])]
        );
        assert!(lines[0].get("source").is_none());
    }

    #[test]
    fn what_was_written_is_forgotten() {
        let metrics = Metrics::new("dev");
        assert!(lines(&metrics).is_empty());
        metrics.count("a_total", None, 1);
        assert_eq!(lines(&metrics).len(), 1);
        assert!(lines(&metrics).is_empty());
    }

    #[test]
    fn more_values_than_a_line_takes_go_into_the_next_line() {
        let metrics = Metrics::new("dev");
        for n in 0..250_u32 {
            metrics.record("age", Unit::Seconds, None, f64::from(n));
        }
        metrics.count("a_total", None, 1);
        let lines = lines(&metrics);
        let sizes: Vec<usize> =
            lines.iter().map(|line| line["age"].as_array().unwrap().len()).collect();
        assert_eq!(sizes, [100, 100, 50]);
        let counted = lines.iter().filter(|line| line.get("a_total").is_some()).count();
        assert_eq!(counted, 1);
    }
}
