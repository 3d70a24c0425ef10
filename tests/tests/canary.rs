//! Canaries: random texts in every secret, header and body, and then a search for them wherever they must not be.
//!
//! The road is run with the most verbose logs that the template allows, and with failures at every stage, for it is the
//! failing paths that print too much. SEC-secret-in-logs

#![expect(clippy::indexing_slicing, reason = "a suite that panics has failed, as it should")]

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::json;
use tests::{
    client::{Answer, Client},
    control::Fault,
    eventually,
    host::{Host, Setup},
    now,
    provider::{Event, Provider},
    seed,
    subscriber::{Reply, Subscriber},
};

/// Where a text may stand in the clear.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum May {
    /// Nowhere: secrets, credentials, headers that nobody asked for.
    Nowhere,
    /// In the tables and the bucket: bodies.
    Stores,
    /// There, and in answers to operators: where an endpoint is, and what it answered.
    StoresAndApi,
}

/// A text that stands nowhere by chance.
#[derive(Clone, Debug)]
struct Canary {
    name: String,
    may: May,
}

/// All canaries, in every spelling in which they may be found.
#[derive(Debug, Default)]
struct Canaries {
    all: Vec<Canary>,
    /// By their first four bytes: the rest of the spelling, and whose it is.
    spellings: HashMap<[u8; 4], Vec<(Vec<u8>, usize)>>,
}

impl Canaries {
    /// A new text.
    fn text(&mut self, name: &str, may: May) -> String {
        let text = seed::text_of(&format!("canary {name} {}", std::process::id()));
        self.watch(name, text.as_bytes(), may);
        text
    }

    /// Looks out for these bytes too.
    fn watch(&mut self, name: &str, bytes: &[u8], may: May) {
        let mut spellings = vec![bytes.to_vec(), hex::encode(bytes).into_bytes()];
        // In base64 a text looks different by where it begins: three ways, without the ends that its neighbours decide.
        for shift in 0..3 {
            let encoded = BASE64_STANDARD.encode([&b"\0\0\0"[..shift], bytes].concat());
            let inner = encoded.as_bytes().get(4..encoded.len().saturating_sub(4));
            spellings.extend(inner.map(<[u8]>::to_vec));
        }
        for spelling in spellings {
            let (first, rest) = spelling.split_first_chunk::<4>().expect("canaries are long");
            self.spellings.entry(*first).or_default().push((rest.to_vec(), self.all.len()));
        }
        self.all.push(Canary { name: name.to_owned(), may });
    }

    /// The canaries in a text.
    fn found_in(&self, text: &[u8]) -> Vec<&Canary> {
        let mut found = vec![false; self.all.len()];
        for (at, window) in text.windows(4).enumerate() {
            let Ok(first) = <[u8; 4]>::try_from(window) else { continue };
            for (rest, whose) in self.spellings.get(&first).into_iter().flatten() {
                if text[at + 4..].starts_with(rest) {
                    found[*whose] = true;
                }
            }
        }
        self.all.iter().zip(found).filter_map(|(canary, found)| found.then_some(canary)).collect()
    }

    /// Which canaries are in which files, although they may not be there.
    fn escaped(&self, folder: &Path) -> Vec<String> {
        let mut escaped = Vec::new();
        for file in files(folder) {
            let found = self.found_in(&fs::read(&file).unwrap_or_default());
            let found =
                found.iter().filter(|canary| canary.may == May::Nowhere || !is_store(&file));
            escaped.extend(found.map(|canary| format!("{} in {}", canary.name, file.display())));
        }
        escaped
    }
}

/// Every file below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found
}

/// Whether a file of the host's folder is where bodies belong: its tables, or its bucket.
fn is_store(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with("dynamodb.sqlite") || path.components().any(|part| part.as_os_str() == "s3")
}

/// One walk along the road.
struct Walk {
    host: Host,
    canaries: Canaries,
    /// What the api and the ingress said, but for the one answer that shows an endpoint its secret.
    said: Vec<u8>,
}

impl Walk {
    fn hear(&mut self, answer: &Answer) {
        self.said.extend_from_slice(format!("{:?}\n", answer.headers).as_bytes());
        self.said.extend_from_slice(&answer.body);
    }

    fn provider(&mut self, source: &str) -> Result<Provider> {
        let secret = self.canaries.text(&format!("the secret of {source}"), May::Nowhere);
        Ok(Provider::stripe(source)?.with_secret(&format!("whsec_{secret}")))
    }

    /// An event with a canary in its body and in each header that a stranger might send.
    fn event(&mut self, id: &str) -> Event {
        let body = self.canaries.text(&format!("the body of {id}"), May::Stores);
        let more = json!({ "customer_email": body, "nested": { "name": body } });
        let invoice = format!("in_{id}");
        let event = Event::stripe_with(id, "invoice.paid", &invoice, now().as_second(), &more);
        let mut header = |name: &str| self.canaries.text(&format!("{name} of {id}"), May::Nowhere);
        event
            .with("authorization", &format!("Bearer {}", header("authorization")))
            .with("cookie", &format!("session={}", header("cookie")))
            .with("x-custom", &header("x-custom"))
    }

    /// The good road, with attempts that fail; published events and large ones too.
    async fn succeed(&mut self, stripe: &Provider) -> Result<()> {
        let event = self.event("evt_good");
        let (api, host) = (self.host.api()?, &self.host);
        let answers = [
            stripe.send_until_accepted(host, &event).await?,
            stripe.send_until_accepted(host, &event).await?,
        ];
        api.until_delivered(stripe.source(), &event.id).await?;
        answers.iter().for_each(|answer| self.hear(answer));

        let large: String = (0..2000).map(|n| seed::text_of(&n.to_string())).collect();
        let payload = format!("{}{large}", self.canaries.text("a published body", May::Stores));
        let event =
            json!({ "tenant": "canary", "type": "t", "aggregate_id": "a", "payload": [payload] });
        let published = api.publish(&event.to_string(), Some("k-1")).await?;
        self.hear(&published);
        let id = published.text("/id")?;
        api.until_outgoing("canary", &id, "succeeded").await?;
        self.hear(&api.client().get(&format!("/v1/tenants/canary/events/{id}")).await?);
        Ok(())
    }

    /// Requests that are refused, at both doors.
    async fn be_refused(&mut self, stripe: &Provider) -> Result<()> {
        let (api, ingress) = (self.host.api()?, self.host.ingress()?);
        let event = self.event("evt_refused");
        let wrong = self.canaries.text("a wrong secret", May::Nowhere);
        let forger = stripe.with_secret(&format!("whsec_{wrong}"));
        let forged = forger.send(&ingress, &event).await?;
        ensure!(forged.code() == 401, "{forged:?}");
        self.hear(&forged);
        let mut headers = stripe.sign(&event, now())?;
        let nonsense = self.canaries.text("a malformed signature", May::Nowhere);
        headers.insert("stripe-signature", format!("t=1,v1={nonsense}").parse()?);
        self.hear(&stripe.send_as(&ingress, headers, event.body.clone()).await?);

        let body = self.canaries.text("a refused publish", May::Nowhere);
        let wrong = json!({ "tenant": "canary", "type": "", "aggregate_id": "a", "payload": body });
        self.hear(&api.publish(&wrong.to_string(), None).await?);
        let secret = self.canaries.text("a refused secret", May::Nowhere);
        for secrets in [json!({ "1": format!(" {secret}"), "2": "short" }), json!(secret)] {
            let (scheme, handler) = (json!({ "preset": "stripe" }), json!({ "kind": "mirror" }));
            let wrong =
                json!({ "name": "x", "scheme": scheme, "handler": handler, "secrets": secrets });
            let answer = api.client().post("/v1/sources", &wrong).await?;
            ensure!(answer.status.is_client_error(), "{answer:?}");
            self.hear(&answer);
        }
        Ok(())
    }

    /// A handler that cannot read its event, and stores that fail while they hold a body or a secret.
    async fn fail(&mut self, stripe: &Provider) -> Result<()> {
        let (api, control) = (self.host.api()?, self.host.control()?);
        let secret = self.canaries.text("the secret of hopeless", May::Nowhere);
        let homemade = Provider::homemade("hopeless")?.with_secret(&secret);
        api.mirror(&homemade, None).await?;
        let body = self.canaries.text("a body that cannot be read", May::Stores);
        let event = Event::new("e-1", "thing.changed", body)
            .with("x-object-type", "thing")
            .with("x-object-id", "t-1")
            .with("x-version", "1");
        homemade.send_until_accepted(&self.host, &event).await?;
        api.until("hopeless", "e-1", "dead_letter").await?;

        for fault in [
            Fault::new("dynamodb", "TransactWriteItems", "access_denied").of("worker").times(1),
            Fault::new("dynamodb", "PutItem", "access_denied").of("ingress").times(1),
            Fault::new("secretsmanager", "GetSecretValue", "internal").times(3),
            Fault::new("kms", "Decrypt", "internal").times(3),
            Fault::new("dynamodb", "UpdateItem", "throttle").of("deliverer").times(10),
        ] {
            control.fault(&fault).await?;
        }
        for function in ["IngressFunction", "DelivererFunction"] {
            control.kill(function).await?;
        }
        let event = self.event("evt_unlucky");
        stripe.send_until_accepted(&self.host, &event).await?;
        api.until_delivered(stripe.source(), &event.id).await?;
        control.heal().await
    }

    /// Endpoints that are shown more than a signature, and one that is polled: what opens a door goes to who it is for. Those
    /// whom it was shown.
    async fn show_credentials(&mut self) -> Result<[Subscriber; 2]> {
        let (api, all) = (self.host.api()?, "/v1/tenants/shown/endpoints");
        let (receiver, tokens) = (self.host.subscriber().await?, self.host.subscriber().await?);
        receiver.then([Reply::status(500), Reply::status(401), Reply::status(503)]);
        let mut secret = |name: &str| self.canaries.text(name, May::Nowhere);
        let granted = json!({ "access_token": secret("an access token"), "expires_in": 3600 });
        let refused = json!({ "error": secret("what a token server says") });
        tokens.then([Reply::status(400).body(refused.to_string())]);
        tokens.otherwise(Reply::status(200).body(granted.to_string()));
        let auths = [
            json!({ "kind": "basic", "user": "ann", "secret": secret("a password") }),
            json!({ "kind": "bearer", "secret": secret("a bearer token") }),
            json!({
                "kind": "oauth2", "token_url": tokens.url(), "client_id": "c",
                "secret": secret("a client's secret"),
            }),
        ];
        for auth in auths {
            let headers = json!({ "x-own": self.canaries.text("a header's value", May::Nowhere) });
            let endpoint = json!({ "url": receiver.url(), "auth": auth, "headers": headers });
            let made = api.client().post(all, &endpoint).await?;
            ensure!(made.code() == 201, "{made:?}");
            self.hear(&api.client().get(&format!("{all}/{}", made.text("/id")?)).await?);
        }
        let polled = api.client().post(all, &json!({ "poll": true })).await?;
        let token = polled.text("/token")?;
        self.canaries.watch("a poller's token", token.as_bytes(), May::Nowhere);

        let payload = self.canaries.text("a body for all of them", May::Stores);
        let event =
            json!({ "tenant": "shown", "type": "t", "aggregate_id": "a", "payload": [payload] });
        let event = api.publish(&event.to_string(), None).await?.text("/id")?;
        let subscriber = self.host.ready()?.apis.get("SubscriberApi").context("an API")?.clone();
        let poller = Client::new(&subscriber, Some(&token))?;
        let poll = format!("/poll/shown/{}", polled.text("/id")?);
        let cursor = eventually("it can be fetched", async || {
            poller.post(&poll, &json!({})).await?.text("/cursor")
        });
        poller.post(&poll, &json!({ "cursor": cursor.await? })).await?.good()?;
        let stranger = Client::new(&subscriber, Some(&format!("{token}x")))?;
        self.hear(&stranger.post(&poll, &json!({})).await?);
        api.until_outgoing("shown", &event, "succeeded").await?;
        let asked = [
            format!("/v1/tenants/shown/events/{event}"),
            all.to_owned(),
            format!("{all}/{}/deliveries", polled.text("/id")?),
        ];
        for path in asked {
            self.hear(&api.client().get(&path).await?);
        }
        Ok([receiver, tokens])
    }

    /// Everything that an operator can ask.
    async fn ask(&mut self, source: &str) -> Result<()> {
        let api = self.host.api()?;
        let paths = [
            "/v1/sources".to_owned(),
            format!("/v1/sources/{source}"),
            format!("/v1/sources/{source}/secrets"),
            format!("/v1/sources/{source}/rejected"),
            format!("/v1/sources/{source}/events/evt_good"),
            format!("/v1/sources/{source}/events/evt_unlucky"),
            "/v1/sources/hopeless/events/e-1".to_owned(),
            "/v1/parked".to_owned(),
            "/v1/tenants/canary/endpoints".to_owned(),
        ];
        for path in paths {
            let answer = api.client().get(&path).await?;
            ensure!(answer.status.is_success(), "{path}: {answer:?}");
            self.hear(&answer);
        }
        self.hear(&api.replay(source, "evt_good").await?);
        let secret = self.canaries.text("a second secret", May::Nowhere);
        let secret = json!({ "id": "2", "secret": format!("whsec_{secret}") });
        let added = api.client().post(&format!("/v1/sources/{source}/secrets"), &secret).await?;
        ensure!(added.code() == 201, "{added:?}");
        self.hear(&added);
        self.host.control()?.idle().await
    }
}

#[tokio::test]
async fn secrets_are_nowhere_and_bodies_only_where_they_belong() -> Result<()> {
    // On disk, so that queues can be searched too.
    let host = Host::start(Setup::ON_DISK).await?;
    let mut walk = Walk { host, canaries: Canaries::default(), said: Vec::new() };
    let subscriber = walk.host.subscriber().await?;
    let answer = walk.canaries.text("what the endpoint answered", May::StoresAndApi);
    subscriber.then([
        Reply::status(500).body(answer.clone()),
        Reply::never(),
        Reply::status(503).header("retry-after", "1").body(answer),
    ]);
    let token = walk.canaries.text("the query of the endpoint's URL", May::StoresAndApi);
    let url = format!("{}?token={token}", subscriber.url());
    let endpoint = walk.host.api()?.endpoint("canary", &url).await?;
    let key = BASE64_STANDARD.decode(endpoint.secret.trim_start_matches("whsec_"))?;
    walk.canaries.watch("the endpoint's secret", endpoint.secret.as_bytes(), May::Nowhere);
    walk.canaries.watch("the endpoint's key", &key, May::Nowhere);

    let stripe = walk.provider("canary")?;
    walk.host.api()?.mirror(&stripe, Some("canary")).await?;
    walk.succeed(&stripe).await?;
    walk.be_refused(&stripe).await?;
    let [receiver, tokens] = walk.show_credentials().await?;
    walk.fail(&stripe).await?;
    walk.ask("canary").await?;

    let Walk { host, canaries, said } = walk;
    let shown =
        canaries.found_in(&said).into_iter().filter(|canary| canary.may < May::StoresAndApi);
    let shown: Vec<_> = shown.map(|canary| canary.name.as_str()).collect();
    assert!(shown.is_empty(), "an answer shows {shown:?}");
    let escaped = canaries.escaped(host.folder());
    assert!(escaped.is_empty(), "{}", escaped.join("\n"));

    // The search was no idle one: there were logs of every function, the subscriber saw the bodies, and a canary that
    // is logged on purpose is found in any spelling.
    let logs = host.state().join("logs");
    for function in ["ingress", "worker", "relay", "deliverer", "sweeper", "api"] {
        let written = files(&logs).into_iter().find(|log| {
            log.file_name()
                .is_some_and(|name| name.to_string_lossy().to_lowercase().contains(function))
        });
        let written = written.with_context(|| format!("{function} has no log"))?;
        ensure!(fs::metadata(&written)?.len() > 0, "{} is empty", written.display());
    }
    let bodies =
        subscriber.seen().iter().map(|seen| seen.body.clone()).collect::<Vec<_>>().concat();
    ensure!(!canaries.found_in(&bodies).is_empty(), "the subscriber saw no canary");
    for (who, least) in [(&receiver, 6), (&tokens, 1)] {
        let seen: Vec<_> = who.seen().iter().map(|seen| format!("{seen:?}")).collect();
        let shown = canaries.found_in(seen.concat().as_bytes()).len();
        ensure!(shown >= least, "{shown} credentials were shown to whom they are for");
    }
    for spelled in [
        endpoint.secret.clone(),
        hex::encode(&key),
        BASE64_STANDARD.encode(format!("body: {}", stripe.secret())),
    ] {
        let planted = logs.join("planted.log");
        fs::write(&planted, format!("{{\"message\":\"{spelled}\"}}\n"))?;
        let escaped = canaries.escaped(host.folder());
        assert!(escaped.iter().any(|hit| hit.ends_with("planted.log")), "{spelled} was not found");
        fs::remove_file(planted)?;
    }
    Ok(())
}

#[test]
fn a_canary_is_found_in_any_spelling_and_only_where_it_may_not_be() {
    let folder = tempfile::tempdir().unwrap();
    let mut canaries = Canaries::default();
    let (secret, body) =
        (canaries.text("secret", May::Nowhere), canaries.text("body", May::Stores));
    let check = |file: &str, content: &str, expected: usize| {
        let path = folder.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        assert_eq!(canaries.escaped(folder.path()).len(), expected, "{content} in {file}");
        fs::remove_file(path).unwrap();
    };
    check("logs/worker.log", "nothing", 0);
    for prefix in ["", "x", "xy"] {
        check("logs/worker.log", &BASE64_STANDARD.encode(format!("{prefix}{secret}{prefix}")), 1);
    }
    check("logs/worker.log", &hex::encode(&body), 1);
    check("logs/worker.log", &format!("{secret} {body}"), 2);
    check("sqs.sqlite-wal", &body, 1);
    check("dynamodb.sqlite", &format!("{secret} {body}"), 1);
    check("s3/bucket/in/x", &body, 0);
}
