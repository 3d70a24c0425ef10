//! The services over HTTP, mostly with AWS's own SDK as the client: what it accepts, and what it makes of our errors.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

mod buses;
mod calls;
mod dynamodb;
mod faults;
mod keys;
mod made;
mod moves;
mod objects;
mod queues;
mod secrets;

use std::{net::SocketAddr, path::Path, time::Duration};

use aws_credential_types::Credentials;
use local::{
    services::{Clock, Options, Services},
    wiring::{Queue, Table, Wiring},
};
use serde_json::json;
use tempfile::TempDir;
use tokio::{net::TcpListener, task::JoinHandle};

/// One host's services on a random port; gone with the value.
struct Host {
    services: Services,
    address: SocketAddr,
    clock: Clock,
    server: JoinHandle<()>,
    state: Option<TempDir>,
}

impl Drop for Host {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Host {
    async fn in_memory() -> Self {
        let state = tempfile::tempdir().unwrap();
        let mut host = Self::at(state.path(), true).await;
        host.state = Some(state);
        host
    }

    async fn at(state: &Path, in_memory: bool) -> Self {
        Self::of(&wiring(), state, in_memory, 1_700_000_000_000).await
    }

    async fn of(wiring: &Wiring, state: &Path, in_memory: bool, now_ms: i64) -> Self {
        let clock = Clock::manual(now_ms);
        let options = Options { state: state.to_owned(), in_memory, clock: clock.clone() };
        let services = Services::open(wiring, options).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = services.router();
        #[expect(
            clippy::disallowed_methods,
            reason = "the server of a test; aborted when the test ends"
        )]
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { services, address, clock, server, state: None }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Stops everything but the state folder.
    async fn stop(mut self) {
        self.server.abort();
        let _aborted = (&mut self.server).await;
    }
}

/// The same settings for each service's SDK: this host, plain HTTP, no retries, calls as the function `tester`.
macro_rules! client {
    ($sdk:ident, $host:expr) => {
        client!($sdk, $host, 1)
    };
    ($sdk:ident, $host:expr, $attempts:expr) => {
        $sdk::Client::from_conf(
            $sdk::Config::builder()
                .behavior_version($sdk::config::BehaviorVersion::latest())
                .region($sdk::config::Region::new("us-east-1"))
                .endpoint_url($host.url())
                .credentials_provider(crate::credentials())
                .retry_config(
                    $sdk::config::retry::RetryConfig::standard().with_max_attempts($attempts),
                )
                .http_client(aws_smithy_http_client::Builder::new().build_http())
                .build(),
        )
    };
}
pub(crate) use client;

fn credentials() -> Credentials {
    Credentials::new("LOCALtester", "secret", None, None, "test")
}

const INBOX: &str = "postern-test-InboxTable";
const OUTBOX: &str = "postern-test-OutboxTable";
const QUEUE: &str = "arn:aws:sqs:us-east-1:000000000000:work";
const QUEUE_URL: &str = "https://sqs.us-east-1.amazonaws.com/000000000000/work";
const DEAD: &str = "arn:aws:sqs:us-east-1:000000000000:dead";
const DEAD_URL: &str = "https://sqs.us-east-1.amazonaws.com/000000000000/dead";
/// Gives up its messages to the same dead letters.
const OTHER: &str = "arn:aws:sqs:us-east-1:000000000000:other";
const OTHER_URL: &str = "https://sqs.us-east-1.amazonaws.com/000000000000/other";
const KEY: &str = "arn:aws:kms:us-east-1:000000000000:key/11111111-2222-3333-4444-555555555555";

fn wiring() -> Wiring {
    Wiring {
        region: "us-east-1".to_owned(),
        tables: vec![table(INBOX, Some("by_due")), table(OUTBOX, None)],
        queues: vec![
            queue("work", QUEUE, Some((DEAD.to_owned(), 2))),
            queue("other", OTHER, Some((DEAD.to_owned(), 2))),
            queue("dead", DEAD, None),
        ],
        buckets: vec!["bodies".to_owned()],
        keys: vec![KEY.to_owned()],
        ..Wiring::default()
    }
}

fn table(name: &str, index: Option<&str>) -> Table {
    let arn = format!("arn:aws:dynamodb:us-east-1:000000000000:table/{name}");
    let mut create = json!({
        "TableName": name,
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [
            { "AttributeName": "pk", "AttributeType": "S" },
            { "AttributeName": "sk", "AttributeType": "S" },
        ],
        "KeySchema": [{ "AttributeName": "pk", "KeyType": "HASH" }, { "AttributeName": "sk", "KeyType": "RANGE" }],
    });
    let definitions = create["AttributeDefinitions"].as_array_mut().unwrap();
    match index {
        Some(index) => {
            definitions.push(json!({ "AttributeName": "shard", "AttributeType": "S" }));
            definitions.push(json!({ "AttributeName": "due_at", "AttributeType": "N" }));
            create["GlobalSecondaryIndexes"] = json!([{
                "IndexName": index,
                "KeySchema": [{ "AttributeName": "shard", "KeyType": "HASH" }, { "AttributeName": "due_at", "KeyType": "RANGE" }],
                "Projection": { "ProjectionType": "KEYS_ONLY" },
            }]);
        }
        None => {
            create["StreamSpecification"] =
                json!({ "StreamEnabled": true, "StreamViewType": "NEW_IMAGE" });
        }
    }
    Table {
        logical_id: name.to_owned(),
        name: name.to_owned(),
        stream_arn: index.is_none().then(|| format!("{arn}/stream/1970-01-01T00:00:00.000")),
        arn,
        create,
        ttl_attribute: Some("expires_at".to_owned()),
    }
}

fn queue(name: &str, arn: &str, redrive: Option<(String, u32)>) -> Queue {
    Queue {
        logical_id: name.to_owned(),
        name: name.to_owned(),
        arn: arn.to_owned(),
        visibility: Duration::from_secs(30),
        retention: Duration::from_secs(345_600),
        delay: Duration::ZERO,
        receive_wait: Duration::ZERO,
        redrive,
    }
}
