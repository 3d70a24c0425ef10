//! Receipt handles: opaque to clients, here the row, the receive and the message id.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};

use super::error::QueueError;

#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Receipt {
    pub(super) seq: i64,
    pub(super) receives: i64,
    pub(super) id: String,
}

impl Receipt {
    pub(super) fn encode(&self) -> String {
        URL_SAFE_NO_PAD.encode(format!("{}.{}.{}", self.seq, self.receives, self.id))
    }

    pub(super) fn decode(handle: &str) -> Result<Self, QueueError> {
        let read = || {
            let text = String::from_utf8(URL_SAFE_NO_PAD.decode(handle).ok()?).ok()?;
            let mut parts = text.splitn(3, '.');
            let seq = parts.next()?.parse().ok()?;
            let receives = parts.next()?.parse().ok()?;
            Some(Self { seq, receives, id: parts.next()?.to_owned() })
        };
        read().ok_or(QueueError::InvalidReceipt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receipt_comes_back_as_it_was_and_anything_else_is_refused() {
        let receipt = Receipt { seq: 7, receives: 2, id: "a-b.c".to_owned() };
        assert_eq!(Receipt::decode(&receipt.encode()).unwrap(), receipt);
        for bad in ["", "x", "!!!", "MQ", "\u{1f600}"] {
            assert!(matches!(Receipt::decode(bad), Err(QueueError::InvalidReceipt)), "{bad}");
        }
    }
}
