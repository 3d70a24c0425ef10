//! What the reader makes of a template: the repository's own, and small ones for what that does not use.
#![expect(clippy::unwrap_used, clippy::panic, reason = "test code")]

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use local::{
    template::{locate, read, roles},
    wiring::{EventSource, Wiring},
};
use serde_json::json;

fn root(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file)
}

fn own(env: &str) -> Wiring {
    let read = read(&root("template.yaml"), Some((&root("samconfig.toml"), env)));
    read.unwrap_or_else(|problems| panic!("{problems}"))
}

fn small(template: &str) -> Wiring {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("template.yaml");
    std::fs::write(&path, template).unwrap();
    read(&path, None).unwrap_or_else(|problems| panic!("{problems}"))
}

/// LOC-emulator-drift
#[test]
fn the_repositorys_own_template_is_accepted_in_every_environment() {
    for env in ["dev", "test", "staging", "prod"] {
        let wiring = own(env);
        let binaries: Vec<&str> =
            wiring.functions.iter().map(|function| function.binary.as_str()).collect();
        assert_eq!(binaries, ["ingress", "worker", "relay", "deliverer", "sweeper", "api"]);
        assert_eq!(wiring.tables.len(), 5);
    }
    let test = own("test");
    let ingress = &test.functions[0];
    assert_eq!(ingress.environment["INBOX_TABLE"], "postern-test-InboxTable");
    assert_eq!(ingress.environment["FIRST_DUE_MS"], "1200", "the environment's override holds");
    assert!(matches!(&ingress.events[0], EventSource::Http { api, method, path, timeout }
        if api == "IngressApi" && method == "POST" && path == "/webhooks/{source}" && *timeout == Duration::from_secs(7)));
    let inbound = test.queues.iter().find(|queue| queue.logical_id == "InboundQueue").unwrap();
    assert_eq!(inbound.visibility, Duration::from_secs(2));
    let (dead_letters, most) = inbound.redrive.clone().unwrap();
    assert!(dead_letters.ends_with(":postern-test-InboundDlq") && most == 8);
    let outbox = test.tables.iter().find(|table| table.logical_id == "OutboxTable").unwrap();
    assert_eq!(outbox.ttl_attribute.as_deref(), Some("expires_at"));
    assert_eq!(
        outbox.create["StreamSpecification"],
        json!({"StreamEnabled": true, "StreamViewType": "NEW_IMAGE"})
    );
    let relay = test.functions.iter().find(|function| function.binary == "relay").unwrap();
    let failures = test.queues.iter().find(|queue| queue.logical_id == "StreamFailures").unwrap();
    assert!(relay.events.iter().any(|event| matches!(
        event,
        EventSource::Stream { arn, batch: 100, retries: Some(5), bisect: true, lanes: 2, max_age, on_failure, .. }
            if Some(arn) == outbox.stream_arn.as_ref()
                && *max_age == Some(Duration::from_secs(3_600))
                && on_failure.as_ref() == Some(&failures.arn)
    )));
    assert!(!test.apis[0].iam && test.apis[1].iam);
}

#[test]
fn every_role_of_the_own_template_has_resolved_statements() {
    let roles = roles(&root("template.yaml"), Some((&root("samconfig.toml"), "dev"))).unwrap();
    let wiring = own("dev");
    for function in &wiring.functions {
        let role = roles.iter().find(|role| role.logical_id == function.role).unwrap();
        assert!(!role.statements.is_empty(), "{}", role.logical_id);
        for statement in &role.statements {
            assert!(["Allow", "Deny"].contains(&statement.effect.as_str()), "{statement:?}");
            assert!(!statement.actions.is_empty() && !statement.resources.is_empty());
            assert!(
                statement.resources.iter().all(|arn| arn == "*" || arn.starts_with("arn:aws:")),
                "{statement:?}"
            );
        }
    }
    let ingress = roles.iter().find(|role| role.logical_id == "IngressRole").unwrap();
    let inbox = &wiring.tables.iter().find(|table| table.logical_id == "InboxTable").unwrap().arn;
    assert!(ingress.statements.iter().any(|statement| {
        statement.actions.iter().any(|action| action == "dynamodb:PutItem")
            && statement.resources.contains(inbox)
    }));
}

#[test]
fn addresses_of_apis_are_put_in_once_ports_are_known() {
    let mut wiring = own("dev");
    let api = |wiring: &Wiring| {
        let api = wiring.functions.iter().find(|function| function.binary == "api").unwrap();
        api.environment["INGRESS_URL"].clone()
    };
    assert_eq!(api(&wiring), "https://ingressapi.execute-api.us-east-1.amazonaws.com");
    locate(
        &mut wiring,
        &BTreeMap::from([("IngressApi".to_owned(), "http://127.0.0.1:8701".to_owned())]),
    );
    assert_eq!(api(&wiring), "http://127.0.0.1:8701");
}

const FUNCTION: &str = "  F:
    Type: AWS::Serverless::Function
    Metadata: { BuildProperties: { Binary: f } }
    Properties:
      Runtime: provided.al2023
";

/// Both spellings of each function, the pseudo parameters, and both forms of Sub.
#[test]
fn intrinsic_functions_are_resolved_as_cloudformation_resolves_them() {
    let check = |value: &str, expected: Option<&str>| {
        let wiring = small(&format!(
            "Parameters:
  Name: {{ Type: String, Default: box }}
  List: {{ Type: CommaDelimitedList, Default: \"a, b,c\" }}
  Count: {{ Type: Number, Default: 0 }}
Mappings: {{ M: {{ us-east-1: {{ colour: red }} }} }}
Conditions:
  Zero: !Equals [!Ref Count, 0]
  Boxed: {{ Fn::And: [{{ Condition: Zero }}, {{ Fn::Not: [{{ Fn::Equals: [!Ref Name, bag] }}] }}] }}
  Never: !Or [!Not [!Condition Zero], !Equals [a, b]]
Resources:
  Q: {{ Type: AWS::SQS::Queue, Properties: {{ QueueName: !Sub \"${{Name}}-q\" }} }}
  Gone: {{ Type: AWS::RDS::DBInstance, Condition: Never }}
{FUNCTION}      Environment: {{ Variables: {{ V: {value}, Other: x }} }}
"
        ));
        assert_eq!(
            wiring.functions[0].environment.get("V").map(String::as_str),
            expected,
            "{value}"
        );
    };
    check("!Ref Name", Some("box"));
    check("{ Ref: Name }", Some("box"));
    check("!Ref Count", Some("0"));
    check("!Ref AWS::Region", Some("us-east-1"));
    check("!Ref \"AWS::AccountId\"", Some("000000000000"));
    check("!Ref AWS::Partition", Some("aws"));
    check("!Ref AWS::StackName", Some("postern"));
    check("!Ref AWS::URLSuffix", Some("amazonaws.com"));
    check("!Ref AWS::NoValue", None);
    check("!Ref Q", Some("https://sqs.us-east-1.amazonaws.com/000000000000/box-q"));
    check("!GetAtt Q.Arn", Some("arn:aws:sqs:us-east-1:000000000000:box-q"));
    check("{ Fn::GetAtt: [Q, QueueName] }", Some("box-q"));
    check(
        "!Sub \"${Name}/${Q.QueueName}/${AWS::Region}/${!Kept}\"",
        Some("box/box-q/us-east-1/${Kept}"),
    );
    check("!Sub [\"${x}-${Name}\", { x: !Ref Count }]", Some("0-box"));
    check("!Join [\"-\", [a, !Ref Name]]", Some("a-box"));
    check("!Join [\"|\", !Ref List]", Some("a|b|c"));
    check("!Select [1, !Ref List]", Some("b"));
    check("!Select [0, !Split [\"-\", !GetAtt Q.QueueName]]", Some("box"));
    check("!FindInMap [M, !Ref AWS::Region, colour]", Some("red"));
    check("!If [Boxed, yes-it-is, no]", Some("yes-it-is"));
    check("!If [Never, yes, !Ref AWS::NoValue]", None);
    check("{ Fn::If: [Zero, !Ref Name, x] }", Some("box"));
    check("true", Some("true"));
    check("12", Some("12"));
}

#[test]
fn global_properties_are_merged_as_sam_merges_them() {
    let wiring = small(&format!(
        "Globals:
  Function:
    Timeout: 10
    MemorySize: 256
    Environment: {{ Variables: {{ SHARED: a, BOTH: global }} }}
Resources:
{FUNCTION}      Timeout: 20
      Environment: {{ Variables: {{ OWN: b, BOTH: own }} }}
"
    ));
    let function = &wiring.functions[0];
    assert_eq!((function.timeout, function.memory_mb), (Duration::from_secs(20), 256));
    let variables: Vec<(&str, &str)> =
        function.environment.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(variables, [("BOTH", "own"), ("OWN", "b"), ("SHARED", "a")]);
    assert_eq!(function.role, "FRole");
}

/// LOC-emulator-drift: a disabled source does not call its function.
#[test]
fn a_disabled_event_source_is_left_out() {
    let source = |enabled: &str| {
        let wiring = small(&format!(
            "Resources:
  Q: {{ Type: AWS::SQS::Queue }}
{FUNCTION}      Events:
        E: {{ Type: SQS, Properties: {{ Queue: !GetAtt Q.Arn, Enabled: {enabled} }} }}
        S: {{ Type: ScheduleV2, Properties: {{ ScheduleExpression: rate(2 hours), Input: '{{\"a\":1}}' }} }}
"
        ));
        wiring.functions[0].events.clone()
    };
    let on = source("true");
    assert!(matches!(
        &on[0],
        EventSource::Queue { batch: 10, item_failures: false, max_concurrency: None, .. }
    ));
    assert!(matches!(&on[1], EventSource::Schedule { every, input, .. }
        if *every == Duration::from_secs(7200) && *input == json!({"a": 1})));
    assert_eq!(source("false").len(), 1);
}

#[test]
fn a_rule_of_a_bus_calls_a_function_and_says_what_becomes_of_failures() {
    let own = own("test");
    let api = own.functions.iter().find(|function| function.binary == "api").unwrap();
    let rules: Vec<_> = api
        .events
        .iter()
        .filter_map(|event| match event {
            EventSource::Rule { bus, pattern } => Some((bus.as_str(), pattern)),
            _ => None,
        })
        .collect();
    assert_eq!(rules, [("default", &json!({"source": ["postern/publish"]}))]);
    assert_eq!(
        (api.unattended.retries, api.unattended.age),
        (Some(2), Some(Duration::from_secs(21_600)))
    );
    assert!(api.unattended.on_failure.as_ref().unwrap().ends_with(":postern-test-PublishFailures"));
    let ingress = own.functions.iter().find(|function| function.binary == "ingress").unwrap();
    assert_eq!(ingress.unattended, local::wiring::Unattended::default());
}
