//! A message as it is received, and in the shape that Lambda hands to a function.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// A received message.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// The message id; stays the same on its way to the dead-letter queue.
    pub id: String,
    /// The handle of this receive.
    pub receipt: String,
    /// The body.
    pub body: String,
    /// MD5 of the body, in hex.
    pub md5_of_body: String,
    /// MD5 of the message attributes, in hex; `None` without attributes.
    pub md5_of_attributes: Option<String>,
    /// System attributes: `ApproximateReceiveCount`, `SentTimestamp`, ...
    pub attributes: BTreeMap<String, String>,
    /// Message attributes as the API has them: name to `DataType` and `StringValue` or `BinaryValue`.
    pub message_attributes: Map<String, Value>,
}

impl Message {
    /// This message as one element of `Records` of the event that Lambda makes.
    #[must_use]
    pub fn lambda_record(&self, queue_arn: &str, region: &str) -> Value {
        let message_attributes: Map<String, Value> = self
            .message_attributes
            .iter()
            .map(|(name, attribute)| {
                let mut lowered = Map::new();
                for (from, to) in [
                    ("StringValue", "stringValue"),
                    ("BinaryValue", "binaryValue"),
                    ("DataType", "dataType"),
                ] {
                    if let Some(value) = attribute.get(from) {
                        lowered.insert(to.to_owned(), value.clone());
                    }
                }
                lowered.insert("stringListValues".to_owned(), json!([]));
                lowered.insert("binaryListValues".to_owned(), json!([]));
                (name.clone(), Value::Object(lowered))
            })
            .collect();
        let mut record = json!({
            "messageId": self.id,
            "receiptHandle": self.receipt,
            "body": self.body,
            "attributes": self.attributes,
            "messageAttributes": message_attributes,
            "md5OfBody": self.md5_of_body,
            "eventSource": "aws:sqs",
            "eventSourceARN": queue_arn,
            "awsRegion": region,
        });
        if let (Some(md5), Some(map)) = (&self.md5_of_attributes, record.as_object_mut()) {
            map.insert("md5OfMessageAttributes".to_owned(), Value::from(md5.as_str()));
        }
        record
    }
}

/// Approximate numbers of messages, as SQS calls them; here they are exact.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// `ApproximateNumberOfMessages`.
    pub visible: u64,
    /// `ApproximateNumberOfMessagesNotVisible`.
    pub in_flight: u64,
    /// `ApproximateNumberOfMessagesDelayed`.
    pub delayed: u64,
}

/// What a sender gives.
#[derive(Clone, Debug, Default)]
pub(super) struct Outgoing {
    pub(super) body: String,
    pub(super) message_attributes: Map<String, Value>,
    pub(super) group_id: Option<String>,
    pub(super) trace_header: Option<String>,
    /// `DelaySeconds` of this message; the queue's otherwise.
    pub(super) delay_ms: Option<i64>,
    pub(super) sender: String,
}

/// What a sender learns.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) id: String,
    pub(super) md5_of_body: String,
    pub(super) md5_of_attributes: Option<String>,
}
