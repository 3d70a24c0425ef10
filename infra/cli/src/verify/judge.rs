//! One case, judged.

use sha2::{Digest, Sha256};
use signing::{Identity, Key, KeyError, Reason, Request, Scheme, Secret, Weakness, preset_names};

use super::Overrides;
use super::case::Case;
use crate::complaint::{Complaint, printable};

/// What came out.
#[derive(Debug)]
pub(super) struct Verdict {
    pub(super) scheme: String,
    pub(super) outcome: Outcome,
    /// Secrets that should be replaced.
    pub(super) weak: Vec<(String, Weakness)>,
    pub(super) body_bytes: usize,
    pub(super) body_sha256: String,
}

#[derive(Debug)]
pub(super) enum Outcome {
    Accepted { key: String, identity: Box<Identity> },
    Rejected { class: &'static str, code: &'static str, why: String, next: &'static str },
}

impl Verdict {
    pub(super) fn is_accepted(&self) -> bool {
        matches!(self.outcome, Outcome::Accepted { .. })
    }
}

/// The preset of that name.
pub(super) fn preset(name: &str) -> Result<Scheme, Complaint> {
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
        (None, Some(provider)) => preset(provider).map_err(|complaint| located(case, complaint))?,
        (None, None) => {
            return Err(Complaint::new(
                format!("{}: no scheme to verify with", case.at),
                "the case has no `provider`, and neither --scheme nor --scheme-file is given",
                "Add `provider` to the case, or give --scheme.",
            ));
        }
    };
    let secrets = secrets(case, overrides);
    if secrets.is_empty() {
        return Err(Complaint::new(
            format!("{}: no secret to verify with", case.at),
            "the case has no `secrets`, and --secret is not given",
            "Copy the signing secret from the provider's dashboard and give it with --secret.",
        ));
    }
    let keys = secrets.iter().enumerate().map(|(index, secret)| {
        key(&scheme, index, secret).map_err(|error| {
            let what =
                format!("{}: secret {} cannot be used for {}", case.at, index + 1, scheme.name());
            Complaint::new(
                what,
                error.to_string(),
                "Correct the secret; its value is not shown here.",
            )
        })
    });
    let keys = keys.collect::<Result<Vec<_>, _>>()?;
    with_keys(case, &scheme, &keys, overrides)
}

/// Judges a case as a running source does: a secret that cannot be read counts as none.
pub(super) fn judge_closed(
    case: &Case,
    scheme: &Scheme,
    overrides: &Overrides,
) -> Result<Verdict, Complaint> {
    let secrets = secrets(case, overrides);
    let keys: Vec<Key> = secrets
        .iter()
        .enumerate()
        .filter_map(|(index, secret)| key(scheme, index, secret).ok())
        .collect();
    with_keys(case, scheme, &keys, overrides)
}

fn secrets<'a>(case: &'a Case, overrides: &'a Overrides) -> &'a [Secret] {
    if overrides.secrets.is_empty() {
        case.secrets.as_deref().unwrap_or_default()
    } else {
        &overrides.secrets
    }
}

fn key(scheme: &Scheme, index: usize, secret: &Secret) -> Result<Key, KeyError> {
    Key::parse(scheme, format!("secret {}", index + 1), secret)
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
            let request =
                Request { method, url, headers: &headers, body: &body, path_secret: None };
            match signing::verify(scheme, keys, &request, now) {
                Ok(verified) => Outcome::Accepted {
                    key: verified.key().to_string(),
                    identity: Box::new(verified.into_identity()),
                },
                Err(rejected) => {
                    let reason: &Reason = rejected.reason();
                    Outcome::Rejected {
                        class: rejected.class().as_str(),
                        code: reason.code(),
                        why: reason.to_string(),
                        next: reason.advice(),
                    }
                }
            }
        }
    };
    let weak =
        keys.iter().filter_map(|key| Some((key.id().to_string(), key.weakness()?))).collect();
    let (body_bytes, body_sha256) = (body.len(), hex::encode(Sha256::digest(&body)));
    Ok(Verdict { scheme: scheme.name().to_owned(), outcome, weak, body_bytes, body_sha256 })
}

fn located(case: &Case, complaint: Complaint) -> Complaint {
    Complaint { what: format!("{}: {}", case.at, complaint.what), ..complaint }
}
