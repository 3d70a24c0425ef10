//! A store that answers what it is told to answer.

use aws_sdk_dynamodb::Client;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::AbortHandle,
};

use crate::tables::client;

/// A client, and what it talks to.
#[derive(Debug)]
pub(crate) struct Faulty {
    pub(crate) client: Client,
    server: AbortHandle,
}

impl Drop for Faulty {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// What the store does with a request.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// An HTTP status and a body.
    Says(u16, String),
    /// It hangs up.
    HangsUp,
}

impl Answer {
    /// An error as the store writes one.
    pub(crate) fn error(status: u16, code: &str) -> Self {
        let body = format!(
            r#"{{"__type":"com.amazonaws.dynamodb.v20120810#{code}","message":"it said {code}"}}"#
        );
        Self::Says(status, body)
    }

    /// A cancelled transaction, with the codes of its reasons.
    pub(crate) fn cancelled(codes: &[&str]) -> Self {
        let reasons = codes.iter().map(|code| format!(r#"{{"Code":"{code}"}}"#));
        let body = format!(
            r#"{{"__type":"com.amazonaws.dynamodb.v20120810#TransactionCanceledException","Message":"no","CancellationReasons":[{}]}}"#,
            reasons.collect::<Vec<_>>().join(",")
        );
        Self::Says(400, body)
    }
}

/// Starts a store that gives one answer to everything.
pub(crate) async fn answering(answer: Answer) -> Faulty {
    answering_in_turn(vec![answer]).await
}

/// Starts a store that gives these answers one after the other, and then the last one for ever.
#[expect(clippy::disallowed_methods, reason = "the server ends with its handle")]
pub(crate) async fn answering_in_turn(answers: Vec<Answer>) -> Faulty {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    let serve = async move {
        let mut turn = 0;
        while let Ok((stream, _)) = listener.accept().await {
            let answer = answers.get(turn).or(answers.last()).expect("an answer");
            // A client that goes away in between is no matter.
            let _ = respond(stream, answer).await;
            turn += 1;
        }
    };
    Faulty { client: client(port), server: tokio::spawn(serve).abort_handle() }
}

async fn respond(mut stream: TcpStream, answer: &Answer) -> std::io::Result<()> {
    let mut request = Vec::new();
    while !is_whole(&request) {
        if stream.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    }
    let Answer::Says(status, body) = answer else { return Ok(()) };
    let head = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/x-amz-json-1.0\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.shutdown().await
}

/// Whether a request has come to its end, by its own word.
fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    });
    body.len() >= length.unwrap_or(0)
}
