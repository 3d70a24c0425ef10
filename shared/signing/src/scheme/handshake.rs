//! A handshake: a request by which a provider makes sure of us, and the one answer to it. Data, like the rest of a scheme.
//!
//! ```toml
//! [[handshake]]
//! method = "GET"                  # GET, POST or HEAD
//! when = [                        # all of them, or it is not this handshake
//!   { from = "{query:hub.mode}", is = "subscribe" },     # exactly this text; a number without quotes: a number in JSON
//!   { from = "{query:hub.challenge}", form = "token" },  # it is there; and if it has another form, the request is refused
//!   { from = "{header:x-signature}", absent = true },
//!   { members = ["challenge"] },  # the body is a JSON object with these members and no others
//!   { fields = ["webhook_id"] },  # the body is a form with these fields and no others
//! ]                               # places: {query:name} {header:name} {json:/pointer} {form:field}
//!                                 # forms: digits, hex (lower case), token (A-Z a-z 0-9 . _ ~ = + / -), words (token, blank , :)
//!                                 # `least` and `most` characters; 1 and 200 if not given
//! proof = "signature"             # none, signature, or { token = "{query:..}", secret = "verify_token" }: the secret of that
//!                                 # id serves this handshake only and never verifies an event
//! only_waiting = true             # only while the source waits for a secret or a confirmation
//! learn = "{header:x-hook-secret}"        # the place of the secret that the request brings
//! confirm = { url = "{json:/SubscribeURL}", hosts = ["sns.*.amazonaws.com"] } # the address to fetch; `*` is one label of a name
//! reply = { status = 200, text = "{query:hub.challenge}" }   # or json = { challenge = "{json:/challenge}" }; headers = { .. }
//!                                 # besides places: {hmac-hex:place} {hmac-base64:place} with the scheme's key, and
//!                                 # {challenge-answer:place} as the scheme's `verifier` knows it
//! ```
//!
//! Whatever goes back comes from a place that has a `form`: none of the forms contains what a browser or a signature could
//! take for something else.

use std::collections::BTreeMap;
use std::fmt;

use http::HeaderName;
use serde_json::{Map, Value};

use super::algorithm::{Proof, Verifier};
use super::reader::Reader;
use super::template::header_name;

/// Characters of a reflected text, if the scheme says nothing.
const USUAL_MOST: usize = 200;
/// Characters of any text that a handshake may carry.
const MOST: usize = 1024;

/// One handshake of a scheme.
#[derive(Clone, Debug)]
pub struct Handshake {
    pub(crate) method: &'static str,
    pub(crate) when: Vec<Condition>,
    pub(crate) proof: Shown,
    pub(crate) only_waiting: bool,
    pub(crate) learn: Option<Place>,
    pub(crate) confirm: Option<Confirm>,
    pub(crate) reply: ReplyForm,
}

/// Where a value stands in a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Query(String),
    Header(HeaderName),
    /// A JSON pointer.
    Json(String),
    Field(String),
}

#[derive(Clone, Debug)]
pub(crate) enum Condition {
    Is(Place, Fixed),
    Has(Place, Look),
    Absent(Place),
    /// The body is a JSON object of exactly these members.
    Members(Vec<String>),
    /// The body is a form of exactly these fields.
    Fields(Vec<String>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fixed {
    Text(String),
    Number(i64),
}

/// What a text may look like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    alphabet: Alphabet,
    least: usize,
    most: usize,
}

#[derive(Clone, Copy, Debug)]
enum Alphabet {
    Digits,
    Hex,
    Token,
    Words,
}

impl Alphabet {
    const ALL: [(&'static str, Self); 4] = [
        ("digits", Self::Digits),
        ("hex", Self::Hex),
        ("token", Self::Token),
        ("words", Self::Words),
    ];
}

/// What must be shown before anything is answered.
#[derive(Clone, Debug)]
pub(crate) enum Shown {
    None,
    Signature,
    /// The text there is the secret of that id.
    Token {
        place: Place,
        secret: String,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct Confirm {
    pub(crate) url: Place,
    pub(crate) hosts: Vec<String>,
}

/// What the answer looks like.
#[derive(Clone, Debug)]
pub(crate) struct ReplyForm {
    pub(crate) status: u16,
    pub(crate) content: Content,
    pub(crate) headers: Vec<(HeaderName, Text)>,
}

#[derive(Clone, Debug)]
pub(crate) enum Content {
    Nothing,
    Text(Text),
    Json(BTreeMap<String, Member>),
}

#[derive(Clone, Debug)]
pub(crate) enum Member {
    Number(i64),
    Text(Text),
}

/// Text with holes.
pub(crate) type Text = Vec<Piece>;

#[derive(Clone, Debug)]
pub(crate) enum Piece {
    Literal(String),
    Value(Place),
    Mac {
        of: Place,
        base64: bool,
    },
    /// What the scheme's verifier answers to a challenge.
    Answer(Place),
}

impl Look {
    pub(crate) fn fits(self, text: &str) -> bool {
        let allowed = |byte: u8| match self.alphabet {
            Alphabet::Digits => byte.is_ascii_digit(),
            Alphabet::Hex => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
            Alphabet::Token => byte.is_ascii_alphanumeric() || b"._~=+/-".contains(&byte),
            Alphabet::Words => byte.is_ascii_alphanumeric() || b"._~=+/- ,:".contains(&byte),
        };
        (self.least..=self.most).contains(&text.len()) && text.bytes().all(allowed)
    }
}

impl Place {
    fn parse(text: &str) -> Result<Self, String> {
        let inner = text.strip_prefix('{').and_then(|text| text.strip_suffix('}'));
        inner.ok_or_else(unknown).and_then(Self::named)
    }

    fn named(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("query", name)) if !name.is_empty() => Ok(Self::Query(name.into())),
            Some(("header", name)) => header_name(name).map(Self::Header),
            Some(("json", pointer)) if pointer.starts_with('/') => Ok(Self::Json(pointer.into())),
            Some(("form", name)) if !name.is_empty() => Ok(Self::Field(name.into())),
            _ => Err(unknown()),
        }
    }

    pub(crate) fn is_in_body(&self) -> bool {
        matches!(self, Self::Json(_) | Self::Field(_))
    }
}

fn unknown() -> String {
    "must be one of {query:name}, {header:name}, {json:/pointer}, {form:field}".into()
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Query(name) => write!(f, "{{query:{name}}}"),
            Self::Header(name) => write!(f, "{{header:{name}}}"),
            Self::Json(pointer) => write!(f, "{{json:{pointer}}}"),
            Self::Field(name) => write!(f, "{{form:{name}}}"),
        }
    }
}

/// In one line, for a list of presets.
impl fmt::Display for Handshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.method)?;
        for condition in &self.when {
            match condition {
                Condition::Is(place, Fixed::Text(text)) => write!(f, " {place}={text}")?,
                Condition::Is(place, Fixed::Number(number)) => write!(f, " {place}={number}")?,
                Condition::Has(place, _) => write!(f, " {place}")?,
                Condition::Absent(_) | Condition::Members(_) | Condition::Fields(_) => {}
            }
        }
        match &self.proof {
            Shown::None => {}
            Shown::Signature => f.write_str(", signed")?,
            Shown::Token { secret, .. } => write!(f, ", with the secret {secret}")?,
        }
        if self.only_waiting {
            f.write_str(", only while waiting")?;
        }
        if self.learn.is_some() {
            f.write_str(", brings the secret")?;
        }
        if self.confirm.is_some() {
            f.write_str(", asks for a confirmation")?;
        }
        Ok(())
    }
}

impl Condition {
    pub(crate) fn is_about_the_body(&self) -> bool {
        match self {
            Self::Is(place, _) | Self::Has(place, _) | Self::Absent(place) => place.is_in_body(),
            Self::Members(_) | Self::Fields(_) => true,
        }
    }

    /// Text that must be in the body for the condition to hold.
    pub(crate) fn fixed_text(&self) -> Option<&str> {
        match self {
            Self::Is(place, Fixed::Text(text)) if place.is_in_body() => Some(text),
            _ => None,
        }
    }
}

impl Handshake {
    /// GET, POST or HEAD.
    #[must_use]
    pub fn method(&self) -> &'static str {
        self.method
    }

    /// Every piece that goes back to the caller.
    fn pieces(&self) -> impl Iterator<Item = &Piece> {
        let content: Vec<&Text> = match &self.reply.content {
            Content::Nothing => Vec::new(),
            Content::Text(text) => vec![text],
            Content::Json(members) => members
                .values()
                .filter_map(|member| if let Member::Text(text) = member { Some(text) } else { None })
                .collect(),
        };
        content.into_iter().chain(self.reply.headers.iter().map(|(_, text)| text)).flatten()
    }
}

/// Reads all handshakes. `body_is_object`: what a form allows can never pass as the body of an event.
pub(super) fn handshakes(
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
fn agree(
    reader: &mut Reader<'_>,
    handshake: &Handshake,
    body_is_object: bool,
    by: Option<Proof>,
) {
    let has_form = |wanted: &Place| {
        handshake.when.iter().any(|condition| match condition {
            Condition::Is(place, _) | Condition::Has(place, _) => place == wanted,
            _ => false,
        })
    };
    if handshake.when.is_empty() && handshake.method != "HEAD" {
        reader.problem("when", "is missing; without a condition every request would be this one");
    }
    if handshake.method != "POST" && handshake.when.iter().any(Condition::is_about_the_body) {
        reader.problem("when", "looks into the body, which only a POST has");
    }
    for piece in handshake.pieces() {
        match piece {
            Piece::Value(place) if !has_form(place) => {
                reader.problem("reply", format!("sends {place} back, which has no `form` in `when`; anything could be in it"));
            }
            Piece::Mac { of, .. } | Piece::Answer(of) if !has_form(of) => {
                reader.problem("reply", format!("signs {of}, which has no `form` in `when`; anything could be in it"));
            }
            Piece::Answer(_) if by != Some(Proof::Verifier(Verifier::Braintree)) => {
                reader.problem("reply", "{challenge-answer:..} belongs to `verifier = \"braintree\"`");
            }
            Piece::Mac { .. } if !body_is_object && !matches!(handshake.proof, Shown::Signature) => {
                reader.problem("reply", "signs for anybody who asks; demand a signature, or `body = \"object\"`, so that nothing which is signed here can pass as an event");
            }
            _ => {}
        }
    }
    if let Some(place) = &handshake.learn {
        if !has_form(place) {
            reader.problem("learn", format!("{place} has no `form` in `when`"));
        }
        if !handshake.only_waiting {
            reader.problem("learn", "would let anybody replace the secret; add `only_waiting = true`");
        }
    }
    if handshake.confirm.is_some() && !matches!(handshake.proof, Shown::Signature) {
        reader.problem("confirm", "fetches an address for anybody who asks; demand `proof = \"signature\"`");
    }
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
            reader.problem("proof", "must be `none`, `signature`, or a table with `token` and `secret`");
            Shown::Signature
        }
    }
}

fn confirm(reader: &mut Reader<'_>) -> Option<Confirm> {
    let (url, hosts) = (place(reader, "url"), reader.texts("hosts"));
    let plain = |host: &String| {
        let fixed = host.split('.').rev().take(2).all(|label| label != "*");
        let label = |label: &str| label == "*" || (!label.is_empty() && label.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-'));
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
