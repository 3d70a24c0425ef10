//! The health of an endpoint.

use domain::{
    endpoint::{Disabled, Health},
    id::{EndpointId, TenantId},
    ports::Stored,
};

use crate::{
    item::{Item, Reader, Writer, json, ms, n, s, word},
    keys,
};

pub(crate) fn write(tenant: &TenantId, endpoint: EndpointId, health: &Health) -> Stored<Item> {
    let disabled = health.disabled.as_ref();
    let failed = (!health.failed.is_empty()).then(|| json(&health.failed)).transpose()?;
    let owed = (!health.owed.is_empty()).then(|| json(&health.owed)).transpose()?;
    let item = Writer::new(keys::health(tenant, endpoint), "health")
        .put("version", n(health.version))
        .put("consecutive_failures", n(health.consecutive_failures))
        .put_some("failing_since", health.failing_since.map(ms))
        .put_some("disabled_since", disabled.map(|disabled| ms(disabled.since)))
        .put_some("disabled_reason", disabled.map(|disabled| s(&disabled.reason)))
        .put_some("failed", failed)
        .put_some("warned", health.warned.as_ref().map(word))
        .put_some("dead_on", health.dead_on.map(ms))
        .put_some("owed", owed)
        .done();
    Ok(item)
}

pub(crate) fn read(item: &Item) -> Stored<Health> {
    let item = Reader(item);
    let disabled = |item: Reader<'_>, name: &str| {
        let reason = item.str("disabled_reason")?.to_owned();
        Ok(Disabled { since: item.time(name)?, reason })
    };
    Ok(Health {
        // A row of before versions were counted has none.
        version: item.some("version", Reader::number)?.unwrap_or_default(),
        failing_since: item.some("failing_since", Reader::time)?,
        consecutive_failures: item.number("consecutive_failures")?,
        failed: item.some("failed", Reader::json)?.unwrap_or_default(),
        disabled: item.some("disabled_since", disabled)?,
        warned: item.some("warned", Reader::word)?,
        dead_on: item.some("dead_on", Reader::time)?,
        owed: item.some("owed", Reader::json)?.unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use domain::{
        endpoint::{Notice, What},
        id::EventId,
    };
    use jiff::Timestamp;
    use uuid::Uuid;

    use super::*;
    use crate::item::show;

    #[test]
    fn health_reads_back_and_is_written_as_it_has_always_been() {
        let at = Timestamp::from_millisecond(1_790_000_000_123).unwrap();
        let (tenant, endpoint) = ("demo".parse().unwrap(), EndpointId::new(Uuid::from_u128(9)));
        let disabled = Some(Disabled { since: at, reason: "gone".to_owned() });
        let notice = Notice { what: What::Disabled, since: at, reason: "gone".to_owned() };
        let bad = Health {
            version: 7,
            failing_since: Some(at),
            consecutive_failures: 12,
            failed: vec![EventId::new(Uuid::from_u128(1))],
            disabled,
            warned: Some(What::Failing),
            dead_on: Some(at),
            owed: vec![notice],
        };
        for health in [Health::default(), bad.clone()] {
            assert_eq!(read(&write(&tenant, endpoint, &health).unwrap()).unwrap(), health);
        }
        insta::assert_snapshot!(show(&write(&tenant, endpoint, &bad).unwrap()));
        // A row of before there was more to say.
        let mut old = write(&tenant, endpoint, &Health::default()).unwrap();
        old.remove("version");
        assert_eq!(read(&old).unwrap(), Health::default());
    }
}
