//! Wires the worker to its queue: a batch of SQS messages in, the failed ones out.
use aws_lambda_events::sqs::SqsEvent;
use dynamo::{Commits, InboxTable, RegistryTable, StateTable};
use jiff::Timestamp;
use lambda_runtime::{Error, LambdaEvent, run, service_fn};
use runtime::{
    BodyStore, SqsQueue,
    aws::{Aws, Pace, Service},
    telemetry::{self, Metrics},
};
use worker::{Sources, Worker, config::Config, handlers::SHIPPED};

#[tokio::main]
#[expect(clippy::disallowed_methods, reason = "the edge reads the clock")]
async fn main() -> Result<(), Error> {
    let c = Config::from_env()?;
    telemetry::init(&c.base);
    let aws = Aws::new(&c.aws, Pace::BACKGROUND);
    let client = aws_sdk_dynamodb::Client::new(&aws.config(Service::DynamoDb));
    let inbox = InboxTable::new(client.clone(), c.inbox_table.clone(), c.pending_shards);
    let inbox = InboxTable { retention: c.limits.retention, ..inbox };
    let (outbox, outbox_shards) = (c.outbox_table, c.outbox_shards);
    let commits = Some(Commits { inbox: c.inbox_table.clone(), outbox, outbox_shards });
    let state = StateTable { client: client.clone(), table: c.state_table, commits };
    let registry = RegistryTable { client, table: c.registry_table };
    let sources = &Sources::new(registry, c.pause_seen, c.source_stale);
    let bodies = &BodyStore::open(&c.bodies_url, &c.aws, Pace::BACKGROUND)?;
    let queue = &SqsQueue::new(aws.sqs(), c.inbound_queue_url);
    let (metrics, limits, payload_max) = (&Metrics::new(&c.base.env_name), c.limits, c.payload_max);
    let (inbox, state, now) = (&inbox, &state, Timestamp::now);
    let handlers = SHIPPED;
    #[rustfmt::skip]
    let worker =
        &Worker { inbox, state, sources, bodies, queue, limits, payload_max, handlers, metrics, now };
    let handle = |event: LambdaEvent<SqsEvent>| async move {
        let ends = i64::try_from(event.context.deadline).map(Timestamp::from_millisecond)??;
        let answer = worker.batch(event.payload, ends, rand::random).await;
        metrics.flush(now());
        Ok::<_, Error>(answer?)
    };
    run(service_fn(handle)).await
}
