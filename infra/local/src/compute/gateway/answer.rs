//! The answer of a function, as an HTTP API turns it into a response.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use serde_json::{Map, Value};

use super::event::of_one_connection;

/// The response that a function's answer stands for. `None`: the answer is malformed, which a gateway shows as a 500.
///
/// An answer without `statusCode` is itself the body, with status 200 and type `application/json`. `multiValueHeaders` is not
/// part of format 2.0 and is not looked at.
#[must_use]
pub fn response(answer: &[u8]) -> Option<Response<Bytes>> {
    let value: Value = serde_json::from_slice(answer).ok()?;
    match value.as_object() {
        Some(object) if object.contains_key("statusCode") => spelled_out(object),
        _ => inferred(value),
    }
}

fn inferred(value: Value) -> Option<Response<Bytes>> {
    let body = match value {
        Value::String(text) => text,
        other => other.to_string(),
    };
    Response::builder().header(header::CONTENT_TYPE, "application/json").body(body.into()).ok()
}

fn spelled_out(object: &Map<String, Value>) -> Option<Response<Bytes>> {
    let mut response = Response::new(body(object)?);
    *response.status_mut() = status(object.get("statusCode")?)?;
    let headers = response.headers_mut();
    for (name, value) in object_or_nothing(object.get("headers"))?.into_iter().flatten() {
        let name = HeaderName::try_from(name.to_ascii_lowercase()).ok()?;
        // The length is that of the body, whatever the function thinks.
        if of_one_connection(name.as_str()) || name == header::CONTENT_LENGTH {
            continue;
        }
        headers.insert(name, HeaderValue::from_bytes(plain(value)?.as_bytes()).ok()?);
    }
    for cookie in object.get("cookies").and_then(Value::as_array).into_iter().flatten() {
        headers.append(header::SET_COOKIE, cookie.as_str()?.parse().ok()?);
    }
    if !headers.contains_key(header::CONTENT_TYPE) {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain;charset=UTF-8"));
    }
    Some(response)
}

fn status(value: &Value) -> Option<StatusCode> {
    let code = match value {
        Value::String(text) => text.parse().ok()?,
        value => u16::try_from(value.as_u64()?).ok()?,
    };
    StatusCode::from_u16(code).ok().filter(|status| (200..600).contains(&status.as_u16()))
}

fn body(object: &Map<String, Value>) -> Option<Bytes> {
    let text = match object.get("body") {
        None | Some(Value::Null) => return Some(Bytes::new()),
        Some(value) => value.as_str()?,
    };
    match object.get("isBase64Encoded").and_then(Value::as_bool) {
        Some(true) => STANDARD.decode(text).ok().map(Bytes::from),
        _ => Some(Bytes::copy_from_slice(text.as_bytes())),
    }
}

fn object_or_nothing(value: Option<&Value>) -> Option<Option<&Map<String, Value>>> {
    match value {
        None | Some(Value::Null) => Some(None),
        Some(value) => value.as_object().map(Some),
    }
}

fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    type Expected<'a> = Option<(u16, &'a [(&'a str, &'a str)], &'a [u8])>;

    #[track_caller]
    fn check(answer: &Value, expected: Expected<'_>) {
        let found = response(answer.to_string().as_bytes()).map(|response| {
            let mut headers: Vec<_> = response
                .headers()
                .iter()
                .map(|(name, value)| (name.as_str().to_owned(), value.to_str().unwrap().to_owned()))
                .collect();
            headers.sort();
            (response.status().as_u16(), headers, response.into_body().to_vec())
        });
        let expected = expected.map(|(status, headers, body)| {
            let headers = headers
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect();
            (status, headers, body.to_vec())
        });
        assert_eq!(found, expected, "{answer}");
    }

    #[test]
    fn an_answer_with_a_status_is_spelled_out() {
        let text = [("content-type", "text/plain;charset=UTF-8")];
        check(&json!({"statusCode": 204}), Some((204, &text, b"")));
        check(&json!({"statusCode": "404", "body": "no"}), Some((404, &text, b"no")));
        check(
            &json!({
                "statusCode": 200,
                "headers": {"Content-Type": "image/png", "X-Count": 3, "Connection": "close", "Content-Length": "99"},
                "multiValueHeaders": {"X-Not": ["part of format 2.0"]},
                "cookies": ["a=1; Secure", "b=2"],
                "body": "AP8=",
                "isBase64Encoded": true
            }),
            Some((
                200,
                &[
                    ("content-type", "image/png"),
                    ("set-cookie", "a=1; Secure"),
                    ("set-cookie", "b=2"),
                    ("x-count", "3"),
                ],
                b"\x00\xff",
            )),
        );
    }

    #[test]
    fn an_answer_without_a_status_is_the_body() {
        let kind = [("content-type", "application/json")];
        check(&json!("hello"), Some((200, &kind, b"hello")));
        check(&json!({"ok": true}), Some((200, &kind, b"{\"ok\":true}")));
        check(&json!(null), Some((200, &kind, b"null")));
    }

    #[test]
    fn a_malformed_answer_is_nobodys_response() {
        for answer in [
            json!({"statusCode": 99}),
            json!({"statusCode": 700}),
            json!({"statusCode": true}),
            json!({"statusCode": 200, "body": {"not": "text"}}),
            json!({"statusCode": 200, "body": "***", "isBase64Encoded": true}),
            json!({"statusCode": 200, "headers": ["a"]}),
            json!({"statusCode": 200, "headers": {"a": ["b"]}}),
            json!({"statusCode": 200, "headers": {"bad name": "b"}}),
            json!({"statusCode": 200, "headers": {"a": "b\nc"}}),
            json!({"statusCode": 200, "cookies": [1]}),
        ] {
            check(&answer, None);
        }
        assert!(response(b"").is_none() && response(b"not json").is_none());
    }
}
