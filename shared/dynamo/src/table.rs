//! The calls. Each takes the key, what to change and under which condition, and gives back an outcome.

use std::collections::{BTreeSet, HashMap};

use aws_sdk_dynamodb::{
    Client,
    error::SdkError,
    operation::{
        put_item::PutItemError, transact_write_items::TransactWriteItemsError,
        update_item::UpdateItemError,
    },
    types::{
        AttributeValue, ConditionCheck, Delete, KeysAndAttributes, Put, ReturnValue,
        ReturnValuesOnConditionCheckFailure, Select, TransactWriteItem, Update,
    },
};
use domain::{
    commit::Reason,
    inbox::Noted,
    ports::{Backlog, StoreError, Stored},
};

use crate::{
    error::{is_too_large, reason, store_error, unbuilt},
    expression::Expression,
    item::{Item, Reader},
    keys::Key,
};

/// Most keys of one batch read: the store's limit.
const BATCH: usize = 100;

/// Rounds of a batch read that bring nothing before it counts as throttled. A round that brings something is the
/// store's own paging (16 MB an answer), and does not count.
const EMPTY_ROUNDS: u32 = 3;

/// One table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table<'a> {
    pub(crate) client: &'a Client,
    pub(crate) name: &'a str,
}

/// What became of a conditional write.
#[derive(Debug)]
pub(crate) enum Write {
    /// Written. The item as it is now, if it was asked for.
    Done(Item),
    /// The condition does not hold. The item as it is; empty if there is none.
    Refused(Item),
}

impl Write {
    /// The outcome for a writer that only wants to know whether the row was as it thought.
    pub(crate) fn noted(&self) -> Noted {
        match self {
            Self::Done(_) => Noted::Yes,
            Self::Refused(_) => Noted::Moved,
        }
    }
}

/// A query: a key condition, and in which direction and how far it is read.
#[derive(Clone, Debug)]
pub(crate) struct Range {
    index: Option<&'static str>,
    condition: Expression,
    newest_first: bool,
    limit: Option<usize>,
    after: Option<Item>,
}

impl Range {
    /// Rows of an index, eventually consistent.
    pub(crate) fn index(index: &'static str, condition: Expression) -> Self {
        Self { index: Some(index), condition, newest_first: false, limit: None, after: None }
    }

    /// Rows of a partition, consistent.
    pub(crate) fn partition(condition: Expression) -> Self {
        Self { index: None, condition, newest_first: false, limit: None, after: None }
    }

    /// From the end.
    pub(crate) fn newest_first(self) -> Self {
        Self { newest_first: true, ..self }
    }

    /// No more than this many rows.
    pub(crate) fn limit(self, limit: usize) -> Self {
        Self { limit: Some(limit), ..self }
    }

    /// Behind the row with these keys, those of the index included. It need not be there any more.
    pub(crate) fn after(self, keys: Option<Item>) -> Self {
        Self { after: keys, ..self }
    }
}

impl Table<'_> {
    /// Reads an item, consistently.
    pub(crate) async fn get(self, key: Key) -> Stored<Option<Item>> {
        let get = self
            .client
            .get_item()
            .table_name(self.name)
            .set_key(Some(key.attributes()))
            .consistent_read(true);
        Ok(get.send().await.map_err(store_error)?.item)
    }

    /// Puts an item under a condition.
    pub(crate) async fn put(self, item: Item, only: &Expression) -> Stored<Write> {
        let put = self
            .client
            .put_item()
            .table_name(self.name)
            .set_item(Some(item))
            .set_condition_expression(only.condition())
            .set_expression_attribute_names(only.names())
            .set_expression_attribute_values(only.values())
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        let error = match put.send().await {
            Ok(_) => return Ok(Write::Done(Item::new())),
            Err(error) => error,
        };
        match error.as_service_error() {
            Some(PutItemError::ConditionalCheckFailedException(failed)) => {
                Ok(Write::Refused(failed.item().cloned().unwrap_or_default()))
            }
            _ => Err(store_error(error)),
        }
    }

    /// Puts an item, whatever is there.
    pub(crate) async fn put_anyway(self, item: Item) -> Stored<()> {
        self.put(item, &Expression::new()).await.map(drop)
    }

    /// Changes an item under a condition.
    pub(crate) async fn update(self, key: Key, change: &Expression) -> Stored<Write> {
        self.change(key, change, ReturnValue::None).await
    }

    /// Changes an item under a condition, and reads it back.
    pub(crate) async fn update_and_read(self, key: Key, change: &Expression) -> Stored<Write> {
        self.change(key, change, ReturnValue::AllNew).await
    }

    async fn change(self, key: Key, change: &Expression, back: ReturnValue) -> Stored<Write> {
        let update = self
            .client
            .update_item()
            .table_name(self.name)
            .set_key(Some(key.attributes()))
            .set_update_expression(change.update())
            .set_condition_expression(change.condition())
            .set_expression_attribute_names(change.names())
            .set_expression_attribute_values(change.values())
            .return_values(back)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        let mut tries = 0;
        let error = loop {
            match update.clone().send().await {
                Ok(output) => return Ok(Write::Done(output.attributes.unwrap_or_default())),
                Err(error) if met_transaction(&error) && tries < CONFLICTS => tries += 1,
                Err(error) => break error,
            }
        };
        match error.as_service_error() {
            Some(UpdateItemError::ConditionalCheckFailedException(failed)) => {
                Ok(Write::Refused(failed.item().cloned().unwrap_or_default()))
            }
            _ => Err(store_error(error)),
        }
    }

    /// Deletes an item, if there is one.
    pub(crate) async fn delete(self, key: Key) -> Stored<()> {
        let delete =
            self.client.delete_item().table_name(self.name).set_key(Some(key.attributes()));
        delete.send().await.map(drop).map_err(store_error)
    }

    /// Reads items, consistently, in no order. Absent ones are left out.
    pub(crate) async fn get_all(self, keys: impl IntoIterator<Item = Key>) -> Stored<Vec<Item>> {
        // The store refuses a batch that names one item twice.
        let mut seen = BTreeSet::new();
        let keys: Vec<Key> =
            keys.into_iter().filter(|key| seen.insert((key.pk.clone(), key.sk.clone()))).collect();
        let mut found = Vec::with_capacity(keys.len());
        for batch in keys.chunks(BATCH) {
            let batch = batch.iter().cloned().map(Key::attributes).collect();
            found.extend(self.get_batch(batch).await?);
        }
        Ok(found)
    }

    async fn get_batch(self, keys: Vec<Item>) -> Stored<Vec<Item>> {
        let wanted = KeysAndAttributes::builder().consistent_read(true).set_keys(Some(keys));
        let mut wanted = HashMap::from([(self.name.to_owned(), wanted.build().map_err(unbuilt)?)]);
        let (mut found, mut empty) = (Vec::new(), 0);
        while !wanted.is_empty() {
            let get = self.client.batch_get_item().set_request_items(Some(wanted));
            let output = get.send().await.map_err(store_error)?;
            let items: Vec<Item> =
                output.responses.into_iter().flat_map(HashMap::into_values).flatten().collect();
            empty = if items.is_empty() { empty + 1 } else { 0 };
            found.extend(items);
            wanted = output.unprocessed_keys.unwrap_or_default();
            if empty >= EMPTY_ROUNDS && !wanted.is_empty() {
                let cause = "the store returned none of the keys of a batch, again and again";
                return Err(StoreError::Throttled(cause.into()));
            }
        }
        Ok(found)
    }

    /// Hands over the rows of a range, page after page.
    pub(crate) async fn each(
        self,
        range: &Range,
        mut row: impl FnMut(Item) -> Stored<()> + Send,
    ) -> Stored<()> {
        self.each_that_counts(range, |item| row(item).map(|()| true)).await
    }

    /// The same. A row of which `row` says that it does not count leaves room for another.
    async fn each_that_counts(
        self,
        range: &Range,
        mut row: impl FnMut(Item) -> Stored<bool> + Send,
    ) -> Stored<()> {
        let mut left = range.limit;
        let mut from = range.after.clone();
        while left != Some(0) {
            let page = left.map(|left| i32::try_from(left).unwrap_or(i32::MAX));
            let output = self
                .query(range)
                .set_limit(page)
                .set_exclusive_start_key(from)
                .send()
                .await
                .map_err(store_error)?;
            for item in output.items.into_iter().flatten() {
                let counts = usize::from(row(item)?);
                left = left.map(|left| left.saturating_sub(counts));
            }
            from = output.last_evaluated_key;
            if from.is_none() {
                break;
            }
        }
        Ok(())
    }

    /// The rows of a range, each read as something.
    pub(crate) async fn rows<T: Send>(
        self,
        range: &Range,
        read: impl Fn(&Item) -> Stored<T> + Send + Sync,
    ) -> Stored<Vec<T>> {
        let mut rows = Vec::new();
        self.each(range, |item| {
            rows.push(read(&item)?);
            Ok(())
        })
        .await?;
        Ok(rows)
    }

    /// What an index names. An entry that cannot be read, because another hand wrote its row, is told of and left out: all
    /// others of its shard are owed as well.
    pub(crate) async fn named<T: Send>(
        self,
        index: &Range,
        read: impl Fn(&Item) -> Stored<T> + Send + Sync,
    ) -> Stored<Vec<T>> {
        let mut named = Vec::new();
        self.each_that_counts(index, |item| match read(&item) {
            Ok(name) => {
                named.push(name);
                Ok(true)
            }
            Err(error @ StoreError::Unreadable(_)) => {
                tracing::error!(
                    table = self.name, %error,
                    "an entry of an index was left out; mend or remove its row, which nothing looks after"
                );
                Ok(false)
            }
            Err(error) => Err(error),
        })
        .await?;
        Ok(named)
    }

    /// How many rows a range has.
    pub(crate) async fn count(self, range: &Range) -> Stored<u64> {
        let (mut count, mut from) = (0, None);
        loop {
            let output = self
                .query(range)
                .select(Select::Count)
                .set_exclusive_start_key(from)
                .send()
                .await
                .map_err(store_error)?;
            count += u64::try_from(output.count).unwrap_or_default();
            from = output.last_evaluated_key;
            if from.is_none() {
                return Ok(count);
            }
        }
    }

    /// How many rows a range has, and the least of a time that the index projects.
    pub(crate) async fn backlog(self, range: &Range, since: &str) -> Stored<Backlog> {
        let mut backlog = Backlog::default();
        self.each(range, |item| {
            let oldest = Some(Reader(&item).time(since)?);
            backlog = backlog.and(Backlog { count: 1, oldest });
            Ok(())
        })
        .await?;
        Ok(backlog)
    }

    fn query(
        self,
        range: &Range,
    ) -> aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder {
        self.client
            .query()
            .table_name(self.name)
            .set_index_name(range.index.map(str::to_owned))
            // An index cannot be read consistently.
            .consistent_read(range.index.is_none())
            .scan_index_forward(!range.newest_first)
            .set_key_condition_expression(range.condition.condition())
            .set_expression_attribute_names(range.condition.names())
            .set_expression_attribute_values(range.condition.values())
    }

    /// An action of a transaction: a put.
    pub(crate) fn putting(self, item: Item, only: &Expression) -> Stored<TransactWriteItem> {
        putting(self.name, item, only)
    }

    /// An action of a transaction: a change.
    pub(crate) fn updating(self, key: Key, change: &Expression) -> Stored<TransactWriteItem> {
        let update = Update::builder()
            .table_name(self.name)
            .set_key(Some(key.attributes()))
            .set_update_expression(change.update())
            .set_condition_expression(change.condition())
            .set_expression_attribute_names(change.names())
            .set_expression_attribute_values(change.values());
        Ok(TransactWriteItem::builder().update(update.build().map_err(unbuilt)?).build())
    }

    /// An action of a transaction: a deletion.
    pub(crate) fn deleting(self, key: Key, only: &Expression) -> Stored<TransactWriteItem> {
        let delete = Delete::builder()
            .table_name(self.name)
            .set_key(Some(key.attributes()))
            .set_condition_expression(only.condition())
            .set_expression_attribute_names(only.names())
            .set_expression_attribute_values(only.values());
        let delete = delete.build().map_err(unbuilt)?;
        Ok(TransactWriteItem::builder().delete(delete).build())
    }

    /// An action of a transaction: a check without a write.
    pub(crate) fn checking(self, key: Key, only: &Expression) -> Stored<TransactWriteItem> {
        let check = ConditionCheck::builder()
            .table_name(self.name)
            .set_key(Some(key.attributes()))
            .set_condition_expression(only.condition())
            .set_expression_attribute_names(only.names())
            .set_expression_attribute_values(only.values());
        let check = check.build().map_err(unbuilt)?;
        Ok(TransactWriteItem::builder().condition_check(check).build())
    }
}

/// What became of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Transacted {
    /// All of it happened.
    Done,
    /// None of it happened, and why: one reason for each action, in order.
    Cancelled(Vec<Reason>),
}

/// An action of a transaction: an item of this table, put where the condition holds.
pub(crate) fn putting(table: &str, item: Item, only: &Expression) -> Stored<TransactWriteItem> {
    let put = Put::builder()
        .table_name(table)
        .set_item(Some(item))
        .set_condition_expression(only.condition())
        .set_expression_attribute_names(only.names())
        .set_expression_attribute_values(only.values());
    Ok(TransactWriteItem::builder().put(put.build().map_err(unbuilt)?).build())
}

/// Writes all or nothing. Without a `token`, the SDK makes one, which is the same for all its own tries.
pub(crate) async fn transact(
    client: &Client,
    actions: Vec<TransactWriteItem>,
    token: Option<String>,
) -> Stored<Transacted> {
    let transact = client
        .transact_write_items()
        .set_transact_items(Some(actions))
        .set_client_request_token(token);
    let count = transact.get_transact_items().as_ref().map_or(0, Vec::len);
    let error = match transact.send().await {
        Ok(_) => return Ok(Transacted::Done),
        Err(error) => error,
    };
    match error.as_service_error() {
        Some(TransactWriteItemsError::TransactionCanceledException(canceled)) => {
            let reasons = canceled.cancellation_reasons().iter();
            let reasons = reasons.map(|why| reason(why.code(), why.message())).collect();
            Ok(Transacted::Cancelled(reasons))
        }
        _ if is_too_large(&error) => Ok(Transacted::Cancelled(vec![Reason::TooLarge; count])),
        _ => Err(store_error(error)),
    }
}

/// How often a write is made again that meets a transaction at one item: a lane's own is written by its holder, by whoever
/// wakes it and by redeliveries.
const CONFLICTS: u32 = 5;

/// Whether a write met a transaction at its item, and did nothing. The SDK does not make it again.
fn met_transaction<R>(error: &SdkError<UpdateItemError, R>) -> bool {
    let refused = error.as_service_error();
    refused.is_some_and(UpdateItemError::is_transaction_conflict_exception)
}

/// Writes all or nothing into a lane, its own item included. That item is written by its holder and by whoever wakes the
/// lane, and a transaction that meets such a write is cancelled with nothing done: the SDK does not make it again, we do.
pub(crate) async fn transact_in_lane(
    client: &Client,
    actions: Vec<TransactWriteItem>,
) -> Stored<Transacted> {
    for _ in 0..CONFLICTS {
        match transact(client, actions.clone(), None).await? {
            Transacted::Cancelled(reasons) if met_another(&reasons) => {}
            ended => return Ok(ended),
        }
    }
    transact(client, actions, None).await
}

/// Whether a transaction was cancelled for no other reason than that somebody wrote one of its items at the same time.
fn met_another(reasons: &[Reason]) -> bool {
    reasons.contains(&Reason::Conflict)
        && reasons.iter().all(|reason| matches!(reason, Reason::Conflict | Reason::None))
}

/// A condition on the partition key of a query.
pub(crate) fn partition(pk: String) -> Expression {
    Expression::new().when("#pk = :pk", [("pk", AttributeValue::S(pk))])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// OUT-transaction-conflict: made again is what met another writer, and nothing else: a condition that does not hold
    /// is an outcome.
    #[test]
    fn a_transaction_is_made_again_only_if_it_met_another_writer() {
        use Reason::{ConditionFailed, Conflict, None, Throttled};
        for (reasons, expected) in [
            (vec![None, None, Conflict], true),
            (vec![Conflict, None, Conflict], true),
            (vec![ConditionFailed, None, Conflict], false),
            (vec![None, None, Throttled], false),
            (vec![Conflict, None, Throttled], false),
            (vec![ConditionFailed, None, None], false),
            (vec![], false),
        ] {
            assert_eq!(met_another(&reasons), expected, "{reasons:?}");
        }
    }
}
