//! Requests that are no events: what is answered, what is not, and that no answer can be turned against us.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "test code")]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName};
use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use signing::handshake::{self, Answer, Reply};
use signing::sign::{Outgoing, sign_as};
use signing::{Key, Request, Scheme, Secret, SigningKey, verify};

const NOW: i64 = 1_767_225_600;
const SECRET: &str = "a-secret-with-enough-bytes";
const SAFE: &str = "nosniff";

/// What is asked, with everything that matters in it.
#[derive(Clone)]
struct Ask {
    scheme: Scheme,
    secrets: Vec<(&'static str, String)>,
    method: &'static str,
    query: String,
    headers: HeaderMap,
    body: Vec<u8>,
    waiting: bool,
}

fn get(preset: &str, query: &str) -> Ask {
    Ask {
        scheme: Scheme::preset(preset).unwrap(),
        secrets: vec![("one", SECRET.into())],
        method: "GET",
        query: query.into(),
        headers: HeaderMap::new(),
        body: Vec::new(),
        waiting: false,
    }
}

fn post(preset: &str, body: impl Into<Vec<u8>>) -> Ask {
    Ask { method: "POST", body: body.into(), ..get(preset, "") }
}

impl Ask {
    fn with(mut self, name: &str, value: &str) -> Self {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        self.headers.append(name, value.parse().unwrap());
        self
    }

    fn waiting(self) -> Self {
        Self { waiting: true, ..self }
    }

    fn keys(&self) -> Vec<Key> {
        let key = |(id, text): &(&'static str, String)| {
            Key::parse(&self.scheme, *id, &Secret::new(text.as_str())).unwrap()
        };
        self.secrets.iter().map(key).collect()
    }

    /// Signed as the provider does, by the first secret.
    fn signed(mut self) -> Self {
        let key =
            SigningKey::parse(&self.scheme, &Secret::new(self.secrets[0].1.as_str())).unwrap();
        let outgoing = Outgoing {
            method: self.method,
            url: "",
            headers: self.headers.clone(),
            id: None,
            event_type: None,
            body: &self.body,
        };
        self.headers = sign_as(&self.scheme, &key, &outgoing, now()).unwrap();
        self
    }

    fn url(&self) -> String {
        format!("https://hooks.example/webhooks/it?{}", self.query)
    }

    fn answer_with(&self, keys: &[Key]) -> Option<Answer> {
        let url = self.url();
        let Self { method, headers, body, .. } = self;
        let request = Request { method, url: &url, headers, body, path_secret: None };
        handshake::answer(&self.scheme, keys, &request, self.waiting, now())
    }

    fn answer(&self) -> Option<Answer> {
        self.answer_with(&self.keys())
    }

    /// The reply of an answer that is nothing else.
    fn reply(&self) -> Reply {
        match self.answer() {
            Some(Answer::Reply(reply)) => reply,
            other => panic!("{other:?}"),
        }
    }

    fn check_text(&self, expected: &str) {
        let reply = self.reply();
        assert_eq!((reply.status, text(&reply)), (200, expected.to_owned()));
        assert_eq!(header(&reply, "content-type"), "text/plain; charset=utf-8");
        assert_eq!(header(&reply, "x-content-type-options"), SAFE);
    }

    fn check_json(&self, expected: &Value) {
        let reply = self.reply();
        assert_eq!(reply.status, 200);
        assert_eq!(serde_json::from_slice::<Value>(&reply.body).unwrap(), *expected);
        assert_eq!(header(&reply, "content-type"), "application/json");
        assert_eq!(header(&reply, "x-content-type-options"), SAFE);
    }

    fn check_refused(&self, code: &str) {
        match self.answer() {
            Some(Answer::Refused(rejected)) => assert_eq!(rejected.reason().code(), code),
            other => panic!("{other:?}"),
        }
    }

    /// Goes on as an event.
    fn check_none(&self) {
        assert!(self.answer().is_none(), "{:?}", self.answer());
    }
}

fn now() -> Timestamp {
    Timestamp::from_second(NOW).unwrap()
}

fn text(reply: &Reply) -> String {
    String::from_utf8(reply.body.clone()).unwrap()
}

fn header<'r>(reply: &'r Reply, name: &str) -> &'r str {
    reply.headers.iter().find(|(header, _)| header == name).map_or("", |(_, value)| value)
}

const MARKUP: &str = "%3Cscript%3Ealert(1)%3C%2Fscript%3E";

/// ING-challenge-reflection
#[test]
fn what_is_reflected_is_plain_short_and_never_a_page() {
    for (preset, query) in [
        ("dropbox", "challenge="),
        ("ms_graph", "validationToken="),
        ("x_twitter", "crc_token="),
        ("braintree", "bt_challenge="),
    ] {
        let with = |value: &str| {
            let ask = get(preset, &format!("{query}{value}"));
            if preset == "ms_graph" { Ask { method: "POST", ..ask } } else { ask }
        };
        for value in [
            MARKUP.to_owned(),
            "a".repeat(10_000),
            "abcdefghij%0d%0aSet-Cookie:x".into(),
            "abcdefghij%00".into(),
            "abcdefghij%22".into(),
            "abcdefghij%26".into(),
            "%C3%A9abcdefghij".into(),
            String::new(),
        ] {
            with(&value).check_refused("handshake_malformed");
        }
        // two readers could see different ones
        with(&format!("aaaaaaaaaaaaaaaaaaaa&{query}aaaaaaaaaaaaaaaaaaaa"))
            .check_refused("handshake_malformed");
        with("%ff").check_none();
        with("%").check_none();
    }
    let meta = |challenge: &str| {
        let query = format!("hub.mode=subscribe&hub.verify_token=T&hub.challenge={challenge}");
        let ask = get("meta", &query);
        Ask { secrets: vec![("one", SECRET.into()), ("verify_token", "T".into())], ..ask }
    };
    meta("1158201444").check_text("1158201444");
    meta(MARKUP).check_refused("handshake_malformed");
    meta(&"1".repeat(201)).check_refused("handshake_malformed");
    meta("1%0a2").check_refused("handshake_malformed");
    let slack = |challenge: &str| {
        post(
            "slack",
            json!({ "type": "url_verification", "challenge": challenge, "token": "x" }).to_string(),
        )
        .signed()
    };
    slack("<script>alert(1)</script>").check_refused("handshake_malformed");
    slack(&"a".repeat(201)).check_refused("handshake_malformed");
}

#[test]
fn slack_gets_its_challenge_after_a_right_signature_only() {
    let body = r#"{"token":"Jhj5dZrVaK7ZwHHjRyZWjbDl","challenge":"3eZbrw1aBm2rZgRNFdxV2595","type":"url_verification"}"#;
    let right = post("slack", body);
    right.clone().signed().check_json(&json!({ "challenge": "3eZbrw1aBm2rZgRNFdxV2595" }));
    right.check_none();
    let other = Ask {
        secrets: vec![("one", "another-secret-of-its-own".into())],
        ..right.clone().signed()
    };
    other.check_none();
    let old = |seconds: i64| {
        let ask = right.clone().signed();
        let url = ask.url();
        let request = Request {
            method: "POST",
            url: &url,
            headers: &ask.headers,
            body: &ask.body,
            path_secret: None,
        };
        let later = Timestamp::from_second(NOW + seconds).unwrap();
        handshake::answer(&ask.scheme, &ask.keys(), &request, false, later).is_some()
    };
    assert!(old(300) && !old(301));
    // an event that only speaks of one
    let event = r#"{"type":"event_callback","event":{"type":"message","text":"url_verification"},"challenge":"x"}"#;
    post("slack", event).signed().check_none();
    let command = "command=%2Fdeploy&type=url_verification&challenge=abc";
    post("slack", command).signed().check_none();
    let grown =
        format!(r#"{{"type":"url_verification","challenge":"abc","pad":"{}"}}"#, "x".repeat(9000));
    post("slack", grown).signed().check_none();
    post("slack", r#"{"type":"url_verification"}"#).signed().check_none();
    post("slack", r#"{"type":"url_verification","challenge":7}"#)
        .signed()
        .check_refused("handshake_malformed");
    Ask { method: "GET", ..right.signed() }.check_none();
}

#[test]
fn meta_gets_its_challenge_for_the_right_token_and_the_token_verifies_no_event() {
    let ask = |query: &str, secrets: &[(&'static str, &str)]| {
        let secrets = secrets.iter().map(|(id, text)| (*id, (*text).to_owned())).collect();
        Ask { secrets, ..get("meta_whatsapp", query) }
    };
    let both = [("app", SECRET), ("verify_token", "my token + 1")];
    let right = "hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token=my+token+%2B+1";
    ask(right, &both).check_text("1158201444");
    for wrong in ["nope", "", "my+token+%2B+", "my+token+%2B+11", SECRET] {
        let query = format!("hub.mode=subscribe&hub.challenge=1&hub.verify_token={wrong}");
        ask(&query, &both).check_refused("handshake_token");
    }
    ask(right, &[("app", SECRET)]).check_refused("not_configured");
    ask("hub.mode=unsubscribe&hub.challenge=1&hub.verify_token=my+token+%2B+1", &both).check_none();
    ask("hub.challenge=1&hub.verify_token=my+token+%2B+1", &both).check_none();
    ask("", &both).check_none();
    // whoever reads the token in a log must not be able to sign with it
    let forged = post("meta", r#"{"entry":[]}"#);
    let forged = Ask { secrets: vec![("verify_token", SECRET.into())], ..forged };
    let signing = SigningKey::parse(&forged.scheme, &Secret::new(SECRET)).unwrap();
    let outgoing = Outgoing {
        method: "POST",
        url: "",
        headers: HeaderMap::new(),
        id: None,
        event_type: None,
        body: &forged.body,
    };
    let mut headers = sign_as(&forged.scheme, &signing, &outgoing, now()).unwrap();
    let judge = |headers: &HeaderMap| {
        let request =
            Request { method: "POST", url: "", headers, body: &forged.body, path_secret: None };
        verify(&forged.scheme, &forged.keys(), &request, now()).unwrap_err().reason().code()
    };
    assert_eq!(judge(&headers), "no_keys");
    // nor by the hash that stands in for it in memory
    let hash = hex::encode(Sha256::digest(SECRET));
    headers.insert("x-hub-signature-256", format!("sha256={hash}").parse().unwrap());
    assert_eq!(judge(&headers), "no_keys");
}

#[test]
fn zoom_gets_an_answer_after_a_right_signature_only_and_only_for_a_token() {
    let body = |token: &str| {
        format!(
            r#"{{"payload":{{"plainToken":"{token}"}},"event_ts":1,"event":"endpoint.url_validation"}}"#
        )
    };
    let right = post("zoom", body("qgg8vlvZRS6UYooatFL8Aw"));
    let reply = right.clone().signed().reply();
    let answer: Value = serde_json::from_slice(&reply.body).unwrap();
    assert_eq!(answer["plainToken"], "qgg8vlvZRS6UYooatFL8Aw");
    assert_eq!(answer["encryptedToken"].as_str().unwrap().len(), 64);
    right.check_none();
    for token in
        ["v0:1767225600:{}", "short", &"a".repeat(65), "a b c d e f", "<b>bbbbbbbb</b>", ""]
    {
        post("zoom", body(token)).signed().check_refused("handshake_malformed");
    }
    post("zoom", r#"{"event":"endpoint.url_validation"}"#).signed().check_none();
    post(
        "zoom",
        r#"{"event":"meeting.started","payload":{"plainToken":"qgg8vlvZRS6UYooatFL8Aw"}}"#,
    )
    .signed()
    .check_none();
    // while a secret is changed, the answer is by the one that Zoom signed with
    let two = Ask {
        secrets: vec![("new", "the-newer-secret-of-two".into()), ("old", SECRET.into())],
        ..right.signed()
    };
    assert_eq!(two.reply(), reply);
}

#[test]
fn x_gets_an_answer_for_a_token() {
    get("x_twitter", "crc_token=NGNhZDIyNDctZDZkZC00YTM4&nonce=abc").check_json(
        &json!({ "response_token": "sha256=rOZPGIgLyOOgx2hwi9VW9yq16zuOvyLJUczirt+X1Tk=" }),
    );
    for token in [
        "%7B%22a%22%3A1%7D",
        "%5B1%2C2%2C3%2C4%5D",
        "%2212345678%22",
        "short",
        "a+b+c+d+e",
        "12345678%2C",
    ] {
        get("x_twitter", &format!("crc_token={token}")).check_refused("handshake_malformed");
    }
    get("x_twitter", "").check_none();
    post("x_twitter", "crc_token=NGNhZDIyNDctZDZkZC00YTM4").check_none();
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    /// The token is the whole of what a stranger chooses; the answer would be the signature of a body that is the token.
    #[test]
    fn no_answer_to_x_is_the_signature_of_an_event(token in prop_oneof![
        "[A-Za-z0-9._~=+/-]{8,128}", "[0-9]{8,40}", "[0-9.]{8,40}", "(true|null|1e10){2,10}",
        "\\PC{0,40}", r#"[\{\}\[\]":,a-z0-9 ]{0,40}"#,
    ]) {
        let query: String = token.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let ask = get("x_twitter", &format!("crc_token={query}"));
        if let Some(Answer::Reply(reply)) = ask.answer() {
            let answer: Value = serde_json::from_slice(&reply.body).unwrap();
            let signature = answer["response_token"].as_str().unwrap();
            let forged = post("x_twitter", token).with("x-twitter-webhooks-signature", signature);
            let request = Request { method: "POST", url: "", headers: &forged.headers, body: &forged.body, path_secret: None };
            let refused = verify(&forged.scheme, &forged.keys(), &request, now()).unwrap_err();
            prop_assert_eq!(refused.reason().code(), "body_not_json");
        }
    }

    #[test]
    fn no_answer_to_braintree_is_the_signature_of_a_notification(challenge in "[0-9a-f]{20,32}") {
        let ask = Ask { secrets: vec![("one", "pubkey:private-key-of-braintree".into())], ..get("braintree", &format!("bt_challenge={challenge}")) };
        let answer = text(&ask.reply());
        prop_assert!(answer.starts_with("pubkey|"));
        let form = format!("bt_signature={}&bt_payload={challenge}", answer.replace('|', "%7C"));
        let forged = Ask { method: "POST", body: form.into_bytes(), ..ask };
        let request = Request { method: "POST", url: "", headers: &forged.headers, body: &forged.body, path_secret: None };
        let refused = verify(&forged.scheme, &forged.keys(), &request, now()).unwrap_err();
        prop_assert_eq!(refused.reason().code(), "body_value_missing");
    }

    #[test]
    fn nothing_that_comes_makes_an_answer_panic(
        preset in prop::sample::select(signing::preset_names().collect::<Vec<_>>()),
        method in prop::sample::select(vec!["GET", "POST", "HEAD", "PUT"]),
        query in "\\PC{0,60}", body in prop::collection::vec(any::<u8>(), 0..200), waiting: bool,
        value in "[ -~]{0,60}",
    ) {
        let query = format!("challenge={query}&validationToken={query}&crc_token={query}&bt_challenge={query}");
        let ask = Ask { method, secrets: Vec::new(), body, waiting, ..get(preset, &query) };
        let ask = ask.with("x-hook-secret", &value).with("x-okta-verification-challenge", &value);
        if let Some(Answer::Reply(reply) | Answer::Learn { reply, .. }) = ask.answer() {
            prop_assert!(!reply.body.iter().any(|byte| b"<>&".contains(byte)));
        }
    }
}

#[test]
fn braintree_gets_public_key_and_hmac_for_lower_case_hexadecimal() {
    let ask = |challenge: &str| Ask {
        secrets: vec![("one", "pubkey:private-key-of-braintree".into())],
        ..get("braintree", &format!("bt_challenge={challenge}"))
    };
    ask("20f9f8ed05f77439fe955c977e4c8a53")
        .check_text("pubkey|c227ad44d44b53987d9eb2d1f9bbc0ddfced8202");
    for challenge in [
        "20F9F8ED05F77439FE955C977E4C8A53",
        "20f9f8ed05f77439fe9",
        "20f9f8ed05f77439fe955c977e4c8a530",
        "PD94bWwgdmVyc2lvbj0iMS4wIg",
    ] {
        ask(challenge).check_refused("handshake_malformed");
    }
    let keyless = Ask { secrets: Vec::new(), ..ask("20f9f8ed05f77439fe955c977e4c8a53") };
    keyless.check_refused("no_keys");
}

#[test]
fn dropbox_and_microsoft_get_their_text_back() {
    get("dropbox", "challenge=abc-CHALLENGE-123").check_text("abc-CHALLENGE-123");
    get("dropbox", "other=1").check_none();
    let token = "Validation%3a+Testing+client+application+reachability+for+subscription+Request-Id%3a+09c06a8d-1";
    let ask = Ask { method: "POST", ..get("ms_graph", &format!("validationToken={token}")) };
    ask.check_text("Validation: Testing client application reachability for subscription Request-Id: 09c06a8d-1");
    get("ms_graph", &format!("validationToken={token}")).check_none();
    post("ms_graph", r#"{"value":[]}"#).check_none();
}

#[test]
fn okta_gets_its_challenge_with_the_right_authorization_only() {
    let ask = |authorization: &str| {
        get("okta", "")
            .with("x-okta-verification-challenge", "okta-challenge-xyz")
            .with("authorization", authorization)
    };
    ask(SECRET).check_json(&json!({ "verification": "okta-challenge-xyz" }));
    ask("nope").check_refused("signature_mismatch");
    get("okta", "").with("x-okta-verification-challenge", "x").check_refused("signature_missing");
    ask(SECRET)
        .with("x-okta-verification-challenge", "another")
        .check_refused("handshake_malformed");
    let markup =
        get("okta", "").with("authorization", SECRET).with("x-okta-verification-challenge", "<b>");
    markup.check_refused("handshake_malformed");
    let long = get("okta", "")
        .with("authorization", SECRET)
        .with("x-okta-verification-challenge", &"a".repeat(201));
    long.check_refused("handshake_malformed");
    get("okta", "").with("authorization", SECRET).check_none();
}

#[test]
fn asana_brings_its_secret_while_the_source_waits_and_at_no_other_time() {
    let secret = "b537207f20cbfa02357cf448134da559e8bd39d61597dcd5631b8012eae53e81";
    let ask = post("asana", "{}").with("x-hook-secret", secret);
    match ask.clone().waiting().answer() {
        Some(Answer::Learn { secret: learned, reply }) => {
            assert_eq!(learned.expose(), secret);
            assert_eq!((reply.status, header(&reply, "x-hook-secret")), (200, secret));
            assert!(reply.body.is_empty());
        }
        other => panic!("{other:?}"),
    }
    ask.check_refused("handshake_unexpected");
    ask.clone().waiting().with("x-hook-signature", "00").check_none();
    ask.waiting().with("x-hook-secret", secret).check_refused("handshake_malformed");
    for (poor, code) in [
        ("short", "handshake_malformed"),
        ("<script>alert(1)</script>", "handshake_malformed"),
        (&"a".repeat(129), "handshake_malformed"),
        (&format!("{secret},{secret}"), "handshake_malformed"),
    ] {
        post("asana", "{}").with("x-hook-secret", poor).waiting().check_refused(code);
    }
    post("asana", r#"{"events":[]}"#).waiting().check_none();
    let reply = |answer: &Option<Answer>| format!("{answer:?}");
    let shown = reply(&post("asana", "{}").with("x-hook-secret", secret).waiting().answer());
    assert!(shown.contains("Secret(..)"), "{shown}");
}

#[test]
fn a_secret_that_the_scheme_cannot_use_is_not_learned() {
    let scheme = json!({ "like": "asana", "key": { "encoding": "hex" } });
    let scheme = Scheme::from_value(scheme).unwrap();
    let ask = |secret: &str| {
        let ask = post("asana", "{}").with("x-hook-secret", secret).waiting();
        Ask { scheme: scheme.clone(), secrets: Vec::new(), ..ask }
    };
    assert!(matches!(ask(&"0a".repeat(20)).answer(), Some(Answer::Learn { .. })));
    ask("this-is-not-hexadecimal-at-all").check_refused("handshake_secret");
    ask(&"0a".repeat(8)).check_refused("handshake_secret");
}

#[test]
fn notion_brings_its_token_while_the_source_waits_and_at_no_other_time() {
    let ask = post(
        "notion",
        r#"{"verification_token":"secret_tMrlL1qK5vuQAh1b6cZGhFChZTSYJlce98V0pYn7yBl"}"#,
    );
    match ask.clone().waiting().answer() {
        Some(Answer::Learn { secret, reply }) => {
            assert_eq!(secret.expose(), "secret_tMrlL1qK5vuQAh1b6cZGhFChZTSYJlce98V0pYn7yBl");
            assert_eq!((reply.status, reply.body.len()), (200, 0));
        }
        other => panic!("{other:?}"),
    }
    ask.check_refused("handshake_unexpected");
    for other in [
        r#"{"verification_token":"secret_tMrlL1qK5vuQAh1b6cZGhFChZTSYJlce98V0pYn7yBl","more":1}"#,
        r#"[{"verification_token":"secret_tMrlL1qK5vuQAh1b6cZGhFChZTSYJlce98V0pYn7yBl"}]"#,
        r#"{"verification_token":"secret_tMrlL1qK5vuQAh1b6cZGhFChZTSYJlce98V0pYn7yBl"} x"#,
        r#"{"data":{"verification_token":"secret_tMrlL1qK5vuQAh1b6cZGhFChZTSYJlce98V0pYn7yBl"}}"#,
        "",
    ] {
        post("notion", other).waiting().check_none();
    }
    for poor in
        ["short", "<script>alert(1)</script>", &"a".repeat(201), "a secret with blanks in it"]
    {
        let body = json!({ "verification_token": poor }).to_string();
        post("notion", body).waiting().check_refused("handshake_malformed");
    }
}

#[test]
fn monday_gets_exactly_its_challenge() {
    post("monday", r#"{"challenge":"3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P"}"#)
        .check_json(
            &json!({ "challenge": "3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P" }),
        );
    for event in [
        r#"{"challenge":"abc","event":{"type":"x"}}"#,
        r#"{"event":{"type":"x","challenge":"abc"}}"#,
        r#"["challenge"]"#,
        r#"{"challenge":"abc""#,
        "challenge=abc",
    ] {
        post("monday", event).check_none();
    }
    post("monday", r#"{"challenge":"<script>alert(1)</script>"}"#)
        .check_refused("handshake_malformed");
    post("monday", json!({ "challenge": "a".repeat(201) }).to_string())
        .check_refused("handshake_malformed");
    post("monday", r#"{"challenge":{"a":1}}"#).check_refused("handshake_malformed");
}

#[test]
fn discord_gets_the_answer_of_each_kind_of_ping() {
    let seed = "07".repeat(32);
    let public = "ea4a6c63e29c520abef5507b132ec5f9954776aebebe7b92421eea691446d22c";
    let ask = |preset, body: &str| {
        let signing = Ask { secrets: vec![("one", seed.clone())], ..post(preset, body) };
        Ask { secrets: vec![("one", public.into())], ..signing.signed() }
    };
    let ping = r#"{"id":"1","application_id":"1","type":1,"token":"x","version":1}"#;
    ask("discord", ping).check_json(&json!({ "type": 1 }));
    ask("discord_interactions", ping).check_json(&json!({ "type": 1 }));
    let reply = ask("discord", r#"{"version":1,"application_id":"1","type":0}"#).reply();
    assert_eq!((reply.status, reply.body.len(), reply.headers.len()), (204, 0, 0));
    // the same number is an event among webhook events
    ask(
        "discord",
        r#"{"version":1,"application_id":"1","type":1,"event":{"type":"ENTITLEMENT_CREATE"}}"#,
    )
    .check_none();
    for event in
        [r#"{"id":"1","type":2}"#, r#"{"id":"1","type":"1"}"#, r#"{"id":"1","type":1.0}"#, "{}", ""]
    {
        ask("discord", event).check_none();
    }
    let unsigned = Ask { secrets: vec![("one", public.into())], ..post("discord", ping) };
    unsigned.check_none();
    let mut turned = ask("discord", ping);
    turned.body.push(b' ');
    turned.check_none();
}

#[test]
fn circle_is_told_that_somebody_is_there() {
    let head = Ask { method: "HEAD", secrets: Vec::new(), ..get("circle", "") };
    let reply = head.reply();
    assert_eq!((reply.status, reply.headers.len(), reply.body.len()), (200, 0, 0));
    Ask { method: "GET", ..head }.check_none();
    Ask { method: "HEAD", ..get("stripe", "") }.check_none();
}

#[test]
fn woocommerce_may_ping_once_unsigned() {
    let reply = post("woocommerce", "webhook_id=17").reply();
    assert_eq!((reply.status, reply.body.len()), (200, 0));
    post("woocommerce", "webhook_id=%3Cb%3E").check_refused("handshake_malformed");
    post("woocommerce", format!("webhook_id={}", "1".repeat(21)))
        .check_refused("handshake_malformed");
    for event in [
        "webhook_id=17&x=1",
        "webhook_id=17&webhook_id=18",
        "webhook_ids=17",
        r#"{"webhook_id":17}"#,
        "",
    ] {
        post("woocommerce", event).check_none();
    }
    post("woocommerce", "webhook_id=17").with("x-wc-webhook-signature", "x").check_none();
}

/// The confirmation that the vectors have, with its certificate.
fn confirmation() -> (Ask, Vec<Key>) {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/vectors/aws_sns.json");
    let cases: Vec<Value> = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let case =
        cases.iter().find(|case| case["name"] == "valid_subscription_confirmation_v2").unwrap();
    let body = STANDARD.decode(case["body_base64"].as_str().unwrap()).unwrap();
    let ask = Ask { secrets: Vec::new(), ..post("aws_sns", body) };
    let certificates = case["params"]["certs"].as_object().unwrap();
    let keys = certificates
        .iter()
        .map(|(url, pem)| Key::published(&ask.scheme, url, pem.as_str().unwrap()).unwrap());
    let keys = keys.collect();
    (ask, keys)
}

#[test]
fn a_subscription_to_sns_is_confirmed_while_the_source_waits_and_the_signature_is_right() {
    let (ask, keys) = confirmation();
    match ask.clone().waiting().answer_with(&keys) {
        Some(Answer::Confirm { url, reply }) => {
            assert!(
                url.starts_with("https://sns.us-east-1.amazonaws.com/?Action=ConfirmSubscription"),
                "{url}"
            );
            assert_eq!((reply.status, reply.body.len()), (200, 0));
        }
        other => panic!("{other:?}"),
    }
    match ask.answer_with(&keys) {
        Some(Answer::Refused(rejected)) => {
            assert_eq!(rejected.reason().code(), "handshake_unexpected");
        }
        other => panic!("{other:?}"),
    }
    // without the certificate it goes on, so that verification asks for it
    assert!(ask.clone().waiting().answer_with(&[]).is_none());
    let text = String::from_utf8(ask.body.clone()).unwrap();
    let moved =
        text.replace("https://sns.us-east-1.amazonaws.com/?Action", "https://evil.example/?Action");
    assert_ne!(moved, text);
    assert!(Ask { body: moved.into(), ..ask }.waiting().answer_with(&keys).is_none());
}

fn problems(handshake: &Value, rest: &Value) -> Vec<String> {
    let mut scheme = json!({ "algorithm": "hmac-sha256", "signed": "{body}", "signature": { "from": "{header:s}" }, "handshake": [handshake] });
    for (key, value) in rest.as_object().unwrap() {
        scheme[key] = value.clone();
    }
    match Scheme::from_value(scheme) {
        Ok(_) => Vec::new(),
        Err(problems) => problems.0.iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn a_handshake_that_would_serve_strangers_is_refused_when_it_is_written() {
    let check = |handshake: Value, expected: &str| {
        let found = problems(&handshake, &json!({}));
        assert!(
            found.iter().any(|problem| problem.contains(expected)),
            "{expected} is not in {found:#?}"
        );
    };
    let c = json!([{ "from": "{query:c}", "form": "token" }]);
    check(
        json!({ "method": "PUT", "when": c, "proof": "none" }),
        "handshake[0].method: `PUT` is unknown",
    );
    check(json!({ "when": c, "proof": "none" }), "handshake[0].method: must be GET");
    check(json!({ "method": "GET", "when": c }), "handshake[0].proof: must be");
    check(
        json!({ "method": "GET", "when": c, "proof": "perhaps" }),
        "handshake[0].proof: `perhaps` is unknown",
    );
    check(json!({ "method": "POST", "proof": "none" }), "handshake[0].when: is missing");
    check(
        json!({ "method": "GET", "when": [{ "from": "{json:/a}", "is": "b" }], "proof": "none" }),
        "handshake[0].when: looks into the body",
    );
    check(
        json!({ "method": "GET", "when": c, "proof": "none", "reply": { "text": "{query:other}" } }),
        "handshake[0].reply: sends {query:other} back",
    );
    check(
        json!({ "method": "GET", "when": c, "proof": "none", "reply": { "text": "{hmac-hex:query:c}" } }),
        "handshake[0].reply: signs for anybody",
    );
    check(
        json!({ "method": "GET", "when": c, "proof": "signature", "reply": { "text": "{hmac-hex:query:d}" } }),
        "handshake[0].reply: signs {query:d}",
    );
    check(
        json!({ "method": "GET", "when": c, "proof": "none", "reply": { "text": "{challenge-answer:query:c}" } }),
        "handshake[0].reply: {challenge-answer:..} belongs",
    );
    check(
        json!({ "method": "GET", "when": c, "proof": "none", "learn": "{query:c}" }),
        "handshake[0].learn: would let anybody",
    );
    check(
        json!({ "method": "GET", "when": c, "proof": "none", "only_waiting": true, "learn": "{query:d}" }),
        "handshake[0].learn: {query:d} has no `form`",
    );
    check(
        json!({ "method": "GET", "when": c, "proof": "none", "confirm": { "url": "{query:c}", "hosts": ["a.example"] } }),
        "handshake[0].confirm: fetches an address for anybody",
    );
    for host in ["*", "*.com", "a.*", "example", "a..example", "A.example", "a.example:1"] {
        check(
            json!({ "method": "GET", "when": c, "proof": "signature", "confirm": { "url": "{query:c}", "hosts": [host] } }),
            "handshake[0].confirm.hosts: must be",
        );
    }
    check(
        json!({ "method": "GET", "when": c, "proof": "none", "reply": { "status": 302 } }),
        "handshake[0].reply.status: must be",
    );
    check(
        json!({ "method": "GET", "when": c, "proof": "none", "reply": { "text": "a", "json": {} } }),
        "handshake[0].reply.json: and `text`",
    );
    check(
        json!({ "method": "GET", "when": c, "proof": "none", "reply": { "headers": { "location": "x" } } }),
        "handshake[0].reply.headers: may only",
    );
    check(
        json!({ "method": "GET", "when": c, "proof": "none", "replay": {} }),
        "handshake[0].replay: is not a key",
    );
    check(
        json!({ "method": "GET", "when": [{ "from": "{query:c}" }], "proof": "none" }),
        "handshake[0].when[0].from: needs exactly one",
    );
    check(
        json!({ "method": "GET", "when": [{ "from": "{query:c}", "is": "a", "absent": true }], "proof": "none" }),
        "handshake[0].when[0].from: needs exactly one",
    );
    check(
        json!({ "method": "GET", "when": [{ "from": "{body}", "is": "a" }], "proof": "none" }),
        "handshake[0].when[0].from: must be one of",
    );
    check(
        json!({ "method": "GET", "when": [{ "from": "{query:c}", "form": "token", "most": 5000 }], "proof": "none" }),
        "handshake[0].when[0].most: must be",
    );
    check(
        json!({ "method": "GET", "when": c, "proof": { "token": "{query:c}" } }),
        "handshake[0].proof: needs `token`",
    );
    let oracle = json!({ "method": "GET", "when": c, "proof": "none", "reply": { "text": "{hmac-hex:query:c}" } });
    assert_eq!(problems(&oracle, &json!({ "body": "object" })), Vec::<String>::new());
    assert!(
        !problems(&oracle, &json!({ "body": "json" })).is_empty(),
        "a token of digits is JSON too"
    );
}
