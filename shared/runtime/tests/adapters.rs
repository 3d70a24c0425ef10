//! The adapters, against a scripted AWS on loopback: what they ask for, and what they make of the answers.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::disallowed_methods, reason = "the servers of a test end with it")]

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use bytes::Bytes;
use domain::{
    id::{EndpointId, InboxKey, SourceName, TenantId},
    message::InboundMessage,
    ports::{
        Bodies as _, Keyring as _, Queue, SetSourceSecrets as _, SourceSecret, SourceSecrets as _,
        StoreError,
    },
    secret::SecretText,
};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use runtime::{
    BodyStore, KmsKeyring, SecretsManager, SqsQueue,
    aws::{Aws, Pace, Settings},
    env::Env,
};
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// One request, as it came: method, path, what is asked for, body.
#[derive(Clone, Debug)]
struct Asked {
    method: String,
    path: String,
    target: String,
    body: Bytes,
    is_signed: bool,
}

impl Asked {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

type Answers = Arc<dyn Fn(usize, &Asked) -> (u16, Vec<u8>) + Send + Sync>;

struct Scripted {
    settings: Settings,
    asked: Arc<Mutex<Vec<Asked>>>,
}

const PACE: Pace = Pace {
    connect: Duration::from_millis(500),
    attempt: Duration::from_millis(200),
    operation: Duration::from_millis(900),
    tries: 3,
};

fn settings(url: &str) -> Settings {
    let endpoint = |service: &str| (format!("AWS_ENDPOINT_URL_{service}"), url.to_owned());
    let mut variables: Vec<(String, String)> = [
        ("AWS_REGION", "eu-central-1"),
        ("AWS_ACCESS_KEY_ID", "AKID"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    variables.extend(["SQS", "SECRETS_MANAGER", "KMS"].map(endpoint));
    variables.push(("AWS_ENDPOINT_URL_S3".to_owned(), format!("{url}/s3")));
    Env::over(variables).parse(Settings::read).unwrap()
}

impl Scripted {
    /// An AWS that answers the n-th request with what `answer` says.
    async fn start(
        answer: impl Fn(usize, &Asked) -> (u16, Vec<u8>) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let settings = settings(&format!("http://{}", listener.local_addr().unwrap()));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (answers, log): (Answers, _) = (Arc::new(answer), Arc::clone(&asked));
        tokio::task::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (answers, log) = (Arc::clone(&answers), Arc::clone(&log));
                let service = service_fn(move |request| {
                    respond(request, Arc::clone(&answers), Arc::clone(&log))
                });
                let http = hyper::server::conn::http1::Builder::new();
                let connection = http.serve_connection(TokioIo::new(stream), service);
                tokio::task::spawn(async move { drop(connection.await) });
            }
        });
        Self { settings, asked }
    }

    async fn json(answer: impl Fn(usize, &Asked) -> (u16, Value) + Send + Sync + 'static) -> Self {
        Self::start(move |n, asked| {
            let (status, body) = answer(n, asked);
            (status, body.to_string().into_bytes())
        })
        .await
    }

    fn aws(&self) -> Aws {
        Aws::new(&self.settings, PACE)
    }

    fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

async fn respond(
    request: Request<Incoming>,
    answers: Answers,
    log: Arc<Mutex<Vec<Asked>>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let header =
        |name: &str| request.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
    let (method, path) = (request.method().to_string(), request.uri().path().to_owned());
    let target = header("x-amz-target").unwrap_or_default();
    let is_signed = header("authorization").is_some_and(|value| value.contains("AKID"));
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let asked = Asked { method, path, target, body, is_signed };
    let n = {
        let mut log = log.lock().unwrap();
        log.push(asked.clone());
        log.len() - 1
    };
    let (status, body) = answers(n, &asked);
    // S3 says these of every object.
    let response = Response::builder()
        .header("etag", "\"x\"")
        .header("last-modified", "Thu, 09 Oct 2025 08:53:20 GMT");
    Ok(response.status(status).body(Full::from(body)).unwrap())
}

fn error(code: &str) -> Value {
    json!({"__type": format!("com.amazonaws#{code}"), "message": "no"})
}

fn message(n: usize) -> InboundMessage {
    InboundMessage(InboxKey::new("demo".parse().unwrap(), &format!("evt_{n}")).unwrap())
}

fn queue(aws: &Scripted) -> SqsQueue {
    SqsQueue::new(
        aws.aws().sqs(),
        "https://sqs.eu-central-1.amazonaws.com/000000000000/inbound".to_owned(),
    )
}

fn source() -> SourceName {
    "demo".parse().unwrap()
}

#[tokio::test]
async fn one_message_is_sent_alone_with_its_group() {
    let aws = Scripted::json(|_, _| (200, json!({"MessageId": "m", "MD5OfMessageBody": ""}))).await;
    let queue = queue(&aws);
    assert!(queue.send(&[message(1)], Duration::from_millis(1500)).await.is_empty());
    let [asked] = aws.asked().try_into().unwrap();
    assert_eq!((asked.target.as_str(), asked.is_signed), ("AmazonSQS.SendMessage", true));
    assert_eq!(
        asked.json(),
        json!({
            "QueueUrl": "https://sqs.eu-central-1.amazonaws.com/000000000000/inbound",
            "MessageBody": r#"{"v":1,"source":"demo","event_id":"evt_1"}"#,
            "MessageGroupId": "demo",
            "DelaySeconds": 2,
        })
    );
}

#[tokio::test]
async fn a_batch_goes_in_tens_and_each_entry_is_asked_after() {
    let aws = Scripted::json(|_, asked| {
        let body = asked.json();
        let ids: Vec<&str> =
            body["Entries"].as_array().unwrap().iter().map(|e| e["Id"].as_str().unwrap()).collect();
        assert!(ids.len() <= 10);
        // The fourth of each call fails, and the fifth is not mentioned at all.
        let sent: Vec<Value> = ids
            .iter()
            .filter(|id| !["3", "4"].contains(id))
            .map(|id| json!({"Id": id, "MessageId": "m", "MD5OfMessageBody": ""}))
            .collect();
        let failed = json!([{"Id": "3", "Code": "InternalError", "SenderFault": false}]);
        (200, json!({"Successful": sent, "Failed": failed}))
    })
    .await;
    let messages: Vec<InboundMessage> = (0..25).map(message).collect();
    let lost = queue(&aws).send(&messages, Duration::ZERO).await;
    assert_eq!(aws.asked().len(), 3);
    assert!(aws.asked().iter().all(|asked| asked.target == "AmazonSQS.SendMessageBatch"));
    assert_eq!(lost, [3, 4, 13, 14, 23, 24]);
    assert!(aws.asked()[0].json()["Entries"][0].get("DelaySeconds").is_none());
}

#[tokio::test]
async fn messages_that_nobody_took_are_all_named() {
    let aws = Scripted::json(|_, _| (403, error("AccessDenied"))).await;
    let messages: Vec<InboundMessage> = (0..12).map(message).collect();
    assert_eq!(queue(&aws).send(&messages, Duration::ZERO).await, (0..12).collect::<Vec<_>>());
    assert_eq!(queue(&aws).send(&messages[..1], Duration::ZERO).await, [0]);
    assert!(queue(&aws).send(&[] as &[InboundMessage], Duration::ZERO).await.is_empty());
}

#[tokio::test]
async fn only_messages_that_can_be_had_are_counted_and_a_missing_number_is_no_zero() {
    let answer = json!({"Attributes": {
        "ApproximateNumberOfMessages": "5",
        "ApproximateNumberOfMessagesNotVisible": "3",
        "ApproximateNumberOfMessagesDelayed": "2",
    }});
    let aws = Scripted::json(move |_, _| (200, answer.clone())).await;
    assert_eq!(Queue::<InboundMessage>::visible(&queue(&aws)).await.unwrap(), 5);
    let other = json!({"Attributes": {"ApproximateNumberOfMessagesDelayed": "5"}});
    let aws = Scripted::json(move |_, _| (200, other.clone())).await;
    let visible = Queue::<InboundMessage>::visible(&queue(&aws)).await;
    assert!(matches!(visible, Err(StoreError::Unreadable(_))), "{visible:?}");
}

#[tokio::test]
async fn a_message_is_hidden_for_whole_seconds() {
    let aws = Scripted::json(|_, _| (200, json!({}))).await;
    Queue::<InboundMessage>::defer(&queue(&aws), "receipt", Duration::from_millis(1)).await;
    let [asked] = aws.asked().try_into().unwrap();
    assert_eq!(asked.target, "AmazonSQS.ChangeMessageVisibility");
    assert_eq!(
        (&asked.json()["ReceiptHandle"], &asked.json()["VisibilityTimeout"]),
        (&json!("receipt"), &json!(1))
    );
}

#[tokio::test]
async fn the_secrets_of_a_source_are_read_by_its_name() {
    let text = r#"{"keys":[{"id":"a","secret":"whsec_1"},{"id":"b","secret":"whsec_2","expires_at":1760000000000}]}"#;
    let aws = Scripted::json(move |_, _| (200, json!({"Name": "n", "SecretString": text}))).await;
    let secrets = SecretsManager::new(aws.aws().secrets_manager(), "postern/dev".to_owned());
    let read = secrets.of(&source()).await.unwrap();
    let texts: Vec<&str> = read.iter().map(|secret| secret.text.expose()).collect();
    assert_eq!(texts, ["whsec_1", "whsec_2"]);
    let [asked] = aws.asked().try_into().unwrap();
    assert_eq!(asked.target, "secretsmanager.GetSecretValue");
    assert_eq!(asked.json()["SecretId"], "postern/dev/in/demo");
}

#[tokio::test]
async fn no_secret_is_none_and_everything_else_is_an_error() {
    let read = async |status: u16, code: &'static str| {
        let aws = Scripted::json(move |_, _| (status, error(code))).await;
        let secrets = SecretsManager::new(aws.aws().secrets_manager(), "p".to_owned());
        (secrets.of(&source()).await, aws.asked().len())
    };
    let (none, _) = read(400, "ResourceNotFoundException").await;
    assert!(none.unwrap().is_empty());
    let (refused, tries) = read(400, "AccessDeniedException").await;
    assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
    assert_eq!(tries, 1);
    let (throttled, tries) = read(400, "ThrottlingException").await;
    assert!(matches!(throttled, Err(StoreError::Throttled(_))), "{throttled:?}");
    assert_eq!(tries, 3);
    let (away, tries) = read(500, "InternalServiceError").await;
    assert!(matches!(away, Err(StoreError::Unavailable(_))), "{away:?}");
    assert_eq!(tries, 3);
}

/// One secret of a store of secrets, as it answers: absent until it is made.
fn one_secret() -> impl Fn(usize, &Asked) -> (u16, Value) + Send + Sync + 'static {
    let kept = Mutex::new(None::<Value>);
    move |_, asked| {
        let (mut kept, request) = (kept.lock().unwrap(), asked.json());
        match (asked.target.as_str(), kept.is_some()) {
            ("secretsmanager.CreateSecret", true) => (400, error("ResourceExistsException")),
            ("secretsmanager.CreateSecret", false) | ("secretsmanager.PutSecretValue", true) => {
                *kept = request.get("SecretString").cloned();
                (200, json!({}))
            }
            ("secretsmanager.GetSecretValue", true) => (200, json!({"SecretString": *kept})),
            _ => (400, error("ResourceNotFoundException")),
        }
    }
}

#[tokio::test]
async fn secrets_manager_keeps_the_contract_of_secrets() {
    testkit::contract::secrets(async || {
        let aws = Scripted::json(one_secret()).await;
        SecretsManager::new(aws.aws().secrets_manager(), "p".to_owned())
    })
    .await;
}

#[tokio::test]
async fn secrets_are_made_once_and_replaced_only_where_they_are() {
    let new = [SourceSecret {
        id: "a".to_owned(),
        text: SecretText::new("whsec_1".to_owned()),
        expires_at: None,
    }];
    let aws = Scripted::json(|n, _| match n {
        0 => (200, json!({"ARN": "a", "Name": "n"})),
        1 => (400, error("ResourceExistsException")),
        2 => (400, error("ResourceNotFoundException")),
        _ => (200, json!({})),
    })
    .await;
    let secrets = SecretsManager::new(aws.aws().secrets_manager(), "p".to_owned())
        .encrypting_with("arn:key".to_owned());
    assert!(secrets.create(&source(), &new).await.unwrap());
    assert!(!secrets.create(&source(), &new).await.unwrap());
    assert!(!secrets.replace(&source(), &new).await.unwrap());
    assert!(secrets.replace(&source(), &new).await.unwrap());
    let made = aws.asked()[0].json();
    assert_eq!(
        (made["Name"].as_str(), made["KmsKeyId"].as_str()),
        (Some("p/in/demo"), Some("arn:key"))
    );
    assert_eq!(
        made["SecretString"],
        r#"{"keys":[{"id":"a","secret":"whsec_1","expires_at":null}]}"#
    );
}

#[tokio::test]
async fn a_secret_is_sealed_for_its_endpoint() {
    // "sealed" and "whsec_1", in base64.
    let aws = Scripted::json(|_, asked| match asked.target.as_str() {
        "TrentService.Encrypt" => (200, json!({"CiphertextBlob": "c2VhbGVk"})),
        _ => (200, json!({"Plaintext": "d2hzZWNfMQ=="})),
    })
    .await;
    let tenant: TenantId = "acme".parse().unwrap();
    let endpoint: EndpointId = "ep_0197a0b0c0d07000800000000000abcd".parse().unwrap();
    let keyring = KmsKeyring::new(aws.aws().kms(), "arn:key".to_owned());
    let sealed =
        keyring.seal(&tenant, endpoint, &SecretText::new("whsec_1".to_owned())).await.unwrap();
    assert_eq!(sealed, b"sealed");
    let opening = KmsKeyring::opening(aws.aws().kms());
    assert_eq!(opening.unseal(&tenant, endpoint, &sealed).await.unwrap().expose(), "whsec_1");
    assert!(matches!(
        opening.seal(&tenant, endpoint, &SecretText::new(String::new())).await,
        Err(StoreError::Refused(_))
    ));
    let context = json!({"tenant": "acme", "endpoint": "ep_0197a0b0c0d07000800000000000abcd"});
    assert_eq!(aws.asked().len(), 2);
    for asked in aws.asked() {
        assert_eq!(asked.json()["EncryptionContext"], context);
    }
    assert_eq!(aws.asked()[0].json()["KeyId"], "arn:key");
    assert!(aws.asked()[1].json().get("KeyId").is_none());
}

#[tokio::test]
async fn what_was_sealed_for_another_endpoint_is_refused() {
    let aws = Scripted::json(|_, _| (400, error("InvalidCiphertextException"))).await;
    let keyring = KmsKeyring::opening(aws.aws().kms());
    let endpoint = "ep_0197a0b0c0d07000800000000000abcd".parse().unwrap();
    let opened = keyring.unseal(&"acme".parse().unwrap(), endpoint, b"sealed").await;
    assert!(matches!(opened, Err(StoreError::Refused(_))), "{opened:?}");
}

fn bodies(aws: &Scripted) -> BodyStore {
    BodyStore::open("s3://bodies-1", &aws.settings, PACE).unwrap()
}

#[tokio::test]
async fn bodies_go_to_the_bucket_under_their_name_and_come_back() {
    let aws = Scripted::start(|_, asked| match asked.method.as_str() {
        "GET" => (200, b"0123456789".to_vec()),
        _ => (200, Vec::new()),
    })
    .await;
    let bodies = bodies(&aws);
    bodies.put("in/demo/abc", b"0123456789".to_vec()).await.unwrap();
    assert_eq!(bodies.get("in/demo/abc", 10).await.unwrap(), Some(b"0123456789".to_vec()));
    assert!(matches!(bodies.get("in/demo/abc", 9).await, Err(StoreError::Unreadable(_))));
    let asked = aws.asked();
    assert!(
        asked.iter().all(|asked| asked.path == "/s3/bodies-1/in/demo/abc" && asked.is_signed),
        "{asked:?}"
    );
    assert_eq!(
        (asked[0].method.as_str(), asked[0].body.as_ref()),
        ("PUT", b"0123456789".as_slice())
    );
}

#[tokio::test]
async fn an_object_that_is_not_there_is_none_and_everything_else_is_an_error() {
    let get = async |status: u16| {
        let aws =
            Scripted::start(move |_, _| (status, b"<Error><Code>x</Code></Error>".to_vec())).await;
        (bodies(&aws).get("in/demo/abc", 10).await, aws.asked().len())
    };
    assert!(matches!(get(404).await, (Ok(None), 1)));
    let (refused, tries) = get(403).await;
    assert!(matches!(refused, Err(StoreError::Refused(_))) && tries == 1, "{refused:?}");
    let (away, tries) = get(503).await;
    assert!(
        matches!(away, Err(StoreError::Unavailable(_))) && tries == 3,
        "{away:?}, {tries} tries"
    );
}

/// DEP-sdk-timeouts
#[tokio::test]
async fn an_aws_that_never_answers_is_unavailable_within_the_time_of_an_operation() {
    let hole = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let settings = settings(&format!("http://{}", hole.local_addr().unwrap()));
    // So many tries that only the time of the operation ends them.
    let pace = Pace { tries: 50, ..PACE };
    let aws = Aws::new(&settings, pace);
    let began = Instant::now();
    let secrets = SecretsManager::new(aws.secrets_manager(), "p".to_owned());
    assert!(matches!(secrets.of(&source()).await, Err(StoreError::Unavailable(_))));
    let bodies = BodyStore::open("s3://bodies-1", &settings, pace).unwrap();
    assert!(matches!(bodies.get("in/demo/abc", 10).await, Err(StoreError::Unavailable(_))));
    let queue = SqsQueue::new(aws.sqs(), "https://sqs.example/inbound".to_owned());
    assert_eq!(queue.send(&[message(1)], Duration::ZERO).await, [0]);
    // Three operations of 0.9 s, and room for a busy machine.
    assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
    drop(hole);
}

/// DEP-sdk-timeouts
#[tokio::test]
async fn after_an_outage_the_next_call_works() {
    let aws = Scripted::start(|n, _| {
        if n < 3 {
            (500, Vec::new())
        } else {
            (200, br#"{"SecretString":"{\"keys\":[]}"}"#.to_vec())
        }
    })
    .await;
    let secrets = SecretsManager::new(aws.aws().secrets_manager(), "p".to_owned());
    assert!(secrets.of(&source()).await.is_err());
    assert!(secrets.of(&source()).await.unwrap().is_empty());
}
