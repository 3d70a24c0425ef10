//! S3 over plain HTTP, as an S3 client in path style speaks it.

use axum::body::Body;
use futures_util::future::join_all;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};

use crate::Host;

struct Answer {
    status: StatusCode,
    headers: http::HeaderMap,
    body: Vec<u8>,
}

impl Answer {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

async fn ask(
    host: &Host,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Answer {
    let client: Client<HttpConnector, Body> = Client::builder(TokioExecutor::new()).build_http();
    let mut request = Request::builder().method(method).uri(format!("{}/s3/{path}", host.url()));
    request = request.header(
        "authorization",
        "AWS4-HMAC-SHA256 Credential=LOCALworker/20261130/us-east-1/s3/aws4_request",
    );
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response =
        client.request(request.body(Body::from(body.to_owned())).unwrap()).await.unwrap();
    let (parts, body) = response.into_parts();
    Answer {
        status: parts.status,
        headers: parts.headers,
        body: body.collect().await.unwrap().to_bytes().to_vec(),
    }
}

#[tokio::test]
async fn an_object_is_put_read_in_part_and_deleted() {
    let host = Host::in_memory().await;
    let path = "bodies/in/stripe-demo/abc";
    let put = ask(&host, Method::PUT, path, &[], "0123456789").await;
    assert_eq!(
        (put.status, put.header("etag")),
        (StatusCode::OK, "\"781e5e245d69b566979b86e28d23f2c7\"")
    );
    let get = ask(&host, Method::GET, path, &[], "").await;
    assert_eq!((get.status, get.body.as_slice()), (StatusCode::OK, &b"0123456789"[..]));
    assert_eq!(get.header("etag"), put.header("etag"));
    assert!(get.header("last-modified").ends_with(" GMT"));
    let part = ask(&host, Method::GET, path, &[("range", "bytes=2-4")], "").await;
    assert_eq!((part.status, part.body.as_slice()), (StatusCode::PARTIAL_CONTENT, &b"234"[..]));
    assert_eq!(part.header("content-range"), "bytes 2-4/10");
    let beyond = ask(&host, Method::GET, path, &[("range", "bytes=20-")], "").await;
    assert_eq!(beyond.status, StatusCode::RANGE_NOT_SATISFIABLE);
    let head = ask(&host, Method::HEAD, path, &[], "").await;
    assert_eq!(
        (head.status, head.header("content-length"), head.body.len()),
        (StatusCode::OK, "10", 0)
    );
    assert_eq!(ask(&host, Method::DELETE, path, &[], "").await.status, StatusCode::NO_CONTENT);
    let gone = ask(&host, Method::GET, path, &[], "").await;
    assert_eq!(gone.status, StatusCode::NOT_FOUND);
    assert!(String::from_utf8(gone.body).unwrap().contains("<Code>NoSuchKey</Code>"));
    assert_eq!(ask(&host, Method::DELETE, path, &[], "").await.status, StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn of_many_puts_if_absent_one_wins() {
    let host = Host::in_memory().await;
    let puts = (0..20).map(|n| {
        let host = &host;
        async move {
            ask(host, Method::PUT, "bodies/k", &[("if-none-match", "*")], &n.to_string())
                .await
                .status
        }
    });
    let statuses = join_all(puts).await;
    let count = |wanted: StatusCode| statuses.iter().filter(|status| **status == wanted).count();
    assert_eq!((count(StatusCode::OK), count(StatusCode::PRECONDITION_FAILED)), (1, 19));
    assert_eq!(ask(&host, Method::PUT, "bodies/k", &[], "plain").await.status, StatusCode::OK);
}

/// The folder holds what is below it and nothing else, whatever a key says.
#[tokio::test]
async fn no_path_reaches_outside_the_bucket() {
    let host = Host::in_memory().await;
    let secrets = host.state.as_ref().unwrap().path().join("keys/secrets.key");
    assert!(secrets.exists());
    for path in [
        "bodies/..%2F..%2Fkeys%2Fsecrets.key",
        "bodies/%2E%2E/%2E%2E/keys/secrets.key",
        "bodies/../../keys/secrets.key",
        "..%2Fkeys/secrets.key",
        "../keys/secrets.key",
        "bodies//etc/passwd",
    ] {
        let got = ask(&host, Method::GET, path, &[], "").await;
        assert_eq!(got.status, StatusCode::NOT_FOUND, "{path}");
    }
    let put = ask(&host, Method::PUT, "bodies/..%2F..%2Fkeys%2Fsecrets.key", &[], "mine").await;
    assert_eq!(put.status, StatusCode::OK);
    assert_ne!(std::fs::read(&secrets).unwrap(), b"mine");
    let got = ask(&host, Method::GET, "bodies/..%2F..%2Fkeys%2Fsecrets.key", &[], "").await;
    assert_eq!(got.body, b"mine");
}

#[tokio::test]
async fn what_is_not_offered_says_so_in_xml() {
    let host = Host::in_memory().await;
    let check =
        async |method: Method, path: &str, headers: &[(&str, &str)], status: u16, code: &str| {
            let answer = ask(&host, method, path, headers, "").await;
            assert_eq!(answer.status.as_u16(), status, "{path}");
            let text = String::from_utf8(answer.body).unwrap();
            assert!(text.contains(&format!("<Code>{code}</Code>")), "{path}: {text}");
        };
    check(Method::GET, "nothing/k", &[], 404, "NoSuchBucket").await;
    check(Method::GET, "bodies?list-type=2", &[], 501, "NotImplemented").await;
    check(Method::PUT, "bodies/k?partNumber=1", &[], 501, "NotImplemented").await;
    check(Method::PUT, "bodies/k", &[("if-match", "x")], 501, "NotImplemented").await;
    check(Method::GET, "bodies/%FF", &[], 400, "InvalidURI").await;
    check(Method::GET, &format!("bodies/{}", "x".repeat(1025)), &[], 400, "KeyTooLongError").await;
    let body = "<Delete><Object><Key>a&amp;b</Key></Object><Object><Key>c</Key></Object></Delete>";
    ask(&host, Method::PUT, "bodies/a&b", &[], "x").await;
    let deleted = ask(&host, Method::POST, "bodies?delete", &[], body).await;
    assert_eq!(deleted.status, StatusCode::OK);
    assert_eq!(ask(&host, Method::GET, "bodies/a&b", &[], "").await.status, StatusCode::NOT_FOUND);
}
