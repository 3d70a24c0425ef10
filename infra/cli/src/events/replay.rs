//! `postern events replay`: one event, some by name, or a selection; a selection without `--yes` only says what it would do.

use std::io::{self, Write};

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use jiff::{Timestamp, civil::Date, tz::TimeZone};
use serde_json::{Value, json};

use super::{received, starts};
use crate::{
    client::Client,
    complaint::{Complaint, printable},
    print::{self, text},
    replays,
};

/// Run received events through their handler again
///
/// Events that are named are run again at once: parked and ignored ones; `--status processed` takes finished ones too. One
/// event that is named alone is run again whatever it is.
///
/// A selection without `--yes` changes nothing: it says what it would do, and with which command. Restrictions add up; without
/// `--status` it means what is parked. Events keep the time at which they came in, and are not verified again.
#[derive(clap::Args, Debug)]
pub struct Replay {
    /// The source
    pub source: String,
    /// The provider's ids of events
    #[arg(value_name = "EVENT", conflicts_with_all = ["all", "type", "error", "from", "to"])]
    pub events: Vec<String>,
    /// Everything of the source that is parked, or stands as `--status` says
    #[arg(long)]
    pub all: bool,
    /// Events that stand so: `dead_letter` (or `parked`), `ignored` or `processed`; may be given several times
    #[arg(long, value_name = "STATUS", value_parser = statuses())]
    pub status: Vec<String>,
    /// Events of these types; `*` stands for any run of characters; may be given several times
    #[arg(long, value_name = "PATTERN")]
    pub r#type: Vec<String>,
    /// Events whose last error has this code, such as `handler_failed`
    #[arg(long, value_name = "CODE")]
    pub error: Option<String>,
    /// Events received then or later: `2026-09-21` or `2026-09-21T14:00:00Z`
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub from: Option<Timestamp>,
    /// Events received before then
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub to: Option<Timestamp>,
    /// Events a second, 1 to 1000; default: 50
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

/// What can be run again, by the api's names. An event that is a dead letter is parked, everywhere that people read.
fn statuses() -> impl TypedValueParser<Value = String> {
    let parked = PossibleValue::new("dead_letter").alias("parked");
    PossibleValuesParser::new([parked, "ignored".into(), "processed".into()])
        .map(|status| if status == "parked" { "dead_letter".to_owned() } else { status })
}

/// A time, or the beginning of a day (UTC).
pub(crate) fn time(text: &str) -> Result<Timestamp, String> {
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(time);
    }
    let day = text.parse::<Date>().ok().filter(|_| !text.contains('T'));
    let day = day.and_then(|day| TimeZone::UTC.to_timestamp(day.at(0, 0, 0, 0)).ok());
    day.ok_or_else(|| {
        "expected a time such as 2026-09-21T14:00:00Z, or a day such as 2026-09-21".to_owned()
    })
}

impl Replay {
    fn is_selection(&self) -> bool {
        self.events.is_empty()
    }

    /// Whether it only says what it would do.
    fn is_dry(&self) -> bool {
        self.dry_run || (self.is_selection() && !self.yes)
    }

    /// Whether it changes something.
    pub(super) fn changes(&self) -> bool {
        !self.is_dry()
    }

    /// One event, named alone, and nothing else said: it is run again whatever its status.
    fn only(&self) -> Option<&str> {
        match self.events.as_slice() {
            [only] if self.status.is_empty() && self.reason.is_none() => Some(only),
            _ => None,
        }
    }

    fn body(&self) -> Value {
        let mut select = json!({});
        let mut put = |name: &str, value: Option<Value>| {
            if let (Some(value), Some(select)) = (value, select.as_object_mut()) {
                select.insert(name.to_owned(), value);
            }
        };
        put("events", (!self.events.is_empty()).then(|| json!(self.events)));
        put("status", (!self.status.is_empty()).then(|| json!(self.status)));
        put("types", (!self.r#type.is_empty()).then(|| json!(self.r#type)));
        put("error", self.error.as_ref().map(|code| json!(code)));
        put("from", self.from.map(|time| json!(time)));
        put("to", self.to.map(|time| json!(time)));
        let named = (!self.is_selection()).then_some("named on the command line");
        let mut body = json!({
            "source": self.source,
            "select": select,
            "dry_run": self.is_dry(),
            "reason": self.reason.as_deref().or(named),
        });
        if let (Some(rate), Some(body)) = (self.rate, body.as_object_mut()) {
            body.insert("rate".to_owned(), rate.into());
        }
        body
    }

    /// The command that does what this one says.
    fn command(&self, deployment: &[String]) -> String {
        let mut words = vec!["postern".to_owned(), "events".to_owned(), "replay".to_owned()];
        words.push(quoted(&self.source));
        words.extend(self.events.iter().map(|event| quoted(event)));
        let mut option = |name: &str, value: &str| {
            words.push(format!("--{name}"));
            words.push(quoted(value));
        };
        self.status.iter().for_each(|status| option("status", status));
        self.r#type.iter().for_each(|types| option("type", types));
        self.error.iter().for_each(|code| option("error", code));
        self.from.iter().for_each(|time| option("from", &time.to_string()));
        self.to.iter().for_each(|time| option("to", &time.to_string()));
        self.rate.iter().for_each(|rate| option("rate", &rate.to_string()));
        // With a reason, one that is named alone would be chosen by its status.
        if self.only().is_none() {
            option("reason", self.reason.as_deref().unwrap_or("WHY"));
        }
        if self.all {
            words.push("--all".to_owned());
        }
        words.extend(deployment.iter().map(|word| quoted(word)));
        words.push("--yes".to_owned());
        words.join(" ")
    }

    fn check(&self) -> Result<(), Complaint> {
        let narrowed = !self.status.is_empty()
            || !self.r#type.is_empty()
            || self.error.is_some()
            || self.from.is_some()
            || self.to.is_some();
        if self.is_selection() && !self.all && !narrowed {
            let next = "name events, or narrow it with --status, --type, --error, --from or --to; --all means all that \
                        is parked";
            return Err(Complaint::new("nothing is replayed", "it is not said which events", next));
        }
        if self.is_selection() && self.yes && self.reason.is_none() {
            let next = "say why with --reason, for those who read the audit later";
            return Err(Complaint::new("nothing is replayed", "a selection needs a reason", next));
        }
        Ok(())
    }
}

/// A word as the shell takes it.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:/@%+=,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

pub(super) async fn run(
    replay: &Replay,
    client: &Client,
    deployment: &[String],
    json: bool,
    out: &mut dyn Write,
) -> Result<(), Complaint> {
    replay.check()?;
    if let Some(event) = replay.only().filter(|_| !replay.is_dry()) {
        let path = format!("{}/replay", received(&replay.source, event));
        let done = client.post(&path, &json!({})).await?;
        return print::either(json, out, &done, |out| {
            writeln!(out, "{} is pending again{}.", printable(event), starts(&done))?;
            let (source, event) = (quoted(&replay.source), quoted(event));
            writeln!(out, "Follow it with: postern events story {source} {event}")
        });
    }
    let done = client.post("/v1/replays", &replay.body()).await?;
    print::either(json, out, &done, |out| {
        if !replay.is_dry() {
            replays::show(out, &done)?;
            let id = text(&done, "id");
            return writeln!(out, "Follow it with: postern replays show {id}");
        }
        let counts = done.get("counts").unwrap_or(&Value::Null);
        let is_any = |name| counts.get(name).and_then(Value::as_u64).is_some_and(|count| count > 0);
        let takes = match replay.only() {
            Some(event) if is_any("replayed") || is_any("already_done") => {
                let (event, source) = (printable(event), printable(&replay.source));
                writeln!(out, "would run {event} of {source} again")?;
                writeln!(out, "  named alone, an event is run again whatever its status")?;
                true
            }
            _ => {
                survey(out, &done)?;
                is_any("replayed") || done.get("more") == Some(&Value::Bool(true))
            }
        };
        if !takes {
            return writeln!(out, "Nothing was changed, and there is nothing to do.");
        }
        writeln!(out, "Nothing was changed. To do it:")?;
        writeln!(out, "  {}", replay.command(deployment))
    })
}

fn survey(out: &mut dyn Write, survey: &Value) -> io::Result<()> {
    let counts = survey.get("counts").unwrap_or(&Value::Null);
    let (would, looked_at) = (text(counts, "replayed"), text(counts, "looked_at"));
    writeln!(
        out,
        "would run {would} events of {} again (looked at {looked_at})",
        text(survey, "source")
    )?;
    if survey.get("more") == Some(&Value::Bool(true)) {
        writeln!(out, "  and more: the survey was cut, the replay is not")?;
    }
    for (name, words) in [("by_status", "by status"), ("by_type", "by type")] {
        let of = survey.get(name).and_then(Value::as_object).into_iter().flatten();
        let of: Vec<_> = of.map(|(name, count)| format!("{} {count}", printable(name))).collect();
        if !of.is_empty() {
            writeln!(out, "  {words}: {}", of.join(", "))?;
        }
    }
    replays::left_alone(out, counts)?;
    let first = survey.get("first").and_then(Value::as_array).into_iter().flatten();
    let first: Vec<_> = first.filter_map(Value::as_str).map(printable).collect();
    if !first.is_empty() {
        writeln!(out, "  the first: {}", first.join(" "))?;
    }
    replays::told(out, survey)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_quoted_only_where_the_shell_would_read_more_into_it() {
        for (word, expected) in [
            ("shop", "shop"),
            ("2026-09-21T14:00:00Z", "2026-09-21T14:00:00Z"),
            ("invoice.*", "'invoice.*'"),
            ("it's", r"'it'\''s'"),
            ("$(rm)", "'$(rm)'"),
            ("", "''"),
        ] {
            assert_eq!(quoted(word), expected);
        }
    }

    #[test]
    fn a_day_is_its_beginning() {
        let check = |text: &str| time(text).map(|time| time.to_string()).ok();
        assert_eq!(check("2026-09-21"), Some("2026-09-21T00:00:00Z".to_owned()));
        assert_eq!(check("2026-09-21T02:00:00+02:00"), Some("2026-09-21T00:00:00Z".to_owned()));
        for bad in ["yesterday", "2026-09-21T14:00", "2026-13-01", ""] {
            assert_eq!(check(bad), None, "{bad}");
        }
    }
}
