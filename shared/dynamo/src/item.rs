//! Items: how attributes are written and read.

use std::{collections::HashMap, fmt::Display, str::FromStr};

use aws_sdk_dynamodb::{primitives::Blob, types::AttributeValue};
use domain::ports::{StoreError, Stored};
use jiff::Timestamp;
use serde::{
    Deserialize, Serialize,
    de::{DeserializeOwned, IntoDeserializer, value::Error as WordError},
};

use crate::keys::Key;

/// An item, as the SDK knows it.
pub(crate) type Item = HashMap<String, AttributeValue>;

/// Text.
pub(crate) fn s(text: impl Into<String>) -> AttributeValue {
    AttributeValue::S(text.into())
}

/// A number.
pub(crate) fn n(number: impl Display) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

/// Bytes.
pub(crate) fn b(bytes: impl Into<Vec<u8>>) -> AttributeValue {
    AttributeValue::B(Blob::new(bytes))
}

/// A time, in milliseconds.
pub(crate) fn ms(at: Timestamp) -> AttributeValue {
    n(at.as_millisecond())
}

/// A time as the store's own expiry wants it: seconds, rounded up so that nothing goes too early.
pub(crate) fn seconds(at: Timestamp) -> AttributeValue {
    n(at.as_second() + i64::from(at.subsec_nanosecond() > 0))
}

/// The word of an enum without data.
pub(crate) fn word(value: &impl Serialize) -> AttributeValue {
    let word = serde_json::to_value(value).ok();
    s(word.as_ref().and_then(serde_json::Value::as_str).unwrap_or_default())
}

/// A value as JSON text.
pub(crate) fn json(value: &impl Serialize) -> Stored<AttributeValue> {
    let text = serde_json::to_string(value).map_err(|error| StoreError::Refused(error.into()))?;
    Ok(s(text))
}

/// Builds an item.
#[derive(Debug)]
pub(crate) struct Writer(Item);

impl Writer {
    /// An item of this kind, with its key.
    pub(crate) fn new(key: Key, kind: &str) -> Self {
        Self(key.attributes()).put("kind", s(kind))
    }

    /// With an attribute.
    pub(crate) fn put(mut self, name: &str, value: AttributeValue) -> Self {
        self.0.insert(name.to_owned(), value);
        self
    }

    /// With an attribute, if there is a value.
    pub(crate) fn put_some(self, name: &str, value: Option<AttributeValue>) -> Self {
        match value {
            Some(value) => self.put(name, value),
            None => self,
        }
    }

    /// The item.
    pub(crate) fn done(self) -> Item {
        self.0
    }
}

/// Reads an item. An attribute that is not as this code writes it is [`StoreError::Unreadable`], by name, without its
/// value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(pub(crate) &'a Item);

impl<'a> Reader<'a> {
    /// What is wrong with an attribute.
    pub(crate) fn bad(self, name: &str) -> StoreError {
        let text = |name: &str| self.text(name).unwrap_or("?");
        let (pk, sk) = (text("pk").escape_debug(), text("sk").escape_debug());
        StoreError::Unreadable(format!("{pk} / {sk}, attribute `{name}`"))
    }

    fn has(self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    fn text(self, name: &str) -> Option<&'a str> {
        self.0.get(name)?.as_s().ok().map(String::as_str)
    }

    /// Text.
    pub(crate) fn str(self, name: &str) -> Stored<&'a str> {
        self.text(name).ok_or_else(|| self.bad(name))
    }

    /// Text that is read as something.
    pub(crate) fn parse<T: FromStr>(self, name: &str) -> Stored<T> {
        self.str(name)?.parse().map_err(|_| self.bad(name))
    }

    /// The word of an enum without data.
    pub(crate) fn word<T: Deserialize<'a>>(self, name: &str) -> Stored<T> {
        let word = IntoDeserializer::<WordError>::into_deserializer(self.str(name)?);
        T::deserialize(word).map_err(|_| self.bad(name))
    }

    /// A value in JSON text.
    pub(crate) fn json<T: DeserializeOwned>(self, name: &str) -> Stored<T> {
        serde_json::from_str(self.str(name)?).map_err(|_| self.bad(name))
    }

    /// A number.
    pub(crate) fn number<T: FromStr>(self, name: &str) -> Stored<T> {
        let text = self.0.get(name).and_then(|value| value.as_n().ok());
        text.and_then(|text| text.parse().ok()).ok_or_else(|| self.bad(name))
    }

    /// A time, in milliseconds.
    pub(crate) fn time(self, name: &str) -> Stored<Timestamp> {
        Timestamp::from_millisecond(self.number(name)?).map_err(|_| self.bad(name))
    }

    /// Bytes.
    pub(crate) fn bytes(self, name: &str) -> Stored<&'a [u8]> {
        let blob = self.0.get(name).and_then(|value| value.as_b().ok());
        blob.map(AsRef::as_ref).ok_or_else(|| self.bad(name))
    }

    /// Yes or no.
    pub(crate) fn flag(self, name: &str) -> Stored<bool> {
        let flag = self.0.get(name).and_then(|value| value.as_bool().ok());
        flag.copied().ok_or_else(|| self.bad(name))
    }

    /// A list.
    pub(crate) fn list(self, name: &str) -> Stored<&'a [AttributeValue]> {
        let list = self.0.get(name).and_then(|value| value.as_l().ok());
        list.map(Vec::as_slice).ok_or_else(|| self.bad(name))
    }

    /// A set of texts.
    pub(crate) fn texts(self, name: &str) -> Stored<&'a [String]> {
        let texts = self.0.get(name).and_then(|value| value.as_ss().ok());
        texts.map(Vec::as_slice).ok_or_else(|| self.bad(name))
    }

    /// A map.
    pub(crate) fn map(self, name: &str) -> Stored<&'a Item> {
        self.0.get(name).and_then(|value| value.as_m().ok()).ok_or_else(|| self.bad(name))
    }

    /// An attribute that may be absent.
    pub(crate) fn some<T>(
        self,
        name: &str,
        read: impl FnOnce(Self, &str) -> Stored<T>,
    ) -> Stored<Option<T>> {
        if self.has(name) { read(self, name).map(Some) } else { Ok(None) }
    }

    /// Text that may be absent.
    pub(crate) fn some_text(self, name: &str) -> Stored<Option<String>> {
        self.some(name, Self::str).map(|text| text.map(str::to_owned))
    }
}

/// An item as lines of text, for snapshots.
#[cfg(test)]
pub(crate) fn show(item: &Item) -> String {
    fn value(of: &AttributeValue) -> String {
        match of {
            AttributeValue::S(text) => format!("{text:?}"),
            AttributeValue::N(number) => number.clone(),
            AttributeValue::B(blob) => format!("0x{}", hex::encode(blob.as_ref())),
            AttributeValue::Bool(flag) => flag.to_string(),
            AttributeValue::L(list) => {
                format!("[{}]", list.iter().map(value).collect::<Vec<_>>().join(", "))
            }
            AttributeValue::M(map) => format!("{{ {} }}", show(map).replace('\n', ", ")),
            other => format!("{other:?}"),
        }
    }
    let mut lines: Vec<_> =
        item.iter().map(|(name, of)| format!("{name} = {}", value(of))).collect();
    lines.sort();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// INB-ttl-not-enforced
    #[test]
    fn an_expiry_is_a_number_of_seconds() {
        let at = |ms| Timestamp::from_millisecond(ms).unwrap();
        assert_eq!(seconds(at(1_790_000_000_000)), n(1_790_000_000));
        assert_eq!(seconds(at(1_790_000_000_001)), n(1_790_000_001));
    }

    #[test]
    fn an_unreadable_attribute_is_named_without_its_value() {
        let item = Item::from([
            ("pk".to_owned(), s("p")),
            ("sk".to_owned(), s("k")),
            ("due_at".to_owned(), s("secret")),
        ]);
        let error = Reader(&item).time("due_at").unwrap_err();
        assert_eq!(
            error.to_string(),
            "an item of the store cannot be read: p / k, attribute `due_at`"
        );
    }
}
