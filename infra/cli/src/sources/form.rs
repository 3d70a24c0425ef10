//! What the commands that add and change a source have in common: options, made into what the api takes.

use std::{fs, path::PathBuf};

use fetch::Fetcher;
use serde_json::{Map, Value, json};
use signing::{Scheme, scheme::Verifier};

use crate::complaint::{Complaint, printable};

/// The most bytes of a file with a scheme.
const MAX_SCHEME: u64 = 64 << 10;

/// How requests are verified.
#[derive(clap::Args, Debug, Default)]
pub(super) struct SchemeFrom {
    /// How requests are verified: a scheme that ships, such as `stripe`; `postern schemes` lists them
    #[arg(long, value_name = "NAME", conflicts_with_all = ["scheme_file", "mail_slot"])]
    pub(super) scheme: Option<String>,
    /// How requests are verified: a scheme of your own in a TOML or JSON file, checked before it is sent
    #[arg(long, value_name = "FILE", conflicts_with = "mail_slot")]
    pub(super) scheme_file: Option<PathBuf>,
    /// For a provider that signs nothing: a secret address, user and password, or a fixed token in a header. Weaker than
    /// any signature
    #[arg(long, value_name = "KIND")]
    pub(super) mail_slot: Option<MailSlot>,
    /// The header of `--mail-slot token`, if it is not X-Webhook-Token
    #[arg(long, value_name = "HEADER", requires = "mail_slot", conflicts_with_all = ["scheme", "scheme_file"])]
    token_header: Option<String>,
    /// What `{config:KEY}` stands for in the scheme, such as the address as the provider knows it; may be given more than
    /// once
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    config: Vec<(String, String)>,
}

/// Which events are carried out.
#[derive(clap::Args, Debug, Default)]
pub(super) struct OnlyFrom {
    /// Carry out only events that say this at a JSON pointer, such as /livemode=true; others are kept and ignored. true,
    /// false and numbers are meant as such, anything else is a text; may be given more than once
    #[arg(long, value_name = "POINTER=VALUE", value_parser = pair)]
    only: Vec<(String, String)>,
}

/// How the provider is asked.
#[derive(clap::Args, Debug, Default)]
pub(super) struct FetchFrom {
    /// Ask the provider for the current state of an event's object, instead of believing the event: `stripe`, `github`,
    /// `shopify`, or a TOML or JSON file with a fetcher of your own. Needs a token: `postern sources tokens add NAME`.
    /// Shopify needs `--config shop=NAME`
    #[arg(long, value_name = "NAME|FILE")]
    pub(super) fetch: Option<String>,
    /// When it is asked. Without it: in doubt if the scheme's versions are trusted, else always
    #[arg(long, value_name = "WHEN", requires = "fetch")]
    fetch_when: Option<FetchWhen>,
}

/// When the provider is asked.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
pub(super) enum FetchWhen {
    /// For each event, unless what it says is known already
    Always,
    /// If an event has no version, or a known version with another content
    Doubt,
}

/// What stands in for a signature.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MailSlot {
    /// The last part of the address is the secret
    Path,
    /// User and password, as `user:password`
    Basic,
    /// A fixed token in a header
    Token,
}

/// What makes two events one.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
pub(super) enum Dedupe {
    /// The provider's id
    Id,
    /// What the provider signed, for providers that do not sign the id
    Content,
}

impl Dedupe {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Id => "id",
            Self::Content => "content",
        }
    }
}

/// The most bytes of a file with states.
const MAX_STATES: u64 = 64 << 10;

/// What is done with events. An option of one handler names the others as conflicts: `requires` alone says nothing where what
/// it requires is in conflict with what is given.
#[derive(clap::Args, Debug, Default)]
pub(super) struct HandlerFrom {
    /// Send matching events out to the endpoints of this tenant
    #[arg(long, value_name = "TENANT", conflicts_with_all = ["mirror", "handler"])]
    pub(super) forward: Option<String>,
    /// Forward only these types; may be given more than once
    #[arg(long = "type", value_name = "PATTERN", requires = "forward", conflicts_with_all = ["mirror", "handler"])]
    types: Vec<String>,
    /// Keep the provider's objects in the State table
    #[arg(long, conflicts_with = "handler")]
    pub(super) mirror: bool,
    /// Also tell the endpoints of this tenant when an object changes
    #[arg(long, value_name = "TENANT", requires = "mirror", conflicts_with_all = ["forward", "handler"])]
    emit_to: Option<String>,
    /// Let objects move only between states, as a TOML or JSON file says; moves that it does not name are refused
    #[arg(long, value_name = "FILE", requires = "mirror", conflicts_with_all = ["forward", "handler"])]
    states: Option<PathBuf>,
    /// Let a handler decide that is written in Rust and part of the worker: `payments`, or one of your own
    #[arg(long, value_name = "NAME")]
    pub(super) handler: Option<String>,
    /// Whose endpoints that handler tells
    #[arg(long, value_name = "TENANT", requires = "handler", conflicts_with_all = ["forward", "mirror"])]
    tenant: Option<String>,
}

impl SchemeFrom {
    /// The scheme as the api takes it; `None`: no word about it.
    pub(super) fn scheme(&self) -> Result<Option<Value>, Complaint> {
        if let Some(file) = &self.scheme_file {
            return read_scheme(file).map(|own| Some(json!({ "own": own })));
        }
        let preset = |name: &str| json!({ "preset": name });
        Ok(match (self.mail_slot, &self.token_header) {
            (Some(MailSlot::Path), _) => Some(preset("mail_slot_path")),
            (Some(MailSlot::Basic), _) => Some(preset("mail_slot_basic")),
            (Some(MailSlot::Token), None) => Some(preset("mail_slot_token")),
            (Some(MailSlot::Token), Some(header)) => {
                let from = format!("{{header:{}}}", header.to_ascii_lowercase());
                let own = json!({ "like": "mail_slot_token", "signature": { "from": from } });
                Some(json!({ "own": own }))
            }
            (None, _) => self.scheme.as_deref().map(preset),
        })
    }

    /// Whether the provider has no secret to give, and asks for a confirmation instead.
    pub(super) fn confirms(scheme: &Value) -> bool {
        let preset = scheme.get("preset").and_then(Value::as_str).and_then(Scheme::preset);
        let own = || Scheme::from_value(scheme.get("own")?.clone()).ok();
        preset.or_else(own).is_some_and(|scheme| scheme.verifier() == Some(Verifier::Sns))
    }

    /// What `{config:..}` stands for; `None`: no word about it.
    pub(super) fn config(&self) -> Option<Value> {
        let pairs = self.config.iter().map(|(key, value)| (key.clone(), json!(value)));
        let config: Map<_, _> = pairs.collect();
        (!config.is_empty()).then_some(Value::Object(config))
    }
}

impl OnlyFrom {
    /// What events must say as the api takes it; `None`: no word about it.
    pub(super) fn only(&self) -> Option<Value> {
        let value = |text: &String| serde_json::from_str(text).unwrap_or_else(|_| json!(text));
        let only: Map<_, _> =
            self.only.iter().map(|(at, text)| (at.clone(), value(text))).collect();
        (!only.is_empty()).then_some(Value::Object(only))
    }
}

impl FetchFrom {
    /// The fetcher as the api takes it; `None`: no word about it. A file is read and checked before it is sent.
    pub(super) fn fetch(&self) -> Result<Option<Value>, Complaint> {
        let Some(fetch) = &self.fetch else { return Ok(None) };
        let mut form = Map::new();
        // No preset has a dot or a slash in its name, and no file is without both that a person means.
        if fetch.contains(['.', '/']) {
            form.insert("own".to_owned(), read_fetcher(fetch)?);
        } else {
            form.insert("preset".to_owned(), json!(fetch));
        }
        let when = self.fetch_when.map(|when| match when {
            FetchWhen::Always => "always",
            FetchWhen::Doubt => "doubt",
        });
        form.extend(when.map(|when| ("when".to_owned(), json!(when))));
        Ok(Some(Value::Object(form)))
    }
}

impl HandlerFrom {
    /// The handler as the api takes it; `None`: no word about it.
    pub(super) fn handler(&self) -> Result<Option<Value>, Complaint> {
        let with = |kind: &str, more: Vec<(&str, Option<Value>)>| {
            let more = more.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
            let kind = ("kind".to_owned(), json!(kind));
            Value::Object([kind].into_iter().chain(more).collect())
        };
        let text = |text: &Option<String>| text.as_ref().map(|text| json!(text));
        Ok(if self.forward.is_some() {
            let types = Some(json!(self.types));
            Some(with("forward", vec![("tenant", text(&self.forward)), ("types", types)]))
        } else if self.mirror {
            let states = self.states.as_ref().map(read_states).transpose()?;
            Some(with("mirror", vec![("emit_to", text(&self.emit_to)), ("states", states)]))
        } else if self.handler.is_some() {
            let tenant = text(&self.tenant);
            Some(with("own", vec![("name", text(&self.handler)), ("tenant", tenant)]))
        } else {
            None
        })
    }
}

/// Reads a machine of states. The deployment says what is wrong with it.
fn read_states(file: &PathBuf) -> Result<Value, Complaint> {
    use std::io::Read as _;
    let wrong = |why: String| {
        let next = "write `at = \"/data/object/status\"`, then `[states]` with `start` and `[states.moves]`; see \
                    `postern sources add --help`";
        Complaint::new(format!("{} says no states", file.display()), why, next)
    };
    let mut text = String::new();
    let read =
        fs::File::open(file).and_then(|open| open.take(MAX_STATES).read_to_string(&mut text));
    read.map_err(|error| wrong(error.to_string()))?;
    if file.extension().is_some_and(|extension| extension == "json") {
        serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))
    } else {
        toml::from_str(&text).map_err(|error| wrong(printable(error.message())))
    }
}

/// Reads a scheme, and says everything that is wrong with it before the deployment hears of it. It is sent whole, with
/// what it inherits: the preset below it may be another in the deployment's version.
fn read_scheme(file: &PathBuf) -> Result<Value, Complaint> {
    use std::io::Read as _;
    let wrong = |why: String| {
        let next = "mend what is named; `postern verify --scheme-file` tries it on a request of the provider's";
        Complaint::new(format!("{} is not a scheme that can be used", file.display()), why, next)
    };
    let mut text = String::new();
    let read =
        fs::File::open(file).and_then(|open| open.take(MAX_SCHEME).read_to_string(&mut text));
    read.map_err(|error| wrong(error.to_string()))?;
    let is_json = file.extension().is_some_and(|extension| extension == "json");
    let scheme = if is_json { Scheme::from_json(&text) } else { Scheme::from_toml(&text) };
    let scheme = scheme.map_err(|problems| {
        let lines: Vec<_> = problems.0.iter().map(|one| printable(&one.to_string())).collect();
        wrong(lines.join("\n        "))
    })?;
    serde_json::to_value(&scheme).map_err(|error| wrong(error.to_string()))
}

/// Reads a fetcher, and says everything that is wrong with it before the deployment hears of it.
fn read_fetcher(file: &str) -> Result<Value, Complaint> {
    use std::io::Read as _;
    let wrong = |why: String| {
        let next =
            "mend what is named; the form is described at the top of shared/fetch/src/fetcher.rs";
        Complaint::new(format!("{file} is not a fetcher that can be used"), why, next)
    };
    let mut text = String::new();
    let read =
        fs::File::open(file).and_then(|open| open.take(MAX_SCHEME).read_to_string(&mut text));
    read.map_err(|error| wrong(error.to_string()))?;
    let is_json = file.ends_with(".json");
    let value = fetch::fetcher::parse(&text, is_json).map_err(wrong)?;
    match Fetcher::from_value(value.clone()) {
        Ok(_) => Ok(value),
        Err(problems) => {
            let lines: Vec<_> = problems.0.iter().map(|one| printable(&one.to_string())).collect();
            Err(wrong(lines.join("\n        ")))
        }
    }
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("it is a key and a value with `=` between them".to_owned()),
    }
}

/// A span of time in whole units, such as `24h`, in seconds.
pub(crate) fn seconds(text: &str) -> Result<u32, String> {
    let wrong = || "it is a number with a unit: s, m, h or d, as in 24h".to_owned();
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(split).ok_or_else(wrong)?;
    let unit = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ if text == "0" => 1,
        _ => return Err(wrong()),
    };
    let number: u32 = number.parse().map_err(|_| wrong())?;
    number.checked_mul(unit).ok_or_else(wrong)
}

/// A span of time in whole hours.
pub(super) fn hours(text: &str) -> Result<u32, String> {
    match seconds(text)? {
        seconds if seconds % 3600 == 0 => Ok(seconds / 3600),
        _ => Err("it is a number of whole hours, as in 24h".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_of_time_are_a_number_and_a_unit() {
        let check =
            |text: &str, expected: Option<u32>| assert_eq!(seconds(text).ok(), expected, "{text}");
        check("24h", Some(86_400));
        check("7d", Some(604_800));
        check("90s", Some(90));
        check("5m", Some(300));
        check("0", Some(0));
        check("0h", Some(0));
        check("24", None);
        check("h", None);
        check("-1h", None);
        check("1.5h", None);
        check("1h30m", None);
        check("99999999d", None);
        check("1\u{fc}", None);
        check("", None);
        assert_eq!((hours("2d"), hours("60m").ok()), (Ok(48), Some(1)));
        assert!(hours("90m").is_err());
    }

    #[test]
    fn a_pair_keeps_everything_behind_its_first_equals_sign() {
        assert_eq!(pair("url=https://x/?a=b"), Ok(("url".to_owned(), "https://x/?a=b".to_owned())));
        assert!(pair("url").is_err() && pair("=x").is_err());
    }
}
