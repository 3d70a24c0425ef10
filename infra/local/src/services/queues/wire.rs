//! SQS's JSON protocol.

use std::{collections::BTreeSet, time::Duration};

use serde_json::{Map, Value, json};

use super::{
    Queues, Settings,
    attributes::{self, queue_attributes},
    error::QueueError,
    fifo, is,
    message::{Message, Outgoing, Sent},
};
use crate::services::{
    answer::text,
    faults::{Kind, Rule},
};

/// SQS's limit for a message with its attributes, and for a whole batch: 1 MiB.
const MESSAGE_BYTES: usize = 1_048_576;
const BATCH_ENTRIES: usize = 10;
const DELAY_SECONDS: u64 = 900;
const VISIBILITY_SECONDS: u64 = 43_200;
const WAIT_SECONDS: u64 = 20;

/// The IAM action of an API action: batches need the right of the single one.
pub(in crate::services) fn iam_action(action: &str) -> String {
    format!("sqs:{}", action.strip_suffix("Batch").unwrap_or(action))
}

/// The ARN of a queue.
pub(super) fn arn_for(region: &str, name: &str) -> String {
    format!("arn:aws:sqs:{region}:000000000000:{name}")
}

impl Queues {
    /// The ARN of the queue that a request names by URL or by name; `*` where it names none.
    pub(in crate::services) fn resource(&self, request: &Value) -> String {
        let name = text(request, "QueueUrl").map(name_of).or_else(|| text(request, "QueueName"));
        match name {
            Some(name) => self.arn_of(name).unwrap_or_else(|_| self.arn_for(name)),
            None => text(request, "SourceArn").unwrap_or("*").to_owned(),
        }
    }

    pub(super) fn arn_for(&self, name: &str) -> String {
        arn_for(&self.shared.region, name)
    }

    fn arn_of(&self, name: &str) -> Result<String, QueueError> {
        let arn = self.arn_for(name);
        self.shared.settings(&arn).map(|_| arn)
    }

    pub(super) fn url_of(&self, name: &str) -> String {
        format!("https://sqs.{}.amazonaws.com/000000000000/{name}", self.shared.region)
    }

    /// Does one API action.
    pub(in crate::services) async fn call(
        &self,
        caller: &str,
        action: &str,
        request: &Value,
        strike: Option<&Rule>,
    ) -> Result<Value, QueueError> {
        match action {
            "ListQueues" => {
                return Ok(self.list(text(request, "QueueNamePrefix").unwrap_or_default()));
            }
            "GetQueueUrl" => {
                let name = text(request, "QueueName").ok_or(QueueError::Missing("QueueName"))?;
                self.arn_of(name)?;
                return Ok(json!({ "QueueUrl": self.url_of(name) }));
            }
            "CreateQueue" => return self.create(request),
            "StartMessageMoveTask" => return self.start_move(request),
            "ListMessageMoveTasks" => return self.list_moves(request),
            "CancelMessageMoveTask" => return self.cancel_move(request),
            "SendMessage"
            | "SendMessageBatch"
            | "ReceiveMessage"
            | "DeleteMessage"
            | "DeleteMessageBatch"
            | "ChangeMessageVisibility"
            | "ChangeMessageVisibilityBatch"
            | "GetQueueAttributes"
            | "SetQueueAttributes"
            | "ListDeadLetterSourceQueues"
            | "PurgeQueue" => {}
            other => return Err(QueueError::Unsupported(other.to_owned())),
        }
        let url = text(request, "QueueUrl").ok_or(QueueError::Missing("QueueUrl"))?;
        let arn = self.arn_of(name_of(url))?;
        match action {
            "SendMessage" => {
                let outgoing = outgoing(&arn, caller, request)?;
                Ok(sent_json(&self.send_once(&arn, request, outgoing, strike)?))
            }
            "SendMessageBatch" => {
                too_long(request)?;
                batch(request, strike, |entry| {
                    let outgoing = outgoing(&arn, caller, entry)?;
                    Ok(sent_json(&self.send_once(&arn, entry, outgoing, strike)?))
                })
            }
            "ReceiveMessage" => self.receive_over_http(&arn, request, strike).await,
            "DeleteMessage" => self.delete_entry(&arn, request, strike).map(|()| json!({})),
            "DeleteMessageBatch" => batch(request, strike, |entry| {
                self.delete_entry(&arn, entry, strike).map(|()| json!({}))
            }),
            "ChangeMessageVisibility" => {
                self.change_entry(&arn, request, strike).map(|()| json!({}))
            }
            "ChangeMessageVisibilityBatch" => batch(request, strike, |entry| {
                self.change_entry(&arn, entry, strike).map(|()| json!({}))
            }),
            "GetQueueAttributes" => {
                let names = names(request, "AttributeNames");
                let settings = self.shared.settings(&arn)?;
                let all = queue_attributes(&arn, &settings, self.counts(&arn)?);
                let wanted = attributes::wanted(&all, &names)?;
                Ok(if wanted.is_empty() { json!({}) } else { json!({ "Attributes": wanted }) })
            }
            "SetQueueAttributes" => self.set_attributes(&arn, request).map(|()| json!({})),
            "ListDeadLetterSourceQueues" => Ok(json!({ "queueUrls": self.sources_of(&arn) })),
            _ => {
                self.shared.store.purge(&arn)?;
                Ok(json!({}))
            }
        }
    }

    fn list(&self, prefix: &str) -> Value {
        let all = self.shared.settings.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        let urls: Vec<String> = all
            .values()
            .filter(|settings| settings.name.starts_with(prefix))
            .map(|settings| self.url_of(&settings.name))
            .collect();
        json!({ "QueueUrls": urls })
    }

    fn sources_of(&self, arn: &str) -> Vec<String> {
        let all = self.shared.settings.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        let is_source = |settings: &&Settings| {
            settings.redrive.as_ref().is_some_and(|(target, _)| target == arn)
        };
        all.values().filter(is_source).map(|settings| self.url_of(&settings.name)).collect()
    }

    fn set_attributes(&self, arn: &str, request: &Value) -> Result<(), QueueError> {
        let given = request
            .get("Attributes")
            .and_then(Value::as_object)
            .ok_or(QueueError::Missing("Attributes"))?;
        let mut settings = self.shared.settings(arn)?;
        attributes::set(&mut settings, given)?;
        let mut all =
            self.shared.settings.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        all.insert(arn.to_owned(), settings);
        Ok(())
    }

    async fn receive_over_http(
        &self,
        arn: &str,
        request: &Value,
        strike: Option<&Rule>,
    ) -> Result<Value, QueueError> {
        let max = limited(request, "MaxNumberOfMessages", 1, 10)?.unwrap_or(1);
        let visibility = limited(request, "VisibilityTimeout", 0, VISIBILITY_SECONDS)?;
        let default_wait = self.shared.settings(arn)?.receive_wait_ms;
        let wait = match limited(request, "WaitTimeSeconds", 0, WAIT_SECONDS)? {
            Some(seconds) => Duration::from_secs(seconds),
            None => Duration::from_millis(u64::try_from(default_wait).unwrap_or(0)),
        };
        let visibility_ms = visibility.and_then(|seconds| i64::try_from(seconds * 1000).ok());
        let max = usize::try_from(max).unwrap_or(1);
        let messages = self.shared.receive(arn, max, visibility_ms, wait, strike).await?;
        if messages.is_empty() {
            return Ok(json!({}));
        }
        let mut system = names(request, "MessageSystemAttributeNames");
        system.extend(names(request, "AttributeNames"));
        let own = names(request, "MessageAttributeNames");
        let messages: Vec<Value> =
            messages.iter().map(|message| received_json(message, &system, &own)).collect();
        Ok(json!({ "Messages": messages }))
    }

    fn delete_entry(
        &self,
        arn: &str,
        entry: &Value,
        strike: Option<&Rule>,
    ) -> Result<(), QueueError> {
        let receipt = text(entry, "ReceiptHandle").ok_or(QueueError::Missing("ReceiptHandle"))?;
        self.shared.delete(arn, receipt, is(strike, Kind::Lost))
    }

    fn change_entry(
        &self,
        arn: &str,
        entry: &Value,
        strike: Option<&Rule>,
    ) -> Result<(), QueueError> {
        let receipt = text(entry, "ReceiptHandle").ok_or(QueueError::Missing("ReceiptHandle"))?;
        let seconds = limited(entry, "VisibilityTimeout", 0, VISIBILITY_SECONDS)?
            .ok_or(QueueError::Missing("VisibilityTimeout"))?;
        let visibility_ms = i64::try_from(seconds * 1000).unwrap_or(0);
        self.shared.change_visibility(arn, receipt, visibility_ms, is(strike, Kind::Lost))
    }
}

fn name_of(url: &str) -> &str {
    url.rsplit('/').next().unwrap_or(url)
}

fn names(request: &Value, member: &str) -> Vec<String> {
    let list = request.get(member).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// An optional whole number within its limits.
pub(super) fn limited(
    request: &Value,
    member: &str,
    least: u64,
    most: u64,
) -> Result<Option<u64>, QueueError> {
    match request.get(member) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_u64().filter(|number| (least..=most).contains(number)) {
            Some(number) => Ok(Some(number)),
            None => Err(QueueError::Invalid(format!(
                "Value {value} for parameter {member} is invalid. Reason: Must be between {least} and {most}, if provided."
            ))),
        },
    }
}

fn outgoing(arn: &str, caller: &str, request: &Value) -> Result<Outgoing, QueueError> {
    let body = text(request, "MessageBody").ok_or(QueueError::Missing("MessageBody"))?;
    if body.is_empty() {
        return Err(QueueError::Missing("MessageBody"));
    }
    let carried = |letter: char| matches!(letter, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..);
    if !body.chars().all(carried) {
        return Err(QueueError::InvalidContents);
    }
    if let Some(bytes) = Some(size_of(request)).filter(|bytes| *bytes > MESSAGE_BYTES) {
        return Err(QueueError::Invalid(format!(
            "One or more parameters are invalid. Reason: Message must be shorter than {MESSAGE_BYTES} bytes; it has {bytes}."
        )));
    }
    let group_id = text(request, "MessageGroupId");
    if group_id.is_some_and(|group| {
        group.is_empty()
            || group.len() > 128
            || !group.chars().all(|letter| letter.is_ascii_graphic())
    }) {
        return Err(QueueError::Invalid("Value for parameter MessageGroupId is invalid. Reason: it must be 1 to 128 printable characters.".to_owned()));
    }
    fifo::check(arn, request)?;
    let delay = limited(request, "DelaySeconds", 0, DELAY_SECONDS)?;
    let trace_header = request
        .get("MessageSystemAttributes")
        .and_then(|attributes| attributes.get("AWSTraceHeader"))
        .and_then(|header| text(header, "StringValue"));
    Ok(Outgoing {
        body: body.to_owned(),
        message_attributes: attributes::of_message(request)?,
        group_id: group_id.map(str::to_owned),
        trace_header: trace_header.map(str::to_owned),
        delay_ms: delay.and_then(|seconds| i64::try_from(seconds * 1000).ok()),
        sender: caller.to_owned(),
    })
}

/// What counts towards the limit: the body, and each attribute's name, type and value.
fn size_of(request: &Value) -> usize {
    let body = text(request, "MessageBody").map_or(0, str::len);
    let attributes = request.get("MessageAttributes").and_then(Value::as_object);
    let attribute_bytes = |(name, value): (&String, &Value)| {
        let member = |member: &str| text(value, member).map_or(0, str::len);
        name.len() + member("DataType") + member("StringValue") + member("BinaryValue") / 4 * 3
    };
    body + attributes.map_or(0, |attributes| attributes.iter().map(attribute_bytes).sum())
}

fn too_long(request: &Value) -> Result<(), QueueError> {
    let entries = request.get("Entries").and_then(Value::as_array);
    let bytes: usize = entries.into_iter().flatten().map(size_of).sum();
    if bytes > MESSAGE_BYTES {
        let message = format!(
            "Batch requests cannot be longer than {MESSAGE_BYTES} bytes. You have sent {bytes} bytes."
        );
        return Err(QueueError::Batch("BatchRequestTooLong", message));
    }
    Ok(())
}

fn sent_json(sent: &Sent) -> Value {
    let mut json = json!({ "MessageId": sent.id, "MD5OfMessageBody": sent.md5_of_body });
    if let (Some(md5), Some(map)) = (&sent.md5_of_attributes, json.as_object_mut()) {
        map.insert("MD5OfMessageAttributes".to_owned(), Value::from(md5.as_str()));
    }
    json
}

fn received_json(message: &Message, system: &[String], own: &[String]) -> Value {
    let mut json = json!({
        "MessageId": message.id,
        "ReceiptHandle": message.receipt,
        "MD5OfBody": message.md5_of_body,
        "Body": message.body,
    });
    let Some(map) = json.as_object_mut() else { return json };
    let system_wanted = |name: &str| system.iter().any(|wanted| wanted == "All" || wanted == name);
    let given: Map<String, Value> = message
        .attributes
        .iter()
        .filter(|(name, _)| system_wanted(name))
        .map(|(name, value)| (name.clone(), Value::from(value.as_str())))
        .collect();
    if !given.is_empty() {
        map.insert("Attributes".to_owned(), Value::Object(given));
    }
    let own_wanted = |name: &str| {
        own.iter().any(|wanted| {
            wanted == "All"
                || wanted == name
                || wanted.strip_suffix(".*").is_some_and(|prefix| name.starts_with(prefix))
        })
    };
    let given: Map<String, Value> = message
        .message_attributes
        .iter()
        .filter(|(name, _)| own_wanted(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    if let Some(md5) = super::digest::of_attributes(&given) {
        map.insert("MD5OfMessageAttributes".to_owned(), Value::from(md5));
        map.insert("MessageAttributes".to_owned(), Value::Object(given));
    }
    json
}

/// Does each entry of a batch by itself; what fails is told by entry, in an answer with status 200.
fn batch(
    request: &Value,
    strike: Option<&Rule>,
    mut each: impl FnMut(&Value) -> Result<Value, QueueError>,
) -> Result<Value, QueueError> {
    let entries = request.get("Entries").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    check_batch(entries)?;
    let mut successful = Vec::new();
    let mut failed = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        let id = text(entry, "Id").unwrap_or_default();
        let outcome = if index == 0 && is(strike, Kind::Partial) {
            Err(QueueError::Injected)
        } else {
            each(entry)
        };
        match outcome {
            Ok(mut result) => {
                if let Some(map) = result.as_object_mut() {
                    map.insert("Id".to_owned(), Value::from(id));
                }
                successful.push(result);
            }
            Err(error) => failed.push(json!({
                "Id": id,
                "SenderFault": error.is_senders_fault(),
                "Code": error.entry_code(),
                "Message": error.to_string(),
            })),
        }
    }
    Ok(json!({ "Successful": successful, "Failed": failed }))
}

fn check_batch(entries: &[Value]) -> Result<(), QueueError> {
    if entries.is_empty() {
        return Err(QueueError::Batch(
            "EmptyBatchRequest",
            "There should be at least one entry in the request.".to_owned(),
        ));
    }
    if entries.len() > BATCH_ENTRIES {
        let message = format!(
            "Maximum number of entries per request are {BATCH_ENTRIES}. You have sent {}.",
            entries.len()
        );
        return Err(QueueError::Batch("TooManyEntriesInBatchRequest", message));
    }
    let mut ids = BTreeSet::new();
    for entry in entries {
        let id = text(entry, "Id").unwrap_or_default();
        let plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
        if id.is_empty() || id.len() > 80 || !id.chars().all(plain) {
            let message = "A batch entry id can only contain alphanumeric characters, hyphens and underscores. It can be at most 80 letters long.";
            return Err(QueueError::Batch("InvalidBatchEntryId", message.to_owned()));
        }
        if !ids.insert(id) {
            return Err(QueueError::Batch(
                "BatchEntryIdsNotDistinct",
                format!("Id {id} repeated."),
            ));
        }
    }
    Ok(())
}
