//! Sources as they are shown: never with a secret, always with how far they can be believed and how they are doing.

use std::{cmp::max, collections::BTreeMap};

use domain::{
    body::Sha256Hash,
    id::SourceName,
    ports::{RejectSample, SourceHealth, SourceSecret},
    source::{Dedupe, Handler, Paused, SchemeChoice, Source},
};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde_json::{Value, json};
use signing::Trust;

use super::{
    fetching::{self, FetchView},
    proof::Proof,
};

/// How long a secret must not have matched, while another one has, before it can go: a provider may sign its late tries
/// with the old one.
const QUIET: SignedDuration = SignedDuration::from_hours(24);

/// A source, as it is shown.
#[derive(Debug, Serialize)]
pub struct SourceView {
    name: SourceName,
    scheme: SchemeChoice,
    config: BTreeMap<String, String>,
    /// What its events must say to be carried out, by JSON pointer.
    only: BTreeMap<String, Value>,
    handler: Handler,
    created_at: Timestamp,
    dedupe: Dedupe,
    same_as: Option<SourceName>,
    awaits_secret_until: Option<Timestamp>,
    /// Since when its events wait, and why.
    paused: Option<Paused>,
    /// Longest that it is usually silent.
    silent_after_seconds: Option<i64>,
    /// Where the provider sends its requests. `…` stands for a secret.
    url: String,
    /// `None`: this version cannot use its scheme.
    verification: Option<Verification>,
    secrets: Vec<SecretView>,
    /// How its provider is asked; `None`: it is not.
    fetch: Option<FetchView>,
    health: HealthView,
    /// What somebody should look at.
    warnings: Vec<String>,
}

/// How far a source's requests can be believed.
#[derive(Debug, Serialize)]
pub struct Verification {
    /// `signed`, `body_unsigned`, `token` or `none`.
    pub(super) trust: &'static str,
    /// Whether a signature over the body would be better.
    pub(super) is_weaker: bool,
    /// The same in words.
    pub(super) words: String,
    pub(super) id_is_signed: bool,
    pub(super) tolerance_seconds: Option<u32>,
    /// What stands against a request that is sent again.
    pub(super) replays: String,
    /// Whether a request carries several events.
    pub(super) is_batch: bool,
    pub(super) title: String,
    pub(super) docs: String,
    /// When somebody last looked whether the provider still does it like this.
    pub(super) facts_checked_on: String,
    pub(super) facts_mark: String,
}

/// A secret, as it is shown.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct SecretView {
    id: String,
    /// The beginning of the SHA-256 of its text, to tell it from others. `None` where a secret is shown with each request:
    /// people make such secrets up, and even this much would help to guess one.
    fingerprint: Option<String>,
    expires_at: Option<Timestamp>,
    last_matched_at: Option<Timestamp>,
    /// Whether nobody would miss it.
    can_go: bool,
    /// The same in words.
    words: String,
}

/// How a source is doing.
#[derive(Debug, Serialize)]
pub struct HealthView {
    /// In words.
    words: String,
    last_accepted_at: Option<Timestamp>,
    last_rejected: Option<LastRejected>,
    /// Since when all requests are failing.
    failing_since: Option<Timestamp>,
    /// How many were refused in the last 24 hours, by the reason's code.
    rejected_24h: BTreeMap<String, u64>,
}

/// The request that was refused last.
#[derive(Debug, Serialize)]
struct LastRejected {
    at: Timestamp,
    words: Option<String>,
    code: Option<String>,
    advice: Option<String>,
}

/// A source in a list.
#[derive(Debug, Serialize)]
pub struct SourceLine {
    name: SourceName,
    scheme: Value,
    handler: Handler,
    dedupe: Dedupe,
    same_as: Option<SourceName>,
    only: BTreeMap<String, Value>,
    url: String,
    trust: Option<&'static str>,
    is_weaker: bool,
    paused: Option<Paused>,
    health: HealthLine,
}

/// A source's health in a list.
#[derive(Debug, Serialize)]
struct HealthLine {
    words: String,
    last_accepted_at: Option<Timestamp>,
    failing_since: Option<Timestamp>,
    rejected_24h: u64,
}

/// What is known of a source.
pub(super) struct Known<'a> {
    pub(super) source: Source,
    /// `None`: they are not asked for.
    pub(super) secrets: Option<&'a [SourceSecret]>,
    /// `None`: they are not asked for.
    pub(super) tokens: Option<&'a [SourceSecret]>,
    pub(super) health: SourceHealth,
    pub(super) last_reject: Option<RejectSample>,
    pub(super) warnings: Vec<String>,
}

impl Known<'_> {
    /// The source whole.
    pub(super) fn shown(self, ingress: &str, now: Timestamp) -> SourceView {
        let proof = Proof::of(&self.source);
        let words = self.health_in_words(&proof, now);
        let mut warnings = self.warnings;
        warnings.extend(order_matters(&self.source.handler));
        let secrets = self.secrets.unwrap_or_default();
        let secrets = secret_views(secrets, proof.as_ref().ok(), &self.health.secrets, now);
        let trusts_versions = proof.as_ref().is_ok_and(|proof| proof.scheme.trusts_versions());
        let fetch = fetching::shown(&self.source, trusts_versions, self.tokens, now);
        let Source {
            fetch: _,
            name,
            scheme,
            handler,
            created_at,
            dedupe,
            same_as,
            awaits_secret_until,
            config,
            only,
            paused,
            resumed_at: _,
            silent_after,
        } = self.source;
        let sample = self.last_reject.as_ref();
        let last_rejected = self.health.last_rejected_at.map(|at| LastRejected {
            at,
            words: self.health.last_reject_reason.clone(),
            code: sample.map(|sample| sample.reason.clone()),
            advice: sample.map(|sample| sample.advice.clone()),
        });
        SourceView {
            url: url(ingress, &name, proof.as_ref().ok()),
            verification: proof.ok().map(|proof| proof.told(dedupe)),
            secrets,
            fetch,
            health: HealthView {
                words,
                last_accepted_at: self.health.last_accepted_at,
                last_rejected,
                failing_since: self.health.failing_since,
                rejected_24h: self.health.rejects,
            },
            warnings,
            name,
            scheme,
            config,
            only,
            handler,
            created_at,
            dedupe,
            same_as,
            awaits_secret_until,
            paused,
            silent_after_seconds: silent_after.map(|limit| limit.as_secs()),
        }
    }

    /// The source in a list.
    pub(super) fn line(self, ingress: &str, now: Timestamp) -> SourceLine {
        let proof = Proof::of(&self.source);
        let words = self.health_in_words(&proof, now);
        let proof = proof.ok();
        let trust = proof.as_ref().map(|proof| proof.scheme.trust());
        let scheme = match (&self.source.scheme, &proof) {
            (SchemeChoice::Preset(name), _) => json!({ "preset": name }),
            (SchemeChoice::Own(own), proof) => {
                let title = proof.as_ref().map(|proof| proof.scheme.about().title.as_str());
                json!({ "own": { "like": own.get("like"), "title": title } })
            }
        };
        SourceLine {
            url: url(ingress, &self.source.name, proof.as_ref()),
            name: self.source.name,
            scheme,
            handler: self.source.handler,
            dedupe: self.source.dedupe,
            same_as: self.source.same_as,
            only: self.source.only,
            trust: trust.map(Trust::as_str),
            is_weaker: trust.is_some_and(Trust::is_weaker),
            paused: self.source.paused,
            health: HealthLine {
                words,
                last_accepted_at: self.health.last_accepted_at,
                failing_since: self.health.failing_since,
                rejected_24h: self.health.rejects.values().sum(),
            },
        }
    }

    fn health_in_words(&self, proof: &Result<Proof, String>, now: Timestamp) -> String {
        let received = self.receiving_in_words(proof, now);
        match &self.source.paused {
            None => received,
            Some(Paused { since, .. }) => {
                format!(
                    "paused since {since} ({}): events are accepted, and wait; {received}",
                    ago(*since, now)
                )
            }
        }
    }

    fn receiving_in_words(&self, proof: &Result<Proof, String>, now: Timestamp) -> String {
        let proof = match proof {
            Ok(proof) => proof,
            Err(problem) => {
                return format!(
                    "its scheme cannot be used by this version, so that no request is taken: {problem}"
                );
            }
        };
        let has_secret = self
            .secrets
            .is_some_and(|all| all.iter().any(|secret| !is_over(secret.expires_at, now)));
        // Where the provider publishes its keys there is no secret, and none is needed.
        let needs_secret = !proof.is_published();
        let is_silent =
            self.health.last_accepted_at.is_none() && self.health.failing_since.is_none();
        match self.source.awaits_secret_until {
            Some(until) if !needs_secret && until > now && is_silent => {
                return format!("waits for the provider to ask for a confirmation, until {until}");
            }
            Some(until) if needs_secret && until > now && !has_secret => {
                return format!("waits for the provider to bring its secret, until {until}");
            }
            Some(until) if needs_secret && self.secrets.is_some() && !has_secret => {
                return format!(
                    "the provider brought no secret until {until}, and nothing can be verified; let it wait again, or add a secret"
                );
            }
            _ => {}
        }
        if let Some(since) = self.health.failing_since {
            return format!("all requests are failing since {since} ({})", ago(since, now));
        }
        let is_silent = |at: Timestamp| {
            self.source.silent_after.filter(|limit| now.duration_since(at) > *limit)
        };
        match self.health.last_accepted_at {
            Some(at) if let Some(limit) = is_silent(at) => format!(
                "silent: the last new event was accepted {}, and more than {limit:#} should not pass",
                ago(at, now)
            ),
            Some(at) => format!("good; the last new event was accepted {}", ago(at, now)),
            None => "no event has been accepted yet".to_owned(),
        }
    }
}

/// Where the provider sends its requests. A secret at its end is shown once, when it is made.
pub(super) fn url(ingress: &str, name: &SourceName, proof: Option<&Proof>) -> String {
    let secret = if proof.is_some_and(Proof::is_in_path) { "/…" } else { "" };
    format!("{ingress}/webhooks/{name}{secret}")
}

/// The secrets of a source, as they are shown.
pub(super) fn secret_views(
    secrets: &[SourceSecret],
    proof: Option<&Proof>,
    matched: &BTreeMap<String, Timestamp>,
    now: Timestamp,
) -> Vec<SecretView> {
    let is_random = proof
        .is_some_and(|proof| matches!(proof.scheme.trust(), Trust::Signed | Trust::BodyUnsigned));
    let view = |secret: &SourceSecret| {
        let last = matched.get(&secret.id).copied();
        let others = secrets.iter().filter(|other| other.id != secret.id);
        let newest = others.filter_map(|other| matched.get(&other.id)).max().copied();
        let (can_go, words) = match proof.is_some_and(|proof| proof.is_of_handshakes(&secret.id)) {
            true => (false, "serves handshakes only, and verifies no event".to_owned()),
            false => use_of(secret.expires_at, last, newest, now),
        };
        let hash = || Sha256Hash::of(secret.text.expose().as_bytes()).to_string();
        SecretView {
            id: secret.id.clone(),
            fingerprint: is_random.then(|| hash().chars().take(6).collect()),
            expires_at: secret.expires_at,
            last_matched_at: last,
            can_go,
            words,
        }
    };
    secrets.iter().map(view).collect()
}

/// That a machine of states does not end alike in whatever order events arrive.
fn order_matters(handler: &Handler) -> Option<String> {
    let Handler::Mirror { states: Some(states), .. } = handler else { return None };
    let (one, other) = states.states.order_matters()?;
    Some(format!(
        "Where an object ends depends on whether {one} or {other} arrives first, and events arrive in any order. Allow the \
         move between them in one direction, or let the source ask its provider for the current state."
    ))
}

/// Whether a secret can go, and why, by when it last matched and when another one did.
fn use_of(
    expires_at: Option<Timestamp>,
    last: Option<Timestamp>,
    other: Option<Timestamp>,
    now: Timestamp,
) -> (bool, String) {
    if let Some(end) = expires_at.filter(|end| is_over(Some(*end), now)) {
        return (true, format!("ended {}; it is accepted no more, and can go", ago(end, now)));
    }
    let (can_go, words) = match (last, other) {
        (None, None) => (false, "has not matched a request yet".to_owned()),
        (None, Some(_)) => {
            (false, "has not matched a request yet; another one is in use".to_owned())
        }
        (Some(last), Some(other)) if other > last && now.duration_since(last) >= QUIET => {
            (true, format!("last matched {}; another one has since, and it can go", ago(last, now)))
        }
        (Some(last), Some(other)) if other > last => (
            false,
            format!(
                "last matched {}; another one has since: it can go after a day without a match",
                ago(last, now)
            ),
        ),
        (Some(last), _) => (false, format!("last matched {}; it is in use", ago(last, now))),
    };
    let end = expires_at.map(|end| format!("; it ends at {end}")).unwrap_or_default();
    (can_go, format!("{words}{end}"))
}

pub(super) fn is_over(expires_at: Option<Timestamp>, now: Timestamp) -> bool {
    expires_at.is_some_and(|end| end <= now)
}

/// How long ago something was, as people say it.
fn ago(then: Timestamp, now: Timestamp) -> String {
    // Two machines' clocks may differ.
    let seconds = max(now.duration_since(then).as_secs(), 0);
    let (count, unit) = match seconds {
        0..60 => return "less than a minute ago".to_owned(),
        60..3600 => (seconds / 60, "minute"),
        3600..172_800 => (seconds / 3600, "hour"),
        _ => (seconds / 86_400, "day"),
    };
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {unit}{plural} ago")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(hours: i64) -> Timestamp {
        Timestamp::from_second(1_790_000_000 + hours * 3600).unwrap()
    }

    #[test]
    fn how_long_ago_is_said_as_people_say_it() {
        let check = |seconds: i64, expected: &str| {
            let then = Timestamp::from_second(1_790_000_000 - seconds).unwrap();
            assert_eq!(ago(then, at(0)), expected);
        };
        check(-5, "less than a minute ago");
        check(59, "less than a minute ago");
        check(60, "1 minute ago");
        check(3599, "59 minutes ago");
        check(3600, "1 hour ago");
        check(172_799, "47 hours ago");
        check(172_800, "2 days ago");
    }

    #[test]
    fn a_secret_can_go_when_it_ended_or_when_only_another_one_matched_for_a_day() {
        let check =
            |expires: Option<i64>, last: Option<i64>, other: Option<i64>, can_go, says: &str| {
                let (can, words) = use_of(expires.map(at), last.map(at), other.map(at), at(0));
                assert_eq!((can, words.contains(says)), (can_go, true), "{words}");
            };
        check(None, None, None, false, "has not matched a request yet");
        check(None, None, Some(-1), false, "another one is in use");
        check(None, Some(-100), None, false, "last matched 4 days ago; it is in use");
        check(
            None,
            Some(-72),
            Some(-1),
            true,
            "last matched 3 days ago; another one has since, and it can go",
        );
        check(None, Some(-24), Some(-1), true, "it can go");
        check(None, Some(-23), Some(-1), false, "it can go after a day without a match");
        check(None, Some(-1), Some(-30), false, "it is in use");
        check(Some(2), Some(-1), Some(-30), false, "it is in use; it ends at 2026-09-21");
        check(Some(-2), Some(-1), None, true, "ended 2 hours ago");
        check(Some(0), None, None, true, "can go");
    }
}
