//! What the sweeper reads of its environment.

use std::{path::PathBuf, time::Duration};

use domain::address::EndpointUrl;
use runtime::{
    aws,
    env::{BadEnv, Base, Env},
};
use url::Host;

use crate::{Rules, provider::Local};

const DAY_MS: u64 = 86_400_000;

/// The sweeper's configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// What every function reads.
    pub base: Base,
    /// Where AWS is.
    pub aws: aws::Settings,
    /// The inbox table.
    pub inbox_table: String,
    /// The state table.
    pub state_table: String,
    /// The outbox table.
    pub outbox_table: String,
    /// The deliveries table.
    pub deliveries_table: String,
    /// The registry table.
    pub registry_table: String,
    /// The bucket with large payloads.
    pub bodies_url: String,
    /// The worker's queue.
    pub inbound_queue_url: String,
    /// The deliverer's queue.
    pub wake_queue_url: String,
    /// How long a relayed event stays.
    pub outbox_retention: Duration,
    /// What the names of secrets begin with.
    pub secret_prefix: String,
    /// The way to providers, on the local host.
    pub local: Local,
    /// The waits and limits.
    pub rules: Rules,
}

impl Config {
    /// Reads the environment of this process.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn from_env() -> Result<Self, BadEnv> {
        Env::process().parse(Self::read)
    }

    /// Reads an environment. Everything is read before anything is missed, so that all problems are seen.
    pub fn read(env: &mut Env) -> Option<Self> {
        let (base, aws) = (Base::read(env), aws::Settings::read(env));
        let inbox_table = env.text("INBOX_TABLE");
        let state_table = env.text("STATE_TABLE");
        let outbox_table = env.text("OUTBOX_TABLE");
        let deliveries_table = env.text("DELIVERIES_TABLE");
        let registry_table = env.text("REGISTRY_TABLE");
        let bodies_url = env.text("BODIES_URL");
        let inbound_queue_url = env.text("INBOUND_QUEUE_URL");
        let wake_queue_url = env.text("WAKE_QUEUE_URL");
        let outbox_retention = env.millis("OUTBOX_RETENTION_MS", 1..=3650 * DAY_MS);
        let secret_prefix = env.text("SECRET_PREFIX");
        let local = local(env);
        let rules = rules(env);
        Some(Self {
            base: base?,
            aws: aws?,
            inbox_table: inbox_table?,
            state_table: state_table?,
            outbox_table: outbox_table?,
            deliveries_table: deliveries_table?,
            registry_table: registry_table?,
            bodies_url: bodies_url?,
            inbound_queue_url: inbound_queue_url?,
            wake_queue_url: wake_queue_url?,
            outbox_retention: outbox_retention?,
            secret_prefix: secret_prefix?,
            local: local?,
            rules: rules?,
        })
    }
}

/// A stand-in for all providers is one on this machine, and only where this machine may be dialled at all.
fn local(env: &mut Env) -> Option<Local> {
    let policy = runtime::addresses::policy(env);
    let extra_root = env.optional_text("LOCAL_EXTRA_ROOT").map(PathBuf::from);
    let stand_in = env.optional_text("LOCAL_PROVIDER_URL");
    let policy = policy?;
    let stand_in = match stand_in {
        None => None,
        Some(text) => match EndpointUrl::parse(&text, &policy).ok().filter(is_here) {
            Some(url) => Some(url),
            None => {
                return env.problem(
                    "LOCAL_PROVIDER_URL",
                    "is not an https address on this machine, or LOCAL_ALLOW_LOOPBACK is not set",
                );
            }
        },
    };
    Some(Local { policy, extra_root, stand_in })
}

fn is_here(url: &EndpointUrl) -> bool {
    match url.as_url().host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        _ => false,
    }
}

fn rules(env: &mut Env) -> Option<Rules> {
    let budget = env.millis("SWEEP_BUDGET_MS", 1..=DAY_MS);
    let lease = env.millis("SWEEP_LEASE_MS", 1..=DAY_MS);
    let pending_shards = env.number("PENDING_SHARDS", 1..=64);
    let outbox_shards = env.number("OUTBOX_SHARDS", 1..=64);
    let wake_shards = env.number("WAKE_SHARDS", 1..=64);
    let attempts = env.number("WORKER_ATTEMPTS", 1..=100);
    let claim_base = env.millis("SWEEP_CLAIM_BASE_MS", 1..=DAY_MS);
    let claim_cap = env.millis("SWEEP_CLAIM_CAP_MS", 1..=DAY_MS);
    let unrelayed_after = env.millis("UNRELAYED_AFTER_MS", 0..=DAY_MS);
    let delivery_deadline = env.millis("DELIVERY_DEADLINE_MS", 1..=30 * DAY_MS);
    Some(Rules {
        budget: budget?,
        lease: lease?,
        pending_shards: pending_shards?,
        outbox_shards: outbox_shards?,
        wake_shards: wake_shards?,
        attempts: attempts?,
        claim_base: claim_base?,
        claim_cap: claim_cap?,
        unrelayed_after: unrelayed_after?,
        delivery_deadline: delivery_deadline?,
    })
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
            "BODIES_URL",
            "DELIVERIES_TABLE",
            "DELIVERY_DEADLINE_MS",
            "ENV_NAME",
            "INBOUND_QUEUE_URL",
            "INBOX_TABLE",
            "LOCAL_ALLOW_ANY_PORT",
            "LOCAL_ALLOW_LOOPBACK",
            "LOCAL_EXTRA_ROOT",
            "LOCAL_PROVIDER_URL",
            "LOG_LEVEL",
            "OUTBOX_RETENTION_MS",
            "OUTBOX_SHARDS",
            "OUTBOX_TABLE",
            "PENDING_SHARDS",
            "REGISTRY_TABLE",
            "SECRET_PREFIX",
            "STATE_TABLE",
            "SWEEP_BUDGET_MS",
            "SWEEP_CLAIM_BASE_MS",
            "SWEEP_CLAIM_CAP_MS",
            "SWEEP_LEASE_MS",
            "UNRELAYED_AFTER_MS",
            "WAKE_QUEUE_URL",
            "WAKE_SHARDS",
            "WORKER_ATTEMPTS",
        ];
        assert_eq!(ours.collect::<Vec<_>>(), expected);
    }
}
