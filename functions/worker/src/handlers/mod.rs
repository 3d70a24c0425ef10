//! What events mean.
//!
//! A handler is a pure function from an event, and the state of its object before, to a plan: nothing has happened until
//! the plan is committed, so a handler may run any number of times.
//!
//! A handler of your own is one file beside these, and one line in [`OWN`]: `README.md` shows it, and `payments` is a large
//! one to copy from.

pub mod forward;
pub mod mirror;
pub mod payments;

use std::collections::BTreeMap;

use domain::{
    event::{Object, ObjectRef},
    fetch::Fetched,
    id::TenantId,
    inbox::NewRow,
    plan::Plan,
    source::Handler,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Most objects that one event's plan may look at, beside the event's own.
pub const MAX_READS: usize = 10;

/// A received event, with its bytes as they were signed; those that came compressed, as they were before.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// What was accepted: source, id, type, object, version, times.
    pub row: &'a NewRow,
    /// Its body.
    pub body: &'a [u8],
    /// What the provider says of the object now, if it was asked.
    pub fetched: Option<&'a Fetched>,
    /// Whether the versions of this source order all changes of an object.
    pub trusts_version: bool,
    /// Whose endpoints the source tells, if it says whose.
    pub tenant: Option<&'a TenantId>,
}

/// The objects that a plan may look at, as they were just before; when the plan is committed they may have changed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Current {
    /// The event's own object, if it has one and it is known.
    pub own: Option<Object>,
    /// Those that the handler asked for, and the event's own, if they are known.
    pub others: BTreeMap<ObjectRef, Object>,
}

impl Current {
    /// The event's own object.
    pub const fn object(&self) -> Option<&Object> {
        self.own.as_ref()
    }

    /// An object that the handler asked for, or the event's own.
    pub fn of(&self, object: &ObjectRef) -> Option<&Object> {
        self.others.get(object)
    }
}

/// What turns events into plans: the shipped ones and the user's own, or a test's.
#[derive(Clone, Copy, Debug)]
pub struct Handlers {
    /// Which objects a plan will look at, beside the event's own.
    pub reads: fn(&Handler, &Event<'_>) -> Vec<ObjectRef>,
    /// Plans an event.
    pub plan: fn(&Handler, &Event<'_>, &Current) -> Plan,
}

/// The handlers that ship, and those of [`own`].
pub const SHIPPED: Handlers = Handlers { reads, plan };

/// A handler of the user's own.
pub trait Own: Sync {
    /// Which objects its plan will look at, beside the event's own; at most [`MAX_READS`].
    fn reads(&self, _event: &Event<'_>) -> Vec<ObjectRef> {
        Vec::new()
    }

    /// Plans an event.
    fn plan(&self, event: &Event<'_>, current: &Current) -> Plan;
}

/// The handlers that are written and not configured, by the name that a source gives: one line each.
pub const OWN: &[(&str, &dyn Own)] = &[("payments", &payments::Payments)];

/// A handler of [`OWN`].
pub fn own(name: &str) -> Option<&'static dyn Own> {
    OWN.iter().find(|(known, _)| *known == name).map(|(_, own)| *own)
}

/// Why a source's handler is not there, if it is not.
pub fn missing(handler: &Handler) -> Option<String> {
    let Handler::Own { name, .. } = handler else { return None };
    if own(name).is_some() {
        return None;
    }
    let known: Vec<_> = OWN.iter().map(|(known, _)| *known).collect();
    let known = known.join(", ");
    Some(format!(
        "this worker has no handler {name}, only {known}; let the source use one of them (`postern sources set`), or deploy \
         a worker that has it, then replay the event"
    ))
}

fn reads(handler: &Handler, event: &Event<'_>) -> Vec<ObjectRef> {
    match handler {
        Handler::Own { name, .. } => own(name).map(|own| own.reads(event)).unwrap_or_default(),
        Handler::Mirror { .. } | Handler::Forward { .. } => Vec::new(),
    }
}

fn plan(handler: &Handler, event: &Event<'_>, current: &Current) -> Plan {
    match handler {
        Handler::Mirror { emit_to, states } => {
            mirror::plan(event, current.object(), emit_to.as_ref(), states.as_ref())
        }
        Handler::Forward { tenant, types } => forward::plan(event, tenant, types),
        Handler::Own { name, .. } => match own(name) {
            Some(own) => own.plan(event, current),
            None => Plan::Reject(missing(handler).unwrap_or_default()),
        },
    }
}

impl<'a> Event<'a> {
    /// An event of whose object nothing was fetched, whose versions are not trusted, and which is for nobody.
    pub const fn new(row: &'a NewRow, body: &'a [u8]) -> Self {
        Self { row, body, fetched: None, trusts_version: false, tenant: None }
    }
}

impl Event<'_> {
    /// The name of its source.
    pub fn source(&self) -> &str {
        self.row.key.source().as_str()
    }

    /// The provider's word for what happened.
    pub fn event_type(&self) -> Option<&str> {
        self.row.event_type.as_deref()
    }

    /// Reads the part of its body that a JSON pointer names, such as `/data/object`, or all of it for the
    /// empty one. `None`: the body is not JSON, has no such part, or the part is not what was expected. A byte order mark
    /// in front is skipped.
    pub fn read<T: DeserializeOwned>(&self, at: &str) -> Option<T> {
        let body = self.body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(self.body);
        let said: Value = serde_json::from_slice(body).ok()?;
        T::deserialize(said.pointer(at)?).ok()
    }

    /// What an outgoing event about the same thing is about: the object, or else the event itself.
    pub fn aggregate_id(&self) -> String {
        let object = self.row.object.as_ref().map(|object| object.id.as_str());
        object.unwrap_or_else(|| self.row.key.event_id()).to_owned()
    }

    /// The bytes for subscribers. JSON goes out as it came, byte for byte, numbers and spaces included. Anything else
    /// (a form, XML) is wrapped, because subscribers are promised JSON:
    /// `{"content_type": "...", "encoding": "utf-8" or "base64", "body": "..."}`.
    pub fn payload(&self) -> Vec<u8> {
        let text = std::str::from_utf8(self.body);
        // Parsing into nothing keeps numbers out of it: a number too large for a machine is still JSON.
        let is_json =
            text.is_ok_and(|text| serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok());
        if is_json {
            return self.body.to_vec();
        }
        let content_type = self.row.headers.get("content-type");
        let (encoding, body) = match text {
            Ok(text) => ("utf-8", text.to_owned()),
            Err(_) => {
                ("base64", base64::Engine::encode(&base64::prelude::BASE64_STANDARD, self.body))
            }
        };
        json!({ "content_type": content_type, "encoding": encoding, "body": body })
            .to_string()
            .into_bytes()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;

    use domain::{
        body::{Place, Sha256Hash, StoredBody},
        event::{ObjectRef, Origin, Version},
        id::InboxKey,
    };
    use jiff::Timestamp;

    use super::*;

    /// An event of a source `shop`, with or without what a scheme may find.
    pub(crate) fn row(
        event_type: Option<&str>,
        object: Option<(&str, &str)>,
        version: Option<Version>,
    ) -> NewRow {
        NewRow {
            key: InboxKey::new("shop".parse().unwrap(), "evt_1").unwrap(),
            event_type: event_type.map(str::to_owned),
            received_at: Timestamp::UNIX_EPOCH,
            due_at: Timestamp::UNIX_EPOCH,
            body: StoredBody { sha256: Sha256Hash::of(b""), length: 0, place: Place::Beside },
            headers: BTreeMap::from([("content-type".to_owned(), "text/plain".to_owned())]),
            object: object.map(|(kind, id)| ObjectRef { kind: kind.to_owned(), id: id.to_owned() }),
            version,
            occurred_at: None,
            origin: Origin::Webhook,
            key_id: None,
            token: String::new(),
            traceparent: None,
            delivery_id: None,
            parent: None,
        }
    }

    fn payload(body: &[u8]) -> Vec<u8> {
        Event::new(&row(None, None, None), body).payload()
    }

    /// INB-raw-bytes-kept
    #[test]
    fn json_goes_out_byte_for_byte() {
        let deep = format!("{}1{}", "[".repeat(500), "]".repeat(500));
        let bodies = [
            r#"{"id": 9007199254740993, "a":1.0,"b": 2.50 , "a":1e400}"#,
            r#"{"n":1234567890123456789012345678901234567890,"s":"\u00e9\ud83d\ude00"}"#,
            " [] ",
            "null",
            &deep,
        ];
        for body in bodies {
            assert_eq!(payload(body.as_bytes()), body.as_bytes(), "{body}");
        }
    }

    #[test]
    fn what_is_not_json_is_wrapped_so_that_it_can_be_unwrapped() {
        let wrapped = |body: &[u8]| serde_json::from_slice::<Value>(&payload(body)).unwrap();
        assert_eq!(
            wrapped(b"a=1&b=%20"),
            json!({ "content_type": "text/plain", "encoding": "utf-8", "body": "a=1&b=%20" })
        );
        assert_eq!(
            wrapped(&[0xff, 0x00]),
            json!({ "content_type": "text/plain", "encoding": "base64", "body": "/wA=" })
        );
        // JSON in another encoding, or cut off, is not JSON.
        assert_eq!(wrapped(b"{\"a\":\"\xff\"}")["encoding"], "base64");
        assert_eq!(wrapped(b"{\"a\":")["encoding"], "utf-8");
        assert_eq!(wrapped(b"")["body"], "");
    }

    #[test]
    fn a_part_of_the_body_is_read_as_what_it_is_or_not_at_all() {
        let row = row(None, None, None);
        let read = |body: &[u8]| Event::new(&row, body).read::<u64>("/a/0");
        assert_eq!(read(br#"{"a":[7]}"#), Some(7));
        assert_eq!(read(b"\xef\xbb\xbf{\"a\":[7]}"), Some(7));
        let deep = "[".repeat(100_000);
        let bad = [r#"{"a":[7.0]}"#, r#"{"a":["7"]}"#, r#"{"a":[]}"#, "7", "a=7", "", &deep];
        for body in bad {
            assert_eq!(read(body.as_bytes()), None, "{} bytes", body.len());
        }
        assert_eq!(Event::new(&row, b"7").read::<u64>(""), Some(7));
    }

    #[test]
    fn an_event_without_an_object_is_about_itself() {
        let about = |object| Event::new(&row(None, object, None), b"").aggregate_id();
        assert_eq!(about(Some(("invoice", "in_1"))), "in_1");
        assert_eq!(about(None), "evt_1");
    }
}
