//! Queues and buses of the deployment's own account, by AWS's SDK.
//!
//! Each call is made once. The SDK would repeat one whose answer was lost; whether it may be repeated, and when, is the
//! delivery's own business.

use std::io;

use aws_sdk_eventbridge::{
    error::{ProvideErrorMetadata, SdkError},
    primitives::DateTime,
    types::PutEventsRequestEntry,
};
use aws_sdk_sqs::types::MessageAttributeValue;
use domain::{
    delivery::Cause,
    destination::{BusArn, QueueUrl},
};
use hyper_util::client::legacy;
use runtime::aws::{Aws, HttpResponse, Pace, Settings, is_throttled};

use super::{Answered, Entry, Failed, Message, Targets, answer::excerpt};
use crate::attempt::message::{KEY, TEXT, TYPE};

/// Most bytes that are kept of what a queue or a bus answered: an id.
const KEPT: usize = 200;

/// Hands events to queues and buses.
#[derive(Clone, Debug)]
pub struct AwsTargets {
    queues: aws_sdk_sqs::Client,
    pub(super) buses: aws_sdk_eventbridge::Client,
    own_queue: String,
    pub(super) own_bus: BusArn,
}

impl AwsTargets {
    /// Clients for these settings, which live as long as the process; the URL of the queue that wakes us, and the
    /// operators' bus.
    pub fn new(settings: &Settings, own_queue: &str, own_bus: BusArn) -> Self {
        let aws = Aws::new(settings, Pace { tries: 1, ..Pace::BACKGROUND });
        Self {
            queues: aws.sqs(),
            buses: aws.eventbridge(),
            own_queue: own_queue.to_owned(),
            own_bus,
        }
    }
}

/// What a bus said of one entry, in a whole that it called a success.
#[derive(Debug, thiserror::Error)]
#[error("the entry failed ({code}): {message}")]
pub(super) struct EntryFailed {
    pub(super) code: String,
    pub(super) message: String,
}

impl Targets for AwsTargets {
    async fn message(&self, message: Message) -> Result<Answered, Failed> {
        let text = |value: &str| {
            let built = MessageAttributeValue::builder().data_type(TEXT).string_value(value);
            built
                .build()
                .map_err(|error| Failed { cause: Cause::Internal, source: Some(error.into()) })
        };
        let (key, event_type) = (text(&message.key)?, text(&message.event_type)?);
        let is_fifo = message.fifo.is_some();
        let sent = self
            .queues
            .send_message()
            .queue_url(message.queue.to_string())
            .message_body(message.body)
            .message_attributes(KEY, key)
            .message_attributes(TYPE, event_type)
            .set_message_group_id(message.fifo.map(|fifo| fifo.group))
            .set_message_deduplication_id(is_fifo.then_some(message.key))
            .send()
            .await;
        match sent {
            Ok(sent) => match sent.message_id() {
                Some(id) => Ok(taken("message", id)),
                None => Err(Failed::new(Cause::BadAnswer)),
            },
            Err(error) => Err(failed(error)),
        }
    }

    async fn put(&self, entry: Entry) -> Result<Answered, Failed> {
        if entry.bus == self.own_bus {
            // Our role lets us write there for ourselves; no endpoint may borrow that.
            return Err(Failed::new(Cause::BlockedAddress));
        }
        let entry = PutEventsRequestEntry::builder()
            .event_bus_name(entry.bus.to_string())
            .source(entry.source)
            .detail_type(entry.detail_type)
            .detail(entry.detail)
            .resources(entry.key)
            .time(DateTime::from_millis(entry.at.as_millisecond()))
            .build();
        let put = self.buses.put_events().entries(entry).send().await.map_err(failed)?;
        // The whole is a success whatever became of its parts.
        let [entry] = put.entries() else { return Err(Failed::new(Cause::BadAnswer)) };
        match (entry.error_code(), entry.event_id()) {
            (Some(code), _) => {
                let message = entry.error_message().unwrap_or_default().to_owned();
                let source = EntryFailed { code: code.to_owned(), message };
                Err(Failed { cause: of_entry(code), source: Some(source.into()) })
            }
            (None, Some(id)) if put.failed_entry_count() == 0 => Ok(taken("event", id)),
            (None, _) => Err(Failed::new(Cause::BadAnswer)),
        }
    }

    fn is_own(&self, queue: &QueueUrl) -> bool {
        queue.to_string() == self.own_queue
    }

    async fn is_missing(&self, bus: &BusArn) -> bool {
        let described = self.buses.describe_event_bus().name(bus.to_string()).send().await;
        match described {
            Ok(_) => false,
            Err(error) => {
                let missing = error
                    .as_service_error()
                    .is_some_and(aws_sdk_eventbridge::operation::describe_event_bus::DescribeEventBusError::is_resource_not_found_exception);
                if !missing {
                    // A question that was not answered is no reason to hold anything back.
                    tracing::warn!(
                        bus = bus.name(), error = %runtime::telemetry::chain(&error),
                        "it is not known whether the bus exists"
                    );
                }
                missing
            }
        }
    }
}

fn taken(what: &str, id: &str) -> Answered {
    Answered::plain(200, excerpt(format!("{what} {id}").as_bytes(), KEPT))
}

fn failed<E>(error: SdkError<E, HttpResponse>) -> Failed
where
    E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
{
    let cause = match &error {
        SdkError::ConstructionFailure(_) => Cause::Internal,
        SdkError::TimeoutError(_) => Cause::Timeout,
        SdkError::DispatchFailure(dispatch) if dispatch.is_timeout() => Cause::Timeout,
        SdkError::DispatchFailure(_) => of_connection(&error),
        SdkError::ResponseError(_) => Cause::BadAnswer,
        SdkError::ServiceError(service) => {
            of_answer(service.err().code(), service.raw().status().as_u16())
        }
        _ => Cause::Internal,
    };
    Failed { cause, source: Some(error.into()) }
}

/// Whether there was a connection at all: without one, nothing can have happened.
fn of_connection(error: &(dyn std::error::Error + 'static)) -> Cause {
    let mut next = Some(error);
    while let Some(error) = next {
        let refused = error
            .downcast_ref::<io::Error>()
            .is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
        let unconnected =
            error.downcast_ref::<legacy::Error>().is_some_and(legacy::Error::is_connect);
        if refused || unconnected {
            return Cause::Refused;
        }
        next = error.source();
    }
    Cause::Reset
}

/// Codes with which SQS and EventBridge refuse what a request holds.
const UNACCEPTABLE: [&str; 8] = [
    "AWS.SimpleQueueService.UnsupportedOperation",
    "InvalidArgument",
    "InvalidMessageContents",
    "InvalidParameterValue",
    "InvalidParameterValueException",
    "MalformedDetail",
    "UnsupportedOperation",
    "ValidationException",
];

/// Codes with which they say that there is no such thing.
const ABSENT: [&str; 5] = [
    "AWS.SimpleQueueService.NonExistentQueue",
    "InvalidAddress",
    "QueueDoesNotExist",
    "ResourceNotFound",
    "ResourceNotFoundException",
];

fn of_answer(code: Option<&str>, status: u16) -> Cause {
    let is_of = |codes: &[&str]| code.is_some_and(|code| codes.contains(&code));
    match status {
        _ if is_throttled(code, status) || is_of(&["KmsThrottled", "KMS.ThrottlingException"]) => {
            Cause::Throttled
        }
        500.. => Cause::Unavailable,
        _ if is_of(&ABSENT) => Cause::NoSuchTarget,
        _ if is_of(&UNACCEPTABLE) => Cause::Unacceptable,
        // Rights, credentials, keys: whatever it is, a person can mend it, so it is tried again.
        _ => Cause::Denied,
    }
}

/// A bus's codes for an entry have no status. One that nobody knows is as unclear as a failure of the service.
fn of_entry(code: &str) -> Cause {
    let is_denied = code.starts_with("NotAuthorized") || code.starts_with("AccessDenied");
    match of_answer(Some(code), 400) {
        Cause::Denied if !is_denied => Cause::Unavailable,
        cause => cause,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C24: what is certain is told from what is not.
    #[test]
    fn an_error_of_a_queue_or_a_bus_has_one_plain_cause() {
        let check = |code: &str, status: u16, expected: Cause| {
            assert_eq!(of_answer(Some(code), status), expected, "{code} {status}");
        };
        check("AWS.SimpleQueueService.NonExistentQueue", 400, Cause::NoSuchTarget);
        check("QueueDoesNotExist", 400, Cause::NoSuchTarget);
        check("RequestThrottled", 403, Cause::Throttled);
        check("ThrottlingException", 400, Cause::Throttled);
        check("KMS.ThrottlingException", 400, Cause::Throttled);
        check("anything", 429, Cause::Throttled);
        check("InternalError", 500, Cause::Unavailable);
        check("ServiceUnavailable", 503, Cause::Unavailable);
        check("AccessDenied", 403, Cause::Denied);
        check("KmsAccessDenied", 400, Cause::Denied);
        check("ExpiredTokenException", 400, Cause::Denied);
        check("InvalidMessageContents", 400, Cause::Unacceptable);
        check("InvalidParameterValue", 400, Cause::Unacceptable);
        assert_eq!(of_answer(None, 400), Cause::Denied);
        let check = |code: &str, expected: Cause| assert_eq!(of_entry(code), expected, "{code}");
        check("ThrottlingException", Cause::Throttled);
        check("InternalFailure", Cause::Unavailable);
        check("MalformedDetail", Cause::Unacceptable);
        check("NotAuthorizedForSourceException", Cause::Denied);
        check("AccessDeniedException", Cause::Denied);
        check("SomethingNew", Cause::Unavailable);
    }
}
