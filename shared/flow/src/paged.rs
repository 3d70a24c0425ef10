//! Work that is done page by page, whatever it is about: whoever begins it does what is quick, and the sweeper the rest.

use std::{collections::VecDeque, fmt::Display};

use domain::ports::{StoreError, Stored};
use jiff::Timestamp;

/// What became of one advance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step<W> {
    /// A page is done. The work as it is now.
    Went(Box<W>),
    /// The rate is used up for now, it is too early, or somebody has paused it.
    Waits,
    /// It has ended, or was stopped.
    Over,
    /// Somebody else advanced it.
    Lost,
}

/// How far a work is, in rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Looked at.
    pub looked_at: u64,
    /// Taken.
    pub taken: u64,
}

/// A kind of work, and what advances it.
pub trait Paged: Sync {
    /// Names one.
    type Id: Copy + Display + Send + Sync;
    /// One, as its row says.
    type Work: Send + Sync;

    /// Those under way, and perhaps some that have just ended.
    fn open(&self) -> impl Future<Output = Stored<Vec<Self::Id>>> + Send;
    /// One, read consistently.
    fn read(&self, id: Self::Id) -> impl Future<Output = Stored<Option<Self::Work>>> + Send;
    /// Counts one no longer among those under way.
    fn close(&self, id: Self::Id) -> impl Future<Output = Stored<()>> + Send;
    /// Advances one by one page.
    fn advance(
        &self,
        work: &Self::Work,
        now: Timestamp,
    ) -> impl Future<Output = Stored<Step<Self::Work>>> + Send;
    /// How far one is.
    fn progress(work: &Self::Work) -> Progress;
}

/// Does the first pages of a work: until so many rows were looked at, it `is_late`, or there is nothing to do now. An error
/// leaves the rest to the sweeper: the work is written down.
pub async fn begin<P: Paged>(
    kind: &P,
    mut work: P::Work,
    most: u64,
    now: impl Fn() -> Timestamp + Send,
    is_late: impl Fn(Timestamp) -> bool + Send,
) -> (P::Work, Option<StoreError>) {
    loop {
        let at = now();
        if is_late(at) || P::progress(&work).looked_at >= most {
            return (work, None);
        }
        match kind.advance(&work, at).await {
            Ok(Step::Went(after)) => work = *after,
            Ok(Step::Waits | Step::Over | Step::Lost) => return (work, None),
            Err(error) => return (work, Some(error)),
        }
    }
}

/// Advances all that are under way, one page each in turn: a long one does not hold a short one, and one that fails is left
/// for the next time. How many rows were taken, and what failed.
pub async fn in_turn<P: Paged>(
    kind: &P,
    now: impl Fn() -> Timestamp + Send,
    until: Timestamp,
) -> (u64, Vec<StoreError>) {
    let (mut taken, mut failed) = (0, Vec::new());
    let open = match kind.open().await {
        Ok(open) => open,
        Err(error) => return (taken, vec![error]),
    };
    let mut turns: VecDeque<(P::Id, Option<P::Work>)> =
        open.into_iter().map(|id| (id, None)).collect();
    while let Some((id, read)) = turns.pop_front() {
        let at = now();
        if at >= until {
            break;
        }
        match turn(kind, id, read, at).await {
            Ok(Some((more, work))) => {
                taken += more;
                turns.push_back((id, Some(work)));
            }
            Ok(None) => {}
            Err(error) => failed.push(error),
        }
    }
    (taken, failed)
}

/// One page of one work: how many rows it took, and the work as it is now. `None`: there is nothing more to do now.
async fn turn<P: Paged>(
    kind: &P,
    id: P::Id,
    read: Option<P::Work>,
    now: Timestamp,
) -> Stored<Option<(u64, P::Work)>> {
    let work = match read {
        Some(work) => Some(work),
        None => kind.read(id).await?,
    };
    let Some(work) = work else {
        kind.close(id).await?;
        return Ok(None);
    };
    Ok(match kind.advance(&work, now).await? {
        Step::Went(after) => {
            let before = P::progress(&work).taken;
            Some((P::progress(&after).taken.saturating_sub(before), *after))
        }
        // Whoever else advanced it goes on with it.
        Step::Waits | Step::Over | Step::Lost => None,
    })
}
