//! Queues and buses by the real SDK, against a service that answers as it is told: every answer has one plain cause, and
//! every call is made once.

#![expect(clippy::unwrap_used, reason = "test code")]

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use deliverer::{
    AwsTargets,
    transport::{Answered, Entry, Fifo, Message, Targets as _},
};
use domain::{
    delivery::Cause,
    destination::Destination,
    endpoint::{Endpoint, Notice, What},
    ports::Notices as _,
};
use jiff::Timestamp;
use runtime::{aws::Settings, env::Env};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

/// What the service does with a request.
#[derive(Clone, Copy, Debug)]
enum Does {
    /// Answers with this status, headers and body.
    Answer(u16, &'static str, &'static str),
    /// Reads it and closes.
    Close,
}

struct Service {
    url: String,
    requests: Arc<AtomicUsize>,
    last: Arc<std::sync::Mutex<String>>,
}

async fn service(does: Does) -> Service {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (requests, last) =
        (Arc::new(AtomicUsize::new(0)), Arc::<std::sync::Mutex<String>>::default());
    let (count, seen) = (Arc::clone(&requests), Arc::clone(&last));
    #[expect(clippy::disallowed_methods, reason = "the service of a test")]
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut read = Vec::new();
            let mut chunk = [0; 4096];
            while !is_whole(&read) {
                match stream.read(&mut chunk).await {
                    Ok(n) if n > 0 => read.extend(chunk.iter().take(n)),
                    _ => break,
                }
            }
            if read.is_empty() {
                continue;
            }
            count.fetch_add(1, Ordering::SeqCst);
            *seen.lock().unwrap() = String::from_utf8_lossy(&read).into_owned();
            if let Does::Answer(status, headers, body) = does {
                let length = body.len();
                let head = format!(
                    "HTTP/1.1 {status} X\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n"
                );
                let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
                let _ = stream.shutdown().await;
            }
        }
    });
    Service { url, requests, last }
}

fn is_whole(read: &[u8]) -> bool {
    let text = String::from_utf8_lossy(read).to_ascii_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    length.is_none_or(|length| body.len() >= length.trim().parse().unwrap())
}

const OWN: &str = "https://sqs.eu-central-1.amazonaws.com/123456789012/postern-WakeQueue";

/// The operators'.
const OPS_BUS: &str = "arn:aws:events:eu-central-1:123456789012:event-bus/postern-ops";

fn targets(url: &str) -> AwsTargets {
    let variables = [
        ("AWS_REGION", "eu-central-1"),
        ("AWS_ACCESS_KEY_ID", "AKID"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
        ("AWS_ENDPOINT_URL_SQS", url),
        ("AWS_ENDPOINT_URL_EVENTBRIDGE", url),
    ];
    let settings = Env::over(variables).parse(Settings::read).unwrap();
    AwsTargets::new(&settings, OWN, OPS_BUS.parse().unwrap())
}

fn message(fifo: bool) -> Message {
    let suffix = if fifo { ".fifo" } else { "" };
    let queue = format!("https://sqs.eu-central-1.amazonaws.com/123456789012/mail{suffix}");
    Message {
        queue: queue.parse().unwrap(),
        body: r#"{"n":1}"#.to_owned(),
        key: "evt_1".to_owned(),
        event_type: "invoice.paid".to_owned(),
        fifo: fifo.then(|| Fifo { group: "in_1".to_owned() }),
    }
}

fn entry() -> Entry {
    Entry {
        bus: "arn:aws:events:eu-central-1:123456789012:event-bus/orders".parse().unwrap(),
        source: "postern.acme".to_owned(),
        detail_type: "invoice.paid".to_owned(),
        detail: r#"{"n":1}"#.to_owned(),
        key: "evt_1".to_owned(),
        at: Timestamp::from_second(1_760_000_000).unwrap(),
    }
}

const SENT: Does = Does::Answer(
    200,
    "content-type: application/x-amz-json-1.0\r\n",
    r#"{"MessageId":"m-1","MD5OfMessageBody":"6fb1b2a4f4fcd5fb3c5f0e2c2c8f8b4a"}"#,
);

fn taken(excerpt: &str) -> Answered {
    Answered::plain(200, excerpt.to_owned())
}

/// C28: a FIFO queue drops what it has seen under the event's id.
#[tokio::test]
async fn a_message_carries_its_key() {
    for fifo in [false, true] {
        // The SDK checks the sum of the body, which this service has made up.
        let service = service(SENT).await;
        let sent = targets(&service.url).message(message(fifo)).await;
        let request = service.last.lock().unwrap().clone();
        assert!(
            request.contains(r#""idempotency_key":{"StringValue":"evt_1""#)
                || request
                    .contains(r#""idempotency_key":{"DataType":"String","StringValue":"evt_1""#),
            "{request}"
        );
        assert!(request.contains("invoice.paid"), "{request}");
        assert_eq!(request.contains(r#""MessageDeduplicationId":"evt_1""#), fifo, "{request}");
        assert_eq!(request.contains(r#""MessageGroupId":"in_1""#), fifo, "{request}");
        assert!(sent.is_ok_and(|sent| sent == taken("message m-1")));
    }
}

#[tokio::test]
async fn an_entry_carries_its_key() {
    let service =
        service(Does::Answer(200, "", r#"{"FailedEntryCount":0,"Entries":[{"EventId":"e-1"}]}"#))
            .await;
    let put = targets(&service.url).put(entry()).await;
    assert!(put.is_ok_and(|put| put == taken("event e-1")));
    let request = service.last.lock().unwrap().clone();
    assert!(request.contains(r#""Resources":["evt_1"]"#), "{request}");
    assert!(request.contains("event-bus/orders") && request.contains("postern.acme"), "{request}");
}

/// C17, C24: what the SDK would repeat by itself is the delivery's own business.
#[tokio::test]
async fn every_answer_has_one_cause_and_every_call_is_made_once() {
    let json = "content-type: application/x-amz-json-1.0\r\n";
    for (does, expected) in [
        (Does::Close, Cause::Reset),
        (Does::Answer(500, json, r#"{"__type":"InternalError"}"#), Cause::Unavailable),
        (Does::Answer(503, "", ""), Cause::Unavailable),
        (Does::Answer(403, json, r#"{"__type":"RequestThrottled"}"#), Cause::Throttled),
        (Does::Answer(403, json, r#"{"__type":"AccessDenied"}"#), Cause::Denied),
        (
            Does::Answer(
                400,
                "x-amzn-query-error: AWS.SimpleQueueService.NonExistentQueue;Sender\r\n",
                r#"{"__type":"com.amazonaws.sqs#QueueDoesNotExist"}"#,
            ),
            Cause::NoSuchTarget,
        ),
        (Does::Answer(400, json, r#"{"__type":"InvalidMessageContents"}"#), Cause::Unacceptable),
    ] {
        let service = service(does).await;
        let failed = targets(&service.url).message(message(false)).await.unwrap_err();
        assert_eq!(failed.cause, expected, "{does:?} {failed:?}");
        assert_eq!(service.requests.load(Ordering::SeqCst), 1, "{does:?}");
    }
    // Nobody listens: this is known to have done nothing.
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", gone.local_addr().unwrap());
    drop(gone);
    assert_eq!(targets(&url).message(message(false)).await.unwrap_err().cause, Cause::Refused);
}

#[tokio::test]
async fn a_bus_that_answers_200_may_have_failed_all_the_same() {
    for (body, expected) in [
        (
            r#"{"FailedEntryCount":1,"Entries":[{"ErrorCode":"ThrottlingException","ErrorMessage":"m"}]}"#,
            Cause::Throttled,
        ),
        (
            r#"{"FailedEntryCount":1,"Entries":[{"ErrorCode":"InternalFailure"}]}"#,
            Cause::Unavailable,
        ),
        (
            r#"{"FailedEntryCount":1,"Entries":[{"ErrorCode":"MalformedDetail"}]}"#,
            Cause::Unacceptable,
        ),
        (r#"{"FailedEntryCount":1,"Entries":[{"EventId":"e-1"}]}"#, Cause::BadAnswer),
        (r#"{"FailedEntryCount":0,"Entries":[{}]}"#, Cause::BadAnswer),
        (r#"{"FailedEntryCount":0,"Entries":[]}"#, Cause::BadAnswer),
        ("{}", Cause::BadAnswer),
    ] {
        let service = service(Does::Answer(200, "", body)).await;
        let failed = targets(&service.url).put(entry()).await.unwrap_err();
        assert_eq!(failed.cause, expected, "{body}");
        assert_eq!(service.requests.load(Ordering::SeqCst), 1, "{body}");
    }
}

#[test]
fn the_queue_that_wakes_us_is_known() {
    let targets = targets("http://127.0.0.1:9");
    assert!(targets.is_own(&OWN.parse().unwrap()) && !targets.is_own(&message(false).queue));
}

/// DLV-disable-notice: told by the operators' bus, and not told is not lost.
#[tokio::test]
async fn a_notice_is_taken_when_the_bus_says_so_of_its_entry() {
    let endpoint = Endpoint::new(
        "acme".parse().unwrap(),
        format!("ep_{:032x}", 7).parse().unwrap(),
        Destination::Https("https://example.com/".to_owned()),
        Timestamp::UNIX_EPOCH,
    );
    let since = Timestamp::from_second(1_760_000_000).unwrap();
    let notice = Notice { what: What::Disabled, since, reason: "gone".to_owned() };
    for (does, expected) in [
        (r#"{"FailedEntryCount":0,"Entries":[{"EventId":"e-1"}]}"#, true),
        (r#"{"FailedEntryCount":1,"Entries":[{"ErrorCode":"ThrottlingException"}]}"#, false),
        (r#"{"FailedEntryCount":1,"Entries":[{"EventId":"e-1"}]}"#, false),
        (r#"{"FailedEntryCount":0,"Entries":[{}]}"#, false),
        (r#"{"FailedEntryCount":0,"Entries":[]}"#, false),
        ("{}", false),
    ]
    .map(|(body, expected)| (Does::Answer(200, "", body), expected))
    .into_iter()
    .chain([(Does::Answer(500, "", ""), false), (Does::Close, false)])
    {
        let service = service(does).await;
        let told = targets(&service.url).tell(&endpoint, &notice).await;
        assert_eq!(told.is_ok(), expected, "{does:?} {told:?}");
        assert!(told.is_ok() || told.is_err_and(|error| error.is_transient()), "{does:?}");
        let request = service.last.lock().unwrap().clone();
        for part in [r#""Source":"postern""#, r#""DetailType":"endpoint.disabled""#, OPS_BUS] {
            assert!(request.contains(part), "{request}");
        }
    }
}

/// Our role may write there for notices; an endpoint must not borrow that.
#[tokio::test]
async fn the_operators_bus_is_no_endpoint() {
    let service =
        service(Does::Answer(200, "", r#"{"FailedEntryCount":0,"Entries":[{"EventId":"e-1"}]}"#))
            .await;
    let entry = Entry { bus: OPS_BUS.parse().unwrap(), ..entry() };
    let failed = targets(&service.url).put(entry).await.unwrap_err();
    assert_eq!(failed.cause, Cause::BlockedAddress);
    assert_eq!(service.requests.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_bus_is_missing_only_if_the_service_says_so() {
    let missing =
        r#"{"__type":"ResourceNotFoundException","message":"Event bus orders does not exist."}"#;
    for (does, expected) in [
        (Does::Answer(400, "", missing), true),
        (Does::Answer(200, "", r#"{"Name":"orders"}"#), false),
        (Does::Answer(400, "", r#"{"__type":"AccessDeniedException"}"#), false),
        (Does::Answer(500, "", ""), false),
        (Does::Close, false),
    ] {
        let service = service(does).await;
        assert_eq!(targets(&service.url).is_missing(&entry().bus).await, expected, "{does:?}");
    }
}
