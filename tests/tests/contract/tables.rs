//! The tables of the template, in a DynamoDB of our own on a random port of this machine.

use std::time::Duration;

use aws_credential_types::Credentials;
use aws_sdk_dynamodb::{
    Client,
    config::{BehaviorVersion, Config, Region, retry::RetryConfig, timeout::TimeoutConfig},
    types::AttributeValue,
};
use domain::ports::{
    Bulk, Configure, Deliveries, DueInbox, Events, Fanout, Inbox, Lanes, Learning, Outbox,
    PublishedKeys, Redeliver, Redeliveries, State, Turns, Walk, Watch,
};
use dynamo::{Commits, DeliveriesTable, InboxTable, OutboxTable, RegistryTable, StateTable};
use dynoxide::{Database, actions::create_table::CreateTableRequest};
use testkit::contract::Tables;
use tokio::task::AbortHandle;

use crate::stack::Stack;

const SHARDS: u16 = 4;

pub(crate) const DAY: Duration = Duration::from_hours(24);

/// One deployment's tables, each under the name of its resource in the template.
#[derive(Debug)]
pub(crate) struct Local {
    pub(crate) client: Client,
    pub(crate) inbox: InboxTable,
    pub(crate) state: StateTable,
    pub(crate) outbox: OutboxTable,
    pub(crate) lanes: DeliveriesTable,
    pub(crate) registry: RegistryTable,
    /// Ends with these tables; none, if they are those of another process.
    _server: Option<Server>,
}

/// Who serves the tables.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) port: u16,
    serving: AbortHandle,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Server {
    /// Serves fresh, empty tables.
    #[expect(clippy::disallowed_methods, reason = "the server ends with its handle")]
    pub(crate) async fn new() -> Self {
        let database = Database::memory().expect("a database in memory");
        for request in create_requests() {
            database.create_table(request).expect("a table of the template");
        }
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let serving = tokio::spawn(dynoxide::server::serve_on(listener, database)).abort_handle();
        Self { port, serving }
    }
}

impl Local {
    /// Fresh, empty tables.
    pub(crate) async fn new() -> Self {
        let server = Server::new().await;
        let tables = Self::at(server.port);
        Self { _server: Some(server), ..tables }
    }

    /// The tables that are served at a port of this machine.
    pub(crate) fn at(port: u16) -> Self {
        let client = client(port);
        let state = StateTable {
            client: client.clone(),
            table: "StateTable".to_owned(),
            commits: Some(Commits {
                inbox: "InboxTable".to_owned(),
                outbox: "OutboxTable".to_owned(),
                outbox_shards: SHARDS,
            }),
        };
        Self {
            inbox: InboxTable {
                list_by_source: true,
                ..InboxTable::new(client.clone(), "InboxTable", SHARDS)
            },
            state,
            outbox: OutboxTable {
                requests: Some("StateTable".to_owned()),
                ..OutboxTable::new(client.clone(), "OutboxTable", SHARDS)
            },
            lanes: DeliveriesTable {
                outbox: Some("OutboxTable".to_owned()),
                ..DeliveriesTable::new(client.clone(), "DeliveriesTable", SHARDS)
            },
            registry: RegistryTable { client: client.clone(), table: "RegistryTable".to_owned() },
            client,
            _server: None,
        }
    }

    /// An attribute of an item, past all ports.
    pub(crate) async fn attribute(
        &self,
        table: &str,
        (pk, sk): (&str, &str),
        name: &str,
    ) -> Option<AttributeValue> {
        let get = self.client.get_item().table_name(table).consistent_read(true);
        let get = get.key("pk", text(pk)).key("sk", text(sk));
        get.send().await.expect("an answer").item.expect("an item").remove(name)
    }

    /// Deletes an item, past all ports.
    pub(crate) async fn delete(&self, table: &str, (pk, sk): (&str, &str)) {
        let delete = self.client.delete_item().table_name(table);
        let delete = delete.key("pk", text(pk)).key("sk", text(sk));
        delete.send().await.expect("an answer");
    }
}

impl Tables for Local {
    fn inbox(&self) -> &(impl Inbox + DueInbox + Walk) {
        &self.inbox
    }

    fn state(&self) -> &(impl State + Watch + PublishedKeys + Turns) {
        &self.state
    }

    fn outbox(&self) -> &(impl Outbox + Events) {
        &self.outbox
    }

    fn lanes(&self) -> &(impl Fanout + Lanes + Deliveries + Redeliver) {
        &self.lanes
    }

    fn registry(&self) -> &(impl Configure + Learning + Bulk + Redeliveries) {
        &self.registry
    }

    fn shards(&self) -> u16 {
        SHARDS
    }
}

pub(crate) fn text(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}

/// A client of whatever listens on a port of this machine. It never tries twice: what is seen is what was said.
pub(crate) fn client(port: u16) -> Client {
    let http = aws_smithy_http_client::Builder::new().build_http();
    let timeouts = TimeoutConfig::builder().operation_timeout(Duration::from_secs(30)).build();
    let config = Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::from_keys("local", "local", None))
        .endpoint_url(format!("http://127.0.0.1:{port}"))
        .http_client(http)
        .retry_config(RetryConfig::disabled())
        .timeout_config(timeouts);
    Client::from_conf(config.build())
}

/// What creates the tables of the template.
fn create_requests() -> Vec<CreateTableRequest> {
    let stack = Stack::read();
    let request = |(id, resource): (&str, &serde_json::Value)| {
        let mut properties = resource["Properties"].as_object().expect("properties").clone();
        // What has a table but no request of ours to make one.
        for other in ["DeletionProtectionEnabled", "StreamSpecification"] {
            properties.remove(other);
        }
        properties.remove("PointInTimeRecoverySpecification");
        properties.remove("TimeToLiveSpecification");
        properties.insert("TableName".to_owned(), id.into());
        serde_json::from_value(properties.into()).expect("a request")
    };
    stack.resources("AWS::DynamoDB::Table").map(request).collect()
}
