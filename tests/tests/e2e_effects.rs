//! Effects outside the tables, on the local host: events of an internal tenant on their way to the team's own queue, bus
//! and service, with the deliverer killed while they have the request and their answer is on its way.
//!
//! Every try of an event carries the same key, whatever it goes to. A target that does not know keys gets one request,
//! and then a person is asked.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tests::{
    api::{Api, Outgoing},
    aws::Aws,
    control::{Control, Fault},
    eventually,
    host::{Host, Setup},
    provider::{Event, Provider},
    subscriber::{Reply, Subscriber},
};

/// Longer than any function waits for an answer.
const KEPT_BACK: Duration = Duration::from_secs(30);

struct Stage {
    host: Host,
    api: Api,
    control: Control,
    aws: Aws,
}

impl Stage {
    async fn set() -> Result<Self> {
        let host = Host::start(Setup::IN_MEMORY).await?;
        let (api, control, aws) = (host.api()?, host.control()?, host.aws()?);
        Ok(Self { host, api, control, aws })
    }

    async fn queue(&self, name: &str) -> Result<String> {
        let fifo = json!({ "FifoQueue": name.ends_with(".fifo").to_string() });
        let attributes = if name.ends_with(".fifo") { fifo } else { json!({}) };
        let asked = json!({ "QueueName": name, "Attributes": attributes });
        let made = self.aws.sqs("CreateQueue", &asked).await?;
        Ok(made.get("QueueUrl").and_then(Value::as_str).context("a URL")?.to_owned())
    }

    async fn bus(&self, name: &str) -> Result<()> {
        self.aws.eventbridge("CreateEventBus", &json!({ "Name": name })).await.map(drop)
    }

    async fn publish(&self, tenant: &str, payload: &Value) -> Result<String> {
        let event = json!({
            "tenant": tenant, "type": "invoice.charged", "aggregate_id": "in_1", "payload": payload,
        });
        self.api.publish(&event.to_string(), None).await?.text("/id")
    }

    /// All that is in a queue.
    async fn messages(&self, url: &str) -> Result<Vec<Value>> {
        let mut all = Vec::new();
        loop {
            let some = json!({
                "QueueUrl": url, "MaxNumberOfMessages": 10, "VisibilityTimeout": 600,
                "MessageAttributeNames": ["All"], "AttributeNames": ["All"],
            });
            let got = self.aws.sqs("ReceiveMessage", &some).await?;
            match got.get("Messages").and_then(Value::as_array) {
                Some(messages) => all.extend(messages.iter().cloned()),
                None => return Ok(all),
            }
        }
    }

    /// How many messages wait in a queue.
    async fn count(&self, url: &str) -> Result<u64> {
        let name = "ApproximateNumberOfMessages";
        let asked = json!({ "QueueUrl": url, "AttributeNames": [name] });
        let answer = self.aws.sqs("GetQueueAttributes", &asked).await?;
        let count = answer.pointer(&format!("/Attributes/{name}")).and_then(Value::as_str);
        Ok(count.context("a count")?.parse()?)
    }

    /// Publishes an event, and kills the deliverer while the target has it and its answer is on its way.
    async fn publish_and_kill(
        &self,
        tenant: &str,
        payload: &Value,
        (service, action): (&'static str, &'static str),
        has_it: impl AsyncFn(&str) -> Result<bool>,
    ) -> Result<String> {
        let kept_back = u64::try_from(KEPT_BACK.as_millis())?;
        let fault = Fault::new(service, action, "delay").of("deliverer").after().by(kept_back);
        self.control.fault(&fault.times(1)).await?;
        let id = self.publish(tenant, payload).await?;
        eventually("the target has it", async || {
            ensure!(self.control.faults_left().await? == 0, "the call is not made yet");
            ensure!(has_it(&id).await?, "the call has no effect yet");
            Ok(())
        })
        .await?;
        self.control.kill("DelivererFunction").await?;
        Ok(id)
    }

    /// Waits until the only delivery of an event has ended, and gives its story.
    async fn ended(&self, tenant: &str, id: &str) -> Result<Value> {
        eventually(&format!("{tenant}/{id} has ended"), async || {
            let Outgoing(story) = self.api.outgoing(tenant, id).await?;
            let delivery = story.pointer("/deliveries/0").context("a delivery")?;
            ensure!(delivery.get("state") != Some(&json!("pending")), "{delivery}");
            Ok(delivery.clone())
        })
        .await
    }

    /// Sweeps, and waits until there is nothing left to do.
    async fn settle(&self) -> Result<()> {
        for _ in 0..3 {
            self.control.run("SweeperFunction").await?;
            self.control.idle().await?;
        }
        Ok(())
    }
}

fn attribute<'m>(message: &'m Value, name: &str) -> &'m str {
    let value = message.pointer(&format!("/MessageAttributes/{name}/StringValue"));
    value.and_then(Value::as_str).unwrap_or_default()
}

fn is_unknown(delivery: &Value) -> bool {
    let unknown = delivery.get("outcome_unknown") == Some(&json!(true));
    let dead = delivery.get("state") == Some(&json!("dead"));
    let last = delivery.get("log").and_then(Value::as_array).and_then(|log| log.last());
    let cause = last.and_then(|last| last.pointer("/outcome/cause"));
    unknown && dead && cause == Some(&json!("outcome_unknown"))
}

/// C16, C25, C27, C28, L3, L18: POST, before the outcome.
#[tokio::test]
async fn a_queue_gets_an_effect_under_one_key_whoever_dies() -> Result<()> {
    let stage = Stage::set().await?;
    let payload = json!({ "amount": 9_007_199_254_740_993_u64 });
    for (tenant, name) in [("standard", "mail"), ("fifo", "mail.fifo")] {
        let url = stage.queue(name).await?;
        stage.api.add_endpoint(tenant, &json!({ "queue": url })).await?;
        let has_it = async |_: &str| Ok(stage.count(&url).await? > 0);
        let id = stage.publish_and_kill(tenant, &payload, ("sqs", "SendMessage"), has_it).await?;
        let Outgoing(story) = stage.api.until_outgoing(tenant, &id, "succeeded").await?;
        let delivery = story.pointer("/deliveries/0").context("a delivery")?;
        ensure!(delivery.get("kind") == Some(&json!("queue")), "{delivery}");
        ensure!(delivery.get("queue") == Some(&json!(url)), "{delivery}");
        stage.settle().await?;
        let messages = stage.messages(&url).await?;
        for message in &messages {
            ensure!(attribute(message, "idempotency_key") == id, "{message}");
            ensure!(attribute(message, "event_type") == "invoice.charged", "{message}");
            ensure!(message.get("Body") == Some(&json!(payload.to_string())), "{message}");
        }
        // A FIFO queue knows the key itself.
        let expected = if tenant == "fifo" { 1 } else { 2 };
        ensure!(messages.len() == expected, "{tenant}: {messages:?}");
    }
    Ok(())
}

/// C16, C25, C27, C28, L3, L18: POST, before the outcome.
#[tokio::test]
async fn a_bus_gets_an_effect_under_one_key_whoever_dies() -> Result<()> {
    let stage = Stage::set().await?;
    // Named before there is such a bus: EventBridge would take the event and drop it.
    stage.api.add_endpoint("internal", &json!({ "bus": "orders" })).await?;
    let early = stage.publish("internal", &json!({ "n": 1 })).await?;
    eventually("it is said that there is no such bus", async || {
        let Outgoing(story) = stage.api.outgoing("internal", &early).await?;
        let cause = story.pointer("/deliveries/0/log/0/outcome/cause").context("an attempt")?;
        ensure!(*cause == json!("no_such_target"), "{story}");
        Ok(())
    })
    .await?;
    stage.bus("orders").await?;
    stage.api.until_outgoing("internal", &early, "succeeded").await?;
    let payload = json!({ "n": 2 });
    let has_it = async |id: &str| {
        let events = stage.control.events().await?;
        Ok(events.iter().any(|event| event.get("resources") == Some(&json!([id]))))
    };
    let call = ("eventbridge", "PutEvents");
    let id = stage.publish_and_kill("internal", &payload, call, has_it).await?;
    stage.api.until_outgoing("internal", &id, "succeeded").await?;
    let events = stage.control.events().await?;
    let of = |id: &str| {
        let is_of = |event: &&Value| event.get("resources") == Some(&json!([id]));
        events.iter().filter(is_of).collect::<Vec<_>>()
    };
    ensure!((of(&early).len(), of(&id).len(), events.len()) == (1, 2, 3), "{events:?}");
    for event in of(&id) {
        ensure!(event.get("detail") == Some(&payload), "{event}");
        ensure!(event.get("source") == Some(&json!("postern.internal")), "{event}");
        ensure!(event.get("detail-type") == Some(&json!("invoice.charged")), "{event}");
        ensure!(event.get("dropped").is_none(), "{event}");
    }
    // What a bus takes only later is tried again, entry by entry.
    let throttled = Fault::new("eventbridge", "PutEvents", "throttle").of("deliverer").times(1);
    stage.control.fault(&throttled).await?;
    let failed = Fault::new("eventbridge", "PutEvents", "partial").of("deliverer").times(1);
    stage.control.fault(&failed).await?;
    let id = stage.publish("internal", &json!({ "n": 3 })).await?;
    let Outgoing(story) = stage.api.until_outgoing("internal", &id, "succeeded").await?;
    let causes: Vec<_> = (0..2)
        .map(|n| story.pointer(&format!("/deliveries/0/log/{n}/outcome/cause")).cloned())
        .collect();
    ensure!(causes == [Some(json!("throttled")), Some(json!("unavailable"))], "{story}");
    // And what it never takes is not.
    let id = stage.publish("internal", &json!([1])).await?;
    let dead = stage.ended("internal", &id).await?;
    let log = dead.get("log").and_then(Value::as_array).context("a log")?;
    ensure!(log.len() == 1 && dead.get("state") == Some(&json!("dead")), "{dead}");
    ensure!(dead.pointer("/log/0/outcome/cause") == Some(&json!("unacceptable")), "{dead}");
    Ok(())
}

/// The requests that a payment service got, by key.
fn keys(payments: &Subscriber) -> BTreeSet<String> {
    payments.seen().iter().map(|seen| seen.header("idempotency-key").to_owned()).collect()
}

/// INB-lease-expires-side-effect-repeats, C16, C24, C25, C26, C27, C28, L3, L18: a payment that a received event asks for.
/// The service knows the key, so that it charges once.
#[tokio::test]
async fn a_service_that_knows_the_key_is_asked_again_and_charges_once() -> Result<()> {
    let stage = Stage::set().await?;
    let payments = stage.host.subscriber().await?;
    stage.api.endpoint("internal", &payments.url()).await?;
    let source = Provider::stripe("invoices")?;
    stage.api.forward(&source, "internal").await?;
    payments.then([Reply::status(200).after(KEPT_BACK), Reply::status(503)]);
    let event = Event::stripe("evt_1", "invoice.paid", "in_1", tests::now().as_second());
    source.send_until_accepted(&stage.host, &event).await?;
    payments.until(1).await?;
    stage.control.kill("DelivererFunction").await?;
    let story = stage.api.until_delivered("invoices", "evt_1").await?;
    let id = story.only_outgoing()?.id().to_owned();
    ensure!(payments.count() == 3, "{} requests", payments.count());
    ensure!(keys(&payments) == BTreeSet::from([id.clone()]), "{:?}", keys(&payments));
    ensure!(payments.seen().iter().all(|seen| seen.id() == id && seen.body == event.body));
    // The event comes again, and a person replays it: the same key.
    source.send_until_accepted(&stage.host, &event).await?;
    stage.api.replay("invoices", "evt_1").await?.good()?;
    stage.api.until_delivered("invoices", "evt_1").await?;
    stage.settle().await?;
    ensure!(keys(&payments) == BTreeSet::from([id]), "{:?}", keys(&payments));
    Ok(())
}

/// INB-lease-expires-side-effect-repeats, DLV-crash-after-post, C17, C24, C29: the service knows no keys. The payment is
/// parked where a person sees it, and nothing asks for it a second time.
#[tokio::test]
async fn a_service_that_knows_no_keys_is_asked_once_and_then_a_person_is() -> Result<()> {
    let stage = Stage::set().await?;
    let payments = stage.host.subscriber().await?;
    let url = json!({ "url": payments.url(), "idempotent": false });
    let endpoint = stage.api.add_endpoint("internal", &url).await?;
    let source = Provider::stripe("invoices")?;
    stage.api.forward(&source, "internal").await?;
    payments.then([Reply::status(200).after(KEPT_BACK)]);
    let event = Event::stripe("evt_1", "invoice.paid", "in_1", tests::now().as_second());
    source.send_until_accepted(&stage.host, &event).await?;
    payments.until(1).await?;
    stage.control.kill("DelivererFunction").await?;
    let story = stage.api.until("invoices", "evt_1", "processed").await?;
    let id = story.only_outgoing()?.id().to_owned();
    let parked = stage.ended("internal", &id).await?;
    ensure!(is_unknown(&parked), "{parked}");
    // The received event's story says it, and says what to do.
    let story = stage.api.story("invoices", "evt_1").await?;
    let Outgoing(told) = story.only_outgoing()?;
    let next = told.pointer("/deliveries/0/next_action").and_then(Value::as_str);
    let again = format!("postern events redeliver internal {id} {endpoint}");
    ensure!(next.is_some_and(|next| next.contains(&again)), "{told}");
    // Neither a sweep, nor the provider, nor a replay asks for it again.
    source.send_until_accepted(&stage.host, &event).await?;
    stage.api.replay("invoices", "evt_1").await?.good()?;
    stage.settle().await?;
    ensure!(payments.count() == 1, "{} requests", payments.count());
    // A person has looked.
    stage.api.redeliver("internal", &id, &endpoint).await?.good()?;
    stage.api.until_outgoing("internal", &id, "succeeded").await?;
    ensure!(payments.count() == 2 && keys(&payments).len() == 1, "{:?}", payments.seen());
    // An answer that says nothing of what happened before it parks too; one that refuses is tried again.
    payments.then([Reply::status(429), Reply::status(500)]);
    let id = stage.publish("internal", &json!({ "n": 2 })).await?;
    let parked = stage.ended("internal", &id).await?;
    ensure!(is_unknown(&parked) && payments.count() == 4, "{parked}");
    Ok(())
}

/// The rows of "POST, before the outcome" and around it, for a target without idempotency: killed before and after each
/// write, it sees no event twice.
#[tokio::test]
async fn killed_at_any_write_nobody_is_charged_twice() -> Result<()> {
    let stage = Stage::set().await?;
    let payments = stage.host.subscriber().await?;
    let url = json!({ "url": payments.url(), "idempotent": false });
    stage.api.add_endpoint("internal", &url).await?;
    let mut ends = Vec::new();
    for happens in [false, true] {
        for n in 0_u32.. {
            let kept_back = u64::try_from(KEPT_BACK.as_millis())?;
            let fault = Fault::new("dynamodb", "UpdateItem", "delay").of("deliverer");
            let fault = fault.by(kept_back).skip(n).times(1);
            stage.control.fault(&if happens { fault.after() } else { fault }).await?;
            let id = stage.publish("internal", &json!({ "n": n })).await?;
            let is_struck = eventually("the write is made, or all is done", async || {
                if stage.control.faults_left().await? == 0 {
                    return Ok(true);
                }
                stage.api.outgoing("internal", &id).await?.ensure_all("succeeded")?;
                stage.control.idle().await?;
                Ok(stage.control.faults_left().await? == 0)
            })
            .await?;
            if is_struck {
                stage.control.kill("DelivererFunction").await?;
            }
            stage.control.heal().await?;
            let delivery = stage.ended("internal", &id).await?;
            let succeeded = delivery.get("state") == Some(&json!("succeeded"));
            ensure!(succeeded || is_unknown(&delivery), "{happens} {n}: {delivery}");
            stage.settle().await?;
            let seen = payments.seen();
            let requests = seen.iter().filter(|seen| seen.id() == id).count();
            ensure!(requests <= 1, "{happens} {n}: {requests} requests");
            ensure!(requests == 1 || !succeeded, "{happens} {n}: nobody was asked");
            if !is_struck {
                break;
            }
            ends.push((happens, n, succeeded, requests));
        }
    }
    // The mark and the outcome, before and after; and the lane's own writes.
    let parked = ends.iter().filter(|(.., succeeded, _)| !succeeded).count();
    // Killed before the outcome is written it is surely parked; after the mark, if the mark came first.
    ensure!(ends.len() >= 6 && parked >= 1, "killed here: {ends:?}");
    Ok(())
}

/// An endpoint must not borrow our rights.
#[tokio::test]
async fn the_stacks_own_queues_and_bus_are_no_endpoints() -> Result<()> {
    let stage = Stage::set().await?;
    let path = "/v1/tenants/internal/endpoints";
    for own in [
        "InboundQueue",
        "InboundDlq",
        "WakeQueue",
        "WakeDlq",
        "StreamFailures",
        "PublishFailures",
        "ScheduleDlq",
    ] {
        let url = stage.aws.queue(own).await?;
        let answer = stage.api.client().post(path, &json!({ "queue": url })).await?;
        ensure!(answer.code() == 422, "{own}: {answer:?}");
    }
    let buses = stage.aws.eventbridge("ListEventBuses", &json!({})).await?;
    let buses = buses.get("EventBuses").and_then(Value::as_array).context("buses")?;
    let own =
        buses.iter().filter_map(|bus| bus.get("Name")?.as_str()).find(|name| *name != "default");
    let own = own.context("the stack has a bus")?;
    let answer = stage.api.client().post(path, &json!({ "bus": own })).await?;
    ensure!(answer.code() == 422, "{own}: {answer:?}");
    Ok(())
}
