//! EventBridge: events put on buses are carried to the rules of the template, and kept for whoever asks.
//!
//! As on AWS, a bus that does not exist takes events, answers with an id, and drops them; so does any bus with one whose
//! detail type is too long. What was dropped can be asked for here, and there nowhere.

use std::{
    collections::{BTreeSet, VecDeque},
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::{
    answer::{AwsError, fresh_id, text},
    clock::Clock,
    faults::{Kind, Rule},
    files::{self, Existing},
};

/// `PutEvents`' limit for all entries of a request: 1 MiB (256 KB until January 2026).
const REQUEST_BYTES: usize = 1_048_576;
const ENTRIES: usize = 10;
const TYPE_BYTES: usize = 128;
/// Events that are kept, and events that were dropped; beyond it the oldest go.
const KEPT: usize = 10_000;

/// The bus that every account has.
const DEFAULT: &str = "default";

/// An event that a bus took.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Put {
    /// The name of the bus.
    pub bus: String,
    /// The id that EventBridge gave it.
    pub id: String,
    /// Its source.
    pub source: String,
    /// Its detail type.
    #[serde(rename = "detail-type")]
    pub detail_type: String,
    /// Its detail.
    pub detail: Value,
    /// Its resources.
    pub resources: Value,
    /// Its time, in seconds since the epoch.
    pub time: Value,
    /// Why nobody will ever see it, where that is so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dropped: Option<&'static str>,
}

/// An event on its way to a rule. It is under way until this is dropped.
#[derive(Debug)]
pub struct Carried {
    /// The event.
    pub put: Put,
    under_way: Arc<AtomicUsize>,
}

impl Drop for Carried {
    fn drop(&mut self) {
        self.under_way.fetch_sub(1, Ordering::SeqCst);
    }
}

#[derive(Debug, Default)]
struct Held {
    made: BTreeSet<String>,
    events: VecDeque<Put>,
    /// Who listens, and at which bus.
    rules: Vec<(String, UnboundedSender<Carried>)>,
}

/// All buses of the account.
#[derive(Clone, Debug)]
pub struct Buses {
    wired: Arc<BTreeSet<String>>,
    region: String,
    clock: Clock,
    /// The names of those that are not in the template.
    file: PathBuf,
    held: Arc<Mutex<Held>>,
    under_way: Arc<AtomicUsize>,
}

impl Buses {
    pub(super) fn open(
        wired: &[String],
        region: &str,
        file: &Path,
        clock: Clock,
    ) -> io::Result<Self> {
        let made = match std::fs::read(file) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::other)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeSet::new(),
            Err(error) => return Err(error),
        };
        Ok(Self {
            wired: Arc::new(wired.iter().cloned().chain([DEFAULT.to_owned()]).collect()),
            region: region.to_owned(),
            clock,
            file: file.to_owned(),
            held: Arc::new(Mutex::new(Held { made, ..Held::default() })),
            under_way: Arc::default(),
        })
    }

    fn locked(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The events that were put since the last [`clear`](Self::clear), the oldest first.
    #[must_use]
    pub fn events(&self) -> Vec<Put> {
        self.locked().events.iter().cloned().collect()
    }

    /// Forgets all events.
    pub fn clear(&self) {
        self.locked().events.clear();
    }

    /// All events that are put on a bus from now on. Unlike EventBridge's, they are lost with the host.
    #[must_use]
    pub fn listen(&self, bus: &str) -> UnboundedReceiver<Carried> {
        let (rule, events) = unbounded_channel();
        self.locked().rules.push((bus.to_owned(), rule));
        events
    }

    /// How many events are on their way to a rule, or with its function.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.under_way.load(Ordering::SeqCst)
    }

    fn carry(&self, held: &Held, put: &Put) {
        for (_, rule) in held.rules.iter().filter(|(bus, _)| *bus == put.bus) {
            self.under_way.fetch_add(1, Ordering::SeqCst);
            // A rule that is gone gives it back, and so it ends.
            let _ = rule.send(Carried { put: put.clone(), under_way: Arc::clone(&self.under_way) });
        }
    }

    fn arn(&self, name: &str) -> String {
        format!("arn:aws:events:{}:000000000000:event-bus/{name}", self.region)
    }

    /// The ARNs of the buses that a request is about; `*` where it names none.
    pub(super) fn resources(&self, request: &Value) -> Vec<String> {
        let entries = request.get("Entries").and_then(Value::as_array).into_iter().flatten();
        let mut named: BTreeSet<String> = entries
            .map(|entry| self.arn(name_of(text(entry, "EventBusName").unwrap_or(DEFAULT))))
            .collect();
        named.extend(text(request, "Name").map(|name| self.arn(name_of(name))));
        if named.is_empty() {
            named.insert("*".to_owned());
        }
        named.into_iter().collect()
    }

    /// Does one API action.
    pub(super) fn call(
        &self,
        action: &str,
        request: &Value,
        strike: Option<&Rule>,
    ) -> Result<Value, AwsError> {
        match action {
            "PutEvents" => self.put(request, strike),
            "CreateEventBus" => self.create(request),
            "DescribeEventBus" => {
                let name = name_of(text(request, "Name").unwrap_or(DEFAULT));
                if !self.exists(&self.locked(), name) {
                    let message = format!("Event bus {name} does not exist.");
                    return Err(AwsError::sender("ResourceNotFoundException", message));
                }
                Ok(json!({ "Name": name, "Arn": self.arn(name) }))
            }
            "ListEventBuses" => {
                let held = self.locked();
                let names = self.wired.iter().chain(&held.made);
                let buses = names.map(|name| json!({ "Name": name, "Arn": self.arn(name) }));
                Ok(json!({ "EventBuses": buses.collect::<Vec<_>>() }))
            }
            other => {
                let message = format!("the action {other} is not offered by the local host");
                Err(AwsError::sender("UnknownOperationException", message))
            }
        }
    }

    fn exists(&self, held: &Held, name: &str) -> bool {
        self.wired.contains(name) || held.made.contains(name)
    }

    fn create(&self, request: &Value) -> Result<Value, AwsError> {
        let name = text(request, "Name").unwrap_or_default();
        let is_good = |letter: u8| letter.is_ascii_alphanumeric() || b"._-".contains(&letter);
        if name.is_empty() || name.len() > 256 || !name.bytes().all(is_good) {
            return Err(AwsError::sender("ValidationException", "Parameter Name is not valid."));
        }
        let mut held = self.locked();
        if self.exists(&held, name) {
            let message = format!("Event bus {name} already exists.");
            return Err(AwsError::sender("ResourceAlreadyExistsException", message));
        }
        held.made.insert(name.to_owned());
        let names = serde_json::to_vec(&held.made).unwrap_or_default();
        files::write(&self.file, &names, Existing::Replace)
            .map_err(|error| AwsError::internal("InternalException", error.to_string()))?;
        Ok(json!({ "EventBusArn": self.arn(name) }))
    }

    fn put(&self, request: &Value, strike: Option<&Rule>) -> Result<Value, AwsError> {
        let entries =
            request.get("Entries").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        if entries.is_empty() || entries.len() > ENTRIES {
            let message = format!(
                "1 validation error detected: Value at 'entries' failed to satisfy constraint: Member must have length between 1 and {ENTRIES}"
            );
            return Err(AwsError::sender("ValidationException", message));
        }
        if entries.iter().map(size_of).sum::<usize>() > REQUEST_BYTES {
            let message = "Total size of the entries in the request is over the limit.";
            return Err(AwsError::sender("ValidationException", message));
        }
        let (mut answers, mut failed) = (Vec::new(), 0);
        for (at, entry) in entries.iter().enumerate() {
            let injected = at == 0 && strike.is_some_and(|rule| rule.error == Kind::Partial);
            let put = if injected {
                Err(("InternalFailure", "injected by a fault rule of the local host".to_owned()))
            } else {
                self.take(entry)
            };
            answers.push(match put {
                Ok(id) => json!({ "EventId": id }),
                Err((code, message)) => {
                    failed += 1;
                    json!({ "ErrorCode": code, "ErrorMessage": message })
                }
            });
        }
        Ok(json!({ "FailedEntryCount": failed, "Entries": answers }))
    }

    /// Takes one entry: its id, or the code and the words of its failure.
    fn take(&self, entry: &Value) -> Result<String, (&'static str, String)> {
        let required = |member: &str| {
            text(entry, member).filter(|text| !text.is_empty()).ok_or_else(|| {
                let words = format!(
                    "Parameter {member} is not valid. Reason: {member} is a required argument."
                );
                ("InvalidArgument", words)
            })
        };
        let (source, detail_type) = (required("Source")?, required("DetailType")?);
        let detail = required("Detail")?;
        if source.starts_with("aws.") {
            let words = "Not authorized for the source.".to_owned();
            return Err(("NotAuthorizedForSourceException", words));
        }
        let Ok(detail @ Value::Object(_)) = serde_json::from_str::<Value>(detail) else {
            return Err(("MalformedDetail", "Detail is malformed.".to_owned()));
        };
        let bus = name_of(text(entry, "EventBusName").unwrap_or(DEFAULT)).to_owned();
        let now = || json!(self.clock.now_ms() / 1000);
        let mut held = self.locked();
        let dropped = match (self.exists(&held, &bus), detail_type.len() <= TYPE_BYTES) {
            (false, _) => Some("there is no such bus"),
            (true, false) => Some("the detail type is too long"),
            (true, true) => None,
        };
        let id = fresh_id();
        let put = Put {
            bus,
            id: id.clone(),
            source: source.to_owned(),
            detail_type: detail_type.to_owned(),
            detail,
            resources: entry.get("Resources").cloned().unwrap_or_else(|| json!([])),
            time: entry.get("Time").cloned().unwrap_or_else(now),
            dropped,
        };
        if dropped.is_none() {
            self.carry(&held, &put);
        }
        held.events.push_back(put);
        if held.events.len() > KEPT {
            held.events.pop_front();
        }
        Ok(id)
    }
}

/// The name in a bus's ARN; a name is its own.
fn name_of(bus: &str) -> &str {
    bus.rsplit_once(":event-bus/").map_or(bus, |(_, name)| name)
}

/// What counts towards the limit.
fn size_of(entry: &Value) -> usize {
    let member = |name: &str| text(entry, name).map_or(0, str::len);
    let resources = entry.get("Resources").and_then(Value::as_array).into_iter().flatten();
    let resources: usize = resources.filter_map(Value::as_str).map(str::len).sum();
    let time = if entry.get("Time").is_some() { 14 } else { 0 };
    time + member("Source") + member("DetailType") + member("Detail") + resources
}
