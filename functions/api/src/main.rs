//! Wires [`api`] to API Gateway and EventBridge.

use api::{Api, Config, Deployed, Edge, entry};
use dynamo::{DeliveriesTable, InboxTable, OutboxTable, RegistryTable, StateTable};
use lambda_http::Error;
use runtime::{
    BodyStore, KmsKeyring, SecretsManager, SqsQueue,
    aws::{Aws, Pace, Service},
    telemetry,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let config = Config::from_env()?;
    telemetry::init(&config.base);
    let aws = Aws::new(&config.aws, Pace::BACKGROUND);
    let client = aws_sdk_dynamodb::Client::new(&aws.config(Service::DynamoDb));
    let (shards, wake_shards) = (config.limits.pending_shards, config.wake_shards);
    let outbox = OutboxTable::new(client.clone(), config.outbox_table, config.outbox_shards);
    let deliveries = DeliveriesTable::new(client.clone(), config.deliveries_table, wake_shards);
    let (retention, requests) = (config.outbox_retention, Some(config.state_table.clone()));
    let api = Api::<Deployed> {
        inbox: InboxTable::new(client.clone(), config.inbox_table, shards),
        outbox: OutboxTable { retention, requests, ..outbox },
        watch: StateTable { client: client.clone(), table: config.state_table, commits: None },
        deliveries: DeliveriesTable { retention: config.delivery_retention, ..deliveries },
        registry: RegistryTable { client, table: config.registry_table },
        inbound: SqsQueue::new(aws.sqs(), config.inbound_queue_url),
        wakes: SqsQueue::new(aws.sqs(), config.wake_queue_url),
        keyring: KmsKeyring::new(aws.kms(), config.secrets_key_arn),
        bodies: BodyStore::open(&config.bodies_url, &config.aws, Pace::BACKGROUND)?,
        tokens: SecretsManager::new(aws.secrets_manager(), config.secret_prefix.clone()).tokens(),
        secrets: SecretsManager::new(aws.secrets_manager(), config.secret_prefix),
        limits: config.limits,
        edge: Edge::REAL,
    };
    entry::run(api).await
}
