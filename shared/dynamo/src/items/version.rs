//! Versions, so that the store orders them as [`Version`] does: first the variant, then the value.

use aws_sdk_dynamodb::types::AttributeValue;
use domain::{event::Version, ports::Stored};
use jiff::Timestamp;

use crate::item::{Reader, b, n, s};

/// What composite versions may be made of, deep down: no scheme makes one of composites, and an item that is read is
/// not trusted to be shallow.
const MAX_DEPTH: u32 = 4;

/// The variant as a number, `version_rank`, and the value, `version`. A time counts nanoseconds, for it must compare
/// as exactly as it does in memory; several parts are bytes that sort as they do.
pub(crate) fn write(version: &Version) -> (AttributeValue, AttributeValue) {
    let value = match version {
        Version::Number(number) => n(number),
        Version::Time(at) => n(at.as_nanosecond()),
        Version::Text(text) => s(text),
        Version::Composite(parts) => b(sorting::bytes(parts)),
        Version::End => n(0),
        Version::Reading(fence) => n(fence),
    };
    (n(rank(version)), value)
}

pub(crate) fn read(item: Reader<'_>) -> Stored<Version> {
    let bad = || item.bad("version");
    match item.number("version_rank")? {
        0 => item.number("version").map(Version::Number),
        1 => {
            let at = Timestamp::from_nanosecond(item.number("version")?);
            at.map(Version::Time).map_err(|_| bad())
        }
        2 => item.str("version").map(|text| Version::Text(text.to_owned())),
        3 => sorting::parts(item.bytes("version")?).map(Version::Composite).ok_or_else(bad),
        4 => Ok(Version::End),
        5_u8 => item.number("version").map(Version::Reading),
        _ => Err(item.bad("version_rank")),
    }
}

const fn rank(version: &Version) -> u8 {
    match version {
        Version::Number(_) => 0,
        Version::Time(_) => 1,
        Version::Text(_) => 2,
        Version::Composite(_) => 3,
        Version::End => 4,
        Version::Reading(_) => 5,
    }
}

/// Versions as bytes that sort as they do. The store compares bytes one by one, as unsigned numbers.
///
/// A list is its parts, each begun by its rank plus one, and a 0 at the end: a list that goes on is greater than one
/// that ends. A number is 8 bytes, the greatest first. A time is 16, with the sign turned, so that what was before 1970
/// comes first. A text ends with `00 00`, and a 0 in it is `00 ff`: a text that goes on is greater than one that ends.
mod sorting {
    use super::{MAX_DEPTH, Timestamp, Version, rank};

    const SIGN: u128 = 1 << 127;

    pub(super) fn bytes(parts: &[Version]) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_list(parts, &mut bytes);
        bytes
    }

    fn put_list(parts: &[Version], to: &mut Vec<u8>) {
        for part in parts {
            to.push(rank(part) + 1);
            match part {
                Version::Number(number) | Version::Reading(number) => {
                    to.extend(number.to_be_bytes());
                }
                Version::Time(at) => {
                    to.extend((at.as_nanosecond().cast_unsigned() ^ SIGN).to_be_bytes());
                }
                Version::Text(text) => {
                    for byte in text.bytes() {
                        to.push(byte);
                        if byte == 0 {
                            to.push(0xff);
                        }
                    }
                    to.extend([0, 0]);
                }
                Version::Composite(parts) => put_list(parts, to),
                Version::End => {}
            }
        }
        to.push(0);
    }

    /// The parts, if the bytes are such a list and nothing else.
    pub(super) fn parts(mut bytes: &[u8]) -> Option<Vec<Version>> {
        let parts = take_list(&mut bytes, MAX_DEPTH)?;
        bytes.is_empty().then_some(parts)
    }

    fn take_list(from: &mut &[u8], depth: u32) -> Option<Vec<Version>> {
        let depth = depth.checked_sub(1)?;
        let mut parts = Vec::new();
        loop {
            let part = match take::<1>(from)? {
                [0] => return Some(parts),
                [1] => Version::Number(u64::from_be_bytes(take(from)?)),
                [2] => {
                    let nanoseconds = (u128::from_be_bytes(take(from)?) ^ SIGN).cast_signed();
                    Version::Time(Timestamp::from_nanosecond(nanoseconds).ok()?)
                }
                [3] => Version::Text(take_text(from)?),
                [4] => Version::Composite(take_list(from, depth)?),
                [5] => Version::End,
                [6] => Version::Reading(u64::from_be_bytes(take(from)?)),
                _ => return None,
            };
            parts.push(part);
        }
    }

    fn take_text(from: &mut &[u8]) -> Option<String> {
        let mut text = Vec::new();
        loop {
            match take::<1>(from)? {
                [0] => match take::<1>(from)? {
                    [0] => return String::from_utf8(text).ok(),
                    [0xff] => text.push(0),
                    _ => return None,
                },
                [byte] => text.push(byte),
            }
        }
    }

    fn take<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
        let (taken, rest) = from.split_first_chunk()?;
        *from = rest;
        Some(*taken)
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use domain::ports::StoreError;

    use super::*;
    use crate::item::Item;

    fn item(version: &Version) -> Item {
        let (rank, value) = write(version);
        Item::from([("version_rank".to_owned(), rank), ("version".to_owned(), value)])
    }

    fn read_back(item: &Item) -> Stored<Version> {
        read(Reader(item))
    }

    fn time(nanosecond: i128) -> Version {
        Version::Time(Timestamp::from_nanosecond(nanosecond).unwrap())
    }

    fn text(text: &str) -> Version {
        Version::Text(text.to_owned())
    }

    /// Where each kind of part borders on itself and on the next.
    fn parts() -> Vec<Version> {
        let numbers = [0, 1, 255, 256, u64::MAX].map(Version::Number);
        let times = [Timestamp::MIN, Timestamp::MAX].map(Version::Time);
        let near = [-1, 0, 1, 1_790_000_000_000_000_001].map(time);
        let texts = [
            "",
            "\0",
            "\0\0",
            "\0a",
            "\u{1}",
            "a",
            "a\0",
            "a\0b",
            "a\u{1}",
            "ab",
            "É",
            "\u{10ffff}",
        ];
        let lists = [vec![], vec![Version::Number(1)], vec![text("")], vec![Version::Number(1); 2]];
        let ends = [Version::End, Version::Reading(0), Version::Reading(u64::MAX)];
        let all = numbers.into_iter().chain(times).chain(near).chain(texts.map(text));
        all.chain(lists.map(Version::Composite)).chain(ends).collect()
    }

    fn value(version: &Version) -> Vec<u8> {
        let Version::Composite(parts) = version else { panic!("{version:?}") };
        sorting::bytes(parts)
    }

    /// D5, ORD-same-second: one part and two, and what only begins alike.
    #[test]
    fn composite_versions_sort_as_bytes_as_they_do_in_memory() {
        let parts = parts();
        let single = parts.iter().map(|part| vec![part.clone()]);
        let double = parts.iter().flat_map(|a| parts.iter().map(|b| vec![a.clone(), b.clone()]));
        let all: Vec<Version> =
            single.chain(double).chain([vec![]]).map(Version::Composite).collect();
        let bytes: Vec<Vec<u8>> = all.iter().map(value).collect();
        let mut seen = [false; 3];
        for (a, a_bytes) in all.iter().zip(&bytes) {
            for (b, b_bytes) in all.iter().zip(&bytes) {
                let expected = a.cmp(b);
                assert_eq!(a_bytes.cmp(b_bytes), expected, "{a:?} and {b:?}");
                seen[match expected {
                    Ordering::Less => 0,
                    Ordering::Equal => 1,
                    Ordering::Greater => 2,
                }] = true;
            }
            assert_eq!(&read_back(&item(a)).unwrap(), a);
        }
        assert_eq!(seen, [true; 3]);
    }

    #[test]
    fn every_version_reads_back_as_it_was_put() {
        for version in parts() {
            assert_eq!(read_back(&item(&version)).unwrap(), version);
        }
    }

    /// What a later version of this code wrote, or nobody.
    #[test]
    fn a_version_that_cannot_be_read_is_an_error_and_not_a_panic() {
        let unreadable = |rank: u8, value: AttributeValue| {
            let item = Item::from([
                ("version_rank".to_owned(), n(rank)),
                ("version".to_owned(), value.clone()),
            ]);
            let read = read_back(&item);
            assert!(matches!(read, Err(StoreError::Unreadable(_))), "{rank} {value:?}: {read:?}");
        };
        let whole = value(&Version::Composite(vec![Version::Number(1), text("ab"), time(5)]));
        for end in 0..whole.len() {
            unreadable(3, b(&whole[..end]));
        }
        let mut deep = vec![Version::Number(1)];
        for _ in 0..4 {
            deep = vec![Version::Composite(deep)];
        }
        let far = [[2].as_slice(), &[0xff; 16], &[0]].concat();
        let more = [whole.as_slice(), &[0]].concat();
        for bytes in
            [more, sorting::bytes(&deep), far, vec![7, 0], vec![3, 0xc3, 0, 0, 0], vec![3, 0, 1, 0]]
        {
            unreadable(3, b(bytes));
        }
        unreadable(3, s("text"));
        unreadable(6, n(1));
        unreadable(5, s("text"));
    }
}
