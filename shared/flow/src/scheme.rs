//! The scheme that a source names.

use domain::source::SchemeChoice;
use signing::{Problems, Scheme};

/// Why a source has no scheme.
#[derive(Debug, thiserror::Error)]
pub enum NoScheme {
    /// No scheme of that name ships with this version.
    #[error("there is no scheme `{0}` in this version")]
    NotShipped(String),
    /// The source's own scheme is not one.
    #[error("the source's own scheme has problems")]
    Bad(#[source] Problems),
}

/// Reads the scheme that a source names.
///
/// # Errors
/// There is none.
pub fn of(choice: &SchemeChoice) -> Result<Scheme, NoScheme> {
    match choice {
        SchemeChoice::Preset(name) => {
            Scheme::preset(name).ok_or_else(|| NoScheme::NotShipped(name.clone()))
        }
        SchemeChoice::Own(value) => Scheme::from_value(value.clone()).map_err(NoScheme::Bad),
    }
}
