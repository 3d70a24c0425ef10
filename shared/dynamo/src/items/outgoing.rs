//! An outgoing event, as it stands in the outbox and as the stream shows it.

use aws_sdk_dynamodb::{primitives::Blob, types::AttributeValue};
use domain::{
    body::Sha256Hash,
    id::EndpointId,
    outbox::{OutboxEvent, OutboxRow, Payload, Relayed},
    ports::{StoreError, Stored},
};
use serde_json::Value;
use uuid::Uuid;

use crate::{
    item::{Item, Reader, Writer, b, ms, n, s},
    keys,
};

/// `relay_state` of an event that is still to be fanned out. The stream's filter in the template names it too.
pub(crate) const NEW: &str = "NEW";
/// `relay_state` of an event whose deliveries are all there.
pub(crate) const DONE: &str = "DONE";

/// An event that is still NEW. The payload is stored as given: whoever freezes the bytes compresses them, or does not.
pub(crate) fn write(event: &OutboxEvent, shards: u16) -> Item {
    let (payload, payload_sha256) = match &event.payload {
        Payload::Inline(bytes) => (Some(b(bytes.as_slice())), None),
        Payload::Bucket(sha256) => (None, Some(b(sha256.0))),
    };
    Writer::new(keys::outgoing(&event.tenant, event.id), "outbox_event")
        .put("type", s(&event.event_type))
        .put("schema_version", n(event.schema_version))
        .put("aggregate_id", s(&event.aggregate_id))
        .put_some("aggregate_version", event.aggregate_version.map(n))
        .put_some("payload", payload)
        .put_some("payload_sha256", payload_sha256)
        .put("occurred_at", ms(event.occurred_at))
        .put_some("traceparent", event.traceparent.as_ref().map(s))
        .put_some("labels", labels(event))
        .put("relay_state", s(NEW))
        .put("unrelayed_shard", keys::unrelayed_shard(event.id, shards))
        .done()
}

pub(crate) fn read(item: &Item) -> Stored<OutboxRow> {
    let (event, endpoints) = (read_event(item)?, relayed_to(item)?);
    let item = Reader(item);
    let relayed = match item.str("relay_state")? {
        NEW => None,
        DONE => Some(Relayed { at: item.time("relayed_at")?, endpoints }),
        _ => return Err(item.bad("relay_state")),
    };
    Ok(OutboxRow { event, relayed })
}

/// Set once a delivery of the event was given up, which a person may redeliver: the event stays.
pub(crate) const KEPT: &str = "kept";

/// Most endpoints that stand in a row as a list that a person can read. More stand as their bare bytes, 16 each: ten
/// thousand of them are 160 KB of the 400 KB that an item may have.
const LISTED: usize = 500;

/// The endpoints to which an event has gone.
pub(crate) fn endpoints(ids: &[EndpointId]) -> AttributeValue {
    if ids.len() <= LISTED {
        AttributeValue::L(ids.iter().map(|id| s(id.to_string())).collect())
    } else {
        b(ids.iter().flat_map(|id| id.uuid().into_bytes()).collect::<Vec<u8>>())
    }
}

/// The endpoints to which an event has gone so far.
pub(crate) fn read_endpoints(item: &Item) -> Stored<Vec<EndpointId>> {
    let reader = Reader(item);
    match item.get("endpoints") {
        None => Ok(Vec::new()),
        Some(AttributeValue::B(bytes)) => {
            let (ids, rest) = bytes.as_ref().as_chunks::<16>();
            let ids = ids.iter().map(|id| EndpointId::new(Uuid::from_bytes(*id))).collect();
            if rest.is_empty() { Ok(ids) } else { Err(reader.bad("endpoints")) }
        }
        Some(_) => {
            let parse = |value: &AttributeValue| value.as_s().ok()?.parse().ok();
            let ids = reader.list("endpoints")?.iter();
            ids.map(|value| parse(value).ok_or_else(|| reader.bad("endpoints"))).collect()
        }
    }
}

/// A set of endpoints to which an event went later: it had not been for them when it was relayed.
pub(crate) const ADDED: &str = "added";

/// The endpoints to which an event has gone, those of later included.
fn relayed_to(item: &Item) -> Stored<Vec<EndpointId>> {
    let (reader, mut all) = (Reader(item), read_endpoints(item)?);
    for text in reader.some(ADDED, Reader::texts)?.unwrap_or_default() {
        let id = text.parse().map_err(|_| reader.bad(ADDED))?;
        if !all.contains(&id) {
            all.push(id);
        }
    }
    Ok(all)
}

fn read_event(item: &Item) -> Stored<OutboxEvent> {
    let item = Reader(item);
    let (tenant, id) =
        keys::read_outgoing(item.str("pk")?, item.str("sk")?).ok_or_else(|| item.bad("pk"))?;
    let sha256 = |item: Reader<'_>, name: &str| {
        let bytes = item.bytes(name)?.try_into().map_err(|_| item.bad(name))?;
        Ok(Payload::Bucket(Sha256Hash(bytes)))
    };
    let payload = match item.some("payload_sha256", sha256)? {
        Some(payload) => payload,
        None => Payload::Inline(item.bytes("payload")?.to_vec()),
    };
    Ok(OutboxEvent {
        id,
        tenant,
        event_type: item.str("type")?.to_owned(),
        schema_version: item.number("schema_version")?,
        aggregate_id: item.str("aggregate_id")?.to_owned(),
        aggregate_version: item.some("aggregate_version", Reader::number)?,
        payload,
        occurred_at: item.time("occurred_at")?,
        traceparent: item.some_text("traceparent")?,
        labels: item.some("labels", Reader::json)?.unwrap_or_default(),
    })
}

/// As JSON in one text: they are only ever read together, and the stream shows them as they stand here.
fn labels(event: &OutboxEvent) -> Option<AttributeValue> {
    let text = serde_json::to_string(&event.labels).ok();
    text.filter(|_| !event.labels.is_empty()).map(s)
}

/// The event in the new image of a stream record: JSON in the store's own notation, `{"pk": {"S": ".."}, ..}`.
///
/// An image that is not an event of the outbox is [`StoreError::Unreadable`]: bad on its own, whatever is beside it in
/// the batch.
pub fn from_stream(image: &Value) -> Stored<OutboxEvent> {
    let attributes = image.as_object();
    let attributes = attributes
        .ok_or_else(|| StoreError::Unreadable("a stream record without a new image".to_owned()))?;
    // A type that no attribute of ours has is left out; if it stands in place of one, that one is named as missing.
    let item: Item =
        attributes.iter().filter_map(|(name, of)| Some((name.clone(), attribute(of)?))).collect();
    read_event(&item)
}

fn attribute(json: &Value) -> Option<AttributeValue> {
    let (kind, value) = json.as_object()?.iter().next()?;
    let text = value.as_str();
    match kind.as_str() {
        "S" => Some(s(text?)),
        "N" => Some(n(text?)),
        "B" => Some(AttributeValue::B(Blob::new(aws_smithy_types::base64::decode(text?).ok()?))),
        _ => None,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use domain::id::EventId;
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::item::show;

    pub(crate) fn an_event() -> OutboxEvent {
        OutboxEvent {
            id: EventId::new(Uuid::from_u128(7)),
            tenant: "demo".parse().unwrap(),
            event_type: "invoice.paid".to_owned(),
            schema_version: 1,
            aggregate_id: "in_1".to_owned(),
            aggregate_version: Some(3),
            payload: Payload::Inline(br#"{"n":9007199254740993}"#.to_vec()),
            occurred_at: Timestamp::from_millisecond(1_790_000_000_123).unwrap(),
            traceparent: None,
            labels: std::collections::BTreeMap::new(),
        }
    }

    /// INB-raw-bytes-kept
    #[test]
    fn an_event_reads_back_byte_by_byte() {
        let bucket = OutboxEvent {
            payload: Payload::Bucket(Sha256Hash([9; 32])),
            aggregate_version: None,
            traceparent: Some("00-1-2-01".to_owned()),
            labels: [("region".to_owned(), "eu \"x\"".to_owned())].into(),
            ..an_event()
        };
        assert_eq!(from_stream(&image(&bucket)).unwrap(), bucket);
        for event in [an_event(), bucket] {
            let row = read(&write(&event, 4)).unwrap();
            assert_eq!(row, OutboxRow { event, relayed: None });
        }
    }

    #[test]
    fn an_event_is_written_as_it_has_always_been() {
        insta::assert_snapshot!(show(&write(&an_event(), 4)));
    }

    #[test]
    fn a_relayed_event_says_to_whom() {
        let endpoint = EndpointId::new(Uuid::from_u128(9));
        let mut item = write(&an_event(), 4);
        item.insert("relay_state".to_owned(), s(DONE));
        item.insert("relayed_at".to_owned(), n(5));
        item.insert("endpoints".to_owned(), AttributeValue::L(vec![s(endpoint.to_string())]));
        let relayed = read(&item).unwrap().relayed.unwrap();
        assert_eq!(relayed.endpoints, [endpoint]);
    }

    #[test]
    fn endpoints_read_back_however_many_they_are() {
        for count in [0, 1, LISTED, LISTED + 1, 10_000] {
            let ids: Vec<_> =
                (0..count).map(|n| EndpointId::new(Uuid::from_u128(n as u128))).collect();
            let written = endpoints(&ids);
            assert_eq!(written.is_l(), count <= LISTED);
            let item = Item::from([("endpoints".to_owned(), written)]);
            assert_eq!(read_endpoints(&item).unwrap(), ids);
        }
        let odd = Item::from([("endpoints".to_owned(), b(vec![0; 17]))]);
        assert!(matches!(read_endpoints(&odd), Err(StoreError::Unreadable(_))));
    }

    fn image(event: &OutboxEvent) -> Value {
        let attribute = |of: &AttributeValue| match of {
            AttributeValue::S(text) => json!({ "S": text }),
            AttributeValue::N(number) => json!({ "N": number }),
            AttributeValue::B(blob) => json!({ "B": aws_smithy_types::base64::encode(blob) }),
            other => panic!("{other:?}"),
        };
        let item = write(event, 4);
        item.iter()
            .map(|(name, of)| (name.clone(), attribute(of)))
            .collect::<serde_json::Map<_, _>>()
            .into()
    }

    #[test]
    fn an_event_reads_back_from_the_stream() {
        assert_eq!(from_stream(&image(&an_event())).unwrap(), an_event());
        let mut extra = image(&an_event());
        extra["later"] = json!({ "M": { "x": { "BOOL": true } } });
        assert_eq!(from_stream(&extra).unwrap(), an_event());
    }

    /// OUT-poison-blocks-shard
    #[test]
    fn a_bad_stream_record_is_an_error_and_not_a_panic() {
        let mut wrong_type = image(&an_event());
        wrong_type["occurred_at"] = json!({ "S": "yesterday" });
        let mut bad_base64 = image(&an_event());
        bad_base64["payload"] = json!({ "B": "%%%" });
        let images =
            [json!(null), json!([]), json!({}), json!({ "pk": 1 }), wrong_type, bad_base64];
        for image in images {
            assert!(matches!(from_stream(&image), Err(StoreError::Unreadable(_))), "{image}");
        }
    }
}
