//! What one large request costs in memory. Alone in its process, whose peak it reads.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod world;

use std::{fs, io::Write as _, path::Path};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ingress::{
    Answer,
    gateway::{Arrival, Event},
};
use serde_json::json;
use world::{World, arrival, at, event, preset, request, with};

/// The most memory that this process had resident since the last call, in bytes.
fn peak() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    // Resets the peak to what is resident now.
    fs::write("/proc/self/clear_refs", "5").unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}

const EVENT: usize = 6_000_000;

/// What zstd works with at its level, and the rest of the process's doings.
const SLACK: usize = 4_000_000;

/// The event as text, made in small pieces: what was allocated before is not allocated again, and would not be seen.
fn large_event(file: &Path) {
    let event = with(event("github"), "/body", "BODY");
    let event = with(event, "/isBase64Encoded", true);
    let parameters = json!({ "source": "slot", "slot": SLOT });
    let event = with(event, "/pathParameters", parameters).to_string();
    let (head, tail) = event.split_once("BODY").unwrap();
    let mut file = fs::File::create(file).unwrap();
    file.write_all(head.as_bytes()).unwrap();
    // Bytes that do not compress, from a generator of numbers.
    let mut state = 1_u64;
    for _ in 0..(EVENT - 4000) / 4000 {
        let bytes = [(); 3000].map(|()| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state.to_be_bytes()[0]
        });
        file.write_all(STANDARD.encode(bytes).as_bytes()).unwrap();
    }
    file.write_all(tail.as_bytes()).unwrap();
}

const SLOT: &str = "the-secret-address-of-the-test";

#[tokio::test(flavor = "current_thread")]
async fn a_large_request_costs_three_copies_at_most() {
    let world = World::new();
    world.add("slot", preset("mail_slot_path"), SLOT);
    let ingress = world.ingress();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("event.json");
    large_event(&file);
    // Everything but the large event has been there once.
    let small = arrival(request("POST", &format!("/webhooks/slot/{SLOT}"), &[], "{}"));
    assert_eq!(ingress.receive(&small, "s".to_owned(), at(0)).await, Answer::Accepted);
    peak();
    let before = peak();

    // As the runtime does it: the text is there while the event is read.
    let text = fs::read_to_string(&file).unwrap();
    let arrival: Arrival = serde_json::from_str::<Event>(&text).unwrap().into();
    drop(text);
    let answer = ingress.receive(&arrival, "t".to_owned(), at(0)).await;
    let cost = peak().saturating_sub(before);
    assert_eq!((answer, world.rows().len()), (Answer::Accepted, 2));
    assert!(cost > EVENT, "the peak is not measured: {cost}");
    assert!(cost <= 3 * EVENT + SLACK, "{cost} bytes");
}
