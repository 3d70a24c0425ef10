//! What the deliverer is told by its environment.

use std::{path::PathBuf, time::Duration};

use domain::{
    breaker::Limits, delivery::Schedule, destination::BusArn, endpoint::HealthLimits,
    retry::Backoff,
};
use runtime::{
    aws::Settings,
    env::{BadEnv, Base, Env},
};

use crate::{drain::Rules, transport::Bounds};

/// The configuration, read once at cold start.
#[derive(Clone, Debug)]
pub struct Config {
    /// What every function reads.
    pub base: Base,
    /// Region, credentials, endpoints.
    pub aws: Settings,
    /// The table of outgoing events.
    pub outbox_table: String,
    /// The table of lanes and deliveries.
    pub deliveries_table: String,
    /// The table with the endpoints.
    pub registry_table: String,
    /// Where large payloads are.
    pub bodies_url: String,
    /// Where wake messages go.
    pub wake_queue_url: String,
    /// The operators' bus.
    pub ops_bus: BusArn,
    /// Shards of the index of sleeping lanes.
    pub wake_shards: u16,
    /// How long a finished delivery stays.
    pub delivery_retention: Duration,
    /// The rules of draining.
    pub rules: Rules,
    /// How long a pass over one lane begins new attempts.
    pub pass: Duration,
    /// Lanes that are drained at once.
    pub lanes_per_invocation: usize,
    /// The bounds of an attempt.
    pub bounds: Bounds,
    /// One more root certificate, on the local host only.
    pub extra_root: Option<PathBuf>,
}

const SECOND: u64 = 1000;
const DAY: u64 = 24 * 60 * 60 * SECOND;

impl Config {
    /// Reads the environment of this process.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn from_env() -> Result<Self, BadEnv> {
        Env::process().parse(Self::read)
    }

    /// Reads an environment.
    pub fn read(env: &mut Env) -> Option<Self> {
        let base = Base::read(env);
        let aws = Settings::read(env);
        let outbox_table = env.text("OUTBOX_TABLE");
        let deliveries_table = env.text("DELIVERIES_TABLE");
        let registry_table = env.text("REGISTRY_TABLE");
        let bodies_url = env.text("BODIES_URL");
        let wake_queue_url = env.url("WAKE_QUEUE_URL");
        let ops_bus = env.parsed("OPS_BUS_ARN", "the ARN of an event bus");
        let wake_shards = env.number("WAKE_SHARDS", 1..=64);
        let delivery_retention = env.millis("DELIVERY_RETENTION_MS", SECOND..=3660 * DAY);
        let rules = rules(env);
        let pass = env.millis("LANE_PASS_MS", 1..=600 * SECOND);
        let lanes_per_invocation = env.number("LANES_PER_INVOCATION", 1..=10);
        let bounds = bounds(env);
        let extra_root = env.optional_text("LOCAL_EXTRA_ROOT").map(PathBuf::from);
        Some(Self {
            base: base?,
            aws: aws?,
            outbox_table: outbox_table?,
            deliveries_table: deliveries_table?,
            registry_table: registry_table?,
            bodies_url: bodies_url?,
            wake_queue_url: wake_queue_url?,
            ops_bus: ops_bus?,
            wake_shards: wake_shards?,
            delivery_retention: delivery_retention?,
            rules: rules?,
            pass: pass?,
            lanes_per_invocation: lanes_per_invocation?,
            bounds: bounds?,
            extra_root,
        })
    }
}

fn rules(env: &mut Env) -> Option<Rules> {
    let lease = env.millis("LANE_LEASE_MS", SECOND..=3600 * SECOND);
    let floor = env.millis("RETRY_FLOOR_MS", 1..=DAY);
    let retry = env.millis("RETRY_BASE_MS", 1..=DAY);
    let cap = env.millis("RETRY_CAP_MS", 1..=30 * DAY);
    let deadline = env.millis("DELIVERY_DEADLINE_MS", SECOND..=30 * DAY);
    let retry_after_cap = env.millis("RETRY_AFTER_CAP_MS", 1..=30 * DAY);
    let opens_after = env.number("BREAKER_OPENS_AFTER", 1..=1000);
    let probe = env.millis("BREAKER_PROBE_MS", 1..=DAY);
    let probe_cap = env.millis("BREAKER_PROBE_CAP_MS", 1..=DAY);
    let disable_after = env.millis("DISABLE_AFTER_MS", SECOND..=365 * DAY);
    let hold = env.millis("HOLD_MS", SECOND..=365 * DAY);
    let concurrency = env.number("ENDPOINT_CONCURRENCY", 1..=100);
    if cap.zip(deadline).is_some_and(|(cap, deadline)| cap > deadline) {
        // The first wait that is drawn above the deadline would be the end of a delivery.
        return env.problem("RETRY_CAP_MS", "is more than DELIVERY_DEADLINE_MS; it should be less");
    }
    let retry_after_cap = retry_after_cap?;
    Some(Rules {
        lease: lease?,
        schedule: Schedule {
            backoff: Backoff { floor: floor?, base: retry?, cap: cap? },
            retry_after_cap,
        },
        breaker: Limits {
            opens_after: opens_after?,
            probe: probe?,
            probe_cap: probe_cap?,
            retry_after_cap,
        },
        tried_for: deadline?,
        health: HealthLimits { disable_after: disable_after? },
        hold: hold?,
        concurrency: concurrency?,
    })
}

fn bounds(env: &mut Env) -> Option<Bounds> {
    let connect = env.millis("CONNECT_TIMEOUT_MS", 1..=60 * SECOND);
    let attempt = env.millis("ATTEMPT_TIMEOUT_MS", 1..=60 * SECOND);
    let read = env.bytes("RESPONSE_READ_BYTES", 0..=1024 * 1024);
    let kept = env.bytes("RESPONSE_KEPT_BYTES", 0..=64 * 1024);
    let policy = runtime::addresses::policy(env);
    Some(Bounds { policy: policy?, connect: connect?, attempt: attempt?, read: read?, kept: kept? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variables_are_those_of_the_contract() {
        let names = runtime::env::names_read(Config::read);
        let ours = names.iter().map(String::as_str).filter(|name| !name.starts_with("AWS_"));
        let expected = [
            "ALLOWED_RANGES",
            "ATTEMPT_TIMEOUT_MS",
            "BODIES_URL",
            "BREAKER_OPENS_AFTER",
            "BREAKER_PROBE_CAP_MS",
            "BREAKER_PROBE_MS",
            "CONNECT_TIMEOUT_MS",
            "DELIVERIES_TABLE",
            "DELIVERY_DEADLINE_MS",
            "DELIVERY_RETENTION_MS",
            "DISABLE_AFTER_MS",
            "ENDPOINT_CONCURRENCY",
            "ENV_NAME",
            "HOLD_MS",
            "LANES_PER_INVOCATION",
            "LANE_LEASE_MS",
            "LANE_PASS_MS",
            "LOCAL_ALLOW_ANY_PORT",
            "LOCAL_ALLOW_LOOPBACK",
            "LOCAL_EXTRA_ROOT",
            "LOG_LEVEL",
            "OPS_BUS_ARN",
            "OUTBOX_TABLE",
            "REGISTRY_TABLE",
            "RESPONSE_KEPT_BYTES",
            "RESPONSE_READ_BYTES",
            "RETRY_AFTER_CAP_MS",
            "RETRY_BASE_MS",
            "RETRY_CAP_MS",
            "RETRY_FLOOR_MS",
            "WAKE_QUEUE_URL",
            "WAKE_SHARDS",
        ];
        assert_eq!(ours.collect::<Vec<_>>(), expected);
    }
}
