//! How an endpoint is shown who we are beside the signature.

use deliverer::transport::{Answered, Post};
use domain::{
    delivery::{Attempt, Cause, Outcome},
    endpoint::{Auth, CredentialsIn},
    ports::Purpose,
};
use futures_util::future::join_all;

use crate::world::{CLOCK, T0, World, header, secret, verifies};

const TOKEN_URL: &str = "https://login.example.com/oauth2/token?tenant=7";

async fn with_auth(auth: Auth, text: &str) -> World {
    let mut world = World::new().with_secret(&secret(1), None).await;
    world.endpoint.auth = Some(auth);
    world.with_sealed(Purpose::Auth, text, None).await
}

fn client(credentials_in: CredentialsIn, scope: Option<&str>) -> Auth {
    Auth::OAuth2 {
        token_url: TOKEN_URL.to_owned(),
        client_id: "po:stern".to_owned(),
        scope: scope.map(str::to_owned),
        credentials_in,
    }
}

async fn with_client() -> World {
    let world = with_auth(client(CredentialsIn::Header, None), "s&cret").await;
    grants(&world, "t1");
    world
}

/// The authorization server gives this token from now on.
fn grants(world: &World, token: &str) {
    let body = format!(r#"{{"access_token":"{token}","token_type":"bearer","expires_in":3600}}"#);
    *world.receiver.reply.lock().unwrap() = Ok((200, body));
}

fn asked(world: &World) -> Vec<Post> {
    world.receiver.asked.lock().unwrap().clone()
}

fn failed(attempt: &Attempt, cause: Cause) -> bool {
    attempt.outcome == Outcome::Failed { cause }
}

/// RFC 7617, RFC 6750. The signature is there as ever.
#[tokio::test]
async fn basic_and_bearer_stand_beside_the_signature() {
    let user = "hooks".to_owned();
    for (auth, text, expected) in [
        (Auth::Basic { user }, "pass:wörd", "Basic aG9va3M6cGFzczp3w7ZyZA=="),
        (Auth::Bearer, "CANARY", "Bearer CANARY"),
    ] {
        let world = with_auth(auth, text).await;
        assert!(world.attempt(0).await.outcome.is_success());
        let [post] = world.posts().try_into().unwrap();
        assert_eq!(header(&post, "authorization"), expected);
        assert!(verifies(&post, &secret(1).expose(), "standard_webhooks", T0));
        // SEC-secret-in-logs
        assert!(post.headers["authorization"].is_sensitive());
        assert!(!format!("{post:?}").contains("CANARY"));
    }
}

/// An endpoint that would answer 401 is not asked, and not blamed.
#[tokio::test]
async fn auth_that_cannot_be_had_is_our_own_failure() {
    let mut missing = World::new().with_secret(&secret(1), None).await;
    missing.endpoint.auth = Some(Auth::Bearer);
    for world in [missing, with_auth(Auth::Bearer, "a\r\nb").await] {
        assert!(failed(&world.attempt(0).await, Cause::Internal));
        assert!(world.posts().is_empty());
    }
}

/// RFC 6749, 2.3.1 and 4.4.2: the colon of an id does not end it, because both are form-encoded first.
#[tokio::test]
async fn a_token_is_asked_for_as_the_standard_has_it() {
    let world = with_client().await;
    assert!(world.attempt(0).await.outcome.is_success());
    let [post] = world.posts().try_into().unwrap();
    assert_eq!(header(&post, "authorization"), "Bearer t1");
    let [ask] = asked(&world).try_into().unwrap();
    assert_eq!(ask.url.as_str(), TOKEN_URL);
    assert_eq!(ask.body, "grant_type=client_credentials");
    // po%3Astern:s%26cret
    assert_eq!(header(&ask, "authorization"), "Basic cG8lM0FzdGVybjpzJTI2Y3JldA==");
    assert_eq!(header(&ask, "content-type"), "application/x-www-form-urlencoded");
    assert_eq!(header(&ask, "accept"), "application/json");
    // Nothing of the event goes there.
    assert!(!ask.headers.contains_key("webhook-id"));
    // Within the time of the attempt.
    assert_eq!(ask.by, post.by);

    let world = with_auth(client(CredentialsIn::Body, Some("hooks write")), "s&cret").await;
    grants(&world, "t1");
    world.attempt(0).await;
    let [ask] = asked(&world).try_into().unwrap();
    assert_eq!(
        ask.body,
        "grant_type=client_credentials&scope=hooks+write&client_id=po%3Astern&client_secret=s%26cret"
    );
    assert!(!ask.headers.contains_key("authorization"));
}

#[tokio::test]
async fn a_token_is_kept_until_shortly_before_its_end() {
    let world = with_client().await;
    for (attempts, (wait, count)) in (0..).zip([(0, 1), (10, 1), (3539, 1), (3540, 2), (3541, 2)]) {
        CLOCK.set(T0 + wait);
        assert!(world.attempt(attempts).await.outcome.is_success());
        assert_eq!(asked(&world).len(), count, "{wait}");
    }
}

/// One asks, the others wait for what he gets.
#[tokio::test]
async fn deliveries_at_once_ask_for_one_token() {
    use deliverer::drain::Sender as _;
    let world = with_client().await;
    let target = world.sender().open(world.endpoint.clone(), world.sealed.clone()).await.unwrap();
    let ended = join_all((0..5).map(|attempts| world.attempt_at(&target, attempts))).await;
    assert!(ended.into_iter().all(|attempt| attempt.unwrap().outcome.is_success()));
    assert_eq!((asked(&world).len(), world.posts().len()), (1, 5));
}

/// A token may be withdrawn before its end. One more is asked for, once, within the same attempt.
#[tokio::test]
async fn a_token_that_is_not_accepted_is_replaced_once() {
    let world = with_client().await;
    world.attempt(0).await;
    let no = || Ok(Answered::plain(401, String::new()));
    // The endpoint refuses the token that was kept, and takes the next.
    grants(&world, "t2");
    world.receiver.first.lock().unwrap().push_back(no());
    let attempt = world.attempt(1).await;
    assert!(attempt.outcome.is_success());
    let shown: Vec<String> =
        world.posts().iter().map(|post| header(post, "authorization").to_owned()).collect();
    assert_eq!(shown, ["Bearer t1", "Bearer t1", "Bearer t2"]);
    assert_eq!(asked(&world).len(), 2);
    // It refuses everything: two requests, one new token, and the attempt ends.
    world.answer(no());
    let attempt = world.attempt(2).await;
    assert_eq!(attempt.outcome, Outcome::Answered { status: 401, retry_after_ms: None });
    assert_eq!((asked(&world).len(), world.posts().len()), (3, 5));
    // A token that was had just now is not replaced at once by another.
    CLOCK.set(T0 + 7200);
    world.attempt(3).await;
    assert_eq!((asked(&world).len(), world.posts().len()), (4, 6));
}

/// The endpoint's trouble, by its own name, and without a word of a stranger or a secret.
#[tokio::test]
async fn no_token_is_the_endpoints_failure_and_nothing_is_sent() {
    let denied = r#"{"error":"invalid_client","error_description":"CANARY"}"#;
    for (reply, said) in [
        (Ok((401, denied)), "the authorization server answered 401 (invalid_client)"),
        (Ok((200, "<html>CANARY")), "the authorization server's answer is not one of RFC 6749"),
        (Ok((302, "")), "the authorization server answered 302"),
        (Err(Cause::Dns), "the authorization server gave no answer (dns)"),
    ] {
        let world = with_client().await;
        *world.receiver.reply.lock().unwrap() =
            reply.map(|(status, body)| (status, body.to_owned()));
        let attempt = world.attempt(4).await;
        assert!(failed(&attempt, Cause::Token), "{attempt:?}");
        assert!(attempt.outcome.blames_endpoint() && !attempt.outcome.may_have_happened());
        assert_eq!((attempt.number, attempt.excerpt), (5, format!("no access token: {said}")));
        assert!(world.posts().is_empty());
        // Not remembered: the next attempt asks again.
        grants(&world, "t1");
        assert!(world.attempt(5).await.outcome.is_success());
    }
}

/// SSRF-update-and-test-paths: the row is older than the rule, or was written past it.
#[tokio::test]
async fn a_token_url_is_checked_again_at_every_send() {
    for url in ["http://login.example.com/", "https://169.254.169.254/", "https://127.0.0.1:9001/"]
    {
        let Auth::OAuth2 { client_id, scope, credentials_in, .. } =
            client(CredentialsIn::Header, None)
        else {
            unreachable!("it is one")
        };
        let auth = Auth::OAuth2 { token_url: url.to_owned(), client_id, scope, credentials_in };
        let world = with_auth(auth, "s").await;
        assert!(failed(&world.attempt(0).await, Cause::Token), "{url}");
        assert!(asked(&world).is_empty() && world.posts().is_empty(), "{url}");
    }
}

/// Another secret is another client, whose token is another.
#[tokio::test]
async fn a_new_secret_asks_for_a_new_token() {
    let mut world = with_client().await;
    world.attempt(0).await;
    world.sealed.pop();
    let world = world.with_sealed(Purpose::Auth, "other", None).await;
    world.attempt(1).await;
    assert_eq!(asked(&world).len(), 2);
}
