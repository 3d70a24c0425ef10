//! Tables, queues, buckets, keys and buses.

use std::time::Duration;

use serde_json::{Value, json};

use super::{fields::Fields, names::Known, node::Node};
use crate::wiring::{Queue, Table};

pub(super) fn table(logical_id: &str, known: &Known, fields: &Fields<'_>) -> Table {
    let mut create = json!({
        "TableName": known.name,
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": list(fields, "AttributeDefinitions", &["AttributeName", "AttributeType"]),
        "KeySchema": list(fields, "KeySchema", &["AttributeName", "KeyType"]),
    });
    fields.take("TableName");
    if !fields.has("BillingMode") {
        fields.problem("AWS::DynamoDB::Table needs BillingMode: PAY_PER_REQUEST; provisioned throughput is not honoured by the local host");
    }
    fields.only("BillingMode", "PAY_PER_REQUEST");
    for name in ["GlobalSecondaryIndexes", "LocalSecondaryIndexes"] {
        let indexes: Vec<Value> = fields.each(name).iter().map(index).collect();
        if let (Some(map), false) = (create.as_object_mut(), indexes.is_empty()) {
            map.insert(name.to_owned(), Value::Array(indexes));
        }
    }
    if let Some(stream) = fields.inside("StreamSpecification") {
        let view = stream.required("StreamViewType").unwrap_or_default();
        if let Some(map) = create.as_object_mut() {
            map.insert(
                "StreamSpecification".to_owned(),
                json!({ "StreamEnabled": true, "StreamViewType": view }),
            );
        }
        stream.finish();
    }
    let ttl_attribute = fields.inside("TimeToLiveSpecification").and_then(|ttl| {
        let attribute = ttl.required("AttributeName");
        let enabled = ttl.boolean("Enabled").unwrap_or(false);
        ttl.finish();
        attribute.filter(|_| enabled)
    });
    Table {
        logical_id: logical_id.to_owned(),
        name: known.name.clone(),
        arn: known.attributes.get("Arn").cloned().unwrap_or_default(),
        create,
        ttl_attribute,
        stream_arn: known.attributes.get("StreamArn").cloned(),
    }
}

/// A list of flat mappings, copied member by member.
fn list(fields: &Fields<'_>, name: &'static str, members: &[&'static str]) -> Value {
    fields
        .each(name)
        .iter()
        .map(|item| {
            let copied = members
                .iter()
                .filter_map(|member| {
                    Some(((*member).to_owned(), Value::from(item.required(member)?)))
                })
                .collect();
            item.finish();
            Value::Object(copied)
        })
        .collect()
}

fn index(fields: &Fields<'_>) -> Value {
    let name = fields.required("IndexName").unwrap_or_default();
    let keys = list(fields, "KeySchema", &["AttributeName", "KeyType"]);
    let projection = fields.inside("Projection").map_or(Value::Null, |projection| {
        let kind = projection.required("ProjectionType").unwrap_or_default();
        let attributes = projection.texts("NonKeyAttributes");
        projection.finish();
        match attributes {
            Some(attributes) => json!({ "ProjectionType": kind, "NonKeyAttributes": attributes }),
            None => json!({ "ProjectionType": kind }),
        }
    });
    fields.finish();
    json!({ "IndexName": name, "KeySchema": keys, "Projection": projection })
}

pub(super) fn queue(logical_id: &str, known: &Known, fields: &Fields<'_>) -> Queue {
    fields.take("QueueName");
    let seconds = |name: &'static str, default: u64| {
        Duration::from_secs(fields.number(name).unwrap_or(default))
    };
    // the defaults are SQS's own
    let queue = Queue {
        logical_id: logical_id.to_owned(),
        name: known.name.clone(),
        arn: known.attributes.get("Arn").cloned().unwrap_or_default(),
        visibility: seconds("VisibilityTimeout", 30),
        retention: seconds("MessageRetentionPeriod", 345_600),
        delay: seconds("DelaySeconds", 0),
        receive_wait: seconds("ReceiveMessageWaitTimeSeconds", 0),
        redrive: fields.inside("RedrivePolicy").and_then(|policy| redrive(&policy)),
    };
    let limits = [
        ("VisibilityTimeout", queue.visibility, 0, 43_200),
        ("MessageRetentionPeriod", queue.retention, 60, 1_209_600),
        ("DelaySeconds", queue.delay, 0, 900),
        ("ReceiveMessageWaitTimeSeconds", queue.receive_wait, 0, 20),
    ];
    for (name, value, least, most) in limits {
        if !(least..=most).contains(&value.as_secs()) {
            fields.problem_with(
                name,
                format!(
                    "AWS::SQS::Queue {name} is {}; SQS takes {least} to {most}",
                    value.as_secs()
                ),
            );
        }
    }
    queue
}

fn redrive(policy: &Fields<'_>) -> Option<(String, u32)> {
    let target = policy.required("deadLetterTargetArn");
    let count = policy.number("maxReceiveCount").and_then(|count| u32::try_from(count).ok());
    policy.finish();
    if !count.is_some_and(|count| (1..=1000).contains(&count)) {
        policy.problem_with(
            "maxReceiveCount",
            "AWS::SQS::Queue RedrivePolicy.maxReceiveCount must be 1 to 1000",
        );
    }
    Some((target?, count?))
}

/// Buckets, keys and buses: a name or an ARN, nothing else to honour.
pub(super) fn named(fields: &Fields<'_>, name_property: Option<&'static str>) {
    if let Some(name) = name_property {
        fields.take(name);
    }
}

/// The names that a resource depends on.
pub(super) fn depends_on(node: &Node) -> Vec<String> {
    match node.items() {
        Some(items) => items.iter().filter_map(Node::scalar).collect(),
        None => node.scalar().into_iter().collect(),
    }
}
