//! Endpoints stopped, started, tried and deleted.

use std::sync::Arc;

use domain::{
    delivery::{Delivery, NewDelivery, State},
    destination::Destination,
    endpoint::{Disabled, Endpoint, Health, Held, LaneCount, Release, Stop},
    id::EndpointId,
    inbox::Noted,
    lane::LaneId,
    outbox::{OutboxEvent, Payload, Relayed},
    ports::{Configure as _, Deliveries as _, Fanout as _, Outbox as _, Registry as _},
};
use serde_json::{Value, json};
use testkit::{
    chaos::{Fault, When},
    memory::LaneItem,
};

use crate::deployment::{Deployment, acme, at, now};

const PATH: &str = "/v1/tenants/acme/endpoints";

/// An endpoint with three lanes, and its path.
async fn with_endpoint() -> (Deployment, String, EndpointId) {
    let postern = Deployment::new();
    let wanted = json!({"url": "https://example.com/in", "lanes": 3});
    let made = postern.post(PATH, &wanted).await.good(201);
    let id = made["id"].as_str().unwrap();
    (postern, format!("{PATH}/{id}"), id.parse().unwrap())
}

async fn stored(postern: &Deployment, id: EndpointId) -> Endpoint {
    postern.0.registry.endpoint(&acme(), id).await.unwrap().unwrap().0
}

/// As if time had passed: everything here happens in one moment.
async fn since(postern: &Deployment, id: EndpointId, seconds: i64) {
    let old = postern.0.registry.endpoint(&acme(), id).await.unwrap().unwrap();
    let mut new = old.clone();
    new.0.stopped.as_mut().unwrap().since = at(seconds);
    assert!(postern.0.registry.replace_endpoint(&old, &new).await.unwrap());
}

fn lane_items(postern: &Deployment) -> Vec<(u16, LaneItem)> {
    let tables = postern.0.deliveries.tables();
    tables.lanes.iter().map(|(id, item)| (id.lane, item.clone())).collect()
}

/// The lanes that the wake queue names.
fn woken(postern: &Deployment) -> Vec<String> {
    let received = std::iter::from_fn(|| postern.0.wakes.receive(|_| 0));
    received.map(|message| message.text).collect()
}

fn actions(postern: &Deployment) -> Vec<String> {
    let audit = postern.audited().into_iter();
    audit.map(|(_, _, action, _)| action).filter(|action| action != "endpoint.add").collect()
}

#[tokio::test]
async fn an_endpoint_is_paused_and_resumed_and_its_lanes_are_woken() {
    let (postern, path, id) = with_endpoint().await;
    let why = json!({"reason": " a deploy "});
    let paused = postern.post(&format!("{path}/pause"), &why).await.good(200);
    assert_eq!(paused["health"]["state"], "paused");
    assert!(paused["told"].as_str().unwrap().contains("held until `resume`"), "{paused}");
    let stopped = json!({"since": now(), "how": "paused", "reason": "a deploy"});
    assert_eq!(paused["stopped"], stopped);
    assert!(lane_items(&postern).is_empty(), "a holder looks at each page by itself");
    let other = json!({"reason": "another"});
    let again = postern.post(&format!("{path}/pause"), &other).await.good(200);
    assert_eq!(again["stopped"], stopped, "the first reason stays");
    assert!(again["told"].as_str().unwrap().contains("a deploy"), "{again}");

    since(&postern, id, -60).await;
    let resumed = postern.ask(&format!("{path}/resume")).await.good(200);
    assert_eq!((&resumed["stopped"], &resumed["health"]["state"]), (&Value::Null, &json!("good")));
    assert_eq!(stored(&postern, id).await.held, [Held { from: at(-60), to: now() }]);
    let items = lane_items(&postern);
    assert_eq!(items.iter().map(|(lane, _)| *lane).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(items.iter().all(|(_, item)| item.wake_at == Some(now())), "{items:?}");
    assert_eq!(woken(&postern).len(), 3);
    assert_eq!(actions(&postern), ["endpoint.pause", "endpoint.pause", "endpoint.resume"]);
}

/// DLV-disabled-events-vanish
#[tokio::test]
async fn an_endpoint_is_disabled_and_enabled_at_a_rate() {
    let (postern, path, id) = with_endpoint().await;
    let (disable, enable) = (format!("{path}/disable"), format!("{path}/enable"));
    let disabled = postern.post(&disable, &json!({"reason": "it went wrong"})).await.good(200);
    assert_eq!(
        (&disabled["health"]["state"], &disabled["stopped"]["how"]),
        (&json!("disabled"), &json!("disabled"))
    );
    // A pause does not make it less, and a resume does not end it.
    let paused = postern.post(&format!("{path}/pause"), &json!({"reason": "x"})).await.good(200);
    assert_eq!(paused["stopped"]["how"], "disabled");
    assert!(paused["told"].as_str().unwrap().contains("stays so: it went wrong"), "{paused}");
    let detail = postern.ask(&format!("{path}/resume")).await.problem(409, "disabled");
    assert!(detail.contains("/enable"), "{detail}");
    since(&postern, id, -90).await;

    for bad in ["0", "10001"] {
        let answer = postern.ask(&format!("{enable}?release_rate={bad}")).await;
        answer.problem(422, "invalid-request");
        assert_eq!(answer.fields(), ["release_rate"]);
    }
    let enabled = postern.ask(&enable).await.good(200);
    assert!(enabled["told"].as_str().unwrap().contains("goes out at 10 a second"), "{enabled}");
    let endpoint = stored(&postern, id).await;
    assert_eq!(endpoint.release, Some(Release { before: now(), rate: 10 }));
    assert_eq!((endpoint.stopped, endpoint.enabled_at), (None, Some(now())));
    assert_eq!(endpoint.held, [Held { from: at(-90), to: now() }]);
    // Once more: nothing but the lanes.
    woken(&postern);
    let again = postern.ask(&format!("{enable}?release_rate=99")).await.good(200);
    assert!(
        again["told"].as_str().unwrap().starts_with("The endpoint was not stopped."),
        "{again}"
    );
    assert_eq!(stored(&postern, id).await.release, Some(Release { before: now(), rate: 10 }));
    assert_eq!(woken(&postern).len(), 3);
}

/// F13
#[tokio::test]
async fn what_the_deliverer_has_disabled_is_enabled_and_a_resume_says_that_it_is_not() {
    let (postern, path, id) = with_endpoint().await;
    // The deliverer's clock is ahead.
    let disabled = Some(Disabled { since: at(5), reason: "gone".to_owned() });
    let health = Health { version: 1, failing_since: Some(at(-9)), disabled, ..Health::default() };
    let noted = postern.0.deliveries.note_health(&acme(), id, &health).await.unwrap();
    assert_eq!(noted, Noted::Yes);
    let resumed = postern.ask(&format!("{path}/resume")).await.good(200);
    assert!(resumed["told"].as_str().unwrap().contains("still gets nothing"), "{resumed}");
    let enabled = postern.ask(&format!("{path}/enable?release_rate=2")).await.good(200);
    assert_eq!(enabled["health"]["state"], "good");
    let endpoint = stored(&postern, id).await;
    let after = at(5) + jiff::SignedDuration::from_millis(1);
    assert_eq!(endpoint.enabled_at, Some(after));
    assert_eq!(endpoint.stopped_since(&health), None);
    assert_eq!(endpoint.held, [Held { from: at(5), to: after }]);
}

/// If it dies right there: the sweeper finds the lanes of an endpoint that was enabled by a call that told nobody.
#[tokio::test]
async fn the_lanes_are_remembered_before_the_endpoint_is_enabled_or_deleted() {
    for verb in ["enable", "delete"] {
        let (postern, path, id) = with_endpoint().await;
        postern.post(&format!("{path}/disable"), &json!({"reason": "x"})).await.good(200);
        since(&postern, id, -90).await;
        let call = if verb == "enable" {
            "configure.replace_endpoint"
        } else {
            "configure.remove_endpoint"
        };
        let ask = async || match verb {
            "enable" => postern.ask(&format!("{path}/enable")).await,
            _ => postern.delete(&path).await,
        };
        postern.0.registry.chaos.on(call, When::After, Fault::Unavailable);
        ask().await.problem(503, "unavailable");
        let later = at(60);
        let items = lane_items(&postern);
        assert!(items.len() == 3 && items.iter().all(|(_, item)| item.wake_at == Some(later)));
        // And whoever asks again ends it.
        postern.0.registry.chaos.heal();
        ask().await.good(200);
        assert!(lane_items(&postern).iter().all(|(_, item)| item.wake_at == Some(now())), "{verb}");
    }
}

#[tokio::test]
async fn a_running_lane_is_not_put_off_by_enabling_what_runs() {
    let (postern, path, _) = with_endpoint().await;
    postern.ask(&format!("{path}/enable")).await.good(200);
    let wakes: Vec<_> = lane_items(&postern).iter().map(|(_, item)| item.wakes).collect();
    assert_eq!(wakes, [1, 1, 1], "woken, and not put off before");
}

#[tokio::test]
async fn a_reason_is_one_line() {
    let (postern, path, _) = with_endpoint().await;
    for how in ["pause", "disable"] {
        for bad in [" ", "a\nb", &"x".repeat(501)] {
            let answer = postern.post(&format!("{path}/{how}"), &json!({"reason": bad})).await;
            answer.problem(422, "invalid-request");
            assert_eq!(answer.fields(), ["reason"], "{bad:?}");
        }
    }
    let none = format!("{PATH}/{}", EndpointId::new(uuid::Uuid::from_u128(99)));
    for how in ["pause", "disable", "resume", "enable", "test"] {
        let answer = postern.post(&format!("{none}/{how}"), &json!({"reason": "x"})).await;
        answer.problem(404, "not-found");
    }
    postern.delete(&none).await.problem(404, "not-found");
    assert!(actions(&postern).is_empty());
}

/// An event that the endpoint got.
async fn an_event(postern: &Deployment, id: EndpointId) -> (OutboxEvent, LaneId) {
    let event = OutboxEvent {
        id: domain::id::EventId::new(uuid::Uuid::from_u128(
            0x0190_0000_0000_7000_8000_0000_0000_0001,
        )),
        tenant: acme(),
        event_type: "a.b".to_owned(),
        schema_version: 1,
        aggregate_id: "x".to_owned(),
        aggregate_version: None,
        payload: Payload::Inline(b"{}".to_vec()),
        occurred_at: now(),
        traceparent: None,
        labels: Default::default(),
    };
    postern.0.outbox.publish(&event, None).await.unwrap();
    let relayed = Relayed { at: now(), endpoints: vec![id] };
    postern.0.outbox.mark(&acme(), event.id, &relayed).await.unwrap();
    let lane = LaneId::of(&stored(postern, id).await, event.id, "x");
    let delivery = Delivery::new(event.id, "a.b".to_owned(), at(99), now());
    postern.0.deliveries.put(&NewDelivery { lane: lane.clone(), delivery }).await.unwrap();
    (event, lane)
}

#[tokio::test]
async fn a_deleted_endpoint_is_gone_for_events_and_stays_in_their_stories() {
    let (postern, path, id) = with_endpoint().await;
    let (event, _) = an_event(&postern, id).await;
    let epoch = postern.0.registry.endpoints_epoch(&acme()).await.unwrap();
    let deleted = postern.delete(&path).await.good(200);
    assert_eq!((&deleted["id"], &deleted["deleted_at"]), (&json!(id), &json!(now())));
    assert_eq!(postern.0.registry.endpoints_epoch(&acme()).await.unwrap(), epoch + 1);
    assert_eq!(postern.0.registry.endpoint(&acme(), id).await.unwrap(), None);
    assert_eq!(lane_items(&postern).len(), 3, "their holders cancel what is pending");
    assert_eq!(woken(&postern).len(), 3);

    assert_eq!(postern.get(PATH).await.good(200), json!({"endpoints": []}));
    let shown = postern.get(&path).await.good(200);
    assert_eq!(
        (&shown["health"]["state"], &shown["url"]),
        (&json!("deleted"), &json!("https://example.com/in"))
    );
    let story = postern.get(&format!("/v1/tenants/acme/events/{}", event.id)).await.good(200);
    assert_eq!(
        (&story["deliveries"][0]["endpoint"], &story["unmatched"]),
        (&json!(id), &json!(false))
    );
    // Again: the same, and nothing more is written down.
    assert_eq!(postern.delete(&path).await.good(200)["deleted_at"], json!(now()));
    assert_eq!(actions(&postern), ["endpoint.delete"]);
    for how in ["pause", "enable", "test", "secrets/rotate"] {
        let answer = postern.post(&format!("{path}/{how}"), &json!({"reason": "x"})).await;
        assert!(matches!(answer.status.as_u16(), 404 | 422), "{how}: {}", answer.text);
    }
    postern.patch(&path, &json!({"rate": 1})).await.problem(404, "not-found");
}

#[tokio::test]
async fn a_deletion_is_done_though_others_change_the_endpoint() {
    let (postern, path, id) = with_endpoint().await;
    let change = json!({"rate": 3});
    let (changed, deleted) = tokio::join!(postern.patch(&path, &change), postern.delete(&path));
    assert!(matches!(changed.status.as_u16(), 200 | 404), "{}", changed.text);
    deleted.good(200);
    assert_eq!(postern.0.registry.endpoint(&acme(), id).await.unwrap(), None);
}

#[tokio::test]
async fn a_deletion_that_is_done_at_the_last_try_says_so_and_wakes_the_lanes() {
    let (postern, path, id) = with_endpoint().await;
    let (others, mut left) = (Arc::downgrade(&postern.0), 3);
    postern.0.registry.chaos.set(move |_, call| {
        if call == "configure.remove_endpoint" && left > 0 {
            left -= 1;
            let api = others.upgrade().unwrap();
            let mut tables = api.registry.tables();
            tables.endpoints.get_mut(&(acme(), id)).unwrap().0.rate = Some(100 + left);
        }
        None
    });
    postern.delete(&path).await.good(200);
    assert_eq!(woken(&postern).len(), 3);
}

#[tokio::test]
async fn a_test_event_goes_to_one_endpoint_by_the_way_of_all_events() {
    let (postern, path, id) = with_endpoint().await;
    let wanted = json!({"url": "https://other.example.com/"});
    postern.post(PATH, &wanted).await.good(201);
    let trial = postern.ask(&format!("{path}/test")).await.good(202);
    assert_eq!(trial["enqueued"], true);
    let event = trial["event"].as_str().unwrap().parse().unwrap();
    let row = postern.0.outbox.event(&acme(), event).await.unwrap().unwrap();
    assert_eq!(row.event.event_type, "postern.test");
    assert_eq!(row.relayed, Some(Relayed { at: now(), endpoints: vec![id] }));
    assert!(postern.0.outbox.tables().stream.is_empty(), "nobody relays it");
    {
        let tables = postern.0.deliveries.tables();
        let deliveries: Vec<_> = tables.deliveries.iter().collect();
        let [((lane, of), delivery)] = deliveries.as_slice() else { panic!("{deliveries:?}") };
        assert_eq!((lane.endpoint, *of, delivery.state), (id, event, State::Pending));
        assert_eq!(delivery.deadline, at(1000));
        assert_eq!(tables.lanes[lane].wake_at, Some(now()));
        assert_eq!(tables.pointers.len(), 1);
    }
    assert_eq!(woken(&postern).len(), 1);
    assert_eq!(actions(&postern), ["endpoint.test"]);

    postern.post(&format!("{path}/pause"), &json!({"reason": "x"})).await.good(200);
    let detail = postern.ask(&format!("{path}/test")).await.problem(409, "stopped");
    assert!(detail.contains("Resume or enable"), "{detail}");
}

/// SSRF-update-and-test-paths, I18
#[tokio::test]
async fn a_test_never_takes_a_url_and_does_not_trust_the_row() {
    let (postern, path, id) = with_endpoint().await;
    let detail = postern.ask(&format!("{path}/test?url=https://10.0.0.1/")).await;
    detail.problem(422, "invalid-request");
    // Written by another hand, or before a rule.
    for bad in ["https://169.254.169.254/", "http://example.com/", "file:///etc/passwd"] {
        let old = postern.0.registry.endpoint(&acme(), id).await.unwrap().unwrap();
        let destination = Destination::Https(bad.to_owned());
        let new = (Endpoint { destination, ..old.0.clone() }, old.1.clone());
        assert!(postern.0.registry.replace_endpoint(&old, &new).await.unwrap());
        let answer = postern.ask(&format!("{path}/test")).await;
        answer.problem(422, "invalid-request");
        assert_eq!(answer.fields(), ["url"], "{bad}");
    }
    assert!(postern.0.deliveries.tables().deliveries.is_empty());
}

#[tokio::test]
async fn a_new_endpoint_may_be_tried_at_once() {
    let postern = Deployment::new();
    let wanted = json!({"url": "https://example.com/in", "test": true});
    let made = postern.post(PATH, &wanted).await.good(201);
    assert!(made["test"]["event"].as_str().unwrap().starts_with("evt_"), "{made}");
    assert_eq!(actions(&postern), ["endpoint.test"]);
    // Whatever becomes of the test, the secret is shown.
    postern.0.outbox.chaos.on("outbox.publish_to", When::Before, Fault::Unavailable);
    let made = postern.post(PATH, &wanted).await.good(201);
    assert!(made["secret"].as_str().is_some_and(|secret| secret.starts_with("whsec_")));
    assert!(made["warnings"][0].as_str().unwrap().contains("could not be sent"), "{made}");
}

/// DLV-disable-notice
#[tokio::test]
async fn only_those_that_fail_or_get_nothing_are_listed_where_that_is_asked() {
    let mut postern = Deployment::new();
    Arc::get_mut(&mut postern.0).unwrap().limits.endpoints_per_tenant = 9;
    let mut ids = Vec::new();
    for n in 0..4 {
        let wanted = json!({"url": format!("https://example.com/{n}")});
        let made = postern.post(PATH, &wanted).await.good(201);
        ids.push(made["id"].as_str().unwrap().to_owned());
    }
    postern.post(&format!("{PATH}/{}/pause", ids[1]), &json!({"reason": "x"})).await.good(200);
    let failing = Health { version: 1, failing_since: Some(at(-5)), ..Health::default() };
    let noted =
        postern.0.deliveries.note_health(&acme(), ids[2].parse().unwrap(), &failing).await.unwrap();
    assert_eq!(noted, Noted::Yes);
    let gone = Some(Disabled { since: at(-5), reason: "gone".to_owned() });
    let gone = Health { version: 1, disabled: gone, ..Health::default() };
    let noted =
        postern.0.deliveries.note_health(&acme(), ids[3].parse().unwrap(), &gone).await.unwrap();
    assert_eq!(noted, Noted::Yes);
    let listed = async |query: &str| {
        let listed = postern.get(&format!("{PATH}{query}")).await.good(200);
        let listed = listed["endpoints"].as_array().unwrap().clone();
        listed
            .iter()
            .map(|endpoint| endpoint["id"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(listed("?unhealthy=true").await, ids[1..]);
    assert_eq!(listed("").await, ids);
}

/// What [`Stop`] and [`LaneCount`] are called outside is a promise.
#[test]
fn the_words_of_a_stop_are_kept() {
    assert_eq!(json!([Stop::Paused, Stop::Disabled]), json!(["paused", "disabled"]));
    assert_eq!(json!(LaneCount { from: at(0), count: 2 })["count"], 2);
}
