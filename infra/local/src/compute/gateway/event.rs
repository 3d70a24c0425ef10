//! The event of an HTTP API, payload format 2.0.
//!
//! Facts: [the format](https://docs.aws.amazon.com/apigateway/latest/developerguide/http-api-develop-integrations-lambda.html).
//! The documents do not list which bodies are text. Captures of real gateways do (ministack pull request 766, floci issue 2172):
//! `text/*`, `application/json`, `application/javascript` and `application/xml` are; forms, `+json`, a missing type and any
//! charset but UTF-8 are not.

use std::{collections::BTreeMap, net::IpAddr};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{HeaderMap, Method, Uri, Version, header};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::route::Matched;

/// A request as it reached the gateway.
#[derive(Debug)]
pub struct Request<'a> {
    /// The method.
    pub method: &'a Method,
    /// Path and query.
    pub uri: &'a Uri,
    /// The version of HTTP.
    pub version: Version,
    /// The headers.
    pub headers: &'a HeaderMap,
    /// The whole body.
    pub body: &'a Bytes,
    /// Who sent it.
    pub peer: IpAddr,
    /// The port it was sent to.
    pub port: u16,
}

/// What the gateway adds of its own.
#[derive(Debug)]
pub struct Stamp<'a> {
    /// The AWS account.
    pub account: &'a str,
    /// The API's id.
    pub api: &'a str,
    /// The id of this request.
    pub request: &'a str,
    /// The trace header, where the caller sent none.
    pub trace: &'a str,
    /// When the request came.
    pub now: Timestamp,
    /// Whether the caller proved who it is, as IAM would ask.
    pub iam: bool,
}

/// The event that the function gets.
#[must_use]
pub fn event(request: &Request<'_>, matched: &Matched, stamp: &Stamp<'_>) -> Value {
    let path = decoded(request.uri.path(), false);
    let host = text(request.headers, "host").unwrap_or_default();
    let domain = host.rsplit_once(':').map_or(host.as_str(), |(domain, _)| domain);
    let mut context = json!({
        "accountId": stamp.account,
        "apiId": stamp.api,
        "domainName": domain,
        "domainPrefix": domain.split('.').next().unwrap_or_default(),
        "http": {
            "method": request.method.as_str(),
            "path": path,
            "protocol": format!("{:?}", request.version),
            "sourceIp": request.peer.to_string(),
            "userAgent": text(request.headers, "user-agent").unwrap_or_default(),
        },
        "requestId": stamp.request,
        "routeKey": matched.key,
        "stage": "$default",
        "time": stamp.now.strftime("%d/%b/%Y:%H:%M:%S +0000").to_string(),
        "timeEpoch": stamp.now.as_millisecond(),
    });
    if let Some(context) = context.as_object_mut().filter(|_| stamp.iam) {
        context.insert("authorizer".to_owned(), json!({ "iam": caller(stamp.account) }));
    }
    let (body, is_base64) = body(request.headers, request.body);
    let mut event = json!({
        "version": "2.0",
        "routeKey": matched.key,
        "rawPath": path,
        "rawQueryString": request.uri.query().unwrap_or_default(),
        "headers": headers(request, stamp),
        "requestContext": context,
        "isBase64Encoded": is_base64,
    });
    // What is empty is left out, not null.
    if let Some(event) = event.as_object_mut() {
        let mut add = |name: &str, value: Option<Value>| {
            value.map(|value| event.insert(name.to_owned(), value))
        };
        add("cookies", cookies(request.headers));
        add("queryStringParameters", query(request.uri.query().unwrap_or_default()));
        add("pathParameters", (!matched.parameters.is_empty()).then(|| json!(matched.parameters)));
        add("body", body.map(Value::String));
    }
    event
}

/// Names in lower case, repeated ones joined by commas, cookies taken out, the gateway's own added.
fn headers(request: &Request<'_>, stamp: &Stamp<'_>) -> Map<String, Value> {
    let mut joined: BTreeMap<String, String> = BTreeMap::new();
    for name in request
        .headers
        .keys()
        .filter(|name| *name != header::COOKIE && !of_one_connection(name.as_str()))
    {
        if let Some(value) = text(request.headers, name.as_str()) {
            joined.insert(name.as_str().to_owned(), value);
        }
    }
    let peer = request.peer.to_string();
    joined
        .entry("x-forwarded-for".to_owned())
        .and_modify(|before| before.push_str(&format!(", {peer}")))
        .or_insert(peer);
    joined.insert("x-forwarded-port".to_owned(), request.port.to_string());
    joined.insert("x-forwarded-proto".to_owned(), "http".to_owned());
    joined.entry("x-amzn-trace-id".to_owned()).or_insert_with(|| stamp.trace.to_owned());
    joined.entry("content-length".to_owned()).or_insert_with(|| request.body.len().to_string());
    joined.into_iter().map(|(name, value)| (name, Value::String(value))).collect()
}

/// Headers that are for the two ends of one connection, and not handed on.
pub(crate) fn of_one_connection(name: &str) -> bool {
    matches!(
        name,
        "connection"
            | "keep-alive"
            | "proxy-authenticate"
            | "proxy-connection"
            | "te"
            | "trailer"
            | "transfer-encoding"
            | "upgrade"
    )
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    let values: Vec<_> = headers
        .get_all(name)
        .iter()
        .map(|value| String::from_utf8_lossy(value.as_bytes()))
        .collect();
    (!values.is_empty()).then(|| values.join(","))
}

fn cookies(headers: &HeaderMap) -> Option<Value> {
    let values = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let cookies: Vec<_> = values
        .flat_map(|value| value.split(';'))
        .map(str::trim)
        .filter(|cookie| !cookie.is_empty())
        .collect();
    (!cookies.is_empty()).then(|| json!(cookies))
}

fn query(raw: &str) -> Option<Value> {
    let mut joined: BTreeMap<String, String> = BTreeMap::new();
    for pair in raw.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = decoded(value, true);
        joined
            .entry(decoded(name, true))
            .and_modify(|before| before.push_str(&format!(",{value}")))
            .or_insert(value);
    }
    (!joined.is_empty()).then(|| json!(joined))
}

fn body(headers: &HeaderMap, body: &Bytes) -> (Option<String>, bool) {
    if body.is_empty() {
        return (None, false);
    }
    let kind =
        headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match std::str::from_utf8(body) {
        Ok(text) if is_text(kind) => (Some(text.to_owned()), false),
        _ => (Some(STANDARD.encode(body)), true),
    }
}

fn is_text(content_type: &str) -> bool {
    let lower = content_type.to_ascii_lowercase();
    let mut parts = lower.split(';').map(str::trim);
    let kind = parts.next().unwrap_or_default();
    let utf8 = parts
        .filter_map(|part| part.strip_prefix("charset="))
        .all(|charset| charset.trim_matches('"') == "utf-8");
    utf8 && (kind.starts_with("text/")
        || matches!(kind, "application/json" | "application/javascript" | "application/xml"))
}

fn caller(account: &str) -> Value {
    json!({
        "accessKey": "LOCALoperator",
        "accountId": account,
        "callerId": "LOCALoperator",
        "cognitoIdentity": null,
        "principalOrgId": null,
        "userArn": format!("arn:aws:iam::{account}:user/local"),
        "userId": "LOCALoperator",
    })
}

/// Undoes percent encoding. What is not valid encoding, or not UTF-8 once decoded, stays as it is.
pub(crate) fn decoded(text: &str, plus_is_blank: bool) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        let pair = tail.get(..2).filter(|pair| pair.iter().all(u8::is_ascii_hexdigit));
        match (first, pair.and_then(byte)) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = tail.get(2..).unwrap_or_default();
                continue;
            }
            (b'+', _) if plus_is_blank => bytes.push(b' '),
            (other, _) => bytes.push(*other),
        }
        rest = tail;
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(method: &str, uri: &str, headers: &[(&str, &str)], body: &[u8], iam: bool) -> Value {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(http::HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
        }
        let request = Request {
            method: &method.parse().unwrap(),
            uri: &uri.parse().unwrap(),
            version: Version::HTTP_11,
            headers: &map,
            body: &Bytes::copy_from_slice(body),
            peer: "127.0.0.1".parse().unwrap(),
            port: 8701,
        };
        let parameters = BTreeMap::from([("source".to_owned(), "stripe-demo".to_owned())]);
        let matched = Matched { index: 0, key: "POST /webhooks/{source}".to_owned(), parameters };
        let stamp = Stamp {
            account: "000000000000",
            api: "ingressapi",
            request: "JKJaXmPLvHcESHA=",
            trace: "Root=1-5e6722a7-cc56xmpl46db7ae02d4da47e",
            now: Timestamp::from_millisecond(1_583_348_638_390).unwrap(),
            iam,
        };
        event(&request, &matched, &stamp)
    }

    #[test]
    fn a_json_request_becomes_the_whole_event() {
        let made = made(
            "POST",
            "/webhooks/stripe-demo?a=1&b=x%20y&a=2&flag",
            &[
                ("Host", "127.0.0.1:8701"),
                ("Content-Type", "application/json; charset=utf-8"),
                ("Content-Length", "14"),
                ("User-Agent", "Stripe/1.0"),
                ("X-Twice", "one"),
                ("X-Twice", "two"),
                ("Cookie", "a=1; b=2"),
                ("Cookie", "c=3"),
                ("Connection", "keep-alive"),
                ("X-Forwarded-For", "203.0.113.9"),
            ],
            br#"{"id":"evt_1"}"#,
            false,
        );
        let expected = json!({
            "version": "2.0",
            "routeKey": "POST /webhooks/{source}",
            "rawPath": "/webhooks/stripe-demo",
            "rawQueryString": "a=1&b=x%20y&a=2&flag",
            "cookies": ["a=1", "b=2", "c=3"],
            "headers": {
                "content-length": "14",
                "content-type": "application/json; charset=utf-8",
                "host": "127.0.0.1:8701",
                "user-agent": "Stripe/1.0",
                "x-amzn-trace-id": "Root=1-5e6722a7-cc56xmpl46db7ae02d4da47e",
                "x-forwarded-for": "203.0.113.9, 127.0.0.1",
                "x-forwarded-port": "8701",
                "x-forwarded-proto": "http",
                "x-twice": "one,two"
            },
            "queryStringParameters": { "a": "1,2", "b": "x y", "flag": "" },
            "pathParameters": { "source": "stripe-demo" },
            "requestContext": {
                "accountId": "000000000000",
                "apiId": "ingressapi",
                "domainName": "127.0.0.1",
                "domainPrefix": "127",
                "http": {
                    "method": "POST",
                    "path": "/webhooks/stripe-demo",
                    "protocol": "HTTP/1.1",
                    "sourceIp": "127.0.0.1",
                    "userAgent": "Stripe/1.0"
                },
                "requestId": "JKJaXmPLvHcESHA=",
                "routeKey": "POST /webhooks/{source}",
                "stage": "$default",
                "time": "04/Mar/2020:19:03:58 +0000",
                "timeEpoch": 1_583_348_638_390_i64
            },
            "body": "{\"id\":\"evt_1\"}",
            "isBase64Encoded": false
        });
        assert_eq!(made, expected);
    }

    #[test]
    fn an_empty_request_leaves_out_what_it_lacks() {
        let made = made("GET", "/webhooks/a%2Fb%20c", &[("host", "localhost:1")], b"", true);
        assert_eq!(made.get("rawPath"), Some(&json!("/webhooks/a/b c")));
        assert_eq!(made.get("rawQueryString"), Some(&json!("")));
        assert_eq!(made.get("isBase64Encoded"), Some(&json!(false)));
        assert_eq!(
            made.pointer("/requestContext/authorizer/iam/accountId"),
            Some(&json!("000000000000"))
        );
        for absent in ["body", "cookies", "queryStringParameters", "stageVariables"] {
            assert_eq!(made.get(absent), None, "{absent}");
        }
    }

    #[track_caller]
    fn check_body(content_type: Option<&str>, body: &[u8], expected: &str, is_base64: bool) {
        let headers: Vec<_> = content_type.map(|kind| ("content-type", kind)).into_iter().collect();
        let made = made("POST", "/webhooks/a", &headers, body, false);
        assert_eq!(made.get("body"), Some(&json!(expected)), "{content_type:?}");
        assert_eq!(made.get("isBase64Encoded"), Some(&json!(is_base64)), "{content_type:?}");
    }

    /// Rows marked * were captured from real gateways by others; see the module.
    #[test]
    fn bodies_are_text_or_base64_by_their_type() {
        check_body(Some("application/json"), b"{}", "{}", false); // *
        check_body(Some("Application/JSON; Charset=UTF-8"), b"{}", "{}", false); // *
        check_body(Some("text/plain"), b"a", "a", false); // *
        check_body(Some("text/plain; charset=iso-8859-1"), b"a", "YQ==", true); // *
        check_body(Some("text/csv"), b"a", "a", false); // *
        check_body(Some("application/xml"), b"<a/>", "<a/>", false); // *
        check_body(Some("application/javascript"), b"a", "a", false); // *
        check_body(Some("application/x-www-form-urlencoded"), b"a=1", "YT0x", true); // *
        check_body(Some("application/cloudevents+json"), b"{}", "e30=", true);
        check_body(Some("multipart/form-data; boundary=x"), b"a", "YQ==", true);
        check_body(Some("application/octet-stream"), b"\x00\xff", "AP8=", true); // *
        check_body(None, b"{}", "e30=", true); // *
        check_body(Some("application/json"), b"\xff\xfe", "//4=", true);
    }

    #[test]
    fn broken_encoding_stays_as_it_is() {
        for (raw, expected) in [
            ("%", "%"),
            ("%4", "%4"),
            ("%zz", "%zz"),
            ("%+1", "%+1"),
            ("%ff", "%ff"),
            ("%C3%A9", "é"),
            ("a+b", "a+b"),
        ] {
            assert_eq!(decoded(raw, false), expected);
        }
        assert_eq!(decoded("a+b%2B", true), "a b+");
    }
}
