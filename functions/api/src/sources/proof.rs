//! How a source's requests prove that they come from the provider: its scheme, with what the source configures, and what
//! people should know of it.

use std::collections::BTreeMap;

use domain::source::{Dedupe, SchemeChoice, Source};
use flow::scheme::{self, NoScheme};
use serde_json::Value;
use signing::{Key, Scheme, Secret, Trust, scheme::Verifier};

use super::view::Verification;
use crate::problem::Findings;

/// Most bytes of a scheme of one's own, as JSON. Presets have a thousand, and a row of the registry takes 400 KB.
const MAX_SCHEME: usize = 16 * 1024;

/// Most values of a source's configuration, and most bytes of each.
const MAX_CONFIG: (usize, usize) = (20, 1024);

/// A source's scheme, ready for use.
#[derive(Debug)]
pub(super) struct Proof {
    pub(super) scheme: Scheme,
    /// The scheme whole, as data.
    form: Value,
}

impl Proof {
    /// Reads what a caller chose, and notes every problem by its path.
    pub(super) fn read(
        choice: &SchemeChoice,
        config: &BTreeMap<String, String>,
        found: &mut Findings,
    ) -> Option<Self> {
        let (most, longest) = MAX_CONFIG;
        if config.len() > most || config.iter().any(|(k, v)| k.len().max(v.len()) > longest) {
            let limit = format!("it has at most {most} values, each of at most {longest} bytes");
            found.note("config", limit);
            return None;
        }
        if let SchemeChoice::Own(value) = choice
            && value.to_string().len() > MAX_SCHEME
        {
            found.note("scheme.own", format!("it has more than {MAX_SCHEME} bytes"));
            return None;
        }
        let proof = match Self::build(choice, config) {
            Ok(proof) => proof,
            Err(problems) => {
                problems.into_iter().for_each(|(field, problem)| found.note(&field, problem));
                return None;
            }
        };
        for name in proof.scheme.missing_config() {
            found.note(&format!("config.{name}"), proof.need_of(name));
        }
        Some(proof)
    }

    /// The proof of a source that is there; else why it has none in this version.
    pub(super) fn of(source: &Source) -> Result<Self, String> {
        Self::build(&source.scheme, &source.config).map_err(|problems| {
            let problems = problems.iter().map(|(field, problem)| format!("{field}: {problem}"));
            problems.collect::<Vec<_>>().join("; ")
        })
    }

    fn build(
        choice: &SchemeChoice,
        config: &BTreeMap<String, String>,
    ) -> Result<Self, Vec<(String, String)>> {
        let scheme = scheme::chosen(choice, config).map_err(|none| match none {
            NoScheme::Unknown(name) => vec![("scheme.preset".to_owned(), unknown(&name))],
            NoScheme::Bad(problems) => {
                let path = |at: &str| match at {
                    "" => "scheme.own".to_owned(),
                    at => format!("scheme.own.{at}"),
                };
                problems.0.into_iter().map(|one| (path(&one.at), one.what)).collect()
            }
        })?;
        let form = serde_json::to_value(&scheme).unwrap_or_default();
        Ok(Self { scheme, form })
    }

    /// Why the scheme needs a value of the configuration.
    fn need_of(&self, name: &str) -> &'static str {
        match (self.scheme.verifier(), name) {
            (Some(Verifier::Sns), "topic_arn") => {
                "Amazon signs for the topics of all its customers, so that without it anybody with an AWS account could send; set the ARN of your topic, such as arn:aws:sns:eu-central-1:123456789012:orders"
            }
            _ => {
                "the scheme needs this value, and nobody but you knows it; requests would be refused without it"
            }
        }
    }

    /// Notes what is wrong with telling events apart by this.
    pub(super) fn check_dedupe(&self, dedupe: Dedupe, found: &mut Findings) {
        if dedupe == Dedupe::Content && self.scheme.counts_every_request() {
            found.note(
                "dedupe",
                "the provider sends the same bytes for one change after another, so that by content all but the first would be taken for repeats and be lost; leave it at `id`, which is new for each request",
            );
        }
    }

    /// Whether the secret is the last part of the address.
    pub(super) fn is_in_path(&self) -> bool {
        let from = self.form.pointer("/signature/from");
        self.scheme.trust() == Trust::None || from.is_some_and(|from| from == "{path-secret}")
    }

    /// Whether a request is taken apart as under the other scheme.
    pub(super) fn splits_like(&self, other: &Self) -> bool {
        ["batch", "element"].iter().all(|key| self.form.get(key) == other.form.get(key))
    }

    /// Whether the provider publishes the keys, so that a source needs no secret.
    pub(super) fn is_published(&self) -> bool {
        // Plaid publishes its keys, too, but only to those who say who they are: that is the secret.
        self.scheme.publishes_keys() && self.scheme.verifier() != Some(Verifier::Plaid)
    }

    /// Whether the provider brings the secret, or wants to be confirmed, while somebody expects it.
    pub(super) fn waits(&self) -> bool {
        let handshakes = self.form.get("handshake").and_then(Value::as_array).into_iter().flatten();
        let is_waiting =
            |handshake: &Value| handshake.get("only_waiting") == Some(&Value::Bool(true));
        self.scheme.learns_its_secret() || handshakes.into_iter().any(is_waiting)
    }

    /// Whether the provider wants to be confirmed before it sends anything.
    pub(super) fn confirms(&self) -> bool {
        let handshakes = self.form.get("handshake").and_then(Value::as_array).into_iter().flatten();
        handshakes
            .into_iter()
            .any(|handshake| handshake.get("confirm").is_some_and(Value::is_object))
    }

    /// Whether a secret only serves handshakes: it verifies no event, and its id is the scheme's.
    pub(super) fn is_of_handshakes(&self, id: &str) -> bool {
        self.scheme.secrets_of_handshakes().any(|of| of == id)
    }

    /// The ids that its secrets have, where each place of a signature has a secret of its own.
    pub(super) fn places(&self) -> Vec<&str> {
        self.scheme.secrets_of_places().collect()
    }

    /// What is wrong with a secret, in words that hold no part of it; `None`: it can be set.
    pub(super) fn fault_of(&self, id: &str, secret: &Secret) -> Option<String> {
        // What a source has beside published keys is a credential for fetching them; what serves handshakes only is a
        // word that both sides know. Neither is written as the scheme has its keys.
        let is_word = self.scheme.lookup().is_some() || self.is_of_handshakes(id);
        let plain = is_word.then(|| Scheme::preset("generic")).flatten();
        let key = match Key::parse(plain.as_ref().unwrap_or(&self.scheme), id, secret) {
            Ok(key) => key,
            Err(error) => return Some(error.to_string()),
        };
        if let Some(weakness) = key.weakness() {
            return Some(weakness.to_string());
        }
        let unreserved = |b: u8| b.is_ascii_alphanumeric() || b"-_~.".contains(&b);
        if self.is_in_path() && !secret.expose().bytes().all(unreserved) {
            let fault = "it becomes a part of the address, so it has letters, digits, `-`, `_`, `~` and `.` only; leave it out, and one is made";
            return Some(fault.to_owned());
        }
        None
    }

    /// What people should know of it.
    pub(super) fn told(&self, dedupe: Dedupe) -> Verification {
        let (scheme, about) = (&self.scheme, self.scheme.about());
        Verification {
            trust: scheme.trust().as_str(),
            is_weaker: scheme.trust().is_weaker(),
            words: scheme.trust().to_string(),
            id_is_signed: scheme.signs_id(),
            tolerance_seconds: scheme.tolerance_seconds(),
            replays: self.replays(dedupe),
            is_batch: scheme.is_batch(),
            title: about.title.clone(),
            docs: about.docs.clone(),
            facts_checked_on: about.checked_on.clone(),
            facts_mark: about.mark.clone(),
        }
    }

    /// What stands against a request that is sent again.
    fn replays(&self, dedupe: Dedupe) -> String {
        let scheme = &self.scheme;
        let time = scheme.tolerance_seconds();
        let time = time.map(|seconds| {
            format!(
                "the time is signed, and a request is refused when it is more than {seconds} s old"
            )
        });
        let key = match (scheme.trust(), dedupe, scheme.signs_id()) {
            _ if scheme.counts_every_request() => {
                "every request counts as an event of its own, because the provider sends the same bytes for every change: a repeated one is acted on again"
            }
            (Trust::Token | Trust::None, ..) => {
                "nothing is signed: whoever sees one request can send others"
            }
            (_, Dedupe::Content, _) => "the same signed content is taken once",
            (_, Dedupe::Id, _) if !scheme.has_id() => {
                "the provider gives its events no id; a hash of the content stands in for it, and the same content is taken once"
            }
            (_, Dedupe::Id, true) => "the id is signed, and taken once",
            (_, Dedupe::Id, false) => {
                "the id is not signed: whoever has one request can send it again under other ids; dedupe by content stands against that"
            }
        };
        time.into_iter().chain([key.to_owned()]).collect::<Vec<_>>().join("; ")
    }
}

/// That no such scheme ships, with those that may be meant: there are too many to list them all.
fn unknown(name: &str) -> String {
    let begin: String = name.chars().take(2).collect();
    let is_near = |known: &&str| {
        !begin.is_empty()
            && (known.starts_with(&begin) || known.contains(name) || name.contains(known))
    };
    let near: Vec<_> = signing::preset_names().filter(is_near).collect();
    let meant = match near.as_slice() {
        [] => String::new(),
        near => format!(" (perhaps {})", near.join(", ")),
    };
    format!(
        "no such scheme ships{meant}; `postern schemes` lists those that do; or describe one of your own under `scheme.own`"
    )
}
