//! What the pool knows of a function, and how an invocation can end.

use std::{collections::BTreeMap, fmt, future::Future, path::PathBuf, time::Duration};

use bytes::Bytes;
use serde_json::{Value, json};

/// A Lambda answer ends at 6 MB: 6,291,556 bytes, as its error message says.
pub const ANSWER_LIMIT: usize = 6_291_556;

/// A Lambda event ends at 6 MB, in bytes.
pub const EVENT_LIMIT: usize = 6_291_456;

/// One function as its processes see it.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The logical id in the template.
    pub logical_id: String,
    /// The physical name.
    pub name: String,
    /// The ARN.
    pub arn: String,
    /// The program that runs.
    pub program: PathBuf,
    /// How long one invocation may take.
    pub timeout: Duration,
    /// How long a process may take until it asks for its first event; 10 s on AWS.
    pub init_timeout: Duration,
    /// `MemorySize` in MB; told to the function, not enforced.
    pub memory_mb: u32,
    /// How many processes may live at a time; at least one.
    pub limit: usize,
    /// The whole environment but for what belongs to one process.
    pub environment: BTreeMap<String, String>,
    /// Where its output goes.
    pub log: PathBuf,
}

/// How an invocation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The function answered with these bytes.
    Answer(Bytes),
    /// The function failed.
    Failed(Failure),
}

/// Why an invocation failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Who or what ended it.
    pub cause: Cause,
    /// `errorType`, in Lambda's words where it has one.
    pub kind: String,
    /// `errorMessage`: what a person reads.
    pub message: String,
}

/// Who or what ended an invocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The function reported an error itself.
    Reported,
    /// It took longer than its timeout and was killed.
    TimedOut,
    /// Its process ended in the middle.
    Died,
    /// No process of the function came as far as asking for an event.
    Init,
    /// The host is stopping.
    Stopping,
}

impl Failure {
    pub(crate) fn new(cause: Cause, kind: &str, message: impl Into<String>) -> Self {
        Self { cause, kind: kind.to_owned(), message: message.into() }
    }

    /// The failure as Lambda's `Invoke` would show it.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({ "errorType": self.kind, "errorMessage": self.message })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.message)
    }
}

/// Something that runs an event: a pool, or a script in a test.
pub trait Invoke: Clone + Send + Sync + 'static {
    /// Runs one event to its end.
    fn invoke(&self, event: Bytes) -> impl Future<Output = Outcome> + Send;
}
