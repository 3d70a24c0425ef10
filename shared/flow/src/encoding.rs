//! What a body says when the encoding that it travelled in (`Content-Encoding`) is undone.
//!
//! A signature covers the bytes as they came, so they are verified and kept like that. Only bytes that were verified may
//! come here, and what they inflate to is bounded whatever they promise.

use std::{
    borrow::Cow,
    io::{self, Read},
};

use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};

use crate::body::MAX_BODY;

/// Names for "as it is", some of them only by senders who mistake the header for the charset.
const AS_IT_IS: [&str; 5] = ["", "identity", "none", "utf-8", "utf8"];

/// Why a body cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotDecoded {
    /// It inflates to more than is ever read.
    #[error("the body inflates to more than {MAX_BODY} bytes")]
    TooLarge,
    /// It is not what its encoding says.
    #[error("the body came as `{0}` and is not that")]
    Corrupt(String),
    /// An encoding that this code does not know, or several of them.
    #[error("the body came as `{0}`, and only gzip and deflate are read")]
    Unknown(String),
}

/// The bytes of a body that came with this `Content-Encoding`.
///
/// JSON is taken as it is, whatever the header says: a proxy on the way may have inflated it and left the header.
///
/// # Errors
/// The body has an encoding that cannot be undone.
pub fn decode<'a>(encoding: Option<&str>, body: &'a [u8]) -> Result<Cow<'a, [u8]>, NotDecoded> {
    let named = encoding.unwrap_or_default().trim();
    let name = named.to_ascii_lowercase();
    if AS_IT_IS.contains(&name.as_str())
        || serde_json::from_slice::<serde::de::IgnoredAny>(body).is_ok()
    {
        return Ok(Cow::Borrowed(body));
    }
    let inflated = match name.as_str() {
        "gzip" | "x-gzip" => inflate(MultiGzDecoder::new(body)),
        // The standard means zlib by it; some senders leave zlib's frame out.
        "deflate" => {
            inflate(ZlibDecoder::new(body)).or_else(|_| inflate(DeflateDecoder::new(body)))
        }
        _ => return Err(NotDecoded::Unknown(named.to_owned())),
    };
    match inflated {
        Ok(bytes) if bytes.len() > MAX_BODY => Err(NotDecoded::TooLarge),
        Ok(bytes) => Ok(Cow::Owned(bytes)),
        Err(_) => Err(NotDecoded::Corrupt(named.to_owned())),
    }
}

/// Up to one byte more than [`MAX_BODY`]: a few bytes can inflate to gigabytes.
fn inflate(encoded: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    encoded.take(MAX_BODY as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use flate2::{
        Compression,
        read::{DeflateEncoder, GzEncoder, ZlibEncoder},
    };
    use proptest::prelude::*;

    use super::*;

    fn all(mut from: impl Read) -> Vec<u8> {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).unwrap();
        bytes
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        all(GzEncoder::new(bytes, Compression::default()))
    }

    #[track_caller]
    fn check(encoding: &str, body: &[u8], expected: Result<&[u8], NotDecoded>) {
        let expected = expected.map(<[u8]>::to_vec);
        let decoded = decode(Some(encoding), body).map(Cow::into_owned);
        assert_eq!(decoded, expected, "{encoding}");
    }

    #[test]
    fn what_was_encoded_is_decoded() {
        let plain = b"a=1&b=2".as_slice();
        check("gzip", &gzip(plain), Ok(plain));
        check(" X-GZIP", &gzip(plain), Ok(plain));
        check("deflate", &all(ZlibEncoder::new(plain, Compression::best())), Ok(plain));
        check("deflate", &all(DeflateEncoder::new(plain, Compression::best())), Ok(plain));
        // Two members in a row are one body.
        let two = [gzip(b"a=1&"), gzip(b"b=2")].concat();
        check("gzip", &two, Ok(plain));
    }

    #[test]
    fn what_is_not_encoded_stays_as_it_is() {
        assert_eq!(decode(None, b"\xff\x00"), Ok(Cow::Borrowed(b"\xff\x00".as_slice())));
        for encoding in ["", "identity", "UTF-8", "none"] {
            check(encoding, b"a=1", Ok(b"a=1"));
        }
        for encoding in ["gzip", "deflate", "br", "gzip, gzip"] {
            check(encoding, br#"{"id":"evt_1"}"#, Ok(br#"{"id":"evt_1"}"#));
        }
    }

    /// INB-raw-bytes-kept: what cannot be read says so; it is not guessed at.
    #[test]
    fn what_cannot_be_undone_is_named() {
        let corrupt = |name: &str| Err(NotDecoded::Corrupt(name.to_owned()));
        let unknown = |name: &str| Err(NotDecoded::Unknown(name.to_owned()));
        let whole = gzip(&[7; 1000]);
        check("gzip", whole.get(..whole.len() - 1).unwrap(), corrupt("gzip"));
        check("gzip", b"", corrupt("gzip"));
        check("gzip", b"a=1", corrupt("gzip"));
        check("deflate", b"\xff\xff", corrupt("deflate"));
        check("br", b"\x0b\x02\x80", unknown("br"));
        check("gzip, gzip", &gzip(&gzip(b"a")), unknown("gzip, gzip"));
    }

    /// ING-pre-auth-decompression: the inner layer of a nested body stays as it is, so that a bomb in it is only bytes.
    #[test]
    fn a_bomb_stops_at_the_limit() {
        let zeros = |length: usize| gzip(&vec![0; length]);
        let decoded = decode(Some("gzip"), &zeros(MAX_BODY)).map(|bytes| bytes.len());
        assert_eq!(decoded, Ok(MAX_BODY));
        check("gzip", &zeros(MAX_BODY + 1), Err(NotDecoded::TooLarge));
        let bomb = zeros(4 * MAX_BODY);
        assert!(bomb.len() < 50_000, "{}", bomb.len());
        check("gzip", &bomb, Err(NotDecoded::TooLarge));
        let inflated = inflate(MultiGzDecoder::new(bomb.as_slice())).unwrap();
        assert_eq!(inflated.len(), MAX_BODY + 1, "no more than shows that it is too much");
        check("gzip", &gzip(&bomb), Ok(&bomb));
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_strange(encoding in "gzip|deflate|br|", body: Vec<u8>) {
            let _ = decode(Some(&encoding), &body);
        }

        #[test]
        fn whatever_was_encoded_comes_back(body: Vec<u8>) {
            let encoded = gzip(&body);
            let decoded = decode(Some("gzip"), &encoded);
            prop_assert_eq!(decoded.as_deref(), Ok(body.as_slice()));
        }
    }
}
