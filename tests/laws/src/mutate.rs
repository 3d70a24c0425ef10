//! New inputs out of old ones, by a seed.

use rand::{Rng as _, RngExt as _, rngs::StdRng};

/// Pieces that grammars turn on.
const WORDS: &[&str] = &[
    "",
    ",",
    "=",
    ";",
    " ",
    "\n",
    "\0",
    "\u{7f}",
    "\u{feff}",
    "t=",
    "v1=",
    "v1,",
    "v0=",
    "v1a,",
    "sha256=",
    "sha1=",
    "=,v1=",
    "-1",
    "NaN",
    "1760000000",
    "18446744073709551616",
    "{}",
    "[",
    "]",
    "\"",
    "\\u0000",
    "\\ud800",
    "null",
    "/",
    "~1",
    "~0",
    "/0",
    "{body}",
    "{ts}",
    "{header:a|b}",
    "{json:/id}",
    "{secret}",
    "true",
    "1e999",
    "algorithm",
    "isBase64Encoded",
    "body",
    "whsec_",
    "Basic ",
    "Bearer ",
    "-----BEGIN CERTIFICATE-----",
    "eyJhbGciOiJub25lIn0.",
];

/// Changes an input in one to four places; `other` is another input to take a piece of.
pub fn mutate(input: &[u8], other: &[u8], random: &mut StdRng) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..random.random_range(1..=4) {
        change(&mut bytes, other, random);
    }
    bytes.truncate(16 * 1024);
    bytes
}

fn change(bytes: &mut Vec<u8>, other: &[u8], random: &mut StdRng) {
    let at = random.random_range(0..=bytes.len());
    let end = random.random_range(at..=bytes.len().min(at + 16));
    match random.random_range(0..8) {
        0 | 1 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << random.random_range(0..8);
            }
        }
        2 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = random.random();
            }
        }
        3 => drop(bytes.drain(at..end)),
        4 => {
            let mut piece = vec![0; random.random_range(1..8)];
            random.fill_bytes(&mut piece);
            bytes.splice(at..at, piece);
        }
        5 => {
            let word = WORDS[random.random_range(0..WORDS.len())];
            bytes.splice(at..end, word.bytes());
        }
        6 => {
            let from = random.random_range(0..=other.len());
            let to = random.random_range(from..=other.len().min(from + 64));
            bytes.splice(at..end, other[from..to].iter().copied());
        }
        _ => {
            let piece = bytes[at..end].repeat(random.random_range(1..5));
            bytes.splice(at..at, piece);
        }
    }
}
