//! What sending costs, measured on one machine in one run. Four figures, each beside what the product aims at.
//!
//! `cargo bench -p tests --bench send`; with `-- quick`, a small round that shows that it works and says nothing; with
//! `-- rate`, `-- memory` or `-- neighbours`, that one only.
//!
//! * **Rate.** Deliveries per second of one core over connections that are kept, against a bare loop over hyper that posts
//!   the same bytes: the whole deliverer with its log, its metrics and its tables in memory, and beside it the client
//!   alone. What counts is the processor's time of the sending thread, in turns with the loop, so that a busy machine
//!   slows both.
//! * **Memory.** What a process holds more at its peak, with a thousand deliveries under way, than before; a thousandth of it.
//! * **Neighbours.** From the publishing of a delivery to its arrival at each of a hundred healthy endpoints, the slowest
//!   hundredth; with and without one endpoint beside them that takes connections and never answers.
//! * **Connections.** How many a drain opens; a guard against measuring something else.
//!
//! The sender is a process of its own, this program again: its log goes where a function's goes, and its memory is nobody
//! else's. Aims are printed and fail nothing. What does fail is a delivery that does not arrive, or a connection that is
//! not kept.

#![expect(
    clippy::print_stdout,
    clippy::panic,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    reason = "a benchmark prints, and may fail where it stands"
)]

#[path = "send/neighbours.rs"]
mod neighbours;
#[path = "send/raw.rs"]
mod raw;
#[path = "send/receiver.rs"]
mod receiver;
#[path = "send/sandbox.rs"]
mod sandbox;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use neighbours::{Arrivals, Spread};
use receiver::{Manner, Receiver};
use sandbox::{Held, Rates};
use serde::{Serialize, de::DeserializeOwned};
use tests::certificate::Certificate;

/// Which part of the bare loop's deliveries the deliverer makes.
const PART: f64 = 0.6;

/// Memory of one delivery under way, in KiB.
const KIB: f64 = 40.0;

/// How much slower the slowest hundredth may be beside a dead endpoint.
const SLOWER: f64 = 1.1;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// Turns of the loop and of the deliverer.
    turns: usize,
    /// Deliveries in each.
    deliveries: usize,
    /// Deliveries under way at once.
    under_way: usize,
    /// Deliveries to each of the neighbours.
    each: usize,
}

const FULL: Size = Size { turns: 9, deliveries: 4_000, under_way: 1_000, each: 40 };
const QUICK: Size = Size { turns: 2, deliveries: 200, under_way: 100, each: 3 };

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let size = if arguments.iter().any(|word| word == "quick") { QUICK } else { FULL };
    if let [word, what, folder, port, dead, ..] = arguments.as_slice()
        && word == "sandbox"
    {
        let ports = [port, dead].map(|port| port.parse().unwrap());
        return sandbox(what, Path::new(folder), ports, size);
    }
    let folder = tempfile::tempdir().unwrap();
    let certificate = Certificate::make(folder.path()).unwrap();
    let run =
        Run { folder: folder.path().to_owned(), certificate, quick: size.turns == QUICK.turns };
    let named = |what: &str| arguments.iter().any(|word| word == what);
    let all = !["rate", "memory", "neighbours"].into_iter().any(named);
    if all || named("rate") {
        run.rate(size);
    }
    if all || named("memory") {
        run.memory(size);
    }
    if all || named("neighbours") {
        run.neighbours();
    }
}

/// What a process of the sender does. Its result goes into a file, because its log goes everywhere else.
fn sandbox(what: &str, folder: &Path, [port, dead]: [u16; 2], size: Size) {
    match what {
        "rate" => tell(folder, &sandbox::rates(folder, port, size)),
        "memory" => tell(folder, &sandbox::held(folder, port, size.under_way)),
        "alone" => tell(folder, &neighbours::run(folder, port, None, size.each)),
        "beside" => tell(folder, &neighbours::run(folder, port, Some(dead), size.each)),
        _ => panic!("{what} is nothing that is measured"),
    }
}

fn tell(folder: &Path, result: &impl Serialize) {
    fs::write(folder.join("result"), serde_json::to_vec(result).unwrap()).unwrap();
}

/// One run of this program.
struct Run {
    folder: PathBuf,
    certificate: Certificate,
    quick: bool,
}

impl Run {
    /// Measures in a process of its own.
    fn measure<T: DeserializeOwned>(&self, what: &str, [port, dead]: [u16; 2]) -> T {
        let run = Command::new(env::current_exe().unwrap())
            .args(["sandbox", what, self.folder.to_str().unwrap()])
            .args([port.to_string(), dead.to_string()])
            .args(self.quick.then_some("quick"))
            .stdout(Stdio::null())
            .output()
            .unwrap();
        let log = String::from_utf8_lossy(&run.stderr);
        let last: Vec<&str> = log.lines().rev().take(5).collect();
        assert!(run.status.success(), "{what}: {last:?}");
        serde_json::from_slice(&fs::read(self.folder.join("result")).unwrap()).unwrap()
    }

    fn receiver(&self, manner: Manner) -> Receiver {
        Receiver::start(self.certificate.server(), manner)
    }

    fn rate(&self, size: Size) {
        let receiver = self.receiver(Manner::AtOnce);
        let Rates { raw, client, deliverer, connections } =
            self.measure("rate", [receiver.port, 0]);
        println!(
            "deliveries per second of a core, {} at once, {} at a time",
            sandbox::WIDTH,
            size.deliveries
        );
        println!("  a loop over hyper {raw:8.0}");
        println!("  the client alone  {client:8.0}  {:.2} of it", client / raw);
        println!("  the deliverer     {deliverer:8.0}  {:.2} of it (aim: {PART})", deliverer / raw);
        let expected = size.turns * size.deliveries * 3;
        assert_eq!(receiver.requests(), expected + sandbox::WARM, "arrived");
        // A client may open one more than it needs when a connection becomes free while it dials.
        let most = size.turns * sandbox::WIDTH * 2 + 1;
        assert!(connections <= most as u64, "{connections} connections, not {most}");
    }

    fn memory(&self, size: Size) {
        let receiver = self.receiver(Manner::WhenAllAreHere(size.under_way));
        let Held { before_kib, peak_kib } = self.measure("memory", [receiver.port, 0]);
        let each = (peak_kib - before_kib) as f64 / size.under_way as f64;
        println!(
            "{} under way: {before_kib} KiB before, {peak_kib} KiB at the peak",
            size.under_way
        );
        println!("  each              {each:8.1} KiB (aim: {KIB})");
        assert_eq!(receiver.most_at_once(), size.under_way, "under way at once");
    }

    fn neighbours(&self) {
        let arrivals = Arrivals::default();
        let healthy = neighbours::writing(&arrivals);
        let healthy = Receiver::telling(self.certificate.server(), Manner::AtOnce, healthy);
        let dead = self.receiver(Manner::Never);
        let spread = |what| {
            let published = self.measure(what, [healthy.port, dead.port]);
            neighbours::spread(&published, &arrivals)
        };
        let [before, beside, after] = ["alone", "beside", "alone"].map(spread);
        println!("from publishing to arrival, 100 endpoints, ms");
        for (name, Spread { median, slowest }) in
            [("alone", before), ("beside a dead one", beside), ("alone again", after)]
        {
            println!("  {name:17} {median:8.2}  {slowest:8.2} the slowest hundredth");
        }
        let slower = beside.slowest / f64::midpoint(before.slowest, after.slowest);
        println!("  slower            {slower:8.2} x (aim: {SLOWER})");
        assert!(dead.requests() > 0, "nothing was sent to the dead one");
    }
}
