//! The three ways into the outbox, through the real binaries: a program that dies in its own transaction, batches, and a
//! bus.

#[expect(dead_code, reason = "orders are placed by the example's own process")]
#[path = "../../shared/outbox/examples/shop/place.rs"]
mod place;

use std::{
    collections::{BTreeMap, BTreeSet},
    process::{Child, Command, Stdio},
    sync::Arc,
};

use anyhow::{Context as _, Result, bail, ensure};
use aws_credential_types::Credentials;
use aws_sdk_dynamodb::{
    Client,
    config::{BehaviorVersion, Config, Region, retry::RetryConfig},
    types::{AttributeValue, TransactWriteItem, Update},
};
use futures_util::future::try_join_all;
use jiff::Timestamp;
use place::{Placed, Shop};
use postern_outbox::{Event, Outbox};
use serde_json::{Value, json};
use tests::{
    aws::Aws,
    binaries,
    control::{Control, Fault},
    eventually,
    host::{Host, Setup},
    now,
    subscriber::Subscriber,
};

/// Longer than any program waits for an answer: who is to be killed must still be waiting.
const KEPT_BACK_MS: u64 = 30_000;

/// A host with an endpoint of the tenant `shop`, and the shop's own table.
struct World {
    host: Host,
    aws: Aws,
    control: Control,
    subscriber: Subscriber,
    outbox: String,
    /// When all orders were sent: after the endpoint was made, which hears of nothing older.
    at: Timestamp,
}

impl World {
    async fn new() -> Result<Self> {
        let host = Host::start(Setup::IN_MEMORY).await?;
        let subscriber = host.subscriber().await?;
        host.api()?.endpoint("shop", &subscriber.url()).await?;
        let (aws, control) = (host.aws()?, host.control()?);
        let orders = json!({
            "TableName": "orders", "BillingMode": "PAY_PER_REQUEST",
            "AttributeDefinitions": [{ "AttributeName": "id", "AttributeType": "S" }],
            "KeySchema": [{ "AttributeName": "id", "KeyType": "HASH" }],
        });
        aws.dynamodb("CreateTable", &orders).await?;
        let outbox = aws.table("OutboxTable").await?;
        Ok(Self { host, aws, control, subscriber, outbox, at: now() })
    }

    /// Starts the example: a process of its own, known to the host as `shop`.
    fn shop(&self, order: &str) -> Result<Child> {
        let mut shop = Command::new(binaries::example("shop")?);
        let at = self.at.as_millisecond().to_string();
        shop.args(["orders", &self.outbox, order, "4200", &at]);
        shop.env_clear();
        shop.env("AWS_ENDPOINT_URL_DYNAMODB", self.host.ready()?.aws);
        shop.envs([("AWS_REGION", "us-east-1"), ("AWS_ACCESS_KEY_ID", "LOCALshop")]);
        shop.env("AWS_SECRET_ACCESS_KEY", "local");
        shop.stdout(Stdio::piped()).spawn().context("the shop cannot be started")
    }

    /// Runs it to its end; what it says.
    fn run(&self, order: &str) -> Result<String> {
        let output = self.shop(order)?.wait_with_output()?;
        ensure!(output.status.success(), "the shop ended with {}", output.status);
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    }

    async fn orders(&self) -> Result<BTreeSet<String>> {
        let found = self.aws.dynamodb("Scan", &json!({ "TableName": "orders" })).await?;
        let items = found.get("Items").and_then(Value::as_array).into_iter().flatten();
        let ids = items.filter_map(|item| Some(item.pointer("/id/S")?.as_str()?.to_owned()));
        Ok(ids.collect())
    }

    /// What each event of the outbox is about, by the event's id.
    async fn told(&self) -> Result<BTreeMap<String, String>> {
        let items = self.aws.items("OutboxTable").await?;
        let pair = |item: &tests::aws::Item| {
            Some((item.text("sk")?.to_owned(), item.text("aggregate_id")?.to_owned()))
        };
        Ok(items.iter().filter_map(pair).collect())
    }

    /// That there is an order if and only if there is its event, and one event for each.
    async fn is_whole(&self) -> Result<BTreeSet<String>> {
        let (orders, told) = (self.orders().await?, self.told().await?);
        let about: BTreeSet<_> = told.values().cloned().collect();
        ensure!(about.len() == told.len(), "an order is told twice: {told:?}");
        ensure!(orders == about, "orders {orders:?}, events about {about:?}");
        Ok(orders)
    }

    /// Waits until the subscriber has every event of the outbox, and no other.
    async fn is_delivered(&self) -> Result<()> {
        let told = self.told().await?;
        eventually("every event has arrived", async || {
            let seen: BTreeSet<_> =
                self.subscriber.seen().iter().map(|seen| seen.id().to_owned()).collect();
            ensure!(seen.iter().eq(told.keys()), "{} of {} arrived", seen.len(), told.len());
            Ok(())
        })
        .await
    }

    fn client(&self) -> Result<Client> {
        let config = Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("us-east-1"))
            .credentials_provider(Credentials::from_keys("LOCALshop", "local", None))
            .endpoint_url(self.host.ready()?.aws)
            .http_client(aws_smithy_http_client::Builder::new().build_http())
            .retry_config(RetryConfig::disabled());
        Ok(Client::from_conf(config.build()))
    }
}

/// OUT-crash-after-commit: killed before the commit, in it, and after it; then run again by somebody who knows nothing.
#[tokio::test]
async fn a_shop_that_is_killed_has_an_order_if_and_only_if_it_has_told_of_it() -> Result<()> {
    let world = World::new().await?;
    for (order, is_after) in [("before", false), ("after", true)] {
        let fault = Fault::new("dynamodb", "TransactWriteItems", "delay").of("shop");
        let fault = fault.by(KEPT_BACK_MS).times(1);
        world.control.fault(&if is_after { fault.after() } else { fault }).await?;
        let mut shop = world.shop(order)?;
        eventually("the shop commits", async || {
            ensure!(world.control.faults_left().await? == 0, "it has not called yet");
            ensure!(world.orders().await?.contains(order) == is_after, "it is not as it must be");
            Ok(())
        })
        .await?;
        shop.kill()?;
        ensure!(!shop.wait()?.success(), "the shop came to its end");
        world.control.heal().await?;
        ensure!(world.is_whole().await?.contains(order) == is_after, "{order}");
        // Nobody needs to run again for what was committed.
        if is_after {
            world.is_delivered().await?;
        }
        let said = world.run(order)?;
        let expected =
            if is_after { ["placed before ", "placed "] } else { ["placed ", "placed "] };
        // Within ten minutes the store itself answers for a transaction that it knows.
        ensure!(expected.iter().any(|start| said.starts_with(start)), "{said}");
        ensure!(world.is_whole().await?.contains(order), "{order} is not placed");
        world.is_delivered().await?;
    }
    ensure!(world.told().await?.len() == 2, "{:?}", world.told().await?);
    Ok(())
}

/// OUT-error-after-commit: no answer, or an error although it was committed.
#[tokio::test]
async fn a_shop_whose_answers_are_lost_places_one_order_and_tells_once() -> Result<()> {
    let world = World::new().await?;
    for (order, error) in [("dropped", "drop"), ("failed", "internal"), ("busy", "conflict")] {
        let fault = Fault::new("dynamodb", "TransactWriteItems", error).of("shop").times(3);
        world.control.fault(&fault.after()).await?;
        let said = world.run(order)?;
        ensure!(said.starts_with("placed"), "{said}");
        world.control.heal().await?;
        ensure!(world.is_whole().await?.contains(order), "{order}");
    }
    world.is_delivered().await
}

/// OUT-transaction-conflict: eight writers, a hundred orders each, one counter in every transaction, and a store that says
/// no to one call in five: before the effect or after it, and for every reason that passes.
#[tokio::test]
async fn eight_writers_of_one_counter_lose_nothing_and_tell_nothing_twice() -> Result<()> {
    let world = World::new().await?;
    let outbox = Outbox::new(world.outbox.clone(), 4);
    let shop = Arc::new(Shop { client: world.client()?, orders: "orders".to_owned(), outbox });
    for (n, error) in ["conflict", "throttle", "internal", "drop"].into_iter().enumerate() {
        for round in 0..20_u32 {
            let skip = round * 10 + u32::try_from(n)?;
            let fault = Fault::new("dynamodb", "TransactWriteItems", error).of("shop");
            let fault = fault.skip(skip).times(1);
            let is_after = round % 2 == 1;
            world.control.fault(&if is_after { fault.after() } else { fault }).await?;
        }
    }
    try_join_all((0..8).map(|writer| {
        let shop = Arc::clone(&shop);
        async move {
            for n in 0..100 {
                count(&shop, &format!("{writer}-{n}")).await?;
            }
            Ok::<_, anyhow::Error>(())
        }
    }))
    .await?;
    ensure!(world.control.faults_left().await? == 0, "the store was never busy enough");
    let counter = shop.client.get_item().table_name("orders").consistent_read(true);
    let counter = counter.key("id", AttributeValue::S("counter".to_owned())).send().await?;
    let count = counter.item.context("a counter")?.remove("count");
    ensure!(count == Some(AttributeValue::N("800".to_owned())), "{count:?}");
    let told = world.told().await?;
    ensure!(told.len() == 800, "{} events", told.len());
    ensure!(told.values().collect::<BTreeSet<_>>().len() == 800, "one is told twice");
    Ok(())
}

/// Counts up, and tells of it.
async fn count(shop: &Shop, name: &str) -> Result<()> {
    let event = Event::new("counted", "counter.counted", name, *b"{}")
        .once(name, Timestamp::from_millisecond(1_790_000_000_123)?);
    let update = Update::builder()
        .table_name(&shop.orders)
        .key("id", AttributeValue::S("counter".to_owned()))
        .update_expression("ADD #count :one")
        .expression_attribute_names("#count", "count")
        .expression_attribute_values(":one", AttributeValue::N("1".to_owned()));
    let update = TransactWriteItem::builder().update(update.build()?).build();
    let items = vec![shop.outbox.put(&event)?, update];
    match shop.commit(items, &event).await? {
        Placed::Now(_) | Placed::Before(_) => Ok(()),
    }
}

/// A hundred at once, some of which cannot be: each has its own result, and those that can be are delivered.
#[tokio::test]
async fn a_batch_is_delivered_but_for_what_was_refused() -> Result<()> {
    let world = World::new().await?;
    let api = world.host.api()?;
    let event = |n: usize| {
        let tenant = if n % 10 == 7 { "No Name" } else { "shop" };
        // Some go through the bucket.
        let payload = "x".repeat(if n % 20 == 3 { 30_000 } else { 10 });
        json!({
            "tenant": tenant, "type": "order.placed", "aggregate_id": format!("order-{n}"),
            "idempotency_key": format!("place order-{n}"), "payload": { "text": payload },
        })
    };
    let batch = json!({ "events": (0..100).map(event).collect::<Vec<_>>() }).to_string();
    let mut first = Vec::new();
    for round in 0..3 {
        let answer = api.publish(&batch, None).await?;
        ensure!(answer.code() == 207, "{answer:?}");
        let results = answer.json()?["results"].as_array().context("results")?.clone();
        let ids: Vec<_> = results.iter().filter_map(|result| result["id"].as_str()).collect();
        ensure!(results.len() == 100 && ids.len() == 90, "{answer:?}");
        let is_repeated = |result: &Value| result["repeated"] == json!(round > 0);
        ensure!(results.iter().filter(|r| r["id"].is_string()).all(is_repeated), "{answer:?}");
        if round == 0 {
            first = results;
        } else {
            let same = first.iter().zip(&results).all(|(one, two)| one["id"] == two["id"]);
            ensure!(same, "{answer:?}");
        }
    }
    // Keys stay a day longer than their events, however long this deployment keeps those.
    let state = world.aws.items("StateTable").await?;
    let requests: Vec<_> = state.iter().filter(|item| item.is_of("REQUEST#shop#")).collect();
    ensure!(requests.len() == 90, "{} keys", requests.len());
    for request in requests {
        let digits =
            |name| request.digits(name).context("a time")?.parse::<i64>().context("a time");
        let stays = digits("expires_at")? - digits("at")? / 1000;
        // `OutboxRetentionMs` of the environment, rounded up, and a day.
        ensure!((77_760 + 86_400..=77_761 + 86_400).contains(&stays), "{stays} s");
    }
    world.is_delivered().await
}

/// Of one key in a batch the first event counts, whichever of the store's answers comes first.
#[tokio::test]
async fn of_one_key_in_a_batch_the_first_event_is_the_one() -> Result<()> {
    let world = World::new().await?;
    for round in 0..30 {
        let event = |n: usize| {
            // The first goes through the bucket, and takes longer.
            let payload = "x".repeat(if n == 0 { 30_000 } else { 10 });
            json!({
                "tenant": "shop", "type": "a", "aggregate_id": format!("{round}-{n}"),
                "idempotency_key": format!("k-{round}"), "payload": payload,
            })
        };
        let batch = json!({ "events": (0..4).map(event).collect::<Vec<_>>() }).to_string();
        let answer = world.host.api()?.publish(&batch, None).await?;
        let results = answer.json()?["results"].as_array().context("results")?.clone();
        let is_first = |n: usize| results.get(n).is_some_and(|result| result["id"].is_string());
        ensure!(is_first(0) && !(1..4).any(is_first), "round {round}: {answer:?}");
    }
    Ok(())
}

async fn put(world: &World, detail: &Value) -> Result<()> {
    let entry = json!({
        "Source": "postern/publish", "DetailType": "order", "Detail": detail.to_string(),
    });
    let put = world.aws.eventbridge("PutEvents", &json!({ "Entries": [entry] })).await?;
    ensure!(put.get("FailedEntryCount") == Some(&json!(0)), "{put}");
    Ok(())
}

fn ordered(order: &str) -> Value {
    json!({ "tenant": "shop", "type": "order.placed", "aggregate_id": order, "payload": { "id": order } })
}

/// What a bus brings is delivered: also if the store is down for a while, or the function dies in the middle.
#[tokio::test]
async fn what_a_bus_brings_is_published_once_whatever_happens_on_the_way() -> Result<()> {
    let world = World::new().await?;
    put(&world, &ordered("plain")).await?;
    for (order, fault) in [
        ("throttled", Fault::new("dynamodb", "PutItem", "throttle").of("api").times(2)),
        ("lost", Fault::new("dynamodb", "PutItem", "drop").of("api").after().times(1)),
    ] {
        world.control.fault(&fault).await?;
        put(&world, &ordered(order)).await?;
        eventually("it is in the outbox", async || {
            ensure!(world.told().await?.values().any(|about| about == order), "not yet");
            Ok(())
        })
        .await?;
        world.control.heal().await?;
    }
    // Killed after its event is there, and before it says so: Lambda calls again.
    let fault = Fault::new("dynamodb", "PutItem", "delay").of("api").by(KEPT_BACK_MS);
    world.control.fault(&fault.after().skip(1).times(1)).await?;
    put(&world, &ordered("killed")).await?;
    eventually("the call is made", async || {
        ensure!(world.control.faults_left().await? == 0, "not yet");
        Ok(())
    })
    .await?;
    world.control.kill("ApiFunction").await?;
    world.control.idle().await?;
    let told = world.told().await?;
    let about: Vec<_> = told.values().map(String::as_str).collect();
    ensure!(about.len() == 4 && about.contains(&"killed"), "{about:?}");
    ensure!(world.aws.depth("PublishFailures").await? == 0, "one was given up");
    world.is_delivered().await
}

/// Nothing ends silently: what cannot be published lies in a queue, with its reason.
#[tokio::test]
async fn what_a_bus_brings_and_cannot_be_published_comes_to_rest_with_its_reason() -> Result<()> {
    let world = World::new().await?;
    put(&world, &json!({ "tenant": "shop", "payload": "CANARY" })).await?;
    let queue = world.aws.queue("PublishFailures").await?;
    let message = eventually("it is given up", async || {
        let found = world.aws.sqs("ReceiveMessage", &json!({ "QueueUrl": queue })).await?;
        let body = found.pointer("/Messages/0/Body").and_then(Value::as_str);
        Ok(serde_json::from_str::<Value>(body.context("nothing there")?)?)
    })
    .await?;
    let Some(why) = message.pointer("/responsePayload/errorMessage").and_then(Value::as_str) else {
        bail!("{message}");
    };
    ensure!(why.contains("type: it is missing; aggregate_id: it is missing"), "{why}");
    ensure!(!why.contains("CANARY"), "{why}");
    ensure!(message["requestPayload"]["detail"]["payload"] == "CANARY", "{message}");
    ensure!(message["requestContext"]["approximateInvokeCount"] == 3, "{message}");
    ensure!(world.told().await?.is_empty(), "it was published");
    Ok(())
}
