//! One delivery on its last steps: posted to what listens on this machine, and told.

use std::{
    io::{self, Write},
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header};
use serde_json::{Value, json};

use crate::{
    client::{Client, Proof},
    complaint::{Complaint, printable},
    print::text,
};

/// Posts to one URL.
#[derive(Debug)]
pub(super) struct Forward {
    client: Client,
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Answer {
    status: Result<u16, String>,
    took: Duration,
}

/// How many were taken, and how many not.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Told {
    pub(super) taken: u64,
    pub(super) refused: u64,
}

impl Answer {
    /// 2xx is success and nothing else is.
    pub(super) fn is_taken(&self) -> bool {
        matches!(self.status, Ok(200..=299))
    }
}

/// Whether it is a URL that can be posted to.
pub(super) fn is_url(text: &str) -> bool {
    text.parse::<Uri>()
        .is_ok_and(|uri| matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some())
}

impl Forward {
    /// Checks the URL. It is kept as it was given, whatever stands in its path and behind its question mark.
    pub(super) fn new(url: &str, patience: Duration) -> Result<Self, Complaint> {
        if !is_url(url) {
            let next = "give --forward a whole URL, such as http://localhost:3000/hooks";
            return Err(Complaint::new(
                format!("{} is not where events can go", printable(url)),
                "it is not a URL that begins with http:// or https://",
                next,
            ));
        }
        Ok(Self { client: Client::new(url, Proof::None)?.with_patience(patience) })
    }

    /// Posts a delivery as it was handed out.
    pub(super) async fn post(&self, delivery: &Value) -> Answer {
        let began = Instant::now();
        let status = match request(delivery) {
            Some((headers, body)) => {
                let answer = self.client.call(Method::POST, "", headers, body).await;
                answer.map(|answer| answer.status.as_u16()).map_err(|complaint| complaint.why)
            }
            None => Err("what was handed out cannot be sent".to_owned()),
        };
        Answer { status, took: began.elapsed() }
    }
}

/// The headers and the bytes that were signed.
fn request(delivery: &Value) -> Option<(HeaderMap, Bytes)> {
    let mut headers = HeaderMap::new();
    for (name, value) in delivery.get("headers")?.as_object()? {
        let name = name.parse::<HeaderName>().ok()?;
        headers.insert(name, HeaderValue::from_str(value.as_str()?).ok()?);
    }
    headers.insert(header::USER_AGENT, HeaderValue::from_static("Postern-listen"));
    let body = match (delivery.get("body"), delivery.get("body_base64")) {
        (Some(Value::String(text)), _) => Bytes::from(text.clone()),
        (_, Some(Value::String(text))) => STANDARD.decode(text).ok()?.into(),
        _ => return None,
    };
    Some((headers, body))
}

impl Told {
    /// One line for each.
    pub(super) fn tell(
        &mut self,
        delivery: &Value,
        answer: &Answer,
        is_json: bool,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        *(if answer.is_taken() { &mut self.taken } else { &mut self.refused }) += 1;
        let millis = answer.took.as_millis();
        if is_json {
            let (status, error) = match &answer.status {
                Ok(status) => (Some(*status), None),
                Err(why) => (None, Some(why)),
            };
            let [event, kind, attempt] =
                ["event", "type", "attempt"].map(|name| delivery.get(name).cloned());
            writeln!(
                out,
                "{}",
                json!({
                    "event": event, "type": kind, "attempt": attempt, "status": status, "error": error,
                    "taken": answer.is_taken(), "duration_ms": u64::try_from(millis).unwrap_or(u64::MAX),
                })
            )?;
            return out.flush();
        }
        let said = match &answer.status {
            Ok(status) => status.to_string(),
            Err(why) => printable(why),
        };
        let next = if answer.is_taken() {
            String::new()
        } else {
            format!("; it comes again at {}", text(delivery, "until"))
        };
        let attempt = match text(delivery, "attempt").as_str() {
            "1" => String::new(),
            number => format!(" (attempt {number})"),
        };
        let (event, kind) = (text(delivery, "event"), text(delivery, "type"));
        writeln!(out, "{event}  {kind}{attempt}  {said} in {millis} ms{next}")?;
        out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delivery() -> Value {
        json!({
            "receipt": "evt_1.0.1", "event": "evt_1", "type": "invoice.paid", "attempt": 2,
            "until": "2026-09-21T14:13:20Z", "headers": {"webhook-id": "evt_1"}, "body": "{\"n\":1.0}",
        })
    }

    #[test]
    fn what_is_posted_is_what_was_handed_out() {
        let (headers, body) = request(&delivery()).unwrap();
        assert_eq!(
            (headers["webhook-id"].as_bytes(), body.as_ref()),
            (&b"evt_1"[..], &b"{\"n\":1.0}"[..])
        );
        let mut binary = delivery();
        binary["body"] = Value::Null;
        binary["body_base64"] = "/wA=".into();
        assert_eq!(request(&binary).unwrap().1.as_ref(), [0xff, 0]);
        for broken in
            [json!(null), json!({"headers": {"a b": "x"}, "body": "x"}), json!({"headers": {}})]
        {
            assert!(request(&broken).is_none(), "{broken}");
        }
    }

    #[test]
    fn each_is_told_on_a_line_and_counted() {
        let mut told = Told::default();
        let mut line = |status, is_json| {
            let mut out = Vec::new();
            let answer = Answer { status, took: Duration::from_millis(12) };
            told.tell(&delivery(), &answer, is_json, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(line(Ok(204), false), "evt_1  invoice.paid (attempt 2)  204 in 12 ms\n");
        let refused = line(Err("\u{1b}nobody listens".to_owned()), false);
        assert_eq!(
            refused,
            "evt_1  invoice.paid (attempt 2)  \\u{1b}nobody listens in 12 ms; it comes again at 2026-09-21T14:13:20Z\n"
        );
        let json: Value = serde_json::from_str(&line(Ok(500), true)).unwrap();
        assert_eq!((&json["status"], &json["taken"]), (&json!(500), &json!(false)));
        assert_eq!((told.taken, told.refused), (1, 2));
    }

    /// LOC-forwarder-gaps
    #[test]
    fn only_a_whole_url_is_forwarded_to() {
        let new = |url: &str| Forward::new(url, Duration::from_secs(1));
        for good in
            ["http://localhost:3000/hooks?a=1&b=2", "https://example.com", "http://[::1]:3000/"]
        {
            assert_eq!(new(good).unwrap().client.base(), good);
        }
        for bad in ["localhost:3000", "/hooks", "ftp://localhost/", "", "http://"] {
            assert!(new(bad).is_err(), "{bad}");
        }
    }
}
