//! Requests that the providers' own libraries signed, through the whole of `ingress` with every port in memory: a 2xx
//! and a row exactly where the verdict is yes.
//!
//! Each request is handed over as the gateway does: names in lower case, repeated headers joined, the body as text where
//! it is text. So a case can differ from the library's verdict in one way only: two headers of one name have become one.

#![expect(clippy::indexing_slicing, reason = "a field that a JSON value does not have is null")]

use std::collections::{BTreeMap, BTreeSet};

use ingress::gateway::Event;
use laws::{
    example::{Case, Expected, cases, examples},
    world::{Body, World, event},
};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tests::seed::{Replay, rng, seeds};

/// Of `{}`, under the text secret of the field cases, made by another program.
const SIGNATURE_OF_BRACES: &str =
    "sha256=9cd6b8192c9a1ca765f9af512220d21c57e7d6dd1f34c59092fe767a07ebf061";

/// A source for a case, in a world of its own.
fn world(case: &Case) -> World {
    let world = World::default();
    world.add_case("feed", case);
    world
}

/// The request of a case, as the gateway hands it over. `None`: no gateway can.
fn arrives(case: &Case, body: &[u8]) -> Option<Event> {
    let event = event("feed", &case.method, &case.url, &case.headers, Body::of(body))?;
    Some(serde_json::from_value(event).expect("an event"))
}

fn status(answer: &Value) -> u64 {
    answer["statusCode"].as_u64().expect("a status")
}

/// Where the answer is not what it should be.
async fn disagreement(case: &Case) -> Option<String> {
    let world = world(case);
    let answer = world.answer(arrives(case, &case.body)?, case.now).await;
    let (status, rows) = (status(&answer), world.rows());
    let told = |why: &str| Some(format!("{} {}: {why}: {answer}", case.provider, case.name));
    let is_yes = status < 300;
    let is_stored = is_yes && !case.is_handshake();
    if usize::from(is_stored) != rows.len() {
        return told(&format!("{} rows", rows.len()));
    }
    // Events come by POST; a GET that is no handshake is nothing.
    let is_expected = case.method == "POST" || case.is_handshake();
    match &case.expected {
        Expected::Accepted if is_yes != is_expected => return told("it should be accepted"),
        Expected::Refused(_) if is_yes => return told("it should be refused"),
        _ => {}
    }
    if is_yes {
        let wrong = answered_wrong(case, &answer)
            .or_else(|| rows.first().and_then(|row| named_wrong(case, row.new.key.event_id())));
        return wrong.and_then(|why| told(&why));
    }
    if answer["body"] != "" {
        return told("a refusal says why");
    }
    // A key that the provider publishes and that is not here yet is not the sender's fault.
    let is_for_lack_of_a_key = status == 503 && case.scheme().is_some_and(|s| s.lookup().is_some());
    let is_refused = matches!(status, 400 | 401 | 404) || is_for_lack_of_a_key;
    if is_refused { None } else { told("neither yes nor no") }
}

/// What is wrong with a 2xx, where the provider waits for certain words.
fn answered_wrong(case: &Case, answer: &Value) -> Option<String> {
    let expected = case.response.as_ref()?;
    let body = answer["body"].as_str().unwrap_or_default();
    let json = || serde_json::from_str::<Value>(body).unwrap_or_default();
    let agrees = |key: &str, expected: &Value| match key {
        "status" => *expected == answer["statusCode"],
        "body" => *expected == body,
        "body_contains" => body.contains(expected.as_str().unwrap_or("\0")),
        "json" => *expected == json(),
        "headers" => expected.as_object().into_iter().flatten().all(|(name, value)| {
            let sent = answer["headers"][name].as_str().unwrap_or_default();
            sent.split(';').next() == value.as_str()
        }),
        _ => true,
    };
    let wrong = expected.as_object()?.iter().find(|(key, value)| !agrees(key, value));
    wrong.map(|(key, value)| format!("the {key} is not {value}"))
}

/// What is wrong with the id under which an event is kept. A request with several events is none of them: kept under the
/// id of one, it would pass for that one, which would then never be put.
fn named_wrong(case: &Case, id: &str) -> Option<String> {
    if case.scheme()?.is_batch() {
        let is_hash = id.contains(&hex::encode(Sha256::digest(&case.body)));
        return (!is_hash).then(|| format!("a request with events is kept as {id}"));
    }
    let expected = case.event_id.as_ref()?;
    (id != expected).then(|| format!("the id is {id} and not {expected}"))
}

#[tokio::test]
async fn ingress_agrees_with_the_providers_own_libraries() {
    let (mut found, mut judged) = (Vec::new(), BTreeMap::<String, usize>::new());
    for case in cases() {
        assert!(case.scheme().is_some(), "no scheme judges {} {}", case.provider, case.name);
        found.extend(disagreement(&case).await);
        *judged.entry(case.provider).or_default() += 1;
    }
    assert!(found.is_empty(), "{found:#?}");
    let (providers, total) = (judged.len(), judged.values().sum::<usize>());
    assert!(providers >= 34 && total >= 780, "only {total} cases were judged: {judged:?}");
}

/// A2: one bit, anywhere in what is signed or in the signature.
#[tokio::test]
async fn one_turned_bit_is_refused_at_the_door() {
    use rand::RngExt as _;
    for seed in seeds(&[1]) {
        let replay = Replay::of("vectors_ingress", seed);
        let mut random = rng(seed);
        for example in examples() {
            let case = &example.case;
            let told = format!("{} {}", case.provider, case.name);
            for _ in 0..if example.signs_body() { 16 } else { 0 } {
                let mut body = case.body.clone();
                if body.is_empty() {
                    break;
                }
                let at = random.random_range(0..body.len());
                body[at] ^= 1 << random.random_range(0..8);
                let Some(event) = arrives(case, &body) else { continue };
                refuses(case, event, &format!("{told}, body byte {at}")).await;
            }
            for name in example.signed_headers() {
                for _ in 0..8 {
                    let mut turned = case.clone();
                    let mut value = turned.headers[&name].as_bytes().to_vec();
                    let at = random.random_range(0..value.len());
                    value[at] ^= 1 << random.random_range(0..8);
                    // Bytes that no header can hold never arrive.
                    let Ok(value) = http::HeaderValue::from_bytes(&value) else { continue };
                    turned.headers.insert(&name, value);
                    let Some(event) = arrives(&turned, &case.body) else { continue };
                    refuses(case, event, &format!("{told}, {name} byte {at}")).await;
                }
            }
        }
        replay.well();
    }
}

async fn refuses(case: &Case, event: Event, told: &str) {
    let world = world(case);
    let answer = world.answer(event, case.now).await;
    assert!((400..500).contains(&status(&answer)), "{told}: {answer}");
    assert!(world.rows().is_empty(), "{told}");
}

/// ING-id-scope-collision: ids that try to look like another source's, at sources whose names are parts of each other.
#[tokio::test]
async fn two_sources_never_share_a_row_whatever_their_ids_are() {
    const SOURCES: [&str; 5] = ["a", "a-b", "b", "a-b-c", "ab"];
    const PIECES: [&str; 12] =
        ["a", "b", "#", "-", "a#", "EVENT", "BODY", "sha256:", "1", "é", "/", "%23"];
    use rand::RngExt as _;
    for seed in seeds(&[1]) {
        let replay = Replay::of("vectors_ingress", seed);
        let mut random = rng(seed);
        let world = World::default();
        for source in SOURCES {
            world.add(source, "github", &["field-secret-1"]);
        }
        let mut sent = BTreeSet::new();
        for _ in 0..300 {
            let source = SOURCES[random.random_range(0..SOURCES.len())];
            let count = random.random_range(1..6);
            let pieces = (0..count).map(|_| PIECES[random.random_range(0..PIECES.len())]);
            let mut id: String = pieces.collect();
            if random.random_range(0..10) == 0 {
                id = id.repeat(200);
            }
            let mut headers = http::HeaderMap::new();
            for (name, value) in [
                ("x-github-delivery", id.as_str()),
                ("x-github-event", "push"),
                ("x-hub-signature-256", SIGNATURE_OF_BRACES),
            ] {
                headers.insert(name, http::HeaderValue::from_bytes(value.as_bytes()).expect("it"));
            }
            let url = format!("https://hooks.example/webhooks/{source}");
            let event = event(source, "POST", &url, &headers, Body::Text("{}")).expect("an event");
            let event = serde_json::from_value(event).expect("an event");
            let now = jiff::Timestamp::from_second(1_760_000_000).expect("a time");
            let answer = world.answer(event, now).await;
            assert_eq!(status(&answer), 200, "{source} {id}: {answer}");
            sent.insert((source, id));
        }
        let rows = world.rows();
        assert_eq!(rows.len(), sent.len());
        let keys: BTreeSet<_> = rows.iter().map(|row| row.new.key.to_string()).collect();
        assert_eq!(keys.len(), sent.len(), "two events have one key");
        // The table's key is the source, `#` and the rest: it can be taken apart in one way only.
        for row in &rows {
            let key = row.new.key.to_string();
            let (source, id) = key.split_once('#').expect("a key");
            assert_eq!((source, id), (row.new.key.source().as_str(), row.new.key.event_id()));
            assert!(!id.contains('#') && id.len() <= 512, "{key}");
        }
        replay.well();
    }
}
