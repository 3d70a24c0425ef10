//! The one AWS endpoint: tells the services apart, records each call, lets it fail on request, and answers as AWS does.

use std::time::Duration;

use axum::{
    Router,
    extract::{Request, State},
    http::{HeaderMap, request::Parts},
    response::Response,
    routing::any,
};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    Services,
    answer::{AwsError, JSON_1_0, JSON_1_1, json_response},
    faults::{self, Kind, Rule, Strike, When, rule_of},
    objects::{self, Asked},
    queues::wire,
    recorder::{Observed, caller},
    shape,
    tables::TableError,
};

/// `DynamoDB`'s limit for a request; the others' are smaller.
const REQUEST_BYTES: usize = 16 * 1024 * 1024;
/// Objects are at most what a Lambda function can hold and send.
const OBJECT_BYTES: usize = 64 * 1024 * 1024;

/// A service of the endpoint.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Service {
    /// Tables and streams.
    DynamoDb,
    /// Queues.
    Sqs,
    /// Secrets.
    SecretsManager,
    /// Keys.
    Kms,
    /// Objects.
    S3,
    /// Buses.
    EventBridge,
}

impl Service {
    fn content_type(self) -> &'static str {
        match self {
            Self::DynamoDb | Self::Sqs => JSON_1_0,
            Self::SecretsManager | Self::Kms | Self::S3 | Self::EventBridge => JSON_1_1,
        }
    }

    /// An error in the service's shape.
    pub(super) fn error(self, error: AwsError) -> Response {
        match self {
            Self::S3 => objects::error(&error),
            _ => error.into_response(self.content_type()),
        }
    }
}

const TARGETS: [(&str, Service); 6] = [
    ("DynamoDB_20120810.", Service::DynamoDb),
    ("DynamoDBStreams_20120810.", Service::DynamoDb),
    ("AmazonSQS.", Service::Sqs),
    ("secretsmanager.", Service::SecretsManager),
    ("TrentService.", Service::Kms),
    ("AWSEvents.", Service::EventBridge),
];

pub(super) fn router(services: &Services) -> Router {
    Router::new()
        .route("/", any(json_call))
        .route("/s3/{bucket}", any(object_call))
        .route("/s3/{bucket}/", any(object_call))
        .route("/s3/{bucket}/{*key}", any(object_call))
        .with_state(services.clone())
}

/// The service and the action that `X-Amz-Target` names.
fn target(headers: &HeaderMap) -> Option<(Service, String)> {
    let target = headers.get("x-amz-target")?.to_str().ok()?;
    TARGETS.iter().find_map(|(prefix, service)| {
        let action = target.strip_prefix(prefix)?;
        (!action.is_empty() && action.len() <= 64 && action.chars().all(char::is_alphanumeric))
            .then(|| (*service, action.to_owned()))
    })
}

async fn json_call(State(services): State<Services>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let Some((service, action)) = target(&parts.headers) else {
        let message = "The local host tells services apart by X-Amz-Target (DynamoDB, SQS, Secrets Manager, KMS, EventBridge) and by the path /s3/; this request has neither";
        return AwsError::sender("com.amazon.coral.service#UnknownOperationException", message)
            .into_response(JSON_1_0);
    };
    let bytes = match axum::body::to_bytes(body, REQUEST_BYTES).await {
        Ok(bytes) => bytes,
        Err(_) => {
            let message =
                format!("The request is larger than {REQUEST_BYTES} bytes, or was cut off");
            return service.error(AwsError {
                status: 413,
                ..AwsError::sender("RequestEntityTooLarge", message)
            });
        }
    };
    let request: Value = match serde_json::from_slice(&bytes) {
        Ok(value @ Value::Object(_)) => value,
        // DynamoDB words this itself
        _ if service == Service::DynamoDb => Value::Null,
        _ => {
            let error = AwsError::sender(
                "com.amazon.coral.service#SerializationException",
                "The body is not a JSON object",
            );
            return service.error(error);
        }
    };
    let function = caller(&parts.headers);
    observe(&services, service, &action, &function, &request);
    let strike = services.faults.strike(service, &action, &function);
    if let Some(lost) = struck(rule_of(strike.as_ref()), When::Before, &action).await {
        return lost;
    }
    let answer = match service {
        Service::DynamoDb => dynamodb(&services, &action, parts, bytes).await,
        Service::Sqs => services
            .queues
            .call(&function, &action, &request, rule_of(strike.as_ref()))
            .await
            .map_or_else(
                |error| service.error(error.into_aws()),
                |value| json_response(200, &value, JSON_1_0),
            ),
        Service::SecretsManager => {
            let secrets = services.secrets.clone();
            let action = action.clone();
            blocking(service, move || secrets.call(&action, &request)).await
        }
        Service::Kms => json_or_error(service, services.keys.call(&action, &request)),
        Service::EventBridge => {
            json_or_error(service, services.buses.call(&action, &request, rule_of(strike.as_ref())))
        }
        Service::S3 => service.error(AwsError::sender("NotImplemented", "S3 is below /s3/")),
    };
    let happened = strike.map(Strike::happened);
    struck(happened.as_ref(), When::After, &action).await.unwrap_or(answer)
}

fn observe(services: &Services, service: Service, action: &str, function: &str, request: &Value) {
    let one = |action: String, resource: String| {
        services.recorder.record(Observed {
            function: function.to_owned(),
            action,
            resource,
            leading_keys: Vec::new(),
        });
    };
    match service {
        Service::DynamoDb => {
            let tables = &services.tables;
            for call in shape::observed(&tables.known, tables.region(), function, action, request) {
                services.recorder.record(call);
            }
        }
        Service::Sqs => one(wire::iam_action(action), services.queues.resource(request)),
        Service::SecretsManager => {
            one(format!("secretsmanager:{action}"), services.secrets.resource(request));
        }
        Service::Kms => one(format!("kms:{action}"), services.keys.resource(request)),
        Service::EventBridge => {
            for resource in services.buses.resources(request) {
                one(format!("events:{action}"), resource);
            }
        }
        Service::S3 => {}
    }
}

/// What a fault makes of a call at this point: a wait, or another answer.
async fn struck(strike: Option<&Rule>, when: When, action: &str) -> Option<Response> {
    let rule = strike.filter(|rule| rule.when == when)?;
    if rule.error == Kind::Delay {
        tokio::time::sleep(Duration::from_millis(rule.delay_ms)).await;
    }
    faults::answer(rule, action)
}

async fn dynamodb(services: &Services, action: &str, parts: Parts, body: Bytes) -> Response {
    match services.tables.call(action, parts, body).await {
        Ok(response) => response,
        Err(error) => {
            let cause = match &error {
                TableError::Silent(cause) => cause.to_string(),
                _ => String::new(),
            };
            tracing::error!(%error, cause, "the local DynamoDB failed");
            let kind = "com.amazonaws.dynamodb.v20120810#InternalServerError";
            Service::DynamoDb.error(AwsError::internal(kind, error.to_string()))
        }
    }
}

async fn blocking(
    service: Service,
    work: impl FnOnce() -> Result<Value, AwsError> + Send + 'static,
) -> Response {
    let done = tokio::task::spawn_blocking(work).await;
    json_or_error(
        service,
        done.unwrap_or_else(|_| {
            Err(AwsError::internal("InternalServiceError", "the local host failed"))
        }),
    )
}

fn json_or_error(service: Service, outcome: Result<Value, AwsError>) -> Response {
    match outcome {
        Ok(value) => json_response(200, &value, service.content_type()),
        Err(error) => service.error(error),
    }
}

async fn object_call(State(services): State<Services>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let Ok(body) = axum::body::to_bytes(body, OBJECT_BYTES).await else {
        let message = format!("The object is larger than {OBJECT_BYTES} bytes, or was cut off");
        return Service::S3.error(AwsError::sender("EntityTooLarge", message));
    };
    let Some(asked) = asked(&parts, body) else {
        return Service::S3
            .error(AwsError::sender("InvalidURI", "The bucket or the key is not readable"));
    };
    let function = caller(&parts.headers);
    let action = asked.action();
    services.recorder.record(Observed {
        function: function.clone(),
        action: asked.iam_action().to_owned(),
        resource: asked.resource(),
        leading_keys: Vec::new(),
    });
    let strike = services.faults.strike(Service::S3, action, &function);
    if let Some(lost) = struck(rule_of(strike.as_ref()), When::Before, action).await {
        return lost;
    }
    let objects = services.objects.clone();
    let done = tokio::task::spawn_blocking(move || objects.call(&asked)).await;
    let answer = match done {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => Service::S3.error(error),
        Err(_) => Service::S3.error(AwsError::internal("InternalError", "the local host failed")),
    };
    let happened = strike.map(Strike::happened);
    struck(happened.as_ref(), When::After, action).await.unwrap_or(answer)
}

/// Reads bucket and key out of the raw path: the router's own decoding would lose the difference between `/` and `%2F`.
fn asked(parts: &Parts, body: Bytes) -> Option<Asked> {
    let path = parts.uri.path().strip_prefix("/s3/")?;
    let (bucket, key) = path.split_once('/').unwrap_or((path, ""));
    Some(Asked {
        method: parts.method.clone(),
        bucket: decoded(bucket)?,
        key: decoded(key)?,
        query: parts
            .uri
            .query()
            .unwrap_or_default()
            .split('&')
            .filter(|part| !part.starts_with("x-id="))
            .collect::<Vec<_>>()
            .join("&"),
        headers: parts.headers.clone(),
        body,
    })
}

/// Percent-decoding; `None` if the result is not UTF-8 or a `%` is not followed by two digits.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        if *first == b'%' {
            let (digits, behind) = behind.split_at_checked(2)?;
            bytes.extend(hex::decode(digits).ok()?);
            rest = behind;
        } else {
            bytes.push(*first);
            rest = behind;
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_names_a_service_and_an_action() {
        let check = |value: &str, expected: Option<(Service, &str)>| {
            let mut headers = HeaderMap::new();
            headers.insert("x-amz-target", value.parse().unwrap());
            assert_eq!(
                target(&headers),
                expected.map(|(service, action)| (service, action.to_owned())),
                "{value}"
            );
        };
        check("DynamoDB_20120810.PutItem", Some((Service::DynamoDb, "PutItem")));
        check("AmazonSQS.SendMessage", Some((Service::Sqs, "SendMessage")));
        check("secretsmanager.GetSecretValue", Some((Service::SecretsManager, "GetSecretValue")));
        check("TrentService.Decrypt", Some((Service::Kms, "Decrypt")));
        check("AWSEvents.PutEvents", Some((Service::EventBridge, "PutEvents")));
        check("AWSScheduler.CreateSchedule", None);
        check("AmazonSQS.", None);
        check("AmazonSQS.a b", None);
    }

    #[test]
    fn a_path_is_decoded_once() {
        let check = |text: &str, expected: Option<&str>| {
            assert_eq!(decoded(text).as_deref(), expected, "{text}");
        };
        check("in/a", Some("in/a"));
        check("in%2Fa%252F", Some("in/a%2F"));
        check("%C3%A9", Some("é"));
        check("%", None);
        check("%1", None);
        check("%zz", None);
        check("%FF", None);
    }
}
