//! The host's own API: faults, kills, what was called, what is still to be done.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use http::{HeaderMap, Method};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{client::Client, eventually};

/// The host's own API.
#[derive(Clone, Debug)]
pub struct Control(Client);

/// A call that a function made of an AWS service, with all equal ones.
#[derive(Clone, Debug, Deserialize)]
pub struct Call {
    /// Which function, such as `ingress`; other callers by their key.
    pub function: String,
    /// The IAM action.
    pub action: String,
    /// The ARN, or `*`.
    pub resource: String,
    /// The partition keys that were touched.
    #[serde(default)]
    pub leading_keys: Vec<String>,
}

/// A function's process.
#[derive(Clone, Debug, Deserialize)]
pub struct Process {
    /// The logical id of its function.
    pub function: String,
    /// Its number.
    pub pid: Option<u32>,
}

/// Which calls of AWS services fail, and how.
#[derive(Clone, Debug, Serialize)]
pub struct Fault {
    service: &'static str,
    action: &'static str,
    function: Option<&'static str>,
    when: &'static str,
    error: &'static str,
    skip: u32,
    times: u32,
    delay_ms: u64,
}

impl Fault {
    /// From now on every call of `action` (or `*`) of a service fails this way, without effect.
    pub fn new(service: &'static str, action: &'static str, error: &'static str) -> Self {
        let (function, when) = (None, "before");
        Self { service, action, function, when, error, skip: 0, times: u32::MAX, delay_ms: 0 }
    }

    /// What it strikes, as part of a name.
    pub fn name(&self) -> String {
        let Self { service, action, function, when, error, .. } = self;
        let function = function.unwrap_or("any");
        format!("{function}_{service}_{action}_{when}_{error}").replace('*', "any").to_lowercase()
    }

    /// Only of this function.
    #[must_use]
    pub fn of(self, function: &'static str) -> Self {
        Self { function: Some(function), ..self }
    }

    /// With its effect, but the answer is lost or late.
    #[must_use]
    pub fn after(self) -> Self {
        Self { when: "after", ..self }
    }

    /// So many are let through first.
    #[must_use]
    pub fn skip(self, skip: u32) -> Self {
        Self { skip, ..self }
    }

    /// So many, then no more.
    #[must_use]
    pub fn times(self, times: u32) -> Self {
        Self { times, ..self }
    }

    /// For `delay` and `hold`: so many milliseconds.
    #[must_use]
    pub fn by(self, delay_ms: u64) -> Self {
        Self { delay_ms, ..self }
    }
}

impl Control {
    pub(crate) fn of(client: Client) -> Self {
        Self(client)
    }

    /// Adds a fault.
    ///
    /// # Errors
    /// The host refuses it.
    pub async fn fault(&self, fault: &Fault) -> Result<()> {
        let answer = self.0.post("/_local/faults", &serde_json::to_value(fault)?).await?;
        answer.good().map(drop).with_context(|| format!("of {fault:?}"))
    }

    /// How many faults have not struck as often as they were to.
    ///
    /// # Errors
    /// The host does not answer.
    pub async fn faults_left(&self) -> Result<usize> {
        let left = self.0.get("/_local/faults").await?.good()?;
        Ok(left.as_array().map_or(0, Vec::len))
    }

    /// Ends all faults.
    ///
    /// # Errors
    /// The host does not answer.
    pub async fn heal(&self) -> Result<()> {
        let call = self.0.call(Method::DELETE, "/_local/faults", HeaderMap::new(), Bytes::new());
        call.await?.good().map(drop)
    }

    /// `kill -9` of all processes of a function, and waits until they are gone: one that is about to be gone could be
    /// given one more event, and take it along.
    ///
    /// # Errors
    /// There is no such function.
    pub async fn kill(&self, function: &str) -> Result<()> {
        let pids = async || {
            let all = self.processes().await?.into_iter();
            let own = all.filter(|process| process.function == function);
            Ok::<BTreeSet<_>, anyhow::Error>(own.filter_map(|process| process.pid).collect())
        };
        let killed = pids().await?;
        self.0.post(&format!("/_local/kill/{function}"), &json!({})).await?.good()?;
        eventually(&format!("the processes of {function} are gone"), async || {
            let left = pids().await?;
            ensure!(left.is_disjoint(&killed), "{left:?} are left");
            Ok(())
        })
        .await
    }

    /// Runs a function's schedule now, and waits for its end.
    ///
    /// # Errors
    /// It failed.
    pub async fn run(&self, function: &str) -> Result<()> {
        let answer = self.0.post(&format!("/_local/run/{function}"), &json!({})).await?.good()?;
        let is_good = answer.get("status").and_then(Value::as_str) == Some("succeeded");
        ensure!(is_good, "{function} failed: {answer}");
        Ok(())
    }

    /// What functions have called so far.
    ///
    /// # Errors
    /// The host does not answer.
    pub async fn calls(&self) -> Result<Vec<Call>> {
        Ok(serde_json::from_value(self.0.get("/_local/calls").await?.good()?)?)
    }

    /// The events that were put on buses, with what became of them.
    ///
    /// # Errors
    /// The host does not answer.
    pub async fn events(&self) -> Result<Vec<Value>> {
        Ok(serde_json::from_value(self.0.get("/_local/events").await?.good()?)?)
    }

    /// The functions' processes.
    ///
    /// # Errors
    /// The host does not answer.
    pub async fn processes(&self) -> Result<Vec<Process>> {
        Ok(serde_json::from_value(self.0.get("/_local/processes").await?.good()?)?)
    }

    /// Waits until queues are empty, streams are read to their ends, and no function runs. What has a due time in a
    /// table and no message is not seen.
    ///
    /// # Errors
    /// It does not come to that.
    pub async fn idle(&self) -> Result<()> {
        eventually("nothing is left to do", async || {
            let answer = self.0.get("/_local/idle").await?.good()?;
            ensure!(answer.get("idle").and_then(Value::as_bool) == Some(true), "{answer}");
            Ok(())
        })
        .await
    }
}
