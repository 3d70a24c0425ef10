//! `postern listen`: brings real events to this machine, by polling.
//!
//! The deployment keeps what was not acknowledged, so that nothing is lost while this machine sleeps, or while what listens
//! here is slow or down: what was not answered with 2xx comes again. An endpoint that was made for this is removed at the
//! end.

mod forward;

use std::{io::Write, time::Duration};

use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::signal::unix::{Signal, SignalKind, signal};

use self::forward::{Forward, Told, is_url};
use crate::{
    client::{Client, Proof, segment},
    complaint::{Complaint, printable},
    deployment::{Deployment, Target},
    events::replay::time,
    print::{closed, text},
};

/// Deliveries that are fetched at once, and answered one after the other.
const PAGE: u64 = 5;

/// Between two looks when there is nothing.
const PAUSE: Duration = Duration::from_millis(500);

/// Between two looks when the deployment cannot be reached.
const TROUBLE: Duration = Duration::from_secs(2);

/// Bring a tenant's real events to this machine
///
/// Makes an endpoint that is polled, fetches its deliveries, posts each to --forward with the headers and the bytes that a
/// subscriber gets, signature included, and acknowledges it if the answer is 2xx. What is not acknowledged comes again, as
/// it does for a subscriber. Ctrl-C ends it and removes the endpoint.
#[derive(clap::Args, Debug)]
pub struct Listen {
    /// The tenant
    #[arg(long, value_name = "TENANT")]
    pub tenant: String,
    /// Where to post, such as `http://localhost:3000/hooks`
    #[arg(long, value_name = "URL")]
    pub forward: String,
    /// Only event types that match, such as `invoice.*`; may be given more than once
    #[arg(long = "type", value_name = "PATTERN", conflicts_with = "endpoint")]
    pub types: Vec<String>,
    /// Also events from then on: `2026-09-21` or `2026-09-21T14:00:00Z`
    #[arg(long, value_name = "TIME", value_parser = time, conflicts_with = "endpoint")]
    pub since: Option<Timestamp>,
    /// An endpoint that is polled already, instead of one made for this; its token is in `POSTERN_POLL_TOKEN`
    #[arg(long, value_name = "ENDPOINT", requires = "poll_token")]
    pub endpoint: Option<String>,
    /// What opens that endpoint
    #[arg(long, hide = true, env = "POSTERN_POLL_TOKEN", hide_env_values = true)]
    poll_token: Option<Token>,
    /// The URL to poll at, which is the stack's output `SubscriberUrl`; default: the local host of this project
    #[arg(long, env = "POSTERN_SUBSCRIBER", value_name = "URL", hide_env_values = true)]
    pub subscriber: Option<String>,
    /// Seconds within which what listens here must answer
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub timeout: u64,
    /// One line of JSON for each delivery
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    deployment: Deployment,
}

/// A token on the command line's way here. It does not print.
#[derive(Clone)]
struct Token(signing::Secret);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(..)")
    }
}

impl std::str::FromStr for Token {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(signing::Secret::new(text)))
    }
}

/// What is polled.
struct Source {
    client: Client,
    path: String,
    endpoint: String,
    is_ours: bool,
}

/// What makes this stop: Ctrl-C, or somebody who ends the process.
struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    fn new() -> Result<Self, Complaint> {
        let of = |kind| {
            signal(kind).map_err(|error| {
                let next = "run it where signals can be received";
                Complaint::new("signals cannot be listened for", error.to_string(), next)
            })
        };
        Ok(Self {
            interrupt: of(SignalKind::interrupt())?,
            terminate: of(SignalKind::terminate())?,
        })
    }

    async fn wait(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Runs it, until it is stopped.
pub async fn run(
    listen: &Listen,
    now: Timestamp,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<(), Complaint> {
    // First of all: who is stopped while the endpoint is made removes it, too.
    let mut stop = Stop::new()?;
    let forward = Forward::new(&listen.forward, Duration::from_secs(listen.timeout))?;
    let subscriber = match &listen.subscriber {
        // Before anything is made: what can never be polled would only gather events.
        Some(url) => checked(url)?,
        None => listen.deployment.subscriber()?,
    };
    let (source, admin) = match (&listen.endpoint, &listen.poll_token) {
        (Some(endpoint), Some(Token(token))) => {
            let token = token.expose().to_owned();
            (source(&subscriber, &listen.tenant, endpoint, token, false)?, None)
        }
        _ => {
            let target = listen.deployment.target(now)?;
            let source = make(listen, &target, &subscriber, err).await?;
            (source, Some(target.client))
        }
    };
    let mut told = Told::default();
    // Whatever ends it from here on, what was made is removed.
    let ended = match greet(listen, out) {
        Ok(()) => tokio::select! {
            ended = forward_all(listen, &source, &forward, &mut told, out, err) => ended,
            () = stop.wait() => Ok(()),
        },
        Err(complaint) => Err(complaint),
    };
    if let Some(admin) = admin.filter(|_| source.is_ours) {
        remove(listen, &admin, &source, err).await;
    }
    let _ = writeln!(err, "{} taken, {} not", told.taken, told.refused);
    ended
}

/// A URL to poll at, without a slash at its end.
fn checked(url: &str) -> Result<String, Complaint> {
    if is_url(url) {
        return Ok(url.trim_end_matches('/').to_owned());
    }
    let why = format!("{} is no URL", printable(url));
    let next = "give --subscriber the stack's output SubscriberUrl, such as https://abc.execute-api.eu-west-1.amazonaws.com";
    Err(Complaint::new("there is nothing to poll", why, next))
}

/// Says that it is ready.
fn greet(listen: &Listen, out: &mut dyn Write) -> Result<(), Complaint> {
    if listen.json {
        return Ok(());
    }
    writeln!(out, "Forwarding to {}. Ctrl-C ends it.", printable(&listen.forward))
        .map_err(|error| closed(&error))
}

/// Makes the endpoint, and says what its deliveries are verified with.
async fn make(
    listen: &Listen,
    target: &Target,
    subscriber: &str,
    err: &mut dyn Write,
) -> Result<Source, Complaint> {
    let path = format!("/v1/tenants/{}/endpoints", segment(&listen.tenant));
    let wanted =
        json!({"poll": true, "patterns": listen.types, "description": "made by postern listen"});
    let made = target.client.post(&path, &wanted).await?;
    let member = |name: &str| made.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let endpoint = member("id");
    let _ = writeln!(err, "on {}", target.name);
    let _ = writeln!(
        err,
        "Endpoint {} was made for this, and is removed at the end.",
        text(&made, "id")
    );
    let _ = writeln!(err, "What arrives is signed with its secret: {}", text(&made, "secret"));
    let source = source(subscriber, &listen.tenant, &endpoint, member("token"), true)?;
    if let Some(since) = listen.since {
        let path = format!("/v1/tenants/{}/redeliveries", segment(&listen.tenant));
        let select = json!({"missing": true, "from": since, "types": listen.types});
        let order = json!({"endpoint": endpoint, "select": select, "rate": 100, "reason": "postern listen --since"});
        let work = target.client.post(&path, &order).await;
        let count = |work: &Value| text(work.get("counts").unwrap_or(&Value::Null), "redelivered");
        match work {
            Ok(work) => {
                let _ = writeln!(err, "{} events since {since} come first.", count(&work));
            }
            Err(complaint) => {
                remove(listen, &target.client, &source, err).await;
                return Err(complaint);
            }
        }
    }
    Ok(source)
}

fn source(
    subscriber: &str,
    tenant: &str,
    endpoint: &str,
    token: String,
    is_ours: bool,
) -> Result<Source, Complaint> {
    let client = Client::new(subscriber, Proof::Token(token))?;
    let path = format!("/poll/{}/{}", segment(tenant), segment(endpoint));
    Ok(Source { client, path, endpoint: endpoint.to_owned(), is_ours })
}

/// Removes what was made. Whoever cannot is told how.
async fn remove(listen: &Listen, admin: &Client, source: &Source, err: &mut dyn Write) {
    let (tenant, endpoint) = (&listen.tenant, &source.endpoint);
    let path = format!("/v1/tenants/{}/endpoints/{}", segment(tenant), segment(endpoint));
    let _ = match admin.delete(&path).await {
        Ok(_) => writeln!(err, "Endpoint {} is removed.", printable(endpoint)),
        Err(complaint) => writeln!(
            err,
            "Endpoint {} could not be removed ({}). Remove it with: postern endpoints delete {tenant} {endpoint}",
            printable(endpoint),
            complaint.why
        ),
    };
}

/// Fetches, posts and acknowledges, for ever. Trouble on the way is said once, and then waited out.
async fn forward_all(
    listen: &Listen,
    source: &Source,
    forward: &Forward,
    told: &mut Told,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<(), Complaint> {
    // All of a page may take its whole time, and then some.
    let visibility_ms = (listen.timeout * PAGE + 10) * 1000;
    let wanted = json!({"max": PAGE, "visibility_ms": visibility_ms});
    let mut is_down = false;
    loop {
        let polled = match call(source, "", &wanted).await {
            Ok(polled) => polled,
            Err(complaint) if complaint.is_no => return Err(complaint),
            Err(complaint) => {
                if !is_down {
                    let _ =
                        writeln!(err, "{complaint}\nIt is asked again and again; nothing is lost.");
                }
                is_down = true;
                tokio::time::sleep(TROUBLE).await;
                continue;
            }
        };
        if std::mem::take(&mut is_down) {
            let _ = writeln!(err, "It answers again.");
        }
        let page = polled.get("deliveries").and_then(Value::as_array).cloned().unwrap_or_default();
        for delivery in &page {
            let answer = forward.post(delivery).await;
            told.tell(delivery, &answer, listen.json, out).map_err(|error| closed(&error))?;
            if answer.is_taken() {
                let receipts = json!({"receipts": [delivery.get("receipt")]});
                // If this is lost, it comes again, with the same id.
                if let Err(complaint) = call(source, "/ack", &receipts).await {
                    let _ = writeln!(err, "{complaint}");
                }
            }
        }
        if page.is_empty() {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

async fn call(source: &Source, rest: &str, body: &Value) -> Result<Value, Complaint> {
    let path = format!("{}{rest}", source.path);
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let body = body.to_string().into();
    let answer = source.client.call(Method::POST, &path, headers, body).await?;
    let good = source.client.good(&path, &answer);
    // Too many at once, or in the middle of a change: the same call will do.
    let passes = [StatusCode::TOO_MANY_REQUESTS, StatusCode::CONFLICT];
    good.map_err(|complaint| Complaint {
        is_no: complaint.is_no && !passes.contains(&answer.status),
        ..complaint
    })
}
