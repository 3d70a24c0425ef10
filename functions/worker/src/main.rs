//! Wires the worker to its queue: a batch of SQS messages in, the failed ones out.
use aws_lambda_events::sqs::SqsEvent;
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
    let tables = c.tables(aws_sdk_dynamodb::Client::new(&aws.config(Service::DynamoDb)));
    let metrics = &Metrics::new(&c.base.env_name);
    let asker = c.asker(&aws, tables.state.clone(), Timestamp::now)?;
    let worker = &Worker {
        inbox: &tables.inbox,
        state: &tables.state,
        sources: &Sources::new(tables.registry, c.pause_seen, c.source_stale).asking(asker),
        bodies: &BodyStore::open(&c.bodies_url, &c.aws, Pace::BACKGROUND)?,
        queue: &SqsQueue::new(aws.sqs(), c.inbound_queue_url),
        limits: c.limits,
        payload_max: c.payload_max,
        handlers: SHIPPED,
        metrics,
        now: Timestamp::now,
    };
    let handle = |event: LambdaEvent<SqsEvent>| async move {
        let ends = i64::try_from(event.context.deadline).map(Timestamp::from_millisecond)??;
        let answer = worker.batch(event.payload, ends, rand::random).await;
        metrics.flush(Timestamp::now());
        Ok::<_, Error>(answer?)
    };
    run(service_fn(handle)).await
}
