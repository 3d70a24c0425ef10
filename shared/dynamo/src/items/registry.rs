//! Configuration: sources, endpoints, sealed secrets, the audit. What is configured stands as one JSON document, for it
//! is only ever read and written as a whole.

use aws_sdk_dynamodb::types::AttributeValue;
use domain::{
    endpoint::{Endpoint, Gone},
    id::{EndpointId, SourceName, TenantId},
    ports::{AuditEntry, Purpose, SealedSecret, Stored},
    source::Source,
};

use crate::{
    item::{Item, Reader, Writer, b, json, ms, s},
    keys,
};

/// What a source waits for stands beside the document: a handshake's claim is conditional on it, and ends it.
pub(crate) fn write_source(source: &Source) -> Stored<Item> {
    let document = Source { awaits_secret_until: None, ..source.clone() };
    let item = Writer::new(keys::source(&source.name), "source")
        .put("source", json(&document)?)
        .put_some("awaits_until", source.awaits_secret_until.map(ms));
    Ok(item.done())
}

pub(crate) fn read_source(item: &Item) -> Stored<Source> {
    let item = Reader(item);
    let awaits_secret_until = item.some("awaits_until", Reader::time)?;
    Ok(Source { awaits_secret_until, ..item.json("source")? })
}

/// The entry of a source in the list of their names.
pub(crate) fn write_source_name(name: &SourceName) -> Item {
    Writer::new(keys::source_name(name), "source_name").done()
}

pub(crate) fn read_source_name(item: &Item) -> Stored<SourceName> {
    let item = Reader(item);
    keys::read_source_name(item.str("sk")?).ok_or_else(|| item.bad("sk"))
}

pub(crate) fn write_endpoint(endpoint: &Endpoint) -> Stored<Item> {
    let key = keys::endpoint(&endpoint.tenant, endpoint.id);
    Ok(Writer::new(key, "endpoint").put("endpoint", json(endpoint)?).done())
}

pub(crate) fn read_endpoint(item: &Item) -> Stored<Endpoint> {
    Reader(item).json("endpoint")
}

/// The entry of an endpoint's key.
pub(crate) fn write_endpoint_key(endpoint: &Endpoint, key: &str) -> Item {
    Writer::new(keys::endpoint_key(&endpoint.tenant, key), "endpoint_key")
        .put("endpoint", s(endpoint.id.to_string()))
        .done()
}

pub(crate) fn write_gone(gone: &Gone) -> Stored<Item> {
    let Gone { endpoint, deleted_at } = gone;
    let item = Writer::new(keys::gone(&endpoint.tenant, endpoint.id), "gone")
        .put("endpoint", json(endpoint)?)
        .put("deleted_at", ms(*deleted_at));
    Ok(item.done())
}

pub(crate) fn read_gone(item: &Item) -> Stored<Gone> {
    let item = Reader(item);
    Ok(Gone { endpoint: item.json("endpoint")?, deleted_at: item.time("deleted_at")? })
}

pub(crate) fn write_secrets(
    tenant: &TenantId,
    endpoint: EndpointId,
    secrets: &[SealedSecret],
) -> Item {
    let secret = |secret: &SealedSecret| {
        let fields = [("id", Some(s(&secret.id))), ("sealed", Some(b(secret.sealed.as_slice())))];
        let expires = ("expires_at", secret.expires_at.map(ms));
        let is_other = secret.purpose != Purpose::Signing;
        let purpose = ("purpose", is_other.then(|| s(secret.purpose.word())));
        let fields = fields.into_iter().chain([expires, purpose]);
        AttributeValue::M(
            fields.filter_map(|(name, value)| Some((name.to_owned(), value?))).collect(),
        )
    };
    Writer::new(keys::secrets(tenant, endpoint), "secrets")
        .put("secrets", AttributeValue::L(secrets.iter().map(secret).collect()))
        .done()
}

pub(crate) fn read_secrets(item: &Item) -> Stored<Vec<SealedSecret>> {
    let item = Reader(item);
    let secret = |value: &AttributeValue| {
        let secret = Reader(value.as_m().map_err(|_| item.bad("secrets"))?);
        Ok(SealedSecret {
            id: secret.str("id")?.to_owned(),
            purpose: purpose(&secret)?,
            sealed: secret.bytes("sealed")?.to_vec(),
            expires_at: secret.some("expires_at", Reader::time)?,
        })
    };
    item.list("secrets")?.iter().map(secret).collect()
}

fn purpose(secret: &Reader<'_>) -> Stored<Purpose> {
    match secret.some("purpose", Reader::str)? {
        None => Ok(Purpose::Signing),
        Some(word) => Purpose::from_word(word).ok_or_else(|| secret.bad("purpose")),
    }
}

pub(crate) fn write_audit(entry: &AuditEntry) -> Item {
    Writer::new(keys::audit(entry), "audit")
        .put("at", ms(entry.at))
        .put("actor", s(&entry.actor))
        .put("action", s(&entry.action))
        .put("subject", s(&entry.subject))
        .done()
}

#[cfg(test)]
mod tests {
    use domain::{
        destination::Destination,
        endpoint::LaneCount,
        source::{Dedupe, Handler, SchemeChoice},
    };
    use jiff::Timestamp;
    use uuid::Uuid;

    use super::*;
    use crate::item::show;

    #[test]
    fn configuration_reads_back_and_is_written_as_it_has_always_been() {
        let at = Timestamp::from_millisecond(1_790_000_000_123).unwrap();
        let tenant: TenantId = "demo".parse().unwrap();
        let source = Source {
            dedupe: Dedupe::Content,
            same_as: Some("other".parse().unwrap()),
            awaits_secret_until: Some(at),
            config: [("url".to_owned(), "https://hooks.example/in".to_owned())].into(),
            only: [("/livemode".to_owned(), true.into())].into(),
            ..Source::new(
                "stripe".parse().unwrap(),
                SchemeChoice::Preset("stripe".to_owned()),
                Handler::Mirror { emit_to: Some(tenant.clone()), states: None },
                at,
            )
        };
        let plain = Source {
            dedupe: Dedupe::Id,
            same_as: None,
            awaits_secret_until: None,
            config: std::collections::BTreeMap::new(),
            only: std::collections::BTreeMap::new(),
            ..source.clone()
        };
        let endpoint = Endpoint {
            patterns: vec!["invoice.*".parse().unwrap()],
            concurrency: Some(5),
            lanes: vec![LaneCount { from: at, count: 2 }],
            ..Endpoint::new(
                tenant.clone(),
                EndpointId::new(Uuid::from_u128(9)),
                Destination::Https("https://example.com/in".to_owned()),
                at,
            )
        };
        let secrets = vec![
            SealedSecret {
                id: "k2".to_owned(),
                purpose: Purpose::Signing,
                sealed: vec![1, 2],
                expires_at: None,
            },
            SealedSecret {
                id: "k1".to_owned(),
                purpose: Purpose::Signing,
                sealed: vec![3],
                expires_at: Some(at),
            },
        ];
        let entry = AuditEntry {
            tenant: "demo".to_owned(),
            at,
            actor: "arn:aws:iam::1:user/me".to_owned(),
            action: "endpoint.create".to_owned(),
            subject: endpoint.id.to_string(),
        };
        let items = [
            write_source(&plain).unwrap(),
            write_source_name(&source.name),
            write_endpoint(&endpoint).unwrap(),
            write_secrets(&tenant, endpoint.id, &secrets),
            write_audit(&entry),
            write_endpoint_key(&endpoint, "shop-7"),
            write_gone(&Gone { endpoint: endpoint.clone(), deleted_at: at }).unwrap(),
        ];
        let gone = Gone { endpoint: endpoint.clone(), deleted_at: at };
        assert_eq!(read_gone(&items[6]).unwrap(), gone);
        assert_eq!(read_source(&items[0]).unwrap(), plain);
        assert_eq!(read_source(&write_source(&source).unwrap()).unwrap(), source);
        insta::assert_snapshot!("waiting", show(&write_source(&source).unwrap()));
        assert_eq!(read_source_name(&items[1]).unwrap(), source.name);
        assert_eq!(read_endpoint(&items[2]).unwrap(), endpoint);
        assert_eq!(read_secrets(&items[3]).unwrap(), secrets);
        insta::assert_snapshot!(items.iter().map(show).collect::<Vec<_>>().join("\n\n"));
    }
}
