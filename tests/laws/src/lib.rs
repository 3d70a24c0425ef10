//! What holds for every input, however hostile: one plain function over bytes for each parser of untrusted bytes.
//!
//! The fuzz targets in `tests/fuzz` call them with what libFuzzer makes up; `tests/tests/laws.rs` calls them with the kept
//! corpus and a fixed number of mutations of it. A law that does not hold panics. "No panic" is the least of them: each
//! says what must be true of the answer.
//!
//! It must never: read a clock, reach anything, or judge by the code under test alone. The examples are requests that
//! providers' own libraries signed, JSON is judged by `serde_json`, events of the gateway are read a second time by hand.
//!
//! Reading order: [`LAWS`], then any of the modules; [`mutate`] makes new inputs of old ones.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code: a law that does not hold panics"
)]

pub mod batches;
pub mod bytes;
pub mod example;
pub mod gateway;
pub mod handshakes;
pub mod json;
pub mod mutate;
pub mod requests;
pub mod schemes;
pub mod secrets;
pub mod world;

/// A law over an input.
pub type Law = fn(&[u8]);

/// Every law, under the name of its fuzz target and of its folder in the corpus.
pub const LAWS: &[(&str, Law)] = &[
    ("batches", batches::law),
    ("gateway", gateway::law),
    ("handshakes", handshakes::law),
    ("json", json::law),
    ("requests", requests::law),
    ("schemes", schemes::law),
    ("secrets", secrets::law),
];

/// Fails when a piece of work holds more memory than `factor` bytes for each byte of its input and a fixed rest: what a
/// stranger sends must not decide how much we need.
fn bounded<T>(input: usize, factor: u64, work: impl FnOnce() -> T) -> T {
    /// What does not depend on the input: schemes, keys, tables of the runtime.
    const REST: u64 = 256 * 1024;
    let mut result = None;
    let held = allocation_counter::measure(|| result = Some(work())).bytes_max;
    let most = factor * input as u64 + REST;
    assert!(held <= most, "{input} bytes of input made us hold {held} bytes, more than {most}");
    result.unwrap()
}
