//! Wires [`relay`] to the stream of the outbox.

use aws_sdk_dynamodb::Client;
use dynamo::{DeliveriesTable, OutboxTable, RegistryTable};
use flow::fanout::EndpointCache;
use jiff::Timestamp;
use lambda_runtime::{Error, LambdaEvent, run, service_fn};
use relay::{Config, Relay};
use runtime::{
    BodyStore, SqsQueue,
    aws::{Aws, Pace, Service},
    telemetry::{self, Metrics},
};
use serde_json::Value;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let c = Config::from_env()?;
    telemetry::init(&c.base);
    let aws = Aws::new(&c.aws, Pace::BACKGROUND);
    let client = Client::new(&aws.config(Service::DynamoDb));
    let outbox = OutboxTable::new(client.clone(), c.outbox_table, 1);
    let relay = Relay {
        lanes: DeliveriesTable::new(client.clone(), c.deliveries_table, c.wake_shards),
        outbox: OutboxTable { retention: c.outbox_retention, ..outbox },
        registry: RegistryTable { client, table: c.registry_table },
        queue: SqsQueue::new(aws.sqs(), c.wake_queue_url),
        bodies: BodyStore::open(&c.bodies_url, &c.aws, Pace::BACKGROUND)?,
        cache: EndpointCache::default(),
        deadline: c.delivery_deadline,
        metrics: Metrics::new(&c.base.env_name),
        #[expect(clippy::disallowed_methods, reason = "the edge reads the clock")]
        now: Timestamp::now,
    };
    run(service_fn(async |event: LambdaEvent<Value>| {
        let ends = event.context.deadline;
        Ok::<_, Error>(Box::pin(relay.handle(&event.payload, ends)).await?)
    }))
    .await
}
