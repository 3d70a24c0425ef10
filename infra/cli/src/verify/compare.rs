//! Many cases against what they expect.

use std::collections::BTreeMap;

use signing::Scheme;

use super::Overrides;
use super::case::Case;
use super::judge::{Outcome, judge_closed};
use crate::complaint::{Complaint, printable};

/// The sum of all comparisons.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    pub(super) compared: usize,
    pub(super) mismatches: Vec<Mismatch>,
    /// Cases of providers without a preset, by provider.
    pub(super) not_covered: BTreeMap<String, usize>,
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
        let Some(scheme) = overrides.scheme.clone().or_else(|| provider.and_then(Scheme::preset))
        else {
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
        for (expected, got, detail) in differences(case, expected, &verdict.outcome) {
            let case = case.at.clone();
            self.mismatches.push(Mismatch { case, expected, got, detail });
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

/// Every difference, as expected, got and detail.
fn differences(
    case: &Case,
    expected: Expected,
    outcome: &Outcome,
) -> Vec<(String, String, String)> {
    let wanted = match expected {
        Expected::Accepted => "accepted".to_owned(),
        Expected::Rejected(class) => format!("rejected ({})", class.unwrap_or("any class")),
        Expected::Either => "either".to_owned(),
    };
    match (expected, outcome) {
        (Expected::Rejected(_), Outcome::Accepted { key, .. }) => {
            vec![(wanted, "accepted".into(), format!("matched by {key}"))]
        }
        (Expected::Accepted, Outcome::Rejected { class, why, .. }) => {
            vec![(wanted, format!("rejected ({class})"), why.clone())]
        }
        (Expected::Rejected(Some(wanted_class)), Outcome::Rejected { class, why, .. })
            if wanted_class != *class =>
        {
            vec![(wanted, format!("rejected ({class})"), why.clone())]
        }
        (Expected::Accepted | Expected::Either, Outcome::Accepted { identity, .. }) => {
            let id = difference("event id", case.event_id.as_ref(), identity.id.as_ref());
            let event_type =
                difference("event type", case.event_type.as_ref(), identity.event_type.as_ref());
            id.into_iter().chain(event_type).collect()
        }
        (Expected::Rejected(_) | Expected::Either, Outcome::Rejected { .. }) => Vec::new(),
    }
}

/// A case that does not mention a name does not ask for it.
fn difference(
    what: &str,
    expected: Option<&Option<String>>,
    got: Option<&String>,
) -> Option<(String, String, String)> {
    let expected = expected?.as_ref();
    let shown = |text: Option<&String>| {
        text.map_or_else(|| "none".into(), |text| format!("`{}`", printable(text)))
    };
    (expected != got).then(|| (shown(expected), shown(got), format!("the {what} differs")))
}
