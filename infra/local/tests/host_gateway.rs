//! An HTTP API over loopback, with a real process behind it.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "test code")]

use std::{net::Ipv4Addr, time::Duration};

use local::compute::{
    gateway::{route::Route, server::Gateway},
    token::Token,
};
use serde_json::json;
use tokio::{net::TcpListener, task::JoinSet};

use host_support::{Answer, Running, Wanted, call, running};

mod host_support;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

struct Api {
    base: String,
    _running: Running,
    _server: JoinSet<std::io::Result<()>>,
}

impl Api {
    async fn new(iam: bool, limit: Duration) -> Self {
        let running =
            running(Wanted { timeout: Duration::from_secs(2), ..Wanted::default() }).await;
        let routes =
            vec![Route::new("POST", "/webhooks/{source}"), Route::new("ANY", "/v1/{proxy+}")];
        let gateway = Gateway {
            account: "000000000000".into(),
            api: "ingressapi".into(),
            token: iam.then(|| Token::parse(TOKEN).unwrap()),
            integrations: routes.iter().map(|_| (running.pool.clone(), limit)).collect(),
            routes,
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let mut server = JoinSet::new();
        server.spawn(gateway.serve(listener));
        Self { base, _running: running, _server: server }
    }

    async fn open() -> Self {
        Self::new(false, Duration::from_secs(20)).await
    }

    async fn call(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        call(method, &format!("{}{path}", self.base), headers, body).await
    }

    async fn told(&self, told: &serde_json::Value) -> Answer {
        self.call(
            "POST",
            "/webhooks/a",
            &[("content-type", "application/json")],
            told.to_string().as_bytes(),
        )
        .await
    }
}

#[track_caller]
fn refused(answer: &Answer, status: u16, message: &str) {
    assert_eq!((answer.status, answer.json()), (status, json!({ "message": message })));
    assert_eq!(answer.headers["content-type"], "application/json");
}

#[tokio::test]
async fn a_request_reaches_the_function_as_payload_format_2() {
    let api = Api::open().await;
    let headers = [
        ("content-type", "application/x-www-form-urlencoded"),
        ("X-Twice", "1"),
        ("x-twice", "2"),
        ("cookie", "a=1; b=2"),
    ];
    let answer = api.call("POST", "/webhooks/stripe%2Ddemo?q=1&q=2", &headers, b"a=1&b=2").await;
    assert_eq!(answer.status, 200);
    assert!(answer.headers.contains_key("apigw-requestid"));
    let event = answer.json();
    for (pointer, expected) in [
        ("/version", json!("2.0")),
        ("/routeKey", json!("POST /webhooks/{source}")),
        ("/rawPath", json!("/webhooks/stripe-demo")),
        ("/rawQueryString", json!("q=1&q=2")),
        ("/cookies", json!(["a=1", "b=2"])),
        ("/queryStringParameters", json!({"q": "1,2"})),
        ("/pathParameters", json!({"source": "stripe-demo"})),
        ("/headers/x-twice", json!("1,2")),
        ("/headers/content-length", json!("7")),
        ("/requestContext/http/method", json!("POST")),
        ("/requestContext/http/protocol", json!("HTTP/1.1")),
        ("/requestContext/http/sourceIp", json!("127.0.0.1")),
        ("/requestContext/stage", json!("$default")),
        ("/body", json!("YT0xJmI9Mg==")),
        ("/isBase64Encoded", json!(true)),
    ] {
        assert_eq!(event.pointer(pointer), Some(&expected), "{pointer}");
    }
    assert_eq!(event.get("stageVariables"), None);
    assert_eq!(event.pointer("/requestContext/authorizer"), None);
}

#[tokio::test]
async fn what_no_route_takes_is_not_found() {
    let api = Api::open().await;
    for (method, path) in [
        ("GET", "/webhooks/a"),
        ("HEAD", "/webhooks/a"),
        ("POST", "/webhooks/a/b"),
        ("POST", "/"),
        ("GET", "/v1"),
    ] {
        let answer = api.call(method, path, &[], b"").await;
        assert_eq!(answer.status, 404, "{method} {path}");
        if method != "HEAD" {
            refused(&answer, 404, "Not Found");
        }
    }
}

#[tokio::test]
async fn head_is_answered_like_get_without_a_body() {
    let api = Api::open().await;
    let answer = api.call("HEAD", "/v1/events", &[], b"").await;
    assert_eq!((answer.status, answer.body.len()), (200, 0));
    assert_ne!(answer.headers["content-length"], "0");
}

#[tokio::test]
async fn a_function_that_fails_is_an_internal_server_error() {
    let api = Api::open().await;
    refused(
        &api.told(&json!({"do": "error", "message": "secret detail"})).await,
        500,
        "Internal Server Error",
    );
    refused(&api.told(&json!({"do": "exit"})).await, 500, "Internal Server Error");
    refused(&api.told(&json!({"do": "sleep", "ms": 60_000})).await, 500, "Internal Server Error");
    refused(
        &api.told(&json!({"do": "answer", "text": "{\"statusCode\":true}"})).await,
        500,
        "Internal Server Error",
    );
    refused(
        &api.told(&json!({"do": "answer", "text": "not json"})).await,
        500,
        "Internal Server Error",
    );
}

#[tokio::test]
async fn an_integration_that_is_out_of_time_is_unavailable() {
    let api = Api::new(false, Duration::from_millis(200)).await;
    refused(&api.told(&json!({"do": "sleep", "ms": 1_000})).await, 503, "Service Unavailable");
}

#[tokio::test]
async fn answers_have_their_status_headers_cookies_and_bytes() {
    let api = Api::open().await;
    let text = json!({
        "statusCode": 201,
        "headers": {"Content-Type": "image/png", "Transfer-Encoding": "chunked", "X-A": "1"},
        "cookies": ["a=1", "b=2"],
        "body": "AP8=",
        "isBase64Encoded": true,
    });
    let answer = api.told(&json!({"do": "answer", "text": text.to_string()})).await;
    assert_eq!((answer.status, &answer.body[..]), (201, &b"\x00\xff"[..]));
    assert_eq!(answer.headers["content-type"], "image/png");
    assert_eq!(answer.headers["set-cookie"], "a=1|b=2");
    assert_eq!(answer.headers["content-length"], "2");
    assert!(!answer.headers.contains_key("transfer-encoding"));
    let inferred = api.told(&json!({"do": "answer", "text": "\"hello\""})).await;
    assert_eq!(
        (inferred.status, &inferred.body[..], inferred.headers["content-type"].as_str()),
        (200, &b"hello"[..], "application/json")
    );
}

#[tokio::test]
async fn limits_of_the_gateway_and_of_lambda_hold() {
    let api = Api::open().await;
    let binary = [("content-type", "application/octet-stream")];
    refused(
        &api.call("POST", "/webhooks/a", &binary, &vec![0; 10 * 1024 * 1024 + 1]).await,
        413,
        "Request Entity Too Large",
    );
    refused(
        &api.call("POST", "/webhooks/a", &binary, &vec![0; 5 * 1024 * 1024]).await,
        413,
        "Request Entity Too Large",
    );
    let long = "x".repeat(10_240);
    refused(
        &api.call("POST", "/webhooks/a", &[("x-long", &long)], b"").await,
        431,
        "Request Header Fields Too Large",
    );
    let short = "x".repeat(9_000);
    assert_eq!(api.call("POST", "/webhooks/a", &[("x-long", &short)], b"").await.status, 200);
}

#[tokio::test]
async fn an_api_with_iam_asks_for_the_token() {
    let api = Api::new(true, Duration::from_secs(20)).await;
    refused(&api.call("GET", "/v1/events", &[], b"").await, 403, "Forbidden");
    refused(
        &api.call(
            "GET",
            "/v1/events",
            &[("authorization", "Bearer 0123456789abcdef0123456789abcdee")],
            b"",
        )
        .await,
        403,
        "Forbidden",
    );
    refused(&api.call("GET", "/v2", &[], b"").await, 404, "Not Found");
    let answer =
        api.call("GET", "/v1/events", &[("authorization", &format!("Bearer {TOKEN}"))], b"").await;
    assert_eq!(answer.status, 200);
    assert_eq!(
        answer.json().pointer("/requestContext/authorizer/iam/accountId"),
        Some(&json!("000000000000"))
    );
}
