//! Wires [`deliverer`] to the wake queue.

use aws_lambda_events::sqs::SqsEvent;
use aws_sdk_dynamodb::Client;
use deliverer::{
    Config, Deliverer,
    drain::Edge,
    transport::{client::Dialler, resolve::SystemResolver, tls},
};
use dynamo::{DeliveriesTable, OutboxTable, RegistryTable};
use jiff::Timestamp;
use lambda_runtime::{Error, LambdaEvent, run, service_fn};
use runtime::{
    BodyStore, KmsKeyring, SqsQueue,
    aws::{Aws, Pace, Service},
    telemetry::{self, Metrics},
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let c = Config::from_env()?;
    telemetry::init(&c.base);
    let aws = Aws::new(&c.aws, Pace::BACKGROUND);
    let client = Client::new(&aws.config(Service::DynamoDb));
    let lanes = DeliveriesTable::new(client.clone(), c.deliveries_table, c.wake_shards);
    let (retention, outbox) = (c.delivery_retention, Some(c.outbox_table.clone()));
    let deliverer = Deliverer {
        lanes: DeliveriesTable { retention, outbox, ..lanes },
        outbox: OutboxTable::new(client.clone(), c.outbox_table, 1),
        registry: RegistryTable { client, table: c.registry_table },
        keyring: KmsKeyring::opening(aws.kms()),
        bodies: BodyStore::open(&c.bodies_url, &c.aws, Pace::BACKGROUND)?,
        queue: SqsQueue::new(aws.sqs(), c.wake_queue_url),
        dialler: Dialler::new(
            SystemResolver::open()?,
            tls::config(c.extra_root.as_deref())?,
            c.bounds,
        ),
        rules: c.rules,
        pass: c.pass,
        width: c.lanes_per_invocation,
        metrics: Metrics::new(&c.base.env_name),
        #[expect(
            clippy::disallowed_methods,
            reason = "the edge reads the clock and rolls the dice"
        )]
        edge: Edge { now: Timestamp::now, jitter: rand::random },
    };
    run(service_fn(async |event: LambdaEvent<SqsEvent>| {
        let ends = i64::try_from(event.context.deadline).unwrap_or(i64::MAX);
        let deadline = Timestamp::from_millisecond(ends).unwrap_or(Timestamp::MAX);
        let request = &event.context.request_id;
        Ok::<_, Error>(Box::pin(deliverer.handle(event.payload, request, deadline)).await?)
    }))
    .await
}
