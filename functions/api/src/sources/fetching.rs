//! How a source asks its provider for the state of objects: what callers want of it, checked, and how it is shown.

use domain::{
    address::EndpointUrl,
    fetch::{Fetch, FetchChoice, When},
    ports::SourceSecret,
    source::{Handler, Source},
};
use fetch::{Auth, Fetcher, NoFetcher};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::view::is_over;
use crate::{Limits, problem::Findings};

/// Most bytes of a fetcher of a source's own.
const MAX_OWN: usize = 64 * 1024;

/// A fetcher to choose: one that ships, or one as data.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewFetch {
    #[serde(default)]
    preset: Option<String>,
    #[serde(default)]
    own: Option<Value>,
    #[serde(default)]
    when: Option<When>,
}

/// How a source asks, as it is shown: never with a token.
#[derive(Debug, Serialize)]
pub(super) struct FetchView {
    #[serde(flatten)]
    choice: FetchChoice,
    when: When,
    /// `None`: this version cannot use its fetcher.
    title: Option<String>,
    docs: Option<String>,
    facts_checked_on: Option<String>,
    facts_mark: Option<String>,
    /// The kinds of objects that are asked for; `None`: all.
    kinds: Option<Vec<String>>,
    calls_per_second: Option<f64>,
    tokens: Vec<TokenView>,
    /// In words.
    words: String,
}

/// A token, as it is shown.
#[derive(Debug, Serialize)]
pub(super) struct TokenView {
    id: String,
    expires_at: Option<Timestamp>,
}

impl NewFetch {
    /// The choice. `None`: it is none.
    pub(super) fn read(&self, found: &mut Findings) -> Option<Fetch> {
        let choice = match (&self.preset, &self.own) {
            (Some(name), None) => FetchChoice::Preset(name.clone()),
            (None, Some(own)) if own.to_string().len() > MAX_OWN => {
                found.note("fetch.own", format!("it has more than {MAX_OWN} bytes"));
                return None;
            }
            (None, Some(own)) => FetchChoice::Own(own.clone()),
            _ => {
                found.note("fetch", "it has either `preset`, the name of a fetcher that ships, or `own`, one as data");
                return None;
            }
        };
        Some(Fetch { choice, when: self.when })
    }
}

/// Whether a source can ask its provider as it wants to.
pub(super) fn check(source: &Source, trusts_versions: bool, limits: &Limits, found: &mut Findings) {
    let Some(fetch) = &source.fetch else { return };
    let fetcher = match fetch::source::chosen(&fetch.choice) {
        Ok(fetcher) => fetcher,
        Err(NoFetcher::Unknown(_)) => {
            let names: Vec<_> = fetch::preset_names().collect();
            found.note(
                "fetch.preset",
                format!("there is none of this name; there are {}", names.join(", ")),
            );
            return;
        }
        Err(NoFetcher::Bad(problems)) => {
            for problem in problems.0 {
                let dot = if problem.at.is_empty() { "" } else { "." };
                found.note(&format!("fetch.own{dot}{}", problem.at), problem.what);
            }
            return;
        }
    };
    if matches!(source.handler, Handler::Forward { .. }) {
        found.note("fetch", "forwarding sends events as they came, so nothing would be asked; mirror, or leave it out");
    }
    if source.same_as.is_some() {
        found.note(
            "fetch",
            "the events of this source are filed under the other one of `same_as`; say it there",
        );
    }
    for name in fetcher.needs_config() {
        if !source.config.contains_key(name) {
            found.note("config", format!("the fetcher needs {name}"));
        }
    }
    if fetch.when(trusts_versions) == When::Doubt && !fetcher.has_versions() {
        found.note("fetch.when", "`doubt` needs a fetcher with a `version`, to compare with those of events; say `always`");
    }
    if let Some(host) = fetcher.host(&source.config)
        && EndpointUrl::parse(&format!("https://{host}/"), &limits.addresses).is_err()
    {
        found.note(
            "fetch.own.url",
            "its host may not be called: no private address, and port 443 or 8443 only",
        );
    }
}

/// How a source asks. `tokens`: `None`, they were not looked up.
pub(super) fn shown(
    source: &Source,
    trusts_versions: bool,
    tokens: Option<&[SourceSecret]>,
    now: Timestamp,
) -> Option<FetchView> {
    let fetch = source.fetch.as_ref()?;
    let fetcher = fetch::source::chosen(&fetch.choice);
    let when = fetch.when(trusts_versions);
    let words = match (&fetcher, tokens) {
        (Err(error), _) => {
            format!("its fetcher cannot be used by this version, so that its events fail: {error}")
        }
        (Ok(fetcher), tokens) => in_words(fetcher, when, tokens, &source.name.to_string(), now),
    };
    let fetcher = fetcher.ok();
    let about = fetcher.as_ref().map(Fetcher::about);
    let tokens = tokens.unwrap_or_default().iter();
    Some(FetchView {
        choice: fetch.choice.clone(),
        when,
        title: about.map(|about| about.title.clone()),
        docs: about.map(|about| about.docs.clone()),
        facts_checked_on: about.map(|about| about.checked_on.clone()),
        facts_mark: about.map(|about| about.mark.clone()),
        kinds: fetcher.as_ref().and_then(|f| Some(f.kinds()?.map(str::to_owned).collect())),
        calls_per_second: fetcher.as_ref().map(|f| (1.0 / f.pace().interval.as_secs_f64()).round()),
        tokens: tokens.map(|t| TokenView { id: t.id.clone(), expires_at: t.expires_at }).collect(),
        words,
    })
}

fn in_words(
    fetcher: &Fetcher,
    when: When,
    tokens: Option<&[SourceSecret]>,
    name: &str,
    now: Timestamp,
) -> String {
    let whom = match fetcher.about().title.as_str() {
        "" => "the provider",
        title => title,
    };
    let when = match when {
        When::Always => "about each event, unless a later answer covers it",
        When::Doubt => "where events leave it open which of them is newer",
    };
    let is_active = |token: &SourceSecret| !is_over(token.expires_at, now);
    let without = match tokens {
        Some(tokens) if *fetcher.auth() != Auth::None && !tokens.iter().any(is_active) => format!(
            "; but it has no token, so that its events fail: add one with `postern sources tokens add {name}`"
        ),
        _ => String::new(),
    };
    format!("asks {whom} {when}{without}")
}
