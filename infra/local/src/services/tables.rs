//! DynamoDB: dynoxide, embedded.
//!
//! Requests of functions go to dynoxide's own HTTP surface (on a loopback port of its own, in a thread of its own), because
//! only there are requests checked word for word as DynamoDB checks them; before that they pass our front, which records
//! them and lets them fail on request. Tables, streams and the expiry sweep use the database directly.

use std::{path::Path, thread};

use axum::{body::Body, http::Request, response::Response};
use bytes::Bytes;
use dynoxide::{
    Database, DynoxideError,
    actions::{
        create_table::CreateTableRequest, describe_table::DescribeTableRequest,
        update_time_to_live::UpdateTimeToLiveRequest,
    },
};
use http_body_util::{BodyExt as _, Full};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::shape;
use crate::wiring::Table;

/// Why the tables cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The database refused.
    #[error("the local DynamoDB refused {0}")]
    Database(&'static str, #[source] DynoxideError),
    /// A table in the state folder was made by another template.
    #[error(
        "table {table} exists in the state folder with {found}, but the template wants {wanted}; \
         start with a fresh state folder (remove it, or give --state another path)"
    )]
    OtherShape {
        /// The table's name.
        table: String,
        /// What it has.
        found: String,
        /// What the template says.
        wanted: String,
    },
    /// A request that is not one of DynamoDB's.
    #[error("the template's definition of table {0} is not a CreateTable request")]
    NotARequest(String, #[source] serde_json::Error),
    /// No port for the database's own surface.
    #[error("the local DynamoDB cannot listen on a loopback port")]
    Listen(#[source] std::io::Error),
    /// A stream or a position that does not exist.
    #[error("{0} is not a stream of this stack, or not a position in it")]
    NoSuchStream(String),
    /// The database's thread gave no answer.
    #[error("the local DynamoDB does not answer")]
    Silent(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// What is known of a table beyond the database, to name what a request touches.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) name: String,
    pub(super) arn: String,
    pub(super) hash_key: String,
    /// Index name to its partition key.
    pub(super) index_keys: Vec<(String, String)>,
}

/// The tables of the stack.
#[derive(Clone)]
pub struct Tables {
    pub(super) database: Database,
    pub(super) known: std::sync::Arc<Vec<Known>>,
    client: Client<HttpConnector, Full<Bytes>>,
    address: std::net::SocketAddr,
    region: String,
    changes: watch::Sender<u64>,
    /// Ends the server's thread when the last handle goes.
    _server: std::sync::Arc<tokio::sync::oneshot::Sender<()>>,
}

impl std::fmt::Debug for Tables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tables").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Tables {
    pub(super) async fn open(
        tables: &[Table],
        region: &str,
        path: Option<&Path>,
    ) -> Result<Self, TableError> {
        let database = match path {
            Some(path) => Database::new(&path.to_string_lossy()),
            None => Database::memory(),
        }
        .map_err(|error| TableError::Database("to open its file", error))?;
        // its name aside, this sets `synchronous = NORMAL`: a killed process loses nothing, a power cut may lose the last
        // moments, and a write does not wait for the disk
        database
            .disable_bulk_loading()
            .map_err(|error| TableError::Database("to set up its file", error))?;
        for table in tables {
            ensure(&database, table)?;
        }
        let (server, address) = serve(database.clone()).await?;
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        Ok(Self {
            database,
            known: std::sync::Arc::new(tables.iter().map(shape::known).collect()),
            client: Client::builder(TokioExecutor::new()).build(connector),
            address,
            region: region.to_owned(),
            changes: watch::Sender::new(0),
            _server: std::sync::Arc::new(server),
        })
    }

    /// Passes a request on to the database as it came.
    pub(super) async fn call(
        &self,
        action: &str,
        parts: http::request::Parts,
        body: Bytes,
    ) -> Result<Response, TableError> {
        let mut request = Request::from_parts(parts, Full::new(body));
        let uri = format!("http://{}/", self.address);
        *request.uri_mut() = uri.parse().map_err(|error| TableError::Silent(Box::new(error)))?;
        request.headers_mut().remove(http::header::HOST);
        request.headers_mut().remove(http::header::CONNECTION);
        let response = self
            .client
            .request(request)
            .await
            .map_err(|error| TableError::Silent(Box::new(error)))?;
        if response.status().is_success() && shape::writes(action) {
            self.changed();
        }
        let (mut parts, body) = response.into_parts();
        let bytes =
            body.collect().await.map_err(|error| TableError::Silent(Box::new(error)))?.to_bytes();
        if !shape::names_arns(action) {
            return Ok(Response::from_parts(parts, Body::from(bytes)));
        }
        // dynoxide's ARNs carry a region of its own
        let text = String::from_utf8_lossy(&bytes)
            .replace("arn:aws:dynamodb:dynoxide:", &format!("arn:aws:dynamodb:{}:", self.region))
            .replace("\"awsRegion\":\"dynoxide\"", &format!("\"awsRegion\":\"{}\"", self.region));
        parts.headers.remove("x-amz-crc32");
        parts.headers.remove(http::header::CONTENT_LENGTH);
        Ok(Response::from_parts(parts, Body::from(text)))
    }

    /// Deletes the items whose time is over; blocks on `SQLite`.
    pub(super) fn sweep_ttl(&self) -> Result<usize, TableError> {
        let deleted = self
            .database
            .sweep_ttl()
            .map_err(|error| TableError::Database("the expiry sweep", error))?;
        if deleted > 0 {
            self.changed();
        }
        Ok(deleted)
    }

    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    pub(super) fn region(&self) -> &str {
        &self.region
    }

    fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }
}

/// Starts the database's HTTP surface in a thread of its own: its handlers block on `SQLite`.
async fn serve(
    database: Database,
) -> Result<(tokio::sync::oneshot::Sender<()>, std::net::SocketAddr), TableError> {
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let (ready, address) = tokio::sync::oneshot::channel();
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let listener =
                tokio::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await?;
            let _host_may_be_gone = ready.send(listener.local_addr()?);
            let stopped = async move {
                let _dropped_is_stopped = stopped.await;
            };
            dynoxide::server::serve_with_shutdown(listener, database, stopped)
                .await
                .map_err(std::io::Error::other)
        })
    };
    thread::Builder::new()
        .name("dynamodb".to_owned())
        .spawn(move || {
            if let Err(error) = run() {
                tracing::error!(%error, "the local DynamoDB stopped");
            }
        })
        .map_err(TableError::Listen)?;
    let address =
        address.await.map_err(|error| TableError::Listen(std::io::Error::other(error)))?;
    Ok((stop, address))
}

/// Makes a table that is absent, and refuses one that another template made.
fn ensure(database: &Database, table: &Table) -> Result<(), TableError> {
    let existing = database.describe_table(DescribeTableRequest { table_name: table.name.clone() });
    match existing {
        Ok(description) => {
            let found = serde_json::to_value(&description).unwrap_or_default();
            let found = shape::of(found.get("Table").unwrap_or(&Value::Null));
            let wanted = shape::of(&table.create);
            if found != wanted {
                return Err(TableError::OtherShape {
                    table: table.name.clone(),
                    found: found.to_string(),
                    wanted: wanted.to_string(),
                });
            }
        }
        Err(DynoxideError::ResourceNotFoundException(_)) => {
            let request: CreateTableRequest = serde_json::from_value(table.create.clone())
                .map_err(|error| TableError::NotARequest(table.name.clone(), error))?;
            database
                .create_table(request)
                .map_err(|error| TableError::Database("to create a table", error))?;
        }
        Err(error) => return Err(TableError::Database("to describe a table", error)),
    }
    expire(database, table)
}

fn expire(database: &Database, table: &Table) -> Result<(), TableError> {
    let Some(attribute) = &table.ttl_attribute else { return Ok(()) };
    let request: UpdateTimeToLiveRequest = serde_json::from_value(json!({
        "TableName": table.name,
        "TimeToLiveSpecification": { "AttributeName": attribute, "Enabled": true },
    }))
    .map_err(|error| TableError::NotARequest(table.name.clone(), error))?;
    match database.update_time_to_live(request) {
        // already on, from an earlier start
        Ok(_) | Err(DynoxideError::ValidationException(_)) => Ok(()),
        Err(error) => Err(TableError::Database("the expiry of a table", error)),
    }
}
