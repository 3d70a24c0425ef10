//! Attributes of queues and of messages, as the API names them.

use serde_json::{Map, Value, json};

use super::{Settings, error::QueueError, message::Counts};

/// Everything `GetQueueAttributes` knows of a queue.
pub(super) fn queue_attributes(
    arn: &str,
    settings: &Settings,
    counts: Counts,
) -> Map<String, Value> {
    let seconds = |ms: i64| Value::from((ms / 1000).to_string());
    let mut all = Map::new();
    let mut put = |name: &str, value: Value| all.insert(name.to_owned(), value);
    put("QueueArn", Value::from(arn));
    put("ApproximateNumberOfMessages", Value::from(counts.visible.to_string()));
    put("ApproximateNumberOfMessagesNotVisible", Value::from(counts.in_flight.to_string()));
    put("ApproximateNumberOfMessagesDelayed", Value::from(counts.delayed.to_string()));
    put("VisibilityTimeout", seconds(settings.visibility_ms));
    put("MessageRetentionPeriod", seconds(settings.retention_ms));
    put("DelaySeconds", seconds(settings.delay_ms));
    put("ReceiveMessageWaitTimeSeconds", seconds(settings.receive_wait_ms));
    put("MaximumMessageSize", Value::from("1048576"));
    if super::fifo::is(arn) {
        put("FifoQueue", Value::from("true"));
    }
    if let Some((target, most)) = &settings.redrive {
        let policy = json!({ "deadLetterTargetArn": target, "maxReceiveCount": most });
        put("RedrivePolicy", Value::from(policy.to_string()));
    }
    all
}

/// The attributes that a request names; `All` is all.
pub(super) fn wanted(
    all: &Map<String, Value>,
    names: &[String],
) -> Result<Map<String, Value>, QueueError> {
    if names.iter().any(|name| name == "All") {
        return Ok(all.clone());
    }
    let mut found = Map::new();
    for name in names {
        match all.get(name) {
            Some(value) => {
                found.insert(name.clone(), value.clone());
            }
            None if name == "RedrivePolicy" => {}
            None => return Err(QueueError::InvalidAttributeName(name.clone())),
        }
    }
    Ok(found)
}

/// Applies `SetQueueAttributes`, as a whole or not at all. It holds until the host restarts: then the template's holds again.
pub(super) fn set(settings: &mut Settings, given: &Map<String, Value>) -> Result<(), QueueError> {
    let mut changed = settings.clone();
    for (name, value) in given {
        let text = value.as_str().unwrap_or_default();
        let seconds = |least: i64, most: i64| {
            let number = text.parse::<i64>().ok().filter(|number| (least..=most).contains(number));
            number.map(|number| number * 1000).ok_or_else(|| {
                QueueError::Invalid(format!("Invalid value for the parameter {name}."))
            })
        };
        match name.as_str() {
            "VisibilityTimeout" => changed.visibility_ms = seconds(0, 43_200)?,
            "MessageRetentionPeriod" => changed.retention_ms = seconds(60, 1_209_600)?,
            "DelaySeconds" => changed.delay_ms = seconds(0, 900)?,
            "ReceiveMessageWaitTimeSeconds" => changed.receive_wait_ms = seconds(0, 20)?,
            "RedrivePolicy" if text.is_empty() => changed.redrive = None,
            "RedrivePolicy" => changed.redrive = Some(redrive(text)?),
            _ => return Err(QueueError::InvalidAttributeName(name.clone())),
        }
    }
    *settings = changed;
    Ok(())
}

fn redrive(text: &str) -> Result<(String, u32), QueueError> {
    let read = || {
        let policy: Value = serde_json::from_str(text).ok()?;
        let target = policy.get("deadLetterTargetArn")?.as_str()?.to_owned();
        let count = policy.get("maxReceiveCount")?;
        let most = count.as_u64().or_else(|| count.as_str()?.parse().ok())?;
        Some((target, u32::try_from(most).ok().filter(|most| (1..=1000).contains(most))?))
    };
    read().ok_or_else(|| {
        QueueError::Invalid("Invalid value for the parameter RedrivePolicy.".to_owned())
    })
}

/// The message attributes of a send: at most ten, each with a type and a value of it.
pub(super) fn of_message(request: &Value) -> Result<Map<String, Value>, QueueError> {
    let Some(given) = request.get("MessageAttributes").and_then(Value::as_object) else {
        return Ok(Map::new());
    };
    if given.len() > 10 {
        return Err(QueueError::Invalid(format!(
            "Number of message attributes [{}] exceeds the allowed maximum [10].",
            given.len()
        )));
    }
    let mut attributes = Map::new();
    for (name, attribute) in given {
        let member = |member: &str| {
            attribute.get(member).and_then(Value::as_str).filter(|text| !text.is_empty())
        };
        let kind = member("DataType").unwrap_or_default();
        let base = kind.split('.').next().unwrap_or_default();
        let value_member = match base {
            "String" | "Number" => "StringValue",
            "Binary" => "BinaryValue",
            _ => {
                return Err(QueueError::Invalid(format!(
                    "The type of message (user) attribute '{name}' is invalid. You must use only the following supported type prefixes: Binary, Number, String."
                )));
            }
        };
        let Some(value) = member(value_member) else {
            return Err(QueueError::Invalid(format!(
                "Message (user) attribute '{name}' must contain a non-empty value of type '{kind}'."
            )));
        };
        attributes.insert(name.clone(), json!({ "DataType": kind, value_member: value }));
    }
    Ok(attributes)
}
