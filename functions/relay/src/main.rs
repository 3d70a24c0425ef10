//! Wires [`relay`] to the stream of the outbox.

use aws_sdk_dynamodb::Client;
use dynamo::{DeliveriesTable, OutboxTable, RegistryTable};
use flow::fanout::EndpointCache;
use jiff::Timestamp;
use lambda_runtime::{Error, LambdaEvent, run, service_fn};
use relay::{Config, Relay};
use runtime::{
    SqsQueue,
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
        cache: EndpointCache::default(),
        deadline: c.delivery_deadline,
        metrics: Metrics::new(&c.base.env_name),
    };
    run(service_fn(async |event: LambdaEvent<Value>| {
        #[expect(clippy::disallowed_methods, reason = "the edge reads the clock")]
        let now = Timestamp::now();
        Ok::<_, Error>(Box::pin(relay.handle(&event.payload, now)).await?)
    }))
    .await
}
