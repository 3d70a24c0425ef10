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
