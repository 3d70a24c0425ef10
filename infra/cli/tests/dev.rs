//! `postern dev` for real: the local host, the functions, one event's way through them, and everything that can be in
//! the way of that.
#![expect(clippy::unwrap_used, clippy::panic, reason = "test code")]

mod support;

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command},
    sync::OnceLock,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use support::{Ended, command, run};
use tempfile::TempDir;

const FUNCTIONS: [&str; 6] = ["ingress", "worker", "relay", "deliverer", "sweeper", "api"];

/// The folder with the binaries. What is missing there is built, once.
fn binaries() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_BIN_EXE_postern")).parent().unwrap().to_owned();
        let is_there =
            || FUNCTIONS.iter().chain(&["postern-local"]).all(|name| folder.join(name).is_file());
        if !is_there() {
            let mut cargo = Command::new(env!("CARGO"));
            // What cargo says of this package would make build scripts of others run again.
            for (name, _) in std::env::vars_os() {
                if name.to_str().is_some_and(|name| {
                    name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST")
                }) {
                    cargo.env_remove(name);
                }
            }
            let built = cargo.args(["build", "--bins"]).current_dir(root()).status();
            assert!(built.is_ok_and(|status| status.success()), "run `cargo build --bins`");
        }
        assert!(is_there(), "run `cargo build --bins`: this test starts what it builds");
        folder
    })
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A state folder, and the programs that use it.
struct Machine {
    programs: PathBuf,
    folder: TempDir,
}

impl Machine {
    fn new() -> Self {
        Self { programs: binaries().to_owned(), folder: tempfile::tempdir().unwrap() }
    }

    /// One with programs of its own: those of the build but for some, which are absent or another program.
    fn with_programs(but: &[(&str, Option<&str>)]) -> Self {
        // Beside the build, so that programs are linked and not copied.
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let programs = folder.path().join("programs");
        fs::create_dir(&programs).unwrap();
        for name in FUNCTIONS.iter().chain(&["postern-local", "postern"]) {
            let to = programs.join(name);
            match but.iter().find(|(other, _)| other == name) {
                None => fs::hard_link(binaries().join(name), to).unwrap(),
                Some((_, Some(program))) => drop(fs::copy(program, to).unwrap()),
                Some((_, None)) => {}
            }
        }
        Self { programs, folder }
    }

    fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = command(&self.programs.join("postern"));
        command.current_dir(root()).args(args).arg("--state").arg(self.state());
        command
    }

    fn dev(&self, args: &[&str]) -> Command {
        self.command(&[&["dev", "--no-build", "--port", "0"], args].concat())
    }

    fn once(&self) -> Ended {
        run(self.dev(&["--once"]), "")
    }

    fn postern(&self, args: &[&str]) -> Ended {
        run(self.command(args), "")
    }

    /// A visit: everything runs until it is stopped.
    fn visit(&self) -> Visit {
        let mut child = self.dev(&[]).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Visit { child, out }
    }
}

struct Visit {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Visit {
    /// Reads on until a line that contains this.
    fn until(&mut self, what: &str) -> String {
        let mut read = String::new();
        loop {
            let mut line = String::new();
            if self.out.read_line(&mut line).unwrap() == 0 {
                let mut err = String::new();
                self.child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
                panic!("no {what:?} in\n{read}\n{err}");
            }
            read.push_str(&line);
            if line.contains(what) {
                return read;
            }
        }
    }

    /// Sends a signal, and waits for the end.
    fn stop(mut self, signal: Signal) -> Ended {
        kill(Pid::from_raw(self.child.id().try_into().unwrap()), signal).unwrap();
        self.ended()
    }

    fn ended(&mut self) -> Ended {
        let (mut out, mut err) = (String::new(), String::new());
        self.out.read_to_string(&mut out).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        let code = self.child.wait().unwrap().code().unwrap_or(-1);
        Ended { code, out, err }
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        // The local host ends when its parent does.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Without what differs from run to run: times, ids, folders.
fn normal(text: &str, state: &Path) -> String {
    let text = text.replace(state.to_str().unwrap(), "STATE");
    let line = |line: &str| {
        let words: Vec<_> = line.split(' ').collect();
        let word = |(at, word): (usize, &&str)| {
            let bare = word.trim_end_matches([',', '`']);
            if bare.starts_with("evt_") {
                word.replace(bare, "EVENT")
            } else if words.get(at + 1) == Some(&"ms") {
                "0".to_owned()
            } else if bare.contains('.') && bare.trim_start_matches('+').parse::<f64>().is_ok() {
                "0.000".to_owned()
            } else {
                (*word).to_owned()
            }
        };
        words.iter().enumerate().map(word).collect::<Vec<_>>().join(" ") + "\n"
    };
    text.lines().map(line).collect()
}

#[test]
fn an_event_goes_in_signed_and_comes_out_signed_and_is_there_at_the_next_start() {
    let machine = Machine::new();
    let first = machine.once();
    assert_eq!((first.code, first.err.as_str()), (0, ""), "{}", first.out);
    insta::assert_snapshot!(normal(&first.out, &machine.state()), @r"
    Postern runs on this machine after 0.000 s.

    Stripe event EVENT on its way:

      + 0.000 s  accepted   signed as Stripe signs; answered 200 after 0 ms
      + 0.000 s  enqueued   the worker was told by a message with its name
      + 0.000 s  planned    the handler said what should change
      + 0.000 s  committed  processed; effect and outgoing event in one transaction
      + 0.000 s  relayed    one delivery for each endpoint that wants it
      + 0.000 s  delivered  attempt 1 answered after 0 ms
      + 0.000 s  verified   the subscriber checked webhook-signature

    The event went in signed, and came out signed.
    ");

    let began = Instant::now();
    let second = machine.once();
    assert_eq!((second.code, second.err.as_str()), (0, ""), "{}", second.out);
    insta::assert_snapshot!(normal(&second.out, &machine.state()), @r"
    Postern runs on this machine after 0.000 s.
    The last event of an earlier start, EVENT, is processed in STATE.

    Stripe event EVENT on its way:

      + 0.000 s  accepted   signed as Stripe signs; answered 200 after 0 ms
      + 0.000 s  enqueued   the worker was told by a message with its name
      + 0.000 s  planned    the handler said what should change
      + 0.000 s  committed  processed; effect and outgoing event in one transaction
      + 0.000 s  relayed    one delivery for each endpoint that wants it
      + 0.000 s  delivered  attempt 1 answered after 0 ms
      + 0.000 s  verified   the subscriber checked webhook-signature

    The event went in signed, and came out signed.
    ");
    // A whole run, on a machine that may be busy; a second is what it takes on one that is not.
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    // The same event, and the same endpoint: the second start made nothing anew.
    let event = first_event(&first.out);
    assert!(second.out.contains(&format!("{event}, is processed")), "{}", second.out);
}

/// The first id in a text.
fn first_event(out: &str) -> String {
    let Some((_, id)) = out.split_once("evt_") else { panic!("no event in {out}") };
    format!("evt_{}", id.chars().take(32).collect::<String>())
}

#[test]
fn a_visitor_can_try_what_is_offered_and_ctrl_c_ends_it() {
    let machine = Machine::new();
    let mut visit = machine.visit();
    let words = visit.until("Ctrl-C stops everything");
    let state = machine.state();
    for offered in ["events publish --state", "send --state", "events story --state"] {
        assert!(words.contains(&format!("{offered} {}", state.display())), "{words}");
    }

    let args = ["events", "publish", "demo", "order.sent", "--aggregate", "o_1", "{\"id\": 1}"];
    let published = machine.postern(&args);
    assert_eq!(published.code, 0, "{}", published.err);
    let id = first_event(&published.out);
    visit.until(&format!("the subscriber got {id}, and its signature is good"));

    let sent = machine.postern(&["send", "--kill", "worker"]);
    assert_eq!(sent.code, 0, "{}", sent.err);
    assert!(sent.out.contains("was answered 200."), "{}", sent.out);
    visit.until("and its signature is good");
    // The subscriber has it a moment before the table says so.
    let began = Instant::now();
    loop {
        let event = first_event(&sent.out);
        let story = machine.postern(&["events", "story", "stripe-demo", &event]).out;
        if story.contains("attempt 1 was answered 200") {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{story}");
    }

    let endpoints = machine.postern(&["endpoints", "list", "demo", "--json"]);
    let endpoints: Value = serde_json::from_str(&endpoints.out).unwrap();
    assert_eq!(endpoints["endpoints"].as_array().map(Vec::len), Some(1), "{endpoints}");
    let other = machine.postern(&["send", "other"]);
    assert!(
        other.code == 2 && other.err.contains("the secret of other is not here"),
        "{}",
        other.err
    );

    // A second one on the same folder hears who is there.
    let second = machine.once();
    assert_eq!(second.code, 2, "{}", second.out);
    assert!(second.err.contains("is in use by another local host"), "{}", second.err);

    let ended = visit.stop(Signal::SIGINT);
    assert_eq!((ended.code, ended.err.as_str()), (0, ""));
    let gone = machine.postern(&["events", "parked"]);
    assert_eq!(gone.code, 2);
    assert!(gone.err.contains("no local host runs on"), "{}", gone.err);
    // The host ended in order: nobody is left, and the folder is free.
    assert_eq!(fs::read_to_string(state.join("processes.json")).unwrap().trim(), "[]");
}

#[test]
fn a_stage_that_fails_fails_the_run() {
    let machine = Machine::with_programs(&[("ingress", Some("/bin/false"))]);
    let ended = machine.once();
    assert_eq!(ended.code, 1, "{}\n{}", ended.out, ended.err);
    assert!(ended.out.contains("! +"), "{}", ended.out);
    assert!(ended.out.contains("accepted   answered 50"), "{}", ended.out);
}

#[test]
fn a_story_that_hangs_can_be_broken_off() {
    let machine = Machine::with_programs(&[("worker", Some("/bin/false"))]);
    let mut visit = machine.visit();
    visit.until("enqueued");
    let ended = visit.stop(Signal::SIGTERM);
    assert_eq!(ended.code, 130, "{}\n{}", ended.out, ended.err);
    assert_eq!(fs::read_to_string(machine.state().join("processes.json")).unwrap().trim(), "[]");
}

#[test]
fn a_local_host_that_dies_is_told() {
    let machine = Machine::new();
    let mut visit = machine.visit();
    visit.until("Ctrl-C stops everything");
    let host = fs::read_to_string(machine.state().join("lock")).unwrap();
    kill(Pid::from_raw(host.trim().parse().unwrap()), Signal::SIGKILL).unwrap();
    let ended = visit.ended();
    assert_eq!(ended.code, 2, "{}", ended.err);
    assert!(ended.err.contains("the local host ended"), "{}", ended.err);
    assert!(ended.err.contains("signal: 9"), "{}", ended.err);
}

#[track_caller]
fn complains(ended: &Ended, says: &[&str]) {
    assert_eq!(ended.code, 2, "{}\n{}", ended.out, ended.err);
    for text in says.iter().chain(&["\n  why:  ", "\n  next: "]) {
        assert!(ended.err.contains(text), "no {text:?} in {}", ended.err);
    }
}

#[test]
fn outside_the_project_it_says_where_to_go() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = command(&binaries().join("postern"));
    command.current_dir(folder.path()).args(["dev", "--once"]);
    complains(
        &run(command, ""),
        &["there is no template.yaml in", "change into the project's folder"],
    );
}

#[test]
fn programs_that_are_missing_are_named_with_how_to_build_them() {
    let machine = Machine::with_programs(&[("postern-local", None)]);
    complains(&machine.once(), &["the local host cannot be started", "cargo build --bins"]);
    let machine = Machine::with_programs(&[("relay", None), ("api", None)]);
    let ended = machine.once();
    complains(&ended, &["the local host did not start", "cargo build --bins"]);
    assert!(ended.err.contains("no program for") && ended.err.contains("relay"), "{}", ended.err);
}

/// The first of so many free ports in a row, below those that the system gives to others.
fn free_ports(count: u16) -> u16 {
    let first = 20_000 + u16::try_from(std::process::id() % 400).unwrap() * 20;
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    (first..32_000).step_by(20).find(|from| (*from..from + count).all(is_free)).unwrap()
}

/// The ports that nobody chose are those of a newcomer: the host's and the subscriber's do not meet.
#[test]
fn the_story_is_told_on_ports_in_a_row_too() {
    let machine = Machine::new();
    let base = free_ports(10).to_string();
    let ended = run(machine.command(&["dev", "--once", "--no-build", "--port", &base]), "");
    assert_eq!((ended.code, ended.err.as_str()), (0, ""), "{}", ended.out);
}

#[test]
fn ports_that_are_taken_are_named() {
    // The middle one is taken, as the first or as the last.
    let port = free_ports(19) + 9;
    let taken = TcpListener::bind(("127.0.0.1", port)).unwrap();
    let machine = Machine::new();
    let dev = |base: u16| {
        let base = base.to_string();
        run(machine.command(&["dev", "--once", "--no-build", "--port", &base]), "")
    };
    let ended = dev(port);
    complains(&ended, &["the local host did not start"]);
    assert!(ended.err.contains(&format!("cannot listen on port {port}")), "{}", ended.err);
    let subscriber = format!("the demo's subscriber cannot listen on port {port}");
    complains(&dev(port - 9), &[&subscriber, "choose other ports with --port"]);
    drop(taken);
}

#[test]
fn a_state_folder_that_cannot_be_used_is_named() {
    let machine = Machine::new();
    fs::write(machine.state(), "").unwrap();
    complains(&machine.once(), &["the demo's files cannot be used", "remove the folder"]);
    fs::remove_file(machine.state()).unwrap();
    fs::create_dir_all(machine.state().join("demo")).unwrap();
    fs::write(machine.state().join("demo/demo.json"), "{").unwrap();
    complains(
        &machine.once(),
        &["demo.json is not what an earlier start wrote", "remove the folder"],
    );
}

/// Each file by itself is good; together they are not.
#[test]
fn a_demo_that_forgot_its_secret_says_what_to_do() {
    let machine = Machine::new();
    assert_eq!(machine.once().code, 0);
    fs::remove_file(machine.state().join("demo/demo.json")).unwrap();
    complains(
        &machine.once(),
        &["does not know the demo's provider", "remove the whole state folder"],
    );
}

/// A start that died after it remembered the event and before it sent it.
#[test]
fn an_event_that_was_never_sent_does_not_stop_the_next_start() {
    let machine = Machine::new();
    assert_eq!(machine.once().code, 0);
    let file = machine.state().join("demo/demo.json");
    let mut memory: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    memory["last_event"] = "evt_nowhere".into();
    fs::write(&file, memory.to_string()).unwrap();
    let ended = machine.once();
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert!(ended.out.contains("evt_nowhere, is not here: it was never accepted"), "{}", ended.out);
}

/// The port of the last start may be taken by now: the subscriber moves, with an endpoint of its own.
#[test]
fn a_subscriber_that_has_to_move_gets_another_endpoint() {
    let machine = Machine::new();
    assert_eq!(machine.once().code, 0);
    let file = machine.state().join("demo/demo.json");
    let memory: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let port: u16 = memory["port"].as_u64().unwrap().try_into().unwrap();
    let _taken = TcpListener::bind(("127.0.0.1", port)).unwrap();
    let ended = machine.once();
    assert_eq!(ended.code, 0, "{}\n{}", ended.out, ended.err);
    let after: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_ne!(after["endpoint"]["id"], memory["endpoint"]["id"]);
}
