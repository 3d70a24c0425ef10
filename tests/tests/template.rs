//! What the template must say, whatever else it says.
//!
//! Each rule takes a stack and lists what is wrong with it. [`holds`] applies it to the real one, and to copies of it
//! that are broken in one place: a rule that lets one of those pass is no rule.

#![expect(clippy::indexing_slicing, reason = "a field that a JSON value does not have is null")]
#![expect(clippy::panic, reason = "a template that cannot be read fails every test")]

#[path = "template/access.rs"]
mod access;
#[path = "template/data.rs"]
mod data;
#[path = "template/numbers.rs"]
mod numbers;
#[path = "template/stack.rs"]
mod stack;
#[path = "template/wiring.rs"]
mod wiring;

use serde_json::{Value, json};

use stack::Stack;

/// The rule finds nothing in the real stack, and something in each that is broken: a value at a JSON pointer is set, or
/// removed where the new value is null.
fn holds(rule: fn(&Stack) -> Vec<String>, broken: &[(&str, Value)]) {
    let stack = Stack::read();
    assert_eq!(rule(&stack), Vec::<String>::new());
    for (pointer, value) in broken {
        let mut stack = stack.clone();
        let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
        let parent = stack.template.pointer_mut(parent).expect("a place in the template");
        match parent {
            Value::Array(items) => {
                let at: usize = key.parse().expect("an index");
                *items.get_mut(at).expect("an item") = value.clone();
            }
            parent => {
                let parent = parent.as_object_mut().expect("a mapping");
                match value {
                    Value::Null => drop(parent.remove(key).expect("something to remove")),
                    value => drop(parent.insert(key.to_owned(), value.clone())),
                }
            }
        }
        assert!(!rule(&stack).is_empty(), "{pointer} = {value} passes");
    }
}

/// DEP-stateful-replacement
#[test]
fn what_holds_data_outlives_its_stack() {
    holds(
        data::kept,
        &[
            ("/Resources/InboxTable/DeletionPolicy", Value::Null),
            ("/Resources/StateTable/UpdateReplacePolicy", json!("Delete")),
            ("/Resources/OutboxTable/Properties/DeletionProtectionEnabled", json!(false)),
            ("/Resources/DeliveriesTable/Properties/PointInTimeRecoverySpecification", Value::Null),
            ("/Resources/RegistryTable/Properties/BillingMode", json!("PROVISIONED")),
            ("/Resources/BodyBucket/UpdateReplacePolicy", Value::Null),
            ("/Resources/SecretsKey/DeletionPolicy", json!("Delete")),
            ("/Resources/InboundDlq/UpdateReplacePolicy", json!("Delete")),
            ("/Resources/InboundQueue/DeletionPolicy", Value::Null),
            ("/Resources/WakeQueue/Properties/QueueName", json!("wake")),
            ("/Parameters/ProtectData/Default", json!("false")),
        ],
    );
}

/// DEP-stateful-replacement
#[test]
fn a_change_that_replaces_what_holds_data_is_refused() {
    holds(
        data::same_as_deployed,
        &[
            ("/Resources/InboxTable", Value::Null),
            ("/Resources/SecretsKey", Value::Null),
            ("/Resources/StateTable/Properties/KeySchema/0/AttributeName", json!("id")),
            ("/Resources/StateTable/Properties/AttributeDefinitions/1/AttributeType", json!("N")),
            ("/Resources/OutboxTable/Properties/TableName", json!("outbox")),
            ("/Resources/BodyBucket/Properties/BucketName", json!("bodies")),
            ("/Resources/InboundDlq/Properties/FifoQueue", json!(true)),
        ],
    );
}

#[test]
fn tables_have_the_indexes_that_the_code_asks() {
    holds(
        data::indexes,
        &[
            ("/Resources/InboxTable/Properties/GlobalSecondaryIndexes/0/IndexName", json!("due")),
            ("/Resources/InboxTable/Properties/GlobalSecondaryIndexes/2", json!({})),
            (
                "/Resources/OutboxTable/Properties/GlobalSecondaryIndexes/0/Projection",
                json!({"ProjectionType": "ALL"}),
            ),
            (
                "/Resources/InboxTable/Properties/GlobalSecondaryIndexes/0/Projection",
                json!({"ProjectionType": "KEYS_ONLY"}),
            ),
            (
                "/Resources/DeliveriesTable/Properties/AttributeDefinitions/3/AttributeType",
                json!("S"),
            ),
            ("/Resources/OutboxTable/Properties/StreamSpecification", Value::Null),
            (
                "/Resources/StateTable/Properties/StreamSpecification",
                json!({"StreamViewType": "NEW_IMAGE"}),
            ),
            ("/Resources/StateTable/Properties/TimeToLiveSpecification", Value::Null),
            (
                "/Resources/RegistryTable/Properties/TimeToLiveSpecification",
                json!({"AttributeName": "expires_at", "Enabled": true}),
            ),
        ],
    );
}

/// WRK-throttle-to-dlq
#[test]
fn a_message_is_not_given_up_before_its_event() {
    holds(
        wiring::redrive,
        &[
            ("/Resources/InboundQueue/Properties/RedrivePolicy/maxReceiveCount", json!(4)),
            ("/Parameters/InboundMaxReceives/Default", json!(12)),
            ("/Parameters/WorkerAttempts/Default", json!(16)),
            ("/Resources/WakeQueue/Properties/RedrivePolicy", Value::Null),
            (
                "/Resources/WakeQueue/Properties/RedrivePolicy/deadLetterTargetArn",
                json!({"Fn::GetAtt": "WakeQueue.Arn"}),
            ),
            (
                "/Resources/WorkerFunction/Properties/Events/Inbound/Properties/ScalingConfig",
                Value::Null,
            ),
            ("/Resources/DelivererFunction/Properties/ReservedConcurrentExecutions", json!(5)),
            ("/Resources/InboundDlq/Properties/MessageRetentionPeriod", json!(345_600)),
        ],
    );
}

/// WRK-batch-response-shape
#[test]
fn every_batch_reports_its_failures_one_by_one() {
    holds(
        wiring::item_failures,
        &[
            (
                "/Resources/WorkerFunction/Properties/Events/Inbound/Properties/FunctionResponseTypes",
                Value::Null,
            ),
            (
                "/Resources/DelivererFunction/Properties/Events/Wake/Properties/FunctionResponseTypes",
                json!([]),
            ),
            (
                "/Resources/RelayFunction/Properties/Events/Outbox/Properties/FunctionResponseTypes",
                json!(["Other"]),
            ),
        ],
    );
}

/// OUT-starting-position
#[test]
fn the_stream_is_read_from_its_beginning_and_given_up_at_some_point() {
    holds(
        wiring::stream,
        &[
            (
                "/Resources/RelayFunction/Properties/Events/Outbox/Properties/StartingPosition",
                json!("LATEST"),
            ),
            (
                "/Resources/RelayFunction/Properties/Events/Outbox/Properties/MaximumRetryAttempts",
                Value::Null,
            ),
            (
                "/Resources/RelayFunction/Properties/Events/Outbox/Properties/BisectBatchOnFunctionError",
                json!(false),
            ),
            (
                "/Resources/RelayFunction/Properties/Events/Outbox/Properties/MaximumRecordAgeInSeconds",
                json!(-1),
            ),
            (
                "/Resources/RelayFunction/Properties/Events/Outbox/Properties/MaximumRecordAgeInSeconds",
                json!(86_400),
            ),
            (
                "/Resources/RelayFunction/Properties/Events/Outbox/Properties/DestinationConfig",
                Value::Null,
            ),
            (
                "/Resources/RelayFunction/Properties/Events/Outbox/Properties/DestinationConfig/OnFailure/Destination/Fn::GetAtt",
                json!("WakeDlq.Arn"),
            ),
            (
                "/Resources/RelayFunction/Properties/Events/Outbox/Properties/ParallelizationFactor",
                json!(1),
            ),
            (
                "/Resources/RelayFunction/Properties/Events/Outbox/Properties/FilterCriteria/Filters/0/Pattern",
                json!(r#"{"dynamodb":{"NewImage":{"relay_state":{"S":["DONE"]}}}}"#),
            ),
        ],
    );
}

#[test]
fn what_a_bus_brings_is_published_or_comes_to_rest_where_it_is_seen() {
    let function = "/Resources/ApiFunction/Properties";
    let policy = "/Resources/PublishFailuresPolicy/Properties/PolicyDocument/Statement/1";
    holds(
        wiring::published,
        &[
            (&format!("{function}/EventInvokeConfig/DestinationConfig"), Value::Null),
            (&format!("{function}/EventInvokeConfig/MaximumRetryAttempts"), Value::Null),
            (&format!("{function}/Events/Publish/Properties/DeadLetterConfig"), Value::Null),
            (&format!("{function}/Events/Publish/Properties/RetryPolicy"), Value::Null),
            (&format!("{policy}/Condition"), Value::Null),
            (&format!("{policy}/Principal"), json!("*")),
        ],
    );
}

/// ING-stage-prefix
#[test]
fn no_stage_stands_in_front_of_a_path() {
    holds(
        wiring::stages,
        &[
            ("/Resources/IngressApi/Properties/StageName", json!("prod")),
            ("/Resources/AdminApi/Properties/StageName", Value::Null),
        ],
    );
}

/// ING-header-size, SEC-url-token
#[test]
fn what_the_gateway_refuses_is_logged_without_an_address() {
    let format = "/Resources/IngressApi/Properties/AccessLogSettings/Format";
    let path = r#"{"route":"$context.routeKey","status":"$context.status","integrationStatus":"$context.integrationStatus","path":"$context.path"}"#;
    holds(
        wiring::access_logs,
        &[
            (format, json!(path)),
            (format, json!(r#"{"route":"$context.routeKey"}"#)),
            ("/Resources/AdminApi/Properties/AccessLogSettings", Value::Null),
        ],
    );
}

#[test]
fn ingress_cannot_configure_anything() {
    let statement = "/Resources/IngressRole/Properties/Policies/0/PolicyDocument/Statement/4";
    holds(
        access::ingress_configures_nothing,
        &[
            (&format!("{statement}/Condition"), json!({})),
            (
                &format!("{statement}/Condition/ForAllValues:StringEquals/dynamodb:Attributes/2"),
                json!("source"),
            ),
        ],
    );
}

#[test]
fn an_endpoint_cannot_borrow_the_deliverers_rights() {
    let statement = "/Resources/DelivererRole/Properties/Policies/0/PolicyDocument/Statement";
    holds(
        access::endpoints_borrow_no_rights,
        &[
            (&format!("{statement}/11/Resource/1"), json!({"Fn::GetAtt": "WakeQueue.Arn"})),
            (&format!("{statement}/11/Effect"), json!("Allow")),
            (&format!("{statement}/12/Action/0"), json!("events:PutRule")),
            ("/Resources/NewQueue", json!({"Type": "AWS::SQS::Queue"})),
            (
                "/Resources/ApiFunction/Properties/Environment/Variables/OWN_QUEUES",
                json!({"Fn::Sub": "${InboundQueue.QueueName},${WakeDlq.QueueName}"}),
            ),
            ("/Resources/ApiFunction/Properties/Environment/Variables/OPS_BUS_ARN", Value::Null),
        ],
    );
}

#[test]
fn the_answer_of_a_function_comes_before_the_gateway_gives_up() {
    holds(
        wiring::gateway_timeouts,
        &[
            ("/Resources/IngressFunction/Properties/Timeout", json!(7)),
            (
                "/Resources/IngressFunction/Properties/Events/Webhook/Properties/TimeoutInMillis",
                json!(6000),
            ),
            (
                "/Resources/ApiFunction/Properties/Events/Any/Properties/TimeoutInMillis",
                Value::Null,
            ),
            (
                "/Resources/ApiFunction/Properties/Events/Any/Properties/PayloadFormatVersion",
                json!("1.0"),
            ),
            ("/Parameters/IngressBudgetMs/Default", json!(6000)),
        ],
    );
}

#[test]
fn only_signed_callers_reach_the_admin_api() {
    holds(
        access::admin_is_signed,
        &[
            ("/Resources/AdminApi/Properties/Auth", Value::Null),
            ("/Resources/AdminApi/Properties/Auth/DefaultAuthorizer", json!("NONE")),
            (
                "/Resources/ApiFunction/Properties/Events/Any/Properties/Auth",
                json!({"Authorizer": "NONE"}),
            ),
            (
                "/Resources/ApiFunction/Properties/Events/Any/Properties/ApiId",
                json!({"Ref": "IngressApi"}),
            ),
            (
                "/Resources/ApiFunction/Properties/Events/Publish/Properties/Pattern/source",
                json!([{"prefix": "postern"}]),
            ),
            (
                "/Resources/ApiFunction/Properties/Events/Publish/Properties/EventBusName",
                json!("default"),
            ),
        ],
    );
}

#[test]
fn a_message_stays_hidden_while_it_is_worked_on() {
    holds(
        wiring::visibility,
        &[
            ("/Parameters/WorkerVisibilitySeconds/Default", json!(179)),
            ("/Resources/WakeQueue/Properties/VisibilityTimeout", json!(60)),
            ("/Resources/WorkerFunction/Properties/Timeout", json!(31)),
            ("/Parameters/WorkerVisibilityMs/Default", json!(180)),
        ],
    );
}

#[test]
fn waits_leases_and_limits_make_sense_beside_each_other() {
    holds(
        numbers::relations,
        &[
            ("/Parameters/SweepLeaseMs/Default", json!(45000)),
            ("/Parameters/LaneLeaseMs/Default", json!(40000)),
            ("/Parameters/ConnectTimeoutMs/Default", json!(20000)),
            ("/Parameters/RetryCapMs/Default", json!("345600001")),
            ("/Parameters/ObjectLeaseMs/Default", json!(180_000)),
            ("/Parameters/ResponseKeptBytes/Default", json!(70000)),
        ],
    );
}

#[test]
fn an_environment_overrides_only_what_the_template_has() {
    let mut stack = Stack::read();
    assert_eq!(numbers::overrides(&stack), Vec::<String>::new());
    assert_eq!(
        stack.environments.keys().collect::<Vec<_>>(),
        ["dev", "prod", "staging", "test"],
        "the environments"
    );
    let test = stack.environments.get_mut("test").expect("test");
    test.insert("Typo".to_owned(), "1".to_owned());
    test.insert("LogLevel".to_owned(), "LOUD".to_owned());
    test.insert("PendingShards".to_owned(), "many".to_owned());
    assert_eq!(numbers::overrides(&stack).len(), 3);
}

#[test]
fn parameters_say_their_unit_and_are_used() {
    holds(
        numbers::parameters,
        &[
            ("/Parameters/HoldMs/Description", Value::Null),
            ("/Parameters/HoldMs/Description", json!("How long a delivery is held")),
            ("/Parameters/BodyDays/Description", json!("Milliseconds of a body")),
            (
                "/Parameters/Forgotten",
                json!({"Type": "Number", "Default": 1, "Description": "Nothing"}),
            ),
            ("/Parameters/HoldMs/Default", json!(1_209_600_000)),
            ("/Parameters/HoldMs/Default", Value::Null),
        ],
    );
}

/// DEP-missing-config
#[test]
fn an_environment_variable_is_named_after_its_parameter() {
    holds(
        numbers::variables,
        &[
            (
                "/Resources/WorkerFunction/Properties/Environment/Variables/WORKER_ATTEMPTS",
                json!({"Ref": "WakeShards"}),
            ),
            (
                "/Resources/WorkerFunction/Properties/Environment/Variables/WORKER_ATTEMPTS",
                json!("12"),
            ),
            (
                "/Resources/WorkerFunction/Properties/Environment/Variables/INBOX_TABLE",
                json!({"Ref": "StateTable"}),
            ),
            ("/Resources/ApiFunction/Properties/Environment/Variables/ENV_NAME", Value::Null),
            ("/Globals/Function/Environment", json!({"Variables": {"EVERYWHERE": "1"}})),
        ],
    );
}

#[test]
fn each_function_has_a_role_of_its_own_without_wildcards() {
    holds(
        access::roles,
        &[
            ("/Resources/WorkerFunction/Properties/Role", json!({"Fn::GetAtt": "RelayRole.Arn"})),
            ("/Resources/WorkerFunction/Properties/Role", Value::Null),
            ("/Resources/ApiFunction/Properties/Policies", json!(["AmazonDynamoDBFullAccess"])),
            (
                "/Resources/ApiRole/Properties/ManagedPolicyArns",
                json!(["arn:aws:iam::aws:policy/AdministratorAccess"]),
            ),
            (
                "/Resources/IngressRole/Properties/Policies/0/PolicyDocument/Statement/2/Action",
                json!("dynamodb:GetItem*"),
            ),
            (
                "/Resources/IngressRole/Properties/Policies/0/PolicyDocument/Statement/2/Action/0",
                json!("*"),
            ),
            (
                "/Resources/IngressRole/Properties/Policies/0/PolicyDocument/Statement/2/Action/0",
                json!("dynamodb:Scan"),
            ),
            (
                "/Resources/IngressRole/Properties/Policies/0/PolicyDocument/Statement/2/Resource",
                json!("*"),
            ),
            (
                "/Resources/RelayRole/Properties/Policies/0/PolicyDocument/Statement/3/Resource/Fn::Sub",
                json!("${OutboxTable.Arn}/*"),
            ),
            (
                "/Resources/IngressRole/Properties/Policies/0/PolicyDocument/Statement/2/NotResource",
                json!("*"),
            ),
        ],
    );
}

#[test]
fn data_is_encrypted_and_travels_encrypted() {
    holds(
        data::encrypted,
        &[
            ("/Resources/StreamFailures/Properties/SqsManagedSseEnabled", json!(false)),
            ("/Resources/QueuesTlsOnly/Properties/Queues/3", json!({"Ref": "InboundDlq"})),
            ("/Resources/QueuesTlsOnly/Properties/Queues/3", json!({"Ref": "PublishFailures"})),
            ("/Resources/PublishFailuresPolicy/Properties/PolicyDocument/Statement/0", json!({})),
            (
                "/Resources/QueuesTlsOnly/Properties/PolicyDocument/Statement/0/Effect",
                json!("Allow"),
            ),
            ("/Resources/BodyBucketPolicy", Value::Null),
            ("/Resources/BodyBucket/Properties/BucketEncryption", Value::Null),
            (
                "/Resources/BodyBucket/Properties/PublicAccessBlockConfiguration/BlockPublicPolicy",
                json!(false),
            ),
            ("/Resources/SecretsKey/Properties/EnableKeyRotation", json!(false)),
        ],
    );
}

#[test]
fn what_stops_or_gives_up_raises_an_alarm() {
    holds(
        wiring::alarms,
        &[
            ("/Resources/ScheduleDlqAlarm", Value::Null),
            ("/Resources/WakeDlqAlarm/Properties/AlarmActions", Value::Null),
            ("/Resources/OldestPendingAlarm/Properties/TreatMissingData", json!("notBreaching")),
            ("/Resources/ParkedAlarm/Properties/Namespace", json!("Other")),
            ("/Resources/IteratorAgeAlarm", Value::Null),
            ("/Resources/IngressApiAlarm/Properties/TreatMissingData", Value::Null),
        ],
    );
}

#[test]
fn a_deliverer_may_wake_itself() {
    holds(
        wiring::recursion,
        &[("/Resources/DelivererFunction/Properties/RecursiveLoop", Value::Null)],
    );
}

#[test]
fn what_is_built_is_what_the_function_runs() {
    holds(
        wiring::binaries,
        &[
            ("/Resources/ApiFunction/Metadata/BuildProperties/Binary", json!("relay")),
            ("/Resources/ApiFunction/Metadata/BuildMethod", json!("makefile")),
            ("/Globals/Function/Handler", json!("main")),
            ("/Resources/ReplayFunction", json!({"Type": "AWS::Serverless::Function"})),
        ],
    );
}
