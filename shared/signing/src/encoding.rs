//! Strict readings of hexadecimal and base64: one spelling for each value.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};

use crate::scheme::Encoding;

/// Why a text is not a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotADigest {
    /// Not the encoding at all, or not the length.
    Malformed,
    /// The right length in another spelling: capitals, no padding, the other base64 alphabet.
    Spelling,
}

/// Reads a digest in the scheme's own spelling, if `accepts` finds its bytes to be one. They go into `into`, and their number
/// comes back.
pub(crate) fn decode(
    text: &[u8],
    encoding: Encoding,
    into: &mut [u8],
    accepts: impl Fn(&[u8]) -> bool,
) -> Result<usize, NotADigest> {
    let strict = match encoding {
        Encoding::Hex => lower_hex(text, into),
        Encoding::HexAnyCase => any_hex(text, into),
        Encoding::Base64 => STANDARD.decode_slice(text, into).ok(),
        Encoding::Base64Url => URL_SAFE_NO_PAD.decode_slice(text, into).ok(),
    };
    match strict {
        Some(length) if into.get(..length).is_some_and(&accepts) => Ok(length),
        Some(_) => Err(NotADigest::Malformed),
        None if loosely(text, encoding).is_some_and(|bytes| accepts(&bytes)) => {
            Err(NotADigest::Spelling)
        }
        None => Err(NotADigest::Malformed),
    }
}

/// Writes a digest as the scheme does.
pub(crate) fn encode(bytes: &[u8], encoding: Encoding) -> String {
    match encoding {
        Encoding::Hex | Encoding::HexAnyCase => hex::encode(bytes),
        Encoding::Base64 => STANDARD.encode(bytes),
        Encoding::Base64Url => URL_SAFE_NO_PAD.encode(bytes),
    }
}

fn lower_hex(text: &[u8], into: &mut [u8]) -> Option<usize> {
    let lower = text.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if lower { any_hex(text, into) } else { None }
}

fn any_hex(text: &[u8], into: &mut [u8]) -> Option<usize> {
    let length = text.len() / 2;
    hex::decode_to_slice(text, into.get_mut(..length)?).ok()?;
    Some(length)
}

fn loosely(text: &[u8], encoding: Encoding) -> Option<Vec<u8>> {
    match encoding {
        Encoding::Hex | Encoding::HexAnyCase => hex::decode(text).ok(),
        Encoding::Base64 | Encoding::Base64Url => {
            [&STANDARD, &STANDARD_NO_PAD, &URL_SAFE, &URL_SAFE_NO_PAD]
                .into_iter()
                .find_map(|engine| engine.decode(text).ok())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, encoding: Encoding, expected: Result<&[u8], NotADigest>) {
        let mut bytes = [0; 72];
        let read = decode(text.as_bytes(), encoding, &mut bytes, |bytes| bytes.len() == 2);
        assert_eq!(read.map(|length| &bytes[..length]), expected, "{text}");
    }

    #[test]
    fn one_value_has_one_spelling() {
        use NotADigest::{Malformed, Spelling};
        check("fb0a", Encoding::Hex, Ok(&[0xfb, 0x0a]));
        check("FB0a", Encoding::Hex, Err(Spelling));
        check("FB0a", Encoding::HexAnyCase, Ok(&[0xfb, 0x0a]));
        for malformed in ["", "fb0", "fb0a00", "fb0g", " fb0a", "fb0a ", "0xfb"] {
            check(malformed, Encoding::Hex, Err(Malformed));
        }
        check("+/8=", Encoding::Base64, Ok(&[0xfb, 0xff]));
        check("+/8", Encoding::Base64, Err(Spelling));
        check("-_8=", Encoding::Base64, Err(Spelling));
        check("-_8", Encoding::Base64Url, Ok(&[0xfb, 0xff]));
        check("-_8=", Encoding::Base64Url, Err(Spelling));
        // the last character carries bits that no encoder writes
        check("+/9=", Encoding::Base64, Err(Malformed));
        for malformed in ["", "+/8==", "+*/8=", "+/8=\n", "=", "+/8A"] {
            check(malformed, Encoding::Base64, Err(Malformed));
        }
    }
}
