//! Asking a provider for the state of an object: whose turn it is, with which token, and what the answer means.
//!
//! Nothing here decides whether to ask, or writes anything but the turns; `knowing` does. No token and no word of
//! an answer's body gets into an error, a log or a row.

pub mod client;

use std::{
    collections::BTreeMap,
    fmt,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use domain::{
    event::Object,
    id::SourceName,
    ports::{SourceSecret, SourceSecrets, Stored, Turn, Turns},
};
use fetch::{About, Auth, Call, Fetcher, Judged, NoCall};
use jiff::Timestamp;

pub use self::client::{Client, Local, NoAnswer, NoWayOut, Provider};

/// Longest wait for a turn inside an attempt. Above, the event waits outside: a function that sleeps is paid for.
const PATIENCE: Duration = Duration::from_secs(2);

/// With less time than this no call is begun: it would most likely be given up half way.
const WORTH_A_CALL: Duration = Duration::from_secs(1);

/// Tokens of one source that are tried: two are active while one replaces the other.
const MAX_TOKENS: usize = 2;

/// How old tokens must be to be read again because the provider refused them.
const REFRESH_AFTER: Duration = Duration::from_secs(60);

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question<'a> {
    pub(crate) source: &'a SourceName,
    pub(crate) fetcher: &'a Fetcher,
    pub(crate) about: About<'a>,
    /// What is known of the object so far.
    pub(crate) known: Option<&'a Object>,
    /// When the attempt must have its answer.
    pub(crate) by: Timestamp,
}

/// What became of it.
#[derive(Debug)]
pub(crate) enum Asked {
    /// The provider answered, to a call that began then.
    Answered(Judged, Timestamp),
    /// Too many ask; the next turn is then.
    NotYourTurn(Timestamp),
    /// The attempt has no time left for it.
    NoTime,
    /// There is no call to make.
    NoCall(NoCall),
    /// The source has no token.
    NoToken,
    /// No answer that could be read.
    NoAnswer(NoAnswer),
}

type Asking<'a> = Pin<Box<dyn Future<Output = Stored<Asked>> + Send + 'a>>;

/// Asks providers.
///
/// A trait object, against our habit: as a type it would be two more parameters of everything that a
/// worker does, for one call of the network.
pub(crate) trait Ask: Send + Sync + fmt::Debug {
    fn ask<'a>(&'a self, question: Question<'a>) -> Asking<'a>;
    fn lease(&self) -> Duration;
}

/// The way to providers.
pub struct Asker<T, K, P, N> {
    /// Turns at calling them.
    pub turns: T,
    /// The tokens of sources.
    pub tokens: K,
    /// The way out.
    pub provider: P,
    /// The edge's clock.
    pub now: N,
    /// Longest time for one call.
    pub timeout: Duration,
    /// How long an object is held while it is fetched and committed.
    pub lease: Duration,
    /// How long tokens are believed; and as long as this while they cannot be read.
    pub fresh: (Duration, Duration),
    known: Mutex<BTreeMap<SourceName, Known>>,
}

type Tokens = Arc<Vec<Arc<SourceSecret>>>;

#[derive(Clone)]
struct Known {
    read_at: Timestamp,
    tokens: Tokens,
}

impl<T, K, P, N> fmt::Debug for Asker<T, K, P, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asker").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

impl<T, K, P, N> Asker<T, K, P, N> {
    /// A way to providers. `fresh`: how long tokens are believed, and how long while they cannot be read.
    pub fn new(
        turns: T,
        tokens: K,
        provider: P,
        now: N,
        (timeout, lease): (Duration, Duration),
        fresh: (Duration, Duration),
    ) -> Self {
        Self { turns, tokens, provider, now, timeout, lease, fresh, known: Mutex::default() }
    }
}

impl<T, K, P, N> Asker<T, K, P, N>
where
    T: Turns,
    K: SourceSecrets,
    P: Provider,
    N: Fn() -> Timestamp + Send + Sync,
{
    async fn answer(&self, question: Question<'_>) -> Stored<Asked> {
        let Question { source, fetcher, about, .. } = question;
        // Before a turn is taken for nothing.
        if let Err(no) = fetcher.call(&about, Some("t")) {
            return Ok(Asked::NoCall(no));
        }
        let tokens = match fetcher.auth() {
            Auth::None => Vec::new(),
            _ => self.active(source, None).await?,
        };
        if tokens.is_empty() && *fetcher.auth() != Auth::None {
            return Ok(Asked::NoToken);
        }
        match self.turns.take_turn(source, fetcher.pace(), PATIENCE, (self.now)()).await? {
            Turn::Now => {}
            Turn::At(at) => tokio::time::sleep(until(at, (self.now)())).await,
            Turn::Later(at) => return Ok(Asked::NotYourTurn(at)),
        }
        let mut asked = self.with_each(&question, &tokens).await?;
        if matches!(asked, Asked::Answered(Judged::Refused(401), _)) {
            // Perhaps somebody has just replaced them.
            let others = self.active(source, Some(REFRESH_AFTER)).await?;
            if texts(&others) != texts(&tokens) {
                asked = self.with_each(&question, &others).await?;
            }
        }
        if let Asked::Answered(Judged::Busy(pause), _) = &asked {
            let held_until = (self.now)().saturating_add(*pause).unwrap_or(Timestamp::MAX);
            self.turns.hold_turns(source, held_until).await?;
        }
        Ok(asked)
    }

    /// Asks with the newest token and, if that is none that the provider knows, with the one before it.
    async fn with_each(
        &self,
        question: &Question<'_>,
        tokens: &[Arc<SourceSecret>],
    ) -> Stored<Asked> {
        if tokens.is_empty() {
            return Ok(self.once(question, None).await);
        }
        let mut asked = Asked::NoToken;
        for token in tokens.iter().take(MAX_TOKENS) {
            asked = self.once(question, Some(token.text.expose())).await;
            if !matches!(asked, Asked::Answered(Judged::Refused(401), _)) {
                break;
            }
        }
        Ok(asked)
    }

    async fn once(&self, question: &Question<'_>, token: Option<&str>) -> Asked {
        let call: Call = match question.fetcher.call(&question.about, token) {
            Ok(call) => call,
            Err(no) => return Asked::NoCall(no),
        };
        let began = (self.now)();
        let within = until(question.by, began).min(self.timeout);
        if within < WORTH_A_CALL.min(self.timeout) {
            return Asked::NoTime;
        }
        match self.provider.get(&call, within).await {
            Ok(answered) => {
                let now = (self.now)();
                let judged =
                    question.fetcher.judge(&question.about, &answered, question.known, now);
                Asked::Answered(judged, began)
            }
            Err(no) => Asked::NoAnswer(no),
        }
    }

    /// The tokens that have not ended, newest first. Read again if they are older than `than`, or than is believed.
    async fn active(
        &self,
        source: &SourceName,
        than: Option<Duration>,
    ) -> Stored<Vec<Arc<SourceSecret>>> {
        let now = (self.now)();
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(source).cloned();
        let younger = |than: Duration| {
            known.clone().filter(|known| until(now, known.read_at) < than).map(|known| known.tokens)
        };
        let (fresh, stale) = self.fresh;
        let tokens = match younger(than.unwrap_or(fresh).min(fresh)) {
            Some(tokens) => tokens,
            None => match (self.tokens.of(source).await, younger(stale)) {
                (Ok(tokens), _) => {
                    let tokens: Tokens = Arc::new(tokens.into_iter().map(Arc::new).collect());
                    let known = Known { read_at: now, tokens: Arc::clone(&tokens) };
                    let mut all = self.known.lock().unwrap_or_else(PoisonError::into_inner);
                    all.insert(source.clone(), known);
                    tokens
                }
                (Err(error), Some(tokens)) if error.is_transient() => tokens,
                (Err(error), _) => return Err(error),
            },
        };
        let is_active = |token: &&Arc<SourceSecret>| token.expires_at.is_none_or(|end| now < end);
        // The one that was added last stands first.
        Ok(tokens.iter().filter(is_active).map(Arc::clone).collect())
    }
}

impl<T, K, P, N> Ask for Asker<T, K, P, N>
where
    T: Turns + Send,
    K: SourceSecrets + Send,
    P: Provider + Send,
    N: Fn() -> Timestamp + Send + Sync,
{
    fn ask<'a>(&'a self, question: Question<'a>) -> Asking<'a> {
        Box::pin(self.answer(question))
    }

    fn lease(&self) -> Duration {
        self.lease
    }
}

fn texts(tokens: &[Arc<SourceSecret>]) -> Vec<(&str, &str)> {
    tokens.iter().map(|token| (token.id.as_str(), token.text.expose())).collect()
}

/// How long from `now` until a time; nothing, if it is past.
fn until(at: Timestamp, now: Timestamp) -> Duration {
    at.duration_since(now).try_into().unwrap_or_default()
}
