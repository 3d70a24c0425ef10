//! The signed time: its grammar, and how old is too old.

use jiff::Timestamp;

use crate::Reason;
use crate::scheme::{Clock, Unit};

/// A time that a sender wrote, read but not yet believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// In the unit of the scheme: seconds, or milliseconds.
    At(i64),
    /// Digits only, but more than any date needs: most often milliseconds where seconds belong.
    OutOfRange,
}

/// Reads a timestamp: 1 to 12 digits for seconds, 1 to 15 for milliseconds, nothing else; or RFC 3339 with its offset.
pub(crate) fn read(text: &[u8], unit: Unit) -> Option<Sent> {
    match unit {
        Unit::Seconds => digits(text, 12),
        Unit::Milliseconds => digits(text, 15),
        Unit::Rfc3339 => rfc3339(text).map(|time| Sent::At(time.as_millisecond())),
    }
}

/// Reads a date with time and offset, as RFC 3339 has it and nothing more.
pub(crate) fn rfc3339(text: &[u8]) -> Option<Timestamp> {
    let plain = text
        .iter()
        .all(|byte| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b':' | b'.' | b'T' | b'Z'));
    if !plain || text.len() > 40 {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn digits(text: &[u8], most: usize) -> Option<Sent> {
    if text.is_empty() || text.len() > 32 || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    if text.len() > most {
        return Some(Sent::OutOfRange);
    }
    let value = text
        .iter()
        .try_fold(0_i64, |sum, digit| sum.checked_mul(10)?.checked_add(i64::from(digit - b'0')))?;
    Some(Sent::At(value))
}

/// Judges a time against the clock. Exactly at the limit is still fresh.
pub(crate) fn judge(sent: Sent, clock: &Clock, now: Timestamp) -> Result<(), Reason> {
    let Sent::At(sent) = sent else { return Err(Reason::TimestampOutOfRange) };
    let (now, scale) = match clock.unit {
        Unit::Seconds => (now.as_second(), 1),
        Unit::Milliseconds | Unit::Rfc3339 => (now.as_millisecond(), 1000),
    };
    let Some(age) = now.checked_sub(sent) else { return Err(Reason::TimestampOutOfRange) };
    let (past, future) = (i64::from(clock.tolerance), i64::from(clock.future));
    if age > past.saturating_mul(scale) {
        return Err(Reason::TimestampTooOld { age_seconds: age / scale, tolerance_seconds: past });
    }
    if age.saturating_neg() > future.saturating_mul(scale) {
        return Err(Reason::TimestampInFuture {
            ahead_seconds: age.saturating_neg() / scale,
            tolerance_seconds: future,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// VFY-timestamp-garbage: the grammar itself; the signed requests are in `tests/field_cases.rs`.
    #[test]
    fn only_plain_digits_are_a_time() {
        assert_eq!(read(b"1760000000", Unit::Seconds), Some(Sent::At(1_760_000_000)));
        assert_eq!(read(b"0", Unit::Seconds), Some(Sent::At(0)));
        assert_eq!(read(b"999999999999", Unit::Seconds), Some(Sent::At(999_999_999_999)));
        assert_eq!(read(b"1760000000000", Unit::Seconds), Some(Sent::OutOfRange));
        assert_eq!(read(b"18446744073709551616", Unit::Milliseconds), Some(Sent::OutOfRange));
        for garbage in [
            "",
            "NaN",
            "1760000000.0",
            "1.76e9",
            "+1",
            "-1",
            " 1",
            "1 ",
            "1_000",
            "0x68",
            "1a",
            "\u{661}",
        ] {
            assert_eq!(read(garbage.as_bytes(), Unit::Seconds), None, "{garbage}");
        }
    }

    #[test]
    fn a_date_needs_its_offset() {
        assert!(read(b"2026-01-01T00:00:00Z", Unit::Rfc3339).is_some());
        assert!(read(b"2026-01-01T01:00:00.123456789+01:00", Unit::Rfc3339).is_some());
        for garbage in [
            "2026-01-01",
            "2026-01-01T00:00:00",
            "2026-01-01 00:00:00Z",
            "1767225600",
            "",
            "yesterday",
        ] {
            assert_eq!(read(garbage.as_bytes(), Unit::Rfc3339), None, "{garbage}");
        }
    }
}
