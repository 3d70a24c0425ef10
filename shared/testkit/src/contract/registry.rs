//! The rules of [`domain::ports::Registry`] and [`domain::ports::Configure`].

use domain::{
    destination::Destination,
    endpoint::{Endpoint, Gone, LaneCount},
    id::{EndpointId, TenantId},
    ports::{
        AuditEntry, Configure as _, Learning as _, Purpose, Registry as _, SealedSecret,
        WithSecrets,
    },
    source::{Dedupe, Handler, SchemeChoice, Source},
};
use serde_json::json;
use uuid::Uuid;

use super::{Kept, Tables, given::at, rules};

/// Runs the rules of [`domain::ports::Registry`] and [`domain::ports::Configure`], each on fresh tables.
pub async fn registry<T: Tables>(fresh: impl AsyncFn() -> T) {
    rules!(fresh:
        a_source_is_put_once_and_reads_back,
        a_source_is_replaced_only_as_it_was_read,
        all_sources_are_listed,
        an_endpoint_is_put_once_with_its_secrets,
        a_tenants_endpoints_are_its_own,
        every_change_of_endpoints_counts_the_epoch_up,
        an_endpoint_and_its_secrets_are_replaced_only_as_they_were_read,
        of_many_replacements_at_once_one_is_had,
        an_endpoint_without_an_item_of_secrets_gets_one,
        a_key_is_had_by_one_endpoint_until_it_is_deleted,
        a_deleted_endpoint_leaves_a_tombstone_and_no_secret,
        who_did_what_is_written_down,
        a_source_is_claimed_by_one_as_long_as_it_waits,
        a_claim_ends_by_itself_and_only_its_owner_ends_the_waiting,
        of_many_claims_at_once_one_is_had,
    );
}

fn source(name: &str) -> Source {
    let scheme = SchemeChoice::Own(json!({ "header": "x-signature", "tolerance": 300 }));
    let handler = Handler::Forward { tenant: demo(), types: vec!["invoice.*".parse().unwrap()] };
    Source {
        dedupe: Dedupe::Content,
        same_as: Some("other".parse().unwrap()),
        awaits_secret_until: Some(at(600)),
        config: [("url".to_owned(), "https://hooks.example/in".to_owned())].into(),
        only: [("/livemode".to_owned(), json!(true))].into(),
        ..Source::new(name.parse().unwrap(), scheme, handler, at(0))
    }
}

fn demo() -> TenantId {
    "demo".parse().unwrap()
}

fn endpoint(tenant: &str, number: u128) -> Endpoint {
    Endpoint {
        patterns: vec!["invoice.*".parse().unwrap()],
        concurrency: Some(2),
        lanes: vec![LaneCount { from: at(0), count: 4 }],
        ..Endpoint::new(
            tenant.parse().unwrap(),
            EndpointId::new(Uuid::from_u128(number)),
            Destination::Https("https://example.com/in?a=1".to_owned()),
            at(0),
        )
    }
}

fn secrets() -> Vec<SealedSecret> {
    vec![
        SealedSecret {
            id: "new".to_owned(),
            purpose: Purpose::Signing,
            sealed: vec![0, 255, 1],
            expires_at: None,
        },
        SealedSecret {
            id: "old".to_owned(),
            purpose: Purpose::Signing,
            sealed: vec![7; 300],
            expires_at: Some(at(86_400)),
        },
    ]
}

async fn a_source_is_put_once_and_reads_back(on: &impl Tables) -> Kept {
    let (registry, first) = (on.registry(), source("stripe"));
    assert_eq!(registry.source(&first.name).await?, None);
    assert!(registry.add_source(&first).await?);
    let second = Source {
        scheme: SchemeChoice::Preset("stripe".to_owned()),
        handler: Handler::Mirror { emit_to: None, states: None },
        ..first.clone()
    };
    assert!(!registry.add_source(&second).await?);
    assert_eq!(registry.source(&first.name).await?, Some(first));
    Ok(())
}

async fn a_source_is_replaced_only_as_it_was_read(on: &impl Tables) -> Kept {
    let (registry, old) = (on.registry(), source("stripe"));
    let new = Source {
        handler: Handler::Mirror { emit_to: None, states: None },
        dedupe: Dedupe::Id,
        same_as: None,
        ..old.clone()
    };
    assert!(!registry.replace_source(&old, &new).await?);
    assert_eq!(registry.source(&old.name).await?, None);
    assert!(registry.add_source(&old).await?);
    assert!(registry.replace_source(&old, &new).await?);
    assert_eq!(registry.source(&old.name).await?, Some(new.clone()));
    // Somebody else was quicker.
    let late = Source { dedupe: Dedupe::Id, ..old.clone() };
    assert!(!registry.replace_source(&old, &late).await?);
    // A handshake's claim stays, and so does what it ended.
    assert!(registry.claim_secret(&old.name, "a", at(1), at(60)).await?);
    let renamed = Source { config: std::collections::BTreeMap::new(), ..new.clone() };
    assert!(registry.replace_source(&new, &renamed).await?);
    assert!(registry.learned(&old.name, "a").await?);
    assert!(!registry.replace_source(&renamed, &new).await?);
    let learned = Source { awaits_secret_until: None, ..renamed };
    assert_eq!(registry.source(&old.name).await?, Some(learned.clone()));
    let waits = Source { awaits_secret_until: Some(at(900)), ..learned.clone() };
    assert!(registry.replace_source(&learned, &waits).await?);
    assert_eq!(registry.source(&old.name).await?, Some(waits.clone()));
    assert!(registry.replace_source(&waits, &learned).await?);
    assert_eq!(registry.source(&old.name).await?, Some(learned));
    Ok(())
}

async fn all_sources_are_listed(on: &impl Tables) -> Kept {
    assert!(on.registry().sources().await?.is_empty());
    let names = ["stripe", "github", "stripe-eu"];
    for name in names {
        assert!(on.registry().add_source(&source(name)).await?);
    }
    assert!(!on.registry().add_source(&source("stripe")).await?);
    let mut listed = on.registry().sources().await?;
    listed.sort_by(|a, b| a.name.cmp(&b.name));
    assert_eq!(listed, [source("github"), source("stripe"), source("stripe-eu")]);
    Ok(())
}

async fn an_endpoint_is_put_once_with_its_secrets(on: &impl Tables) -> Kept {
    let (registry, first) = (on.registry(), endpoint("demo", 1));
    assert_eq!(registry.endpoint(&demo(), first.id).await?, None);
    assert!(registry.add_endpoint(&first, &secrets()).await?);
    let second = Endpoint {
        destination: Destination::Https("https://example.org".to_owned()),
        ..first.clone()
    };
    assert!(!registry.add_endpoint(&second, &[]).await?);
    assert_eq!(registry.endpoint(&demo(), first.id).await?, Some((first.clone(), secrets())));
    assert_eq!(registry.endpoint(&"other".parse().unwrap(), first.id).await?, None);
    let bare = endpoint("demo", 2);
    assert!(registry.add_endpoint(&bare, &[]).await?);
    assert_eq!(registry.endpoint(&demo(), bare.id).await?, Some((bare, Vec::new())));
    Ok(())
}

async fn a_tenants_endpoints_are_its_own(on: &impl Tables) -> Kept {
    let registry = on.registry();
    let mut put = Vec::new();
    for number in 0..30 {
        // Many and large: more than one page of a table.
        let patterns = (0..200).map(|n| format!("{n}.{}", "x".repeat(200)).parse().unwrap());
        let endpoint = Endpoint { patterns: patterns.collect(), ..endpoint("demo", number) };
        assert!(registry.add_endpoint(&endpoint, &secrets()).await?);
        put.push(endpoint);
    }
    assert!(registry.add_endpoint(&endpoint("demo-2", 99), &[]).await?);
    let mut listed = registry.endpoints(&demo()).await?;
    listed.sort_by_key(|endpoint| endpoint.id);
    assert!(listed == put, "{} of {}", listed.len(), put.len());
    assert_eq!(registry.endpoints(&"demo-2".parse().unwrap()).await?, [endpoint("demo-2", 99)]);
    assert!(registry.endpoints(&"nobody".parse().unwrap()).await?.is_empty());
    Ok(())
}

async fn every_change_of_endpoints_counts_the_epoch_up(on: &impl Tables) -> Kept {
    let (registry, first) = (on.registry(), endpoint("demo", 1));
    let start = registry.endpoints_epoch(&demo()).await?;
    let (old, rated) = (with(&first, &[]), with(&Endpoint { rate: Some(1), ..first.clone() }, &[]));
    assert!(!registry.replace_endpoint(&old, &rated).await?);
    assert!(!registry.remove_endpoint(&first, at(9)).await?);
    assert_eq!(registry.endpoints_epoch(&demo()).await?, start);
    assert!(registry.add_endpoint(&first, &[]).await?);
    assert_eq!(registry.endpoints_epoch(&demo()).await?, start + 1);
    assert!(!registry.add_endpoint(&first, &[]).await?);
    assert_eq!(registry.endpoints_epoch(&demo()).await?, start + 1);
    assert!(registry.replace_endpoint(&old, &rated).await?);
    assert_eq!(registry.endpoints_epoch(&demo()).await?, start + 2);
    assert!(!registry.replace_endpoint(&old, &rated).await?);
    assert!(registry.add_endpoint(&endpoint("other", 1), &[]).await?);
    assert_eq!(registry.endpoints_epoch(&demo()).await?, start + 2);
    assert!(registry.remove_endpoint(&rated.0, at(9)).await?);
    assert_eq!(registry.endpoints_epoch(&demo()).await?, start + 3);
    Ok(())
}

/// What is left of [`secrets`] when the old one is over.
fn one_secret() -> Vec<SealedSecret> {
    secrets().into_iter().take(1).collect()
}

fn with(endpoint: &Endpoint, secrets: &[SealedSecret]) -> WithSecrets {
    (endpoint.clone(), secrets.to_vec())
}

async fn an_endpoint_and_its_secrets_are_replaced_only_as_they_were_read(on: &impl Tables) -> Kept {
    let (registry, first) = (on.registry(), endpoint("demo", 1));
    assert!(registry.add_endpoint(&first, &secrets()).await?);
    let old = with(&first, &secrets());
    let changed = Endpoint { rate: Some(7), patterns: Vec::new(), ..first.clone() };
    let new = with(&changed, &one_secret());
    assert!(registry.replace_endpoint(&old, &new).await?);
    assert_eq!(registry.endpoint(&demo(), first.id).await?, Some(new.clone()));
    assert_eq!(registry.endpoints(&demo()).await?, std::slice::from_ref(&changed));
    // Somebody has changed the one or the other since.
    for other in [with(&first, &one_secret()), with(&changed, &secrets())] {
        let late = with(&Endpoint { rate: Some(8), ..first.clone() }, &[]);
        assert!(!registry.replace_endpoint(&other, &late).await?);
        assert_eq!(registry.endpoint(&demo(), first.id).await?, Some(new.clone()));
    }
    let absent = with(&endpoint("demo", 2), &secrets());
    assert!(!registry.replace_endpoint(&absent, &absent).await?);
    assert_eq!(registry.endpoint(&demo(), absent.0.id).await?, None);
    Ok(())
}

/// Two who rotate at once must not lose the secret of the one who was told of it first.
async fn of_many_replacements_at_once_one_is_had(on: &impl Tables) -> Kept {
    let (registry, first) = (on.registry(), endpoint("demo", 1));
    assert!(registry.add_endpoint(&first, &secrets()).await?);
    let old = with(&first, &secrets());
    let new = |n: u8| {
        let rotated = SealedSecret {
            id: n.to_string(),
            purpose: Purpose::Signing,
            sealed: vec![n],
            expires_at: None,
        };
        with(&first, &[secrets(), vec![rotated]].concat())
    };
    let all: Vec<_> = (0..12).map(new).collect();
    let tries = all.iter().map(|new| registry.replace_endpoint(&old, new));
    // A store that is asked by many at once may say that it is busy; what it says is done is.
    let done = futures_util::future::join_all(tries).await;
    let won = all.iter().zip(done).filter(|(_, done)| matches!(done, Ok(true)));
    let won: Vec<_> = won.map(|(new, _)| new.clone()).collect();
    let stands: Vec<_> = registry.endpoint(&demo(), first.id).await?.into_iter().collect();
    assert!(won.len() == 1 && won == stands, "{} replacements", won.len());
    Ok(())
}

async fn an_endpoint_without_an_item_of_secrets_gets_one(on: &impl Tables) -> Kept {
    let (registry, bare) = (on.registry(), endpoint("demo", 1));
    assert!(registry.add_endpoint(&bare, &[]).await?);
    let sealed = with(&bare, &secrets());
    assert!(registry.replace_endpoint(&with(&bare, &[]), &sealed).await?);
    assert_eq!(registry.endpoint(&demo(), bare.id).await?, Some(sealed.clone()));
    assert!(registry.replace_endpoint(&sealed, &with(&bare, &[])).await?);
    assert_eq!(registry.endpoint(&demo(), bare.id).await?, Some(with(&bare, &[])));
    Ok(())
}

async fn a_key_is_had_by_one_endpoint_until_it_is_deleted(on: &impl Tables) -> Kept {
    let registry = on.registry();
    let keyed = |tenant: &str, number: u128| Endpoint {
        key: Some("shop#7".to_owned()),
        ..endpoint(tenant, number)
    };
    assert!(registry.add_endpoint(&keyed("demo", 1), &[]).await?);
    assert!(!registry.add_endpoint(&keyed("demo", 2), &[]).await?);
    assert_eq!(registry.endpoint(&demo(), keyed("demo", 2).id).await?, None);
    assert!(registry.add_endpoint(&keyed("other", 2), &[]).await?, "of another tenant");
    assert!(registry.add_endpoint(&endpoint("demo", 3), &[]).await?);
    assert!(registry.add_endpoint(&endpoint("demo", 4), &[]).await?, "no key is no key");
    assert!(registry.remove_endpoint(&keyed("demo", 1), at(9)).await?);
    assert!(registry.add_endpoint(&keyed("demo", 2), &[]).await?);
    Ok(())
}

async fn a_deleted_endpoint_leaves_a_tombstone_and_no_secret(on: &impl Tables) -> Kept {
    let (registry, first, other) = (on.registry(), endpoint("demo", 1), endpoint("demo", 2));
    for endpoint in [&first, &other] {
        assert!(registry.add_endpoint(endpoint, &secrets()).await?);
    }
    let changed = Endpoint { rate: Some(7), ..first.clone() };
    assert!(!registry.remove_endpoint(&changed, at(9)).await?, "not as it was read");
    assert!(registry.gone(&demo(), &[first.id]).await?.is_empty());
    assert!(registry.remove_endpoint(&first, at(9)).await?);
    assert!(!registry.remove_endpoint(&first, at(10)).await?);
    assert_eq!(registry.endpoint(&demo(), first.id).await?, None);
    assert_eq!(registry.endpoints(&demo()).await?, std::slice::from_ref(&other));
    let old = with(&first, &secrets());
    assert!(!registry.replace_endpoint(&old, &old).await?, "what is gone does not come back");
    let gone = Gone { endpoint: first.clone(), deleted_at: at(9) };
    let found = registry.gone(&demo(), &[other.id, first.id, first.id]).await?;
    assert_eq!(found, [gone]);
    assert!(registry.gone(&"other".parse().unwrap(), &[first.id]).await?.is_empty());
    assert!(registry.gone(&demo(), &[]).await?.is_empty());
    Ok(())
}

async fn who_did_what_is_written_down(on: &impl Tables) -> Kept {
    for (tenant, action) in [("demo", "endpoint.create"), ("-", "source.create")] {
        let entry = AuditEntry {
            tenant: tenant.to_owned(),
            at: at(0),
            actor: "arn:aws:iam::000000000000:user/me".to_owned(),
            action: action.to_owned(),
            subject: "it".to_owned(),
        };
        on.registry().audit(&entry).await?;
        // Two things of one moment, and one thing written twice.
        on.registry().audit(&AuditEntry { subject: "other".to_owned(), ..entry.clone() }).await?;
        on.registry().audit(&entry).await?;
    }
    Ok(())
}

async fn a_source_is_claimed_by_one_as_long_as_it_waits(on: &impl Tables) -> Kept {
    let (registry, waiting) = (on.registry(), source("waiting"));
    let settled = Source { awaits_secret_until: None, ..source("settled") };
    for source in [&waiting, &settled] {
        registry.add_source(source).await?;
    }
    let claim = async |source: &Source, owner: &str, now| {
        registry.claim_secret(&source.name, owner, at(now), at(now + 30)).await
    };
    assert!(!claim(&settled, "me", 0).await?);
    assert!(!claim(&source("nobody"), "me", 0).await?);
    assert!(registry.source(&source("nobody").name).await?.is_none(), "a claim makes no source");
    assert!(claim(&waiting, "me", 0).await?);
    assert!(claim(&waiting, "me", 1).await?, "our own is had again: its answer was lost");
    assert!(!claim(&waiting, "they", 30).await?);
    assert!(!claim(&waiting, "they", 600).await?, "nobody waits any more");
    Ok(())
}

/// A death between the claim and the secret must not lock the source for ever.
async fn a_claim_ends_by_itself_and_only_its_owner_ends_the_waiting(on: &impl Tables) -> Kept {
    let (registry, waiting) = (on.registry(), source("waiting"));
    registry.add_source(&waiting).await?;
    assert!(!registry.learned(&waiting.name, "me").await?);
    assert!(registry.claim_secret(&waiting.name, "me", at(0), at(30)).await?);
    assert!(registry.claim_secret(&waiting.name, "they", at(30), at(60)).await?);
    assert!(!registry.learned(&waiting.name, "me").await?);
    assert_eq!(registry.source(&waiting.name).await?, Some(waiting.clone()));
    assert!(registry.learned(&waiting.name, "they").await?);
    let settled = Source { awaits_secret_until: None, ..waiting.clone() };
    assert_eq!(registry.source(&waiting.name).await?, Some(settled));
    assert!(!registry.claim_secret(&waiting.name, "me", at(100), at(130)).await?);
    Ok(())
}

async fn of_many_claims_at_once_one_is_had(on: &impl Tables) -> Kept {
    let (registry, waiting) = (on.registry(), source("waiting"));
    registry.add_source(&waiting).await?;
    let owners: Vec<_> = (0..16).map(|n| format!("o{n}")).collect();
    let claims =
        owners.iter().map(|owner| registry.claim_secret(&waiting.name, owner, at(0), at(30)));
    let claims = futures_util::future::try_join_all(claims).await?;
    assert_eq!(claims.into_iter().filter(|had| *had).count(), 1);
    Ok(())
}
