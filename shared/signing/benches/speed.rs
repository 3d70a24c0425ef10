//! How much verifying costs beside the hash that it cannot do without, as ratios of one interleaved run.
//!
//! `cargo bench -p signing --bench speed`. The bounds are what the product aims at; they are printed beside what was
//! measured and fail nothing, for a busy machine proves nothing. Rounds of both sides take turns, so that a slow moment
//! meets both, and the median of the rounds' ratios is what counts.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a benchmark prints")]

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use hmac::{Hmac, KeyInit as _, Mac as _};
use http::HeaderMap;
use jiff::Timestamp;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use signing::{
    Key, Request, Scheme, Secret, SigningKey,
    sign::{Outgoing, sign_as},
    verify,
};

const SECRET: &str = "whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=";
const URL: &str = "https://hooks.example/in";

/// Rounds of each side.
const ROUNDS: usize = 301;
/// Each round takes about this long.
const ROUND: Duration = Duration::from_micros(400);

fn main() {
    for (bytes, bound) in [(256, 1.4), (1024, 1.4), (16 * 1024, 1.05)] {
        println!(
            "{bytes} B: median ns, and times SHA-256 of the body (aim: {bound} without values of the body)"
        );
        let body = body(bytes);
        let hash = || {
            black_box(Sha256::digest(black_box(&body)));
        };
        let key = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
        let mac = || {
            let mut mac = key.clone();
            mac.update(black_box(&body));
            drop(black_box(mac.finalize()));
        };
        report("hmac, prepared key", &hash, &mac);
        for (told, scheme) in [
            ("signature alone", lean()),
            ("github", Scheme::preset("github").unwrap()),
            ("standard_webhooks", Scheme::preset("standard_webhooks").unwrap()),
            ("stripe", Scheme::preset("stripe").unwrap()),
        ] {
            let signed = Signed::new(scheme, &body);
            report(told, &hash, &|| signed.verify());
        }
    }
    println!("1024 B: scheme by name and values out of the body (aim: 10,000 ns together)");
    let body = body(1024);
    let hash = || {
        black_box(Sha256::digest(black_box(&body)));
    };
    let found =
        report("scheme by name", &hash, &|| drop(black_box(Scheme::preset(black_box("stripe")))));
    let with = report("stripe", &hash, &{
        let signed = Signed::new(Scheme::preset("stripe").unwrap(), &body);
        move || signed.verify()
    });
    let without = report("stripe without identity", &hash, &{
        let like = json!({"like": "stripe", "identity": {"id": null, "type": null, "object_type": null,
            "object_id": null, "version": null, "occurred_at": null}});
        let signed = Signed::new(Scheme::from_value(like).unwrap(), &body);
        move || signed.verify()
    });
    println!("  {:24} {:9.0}", "together", found + (with - without).max(0.0));
}

/// The least that can be verified: one signature over the body, nothing else asked of the request.
fn lean() -> Scheme {
    Scheme::from_value(json!({
        "algorithm": "hmac-sha256",
        "signed": "{body}",
        "signature": {"from": "{header:x-signature}", "encoding": "hex"},
    }))
    .unwrap()
}

/// An event as payment providers send them, of this length.
fn body(bytes: usize) -> Vec<u8> {
    let start = r#"{"id":"evt_1NG8Du2eZvKYlo2CUI79vXWy","object":"event","created":1767225600,"type":"invoice.paid","data":{"object":{"id":"in_1","object":"invoice","lines":["#;
    let end = "]}}}";
    let mut text = start.to_owned();
    let line = r#"{"amount":1999,"currency":"eur"},"#;
    while text.len() + line.len() + end.len() + 2 <= bytes {
        text.push_str(line);
    }
    let rest = bytes - text.len() - end.len() - 2;
    text.push_str(&format!("\"{}\"{end}", "x".repeat(rest)));
    assert_eq!(text.len(), bytes);
    text.into_bytes()
}

/// A request with all that verifies it.
struct Signed {
    scheme: Scheme,
    keys: [Key; 1],
    headers: HeaderMap,
    body: Vec<u8>,
    now: Timestamp,
}

impl Signed {
    fn new(scheme: Scheme, body: &[u8]) -> Self {
        let now = Timestamp::from_second(1_767_225_600).unwrap();
        let outgoing = Outgoing {
            method: "POST",
            url: URL,
            headers: HeaderMap::new(),
            id: Some("msg_2Lh9KRb0pzN4LePd3XiA4v12Axj"),
            event_type: Some("invoice.paid"),
            body,
        };
        let secret = Secret::new(SECRET);
        let signing = SigningKey::parse(&scheme, &secret).unwrap();
        let headers = sign_as(&scheme, &signing, &outgoing, now).unwrap();
        let keys = [Key::parse(&scheme, "k", &secret).unwrap()];
        Self { scheme, keys, headers, body: body.to_vec(), now }
    }

    fn verify(&self) {
        let request = Request {
            method: "POST",
            url: URL,
            headers: &self.headers,
            body: &self.body,
            path_secret: None,
        };
        black_box(verify(&self.scheme, &self.keys, black_box(&request), self.now)).unwrap();
    }
}

/// Measures `work` beside `hash`, prints it, and gives the nanoseconds of one `work`.
fn report(told: &str, hash: &dyn Fn(), work: &dyn Fn()) -> f64 {
    let (hash_count, work_count) = (count(hash), count(work));
    let mut rounds: Vec<(f64, f64)> = (0..ROUNDS)
        .map(|_| {
            let hashed = time(hash, hash_count);
            let worked = time(work, work_count);
            (worked / hashed, worked)
        })
        .collect();
    rounds.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (ratio, nanoseconds) = rounds.get(ROUNDS / 2).copied().unwrap_or_default();
    println!("  {told:24} {nanoseconds:9.0} {ratio:7.2} x");
    nanoseconds
}

/// How often `work` is done in a round.
fn count(work: &dyn Fn()) -> u32 {
    let mut count = 1;
    while time(work, count) * f64::from(count) < ROUND.as_nanos() as f64 {
        count *= 2;
    }
    count
}

/// Nanoseconds of one of `count` times.
fn time(work: &dyn Fn(), count: u32) -> f64 {
    let began = Instant::now();
    for _ in 0..count {
        work();
    }
    began.elapsed().as_nanos() as f64 / f64::from(count)
}
