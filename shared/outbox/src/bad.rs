//! Events that cannot be published.

use std::fmt;

use domain::{outbox::rules::Flaw, ports::StoreError};

/// An event that cannot be published, with everything that is wrong with it. Trying again does not help.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadEvent(Vec<Flaw>);

impl BadEvent {
    /// What is wrong, member by member.
    pub fn flaws(&self) -> &[Flaw] {
        &self.0
    }

    pub(crate) fn with(flaws: Vec<Flaw>) -> Self {
        Self(flaws)
    }

    pub(crate) fn of_the_sdk(error: &StoreError) -> Self {
        Self(vec![Flaw { field: "item", problem: error.to_string() }])
    }
}

impl fmt::Display for BadEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the event cannot be published: ")?;
        for (place, flaw) in self.0.iter().enumerate() {
            write!(f, "{}{flaw}", if place == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

impl std::error::Error for BadEvent {}
