//! Wires [`ingress`] to API Gateway.

use aws_sdk_dynamodb::Client;
use dynamo::{InboxTable, RegistryTable, StateTable};
use flow::accept::Door;
use ingress::{Config, Ingress, Lookout, gateway, sources::Sources};
use lambda_runtime::{Error, LambdaEvent, run, service_fn};
use runtime::aws::{Aws, Pace, Service};
use runtime::{BodyStore, SecretsManager, SqsQueue, telemetry};
use tracing::Instrument as _;

#[tokio::main(flavor = "current_thread")]
#[expect(clippy::disallowed_methods, reason = "the edge reads the clock and mints the token")]
async fn main() -> Result<(), Error> {
    let c = Config::from_env()?;
    telemetry::init(&c.base);
    let aws = Aws::new(&c.aws, Pace::within(c.budget));
    let client = Client::new(&aws.config(Service::DynamoDb));
    let inbox = InboxTable::new(client.clone(), c.inbox_table, c.pending_shards);
    let inbox = InboxTable { list_by_source: c.list_by_source, retention: c.retention, ..inbox };
    let bodies = BodyStore::open(&c.bodies_url, &c.aws, Pace::within(c.budget))?;
    let state = StateTable { client: client.clone(), table: c.state_table, commits: None };
    let queue = SqsQueue::new(aws.sqs(), c.inbound_queue_url);
    let registry = RegistryTable { client, table: c.registry_table };
    let secrets = SecretsManager::new(aws.secrets_manager(), c.secret_prefix);
    let ingress = Ingress {
        sources: Sources::new(&registry, &secrets, &state, c.source_fresh, c.source_stale),
        door: Door { inbox: &inbox, queue: &queue, bodies: &bodies, first_due: c.first_due },
        lookout: Lookout::new(&state),
        metrics: telemetry::Metrics::new(&c.base.env_name),
        budget: c.budget,
    };
    run(service_fn(async |event: LambdaEvent<gateway::Event>| {
        let (token, now) = (uuid::Uuid::now_v7().simple().to_string(), jiff::Timestamp::now());
        let span = tracing::info_span!("request", request_id = event.context.request_id);
        let work = Box::pin(gateway::answer(&ingress, event.payload, token, now));
        Ok::<_, Error>(work.instrument(span).await)
    }))
    .await
}
