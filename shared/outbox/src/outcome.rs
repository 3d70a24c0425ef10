//! What to do when a transaction did not commit.

use aws_sdk_dynamodb::{
    error::{ProvideErrorMetadata as _, SdkError},
    operation::transact_write_items::TransactWriteItemsError,
    types::CancellationReason,
};

/// What to do after a transaction that did not say that it committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum After {
    /// Nobody knows whether it committed, or somebody else was in the way: send the same items again, unchanged, after a
    /// random wait. An event of that id is never written twice.
    Again,
    /// The event is there, and so is everything that was committed with it: an earlier try came through, or an earlier run
    /// with the same key. There is nothing left to do.
    Before,
    /// The conditions of these items do not hold, counted from 0. Nothing was written: read again and decide anew.
    Refused(Vec<usize>),
    /// It will not work however often it is tried; the error says why.
    Never,
}

/// What to do after an error of `TransactWriteItems` whose items had the event's at `place`, counted from 0.
pub fn after<R>(error: &SdkError<TransactWriteItemsError, R>, place: usize) -> After {
    match error {
        SdkError::ServiceError(error) => match error.err() {
            TransactWriteItemsError::TransactionCanceledException(canceled) => {
                cancelled(canceled.cancellation_reasons(), place)
            }
            other if other.code().is_some_and(is_passing) => After::Again,
            _ => After::Never,
        },
        // No answer, or none that can be read.
        SdkError::TimeoutError(_) | SdkError::DispatchFailure(_) | SdkError::ResponseError(_) => {
            After::Again
        }
        _ => After::Never,
    }
}

/// What to do after a transaction that the store cancelled for these reasons.
pub fn cancelled(reasons: &[CancellationReason], place: usize) -> After {
    let code = |reason: &CancellationReason| reason.code().unwrap_or("None").to_owned();
    let codes: Vec<_> = reasons.iter().map(code).collect();
    let is_refused = |code: &String| code == "ConditionalCheckFailed";
    // Certain, whatever else is said: nobody takes an event away.
    if codes.get(place).is_some_and(is_refused) {
        return After::Before;
    }
    // Beside a conflict, `None` means that nobody looked.
    if codes.iter().any(|code| is_passing(code)) {
        return After::Again;
    }
    let refused: Vec<_> =
        codes.iter().enumerate().filter(|(_, code)| is_refused(code)).map(|(n, _)| n).collect();
    let others = codes.iter().any(|code| code != "None" && !is_refused(code));
    if others || refused.is_empty() { After::Never } else { After::Refused(refused) }
}

/// What passes by itself.
fn is_passing(code: &str) -> bool {
    matches!(
        code,
        "TransactionConflict"
            | "TransactionConflictException"
            | "TransactionInProgressException"
            | "ProvisionedThroughputExceeded"
            | "ProvisionedThroughputExceededException"
            | "RequestLimitExceeded"
            | "ThrottlingError"
            | "ThrottlingException"
            | "InternalServerError"
            | "ServiceUnavailable"
    )
}

#[cfg(test)]
mod tests {
    use aws_sdk_dynamodb::{
        error::ErrorMetadata,
        types::error::{
            IdempotentParameterMismatchException, TransactionCanceledException,
            TransactionInProgressException,
        },
    };

    use super::*;

    fn reasons(codes: &[&str]) -> Vec<CancellationReason> {
        codes.iter().map(|code| CancellationReason::builder().code(*code).build()).collect()
    }

    /// OUT-transaction-conflict
    #[test]
    fn only_what_passes_is_tried_again() {
        let check = |codes: &[&str], expected: After| {
            assert_eq!(cancelled(&reasons(codes), 1), expected, "{codes:?}");
        };
        let (failed, conflict) = ("ConditionalCheckFailed", "TransactionConflict");
        check(&[conflict, "None"], After::Again);
        check(&["None", conflict], After::Again);
        check(&["ThrottlingError", "None"], After::Again);
        check(&["None", "ProvisionedThroughputExceeded"], After::Again);
        // A condition that was not looked at may still hold.
        check(&[failed, conflict], After::Again);
        // But an event that is there is there.
        check(&[conflict, failed], After::Before);
        check(&[failed, failed], After::Before);
        check(&["None", failed], After::Before);
        check(&[failed, "None"], After::Refused(vec![0]));
        check(&[failed, "None", failed], After::Refused(vec![0, 2]));
        check(&[failed, "None", "ValidationError"], After::Never);
        check(&["ItemCollectionSizeLimitExceeded", "None"], After::Never);
        check(&[], After::Never);
    }

    #[test]
    fn an_error_is_read_by_what_it_says_and_not_by_its_text() {
        let check = |error: TransactWriteItemsError, expected: After| {
            assert_eq!(after(&SdkError::service_error(error, ()), 0), expected);
        };
        let meta = |code: &str| ErrorMetadata::builder().code(code).build();
        let failed = reasons(&["ConditionalCheckFailed"]);
        let canceled =
            TransactionCanceledException::builder().set_cancellation_reasons(Some(failed));
        check(
            TransactWriteItemsError::TransactionCanceledException(canceled.build()),
            After::Before,
        );
        let code = "TransactionInProgressException";
        let busy = TransactionInProgressException::builder().meta(meta(code)).build();
        check(TransactWriteItemsError::TransactionInProgressException(busy), After::Again);
        let code = "IdempotentParameterMismatchException";
        let other = IdempotentParameterMismatchException::builder().meta(meta(code)).build();
        check(TransactWriteItemsError::IdempotentParameterMismatchException(other), After::Never);
        check(TransactWriteItemsError::generic(meta("ThrottlingException")), After::Again);
        check(TransactWriteItemsError::generic(meta("AccessDeniedException")), After::Never);
        let lost = SdkError::<TransactWriteItemsError, ()>::timeout_error("no answer");
        assert_eq!(after(&lost, 0), After::Again);
        let unbuilt = SdkError::<TransactWriteItemsError, ()>::construction_failure("no region");
        assert_eq!(after(&unbuilt, 0), After::Never);
    }
}
