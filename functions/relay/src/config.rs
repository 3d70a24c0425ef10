//! What the relay is told by its environment.

use std::time::Duration;

use runtime::{
    aws::Settings,
    env::{BadEnv, Base, Env},
};

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
    /// The bucket with large payloads.
    pub bodies_url: String,
    /// Where wake messages go.
    pub wake_queue_url: String,
    /// How long a relayed event stays.
    pub outbox_retention: Duration,
    /// Shards of the index of sleeping lanes.
    pub wake_shards: u16,
    /// How long a delivery is tried.
    pub delivery_deadline: Duration,
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
        let outbox_retention = env.millis("OUTBOX_RETENTION_MS", SECOND..=3660 * DAY);
        let wake_shards = env.number("WAKE_SHARDS", 1..=64);
        let delivery_deadline = env.millis("DELIVERY_DEADLINE_MS", SECOND..=30 * DAY);
        Some(Self {
            base: base?,
            aws: aws?,
            outbox_table: outbox_table?,
            deliveries_table: deliveries_table?,
            registry_table: registry_table?,
            bodies_url: bodies_url?,
            wake_queue_url: wake_queue_url?,
            outbox_retention: outbox_retention?,
            wake_shards: wake_shards?,
            delivery_deadline: delivery_deadline?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variables_are_those_of_the_contract() {
        let names = runtime::env::names_read(Config::read);
        let ours = names.iter().map(String::as_str).filter(|name| !name.starts_with("AWS_"));
        let expected = [
            "BODIES_URL",
            "DELIVERIES_TABLE",
            "DELIVERY_DEADLINE_MS",
            "ENV_NAME",
            "LOG_LEVEL",
            "OUTBOX_RETENTION_MS",
            "OUTBOX_TABLE",
            "REGISTRY_TABLE",
            "WAKE_QUEUE_URL",
            "WAKE_SHARDS",
        ];
        assert_eq!(ours.collect::<Vec<_>>(), expected);
    }
}
