//! Adding and changing a source.

use std::io::{self, Write};

use serde_json::{Map, Value, json};

use super::{
    form::{Dedupe, FetchFrom, HandlerFrom, MailSlot, OnlyFrom, SchemeFrom, hours, seconds},
    show,
};
use crate::{complaint::Complaint, print, secret::SecretFrom};

/// Add a source
#[derive(clap::Args, Debug)]
#[command(
    group = clap::ArgGroup::new("how").required(true).multiple(false).args(["scheme", "scheme_file", "mail_slot"]),
    group = clap::ArgGroup::new("what").required(true).multiple(false).args(["forward", "mirror", "handler"]),
    after_help = "Examples:
  postern sources add shop --scheme stripe --forward acme           asks for the secret
  postern sources add live --scheme stripe --forward acme --only /livemode=true
  postern sources add code --scheme github --mirror --dedupe content --secret-file secret.txt
  postern sources add billing --scheme stripe --mirror --fetch stripe
  postern sources add tasks --scheme asana --mirror --await-secret 24h
  postern sources add topic --scheme aws_sns --config topic_arn=arn:aws:sns:eu-central-1:123456789012:orders --mirror
  postern sources add alerts --mail-slot path --forward acme        makes a secret address
  postern sources add own --scheme-file own.toml --config url=https://hooks.example/in --mirror
  postern sources add live --scheme stripe --handler payments --tenant acme
  postern sources add shop --scheme shopify --mirror --states states.toml

States, as a file:
  at = \"/data/object/status\"
  kind = \"order\"                     # left out: objects of every kind
  [states]
  start = \"open\"
  [states.moves]
  open = [\"failed\", \"paid\"]
  failed = [\"paid\"]
  paid = []"
)]
pub struct Add {
    /// The source's name, which becomes part of its URL
    name: String,
    #[command(flatten)]
    scheme: SchemeFrom,
    #[command(flatten)]
    secret: SecretFrom,
    /// Names the secret; `postern schemes NAME` says where a name has a meaning
    #[arg(long, value_name = "ID", default_value = "1")]
    secret_id: String,
    /// There is no secret: the provider publishes its keys
    #[arg(long, conflicts_with_all = ["secret_file", "await_secret"])]
    no_secret: bool,
    /// Wait so long for the secret that the provider brings by itself, up to 72h
    #[arg(long, value_name = "TIME", value_parser = hours)]
    await_secret: Option<u32>,
    #[command(flatten)]
    handler: HandlerFrom,
    /// What makes two events one
    #[arg(long, value_name = "WHAT", default_value = "id")]
    dedupe: Dedupe,
    /// The provider sends each event to this source, too: file them there, and take each once
    #[arg(long, value_name = "SOURCE")]
    same_as: Option<String>,
    #[command(flatten)]
    only: OnlyFrom,
    #[command(flatten)]
    fetch: FetchFrom,
    /// Doubt its objects when it is silent for longer than this, such as 2h
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    silent_after: Option<u32>,
}

/// Change a source; what is left out stays as it is
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  postern sources set code --dedupe content
  postern sources set shop --only /livemode=true
  postern sources set shop-eu --same-as shop
  postern sources set tasks --await-secret 24h")]
pub struct Set {
    /// The source's name
    pub(super) name: String,
    #[command(flatten)]
    scheme: SchemeFrom,
    #[command(flatten)]
    handler: HandlerFrom,
    /// What makes two events one
    #[arg(long, value_name = "WHAT")]
    dedupe: Option<Dedupe>,
    /// The provider sends each event to this source, too: file them there, and take each once
    #[arg(long, value_name = "SOURCE", conflicts_with = "not_same_as")]
    same_as: Option<String>,
    /// File its events under its own name again
    #[arg(long)]
    not_same_as: bool,
    #[command(flatten)]
    only: OnlyFrom,
    #[command(flatten)]
    fetch: FetchFrom,
    /// Believe its events again
    #[arg(long, conflicts_with_all = ["fetch", "fetch_when"])]
    no_fetch: bool,
    /// Carry out every event again, whatever it says
    #[arg(long, conflicts_with = "only")]
    not_only: bool,
    /// Doubt its objects when it is silent for longer than this, such as 2h
    #[arg(long, value_name = "TIME", value_parser = seconds, conflicts_with = "may_be_silent")]
    silent_after: Option<u32>,
    /// Doubt its objects no more because it is silent
    #[arg(long)]
    may_be_silent: bool,
    /// Wait so long for the secret that the provider brings by itself, up to 72h
    #[arg(long, value_name = "TIME", value_parser = hours, conflicts_with = "stop_waiting")]
    await_secret: Option<u32>,
    /// Wait for a secret no more
    #[arg(long)]
    stop_waiting: bool,
    /// Also if none of its secrets fits the new scheme
    #[arg(long)]
    pub(super) force: bool,
}

impl Add {
    /// What the api takes.
    pub(super) fn form(&self) -> Result<Value, Complaint> {
        let mut form = Map::new();
        form.insert("name".to_owned(), json!(self.name));
        // Before anybody is asked for a secret.
        let scheme = self.scheme.scheme()?;
        let confirms = scheme.as_ref().is_some_and(SchemeFrom::confirms);
        put(&mut form, "scheme", scheme);
        put(&mut form, "config", self.scheme.config());
        put(&mut form, "handler", self.handler.handler()?);
        if matches!(self.dedupe, Dedupe::Content) {
            form.insert("dedupe".to_owned(), json!(self.dedupe.name()));
        }
        put(&mut form, "same_as", self.same_as.as_ref().map(|other| json!(other)));
        put(&mut form, "only", self.only.only());
        put(&mut form, "fetch", self.fetch.fetch()?);
        put(&mut form, "silent_after_seconds", self.silent_after.map(|seconds| json!(seconds)));
        put(&mut form, "awaits_secret_hours", self.await_secret.map(|hours| json!(hours)));
        let needs_none = self.no_secret
            || confirms
            || self.await_secret.is_some()
            || self.scheme.mail_slot == Some(MailSlot::Path);
        if self.secret.is_given() && !self.no_secret || !needs_none {
            let secret = self.secret.read()?;
            form.insert("secrets".to_owned(), json!({ &self.secret_id: secret.expose() }));
        }
        Ok(Value::Object(form))
    }

    /// What a person is told.
    pub(super) fn done(&self, out: &mut dyn Write, source: &Value) -> io::Result<()> {
        let url = print::text(source, "url");
        let name = &self.name;
        writeln!(out, "Source {name} is ready. Let the provider call")?;
        match show::secret_urls(source) {
            urls if urls.is_empty() => writeln!(out, "  {url}")?,
            urls => {
                urls.iter().try_for_each(|(_, url)| writeln!(out, "  {url}"))?;
                writeln!(out, "The last part is the secret, shown this once.")?;
            }
        }
        if let Some(until) = source.get("awaits_secret_until").and_then(Value::as_str) {
            let chosen = source.get("scheme");
            if chosen.is_some_and(SchemeFrom::confirms) {
                let words = "It waits for the provider to ask for a confirmation, and answers by itself, until";
                writeln!(out, "{words} {until}.")?;
                writeln!(
                    out,
                    "Subscribe before that; later, `postern sources set {name} --await-secret 24h`."
                )?;
            } else {
                writeln!(out, "It waits for the provider to bring the secret, until {until}.")?;
            }
        }
        show::weaker(out, source)?;
        show::fetch(out, source)?;
        show::warnings(out, source)
    }
}

impl Set {
    /// What the api takes.
    pub(super) fn form(&self) -> Result<Value, Complaint> {
        let mut form = Map::new();
        put(&mut form, "scheme", self.scheme.scheme()?);
        put(&mut form, "config", self.scheme.config());
        put(&mut form, "handler", self.handler.handler()?);
        put(&mut form, "dedupe", self.dedupe.map(|dedupe| json!(dedupe.name())));
        let same_as = self.same_as.as_ref().map(|other| json!(other));
        put(&mut form, "same_as", same_as.or(self.not_same_as.then_some(Value::Null)));
        put(&mut form, "only", self.only.only().or(self.not_only.then_some(json!({}))));
        put(&mut form, "fetch", self.fetch.fetch()?.or(self.no_fetch.then_some(Value::Null)));
        let limit = self.silent_after.map(|seconds| json!(seconds));
        let limit = limit.or(self.may_be_silent.then_some(Value::Null));
        put(&mut form, "silent_after_seconds", limit);
        let wait = self.await_secret.map(|hours| json!(hours));
        put(&mut form, "awaits_secret_hours", wait.or(self.stop_waiting.then_some(Value::Null)));
        if form.is_empty() {
            return Err(Complaint::new(
                "nothing would change",
                "no option says what to change",
                "see what there is with: postern sources set --help",
            ));
        }
        Ok(Value::Object(form))
    }
}

fn put(form: &mut Map<String, Value>, name: &str, value: Option<Value>) {
    form.extend(value.map(|value| (name.to_owned(), value)));
}
