//! What a received event says about the provider's things: objects, and versions of them.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// One of a provider's things, in the words of one source.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectRef {
    /// The kind of thing, such as `invoice`.
    pub kind: String,
    /// The provider's id of it.
    pub id: String,
}

/// How new a knowledge of an object is.
///
/// What events say of one object must be of one variant; the last two are ours, and compare with everything. The order of
/// the variants is the order of versions, here and in the store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Version {
    /// A number that the provider counts up.
    Number(u64),
    /// The time of the change.
    Time(Timestamp),
    /// A text that sorts.
    Text(String),
    /// Several, compared part by part: the first that differs decides.
    Composite(Vec<Version>),
    /// The object was deleted and the provider gave no version: newer than anything that an event can say, so that a
    /// late update does not revive it.
    End,
    /// The provider gives no version: the fence of the lease under which its state was read. Newer than all others,
    /// for a state that was read is what is, and an event only what was.
    Reading(u64),
}

impl Version {
    /// As a number that sorts alike, for receivers that drop what is old: the number itself, or microseconds since the
    /// epoch. The others have none: a fence is a small number, and would look older than every time.
    pub fn as_number(&self) -> Option<u64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Time(at) => u64::try_from(at.as_microsecond()).ok(),
            Self::Text(_) | Self::Composite(_) | Self::End | Self::Reading(_) => None,
        }
    }

    /// Whether it is known which of two versions is newer: they are of one variant and, if of several parts, of as many
    /// and each like its counterpart. The end, and what was read, are like everything.
    pub fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::End | Self::Reading(_), _) | (_, Self::End | Self::Reading(_)) => true,
            (Self::Composite(a), Self::Composite(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.is_like(b))
            }
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }
}

/// What tells one state of an object from every other: its version, and the hash of its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// Its version.
    pub version: Version,
    /// The hash of its content; see [`Object::tie`].
    pub tie: String,
}

/// The latest known state of an object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Object {
    /// Its version.
    pub version: Version,
    /// Decides between two different contents with the same version, so that every order of arrival ends alike; see
    /// [`crate::commit::tie_of`].
    pub tie: String,
    /// What is known of it.
    pub fields: serde_json::Value,
    /// Whether the provider deleted it. The row stays, so that a late update does not revive the thing.
    pub deleted: bool,
    /// When we last changed it.
    pub updated_at: Timestamp,
    /// The world as of then: when the fetch that told it began, else when its event happened (or, where the provider
    /// does not say, came).
    pub as_of: Timestamp,
    /// Whether the provider was asked for it. Otherwise an event said so.
    pub fetched: bool,
}

impl Object {
    /// What tells this state from every other.
    pub fn stamp(&self) -> Stamp {
        Stamp { version: self.version.clone(), tie: self.tie.clone() }
    }
}

/// Where an event in the inbox came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The provider called us.
    Webhook,
    /// We asked the provider.
    Reconcile,
    /// A person asked for it again.
    Replay,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_version_as_a_number_sorts_like_the_version(a in 0_i64..4_000_000_000_000_000, b in 0_i64..4_000_000_000_000_000) {
            let time = |us| Version::Time(Timestamp::from_microsecond(us).unwrap());
            prop_assert_eq!(time(a) < time(b), time(a).as_number() < time(b).as_number());
            let number = |n: i64| Version::Number(n.unsigned_abs());
            prop_assert_eq!(number(a) < number(b), number(a).as_number() < number(b).as_number());
        }
    }

    /// ORD-update-before-create
    #[test]
    fn the_end_outranks_what_events_say_and_a_reading_outranks_the_end() {
        let said = [
            Version::Number(u64::MAX),
            Version::Time(Timestamp::MAX),
            Version::Text("\u{10ffff}".to_owned()),
            Version::Composite(vec![Version::Number(u64::MAX); 4]),
        ];
        for version in said {
            assert!(version < Version::End && Version::End < Version::Reading(0), "{version:?}");
            for ours in [Version::End, Version::Reading(7)] {
                assert!(version.is_like(&ours) && ours.is_like(&version), "{version:?}");
            }
        }
        assert!(Version::Reading(9) < Version::Reading(10));
    }

    #[test]
    fn composite_versions_are_compared_part_by_part() {
        let of =
            |a, b: &str| Version::Composite(vec![Version::Number(a), Version::Text(b.to_owned())]);
        assert!(of(1, "z") < of(2, "a") && of(2, "a") < of(2, "b"));
        assert!(of(1, "z").is_like(&of(2, "a")));
        let swapped = Version::Composite(vec![Version::Text(String::new()), Version::Number(1)]);
        let longer = Version::Composite(vec![Version::Number(1); 3]);
        for other in [swapped, longer, Version::Number(1), Version::Composite(Vec::new())] {
            assert!(!of(1, "z").is_like(&other) && !other.is_like(&of(1, "z")), "{other:?}");
        }
        assert!(!Version::Composite(vec![Version::Number(1)]).is_like(&Version::Number(1)));
    }

    #[test]
    fn what_receivers_could_take_for_old_has_no_number() {
        let none =
            [Version::Composite(vec![Version::Number(1)]), Version::End, Version::Reading(1)];
        assert!(none.iter().all(|version| version.as_number().is_none()));
    }

    #[test]
    fn only_versions_of_one_kind_are_compared() {
        let (number, text) = (Version::Number(2), Version::Text("2".to_owned()));
        assert!(number.is_like(&Version::Number(9)));
        assert!(!number.is_like(&text));
        assert_eq!(text.as_number(), None);
    }
}
