//! The shop of the example on a store of its own: an order and its event, or neither.

#[path = "../examples/shop/place.rs"]
mod place;

use std::{future::poll_fn, pin::pin, task::Poll, time::Duration};

use aws_credential_types::Credentials;
use aws_sdk_dynamodb::{
    Client,
    config::{BehaviorVersion, Config, Region, retry::RetryConfig},
    types::{AttributeValue, Get, ItemResponse, TransactGetItem},
};
use domain::{
    id::{TenantId, shard_of},
    outbox::{OutboxRow, Payload},
    ports::Outbox as _,
};
use dynamo::OutboxTable;
use dynoxide::Database;
use jiff::Timestamp;
use place::{Order, Placed, Shop};
use postern_outbox::{Event, EventId, Outbox};
use serde_json::json;
use tokio::task::AbortHandle;

const SHARDS: u16 = 4;

/// A shop, its table and the outbox, in memory.
struct World {
    shop: Shop,
    serving: AbortHandle,
}

impl Drop for World {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl World {
    #[expect(clippy::disallowed_methods, reason = "the server ends with its handle")]
    async fn new() -> Self {
        let database = Database::memory().expect("a database in memory");
        let key = |name: &str, kind: &str| json!({ "AttributeName": name, "KeyType": kind });
        let is = |name: &str, kind: &str| json!({ "AttributeName": name, "AttributeType": kind });
        let orders = json!({
            "TableName": "orders", "BillingMode": "PAY_PER_REQUEST",
            "AttributeDefinitions": [is("id", "S")], "KeySchema": [key("id", "HASH")],
        });
        let outbox = json!({
            "TableName": "outbox", "BillingMode": "PAY_PER_REQUEST",
            "AttributeDefinitions":
                [is("pk", "S"), is("sk", "S"), is("unrelayed_shard", "S"), is("occurred_at", "N")],
            "KeySchema": [key("pk", "HASH"), key("sk", "RANGE")],
            "GlobalSecondaryIndexes": [{
                "IndexName": "by_unrelayed", "Projection": { "ProjectionType": "KEYS_ONLY" },
                "KeySchema": [key("unrelayed_shard", "HASH"), key("occurred_at", "RANGE")],
            }],
        });
        for table in [orders, outbox] {
            database
                .create_table(serde_json::from_value(table).expect("a request"))
                .expect("a table");
        }
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let serving = tokio::spawn(dynoxide::server::serve_on(listener, database)).abort_handle();
        let config = Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("us-east-1"))
            .credentials_provider(Credentials::from_keys("local", "local", None))
            .endpoint_url(format!("http://127.0.0.1:{port}"))
            .http_client(aws_smithy_http_client::Builder::new().build_http())
            .retry_config(RetryConfig::disabled());
        let client = Client::from_conf(config.build());
        let outbox = Outbox::new("outbox", SHARDS);
        Self { shop: Shop { client, orders: "orders".to_owned(), outbox }, serving }
    }

    /// The outbox as the product reads it.
    fn outbox(&self) -> OutboxTable {
        OutboxTable::new(self.shop.client.clone(), "outbox", SHARDS)
    }

    async fn row(&self, id: EventId) -> Option<OutboxRow> {
        self.outbox().event(&tenant(), id).await.expect("the outbox is read")
    }

    /// Whether the order and the event are there, looked at in one moment.
    async fn there(&self, order: &Order, event: EventId) -> (bool, bool) {
        let pk = format!("shop#{}", shard_of(&event.to_string(), dynamo::TENANT_SHARDS));
        let get = |table: &str, key: &[(&str, &str)]| {
            let key =
                key.iter().map(|(n, v)| ((*n).to_owned(), AttributeValue::S((*v).to_owned())));
            let get = Get::builder().table_name(table).set_key(Some(key.collect()));
            TransactGetItem::builder().get(get.build().expect("a get")).build()
        };
        let gets = self
            .shop
            .client
            .transact_get_items()
            .transact_items(get("orders", &[("id", &order.id)]))
            .transact_items(get("outbox", &[("pk", &pk), ("sk", &event.to_string())]));
        let found = gets.send().await.expect("they are read").responses.expect("responses");
        let (order, event) = (found.first().expect("an answer"), found.last().expect("an answer"));
        let is_there =
            |found: &ItemResponse| found.item.as_ref().is_some_and(|item| !item.is_empty());
        (is_there(order), is_there(event))
    }
}

fn tenant() -> TenantId {
    "shop".parse().expect("a tenant")
}

fn order(n: usize) -> Order {
    let at = Timestamp::from_millisecond(1_790_000_000_123).expect("a time");
    Order { id: format!("order-{n}"), total: 4200, at }
}

fn event_of(placed: Placed) -> EventId {
    match placed {
        Placed::Now(event) | Placed::Before(event) => event,
    }
}

#[tokio::test]
async fn the_product_reads_what_the_shop_wrote() {
    let world = World::new().await;
    let placed = world.shop.place(&order(1)).await.expect("it is placed");
    let Placed::Now(id) = placed else { panic!("{placed:?}") };
    let OutboxRow { event, relayed } = world.row(id).await.expect("it is there");
    assert_eq!(relayed, None);
    assert_eq!((event.id, event.tenant, event.event_type.as_str()), (id, tenant(), "order.placed"));
    assert_eq!((event.aggregate_id.as_str(), event.aggregate_version), ("order-1", Some(1)));
    assert_eq!(event.payload, Payload::Inline(br#"{"id":"order-1","total":4200}"#.to_vec()));
    assert_eq!((event.occurred_at, event.schema_version), (order(1).at, 1));
    // The sweeper finds it, should the stream lose it.
    let mut owed = Vec::new();
    for shard in 0..SHARDS {
        owed.extend(world.outbox().unrelayed(shard, Timestamp::MAX, 10).await.expect("a list"));
    }
    assert_eq!(owed, [(tenant(), id)]);
}

/// OUT-crash-after-commit: the process ends at each point at which it can, and the change is there if and only if its
/// event is. Run again, it places nothing twice.
#[tokio::test]
async fn wherever_the_shop_dies_there_is_an_order_if_there_is_its_event() {
    let world = World::new().await;
    let event = event_of(world.shop.place(&order(0)).await.expect("it is placed"));
    let (mut before, mut after) = (0, 0);
    for polls in 0..200 {
        let order = order(polls + 1);
        let mut left = polls;
        let mut placing = pin!(world.shop.place(&order));
        let lived = poll_fn(|context| {
            if left == 0 {
                return Poll::Ready(false);
            }
            left -= 1;
            placing.as_mut().poll(context).map(|placed| placed.is_ok())
        })
        .await;
        // What a dead process has sent may still be carried out: one look is one moment.
        let again =
            Event::new("shop", "x", "x", *b"{}").once(&format!("place {}", order.id), order.at);
        let (has_order, has_event) = world.there(&order, again.id()).await;
        assert_eq!(has_order, has_event, "after {polls} polls");
        let placed = world.shop.place(&order).await.expect("the next run places it");
        assert_eq!(event_of(placed), again.id());
        assert_eq!(world.there(&order, again.id()).await, (true, true));
        if lived {
            assert!(
                before > 0 && after > 0,
                "died {before} times before, {after} after the commit"
            );
            assert_ne!(again.id(), event);
            return;
        }
        if has_order { after += 1 } else { before += 1 }
    }
    panic!("it never comes to its end");
}

/// OUT-error-after-commit
#[tokio::test]
async fn an_order_that_is_placed_again_is_the_first_one() {
    let world = World::new().await;
    let first = world.shop.place(&order(1)).await.expect("it is placed");
    // Within the store's ten minutes a token answers for the whole transaction.
    assert_eq!(world.shop.place(&order(1)).await.expect("an answer"), first);
    // Without its token, as after them: the event's own condition does.
    let event =
        Event::new("shop", "order.placed", "order-1", *b"{}").once("place order-1", order(1).at);
    assert_eq!(event.id(), event_of(first));
    let items = vec![world.shop.outbox.put(&event).expect("an item")];
    let sent =
        world.shop.client.transact_write_items().set_transact_items(Some(items)).send().await;
    let error = sent.expect_err("it is there");
    assert_eq!(postern_outbox::after(&error, 0), postern_outbox::After::Before);
    // And an order that is another one is no repetition.
    let other = Order { at: order(1).at + Duration::from_secs(1), ..order(1) };
    let refused = world.shop.place(&other).await.expect_err("there is one of this id");
    assert!(refused.to_string().contains("another order"), "{refused:#}");
}
