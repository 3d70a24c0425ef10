//! Bodies beside their rows, and how long they stay.
//!
//! A body must outlive its row, and changing the expiry of a body costs as much as writing it. So it gets an expiry when
//! it is put, at twice the retention, which no row that ends in the usual way can outlive: a row finishes within days
//! and stays for one retention. Only a row that is parked or replayed removes the expiry of its body, first; when such a
//! row finishes in the end, its body gets the row's own. A row that nobody works on for a whole retention may lose its
//! body; it is then parked for that reason, not forgotten.

use std::time::Duration;

use domain::{
    body::Place,
    inbox::{Claim, NewRow},
    ports::{StoreError, Stored},
};
use jiff::Timestamp;

use crate::{
    expression::Expression,
    item::{Item, Reader, Writer, b, seconds},
    items::event,
    keys::{self, Key},
    table::Table,
};

/// Puts a body, unless it is there and stays for long enough. A body without an expiry belongs to a parked row: it is
/// left alone.
pub(crate) async fn put(
    table: Table<'_>,
    row: &NewRow,
    compressed: &[u8],
    retention: Duration,
) -> Stored<()> {
    let expires_at = row.received_at.saturating_add(retention.saturating_mul(2));
    let expires_at = seconds(expires_at.unwrap_or(Timestamp::MAX));
    let item = Writer::new(keys::body(&row.key, row.body.sha256), "body")
        .put("body", b(compressed))
        .put("expires_at", expires_at.clone())
        .done();
    let only = Expression::new().when(
        "attribute_not_exists(#pk) OR #expires_at < :expires_at",
        [("expires_at", expires_at)],
    );
    table.put(item, &only).await.map(drop)
}

/// Removes the expiry of the body beside a row.
pub(crate) async fn keep(table: Table<'_>, row: &Item) -> Stored<()> {
    let Some(key) = body_of(row)? else { return Ok(()) };
    let change = Expression::new().clear(["expires_at"]).when("attribute_exists(#pk)", []);
    // No body at all: whoever needs it will say so, with a reason.
    table.update(key, &change).await.map(drop)
}

/// After a row has finished: a body whose expiry was removed in an earlier cycle gets the row's.
///
/// The row is finished whether or not this succeeds. A death before it leaves a body that stays.
pub(crate) async fn settle(table: Table<'_>, claim: &Claim, expires_at: Timestamp) {
    if claim.cycle == 0 {
        return;
    }
    if let Err(error) = try_settle(table, claim, expires_at).await {
        tracing::warn!(
            source = %claim.key.source(),
            event_id = claim.key.event_id(),
            error = &error as &dyn std::error::Error,
            "the body beside a finished row keeps no expiry"
        );
    }
}

async fn try_settle(
    table: Table<'_>,
    claim: &Claim,
    expires_at: Timestamp,
) -> Result<(), StoreError> {
    let Some(row) = table.get(keys::event(&claim.key)).await? else { return Ok(()) };
    // Replayed meanwhile: the body is needed again.
    let finished = row.contains_key("expires_at");
    let Some(key) = body_of(&row)?.filter(|_| finished) else { return Ok(()) };
    let change =
        Expression::new().set("expires_at", seconds(expires_at)).when("attribute_exists(#pk)", []);
    table.update(key, &change).await.map(drop)
}

fn body_of(row: &Item) -> Stored<Option<Key>> {
    let row = Reader(row);
    if event::place(row)? != Place::Beside {
        return Ok(None);
    }
    Ok(Some(keys::body(&event::key(row)?, event::sha256(row)?)))
}
