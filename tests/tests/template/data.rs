//! Rules about what holds data.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::stack::Stack;

/// The types of resource that hold data or messages.
const STATEFUL: &[&str] = &[
    "AWS::DynamoDB::Table",
    "AWS::KMS::Key",
    "AWS::Logs::LogGroup",
    "AWS::S3::Bucket",
    "AWS::SQS::Queue",
];

/// What may go with its stack: the tables say again what stood in it, or nobody needs it later.
const MAY_GO: &[&str] = &[
    "AdminAccessLogs",
    "SubscriberAccessLogs",
    "FunctionLogs",
    "InboundQueue",
    "IngressAccessLogs",
    "ScheduleDlq",
    "WakeQueue",
];

/// What was deployed once: logical id, and what CloudFormation replaces the resource for when it changes. A line may be
/// added; to change one is to lose what the resource holds.
const DEPLOYED: &[(&str, &str)] = &[
    ("BodyBucket", ""),
    ("DeliveriesTable", "pk S HASH, sk S RANGE"),
    ("InboundDlq", ""),
    ("InboxTable", "pk S HASH, sk S RANGE"),
    ("OutboxTable", "pk S HASH, sk S RANGE"),
    ("PublishFailures", ""),
    ("RegistryTable", "pk S HASH, sk S RANGE"),
    ("SecretsKey", ""),
    ("StateTable", "pk S HASH, sk S RANGE"),
    ("StreamFailures", ""),
    ("WakeDlq", ""),
];

/// Properties besides keys for which CloudFormation replaces a resource that holds data.
const REPLACING: &[&str] = &[
    "BucketName",
    "FifoQueue",
    "ImportSourceSpecification",
    "KeySpec",
    "KeyUsage",
    "LogGroupName",
    "QueueName",
    "TableName",
];

/// The indexes: table, name, partition key, sort key.
const INDEXES: &[(&str, &str, &str, &str)] = &[
    ("DeliveriesTable", "by_wake", "wake_shard", "wake_at"),
    ("InboxTable", "by_dead", "dead_shard", "dead_at"),
    ("InboxTable", "by_due", "pending_shard", "due_at"),
    ("InboxTable", "by_source", "source_day", "received_at"),
    ("OutboxTable", "by_unrelayed", "unrelayed_shard", "occurred_at"),
];

/// Both policies are written down, retain what holds data, and tables are protected and recoverable.
pub(crate) fn kept(stack: &Stack) -> Vec<String> {
    let mut found = Vec::new();
    for (id, resource) in STATEFUL.iter().flat_map(|kind| stack.resources(kind)) {
        let policies = ["DeletionPolicy", "UpdateReplacePolicy"];
        for policy in policies {
            let kept = match resource[policy].as_str() {
                Some("Retain") => true,
                Some("RetainExceptOnCreate") => policy == "DeletionPolicy",
                Some("Delete") => MAY_GO.contains(&id),
                _ => false,
            };
            if !kept {
                found.push(format!("{id}: {policy} is {}", resource[policy]));
            }
        }
        for name in REPLACING.iter().filter(|name| name.ends_with("Name")) {
            if resource["Properties"].get(name).is_some() {
                found.push(format!("{id}: a {name} of our own stands in the way of a replacement"));
            }
        }
    }
    for (id, table) in stack.resources("AWS::DynamoDB::Table") {
        let properties = &table["Properties"];
        let protected = &properties["DeletionProtectionEnabled"];
        for environment in ["default", "prod", "staging"] {
            if stack.text(protected, environment).as_deref() != Some("true") {
                found.push(format!("{id}: may be deleted in {environment}"));
            }
        }
        if properties["PointInTimeRecoverySpecification"]["PointInTimeRecoveryEnabled"] != true {
            found.push(format!("{id}: cannot be recovered"));
        }
        if properties["BillingMode"] != "PAY_PER_REQUEST" {
            found.push(format!("{id}: is not on demand"));
        }
    }
    found
}

/// What CloudFormation would replace a resource for.
fn identity(resource: &Value) -> String {
    let properties = &resource["Properties"];
    let types = attribute_types(properties);
    let keys = properties["KeySchema"].as_array().into_iter().flatten().map(|key| {
        let name = key["AttributeName"].as_str().unwrap_or_default();
        let kind = types.get(name).copied().unwrap_or_default();
        format!("{name} {kind} {}", key["KeyType"].as_str().unwrap_or_default())
    });
    let others =
        REPLACING.iter().filter_map(|name| Some(format!("{name} {}", properties.get(name)?)));
    keys.chain(others).collect::<Vec<_>>().join(", ")
}

fn attribute_types(properties: &Value) -> BTreeMap<&str, &str> {
    let attributes = properties["AttributeDefinitions"].as_array().into_iter().flatten();
    attributes
        .filter_map(|a| Some((a["AttributeName"].as_str()?, a["AttributeType"].as_str()?)))
        .collect()
}

/// No resource that was deployed is gone, renamed or replaced.
pub(crate) fn same_as_deployed(stack: &Stack) -> Vec<String> {
    let mut found = Vec::new();
    for (id, expected) in DEPLOYED {
        let resource = stack.resource(id);
        let identity = identity(resource);
        if resource.is_null() || identity != *expected {
            found.push(format!("{id} was deployed as \"{expected}\", now it is \"{identity}\""));
        }
    }
    for (id, _) in STATEFUL.iter().flat_map(|kind| stack.resources(kind)) {
        if !MAY_GO.contains(&id) && !DEPLOYED.iter().any(|(known, _)| *known == id) {
            found.push(format!("{id} is new: write it down in DEPLOYED"));
        }
    }
    found
}

/// The indexes are those the code asks, sparse and keys only, but for the age of what is pending; one table has a stream;
/// all but one expire items.
pub(crate) fn indexes(stack: &Stack) -> Vec<String> {
    let mut present = Vec::new();
    let mut found = Vec::new();
    for (id, table) in stack.resources("AWS::DynamoDB::Table") {
        let properties = &table["Properties"];
        let types = attribute_types(properties);
        for index in properties["GlobalSecondaryIndexes"].as_array().into_iter().flatten() {
            let key =
                |at: usize| index["KeySchema"][at]["AttributeName"].as_str().unwrap_or_default();
            present.push((id, index["IndexName"].as_str().unwrap_or_default(), key(0), key(1)));
            let projection = match index["IndexName"].as_str() {
                Some("by_due") => {
                    json!({ "ProjectionType": "INCLUDE", "NonKeyAttributes": ["received_at"] })
                }
                _ => json!({ "ProjectionType": "KEYS_ONLY" }),
            };
            if index["Projection"] != projection {
                found.push(format!("{id}: an index holds something else than {projection}"));
            }
            if types.get(key(0)) != Some(&"S") || types.get(key(1)) != Some(&"N") {
                found.push(format!("{id}: an index is not keyed by a string and a number"));
            }
        }
        let stream = properties["StreamSpecification"]["StreamViewType"].as_str();
        if stream != (id == "OutboxTable").then_some("NEW_IMAGE") {
            found.push(format!("{id}: its stream is {stream:?}"));
        }
        let expiry = properties["TimeToLiveSpecification"]["AttributeName"].as_str();
        if expiry != (id != "RegistryTable").then_some("expires_at") {
            found.push(format!("{id}: items expire by {expiry:?}"));
        }
    }
    present.sort_unstable();
    if present != INDEXES {
        found.push(format!("the indexes are {present:?}"));
    }
    found
}

/// Queues, bodies and secrets are encrypted at rest, and nothing is reached without TLS.
pub(crate) fn encrypted(stack: &Stack) -> Vec<String> {
    let mut found = Vec::new();
    let tls_only = |policy: &Value| {
        let statements = policy["Properties"]["PolicyDocument"]["Statement"].as_array();
        statements.into_iter().flatten().any(|statement| {
            statement["Effect"] == "Deny"
                && statement["Principal"] == "*"
                && statement["Condition"] == json!({ "Bool": { "aws:SecureTransport": "false" } })
        })
    };
    for (id, queue) in stack.resources("AWS::SQS::Queue") {
        if queue["Properties"]["SqsManagedSseEnabled"] != true {
            found.push(format!("{id} is not encrypted"));
        }
        let names_it = |policy: &Value| {
            let named = policy["Properties"]["Queues"].as_array();
            named.into_iter().flatten().any(|queue| *queue == json!({ "Ref": id }))
        };
        // A second policy would replace the first.
        let policies = stack.resources("AWS::SQS::QueuePolicy").map(|(_, policy)| policy);
        let policies: Vec<_> = policies.filter(|policy| names_it(policy)).collect();
        if !matches!(policies.as_slice(), [policy] if tls_only(policy)) {
            found.push(format!("{id} is reached without TLS"));
        }
    }
    let bodies = &stack.resource("BodyBucket")["Properties"];
    if !tls_only(stack.resource("BodyBucketPolicy")) {
        found.push("BodyBucket is reached without TLS".to_owned());
    }
    if bodies.get("BucketEncryption").is_none() {
        found.push("BodyBucket is not encrypted".to_owned());
    }
    for block in
        ["BlockPublicAcls", "BlockPublicPolicy", "IgnorePublicAcls", "RestrictPublicBuckets"]
    {
        if bodies["PublicAccessBlockConfiguration"][block] != true {
            found.push(format!("BodyBucket: {block} is off"));
        }
    }
    if stack.resource("SecretsKey")["Properties"]["EnableKeyRotation"] != true {
        found.push("SecretsKey is never rotated".to_owned());
    }
    found
}
