//! Bulk work: the rows that it walks over, and its own.

use jiff::Timestamp;

use super::Stored;
use crate::{
    bulk::{Mark, Page, Part, Work},
    id::ReplayId,
    inbox::{Noted, Row},
};

/// What bulk work reads and changes of the inbox.
pub trait Walk: Sync {
    /// Entries of a partition after one of them, in its order, at most `limit`. The index lags: read each row.
    fn page(
        &self,
        part: &Part,
        after: Option<&Mark>,
        limit: usize,
    ) -> impl Future<Output = Stored<Page>> + Send;

    /// A row at rest becomes pending again, exactly as it was read: its status and its cycle; attempts 0, cycle + 1, due
    /// at `due_at`, marked with the work.
    fn again(
        &self,
        row: &Row,
        work: ReplayId,
        due_at: Timestamp,
        now: Timestamp,
    ) -> impl Future<Output = Stored<Again>> + Send;

    /// A pending row that waits becomes due at `due_at`, exactly as it was read: its cycle and its due time; marked with
    /// the work.
    fn sooner(
        &self,
        row: &Row,
        work: ReplayId,
        due_at: Timestamp,
    ) -> impl Future<Output = Stored<Again>> + Send;
}

/// What became of a row that was to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Again {
    /// Taken.
    Yes,
    /// The same work has taken it before: somebody does the same page.
    Before,
    /// It is not as it was read.
    Moved,
}

/// What became of a start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// It is there, and under way.
    Yes,
    /// There is one of that id.
    Before(Box<Work>),
    /// As many as there may be are under way.
    TooMany,
}

/// The rows of bulk work.
pub trait Bulk: Sync {
    /// Puts a work and counts it among those under way, if there are fewer than `most`.
    fn start(&self, work: &Work, most: usize) -> impl Future<Output = Stored<Start>> + Send;

    /// Reads a work, consistently.
    fn bulk(&self, id: ReplayId) -> impl Future<Output = Stored<Option<Work>>> + Send;

    /// Works, the latest first.
    fn bulks(&self, limit: usize) -> impl Future<Output = Stored<Vec<Work>>> + Send;

    /// Those under way, and perhaps some that have just ended.
    fn open(&self) -> impl Future<Output = Stored<Vec<ReplayId>>> + Send;

    /// Writes a work after a page, if it still has the version before. Gives it as it is then: somebody may have
    /// cancelled it. `None`: somebody else has advanced it.
    fn advance(&self, after: &Work) -> impl Future<Output = Stored<Option<Work>>> + Send;

    /// Stops a work that has not ended. [`Noted::Moved`]: it has ended, was stopped before, or is not there.
    fn cancel(
        &self,
        id: ReplayId,
        by: &str,
        now: Timestamp,
    ) -> impl Future<Output = Stored<Noted>> + Send;

    /// Counts a work no longer among those under way.
    fn close(&self, id: ReplayId) -> impl Future<Output = Stored<()>> + Send;
}
