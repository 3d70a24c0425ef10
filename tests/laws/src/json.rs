//! Values that a scheme takes out of a body: what is found is what `serde_json` finds.
//!
//! An input is a line with a JSON pointer, and a body.

use http::HeaderMap;
use jiff::Timestamp;
use serde_json::{Value, json};
use signing::{Identity, Key, Request, Scheme, Secret, verify};

use crate::{bounded, bytes::Bytes};

const TOKEN: &str = "a-token-with-enough-bytes";

/// The law of an input.
pub fn law(input: &[u8]) {
    let mut input = Bytes(input);
    let Ok(pointer) = std::str::from_utf8(input.line()) else { return };
    let body = input.0;
    // Braces end a part of a template, and a star stands for every element: such a pointer has no spelling in a scheme.
    if pointer.contains(['{', '}']) || pointer.split('/').any(|step| step == "*") {
        return;
    }
    let source = json!({
        "algorithm": "token",
        "signature": {"from": "{header:x-token}"},
        "identity": {"id": format!("{{json:{pointer}}}")},
    });
    let Ok(scheme) = Scheme::from_value(source) else {
        assert!(!pointer.starts_with('/'), "{pointer:?} is a pointer");
        return;
    };
    agrees(identity(&scheme, body).id, pointer, body);
}

fn identity(scheme: &Scheme, body: &[u8]) -> Identity {
    let key = Key::parse(scheme, "k", &Secret::new(TOKEN)).unwrap();
    let mut headers = HeaderMap::new();
    headers.insert("x-token", TOKEN.parse().unwrap());
    let request = Request {
        method: "POST",
        url: "https://hooks.example/in",
        headers: &headers,
        body,
        path_secret: None,
    };
    let verified =
        bounded(body.len(), 8, || verify(scheme, &[key], &request, Timestamp::UNIX_EPOCH));
    verified.unwrap().into_identity()
}

fn agrees(found: Option<String>, pointer: &str, body: &[u8]) {
    let text = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    let Ok(whole) = serde_json::from_slice::<Value>(text) else {
        // It may still be JSON: deeper, or with larger numbers, than serde_json builds. But only JSON has values.
        let is_json = std::str::from_utf8(text).is_ok_and(|text| {
            let mut reader = serde_json::Deserializer::from_str(text);
            let skipped = serde::de::Deserialize::deserialize(&mut reader);
            skipped.map(|serde::de::IgnoredAny| ()).and_then(|()| reader.end()).is_ok()
        });
        assert!(is_json || found.is_none(), "{found:?} was found in what is not JSON");
        return;
    };
    let usable = |text: &&str| !text.trim().is_empty() && !text.chars().any(char::is_control);
    match whole.pointer(pointer) {
        Some(Value::String(text)) => {
            assert_eq!(found.as_deref(), Some(text.as_str()).filter(usable));
        }
        Some(Value::Number(number)) => {
            // As it was written, which is not always how serde_json writes it.
            let read: Value = serde_json::from_str(&found.unwrap()).unwrap();
            assert_eq!(read, Value::Number(number.clone()));
        }
        other => assert_eq!(found, None, "{other:?}"),
    }
}
