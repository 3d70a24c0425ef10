//! The list of processes that the host started, so that the next host can end what a `kill -9` left behind.
//!
//! A process is ended only when number, start time and program all are as written: a number alone may by now
//! belong to somebody else.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde::{Deserialize, Serialize};

/// One process, told apart from any other that ever had its number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The process number.
    pub pid: u32,
    /// When it started, in clock ticks since the machine did.
    pub started: u64,
    /// The program it runs.
    pub program: PathBuf,
}

impl Identity {
    /// Who has this number now. `None` where nobody does, or where there is no `/proc`.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name in parentheses may itself hold blanks and parentheses; the start time is the 20th field after it.
        let started = stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()?;
        let program = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
        // A program that was built again since shows as deleted.
        let program = program
            .to_str()
            .and_then(|text| text.strip_suffix(" (deleted)"))
            .map_or(program.clone(), PathBuf::from);
        Some(Self { pid, started, program })
    }
}

/// The file that lists the processes alive.
#[derive(Debug)]
pub struct Processes {
    path: PathBuf,
    alive: Mutex<BTreeMap<u32, Identity>>,
}

impl Processes {
    /// Ends what the last host left behind and starts an empty list. Gives the processes that it ended.
    ///
    /// # Errors
    /// When the list cannot be read or written.
    pub fn take_over(path: &Path) -> io::Result<(Self, Vec<Identity>)> {
        let left: Vec<Identity> = match fs::read(path) {
            Ok(text) => serde_json::from_slice(&text).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        let ended = left.into_iter().filter(end).collect();
        let processes = Self { path: path.to_owned(), alive: Mutex::default() };
        processes.write(&BTreeMap::new())?;
        Ok((processes, ended))
    }

    pub(crate) fn started(&self, pid: u32) {
        if let Some(identity) = Identity::of(pid) {
            self.change(|alive| alive.insert(pid, identity));
        }
    }

    pub(crate) fn ended(&self, pid: u32) {
        self.change(|alive| alive.remove(&pid));
    }

    fn change<T>(&self, change: impl FnOnce(&mut BTreeMap<u32, Identity>) -> T) {
        let mut alive = self.alive.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut alive);
        if let Err(error) = self.write(&alive) {
            tracing::warn!(path = %self.path.display(), %error, "cannot write the list of processes; a kill -9 of the host may leave some behind");
        }
    }

    fn write(&self, alive: &BTreeMap<u32, Identity>) -> io::Result<()> {
        let fresh = self.path.with_extension("json.new");
        fs::write(&fresh, serde_json::to_vec(&alive.values().collect::<Vec<_>>())?)?;
        fs::rename(fresh, &self.path)
    }
}

fn end(left: &Identity) -> bool {
    let same = Identity::of(left.pid).as_ref() == Some(left);
    same && i32::try_from(left.pid)
        .is_ok_and(|pid| kill(Pid::from_raw(pid), Signal::SIGKILL).is_ok())
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    fn sleeper() -> Child {
        Command::new("sleep").arg("60").spawn().unwrap()
    }

    fn listed(path: &Path, identities: &[Identity]) {
        fs::write(path, serde_json::to_vec(identities).unwrap()).unwrap();
    }

    #[test]
    fn a_process_that_the_last_host_left_is_ended() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("processes.json");
        let mut child = sleeper();
        listed(&path, &[Identity::of(child.id()).unwrap()]);
        let (_, ended) = Processes::take_over(&path).unwrap();
        assert_eq!(ended.len(), 1);
        assert!(!child.wait().unwrap().success());
    }

    #[test]
    fn a_stranger_who_got_the_number_since_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("processes.json");
        let mut child = sleeper();
        let who = Identity::of(child.id()).unwrap();
        listed(
            &path,
            &[
                Identity { started: who.started + 1, ..who.clone() },
                Identity { program: PathBuf::from("/bin/other"), ..who },
            ],
        );
        let (_, ended) = Processes::take_over(&path).unwrap();
        assert!(ended.is_empty());
        assert!(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_list_that_was_cut_short_does_not_stop_the_host() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("processes.json");
        fs::write(&path, "[{\"pid\":").unwrap();
        assert!(Processes::take_over(&path).unwrap().1.is_empty());
    }
}
