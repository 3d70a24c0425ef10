//! What callers want of a source: the forms of adding and changing one, read with everything that is wrong with them.

use std::collections::{BTreeMap, BTreeSet};

use domain::{
    id::SourceName,
    ports::SourceSecret,
    source::{Dedupe, Handler, SchemeChoice, Source},
    states::MirrorStates,
};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, value::RawValue};

use super::{
    fetching::NewFetch,
    proof::Proof,
    secrets::{read_secrets, slot_secret},
};
use crate::{Problem, problem::Findings};

/// Most types of a forwarding source, as of an endpoint.
const MAX_TYPES: usize = 100;

/// Most values that events must have, and most bytes of each.
const MAX_ONLY: (usize, usize) = (20, 1024);

/// Longest that a source waits for a secret: as long as it waits, whoever knows the address first can set it.
const MAX_WAIT_HOURS: u32 = 72;

/// What is wrong with the name of a handler.
const NOT_A_HANDLER: &str = "a handler's name is like a source's: 1 to 64 characters of a-z, 0-9, `-` and `_`, the first a \
                             letter or a digit";

/// How long a source waits for a confirmation that is not spoken of: without it the provider sends nothing, and somebody
/// subscribes soon.
const CONFIRM_HOURS: u32 = 24;

/// Longest silence that can be usual, in seconds. A source that is heard less often is not watched by its silence.
const MAX_SILENCE: i64 = 90 * 86_400;

/// A source to add.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewSource {
    name: String,
    scheme: SchemeChoice,
    /// What `{config:..}` stands for in the scheme.
    #[serde(default)]
    config: BTreeMap<String, String>,
    handler: NewHandler,
    #[serde(default)]
    dedupe: Dedupe,
    #[serde(default)]
    same_as: Option<String>,
    #[serde(default)]
    awaits_secret_hours: Option<u32>,
    /// What events must say to be carried out, by JSON pointer.
    #[serde(default)]
    only: BTreeMap<String, Value>,
    /// Longest that the source is usually silent.
    #[serde(default)]
    silent_after_seconds: Option<i64>,
    /// How the provider is asked for the state of objects.
    #[serde(default)]
    fetch: Option<NewFetch>,
    /// Secrets by id, as the provider shows them. Read by hand: serde quotes what it does not expect.
    #[serde(default)]
    secrets: Option<Box<RawValue>>,
}

impl std::fmt::Debug for NewSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewSource").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What is done with the events of a source.
#[derive(Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
enum NewHandler {
    Mirror {
        #[serde(default)]
        emit_to: Option<String>,
        #[serde(default)]
        states: Option<NewStates>,
    },
    Forward {
        tenant: String,
        #[serde(default)]
        types: Vec<String>,
    },
    Own {
        name: String,
        /// Left out of a change, it stays as it is; null takes it away.
        #[serde(default, deserialize_with = "given")]
        tenant: Option<Option<String>>,
    },
}

impl NewHandler {
    /// The handler that a source gets which has one.
    fn in_place_of(&self, old: &Handler, found: &mut Findings) -> Option<Handler> {
        let new = handler(self, found)?;
        Some(match (self, new, old) {
            (
                Self::Own { tenant: None, .. },
                Handler::Own { name, .. },
                Handler::Own { tenant, .. },
            ) => Handler::Own { name, tenant: tenant.clone() },
            (_, new, _) => new,
        })
    }
}

/// The states of mirrored objects.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NewStates {
    at: String,
    #[serde(default)]
    kind: Option<String>,
    states: NewMachine,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NewMachine {
    start: String,
    moves: BTreeMap<String, BTreeSet<String>>,
}

/// Changes of a source. What is left out stays as it is; null takes away.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceChange {
    #[serde(default)]
    scheme: Option<SchemeChoice>,
    #[serde(default)]
    config: Option<BTreeMap<String, String>>,
    #[serde(default)]
    handler: Option<NewHandler>,
    #[serde(default)]
    dedupe: Option<Dedupe>,
    #[serde(default, deserialize_with = "given")]
    same_as: Option<Option<String>>,
    #[serde(default, deserialize_with = "given")]
    awaits_secret_hours: Option<Option<u32>>,
    #[serde(default, deserialize_with = "given")]
    only: Option<Option<BTreeMap<String, Value>>>,
    #[serde(default, deserialize_with = "given")]
    fetch: Option<Option<NewFetch>>,
    #[serde(default, deserialize_with = "given")]
    silent_after_seconds: Option<Option<i64>>,
}

/// A field that is there, be it null.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

/// A source that can be made.
pub(super) struct Wanted {
    pub(super) source: Source,
    pub(super) proof: Proof,
    pub(super) secrets: Vec<SourceSecret>,
}

impl NewSource {
    /// Checks the whole request, and names all that is wrong with it at once. `random` becomes the secret of an address
    /// that has none.
    pub(super) fn read(&self, now: Timestamp, random: [u8; 32]) -> Result<Wanted, Problem> {
        let mut found = Findings::default();
        let name = found.keep("name", self.name.parse::<SourceName>());
        let handler = handler(&self.handler, &mut found);
        let same_as = self.same_as.as_ref().map(|other| found.keep("same_as", other.parse()));
        check_only(&self.only, self.same_as.is_some(), &mut found);
        let fetch = self.fetch.as_ref().and_then(|fetch| fetch.read(&mut found));
        let silent_after = self.silent_after_seconds.and_then(|s| silence(s, &mut found));
        // Which secrets fit is not known without a scheme.
        let proof = Proof::read(&self.scheme, &self.config, &mut found);
        let confirms = proof.as_ref().is_some_and(Proof::confirms);
        let hours = self.awaits_secret_hours.or(confirms.then_some(CONFIRM_HOURS));
        let until = hours.and_then(|hours| wait(hours, now, &mut found));
        if let Some(proof) = &proof {
            proof.check_dedupe(self.dedupe, &mut found);
        }
        let secrets = proof.as_ref().and_then(|proof| self.secrets(proof, random, &mut found));
        match (name, handler, proof) {
            (Some(name), Some(handler), Some(proof)) => {
                found.done()?;
                let source = Source {
                    dedupe: self.dedupe,
                    same_as: same_as.flatten(),
                    awaits_secret_until: until,
                    config: self.config.clone(),
                    only: self.only.clone(),
                    silent_after,
                    fetch,
                    ..Source::new(name, self.scheme.clone(), handler, now)
                };
                Ok(Wanted { source, proof, secrets: secrets.unwrap_or_default() })
            }
            _ => Err(found.problem()),
        }
    }

    fn secrets(
        &self,
        proof: &Proof,
        random: [u8; 32],
        found: &mut Findings,
    ) -> Option<Vec<SourceSecret>> {
        let secrets = match &self.secrets {
            Some(text) => read_secrets(proof, text, found)?,
            None if proof.is_in_path() => vec![slot_secret("1", random)],
            None => Vec::new(),
        };
        if self.awaits_secret_hours.is_some() {
            can_wait(proof, found);
        } else if secrets.iter().all(|secret| proof.is_of_handshakes(&secret.id)) {
            needs_secret(proof, found);
        }
        Some(secrets)
    }
}

impl SourceChange {
    /// The source with the changes, and all that is wrong with them at once.
    pub(super) fn applied(
        &self,
        old: &Source,
        now: Timestamp,
    ) -> Result<(Source, Option<Proof>), Problem> {
        let mut found = Findings::default();
        let mut new = old.clone();
        if let Some(wanted) = &self.handler
            && let Some(handler) = wanted.in_place_of(&old.handler, &mut found)
        {
            new.handler = handler;
        }
        new.dedupe = self.dedupe.unwrap_or(old.dedupe);
        match &self.same_as {
            Some(Some(other)) => new.same_as = found.keep("same_as", other.parse()),
            Some(None) => new.same_as = None,
            None => {}
        }
        if let Some(only) = &self.only {
            new.only = only.clone().unwrap_or_default();
        }
        if self.only.is_some() || self.same_as.is_some() {
            check_only(&new.only, new.same_as.is_some(), &mut found);
        }
        match &self.fetch {
            Some(Some(fetch)) => new.fetch = fetch.read(&mut found),
            Some(None) => new.fetch = None,
            None => {}
        }
        match self.silent_after_seconds {
            Some(Some(seconds)) => new.silent_after = silence(seconds, &mut found),
            Some(None) => new.silent_after = None,
            None => {}
        }
        new.scheme = self.scheme.as_ref().unwrap_or(&old.scheme).clone();
        new.config = self.config.as_ref().unwrap_or(&old.config).clone();
        let is_scheme = self.scheme.is_some() || self.config.is_some();
        let proof = match is_scheme {
            true => Proof::read(&new.scheme, &new.config, &mut found),
            false => Proof::of(old).ok(),
        };
        if let Some(proof) = &proof
            && (self.dedupe.is_some() || is_scheme)
        {
            proof.check_dedupe(new.dedupe, &mut found);
        }
        let confirms_now = || {
            let before = Proof::of(old).is_ok_and(|proof| proof.confirms());
            !before && proof.as_ref().is_some_and(Proof::confirms)
        };
        match self.awaits_secret_hours {
            None if is_scheme && confirms_now() => {
                new.awaits_secret_until = wait(CONFIRM_HOURS, now, &mut found);
            }
            Some(Some(hours)) => {
                new.awaits_secret_until = wait(hours, now, &mut found);
                if let Some(proof) = &proof {
                    can_wait(proof, &mut found);
                }
            }
            Some(None) => new.awaits_secret_until = None,
            None => {}
        }
        found.done()?;
        Ok((new, proof.filter(|_| is_scheme)))
    }
}

fn wait(hours: u32, now: Timestamp, found: &mut Findings) -> Option<Timestamp> {
    if !(1..=MAX_WAIT_HOURS).contains(&hours) {
        found.note("awaits_secret_hours", format!("it is 1 to {MAX_WAIT_HOURS}"));
        return None;
    }
    now.checked_add(SignedDuration::from_hours(hours.into())).ok()
}

fn silence(seconds: i64, found: &mut Findings) -> Option<SignedDuration> {
    if !(1..=MAX_SILENCE).contains(&seconds) {
        found.note("silent_after_seconds", format!("it is 1 to {MAX_SILENCE} (90 days)"));
        return None;
    }
    Some(SignedDuration::from_secs(seconds))
}

fn can_wait(proof: &Proof, found: &mut Findings) {
    if !proof.waits() {
        let problem = "the provider of this scheme brings no secret; copy it from the provider's dashboard into `secrets`";
        found.note("awaits_secret_hours", problem);
    }
}

fn needs_secret(proof: &Proof, found: &mut Findings) {
    if proof.is_published() {
        return;
    }
    let wait = if proof.scheme.learns_its_secret() {
        ", or let the source wait for the one that the provider brings, with `awaits_secret_hours`"
    } else {
        ""
    };
    found.note(
        "secrets",
        format!("a source needs at least one: without it, nothing can be verified{wait}"),
    );
}

/// What events must say is something that one of them can say.
fn check_only(only: &BTreeMap<String, Value>, is_filed_elsewhere: bool, found: &mut Findings) {
    let (most, longest) = MAX_ONLY;
    let length = |value: &Value| value.as_str().map_or(0, str::len);
    if only.len() > most || only.iter().any(|(at, value)| at.len().max(length(value)) > longest) {
        found
            .note("only", format!("it has at most {most} values, each of at most {longest} bytes"));
        return;
    }
    if is_filed_elsewhere && !only.is_empty() {
        let problem = "the events of this source are filed under the other one of `same_as`, and what that one wants counts; say it there";
        found.note("only", problem);
    }
    for (pointer, value) in only {
        let field = format!("only.{pointer}");
        if !is_pointer(pointer) {
            let problem = "it is no JSON pointer: one begins with `/`, as in /livemode or /data/mode; `~1` stands for a slash in a name, and `~0` for `~`";
            found.note(&field, problem);
        }
        if !matches!(value, Value::Bool(_) | Value::Number(_) | Value::String(_)) {
            let problem = "what an event must say there is a text, a number, true or false; whole objects and lists are not compared";
            found.note(&field, problem);
        }
    }
}

fn is_pointer(text: &str) -> bool {
    let escapes = text.split('~').skip(1);
    text.starts_with('/') && escapes.into_iter().all(|rest| rest.starts_with(['0', '1']))
}

fn handler(new: &NewHandler, found: &mut Findings) -> Option<Handler> {
    match new {
        NewHandler::Mirror { emit_to, states } => {
            let emit_to = emit_to.as_ref().map(|to| found.keep("handler.emit_to", to.parse()));
            let states = states.as_ref().map(|new| read_states(new, found));
            // What is given and cannot be read is missing.
            let emit_to = emit_to.map_or(Some(None), |read| read.map(Some));
            let states = states.map_or(Some(None), |read| read.map(Some));
            Some(Handler::Mirror { emit_to: emit_to?, states: states? })
        }
        NewHandler::Own { name, tenant } => {
            let tenant = tenant.as_ref().and_then(Option::as_ref);
            let tenant = tenant.map(|told| found.keep("handler.tenant", told.parse()));
            let tenant = tenant.map_or(Some(None), |read| read.map(Some));
            // Which there are only the worker knows: an event that finds none is parked with the names of those.
            let name = name.parse::<SourceName>().map(|name| name.to_string());
            let name = name.map_err(|_| found.note("handler.name", NOT_A_HANDLER)).ok();
            Some(Handler::Own { name: name?, tenant: tenant? })
        }
        NewHandler::Forward { tenant, types } => {
            let tenant = found.keep("handler.tenant", tenant.parse());
            if types.len() > MAX_TYPES {
                found.note("handler.types", format!("a source has at most {MAX_TYPES}"));
                return None;
            }
            let types = types
                .iter()
                .enumerate()
                .map(|(at, text)| found.keep(&format!("handler.types[{at}]"), text.parse()));
            // All of them are read before the first one that is missing counts.
            let types: Vec<_> = types.collect();
            Some(Handler::Forward {
                tenant: tenant?,
                types: types.into_iter().collect::<Option<_>>()?,
            })
        }
    }
}

fn read_states(new: &NewStates, found: &mut Findings) -> Option<MirrorStates> {
    let NewStates { at, kind, states: NewMachine { start, moves } } = new;
    let read = MirrorStates::read(at.clone(), kind.clone(), start.clone(), moves.clone());
    read.map_err(|all| all.iter().for_each(|problem| found.note("handler.states", problem))).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_tenant_of_a_handler_stays_unless_it_is_named() {
        let preset = serde_json::from_value(json!({"preset": "stripe"})).unwrap();
        let own = |name: &str, tenant: Option<&str>| Handler::Own {
            name: name.to_owned(),
            tenant: tenant.map(|tenant| tenant.parse().unwrap()),
        };
        let before = own("payments", Some("acme"));
        let old = Source::new("shop".parse().unwrap(), preset, before, Timestamp::UNIX_EPOCH);
        for (tenant, expected) in [
            (json!({}), Some("acme")),
            (json!({"tenant": "other"}), Some("other")),
            (json!({"tenant": null}), None),
        ] {
            let mut handler = json!({"kind": "own", "name": "refunds"});
            handler.as_object_mut().unwrap().extend(tenant.as_object().unwrap().clone());
            let change: SourceChange = serde_json::from_value(json!({"handler": handler})).unwrap();
            let Ok((new, _)) = change.applied(&old, Timestamp::UNIX_EPOCH) else {
                panic!("{handler} is refused")
            };
            assert_eq!(new.handler, own("refunds", expected), "{handler}");
        }
    }
}
