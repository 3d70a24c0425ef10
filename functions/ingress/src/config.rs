//! What ingress is told by its environment.

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
    /// The table of received events.
    pub inbox_table: String,
    /// The table with the heartbeats.
    pub state_table: String,
    /// The table with the sources.
    pub registry_table: String,
    /// Where large bodies go.
    pub bodies_url: String,
    /// Where the worker hears of events.
    pub inbound_queue_url: String,
    /// What the names of secrets begin with.
    pub secret_prefix: String,
    /// How long a source is believed without looking again.
    pub source_fresh: Duration,
    /// How long it is believed when looking again fails.
    pub source_stale: Duration,
    /// For the work on one request.
    pub budget: Duration,
    /// When the sweeper looks for a new event.
    pub first_due: Duration,
    /// How long a finished event is remembered.
    pub retention: Duration,
    /// Shards of the index of due events.
    pub pending_shards: u16,
    /// Whether events can be listed by source.
    pub list_by_source: bool,
}

/// A day, in milliseconds.
const DAY: u64 = 24 * 60 * 60 * 1000;

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
        let inbox_table = env.text("INBOX_TABLE");
        let state_table = env.text("STATE_TABLE");
        let registry_table = env.text("REGISTRY_TABLE");
        let bodies_url = env.text("BODIES_URL");
        let inbound_queue_url = env.url("INBOUND_QUEUE_URL");
        let secret_prefix = env.text("SECRET_PREFIX");
        let source_fresh = env.millis("SOURCE_FRESH_MS", 1..=DAY);
        let source_stale = env.millis("SOURCE_STALE_MS", 1..=DAY);
        // Below the function's timeout of 6 s, or nobody would answer.
        let budget = env.millis("INGRESS_BUDGET_MS", 100..=5500);
        let first_due = env.millis("FIRST_DUE_MS", 1..=DAY);
        let retention = env.millis("INBOX_RETENTION_MS", 1000..=3660 * DAY);
        let pending_shards = env.number("PENDING_SHARDS", 1..=64);
        let list_by_source = env.flag("LIST_BY_SOURCE");
        if source_fresh.zip(source_stale).is_some_and(|(fresh, stale)| stale < fresh) {
            return env
                .problem("SOURCE_STALE_MS", "is less than SOURCE_FRESH_MS; it should be more");
        }
        Some(Self {
            base: base?,
            aws: aws?,
            inbox_table: inbox_table?,
            state_table: state_table?,
            registry_table: registry_table?,
            bodies_url: bodies_url?,
            inbound_queue_url: inbound_queue_url?,
            secret_prefix: secret_prefix?,
            source_fresh: source_fresh?,
            source_stale: source_stale?,
            budget: budget?,
            first_due: first_due?,
            retention: retention?,
            pending_shards: pending_shards?,
            list_by_source: list_by_source?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// DEP-missing-config
    #[test]
    fn the_variables_are_those_of_the_contract() {
        let names = runtime::env::names_read(Config::read);
        let ours: Vec<&str> =
            names.iter().map(String::as_str).filter(|name| !name.starts_with("AWS_")).collect();
        assert_eq!(
            ours,
            [
                "BODIES_URL",
                "ENV_NAME",
                "FIRST_DUE_MS",
                "INBOUND_QUEUE_URL",
                "INBOX_RETENTION_MS",
                "INBOX_TABLE",
                "INGRESS_BUDGET_MS",
                "LIST_BY_SOURCE",
                "LOG_LEVEL",
                "PENDING_SHARDS",
                "REGISTRY_TABLE",
                "SECRET_PREFIX",
                "SOURCE_FRESH_MS",
                "SOURCE_STALE_MS",
                "STATE_TABLE",
            ]
        );
    }
}
