//! The reviewed list: what matters only on AWS and is therefore left out locally, by resource type and property path.
//!
//! Adding a line here says: a program that works without it locally works the same with it on AWS. Everything else is
//! honoured or refused. A path names a whole subtree; `Events.<type>` stands for every event of that type.

/// Resource types that the local host leaves out as a whole. Their references are still checked.
const TYPES: &[&str] = &[
    // who may do what: recorded calls are compared with the roles by a test instead
    "AWS::IAM::Role",
    "AWS::IAM::ManagedPolicy",
    "AWS::IAM::Policy",
    "AWS::S3::BucketPolicy",
    "AWS::SQS::QueuePolicy",
    "AWS::SNS::TopicPolicy",
    "AWS::Lambda::Permission",
    "AWS::KMS::Alias",
    // what people look at
    "AWS::Logs::LogGroup",
    "AWS::Logs::MetricFilter",
    "AWS::Logs::QueryDefinition",
    "AWS::CloudWatch::Alarm",
    "AWS::CloudWatch::CompositeAlarm",
    "AWS::CloudWatch::Dashboard",
    "AWS::SNS::Topic",
    "AWS::SNS::Subscription",
];

/// (resource type, property path).
const PROPERTIES: &[(&str, &str)] = &[
    // protection and restoring
    ("AWS::DynamoDB::Table", "DeletionProtectionEnabled"),
    ("AWS::DynamoDB::Table", "PointInTimeRecoverySpecification"),
    ("AWS::DynamoDB::Table", "ContributorInsightsSpecification"),
    ("AWS::DynamoDB::Table", "OnDemandThroughput"),
    ("AWS::DynamoDB::Table", "SSESpecification"),
    ("AWS::DynamoDB::Table", "TableClass"),
    ("AWS::DynamoDB::Table", "Tags"),
    ("AWS::DynamoDB::Table", "WarmThroughput"),
    ("AWS::DynamoDB::Table", "GlobalSecondaryIndexes[].ContributorInsightsSpecification"),
    ("AWS::DynamoDB::Table", "GlobalSecondaryIndexes[].OnDemandThroughput"),
    ("AWS::DynamoDB::Table", "GlobalSecondaryIndexes[].WarmThroughput"),
    ("AWS::SQS::Queue", "SqsManagedSseEnabled"),
    ("AWS::SQS::Queue", "KmsMasterKeyId"),
    ("AWS::SQS::Queue", "KmsDataKeyReusePeriodSeconds"),
    ("AWS::SQS::Queue", "RedriveAllowPolicy"),
    ("AWS::SQS::Queue", "Tags"),
    ("AWS::S3::Bucket", "BucketEncryption"),
    ("AWS::S3::Bucket", "LifecycleConfiguration"), // ages in days; nothing local lives that long
    ("AWS::S3::Bucket", "OwnershipControls"),
    ("AWS::S3::Bucket", "PublicAccessBlockConfiguration"),
    ("AWS::S3::Bucket", "Tags"),
    ("AWS::KMS::Key", "Description"),
    ("AWS::KMS::Key", "EnableKeyRotation"),
    ("AWS::KMS::Key", "RotationPeriodInDays"),
    ("AWS::KMS::Key", "KeyPolicy"),
    ("AWS::KMS::Key", "PendingWindowInDays"),
    ("AWS::KMS::Key", "Tags"),
    ("AWS::Events::EventBus", "Description"),
    ("AWS::Events::EventBus", "Tags"),
    // the gateway's log and its throttle: with a throttle the answer is a 429 that the caller repeats
    ("AWS::Serverless::HttpApi", "AccessLogSettings"),
    ("AWS::Serverless::HttpApi", "DefaultRouteSettings"),
    ("AWS::Serverless::HttpApi", "RouteSettings"),
    ("AWS::Serverless::HttpApi", "Description"),
    ("AWS::Serverless::HttpApi", "Name"),
    ("AWS::Serverless::HttpApi", "Tags"),
    ("AWS::Serverless::HttpApi", "PropagateTags"),
    // how a function is built, rolled out, traced and logged
    ("AWS::Serverless::Function", "Architectures"),
    ("AWS::Serverless::Function", "AutoPublishAlias"),
    ("AWS::Serverless::Function", "AutoPublishAliasAllProperties"),
    ("AWS::Serverless::Function", "AutoPublishCodeSha256"),
    ("AWS::Serverless::Function", "CodeUri"),
    ("AWS::Serverless::Function", "DeploymentPreference"),
    ("AWS::Serverless::Function", "Description"),
    ("AWS::Serverless::Function", "Handler"),
    ("AWS::Serverless::Function", "LoggingConfig"),
    ("AWS::Serverless::Function", "PropagateTags"),
    ("AWS::Serverless::Function", "RecursiveLoop"),
    ("AWS::Serverless::Function", "Tags"),
    ("AWS::Serverless::Function", "Tracing"),
    ("AWS::Serverless::Function", "VpcConfig"),
    ("AWS::Serverless::Function", "Events.SQS.MetricsConfig"),
    ("AWS::Serverless::Function", "Events.DynamoDB.MetricsConfig"),
    ("AWS::Serverless::Function", "Events.HttpApi.RouteSettings"),
    // a rule whose function cannot be called at all: here it always can
    ("AWS::Serverless::Function", "Events.EventBridgeRule.DeadLetterConfig"),
    ("AWS::Serverless::Function", "Events.EventBridgeRule.RetryPolicy"),
    ("AWS::Serverless::Function", "Events.EventBridgeRule.RuleName"),
    // a schedule that failed: the next one repeats it
    ("AWS::Serverless::Function", "Events.ScheduleV2.DeadLetterConfig"),
    ("AWS::Serverless::Function", "Events.ScheduleV2.Description"),
    ("AWS::Serverless::Function", "Events.ScheduleV2.FlexibleTimeWindow"),
    ("AWS::Serverless::Function", "Events.ScheduleV2.OmitName"),
    ("AWS::Serverless::Function", "Events.ScheduleV2.PermissionsBoundary"),
    ("AWS::Serverless::Function", "Events.ScheduleV2.RetryPolicy"),
    ("AWS::Serverless::Function", "Events.ScheduleV2.RoleArn"),
];

/// Attributes of a resource, beside its type and properties, that say what AWS does with it.
pub(super) const ATTRIBUTES: &[&str] = &[
    "DeletionPolicy",
    "UpdateReplacePolicy",
    "UpdatePolicy",
    "CreationPolicy",
    "DependsOn",
    "Metadata",
];

pub(super) fn resource_type(kind: &str) -> bool {
    TYPES.contains(&kind)
}

pub(super) fn property(kind: &str, path: &str) -> bool {
    PROPERTIES.contains(&(kind, path))
}
