//! The local host, as a child of this process.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, ChildStdin, Command},
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

/// A local host.
#[derive(Debug)]
pub(super) struct Host {
    child: Child,
    /// Not with the child: waiting for it would close its standard input, and so end it.
    stdin: Option<ChildStdin>,
    state: PathBuf,
}

impl Host {
    /// Starts it.
    pub(super) fn start(start: &Start<'_>) -> Result<Self, Complaint> {
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
            // What goes well is told by this program.
            .env("LOCAL_LOG", "warn")
            .env("LOCAL_ALLOW_LOOPBACK", "true")
            .env("LOCAL_ALLOW_ANY_PORT", "true")
            .env("LOCAL_EXTRA_ROOT", start.extra_root)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-C is for this process, which lets the host end in order.
            .process_group(0)
            .kill_on_drop(true);
        let mut child = command.spawn().map_err(|error| {
            Complaint::new(
                "the local host cannot be started",
                format!("{}: {error}", program.display()),
                "build it with `cargo build --bins`",
            )
        })?;
        Ok(Self { stdin: child.stdin.take(), child, state: start.state.to_owned() })
    }

    /// Waits until everything answers; what it says then is kept for other commands.
    pub(super) async fn ready(&mut self) -> Result<Ready, Complaint> {
        let ready = match tokio::time::timeout(PATIENCE, ready_line(&mut self.child)).await {
            Ok(Some(line)) => line,
            Ok(None) => {
                let how = how_it_ended(self.child.wait().await);
                return Err(Complaint::new(
                    "the local host did not start",
                    format!("it ended with {how}"),
                    "do what it says above, and start again",
                ));
            }
            Err(_) => {
                return Err(Complaint::new(
                    "the local host does not answer",
                    format!("it said nothing for {} s", PATIENCE.as_secs()),
                    format!("look into {}", self.state.join("logs").display()),
                ));
            }
        };
        // Not the line itself in the reason: the token is in it.
        let broken = |why: &str| {
            let next = "build everything anew with `cargo build --bins`";
            Complaint::new("the local host's first word cannot be understood", why, next)
        };
        let parsed: Ready = serde_json::from_str(&ready)
            .map_err(|_| broken("it is not the line that says ready"))?;
        write_private(&ready_file(&self.state), ready.as_bytes()).map_err(|error| {
            let file = ready_file(&self.state);
            let why = format!("{}: {error}", file.display());
            Complaint::new(
                "other commands cannot be told of the local host",
                why,
                "make the folder writable",
            )
        })?;
        Ok(parsed)
    }

    /// Waits for the local host to end by itself, which it should not.
    pub(super) async fn ended(&mut self) -> Complaint {
        let how = how_it_ended(self.child.wait().await);
        let next = "read its last words above, and start again: what was accepted is there";
        Complaint::new("the local host ended", format!("it ended with {how}"), next)
    }

    /// Lets it end, and sees that it does.
    pub(super) async fn stop(mut self) {
        // Commands that come now should hear that nothing runs, not that a port is closed.
        let _ = fs::remove_file(ready_file(&self.state));
        drop(self.stdin.take());
        if tokio::time::timeout(PATIENCE, self.child.wait()).await.is_err() {
            let _ = self.child.kill().await;
        }
    }
}

fn how_it_ended(status: std::io::Result<std::process::ExitStatus>) -> String {
    status.map_or_else(|error| error.to_string(), |status| status.to_string())
}

async fn ready_line(child: &mut Child) -> Option<String> {
    let mut lines = BufReader::new(child.stdout.take()?).lines();
    lines.next_line().await.ok().flatten()
}

/// Writes a file that only its owner reads.
pub(super) fn write_private(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    use std::{io::Write as _, os::unix::fs::OpenOptionsExt as _};

    // Beside it first: a process that dies here leaves the old file whole. A name of its own for each process: of two that
    // write at once, the second would find its file renamed by the first.
    let beside = path.with_extension(format!("{}.new", std::process::id()));
    let mut file =
        fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(beside, path)
}
