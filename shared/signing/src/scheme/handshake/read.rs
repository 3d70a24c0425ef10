//! From tables to handshakes, and the rules that keep them from serving strangers.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{
    Alphabet, Condition, Confirm, Content, Fixed, Handshake, Look, Member, Piece, Place, ReplyForm,
    Shown, Text,
};
use crate::scheme::algorithm::{Proof, Verifier};
use crate::scheme::reader::Reader;
use crate::scheme::template::header_name;

/// Characters of a reflected text, if the scheme says nothing.
const USUAL_MOST: usize = 200;
/// Characters of any text that a handshake may carry.
const MOST: usize = 1024;

/// The hosts whose addresses [`crate::lookup::confirmation`] takes: another would be promised a confirmation and never get
/// it.
const FETCHED: [&str; 2] = ["sns.*.amazonaws.com", "sns.*.amazonaws.com.cn"];

/// Reads all handshakes. `body_is_object`: what a form allows can never pass as the signed content of an event.
pub(in crate::scheme) fn handshakes(
    reader: &mut Reader<'_>,
    body_is_object: bool,
    by: Option<Proof>,
) -> Vec<Handshake> {
    reader.each("handshake", |reader| handshake(reader, body_is_object, by))
}

fn handshake(
    reader: &mut Reader<'_>,
    body_is_object: bool,
    by: Option<Proof>,
) -> Option<Handshake> {
    let methods = [("GET", "GET"), ("POST", "POST"), ("HEAD", "HEAD")];
    let method = reader.choice("method", &methods);
    let when = reader.each("when", condition);
    let proof = proof(reader);
    let only_waiting = reader.flag("only_waiting");
    let learn = place(reader, "learn");
    let confirm = reader.within("confirm", confirm).flatten();
    let reply = reader.within("reply", reply).unwrap_or(ReplyForm {
        status: 200,
        content: Content::Nothing,
        headers: Vec::new(),
    });
    let Some(method) = method else {
        reader.problem("method", "must be GET, POST or HEAD");
        return None;
    };
    let handshake = Handshake { method, when, proof, only_waiting, learn, confirm, reply };
    agree(reader, &handshake, body_is_object, by);
    Some(handshake)
}

/// What would look harmless and be not.
fn agree(reader: &mut Reader<'_>, handshake: &Handshake, body_is_object: bool, by: Option<Proof>) {
    if handshake.when.is_empty() && handshake.method != "HEAD" {
        reader.problem("when", "is missing; without a condition every request would be this one");
    }
    if handshake.method != "POST" && handshake.when.iter().any(Condition::is_about_the_body) {
        reader.problem("when", "looks into the body, which only a POST has");
    }
    harmless_reply(reader, handshake, body_is_object, by);
    if let Some(place) = &handshake.learn {
        if !has_form(handshake, place) {
            reader.problem("learn", format!("{place} has no `form` in `when`"));
        }
        if !handshake.only_waiting {
            reader.problem(
                "learn",
                "would let anybody replace the secret; add `only_waiting = true`",
            );
        }
    }
    if handshake.confirm.is_some() && !matches!(handshake.proof, Shown::Signature) {
        reader.problem(
            "confirm",
            "fetches an address for anybody who asks; demand `proof = \"signature\"`",
        );
    }
    let is_fetched = |host: &String| FETCHED.contains(&host.as_str());
    if handshake.confirm.as_ref().is_some_and(|confirm| !confirm.hosts.iter().all(is_fetched)) {
        reader.problem(
            "confirm.hosts",
            format!("names one of which no address is fetched; these are: {}", FETCHED.join(", ")),
        );
    }
}

/// What goes back, or is signed and goes back, must not be whatever a stranger sends.
fn harmless_reply(
    reader: &mut Reader<'_>,
    handshake: &Handshake,
    body_is_object: bool,
    by: Option<Proof>,
) {
    for piece in handshake.pieces() {
        match piece {
            Piece::Value(place) if !has_form(handshake, place) => {
                reader.problem(
                    "reply",
                    format!(
                        "sends {place} back, which has no `form` in `when`; anything could be in it"
                    ),
                );
            }
            Piece::Mac { of, .. } | Piece::Answer(of) if !has_form(handshake, of) => {
                reader.problem(
                    "reply",
                    format!("signs {of}, which has no `form` in `when`; anything could be in it"),
                );
            }
            Piece::Answer(_) if by != Some(Proof::Verifier(Verifier::Braintree)) => {
                reader.problem(
                    "reply",
                    "{challenge-answer:..} belongs to `verifier = \"braintree\"`",
                );
            }
            Piece::Mac { .. }
                if !body_is_object && !matches!(handshake.proof, Shown::Signature) =>
            {
                reader.problem("reply", "signs for anybody who asks; demand a signature, or sign {body} and have `body = \"object\"`, so that nothing which is signed here can pass as an event");
            }
            _ => {}
        }
    }
}

/// Whether a condition says what the text at a place looks like.
fn has_form(handshake: &Handshake, wanted: &Place) -> bool {
    handshake.when.iter().any(|condition| match condition {
        Condition::Is(place, _) | Condition::Has(place, _) => place == wanted,
        _ => false,
    })
}

fn place(reader: &mut Reader<'_>, key: &str) -> Option<Place> {
    let text = reader.text(key)?;
    Place::parse(&text).map_err(|what| reader.problem(key, what)).ok()
}

fn condition(reader: &mut Reader<'_>) -> Option<Condition> {
    if reader.has("members") {
        return Some(Condition::Members(reader.texts("members")));
    }
    if reader.has("fields") {
        return Some(Condition::Fields(reader.texts("fields")));
    }
    let from = place(reader, "from");
    let is = reader.text_or_number("is").map(|value| match value {
        Ok(text) => Fixed::Text(text),
        Err(number) => Fixed::Number(number),
    });
    let absent = reader.flag("absent");
    let alphabet = reader.choice("form", &Alphabet::ALL);
    let least = reader.count("least", 1..=MOST).unwrap_or(1);
    let most = reader.count("most", least..=MOST).unwrap_or(USUAL_MOST);
    let look = |alphabet| Look { alphabet, least, most };
    let Some(from) = from else {
        reader.problem("from", "is missing; or give `members` or `fields`");
        return None;
    };
    match (is, alphabet, absent) {
        (Some(fixed), None, false) => Some(Condition::Is(from, fixed)),
        (None, Some(alphabet), false) => Some(Condition::Has(from, look(alphabet))),
        (None, None, true) => Some(Condition::Absent(from)),
        _ => {
            reader.problem("from", "needs exactly one of `is`, `form` and `absent`");
            None
        }
    }
}

fn proof(reader: &mut Reader<'_>) -> Shown {
    if reader.is_table("proof") {
        let token = reader.within("proof", |proof| {
            let place = place(proof, "token");
            let secret = proof.text("secret").filter(|secret| !secret.is_empty());
            if place.is_none() || secret.is_none() {
                proof.problem("", "needs `token`, a place, and `secret`, the id of a secret");
            }
            Some(Shown::Token { place: place?, secret: secret? })
        });
        return token.flatten().unwrap_or(Shown::Signature);
    }
    let choices = [("none", false), ("signature", true)];
    match reader.choice("proof", &choices) {
        Some(false) => Shown::None,
        Some(true) => Shown::Signature,
        None => {
            reader.problem(
                "proof",
                "must be `none`, `signature`, or a table with `token` and `secret`",
            );
            Shown::Signature
        }
    }
}

fn confirm(reader: &mut Reader<'_>) -> Option<Confirm> {
    let (url, hosts) = (place(reader, "url"), reader.texts("hosts"));
    let plain = |host: &String| {
        let fixed = host.split('.').rev().take(2).all(|label| label != "*");
        let label = |label: &str| {
            label == "*"
                || (!label.is_empty()
                    && label.bytes().all(|byte| {
                        byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-'
                    }))
        };
        fixed && host.contains('.') && host.split('.').all(label)
    };
    if hosts.is_empty() || !hosts.iter().all(plain) {
        reader.problem("hosts", "must be names of hosts in lower case, in which `*` stands for one label and not for the last two");
    }
    Some(Confirm { url: url?, hosts })
}

fn reply(reader: &mut Reader<'_>) -> ReplyForm {
    let status = reader.status("status");
    let text = reader.text("text").map(|text| self::text(reader, "text", &text));
    let json = reader.table("json").map(|members| json(reader, members));
    if text.is_some() && json.is_some() {
        reader.problem("json", "and `text` exclude each other");
    }
    let headers = reader.texts_by_name("headers").into_iter().filter_map(|(name, value)| {
        let value = self::text(reader, "headers", &value);
        match header_name(&name) {
            Ok(name) if name.as_str().starts_with("x-") => Some((name, value)),
            _ => {
                reader.problem("headers", "may only be named x-...");
                None
            }
        }
    });
    let headers = headers.collect();
    let content = match (text, json) {
        (Some(text), _) => Content::Text(text),
        (None, Some(members)) => Content::Json(members),
        (None, None) => Content::Nothing,
    };
    ReplyForm { status: status.unwrap_or(200), content, headers }
}

fn json(reader: &mut Reader<'_>, members: Map<String, Value>) -> BTreeMap<String, Member> {
    let mut read = BTreeMap::new();
    for (name, value) in members {
        let member = match (&value, value.as_i64()) {
            (Value::String(text), _) => Member::Text(self::text(reader, "json", text)),
            (_, Some(number)) => Member::Number(number),
            _ => {
                reader.problem("json", "has members that are neither text nor a whole number");
                continue;
            }
        };
        read.insert(name, member);
    }
    read
}

fn text(reader: &mut Reader<'_>, key: &str, text: &str) -> Text {
    pieces(text).unwrap_or_else(|what| {
        reader.problem(key, what);
        Vec::new()
    })
}

fn pieces(text: &str) -> Result<Text, String> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((before, from)) = rest.split_once('{') {
        let Some((name, after)) = from.split_once('}') else {
            return Err("a brace has no partner".into());
        };
        if !before.is_empty() {
            pieces.push(Piece::Literal(before.into()));
        }
        pieces.push(match name.split_once(':') {
            Some(("hmac-hex", of)) => Piece::Mac { of: Place::named(of)?, base64: false },
            Some(("hmac-base64", of)) => Piece::Mac { of: Place::named(of)?, base64: true },
            Some(("challenge-answer", of)) => Piece::Answer(Place::named(of)?),
            _ => Piece::Value(Place::named(name)?),
        });
        rest = after;
    }
    if !rest.is_empty() {
        pieces.push(Piece::Literal(rest.into()));
    }
    Ok(pieces)
}
