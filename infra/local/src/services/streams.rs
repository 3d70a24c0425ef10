//! DynamoDB streams as an event source reads them: one shard, oldest first.

use dynoxide::{
    actions::{
        get_records::{GetRecordsRequest, Record},
        get_shard_iterator::encode_shard_iterator,
    },
    streams::shard_id,
};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::tables::{TableError, Tables};

/// A position in a stream: 21 digits, which order as text.
pub type SequenceNumber = String;

/// What sequence numbers start at; dynoxide stores what is above it.
const SEQUENCE_OFFSET: u128 = 100_000_000_000_000_000_000;

/// One stream record.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamRecord {
    /// Its position.
    pub sequence: SequenceNumber,
    /// The record as one element of `Records` of the event that Lambda makes.
    pub event: Value,
}

/// The streams of the stack's tables.
#[derive(Clone, Debug)]
pub struct Streams(pub(super) Tables);

impl Streams {
    /// Up to `limit` records behind `after`, or from the oldest kept (`TRIM_HORIZON`), oldest first. Empty: nothing newer.
    ///
    /// # Errors
    /// No such stream, not a position, or the database.
    pub async fn read(
        &self,
        arn: &str,
        after: Option<&SequenceNumber>,
        limit: usize,
    ) -> Result<Vec<StreamRecord>, TableError> {
        let unknown = || {
            TableError::NoSuchStream(
                after.map_or_else(|| arn.to_owned(), |after| format!("{arn} at {after}")),
            )
        };
        let table = arn
            .split('/')
            .nth(1)
            .filter(|name| self.0.known.iter().any(|table| table.name == **name));
        let table = table.ok_or_else(unknown)?;
        let position = match after {
            None => 0,
            Some(after) => after
                .parse::<u128>()
                .ok()
                .and_then(|number| number.checked_sub(SEQUENCE_OFFSET))
                .and_then(|number| i64::try_from(number).ok())
                .ok_or_else(unknown)?,
        };
        let request = GetRecordsRequest {
            shard_iterator: encode_shard_iterator(table, &shard_id(table), position),
            limit: Some(limit),
        };
        let database = self.0.database.clone();
        let read = tokio::task::spawn_blocking(move || database.get_records(request)).await;
        let records = read
            .map_err(|error| TableError::Silent(Box::new(error)))?
            .map_err(|error| TableError::Database("to read a stream", error))?
            .records;
        Ok(records.iter().map(|record| self.event(arn, record)).collect())
    }

    /// Changes whenever something was written to any table.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes()
    }

    fn event(&self, arn: &str, record: &Record) -> StreamRecord {
        let mut event = serde_json::to_value(record).unwrap_or_default();
        if let Some(map) = event.as_object_mut() {
            map.insert("eventSourceARN".to_owned(), Value::from(arn));
            map.insert("awsRegion".to_owned(), json!(self.0.region()));
        }
        StreamRecord { sequence: record.dynamodb.sequence_number.clone(), event }
    }
}
