//! The rules of an endpoint's health.

use domain::{
    endpoint::{Disabled, Health, Notice, What},
    id::EndpointId,
    inbox::Noted,
    ports::Deliveries as _,
};
use futures_util::future::join_all;
use uuid::Uuid;

use super::{
    Kept, Tables,
    given::{at, event_id},
};

pub(super) async fn health_is_as_it_was_noted(on: &impl Tables) -> Kept {
    let (tenant, endpoint) = ("demo".parse().unwrap(), EndpointId::new(Uuid::from_u128(9)));
    let lanes = on.lanes();
    assert_eq!(lanes.health(&tenant, endpoint).await?, Health::default());
    let disabled = Some(Disabled { since: at(9), reason: "gone".to_owned() });
    let notice = |what| Notice { what, since: at(9), reason: "gone".to_owned() };
    let gone = Health {
        version: 2,
        failing_since: Some(at(1)),
        consecutive_failures: 12,
        failed: (0..10).map(|n| event_id(0, n)).collect(),
        disabled,
        warned: Some(What::FailingLong),
        dead_on: Some(at(0)),
        owed: vec![notice(What::Disabled), notice(What::Dead)],
    };
    let failing = Health { version: 1, failing_since: Some(at(1)), ..Health::default() };
    for health in [failing, gone, Health { version: 3, ..Health::default() }] {
        assert_eq!(lanes.note_health(&tenant, endpoint, &health).await?, Noted::Yes);
        assert_eq!(lanes.health(&tenant, endpoint).await?, health);
    }
    let other = EndpointId::new(Uuid::from_u128(10));
    assert_eq!(lanes.health(&tenant, other).await?, Health::default());
    Ok(())
}

/// Two lanes of one endpoint learn of it at once.
pub(super) async fn of_two_who_note_health_the_second_looks_again(on: &impl Tables) -> Kept {
    let (tenant, endpoint) = ("demo".parse().unwrap(), EndpointId::new(Uuid::from_u128(9)));
    let lanes = on.lanes();
    let version =
        |version, failures| Health { version, consecutive_failures: failures, ..Health::default() };
    for (health, expected) in [
        (version(2, 1), Noted::Moved),
        (version(1, 2), Noted::Yes),
        (version(1, 3), Noted::Moved),
        (version(3, 4), Noted::Moved),
        (version(2, 5), Noted::Yes),
    ] {
        assert_eq!(lanes.note_health(&tenant, endpoint, &health).await?, expected, "{health:?}");
    }
    assert_eq!(lanes.health(&tenant, endpoint).await?, version(2, 5));
    let many: Vec<_> = (0..16).map(|n| version(3, n)).collect();
    let noted = many.iter().map(|health| lanes.note_health(&tenant, endpoint, health));
    let mut yes = 0;
    for noted in join_all(noted).await {
        yes += u32::from(noted? == Noted::Yes);
    }
    assert_eq!(yes, 1);
    Ok(())
}
