//! Secrets of sources: rotation, and that none of them ever comes back.

use domain::{
    ports::{AcceptReport, SourceSecrets as _, Watch as _},
    secret::SecretText,
};
use jiff::Timestamp;
use serde_json::{Value, json};
use testkit::chaos::{Fault, When};

use crate::deployment::{Deployment, SECRET, at, source};

const SECOND: &str = "whsec_CANARY-second-0123456789abcdef";

async fn with_source() -> Deployment {
    let postern = Deployment::new();
    postern.post("/v1/sources", &source("stripe")).await.good(201);
    postern
}

async fn ends(postern: &Deployment) -> Vec<(String, Option<Timestamp>)> {
    let all = postern.0.secrets.of(&"stripe".parse().unwrap()).await.unwrap();
    all.into_iter().map(|secret| (secret.id, secret.expires_at)).collect()
}

async fn matched(postern: &Deployment, id: &str, at: Timestamp) {
    let report = AcceptReport { at, key_id: Some(id.to_owned()), is_new: true };
    postern.0.watch.note_accepted(&"stripe".parse().unwrap(), &report).await.unwrap();
}

#[tokio::test]
async fn a_new_secret_gives_the_others_a_day() {
    let postern = with_source().await;
    let added =
        postern.post("/v1/sources/stripe/secrets", &json!({"id": "2027", "secret": SECOND})).await;
    assert!(!added.text.contains("CANARY"), "{}", added.text);
    let added = added.good(201);
    assert_eq!(
        ends(&postern).await,
        [("2027".to_owned(), None), ("2026".to_owned(), Some(at(86_400)))]
    );
    assert_eq!(added["secrets"][1]["expires_at"], at(86_400).to_string());
    let listed = postern.get("/v1/sources/stripe/secrets").await.good(200);
    assert_eq!(listed["secrets"], added["secrets"]);
    assert_eq!(postern.get("/v1/sources/stripe").await.good(200)["secrets"], added["secrets"]);
}

#[tokio::test]
async fn how_long_the_others_stay_can_be_said_within_a_week() {
    let check = async |seconds: Value, end: Option<i64>| {
        let postern = with_source().await;
        let new = json!({"id": "2", "secret": SECOND, "expire_others_in": seconds});
        let answer = postern.post("/v1/sources/stripe/secrets", &new).await;
        match end {
            Some(end) => {
                answer.good(201);
                assert_eq!(ends(&postern).await[1].1, Some(at(end)));
            }
            None => {
                answer.problem(422, "invalid-request");
                assert_eq!(ends(&postern).await.len(), 1);
            }
        }
    };
    check(json!(0), Some(0)).await;
    check(json!(604_800), Some(604_800)).await;
    check(json!(604_801), None).await;
    check(json!(-1), None).await;
}

/// OUT-error-after-commit
#[tokio::test]
async fn adding_a_secret_can_be_repeated_but_not_with_another_one() {
    let postern = with_source().await;
    let new = json!({"id": "2", "secret": SECOND, "expire_others_in": 60});
    postern.0.secrets.chaos.on("secrets.add", When::After, Fault::Unavailable);
    postern.post("/v1/sources/stripe/secrets", &new).await.problem(503, "unavailable");
    postern.0.secrets.chaos.heal();
    postern.post("/v1/sources/stripe/secrets", &new).await.good(201);
    assert_eq!(ends(&postern).await.len(), 2);
    let other = json!({"id": "2", "secret": SECRET});
    let detail = postern.post("/v1/sources/stripe/secrets", &other).await.problem(409, "id-taken");
    assert!(detail.contains("Choose another id") && !detail.contains("CANARY"), "{detail}");
}

#[tokio::test]
async fn where_each_header_has_a_secret_of_its_own_none_ends_the_other_and_each_is_named() {
    let postern = Deployment::new();
    let files = |id: &str| {
        let mut source = source("stripe");
        source["scheme"] = json!({"preset": "box"});
        source["secrets"] = json!({ id: SECRET });
        source
    };
    let refused = postern.post("/v1/sources", &files("1")).await;
    assert!(refused.problem(422, "invalid-request").contains("primary, secondary"));
    postern.post("/v1/sources", &files("primary")).await.good(201);
    let second = json!({"id": "secondary", "secret": SECOND});
    postern.post("/v1/sources/stripe/secrets", &second).await.good(201);
    let mut ends = ends(&postern).await;
    ends.sort();
    assert_eq!(ends, [("primary".to_owned(), None), ("secondary".to_owned(), None)]);
}

/// VFY-lenient-base64-secret, VFY-secret-prefix-mixups, SEC-key-strength, SEC-secret-in-output
#[tokio::test]
async fn a_secret_that_cannot_work_is_refused_with_what_is_wrong_and_without_any_part_of_it() {
    let postern = Deployment::new();
    let mut new = source("std");
    new["scheme"] = json!({"preset": "standard_webhooks"});
    new["secrets"] = json!({"1": "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="});
    postern.post("/v1/sources", &new).await.good(201);
    let check = async |secret: &str, says: &str| {
        let add = json!({"id": "2", "secret": secret});
        let answer = postern.post("/v1/sources/std/secrets", &add).await;
        let detail = answer.problem(422, "invalid-request");
        assert_eq!(answer.fields(), ["secret"]);
        assert!(detail.contains(says), "{says}: {detail}");
        let text = secret.trim_matches(['"', ' ', '\n']);
        let value = text.rsplit('_').next().unwrap_or_default();
        assert!(value.len() < 4 || !answer.text.contains(value), "{}", answer.text);
    };
    check("", "empty").await;
    check("   ", "empty").await;
    check("whsec_", "").await;
    check("whsec_!!!!", "not base64").await;
    check("whsec_QQ==", "at least").await;
    check("whsec_MDEyMzQ1Njc=", "at least").await;
    check("whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY", "padding").await;
    check("whsec_MDEyMzQ1Njc4OWFi\nY2RlZjAxMjM0NTY3ODlhYmNkZWY=", "line break").await;
    check("whsec_-_EyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=", "alphabet").await;
    check("v1,whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=", "`v1,`").await;
    check("whsec_whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=", "twice").await;
    check("\"whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=\"", "quotation").await;
    check("whsk_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=", "private key").await;
    check("whpk_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=", "public key").await;
    check(&"30313233".repeat(8), "hexadecimal").await;

    let postern = with_source().await;
    for weak in ["test", "development", "fifteen-letters"] {
        let add = json!({"id": "2", "secret": weak});
        let answer = postern.post("/v1/sources/stripe/secrets", &add).await;
        answer.problem(422, "invalid-request");
        assert!(!answer.text.contains(weak), "{}", answer.text);
    }
    for odd in [json!([SECRET]), json!({"a": SECRET}), json!(null), json!(5)] {
        let add = json!({"id": "2", "secret": odd});
        let answer = postern.post("/v1/sources/stripe/secrets", &add).await;
        answer.problem(422, "invalid-request");
        assert!(!answer.text.contains("CANARY"), "{}", answer.text);
    }
    for id in ["", "a b", "a/b", &"x".repeat(65)] {
        let add = json!({"id": id, "secret": SECOND});
        let answer = postern.post("/v1/sources/stripe/secrets", &add).await;
        answer.problem(422, "invalid-request");
        assert_eq!(answer.fields(), ["id"]);
    }
    assert_eq!(ends(&postern).await.len(), 1);
}

/// Taking back a rotation leaves the old secret, which the rotation has put an end to.
#[tokio::test]
async fn a_secret_is_not_removed_while_all_others_end() {
    let postern = with_source().await;
    let path = "/v1/sources/stripe/secrets";
    postern.post(path, &json!({"id": "2", "secret": SECOND})).await.good(201);
    let detail = postern.delete(&format!("{path}/2")).await.problem(409, "last-secret");
    assert!(detail.contains("under a new id"), "{detail}");
    postern.post(path, &json!({"id": "3", "secret": SECRET})).await.good(201);
    postern.delete(&format!("{path}/2")).await.good(200);
    postern.delete(&format!("{path}/2026")).await.good(200);
    postern.delete(&format!("{path}/3")).await.problem(409, "last-secret");
}

#[tokio::test]
async fn the_last_secret_is_not_removed_by_mistake() {
    let postern = with_source().await;
    let path = "/v1/sources/stripe/secrets/2026";
    let detail = postern.delete(path).await.problem(409, "last-secret");
    assert!(detail.contains("?force=true"), "{detail}");
    // One that has ended is no help.
    let ended = json!({"id": "2", "secret": SECOND, "expire_others_in": 0});
    postern.post("/v1/sources/stripe/secrets", &ended).await.good(201);
    postern.delete("/v1/sources/stripe/secrets/2").await.problem(409, "last-secret");
    let left = postern.delete(path).await.good(200);
    assert_eq!(left["secrets"].as_array().unwrap().len(), 1);
    postern.delete(path).await.problem(404, "not-found");
    let none = postern.delete("/v1/sources/stripe/secrets/2?force=true").await.good(200);
    assert_eq!(none["secrets"], json!([]));
    postern.delete("/v1/sources/nobody/secrets/1").await.problem(404, "not-found");
}

#[tokio::test]
async fn a_source_has_ten_secrets_at_most() {
    let postern = with_source().await;
    let add = |n: u32| json!({"id": n.to_string(), "secret": format!("{SECOND}{n}")});
    for n in 1..=9 {
        postern.post("/v1/sources/stripe/secrets", &add(n)).await.good(201);
    }
    let detail =
        postern.post("/v1/sources/stripe/secrets", &add(10)).await.problem(409, "limit-reached");
    assert!(detail.contains("GET /v1/sources/stripe/secrets"), "{detail}");
    // The ninth again: its answer was lost.
    postern.post("/v1/sources/stripe/secrets", &add(9)).await.good(201);
}

#[tokio::test]
async fn an_operator_sees_when_the_old_secret_can_go() {
    let postern = with_source().await;
    let new = json!({"id": "2027", "secret": SECOND, "expire_others_in": 604_800});
    postern.post("/v1/sources/stripe/secrets", &new).await.good(201);
    matched(&postern, "2026", at(-3 * 86_400)).await;
    matched(&postern, "2027", at(-60)).await;
    let listed = postern.get("/v1/sources/stripe/secrets").await.good(200);
    let [new, old] = listed["secrets"].as_array().unwrap().as_slice() else { unreachable!() };
    assert_eq!((&new["can_go"], &old["can_go"]), (&json!(false), &json!(true)));
    assert_eq!(new["words"], "last matched 1 minute ago; it is in use");
    let words = old["words"].as_str().unwrap();
    assert!(
        words.starts_with("last matched 3 days ago; another one has since, and it can go"),
        "{words}"
    );
    assert_eq!(old["last_matched_at"], at(-3 * 86_400).to_string());
}

/// SEC-secret-in-output
#[tokio::test]
async fn a_fingerprint_tells_secrets_apart_unless_people_made_them_up() {
    let postern = with_source().await;
    let secrets = postern.get("/v1/sources/stripe/secrets").await.good(200);
    // printf %s "$SECRET" | sha256sum | cut -c1-6
    assert_eq!(secrets["secrets"][0]["fingerprint"], "ed9073");
    let mut basic = source("basic");
    basic["scheme"] = json!({"own": {"algorithm": "basic", "title": "Basic", "identity": {"type": "{json:/type}"}}});
    basic["secrets"] = json!({"1": "somebody:a-long-enough-password"});
    postern.post("/v1/sources", &basic).await.good(201);
    let secrets = postern.get("/v1/sources/basic/secrets").await.good(200);
    assert_eq!(secrets["secrets"][0]["fingerprint"], json!(null));
}

/// SEC-key-strength
#[tokio::test]
async fn a_secret_that_another_source_has_is_warned_of() {
    let postern = with_source().await;
    let made = postern.post("/v1/sources", &source("stripe-eu")).await.good(201);
    let warning = made["warnings"][0].as_str().unwrap();
    assert!(warning.starts_with("The source stripe has the same secret as 2026 here"), "{warning}");
    let same = json!({"id": "3", "secret": SECOND});
    let added = postern.post("/v1/sources/stripe/secrets", &same).await.good(201);
    assert_eq!(added["warnings"], json!([]));
    let added = postern.post("/v1/sources/stripe-eu/secrets", &same).await.good(201);
    assert!(added["warnings"][0].as_str().unwrap().contains("has the same secret as 3 here"));
    // Not to know is no reason not to add it.
    let name = "stripe-us".parse().unwrap();
    postern.0.secrets.chaos.on("secrets.of", When::Before, Fault::Unavailable);
    let made = postern.post("/v1/sources", &source("stripe-us")).await.good(201);
    assert!(made["warnings"][0].as_str().unwrap().contains("could not be looked up"));
    postern.0.secrets.chaos.heal();
    assert_eq!(postern.0.secrets.of(&name).await.unwrap().len(), 1);
}

/// A store of secrets as an earlier version or a person left it.
#[tokio::test]
async fn a_secret_that_cannot_be_used_is_still_listed() {
    let postern = with_source().await;
    let odd = domain::ports::SourceSecret {
        id: "odd".to_owned(),
        text: SecretText::new("CANARY".to_owned()),
        expires_at: None,
    };
    postern.0.secrets.set(&"stripe".parse().unwrap(), vec![odd]);
    let listed = postern.get("/v1/sources/stripe/secrets").await;
    assert!(!listed.text.contains("CANARY"), "{}", listed.text);
    assert_eq!(listed.good(200)["secrets"][0]["id"], "odd");
}

/// A secret that serves handshakes only stays when the one that verifies events changes, and the other way round.
#[tokio::test]
async fn the_word_of_a_handshake_is_apart_from_what_verifies_events() {
    let postern = Deployment::new();
    let mut meta = source("meta");
    meta["scheme"] = json!({"preset": "meta"});
    meta["secrets"] = json!({"verify_token": "a-word-of-our-own-choice"});
    let answer = postern.post("/v1/sources", &meta).await;
    answer.problem(422, "invalid-request");
    assert_eq!(answer.fields(), ["secrets"]);
    meta["secrets"]["1"] = json!("0123456789abcdef0123456789abcdef");
    postern.post("/v1/sources", &meta).await.good(201);

    let path = "/v1/sources/meta/secrets";
    let ends = async || -> Vec<(String, Option<Timestamp>)> {
        let all = postern.0.secrets.of(&"meta".parse().unwrap()).await.unwrap();
        let mut ends: Vec<_> =
            all.into_iter().map(|secret| (secret.id, secret.expires_at)).collect();
        ends.sort();
        ends
    };
    let new =
        json!({"id": "2", "secret": "fedcba9876543210fedcba9876543210", "expire_others_in": 60});
    // The second call finds what the first one, which died, left.
    postern.0.secrets.chaos.on("secrets.expire", When::Before, Fault::Unavailable);
    postern.post(path, &new).await.problem(503, "unavailable");
    postern.0.secrets.chaos.heal();
    postern.post(path, &new).await.good(201);
    let word = ("verify_token".to_owned(), None);
    let expected = [("1".to_owned(), Some(at(60))), ("2".to_owned(), None), word.clone()];
    assert_eq!(ends().await, expected);
    postern.delete(&format!("{path}/1")).await.good(200);
    postern.delete(&format!("{path}/2")).await.problem(409, "last-secret");
    postern.delete(&format!("{path}/verify_token")).await.good(200);
    let word_again = json!({"id": "verify_token", "secret": "another-word-of-our-choice"});
    let list = postern.post(path, &word_again).await.good(201);
    assert_eq!(ends().await, [("2".to_owned(), None), word]);
    assert_eq!(list["secrets"][0]["words"], "serves handshakes only, and verifies no event");
}
