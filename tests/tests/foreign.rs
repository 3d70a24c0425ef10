//! Parties that nobody here wrote: the providers' own libraries sign and our ingress accepts; the public libraries of
//! Standard Webhooks verify what our deliverer sent.
//!
//! They are installed on first use, in the versions that `tests/foreign/` names. Where Python or Node, or what they
//! would install, cannot be had, these tests say so and pass; with `POSTERN_REQUIRE_ALL=1` they fail instead.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
};

use anyhow::{Context as _, Result, bail, ensure};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::{HeaderMap, HeaderValue};
use serde_json::{Value, json};
use tests::{
    binaries,
    host::Host,
    now,
    provider::{Event, Provider},
    root, setting,
};

/// A language that foreign parties are written in.
#[derive(Clone, Copy, Debug)]
enum Language {
    Python,
    Node,
}

impl Language {
    /// What was installed for it, or why nothing could be. Done once for each test run.
    fn home(self) -> &'static Result<PathBuf, String> {
        static PYTHON: OnceLock<Result<PathBuf, String>> = OnceLock::new();
        static NODE: OnceLock<Result<PathBuf, String>> = OnceLock::new();
        let (home, name) = match self {
            Self::Python => (&PYTHON, "python"),
            Self::Node => (&NODE, "node"),
        };
        home.get_or_init(|| self.install(name).map_err(|why| format!("{why:#}")))
    }

    fn install(self, name: &str) -> Result<PathBuf> {
        let program = match self {
            Self::Python => "python3",
            Self::Node => "node",
        };
        succeed(Command::new(program).arg("--version"), root())?;
        let target = binaries::folder()?.parent().context("binaries have a folder above")?;
        let home = target.join("foreign").join(name);
        fs::create_dir_all(&home)?;
        let ours = root().join("tests/foreign");
        for file in fs::read_dir(&ours)? {
            let file = file?;
            fs::copy(file.path(), home.join(file.file_name()))?;
        }
        // What is installed stays until the list of versions changes.
        let list = fs::read(home.join(match self {
            Self::Python => "requirements.txt",
            Self::Node => "package-lock.json",
        }))?;
        let stamp = home.join("installed");
        if fs::read(&stamp).is_ok_and(|installed| installed == list) {
            return Ok(home);
        }
        match self {
            Self::Python => {
                succeed(Command::new("python3").args(["-m", "venv", "venv"]), &home)?;
                let pip = home.join("venv/bin/pip");
                succeed(
                    Command::new(pip).args(["install", "-q", "-r", "requirements.txt"]),
                    &home,
                )?;
            }
            Self::Node => {
                let quiet = ["ci", "--no-audit", "--no-fund", "--ignore-scripts"];
                succeed(Command::new("npm").args(quiet), &home)?;
            }
        }
        fs::write(stamp, list)?;
        Ok(home)
    }

    /// Runs a script of `tests/foreign/` on a question, and gives its answer.
    fn ask(self, script: &str, question: &Value) -> Result<Value> {
        let Ok(home) = self.home() else { bail!("{self:?} is not installed") };
        let mut command = match self {
            Self::Python => Command::new(home.join("venv/bin/python")),
            Self::Node => Command::new("node"),
        };
        command.arg(home.join(script)).current_dir(home);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut stdin = child.stdin.take().context("a pipe")?;
        stdin.write_all(question.to_string().as_bytes())?;
        drop(stdin);
        let output = child.wait_with_output()?;
        ensure!(output.status.success(), "{script} ended with {}", output.status);
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}

fn succeed(command: &mut Command, home: &Path) -> Result<()> {
    let output = command.current_dir(home).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("{command:?} cannot be run"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} ended with {}: {}", output.status, said.trim());
    Ok(())
}

/// Whether the language is there. If not, says why the test is skipped, or fails where nothing may be.
#[expect(clippy::print_stderr, reason = "for whoever reads the test's output")]
fn is_there(language: Language) -> Result<bool> {
    match language.home() {
        Ok(_) => Ok(true),
        Err(why) if setting("POSTERN_REQUIRE_ALL").as_deref() == Some("1") => {
            bail!("nothing may be skipped, but {language:?} cannot be had: {why}")
        }
        Err(why) => {
            eprintln!("skipped: {language:?} cannot be had: {why}");
            Ok(false)
        }
    }
}

fn question(provider: &Provider, payload: &str, signature: Option<&str>) -> Value {
    json!({ "payload": payload, "secret": provider.secret(), "signature": signature })
}

/// The header that the provider's library made of a payload.
fn signed(
    language: Language,
    script: &str,
    provider: &Provider,
    payload: &str,
) -> Result<HeaderValue> {
    let answer = language.ask(script, &question(provider, payload, None))?;
    let header = answer.get("header").and_then(Value::as_str);
    let header = header.with_context(|| format!("no header in {answer}"))?;
    Ok(HeaderValue::try_from(header)?)
}

/// Stripe's library signs: the ingress accepts it, and nothing that differs by a byte.
async fn stripe_is_believed(language: Language, script: &str, source: &str) -> Result<()> {
    if !is_there(language)? {
        return Ok(());
    }
    let host = Host::shared().await?;
    let stripe = Provider::stripe(source)?;
    host.api()?.mirror(&stripe, None).await?;
    // Letters that a parser would be tempted to write another way.
    let payload = format!(
        r#"{{"id":"evt_1","object":"event","type":"invoice.paid","created":{},"data":{{"object":{{"id":"in_1","object":"invoice","name":"Zo\u00eb ☃ é","n":1.0}}}}}}"#,
        now().as_second()
    );
    let mut headers = HeaderMap::new();
    headers.insert("stripe-signature", signed(language, script, &stripe, &payload)?);
    let ingress = host.ingress()?;
    let tampered = payload.replace("1.0", "1.00");
    let answer = stripe.send_as(&ingress, headers.clone(), tampered.into()).await?;
    assert_eq!(answer.code(), 401, "{answer:?}");
    let answer = stripe.send_as(&ingress, headers, payload.clone().into()).await?;
    assert!(answer.status.is_success(), "{answer:?}");
    host.api()?.until(source, "evt_1", "processed").await?;

    // And what our own tools sign in Stripe's name, Stripe's library believes: the other suites stand on it.
    let event = Event::new("evt_1", "invoice.paid", payload.clone());
    let ours = stripe.sign(&event, now())?;
    let ours = ours.get("stripe-signature").context("signed")?.to_str()?.to_owned();
    let judged = language.ask(script, &question(&stripe, &payload, Some(&ours)))?;
    assert_eq!(judged.pointer("/verdict/id"), Some(&json!("evt_1")), "{judged}");
    let judged = language.ask(script, &question(&stripe, "{}", Some(&ours)))?;
    assert!(judged.pointer("/verdict/refused").is_some(), "{judged}");
    Ok(())
}

/// L14, L17
#[tokio::test]
async fn stripes_library_for_node_is_believed() -> Result<()> {
    stripe_is_believed(Language::Node, "stripe_sign.mjs", "stripe-node").await
}

/// L14, L17
#[tokio::test]
async fn stripes_library_for_python_is_believed() -> Result<()> {
    stripe_is_believed(Language::Python, "stripe_sign.py", "stripe-python").await
}

/// L14, L17
#[tokio::test]
async fn githubs_library_is_believed() -> Result<()> {
    if !is_there(Language::Node)? {
        return Ok(());
    }
    let host = Host::shared().await?;
    let github = Provider::github("github-node")?;
    host.api()?.forward(&github, "github-node").await?;
    let payload = r#"{"zen":"Speak like a human.","hook_id":1, "é":"☃"}"#;
    let signature = signed(Language::Node, "github_sign.mjs", &github, payload)?;
    let mut headers = HeaderMap::new();
    headers.insert("x-hub-signature-256", signature);
    headers.insert(
        "x-github-delivery",
        HeaderValue::from_static("72d3162e-cc78-11e3-81ab-4c9367dc0958"),
    );
    headers.insert("x-github-event", HeaderValue::from_static("ping"));
    let ingress = host.ingress()?;
    let tampered = payload.replace("1,", "1, ");
    let answer = github.send_as(&ingress, headers.clone(), tampered.into()).await?;
    assert_eq!(answer.code(), 401, "{answer:?}");
    let answer = github.send_as(&ingress, headers, payload.into()).await?;
    assert!(answer.status.is_success(), "{answer:?}");

    let ours = github.sign(&Event::new("d-1", "ping", payload), now())?;
    let ours = ours.get("x-hub-signature-256").context("signed")?.to_str()?.to_owned();
    let judged = Language::Node.ask("github_sign.mjs", &question(&github, payload, Some(&ours)))?;
    assert_eq!(judged.get("verdict"), Some(&json!(true)), "{judged}");
    Ok(())
}

/// The public library of Standard Webhooks verifies what the deliverer sent, and refuses it with a byte changed.
async fn our_webhooks_are_believed(language: Language, script: &str, tenant: &str) -> Result<()> {
    if !is_there(language)? {
        return Ok(());
    }
    let host = Host::shared().await?;
    let (api, subscriber) = (host.api()?, host.subscriber().await?);
    let endpoint = api.endpoint(tenant, &subscriber.url()).await?;
    for payload in [r#"{"n":1.0, "name":"Zo\u00eb ☃"}"#, "[]"] {
        let event =
            format!(r#"{{"tenant":"{tenant}","type":"t","aggregate_id":"a","payload":{payload}}}"#);
        let id = api.publish(&event, None).await?.text("/id")?;
        api.until_outgoing(tenant, &id, "succeeded").await?;
    }
    let requests = subscriber.seen().into_iter().map(|seen| {
        let names = ["webhook-id", "webhook-timestamp", "webhook-signature"];
        let headers: serde_json::Map<_, _> =
            names.into_iter().map(|name| (name.to_owned(), seen.header(name).into())).collect();
        json!({ "headers": headers, "body": BASE64_STANDARD.encode(&seen.body) })
    });
    let requests: Vec<_> = requests.collect();
    let ask = |requests: &[Value]| {
        language.ask(script, &json!({ "secret": endpoint.secret, "requests": requests }))
    };
    assert_eq!(ask(&requests)?, json!(["good", "good"]));
    let tampered: Vec<_> = requests
        .into_iter()
        .filter_map(|request| {
            let headers = request.get("headers")?.clone();
            Some(json!({ "headers": headers, "body": BASE64_STANDARD.encode(b"{}") }))
        })
        .collect();
    assert!(!ask(&tampered)?.to_string().contains("good"));
    Ok(())
}

/// L17
#[tokio::test]
async fn standard_webhooks_library_for_node_believes_our_webhooks() -> Result<()> {
    our_webhooks_are_believed(Language::Node, "standard_verify.mjs", "standard-node").await
}

/// L17
#[tokio::test]
async fn standard_webhooks_library_for_python_believes_our_webhooks() -> Result<()> {
    our_webhooks_are_believed(Language::Python, "standard_verify.py", "standard-python").await
}
