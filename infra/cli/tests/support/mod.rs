//! The binary under test, without anything of the environment that would tell it of a real deployment.

use std::{
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

/// How a command ended, and what it said.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// A command of the program.
pub(crate) fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    for name in [
        "POSTERN_API",
        "POSTERN_TOKEN",
        "POSTERN_SECRET",
        "AWS_REGION",
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "COLUMNS",
    ] {
        command.env_remove(name);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs it to its end.
pub(crate) fn run(mut command: Command, input: &str) -> Ended {
    let mut child = command.spawn().unwrap();
    // A command that complains early does not read its input.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    Ended {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}
