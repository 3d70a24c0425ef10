//! The MD5s that clients of SQS check.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use md5::{Digest as _, Md5};
use serde_json::{Map, Value};

/// MD5 of a message body, in hex.
pub(super) fn of_body(body: &str) -> String {
    hex::encode(Md5::digest(body.as_bytes()))
}

/// MD5 of message attributes, in hex: by name, each as length-prefixed name, type and value, with one byte between that says text or bytes.
/// `None` without attributes. The layout is in SQS's developer guide, "Calculating the MD5 message digest for message attributes".
pub(super) fn of_attributes(attributes: &Map<String, Value>) -> Option<String> {
    if attributes.is_empty() {
        return None;
    }
    let mut names: Vec<&String> = attributes.keys().collect();
    names.sort();
    let mut digest = Md5::new();
    let mut part = |bytes: &[u8], marker: Option<u8>| {
        if let Some(marker) = marker {
            digest.update([marker]);
        }
        digest.update(u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
        digest.update(bytes);
    };
    for name in names {
        let Some(attribute) = attributes.get(name) else { continue };
        part(name.as_bytes(), None);
        part(
            attribute.get("DataType").and_then(Value::as_str).unwrap_or_default().as_bytes(),
            None,
        );
        match attribute.get("BinaryValue").and_then(Value::as_str) {
            Some(encoded) => part(&STANDARD.decode(encoded).unwrap_or_default(), Some(2)),
            None => {
                part(
                    attribute
                        .get("StringValue")
                        .and_then(Value::as_str)
                        .unwrap_or_default()
                        .as_bytes(),
                    Some(1),
                );
            }
        }
    }
    Some(hex::encode(digest.finalize()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_body_has_the_md5_that_everyone_knows() {
        assert_eq!(of_body("hello"), "5d41402abc4b2a76b9719d911017c592");
    }

    #[test]
    fn attributes_are_digested_by_name_with_their_lengths() {
        let attributes = json!({
            "b": { "DataType": "String", "StringValue": "x" },
            "a": { "DataType": "Binary", "BinaryValue": STANDARD.encode([1, 2]) },
        });
        let mut expected = Vec::new();
        for part in [&b"a"[..], b"Binary"] {
            expected.extend(u32::try_from(part.len()).unwrap().to_be_bytes());
            expected.extend(part);
        }
        expected.extend([2, 0, 0, 0, 2, 1, 2]);
        for part in [&b"b"[..], b"String"] {
            expected.extend(u32::try_from(part.len()).unwrap().to_be_bytes());
            expected.extend(part);
        }
        expected.extend([1, 0, 0, 0, 1, b'x']);
        assert_eq!(
            of_attributes(attributes.as_object().unwrap()),
            Some(hex::encode(Md5::digest(&expected)))
        );
        assert_eq!(of_attributes(&Map::new()), None);
    }
}
