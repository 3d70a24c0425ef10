//! Keys that the provider publishes: their absence is asked for, and is never the sender's fault.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod world;

use domain::ports::{KEY_LIFE, Owed, ProviderKeys as _, PublishedKey, Want};
use ingress::Answer;
use rcgen::{KeyPair, PublicKeyData as _};
use serde_json::Value;
use signing::Scheme;
use world::{World, arrival, at, name, preset, signed, with_header};

const KEY_ID: &str = "879dc113-5ca4-4ff7-a6b7-54652083fcf8";

struct Circle {
    world: World,
    pair: KeyPair,
}

impl Circle {
    fn new() -> Self {
        let world = World::new();
        world.add("circle", preset("circle"), "");
        world.secrets.set(&name("circle"), Vec::new());
        Self { world, pair: KeyPair::generate().unwrap() }
    }

    fn event(&self, key_id: &str, second: i64) -> Value {
        let body = format!(r#"{{"notificationId":"n-{second}","notificationType":"a.b"}}"#);
        let scheme = Scheme::preset("circle").unwrap();
        let event = signed("circle", &scheme, &self.pair.serialize_pem(), &body, second);
        with_header(event, "x-circle-key-id", Some(key_id))
    }

    /// The sweeper fetched the key.
    async fn publish(&self, second: i64) {
        let text = base64::Engine::encode(
            &base64::prelude::BASE64_STANDARD,
            self.pair.subject_public_key_info(),
        );
        let key = PublishedKey { id: KEY_ID.to_owned(), text, fetched_at: at(second) };
        let owed = Owed::new(name("circle"), Want::Key(KEY_ID.to_owned()), at(0));
        self.world.store.keep(&owed, Some(&key)).await.unwrap();
    }

    fn owed(&self) -> Vec<Want> {
        let tables = self.world.store.tables();
        let owed = tables.owed.get(&name("circle")).into_iter().flatten();
        owed.map(|owed| owed.want.clone()).collect()
    }
}

#[tokio::test]
async fn a_key_that_is_not_there_is_asked_for_and_the_provider_told_to_come_again() {
    let circle = Circle::new();
    let response = circle.world.response(circle.event(KEY_ID, 0), 0).await;
    assert_eq!(response["statusCode"], 503);
    assert_eq!(response["headers"]["retry-after"], "60");
    assert_eq!(circle.owed(), [Want::Key(KEY_ID.to_owned())]);
    assert!(circle.world.rows().is_empty());

    circle.publish(30).await;
    let response = circle.world.response(circle.event(KEY_ID, 40), 40).await;
    assert_eq!(response["statusCode"], 200);
    assert_eq!(circle.world.row().new.key_id.as_deref(), Some(KEY_ID));
    let forged = with_header(circle.event(KEY_ID, 41), "x-circle-signature", Some("MEUCIQ=="));
    assert_eq!(circle.world.response(forged, 41).await["statusCode"], 401);
}

/// A sandbox that met the key before it was there looks again, as seldom as for a wrong signature.
#[tokio::test]
async fn a_sandbox_looks_for_the_key_again_once_in_a_while() {
    let circle = Circle::new();
    let ingress = circle.world.ingress();
    let receive = async |second| {
        let arrival = arrival(circle.event(KEY_ID, second));
        ingress.receive(&arrival, format!("t{second}"), at(second)).await
    };
    assert_eq!(receive(0).await, Answer::Unavailable);
    circle.publish(1).await;
    assert_eq!(receive(2).await, Answer::Unavailable);
    assert_eq!(receive(6).await, Answer::Accepted);
    let reads = circle.world.calls("provider_keys.published");
    for second in 7..60 {
        let other = KEY_ID.replace('8', "9");
        let arrival = arrival(circle.event(&other, second));
        assert_eq!(
            ingress.receive(&arrival, "t".to_owned(), at(second)).await,
            Answer::Unavailable
        );
    }
    assert_eq!(circle.world.calls("provider_keys.published"), reads, "it has a key: once a minute");
}

/// Strangers can name keys that do not exist: one is asked for every ten seconds, and nothing that is no id.
#[tokio::test]
async fn a_flood_of_unknown_keys_asks_for_few() {
    let circle = Circle::new();
    let ingress = circle.world.ingress();
    for n in 0..1000_i64 {
        let id = format!("879dc113-5ca4-4ff7-a6b7-{n:012}");
        let arrival = arrival(circle.event(&id, n / 50));
        assert_eq!(
            ingress.receive(&arrival, "t".to_owned(), at(n / 50)).await,
            Answer::Unavailable
        );
    }
    assert_eq!(circle.world.calls("provider_keys.want"), 2);
    for id in ["../../admin", "", "879dc113-5ca4-4ff7-a6b7-54652083fcf8,x", "A"] {
        let arrival = arrival(circle.event(id, 100));
        assert_eq!(ingress.receive(&arrival, "t".to_owned(), at(100)).await, Answer::Untrusted);
    }
    assert_eq!(circle.world.calls("provider_keys.want"), 2);
}

#[tokio::test]
async fn a_key_is_asked_for_again_before_its_life_ends_and_not_believed_after() {
    let circle = Circle::new();
    circle.publish(0).await;
    let life = KEY_LIFE.as_secs();
    assert_eq!(circle.world.response(circle.event(KEY_ID, 10), 10).await["statusCode"], 200);
    assert!(circle.owed().is_empty());
    let late = life - 1000;
    assert_eq!(circle.world.response(circle.event(KEY_ID, late), late).await["statusCode"], 200);
    assert_eq!(circle.owed(), [Want::Key(KEY_ID.to_owned())]);
    let response = circle.world.response(circle.event(KEY_ID, life), life).await;
    assert_eq!(response["statusCode"], 503);
}

/// The keys of a source that has none to fetch are not read.
#[tokio::test]
async fn sources_without_published_keys_cost_no_more() {
    let world = World::new();
    world.answer(world::event("github"), 0).await;
    assert_eq!(world.calls("provider_keys.published"), 0);
}
