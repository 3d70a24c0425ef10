//! Function processes whose host was killed: ended when their test is over, if no later host of the same state did.

use std::{fs, path::Path};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde::Deserialize;

/// One process as the host wrote it down: its number alone may by now be somebody else's.
#[derive(Deserialize)]
struct Written {
    pid: i32,
    started: u64,
    program: String,
}

/// Ends what the host's list of processes names and still runs.
pub(crate) fn end(state: &Path) {
    let list = fs::read(state.join("processes.json")).unwrap_or_default();
    let list: Vec<Written> = serde_json::from_slice(&list).unwrap_or_default();
    for written in list.iter().filter(|written| runs(written)) {
        // It may have ended since.
        let _ = kill(Pid::from_raw(written.pid), Signal::SIGKILL);
    }
}

fn runs(written: &Written) -> bool {
    let started = fs::read_to_string(format!("/proc/{}/stat", written.pid)).ok().and_then(|stat| {
        // The 20th field after the name in parentheses.
        stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
    });
    let program = fs::read_link(format!("/proc/{}/exe", written.pid)).unwrap_or_default();
    let program = program.to_string_lossy();
    started == Some(written.started) && program.trim_end_matches(" (deleted)") == written.program
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use serde_json::json;

    use super::*;

    #[test]
    fn only_the_process_that_was_written_down_is_ended() {
        let folder = tempfile::tempdir().unwrap();
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
        let started: u64 =
            stat.rsplit_once(')').unwrap().1.split_whitespace().nth(19).unwrap().parse().unwrap();
        let program = fs::read_link(format!("/proc/{}/exe", child.id())).unwrap();
        let listed = |started: u64| {
            let list = json!([{ "pid": child.id(), "started": started, "program": program }]);
            fs::write(folder.path().join("processes.json"), list.to_string()).unwrap();
        };
        listed(started + 1);
        end(folder.path());
        assert!(Path::new(&format!("/proc/{}", child.id())).exists());
        listed(started);
        end(folder.path());
        assert!(!child.wait().unwrap().success());
    }
}
