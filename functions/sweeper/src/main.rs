//! Wires the sweeper to its schedule.
use aws_sdk_dynamodb::Client;
use dynamo::{DeliveriesTable, InboxTable, OutboxTable, RegistryTable, StateTable};
use flow::fanout::EndpointCache;
use jiff::Timestamp;
use lambda_runtime::{Error, LambdaEvent, run, service_fn};
use runtime::aws::{Aws, Pace, Service};
use runtime::{BodyStore, SecretsManager, SqsQueue, telemetry};
use sweeper::{Sweeper, config::Config, errands::Errands, provider};

#[tokio::main]
#[expect(clippy::disallowed_methods, reason = "the edge reads the clock")]
async fn main() -> Result<(), Error> {
    let c = Config::from_env()?;
    telemetry::init(&c.base);
    let aws = Aws::new(&c.aws, Pace::BACKGROUND);
    let client = Client::new(&aws.config(Service::DynamoDb));
    let bodies = &BodyStore::open(&c.bodies_url, &c.aws, Pace::BACKGROUND)?;
    let rules = c.rules;
    let inbox = &InboxTable::new(client.clone(), c.inbox_table, rules.pending_shards);
    let state = &StateTable { client: client.clone(), table: c.state_table, commits: None };
    let outbox = OutboxTable::new(client.clone(), c.outbox_table, rules.outbox_shards);
    let outbox = &OutboxTable { retention: c.outbox_retention, ..outbox };
    let lanes = &DeliveriesTable::new(client.clone(), c.deliveries_table, rules.wake_shards);
    let registry = &RegistryTable { client, table: c.registry_table };
    let (inbound, wake) = (c.inbound_queue_url, c.wake_queue_url);
    let (inbound, wake) = (&SqsQueue::new(aws.sqs(), inbound), &SqsQueue::new(aws.sqs(), wake));
    let secrets = &SecretsManager::new(aws.secrets_manager(), c.secret_prefix);
    let errands = Errands { secrets, provider: &provider::Client::open(c.local)? };
    let (cache, metrics) = (&EndpointCache::default(), &telemetry::Metrics::new(&c.base.env_name));
    let now = Timestamp::now;
    #[rustfmt::skip]
    let sweeper = &Sweeper { inbox, state, outbox, lanes, registry, inbound, wake, errands, bodies, cache, rules, metrics, now };
    let handle = |event: LambdaEvent<serde_json::Value>| async move {
        let swept = sweeper.sweep(&event.context.request_id).await;
        metrics.flush(now());
        swept.map(|_| ()).map_err(Error::from)
    };
    run(service_fn(handle)).await
}
