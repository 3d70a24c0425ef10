//! What strangers send does not decide how much memory we hold.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::indexing_slicing, reason = "a field that a JSON value does not have is null")]

mod world;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;
use world::{World, event, with, with_header};

/// 128 MiB of zeros, compressed by gzip: 130 KB.
fn gzip_bomb() -> Vec<u8> {
    // A mebibyte of zeros up to a flush, after which the next may follow; then the check sum and the length of all.
    let piece =
        [hex("ecc13101000000c2a0f54f6d085fa0"), vec![0; 1016], hex("3e030000ffff")].concat();
    [hex("1f8b0800000000000203"), piece.repeat(128), hex("03005141658000000008")].concat()
}

/// 512 MiB of zeros in zstd: blocks of 128 KiB, each of them one repeated byte.
fn zstd_bomb() -> Vec<u8> {
    const BLOCKS: usize = 4096;
    let frame = hex("28b52ffd0048");
    let block = |last: u32| {
        let header = (128 * 1024) << 3 | 1 << 1 | last;
        [&header.to_le_bytes()[..3], &[0]].concat()
    };
    [frame, block(0).repeat(BLOCKS - 1), block(1)].concat()
}

fn hex(text: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(text.get(at..at + 2).unwrap(), 16).unwrap();
    (0..text.len()).step_by(2).map(digit).collect()
}

/// The most bytes that were held while an event was read and answered, and the status.
fn held(event: &Value) -> (u64, u64) {
    let world = World::new();
    let event = event.clone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let mut status = 0;
    let held = allocation_counter::measure(|| {
        status = runtime.block_on(world.response(event, 0))["statusCode"].as_u64().unwrap();
    });
    (held.bytes_max, status)
}

/// ING-pre-auth-decompression
#[test]
fn an_unsigned_bomb_costs_no_more_than_its_own_bytes() {
    // What any request costs: the source, its scheme, the answer.
    let small = with(event("unsigned_gzip"), "/body", "");
    let (rest, _) = held(&small);
    let gzip = gzip_bomb();
    let nested = [gzip.as_slice(), gzip.as_slice()].concat();
    for (bomb, encoding) in
        [(gzip.clone(), "gzip"), (gzip, "gzip, gzip"), (nested, "gzip"), (zstd_bomb(), "zstd")]
    {
        let event = with(event("unsigned_gzip"), "/body", STANDARD.encode(&bomb));
        let event = with_header(event, "content-encoding", Some(encoding));
        let (held, status) = held(&event);
        assert_eq!(status, 401, "{encoding}");
        // Its text in base64 and its bytes: 2.33 times, while one is made of the other.
        let most = bomb.len() as u64 * 5 / 2 + rest;
        assert!(held < most, "{encoding}: {} bytes made us hold {held}, not {most}", bomb.len());
    }
}
