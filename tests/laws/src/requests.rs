//! Signature headers, bodies and clocks, edited by somebody without a key.
//!
//! An input is the number of an example and a list of edits. Whatever they are: a request that is accepted says what the
//! original said, and one that is refused repeats nothing of what was sent.

use std::{collections::BTreeMap, sync::OnceLock};

use http::{HeaderName, HeaderValue};
use jiff::Span;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use signing::{Rejected, Trust, verify};

use crate::{
    bounded,
    bytes::Bytes,
    example::{Example, examples},
};

/// Headers that somebody may try besides the scheme's own.
const STRANGE: &[&str] = &[
    "x-hub-signature",
    "x-hub-signature-256",
    "webhook-id",
    "webhook-signature",
    "content-encoding",
    "content-type",
    "x-twilio-webhooks-signature-settings",
    "authorization",
    "x-anything",
];

/// No more edits than this count.
const MOST_EDITS: usize = 8;

/// The law of an input.
pub fn law(input: &[u8]) {
    let mut input = Bytes(input);
    let original = example(input.number());
    let mut edited = original.clone();
    for _ in 0..MOST_EDITS {
        if input.is_empty() {
            break;
        }
        edit(&mut edited, &mut input);
    }
    judge(original, &edited);
}

/// The example with this number: the same one, however many there are of other schemes.
fn example(number: usize) -> &'static Example {
    static EXAMPLES: OnceLock<BTreeMap<u16, Example>> = OnceLock::new();
    let place = |example: &Example| {
        let hash = Sha256::digest(format!("{} {}", example.case.provider, example.case.name));
        u16::from_be_bytes([hash[0], hash[1]])
    };
    let examples = EXAMPLES
        .get_or_init(|| examples().into_iter().map(|example| (place(&example), example)).collect());
    let number = u16::try_from(number).unwrap_or_default();
    let next = examples.range(number..).next().or_else(|| examples.first_key_value());
    next.unwrap().1
}

fn edit(example: &mut Example, input: &mut Bytes<'_>) {
    let case = &mut example.case;
    let names: Vec<HeaderName> = case.headers.keys().cloned().collect();
    let kind = input.byte() % 12;
    match kind {
        0..=5 if !names.is_empty() => {
            let name = &names[input.below(names.len())];
            let mut value = case.headers[name].as_bytes().to_vec();
            let at = input.below(value.len() + 1);
            match kind {
                0 => value = input.line().to_vec(),
                1 => drop(value.splice(at..at, input.line().iter().copied())),
                2 => value.truncate(at),
                3 => {
                    if let Some(byte) = value.get_mut(at) {
                        *byte ^= 1 << (input.byte() % 8);
                    }
                }
                4 => {
                    case.headers.remove(name);
                    return;
                }
                _ => {
                    if let Ok(value) = HeaderValue::from_bytes(input.line()) {
                        case.headers.append(name, value);
                    }
                    return;
                }
            }
            if let Ok(value) = HeaderValue::from_bytes(&value) {
                case.headers.insert(name, value);
            }
        }
        6 => {
            let name = STRANGE[input.below(STRANGE.len())];
            if let Ok(value) = HeaderValue::from_bytes(input.line()) {
                case.headers.append(name, value);
            }
        }
        7 => {
            let at = input.below(case.body.len() + 1);
            if let Some(byte) = case.body.get_mut(at) {
                *byte ^= 1 << (input.byte() % 8);
            }
        }
        8 => {
            let at = input.below(case.body.len() + 1);
            case.body.splice(at..at, input.line().iter().copied());
        }
        9 => {
            let at = input.below(case.body.len() + 1);
            let end = (at + input.below(64)).min(case.body.len());
            case.body.drain(at..end);
        }
        10 => case.body = input.line().to_vec(),
        _ => {
            let seconds = i64::try_from(input.number()).unwrap_or_default() - 0x8000;
            case.now = case.now.saturating_add(Span::new().seconds(seconds)).unwrap();
        }
    }
}

fn judge(original: &Example, edited: &Example) {
    let case = &edited.case;
    let size = case.body.len()
        + case.headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum::<usize>();
    let verdict = bounded(size, 64, || edited.judge());
    let again = edited.judge();
    assert_eq!(
        verdict.as_ref().map(|verified| verified.identity()).map_err(Rejected::reason),
        again.as_ref().map(|verified| verified.identity()).map_err(Rejected::reason),
        "two answers to one request"
    );
    match verdict {
        Ok(verified) => {
            let told = || format!("{} {}, edited", case.provider, case.name);
            if edited.signs_body() {
                assert!(case.body == original.case.body, "{}: another body is accepted", told());
            }
            if matches!(edited.scheme.trust(), Trust::Signed | Trust::BodyUnsigned) {
                let hash = verified.signed_hash();
                assert_eq!(hash, original.signed_hash, "{}: something else is signed", told());
            }
            if verified.identity().id_is_signed {
                assert_eq!(verified.identity().id, original.id, "{}: another id", told());
            }
            let nobody = verify(&edited.scheme, &[], &edited.case.request(), case.now);
            assert!(nobody.unwrap_err().is_refreshable(), "{}: accepted without a key", told());
            let much_later = case.now.saturating_add(Span::new().hours(24 * 365)).unwrap();
            if edited.scheme.tolerance_seconds().is_some() {
                let stale =
                    verify(&edited.scheme, &edited.keys, &edited.case.request(), much_later);
                assert_eq!(stale.unwrap_err().class().as_str(), "stale", "{}", told());
            }
        }
        Err(rejected) => tells_nothing(edited, &rejected),
    }
}

/// What is said of a refusal goes to logs: nothing that was sent may be in it.
fn tells_nothing(example: &Example, rejected: &Rejected) {
    let told = format!(
        "{rejected} {rejected:?} {} {:?} {} {}",
        rejected.reason(),
        rejected.reason(),
        rejected.reason().advice(),
        rejected.reason().code()
    );
    assert!(!told.chars().any(char::is_control), "{told:?}");
    // The id of a key is told: it was held to a strict form, and somebody has to fetch the key.
    let told = rejected.wanted_key().map_or(told.clone(), |id| told.replace(id, "that key"));
    let own = serde_json::to_string::<Value>(&serde_json::to_value(&example.scheme).unwrap());
    let own = own.unwrap();
    for value in example.case.headers.values().filter_map(|value| value.to_str().ok()) {
        // Words may be in a message by themselves, and a fuzzer finds them; six digits may not.
        let is_telling = value.bytes().filter(u8::is_ascii_digit).count() >= 6;
        let is_ours = !is_telling || own.contains(value);
        assert!(is_ours || !told.contains(value), "{told} repeats {value:?}");
    }
}
