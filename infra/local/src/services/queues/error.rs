//! What can go wrong with a queue, and what SQS calls it.

use super::super::answer::AwsError;

/// Why a queue did not do it.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    /// No queue of this name or ARN.
    #[error(
        "the queue {0} does not exist; queues come from the template, or CreateQueue makes them"
    )]
    NoSuchQueue(String),
    /// A queue of this name with other attributes.
    #[error(
        "A queue already exists with the same name and a different value for an attribute: {0}"
    )]
    Exists(String),
    /// A queue that a parameter names by its ARN does not exist.
    #[error("The resource that you specified for the {0} parameter doesn't exist.")]
    NoSuchResource(&'static str),
    /// A task handle that no start gave out.
    #[error("Task does not exist.")]
    NoSuchMove,
    /// A message move task that does not run cannot be cancelled.
    #[error("the message move task does not run; only one that runs can be cancelled")]
    MoveIsOver,
    /// A receipt handle that no receive gave out.
    #[error("the receipt handle is not one that a receive of this queue gave out")]
    InvalidReceipt,
    /// The message is gone, visible again, or was received once more since.
    #[error("the message of this receipt handle is not in flight")]
    NotInFlight,
    /// A value out of its limits.
    #[error("{0}")]
    Invalid(String),
    /// A parameter that must be there.
    #[error("the request must contain the parameter {0}")]
    Missing(&'static str),
    /// Characters that SQS does not carry.
    #[error("the message body holds characters that SQS does not carry")]
    InvalidContents,
    /// A batch that is refused as a whole; the first is SQS's name for it.
    #[error("{1}")]
    Batch(&'static str, String),
    /// An attribute that a queue does not have here.
    #[error("the attribute {0} is not known to the local host")]
    InvalidAttributeName(String),
    /// An action that the local host does not do.
    #[error("the action {0} is not offered by the local host")]
    Unsupported(String),
    /// A fault rule struck.
    #[error("a fault rule of the local host struck this call")]
    Injected,
    /// The file that holds the messages.
    #[error(
        "the queues' file cannot be used; is the disk full, or the state folder of another version?"
    )]
    Store(#[source] rusqlite::Error),
}

impl From<rusqlite::Error> for QueueError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Store(error)
    }
}

impl QueueError {
    /// The shape name and the older query code, by which the SDKs tell errors apart.
    fn names(&self) -> (String, String) {
        let old = |name: &str| format!("AWS.SimpleQueueService.{name}");
        let same = |name: &str| (name.to_owned(), name.to_owned());
        match self {
            Self::NoSuchQueue(_) => ("QueueDoesNotExist".to_owned(), old("NonExistentQueue")),
            Self::Exists(_) => ("QueueNameExists".to_owned(), "QueueAlreadyExists".to_owned()),
            Self::NoSuchResource(_) | Self::NoSuchMove => same("ResourceNotFoundException"),
            Self::InvalidReceipt => same("ReceiptHandleIsInvalid"),
            Self::NotInFlight => ("MessageNotInflight".to_owned(), old("MessageNotInflight")),
            Self::Invalid(_) => {
                ("InvalidParameterValueException".to_owned(), "InvalidParameterValue".to_owned())
            }
            Self::Missing(_) => same("MissingParameter"),
            Self::InvalidContents => same("InvalidMessageContents"),
            Self::Batch(name, _) => ((*name).to_owned(), old(name)),
            Self::InvalidAttributeName(_) => same("InvalidAttributeName"),
            Self::Unsupported(_) | Self::MoveIsOver => {
                ("UnsupportedOperation".to_owned(), old("UnsupportedOperation"))
            }
            Self::Injected | Self::Store(_) => same("InternalError"),
        }
    }

    /// The code of one failed entry of a batch.
    pub(super) fn entry_code(&self) -> String {
        self.names().1
    }

    pub(super) fn is_senders_fault(&self) -> bool {
        !matches!(self, Self::Store(_) | Self::Injected)
    }

    pub(in crate::services) fn into_aws(self) -> AwsError {
        let (shape, code) = self.names();
        let status = match self {
            Self::NoSuchResource(_) | Self::NoSuchMove => 404,
            Self::Store(_) | Self::Injected => 500,
            _ => 400,
        };
        AwsError {
            status,
            query_code: Some(code),
            ..AwsError::sender(format!("com.amazonaws.sqs#{shape}"), self.to_string())
        }
    }
}
