//! What is wrong with a scheme, as the suites compare it.

#![allow(dead_code, reason = "each suite uses its part")]

use signing::{Problems, Scheme};

/// Each problem in one line; none of a scheme that can be used.
pub(crate) fn lines(scheme: Result<Scheme, Problems>) -> Vec<String> {
    match scheme {
        Ok(_) => Vec::new(),
        Err(problems) => problems.0.iter().map(ToString::to_string).collect(),
    }
}

/// Each of these begins a problem that was found, and there are no others.
#[track_caller]
pub(crate) fn assert_all(found: &[String], expected: &[&str]) {
    for expected in expected {
        assert!(
            found.iter().any(|problem| problem.starts_with(expected)),
            "{expected} is not in {found:#?}"
        );
    }
    assert_eq!(found.len(), expected.len(), "{found:#?}");
}
