//! The local host, as a child of this process.

use std::{fs, path::Path, process::Stdio, time::Duration};

use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};

use crate::{
    complaint::Complaint,
    deployment::{Ready, ready_file},
};

/// How long the local host may take to answer, and to stop.
const PATIENCE: Duration = Duration::from_secs(20);

/// What the local host is started with.
#[derive(Debug)]
pub(super) struct Start<'a> {
    pub(super) binaries: &'a Path,
    pub(super) root: &'a Path,
    pub(super) state: &'a Path,
    pub(super) config_env: &'a str,
    pub(super) port: u16,
    pub(super) extra_root: &'a Path,
}

/// A local host that answers.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) ready: Ready,
    child: Child,
}

impl Host {
    /// Starts it, and waits until everything answers.
    pub(super) async fn start(start: &Start<'_>) -> Result<Self, Complaint> {
        let program = start.binaries.join("postern-local");
        let mut command = Command::new(&program);
        command
            .current_dir(start.root)
            .arg("--template")
            .arg(start.root.join("template.yaml"))
            .arg("--samconfig")
            .arg(start.root.join("samconfig.toml"))
            .args(["--config-env", start.config_env])
            .arg("--state")
            .arg(start.state)
            .arg("--bin-dir")
            .arg(start.binaries)
            .args(["--port", &start.port.to_string()])
            // It ends when this process ends, however that ends: its standard input closes.
            .arg("--with-parent")
            .env("LOCAL_ALLOW_LOOPBACK", "true")
            .env("LOCAL_ALLOW_ANY_PORT", "true")
            .env("LOCAL_EXTRA_ROOT", start.extra_root)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn().map_err(|error| {
            Complaint::new(
                "the local host cannot be started",
                format!("{}: {error}", program.display()),
                "build it with `cargo build --bins`",
            )
        })?;
        let ready = match tokio::time::timeout(PATIENCE, ready_line(&mut child)).await {
            Ok(Some(line)) => line,
            Ok(None) => {
                let status = child.wait().await.map(|status| status.to_string());
                return Err(Complaint::new(
                    "the local host did not start",
                    format!("it ended with {}", status.unwrap_or_else(|error| error.to_string())),
                    "do what it says above, and start again",
                ));
            }
            Err(_) => {
                return Err(Complaint::new(
                    "the local host does not answer",
                    format!("it said nothing for {} s", PATIENCE.as_secs()),
                    format!("look into {}", start.state.join("logs").display()),
                ));
            }
        };
        let broken = |why: String| {
            Complaint::new(
                "the local host's first word cannot be understood",
                why,
                "build everything anew with `cargo build --bins`",
            )
        };
        let parsed: Ready = serde_json::from_str(&ready).map_err(|e| broken(e.to_string()))?;
        write_private(&ready_file(start.state), ready.as_bytes())
            .map_err(|e| broken(e.to_string()))?;
        Ok(Self { ready: parsed, child })
    }

    /// Waits for Ctrl-C, for a request to end, or for the local host to end by itself, which is an error.
    pub(super) async fn until_stopped(&mut self) -> Result<(), Complaint> {
        let ended = |status: std::io::Result<std::process::ExitStatus>| {
            let how = status.map_or_else(|error| error.to_string(), |status| status.to_string());
            Complaint::new("the local host ended", how, "its last words are above; start again")
        };
        let mut terminate =
            tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).map_err(
                |error| Complaint::new("signals cannot be had", error.to_string(), "use Ctrl-C"),
            )?;
        tokio::select! {
            _ = tokio::signal::ctrl_c() => Ok(()),
            _ = terminate.recv() => Ok(()),
            status = self.child.wait() => Err(ended(status)),
        }
    }

    /// Lets it end, and sees that it does.
    pub(super) async fn stop(mut self) {
        drop(self.child.stdin.take());
        if tokio::time::timeout(PATIENCE, self.child.wait()).await.is_err() {
            let _ = self.child.kill().await;
        }
    }
}

async fn ready_line(child: &mut Child) -> Option<String> {
    let mut lines = BufReader::new(child.stdout.take()?).lines();
    lines.next_line().await.ok().flatten()
}

/// Writes a file that only its owner reads.
pub(super) fn write_private(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    use std::{io::Write as _, os::unix::fs::OpenOptionsExt as _};

    // Beside it first: a process that dies here leaves the old file whole.
    let beside = path.with_extension("new");
    let mut file =
        fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(beside, path)
}
