//! The binary itself, against a runtime API on loopback and an AWS that never answers.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::disallowed_methods, reason = "the servers of a test end with it")]

use std::{
    collections::BTreeMap,
    convert::Infallible,
    io::Read as _,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use http_body_util::{BodyExt as _, Full};
use hyper::{Request, Response, body::Bytes, body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::{net::TcpListener, sync::mpsc};

/// Everything that ingress reads.
fn environment(aws: &str) -> BTreeMap<&'static str, String> {
    let mut all: BTreeMap<&'static str, String> = [
        ("AWS_REGION", "eu-central-1"),
        ("AWS_ACCESS_KEY_ID", "LOCALingress"),
        ("AWS_SECRET_ACCESS_KEY", "canary-secret-key"),
        ("AWS_SESSION_TOKEN", "canary-session-token"),
        ("AWS_LAMBDA_FUNCTION_NAME", "ingress"),
        ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "128"),
        ("AWS_LAMBDA_FUNCTION_VERSION", "1"),
        ("ENV_NAME", "test"),
        ("LOG_LEVEL", "TRACE"),
        ("RUST_LOG", "trace"),
        ("INBOX_TABLE", "inbox"),
        ("STATE_TABLE", "state"),
        ("REGISTRY_TABLE", "registry"),
        ("BODIES_URL", "s3://bodies"),
        ("INBOUND_QUEUE_URL", "https://sqs.eu-central-1.amazonaws.com/000000000000/inbound"),
        ("SECRET_PREFIX", "postern/test"),
        ("SOURCE_FRESH_MS", "300000"),
        ("SOURCE_STALE_MS", "3600000"),
        ("INGRESS_BUDGET_MS", "600"),
        ("FIRST_DUE_MS", "120000"),
        ("INBOX_RETENTION_MS", "3024000000"),
        ("PENDING_SHARDS", "8"),
        ("LIST_BY_SOURCE", "true"),
    ]
    .map(|(name, value)| (name, value.to_owned()))
    .into();
    for service in ["DYNAMODB", "SQS", "SECRETS_MANAGER", "KMS", "S3"] {
        all.insert(
            Box::leak(format!("AWS_ENDPOINT_URL_{service}").into_boxed_str()),
            aws.to_owned(),
        );
    }
    all
}

fn ingress(environment: &BTreeMap<&'static str, String>) -> Ended {
    let child = Command::new(env!("CARGO_BIN_EXE_ingress"))
        .env_clear()
        .envs(environment)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    Ended(child)
}

/// A process that ends with its test.
struct Ended(Child);

impl Ended {
    /// Everything it wrote.
    fn written(mut self) -> String {
        let _ = self.0.kill();
        let mut text = String::new();
        self.0.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        self.0.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        text
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// DEP-missing-config
#[test]
fn without_its_environment_it_does_not_start_and_says_all_that_is_missing() {
    let mut environment = environment("http://127.0.0.1:1");
    let missing = ["INBOX_TABLE", "INBOUND_QUEUE_URL", "SECRET_PREFIX"];
    environment.retain(|name, _| !missing.contains(name));
    environment.insert("FIRST_DUE_MS", "soon".to_owned());
    let mut child = ingress(&environment);
    assert!(!child.0.wait().unwrap().success());
    let told = child.written();
    for name in missing.into_iter().chain(["FIRST_DUE_MS"]) {
        assert!(told.contains(&format!("{name} ")), "{told}");
    }
    assert!(!told.contains("canary"), "{told}");
}

/// DEP-sdk-timeouts, SEC-secret-in-logs
#[tokio::test]
async fn when_aws_never_answers_it_says_503_in_time_and_no_secret() {
    let hole = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let aws = format!("http://{}", hole.local_addr().unwrap());
    let mut environment = environment(&aws);
    let (mut api, address) = RuntimeApi::start().await;
    environment.insert("AWS_LAMBDA_RUNTIME_API", address);
    let child = ingress(&environment);

    let mut event: Value = serde_json::from_str(
        &std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/events/stripe.json"))
            .unwrap(),
    )
    .unwrap();
    event["headers"]["authorization"] = "Bearer canary-authorization".into();
    event["headers"]["cookie"] = "canary-cookie".into();
    event["headers"]["stripe-signature"] = "t=1,v1=canary-signature".into();
    event["body"] = "canary-body".into();
    // The second one shows that the sandbox lives on.
    for _ in 0..2 {
        let asked = Instant::now();
        let answer = api.invoke(&event).await;
        assert_eq!(answer["statusCode"], 503, "{answer}");
        assert!(asked.elapsed() < Duration::from_secs(3), "{:?}", asked.elapsed());
    }
    // An event that is none fails alone.
    let failed = api.invoke(&serde_json::json!({"hello": "canary-event"})).await;
    assert!(failed.get("errorType").is_some(), "{failed}");
    assert_eq!(api.invoke(&event).await["statusCode"], 503);

    let told = child.written();
    assert!(
        told.contains("\"stage\":\"accept\"") && told.contains("webhooks_not_stored_total"),
        "{told}"
    );
    assert!(!told.contains("canary"), "{told}");
    drop(hole);
}

/// As much of Lambda's runtime API as one function asks for.
struct RuntimeApi {
    events: mpsc::Sender<String>,
    answers: mpsc::Receiver<Value>,
}

impl RuntimeApi {
    async fn start() -> (Self, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (events, to_give) = mpsc::channel::<String>(1);
        let (taken, answers) = mpsc::channel::<Value>(1);
        let to_give = Arc::new(tokio::sync::Mutex::new(to_give));
        let served = Arc::new(Mutex::new(0));
        let serve = async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (to_give, taken, served) =
                    (Arc::clone(&to_give), taken.clone(), Arc::clone(&served));
                let service = service_fn(move |request: Request<Incoming>| {
                    let (to_give, taken, served) =
                        (Arc::clone(&to_give), taken.clone(), Arc::clone(&served));
                    async move {
                        if request.uri().path().ends_with("/next") {
                            let Some(event) = to_give.lock().await.recv().await else {
                                return std::future::pending().await;
                            };
                            *served.lock().unwrap() += 1;
                            let response = Response::builder()
                                .header(
                                    "lambda-runtime-aws-request-id",
                                    format!("request-{}", served.lock().unwrap()),
                                )
                                .header("lambda-runtime-deadline-ms", "4102444800000")
                                .header(
                                    "lambda-runtime-invoked-function-arn",
                                    "arn:aws:lambda:eu-central-1:0:function:ingress",
                                )
                                .body(Full::new(Bytes::from(event)));
                            return Ok::<_, Infallible>(response.unwrap());
                        }
                        let body = request.into_body().collect().await.unwrap().to_bytes();
                        taken.send(serde_json::from_slice(&body).unwrap()).await.unwrap();
                        Ok(Response::builder().status(202).body(Full::default()).unwrap())
                    }
                });
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service);
                tokio::task::spawn(async move { drop(connection.await) });
            }
        };
        tokio::task::spawn(serve);
        (Self { events, answers }, address)
    }

    async fn invoke(&mut self, event: &Value) -> Value {
        self.events.send(event.to_string()).await.unwrap();
        let answer = tokio::time::timeout(Duration::from_secs(20), self.answers.recv()).await;
        answer.expect("an answer in time").unwrap()
    }
}
