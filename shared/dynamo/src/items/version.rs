//! Versions, so that the store orders them as [`Version`] does: first the variant, then the value.

use aws_sdk_dynamodb::types::AttributeValue;
use domain::{event::Version, ports::Stored};
use jiff::Timestamp;

use crate::item::{Reader, n, s};

/// The variant as a number, `version_rank`, and the value, `version`. A time counts nanoseconds, for it must compare
/// as exactly as it does in memory.
pub(crate) fn write(version: &Version) -> (AttributeValue, AttributeValue) {
    match version {
        Version::Number(number) => (n(0), n(number)),
        Version::Time(at) => (n(1), n(at.as_nanosecond())),
        Version::Text(text) => (n(2), s(text)),
    }
}

pub(crate) fn read(item: Reader<'_>) -> Stored<Version> {
    match item.number("version_rank")? {
        0 => item.number("version").map(Version::Number),
        1 => {
            let at = Timestamp::from_nanosecond(item.number("version")?);
            at.map(Version::Time).map_err(|_| item.bad("version"))
        }
        2_u8 => item.str("version").map(|text| Version::Text(text.to_owned())),
        _ => Err(item.bad("version_rank")),
    }
}
