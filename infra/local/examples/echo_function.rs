//! A function for the tests of the local host: it does what its event tells it. It speaks the Runtime API by hand, so that
//! these tests rest on the protocol and not on one client of it.

use std::{
    collections::BTreeMap,
    env, fs,
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    process::exit,
    thread::sleep,
    time::Duration,
};

use serde_json::{Value, json};

fn main() -> io::Result<()> {
    let own: BTreeMap<String, String> = env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let api = own.get("AWS_LAMBDA_RUNTIME_API").cloned().unwrap_or_default();
    match own.get("LOCAL_INIT").map(String::as_str) {
        Some("exit") => {
            writeln!(io::stderr(), "INBOX_TABLE is not set")?;
            exit(3);
        }
        Some("error") => {
            call(
                &api,
                "POST",
                "runtime/init/error",
                br#"{"errorType":"Config","errorMessage":"two settings are missing"}"#,
            )?;
            exit(1);
        }
        Some("hang") => loop {
            sleep(Duration::from_secs(60));
        },
        _ => {}
    }
    loop {
        // The host is gone when this fails; then so is the function.
        let (headers, event) = call(&api, "GET", "runtime/invocation/next", b"")?;
        let request = headers.get("lambda-runtime-aws-request-id").cloned().unwrap_or_default();
        let event: Value = serde_json::from_slice(&event).unwrap_or_default();
        let (path, answer) = match answer(&event, &headers, &own)? {
            Ok(answer) => ("response", answer),
            Err(message) => {
                ("error", json!({ "errorType": "Told", "errorMessage": message }).to_string())
            }
        };
        call(&api, "POST", &format!("runtime/invocation/{request}/{path}"), answer.as_bytes())?;
    }
}

fn answer(
    event: &Value,
    headers: &BTreeMap<String, String>,
    own: &BTreeMap<String, String>,
) -> io::Result<Result<String, String>> {
    let inner = event
        .get("body")
        .and_then(Value::as_str)
        .and_then(|body| serde_json::from_str::<Value>(body).ok());
    let told = inner.as_ref().filter(|inner| inner.get("do").is_some()).unwrap_or(event);
    let text = |name: &str| told.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    writeln!(io::stdout(), "told to {}", text("do"))?;
    match text("do").as_str() {
        "exit" => {
            writeln!(io::stderr(), "out of memory, nearly")?;
            exit(7)
        }
        "sleep" => {
            sleep(Duration::from_millis(told.get("ms").and_then(Value::as_u64).unwrap_or(0)));
        }
        "error" => return Ok(Err(text("message"))),
        "answer" => return Ok(Ok(text("text"))),
        "fill" => return Ok(Ok("x".repeat(7_000_000))),
        "environment" => return Ok(Ok(json!(own).to_string())),
        "headers" => return Ok(Ok(json!(headers).to_string())),
        "pid" => return Ok(Ok(std::process::id().to_string())),
        _ => {}
    }
    if let Some(records) = event.get("Records").and_then(Value::as_array) {
        return batch(records, own).map(Ok);
    }
    let answer = match event.get("requestContext") {
        Some(_) => {
            json!({ "statusCode": 200, "headers": { "content-type": "application/json" }, "body": event.to_string() })
        }
        None => json!({ "event": event }),
    };
    Ok(Ok(answer.to_string()))
}

/// Writes down what came, and fails the items that say so.
fn batch(records: &[Value], own: &BTreeMap<String, String>) -> io::Result<String> {
    let (mut seen, mut failures) = (Vec::new(), Vec::new());
    for record in records {
        let image = record.pointer("/dynamodb/NewImage/pk/S").or_else(|| record.get("body"));
        let told = image.and_then(Value::as_str).unwrap_or_default();
        let id = record.get("messageId").or_else(|| record.pointer("/dynamodb/SequenceNumber"));
        if told.starts_with("fail") {
            failures.push(json!({ "itemIdentifier": id }));
        }
        seen.push(told);
    }
    if let Some(path) = own.get("LOCAL_SEEN") {
        let mut file = fs::OpenOptions::new().create(true).append(true).open(path)?;
        writeln!(file, "{}", json!(seen))?;
    }
    Ok(json!({ "batchItemFailures": failures }).to_string())
}

type Answer = (BTreeMap<String, String>, Vec<u8>);

fn call(api: &str, method: &str, path: &str, body: &[u8]) -> io::Result<Answer> {
    let broken = || io::Error::from(io::ErrorKind::InvalidData);
    let (host, prefix) =
        api.strip_prefix("http://").and_then(|api| api.split_once('/')).ok_or_else(broken)?;
    let mut stream = TcpStream::connect(host)?;
    write!(
        stream,
        "{method} /{prefix}/2018-06-01/{path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    )?;
    stream.write_all(body)?;
    let (mut reader, mut line) = (BufReader::new(stream), String::new());
    reader.read_line(&mut line)?;
    if !line.starts_with("HTTP/1.1 2") {
        return Err(io::Error::other(format!("the host answered {line:?}")));
    }
    let mut headers = BTreeMap::new();
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        match line.trim_end().split_once(':') {
            Some((name, value)) => {
                headers.insert(name.to_ascii_lowercase(), value.trim().to_owned())
            }
            None => break,
        };
    }
    let length =
        headers.get("content-length").and_then(|length| length.parse().ok()).ok_or_else(broken)?;
    let mut answer = vec![0; length];
    reader.read_exact(&mut answer)?;
    Ok((headers, answer))
}
