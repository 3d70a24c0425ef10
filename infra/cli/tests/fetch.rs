//! How a source is told to ask its provider, and with which token, against a deployment that writes down what it is asked.
#![expect(clippy::unwrap_used, clippy::panic, reason = "test code")]
#![expect(dead_code, reason = "the fake is shared with other suites, and each uses a part of it")]

mod fake;
mod support;

use fake::Fake;
use serde_json::{Value, json};

#[test]
fn a_source_asks_with_a_fetcher_that_ships_or_with_one_of_a_file() {
    let fake = Fake::answering(200, &json!({ "name": "shop" }));
    let given = |options: &[&str]| {
        let ended = fake.run(&[&["sources", "set", "shop"], options].concat());
        assert_eq!(ended.code, 0, "{ended:?}");
        fake.asked().json()
    };
    assert_eq!(given(&["--fetch", "stripe"]), json!({ "fetch": { "preset": "stripe" } }));
    let always = given(&["--fetch", "stripe", "--fetch-when", "always"]);
    assert_eq!(always, json!({ "fetch": { "preset": "stripe", "when": "always" } }));
    assert_eq!(given(&["--no-fetch"]), json!({ "fetch": null }));

    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let toml =
        file("own.toml", "url = \"https://api.example.com/{kind}/{id}\"\nauth = \"bearer\"\n");
    let own = json!({ "url": "https://api.example.com/{kind}/{id}", "auth": "bearer" });
    assert_eq!(given(&["--fetch", &toml]), json!({ "fetch": { "own": own } }));
    let json_file = file("own.json", &own.to_string());
    assert_eq!(given(&["--fetch", &json_file]), json!({ "fetch": { "own": own } }));

    let bad = file("bad.toml", "url = \"http://api.example.com/{id}\"\nauth = \"x\"\nrat = 1\n");
    let ended = fake.run(&["sources", "set", "shop", "--fetch", &bad]);
    assert_eq!(ended.code, 2);
    for at in ["url", "auth", "rat"] {
        assert!(ended.err.contains(&format!("{at}: ")), "{}", ended.err);
    }
}

/// SEC-secret-in-output
#[test]
fn a_token_goes_in_and_never_comes_out() {
    let list = json!({ "tokens": [{ "id": "2027", "expires_at": null }], "warnings": [] });
    let fake = Fake::answering(201, &list);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token.txt");
    std::fs::write(&file, "rk_CANARY\n").unwrap();
    let file = file.to_str().unwrap();
    let add = [
        "sources",
        "tokens",
        "add",
        "shop",
        "--id",
        "2027",
        "--expire-others-in",
        "1h",
        "--secret-file",
        file,
    ];
    let ended = fake.run(&add);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(!ended.out.contains("CANARY") && !ended.err.contains("CANARY"), "{ended:?}");
    assert!(ended.out.starts_with("Source shop has the token 2027"), "{}", ended.out);
    let asked = fake.asked();
    assert_eq!(asked.call, "POST /v1/sources/shop/tokens");
    assert_eq!(
        asked.json(),
        json!({ "id": "2027", "token": "rk_CANARY", "expire_others_in": 3600 })
    );

    let fake = Fake::answering(200, &list);
    assert_eq!(fake.run(&["sources", "tokens", "remove", "shop", "a/b"]).code, 0);
    assert_eq!(fake.asked().call, "DELETE /v1/sources/shop/tokens/a%2Fb");
    assert_eq!(fake.run(&["sources", "tokens", "list", "shop"]).code, 0);
    assert_eq!(fake.asked().call, "GET /v1/sources/shop/tokens");
}

#[test]
fn a_source_that_asks_shows_how_and_what_it_lacks() {
    let words = "asks Stripe about each event; but it has no token: add one with `postern sources tokens add shop`";
    let source = json!({
        "name": "shop", "scheme": { "preset": "stripe" }, "handler": { "kind": "mirror" },
        "fetch": {
            "preset": "stripe", "when": "always", "title": "Stripe", "facts_checked_on": "2026-12-01",
            "facts_mark": "S", "tokens": [{ "id": "1", "expires_at": "2026-12-02T00:00:00Z" }, { "id": "2", "expires_at": null }],
            "words": words,
        },
    });
    let shown = Fake::answering(200, &source).run(&["sources", "show", "shop"]).out;
    for says in [words, "checked on 2026-12-01 (S)", "1: ends at 2026-12-02", "2: has no end"] {
        assert!(shown.contains(says), "{shown}");
    }
    let plain = Fake::answering(200, &json!({ "name": "shop", "fetch": Value::Null }));
    assert!(!plain.run(&["sources", "show", "shop"]).out.contains("fetch"));
}
