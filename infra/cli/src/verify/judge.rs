//! One case, judged.

use sha2::{Digest, Sha256};
use signing::handshake::{self, Answer, Reply};
use signing::{
    Element, Identity, Key, KeyError, Reason, Rejected, Request, Scheme, Secret, Trust, Weakness,
    elements, preset_names,
};

use super::Overrides;
use super::case::Case;
use crate::complaint::{Complaint, printable};

/// What came out.
#[derive(Debug)]
pub(super) struct Verdict {
    pub(super) scheme: String,
    pub(super) trust: Trust,
    pub(super) outcome: Outcome,
    /// Secrets that should be replaced.
    pub(super) weak: Vec<(String, Weakness)>,
    pub(super) body_bytes: usize,
    pub(super) body_sha256: String,
}

#[derive(Debug)]
pub(super) enum Outcome {
    Accepted {
        key: String,
        identity: Box<Identity>,
        /// Of a request that carries several events; `None` if it does not, or not as the scheme says.
        elements: Option<Vec<Identity>>,
        reply: Reply,
    },
    /// A handshake: no event.
    Answered {
        reply: Reply,
        then: Then,
        /// What a signed handshake says of itself.
        identity: Option<Box<Identity>>,
    },
    Rejected {
        class: &'static str,
        code: &'static str,
        why: String,
        next: &'static str,
    },
}

/// What a handshake asks for besides its answer.
#[derive(Debug)]
pub(super) enum Then {
    Nothing,
    StoreSecret,
    Fetch(String),
}

impl Verdict {
    pub(super) fn is_accepted(&self) -> bool {
        !matches!(self.outcome, Outcome::Rejected { .. })
    }
}

impl From<&Rejected> for Outcome {
    fn from(rejected: &Rejected) -> Self {
        let reason: &Reason = rejected.reason();
        Self::Rejected {
            class: rejected.class().as_str(),
            code: reason.code(),
            why: reason.to_string(),
            next: reason.advice(),
        }
    }
}

/// The preset of that name.
pub(crate) fn preset(name: &str) -> Result<Scheme, Complaint> {
    Scheme::preset(name).ok_or_else(|| {
        let names: Vec<&str> = preset_names().collect();
        Complaint::new(
            format!("There is no scheme named `{}`", printable(name)),
            "it is not among those that ship",
            format!(
                "Use one of {}; or describe your own and give it with --scheme-file.",
                names.join(", ")
            ),
        )
    })
}

/// Judges a case; every secret must be readable.
pub(super) fn judge(case: &Case, overrides: &Overrides) -> Result<Verdict, Complaint> {
    if let Some(complaint) = &case.broken {
        return Err(complaint.clone());
    }
    let scheme = match (&overrides.scheme, &case.provider) {
        (Some(scheme), _) => scheme.clone(),
        (None, Some(provider)) => match case.preset() {
            Some(scheme) => scheme,
            None => preset(provider).map_err(|complaint| located(case, complaint))?,
        },
        (None, None) => {
            return Err(Complaint::new(
                format!("{}: no scheme to verify with", case.at),
                "the case has no `provider`, and neither --scheme nor --scheme-file is given",
                "Add `provider` to the case, or give --scheme.",
            ));
        }
    };
    let keys = keys(case, &scheme, overrides).map(|(what, key)| {
        key.map_err(|error| {
            let what = format!("{}: {what} cannot be used for {}", case.at, scheme.name());
            let next = "Correct it; its value is not shown here.";
            Complaint::new(what, error.to_string(), next)
        })
    });
    let keys = keys.collect::<Result<Vec<_>, _>>()?;
    let verdict = with_keys(case, &scheme, &keys, overrides)?;
    let is_about_keys = matches!(verdict.outcome, Outcome::Rejected { code: "no_keys", .. });
    if is_about_keys && keys.is_empty() {
        return Err(Complaint::new(
            format!("{}: no secret to verify with", case.at),
            "the case has no `secrets`, and --secret is not given",
            "Copy the signing secret from the provider's dashboard and give it with --secret.",
        ));
    }
    Ok(verdict)
}

/// Judges a case as a running source does: a secret that cannot be read counts as none.
pub(super) fn judge_closed(
    case: &Case,
    scheme: &Scheme,
    overrides: &Overrides,
) -> Result<Verdict, Complaint> {
    let keys: Vec<Key> = keys(case, scheme, overrides).filter_map(|(_, key)| key.ok()).collect();
    with_keys(case, scheme, &keys, overrides)
}

fn secrets<'a>(case: &'a Case, overrides: &'a Overrides) -> &'a [Secret] {
    if overrides.secrets.is_empty() {
        case.secrets.as_deref().unwrap_or_default()
    } else {
        &overrides.secrets
    }
}

/// The secrets of the case by number, and the keys that the provider publishes by id. Where handshakes have a secret of
/// their own, it is the second.
fn keys<'a>(
    case: &'a Case,
    scheme: &'a Scheme,
    overrides: &'a Overrides,
) -> impl Iterator<Item = (String, Result<Key, KeyError>)> + 'a {
    let of_handshakes = scheme.secrets_of_handshakes().next();
    let secrets = secrets(case, overrides).iter().enumerate().map(move |(index, secret)| {
        let number = format!("secret {}", index + 1);
        let id = match of_handshakes {
            Some(id) if index == 1 => id.to_owned(),
            _ => number.clone(),
        };
        (number, Key::parse(scheme, id, secret))
    });
    let published = case.published().into_iter();
    let published = published.map(|(id, text)| {
        (format!("the published key {}", printable(id)), Key::published(scheme, id, text))
    });
    secrets.chain(published)
}

fn with_keys(
    case: &Case,
    scheme: &Scheme,
    keys: &[Key],
    overrides: &Overrides,
) -> Result<Verdict, Complaint> {
    let body = case.body()?;
    let now = match overrides.now {
        Some(now) => now,
        None => case.now()?.unwrap_or(overrides.present),
    };
    let outcome = match case.headers() {
        Err(header) => Outcome::Rejected {
            class: "malformed",
            code: "not_http",
            why: format!(
                "the header `{}` contains characters that HTTP does not allow",
                printable(&header)
            ),
            next: "No request like this arrives over HTTP; check the case.",
        },
        Ok(headers) => {
            let method = case.method.as_deref().unwrap_or("POST");
            let url = case.url.as_deref().unwrap_or_default();
            let path_secret = case.path_secret.as_deref();
            let request = Request { method, url, headers: &headers, body: &body, path_secret };
            // a source without secrets is one that waits for its first
            let waiting = secrets(case, overrides).is_empty();
            outcome(scheme, keys, &request, waiting, now)
        }
    };
    let weak =
        keys.iter().filter_map(|key| Some((key.id().to_string(), key.weakness()?))).collect();
    let (body_bytes, body_sha256) = (body.len(), hex::encode(Sha256::digest(&body)));
    let (scheme, trust) = (scheme.name().to_owned(), scheme.trust());
    Ok(Verdict { scheme, trust, outcome, weak, body_bytes, body_sha256 })
}

/// A handshake first, an event otherwise, as a running source does it.
fn outcome(
    scheme: &Scheme,
    keys: &[Key],
    request: &Request<'_>,
    waiting: bool,
    now: jiff::Timestamp,
) -> Outcome {
    let verified = signing::verify(scheme, keys, request, now);
    let (reply, then) = match handshake::answer(scheme, keys, request, waiting, now) {
        None => {
            return match verified {
                Ok(verified) => accepted(scheme, &verified),
                Err(rejected) => Outcome::from(&rejected),
            };
        }
        Some(Answer::Refused(rejected)) => return Outcome::from(&rejected),
        Some(Answer::Reply(reply)) => (reply, Then::Nothing),
        Some(Answer::Learn { reply, .. }) => (reply, Then::StoreSecret),
        Some(Answer::Confirm { url, reply }) => (reply, Then::Fetch(url)),
    };
    let identity = verified.ok().map(|verified| Box::new(verified.into_identity()));
    Outcome::Answered { reply, then, identity }
}

fn accepted(scheme: &Scheme, verified: &signing::Verified<'_>) -> Outcome {
    let elements = if scheme.is_batch() { elements(scheme, verified.body()).ok() } else { None };
    let acknowledge = scheme.acknowledge();
    let content_type = acknowledge.content_type.iter();
    Outcome::Accepted {
        key: verified.key().to_string(),
        identity: Box::new(verified.identity().clone()),
        elements: elements
            .map(|all| all.into_iter().map(|Element { identity, .. }| identity).collect()),
        reply: Reply {
            status: acknowledge.status,
            headers: content_type.map(|text| ("content-type".to_owned(), text.clone())).collect(),
            body: acknowledge.body.clone().into_bytes(),
        },
    }
}

fn located(case: &Case, complaint: Complaint) -> Complaint {
    Complaint { what: format!("{}: {}", case.at, complaint.what), ..complaint }
}
