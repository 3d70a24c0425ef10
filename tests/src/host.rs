//! A local host of one test, or of the tests of one file.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;
use tempfile::TempDir;

use crate::{
    PATIENCE, api::Api, aws::Aws, binaries, certificate::Certificate, client::Client,
    control::Control, eventually, leftovers, subscriber::Subscriber,
};

/// How long a host that is asked to end may take.
const FAREWELL: Duration = Duration::from_secs(10);

/// How a host is set up.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Tables and queues in memory: faster, and gone with the host.
    pub in_memory: bool,
    /// How often the sweeper runs; a minute on AWS, a hundred times shorter here.
    pub sweeps: Duration,
    /// Parameters of the template that are not as the `test` environment has them.
    pub parameters: &'static [(&'static str, &'static str)],
}

impl Setup {
    /// For tests that do not restart their host.
    pub const IN_MEMORY: Self =
        Self { in_memory: true, sweeps: Duration::from_millis(600), parameters: &[] };

    /// For tests that do.
    pub const ON_DISK: Self = Self { in_memory: false, ..Self::IN_MEMORY };
}

/// What the host says when everything answers.
#[derive(Clone, Debug, Deserialize)]
pub struct Ready {
    /// The base of all AWS services.
    pub aws: String,
    /// The base of the control API.
    pub control: String,
    /// The HTTP APIs by logical id.
    pub apis: BTreeMap<String, String>,
    /// What callers of guarded APIs present.
    pub token: String,
    /// The host's process.
    pub pid: u32,
}

/// A local host with the `test` environment. Dropping it ends it, and all that it started.
#[derive(Debug)]
pub struct Host {
    setup: Setup,
    certificate: Certificate,
    running: Mutex<Running>,
    // Last: the others still use it when they are dropped.
    folder: Option<TempDir>,
}

#[derive(Debug, Default)]
struct Running {
    child: Option<Child>,
    ready: Option<Ready>,
    starts: u32,
}

impl Host {
    /// Starts a host with a state of its own.
    ///
    /// # Errors
    /// A binary is missing or stale, or the host does not come up; its last words are in the error.
    pub async fn start(setup: Setup) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("postern-e2e-").tempdir()?;
        let certificate = Certificate::make(folder.path())?;
        let host = Self { setup, certificate, running: Mutex::default(), folder: Some(folder) };
        host.restart().await?;
        Ok(host)
    }

    /// The host that all tests of a file use at the same time, started by the first of them and ended by the last.
    ///
    /// # Errors
    /// As [`Host::start`].
    pub async fn shared() -> Result<Arc<Self>> {
        // A weak one: nobody drops what is static, and the host would outlive the test.
        static SHARED: tokio::sync::Mutex<Weak<Host>> = tokio::sync::Mutex::const_new(Weak::new());
        let mut shared = SHARED.lock().await;
        if let Some(host) = shared.upgrade() {
            return Ok(host);
        }
        let host = Arc::new(Self::start(Setup::IN_MEMORY).await?);
        *shared = Arc::downgrade(&host);
        Ok(host)
    }

    /// Starts the host on the state that is there. It must not be running.
    ///
    /// # Errors
    /// As [`Host::start`].
    pub async fn restart(&self) -> Result<()> {
        let (words, complaints) = {
            let mut running = self.running();
            if running.child.is_some() {
                bail!("the host runs already");
            }
            running.starts += 1;
            let file = |kind: &str| self.folder().join(format!("host-{}.{kind}", running.starts));
            let (words, complaints) = (file("out"), file("err"));
            running.child = Some(self.spawn(&words, &complaints)?);
            (words, complaints)
        };
        let began = Instant::now();
        let ready = eventually("the local host is ready", async || {
            if let Some(line) = first_line(&words) {
                return Ok(Ok(line));
            }
            let ended = self.running().child.as_mut().and_then(|child| child.try_wait().ok()?);
            match ended {
                Some(status) => Ok(Err(status)),
                None => bail!("it has said nothing for {} s", began.elapsed().as_secs()),
            }
        });
        match ready.await.with_context(|| last_lines(&complaints))? {
            Ok(line) => {
                let ready = serde_json::from_str(&line)
                    .with_context(|| format!("the host's first line is {line}"))?;
                self.running().ready = Some(ready);
                Ok(())
            }
            Err(status) => {
                bail!("the local host ended with {status}:\n{}", last_lines(&complaints))
            }
        }
    }

    fn spawn(&self, words: &Path, complaints: &Path) -> Result<Child> {
        let (binaries, root) = (binaries::folder()?, crate::root());
        let mut command = Command::new(binaries.join("postern-local"));
        command.current_dir(root).arg("--template").arg(root.join("template.yaml"));
        command.arg("--samconfig").arg(self.samconfig(root)?).args(["--config-env", "test"]);
        command.arg("--state").arg(self.state()).arg("--bin-dir").arg(binaries);
        command.args(["--port", "0", "--every", &self.setup.sweeps.as_millis().to_string()]);
        if self.setup.in_memory {
            command.arg("--in-memory");
        }
        // It ends when this process ends, however that ends: its standard input closes.
        command.arg("--with-parent").stdin(Stdio::piped());
        command.stdout(File::create(words)?).stderr(File::create(complaints)?);
        command.env("LOCAL_ALLOW_LOOPBACK", "true").env("LOCAL_ALLOW_ANY_PORT", "true");
        command.env("LOCAL_EXTRA_ROOT", self.certificate.file());
        command.spawn().context("the local host cannot be started")
    }

    /// The deployment's configuration, with this setup's own parameters behind the others: the last one counts.
    fn samconfig(&self, root: &Path) -> Result<PathBuf> {
        let ours = root.join("samconfig.toml");
        if self.setup.parameters.is_empty() {
            return Ok(ours);
        }
        let text = fs::read_to_string(ours)?;
        let (before, test) = text.split_once("[test.").context("no environment `test`")?;
        let (test, after) = test.split_once("\n]\n").context("no end of its parameters")?;
        let more =
            self.setup.parameters.iter().map(|(name, value)| format!("\n  \"{name}={value}\","));
        let more: String = more.collect();
        let file = self.folder().join("samconfig.toml");
        fs::write(&file, format!("{before}[test.{test}{more}\n]\n{after}"))?;
        Ok(file)
    }

    /// `kill -9` of the host. Its functions lose their host, as they lose a machine.
    ///
    /// # Errors
    /// It does not run.
    pub fn kill(&self) -> Result<()> {
        let mut running = self.running();
        let mut child = running.child.take().context("the host does not run")?;
        running.ready = None;
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// Every queue is lost, with all messages, while the host is down.
    ///
    /// # Errors
    /// The host runs, or keeps its queues in memory.
    pub fn lose_queues(&self) -> Result<()> {
        ensure!(self.running().child.is_none(), "the host runs");
        let mut lost = 0;
        for file in fs::read_dir(self.state())? {
            let file = file?;
            if file.file_name().to_string_lossy().starts_with("sqs.sqlite") {
                fs::remove_file(file.path())?;
                lost += 1;
            }
        }
        ensure!(lost > 0, "the state holds no queues");
        Ok(())
    }

    /// Where everything answers now. After a restart the ports are others.
    ///
    /// # Errors
    /// The host does not run.
    pub fn ready(&self) -> Result<Ready> {
        self.running().ready.clone().context("the host does not run")
    }

    /// What providers call.
    ///
    /// # Errors
    /// The host does not run.
    pub fn ingress(&self) -> Result<Client> {
        self.client("IngressApi", false)
    }

    /// What operators call.
    ///
    /// # Errors
    /// The host does not run.
    pub fn api(&self) -> Result<Api> {
        Ok(Api::of(self.client("AdminApi", true)?))
    }

    /// The host itself.
    ///
    /// # Errors
    /// The host does not run.
    pub fn control(&self) -> Result<Control> {
        let ready = self.ready()?;
        Ok(Control::of(Client::new(&ready.aws, Some(&ready.token))?))
    }

    /// The AWS services.
    ///
    /// # Errors
    /// The host does not run.
    pub fn aws(&self) -> Result<Aws> {
        Ok(Aws::of(Client::new(&self.ready()?.aws, None)?))
    }

    /// A new subscriber whose certificate the host trusts.
    ///
    /// # Errors
    /// It cannot listen.
    pub async fn subscriber(&self) -> Result<Subscriber> {
        Subscriber::start(&self.certificate).await
    }

    fn client(&self, api: &str, is_guarded: bool) -> Result<Client> {
        let ready = self.ready()?;
        let base = ready.apis.get(api).with_context(|| format!("the template has no {api}"))?;
        Client::new(base, is_guarded.then_some(ready.token.as_str()))
    }

    /// The host's state: tables, queues, secrets, and the logs of functions.
    pub fn state(&self) -> PathBuf {
        self.folder().join("state")
    }

    /// Everything of this host: the state, and what the host itself printed.
    pub fn folder(&self) -> &Path {
        self.folder.as_ref().map_or(Path::new("."), TempDir::path)
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Host {
    #[expect(clippy::print_stderr, reason = "for whoever reads the failed test")]
    fn drop(&mut self) {
        if let Some(child) = self.running().child.take() {
            farewell(child);
        }
        leftovers::end(&self.state());
        // A test that panics leaves what tells why, and so does one that is asked to.
        let is_wanted = std::thread::panicking() || crate::setting("POSTERN_KEEP").is_some();
        if let Some(mut folder) = self.folder.take().filter(|_| is_wanted) {
            folder.disable_cleanup(true);
            eprintln!("the host's state and logs are kept in {}", folder.path().display());
        }
    }
}

/// Lets a host end its functions and itself, and sees that it does.
fn farewell(mut child: Child) {
    drop(child.stdin.take());
    let began = Instant::now();
    while began.elapsed() < FAREWELL.min(PATIENCE) {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    // It may have ended since.
    let _ = child.kill();
    let _ = child.wait();
}

/// The first line of a file, once it is whole.
fn first_line(file: &Path) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    text.split_once('\n').map(|(line, _)| line.to_owned())
}

fn last_lines(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    let mut lines: Vec<_> = text.lines().rev().take(15).collect();
    lines.reverse();
    format!("its last words:\n{}", lines.join("\n"))
}
