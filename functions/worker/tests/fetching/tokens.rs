//! With which token a provider is asked.

use domain::ports::{SetSourceSecrets as _, SourceSecret};
use serde_json::json;
use testkit::chaos::{Fault, When};
use worker::Outcome;

use crate::{
    provider::{Reply, answer, json as reply},
    world::{World, at, shop, token, why},
};

/// A provider that knows one token.
fn knows(token: &'static str) -> impl FnMut(&str) -> Reply + Send + 'static {
    move |head| match head.contains(&format!("bearer {token}\r\n")) {
        true => reply(&json!({ "id": "in_1" })),
        false => answer("401 Unauthorized", "", ""),
    }
}

async fn world(tokens: Vec<SourceSecret>) -> World {
    let world = World::new(Reply::Nothing).await;
    world.tokens.set(&shop(), tokens);
    world
}

fn used(world: &World) -> Vec<String> {
    let bearer = |head: &String| {
        let line = head.lines().find(|line| line.starts_with("authorization: bearer "));
        line.unwrap_or_default().rsplit(' ').next().unwrap_or_default().to_owned()
    };
    world.provider.asked().iter().map(bearer).collect()
}

#[tokio::test]
async fn the_newest_token_is_used_first_and_the_other_if_it_is_refused() {
    for (known, expected) in [("new", vec!["new"]), ("old", vec!["new", "old"])] {
        let world = World::new(Reply::Nothing).await;
        world.tokens.set(&shop(), Vec::new());
        for (id, text) in [("1", "older"), ("2", "old"), ("3", "new")] {
            world.tokens.add(&shop(), &token(id, text), None).await.unwrap();
        }
        world.provider.answers(knows(known));
        let key = world.accept("evt_1", Some(1), &json!({})).await;
        assert!(matches!(world.handle(&key).await, Outcome::Finished { .. }));
        assert_eq!(used(&world), expected);
    }
}

#[tokio::test]
async fn a_token_that_ended_is_not_used() {
    let ended = SourceSecret { expires_at: Some(at(0)), ..token("2", "ended") };
    let world = world(vec![token("1", "good"), ended]).await;
    world.provider.answers(knows("good"));
    let key = world.accept("evt_1", Some(1), &json!({})).await;
    assert!(matches!(world.handle(&key).await, Outcome::Finished { .. }));
    assert_eq!(used(&world), ["good"]);
}

#[tokio::test]
async fn without_a_token_nobody_is_asked_and_the_story_says_what_to_do() {
    let world = world(Vec::new()).await;
    let key = world.accept("evt_1", Some(1), &json!({})).await;
    let (code, message) = why(&world.handle(&key).await);
    assert_eq!(code, "fetch_no_token");
    assert!(message.contains("`postern sources tokens add shop`"), "{message}");
    assert!(world.provider.asked().is_empty());
    assert_eq!(world.row(&key).attempts, 1);
}

/// A token that was replaced while this worker remembered the old one.
#[tokio::test]
async fn a_refused_token_is_read_again_once_it_is_old_enough() {
    let world = world(vec![token("1", "old")]).await;
    world.provider.answers(knows("old"));
    let key = world.accept("evt_1", Some(1), &json!({})).await;
    assert!(matches!(world.handle(&key).await, Outcome::Finished { .. }));
    world.tokens.set(&shop(), vec![token("2", "new")]);
    world.provider.answers(knows("new"));
    world.later(59_999);
    let second = world.accept("evt_2", Some(2), &json!({})).await;
    assert_eq!(why(&world.handle(&second).await).0, "fetch_refused");
    world.later(1);
    assert!(matches!(world.handle(&second).await, Outcome::Finished { .. }));
    assert_eq!(used(&world), ["old", "old", "old", "new"]);
    assert_eq!(world.tokens.chaos.calls().len(), 2, "it is not read for each event");
}

/// RTY-store-outage
#[tokio::test]
async fn tokens_that_are_known_outlive_a_store_that_cannot_be_read() {
    let world = world(vec![token("1", "good")]).await;
    world.provider.answers(knows("good"));
    let key = world.accept("evt_1", Some(1), &json!({})).await;
    world.tokens.chaos.on("secrets.of", When::Before, Fault::Unavailable);
    assert!(matches!(world.handle(&key).await, Outcome::Waits { .. }));
    world.tokens.chaos.heal();
    assert!(matches!(world.handle(&key).await, Outcome::Finished { .. }));
    world.tokens.chaos.on("secrets.of", When::Before, Fault::Unavailable);
    world.later(3_000_000);
    let second = world.accept("evt_2", Some(2), &json!({})).await;
    assert!(matches!(world.handle(&second).await, Outcome::Finished { .. }));
    world.later(600_000);
    let third = world.accept("evt_3", Some(3), &json!({})).await;
    assert!(matches!(world.handle(&third).await, Outcome::Waits { .. }));
}
