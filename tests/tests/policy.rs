//! The calls that the functions really make, against the rights that the template gives them: every call is allowed, and
//! every right is used, or stands in [`UNUSED`] with the reason.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header};
use local::template::{self, Role, Statement};
use serde_json::{Value, json};
use tests::{
    aws::Aws,
    client::Client,
    control::{Call, Fault},
    eventually,
    host::{Host, Setup},
    now,
    provider::{Event, Provider},
    root, seed,
    subscriber::Reply,
};

/// What a role may do although no run of this test does it: function, action, end of the resource, and why. An entry that
/// a run uses, or that no role grants any more, fails too.
const UNUSED: &[(&str, &str, &str, &str)] = &[
    ("worker", "sqs:GetQueueAttributes", "InboundQueue", "the event source asks for it"),
    ("deliverer", "sqs:GetQueueAttributes", "WakeQueue", "the event source asks for it"),
    (
        "relay",
        "dynamodb:DescribeStream",
        "/stream/1970-01-01T00:00:00.000",
        "the event source does it",
    ),
    ("relay", "dynamodb:GetRecords", "/stream/1970-01-01T00:00:00.000", "the event source does it"),
    (
        "relay",
        "dynamodb:GetShardIterator",
        "/stream/1970-01-01T00:00:00.000",
        "the event source does it",
    ),
    ("relay", "dynamodb:ListStreams", "/stream/*", "the event source does it"),
    (
        "worker",
        "s3:ListBucket",
        "",
        "S3 itself asks it, to tell an absent object from a forbidden one",
    ),
    (
        "deliverer",
        "s3:ListBucket",
        "",
        "S3 itself asks it, to tell an absent object from a forbidden one",
    ),
    ("relay", "dynamodb:GetItem", "OutboxTable", "an event for more endpoints than one step takes"),
    ("relay", "s3:GetObject", "/out/*", "a filter on a payload that stands in the bucket"),
    (
        "relay",
        "s3:ListBucket",
        "",
        "S3 itself asks it, to tell an absent object from a forbidden one",
    ),
    ("relay", "sqs:SendMessage", "StreamFailures", "the event source does it when it gives up"),
    ("sweeper", "s3:GetObject", "/out/*", "a filter on a payload that stands in the bucket"),
    (
        "sweeper",
        "s3:ListBucket",
        "",
        "S3 itself asks it, to tell an absent object from a forbidden one",
    ),
    (
        "api",
        "s3:ListBucket",
        "",
        "S3 itself asks it, to tell an absent object from a forbidden one",
    ),
    ("ingress", "dynamodb:UpdateItem", "RegistryTable", "a handshake that brings a secret"),
    ("ingress", "secretsmanager:CreateSecret", "/in/*", "a handshake that brings a secret"),
    ("ingress", "secretsmanager:PutSecretValue", "/in/*", "a handshake that brings a secret"),
    ("ingress", "dynamodb:Query", "StateTable", "a provider that publishes its keys"),
    ("ingress", "dynamodb:GetItem", "StateTable", "a key that a provider has yet to give"),
    ("sweeper", "dynamodb:GetItem", "StateTable", "fetching a key that a provider publishes"),
    ("sweeper", "dynamodb:PutItem", "StateTable", "keeping a key that a provider published"),
    ("sweeper", "secretsmanager:GetSecretValue", "/in/*", "a provider that asks who wants its key"),
];

/// The role of each function, by its binary.
fn roles() -> Result<BTreeMap<String, Role>> {
    let (template, samconfig) = (root().join("template.yaml"), root().join("samconfig.toml"));
    let environment = Some((samconfig.as_path(), "test"));
    let wiring = template::read(&template, environment)?;
    let roles = template::roles(&template, environment)?;
    let role = |id: &str| roles.iter().find(|role| role.logical_id == id).cloned();
    let of = wiring.functions.iter();
    of.map(|f| Ok((f.binary.clone(), role(&f.role).with_context(|| format!("no {}", f.role))?)))
        .collect()
}

/// Whether a text is of a pattern in which `*` stands for anything.
fn is_like(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else {
        return false;
    };
    let mut parts: Vec<_> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}

/// Whether a statement speaks of a call.
fn speaks_of(statement: &Statement, call: &Call) -> bool {
    statement.actions.iter().any(|action| is_like(action, &call.action))
        && statement.resources.iter().any(|resource| is_like(resource, &call.resource))
        && touches(&statement.conditions, &call.leading_keys)
}

/// Whether the condition on leading keys holds. Others are about what is not recorded: the encryption context, which
/// the host's KMS itself binds to what it encrypts; and the source of an entry, by which the deliverer's own notices are
/// told from an endpoint's events. The code refuses the latter, so what is recorded are notices.
fn touches(conditions: &Value, keys: &[String]) -> bool {
    if conditions.pointer("/StringNotEquals/events:source").is_some() {
        return false;
    }
    let patterns = conditions.pointer("/ForAllValues:StringLike/dynamodb:LeadingKeys");
    let Some(patterns) = patterns.and_then(Value::as_array) else { return true };
    let patterns: Vec<_> = patterns.iter().filter_map(Value::as_str).collect();
    keys.iter().all(|key| patterns.iter().any(|pattern| is_like(pattern, key)))
}

fn is_allowed(role: &Role, call: &Call) -> bool {
    let of = |effect| role.statements.iter().filter(move |s| s.effect == effect);
    of("Allow").any(|s| speaks_of(s, call)) && !of("Deny").any(|s| speaks_of(s, call))
}

/// What a role may do and no call did: action and resource.
fn unused(role: &Role, calls: &[&Call]) -> BTreeSet<(String, String)> {
    let mut unused = BTreeSet::new();
    for statement in role.statements.iter().filter(|statement| statement.effect == "Allow") {
        for action in &statement.actions {
            for resource in &statement.resources {
                let one = Statement {
                    actions: vec![action.clone()],
                    resources: vec![resource.clone()],
                    ..statement.clone()
                };
                if !calls.iter().any(|call| speaks_of(&one, call)) {
                    unused.insert((action.clone(), resource.clone()));
                }
            }
        }
    }
    unused
}

/// Does everything that a deployment does.
async fn do_everything(host: &Host) -> Result<()> {
    let (api, control, aws) = (host.api()?, host.control()?, host.aws()?);
    let subscriber = host.subscriber().await?;
    let endpoint = api.endpoint("policy", &subscriber.url()).await?;
    let (mirrored, forwarded) = (Provider::stripe("mirrored")?, Provider::github("forwarded")?);
    api.mirror(&mirrored, Some("policy")).await?;
    api.forward(&forwarded, "policy").await?;
    api.client().get("/v1/sources").await?.good()?;
    api.client().get("/v1/sources/mirrored").await?.good()?;
    api.client().get("/v1/sources/mirrored/rejected").await?.good()?;
    rotate(api.client(), &forwarded).await?;
    api.client().get("/v1/tenants/policy/endpoints").await?.good()?;
    api.client().get("/v1/tenants/policy/events/unmatched").await?.good()?;
    let path = format!("/v1/tenants/policy/endpoints/{}", endpoint.id);
    api.client().get(&path).await?.good()?;

    // Small, middling and large; twice; failing first; overtaken.
    subscriber.then([Reply::status(500), Reply::status(503).header("retry-after", "1")]);
    let at = now().as_second();
    for (n, created) in [(1, at), (2, at - 50)] {
        let event = Event::stripe(&format!("evt_{n}"), "invoice.paid", "in_1", created);
        mirrored.send_until_accepted(host, &event).await?;
        mirrored.send_until_accepted(host, &event).await?;
        api.until_delivered("mirrored", &format!("evt_{n}")).await.or_else(|error| {
            if n == 2 { Ok(tests::api::Story(Value::Null)) } else { Err(error) }
        })?;
    }
    for (id, parts) in [("middling", 40), ("large", 2000)] {
        let text: String = (0..parts).map(|n| seed::text_of(&format!("{id}-{n}"))).collect();
        let event = Event::new(id, "push", json!({ "text": text }).to_string());
        forwarded.send_until_accepted(host, &event).await?;
        api.until_delivered("forwarded", id).await?;
    }
    // Refused, and seen.
    let forged = mirrored.with_secret("whsec_somebody-elses-secret");
    let refused = forged.send(&host.ingress()?, &Event::stripe("evt_1", "a.b", "in_1", at)).await?;
    ensure!(refused.code() == 401, "a forged event is answered {}", refused.code());
    api.replay("mirrored", "evt_1").await?.good()?;
    api.until("mirrored", "evt_1", "processed").await?;

    // Paused, and resumed with something that waits.
    let of_source = "/v1/sources/mirrored";
    let reason = json!({ "reason": "a look at the rights" });
    api.client().post(&format!("{of_source}/pause"), &reason).await?.good()?;
    // Workers go on until they see the pause; the events before that are carried out.
    let mut tries = 0;
    let waits = eventually("an event is put off", async || {
        tries += 1;
        let event = Event::stripe(&format!("evt_waits_{tries}"), "invoice.paid", "in_waits", at);
        mirrored.send_until_accepted(host, &event).await?;
        let rests = eventually("it is put off, or done", async || {
            let story = api.story("mirrored", &event.id).await?;
            let next = story.0.get("next_action").and_then(Value::as_str).unwrap_or_default();
            let is_put_off = next.starts_with("waits: the source is paused");
            ensure!(is_put_off || story.status() == "processed", "{}", story.0);
            Ok(is_put_off)
        });
        ensure!(rests.await?, "the pause is not seen yet");
        Ok(event.id)
    })
    .await?;
    api.client().post(&format!("{of_source}/resume"), &json!({})).await?.good()?;
    api.until("mirrored", &waits, "processed").await?;
    api.client().get(&format!("{of_source}/objects/invoice/in_waits")).await?.good()?;

    // Several in one request: small, middling and large.
    let batched = Provider::batching("batched")?;
    api.forward(&batched, "policy").await?;
    let parts = |n: usize| (0..n).map(|n| seed::text_of(&n.to_string())).collect::<String>();
    let event =
        |id: &str, n| Event::new(id, "push", json!({ "id": id, "text": parts(n) }).to_string());
    let events =
        [("batched_1", 0), ("batched_2", 40), ("batched_3", 2000)].map(|(id, n)| event(id, n));
    batched.send_until_accepted(host, &Event::request(&events)).await?;
    for event in &events {
        eventually("the request is split", async || api.story("batched", &event.id).await).await?;
        api.until_delivered("batched", &event.id).await?;
    }

    // Published by the team's own program: small and large, with a key and without.
    let text: String = (0..2000).map(|n| seed::text_of(&n.to_string())).collect();
    for (payload, key) in
        [(json!({}), Some("k")), (json!({}), Some("k")), (json!({ "t": text }), None)]
    {
        let event =
            json!({ "tenant": "policy", "type": "t", "aggregate_id": "a", "payload": payload });
        let id = api.publish(&event.to_string(), key).await?.text("/id")?;
        api.until_outgoing("policy", &id, "succeeded").await?;
        api.redeliver("policy", &id, &endpoint.id).await?.good()?;
        api.until_outgoing("policy", &id, "succeeded").await?;
    }

    // Brought by a bus: published, or given up.
    for detail in
        [json!({ "tenant": "policy", "type": "t", "aggregate_id": "a", "payload": 1 }), json!({})]
    {
        let entry =
            json!({ "Source": "postern/publish", "DetailType": "t", "Detail": detail.to_string() });
        aws.eventbridge("PutEvents", &json!({ "Entries": [entry] })).await?;
    }
    eventually("one is given up", async || {
        ensure!(aws.depth("PublishFailures").await? == 1, "not yet");
        Ok(())
    })
    .await?;

    asked(host).await?;

    // Parked, listed, sent again by the provider, and redriven.
    control
        .fault(&Fault::new("dynamodb", "TransactWriteItems", "access_denied").of("worker"))
        .await?;
    let parked =
        |n: u32| Event::stripe(&format!("evt_parked_{n}"), "invoice.paid", &format!("in_p{n}"), at);
    for n in [1, 2] {
        mirrored.send_until_accepted(host, &parked(n)).await?;
        api.until("mirrored", &parked(n).id, "dead_letter").await?;
    }
    api.client().get("/v1/parked").await?.good()?;
    control.heal().await?;
    mirrored.send_until_accepted(host, &parked(1)).await?;
    api.until_delivered("mirrored", &parked(1).id).await?;
    redriven(&aws, host, &parked(2).id).await?;

    // Replayed in bulk: by api at once, and by the sweeper where api could not; parked ones, finished ones, waiting ones.
    let replay = |select: Value| json!({ "source": "mirrored", "select": select, "reason": "all" });
    let both = replay(json!({ "status": ["processed", "dead_letter"] }));
    let started = api.client().post("/v1/replays", &both).await?.text("/id")?;
    eventually("the replay is over", async || {
        let work = api.client().get(&format!("/v1/replays/{started}")).await?;
        ensure!(work.text("/state")? == "completed", "{work:?}");
        Ok(())
    })
    .await?;
    control.fault(&Fault::new("dynamodb", "Query", "throttle").of("api")).await?;
    let left =
        api.client().post("/v1/replays", &replay(json!({ "status": ["processed"] }))).await?;
    control.heal().await?;
    eventually("the sweeper has done it", async || {
        let path = format!("/v1/replays/{}", left.text("/id")?);
        let work = api.client().get(&path).await?;
        ensure!(work.text("/state")? == "completed", "{work:?}");
        Ok(())
    })
    .await?;
    let resume = json!({ "source": "mirrored", "kind": "resume", "reason": "all" });
    api.client().post("/v1/replays", &resume).await?.good()?;
    api.client().get("/v1/replays").await?.good()?;

    // What only the sweeper finds: no message, no relay, no wake.
    control.fault(&Fault::new("sqs", "SendMessage", "internal").of("ingress")).await?;
    control.fault(&Fault::new("dynamodb", "*", "throttle").of("relay")).await?;
    let lost = Event::stripe("evt_lost", "invoice.paid", "in_lost", at);
    mirrored.send_until_accepted(host, &lost).await?;
    api.until_delivered("mirrored", "evt_lost").await?;
    control.heal().await?;

    // The team's own queue and bus.
    let queue = aws.sqs("CreateQueue", &json!({ "QueueName": "policy-mail" })).await?;
    aws.eventbridge("CreateEventBus", &json!({ "Name": "policy-orders" })).await?;
    let queue = queue.get("QueueUrl").context("a queue")?;
    api.add_endpoint("policy-internal", &json!({ "queue": queue })).await?;
    let bus = json!({ "bus": "policy-orders", "idempotent": false });
    api.add_endpoint("policy-internal", &bus).await?;
    let event =
        json!({ "tenant": "policy-internal", "type": "t", "aggregate_id": "a", "payload": {} });
    let id = api.publish(&event.to_string(), None).await?.text("/id")?;
    api.until_outgoing("policy-internal", &id, "succeeded").await?;

    steered(&api, &subscriber.url()).await?;
    polled(host).await?;
    redelivered(host, &endpoint.id).await?;

    // An endpoint that is gone.
    let gone = host.subscriber().await?;
    gone.otherwise(Reply::status(410));
    api.endpoint("policy-gone", &gone.url()).await?;
    let event = json!({ "tenant": "policy-gone", "type": "t", "aggregate_id": "a", "payload": {} });
    api.publish(&event.to_string(), None).await?.good()?;
    gone.until(1).await?;
    control.run("SweeperFunction").await?;
    control.idle().await
}

/// A source is changed, and gets a new secret beside the old one.
async fn rotate(api: &Client, source: &Provider) -> Result<()> {
    let path = format!("/v1/sources/{}", source.source());
    let change = Bytes::from(json!({ "dedupe": "id" }).to_string());
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    api.call(Method::PATCH, &path, headers, change).await?.good()?;
    let secret = json!({ "id": "2", "secret": seed::text_of("a second secret") });
    api.post(&format!("{path}/secrets"), &secret).await?.good()?;
    api.get(&format!("{path}/secrets")).await?.good()?;
    // The first one ends in a day: without force, the one that stays could not be taken away.
    let new = format!("{path}/secrets/2?force=true");
    api.call(Method::DELETE, &new, HeaderMap::new(), Bytes::new()).await?.good()?;
    Ok(())
}

/// An endpoint's whole life.
async fn steered(api: &tests::api::Api, url: &str) -> Result<()> {
    let all = "/v1/tenants/policy-life/endpoints";
    let endpoint = api.endpoint("policy-life", url).await?;
    let one = format!("{all}/{}", endpoint.id);
    let (json, client) = ("application/json", api.client());
    let call = async |method: Method, path: &str, body: Value| -> Result<Value> {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(json));
        client.call(method, path, headers, Bytes::from(body.to_string())).await?.good()
    };
    call(Method::PATCH, &one, json!({ "rate": 50, "headers": { "x-a": "1" } })).await?;
    call(Method::GET, &format!("{one}/secrets"), json!({})).await?;
    call(Method::POST, &format!("{one}/secrets/rotate"), json!({})).await?;
    call(Method::POST, &format!("{one}/pause"), json!({ "reason": "x" })).await?;
    call(Method::POST, &format!("{one}/resume"), json!({})).await?;
    call(Method::POST, &format!("{one}/disable"), json!({ "reason": "x" })).await?;
    call(Method::POST, &format!("{one}/enable"), json!({})).await?;
    let trial = call(Method::POST, &format!("{one}/test"), json!({})).await?;
    let event = trial.get("event").and_then(Value::as_str).context("a test event")?;
    api.until_outgoing("policy-life", event, "succeeded").await?;
    let wanted = json!({ "url": url });
    for _ in 0..2 {
        call(Method::PUT, &format!("{all}/by-key/k"), wanted.clone()).await?;
    }
    call(Method::DELETE, &one, json!({})).await?;
    call(Method::GET, &one, json!({})).await?;
    api.outgoing("policy-life", event).await?;
    Ok(())
}

/// An endpoint whose owner fetches what it gets: small, and large.
async fn polled(host: &Host) -> Result<()> {
    let api = host.api()?;
    let all = "/v1/tenants/policy-polled/endpoints";
    let made = api.client().post(all, &json!({ "poll": true })).await?;
    let gateway = host.ready()?.apis.get("SubscriberApi").context("a gateway for pollers")?.clone();
    let poller = Client::new(&gateway, Some(&made.text("/token")?))?;
    let poll = format!("/poll/policy-polled/{}", made.text("/id")?);
    let large: String = (0..2000).map(|n| seed::text_of(&format!("polled-{n}"))).collect();
    for payload in [json!({}), json!({ "t": large })] {
        let event = json!({ "tenant": "policy-polled", "type": "t", "aggregate_id": "a", "payload": payload });
        let id = api.publish(&event.to_string(), None).await?.text("/id")?;
        let receipt = eventually("it is handed out", async || {
            poller.post(&poll, &json!({})).await?.text("/deliveries/0/receipt")
        })
        .await?;
        poller.post(&format!("{poll}/ack"), &json!({ "receipts": [receipt] })).await?.good()?;
        api.until_outgoing("policy-polled", &id, "succeeded").await?;
    }
    Ok(())
}

/// Deliveries are listed, and many are sent again: by api at once, and by the sweeper where api could not.
async fn redelivered(host: &Host, endpoint: &str) -> Result<()> {
    let (api, control) = (host.api()?, host.control()?);
    let of_endpoint = format!("/v1/tenants/policy/endpoints/{endpoint}/deliveries");
    api.client().get(&of_endpoint).await?.good()?;
    let delivered = json!({ "include_delivered": true });
    let missing = json!({ "missing": true, "from": "2026-01-01T00:00:00Z" });
    for select in [delivered, missing] {
        for by_sweeper in [false, true] {
            if by_sweeper {
                control.fault(&Fault::new("dynamodb", "Query", "throttle").of("api")).await?;
            }
            let order = json!({ "endpoint": endpoint, "select": select, "reason": "all" });
            let started = api.client().post("/v1/tenants/policy/redeliveries", &order).await?;
            control.heal().await?;
            let path = format!("/v1/tenants/policy/redeliveries/{}", started.text("/id")?);
            eventually("the redelivery is over", async || {
                let work = api.client().get(&path).await?;
                ensure!(work.text("/state")? == "completed", "{work:?}");
                Ok(())
            })
            .await?;
        }
    }
    Ok(())
}

/// A source whose provider is asked, with the second of its tokens.
async fn asked(host: &Host) -> Result<()> {
    let (api, provider) = (host.api()?, host.subscriber().await?);
    let stripe = Provider::stripe("asked")?;
    let own = provider.url().replace("/hooks", "/v1/{path}/{id}");
    let source = json!({
        "name": "asked",
        "scheme": stripe.choice(),
        "handler": { "kind": "mirror" },
        "secrets": { "1": stripe.secret() },
        "fetch": { "own": { "like": "stripe", "url": own } },
    });
    api.add_source(&source).await?;
    for id in ["1", "2"] {
        let token = json!({ "id": id, "token": format!("rk_{id}") });
        api.client().post("/v1/sources/asked/tokens", &token).await?.good()?;
    }
    let object = json!({ "id": "in_asked" }).to_string();
    provider.otherwise(Reply::status(200).header("content-type", "application/json").body(object));
    let event = Event::stripe("evt_asked", "invoice.paid", "in_asked", now().as_second());
    stripe.send_until_accepted(host, &event).await?;
    api.until("asked", "evt_asked", "processed").await?;
    ensure!(provider.count() == 1, "{:?}", provider.seen());
    api.client().get("/v1/sources/asked/objects/invoice/in_asked").await?.good()?;
    Ok(())
}

async fn redriven(aws: &Aws, host: &Host, id: &str) -> Result<()> {
    eventually("the redriven event is processed", async || {
        aws.redrive("InboundDlq").await?;
        let story = host.api()?.story("mirrored", id).await?;
        ensure!(story.status() == "processed", "{}", story.0);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn functions_call_what_their_roles_allow_and_their_roles_allow_what_they_call() -> Result<()>
{
    let host = Host::start(Setup::IN_MEMORY).await?;
    do_everything(&host).await?;
    let calls = host.control()?.calls().await?;
    let roles = roles()?;
    let mut refused = Vec::new();
    let mut idle = BTreeSet::new();
    for (binary, role) in &roles {
        let own: Vec<_> = calls.iter().filter(|call| call.function == *binary).collect();
        assert!(
            !own.is_empty(),
            "{binary} called nothing; the host tells callers apart by their keys"
        );
        refused.extend(
            own.iter().filter(|call| !is_allowed(role, call)).map(|call| format!("{call:?}")),
        );
        for (action, resource) in unused(role, &own) {
            // What Lambda does for the function, which no function calls.
            if !["logs:", "xray:"].iter().any(|service| action.starts_with(service)) {
                idle.insert((binary.clone(), action, resource));
            }
        }
    }
    assert!(refused.is_empty(), "not allowed by the role:\n{}", refused.join("\n"));

    let reviewed = |(binary, action, resource): &(String, String, String)| {
        UNUSED
            .iter()
            .any(|(of, what, on, _)| of == binary && what == action && resource.ends_with(on))
    };
    let unreviewed: Vec<_> =
        idle.iter().filter(|right| !reviewed(right)).map(|r| format!("{r:?}")).collect();
    assert!(unreviewed.is_empty(), "rights that nothing uses:\n{}", unreviewed.join("\n"));
    let outdated: Vec<_> = UNUSED
        .iter()
        .filter(|(of, what, on, _)| {
            !idle.iter().any(|(b, a, r)| of == b && what == a && r.ends_with(on))
        })
        .collect();
    assert!(outdated.is_empty(), "these are used, or are no rights any more: {outdated:?}");
    Ok(())
}

#[test]
fn a_call_is_judged_by_action_resource_and_leading_keys() {
    let role = Role {
        logical_id: "R".to_owned(),
        statements: vec![
            Statement {
                effect: "Allow".to_owned(),
                actions: vec!["dynamodb:GetItem".to_owned()],
                resources: vec!["arn:t".to_owned()],
                conditions: json!({ "ForAllValues:StringLike": { "dynamodb:LeadingKeys": ["SOURCE#*"] } }),
            },
            Statement {
                effect: "Allow".to_owned(),
                actions: vec!["s3:*".to_owned()],
                resources: vec!["arn:b/in/*".to_owned()],
                conditions: Value::Null,
            },
            Statement {
                effect: "Deny".to_owned(),
                actions: vec!["s3:DeleteObject".to_owned()],
                resources: vec!["*".to_owned()],
                conditions: Value::Null,
            },
        ],
    };
    let check = |action: &str, resource: &str, keys: &[&str], expected: bool| {
        let call = Call {
            function: "f".to_owned(),
            action: action.to_owned(),
            resource: resource.to_owned(),
            leading_keys: keys.iter().map(|key| (*key).to_owned()).collect(),
        };
        assert_eq!(is_allowed(&role, &call), expected, "{call:?}");
    };
    check("dynamodb:GetItem", "arn:t", &["SOURCE#a", "SOURCE#b"], true);
    check("dynamodb:GetItem", "arn:t", &["SOURCE#a", "TENANT#b"], false);
    check("dynamodb:PutItem", "arn:t", &["SOURCE#a"], false);
    check("dynamodb:GetItem", "arn:u", &["SOURCE#a"], false);
    check("s3:GetObject", "arn:b/in/a/b", &[], true);
    check("s3:GetObject", "arn:b/out/a", &[], false);
    check("s3:DeleteObject", "arn:b/in/a", &[], false);

    let call = |action: &str| Call {
        function: "f".to_owned(),
        action: action.to_owned(),
        resource: "arn:b/in/x".to_owned(),
        leading_keys: Vec::new(),
    };
    let rights = unused(&role, &[&call("s3:PutObject")]);
    assert_eq!(rights, BTreeSet::from([("dynamodb:GetItem".to_owned(), "arn:t".to_owned())]));
}
