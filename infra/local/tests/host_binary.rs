//! The program itself: start, control, stop, and what happens when somebody kills it.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "test code")]

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::{Ipv4Addr, TcpListener},
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};

use host_support::{Answer, built, call, echo_function, eventually};

mod host_support;

const TEMPLATE: &str = r#"
AWSTemplateFormatVersion: "2010-09-09"
Transform: AWS::Serverless-2016-10-31
Resources:
  Rows:
    Type: AWS::DynamoDB::Table
    Properties:
      BillingMode: PAY_PER_REQUEST
      AttributeDefinitions: [{ AttributeName: pk, AttributeType: S }]
      KeySchema: [{ AttributeName: pk, KeyType: HASH }]
      StreamSpecification: { StreamViewType: NEW_IMAGE }
  Inbound:
    Type: AWS::SQS::Queue
    Properties: { VisibilityTimeout: 30 }
  OpenApi:
    Type: AWS::Serverless::HttpApi
    Properties: { StageName: $default }
  AdminApi:
    Type: AWS::Serverless::HttpApi
    Properties:
      StageName: $default
      Auth: { EnableIamAuthorizer: true, DefaultAuthorizer: AWS_IAM }
  Role:
    Type: AWS::IAM::Role
    Properties:
      AssumeRolePolicyDocument: { Version: "2012-10-17", Statement: [] }
  EchoFunction:
    Type: AWS::Serverless::Function
    Metadata: { BuildMethod: rust-cargolambda, BuildProperties: { Binary: echo_function } }
    Properties:
      CodeUri: .
      Handler: bootstrap
      Runtime: provided.al2023
      MemorySize: 128
      Role: !GetAtt Role.Arn
      Timeout: 100
      Environment:
        Variables:
          TABLE: !Ref Rows
          OPEN_URL: !Sub "https://${OpenApi}.execute-api.${AWS::Region}.${AWS::URLSuffix}"
      Events:
        Open: { Type: HttpApi, Properties: { ApiId: !Ref OpenApi, Method: POST, Path: "/webhooks/{source}", PayloadFormatVersion: "2.0", TimeoutInMillis: 20000 } }
        Admin: { Type: HttpApi, Properties: { ApiId: !Ref AdminApi, Method: ANY, Path: "/v1/{proxy+}", PayloadFormatVersion: "2.0", TimeoutInMillis: 20000 } }
        Queue: { Type: SQS, Properties: { Queue: !GetAtt Inbound.Arn, BatchSize: 10, FunctionResponseTypes: [ReportBatchItemFailures] } }
        Stream: { Type: DynamoDB, Properties: { Stream: !GetAtt Rows.StreamArn, StartingPosition: TRIM_HORIZON, BatchSize: 10, FunctionResponseTypes: [ReportBatchItemFailures] } }
        Tick: { Type: ScheduleV2, Properties: { ScheduleExpression: rate(1 hour), Input: '{"do":"tick"}' } }
"#;

struct Setting {
    folder: tempfile::TempDir,
    port: u16,
    extra: Vec<String>,
}

impl Setting {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("template.yaml"), TEMPLATE).unwrap();
        Self { folder, port: 0, extra: vec![] }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_postern-local"));
        command
            .args(["--port", &self.port.to_string(), "--template"])
            .arg(self.path("template.yaml"))
            .arg("--samconfig")
            .arg(self.path("samconfig.toml"))
            .arg("--state")
            .arg(self.path("state"))
            .arg("--bin-dir")
            .arg(built().join("examples"))
            .args(&self.extra)
            .env("LOCAL_SEEN", self.path("seen"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn start(&self) -> Host {
        let _ = echo_function();
        let mut child = self.command().stderr(Stdio::inherit()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready =
            serde_json::from_str(&line).unwrap_or_else(|_| panic!("no ready line: {line:?}"));
        Host { child, ready }
    }

    /// What a host says that cannot start.
    fn refused(&self) -> String {
        let mut child = self.command().spawn().unwrap();
        let begun = Instant::now();
        while child.try_wait().unwrap().is_none() && begun.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = child.kill();
        let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
        let text = String::from_utf8(stderr).unwrap();
        assert_eq!((status.code(), stdout.len()), (Some(1), 0), "{text}");
        text
    }

    /// One entry per batch that the function got.
    fn seen(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.path("seen")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

struct Host {
    child: Child,
    ready: Value,
}

impl Host {
    fn token(&self) -> String {
        format!("Bearer {}", self.ready["token"].as_str().unwrap())
    }

    async fn control(&self, method: &str, path: &str, body: &Value) -> Answer {
        let url = format!("{}/{path}", self.ready["control"].as_str().unwrap());
        let body = if body.is_null() { String::new() } else { body.to_string() };
        call(method, &url, &[("authorization", &self.token())], body.as_bytes()).await
    }

    async fn told(&self, told: &Value) -> Answer {
        let url = format!("{}/webhooks/a", self.ready["apis"]["OpenApi"].as_str().unwrap());
        call("POST", &url, &[("content-type", "application/json")], told.to_string().as_bytes())
            .await
    }

    async fn aws(&self, target: &str, body: &Value) -> Value {
        let headers = [
            ("x-amz-target", target),
            ("content-type", "application/x-amz-json-1.0"),
            ("x-amz-date", "20200101T000000Z"),
            (
                "authorization",
                "AWS4-HMAC-SHA256 Credential=LOCALtest/20200101/us-east-1/any/aws4_request, SignedHeaders=host, Signature=0",
            ),
        ];
        let answer = call(
            "POST",
            self.ready["aws"].as_str().unwrap(),
            &headers,
            body.to_string().as_bytes(),
        )
        .await;
        assert_eq!(answer.status, 200, "{:?}", answer.body);
        answer.json()
    }

    async fn put(&self, key: &str) {
        let tables = self.aws("DynamoDB_20120810.ListTables", &json!({})).await;
        self.aws(
            "DynamoDB_20120810.PutItem",
            &json!({"TableName": tables["TableNames"][0], "Item": {"pk": {"S": key}}}),
        )
        .await;
    }

    async fn pids(&self) -> Vec<u64> {
        let processes = self.control("GET", "processes", &Value::Null).await.json();
        processes
            .as_array()
            .unwrap()
            .iter()
            .map(|process| process["pid"].as_u64().unwrap())
            .collect()
    }

    async fn idle(&self) {
        eventually("the host is idle", async || {
            (self.control("GET", "idle", &Value::Null).await.json()["idle"] == true).then_some(())
        })
        .await;
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().try_into().unwrap()), signal).unwrap();
    }

    /// The exit code.
    async fn end(&mut self) -> Option<i32> {
        let ended = || std::future::ready(self.child.try_wait().unwrap());
        eventually("the host ends", ended).await.code()
    }

    async fn terminate(mut self) {
        self.signal(Signal::SIGTERM);
        assert_eq!(self.end().await, Some(0));
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn alive(pid: u64) -> bool {
    // A process that nobody has waited for yet is dead all the same.
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

async fn gone(pids: &[u64]) {
    eventually("the processes are gone", async || {
        pids.iter().all(|pid| !alive(*pid)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_host_serves_its_apis_and_stops_cleanly() {
    let setting = Setting::new();
    let host = setting.start();
    for (name, value) in [
        ("ready", json!(true)),
        ("pid", json!(host.child.id())),
        ("state", json!(setting.path("state"))),
    ] {
        assert_eq!(host.ready[name], value, "{name}");
    }
    let environment = host.told(&json!({"do": "environment"})).await.json();
    assert_eq!(environment["OPEN_URL"], host.ready["apis"]["OpenApi"]);
    assert_eq!(environment["AWS_ENDPOINT_URL_DYNAMODB"], host.ready["aws"]);
    assert_eq!(environment["AWS_ACCESS_KEY_ID"], "LOCALecho_function");
    assert_eq!(environment["LOCAL_SEEN"], json!(setting.path("seen")));

    let admin = format!("{}/v1/events", host.ready["apis"]["AdminApi"].as_str().unwrap());
    assert_eq!(call("GET", &admin, &[], b"").await.status, 403);
    assert_eq!(call("GET", &admin, &[("authorization", &host.token())], b"").await.status, 200);

    let log = fs::read_to_string(setting.path("state/logs/EchoFunction.log")).unwrap();
    assert!(log.contains("told to environment"), "{log}");
    let pids = host.pids().await;
    assert!(!pids.is_empty());
    host.terminate().await;
    assert!(pids.iter().all(|pid| !alive(*pid)));
}

#[tokio::test]
async fn the_control_api_runs_kills_and_counts() {
    let setting = Setting { extra: vec!["--in-memory".into()], ..Setting::new() };
    let host = setting.start();
    let url = format!("{}/processes", host.ready["control"].as_str().unwrap());
    assert_eq!(call("GET", &url, &[], b"").await.status, 401);

    let ran = host.control("POST", "run/EchoFunction", &Value::Null).await.json();
    assert_eq!(ran, json!({"status": "succeeded", "answer": {"event": {"do": "tick"}}}));
    let unknown = host.control("POST", "run/Other", &Value::Null).await;
    assert_eq!(unknown.status, 404);
    assert!(unknown.json()["error"].as_str().unwrap().contains("EchoFunction"));
    assert_eq!(host.control("GET", "nonsense", &Value::Null).await.status, 404);

    host.idle().await;
    let before = host.pids().await;
    assert_eq!(
        host.control("POST", "kill/EchoFunction", &Value::Null).await.json(),
        json!({"killed": before.len()})
    );
    gone(&before).await;
    assert_eq!(host.told(&json!({})).await.status, 200);

    let queue = host.aws("AmazonSQS.ListQueues", &json!({})).await["QueueUrls"][0].clone();
    host.aws("AmazonSQS.SendMessage", &json!({"QueueUrl": queue, "MessageBody": "fail this"}))
        .await;
    eventually("the batch came", async || {
        setting.seen().contains(&json!(["fail this"])).then_some(())
    })
    .await;
    let idle = host.control("GET", "idle", &Value::Null).await.json();
    assert_eq!(idle["idle"], false, "{idle}");

    let rule = json!({"service": "dynamodb", "action": "PutItem", "when": "before", "error": "throttle", "skip": 0, "times": 1});
    assert_eq!(host.control("POST", "faults", &rule).await.status, 204);
    assert_eq!(
        host.control("GET", "faults", &Value::Null).await.json().as_array().unwrap().len(),
        1
    );
    assert_eq!(host.control("DELETE", "faults", &Value::Null).await.status, 204);
    assert_eq!(host.control("GET", "faults", &Value::Null).await.json(), json!([]));
    assert_eq!(host.control("POST", "faults", &json!({"service": 1})).await.status, 400);

    let calls = host.control("GET", "calls", &Value::Null).await.json();
    let sent = calls.as_array().unwrap().iter().any(|call| {
        call["action"] == "sqs:SendMessage" && call["function"] == "LOCALtest"
            || call["function"] == "test"
    });
    assert!(sent, "{calls}");
    host.terminate().await;
}

#[tokio::test]
async fn schedules_follow_the_clock_that_a_test_gives() {
    let setting = Setting {
        extra: vec!["--in-memory".into(), "--every".into(), "20".into()],
        ..Setting::new()
    };
    let host = setting.start();
    eventually("three runs", async || {
        let log = fs::read_to_string(setting.path("state/logs/EchoFunction.log")).unwrap();
        (log.matches("told to tick").count() >= 3).then_some(())
    })
    .await;
    host.terminate().await;
}

#[tokio::test]
async fn a_function_ends_soon_after_its_host_is_killed() {
    let setting = Setting::new();
    let mut host = setting.start();
    assert_eq!(host.told(&json!({})).await.status, 200);
    let pids = host.pids().await;
    assert!(pids.iter().all(|pid| alive(*pid)));
    host.signal(Signal::SIGKILL);
    host.end().await;
    let begun = Instant::now();
    gone(&pids).await;
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn what_a_killed_host_left_working_is_ended_by_the_next() {
    let setting = Setting::new();
    let mut host = setting.start();
    host.told(&json!({})).await;
    let sleep = json!({"do": "sleep", "ms": 90_000});
    tokio::select! {
        _ = host.told(&sleep) => panic!("it slept"),
        () = eventually("it sleeps", async || {
            let processes = host.control("GET", "processes", &Value::Null).await.json();
            processes.as_array().unwrap().iter().any(|process| process["state"] == "busy").then_some(())
        }) => {}
    }
    let pids = host.pids().await;
    host.signal(Signal::SIGKILL);
    host.end().await;
    assert!(pids.iter().any(|pid| alive(*pid)));
    let next = setting.start();
    gone(&pids).await;
    next.terminate().await;
}

/// `OUT-stream-checkpoint`
#[tokio::test]
async fn a_restart_goes_on_where_the_stream_was_read() {
    let setting = Setting::new();
    let mut host = setting.start();
    host.put("row 1").await;
    eventually("the row came", async || setting.seen().contains(&json!(["row 1"])).then_some(()))
        .await;
    host.idle().await;
    host.signal(Signal::SIGKILL);
    host.end().await;
    let host = setting.start();
    host.put("row 2").await;
    eventually("the next row came", async || {
        setting.seen().contains(&json!(["row 2"])).then_some(())
    })
    .await;
    host.idle().await;
    assert_eq!(setting.seen(), [json!(["row 1"]), json!(["row 2"])]);
    host.terminate().await;
}

#[tokio::test]
async fn a_host_with_a_parent_ends_when_its_input_does() {
    let setting =
        Setting { extra: vec!["--in-memory".into(), "--with-parent".into()], ..Setting::new() };
    let mut host = setting.start();
    host.child.stdin.as_mut().unwrap().write_all(b"still here\n").unwrap();
    assert_eq!(host.told(&json!({})).await.status, 200);
    drop(host.child.stdin.take());
    assert_eq!(host.end().await, Some(0));
}

#[tokio::test]
async fn two_hosts_cannot_share_a_state_folder() {
    let setting = Setting::new();
    let host = setting.start();
    let refused = setting.refused();
    assert!(
        refused.contains(&format!("process {}", host.child.id())) && refused.contains("--state"),
        "{refused}"
    );
    host.terminate().await;
    setting.start().terminate().await;
}

#[test]
fn a_port_in_use_is_named() {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    let refused = Setting { port, ..Setting::new() }.refused();
    assert!(refused.contains(&format!("port {port}")) && refused.contains("--port"), "{refused}");
}

#[test]
fn a_template_that_is_missing_or_wrong_is_named() {
    let setting = Setting::new();
    fs::write(
        setting.path("template.yaml"),
        TEMPLATE.replace("VisibilityTimeout: 30", "Nonsense: 1"),
    )
    .unwrap();
    let refused = setting.refused();
    assert!(refused.contains("template.yaml:") && refused.contains("Nonsense"), "{refused}");
    fs::remove_file(setting.path("template.yaml")).unwrap();
    assert!(setting.refused().contains("template.yaml"));
}

#[test]
fn missing_programs_are_named_with_the_command_that_builds_them() {
    let setting = Setting::new();
    fs::write(
        setting.path("template.yaml"),
        TEMPLATE.replace("Binary: echo_function", "Binary: ingress_missing"),
    )
    .unwrap();
    let refused = setting.refused();
    assert!(
        refused.contains("ingress_missing") && refused.contains("cargo build --bins"),
        "{refused}"
    );
}

#[test]
fn a_broken_state_folder_is_named() {
    let setting = Setting::new();
    fs::write(setting.path("state"), "a file").unwrap();
    let refused = setting.refused();
    assert!(refused.contains("state") && refused.contains("must be a folder"), "{refused}");
}

#[tokio::test]
async fn damaged_tables_and_queues_are_named() {
    for database in ["dynamodb.sqlite", "sqs.sqlite"] {
        let setting = Setting::new();
        setting.start().terminate().await;
        let path = setting.path("state").join(database);
        assert!(fs::read(&path).unwrap().starts_with(b"SQLite format 3"));
        fs::write(&path, vec![b'x'; 8192]).unwrap();
        // What was written last may still stand beside the file, and would mend it.
        let _ = fs::remove_file(setting.path("state").join(format!("{database}-wal")));
        let refused = setting.refused();
        assert!(refused.contains("because: ") && refused.contains("move it away"), "{refused}");
    }
}
