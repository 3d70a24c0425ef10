//! What the template reader refuses, and where it says the trouble is. One small template per rule.
#![expect(clippy::unwrap_used, reason = "test code")]

use std::path::Path;

use local::template::{Problem, read};

fn problems(template: &str, samconfig: Option<(&str, &str)>) -> Vec<Problem> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("template.yaml");
    std::fs::write(&path, template).unwrap();
    let config = folder.path().join("samconfig.toml");
    let config = samconfig.map(|(text, env)| {
        std::fs::write(&config, text).unwrap();
        (config.as_path(), env)
    });
    match read(&path, config) {
        Ok(_) => Vec::new(),
        Err(problems) => problems.0,
    }
}

/// Each expected problem is its start (`line:column`) and a part of its text.
#[track_caller]
fn check(template: &str, expected: &[(&str, &str)]) {
    check_problems(&problems(template, None), expected);
}

#[track_caller]
fn check_problems(found: &[Problem], expected: &[(&str, &str)]) {
    let shown: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert_eq!(found.len(), expected.len(), "{shown:#?}");
    for (problem, (place, text)) in found.iter().zip(expected) {
        let at = format!("{}:{}", problem.line, problem.column);
        assert!(
            at == *place && problem.message.contains(text),
            "wanted {place} {text}\nfound {problem}"
        );
    }
}

const QUEUE: &str = "Resources:
  Q:
    Type: AWS::SQS::Queue
";

/// LOC-emulator-drift: what is not honoured is refused, never ignored.
#[test]
fn a_property_that_is_not_honoured_is_refused_with_its_place() {
    check(
        &format!("{QUEUE}    Properties: {{ FifoQueue: true }}\n"),
        &[(
            "4:19",
            "AWS::SQS::Queue property FifoQueue is not honoured by the local host; remove it",
        )],
    );
    check(
        "Resources:
  Q:
    Type: AWS::SQS::Queue
    Properties:
      VisibilityTimeout: 30
      RedrivePolicy:
        deadLetterTargetArn: arn:aws:sqs:us-east-1:000000000000:x
        maxReceiveCount: 3
        Extra: 1
",
        &[("9:9", "property RedrivePolicy.Extra")],
    );
    check(
        "Resources:
  T:
    Type: AWS::DynamoDB::Table
    Properties:
      BillingMode: PAY_PER_REQUEST
      AttributeDefinitions: [{ AttributeName: pk, AttributeType: S }]
      KeySchema: [{ AttributeName: pk, KeyType: HASH }]
      KinesisStreamSpecification: { StreamArn: x }
",
        &[("8:7", "AWS::DynamoDB::Table property KinesisStreamSpecification")],
    );
}

#[test]
fn what_only_matters_on_aws_is_left_out_in_silence() {
    check(
        &format!(
            "{QUEUE}    DeletionPolicy: Delete\n    Properties: {{ SqsManagedSseEnabled: true, Tags: [{{ Key: a, Value: b }}] }}\n"
        ),
        &[],
    );
    check(
        "Resources:\n  A:\n    Type: AWS::CloudWatch::Alarm\n    Properties: { Threshold: 1 }\n",
        &[],
    );
}

/// LOC-emulator-drift
#[test]
fn stream_settings_have_the_bounds_of_lambda_and_others_are_refused() {
    let function = |setting: &str| {
        format!(
            "Resources:
  T:
    Type: AWS::DynamoDB::Table
    Properties:
      BillingMode: PAY_PER_REQUEST
      AttributeDefinitions: [{{ AttributeName: pk, AttributeType: S }}]
      KeySchema: [{{ AttributeName: pk, KeyType: HASH }}]
      StreamSpecification: {{ StreamViewType: NEW_IMAGE }}
  F:
    Type: AWS::Serverless::Function
    Metadata: {{ BuildProperties: {{ Binary: f }} }}
    Properties:
      Runtime: provided.al2023
      Events:
        E:
          Type: DynamoDB
          Properties:
            Stream: !GetAtt T.StreamArn
            StartingPosition: TRIM_HORIZON
            {setting}
  Q:
    Type: AWS::SQS::Queue
"
        )
    };
    check(&function("MaximumRetryAttempts: 5"), &[]);
    for setting in [
        "BisectBatchOnFunctionError: true",
        "MaximumRecordAgeInSeconds: 3600",
        "MaximumRecordAgeInSeconds: -1",
        "ParallelizationFactor: 4",
        "DestinationConfig: { OnFailure: { Type: SQS, Destination: !GetAtt Q.Arn } }",
    ] {
        check(&function(setting), &[]);
    }
    check(&function("MaximumRecordAgeInSeconds: 59"), &[("20:40", "must be 60 to 604800")]);
    check(&function("MaximumRecordAgeInSeconds: 0"), &[("20:40", "must be 60 to 604800")]);
    check(&function("ParallelizationFactor: 11"), &[("20:36", "must be 1 to 10")]);
    check(
        &function("DestinationConfig: { OnFailure: { Type: SNS, Destination: !GetAtt Q.Arn } }"),
        &[("20:53", "must be SQS")],
    );
    check(
        &function("DestinationConfig: { OnFailure: { Type: SQS, Destination: x } }"),
        &[("20:45", "is not an AWS::SQS::Queue of this stack")],
    );
    check(
        &function("TumblingWindowInSeconds: 30"),
        &[("20:13", "is not honoured by the local host")],
    );
    check(&function("Enabled: maybe"), &[("20:22", "must be true or false")]);
    check(
        &function("FilterCriteria: { Filters: [{ Pattern: '{' }] }"),
        &[("20:52", "is not a JSON object")],
    );
    check(
        &function("BatchSize: 0").replace("TRIM_HORIZON", "LATEST"),
        &[("19:31", "must be TRIM_HORIZON"), ("20:24", "BatchSize is 0")],
    );
}

#[test]
fn unknown_types_sections_and_attributes_are_refused() {
    check(
        "Resources:\n  X:\n    Type: AWS::RDS::DBInstance\n",
        &[("2:3", "resource type AWS::RDS::DBInstance is not known")],
    );
    check("Resourcez: {}\n", &[("1:1", "the section Resourcez")]);
    check("Globals:\n  Api: { Name: x }\nResources: {}\n", &[("2:3", "Globals.Api")]);
    check(
        &format!("{QUEUE}    VisibilityTimeout: 3\n"),
        &[("4:5", "Q has an unknown attribute VisibilityTimeout")],
    );
    check(&format!("{QUEUE}    DependsOn: [Nothing]\n"), &[("2:3", "depends on Nothing")]);
}

#[test]
fn references_to_nothing_are_refused() {
    let value = |value: &str| {
        format!(
            "{QUEUE}    Properties:\n      QueueName: plain\n      RedrivePolicy: {{ maxReceiveCount: 3, deadLetterTargetArn: {value} }}\n"
        )
    };
    check(&value("!GetAtt Q.Arn"), &[]);
    check(&value("!Ref Nobody"), &[("6:65", "Nobody is neither a parameter nor a resource")]);
    check(&value("!GetAtt Nobody.Arn"), &[("6:65", "Nobody is not a resource")]);
    check(
        &value("!GetAtt Q.Colour"),
        &[("6:65", "has no attribute Colour here; it has Arn, QueueName, QueueUrl")],
    );
    check(&value("!Sub \"${Nobody}-x\""), &[("6:65", "Nobody is neither")]);
    check(&value("!Sub \"${Q.Colour}\""), &[("6:65", "has no attribute Colour")]);
    check(&value("!ImportValue other"), &[("6:65", "the function ImportValue is not known")]);
    check(&value("!If [Nothing, a, b]"), &[("6:65", "condition Nothing is not defined")]);
    check(&value("!FindInMap [M, a, b]"), &[("6:65", "Mappings has no M.a.b")]);
    check("Outputs:\n  O: { Value: !Ref Nobody }\n", &[("2:15", "Nobody is neither")]);
    check(
        "Conditions:\n  A: !Not [!Condition B]\n  B: !Not [!Condition A]\n",
        &[("3:12", "depends on itself")],
    );
}

#[test]
fn a_duplicate_key_is_refused() {
    check(
        "Resources:\n  Q: { Type: AWS::SQS::Queue }\n  Q: { Type: AWS::SQS::Queue }\n",
        &[("3:3", "duplicated key")],
    );
    check("a: [\n", &[("2:1", "not readable as YAML")]);
}

#[test]
fn a_parameter_keeps_to_its_declaration() {
    let parameter = |rest: &str| format!("Parameters:\n  P: {{ {rest} }}\nResources: {{}}\n");
    check(
        &parameter(
            "Type: String, Default: abc, AllowedPattern: \"^[a-c]+$\", MinLength: 3, MaxLength: 3",
        ),
        &[],
    );
    check(&parameter("Type: String"), &[("2:3", "has no default and no override")]);
    check(&parameter("Type: Number, Default: many"), &[("2:31", "a Number is wanted")]);
    check(&parameter("Type: Number, Default: 5, MaxValue: 4"), &[("2:31", "MaxValue is 4")]);
    check(&parameter("Type: Number, Default: 5, MinValue: 6"), &[("2:31", "MinValue is 6")]);
    check(
        &parameter("Type: String, Default: d, AllowedValues: [a, b]"),
        &[("2:31", "AllowedValues are a, b")],
    );
    check(
        &parameter("Type: String, Default: xa, AllowedPattern: \"[a-c]\""),
        &[("2:31", "AllowedPattern is [a-c]")],
    );
    check(&parameter("Type: String, Default: ab, MinLength: 3"), &[("2:31", "MinLength is 3")]);
    check(
        &parameter("Type: String, Default: x, Defualt: y"),
        &[("2:34", "unknown property Defualt")],
    );
    check(
        &parameter("Type: AWS::EC2::VPC::Id, Default: x"),
        &[("2:3", "knows String, Number and CommaDelimitedList")],
    );
}

#[test]
fn overrides_must_name_parameters_and_keep_to_them() {
    let template = "Parameters:\n  P: { Type: Number, Default: 1, MaxValue: 9 }\nResources: {}\n";
    let config = "version = 0.1\n\n[dev.deploy.parameters]\nparameter_overrides = [\n  \"P=99\",\n  \"Q=1\",\n]\n";
    let found = problems(template, Some((config, "dev")));
    check_problems(
        &found,
        &[
            ("5:4", "parameter P is \"99\", but MaxValue is 9"),
            ("6:4", "parameter Q is not declared"),
        ],
    );
    assert!(found.iter().all(|problem| problem.file == "samconfig.toml"));
    let found = problems(template, Some((config, "prod")));
    check_problems(&found, &[("0:0", "has no environment prod; it has dev")]);
    let found = problems(
        template,
        Some(("[dev.deploy.parameters]\nparameter_overrides = \"P=5 nonsense\"\n", "dev")),
    );
    check_problems(&found, &[("2:28", "nonsense is not of the form Name=value")]);
    check_problems(
        &problems(template, Some(("[dev\n", "dev"))),
        &[("1:5", "not readable as TOML")],
    );
}

#[test]
fn all_problems_are_told_at_once_and_each_once() {
    let found = problems(
        "Globals:
  Function: { Layers: [x] }
Resources:
  Q: { Type: AWS::SQS::Queue, Properties: { FifoQueue: true, DelaySeconds: 901 } }
  F: { Type: AWS::Serverless::Function, Metadata: { BuildProperties: { Binary: f } } }
  G: { Type: AWS::Serverless::Function, Properties: { Runtime: python3.13 } }
",
        None,
    );
    check_problems(
        &found,
        &[
            ("2:15", "property Layers"),
            ("4:45", "property FifoQueue"),
            ("4:76", "DelaySeconds is 901"),
            ("6:3", "G names no binary"),
            ("6:64", "Runtime must be provided.al2023"),
        ],
    );
}

#[test]
fn a_missing_file_is_told_by_its_path() {
    let problems = read(Path::new("/nowhere/template.yaml"), None).unwrap_err();
    assert!(
        problems.to_string().starts_with("template.yaml: /nowhere/template.yaml cannot be read"),
        "{problems}"
    );
}

#[test]
fn a_rule_and_what_becomes_of_its_failures_are_as_aws_takes_them() {
    let template = |config: &str, rule: &str| {
        format!(
            "Resources:
  F:
    Type: AWS::Serverless::Function
    Metadata: {{ BuildProperties: {{ Binary: f }} }}
    Properties:
      Runtime: provided.al2023
      EventInvokeConfig: {config}
      Events:
        E: {{ Type: EventBridgeRule, Properties: {rule} }}
"
        )
    };
    let good = "{ Pattern: { source: [a] } }";
    check(&template("{ MaximumRetryAttempts: 0 }", good), &[]);
    check(
        &template("{ MaximumRetryAttempts: 3, MaximumEventAgeInSeconds: 59, Qualifier: x }", good),
        &[
            ("7:50", "must be 0 to 2"),
            ("7:79", "must be 60 to 21600"),
            ("7:83", "property EventInvokeConfig.Qualifier"),
        ],
    );
    check(
        &template(
            "{ DestinationConfig: { OnFailure: { Type: SNS, Destination: x }, OnSuccess: {} } }",
            good,
        ),
        &[
            ("7:68", "Type must be SQS"),
            ("7:91", "property EventInvokeConfig.DestinationConfig.OnSuccess"),
        ],
    );
    check(&template("{}", "{ EventBusName: b }"), &[("9:49", "has a Pattern")]);
    check(
        &template("{}", "{ Pattern: { source: [a] }, Input: x }"),
        &[("9:77", "property Events.EventBridgeRule.Input")],
    );
}
