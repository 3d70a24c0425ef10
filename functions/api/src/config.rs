//! The environment of this function.

use std::time::Duration;

use domain::destination::Reach;
use runtime::env::{BadEnv, Base, Env};

/// What the template gives this function.
#[derive(Clone, Debug)]
pub struct Config {
    /// What every function reads.
    pub base: Base,
    /// Region, credentials, endpoints.
    pub aws: runtime::aws::Settings,
    /// The Inbox table.
    pub inbox_table: String,
    /// The State table, for idempotency keys and the health of sources.
    pub state_table: String,
    /// The Outbox table.
    pub outbox_table: String,
    /// The Deliveries table.
    pub deliveries_table: String,
    /// The Registry table.
    pub registry_table: String,
    /// Where large payloads are kept.
    pub bodies_url: String,
    /// The queue the worker reads.
    pub inbound_queue_url: String,
    /// The queue the deliverer reads.
    pub wake_queue_url: String,
    /// What the names of secrets begin with.
    pub secret_prefix: String,
    /// The key that seals secrets.
    pub secrets_key_arn: String,
    /// Shards of the index of outgoing events that were not relayed.
    pub outbox_shards: u16,
    /// How long a relayed event is kept, and its idempotency key longer.
    pub outbox_retention: Duration,
    /// Shards of the index of lanes.
    pub wake_shards: u16,
    /// How long a delivery stays that a poller has acknowledged.
    pub delivery_retention: Duration,
    /// The limits.
    pub limits: crate::Limits,
}

impl Config {
    /// Reads the process's environment.
    pub fn from_env() -> Result<Self, BadEnv> {
        Env::process().parse(Self::read)
    }

    /// Reads an environment; notes every problem.
    pub fn read(env: &mut Env) -> Option<Self> {
        let base = Base::read(env);
        let aws = runtime::aws::Settings::read(env);
        let inbox_table = env.text("INBOX_TABLE");
        let state_table = env.text("STATE_TABLE");
        let outbox_table = env.text("OUTBOX_TABLE");
        let deliveries_table = env.text("DELIVERIES_TABLE");
        let registry_table = env.text("REGISTRY_TABLE");
        let bodies_url = env.text("BODIES_URL");
        let inbound_queue_url = env.text("INBOUND_QUEUE_URL");
        let wake_queue_url = env.text("WAKE_QUEUE_URL");
        let secret_prefix = env.text("SECRET_PREFIX");
        let secrets_key_arn = env.text("SECRETS_KEY_ARN");
        let outbox_shards = env.number("OUTBOX_SHARDS", 1..=64);
        let outbox_retention = env.millis("OUTBOX_RETENTION_MS", 1..=3650 * DAY);
        let wake_shards = env.number("WAKE_SHARDS", 1..=64);
        let delivery_retention = env.millis("DELIVERY_RETENTION_MS", 1..=3650 * 86_400_000);
        let limits = limits(env);
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
            secret_prefix: secret_prefix?,
            secrets_key_arn: secrets_key_arn?,
            outbox_shards: outbox_shards?,
            outbox_retention: outbox_retention?,
            wake_shards: wake_shards?,
            delivery_retention: delivery_retention?,
            limits: limits?,
        })
    }
}

const DAY: u64 = 86_400_000;

fn limits(env: &mut Env) -> Option<crate::Limits> {
    let ingress_url = env.url("INGRESS_URL");
    let own_bus = env.parsed("OPS_BUS_ARN", "the ARN of an event bus");
    let own_queues = env.text("OWN_QUEUES");
    let endpoints_per_tenant = env.number("ENDPOINTS_PER_TENANT", 1..=10_000_usize);
    let concurrency = env.number("ENDPOINT_CONCURRENCY", 1..=100);
    let payload_bytes = env.number("PAYLOAD_MAX_BYTES", 1..=1_000_000_usize);
    let first_due: Option<Duration> = env.millis("FIRST_DUE_MS", 1..=DAY);
    let delivery_deadline = env.millis("DELIVERY_DEADLINE_MS", 1..=30 * DAY);
    let poll_visibility = env.millis("POLL_VISIBILITY_MS", 1..=DAY / 2);
    let pending_shards = env.number("PENDING_SHARDS", 1..=64);
    let list_by_source = env.flag("LIST_BY_SOURCE");
    let addresses = runtime::addresses::policy(env);
    Some(crate::Limits {
        ingress_url: ingress_url?.to_string().trim_end_matches('/').to_owned(),
        reach: Reach::new(own_bus?, own_queues?.split(',').map(str::to_owned).collect()),
        addresses: addresses?,
        endpoints_per_tenant: endpoints_per_tenant?,
        concurrency: concurrency?,
        payload_bytes: payload_bytes?,
        first_due: first_due?,
        delivery_deadline: delivery_deadline?,
        poll_visibility: poll_visibility?,
        pending_shards: pending_shards?,
        list_by_source: list_by_source?,
    })
}
