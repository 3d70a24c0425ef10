//! The answer, filled in.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use crate::handshake::Reply;
use crate::handshake::seen::{Found, Seen};
use crate::key::Key;
use crate::named;
use crate::rejected::Reason;
use crate::scheme::{Content, Member, Piece, Place, ReplyForm};

/// Nothing that is reflected may become a page: plain types, and no guessing.
const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

pub(super) fn fill(form: &ReplyForm, seen: &Seen<'_>, key: Option<&Key>) -> Result<Reply, Reason> {
    let fill = |pieces: &[Piece]| text(pieces, seen, key);
    let content = match &form.content {
        Content::Nothing => None,
        Content::Text(pieces) => Some((TEXT, fill(pieces)?)),
        Content::Json(members) => {
            let members = members.iter().map(|(name, member)| {
                let value = match member {
                    Member::Number(number) => Value::from(*number),
                    Member::Text(pieces) => Value::from(fill(pieces)?),
                };
                Ok((name.clone(), value))
            });
            Some((JSON, Value::Object(members.collect::<Result<Map<_, _>, Reason>>()?).to_string()))
        }
    };
    let mut headers = Vec::new();
    let mut body = Vec::new();
    if let Some((content_type, text)) = content {
        headers.push(("content-type".to_owned(), content_type.to_owned()));
        headers.push(("x-content-type-options".to_owned(), "nosniff".to_owned()));
        body = text.into_bytes();
    }
    for (name, pieces) in &form.headers {
        headers.push((name.as_str().to_owned(), fill(pieces)?));
    }
    Ok(Reply { status: form.status, headers, body })
}

fn text(pieces: &[Piece], seen: &Seen<'_>, key: Option<&Key>) -> Result<String, Reason> {
    let mut text = String::new();
    for piece in pieces {
        match piece {
            Piece::Literal(literal) => text.push_str(literal),
            Piece::Value(place) => text.push_str(&value(place, seen)?),
            Piece::Mac { of, base64 } => {
                let key = key.ok_or(Reason::NoKeys)?;
                let mac = key.mac(value(of, seen)?.as_bytes()).ok_or(Reason::NoKeys)?;
                text.push_str(&if *base64 { STANDARD.encode(mac) } else { hex::encode(mac) });
            }
            Piece::Answer(of) => {
                let key = key.ok_or(Reason::NoKeys)?;
                let answer = named::braintree::answer(key, &value(of, seen)?);
                text.push_str(&answer.ok_or(Reason::NoKeys)?);
            }
        }
    }
    Ok(text)
}

fn value(place: &Place, seen: &Seen<'_>) -> Result<String, Reason> {
    match seen.at(place) {
        Found::Text(text) => Ok(text.into_owned()),
        _ => Err(Reason::HandshakeMalformed { place: place.to_string() }),
    }
}
