//! Rules about several keys of a scheme at once: what would look like a check and be none.

use super::algorithm::{Algorithm, Proof};
use super::read::Written;
use super::reader::Reader;
use super::{Clock, IdentityRules, KeyEncoding, KeyFormat, Part, Shape, SignatureFormat, Template};
use crate::json::Pointer;
use crate::named;

/// What was read, as far as it could be.
pub(super) struct Whole {
    pub(super) written: Written,
    pub(super) proof: Option<Proof>,
    pub(super) key: KeyFormat,
    pub(super) signature: Option<SignatureFormat>,
    pub(super) signed: Template,
    pub(super) clock: Option<Clock>,
    pub(super) body_unsigned: bool,
    pub(super) identity: IdentityRules,
    /// Where the elements are.
    pub(super) batch: Option<Pointer>,
    pub(super) element: Option<IdentityRules>,
}

impl Whole {
    pub(super) fn signs(&self, part: &Part) -> bool {
        self.signed.parts().contains(part)
    }

    fn code_covers(&self, pointer: &Pointer) -> bool {
        matches!(self.proof, Some(Proof::Verifier(verifier)) if named::covers(verifier, pointer))
    }

    /// Whether everything that the id is made of is covered by the signature.
    pub(super) fn signs_id(&self, identity: &IdentityRules) -> bool {
        let covered = match self.proof {
            Some(Proof::Verifier(_)) => !self.body_unsigned,
            Some(Proof::Algorithm(algorithm)) => algorithm.signs() && self.signs(&Part::Body),
            None => false,
        };
        let covers = |part: &Part| match part {
            Part::Literal(_) | Part::Config(_) => true,
            Part::Json(pointer) if self.code_covers(pointer) => true,
            Part::Json(_)
            | Part::EveryJson(_)
            | Part::BodySha256
            | Part::Form(_)
            | Part::HasForm(_) => covered || self.signs(part),
            _ => self.signs(part),
        };
        let signs = !matches!(self.proof, Some(Proof::Algorithm(algorithm)) if !algorithm.signs());
        signs && identity.id.from.iter().flat_map(Template::parts).all(covers)
    }
}

pub(super) fn check(reader: &mut Reader<'_>, whole: &Whole) {
    match (whole.written.algorithm, whole.written.verifier) {
        (true, true) => {
            reader.problem("verifier", "stands in the place of `algorithm`; remove one of them");
        }
        (false, false) => {
            reader
                .problem("algorithm", "is missing; see the documentation of schemes for the form");
        }
        _ => {}
    }
    if whole.batch.is_none() && whole.element.is_some() {
        reader.problem("element", "needs `batch`, which says where the elements are");
    }
    match whole.proof {
        Some(Proof::Verifier(_)) => verifier(reader, whole),
        Some(Proof::Algorithm(algorithm)) if algorithm.signs() => signing(reader, whole, algorithm),
        Some(Proof::Algorithm(algorithm)) => showing(reader, whole, algorithm),
        None => {}
    }
    places(reader, whole);
    lookup(reader, whole);
}

/// Code knows where the signature is and what it covers.
fn verifier(reader: &mut Reader<'_>, whole: &Whole) {
    let Written { signature, signed, timestamp, .. } = whole.written;
    for (key, written) in [("signature", signature), ("signed", signed), ("timestamp", timestamp)] {
        if written && !whole.written.algorithm {
            reader.problem(key, "is part of the code of `verifier`; remove it");
        }
    }
}

/// Algorithms that sign nothing: a token, basic credentials, none.
fn showing(reader: &mut Reader<'_>, whole: &Whole, algorithm: Algorithm) {
    if whole.written.signed {
        reader.problem(
            "signed",
            format!("means nothing with `{algorithm}`, which signs nothing; remove it"),
        );
    }
    if whole.key.encoding != KeyEncoding::Utf8 {
        reader.problem("key.encoding", format!("is compared as text with `{algorithm}`; use utf8"));
    }
    if whole.clock.is_some() {
        reader.problem("timestamp", "nothing signs it, so it proves nothing; remove it");
    }
    match (algorithm, whole.written.signature) {
        (Algorithm::Token, false) => {
            reader.problem(
                "signature",
                "is missing; say where the token is, as in from = \"{header:x-token}\"",
            );
        }
        (Algorithm::Basic, true) => {
            reader
                .problem("signature", "is always the header Authorization with `basic`; remove it");
        }
        (Algorithm::None, true) => {
            reader.problem(
                "signature",
                "means nothing with `none`; remove it, or use `token` if the provider sends one",
            );
        }
        _ => {}
    }
}

/// Algorithms that sign: what they cover, and whether the keys can be theirs.
fn signing(reader: &mut Reader<'_>, whole: &Whole, algorithm: Algorithm) {
    if !whole.written.signature {
        reader.problem("signature", "is missing; see the documentation of schemes for the form");
    }
    if !reader.is_wrong("signed") {
        content(reader, whole, algorithm);
    }
    key(reader, whole, algorithm);
    clock(reader, whole);
}

fn content(reader: &mut Reader<'_>, whole: &Whole, algorithm: Algorithm) {
    if !whole.signs(&Part::Body) && !whole.body_unsigned {
        reader.problem("signed", "must contain {body}, or anybody could change it; `body_unsigned = true` if that is really so");
    }
    if whole.body_unsigned && whole.signed.parts().is_empty() {
        reader.problem(
            "signed",
            "is empty, so the signature would cover nothing; say what it covers",
        );
    }
    let is_fixed = |part: &Part| matches!(part, Part::Literal(_) | Part::Config(_) | Part::Secret);
    let parts = whole.signed.parts();
    if !parts.is_empty() && parts.iter().all(is_fixed) {
        reader.problem(
            "signed",
            "is the same for every request, so its signature is a token that anybody can repeat; use `token`, which says so",
        );
    }
    if parts.iter().filter(|part| **part == Part::Body).count() > 1 {
        reader.problem("signed", "has {body} more than once, and each costs time; keep one");
    }
    match (algorithm == Algorithm::Sha256, whole.signs(&Part::Secret)) {
        (true, false) => {
            reader.problem("signed", "must contain {secret}, or anybody could compute the hash");
        }
        (false, true) => {
            reader.problem(
                "signed",
                format!(
                    "{{secret}} belongs to `sha256`; with `{algorithm}` the key goes in by itself"
                ),
            );
        }
        _ => {}
    }
}

fn key(reader: &mut Reader<'_>, whole: &Whole, algorithm: Algorithm) {
    use KeyEncoding::{SpkiBase64, Utf8};
    let encoding = whole.key.encoding;
    let what = match algorithm {
        Algorithm::Ed25519 if encoding == Utf8 => {
            "an Ed25519 key is 32 bytes; use hex, base64 or spki-base64"
        }
        Algorithm::EcdsaP256 if encoding != SpkiBase64 => {
            "an ECDSA key is written with its curve; use spki-base64, which also takes PEM"
        }
        _ if encoding == SpkiBase64 && !algorithm.is_asymmetric() => {
            "spki-base64 is for public keys, and this algorithm has a shared secret; use utf8, hex or base64"
        }
        _ => return,
    };
    reader.problem("key.encoding", what);
}

fn clock(reader: &mut Reader<'_>, whole: &Whole) {
    let Some(clock) = &whole.clock else {
        if whole.signs(&Part::Timestamp) && !whole.written.timestamp {
            reader.problem("timestamp", "`signed` contains {ts}; say where it is found");
        }
        return;
    };
    // whether the list of signed headers names the time is only seen in the request, and checked there
    let listed = matches!(clock.from, Part::Header(_))
        && whole.signed.parts().iter().any(|part| matches!(part, Part::SignedHeaders(_)));
    let covered = listed
        || whole.signs(&Part::Timestamp)
        || whole.signs(&clock.from)
        || (matches!(clock.from, Part::Json(_)) && whole.signs(&Part::Body));
    if !covered {
        reader.problem("timestamp.from", "is not signed, so a replay could carry a new one; put {ts} into `signed`, or remove `timestamp`");
    }
    let plain = whole
        .signature
        .as_ref()
        .is_some_and(|signature| matches!(signature.shape, Shape::Plain { .. }));
    if matches!(clock.from, Part::Pair(_)) && plain {
        reader.problem("timestamp.from", "{pair:..} needs `signature.pairs`");
    }
}

/// Where signatures stand.
fn places(reader: &mut Reader<'_>, whole: &Whole) {
    let Some(signature) = &whole.signature else { return };
    if signature.paired && signature.from.len() < 2 {
        reader.problem(
            "signature.paired",
            "needs a list of at least two headers in `signature.from`",
        );
    }
    if signature.paired && whole.key.lookup.is_some() {
        reader.problem(
            "signature.paired",
            "pairs headers with secrets, but the keys are looked up; remove one of them",
        );
    }
    let Some(Proof::Algorithm(algorithm)) = whole.proof else { return };
    let shows = |part: &Part| matches!(part, Part::EveryJson(_) | Part::PathSecret);
    if algorithm != Algorithm::Token && signature.from.iter().any(shows) {
        reader.problem("signature.from", "{json:/../*/..} and {path-secret} are for `token`; a signature is one {header:..} or {json:/..}");
    }
    let is_pairs = matches!(signature.shape, Shape::Pairs { .. });
    if signature.from.contains(&Part::PathSecret) && is_pairs {
        reader.problem("signature.pairs", "an address has no pairs; remove it");
    }
    let in_body = matches!(signature.from.as_slice(), [Part::Json(_)]);
    if algorithm.signs() && whole.signs(&Part::Body) && in_body {
        reader.problem("signature.from", "stands inside the body that it signs, which no sender can make; sign parts of the body with `body_unsigned = true`");
    }
}

fn lookup(reader: &mut Reader<'_>, whole: &Whole) {
    if whole.key.lookup.is_none() {
        return;
    }
    match whole.proof {
        Some(Proof::Algorithm(algorithm)) if !algorithm.is_asymmetric() => {
            reader.problem(
                "key.lookup",
                format!("is for public keys, and `{algorithm}` has none; remove it"),
            );
        }
        Some(Proof::Verifier(_)) => {
            reader.problem("key.lookup", "is part of the code of `verifier`; remove it");
        }
        _ => {}
    }
}
