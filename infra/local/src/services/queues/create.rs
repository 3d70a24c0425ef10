//! Queues that are not in the template: an operator's own, which outlive a restart as on AWS.

use std::{collections::BTreeMap, sync::PoisonError};

use rusqlite::params;
use serde_json::{Map, Value, json};

use super::{Queues, Settings, attributes, error::QueueError, fifo, store::Store};
use crate::services::answer::text;

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS queue (
        name TEXT PRIMARY KEY,
        attributes TEXT NOT NULL
    ) STRICT;
";

/// What a queue is set to that says nothing else: visible again after 30 s, kept for 4 days.
fn defaults(name: &str) -> Settings {
    Settings {
        name: name.to_owned(),
        visibility_ms: 30_000,
        retention_ms: 345_600_000,
        delay_ms: 0,
        receive_wait_ms: 0,
        redrive: None,
    }
}

impl Store {
    /// Adds the queues that were made before to those of the template, whose names win.
    pub(super) fn made(
        &self,
        settings: &mut BTreeMap<String, Settings>,
        arn_for: impl Fn(&str) -> String,
    ) -> Result<(), QueueError> {
        let connection = self.locked();
        connection.execute_batch(SCHEMA)?;
        let mut select = connection.prepare("SELECT name, attributes FROM queue")?;
        let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        for row in rows {
            let (name, attributes): (String, String) = row?;
            let attributes: Map<String, Value> =
                serde_json::from_str(&attributes).unwrap_or_default();
            let made = of(&name, &attributes)?;
            settings.entry(arn_for(&name)).or_insert(made);
        }
        Ok(())
    }

    fn make(&self, name: &str, attributes: &Map<String, Value>) -> Result<(), QueueError> {
        let attributes = Value::Object(attributes.clone()).to_string();
        self.locked()
            .execute("INSERT OR REPLACE INTO queue VALUES (?1, ?2)", params![name, attributes])?;
        Ok(())
    }
}

/// The settings of a queue with these attributes.
fn of(name: &str, given: &Map<String, Value>) -> Result<Settings, QueueError> {
    let mut given = given.clone();
    let is_fifo = given.remove("FifoQueue").is_some_and(|value| value == "true");
    if is_fifo != fifo::is(name) {
        return Err(QueueError::Invalid(
            "The name of a FIFO queue can only include alphanumeric characters, hyphens, or underscores, must end with .fifo suffix and be 1 to 80 in length, and FifoQueue must be true for it alone."
                .to_owned(),
        ));
    }
    let mut settings = defaults(name);
    attributes::set(&mut settings, &given)?;
    Ok(settings)
}

impl Queues {
    /// `CreateQueue`: the same again is no error, with other attributes it is.
    pub(super) fn create(&self, request: &Value) -> Result<Value, QueueError> {
        let name = text(request, "QueueName").ok_or(QueueError::Missing("QueueName"))?;
        let stem = name.strip_suffix(fifo::SUFFIX).unwrap_or(name);
        let is_good = |letter: u8| letter.is_ascii_alphanumeric() || matches!(letter, b'-' | b'_');
        if stem.is_empty() || name.len() > 80 || !stem.bytes().all(is_good) {
            return Err(QueueError::Invalid(
                "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
                    .to_owned(),
            ));
        }
        let none = Map::new();
        let given = request.get("Attributes").and_then(Value::as_object).unwrap_or(&none);
        let arn = self.arn_for(name);
        let settings = of(name, given)?;
        let url = json!({ "QueueUrl": self.url_of(name) });
        let mut all = self.shared.settings.write().unwrap_or_else(PoisonError::into_inner);
        match all.get(&arn) {
            // Without attributes of its own the request agrees with whatever there is.
            Some(there) if given.is_empty() || *there == settings => return Ok(url),
            Some(_) => return Err(QueueError::Exists(name.to_owned())),
            None => {}
        }
        self.shared.store.make(name, given)?;
        self.shared.arrivals.add(&arn);
        all.insert(arn, settings);
        Ok(url)
    }
}
