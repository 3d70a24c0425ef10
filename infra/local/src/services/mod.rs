//! The AWS services that the functions use, on one loopback endpoint and in process.
//!
//! `front` takes every HTTP request, records it and lets it fail on request; behind it one file per service: `tables` and
//! `streams` (DynamoDB), `queues` (SQS), `secrets` (Secrets Manager), `keys` (KMS), `objects` (S3), `buses`
//! (EventBridge). Known differences from
//! AWS: one shard per stream, indexes consistent at once, no rights checked, no throttling (but see [`Faults`]),
//! signatures of requests not checked, queue order kept where nobody promises it.

mod answer;
mod buses;
mod clock;
mod faults;
mod files;
mod front;
mod keys;
mod objects;
mod queues;
mod recorder;
mod sealed;
mod secrets;
mod shape;
mod streams;
mod tables;

use std::path::PathBuf;

use axum::Router;
pub use buses::{Buses, Carried, Put};
pub use clock::Clock;
pub use faults::{Faults, Kind, Rule, When};
pub use front::Service;
use keys::Keys;
use objects::Objects;
pub use queues::{Counts, Message, QueueError, Queues};
pub use recorder::{Call, Observed, Recorder};
use secrets::Secrets;
pub use streams::{SequenceNumber, StreamRecord, Streams};
pub use tables::{TableError, Tables};

use crate::wiring::Wiring;

/// Where the services keep what they hold.
#[derive(Clone, Debug)]
pub struct Options {
    /// The state folder; made if absent.
    pub state: PathBuf,
    /// Tables and queues live in memory; secrets, keys and objects still in the folder.
    pub in_memory: bool,
    /// The time that queues and secrets go by.
    pub clock: Clock,
}

impl Options {
    /// Everything in the folder, by the system's clock.
    #[must_use]
    pub fn new(state: impl Into<PathBuf>) -> Self {
        Self { state: state.into(), in_memory: false, clock: Clock::system() }
    }

    /// Tables and queues in memory, by the system's clock.
    #[must_use]
    pub fn in_memory(state: impl Into<PathBuf>) -> Self {
        Self { in_memory: true, ..Self::new(state) }
    }
}

/// Why the services cannot start.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The state folder.
    #[error("the state folder {} cannot be used; is it writable?", .0.display())]
    State(PathBuf, #[source] std::io::Error),
    /// The tables.
    #[error("the tables cannot be opened")]
    Tables(#[source] TableError),
    /// The queues.
    #[error("the queues cannot be opened")]
    Queues(#[source] QueueError),
}

/// All services of a stack. Cheap to clone; the last clone closes the files.
#[derive(Clone, Debug)]
pub struct Services {
    /// SQS in process.
    pub queues: Queues,
    /// The tables.
    pub tables: Tables,
    /// DynamoDB streams in process.
    pub streams: Streams,
    /// EventBridge.
    pub buses: Buses,
    /// Who called what.
    pub recorder: Recorder,
    /// Which calls fail.
    pub faults: Faults,
    secrets: Secrets,
    keys: Keys,
    objects: Objects,
}

impl Services {
    /// Opens the state folder and makes what the wiring names and is not there yet.
    ///
    /// # Errors
    /// The folder cannot be used, or holds a table of another shape.
    pub async fn open(wiring: &Wiring, options: Options) -> Result<Self, OpenError> {
        let Options { state, in_memory, clock } = options;
        let disk = |error| OpenError::State(state.clone(), error);
        std::fs::create_dir_all(&state).map_err(disk)?;
        let file = |name: &str| (!in_memory).then(|| state.join(name));
        let region = wiring.region.as_str();
        let recorder = Recorder::default();
        let faults = Faults::default();
        let queues = Queues::open(
            &wiring.queues,
            region,
            file("sqs.sqlite").as_deref(),
            clock.clone(),
            recorder.clone(),
            faults.clone(),
        )
        .map_err(OpenError::Queues)?;
        let tables = Tables::open(&wiring.tables, region, file("dynamodb.sqlite").as_deref())
            .await
            .map_err(OpenError::Tables)?;
        let keys = Keys::open(&wiring.keys, &state.join("keys")).map_err(disk)?;
        let buses = Buses::open(&wiring.buses, region, &state.join("buses.json"), clock.clone())
            .map_err(disk)?;
        let secrets =
            Secrets::open(&state.join("secrets"), &state.join("keys/secrets.key"), region, clock)
                .map_err(disk)?;
        let objects = Objects::open(&state.join("s3"), &wiring.buckets).map_err(disk)?;
        Ok(Self {
            streams: Streams(tables.clone()),
            queues,
            tables,
            buses,
            recorder,
            faults,
            secrets,
            keys,
            objects,
        })
    }

    /// The AWS endpoint: `/` and `/s3/`.
    pub fn router(&self) -> Router {
        front::router(self)
    }

    /// Deletes the items whose time is over, and says how many. Blocks on `SQLite`.
    ///
    /// # Errors
    /// The database.
    pub fn sweep_ttl(&self) -> Result<usize, TableError> {
        self.tables.sweep_ttl()
    }
}

/// The AWS endpoint of these services.
pub fn router(services: &Services) -> Router {
    services.router()
}
