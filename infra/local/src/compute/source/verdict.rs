//! What a function's answer means for its batch.
//!
//! With `ReportBatchItemFailures`, [as Lambda documents it](https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-errorhandling.html):
//! no list, an empty or a null list and an empty or null answer are full success; an answer that is no JSON, and an identifier that is
//! empty, null, unknown or under another name are full failure. Without it every answer is full success.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::compute::function::Outcome;

/// How a batch ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every item is done.
    Succeeded,
    /// The items at these places failed, the others are done. Never empty.
    Failed(BTreeSet<usize>),
    /// No item counts as done, and why.
    AllFailed(String),
}

/// Judges an outcome. `ids` are the identifiers of the batch, in order.
#[must_use]
pub fn verdict(item_failures: bool, outcome: &Outcome, ids: &[&str]) -> Verdict {
    match outcome {
        Outcome::Failed(failure) => Verdict::AllFailed(failure.to_string()),
        Outcome::Answer(_) if !item_failures => Verdict::Succeeded,
        Outcome::Answer(answer) => items(answer, ids).unwrap_or_else(Verdict::AllFailed),
    }
}

fn items(answer: &[u8], ids: &[&str]) -> Result<Verdict, String> {
    if answer.iter().all(u8::is_ascii_whitespace) {
        return Ok(Verdict::Succeeded);
    }
    let answer: Value =
        serde_json::from_slice(answer).map_err(|_| "the answer is not JSON".to_owned())?;
    let list = match &answer {
        Value::Null => return Ok(Verdict::Succeeded),
        Value::Object(object) => object.get("batchItemFailures"),
        _ => return Err("the answer is not an object".to_owned()),
    };
    let list = match list {
        None | Some(Value::Null) => return Ok(Verdict::Succeeded),
        Some(Value::Array(list)) => list,
        Some(_) => return Err("batchItemFailures is not a list".to_owned()),
    };
    let mut failed = BTreeSet::new();
    for item in list {
        let id = item.get("itemIdentifier").and_then(Value::as_str).filter(|id| !id.is_empty());
        let id = id.ok_or("an item failure has no itemIdentifier")?;
        let place = ids
            .iter()
            .position(|known| *known == id)
            .ok_or("an item failure names an item that is not in the batch")?;
        failed.insert(place);
    }
    Ok(if failed.is_empty() { Verdict::Succeeded } else { Verdict::Failed(failed) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compute::function::{Cause, Failure};

    const IDS: [&str; 3] = ["a", "b", "c"];

    #[track_caller]
    fn check(answer: &str, expected: &Verdict) {
        let found = verdict(true, &Outcome::Answer(answer.to_owned().into()), &IDS);
        let same = match (&found, expected) {
            (Verdict::AllFailed(_), Verdict::AllFailed(_)) => true,
            (found, expected) => found == expected,
        };
        assert!(same, "{answer}: {found:?}");
    }

    /// `WRK-batch-response-shape`
    #[test]
    fn an_answer_without_failures_is_full_success() {
        for answer in [
            "",
            "null",
            "{}",
            r#"{"batchItemFailures":[]}"#,
            r#"{"batchItemFailures":null}"#,
            // These two are how messages get lost: the function meant failures, and nobody can see it.
            r#"{"statusCode":200,"body":"{\"batchItemFailures\":[{\"itemIdentifier\":\"a\"}]}"}"#,
            r#"{"batch_item_failures":[{"itemIdentifier":"a"}]}"#,
        ] {
            check(answer, &Verdict::Succeeded);
        }
    }

    /// `WRK-batch-response-shape`
    #[test]
    fn an_answer_that_is_not_understood_is_full_failure() {
        for answer in [
            "nonsense",
            "[]",
            "\"ok\"",
            r#"{"batchItemFailures":{}}"#,
            r#"{"batchItemFailures":[{"itemIdentifier":""}]}"#,
            r#"{"batchItemFailures":[{"itemIdentifier":null}]}"#,
            r#"{"batchItemFailures":[{"itemIdentifier":1}]}"#,
            r#"{"batchItemFailures":[{"messageId":"a"}]}"#,
            r#"{"batchItemFailures":[{"itemIdentifier":"a"},{"itemIdentifier":"z"}]}"#,
            r#"{"batchItemFailures":["a"]}"#,
        ] {
            check(answer, &Verdict::AllFailed(String::new()));
        }
    }

    #[test]
    fn named_items_fail_and_the_others_are_done() {
        check(
            r#"{"batchItemFailures":[{"itemIdentifier":"c"},{"itemIdentifier":"a"}]}"#,
            &Verdict::Failed([0, 2].into()),
        );
        check(
            r#"{"batchItemFailures":[{"itemIdentifier":"b"},{"itemIdentifier":"b"}]}"#,
            &Verdict::Failed([1].into()),
        );
    }

    #[test]
    fn without_the_feature_only_an_error_is_a_failure() {
        let answer = Outcome::Answer(r#"{"batchItemFailures":[{"itemIdentifier":"a"}]}"#.into());
        assert_eq!(verdict(false, &answer, &IDS), Verdict::Succeeded);
        let failed = Outcome::Failed(Failure::new(Cause::Died, "Runtime.ExitError", "gone"));
        assert!(matches!(verdict(false, &failed, &IDS), Verdict::AllFailed(_)));
        assert!(matches!(verdict(true, &failed, &IDS), Verdict::AllFailed(_)));
    }
}
