//! The fetcher of a source.

use domain::{fetch::FetchChoice, source::Source};

use crate::{Fetcher, Problems};

/// Why a source has no fetcher, though it wants one.
#[derive(Debug, thiserror::Error)]
pub enum NoFetcher {
    /// None of that name ships with this version.
    #[error("there is no fetcher `{0}` in this version")]
    Unknown(String),
    /// What it describes is none.
    #[error("the source's own fetcher has problems")]
    Bad(#[source] Problems),
}

/// The fetcher of a source; `None`: it wants none.
pub fn of(source: &Source) -> Option<Result<Fetcher, NoFetcher>> {
    source.fetch.as_ref().map(|fetch| chosen(&fetch.choice))
}

/// The fetcher that is chosen.
///
/// # Errors
/// It is not one of this version's, or has problems.
pub fn chosen(choice: &FetchChoice) -> Result<Fetcher, NoFetcher> {
    match choice {
        FetchChoice::Preset(name) => {
            Fetcher::preset(name).ok_or_else(|| NoFetcher::Unknown(name.clone()))
        }
        FetchChoice::Own(value) => Fetcher::from_value(value.clone()).map_err(NoFetcher::Bad),
    }
}
