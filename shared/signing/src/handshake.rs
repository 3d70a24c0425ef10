//! Requests that are no events: a provider makes sure of us, brings a secret, or asks for a confirmation.
//!
//! What is answered is data ([`crate::scheme`]); this is the one reading of it. It must never answer anything but the
//! strict shape that the scheme describes, because a service that signs or reflects what strangers send is a tool for
//! them.

mod confirm;
mod reply;
mod seen;

use jiff::Timestamp;
use subtle::Choice;

pub use crate::scheme::Handshake;

use crate::key::{Key, KeyId};
use crate::rejected::{Reason, Rejected};
use crate::request::Request;
use crate::scheme::{Condition, Scheme, Shown};
use crate::secret::Secret;
use crate::verify::verify;
use seen::{Found, Seen};

/// Bytes of a body that can be a handshake: the largest documented one, a confirmation by Amazon SNS, has about 3000.
const MOST_BODY: usize = 8 * 1024;

/// What to do about a handshake.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Send this. Nothing is stored.
    Reply(Reply),
    /// Store the secret, if the source still waits for one, and only then send this.
    Learn {
        /// Usable with the scheme.
        secret: Secret,
        /// What the provider expects.
        reply: Reply,
    },
    /// Fetch the address later, outside of the request, and send this.
    Confirm {
        /// `https`, of a host that the scheme names.
        url: String,
        /// What the provider expects.
        reply: Reply,
    },
    /// It is a handshake, and not one to be answered.
    Refused(Rejected),
}

/// An answer, ready to be sent as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// From 200 to 299.
    pub status: u16,
    /// Names in lower case. Whatever has a body has a content type and `nosniff`.
    pub headers: Vec<(String, String)>,
    /// Often empty.
    pub body: Vec<u8>,
}

/// Answers a request that is a handshake. `None`: it is not, and goes on as an event.
///
/// `waiting` says whether the source expects a secret or a confirmation. Signed handshakes are verified here, before their
/// body is parsed; if that fails a POST goes on as an event, whose verification then says why.
#[must_use]
pub fn answer(
    scheme: &Scheme,
    keys: &[Key],
    request: &Request<'_>,
    waiting: bool,
    now: Timestamp,
) -> Option<Answer> {
    let candidates =
        scheme.terms.handshakes.iter().filter(|handshake| handshake.method == request.method);
    let mut candidates = candidates.peekable();
    candidates.peek()?;
    let caller = Caller { scheme, keys, seen: Seen::of(*request), waiting, now };
    candidates.find_map(|handshake| caller.answer(handshake))
}

struct Caller<'a> {
    scheme: &'a Scheme,
    keys: &'a [Key],
    seen: Seen<'a>,
    waiting: bool,
    now: Timestamp,
}

impl Caller<'_> {
    fn answer(&self, handshake: &Handshake) -> Option<Answer> {
        let request = &self.seen.request;
        let (inside, outside): (Vec<_>, Vec<_>) =
            handshake.when.iter().partition(|condition| condition.is_about_the_body());
        if !outside.iter().all(|condition| self.holds(condition)) {
            return None;
        }
        if !inside.is_empty() && (request.body.len() > MOST_BODY || !self.can_hold(&inside)) {
            return None;
        }
        let mut made_by = None;
        if matches!(handshake.proof, Shown::Signature) {
            match verify(self.scheme, self.keys, request, self.now) {
                Ok(verified) => made_by = Some(verified.key().clone()),
                Err(_) if request.method == "POST" => return None,
                Err(rejected) => return Some(Answer::Refused(rejected)),
            }
        }
        if !inside.iter().all(|condition| self.holds(condition)) {
            return None;
        }
        Some(match self.admitted(handshake, made_by.as_ref()) {
            Ok(answer) => answer,
            Err(reason) => Answer::Refused(reason.into()),
        })
    }

    /// It is this handshake; whether it gets its answer.
    fn admitted(&self, handshake: &Handshake, made_by: Option<&KeyId>) -> Result<Answer, Reason> {
        if handshake.only_waiting && !self.waiting {
            return Err(Reason::HandshakeUnexpected);
        }
        for condition in &handshake.when {
            if let Condition::Has(place, look) = condition {
                match self.seen.at(place) {
                    Found::Text(text) if look.fits(&text) => {}
                    _ => return Err(Reason::HandshakeMalformed { place: place.to_string() }),
                }
            }
        }
        if let Shown::Token { place, secret } = &handshake.proof {
            self.token(&self.seen.at(place), secret)?;
        }
        let key = self.keys.iter().find(|key| match made_by {
            Some(id) => key.id() == id,
            None => !self.scheme.is_of_handshakes(key.id()),
        });
        let reply = reply::fill(&handshake.reply, &self.seen, key)?;
        if let Some(confirm) = &handshake.confirm {
            let url = confirm::url(confirm, &self.seen)?;
            return Ok(Answer::Confirm { url, reply });
        }
        if let Some(place) = &handshake.learn {
            return Ok(Answer::Learn { secret: self.learned(&self.seen.at(place))?, reply });
        }
        Ok(Answer::Reply(reply))
    }

    fn token(&self, shown: &Found<'_>, secret: &str) -> Result<(), Reason> {
        let mut wanted = self.keys.iter().filter(|key| key.id().as_str() == secret).peekable();
        if wanted.peek().is_none() {
            return Err(Reason::NotConfigured { name: secret.into() });
        }
        let shown = match shown {
            Found::Text(text) => text.as_bytes(),
            _ => b"",
        };
        let is_one = wanted.fold(Choice::from(0), |found, key| found | key.is_shown(shown));
        if bool::from(is_one) { Ok(()) } else { Err(Reason::HandshakeToken) }
    }

    /// A secret that the scheme can use and that nobody guesses.
    fn learned(&self, found: &Found<'_>) -> Result<Secret, Reason> {
        let Found::Text(text) = found else { return Err(Reason::HandshakeSecret) };
        let secret = Secret::new(text.as_ref());
        match Key::parse(self.scheme, "learned", &secret) {
            Ok(key) if key.weakness().is_none() => Ok(secret),
            _ => Err(Reason::HandshakeSecret),
        }
    }

    fn holds(&self, condition: &Condition) -> bool {
        let seen = &self.seen;
        match condition {
            Condition::Is(place, fixed) => seen.at(place).is(fixed),
            Condition::Has(place, _) => !matches!(seen.at(place), Found::Absent),
            Condition::Absent(place) => matches!(seen.at(place), Found::Absent),
            Condition::Members(names) => seen.has_members(names),
            Condition::Fields(names) => seen.has_fields(names),
        }
    }

    /// Whether the body contains the fixed texts at all: spares most events the second verification and the parsing.
    fn can_hold(&self, conditions: &[&Condition]) -> bool {
        conditions.iter().all(|condition| match condition.fixed_text() {
            Some(text) => self
                .seen
                .request
                .body
                .windows(text.len().max(1))
                .any(|window| window == text.as_bytes()),
            None => true,
        })
    }
}
