//! Polling and `postern listen` on the local host: real processes, on random ports.

use std::{
    cell::RefCell,
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel},
};

use anyhow::{Context as _, Result, ensure};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use serde_json::{Value, json};
use tests::{
    PATIENCE, binaries,
    client::Client,
    eventually,
    host::{Host, Setup},
};

const TENANT: &str = "acme";

/// What listens on the developer's machine: it answers what it is told, and remembers what came.
struct App {
    url: String,
    seen: std::sync::Arc<std::sync::Mutex<Vec<Seen>>>,
    answers: std::sync::Arc<std::sync::Mutex<Vec<u16>>>,
    task: tokio::task::JoinHandle<()>,
}

#[derive(Clone)]
struct Seen {
    target: String,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl App {
    async fn start() -> Result<Self> {
        use http_body_util::{BodyExt as _, Full};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}/hooks?a=1&b=2", listener.local_addr()?);
        let (seen, answers) = (std::sync::Arc::default(), std::sync::Arc::default());
        let (seeing, answering) = (std::sync::Arc::clone(&seen), std::sync::Arc::clone(&answers));
        #[expect(clippy::disallowed_methods, reason = "the app ends with its handle")]
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let seeing: std::sync::Arc<std::sync::Mutex<Vec<Seen>>> =
                    std::sync::Arc::clone(&seeing);
                let answering: std::sync::Arc<std::sync::Mutex<Vec<u16>>> =
                    std::sync::Arc::clone(&answering);
                let service = hyper::service::service_fn(
                    move |request: http::Request<hyper::body::Incoming>| {
                        let (seeing, answering) =
                            (std::sync::Arc::clone(&seeing), std::sync::Arc::clone(&answering));
                        async move {
                            let (head, body) = request.into_parts();
                            let body = body.collect().await?.to_bytes().to_vec();
                            let target = head.uri.to_string();
                            if let Ok(mut seen) = seeing.lock() {
                                seen.push(Seen { target, headers: head.headers, body });
                            }
                            let status = answering
                                .lock()
                                .ok()
                                .and_then(|mut next| (!next.is_empty()).then(|| next.remove(0)));
                            let mut response = http::Response::new(Full::<bytes::Bytes>::default());
                            *response.status_mut() = StatusCode::from_u16(status.unwrap_or(204))
                                .unwrap_or(StatusCode::OK);
                            Ok::<_, hyper::Error>(response)
                        }
                    },
                );
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new()
                        .serve_connection(hyper_util::rt::TokioIo::new(stream), service),
                );
            }
        });
        Ok(Self { url, seen, answers, task })
    }

    fn seen(&self) -> Vec<Seen> {
        self.seen.lock().map(|seen| seen.clone()).unwrap_or_default()
    }

    async fn until(&self, count: usize) -> Result<Vec<Seen>> {
        eventually(&format!("{count} requests arrive"), async || {
            let seen = self.seen();
            ensure!(seen.len() >= count, "{} arrived", seen.len());
            Ok(seen)
        })
        .await
    }
}

impl Drop for App {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A `postern listen` of its own. Dropping it ends it.
struct Listening {
    child: Child,
    said: Receiver<String>,
    /// What it has said and nobody has asked for yet: its two streams have no common order.
    heard: RefCell<Vec<String>>,
}

impl Listening {
    fn start(host: &Host, forward: &str, more: &[&str]) -> Result<Self> {
        let mut command = Command::new(binaries::folder()?.join("postern"));
        let ready = host.ready()?;
        let api = |name: &str| ready.apis.get(name).with_context(|| format!("there is no {name}"));
        command.args(["listen", "--tenant", TENANT, "--forward", forward]);
        command.args(["--api", api("AdminApi")?, "--subscriber", api("SubscriberApi")?]);
        command.args(more).env_clear().env("POSTERN_TOKEN", &ready.token);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let (told, said) = channel();
        let out = BufReader::new(child.stdout.take().context("its output")?);
        let err = BufReader::new(child.stderr.take().context("its complaints")?);
        for reader in [Box::new(out) as Box<dyn std::io::BufRead + Send>, Box::new(err)] {
            let told = told.clone();
            std::thread::spawn(move || {
                for line in reader.lines().map_while(Result::ok) {
                    let _ = told.send(line);
                }
            });
        }
        Ok(Self { child, said, heard: RefCell::default() })
    }

    /// Waits for a line that says this, of those that nobody has asked for yet.
    fn until(&self, text: &str) -> Result<String> {
        let mut heard = self.heard.borrow_mut();
        loop {
            if let Some(at) = heard.iter().position(|line| line.contains(text)) {
                return Ok(heard.remove(at));
            }
            match self.said.recv_timeout(PATIENCE) {
                Ok(line) => heard.push(line),
                Err(_) => anyhow::bail!("it never said {text:?}, but {heard:#?}"),
            }
        }
    }

    /// Ctrl-C.
    fn interrupt(&mut self) -> Result<Option<i32>> {
        let pid = i32::try_from(self.child.id())?;
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGINT)?;
        Ok(self.child.wait()?.code())
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn publish(host: &Host, event_type: &str, n: u32) -> Result<String> {
    let event = json!({
        "tenant": TENANT, "type": event_type, "aggregate_id": format!("in_{n}"),
        "payload": {"n": n, "note": "h\u{e9}llo"},
    });
    let answer = host.api()?.client().post("/v1/events", &event).await?;
    answer.text("/id")
}

async fn endpoints(host: &Host) -> Result<Vec<Value>> {
    let path = format!("/v1/tenants/{TENANT}/endpoints");
    let list = host.api()?.client().get(&path).await?.good()?;
    Ok(list.get("endpoints").and_then(Value::as_array).cloned().unwrap_or_default())
}

fn verify(seen: &Seen, secret: &str) -> Result<()> {
    let scheme = signing::Scheme::preset("standard_webhooks").context("the scheme")?;
    let key = signing::Key::parse(&scheme, "1", &signing::Secret::new(secret))?;
    let (headers, body) = (&seen.headers, seen.body.as_slice());
    let request =
        signing::Request { method: "POST", url: &seen.target, headers, body, path_secret: None };
    signing::verify(&scheme, &[key], &request, tests::now())?;
    Ok(())
}

/// LOC-forwarder-gaps: every event once, signed as for a subscriber, to the URL byte for byte; what was refused comes again;
/// and nothing of it is left at the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn real_events_come_to_this_machine_signed_and_nothing_is_left_at_the_end() -> Result<()> {
    let host = Host::start(Setup::IN_MEMORY).await?;
    let app = App::start().await?;
    let mut listening =
        Listening::start(&host, &app.url, &["--type", "invoice.*", "--timeout", "1"])?;
    let secret = listening.until("is signed with its secret: ")?;
    let secret = secret.rsplit(' ').next().context("a secret")?.to_owned();
    listening.until("Forwarding to ")?;
    if let Ok(mut answers) = app.answers.lock() {
        answers.push(500);
    }
    let mut published = Vec::new();
    for n in 0..5 {
        published.push(publish(&host, "invoice.paid", n).await?);
    }
    publish(&host, "charge.made", 9).await?;
    // One was refused, and comes again when its time is over.
    let seen = app.until(6).await?;
    let refused = listening.until("500 in ")?;
    ensure!(refused.contains("it comes again at"), "{refused}");
    let mut ids = Vec::new();
    for one in &seen {
        ensure!(one.target == "/hooks?a=1&b=2", "{}", one.target);
        verify(one, &secret)?;
        ids.push(one.headers.get("webhook-id").context("an id")?.to_str()?.to_owned());
    }
    ids.sort();
    let again: Vec<_> =
        ids.iter().filter(|id| ids.iter().filter(|other| other == id).count() > 1).collect();
    ensure!(again.len() == 2, "{ids:?}");
    ids.dedup();
    published.sort();
    ensure!(ids == published, "{ids:?}");
    for id in &published {
        host.api()?.until_outgoing(TENANT, id, "succeeded").await?;
    }
    ensure!(endpoints(&host).await?.len() == 1);
    let code = listening.interrupt()?;
    ensure!(code == Some(0), "{code:?}");
    listening.until("is removed.")?;
    listening.until("5 taken, 1 not")?;
    ensure!(endpoints(&host).await?.is_empty());
    Ok(())
}

/// The machine sleeps, and what listens there is down: nothing is lost meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_before_and_of_while_nobody_listened_come_all_the_same() -> Result<()> {
    let host = Host::start(Setup::IN_MEMORY).await?;
    let app = App::start().await?;
    // Of before anybody listened.
    let before = publish(&host, "invoice.paid", 1).await?;
    host.control()?.idle().await?;
    let mut listening = Listening::start(&host, &app.url, &["--since", "2026-01-01", "--json"])?;
    listening.until("1 events since ")?;
    let told: Value = serde_json::from_str(&listening.until("\"taken\":true")?)?;
    ensure!(told.get("event") == Some(&json!(before)), "{told}");
    // It sleeps: the process stands still while events are published.
    let pid = nix::unistd::Pid::from_raw(i32::try_from(listening.child.id())?);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGSTOP)?;
    let mut published = vec![before];
    for n in 2..5 {
        published.push(publish(&host, "invoice.paid", n).await?);
    }
    host.control()?.idle().await?;
    ensure!(app.seen().len() == 1);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGCONT)?;
    for id in &published {
        host.api()?.until_outgoing(TENANT, id, "succeeded").await?;
    }
    ensure!(app.seen().len() == 4, "{} requests", app.seen().len());
    listening.interrupt()?;
    Ok(())
}

/// The gateway of those who poll opens nothing else, and theirs is not the operators'.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_poller_that_dies_gets_it_again_and_strangers_get_nothing() -> Result<()> {
    let host = Host::start(Setup::IN_MEMORY).await?;
    let path = format!("/v1/tenants/{TENANT}/endpoints");
    let made = host.api()?.client().post(&path, &json!({"poll": true})).await?.good()?;
    let member = |name: &str| made.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (endpoint, token) = (member("id"), member("token"));
    let subscriber = host.ready()?.apis.get("SubscriberApi").context("a subscriber API")?.clone();
    let client = Client::new(&subscriber, Some(&token))?;
    let poll = format!("/poll/{TENANT}/{endpoint}");
    let event = publish(&host, "invoice.paid", 1).await?;
    let first = eventually("it is handed out", async || {
        let answer = client.post(&poll, &json!({"visibility_ms": 1000})).await?;
        answer.text("/deliveries/0/receipt")
    })
    .await?;
    // The poller dies. The time of its hand-out goes by, and it is handed out again.
    let second = eventually("it comes again", async || {
        let answer = client.post(&poll, &json!({})).await?;
        answer.text("/deliveries/0/receipt")
    })
    .await?;
    ensure!(first != second, "{first}");
    // The first poller was slow: its acknowledgement comes late, and is as good.
    for (receipt, expected) in [(first, "acknowledged"), (second, "before")] {
        let acks = json!({"receipts": [receipt]});
        let acked = client.post(&format!("{poll}/ack"), &acks).await?;
        ensure!(acked.text("/acknowledged/0/result")? == expected, "{acked:?}");
    }
    host.api()?.until_outgoing(TENANT, &event, "succeeded").await?;

    let stranger = Client::new(&subscriber, Some("whpoll_0000"))?;
    ensure!(stranger.post(&poll, &json!({})).await?.status == StatusCode::UNAUTHORIZED);
    let nobody = Client::new(&subscriber, None)?;
    ensure!(nobody.post(&poll, &json!({})).await?.status == StatusCode::UNAUTHORIZED);
    // A token opens no route of operators, at neither door; and theirs opens no endpoint.
    let admin = host.ready()?.apis.get("AdminApi").context("an admin API")?.clone();
    for base in [&subscriber, &admin] {
        for path in ["/v1/sources", "/poll/../v1/sources", "//v1/sources"] {
            let mut headers = HeaderMap::new();
            headers.insert("authorization", HeaderValue::try_from(format!("Bearer {token}"))?);
            let client = Client::new(base, None)?;
            let answer = client.call(Method::GET, path, headers, bytes::Bytes::new()).await?;
            ensure!(answer.status.is_client_error(), "{base}{path}: {}", answer.status);
        }
    }
    let operator = Client::new(&subscriber, Some(&host.ready()?.token))?;
    ensure!(operator.post(&poll, &json!({})).await?.status == StatusCode::UNAUTHORIZED);
    Ok(())
}

/// A hand-out is an attempt, whose deadline counts: what nobody fetches is given up, and a person sends it again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_fetches_is_given_up_and_redelivered() -> Result<()> {
    let setup = Setup { parameters: &[("DeliveryDeadlineMs", "2500")], ..Setup::IN_MEMORY };
    let host = Host::start(setup).await?;
    let path = format!("/v1/tenants/{TENANT}/endpoints");
    let made = host.api()?.client().post(&path, &json!({"poll": true})).await?.good()?;
    let member = |name: &str| made.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let event = publish(&host, "invoice.paid", 1).await?;
    host.api()?.until_outgoing(TENANT, &event, "dead").await?;
    let redeliver = json!({"endpoint": member("id"), "reason": "the poller is back"});
    let path = format!("/v1/tenants/{TENANT}/redeliveries");
    let work = host.api()?.client().post(&path, &redeliver).await?.good()?;
    ensure!(work.pointer("/counts/redelivered") == Some(&json!(1)), "{work}");
    let subscriber = host.ready()?.apis.get("SubscriberApi").context("a subscriber API")?.clone();
    let client = Client::new(&subscriber, Some(&member("token")))?;
    let poll = format!("/poll/{TENANT}/{}", member("id"));
    let answer = client.post(&poll, &json!({})).await?;
    ensure!(answer.text("/deliveries/0/event")? == event);
    let cursor = answer.text("/cursor")?;
    client.post(&poll, &json!({"cursor": cursor})).await?.good()?;
    host.api()?.until_outgoing(TENANT, &event, "succeeded").await?;
    Ok(())
}
