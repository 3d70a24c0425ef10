//! Wires [`deliverer`] to the wake queue.

use aws_lambda_events::sqs::SqsEvent;
use aws_sdk_dynamodb::Client;
use deliverer::{AwsTargets, Config, Deliverer, Dialler, Edge, Keys};
use dynamo::{DeliveriesTable, OutboxTable, RegistryTable};
use jiff::Timestamp;
use lambda_runtime::{Error, LambdaEvent, run, service_fn};
use runtime::{BodyStore, KmsKeyring, SqsQueue, aws, telemetry};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let c = Config::from_env()?;
    telemetry::init(&c.base);
    let aws = aws::Aws::new(&c.aws, aws::Pace::BACKGROUND);
    let client = Client::new(&aws.config(aws::Service::DynamoDb));
    let lanes = DeliveriesTable::new(client.clone(), c.deliveries_table, c.wake_shards);
    let (retention, outbox) = (c.delivery_retention, Some(c.outbox_table.clone()));
    let deliverer = Deliverer {
        lanes: DeliveriesTable { retention, outbox, ..lanes },
        outbox: OutboxTable::new(client.clone(), c.outbox_table, 1),
        registry: RegistryTable { client, table: c.registry_table },
        keys: Keys::new(KmsKeyring::opening(aws.kms())),
        bodies: BodyStore::open(&c.bodies_url, &c.aws, aws::Pace::BACKGROUND)?,
        targets: AwsTargets::new(&c.aws, &c.wake_queue_url, c.ops_bus),
        queue: SqsQueue::new(aws.sqs(), c.wake_queue_url),
        dialler: Dialler::open(c.bounds, c.extra_root.as_deref())?,
        rules: c.rules,
        pass: c.pass,
        width: c.lanes_per_invocation,
        metrics: telemetry::Metrics::new(&c.base.env_name),
        #[expect(clippy::disallowed_methods, reason = "the edge reads the clock and rolls dice")]
        edge: Edge { now: Timestamp::now, jitter: rand::random },
    };
    run(service_fn(async |event: LambdaEvent<SqsEvent>| {
        let (request, ends) = (&event.context.request_id, event.context.deadline);
        Ok::<_, Error>(Box::pin(deliverer.handle(event.payload, request, ends)).await?)
    }))
    .await
}
