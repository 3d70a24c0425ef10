//! What is asked of an endpoint, read and checked. Whoever makes, changes or configures one comes through here, so that no
//! way in knows fewer rules than another; everything that is wrong is told at once.

use std::{collections::BTreeMap, fmt};

use domain::{
    address::EndpointUrl,
    destination::{Destination, Polling},
    endpoint::{Auth, Choice, Endpoint, LaneCount, Pattern, StaticHeaders, Style},
    filter::Filter,
    secret::SecretText,
};
use jiff::Timestamp;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, value::RawValue};
use signing::{EndpointSecret, Secret};

use super::{
    sealing::Own,
    strength::{self, Kind},
};
use crate::{Limits, Problem, problem::Findings};

/// Most deliveries that one endpoint may have under way.
const MAX_CONCURRENCY: u32 = 100;

/// Most deliveries that are begun in a second. More is no limit: it is what a lane can do at all, times its lanes.
const MAX_RATE: u32 = 10_000;

/// Most lanes of one endpoint. Each writes about 200 deliveries a second.
const MAX_LANES: u16 = 32;

/// Most patterns of one endpoint.
const MAX_PATTERNS: usize = 100;

/// Most labels that an endpoint asks for, and the most bytes of a name and of a value: those of an event.
const MAX_LABELS: (usize, usize, usize) = (20, 64, 256);

/// Most characters of a description.
const MAX_DESCRIPTION: usize = 200;

/// An endpoint as it is asked for. In a new one, what is left out has its default; in a changed one, it stays. `null`
/// takes away what has no value of its own.
///
/// Of a new one, exactly one of `url`, `queue`, `bus` and `poll` says where it is. Queues and buses are written to with the
/// deployment's own rights, so that they are only for those who may call this api: never to be offered to a tenant.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Wanted {
    url: Option<String>,
    queue: Option<String>,
    /// The name or the ARN of an event bus.
    bus: Option<String>,
    /// Whether its owner fetches what it gets.
    poll: bool,
    description: Option<String>,
    /// Whether the target recognises the event's id as an idempotency key.
    idempotent: Option<bool>,
    /// Which event types it gets. Empty: all.
    patterns: Option<Vec<String>>,
    /// Labels that an event must carry.
    labels: Option<BTreeMap<String, String>>,
    /// What the payload of an event must be.
    #[serde(deserialize_with = "given")]
    filter: Option<Option<Value>>,
    /// How many deliveries may be under way at once; `null`: the deployment's default.
    #[serde(deserialize_with = "given")]
    concurrency: Option<Option<u32>>,
    /// How many deliveries are begun in a second; `null`: no limit.
    #[serde(deserialize_with = "given")]
    rate: Option<Option<u32>>,
    lanes: Option<u16>,
    style: Option<Style>,
    /// Read by hand, as everything that holds a secret: serde quotes what it does not expect.
    #[serde(deserialize_with = "given")]
    auth: Option<Option<Box<RawValue>>>,
    #[serde(deserialize_with = "given")]
    headers: Option<Option<Box<RawValue>>>,
    /// Its owner's own secret, instead of one that is made.
    secret: Option<Box<RawValue>>,
    /// What kind of secret is made.
    kind: Option<Kind>,
    /// Whether a test event is sent to the new endpoint at once.
    test: bool,
}

impl fmt::Debug for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wanted(..)")
    }
}

/// A member that is there, be it `null`.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(from).map(Some)
}

/// What is asked for, after it was checked.
pub(super) struct Checked {
    pub(super) destination: Option<Destination>,
    pub(super) own: Own,
    pub(super) secret: Option<EndpointSecret>,
    pub(super) kind: Kind,
    pub(super) test: bool,
    description: Option<String>,
    idempotent: Option<bool>,
    patterns: Option<Vec<Pattern>>,
    labels: Option<BTreeMap<String, String>>,
    filter: Option<Option<Filter>>,
    concurrency: Option<Option<u32>>,
    rate: Option<Option<u32>>,
    lanes: Option<u16>,
    style: Option<Style>,
    /// The concurrency of an endpoint that does not say.
    usual_concurrency: u32,
}

impl Wanted {
    /// The same with the default of everything that is left out: not a change, but the whole of it.
    pub(super) fn in_full(self) -> Self {
        Self {
            description: self.description.or_else(|| Some(String::new())),
            idempotent: self.idempotent.or(Some(true)),
            patterns: self.patterns.or_else(|| Some(Vec::new())),
            labels: self.labels.or_else(|| Some(BTreeMap::new())),
            filter: self.filter.or(Some(None)),
            concurrency: self.concurrency.or(Some(None)),
            rate: self.rate.or(Some(None)),
            lanes: self.lanes.or(Some(1)),
            style: self.style.or(Some(Style::Full)),
            auth: self.auth.or(Some(None)),
            headers: self.headers.or(Some(None)),
            ..self
        }
    }

    /// Checks all of it for an endpoint to be made, which must be somewhere.
    pub(super) fn new_endpoint(&self, limits: &Limits, found: &mut Findings) -> Checked {
        if self.url.is_none() && self.queue.is_none() && self.bus.is_none() && !self.poll {
            let problem = "say where the endpoint is, with one of `url`, `queue` and `bus`, or with `poll` that its owner fetches";
            found.note("url", problem);
        }
        self.check(limits, found)
    }

    /// Checks all of it for an endpoint that is there, whose secrets are changed in another way.
    pub(super) fn change(&self, limits: &Limits, found: &mut Findings) -> Checked {
        if self.secret.is_some() || self.kind.is_some() {
            let field = if self.secret.is_some() { "secret" } else { "kind" };
            found.note(field, "a secret is changed by rotating it: POST …/secrets/rotate");
        }
        if self.test {
            found.note("test", "a test event is sent by POST …/test");
        }
        self.check(limits, found)
    }

    fn check(&self, limits: &Limits, found: &mut Findings) -> Checked {
        let destination = self.destination(limits, found);
        if let Some(destination) = &destination {
            self.fits(destination, found);
        }
        check_range("concurrency", self.concurrency.flatten(), MAX_CONCURRENCY, found);
        check_range("rate", self.rate.flatten(), MAX_RATE, found);
        check_range("lanes", self.lanes.map(u32::from), u32::from(MAX_LANES), found);
        let secret =
            self.secret.as_ref().and_then(|text| strength::read("secret", text, self.kind, found));
        Checked {
            destination,
            description: self.description(found),
            idempotent: self.idempotent,
            patterns: self.patterns(found),
            labels: self.labels(found),
            filter: self.filter.as_ref().map(|filter| read_filter(filter.as_ref(), found)),
            concurrency: self.concurrency,
            rate: self.rate,
            lanes: self.lanes,
            usual_concurrency: limits.concurrency,
            style: self.style,
            own: Own { auth: self.auth(limits, found), headers: self.headers(found) },
            secret,
            kind: self.kind.unwrap_or_default(),
            test: self.test,
        }
    }

    /// Whether an endpoint at this place has what is asked for; a change need not say where it is.
    pub(super) fn fits(&self, destination: &Destination, found: &mut Findings) {
        match destination {
            Destination::Https(_) => {}
            Destination::Queue(_) | Destination::Bus(_) => self.only_for_urls(found),
            Destination::Poll(_) => self.only_for_requests(found),
        }
    }

    /// What only a request over HTTP has, asked of a queue or a bus.
    fn only_for_urls(&self, found: &mut Findings) {
        let style = self.style.is_some_and(|style| style != Style::Full);
        let members = [
            ("style", style),
            ("auth", matches!(self.auth, Some(Some(_)))),
            ("headers", matches!(self.headers, Some(Some(_)))),
            ("secret", self.secret.is_some()),
            ("kind", self.kind.is_some()),
        ];
        for (member, _) in members.iter().filter(|(_, is_asked_for)| *is_asked_for) {
            found.note(member, "only an endpoint with a `url` has it");
        }
    }

    /// What only a request of ours carries, asked of an endpoint whose owner fetches.
    fn only_for_requests(&self, found: &mut Findings) {
        let members = [
            ("auth", matches!(self.auth, Some(Some(_)))),
            ("headers", matches!(self.headers, Some(Some(_)))),
            ("concurrency", matches!(self.concurrency, Some(Some(_)))),
            ("rate", matches!(self.rate, Some(Some(_)))),
        ];
        for (member, _) in members.iter().filter(|(_, is_asked_for)| *is_asked_for) {
            found
                .note(member, "an endpoint that is polled has none: its owner fetches as it likes");
        }
    }

    /// Where the endpoint is.
    fn destination(&self, limits: &Limits, found: &mut Findings) -> Option<Destination> {
        match (&self.url, &self.queue, &self.bus, self.poll) {
            (None, None, None, true) => Some(Destination::Poll(Polling {})),
            (Some(url), None, None, false) => {
                let url = found.keep("url", EndpointUrl::parse(url, &limits.addresses))?;
                Some(Destination::Https(url.as_str().to_owned()))
            }
            (None, Some(queue), None, false) => {
                found.keep("queue", limits.reach.queue(queue)).map(Destination::Queue)
            }
            (None, None, Some(bus), false) => {
                found.keep("bus", limits.reach.bus(bus)).map(Destination::Bus)
            }
            (None, None, None, false) => None,
            _ => {
                let detail =
                    "an endpoint is in one place: name one of `url`, `queue`, `bus` and `poll`";
                found.note("url", detail);
                None
            }
        }
    }

    fn description(&self, found: &mut Findings) -> Option<String> {
        let text = self.description.as_ref()?.trim();
        if text.chars().count() > MAX_DESCRIPTION || text.chars().any(char::is_control) {
            let problem = format!("it is one line of at most {MAX_DESCRIPTION} characters");
            found.note("description", problem);
        }
        Some(text.to_owned())
    }

    fn patterns(&self, found: &mut Findings) -> Option<Vec<Pattern>> {
        let patterns = self.patterns.as_ref()?;
        if patterns.len() > MAX_PATTERNS {
            found.note("patterns", format!("an endpoint has at most {MAX_PATTERNS}"));
        }
        let read = patterns.iter().take(MAX_PATTERNS).enumerate();
        Some(
            read.filter_map(|(at, text)| found.keep(&format!("patterns[{at}]"), text.parse()))
                .collect(),
        )
    }

    fn labels(&self, found: &mut Findings) -> Option<BTreeMap<String, String>> {
        let (most, name_bytes, value_bytes) = MAX_LABELS;
        let labels = self.labels.as_ref()?;
        let fits = |(name, value): (&String, &String)| {
            let is_clean = !name.chars().chain(value.chars()).any(char::is_control);
            (1..=name_bytes).contains(&name.len()) && value.len() <= value_bytes && is_clean
        };
        if labels.len() > most || !labels.iter().all(fits) {
            let problem = format!(
                "an endpoint asks for at most {most}, each with a name of 1 to {name_bytes} bytes and a value of at most \
                 {value_bytes}, without control characters"
            );
            found.note("labels", problem);
        }
        Some(labels.clone())
    }

    fn auth(&self, limits: &Limits, found: &mut Findings) -> Option<Option<(Auth, SecretText)>> {
        let Some(text) = self.auth.as_ref()? else { return Some(None) };
        let read = read_auth(text);
        let Ok((auth, secret)) = read.map_err(|problem| found.note("auth", problem)) else {
            return None;
        };
        if let Err(problems) = auth.check(&secret, &limits.addresses) {
            for problem in problems {
                found.note("auth", problem);
            }
        }
        Some(Some((auth, secret)))
    }

    fn headers(&self, found: &mut Findings) -> Option<StaticHeaders> {
        let Some(text) = self.headers.as_ref()? else { return Some(StaticHeaders::default()) };
        let Ok(headers) = serde_json::from_str::<BTreeMap<String, Secret>>(text.get()) else {
            found.note("headers", "it is an object of texts: each header's value by its name");
            return None;
        };
        let pairs = headers.iter().map(|(name, value)| (name.as_str(), value.expose()));
        match StaticHeaders::check(pairs) {
            Ok(headers) => Some(headers),
            Err(problems) => {
                for problem in problems {
                    found.note("headers", problem);
                }
                None
            }
        }
    }
}

impl Checked {
    /// The endpoint with what is asked for. Its secrets, and where it is, are not in this.
    pub(super) fn onto(&self, old: Endpoint, now: Timestamp) -> Result<Endpoint, Problem> {
        let mut new = match self.lanes {
            Some(count) => old.with_lanes(count, now).map_err(|too_many| {
                let mut found = Findings::default();
                found.note("lanes", too_many);
                found.problem()
            })?,
            None => old,
        };
        let choice = Choice {
            patterns: self.patterns.clone().unwrap_or_else(|| new.patterns.clone()),
            labels: self.labels.clone().unwrap_or_else(|| new.labels.clone()),
            filter: self.filter.clone().unwrap_or_else(|| new.filter.clone()),
        };
        new.choose(choice, now);
        new.description = self.description.clone().unwrap_or(new.description);
        new.idempotent = self.idempotent.unwrap_or(new.idempotent);
        new.concurrency = self.concurrency.unwrap_or(new.concurrency);
        self.shares_out(&new, now)?;
        new.rate = self.rate.unwrap_or(new.rate);
        new.style = self.style.unwrap_or(new.style);
        if let Some(auth) = &self.own.auth {
            new.auth = auth.as_ref().map(|(auth, _)| auth.clone());
        }
        if let Some(headers) = &self.own.headers {
            new.headers = headers.names();
        }
        Ok(new)
    }

    /// Whether each lane has a part of the concurrency: with none, an endpoint would see more at once than it allows.
    fn shares_out(&self, new: &Endpoint, now: Timestamp) -> Result<(), Problem> {
        if self.lanes.is_none() && self.concurrency.is_none() {
            return Ok(());
        }
        let (least, has) =
            (new.least_concurrency(now), new.concurrency.unwrap_or(self.usual_concurrency));
        if has >= least {
            return Ok(());
        }
        let mut found = Findings::default();
        let field = if self.lanes.is_some() { "lanes" } else { "concurrency" };
        let why = format!(
            "{least} lanes, those included that may still hold deliveries of the last 18 days, need a concurrency of \
             {least} at least, one for each; it is {has}. Give it more, ask for fewer lanes, or slow it down by its `rate`"
        );
        found.note(field, why);
        Err(found.problem())
    }

    /// The endpoint at the place that is asked for, if one is.
    pub(super) fn onto_place(&self, old: Endpoint) -> Result<Endpoint, Problem> {
        let Some(place) = &self.destination else { return Ok(old) };
        if place.kind() != old.destination.kind() {
            let detail = format!(
                "The endpoint is of the kind `{}`, and stays so: what it has of secrets and lanes belongs to that. Add \
                 another one for `{}`, and delete this one.",
                old.destination.kind(),
                place.kind()
            );
            return Err(Problem::conflict("other-kind", detail));
        }
        Ok(Endpoint { destination: place.clone(), ..old })
    }

    /// A new endpoint with what is asked for. It is made in this moment, and has chosen nothing before.
    pub(super) fn onto_new(&self, made: Endpoint) -> Result<Endpoint, Problem> {
        let now = made.created_at;
        let lanes = vec![LaneCount { from: now, count: self.lanes.unwrap_or(1) }];
        let new = self.onto(Endpoint { lanes, ..made }, now)?;
        Ok(Endpoint { earlier: Vec::new(), ..new })
    }
}

fn check_range(field: &str, value: Option<u32>, most: u32, found: &mut Findings) {
    if value.is_some_and(|n| !(1..=most).contains(&n)) {
        found.note(field, format!("it is 1 to {most}"));
    }
}

fn read_filter(filter: Option<&Value>, found: &mut Findings) -> Option<Filter> {
    match Filter::new(filter?.clone()) {
        Ok(filter) => Some(filter),
        Err(invalid) => {
            for problem in invalid.problems() {
                found.note("filter", problem);
            }
            None
        }
    }
}

/// How an endpoint is shown who we are, with the secret of it as the member `secret`.
fn read_auth(text: &RawValue) -> Result<(Auth, SecretText), &'static str> {
    const SHAPE: &str = "it is {\"kind\": \"basic\", \"user\", \"secret\"}, {\"kind\": \"bearer\", \"secret\"} or {\"kind\": \"oauth2\", \
                         \"token_url\", \"client_id\", \"scope\", \"credentials_in\": \"header\" or \"body\", \"secret\"}";
    let mut members: BTreeMap<String, Box<RawValue>> =
        serde_json::from_str(text.get()).map_err(|_| SHAPE)?;
    let secret = members.remove("secret").ok_or("the member `secret` is missing")?;
    let secret: Secret = serde_json::from_str(secret.get()).map_err(|_| "`secret` is a text")?;
    let text_of = |name: &str| {
        let text = members.get(name)?;
        serde_json::from_str::<String>(text.get()).ok()
    };
    let has_only = |names: &[&str]| members.keys().all(|name| names.contains(&name.as_str()));
    let auth = match text_of("kind").as_deref() {
        Some("basic") if has_only(&["kind", "user"]) => {
            text_of("user").map(|user| Auth::Basic { user })
        }
        Some("bearer") if has_only(&["kind"]) => Some(Auth::Bearer),
        Some("oauth2")
            if has_only(&["kind", "token_url", "client_id", "scope", "credentials_in"]) =>
        {
            // No secret is left in it.
            let object = serde_json::to_string(&members).map_err(|_| SHAPE)?;
            serde_json::from_str(&object).ok()
        }
        _ => None,
    };
    let secret = SecretText::new(secret.expose().to_owned());
    auth.map(|auth| (auth, secret)).ok_or(SHAPE)
}
