//! A handshake: a request by which a provider makes sure of us, and the one answer to it. Data, like the rest of a scheme.

mod read;

use std::collections::BTreeMap;
use std::fmt;

use http::HeaderName;
pub(super) use read::handshakes;

use super::template::header_name;

/// One handshake of a scheme. In TOML:
///
/// ```toml
/// [[handshake]]
/// method = "GET"                  # GET, POST or HEAD
/// when = [                        # all of them, or it is not this handshake
///   { from = "{query:hub.mode}", is = "subscribe" },     # exactly this text; a number without quotes: a number in JSON
///   { from = "{query:hub.challenge}", form = "token" },  # it is there; and if it has another form, the request is refused
///   { from = "{header:x-signature}", absent = true },
///   { members = ["challenge"] },  # the body is a JSON object with these members and no others
///   { fields = ["webhook_id"] },  # the body is a form with these fields and no others
/// ]                               # places: {query:name} {header:name} {json:/pointer} {form:field}
///                                 # forms: digits, hex (lower case), token (A-Z a-z 0-9 . _ ~ = + / -), words (token, blank , :)
///                                 # `least` and `most` characters; 1 and 200 if not given
/// proof = "signature"             # none, signature, or { token = "{query:..}", secret = "verify_token" }: the secret of that
///                                 # id serves this handshake only and never verifies an event
/// only_waiting = true             # only while the source waits for a secret or a confirmation
/// learn = "{header:x-hook-secret}"        # the place of the secret that the request brings
/// # the address to fetch, of Amazon SNS only so far; `*` is one label of a name
/// confirm = { url = "{json:/SubscribeURL}", hosts = ["sns.*.amazonaws.com"] }
/// reply = { status = 200, text = "{query:hub.challenge}" }   # or json = { challenge = "{json:/challenge}" }; headers = { .. }
///                                 # besides places: {hmac-hex:place} {hmac-base64:place} with the scheme's key, and
///                                 # {challenge-answer:place} as the scheme's `verifier` knows it
/// ```
///
/// Whatever goes back comes from a place that has a `form`: none of the forms contains what a browser or a signature could
/// take for something else.
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
                .filter_map(
                    |member| if let Member::Text(text) = member { Some(text) } else { None },
                )
                .collect(),
        };
        content.into_iter().chain(self.reply.headers.iter().map(|(_, text)| text)).flatten()
    }
}
