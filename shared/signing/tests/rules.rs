//! What a scheme may not say, each with its reason, and all of it at once.
#![expect(
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    clippy::panic,
    clippy::unwrap_used,
    reason = "test code"
)]

mod problems;

use serde_json::{Value, json};
use signing::Scheme;

fn problems(scheme: Value) -> Vec<String> {
    problems::lines(Scheme::from_value(scheme))
}

/// Exactly one problem, or none.
fn check(scheme: Value, expected: &str) {
    let shown = scheme.to_string();
    let found = problems(scheme);
    match (found.as_slice(), expected) {
        ([], "") => {}
        ([only], expected) if !expected.is_empty() && only.starts_with(expected) => {}
        _ => panic!("{shown}: expected `{expected}`, found {found:#?}"),
    }
}

/// A right scheme with something laid over it; null removes.
fn over(changes: Value) -> Value {
    let mut scheme = json!({
        "algorithm": "hmac-sha256", "signed": "{body}", "signature": { "from": "{header:s}" },
    });
    for (key, value) in changes.as_object().unwrap() {
        scheme[key] = value.clone();
    }
    scheme
}

#[test]
fn one_of_algorithm_and_verifier_decides() {
    check(over(json!({})), "");
    check(json!({ "verifier": "twilio" }), "");
    check(
        json!({ "verifier": "twillio" }),
        "verifier: `twillio` is unknown; use one of: twilio, adyen",
    );
    check(over(json!({ "verifier": "twilio" })), "verifier: stands in the place of `algorithm`");
    check(
        over(json!({ "algorithm": null, "verifier": "sns", "signature": null })),
        "signed: is part of the code",
    );
    check(
        json!({ "verifier": "sns", "signature": { "from": "{header:s}" } }),
        "signature: is part of the code",
    );
    check(
        json!({ "verifier": "sns", "timestamp": { "from": "{header:s}" } }),
        "timestamp: is part of the code",
    );
    let lookup = json!({ "id": "{header:k}", "url": "https://a.example/{id}", "answer": "/key" });
    check(
        json!({ "verifier": "sns", "key": { "lookup": lookup } }),
        "key.lookup: is part of the code",
    );
    check(json!({}), "algorithm: is missing");
}

#[test]
fn what_signs_nothing_has_nothing_that_looks_signed() {
    check(json!({ "algorithm": "none" }), "");
    check(json!({ "algorithm": "basic" }), "");
    for algorithm in ["none", "basic", "token"] {
        let with = |key: &str, value: Value| {
            let mut scheme = json!({ "algorithm": algorithm });
            if algorithm == "token" {
                scheme["signature"] = json!({ "from": "{header:s}" });
            }
            scheme[key] = value;
            scheme
        };
        check(
            with("signed", json!("{body}")),
            &format!("signed: means nothing with `{algorithm}`"),
        );
        check(with("timestamp", json!({ "from": "{header:t}" })), "timestamp: nothing signs it");
        check(
            with("key", json!({ "encoding": "hex" })),
            &format!("key.encoding: is compared as text with `{algorithm}`"),
        );
    }
    check(
        json!({ "algorithm": "none", "signature": { "from": "{header:s}" } }),
        "signature: means nothing with `none`",
    );
    check(
        json!({ "algorithm": "basic", "signature": { "from": "{header:s}" } }),
        "signature: is always the header Authorization",
    );
    check(json!({ "algorithm": "token" }), "signature: is missing; say where the token is");
}

#[test]
fn places_of_a_signature_fit_the_algorithm() {
    let from = |from: Value| over(json!({ "signature": { "from": from } }));
    let token = |from: Value| json!({ "algorithm": "token", "signature": { "from": from } });
    check(from(json!(["{header:a}", "{header:b|c}"])), "");
    check(token(json!("{json:/value/*/state}")), "");
    check(token(json!("{path-secret}")), "");
    check(
        from(json!(["{header:a}", "{json:/b}"])),
        "signature.from: is a list, so each must be one {header:..}",
    );
    check(from(json!(vec!["{header:a}"; 9])), "signature.from: has more than 8 places");
    check(from(json!([])), "signature.from: must be at least one");
    check(from(json!("{header:a}{header:b}")), "signature.from: must be exactly one");
    check(from(json!("{body}")), "signature.from: must be exactly one");
    check(
        from(json!("{path-secret}")),
        "signature.from: {json:/../*/..} and {path-secret} are for `token`",
    );
    check(
        from(json!("{json:/value/*/state}")),
        "signature.from: {json:/../*/..} and {path-secret} are for `token`",
    );
    check(from(json!("{json:/signature}")), "signature.from: stands inside the body that it signs");
    let paired = |from: Value| over(json!({ "signature": { "from": from, "paired": true } }));
    check(paired(json!(["{header:a}", "{header:b}"])), "");
    check(paired(json!("{header:a}")), "signature.paired: needs a list of at least two headers");
    let pairs = json!({ "from": "{path-secret}", "pairs": { "item_sep": ",", "kv_sep": "=", "field": "v1" } });
    check(
        json!({ "algorithm": "token", "signature": pairs }),
        "signature.pairs: an address has no pairs",
    );
}

#[test]
fn the_secret_stands_in_a_plain_hash_and_nowhere_else() {
    check(over(json!({ "algorithm": "sha256", "signed": "{secret}{body}" })), "");
    check(over(json!({ "algorithm": "sha256" })), "signed: must contain {secret}");
    check(over(json!({ "signed": "{secret}{body}" })), "signed: {secret} belongs to `sha256`");
    check(
        over(json!({ "signed": "{path-secret}{body}" })),
        "signed: has a part that makes no sense here",
    );
    check(
        over(json!({ "signed": "{form:a}{body}" })),
        "signed: has a part that makes no sense here",
    );
    check(
        over(json!({ "signed": "{json:/a/*/b}{body}" })),
        "signed: has a part that makes no sense here",
    );
    check(
        over(json!({ "signed": null, "body_unsigned": true })),
        "signed: is empty, so the signature would cover nothing",
    );
    for fixed in ["x", "{config:a}", "v1:{config:a}"] {
        check(
            over(json!({ "signed": fixed, "body_unsigned": true })),
            "signed: is the same for every request",
        );
    }
    check(over(json!({ "signed": "{body}.{body}" })), "signed: has {body} more than once");
    check(
        over(json!({ "identity": { "id": "{secret}" } })),
        "identity.id: has a part that makes no sense here",
    );
}

#[test]
fn keys_are_written_as_the_algorithm_has_them() {
    let key = |algorithm: &str, encoding: &str| {
        over(json!({ "algorithm": algorithm, "key": { "encoding": encoding } }))
    };
    check(key("ecdsa-p256-sha256", "spki-base64"), "");
    check(key("ed25519", "spki-base64"), "");
    check(key("ed25519", "hex"), "");
    for encoding in ["utf8", "hex", "base64"] {
        check(
            key("ecdsa-p256-sha256", encoding),
            "key.encoding: an ECDSA key is written with its curve",
        );
    }
    check(key("ed25519", "utf8"), "key.encoding: an Ed25519 key is 32 bytes");
    check(key("hmac-sha256", "spki-base64"), "key.encoding: spki-base64 is for public keys");
}

#[test]
fn a_lookup_pins_its_host_and_is_for_public_keys() {
    let lookup = |change: Value| {
        let mut lookup = json!({ "id": "{header:k}", "url": "https://api.example.com/keys/{id}", "answer": "/data/key" });
        for (key, value) in change.as_object().unwrap() {
            lookup[key] = value.clone();
        }
        let key = json!({ "encoding": "spki-base64", "lookup": lookup });
        over(json!({ "algorithm": "ecdsa-p256-sha256", "key": key }))
    };
    check(lookup(json!({})), "");
    check(lookup(json!({ "id_form": "text" })), "");
    check(
        lookup(json!({ "url": "http://api.example.com/keys/{id}" })),
        "key.lookup.url: must start with https://",
    );
    check(lookup(json!({ "url": "https://{id}/keys" })), "key.lookup.url: must name a host");
    check(
        lookup(json!({ "url": "https://api.example.com/keys" })),
        "key.lookup.url: must contain {id} once",
    );
    check(lookup(json!({ "url": null })), "key.lookup.url: is missing");
    check(lookup(json!({ "id": null })), "key.lookup.id: is missing");
    check(lookup(json!({ "id": "{json:/k}" })), "key.lookup.id: must be exactly one {header:..}");
    check(lookup(json!({ "id": "{header:k|l}" })), "key.lookup.id: must be one header");
    check(
        lookup(json!({ "id_form": "any" })),
        "key.lookup.id_form: `any` is unknown; use one of: uuid, text",
    );
    check(lookup(json!({ "answer": "key" })), "key.lookup.answer: must be a JSON pointer");
    check(lookup(json!({ "host": "x" })), "key.lookup.host: is not a key of a scheme");
    let shared = json!({ "lookup": { "id": "{header:k}", "url": "https://api.example.com/keys/{id}", "answer": "/k" } });
    check(
        over(json!({ "key": shared })),
        "key.lookup: is for public keys, and `hmac-sha256` has none",
    );
    let mut paired = lookup(json!({}));
    paired["signature"] = json!({ "from": ["{header:a}", "{header:b}"], "paired": true });
    check(paired, "signature.paired: pairs headers with secrets, but the keys are looked up");
}

#[test]
fn times_are_signed_and_have_a_tolerance() {
    let clock =
        |timestamp: Value, signed: &str| over(json!({ "timestamp": timestamp, "signed": signed }));
    let listed = "{signed-headers:x-list}{body}";
    check(clock(json!({ "from": "{header:t}" }), listed), "");
    check(clock(json!({ "from": "{header:t}" }), "{header:t}{body}"), "");
    check(clock(json!({ "from": "{json:/t}" }), "{body}"), "");
    check(clock(json!({ "from": "{header:t}" }), "{body}"), "timestamp.from: is not signed");
    check(
        clock(json!({ "from": "{header:t}", "tolerance": 0 }), "{ts}{body}"),
        "timestamp.tolerance: must be a whole number",
    );
    check(
        clock(json!({ "from": "{header:t}", "tolerance": 3601 }), "{ts}{body}"),
        "timestamp.tolerance: must be a whole number",
    );
    check(
        clock(json!({ "from": "{path-secret}" }), "{ts}{body}"),
        "timestamp.from: must be exactly one",
    );
    check(over(json!({ "signed": "{ts}{body}" })), "timestamp: `signed` contains {ts}");
}

#[test]
fn batches_and_acknowledgements_have_their_form() {
    check(over(json!({ "batch": "" })), "");
    check(
        over(
            json!({ "batch": "/events", "element": { "id": "{json:/id}", "delivery": "{json:/d}" } }),
        ),
        "",
    );
    check(over(json!({ "batch": "events" })), "batch: must be a JSON pointer");
    check(over(json!({ "element": { "id": "{json:/id}" } })), "element: needs `batch`");
    check(
        over(json!({ "batch": "", "element": { "id": "{header:x}" } })),
        "element.id: has a part that makes no sense here; it may use {json:/..}",
    );
    check(
        over(json!({ "batch": "", "element": { "ids": "x" } })),
        "element.ids: is not a key of a scheme",
    );
    let acknowledge = |value: Value| over(json!({ "acknowledge": value }));
    check(acknowledge(json!({ "status": 204 })), "");
    for status in
        [json!(199), json!(300), json!(401), json!(-1), json!("200"), json!(70_000), json!(200.5)]
    {
        check(
            acknowledge(json!({ "status": status })),
            "acknowledge.status: must be a number from 200 to 299",
        );
    }
    check(
        acknowledge(json!({ "body": "x", "content_type": "text/plain\r\nx: y" })),
        "acknowledge.content_type: must be a media type",
    );
    check(
        acknowledge(json!({ "content_type": "text/plain" })),
        "acknowledge.content_type: belongs to a body",
    );
}

#[test]
fn all_problems_of_the_new_keys_come_at_once() {
    let found = problems(json!({
        "verifier": "nobody", "algorithm": "sha257", "batch": "x", "element": { "id": "{ts}" }, "acknowledge": { "status": 500 },
        "key": { "encoding": "pem", "lookup": { "url": "ftp://x", "id": "{json:/x}" } },
        "signature": { "from": ["{header:a}", "{json:/b}", "{what}"], "paired": "yes" }, "handshake": [1],
        "signed": "{url:other}",
    }));
    let expected = [
        "algorithm: `sha257` is unknown",
        "verifier: `nobody` is unknown",
        "key.encoding: `pem` is unknown",
        "key.lookup.id: must be exactly one",
        "key.lookup.url: must start with https://",
        "key.lookup.answer: is missing",
        "signature.from: `{what}` is unknown",
        "signature.from: is a list",
        "signature.paired: must be true or false",
        "signed: `{url:other}` is unknown",
        "batch: must be a JSON pointer",
        "element.id: has a part",
        "acknowledge.status: must be",
        "handshake: must be a list of tables",
        "verifier: stands in the place",
        "element: needs `batch`",
    ];
    problems::assert_all(&found, &expected);
}

#[test]
fn what_a_problem_repeats_of_the_scheme_is_one_harmless_line() {
    let found =
        problems(over(json!({ "a\u{1b}[31m\nb": 1, "signature": { "from": "{he\u{7}\nader}" } })));
    assert_eq!(found.len(), 2, "{found:#?}");
    assert!(found.iter().all(|problem| !problem.chars().any(char::is_control)), "{found:#?}");
}

#[test]
fn a_version_has_one_part_without_a_list_or_a_few_in_one() {
    let version = |version: Value| over(json!({ "identity": { "version": version } }));
    let part = || json!({ "from": "{json:/v}", "kind": "number" });
    let parts = |count: usize| version(json!({ "parts": vec![part(); count] }));
    check(version(part()), "");
    check(parts(2), "");
    check(parts(4), "");
    let few = "identity.version.parts: must be a list of 2 to 4 tables with `from` and `kind`";
    for count in [0, 1, 5] {
        check(parts(count), few);
    }
    check(
        version(json!({ "parts": [part(), { "kind": "number" }] })),
        "identity.version.parts: must each say `from` where they are found",
    );
    check(
        version(json!({ "parts": [part(), { "from": "{json:/w}", "kind": "date" }] })),
        "identity.version.parts[1].kind: ",
    );
    check(
        version(json!({ "parts": [part(), { "from": "{json:/w}", "trusted": true }] })),
        "identity.version.parts[1].trusted: is not a key of a scheme",
    );
    // One way of saying it, or the other.
    check(
        version(json!({ "parts": [part(), part()], "kind": "number" })),
        "identity.version.kind: is not a key of a scheme",
    );
}
