//! `postern`: reads the command line and the clock, and leaves the rest to the library.

use std::process::ExitCode;

use clap::Parser;
use postern::Cli;

fn main() -> ExitCode {
    let cli = Cli::parse();
    #[expect(clippy::disallowed_methods, reason = "the edge reads the clock")]
    let now = jiff::Timestamp::now();
    postern::run(&cli, now, &mut std::io::stdout(), &mut std::io::stderr())
}
