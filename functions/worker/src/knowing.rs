//! What a plan may look at: the objects as they stand, read consistently just before.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
};

use domain::{
    commit::{Knowledge, LeaseProof},
    event::{Object, ObjectRef},
    fetch::Fetched,
    inbox::{NewRow, Row},
    message::InboundMessage,
    ports::{Bodies, Inbox, Queue, Registry, State, Stored},
};
use futures_util::future::try_join_all;
use jiff::Timestamp;

use crate::{
    Feed, Worker,
    attempt::{Ended, hopeless, panicked},
    handlers::{Current, Event, MAX_READS},
};

/// What is known when an event is planned.
#[derive(Debug)]
pub(crate) struct Known {
    /// The objects.
    pub(crate) current: Current,
    /// What the provider says of the event's own, if it was asked.
    pub(crate) fetched: Option<Fetched>,
    /// The lease under which it was asked.
    pub(crate) lease: Option<LeaseProof>,
}

impl Known {
    /// Of when this knowledge is.
    pub(crate) fn knowledge(&self, row: &NewRow) -> Knowledge {
        match &self.fetched {
            Some(fetched) => Knowledge { as_of: fetched.as_of(), fetched: true },
            None => Knowledge { as_of: row.occurred_at.unwrap_or(row.received_at), fetched: false },
        }
    }
}

impl<I, S, R, B, Q, N> Worker<'_, I, S, R, B, Q, N>
where
    I: Inbox,
    S: State,
    R: Registry,
    B: Bodies,
    Q: Queue<InboundMessage>,
    N: Fn() -> Timestamp,
{
    /// Finds out what the plan of an event may look at. `Err`: the attempt ends here.
    pub(crate) async fn know(
        &self,
        row: &Row,
        feed: &Feed,
        body: &[u8],
    ) -> Stored<Result<Known, Ended>> {
        let known = Known { current: Current::default(), fetched: None, lease: None };
        self.know_again(row, feed, body, known).await
    }

    /// Reads the objects once more: one of them was no longer as the plan had seen it. What was fetched stays, under the
    /// lease it was fetched with.
    pub(crate) async fn know_again(
        &self,
        row: &Row,
        feed: &Feed,
        body: &[u8],
        known: Known,
    ) -> Stored<Result<Known, Ended>> {
        let event = event(&row.new, feed, body, known.fetched.as_ref());
        let reads = || (self.handlers.reads)(&feed.source.handler, &event);
        let Ok(mut wanted) = catch_unwind(AssertUnwindSafe(reads)) else {
            return Ok(Err(panicked()));
        };
        wanted.sort();
        wanted.dedup();
        let own = row.new.object.as_ref();
        let others = wanted.iter().filter(|object| own != Some(*object)).count();
        if others > MAX_READS {
            let why = format!(
                "the handler wants to look at {others} objects beside the event's own, and {MAX_READS} are the most"
            );
            return Ok(Err(hopeless("bad_plan", &why)));
        }
        if let Some(own) = own.filter(|own| !wanted.contains(own)) {
            wanted.push(own.clone());
        }
        let others = self.objects(row, &wanted).await?;
        let own = own.and_then(|own| others.get(own).cloned());
        let current = Current { own, others };
        Ok(Ok(Known { current, ..known }))
    }

    async fn objects(
        &self,
        row: &Row,
        wanted: &[ObjectRef],
    ) -> Stored<BTreeMap<ObjectRef, Object>> {
        let source = row.new.key.source();
        let read = async |object: &ObjectRef| {
            Ok(self.state.object(source, object).await?.map(|found| (object.clone(), found)))
        };
        Ok(try_join_all(wanted.iter().map(read)).await?.into_iter().flatten().collect())
    }
}

/// An event as handlers see it.
pub(crate) fn event<'a>(
    row: &'a NewRow,
    feed: &'a Feed,
    body: &'a [u8],
    fetched: Option<&'a Fetched>,
) -> Event<'a> {
    let trusts_version = feed.scheme.as_ref().is_ok_and(|scheme| scheme.trusts_versions());
    Event { row, body, fetched, trusts_version, tenant: feed.source.handler.tenant() }
}
