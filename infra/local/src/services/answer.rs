//! Answers and errors in AWS's shapes.

use axum::{
    body::Body,
    http::{HeaderValue, StatusCode, header::CONTENT_TYPE},
    response::Response,
};
use serde_json::{Value, json};

/// An error as the AWS JSON protocols spell it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct AwsError {
    pub(super) status: u16,
    /// `__type`, such as `com.amazonaws.sqs#QueueDoesNotExist`.
    pub(super) kind: String,
    /// The older code that SQS still sends in a header, and that its SDKs go by.
    pub(super) query_code: Option<String>,
    pub(super) message: String,
    /// `CancellationReasons` and the like.
    pub(super) extra: Option<Box<(&'static str, Value)>>,
}

impl AwsError {
    pub(super) fn sender(kind: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            status: 400,
            kind: kind.into(),
            query_code: None,
            message: message.into(),
            extra: None,
        }
    }

    pub(super) fn internal(kind: impl Into<String>, message: impl Into<String>) -> Self {
        Self { status: 500, ..Self::sender(kind, message) }
    }

    pub(super) fn into_response(self, content_type: &'static str) -> Response {
        let mut body = json!({ "__type": self.kind, "message": self.message });
        if let (Some(extra), Some(map)) = (self.extra, body.as_object_mut()) {
            let (name, value) = *extra;
            map.insert(name.to_owned(), value);
        }
        let mut response = json_response(self.status, &body, content_type);
        if let Some(code) = self.query_code {
            let fault = if self.status < 500 { "Sender" } else { "Receiver" };
            if let Ok(value) = HeaderValue::from_str(&format!("{code};{fault}")) {
                response.headers_mut().insert("x-amzn-query-error", value);
            }
        }
        response
    }
}

pub(super) const JSON_1_0: &str = "application/x-amz-json-1.0";
pub(super) const JSON_1_1: &str = "application/x-amz-json-1.1";

pub(super) fn json_response(status: u16, body: &Value, content_type: &'static str) -> Response {
    respond(status, content_type, Body::from(body.to_string()))
}

pub(super) fn respond(status: u16, content_type: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() =
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    if let Ok(id) = HeaderValue::from_str(&fresh_id()) {
        response.headers_mut().insert("x-amzn-requestid", id);
    }
    response
}

/// A response whose connection is closed before a byte of it is sent: the body fails before the head is flushed.
pub(super) fn dropped() -> Response {
    let broken = futures_util::stream::once(async {
        Err::<bytes::Bytes, _>(std::io::Error::other("dropped on request"))
    });
    Response::new(Body::from_stream(broken))
}

/// A random id in UUID's shape.
pub(super) fn fresh_id() -> String {
    uuid::Builder::from_random_bytes(rand::random()).into_uuid().to_string()
}

/// A member of a request that must be a text.
pub(super) fn text<'v>(request: &'v Value, name: &str) -> Option<&'v str> {
    request.get(name).and_then(Value::as_str)
}
