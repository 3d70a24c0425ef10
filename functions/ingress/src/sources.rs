//! Sources with their schemes, their secrets and their published keys, kept between requests.
//!
//! A request that is refused costs no read, unless it makes up a new name: known sources are believed for minutes, the
//! latest unknown names are remembered, and a wrong signature makes us look for newer secrets once a minute at most.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use domain::{
    id::SourceName,
    ports::{
        KEY_LIFE, PublishedKey, PublishedKeys, Registry, SourceSecret, SourceSecrets, StoreError,
    },
    source::Source,
};
use flow::scheme::{self, NoScheme};
use jiff::{SignedDuration, Timestamp};
use runtime::telemetry::chain;
use signing::{Key, Scheme, Secret};

/// How long a name is remembered as unknown: a new source works after this at the latest.
const UNKNOWN_FOR: Duration = Duration::from_secs(30);

/// Most names that are remembered as unknown. Above, the one that was asked for longest ago is forgotten: a flood of ever
/// new names costs a read for each, which is less than its request costs anyway. Refusing to look would let anybody shut
/// out every source that this sandbox has not met yet.
const MAX_UNKNOWN: usize = 256;

/// Most sources that are kept. Above, the one that was read longest ago is read again.
const MAX_KNOWN: usize = 1000;

/// How long a source is not read again after reading it failed: an outage must not cost each request its time.
const AFTER_FAILURE: Duration = Duration::from_secs(10);

/// How long the secrets of a source are not looked for again because of a wrong signature, or of a key that is not there.
const BETWEEN_REFRESHES: Duration = Duration::from_secs(60);

/// The same for a source that has no secret yet, or waits for one: it is about to come.
const BETWEEN_FIRST_REFRESHES: Duration = Duration::from_secs(5);

/// From this age on, a published key is asked for again, a day before it stops being believed.
const AGEING: SignedDuration = SignedDuration::from_hours(6 * 24);

/// One source, ready to verify with.
#[derive(Clone, Debug)]
pub struct Feed {
    /// Its configuration.
    pub source: Source,
    /// How its requests are verified.
    pub scheme: Scheme,
    keys: Vec<Key>,
    /// When each of the keys ends.
    ends: Vec<Option<Timestamp>>,
    /// When each published key was fetched, by its id.
    fetched: BTreeMap<String, Timestamp>,
}

/// Why a source cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// Its configuration cannot be read.
    #[error("the registry cannot be read")]
    Registry(#[source] StoreError),
    /// Its secrets cannot be read.
    #[error("the secrets cannot be read")]
    Secrets(#[source] StoreError),
    /// The keys that its provider publishes cannot be read.
    #[error("the published keys cannot be read")]
    Keys(#[source] StoreError),
    /// It has no scheme, or one that is none.
    #[error("the source has no scheme that can be used")]
    Scheme(#[from] NoScheme),
    /// Its scheme needs values that nobody has given: whatever it verified would prove too little.
    #[error("the source's scheme needs a value for config.{0}; set it with `postern sources set`")]
    NotConfigured(String),
}

impl SourceError {
    /// Whether the source may be usable later, without anybody doing anything.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Registry(cause) | Self::Secrets(cause) | Self::Keys(cause) => {
                cause.is_transient()
            }
            Self::Scheme(_) | Self::NotConfigured(_) => false,
        }
    }
}

/// The sources that are kept.
#[derive(Debug)]
pub struct Sources<'a, R, S, K> {
    registry: &'a R,
    secrets: &'a S,
    published: &'a K,
    fresh: Duration,
    stale: Duration,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    known: BTreeMap<SourceName, Known>,
    /// Until when each name is unknown.
    unknown: BTreeMap<SourceName, Timestamp>,
}

#[derive(Clone, Debug)]
struct Known {
    feed: Arc<Feed>,
    loaded_at: Timestamp,
    /// When it was last tried to load, with or without success.
    tried_at: Timestamp,
}

impl<'a, R: Registry, S: SourceSecrets, K: PublishedKeys> Sources<'a, R, S, K> {
    /// No source yet. One that was read is believed for `fresh`, and for `stale` while it cannot be read again.
    pub fn new(
        registry: &'a R,
        secrets: &'a S,
        published: &'a K,
        fresh: Duration,
        stale: Duration,
    ) -> Self {
        Self { registry, secrets, published, fresh, stale, kept: Mutex::default() }
    }

    /// Where sources are read.
    pub(crate) fn registry(&self) -> &'a R {
        self.registry
    }

    /// Where secrets are read.
    pub(crate) fn secrets(&self) -> &'a S {
        self.secrets
    }

    /// A source; `None` if there is none of this name.
    ///
    /// # Errors
    /// When the source is not known, or was last read too long ago, and cannot be read now.
    pub async fn find(
        &self,
        name: &SourceName,
        now: Timestamp,
    ) -> Result<Option<Arc<Feed>>, SourceError> {
        let known = match self.kept().look_up(name, now) {
            LookUp::Known(known) if !self.is_due(&known, now) => return Ok(Some(known.feed)),
            LookUp::Known(known) => Some(known),
            LookUp::Unknown => return Ok(None),
            LookUp::New => None,
        };
        match (self.load(name, now).await, known) {
            (Ok(feed), _) => Ok(feed),
            (Err(error), Some(known)) if age(known.loaded_at, now) < self.stale => {
                tracing::warn!(source = %name, error = %chain(&error), "the source is used as it was");
                Ok(Some(known.feed))
            }
            (Err(error), _) => Err(error),
        }
    }

    /// A source whose secrets may be newer than those that a signature just failed with. `None`: it is too soon, or it
    /// cannot be read.
    pub async fn refresh(&self, name: &SourceName, now: Timestamp) -> Option<Arc<Feed>> {
        {
            let kept = self.kept();
            let known = kept.known.get(name)?;
            if age(known.tried_at, now) < known.feed.between_refreshes(now) {
                return None;
            }
        }
        match self.load(name, now).await {
            Ok(feed) => feed,
            Err(error) => {
                tracing::warn!(source = %name, error = %chain(&error), "newer secrets could not be read");
                None
            }
        }
    }

    /// Whether a source of this name is kept: strangers do not choose what is counted.
    pub fn is_known(&self, name: &SourceName) -> bool {
        self.kept().known.contains_key(name)
    }

    /// Forgets a source, so that it is read again.
    pub(crate) fn forget(&self, name: &SourceName) {
        self.kept().known.remove(name);
    }

    fn is_due(&self, known: &Known, now: Timestamp) -> bool {
        let loaded = age(known.loaded_at, now);
        // Failed since, and not too old: wait a little before the next try.
        let waits = known.tried_at > known.loaded_at && age(known.tried_at, now) < AFTER_FAILURE;
        loaded >= self.fresh && !(waits && loaded < self.stale)
    }

    async fn load(
        &self,
        name: &SourceName,
        now: Timestamp,
    ) -> Result<Option<Arc<Feed>>, SourceError> {
        if let Some(known) = self.kept().known.get_mut(name) {
            known.tried_at = now;
        }
        let Some(source) = self.registry.source(name).await.map_err(SourceError::Registry)? else {
            self.kept().forget(name, now);
            return Ok(None);
        };
        let secrets = self.secrets.of(name).await.map_err(SourceError::Secrets)?;
        let mut feed = Feed::new(source, &secrets)?;
        // Only then: most sources cost one read less.
        if feed.scheme.publishes_keys() {
            feed.add(self.published.published(name).await.map_err(SourceError::Keys)?);
        }
        let feed = Arc::new(feed);
        self.kept().keep(name, Known { feed: Arc::clone(&feed), loaded_at: now, tried_at: now });
        Ok(Some(feed))
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum LookUp {
    Known(Known),
    Unknown,
    New,
}

impl Kept {
    fn look_up(&mut self, name: &SourceName, now: Timestamp) -> LookUp {
        if let Some(known) = self.known.get(name) {
            return LookUp::Known(known.clone());
        }
        self.unknown.retain(|_, until| *until > now);
        if self.unknown.contains_key(name) { LookUp::Unknown } else { LookUp::New }
    }

    fn forget(&mut self, name: &SourceName, now: Timestamp) {
        self.known.remove(name);
        let until = now.saturating_add(UNKNOWN_FOR).unwrap_or(Timestamp::MAX);
        self.unknown.insert(name.clone(), until);
        if self.unknown.len() > MAX_UNKNOWN {
            let oldest = self.unknown.iter().min_by_key(|(_, until)| **until);
            if let Some(oldest) = oldest.map(|(name, _)| name.clone()) {
                self.unknown.remove(&oldest);
            }
        }
    }

    fn keep(&mut self, name: &SourceName, known: Known) {
        self.unknown.remove(name);
        self.known.insert(name.clone(), known);
        if self.known.len() > MAX_KNOWN {
            let oldest = self
                .known
                .iter()
                .min_by_key(|(_, known)| known.loaded_at)
                .map(|(name, _)| name.clone());
            if let Some(oldest) = oldest {
                self.known.remove(&oldest);
            }
        }
    }
}

impl Feed {
    fn new(source: Source, secrets: &[SourceSecret]) -> Result<Self, SourceError> {
        let scheme = scheme::of(&source)?;
        if let Some(name) = scheme.missing_config().first() {
            return Err(SourceError::NotConfigured((*name).to_owned()));
        }
        let (keys, ends) = secrets
            .iter()
            .filter_map(|secret| Some((key(&source.name, &scheme, secret)?, secret.expires_at)))
            .unzip();
        Ok(Self { source, scheme, keys, ends, fetched: BTreeMap::new() })
    }

    /// Adds the published keys beside the secrets.
    fn add(&mut self, published: Vec<PublishedKey>) {
        for PublishedKey { id, text, fetched_at } in published {
            match Key::published(&self.scheme, &id, &text) {
                Ok(key) => {
                    self.keys.push(key);
                    self.ends.push(Some(fetched_at.saturating_add(KEY_LIFE).unwrap_or(fetched_at)));
                    self.fetched.insert(id, fetched_at);
                }
                Err(error) => {
                    tracing::error!(source = %self.source.name, %error, "a published key of this source cannot be used");
                }
            }
        }
    }

    /// Whether the key of this id was published, and long enough ago to ask for it again.
    pub fn is_ageing(&self, key_id: &str, now: Timestamp) -> bool {
        self.fetched.get(key_id).is_some_and(|at| now.duration_since(*at) >= AGEING)
    }

    /// Whether a handshake may bring a secret.
    pub fn waits(&self, now: Timestamp) -> bool {
        self.source.awaits_secret_until.is_some_and(|until| now < until)
    }

    fn between_refreshes(&self, now: Timestamp) -> Duration {
        if self.keys.is_empty() || self.waits(now) {
            BETWEEN_FIRST_REFRESHES
        } else {
            BETWEEN_REFRESHES
        }
    }

    /// The keys that count at a time.
    pub fn keys(&self, now: Timestamp) -> Cow<'_, [Key]> {
        let ended = |end: &Option<Timestamp>| end.is_some_and(|end| end <= now);
        if !self.ends.iter().any(ended) {
            return Cow::Borrowed(&self.keys);
        }
        let active = self.keys.iter().zip(&self.ends).filter(|(_, end)| !ended(end));
        Cow::Owned(active.map(|(key, _)| key.clone()).collect())
    }
}

/// A secret that cannot be one is left out, so that the others still work; none at all refuses everything.
fn key(source: &SourceName, scheme: &Scheme, secret: &SourceSecret) -> Option<Key> {
    // What a source has beside published keys says who we are when they are fetched. It verifies nothing.
    if scheme.publishes_keys() && !scheme.secrets_of_handshakes().any(|id| id == secret.id) {
        return None;
    }
    let parsed = Key::parse(scheme, secret.id.as_str(), &Secret::new(secret.text.expose()));
    match &parsed {
        Ok(key) => {
            if let Some(weakness) = key.weakness() {
                tracing::warn!(source = %source, key_id = %secret.id, ?weakness, "a secret of this source is weak");
            }
        }
        Err(error) => {
            tracing::error!(source = %source, key_id = %secret.id, %error, "a secret of this source cannot be used");
        }
    }
    parsed.ok()
}

fn age(at: Timestamp, now: Timestamp) -> Duration {
    // A clock that was set back makes things new, not old.
    now.duration_since(at).try_into().unwrap_or_default()
}

#[cfg(test)]
mod tests;
