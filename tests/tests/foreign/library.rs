//! A provider's own library, in the language it was written in.
//!
//! The libraries are installed on first use, in the versions that `tests/foreign/` names. One that is asked is a process,
//! which loads it once and answers questions until it is dropped.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::OnceLock,
};

use anyhow::{Context as _, Result, bail, ensure};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tests::{binaries, root, setting};

/// A language that libraries are written in.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Language {
    Python,
    Node,
}

impl Language {
    /// Whether the language is there. If not, says why the test is skipped, or fails where nothing may be.
    #[expect(clippy::print_stderr, reason = "for whoever reads the test's output")]
    pub(crate) fn is_there(self) -> Result<bool> {
        match self.home() {
            Ok(_) => Ok(true),
            Err(why) if setting("POSTERN_REQUIRE_ALL").as_deref() == Some("1") => {
                bail!("nothing may be skipped, but {self:?} cannot be had: {why}")
            }
            Err(why) => {
                eprintln!("skipped: {self:?} cannot be had: {why}");
                Ok(false)
            }
        }
    }

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
                succeed(Command::new("python3").args(["-m", "venv", "--clear", "venv"]), &home)?;
                let pip = home.join("venv/bin/pip");
                let quiet = ["install", "-q", "--no-compile", "--disable-pip-version-check"];
                succeed(Command::new(pip).args(quiet).args(["-r", "requirements.txt"]), &home)?;
            }
            Self::Node => {
                let quiet = ["ci", "--no-audit", "--no-fund", "--ignore-scripts"];
                succeed(Command::new("npm").args(quiet), &home)?;
            }
        }
        fs::write(stamp, list)?;
        Ok(home)
    }
}

fn succeed(command: &mut Command, home: &Path) -> Result<()> {
    let output = command.current_dir(home).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("{command:?} cannot be run"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} ended with {}: {}", output.status, said.trim());
    Ok(())
}

/// A request, as a library signs and judges it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Call {
    /// What it is signed with, and then what it is judged by.
    pub(crate) secret: String,
    /// The event's id, for providers that send one in a header.
    pub(crate) id: String,
    /// When it is signed, in milliseconds.
    pub(crate) at: i64,
    pub(crate) method: &'static str,
    /// The whole address.
    pub(crate) url: String,
    /// By their names in lower case.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

/// What a library adds to a request, or changes in it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Signed {
    #[serde(default)]
    headers: BTreeMap<String, String>,
    url: Option<String>,
    body: Option<String>,
    /// What the receiver holds, if it is not what was signed with.
    secret: Option<String>,
}

/// What a library thinks of a request.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Judged {
    Verdict(String),
    Refused(String),
}

/// A library that answers questions. Its process ends when this is dropped, or with this process.
#[derive(Debug)]
pub(crate) struct Library {
    name: &'static str,
    child: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Library {
    /// Loads the library of a provider. The language must be there.
    pub(crate) fn load(language: Language, name: &'static str) -> Result<Self> {
        let Ok(home) = language.home() else { bail!("{language:?} is not installed") };
        let mut command = match language {
            Language::Python => Command::new(home.join("venv/bin/python")),
            Language::Node => Command::new("node"),
        };
        command.arg(match language {
            Language::Python => "sign.py",
            Language::Node => "sign.mjs",
        });
        command.arg(name).current_dir(home).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let questions = child.stdin.take().context("a pipe")?;
        let answers = BufReader::new(child.stdout.take().context("a pipe")?);
        Ok(Self { name, child, questions, answers })
    }

    /// The request with the signature that the library makes.
    pub(crate) fn sign(&mut self, call: &Call) -> Result<Call> {
        let signed: Signed = self.ask("sign", call)?;
        let mut call = call.clone();
        call.headers.extend(signed.headers);
        call.url = signed.url.unwrap_or(call.url);
        call.body = signed.body.unwrap_or(call.body);
        call.secret = signed.secret.unwrap_or(call.secret);
        Ok(call)
    }

    /// `None` if the library finds the request good; otherwise what it says.
    pub(crate) fn objects_to(&mut self, call: &Call) -> Result<Option<String>> {
        match self.ask("judge", call)? {
            Judged::Verdict(good) if good == "good" => Ok(None),
            Judged::Verdict(other) => bail!("{} has a verdict of its own: {other}", self.name),
            Judged::Refused(why) => Ok(Some(why)),
        }
    }

    fn ask<T: DeserializeOwned>(&mut self, what: &'static str, call: &Call) -> Result<T> {
        #[derive(Serialize)]
        struct Question<'a> {
            what: &'static str,
            #[serde(flatten)]
            call: &'a Call,
        }
        let question = serde_json::to_string(&Question { what, call })?;
        writeln!(self.questions, "{question}")?;
        self.questions.flush()?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        let answer = serde_json::from_str(&answer);
        answer.with_context(|| format!("{} was asked to {what} and did not answer", self.name))
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // It holds nothing that it would have to put away, and may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
