//! A provider's secret, on its way from a person to the deployment: never on the command line, never on the screen.

use std::{
    fmt, fs,
    io::{self, IsTerminal as _, Read as _, Write as _},
};

use nix::sys::termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr};
use signing::Secret;

use crate::complaint::Complaint;

/// The most bytes of a file that holds a secret.
const MAX_SECRET: u64 = 64 << 10;

/// Where a secret comes from.
#[derive(clap::Args, Clone, Default)]
pub struct SecretFrom {
    /// A file that holds the provider's secret and nothing else; `-` reads standard input. Without it: what the
    /// environment has as `POSTERN_SECRET`, else you are asked for it, and it is not shown
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<String>,

    // Its name is only for the environment: on the command line everybody on the machine could read it.
    #[arg(long, hide = true, env = "POSTERN_SECRET", hide_env_values = true, value_parser = hidden)]
    secret: Option<Secret>,
}

impl fmt::Debug for SecretFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretFrom").field("secret_file", &self.secret_file).finish_non_exhaustive()
    }
}

#[expect(clippy::unnecessary_wraps, reason = "clap wants a parser that can fail")]
fn hidden(text: &str) -> Result<Secret, std::convert::Infallible> {
    Ok(Secret::new(text))
}

impl SecretFrom {
    /// Whether somebody said where it is.
    pub fn is_given(&self) -> bool {
        self.secret_file.is_some() || self.secret.is_some()
    }

    /// The secret, without the newline at its end.
    pub fn read(&self) -> Result<Secret, Complaint> {
        match (&self.secret_file, &self.secret) {
            (Some(file), _) => read_file(file),
            (None, Some(secret)) => Ok(secret.clone()),
            (None, None) if io::stdin().is_terminal() => ask().map_err(|error| {
                let next = "give --secret-file with a file, or `-` and pipe it in";
                Complaint::new("the secret cannot be asked for", error.to_string(), next)
            }),
            (None, None) => Err(Complaint::new(
                "there is no secret",
                "neither --secret-file nor POSTERN_SECRET is given, and nobody is there to be asked",
                "give --secret-file with a file, or `-` and pipe it in",
            )),
        }
    }
}

pub(crate) fn read_file(file: &str) -> Result<Secret, Complaint> {
    let read = || -> io::Result<Secret> {
        let mut text = String::new();
        match file {
            "-" => io::stdin().take(MAX_SECRET + 1).read_to_string(&mut text)?,
            file => fs::File::open(file)?.take(MAX_SECRET + 1).read_to_string(&mut text)?,
        };
        Ok(without_newline(text))
    };
    let unreadable = |why: String| {
        let next = "give a file that holds the secret and nothing else, or `-` and pipe it in";
        Complaint::new(format!("the secret cannot be read from {file}"), why, next)
    };
    let secret = read().map_err(|error| unreadable(error.to_string()))?;
    match u64::try_from(secret.expose().len()) {
        Ok(1..=MAX_SECRET) => Ok(secret),
        Ok(0) => Err(unreadable("there is nothing in it".to_owned())),
        _ => Err(unreadable(format!("it has more than {MAX_SECRET} bytes"))),
    }
}

fn without_newline(text: String) -> Secret {
    // Both copies are wiped.
    let whole = Secret::new(text);
    Secret::new(whole.expose().trim_end_matches(['\n', '\r']))
}

/// Asks on the terminal, which shows nothing of what is typed.
fn ask() -> io::Result<Secret> {
    let stdin = io::stdin();
    let mut err = io::stderr();
    write!(err, "The provider's secret (not shown): ")?;
    err.flush()?;
    let _silent = Silent::on(&stdin)?;
    let mut line = String::new();
    stdin.read_line(&mut line)?;
    Ok(without_newline(line))
}

/// As long as it lives, the terminal does not show what is typed.
struct Silent<'a> {
    terminal: &'a io::Stdin,
    before: Termios,
}

impl<'a> Silent<'a> {
    fn on(terminal: &'a io::Stdin) -> io::Result<Self> {
        let before = tcgetattr(terminal)?;
        let mut silent = before.clone();
        silent.local_flags.remove(LocalFlags::ECHO);
        // The end of the line is shown, so that what follows begins on a new one.
        silent.local_flags.insert(LocalFlags::ECHONL);
        tcsetattr(terminal, SetArg::TCSAFLUSH, &silent)?;
        Ok(Self { terminal, before })
    }
}

impl Drop for Silent<'_> {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        let _ = tcsetattr(self.terminal, SetArg::TCSADRAIN, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_read_without_the_newline_at_its_end_and_never_quoted() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secret");
        let read = |content: &[u8]| {
            fs::write(&file, content).unwrap();
            let secret = read_file(file.to_str().unwrap());
            secret.map(|s| s.expose().to_owned()).map_err(|complaint| complaint.why)
        };
        assert_eq!(read(b"whsec_x\n"), Ok("whsec_x".to_owned()));
        assert_eq!(read(b" whsec_x \r\n"), Ok(" whsec_x ".to_owned()));
        assert_eq!(read(b"\n"), Err("there is nothing in it".to_owned()));
        assert!(read(&[b'x'; 70_000]).unwrap_err().contains("more than 65536 bytes"));
        assert!(!read(b"CANARY\xff").unwrap_err().contains("CANARY"));
        assert!(read_file("/nowhere/at/all").is_err());
    }

    /// SEC-secret-in-output
    #[test]
    fn where_a_secret_comes_from_does_not_print_it() {
        let from = SecretFrom { secret_file: None, secret: Some(Secret::new("CANARY")) };
        assert!(!format!("{from:?}").contains("CANARY"));
    }
}
