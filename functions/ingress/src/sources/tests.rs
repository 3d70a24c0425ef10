//! How long a source is believed, and what happens when it cannot be asked for.

use domain::{
    ports::SourceSecret,
    secret::SecretText,
    source::{Handler, SchemeChoice},
};
use testkit::{
    chaos::{Fault, When},
    memory::{MemorySecrets, Store},
};

use super::*;

const FRESH: Duration = Duration::from_mins(5);
const STALE: Duration = Duration::from_mins(60);

struct World {
    store: Store,
    secrets: MemorySecrets,
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_760_000_000 + second).unwrap()
}

fn name(text: &str) -> SourceName {
    text.parse().unwrap()
}

fn secret(id: &str, text: &str, expires_at: Option<Timestamp>) -> SourceSecret {
    SourceSecret { id: id.to_owned(), text: SecretText::new(text.to_owned()), expires_at }
}

impl World {
    fn new(scheme: SchemeChoice) -> Self {
        let (store, secrets) = (Store::default(), MemorySecrets::default());
        let handler = Handler::Mirror { emit_to: None, states: None };
        let source = Source::new(name("hub"), scheme, handler, at(0));
        store.tables().sources.insert(name("hub"), source);
        secrets.set(&name("hub"), vec![secret("k1", "field-secret-1", None)]);
        Self { store, secrets }
    }

    fn github() -> Self {
        Self::new(SchemeChoice::Preset("github".to_owned()))
    }

    fn sources(&self) -> Sources<'_, Store, MemorySecrets, Store> {
        Sources::new(&self.store, &self.secrets, &self.store, FRESH, STALE)
    }

    fn reads(&self) -> (usize, usize) {
        (self.store.chaos.calls().len(), self.secrets.chaos.calls().len())
    }

    /// The registry is away from now on, and its calls are counted from 0.
    fn goes_away(&self) {
        self.store.chaos.set(|_, _| Some((When::Before, Fault::Unavailable)));
    }
}

fn key_ids(feed: &Feed, now: Timestamp) -> Vec<String> {
    feed.keys(now).iter().map(|key| key.id().as_str().to_owned()).collect()
}

#[tokio::test]
async fn a_source_is_read_once_while_it_is_fresh() {
    let world = World::github();
    let sources = world.sources();
    for second in [0, 1, 299] {
        let feed = sources.find(&name("hub"), at(second)).await.unwrap().unwrap();
        assert_eq!(key_ids(&feed, at(second)), ["k1"]);
    }
    assert_eq!(world.reads(), (1, 1));
    sources.find(&name("hub"), at(300)).await.unwrap().unwrap();
    assert_eq!(world.reads(), (2, 2));
}

#[tokio::test]
async fn a_source_that_cannot_be_read_again_is_believed_for_an_hour() {
    let world = World::github();
    let sources = world.sources();
    sources.find(&name("hub"), at(0)).await.unwrap().unwrap();
    world.goes_away();
    assert!(sources.find(&name("hub"), at(300)).await.unwrap().is_some());
    assert!(sources.find(&name("hub"), at(3599)).await.unwrap().is_some());
    let error = sources.find(&name("hub"), at(3600)).await.unwrap_err();
    assert!(matches!(error, SourceError::Registry(_)) && error.is_transient());
    world.store.chaos.heal();
    assert!(sources.find(&name("hub"), at(3601)).await.unwrap().is_some());
}

#[tokio::test]
async fn an_outage_costs_one_try_in_ten_seconds() {
    let world = World::github();
    let sources = world.sources();
    sources.find(&name("hub"), at(0)).await.unwrap().unwrap();
    world.goes_away();
    for second in 300..330 {
        assert!(sources.find(&name("hub"), at(second)).await.unwrap().is_some());
    }
    assert_eq!(world.reads().0, 3);
}

#[tokio::test]
async fn a_source_that_was_never_read_cannot_be_used_while_anything_is_away() {
    let world = World::github();
    world.goes_away();
    assert!(matches!(
        world.sources().find(&name("hub"), at(0)).await,
        Err(SourceError::Registry(_))
    ));
    world.store.chaos.heal();
    world.secrets.chaos.on("secrets.of", When::Before, Fault::Throttled);
    let error = world.sources().find(&name("hub"), at(0)).await.unwrap_err();
    assert!(matches!(error, SourceError::Secrets(_)) && error.is_transient());
    world.secrets.chaos.on("secrets.of", When::Before, Fault::Refused);
    assert!(!world.sources().find(&name("hub"), at(0)).await.unwrap_err().is_transient());
}

#[tokio::test]
async fn an_unknown_name_is_remembered_for_half_a_minute() {
    let world = World::github();
    let sources = world.sources();
    for second in [0, 1, 29] {
        assert!(sources.find(&name("new"), at(second)).await.unwrap().is_none());
    }
    assert_eq!(world.reads(), (1, 0));
    let source = world.store.tables().sources[&name("hub")].clone();
    world.store.tables().sources.insert(name("new"), Source { name: name("new"), ..source });
    assert!(sources.find(&name("new"), at(30)).await.unwrap().is_some());
}

/// A few made-up names a second must not shut out the sources that a new sandbox has not met yet.
#[tokio::test]
async fn a_flood_of_made_up_names_shuts_nobody_out_and_fills_no_memory() {
    let world = World::github();
    let sources = world.sources();
    for n in 0..1000 {
        assert!(sources.find(&name(&format!("made-up-{n}")), at(0)).await.unwrap().is_none());
    }
    assert!(sources.find(&name("hub"), at(0)).await.unwrap().is_some());
    assert_eq!(sources.kept().unknown.len(), MAX_UNKNOWN);
    let (reads, _) = world.reads();
    let again = (0..1000).rev().map(|n| name(&format!("made-up-{n}")));
    let kept: Vec<_> = again.filter(|name| sources.kept().unknown.contains_key(name)).collect();
    for name in kept {
        assert!(sources.find(&name, at(1)).await.unwrap().is_none());
    }
    assert_eq!(world.reads().0, reads, "what is remembered is not read again");
}

#[tokio::test]
async fn a_source_that_was_removed_is_unknown_after_the_next_look() {
    let world = World::github();
    let sources = world.sources();
    assert!(sources.find(&name("hub"), at(0)).await.unwrap().is_some());
    world.store.tables().sources.clear();
    assert!(sources.find(&name("hub"), at(299)).await.unwrap().is_some());
    assert!(sources.find(&name("hub"), at(300)).await.unwrap().is_none());
}

#[tokio::test]
async fn secrets_are_looked_for_again_once_a_minute_at_most() {
    let world = World::github();
    let sources = world.sources();
    assert!(sources.refresh(&name("hub"), at(0)).await.is_none(), "never read");
    sources.find(&name("hub"), at(0)).await.unwrap().unwrap();
    world.secrets.set(&name("hub"), vec![secret("k2", "field-secret-2", None)]);
    for second in 0..60 {
        assert!(sources.refresh(&name("hub"), at(second)).await.is_none());
    }
    let feed = sources.refresh(&name("hub"), at(60)).await.unwrap();
    assert_eq!(key_ids(&feed, at(60)), ["k2"]);
    assert!(sources.refresh(&name("hub"), at(61)).await.is_none());
    world.goes_away();
    assert!(sources.refresh(&name("hub"), at(121)).await.is_none());
    assert!(sources.refresh(&name("hub"), at(122)).await.is_none());
    assert_eq!(world.reads().0, 1, "a failed look counts as well");
}

#[tokio::test]
async fn a_secret_that_has_ended_no_longer_counts_though_it_is_kept() {
    let world = World::github();
    let both =
        vec![secret("new", "field-secret-2", None), secret("old", "field-secret-1", Some(at(100)))];
    world.secrets.set(&name("hub"), both);
    let feed = world.sources().find(&name("hub"), at(0)).await.unwrap().unwrap();
    assert_eq!(key_ids(&feed, at(99)), ["new", "old"]);
    assert_eq!(key_ids(&feed, at(100)), ["new"]);
}

#[tokio::test]
async fn a_secret_that_cannot_be_one_does_not_cost_the_others() {
    let world = World::new(SchemeChoice::Preset("standard_webhooks".to_owned()));
    let good = "whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=";
    world
        .secrets
        .set(&name("hub"), vec![secret("bad", "whsec_!!", None), secret("good", good, None)]);
    let feed = world.sources().find(&name("hub"), at(0)).await.unwrap().unwrap();
    assert_eq!(key_ids(&feed, at(0)), ["good"]);
}

#[tokio::test]
async fn a_scheme_that_is_none_is_broken_until_somebody_looks() {
    let preset = World::new(SchemeChoice::Preset("nobody".to_owned()));
    let error = preset.sources().find(&name("hub"), at(0)).await.unwrap_err();
    assert!(matches!(error, SourceError::Scheme(NoScheme::Unknown(_))) && !error.is_transient());
    let own = World::new(SchemeChoice::Own(serde_json::json!({"algorithm": "rot13"})));
    let error = own.sources().find(&name("hub"), at(0)).await.unwrap_err();
    assert!(matches!(error, SourceError::Scheme(NoScheme::Bad(_))) && !error.is_transient());
}

/// Amazon signs for everybody's topics: without its own, a source would believe every customer of Amazon's.
#[tokio::test]
async fn a_source_without_what_its_scheme_needs_is_broken_until_somebody_looks() {
    for preset in ["aws_sns", "paypal"] {
        let world = World::new(SchemeChoice::Preset(preset.to_owned()));
        let error = world.sources().find(&name("hub"), at(0)).await.unwrap_err();
        assert!(
            matches!(error, SourceError::NotConfigured(_)) && !error.is_transient(),
            "{preset}"
        );
    }
}

#[tokio::test]
async fn a_source_with_its_own_scheme_is_used() {
    let own = World::new(SchemeChoice::Own(serde_json::json!({"like": "github"})));
    assert!(own.sources().find(&name("hub"), at(0)).await.unwrap().is_some());
}

/// Counts what is logged as a warning or worse.
#[derive(Clone, Default)]
struct Complaints(Arc<std::sync::atomic::AtomicUsize>);

impl tracing::Subscriber for Complaints {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        let is_bad = *event.metadata().level() <= tracing::Level::WARN;
        self.0.fetch_add(is_bad.into(), std::sync::atomic::Ordering::Relaxed);
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

/// Plaid tells its keys only to those who say who they are.
#[test]
fn a_credential_beside_published_keys_is_no_key_and_nothing_to_complain_of() {
    let check = |preset: &str, text: &str, keys: usize, complaints: usize| {
        let scheme = SchemeChoice::Preset(preset.to_owned());
        let mut source = Source::new(
            name("hub"),
            scheme,
            Handler::Mirror { emit_to: None, states: None },
            at(0),
        );
        source.config.insert("webhook_id".to_owned(), "WH-1".to_owned());
        let counted = Complaints::default();
        let feed = tracing::subscriber::with_default(counted.clone(), || {
            Feed::new(source, &[secret("k1", text, None)]).unwrap()
        });
        let counted = counted.0.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!((feed.keys(at(0)).len(), counted), (keys, complaints), "{preset}");
    };
    check("plaid", "client-id:the-secret-of-the-client", 0, 0);
    check("circle", "the-api-key-of-this-account", 0, 0);
    check("paypal", "short", 0, 0);
    check("github", "the-secret-of-this-repository", 1, 0);
    check("github", " blanks around it ", 0, 1);
}
