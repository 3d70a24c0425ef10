//! What the SDK's errors mean in our words. The one place where that is decided.
//!
//! A failed condition is not an error and never comes here: each call site takes it as its outcome first. Everything
//! else is a [`StoreError`], so that no throttle, conflict, time-out or missing permission can look like a duplicate.

use std::{error::Error, fmt};

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use domain::{commit::Reason, ports::StoreError};

/// The same call will succeed later.
const THROTTLED: &[&str] = &[
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "ReplicatedWriteConflictException",
    "ThrottlingException",
    "TransactionConflictException",
    "TransactionInProgressException",
];

/// The store's own fault, or the network's, whatever the HTTP status says.
const UNAVAILABLE: &[&str] = &[
    // A transaction with this token was carried out and its answer lost, and the store (DynamoDB Local, for one) does
    // not see that this is the same one: what is true is known by reading again.
    "IdempotentParameterMismatchException",
    "InternalFailure",
    "InternalServerError",
    "RequestTimeout",
    "ServiceUnavailable",
];

/// Stands for a code where there is none: what answered is not the store, or only half of its answer came. The write
/// may have happened.
const UNKNOWN: &str = "an answer without an error code";

/// What the service said. Its own error types are not kept: they hold the item, and print it.
#[derive(Debug)]
struct Fault {
    code: String,
    message: String,
    request_id: Option<String>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)?;
        match &self.request_id {
            Some(id) => write!(f, " (request {id})"),
            None => Ok(()),
        }
    }
}

impl Error for Fault {}

/// An SDK error that is no outcome.
pub(crate) fn store_error<E>(error: SdkError<E, HttpResponse>) -> StoreError
where
    E: ProvideErrorMetadata + Error + Send + Sync + 'static,
{
    match &error {
        SdkError::ServiceError(context) => {
            let (meta, status) = (context.err().meta(), context.raw().status().as_u16());
            let fault = Fault {
                code: meta.code().unwrap_or(UNKNOWN).to_owned(),
                message: meta.message().unwrap_or_default().to_owned(),
                request_id: meta.extra("aws_request_id").map(str::to_owned),
            };
            let is = |codes: &[&str]| codes.contains(&fault.code.as_str());
            if is(THROTTLED) || status == 429 {
                StoreError::Throttled(fault.into())
            } else if is(UNAVAILABLE) || status >= 500 || meta.code().is_none() {
                StoreError::Unavailable(fault.into())
            } else {
                StoreError::Refused(fault.into())
            }
        }
        // The request was never made, and the next one would not be either.
        SdkError::ConstructionFailure(_) => StoreError::Refused(cause(error)),
        // No answer, or none that could be read: the write may have happened.
        _ => StoreError::Unavailable(cause(error)),
    }
}

fn cause<E>(error: SdkError<E, HttpResponse>) -> Box<dyn Error + Send + Sync>
where
    E: Error + Send + Sync + 'static,
{
    // The source, not the error: that one holds the raw answer.
    error.into_source().unwrap_or_else(Into::into)
}

/// A request that the SDK would not even build.
pub(crate) fn unbuilt(error: impl Error + Send + Sync + 'static) -> StoreError {
    StoreError::Refused(error.into())
}

/// Why one action of a cancelled transaction did not happen, by its code and what is said beside it.
pub(crate) fn reason(code: Option<&str>, message: Option<&str>) -> Reason {
    match code {
        None | Some("None") => Reason::None,
        Some("ConditionalCheckFailed") => Reason::ConditionFailed,
        Some("TransactionConflict") => Reason::Conflict,
        Some("ThrottlingError" | "ProvisionedThroughputExceeded" | "RequestLimitExceeded") => {
            Reason::Throttled
        }
        Some("ItemCollectionSizeLimitExceeded") => Reason::TooLarge,
        Some("ValidationError") if speaks_of_size(message) => Reason::TooLarge,
        Some("ValidationError") => Reason::Invalid,
        // What we do not know is never taken for a condition.
        Some(_) => Reason::Transient,
    }
}

/// Whether a whole transaction was refused because it, or one of its items, is too large.
pub(crate) fn is_too_large<E: ProvideErrorMetadata>(error: &SdkError<E, HttpResponse>) -> bool {
    let SdkError::ServiceError(context) = error else { return false };
    let (meta, status) = (context.err().meta(), context.raw().status().as_u16());
    status == 413
        || meta.code() == Some("ItemCollectionSizeLimitExceededException")
        || meta.code() == Some("ValidationException") && speaks_of_size(meta.message())
}

/// The store has no code of its own for what is too large: only its words tell ("Item size has exceeded the maximum
/// allowed size", "the aggregate size of the items in the transaction exceeded 4 MB"). Refused for ever is either way;
/// the words decide no more than what that is called.
fn speaks_of_size(message: Option<&str>) -> bool {
    message.is_some_and(|message| {
        let message = message.to_ascii_lowercase();
        message.contains("size")
            && ["exceed", "larger", "limit"].iter().any(|w| message.contains(w))
    })
}

/// A cancelled transaction none of whose reasons is an outcome for its caller.
pub(crate) fn cancelled(reasons: &[Reason]) -> StoreError {
    let fault = format!("the transaction was cancelled: {reasons:?}");
    if reasons.contains(&Reason::Invalid) || reasons.contains(&Reason::TooLarge) {
        StoreError::Refused(fault.into())
    } else {
        StoreError::Throttled(fault.into())
    }
}

#[cfg(test)]
mod tests {
    use aws_sdk_dynamodb::{
        error::ErrorMetadata,
        operation::put_item::PutItemError,
        types::error::{
            InternalServerError, ProvisionedThroughputExceededException, RequestLimitExceeded,
            ResourceNotFoundException, ThrottlingException, TransactionConflictException,
        },
    };
    use aws_smithy_runtime_api::client::result::ConnectorError;
    use aws_smithy_types::body::SdkBody;

    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Kind {
        Throttled,
        Unavailable,
        Refused,
    }

    fn kind(error: &StoreError) -> Kind {
        match error {
            StoreError::Throttled(_) => Kind::Throttled,
            StoreError::Unavailable(_) => Kind::Unavailable,
            StoreError::Refused(_) => Kind::Refused,
            StoreError::Unreadable(_) => {
                panic!("an error of the service is not an unreadable item")
            }
        }
    }

    fn answered(error: PutItemError, status: u16) -> SdkError<PutItemError, HttpResponse> {
        let raw = HttpResponse::new(status.try_into().unwrap(), SdkBody::from("{}"));
        SdkError::service_error(error, raw)
    }

    fn meta(code: &str) -> ErrorMetadata {
        ErrorMetadata::builder().code(code).message("said so").build()
    }

    /// ING-error-taken-for-duplicate: every error that is typed in the SDK.
    #[test]
    fn each_typed_error_of_the_store_has_one_meaning() {
        type E = PutItemError;
        let m = meta;
        let conflict =
            TransactionConflictException::builder().meta(m("TransactionConflictException"));
        let provisioned = ProvisionedThroughputExceededException::builder()
            .meta(m("ProvisionedThroughputExceededException"));
        let limit = RequestLimitExceeded::builder().meta(m("RequestLimitExceeded"));
        let throttling = ThrottlingException::builder().meta(m("ThrottlingException"));
        let internal = InternalServerError::builder().meta(m("InternalServerError"));
        let missing = ResourceNotFoundException::builder().meta(m("ResourceNotFoundException"));
        let table = [
            (E::TransactionConflictException(conflict.build()), 400, Kind::Throttled),
            (E::ProvisionedThroughputExceededException(provisioned.build()), 400, Kind::Throttled),
            (E::RequestLimitExceeded(limit.build()), 400, Kind::Throttled),
            (E::ThrottlingException(throttling.build()), 400, Kind::Throttled),
            (E::InternalServerError(internal.build()), 500, Kind::Unavailable),
            (E::ResourceNotFoundException(missing.build()), 400, Kind::Refused),
        ];
        for (error, status, expected) in table {
            let shown = format!("{error:?}");
            assert_eq!(kind(&store_error(answered(error, status))), expected, "{shown}");
        }
    }

    /// ING-error-taken-for-duplicate: errors that only have a code.
    #[test]
    fn each_code_of_the_store_has_one_meaning() {
        let table = [
            ("TransactionInProgressException", 400, Kind::Throttled),
            ("ReplicatedWriteConflictException", 400, Kind::Throttled),
            ("SomethingNew", 429, Kind::Throttled),
            ("SomethingNew", 503, Kind::Unavailable),
            ("ServiceUnavailable", 400, Kind::Unavailable),
            ("AccessDeniedException", 400, Kind::Refused),
            ("ValidationException", 400, Kind::Refused),
            ("ExpiredTokenException", 400, Kind::Refused),
            ("ItemCollectionSizeLimitExceededException", 400, Kind::Refused),
            ("IdempotentParameterMismatchException", 400, Kind::Unavailable),
            ("SomethingNew", 400, Kind::Refused),
        ];
        for (code, status, expected) in table {
            let error = store_error(answered(PutItemError::generic(meta(code)), status));
            assert_eq!(kind(&error), expected, "{code} {status}");
            assert_eq!(error.is_transient(), expected != Kind::Refused);
        }
    }

    /// ING-error-taken-for-duplicate
    #[test]
    fn an_answer_that_names_no_error_is_no_answer() {
        for status in [200, 400] {
            let nameless = PutItemError::generic(ErrorMetadata::builder().build());
            assert_eq!(kind(&store_error(answered(nameless, status))), Kind::Unavailable);
        }
    }

    /// ING-error-taken-for-duplicate, DEP-sdk-timeouts
    #[test]
    fn no_answer_means_unavailable_and_no_request_means_refused() {
        type E = SdkError<PutItemError, HttpResponse>;
        let raw = || HttpResponse::new(200.try_into().unwrap(), SdkBody::from("not json"));
        let table = [
            (E::timeout_error("slow"), Kind::Unavailable),
            (E::dispatch_failure(ConnectorError::io("reset".into())), Kind::Unavailable),
            (E::dispatch_failure(ConnectorError::timeout("connect".into())), Kind::Unavailable),
            (E::response_error("garbled", raw()), Kind::Unavailable),
            (E::construction_failure("no region"), Kind::Refused),
        ];
        for (error, expected) in table {
            let shown = error.to_string();
            let error = store_error(error);
            assert_eq!(kind(&error), expected, "{shown}");
            assert!(error.source().is_some(), "the cause is kept");
        }
    }

    /// OUT-transaction-conflict
    #[test]
    fn each_cancellation_code_has_one_reason() {
        let item = "Item size has exceeded the maximum allowed size";
        let table = [
            (None, "", Reason::None),
            (Some("None"), "", Reason::None),
            (
                Some("ConditionalCheckFailed"),
                "The conditional request failed",
                Reason::ConditionFailed,
            ),
            (Some("TransactionConflict"), "", Reason::Conflict),
            (Some("ThrottlingError"), "", Reason::Throttled),
            (Some("ProvisionedThroughputExceeded"), "", Reason::Throttled),
            (Some("SomethingNew"), item, Reason::Transient),
            (Some("ItemCollectionSizeLimitExceeded"), "", Reason::TooLarge),
            (Some("ValidationError"), item, Reason::TooLarge),
            (
                Some("ValidationError"),
                "Item size to update has exceeded the maximum allowed size",
                Reason::TooLarge,
            ),
            (Some("ValidationError"), "One or more parameter values were invalid", Reason::Invalid),
            (Some("ValidationError"), "", Reason::Invalid),
        ];
        for (code, message, expected) in table {
            assert_eq!(reason(code, Some(message)), expected, "{code:?} {message}");
        }
        assert_eq!(reason(Some("ValidationError"), None), Reason::Invalid);
    }

    /// OUT-transaction-conflict: a refusal of the whole says so in words only.
    #[test]
    fn a_transaction_that_is_too_large_is_told_from_one_that_is_malformed() {
        let too_large = |code: &str, message: &str, status: u16| {
            let meta = ErrorMetadata::builder().code(code).message(message).build();
            is_too_large(&answered(PutItemError::generic(meta), status))
        };
        let invalid = "ValidationException";
        let all =
            "Aggregate size of all items in a transaction exceeded the limit of 4194304 bytes";
        assert!(too_large(invalid, all, 400));
        assert!(too_large("SomethingNew", "", 413));
        assert!(!too_large(invalid, "Value provided in ExpressionAttributeValues unused", 400));
        assert!(!too_large("ThrottlingException", all, 400));
        assert!(!is_too_large(&SdkError::<PutItemError, HttpResponse>::timeout_error(
            "exceeds size"
        )));
    }

    /// SEC-secret-in-logs: an item never travels inside an error.
    #[test]
    fn an_error_does_not_carry_the_item_it_is_about() {
        use aws_sdk_dynamodb::types::{AttributeValue, error::ConditionalCheckFailedException};
        let failed = ConditionalCheckFailedException::builder()
            .item("body", AttributeValue::S("personal".to_owned()))
            .meta(meta("ConditionalCheckFailedException"))
            .build();
        let error =
            store_error(answered(PutItemError::ConditionalCheckFailedException(failed), 400));
        assert!(!format!("{error:?}").contains("personal"));
        assert_eq!(kind(&error), Kind::Refused);
    }
}
