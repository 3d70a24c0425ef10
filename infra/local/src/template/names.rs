//! Physical names, ARNs and what `Ref` and `GetAtt` give for each resource type. All follow from the logical id.

use std::collections::BTreeMap;

/// The account that everything local belongs to.
pub(super) const ACCOUNT: &str = "000000000000";
pub(super) const PARTITION: &str = "aws";
pub(super) const URL_SUFFIX: &str = "amazonaws.com";

/// The pseudo parameters that differ between two readings.
#[derive(Clone, Debug)]
pub(super) struct Pseudo {
    pub(super) region: String,
    pub(super) stack_name: String,
}

/// A resource, as others may name it.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) kind: String,
    /// The physical name.
    pub(super) name: String,
    /// What `Ref` gives.
    pub(super) reference: String,
    /// What `GetAtt` gives.
    pub(super) attributes: BTreeMap<&'static str, String>,
}

/// The property that gives a resource its physical name.
pub(super) fn name_property(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "AWS::DynamoDB::Table" => "TableName",
        "AWS::SQS::Queue" => "QueueName",
        "AWS::S3::Bucket" => "BucketName",
        "AWS::Events::EventBus" => "Name",
        "AWS::Serverless::Function" => "FunctionName",
        "AWS::IAM::Role" => "RoleName",
        "AWS::Logs::LogGroup" => "LogGroupName",
        "AWS::SNS::Topic" => "TopicName",
        "AWS::KMS::Alias" => "AliasName",
        "AWS::CloudWatch::Alarm" | "AWS::CloudWatch::CompositeAlarm" => "AlarmName",
        _ => return None,
    })
}

/// What a resource of this type is called and has; `given` is its own name property, `stream` whether its table has one.
pub(super) fn known(
    pseudo: &Pseudo,
    logical_id: &str,
    kind: &str,
    given: Option<String>,
    stream: bool,
) -> Known {
    let name = given.unwrap_or_else(|| {
        let name = format!("{}-{logical_id}", pseudo.stack_name);
        if kind == "AWS::S3::Bucket" { name.to_lowercase() } else { name }
    });
    let arn = |service: &str, rest: &str| {
        format!("arn:{PARTITION}:{service}:{}:{ACCOUNT}:{rest}", pseudo.region)
    };
    let mut attributes = BTreeMap::new();
    let mut reference = name.clone();
    match kind {
        "AWS::DynamoDB::Table" => {
            let table = arn("dynamodb", &format!("table/{name}"));
            if stream {
                attributes.insert("StreamArn", format!("{table}/stream/1970-01-01T00:00:00.000"));
            }
            attributes.insert("Arn", table);
        }
        "AWS::SQS::Queue" => {
            reference = format!("https://sqs.{}.{URL_SUFFIX}/{ACCOUNT}/{name}", pseudo.region);
            attributes.insert("Arn", arn("sqs", &name));
            attributes.insert("QueueName", name.clone());
            attributes.insert("QueueUrl", reference.clone());
        }
        "AWS::S3::Bucket" => {
            attributes.insert("Arn", format!("arn:{PARTITION}:s3:::{name}"));
            attributes.insert("DomainName", format!("{name}.s3.{URL_SUFFIX}"));
            attributes
                .insert("RegionalDomainName", format!("{name}.s3.{}.{URL_SUFFIX}", pseudo.region));
        }
        "AWS::KMS::Key" => {
            let id = key_id(&name);
            attributes.insert("Arn", arn("kms", &format!("key/{id}")));
            attributes.insert("KeyId", id.clone());
            reference = id;
        }
        "AWS::Events::EventBus" => {
            attributes.insert("Arn", arn("events", &format!("event-bus/{name}")));
            attributes.insert("Name", name.clone());
        }
        "AWS::Serverless::HttpApi" => {
            reference = api_id(logical_id);
            attributes.insert("ApiId", reference.clone());
            attributes.insert("ApiEndpoint", api_endpoint(&reference, &pseudo.region));
        }
        "AWS::Serverless::Function" => {
            attributes.insert("Arn", arn("lambda", &format!("function:{name}")));
        }
        "AWS::IAM::Role" => {
            attributes.insert("Arn", format!("arn:{PARTITION}:iam::{ACCOUNT}:role/{name}"));
            attributes.insert("RoleId", name.clone());
        }
        "AWS::IAM::ManagedPolicy" => {
            reference = format!("arn:{PARTITION}:iam::{ACCOUNT}:policy/{name}");
            attributes.insert("PolicyArn", reference.clone());
        }
        "AWS::Logs::LogGroup" => {
            attributes.insert("Arn", arn("logs", &format!("log-group:{name}:*")));
        }
        "AWS::SNS::Topic" => {
            reference = arn("sns", &name);
            attributes.insert("TopicArn", reference.clone());
            attributes.insert("TopicName", name.clone());
        }
        "AWS::CloudWatch::Alarm" | "AWS::CloudWatch::CompositeAlarm" => {
            attributes.insert("Arn", arn("cloudwatch", &format!("alarm:{name}")));
        }
        _ => {}
    }
    Known { kind: kind.to_owned(), name, reference, attributes }
}

/// The id of a local HTTP API; the gateway's ids are lower case too.
pub(super) fn api_id(logical_id: &str) -> String {
    logical_id.to_lowercase()
}

pub(super) fn api_endpoint(api_id: &str, region: &str) -> String {
    format!("https://{api_id}.execute-api.{region}.{URL_SUFFIX}")
}

/// A key id in KMS's shape, from the name.
fn key_id(name: &str) -> String {
    use sha2::{Digest as _, Sha256};
    let hash = hex::encode(Sha256::digest(name.as_bytes()));
    let mut id = String::with_capacity(36);
    for (index, letter) in hash.chars().take(32).enumerate() {
        if [8, 12, 16, 20].contains(&index) {
            id.push('-');
        }
        id.push(letter);
    }
    id
}
