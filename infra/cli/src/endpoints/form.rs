//! How an endpoint is to be, as people say it.

use std::str::FromStr as _;

use serde_json::{Value, json};

use super::{all, object, secrets::Making};
use crate::{client::segment, complaint::Complaint, secret::read_file};

/// A member of a request.
pub(super) type Setting = (&'static str, Value);

/// Which endpoint.
#[derive(clap::Args, Clone, Debug)]
pub struct At {
    /// The tenant
    pub(super) tenant: String,
    /// The endpoint's id (`ep_...`)
    pub(super) endpoint: String,
}

impl At {
    pub(super) fn path(&self) -> String {
        format!("{}/{}", all(&self.tenant), segment(&self.endpoint))
    }
}

/// Where an endpoint is.
#[derive(clap::Args, Clone, Debug)]
pub struct Place {
    /// The endpoint's https URL
    url: Option<String>,
    /// An SQS queue instead, by its URL; the deployment's account and region only
    #[arg(long, value_name = "URL")]
    queue: Option<String>,
    /// An EventBridge bus instead, by its name or ARN; the deployment's account and region only
    #[arg(long, value_name = "NAME")]
    bus: Option<String>,
}

/// What is sent of an event.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum Style {
    Full,
    Thin,
    CloudEvents,
}

/// What can be chosen of an endpoint.
#[derive(clap::Args, Clone, Debug)]
pub struct Options {
    /// What you call it
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Only event types that match, such as `invoice.*`; may be given more than once
    #[arg(long = "type", value_name = "PATTERN")]
    patterns: Vec<String>,
    /// Only events with this label; may be given more than once
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,
    /// Only events whose payload passes, such as `{"/amount": {"gte": 100}}`
    #[arg(long, value_name = "JSON", value_parser = Value::from_str)]
    filter: Option<Value>,
    /// Deliveries that may be under way at once
    #[arg(long, value_name = "N")]
    concurrency: Option<u32>,
    /// Most deliveries that are begun in a second
    #[arg(long, value_name = "N")]
    rate: Option<u32>,
    /// Lanes that its deliveries are shared out to; one carries about 200 a second
    #[arg(long, value_name = "N")]
    lanes: Option<u16>,
    /// What is sent of an event
    #[arg(long, value_enum)]
    style: Option<Style>,
    /// The target does not recognise the event's id as an idempotency key: what may have happened is not sent again, but
    /// waits for a person as `outcome_unknown`
    #[arg(long)]
    not_idempotent: bool,
    /// Show who we are as this user (`Authorization: Basic`); the password is in --auth-secret-file
    #[arg(long, value_name = "USER", group = "auth", requires = "auth_secret_file")]
    basic: Option<String>,
    /// Show who we are by a token (`Authorization: Bearer`); it is in --auth-secret-file
    #[arg(long, group = "auth", requires = "auth_secret_file")]
    bearer: bool,
    /// Show who we are by tokens from this URL (OAuth 2 client credentials); the client's secret is in --auth-secret-file
    #[arg(long, value_name = "TOKEN_URL", group = "auth", requires_all = ["client_id", "auth_secret_file"])]
    oauth2: Option<String>,
    /// Who we are at the OAuth 2 server
    #[arg(long, value_name = "ID", requires = "oauth2")]
    client_id: Option<String>,
    /// What the OAuth 2 token is for
    #[arg(long, requires = "oauth2")]
    scope: Option<String>,
    /// Send the OAuth 2 client's id and secret in the body, not in a header
    #[arg(long, requires = "oauth2")]
    credentials_in_body: bool,
    /// A file that holds the password, the token or the client's secret and nothing else; `-` reads standard input
    #[arg(long, value_name = "FILE", requires = "auth")]
    auth_secret_file: Option<String>,
    /// A file with the endpoint's own static headers, as a JSON object; `-` reads standard input
    #[arg(long, value_name = "FILE")]
    headers_file: Option<String>,
}

/// What is taken away from an endpoint.
#[derive(clap::Args, Clone, Debug)]
pub struct Without {
    /// All event types
    #[arg(long, conflicts_with = "patterns")]
    all_types: bool,
    /// Events whatever their labels
    #[arg(long, conflicts_with = "labels")]
    no_labels: bool,
    /// Events whatever their payload
    #[arg(long, conflicts_with = "filter")]
    no_filter: bool,
    /// As many at once as the deployment's default
    #[arg(long, conflicts_with = "concurrency")]
    no_concurrency: bool,
    /// As many a second as can be
    #[arg(long, conflicts_with = "rate")]
    no_rate: bool,
    /// The target recognises the event's id as an idempotency key
    #[arg(long, conflicts_with = "not_idempotent")]
    idempotent: bool,
    /// Show no longer who we are, except by the signature
    #[arg(long, conflicts_with = "auth")]
    no_auth: bool,
    /// No static headers
    #[arg(long, conflicts_with = "headers_file")]
    no_headers: bool,
}

fn label(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').ok_or("write it as NAME=VALUE")?;
    Ok((pair.0.to_owned(), pair.1.to_owned()))
}

/// The body that asks for a new endpoint.
pub(super) fn new(place: &Place, options: &Options, making: &Making) -> Result<Value, Complaint> {
    one_reads_standard_input(&[
        &options.auth_secret_file,
        &options.headers_file,
        &making.secret_file,
    ])?;
    let places = [("url", &place.url), ("queue", &place.queue), ("bus", &place.bus)];
    let mut members: Vec<Setting> = places
        .into_iter()
        .filter_map(|(name, place)| Some((name, json!(place.as_ref()?))))
        .collect();
    members.push(("patterns", json!(options.patterns)));
    members.extend(options.chosen()?);
    members.extend(making.members()?);
    Ok(object(members))
}

/// The body that asks for a change.
pub(super) fn change(
    url: Option<&str>,
    options: &Options,
    without: &Without,
) -> Result<Value, Complaint> {
    one_reads_standard_input(&[&options.auth_secret_file, &options.headers_file])?;
    let mut members: Vec<Setting> = url.map(|url| ("url", json!(url))).into_iter().collect();
    if !options.patterns.is_empty() {
        members.push(("patterns", json!(options.patterns)));
    }
    members.extend(options.chosen()?);
    let taken = [
        (without.all_types, "patterns", json!([])),
        (without.no_labels, "labels", json!({})),
        (without.no_filter, "filter", Value::Null),
        (without.no_concurrency, "concurrency", Value::Null),
        (without.no_rate, "rate", Value::Null),
        (without.idempotent, "idempotent", json!(true)),
        (without.no_auth, "auth", Value::Null),
        (without.no_headers, "headers", Value::Null),
    ];
    members.extend(
        taken.into_iter().filter(|(is_taken, ..)| *is_taken).map(|(_, name, value)| (name, value)),
    );
    if members.is_empty() {
        return Err(Complaint::new(
            "there is nothing to change",
            "no option says what",
            "see `postern endpoints update --help`",
        ));
    }
    Ok(object(members))
}

impl Options {
    /// What was said, except the event types.
    fn chosen(&self) -> Result<Vec<Setting>, Complaint> {
        let labels: serde_json::Map<String, Value> =
            self.labels.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        let style = self.style.map(|style| match style {
            Style::Full => json!("full"),
            Style::Thin => json!("thin"),
            Style::CloudEvents => json!("cloud_events"),
        });
        let members = [
            ("description", self.description.as_ref().map(|text| json!(text))),
            ("labels", (!labels.is_empty()).then(|| labels.into())),
            ("filter", self.filter.clone()),
            ("concurrency", self.concurrency.map(|n| json!(n))),
            ("rate", self.rate.map(|n| json!(n))),
            ("lanes", self.lanes.map(|n| json!(n))),
            ("style", style),
            ("idempotent", self.not_idempotent.then_some(Value::Bool(false))),
            ("auth", self.auth()?),
            ("headers", self.headers()?),
        ];
        Ok(members.into_iter().filter_map(|(name, value)| Some((name, value?))).collect())
    }

    fn auth(&self) -> Result<Option<Value>, Complaint> {
        let Some(file) = &self.auth_secret_file else { return Ok(None) };
        let secret = read_file(file)?;
        let mut auth: Vec<Setting> = match (&self.basic, &self.oauth2) {
            (Some(user), _) => vec![("kind", json!("basic")), ("user", json!(user))],
            (None, Some(url)) => {
                let place = if self.credentials_in_body { "body" } else { "header" };
                vec![
                    ("kind", json!("oauth2")),
                    ("token_url", json!(url)),
                    ("client_id", json!(self.client_id)),
                    ("credentials_in", json!(place)),
                ]
            }
            (None, None) => vec![("kind", json!("bearer"))],
        };
        auth.extend(self.scope.as_ref().map(|scope| ("scope", json!(scope))));
        auth.push(("secret", json!(secret.expose())));
        Ok(Some(object(auth)))
    }

    fn headers(&self) -> Result<Option<Value>, Complaint> {
        let Some(file) = &self.headers_file else { return Ok(None) };
        let text = read_file(file)?;
        let headers: Result<Value, _> = serde_json::from_str(text.expose());
        // Not the error's own words: they may quote a value.
        headers.map(Some).map_err(|error| {
            Complaint::new(
                format!("the headers cannot be read from {file}"),
                format!("it is not JSON, at line {}", error.line()),
                "write an object such as {\"x-team\": \"billing\"}",
            )
        })
    }
}

/// What is read once is empty the second time.
fn one_reads_standard_input(files: &[&Option<String>]) -> Result<(), Complaint> {
    if files.iter().filter(|file| file.as_deref() == Some("-")).count() < 2 {
        return Ok(());
    }
    Err(Complaint::new(
        "two things cannot both be read from standard input",
        "`-` is given twice",
        "put one of them into a file",
    ))
}
