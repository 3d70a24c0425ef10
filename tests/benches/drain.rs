//! What a backlog costs: the worker drains 1,000 events and 10,000, and takes ten times as long, in the same memory.
//!
//! `cargo bench -p tests --bench drain`. The worker is a process of its own, so that its memory is nobody else's: this
//! program again, told where the tables are. Batches of ten messages are handed to it one after the other, as Lambda hands
//! them to one sandbox, and the tables are served by the process that started it; so what is measured is the worker and
//! the real code of the tables, and not how fast somebody's queue is. Each event changes an object and tells a tenant of it:
//! a read of the row, a read of the object, one transaction of three actions.
//!
//! A small backlog is drained before and after the large one, so that a machine that became slower meets both. The
//! bounds are what the product aims at; they are printed beside what was measured and fail nothing. What does fail is
//! an event that is not processed, or not told once.

#![expect(
    clippy::print_stdout,
    clippy::panic,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a benchmark prints, and may fail where it stands"
)]

#[path = "drain/sandbox.rs"]
mod sandbox;
#[expect(dead_code, reason = "the tables are all this program asks of the template")]
#[path = "../tests/template/stack.rs"]
mod stack;
#[expect(dead_code, reason = "shared with the suite of contracts, which asks more of it")]
#[path = "../tests/contract/tables.rs"]
mod tables;

use std::{
    collections::BTreeSet,
    env,
    process::{Command, Stdio},
};

use domain::ports::{Configure as _, DueInbox as _, Inbox as _, Outbox as _};
use serde::{Deserialize, Serialize};
use tables::{Local, Server};

/// How many events are in a backlog.
const SMALL: u64 = 1_000;
const LARGE: u64 = 10_000;

/// How many times as long the large one may take: ten, and a tenth for the noise of a machine.
const LONGER: f64 = 11.0;

/// How much more memory the worker may have at its peak, of what it had at the small backlog: an allocator's noise.
const MORE: f64 = 1.1;

/// What a sandbox says of itself when it has drained a backlog.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Drained {
    /// From the first batch to the last answer.
    seconds: f64,
    /// Its memory before the first batch, in KiB, as the system counts resident pages.
    before_kib: u64,
    /// The most it ever had.
    peak_kib: u64,
}

fn main() {
    let arguments: Vec<String> = env::args().collect();
    if let [_, word, port, events] = arguments.as_slice()
        && word == "sandbox"
    {
        let drained = sandbox::drain(port.parse().unwrap(), events.parse().unwrap());
        println!("{}", serde_json::to_string(&drained).unwrap());
        return;
    }
    println!(
        "{:>8} {:>9} {:>12} {:>12} {:>12}",
        "events", "seconds", "each, ms", "before, KiB", "peak, KiB"
    );
    let [first, large, last] = [SMALL, LARGE, SMALL].map(round);
    let small = f64::midpoint(first.seconds, last.seconds);
    let longer = large.seconds / small;
    let more = large.peak_kib as f64 / first.peak_kib.max(last.peak_kib) as f64;
    println!(
        "{LARGE} over {SMALL}: time {longer:.2} x (aim: {LONGER}), peak memory {more:.2} x (aim: {MORE})"
    );
}

/// A backlog in tables of its own, and what it cost to drain it.
#[tokio::main]
async fn round(events: u64) -> Drained {
    let server = Server::new().await;
    let tables = Local::at(server.port);
    assert!(tables.registry.add_source(&sandbox::source()).await.unwrap());
    for n in 0..events {
        tables.inbox.accept(&sandbox::row(n)).await.unwrap();
    }
    let port = server.port.to_string();
    let run = tokio::task::spawn_blocking(move || {
        Command::new(env::current_exe().unwrap())
            .args(["sandbox", &port, &events.to_string()])
            .stderr(Stdio::inherit())
            .output()
            .unwrap()
    });
    let run = run.await.unwrap();
    assert!(run.status.success(), "{run:?}");
    let drained: Drained = serde_json::from_slice(&run.stdout).unwrap();
    let Drained { seconds, before_kib, peak_kib } = drained;
    let each = seconds * 1000.0 / events as f64;
    println!("{events:8} {seconds:9.2} {each:12.3} {before_kib:12} {peak_kib:12}");

    let (mut pending, mut told) = (0, 0);
    for shard in 0..tables.inbox.shards {
        pending += tables.inbox.pending(shard, &BTreeSet::new()).await.unwrap().owed.count;
        told += tables.outbox.unrelayed_backlog(shard).await.unwrap().count;
    }
    assert_eq!((pending, told), (0, events), "pending, and told");
    drained
}
