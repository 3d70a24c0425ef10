//! What a plan may look at: the objects as they stand, read consistently just before.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use domain::{
    body::Sha256Hash,
    commit::{Knowledge, LeaseProof},
    event::{Object, ObjectRef, Version},
    fetch::{Fetched, When, is_covered, is_doubtful},
    inbox::{Applied, ChangeResult, Failure, Limits, NewRow, Row, Status},
    message::InboundMessage,
    ports::{Bodies, Inbox, Lease, Queue, Registry, State, Stored},
    source::Handler,
};
use fetch::{About, Fetcher, Judged};
use futures_util::future::try_join_all;
use jiff::Timestamp;
use runtime::telemetry::chain;
use serde_json::Value;

use crate::{
    Feed, Try, Worker,
    attempt::{Ended, failed, hopeless, panicked},
    fetching::{Ask, Asked, Question},
    handlers::{Current, Event, MAX_READS},
};

/// What is known when an event is planned.
#[derive(Debug)]
pub(crate) struct Known {
    /// The objects.
    pub(crate) current: Current,
    /// Those that were read for the plan: the event's own, and those that the handler named.
    pub(crate) named: Vec<ObjectRef>,
    /// What the provider says of the event's own, if it was asked.
    pub(crate) fetched: Option<Fetched>,
    /// The lease under which it was asked.
    pub(crate) lease: Option<LeaseProof>,
}

impl Known {
    /// Of when this knowledge is.
    pub(crate) fn knowledge(&self, row: &NewRow) -> Knowledge {
        match &self.fetched {
            Some(fetched) => Knowledge { as_of: fetched.as_of(), fetched: true },
            None => Knowledge { as_of: row.occurred_at.unwrap_or(row.received_at), fetched: false },
        }
    }
}

impl<I, S, R, B, Q, N> Worker<'_, I, S, R, B, Q, N>
where
    I: Inbox,
    S: State,
    R: Registry,
    B: Bodies,
    Q: Queue<InboundMessage>,
    N: Fn() -> Timestamp,
{
    /// Finds out what the plan of an event may look at. `Err`: the attempt ends here.
    ///
    /// The provider is asked under the object's lease, and the lease goes on to the commit: of two that ask, the one whose
    /// answer is older cannot write after the other. A death on the way leaves a lease that ends by itself.
    pub(crate) async fn know(
        &self,
        row: &Row,
        feed: &Feed,
        body: &[u8],
        at: Try<'_>,
    ) -> Stored<Result<Known, Ended>> {
        let nothing =
            Known { current: Current::default(), named: Vec::new(), fetched: None, lease: None };
        let subject = match self.subject(row, feed, body) {
            Ok(Some(subject)) => subject,
            Ok(None) => return self.know_again(row, feed, body, nothing).await,
            Err(ended) => return Ok(Err(ended)),
        };
        // Without the lease first: of a thousand events of one object all but one are covered, and need not queue for it.
        match subject.need(self.own(row, &subject).await?.as_ref()) {
            Need::Nothing => return self.know_again(row, feed, body, nothing).await,
            Need::Covered => return self.covered(row, &subject).await.map(Err),
            Need::Ask => {}
        }
        let lease = match self.hold(row, &subject, at).await? {
            Ok(lease) => lease,
            Err(ended) => return Ok(Err(ended)),
        };
        let known = match self.ask(row, feed, &subject, &lease, at).await {
            Ok(Ok(Some(fetched))) => {
                let lease = Some(lease.clone());
                let known = Known { fetched: Some(fetched), lease, ..nothing };
                self.know_again(row, feed, body, known).await
            }
            Ok(Ok(None)) => self.know_again(row, feed, body, nothing).await,
            Ok(Err(ended)) => Ok(Err(ended)),
            Err(error) => Err(error),
        };
        if !matches!(&known, Ok(Ok(Known { lease: Some(_), .. }))) {
            self.give_back(&lease).await;
        }
        known
    }

    /// What may be asked about an event; `None`: nothing.
    fn subject<'a>(
        &'a self,
        row: &'a Row,
        feed: &'a Feed,
        body: &[u8],
    ) -> Result<Option<Subject<'a>>, Ended> {
        let (Some(fetcher), Some(object)) = (&feed.fetcher, &row.new.object) else {
            return Ok(None);
        };
        // What goes out as it came is not looked at.
        if matches!(feed.source.handler, Handler::Forward { .. }) {
            return Ok(None);
        }
        let fetcher = match fetcher {
            Ok(fetcher) => fetcher,
            // Perhaps an older version of this code beside a newer one of the source's.
            Err(error) => {
                let why = format!("the source's fetcher cannot be read: {}", chain(error));
                return Err(failed("fetcher_missing", &why));
            }
        };
        if !fetcher.fetches(&object.kind) {
            let why = format!(
                "the fetcher has no path for {}: the event is taken at its word",
                object.kind
            );
            self.fetch_step(row, "not_fetched").info(&why);
            return Ok(None);
        }
        let Some(asker) = self.sources.asker() else {
            return Err(failed("fetcher_missing", "this worker has no way to providers"));
        };
        let trusts_version = feed.trusts_versions();
        let fetch = feed.source.fetch.as_ref();
        let when = fetch.map_or(When::Always, |fetch| fetch.when(trusts_version));
        let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
        let event = serde_json::from_slice(body).unwrap_or(Value::Null);
        // Others may do more with an event than make its object what it is.
        let coalesces = matches!(feed.source.handler, Handler::Mirror { .. });
        Ok(Some(Subject { row, object, fetcher, asker, when, trusts_version, event, coalesces }))
    }

    async fn own(&self, row: &Row, subject: &Subject<'_>) -> Stored<Option<Object>> {
        self.state.object(row.new.key.source(), subject.object).await
    }

    /// Ends an event whose word is in what was read after it came.
    async fn covered(&self, row: &Row, subject: &Subject<'_>) -> Stored<Ended> {
        let source = row.new.key.source().as_str();
        self.metrics.count("fetches_covered_total", Some(source), 1);
        let what = format!("object {} {}", subject.object.kind, subject.object.id);
        let results = vec![ChangeResult::new(what, Applied::Covered)];
        self.finish(row, Status::Processed, results, None).await
    }

    /// Takes the object's lease.
    async fn hold(
        &self,
        row: &Row,
        subject: &Subject<'_>,
        at: Try<'_>,
    ) -> Stored<Result<LeaseProof, Ended>> {
        let ObjectRef { kind, id } = subject.object;
        let what = format!("OBJECT#{}#{kind}#{id}", row.new.key.source());
        // One receive of one message: two copies of it at two workers are two.
        let owner = Sha256Hash::of(format!("{}:{}", row.new.key, at.receipt).as_bytes());
        let now = (self.now)();
        let until = now.saturating_add(subject.asker.lease()).unwrap_or(Timestamp::MAX);
        Ok(match self.state.lease(&what, &owner.to_string(), now, until).await? {
            Lease::Held(lease) => Ok(lease),
            Lease::Busy(ends) => {
                let left = Duration::try_from(ends.duration_since(now)).unwrap_or_default();
                let reason = "another event of the same object is asking the provider for it";
                let least = self.limits.backoff.base;
                let wait = spread(row, left.min(BUSY_WAIT), least, now, at.jitter, &self.limits);
                Err(put_off("object_busy", reason, wait))
            }
        })
    }

    /// Asks the provider. `None`: there is no need any more.
    async fn ask(
        &self,
        row: &Row,
        feed: &Feed,
        subject: &Subject<'_>,
        lease: &LeaseProof,
        at: Try<'_>,
    ) -> Stored<Result<Option<Fetched>, Ended>> {
        // Whoever held the lease before may have asked.
        let known = self.own(row, subject).await?;
        match subject.need(known.as_ref()) {
            Need::Nothing => return Ok(Ok(None)),
            Need::Covered => return self.covered(row, subject).await.map(Err),
            Need::Ask => {}
        }
        let about = About {
            object: subject.object,
            event_type: row.new.event_type.as_deref(),
            event: &subject.event,
            config: &feed.source.config,
        };
        let source = row.new.key.source();
        let question = Question {
            source,
            fetcher: subject.fetcher,
            about,
            known: known.as_ref(),
            by: at.ends,
        };
        let began = (self.now)();
        let asked = subject.asker.ask(question).await?;
        let answer = subject.read(&asked, lease, (self.now)(), at.jitter, &self.limits);
        self.tell_fetch(row, &asked, answer.as_ref().err(), began);
        Ok(answer.map(Some))
    }

    /// Gives a lease back.
    pub(crate) async fn give_back(&self, lease: &LeaseProof) {
        if let Err(error) = self.state.give_back(lease, (self.now)()).await {
            // It ends by itself, and until then only the object's next event waits.
            tracing::info!(error = %chain(&error), "a lease was not given back");
        }
    }

    /// Reads the objects once more: one of them was no longer as the plan had seen it. What was fetched stays, under the
    /// lease it was fetched with.
    pub(crate) async fn know_again(
        &self,
        row: &Row,
        feed: &Feed,
        body: &[u8],
        known: Known,
    ) -> Stored<Result<Known, Ended>> {
        let event = event(&row.new, feed, body, known.fetched.as_ref());
        let reads = || (self.handlers.reads)(&feed.source.handler, &event);
        let Ok(mut wanted) = catch_unwind(AssertUnwindSafe(reads)) else {
            return Ok(Err(panicked()));
        };
        wanted.sort();
        wanted.dedup();
        let own = row.new.object.as_ref();
        let others = wanted.iter().filter(|object| own != Some(*object)).count();
        if others > MAX_READS {
            let why = format!(
                "the handler wants to look at {others} objects beside the event's own, and {MAX_READS} are the most"
            );
            return Ok(Err(hopeless("bad_plan", &why)));
        }
        if let Some(own) = own.filter(|own| !wanted.contains(own)) {
            wanted.push(own.clone());
        }
        let others = self.objects(row, &wanted).await?;
        let own = own.and_then(|own| others.get(own).cloned());
        let current = Current { own, others };
        Ok(Ok(Known { current, named: wanted, ..known }))
    }

    async fn objects(
        &self,
        row: &Row,
        wanted: &[ObjectRef],
    ) -> Stored<BTreeMap<ObjectRef, Object>> {
        let source = row.new.key.source();
        let read = async |object: &ObjectRef| {
            Ok(self.state.object(source, object).await?.map(|found| (object.clone(), found)))
        };
        Ok(try_join_all(wanted.iter().map(read)).await?.into_iter().flatten().collect())
    }
}

/// Longest that an event waits for another one of the same object: most hold it for the time of one call.
const BUSY_WAIT: Duration = Duration::from_secs(5);

/// The first wait for a turn at a provider is spread over so many times the shortest wait: those that meet its limit
/// together may be thousands, and those that meet one object's lease are a few.
const HERD_SPREAD: u32 = 3;

/// What may be asked about an event.
struct Subject<'a> {
    row: &'a Row,
    object: &'a ObjectRef,
    fetcher: &'a Fetcher,
    asker: &'a dyn Ask,
    when: When,
    /// Whether the versions of events order all changes.
    trusts_version: bool,
    /// Its body, parsed; null if it is not JSON.
    event: Value,
    /// Whether a state that was read later says all that the event does.
    coalesces: bool,
}

/// Whether the provider is to be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    Ask,
    /// The event and what is known leave no doubt.
    Nothing,
    /// It was asked after the event came.
    Covered,
}

impl Subject<'_> {
    fn need(&self, known: Option<&Object>) -> Need {
        let version = self.row.new.version.as_ref();
        if self.coalesces && is_covered(known, self.row.armed_at) && !self.is_ahead(known) {
            Need::Covered
        } else if self.when == When::Doubt && !is_doubtful(version, &self.event, known) {
            Need::Nothing
        } else {
            Need::Ask
        }
    }

    /// Whether the event is newer than what is known, by versions that are trusted: the provider's API lags behind.
    fn is_ahead(&self, known: Option<&Object>) -> bool {
        let (Some(said), Some(known)) = (&self.row.new.version, known) else { return false };
        let is_told = !matches!(known.version, Version::End | Version::Reading(_));
        self.trusts_version && is_told && known.version.is_like(said) && *said > known.version
    }

    /// Whether an answer is older than the event, by versions that are trusted: the provider's API lags behind.
    fn is_behind(&self, answer: &Version) -> bool {
        let Some(said) = &self.row.new.version else { return false };
        let is_told = !matches!(answer, Version::End | Version::Reading(_));
        self.trusts_version && is_told && answer.is_like(said) && answer < said
    }

    /// What follows from how the call went. `Err`: the attempt ends here.
    fn read(
        &self,
        asked: &Asked,
        lease: &LeaseProof,
        now: Timestamp,
        jitter: f64,
        limits: &Limits,
    ) -> Result<Fetched, Ended> {
        let source = self.row.new.key.source();
        let busy = |why, asked| {
            let least = limits.backoff.base.saturating_mul(HERD_SPREAD);
            put_off("fetch_busy", why, spread(self.row, asked, least, now, jitter, limits))
        };
        let (judged, as_of) = match asked {
            Asked::Answered(judged, began) => (judged, *began),
            Asked::NotYourTurn(at) => {
                let wait = Duration::try_from(at.duration_since(now)).unwrap_or_default();
                let why = "the provider has been asked as often as it may be for the moment";
                return Err(busy(why, wait));
            }
            Asked::NoTime => {
                let why = "the function had no time left to ask the provider";
                return Err(put_off("fetch_no_time", why, BUSY_WAIT));
            }
            Asked::NoToken => {
                return Err(failed(
                    "fetch_no_token",
                    &format!(
                        "the source has no token for its provider's API; add one with `postern sources tokens add {source}`, \
                         then replay the event"
                    ),
                ));
            }
            Asked::NoCall(no) => {
                let why = format!(
                    "the provider cannot be asked: {no}; correct the source's fetcher, configuration or token, then replay \
                     the event"
                );
                return Err(failed("fetch_impossible", &why));
            }
            Asked::NoAnswer(no) if no.may_pass() => {
                return Err(self.later(&no.to_string(), now, limits));
            }
            Asked::NoAnswer(no) => {
                let why = format!(
                    "the provider could not be asked: {no}; correct the fetcher's `url`, then replay the event"
                );
                return Err(failed("fetch_unusable", &why));
            }
        };
        match judged {
            Judged::State { fields, version } => {
                let version = self.version(version.as_ref(), lease)?;
                if self.is_behind(&version) {
                    return Err(self.later("its answer is from before the event", now, limits));
                }
                Ok(Fetched::State { fields: fields.clone(), version: Some(version), as_of })
            }
            Judged::Gone => Ok(Fetched::Gone { as_of }),
            Judged::Busy(pause) => {
                Err(busy("the provider takes no more calls for the moment", *pause))
            }
            Judged::Refused(status) => Err(failed(
                "fetch_refused",
                &format!(
                    "the provider answered {status}: the token is wrong or has ended, or may not read {}; add another one \
                     with `postern sources tokens add {source}`, then replay the event",
                    self.object.kind
                ),
            )),
            Judged::Broken(status) => {
                Err(self.later(&format!("the provider answered {status}"), now, limits))
            }
            Judged::Unusable(why) => Err(failed("fetch_unusable", why)),
        }
    }

    /// In doubt the answer has to compare with events. Else what was read last is the newest, whatever it says of itself.
    fn version(&self, said: Option<&Version>, lease: &LeaseProof) -> Result<Version, Ended> {
        match (self.when, said) {
            (When::Doubt, Some(said)) => Ok(said.clone()),
            (When::Doubt, None) => Err(failed(
                "fetch_unusable",
                "the provider's answer has no version where the fetcher expects one; correct its `version`, then replay the \
                 event",
            )),
            (When::Always, Some(said)) if self.fetcher.trusts_versions() => Ok(said.clone()),
            (When::Always, _) => Ok(Version::Reading(lease.fence)),
        }
    }

    /// Not the event's fault, so not counted. The longer it has waited, the rarer it asks.
    fn later(&self, what: &str, now: Timestamp, limits: &Limits) -> Ended {
        let wait = (waited(self.row, now) / 2)
            .clamp(limits.backoff.base.min(limits.backoff.cap), limits.backoff.cap);
        put_off("fetch_no_answer", &format!("the provider was asked in vain: {what}"), wait)
    }
}

/// How long an event waits for its turn: as long as it was asked to, and then up to a quarter of the time that it has
/// waited already, or `least`. Thousands that were asked to wait until one moment would else all come back at it, have one
/// of them served, and be asked to wait until the next.
fn spread(
    row: &Row,
    asked: Duration,
    least: Duration,
    now: Timestamp,
    jitter: f64,
    limits: &Limits,
) -> Duration {
    let most = (waited(row, now) / 4).max(least).min(limits.backoff.cap);
    let jitter = if jitter.is_finite() { jitter.clamp(0.0, 1.0) } else { 1.0 };
    asked.saturating_add(most.mul_f64(jitter))
}

/// For how long an event has waited already.
fn waited(row: &Row, now: Timestamp) -> Duration {
    let since = row.waits_since.unwrap_or(now);
    Duration::try_from(now.duration_since(since)).unwrap_or_default()
}

fn put_off(code: &str, why: &str, wait: Duration) -> Ended {
    Ended::Waits { delay: Some(wait), reason: Failure::new(code, why) }
}

/// An event as handlers see it.
pub(crate) fn event<'a>(
    row: &'a NewRow,
    feed: &'a Feed,
    body: &'a [u8],
    fetched: Option<&'a Fetched>,
) -> Event<'a> {
    let trusts_version = feed.trusts_versions();
    Event { row, body, fetched, trusts_version, tenant: feed.source.handler.tenant() }
}
