//! The health of an endpoint.

use domain::{
    endpoint::{Disabled, Health},
    id::{EndpointId, TenantId},
    ports::Stored,
};

use crate::{
    item::{Item, Reader, Writer, ms, n, s},
    keys,
};

pub(crate) fn write(tenant: &TenantId, endpoint: EndpointId, health: &Health) -> Item {
    let disabled = health.disabled.as_ref();
    Writer::new(keys::health(tenant, endpoint), "health")
        .put("consecutive_failures", n(health.consecutive_failures))
        .put_some("failing_since", health.failing_since.map(ms))
        .put_some("disabled_since", disabled.map(|disabled| ms(disabled.since)))
        .put_some("disabled_reason", disabled.map(|disabled| s(&disabled.reason)))
        .done()
}

pub(crate) fn read(item: &Item) -> Stored<Health> {
    let item = Reader(item);
    let disabled = |item: Reader<'_>, name: &str| {
        let reason = item.str("disabled_reason")?.to_owned();
        Ok(Disabled { since: item.time(name)?, reason })
    };
    Ok(Health {
        failing_since: item.some("failing_since", Reader::time)?,
        consecutive_failures: item.number("consecutive_failures")?,
        disabled: item.some("disabled_since", disabled)?,
    })
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use uuid::Uuid;

    use super::*;
    use crate::item::show;

    #[test]
    fn health_reads_back_and_is_written_as_it_has_always_been() {
        let at = Timestamp::from_millisecond(1_790_000_000_123).unwrap();
        let (tenant, endpoint) = ("demo".parse().unwrap(), EndpointId::new(Uuid::from_u128(9)));
        let disabled = Some(Disabled { since: at, reason: "gone".to_owned() });
        let bad = Health { failing_since: Some(at), consecutive_failures: 12, disabled };
        for health in [Health::default(), bad.clone()] {
            assert_eq!(read(&write(&tenant, endpoint, &health)).unwrap(), health);
        }
        insta::assert_snapshot!(show(&write(&tenant, endpoint, &bad)));
    }
}
