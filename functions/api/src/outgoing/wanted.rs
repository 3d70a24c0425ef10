//! What a publisher asks for, read member by member, so that everything that is wrong with it is said at once.

use std::{collections::BTreeMap, fmt};

use domain::{
    id::TenantId,
    outbox::rules::{self, Draft},
};
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use super::publish::MAX_EVENTS;
use crate::{Problem, problem::Findings};

/// An event to publish.
#[derive(Debug)]
pub(crate) struct NewEvent {
    pub(crate) tenant: TenantId,
    pub(crate) event_type: String,
    /// The version of the type's schema; 1 if it is left out.
    pub(crate) schema_version: u32,
    /// What the event is about. Events of one aggregate share a lane.
    pub(crate) aggregate_id: String,
    /// The aggregate's version, so that receivers can drop what is old.
    pub(crate) aggregate_version: Option<u64>,
    pub(crate) labels: BTreeMap<String, String>,
    /// What a repeated call is known by.
    pub(crate) idempotency_key: Option<String>,
    /// Sent to subscribers byte for byte as it stands here.
    pub(crate) payload: Box<RawValue>,
}

/// The events of a batch, or what is wrong with them.
pub(crate) type Batch = Vec<Result<NewEvent, Problem>>;

/// What a request asks for.
#[derive(Debug)]
pub(crate) enum Wanted {
    /// An event, if it can be one; what is wrong with it is noted.
    One(Option<NewEvent>),
    /// Several events.
    Many(Batch),
}

impl Wanted {
    /// Reads a body. Payloads may have so many bytes.
    pub(crate) fn read(body: &RawValue, payload_bytes: usize, found: &mut Findings) -> Self {
        let Some(mut reader) = Reader::new(body, found) else { return Self::One(None) };
        if !reader.has("events") {
            return Self::One(reader.event(payload_bytes));
        }
        let events = format!("it is a list of 1 to {MAX_EVENTS} events");
        let list = reader.required::<List<'_>>("events", &events);
        reader.done(&["events"]);
        let Some(List(list)) = list else { return Self::One(None) };
        if list.is_empty() {
            found.note("events", events);
        }
        let event = |raw: &&RawValue| {
            let mut found = Findings::default();
            NewEvent::read(raw, payload_bytes, &mut found).ok_or_else(|| found.problem())
        };
        Self::Many(list.iter().map(event).collect())
    }
}

impl NewEvent {
    /// An event, if nothing is wrong with it; what is wrong is noted.
    pub(crate) fn read(raw: &RawValue, payload_bytes: usize, found: &mut Findings) -> Option<Self> {
        Reader::new(raw, found)?.event(payload_bytes)
    }
}

/// What an event may say of itself.
const MEMBERS: [&str; 8] = [
    "tenant",
    "type",
    "schema_version",
    "aggregate_id",
    "aggregate_version",
    "labels",
    "idempotency_key",
    "payload",
];

/// Most members that are read of an object; none of ours has as many.
const MOST_MEMBERS: usize = 100;
/// Most unknown members that are named.
const MOST_NAMED: usize = 5;

/// Reads an object, and notes all that is wrong with it.
struct Reader<'a, 'f> {
    members: Vec<(String, &'a RawValue)>,
    found: &'f mut Findings,
}

impl<'a, 'f> Reader<'a, 'f> {
    fn new(raw: &'a RawValue, found: &'f mut Findings) -> Option<Self> {
        match serde_json::from_str(raw.get()) {
            Ok(Members(members)) => Some(Self { members, found }),
            Err(_) => {
                let most = MOST_MEMBERS;
                found.note(
                    "body",
                    format!("an event is a JSON object of fewer than {most} members"),
                );
                None
            }
        }
    }

    fn has(&self, name: &str) -> bool {
        self.members.iter().any(|(member, _)| member == name)
    }

    fn event(mut self, payload_bytes: usize) -> Option<NewEvent> {
        let before = self.found.count();
        let tenant = self.required::<String>("tenant", "it is a text");
        let tenant = tenant.and_then(|tenant| self.found.keep("tenant", tenant.parse()));
        let event_type = self.required::<String>("type", "it is a text");
        let schema_version = self.optional("schema_version", "it is a whole number from 1");
        let aggregate_id = self.required::<String>("aggregate_id", "it is a text");
        let aggregate_version = self.optional("aggregate_version", "it is a whole number from 0");
        let labels = self.labels();
        let idempotency_key: Option<String> = self.optional("idempotency_key", "it is a text");
        let payload = self.payload(payload_bytes);
        let draft = Draft {
            // What is missing is noted already.
            event_type: event_type.as_deref().unwrap_or("-"),
            schema_version: schema_version.unwrap_or(1),
            aggregate_id: aggregate_id.as_deref().unwrap_or("-"),
            labels: &labels,
        };
        for flaw in draft.flaws() {
            self.found.note(flaw.field, flaw.problem);
        }
        if idempotency_key.as_deref().is_some_and(|key| !rules::is_key(key)) {
            let most = rules::MAX_TEXT;
            self.found
                .note("idempotency_key", format!("it is 1 to {most} visible ASCII characters"));
        }
        let schema_version = schema_version.unwrap_or(1);
        let is_good = { self.done(&MEMBERS) } == before;
        is_good.then_some(())?;
        Some(NewEvent {
            tenant: tenant?,
            event_type: event_type?,
            schema_version,
            aggregate_id: aggregate_id?,
            aggregate_version,
            labels,
            idempotency_key,
            payload: payload?,
        })
    }

    fn labels(&mut self) -> BTreeMap<String, String> {
        let is = "it is an object of texts";
        let Some(Members(members)) = self.optional("labels", is) else { return BTreeMap::new() };
        let all = members.len();
        let text = |(name, raw): (String, &RawValue)| {
            Some((name, serde_json::from_str::<String>(raw.get()).ok()?))
        };
        let labels: Option<BTreeMap<_, _>> = members.into_iter().map(text).collect();
        match labels {
            Some(labels) if labels.len() == all => labels,
            Some(_) => {
                self.found.note("labels", "a name comes twice");
                BTreeMap::new()
            }
            None => {
                self.found.note("labels", is);
                BTreeMap::new()
            }
        }
    }

    fn payload(&mut self, most: usize) -> Option<Box<RawValue>> {
        let Some(payload) = self.take("payload") else {
            self.found.note("payload", "it is missing");
            return None;
        };
        let length = payload.get().len();
        if length > most {
            let problem = format!(
                "it has {length} bytes, and this deployment takes {most}; send a link to what is large"
            );
            self.found.note("payload", problem);
        }
        Some(payload.to_owned())
    }

    /// A member, read. Without it, or if it is something else, that is noted.
    fn required<T: Deserialize<'a>>(&mut self, name: &str, is: &str) -> Option<T> {
        match self.take(name) {
            Some(raw) => self.read(name, raw, is),
            None => {
                self.found.note(name, "it is missing");
                None
            }
        }
    }

    /// A member that may be left out, or be `null`.
    fn optional<T: Deserialize<'a>>(&mut self, name: &str, is: &str) -> Option<T> {
        let raw = self.take(name).filter(|raw| raw.get() != "null")?;
        self.read(name, raw, is)
    }

    fn read<T: Deserialize<'a>>(&mut self, name: &str, raw: &'a RawValue, is: &str) -> Option<T> {
        let value = serde_json::from_str(raw.get()).ok();
        if value.is_none() {
            self.found.note(name, is);
        }
        value
    }

    fn take(&mut self, name: &str) -> Option<&'a RawValue> {
        let of_it = |(member, _): &mut (String, _)| member == name;
        let taken: Vec<_> = self.members.extract_if(.., of_it).collect();
        if taken.len() > 1 {
            self.found.note(name, "it comes twice");
        }
        taken.first().map(|(_, raw)| *raw)
    }

    /// Notes what was not taken, and gives the number of all that was noted.
    fn done(self, members: &[&str]) -> usize {
        for (name, _) in self.members.iter().take(MOST_NAMED) {
            let name: String = name.chars().take(64).collect();
            let problem = format!("no such member; there are {}", members.join(", "));
            self.found.note(&name, problem);
        }
        self.found.count()
    }
}

/// The members of an object as they stand, those that come twice too.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit;
        impl<'de> Visitor<'de> for Visit {
            type Value = Vec<(String, &'de RawValue)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                    if members.len() > MOST_MEMBERS {
                        return Err(M::Error::custom("too many members"));
                    }
                }
                Ok(members)
            }
        }
        deserializer.deserialize_map(Visit).map(Self)
    }
}

/// The elements of a list as they stand; more than a batch has are an error, however many there are.
struct List<'a>(Vec<&'a RawValue>);

impl<'de: 'a, 'a> Deserialize<'de> for List<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit;
        impl<'de> Visitor<'de> for Visit {
            type Value = Vec<&'de RawValue>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<S: SeqAccess<'de>>(self, mut seq: S) -> Result<Self::Value, S::Error> {
                let mut elements = Vec::new();
                while let Some(element) = seq.next_element()? {
                    elements.push(element);
                    if elements.len() > MAX_EVENTS {
                        return Err(S::Error::custom("too many elements"));
                    }
                }
                Ok(elements)
            }
        }
        deserializer.deserialize_seq(Visit).map(Self)
    }
}
