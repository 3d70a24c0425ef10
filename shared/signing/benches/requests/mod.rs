//! The requests that the benchmarks verify.

use std::hint::black_box;

use http::HeaderMap;
use jiff::Timestamp;
use serde_json::json;
use signing::{
    Key, Request, Scheme, Secret, SigningKey,
    sign::{Outgoing, sign_as},
    verify,
};

pub(crate) const SECRET: &str = "whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=";
const URL: &str = "https://hooks.example/in";

/// The least that can be verified: one signature over the body, nothing else asked of the request.
pub(crate) fn lean() -> Scheme {
    Scheme::from_value(json!({
        "algorithm": "hmac-sha256",
        "signed": "{body}",
        "signature": {"from": "{header:x-signature}", "encoding": "hex"},
    }))
    .unwrap()
}

/// An event as payment providers send them, of this length.
pub(crate) fn body(bytes: usize) -> Vec<u8> {
    let start = r#"{"id":"evt_1NG8Du2eZvKYlo2CUI79vXWy","object":"event","created":1767225600,"type":"invoice.paid","data":{"object":{"id":"in_1","object":"invoice","lines":["#;
    let end = "]}}}";
    let mut text = start.to_owned();
    let line = r#"{"amount":1999,"currency":"eur"},"#;
    while text.len() + line.len() + end.len() + 2 <= bytes {
        text.push_str(line);
    }
    let rest = bytes - text.len() - end.len() - 2;
    text.push_str(&format!("\"{}\"{end}", "x".repeat(rest)));
    assert_eq!(text.len(), bytes);
    text.into_bytes()
}

/// A request with all that verifies it.
pub(crate) struct Signed {
    scheme: Scheme,
    keys: [Key; 1],
    headers: HeaderMap,
    body: Vec<u8>,
    now: Timestamp,
}

impl Signed {
    pub(crate) fn new(scheme: Scheme, body: &[u8]) -> Self {
        let now = Timestamp::from_second(1_767_225_600).unwrap();
        let outgoing = Outgoing {
            method: "POST",
            url: URL,
            headers: HeaderMap::new(),
            id: Some("msg_2Lh9KRb0pzN4LePd3XiA4v12Axj"),
            event_type: Some("invoice.paid"),
            body,
        };
        let secret = Secret::new(SECRET);
        let signing = SigningKey::parse(&scheme, &secret).unwrap();
        let headers = sign_as(&scheme, &signing, &outgoing, now).unwrap();
        let keys = [Key::parse(&scheme, "k", &secret).unwrap()];
        Self { scheme, keys, headers, body: body.to_vec(), now }
    }

    pub(crate) fn verify(&self) {
        let request = Request {
            method: "POST",
            url: URL,
            headers: &self.headers,
            body: &self.body,
            path_secret: None,
        };
        black_box(verify(&self.scheme, &self.keys, black_box(&request), self.now)).unwrap();
    }
}
