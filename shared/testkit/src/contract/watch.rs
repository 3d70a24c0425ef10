//! The rules of [`domain::ports::Watch`].

use std::collections::BTreeMap;

use domain::{
    id::SourceName,
    ports::{
        AcceptReport, RejectReport, RejectSample, SourceHealth, StoreError, Watch,
        watch::MAX_SAMPLES,
    },
};

use super::{
    Kept, Tables,
    given::{DAY, at},
    rules,
};

/// Runs the rules of [`domain::ports::Watch`], each on fresh tables.
pub async fn watch<T: Tables>(fresh: impl AsyncFn() -> T) {
    rules!(fresh:
        a_heartbeat_never_goes_back,
        only_new_events_end_a_silence,
        every_secret_is_told_apart,
        a_source_fails_from_the_first_refusal_after_the_last_acceptance,
        refusals_are_counted_for_a_day,
        the_latest_refused_requests_are_kept,
        one_source_says_nothing_of_another,
    );
}

fn hub() -> SourceName {
    "hub".parse().unwrap()
}

fn accepted(seconds: i64, key_id: Option<&str>, is_new: bool) -> AcceptReport {
    AcceptReport { at: at(seconds), key_id: key_id.map(str::to_owned), is_new }
}

fn rejected(seconds: i64, counts: &[(&str, u64)]) -> RejectReport {
    let counts = counts.iter().map(|(code, count)| ((*code).to_owned(), *count));
    RejectReport {
        at: at(seconds),
        counts: counts.collect(),
        last_reason: format!("refused at {seconds}"),
        sample: None,
    }
}

fn sample(seconds: i64) -> RejectSample {
    RejectSample {
        at: at(seconds),
        reason: "mismatch".to_owned(),
        class: "signature".to_owned(),
        advice: "Compare the secrets.".to_owned(),
        method: "POST".to_owned(),
        headers: BTreeMap::from([("content-type".to_owned(), "text/plain".to_owned())]),
        body_sha256: "ab".repeat(32),
        body_length: 7,
    }
}

async fn health(on: &impl Tables, seconds: i64) -> Result<SourceHealth, StoreError> {
    on.state().health(&hub(), at(seconds)).await
}

async fn a_heartbeat_never_goes_back(on: &impl Tables) -> Kept {
    assert_eq!(health(on, 0).await?, SourceHealth::default());
    for (beat, last) in [(10, 10), (5, 10), (10, 10), (20, 20)] {
        on.state().note_accepted(&hub(), &accepted(beat, None, true)).await?;
        assert_eq!(health(on, 30).await?.last_accepted_at, Some(at(last)));
    }
    Ok(())
}

async fn only_new_events_end_a_silence(on: &impl Tables) -> Kept {
    on.state().note_accepted(&hub(), &accepted(10, None, false)).await?;
    assert_eq!(health(on, 30).await?.last_accepted_at, None);
    // A repetition of a later time was noted first.
    on.state().note_accepted(&hub(), &accepted(8, None, true)).await?;
    assert_eq!(health(on, 30).await?.last_accepted_at, Some(at(8)));
    Ok(())
}

async fn every_secret_is_told_apart(on: &impl Tables) -> Kept {
    for (seconds, id, is_new) in
        [(10, "new", true), (9, "old#1", true), (8, "new", false), (12, "new", false)]
    {
        on.state().note_accepted(&hub(), &accepted(seconds, Some(id), is_new)).await?;
    }
    let secrets = health(on, 30).await?.secrets;
    assert_eq!(secrets, BTreeMap::from([("new".to_owned(), at(12)), ("old#1".to_owned(), at(9))]));
    Ok(())
}

async fn a_source_fails_from_the_first_refusal_after_the_last_acceptance(on: &impl Tables) -> Kept {
    let state = on.state();
    for seconds in [5, 7] {
        state.note_rejects(&hub(), &rejected(seconds, &[])).await?;
    }
    let failing = health(on, 30).await?;
    assert_eq!(failing.failing_since, Some(at(5)));
    assert_eq!(failing.last_rejected_at, Some(at(7)));
    assert_eq!(failing.last_reject_reason.as_deref(), Some("refused at 7"));
    state.note_accepted(&hub(), &accepted(10, None, false)).await?;
    assert_eq!(health(on, 30).await?.failing_since, None);
    // A report that was collected before the acceptance, and comes after it.
    state.note_rejects(&hub(), &rejected(9, &[])).await?;
    assert_eq!(health(on, 30).await?.failing_since, None);
    state.note_rejects(&hub(), &rejected(12, &[])).await?;
    assert_eq!(health(on, 30).await?.failing_since, Some(at(12)));
    Ok(())
}

async fn refusals_are_counted_for_a_day(on: &impl Tables) -> Kept {
    let state = on.state();
    state.note_rejects(&hub(), &rejected(0, &[("stale", 1), ("mismatch", 2)])).await?;
    state.note_rejects(&hub(), &rejected(5, &[("stale", 10)])).await?;
    state.note_rejects(&hub(), &rejected(7200, &[("stale", 100)])).await?;
    let counts = |pairs: &[(&str, u64)]| -> BTreeMap<String, u64> {
        pairs.iter().map(|(code, count)| ((*code).to_owned(), *count)).collect()
    };
    assert_eq!(health(on, 7200).await?.rejects, counts(&[("stale", 111), ("mismatch", 2)]));
    assert_eq!(health(on, DAY + 3600).await?.rejects, counts(&[("stale", 100)]));
    assert_eq!(health(on, 2 * DAY).await?.rejects, counts(&[]));
    Ok(())
}

async fn the_latest_refused_requests_are_kept(on: &impl Tables) -> Kept {
    let state = on.state();
    assert!(state.rejected(&hub(), 10, at(0)).await?.is_empty());
    let last = i64::try_from(MAX_SAMPLES).unwrap() + 3;
    for seconds in 1..=last {
        let report =
            RejectReport { sample: Some(sample(seconds)), ..rejected(seconds, &[("mismatch", 1)]) };
        state.note_rejects(&hub(), &report).await?;
    }
    let kept = state.rejected(&hub(), 1000, at(last)).await?;
    let expected: Vec<_> = (4..=last).rev().map(sample).collect();
    assert_eq!(kept, expected);
    assert_eq!(state.rejected(&hub(), 2, at(last)).await?, [sample(last), sample(last - 1)]);
    assert!(state.rejected(&hub(), 1000, at(last + 14 * DAY)).await?.is_empty());
    Ok(())
}

async fn one_source_says_nothing_of_another(on: &impl Tables) -> Kept {
    let other: SourceName = "hub-2".parse().unwrap();
    let report = RejectReport { sample: Some(sample(1)), ..rejected(1, &[("stale", 1)]) };
    on.state().note_rejects(&hub(), &report).await?;
    on.state().note_accepted(&hub(), &accepted(2, Some("k"), true)).await?;
    assert_eq!(on.state().health(&other, at(3)).await?, SourceHealth::default());
    assert!(on.state().rejected(&other, 10, at(3)).await?.is_empty());
    // Reconciliation writes its own item, and has not been here.
    assert_eq!(on.state().reconciled_until(&hub()).await?, None);
    Ok(())
}
