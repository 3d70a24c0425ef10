//! What the worker reads of its environment.

use std::{path::PathBuf, time::Duration};

use domain::{address::EndpointUrl, inbox::Limits, retry::Backoff};
use dynamo::{Client, Commits, InboxTable, RegistryTable, StateTable};
use egress::resolve::SystemResolver;
use runtime::{
    SecretsManager,
    aws::{self, Aws},
    env::{BadEnv, Base, Env},
};
use url::Host;

use crate::fetching::{self, Asker, Local, NoWayOut};

const DAY_MS: u64 = 86_400_000;

/// The worker's configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// What every function reads.
    pub base: Base,
    /// Where AWS is.
    pub aws: aws::Settings,
    /// The Inbox table.
    pub inbox_table: String,
    /// The State table.
    pub state_table: String,
    /// The Outbox table.
    pub outbox_table: String,
    /// The Registry table.
    pub registry_table: String,
    /// Where large bodies are.
    pub bodies_url: String,
    /// Where messages come from.
    pub inbound_queue_url: String,
    /// How long a source is believed: so long after a pause its events are still carried out.
    pub pause_seen: Duration,
    /// How long it is believed while the registry cannot be read.
    pub source_stale: Duration,
    /// Shards of the index of pending rows.
    pub pending_shards: u16,
    /// Shards of the index of unrelayed events.
    pub outbox_shards: u16,
    /// The limits of processing.
    pub limits: Limits,
    /// How long an object is held while it is fetched and committed.
    pub object_lease: Duration,
    /// Longest time for one call of a provider.
    pub fetch_timeout: Duration,
    /// How long the tokens of a source are believed.
    pub tokens_fresh: Duration,
    /// What the names of secrets begin with.
    pub secret_prefix: String,
    /// The way to providers, on the local host.
    pub local: Local,
    /// Largest payload of an outgoing event, in bytes.
    pub payload_max: usize,
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
        let registry_table = env.text("REGISTRY_TABLE");
        let bodies_url = env.text("BODIES_URL");
        let inbound_queue_url = env.text("INBOUND_QUEUE_URL");
        let pause_seen = env.millis("PAUSE_SEEN_MS", 0..=DAY_MS);
        let source_stale = env.millis("SOURCE_STALE_MS", 0..=DAY_MS);
        let pending_shards = env.number("PENDING_SHARDS", 1..=64);
        let outbox_shards = env.number("OUTBOX_SHARDS", 1..=64);
        let limits = limits(env);
        let object_lease = env.millis("OBJECT_LEASE_MS", 1..=DAY_MS);
        let fetch_timeout = env.millis("FETCH_TIMEOUT_MS", 1..=DAY_MS);
        let held = held(env, object_lease, fetch_timeout);
        let tokens_fresh = env.millis("SOURCE_FRESH_MS", 0..=DAY_MS);
        let secret_prefix = env.text("SECRET_PREFIX");
        let local = local(env);
        // A body of the inbox is at most 8 MiB, so more would never be reached.
        let payload_max = env.number("PAYLOAD_MAX_BYTES", 1..=1_000_000);
        Some(Self {
            base: base?,
            aws: aws?,
            inbox_table: inbox_table?,
            state_table: state_table?,
            outbox_table: outbox_table?,
            registry_table: registry_table?,
            bodies_url: bodies_url?,
            inbound_queue_url: inbound_queue_url?,
            pause_seen: pause_seen?,
            source_stale: source_stale?,
            pending_shards: pending_shards?,
            outbox_shards: outbox_shards?,
            limits: limits?,
            object_lease: held?,
            fetch_timeout: fetch_timeout?,
            tokens_fresh: tokens_fresh?,
            secret_prefix: secret_prefix?,
            local: local?,
            payload_max: payload_max?,
        })
    }
}

/// The tables that the worker works on.
#[derive(Clone, Debug)]
pub struct Tables {
    /// Events received.
    pub inbox: InboxTable,
    /// Objects, operation keys, leases, and the transaction.
    pub state: StateTable,
    /// The configuration of sources.
    pub registry: RegistryTable,
}

impl Config {
    /// The tables, as this configuration names them.
    pub fn tables(&self, client: Client) -> Tables {
        let inbox = InboxTable::new(client.clone(), self.inbox_table.clone(), self.pending_shards);
        let commits = Commits {
            inbox: self.inbox_table.clone(),
            outbox: self.outbox_table.clone(),
            outbox_shards: self.outbox_shards,
        };
        Tables {
            inbox: InboxTable { retention: self.limits.retention, ..inbox },
            state: StateTable {
                client: client.clone(),
                table: self.state_table.clone(),
                commits: Some(commits),
            },
            registry: RegistryTable { client, table: self.registry_table.clone() },
        }
    }

    /// The way to providers. It takes turns in the table of objects.
    ///
    /// # Errors
    /// [`NoWayOut`], at the start of the function.
    pub fn asker<N>(
        &self,
        aws: &Aws,
        turns: StateTable,
        now: N,
    ) -> Result<Asker<StateTable, SecretsManager, fetching::Client<SystemResolver>, N>, NoWayOut>
    {
        let tokens =
            SecretsManager::new(aws.secrets_manager(), self.secret_prefix.clone()).tokens();
        let provider = fetching::Client::open(self.local.clone())?;
        let times = (self.fetch_timeout, self.object_lease);
        Ok(Asker::new(turns, tokens, provider, now, times, (self.tokens_fresh, self.source_stale)))
    }
}

/// A lease that ends before its call does would let the next worker ask too, and one of the two in vain.
fn held(env: &mut Env, lease: Option<Duration>, timeout: Option<Duration>) -> Option<Duration> {
    if lease? <= timeout? {
        return env.problem("OBJECT_LEASE_MS", "must be more than FETCH_TIMEOUT_MS");
    }
    lease
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

fn limits(env: &mut Env) -> Option<Limits> {
    let attempts = env.number("WORKER_ATTEMPTS", 1..=100);
    let base = env.millis("WORKER_BACKOFF_BASE_MS", 1..=DAY_MS);
    let cap = env.millis("WORKER_BACKOFF_CAP_MS", 1..=DAY_MS);
    // SQS hides a message for 12 hours at most.
    let visibility = env.millis("WORKER_VISIBILITY_MS", 1..=DAY_MS / 2);
    let horizon = env.millis("REQUEUE_HORIZON_MS", 1..=30 * DAY_MS);
    let wait_margin = env.millis("WAIT_MARGIN_MS", 0..=DAY_MS);
    let pause_wait = env.millis("PAUSE_WAIT_MS", 1..=30 * DAY_MS);
    let redrive_margin = env.millis("REDRIVE_MARGIN_MS", 0..=DAY_MS);
    let retention = env.millis("INBOX_RETENTION_MS", 1..=3650 * DAY_MS);
    Some(Limits {
        attempts: attempts?,
        backoff: Backoff { floor: Duration::ZERO, base: base?, cap: cap? },
        visibility: visibility?,
        horizon: horizon?,
        wait_margin: wait_margin?,
        pause_wait: pause_wait?,
        redrive_margin: redrive_margin?,
        retention: retention?,
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
            "ENV_NAME",
            "FETCH_TIMEOUT_MS",
            "INBOUND_QUEUE_URL",
            "INBOX_RETENTION_MS",
            "INBOX_TABLE",
            "LOCAL_ALLOW_ANY_PORT",
            "LOCAL_ALLOW_LOOPBACK",
            "LOCAL_EXTRA_ROOT",
            "LOCAL_PROVIDER_URL",
            "LOG_LEVEL",
            "OBJECT_LEASE_MS",
            "OUTBOX_SHARDS",
            "OUTBOX_TABLE",
            "PAUSE_SEEN_MS",
            "PAUSE_WAIT_MS",
            "PAYLOAD_MAX_BYTES",
            "PENDING_SHARDS",
            "REDRIVE_MARGIN_MS",
            "REGISTRY_TABLE",
            "REQUEUE_HORIZON_MS",
            "SECRET_PREFIX",
            "SOURCE_FRESH_MS",
            "SOURCE_STALE_MS",
            "STATE_TABLE",
            "WAIT_MARGIN_MS",
            "WORKER_ATTEMPTS",
            "WORKER_BACKOFF_BASE_MS",
            "WORKER_BACKOFF_CAP_MS",
            "WORKER_VISIBILITY_MS",
        ];
        assert_eq!(ours.collect::<Vec<_>>(), expected);
    }
}
