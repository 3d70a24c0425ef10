//! What an object becomes.

use domain::{
    event::{ObjectRef, Version},
    fetch::{Fetch, FetchChoice, Fetched, When},
    inbox::{Noted, Status},
    plan::{Change, Plan},
    ports::Inbox as _,
    source::{Handler, SchemeChoice},
};
use serde_json::{Value, json};
use worker::{
    Outcome,
    handlers::{Current, Event, Handlers},
};

use crate::{
    provider::{answer, json as reply},
    world::{World, at, invoice, results, why},
};

fn paid() -> Value {
    json!({ "id": "in_1", "object": "invoice", "status": "paid" })
}

/// D3, D9
#[tokio::test]
async fn an_event_is_a_signal_and_the_object_becomes_what_the_provider_says() {
    let world = World::new(reply(&paid())).await;
    let key = world
        .accept("evt_1", Some(5), &json!({ "data": { "object": { "status": "open" } } }))
        .await;
    world.later(700);
    let outcome = world.handle(&key).await;
    assert_eq!(results(&outcome)[0], "object invoice in_1 Applied");
    let object = world.object().unwrap();
    assert_eq!((object.fields, object.version), (paid(), Version::Reading(1)));
    assert_eq!((object.fetched, object.as_of, object.deleted), (true, at(700), false));
    assert_eq!(world.lease(), Some(at(700)), "it is given back");
    let asked = world.provider.asked().concat();
    assert!(asked.starts_with("get /v1/invoices/in_1 http/1.1\r\n"), "{asked}");
    assert!(asked.contains("authorization: bearer sk_canary_1\r\n"), "{asked}");
    assert_eq!(world.told(), [("invoice.changed".to_owned(), paid())]);
    let calls = world.store.chaos.calls();
    let place = |name: &str| calls.iter().position(|call| *call == name).unwrap();
    assert!(place("state.lease") < place("turns.take_turn"), "{calls:?}");
    assert!(place("turns.take_turn") < place("state.commit"), "{calls:?}");
    assert!(place("state.commit") < place("state.give_back"), "{calls:?}");
}

/// ORD-stale-overwrites-new, in its strongest mode: events are hints. In whichever order they come, the object ends as
/// the provider has it.
#[tokio::test]
async fn an_older_event_that_arrives_late_changes_nothing() {
    for order in [[1, 2, 3], [3, 2, 1], [2, 3, 1], [3, 1, 2], [1, 3, 2], [2, 1, 3]] {
        let world = World::new(reply(&paid())).await;
        for n in order {
            let said = json!({ "status": format!("event {n}") });
            let key = world.accept(&format!("evt_{n}"), Some(n), &said).await;
            assert!(world.handle(&key).await.is_settled());
            assert_eq!(world.object().unwrap().fields, paid(), "{order:?}");
        }
        assert_eq!(world.told().len(), 1, "subscribers hear what changed, once");
    }
}

/// ORD-same-second: equal times decide nothing, the provider does.
#[tokio::test]
async fn of_two_events_of_one_second_neither_wins_but_what_the_provider_says() {
    for order in [["a", "b"], ["b", "a"]] {
        let world = World::new(reply(&paid())).await;
        for id in order {
            let key = world.accept(id, Some(7), &json!({ "status": id })).await;
            assert!(world.handle(&key).await.is_settled());
            assert_eq!(world.row(&key).status, Status::Processed, "none is dropped silently");
        }
        assert_eq!(world.object().unwrap().fields, paid());
    }
}

/// A source whose versions are trusted, and a fetcher that knows them too.
async fn trusting(version: u64) -> World {
    let fetched = json!({ "id": "in_1", "version": version, "status": "fetched" });
    World::with(reply(&fetched), |source| {
        source.scheme = SchemeChoice::Own(json!({
            "like": "stripe", "identity": { "version": { "from": "{json:/version}", "kind": "number", "trusted": true } }
        }));
        let own = json!({ "like": "stripe", "version": { "from": "/version", "trusted": true } });
        source.fetch = Some(Fetch { choice: FetchChoice::Own(own), when: None });
    })
    .await
}

/// ORD-same-second: where versions are trusted, only a tie is asked about.
#[tokio::test]
async fn where_versions_are_trusted_only_doubt_asks() {
    let world = trusting(7).await;
    for (id, version, asked, status) in [
        ("new", Some(7), 0, "new"),
        ("older", Some(6), 0, "new"),
        ("tie", Some(7), 1, "fetched"),
        ("newer", Some(8), 1, "newer"),
        ("none", None, 2, "newer"),
    ] {
        let key = world.accept(id, version, &json!({ "status": id })).await;
        assert!(world.handle(&key).await.is_settled(), "{id}");
        assert_eq!(world.provider.asked().len(), asked, "{id}");
        assert_eq!(world.object().unwrap().fields["status"], status, "{id}");
    }
    assert_eq!(
        world.object().unwrap().version,
        Version::Number(8),
        "the answer with 7 was from before"
    );
}

/// D8: there is no version at all, and still no update is lost.
#[tokio::test]
async fn without_versions_what_was_read_last_is_the_newest() {
    let world = World::new(reply(&json!({ "id": "in_1", "n": 1 }))).await;
    for n in 1..=3 {
        world.provider.says(reply(&json!({ "id": "in_1", "n": n })));
        let key = world.accept(&format!("evt_{n}"), None, &json!({})).await;
        assert!(world.handle(&key).await.is_settled());
        let object = world.object().unwrap();
        assert_eq!((object.version, &object.fields["n"]), (Version::Reading(n), &json!(n)));
    }
}

/// D7: the event that made it has not come, and the object is there.
#[tokio::test]
async fn what_is_gone_leaves_a_tombstone_and_what_is_back_comes_back() {
    let world = World::new(answer("410 Gone", "", "")).await;
    let key = world.accept("evt_1", Some(1), &json!({})).await;
    assert!(world.handle(&key).await.is_settled());
    let object = world.object().unwrap();
    assert!(object.deleted && object.fetched, "{object:?}");
    assert_eq!(world.told()[0].0, "invoice.deleted");
    // A late update does not revive it, unless the provider says that it is there.
    let late = world.accept("evt_2", Some(9), &json!({ "status": "open" })).await;
    world.handle(&late).await;
    assert!(world.object().unwrap().deleted);
    world.provider.says(reply(&paid()));
    let back = world.accept("evt_3", Some(2), &json!({})).await;
    world.handle(&back).await;
    assert_eq!((world.object().unwrap().deleted, world.object().unwrap().fields), (false, paid()));
}

/// D4: a thousand events of one object in a minute are a few calls.
#[tokio::test]
async fn events_that_came_before_a_call_began_are_covered_by_it() {
    let world = World::new(reply(&paid())).await;
    let mut keys = Vec::new();
    for n in 0..1000 {
        keys.push(world.accept(&format!("evt_{n}"), Some(n), &json!({ "n": n })).await);
        world.later(60);
    }
    world.later(1001);
    for (n, key) in keys.iter().enumerate() {
        let outcome = world.handle(key).await;
        let expected =
            if n == 0 { "object invoice in_1 Applied" } else { "object invoice in_1 Covered" };
        assert_eq!(results(&outcome)[0], expected, "{n}");
        assert_eq!(world.row(key).status, Status::Processed);
        assert!(n == 0 || !world.store.chaos.calls().contains(&"state.lease"), "no queue for it");
        world.store.chaos.heal();
    }
    assert_eq!(world.provider.asked().len(), 1);
    let metrics = world.metrics.lines(world.now()).join("\n");
    assert!(metrics.contains(r#""fetches_covered_total":999"#), "{metrics}");
    assert!(metrics.contains(r#""fetches_total":1"#), "{metrics}");
}

/// A provider's API may lag behind its own webhooks: a version that is trusted and newer is not covered.
#[tokio::test]
async fn what_is_newer_than_the_answer_is_not_covered_by_it() {
    let world = trusting(7).await;
    let keys = [
        world.accept("none", None, &json!({})).await,
        world.accept("newer", Some(8), &json!({ "status": "newer" })).await,
        world.accept("older", Some(6), &json!({ "status": "older" })).await,
    ];
    world.later(1001);
    for (key, result, status) in [
        (&keys[0], "Applied", "fetched"),
        (&keys[2], "Covered", "fetched"),
        (&keys[1], "Applied", "newer"),
    ] {
        let outcome = world.handle(key).await;
        assert_eq!(results(&outcome)[0], format!("object invoice in_1 {result}"));
        assert_eq!(world.object().unwrap().fields["status"], status);
    }
    assert_eq!(world.provider.asked().len(), 1);
}

/// The clocks of two machines differ: only a call that began clearly later covers an event.
#[tokio::test]
async fn an_event_that_came_about_when_the_call_began_is_asked_about_again() {
    for (ms, calls) in [(0, 2), (1000, 2), (1001, 1)] {
        let world = World::new(reply(&paid())).await;
        let second = world.accept("evt_2", Some(2), &json!({})).await;
        world.later(ms);
        let first = world.accept("evt_1", Some(1), &json!({})).await;
        world.handle(&first).await;
        world.handle(&second).await;
        assert_eq!(world.provider.asked().len(), calls, "{ms}");
    }
    // A replay is a new question.
    let world = World::new(reply(&paid())).await;
    let key = world.accept("evt_1", Some(1), &json!({})).await;
    world.later(5000);
    world.handle(&key).await;
    world.later(5000);
    world.store.tables().inbox.get_mut(&key).unwrap().row.status = Status::Pending;
    world.store.tables().inbox.get_mut(&key).unwrap().row.armed_at = world.now();
    world.handle(&key).await;
    assert_eq!(world.provider.asked().len(), 2);
}

/// A handler of one's own may do more with an event than the object's state says: it sees each of them.
#[tokio::test]
async fn only_mirrors_let_one_call_cover_several_events() {
    fn keeps(_: &Handler, event: &Event<'_>, current: &Current) -> Plan {
        let Some(Fetched::State { fields, version: Some(version), .. }) = event.fetched else {
            panic!("{:?}", event.fetched)
        };
        let change =
            Change::unchanged(invoice(), current.object(), version.clone(), fields.clone());
        Plan::change(change)
    }
    let mut world = World::with(reply(&paid()), |source| {
        source.handler = Handler::Own { name: "payments".to_owned(), tenant: None };
    })
    .await;
    world.handlers = Handlers { plan: keeps, ..world.handlers };
    let mut keys = Vec::new();
    for n in 0..3 {
        keys.push(world.accept(&format!("evt_{n}"), Some(n), &json!({})).await);
    }
    world.later(2000);
    for key in &keys {
        assert_eq!(results(&world.handle(key).await)[0], "object invoice in_1 Applied");
    }
    assert_eq!(world.provider.asked().len(), 3);
}

#[tokio::test]
async fn what_the_fetcher_does_not_know_is_taken_at_its_word() {
    let world = World::new(reply(&paid())).await;
    let balance = ObjectRef { kind: "balance".to_owned(), id: "b".to_owned() };
    let key =
        world.accept_of("evt_1", "balance.available", Some(balance), Some(1), &json!({})).await;
    assert_eq!(results(&world.handle(&key).await)[0], "object balance b Applied");
    let key = world.accept_of("evt_2", "ping", None, Some(1), &json!({})).await;
    assert!(world.handle(&key).await.is_settled());
    assert_eq!(world.row(&key).status, Status::Ignored);
    assert!(world.provider.asked().is_empty());
}

#[tokio::test]
async fn a_source_can_ask_always_although_its_versions_are_trusted() {
    let fetched = json!({ "id": "in_1", "version": 3 });
    let world = World::with(reply(&fetched), |source| {
        let own = json!({ "like": "stripe", "version": { "from": "/version", "trusted": true } });
        source.fetch = Some(Fetch { choice: FetchChoice::Own(own), when: Some(When::Always) });
    })
    .await;
    let key = world.accept("evt_1", Some(3), &json!({})).await;
    world.handle(&key).await;
    assert_eq!(world.object().unwrap().version, Version::Number(3), "the answer's own version");
}

/// RPL-inbound-repair: a replay that finds another state tells it, one that finds the same tells nobody, and one that
/// finds an earlier state again tells that.
#[tokio::test]
async fn a_replay_tells_what_it_finds_unless_it_is_known() {
    let world = World::new(reply(&paid())).await;
    let key = world.accept("evt_1", Some(5), &json!({})).await;
    assert!(world.handle(&key).await.is_settled());
    let void = json!({ "id": "in_1", "object": "invoice", "status": "void" });
    for (state, told) in [(&paid(), 1), (&void, 2), (&void, 2), (&paid(), 3)] {
        world.later(5000);
        world.provider.says(reply(state));
        assert_eq!(world.store.replay(&key, world.now(), world.now()).await.unwrap(), Noted::Yes);
        assert!(world.handle(&key).await.is_settled());
        let all = world.told();
        assert_eq!((all.len(), &all.last().unwrap().1), (told, state));
    }
}

/// ORD-update-before-create: what the provider does not have any more is revived by the provider alone, in whichever
/// order its last events come.
#[tokio::test]
async fn what_was_found_gone_is_not_revived_by_a_late_event() {
    for order in [["first", "late", "gone"], ["first", "gone", "late"], ["gone", "first", "late"]] {
        let world = trusting(7).await;
        world.provider.says(answer("404 Not Found", "", ""));
        for id in order {
            let (event_type, version) = match id {
                "first" => ("invoice.updated", Some(5)),
                "late" => ("invoice.updated", Some(10)),
                _ => ("invoice.deleted", None),
            };
            let said = json!({ "status": id });
            let key = world.accept_of(id, event_type, Some(invoice()), version, &said).await;
            assert!(world.handle(&key).await.is_settled(), "{order:?} {id}");
        }
        let object = world.object().unwrap();
        assert!(object.deleted && object.fetched, "{order:?} {object:?}");
        world.provider.says(reply(&json!({ "id": "in_1", "version": 11, "status": "back" })));
        let back = world.accept("back", Some(11), &json!({ "status": "back" })).await;
        world.handle(&back).await;
        assert!(!world.object().unwrap().deleted, "{order:?}");
    }
}

/// A provider's API may lag behind its own webhooks: an answer that is older than the event, by versions that are
/// trusted, is none. It is asked again.
#[tokio::test]
async fn an_answer_from_before_the_event_is_waited_out() {
    let world = trusting(7).await;
    let first = world.accept("first", Some(8), &json!({ "status": "first" })).await;
    assert!(world.handle(&first).await.is_settled());
    let tie = world.accept("tie", Some(8), &json!({ "status": "tie" })).await;
    let outcome = world.handle(&tie).await;
    let (code, message) = why(&outcome);
    assert_eq!((code.as_str(), world.row(&tie).attempts), ("fetch_no_answer", 0), "{message}");
    assert!(message.contains("from before the event"), "{message}");
    assert_eq!(world.object().unwrap().fields["status"], "first");
    world.later(10_000);
    world.provider.says(reply(&json!({ "id": "in_1", "version": 8, "status": "fetched" })));
    assert!(matches!(world.handle(&tie).await, Outcome::Finished { .. }));
    assert_eq!(world.object().unwrap().fields["status"], "fetched");
}
