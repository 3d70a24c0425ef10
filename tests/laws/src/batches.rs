//! Several events in one request: their bytes are slices of the request, in its order, and are what `serde_json` finds.
//!
//! An input is a line with the JSON pointer of the array, and a body.

use serde_json::{Value, json};
use signing::{Element, MAX_ELEMENTS, NotABatch, Scheme, elements};

use crate::{bounded, bytes::Bytes};

/// The law of an input.
pub fn law(input: &[u8]) {
    let mut input = Bytes(input);
    let Ok(pointer) = std::str::from_utf8(input.line()) else { return };
    let body = input.0;
    let source = json!({
        "algorithm": "token",
        "signature": {"from": "{header:x-token}"},
        "batch": pointer,
        "element": {"id": "{json:/id}", "type": "{json:/a/0}"},
    });
    let Ok(scheme) = Scheme::from_value(source) else { return };
    let found = bounded(body.len(), 256, || elements(&scheme, body));
    if let Ok(found) = &found {
        lie_in(body, found);
    }
    let text = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    // Deeper or larger than serde_json builds: nothing to compare with.
    let Ok(whole) = serde_json::from_slice::<Value>(text) else { return };
    let array = whole.pointer(pointer).and_then(Value::as_array);
    match (found, array) {
        (Ok(found), Some(array)) => are(&found, array),
        (Err(NotABatch::NoArray), None) => {}
        (Err(NotABatch::TooMany), Some(array)) => assert!(array.len() > MAX_ELEMENTS),
        (found, array) => panic!("{found:?} for {array:?}"),
    }
}

/// Nothing is copied, nothing overlaps, and the order is that of the request.
fn lie_in(body: &[u8], found: &[Element<'_>]) {
    assert!(found.len() <= MAX_ELEMENTS);
    let whole = body.as_ptr_range();
    let mut behind = whole.start;
    for element in found {
        let own = element.body.as_ptr_range();
        assert!(behind <= own.start && own.end <= whole.end, "an element lies elsewhere");
        behind = own.end;
    }
}

fn are(found: &[Element<'_>], array: &[Value]) {
    assert_eq!(found.len(), array.len());
    for (element, value) in found.iter().zip(array) {
        assert_eq!(serde_json::from_slice::<Value>(element.body).unwrap(), *value);
        let usable = |text: &&str| !text.trim().is_empty() && !text.chars().any(char::is_control);
        for (found, pointer) in
            [(&element.identity.id, "/id"), (&element.identity.event_type, "/a/0")]
        {
            match value.pointer(pointer) {
                Some(Value::String(text)) => {
                    assert_eq!(found.as_deref(), Some(text.as_str()).filter(usable));
                }
                Some(Value::Number(_)) => assert!(found.is_some()),
                other => assert_eq!(*found, None, "{other:?}"),
            }
        }
    }
}
