//! Objects, operation keys, leases.

use aws_sdk_dynamodb::Client;
use domain::{
    commit::{Answer, Commit, LeaseProof},
    event::{Object, ObjectRef},
    id::SourceName,
    ports::{Lease, State, Stored},
};
use jiff::Timestamp;

use crate::{
    commit::{self, Commits},
    expression::Expression,
    item::{Item, Reader, ms, n, s},
    items::object,
    keys,
    table::{Table, Write},
};

/// The table of objects, operation keys and leases, of the sources' health, and of what is owed to providers.
#[derive(Clone, Debug)]
pub struct StateTable {
    /// The SDK's client.
    pub client: Client,
    /// The name of the table.
    pub table: String,
    /// The other tables that a commit writes to; `None` for a function that never commits.
    pub commits: Option<Commits>,
}

impl StateTable {
    pub(crate) fn table(&self) -> Table<'_> {
        Table { client: &self.client, name: &self.table }
    }
}

/// Still held by this owner, with this fence.
pub(crate) fn still_held(lease: &LeaseProof) -> Expression {
    Expression::new().when(
        "#owner = :holder AND #fence = :fence",
        [("holder", s(&lease.owner)), ("fence", n(lease.fence))],
    )
}

impl State for StateTable {
    async fn object(&self, source: &SourceName, object: &ObjectRef) -> Stored<Option<Object>> {
        let item = self.table().get(keys::object(source, object)).await?;
        item.as_ref().map(object::read).transpose()
    }

    async fn commit(&self, commit: &Commit) -> Stored<Answer> {
        commit::carry_out(self, commit).await
    }

    async fn lease(
        &self,
        what: &str,
        owner: &str,
        now: Timestamp,
        until: Timestamp,
    ) -> Stored<Lease> {
        // Our own is taken again: the answer to the first try was lost.
        let change = Expression::new()
            .set("kind", s("lease"))
            .set("owner", s(owner))
            .set("until", ms(until))
            .count_up("fence")
            .when(
                "attribute_not_exists(#pk) OR #until <= :now OR #owner = :owner",
                [("now", ms(now))],
            );
        match self.table().update_and_read(keys::lease(what), &change).await? {
            Write::Done(item) => Ok(Lease::Held(proof(what, &item)?)),
            Write::Refused(item) => Ok(Lease::Busy(Reader(&item).time("until")?)),
        }
    }

    async fn give_back(&self, lease: &LeaseProof, now: Timestamp) -> Stored<()> {
        // The item stays: a deleted one would restart the fence.
        let change = still_held(lease).set("until", ms(now));
        self.table().update(keys::lease(&lease.what), &change).await.map(drop)
    }
}

fn proof(what: &str, item: &Item) -> Stored<LeaseProof> {
    let item = Reader(item);
    let (owner, fence) = (item.str("owner")?.to_owned(), item.number("fence")?);
    Ok(LeaseProof { what: what.to_owned(), owner, fence })
}
