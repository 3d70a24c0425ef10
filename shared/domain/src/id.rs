//! Names of things. Each kind has its own type, so that two of them cannot be swapped.
//!
//! No name can contain `#`, which separates the parts of a key.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

/// A text that is not a name of the expected kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidId {
    /// A generated id without its prefix, or with something else than a UUID behind it.
    #[error("expected an id of the form `{prefix}_` and 32 hexadecimal digits")]
    Generated {
        /// What the id should start with.
        prefix: &'static str,
    },
    /// A chosen name outside the alphabet.
    #[error(
        "a {kind} is 1 to {MAX_NAME} characters of a-z, 0-9, `-` and `_`, and starts with a letter or a digit"
    )]
    Chosen {
        /// The kind of name.
        kind: &'static str,
    },
    /// Nothing at all.
    #[error("an event id cannot be empty")]
    Empty,
}

/// Longest chosen name, in characters.
pub const MAX_NAME: usize = 64;

/// Longest event id of a provider that stands in a key as it is, in bytes; longer ones are replaced by their SHA-256.
pub const MAX_PROVIDER_ID: usize = 512;

macro_rules! text_conversions {
    ($name:ident) => {
        impl TryFrom<String> for $name {
            type Error = InvalidId;

            fn try_from(text: String) -> Result<Self, InvalidId> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.to_string()
            }
        }
    };
}

macro_rules! generated {
    ($($(#[$doc:meta])* $name:ident = $prefix:literal;)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Uuid);

        impl $name {
            /// Wraps a version 7 UUID, so that ids sort by creation time.
            pub const fn new(uuid: Uuid) -> Self {
                Self(uuid)
            }

            /// The UUID inside.
            pub const fn uuid(self) -> Uuid {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "_{}"), self.0.simple())
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                let invalid = || InvalidId::Generated { prefix: $prefix };
                let rest = text.strip_prefix(concat!($prefix, "_")).ok_or_else(invalid)?;
                let id = Uuid::try_parse(rest).map(Self).map_err(|_| invalid())?;
                // One spelling for each id, or the same thing would have two keys.
                if id.to_string() == text { Ok(id) } else { Err(invalid()) }
            }
        }

        text_conversions!($name);
    )+};
}

macro_rules! chosen {
    ($($(#[$doc:meta])* $name:ident = $kind:literal;)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                if is_name(text) { Ok(Self(text.to_owned())) } else { Err(InvalidId::Chosen { kind: $kind }) }
            }
        }

        text_conversions!($name);
    )+};
}

generated! {
    /// Names one outgoing event; it is also its `webhook-id`.
    EventId = "evt";
    /// Names one endpoint that receives deliveries.
    EndpointId = "ep";
    /// Bulk work: a replay of many events.
    ReplayId = "rpl";
    /// Names one redelivery: of one delivery, or of many.
    RedeliveryId = "rdl";
}

chosen! {
    /// Names one tenant.
    TenantId = "tenant";
    /// Names one source, in the URL `/webhooks/{source}`.
    SourceName = "source";
}

fn is_name(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    (1..=MAX_NAME).contains(&text.len())
        && text.chars().all(allowed)
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
}

impl TenantId {
    /// The tenant that is ourselves, by convention: its endpoints do what has to be done outside the tables.
    pub fn internal() -> Self {
        Self("internal".to_owned())
    }
}

impl EventId {
    /// The id of an event that follows from a received one: the shape of a `UUIDv7` at `at`, derived from `parts`.
    ///
    /// The same parts give the same id for ever, so a retry, a replay or a later version of a handler writes the same
    /// outbox row again instead of a second one.
    pub fn derived(at: jiff::Timestamp, parts: &[&str]) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            // The length keeps ("ab", "c") apart from ("a", "bc").
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part.as_bytes());
        }
        let digest = hash.finalize();
        let mut bytes = [0_u8; 16];
        let millis = u64::try_from(at.as_millisecond()).unwrap_or_default().to_be_bytes();
        for (to, from) in bytes.iter_mut().zip(millis.into_iter().skip(2).chain(digest)) {
            *to = from;
        }
        let [.., version, _, variant, _, _, _, _, _, _, _] = &mut bytes;
        *version = 0x70 | (*version & 0x0f);
        *variant = 0x80 | (*variant & 0x3f);
        Self(Uuid::from_bytes(bytes))
    }

    /// The id before all ids of this time, and after all of earlier ones: where a walk in order of time begins.
    pub fn floor(at: jiff::Timestamp) -> Self {
        let millis = u128::try_from(at.as_millisecond()).unwrap_or_default();
        Self(Uuid::from_u128(millis << 80))
    }

    /// The time in the id, which is when the event occurred as far as lanes are concerned.
    pub fn time(self) -> jiff::Timestamp {
        let [a, b, c, d, e, f, ..] = *self.0.as_bytes();
        let millis = i64::from_be_bytes([0, 0, a, b, c, d, e, f]);
        jiff::Timestamp::from_millisecond(millis).unwrap_or(jiff::Timestamp::MAX)
    }
}

/// Names one row of the inbox: a source, and what its provider calls the event.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct InboxKey {
    source: SourceName,
    event_id: String,
}

impl InboxKey {
    /// The key of an event. An id with `#`, with control characters, or over [`MAX_PROVIDER_ID`] bytes is replaced by
    /// its SHA-256.
    pub fn new(source: SourceName, event_id: &str) -> Result<Self, InvalidId> {
        if event_id.is_empty() {
            return Err(InvalidId::Empty);
        }
        let plain = event_id.len() <= MAX_PROVIDER_ID
            && !event_id.contains('#')
            && !event_id.chars().any(char::is_control);
        let event_id = if plain { event_id.to_owned() } else { Self::hashed(event_id.as_bytes()) };
        Ok(Self { source, event_id })
    }

    /// The key of an event without an id: what identifies it is its body.
    pub fn of_body(source: SourceName, sha256: &[u8; 32]) -> Self {
        Self { source, event_id: format!("sha256:{}", hex::encode(sha256)) }
    }

    /// The key of an event that came in a request with others and has no id that can be used: what identifies it is its
    /// place, counted from 0. The last colon ends the id of the request, whatever that holds.
    pub fn of_element(parent: &Self, index: usize) -> Self {
        let event_id = Self::hashed(format!("{}:{index}", parent.event_id).as_bytes());
        Self { source: parent.source.clone(), event_id }
    }

    /// The source.
    pub fn source(&self) -> &SourceName {
        &self.source
    }

    /// The provider's id of the event, or a hash that stands for it.
    pub fn event_id(&self) -> &str {
        &self.event_id
    }

    fn hashed(bytes: &[u8]) -> String {
        format!("sha256:{}", hex::encode(Sha256::digest(bytes)))
    }
}

impl fmt::Display for InboxKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.source, self.event_id)
    }
}

/// A shard of `count`, from the hash of a name: never from time, or the present would be one hot key.
pub fn shard_of(name: &str, count: u16) -> u16 {
    let digest = Sha256::digest(name.as_bytes());
    let [a, b, ..] = digest.as_slice() else { return 0 };
    u16::from_be_bytes([*a, *b]) % count.max(1)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_generated_id_reads_back_as_itself(bits: u128) {
            let id = EventId::new(Uuid::from_u128(bits));
            prop_assert_eq!(id.to_string().parse::<EventId>(), Ok(id));
        }

        #[test]
        fn an_id_of_one_kind_is_not_an_id_of_another(bits: u128) {
            let id = EventId::new(Uuid::from_u128(bits)).to_string();
            prop_assert!(id.parse::<EndpointId>().is_err());
        }

        /// ING-id-scope-collision
        #[test]
        fn different_events_never_share_a_key(a in "\\PC{1,20}", b in "\\PC{1,20}", other: bool) {
            let source = |name: &str| name.parse::<SourceName>().unwrap();
            let left = InboxKey::new(source("one"), &a).unwrap();
            let right = InboxKey::new(source(if other { "two" } else { "one" }), &b).unwrap();
            prop_assert_eq!(left.to_string() == right.to_string(), !other && a == b);
        }

        /// ING-missing-id
        #[test]
        fn places_in_requests_never_share_a_key(a in "\\PC{1,9}", b in "\\PC{1,9}", i in 0_usize..99, j in 0_usize..99) {
            let of = |id: &str, index| InboxKey::of_element(&InboxKey::new("s".parse().unwrap(), id).unwrap(), index);
            prop_assert_eq!(of(&a, i) == of(&b, j), a == b && i == j);
            let longer = format!("{a}:{i}");
            prop_assert!(of(&a, i) != of(&longer, j));
        }

        #[test]
        fn a_derived_id_carries_its_time_and_looks_like_version_7(ms in 0_i64..253_402_300_799_000, part: String) {
            let at = Timestamp::from_millisecond(ms).unwrap();
            let id = EventId::derived(at, &[&part]);
            prop_assert_eq!(id.time(), at);
            prop_assert_eq!(id.uuid().get_version_num(), 7);
            prop_assert_eq!(id.uuid().get_variant(), uuid::Variant::RFC4122);
        }

        #[test]
        fn a_shard_is_below_the_count(name: String, count in 1_u16..300) {
            prop_assert!(shard_of(&name, count) < count);
        }
    }

    #[test]
    fn derived_ids_keep_their_parts_apart() {
        let id = |parts: &[&str]| EventId::derived(Timestamp::UNIX_EPOCH, parts);
        assert_eq!(id(&["ab", "c"]), id(&["ab", "c"]));
        assert_ne!(id(&["ab", "c"]), id(&["a", "bc"]));
    }

    #[test]
    fn names_outside_the_alphabet_are_refused() {
        for bad in ["", "A", "a b", "a#b", "-a", "_a", "é", &"a".repeat(65), "a/b", "a.b"] {
            assert!(bad.parse::<SourceName>().is_err(), "{bad:?}");
        }
        for good in ["a", "stripe-demo", "9_x", &"a".repeat(64)] {
            assert!(good.parse::<SourceName>().is_ok(), "{good:?}");
        }
    }

    #[test]
    fn one_id_has_one_spelling() {
        assert!("evt_0197A0B0C0D07000800000000000ABCD".parse::<EventId>().is_err());
        assert!("evt_0197a0b0-c0d0-7000-8000-00000000abcd".parse::<EventId>().is_err());
    }

    #[test]
    fn ids_that_would_break_a_key_are_hashed() {
        let key = |id: &str| InboxKey::new("s".parse().unwrap(), id).unwrap().event_id().to_owned();
        assert_eq!(key("evt_1"), "evt_1");
        assert!(key("a#b").starts_with("sha256:"));
        assert!(key("a\nb").starts_with("sha256:"));
        assert!(key(&"x".repeat(513)).starts_with("sha256:"));
        assert_eq!(key(&"x".repeat(512)).len(), 512);
    }
}
