//! Many cases against what they expect.

use std::collections::BTreeMap;

use serde_json::Value;
use signing::Identity;
use signing::handshake::Reply;

use super::Overrides;
use super::case::{Case, ExpectedResponse};
use super::judge::{Outcome, judge_closed};
use crate::complaint::{Complaint, printable};

/// The sum of all comparisons.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    pub(super) compared: usize,
    pub(super) mismatches: Vec<Mismatch>,
    /// Cases of providers without a preset, by provider.
    pub(super) not_covered: BTreeMap<String, usize>,
    /// Names that cases expect and that are not in their own requests: mistakes of the cases.
    pub(super) contradictions: Vec<String>,
    /// Cases that do not say what they expect.
    pub(super) without_expectation: usize,
}

/// One disagreement.
#[derive(Debug, serde::Serialize)]
pub(super) struct Mismatch {
    pub(super) case: String,
    pub(super) expected: String,
    pub(super) got: String,
    pub(super) detail: String,
}

/// What a case wants to see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    Accepted,
    /// `None`: of any class.
    Rejected(Option<Class>),
    Either,
}

type Class = &'static str;

const CLASSES: [Class; 3] = ["bad_signature", "stale", "malformed"];

impl Comparison {
    pub(super) fn add(&mut self, case: &Case, overrides: &Overrides) -> Result<(), Complaint> {
        let provider = case.provider.as_deref();
        let Some(scheme) = overrides.scheme.clone().or_else(|| case.preset()) else {
            *self
                .not_covered
                .entry(provider.map_or_else(|| "(none)".into(), printable))
                .or_default() += 1;
            return Ok(());
        };
        if let Some(complaint) = &case.broken {
            return Err(complaint.clone());
        }
        let Some(expected) = expected(case)? else {
            self.without_expectation += 1;
            return Ok(());
        };
        let verdict = judge_closed(case, &scheme, overrides)?;
        self.compared += 1;
        for difference in differences(case, expected, &verdict.outcome) {
            let Difference { expected, got, detail, is_contradiction } = difference;
            let case = case.at.clone();
            if is_contradiction {
                self.contradictions
                    .push(format!("{case}: {detail}, and {expected} is not in the request"));
            } else {
                self.mismatches.push(Mismatch { case, expected, got, detail });
            }
        }
        Ok(())
    }
}

/// What the case expects of us: where libraries disagree with each other or with good sense, the recommendation.
fn expected(case: &Case) -> Result<Option<Expected>, Complaint> {
    let is_policy = case.tier.as_deref() == Some("policy");
    let text = match (&case.recommended_expect, &case.expect) {
        (Some(recommended), _) if is_policy => recommended,
        (_, Some(expect)) => expect,
        (_, None) => return Ok(None),
    };
    let class_counts = !is_policy && case.any_reject != Some(true);
    match (text.as_str(), CLASSES.into_iter().find(|class| class == text)) {
        ("ok", _) => Ok(Some(Expected::Accepted)),
        ("either", _) => Ok(Some(Expected::Either)),
        (_, Some(class)) => Ok(Some(Expected::Rejected(class_counts.then_some(class)))),
        (_, None) => Err(Complaint::new(
            format!("{}: what it expects is unknown", case.at),
            format!("`{}` is not an outcome", printable(text)),
            "An outcome is ok, bad_signature, stale, malformed or either.",
        )),
    }
}

struct Difference {
    expected: String,
    got: String,
    detail: String,
    is_contradiction: bool,
}

impl Difference {
    fn new(expected: impl Into<String>, got: impl Into<String>, detail: impl Into<String>) -> Self {
        let (expected, got, detail) = (expected.into(), got.into(), detail.into());
        Self { expected, got, detail, is_contradiction: false }
    }
}

/// Every difference between what the case expects and what came out.
fn differences(case: &Case, expected: Expected, outcome: &Outcome) -> Vec<Difference> {
    let wanted = match expected {
        Expected::Accepted => "accepted".to_owned(),
        Expected::Rejected(class) => format!("rejected ({})", class.unwrap_or("any class")),
        Expected::Either => "either".to_owned(),
    };
    let got = match outcome {
        Outcome::Accepted { .. } | Outcome::Answered { .. } => "accepted".to_owned(),
        Outcome::Rejected { class, .. } => format!("rejected ({class})"),
    };
    match (expected, outcome) {
        (Expected::Rejected(_), Outcome::Accepted { key, .. }) => {
            vec![Difference::new(wanted, got, format!("matched by {key}"))]
        }
        (Expected::Rejected(_), Outcome::Answered { .. }) => {
            vec![Difference::new(wanted, got, "answered as a handshake")]
        }
        (Expected::Accepted, Outcome::Rejected { .. }) if reflects_markup(case) => Vec::new(),
        (Expected::Accepted, Outcome::Rejected { why, .. }) => {
            vec![Difference::new(wanted, got, why)]
        }
        (Expected::Rejected(Some(wanted_class)), Outcome::Rejected { class, why, .. })
            if wanted_class != *class =>
        {
            vec![Difference::new(wanted, got, why)]
        }
        (
            Expected::Accepted | Expected::Either,
            Outcome::Accepted { reply, .. } | Outcome::Answered { reply, .. },
        ) => {
            let mut found = names(case, outcome);
            if let Some(expected) = &case.expect_response {
                found.extend(response(expected, reply));
            }
            found
        }
        (Expected::Rejected(_) | Expected::Either, Outcome::Rejected { .. }) => Vec::new(),
    }
}

/// Whether the answer would carry back markup of the request: a service may as well refuse.
fn reflects_markup(case: &Case) -> bool {
    let body = case.expect_response.as_ref().and_then(|expected| expected.body.as_deref());
    body.is_some_and(|body| body.contains(['<', '>', '&', '"']))
}

/// Id and type. A request that carries several events has them in its only element, or for itself.
fn names(case: &Case, outcome: &Outcome) -> Vec<Difference> {
    let (request, elements) = match outcome {
        Outcome::Accepted { identity, elements, .. } => (Some(&**identity), elements.as_deref()),
        Outcome::Answered { identity, .. } => (identity.as_deref(), None),
        Outcome::Rejected { .. } => (None, None),
    };
    let sole = elements.and_then(|all| if let [sole] = all { Some(sole) } else { None });
    let mut ids: Vec<&str> = request.iter().filter_map(|it| it.id.as_deref()).collect();
    if elements.is_some() {
        let deliveries =
            [request, sole].into_iter().flatten().filter_map(|it| it.delivery.as_deref());
        ids.extend(sole.and_then(|sole| sole.id.as_deref()));
        ids.extend(deliveries);
    }
    let type_of = |identity: &'_ Identity| identity.event_type.clone();
    let first = elements.and_then(<[Identity]>::first);
    let event_type = request.and_then(type_of).or_else(|| first.and_then(type_of));
    let types: Vec<&str> = event_type.as_deref().into_iter().collect();
    let mut found = Vec::new();
    found.extend(name("event id", case, case.event_id.as_ref(), &ids));
    found.extend(name("event type", case, case.event_type.as_ref(), &types));
    found
}

/// A name must be among those that were found; and none must be found, if the case could have one and says that it has not.
fn name(
    what: &str,
    case: &Case,
    expected: Option<&Option<String>>,
    got: &[&str],
) -> Option<Difference> {
    let expected = expected?.as_deref();
    let agrees = match expected {
        Some(expected) => got.contains(&expected),
        None => got.is_empty() || !case.knows_that_names_are_absent(),
    };
    let shown = |text: Option<&str>| {
        text.map_or_else(|| "none".into(), |text| format!("`{}`", printable(text)))
    };
    (!agrees).then(|| {
        let is_contradiction =
            expected.is_some_and(|expected| case.contradicts_itself(expected, got));
        let got = shown(got.first().copied());
        let detail = format!("the {what} differs");
        Difference { is_contradiction, ..Difference::new(shown(expected), got, detail) }
    })
}

/// Whatever the case says of the answer must be so.
fn response(expected: &ExpectedResponse, reply: &Reply) -> Vec<Difference> {
    let mut found = Vec::new();
    let body = String::from_utf8_lossy(&reply.body);
    let mut differ = |wanted: String, got: String, what: &str| {
        found.push(Difference::new(
            printable(&wanted),
            printable(&got),
            format!("the answer's {what} differs"),
        ));
    };
    if let Some(status) = expected.status.filter(|status| *status != reply.status) {
        differ(status.to_string(), reply.status.to_string(), "status");
    }
    if let Some(wanted) = expected.body.as_ref().filter(|wanted| **wanted != body) {
        differ(wanted.clone(), body.to_string(), "body");
    }
    if let Some(part) = expected.body_contains.as_ref().filter(|part| !body.contains(part.as_str()))
    {
        differ(part.clone(), body.to_string(), "body");
    }
    if let Some(wanted) = &expected.json {
        let got = serde_json::from_slice::<Value>(&reply.body).unwrap_or_default();
        if got != *wanted {
            differ(wanted.to_string(), body.to_string(), "body");
        }
    }
    for (name, wanted) in &expected.headers {
        let got = reply.headers.iter().find(|(header, _)| header.eq_ignore_ascii_case(name));
        let got = got.map_or("", |(_, value)| value.as_str());
        // parameters such as the character set are ours to choose
        let of_type =
            name.eq_ignore_ascii_case("content-type") && got.split(';').next() == Some(wanted);
        if got != wanted && !of_type {
            // what stands in other headers may be a secret
            let got = if name.eq_ignore_ascii_case("content-type") { got } else { "another value" };
            differ(wanted.clone(), got.to_owned(), name);
        }
    }
    found
}
