//! How many instructions verifying takes beside the hash that it cannot do without: figures that no busy machine moves.
//!
//! `cargo bench -p signing --bench instructions`; needs valgrind. The processor that valgrind plays has no instructions for
//! SHA, so that both sides hash in plain code, which weighs more than it does where they exist: there `speed` counts.
//! Each figure is the difference between two runs of this program, divided by how many more times the second did its work.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a benchmark prints")]

mod requests;

use std::{env, hint::black_box, process::Command};

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};
use signing::Scheme;

use crate::requests::{SECRET, Signed, body, lean};

const FEW: u32 = 10;
const MANY: u32 = 60;

const WORKS: [&str; 6] =
    ["sha-256", "hmac, prepared key", "signature alone", "github", "standard_webhooks", "stripe"];

fn main() {
    let arguments: Vec<String> = env::args().collect();
    match arguments.as_slice() {
        [_, work, bytes, times] => {
            repeat(work, &body(bytes.parse().unwrap()), times.parse().unwrap());
        }
        _ => table(),
    }
}

fn table() {
    for (bytes, bound) in [(256, 1.4), (1024, 1.4), (16 * 1024, 1.05)] {
        println!(
            "{bytes} B: instructions without those for SHA, and times SHA-256 of the body (aim: {bound} without values of the body)"
        );
        let mut hash = None;
        for work in WORKS {
            let once = f64::from(count(work, bytes, MANY) - count(work, bytes, FEW))
                / f64::from(MANY - FEW);
            let ratio = once / *hash.get_or_insert(once);
            println!("  {work:24} {once:9.0} {ratio:7.2} x");
        }
    }
}

/// The instructions of a whole run, as valgrind counts them.
fn count(work: &str, bytes: usize, times: u32) -> u32 {
    let run = Command::new("valgrind")
        .args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"])
        .arg(env::current_exe().unwrap())
        .args([work, &bytes.to_string(), &times.to_string()])
        .output()
        .expect("valgrind counts the instructions; install it");
    let told = String::from_utf8(run.stderr).unwrap();
    let line = told.lines().find_map(|line| line.split_once("refs:")).expect("a count");
    line.1.trim().replace(',', "").parse().unwrap()
}

fn repeat(work: &str, body: &[u8], times: u32) {
    let work: Box<dyn Fn()> = match work {
        "sha-256" => Box::new(|| {
            black_box(Sha256::digest(black_box(body)));
        }),
        "hmac, prepared key" => {
            let key = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
            Box::new(move || {
                let mut mac = key.clone();
                mac.update(black_box(body));
                drop(black_box(mac.finalize()));
            })
        }
        "signature alone" => verifying(lean(), body),
        preset => verifying(Scheme::preset(preset).unwrap(), body),
    };
    (0..times).for_each(|_| work());
}

fn verifying(scheme: Scheme, body: &[u8]) -> Box<dyn Fn()> {
    let signed = Signed::new(scheme, body);
    Box::new(move || signed.verify())
}
