//! What a template says, after its parameters and intrinsic functions are resolved.
//!
//! Produced by the template reader, consumed by everything that runs. Nothing here knows about YAML.

use std::{collections::BTreeMap, time::Duration};

/// The whole stack.
#[derive(Clone, Debug, Default)]
pub struct Wiring {
    /// `AWS::Region`.
    pub region: String,
    /// DynamoDB tables.
    pub tables: Vec<Table>,
    /// SQS queues.
    pub queues: Vec<Queue>,
    /// S3 buckets, by name.
    pub buckets: Vec<String>,
    /// EventBridge buses, by name.
    pub buses: Vec<String>,
    /// KMS keys, by ARN.
    pub keys: Vec<String>,
    /// HTTP APIs with their routes.
    pub apis: Vec<HttpApi>,
    /// Lambda functions.
    pub functions: Vec<Function>,
}

/// One DynamoDB table.
#[derive(Clone, Debug)]
pub struct Table {
    /// The logical id in the template.
    pub logical_id: String,
    /// The physical name that `Ref` gives.
    pub name: String,
    /// The ARN.
    pub arn: String,
    /// The `CreateTable` request that makes it: key schema, attributes, indexes, stream.
    pub create: serde_json::Value,
    /// The attribute that holds an item's expiry, in epoch seconds.
    pub ttl_attribute: Option<String>,
    /// The ARN of its stream, where it has one.
    pub stream_arn: Option<String>,
}

/// One SQS queue.
#[derive(Clone, Debug)]
pub struct Queue {
    /// The logical id in the template.
    pub logical_id: String,
    /// The physical name.
    pub name: String,
    /// The ARN.
    pub arn: String,
    /// `VisibilityTimeout`.
    pub visibility: Duration,
    /// `MessageRetentionPeriod`.
    pub retention: Duration,
    /// `DelaySeconds`.
    pub delay: Duration,
    /// `ReceiveMessageWaitTimeSeconds`.
    pub receive_wait: Duration,
    /// `RedrivePolicy`: the ARN of the dead-letter queue, and `maxReceiveCount`.
    pub redrive: Option<(String, u32)>,
}

/// One HTTP API.
#[derive(Clone, Debug)]
pub struct HttpApi {
    /// The logical id in the template.
    pub logical_id: String,
    /// Whether callers must present the local token, which stands for IAM.
    pub iam: bool,
}

/// One Lambda function.
#[derive(Clone, Debug)]
pub struct Function {
    /// The logical id in the template.
    pub logical_id: String,
    /// The physical name.
    pub name: String,
    /// The binary that runs (`Metadata.BuildProperties.Binary`).
    pub binary: String,
    /// `Timeout`.
    pub timeout: Duration,
    /// `MemorySize` in MB.
    pub memory_mb: u32,
    /// `ReservedConcurrentExecutions`.
    pub reserved_concurrency: Option<u32>,
    /// The environment, resolved.
    pub environment: BTreeMap<String, String>,
    /// The logical id of its role.
    pub role: String,
    /// `EventInvokeConfig`.
    pub unattended: Unattended,
    /// What calls it.
    pub events: Vec<EventSource>,
}

/// What becomes of a call that nobody waits for, if it fails: `EventInvokeConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unattended {
    /// `MaximumRetryAttempts`.
    pub retries: Option<u32>,
    /// `MaximumEventAgeInSeconds`.
    pub age: Option<Duration>,
    /// `DestinationConfig.OnFailure`: a queue's ARN.
    pub on_failure: Option<String>,
}

/// What calls a function.
#[derive(Clone, Debug)]
pub enum EventSource {
    /// A route of an HTTP API.
    Http {
        /// The API's logical id.
        api: String,
        /// `POST`, `GET`, ... or `ANY`.
        method: String,
        /// The route path, such as `/webhooks/{source}` or `/v1/{proxy+}`.
        path: String,
        /// `TimeoutInMillis` of the integration.
        timeout: Duration,
    },
    /// An SQS queue.
    Queue {
        /// The queue's ARN.
        arn: String,
        /// `BatchSize`.
        batch: usize,
        /// `MaximumBatchingWindowInSeconds`.
        window: Duration,
        /// `ReportBatchItemFailures` is set.
        item_failures: bool,
        /// `ScalingConfig.MaximumConcurrency`.
        max_concurrency: Option<u32>,
    },
    /// A DynamoDB stream.
    Stream {
        /// The stream's ARN.
        arn: String,
        /// `BatchSize`.
        batch: usize,
        /// `MaximumBatchingWindowInSeconds`.
        window: Duration,
        /// `ReportBatchItemFailures` is set.
        item_failures: bool,
        /// `MaximumRetryAttempts`; `None` is for ever.
        retries: Option<u32>,
        /// `MaximumRecordAgeInSeconds`; `None` is as long as the stream keeps them.
        max_age: Option<Duration>,
        /// `BisectBatchOnFunctionError` is set.
        bisect: bool,
        /// The ARN of the queue of `DestinationConfig.OnFailure`.
        on_failure: Option<String>,
        /// `ParallelizationFactor`.
        lanes: u64,
        /// `FilterCriteria` patterns; one must match. Empty: all records pass.
        filters: Vec<serde_json::Value>,
    },
    /// An EventBridge rule.
    Rule {
        /// The name of the bus.
        bus: String,
        /// `Pattern`.
        pattern: serde_json::Value,
    },
    /// An EventBridge schedule.
    Schedule {
        /// The schedule's name.
        name: String,
        /// Time between two runs.
        every: Duration,
        /// The event it sends.
        input: serde_json::Value,
    },
}
