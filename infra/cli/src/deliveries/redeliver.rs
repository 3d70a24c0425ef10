//! `postern deliveries redeliver`: some by name, or a selection; a selection without `--yes` only says what it would do.

use std::io::{self, Write};

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{left_alone, show, told};
use crate::{
    client::{Client, segment},
    complaint::{Complaint, printable},
    events::replay::{quoted, time},
    print::{self, text},
};

/// Send finished deliveries again, with the same event ids
///
/// Without anything else it means what was given up, to all of the tenant's endpoints. Each delivery is signed with the
/// secret of now, gets a new deadline, and its attempts are counted on. What is pending is left alone and reported.
///
/// A selection without `--yes` changes nothing: it says what it would do, and with which command. Events that are named are
/// sent again at once.
#[derive(clap::Args, Debug)]
pub struct Redeliver {
    /// The tenant
    pub tenant: String,
    /// Ids of events (`evt_...`)
    #[arg(value_name = "EVENT", conflicts_with_all = ["all", "missing", "type", "from", "to"])]
    pub events: Vec<String>,
    /// Only to this endpoint (`ep_...`)
    #[arg(long, value_name = "ENDPOINT")]
    pub endpoint: Option<String>,
    /// Everything that was given up
    #[arg(long)]
    pub all: bool,
    /// Also what was delivered
    #[arg(long, conflicts_with = "missing")]
    pub include_delivered: bool,
    /// Also what was cancelled with an endpoint
    #[arg(long, conflicts_with = "missing")]
    pub include_cancelled: bool,
    /// Not those, but the events since `--from` that never came to an endpoint which would get them now: of before it was
    /// made, or of before it asked for their type
    #[arg(long, requires = "from")]
    pub missing: bool,
    /// Events of these types; `*` stands for any run of characters; may be given several times
    #[arg(long, value_name = "PATTERN")]
    pub r#type: Vec<String>,
    /// Events of then or later: `2026-09-21` or `2026-09-21T14:00:00Z`
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub from: Option<Timestamp>,
    /// Events of before then
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub to: Option<Timestamp>,
    /// Deliveries a second, 1 to 1000; default: 10
    #[arg(long, value_name = "NUMBER")]
    pub rate: Option<u32>,
    /// Why, for the audit; needed to start a selection
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Say what would be done, and do nothing
    #[arg(long, conflicts_with = "yes")]
    pub dry_run: bool,
    /// Start it
    #[arg(long)]
    pub yes: bool,
}

impl Redeliver {
    fn is_selection(&self) -> bool {
        self.events.is_empty()
    }

    /// Whether it only says what it would do. What is delivered is sent again only once it was said how much that is.
    fn is_dry(&self) -> bool {
        self.dry_run || ((self.is_selection() || self.include_delivered) && !self.yes)
    }

    /// Whether it changes something.
    pub(super) fn changes(&self) -> bool {
        !self.is_dry()
    }

    fn body(&self) -> Value {
        let mut select = Map::new();
        let mut put = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                select.insert(name.to_owned(), value);
            }
        };
        put("events", (!self.events.is_empty()).then(|| json!(self.events)));
        put("types", (!self.r#type.is_empty()).then(|| json!(self.r#type)));
        put("from", self.from.map(|time| json!(time)));
        put("to", self.to.map(|time| json!(time)));
        for (name, is_set) in [
            ("include_delivered", self.include_delivered),
            ("include_cancelled", self.include_cancelled),
            ("missing", self.missing),
        ] {
            put(name, is_set.then_some(Value::Bool(true)));
        }
        let named = (!self.is_selection()).then_some("named on the command line");
        let mut body = Map::new();
        body.insert("select".to_owned(), select.into());
        body.insert("dry_run".to_owned(), self.is_dry().into());
        body.insert("reason".to_owned(), json!(self.reason.as_deref().or(named)));
        if let Some(endpoint) = &self.endpoint {
            body.insert("endpoint".to_owned(), endpoint.as_str().into());
        }
        if let Some(rate) = self.rate {
            body.insert("rate".to_owned(), rate.into());
        }
        body.into()
    }

    /// The command that does what this one says.
    fn command(&self, deployment: &[String]) -> String {
        let mut words: Vec<String> =
            ["postern", "deliveries", "redeliver"].map(str::to_owned).into();
        words.push(quoted(&self.tenant));
        words.extend(self.events.iter().map(|event| quoted(event)));
        let mut option = |name: &str, value: &str| {
            words.push(format!("--{name}"));
            words.push(quoted(value));
        };
        self.endpoint.iter().for_each(|endpoint| option("endpoint", endpoint));
        self.r#type.iter().for_each(|types| option("type", types));
        self.from.iter().for_each(|time| option("from", &time.to_string()));
        self.to.iter().for_each(|time| option("to", &time.to_string()));
        self.rate.iter().for_each(|rate| option("rate", &rate.to_string()));
        if self.is_selection() || self.reason.is_some() {
            option("reason", self.reason.as_deref().unwrap_or("WHY"));
        }
        for (name, is_set) in [
            ("--all", self.all),
            ("--missing", self.missing),
            ("--include-delivered", self.include_delivered),
            ("--include-cancelled", self.include_cancelled),
        ] {
            words.extend(is_set.then(|| name.to_owned()));
        }
        words.extend(deployment.iter().map(|word| quoted(word)));
        words.push("--yes".to_owned());
        words.join(" ")
    }

    fn check(&self) -> Result<(), Complaint> {
        let narrowed = self.endpoint.is_some()
            || !self.r#type.is_empty()
            || self.missing
            || self.from.is_some()
            || self.to.is_some();
        if self.is_selection() && !self.all && !narrowed {
            let next = "name events, or narrow it with --endpoint, --type, --from or --to; --all means all that was given up";
            return Err(Complaint::new(
                "nothing is sent again",
                "it is not said which deliveries",
                next,
            ));
        }
        if self.is_selection() && self.yes && self.reason.is_none() {
            let next = "say why with --reason, for those who read the audit later";
            return Err(Complaint::new(
                "nothing is sent again",
                "a selection needs a reason",
                next,
            ));
        }
        Ok(())
    }
}

pub(super) async fn run(
    redeliver: &Redeliver,
    client: &Client,
    deployment: &[String],
    json: bool,
    out: &mut dyn Write,
) -> Result<(), Complaint> {
    redeliver.check()?;
    let path = format!("/v1/tenants/{}/redeliveries", segment(&redeliver.tenant));
    let done = client.post(&path, &redeliver.body()).await?;
    print::either(json, out, &done, |out| {
        if !redeliver.is_dry() {
            show(out, &done)?;
            let (tenant, id) = (quoted(&redeliver.tenant), text(&done, "id"));
            return writeln!(out, "Follow it with: postern deliveries progress {tenant} {id}");
        }
        survey(out, &done)?;
        let counts = done.get("counts").unwrap_or(&Value::Null);
        let takes = counts.get("redelivered").and_then(Value::as_u64).is_some_and(|n| n > 0);
        if !takes && done.get("more") != Some(&Value::Bool(true)) {
            return writeln!(out, "Nothing was changed, and there is nothing to do.");
        }
        writeln!(out, "Nothing was changed. To do it:")?;
        writeln!(out, "  {}", redeliver.command(deployment))
    })
}

fn survey(out: &mut dyn Write, survey: &Value) -> io::Result<()> {
    let counts = survey.get("counts").unwrap_or(&Value::Null);
    let (would, looked_at) = (text(counts, "redelivered"), text(counts, "looked_at"));
    let tenant = text(survey, "tenant");
    writeln!(out, "would send {would} deliveries of {tenant} again (looked at {looked_at})")?;
    if survey.get("more") == Some(&Value::Bool(true)) {
        writeln!(out, "  and more: the survey was cut, the redelivery is not")?;
    }
    for (name, words) in
        [("by_state", "by state"), ("by_type", "by type"), ("by_endpoint", "by endpoint")]
    {
        let of = survey.get(name).and_then(Value::as_object).into_iter().flatten();
        let of: Vec<_> = of.map(|(name, count)| format!("{} {count}", printable(name))).collect();
        if !of.is_empty() {
            writeln!(out, "  {words}: {}", of.join(", "))?;
        }
    }
    left_alone(out, counts)?;
    let first = survey.get("first").and_then(Value::as_array).into_iter().flatten();
    let first: Vec<_> = first.filter_map(Value::as_str).map(printable).collect();
    if !first.is_empty() {
        writeln!(out, "  the first: {}", first.join(" "))?;
    }
    told(out, survey)
}
