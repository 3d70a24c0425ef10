//! The command line of Postern: one module for each subcommand, each with its own `Args` and `run`.
//!
//! What this crate must never do: import a function's package, or open a table. It knows `signing`, and talks to the
//! deployed `api` over HTTP like anyone else. Secrets and control characters never reach the terminal.
//!
//! Exit codes: 0 all is well; 1 the answer is no (a request refused, a vector that disagrees); 2 the question could not
//! be answered (a file missing, a secret unreadable), with what, why and what to do next on the error stream.
//!
//! Reading order: [`Cli`], then the module of the subcommand.

pub mod complaint;
pub mod verify;

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use jiff::Timestamp;

/// Receives and sends webhooks you can rely on. This is the tool of its operators and developers.
#[derive(Debug, Parser)]
#[command(name = "postern", version, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Verify(verify::Args),
}

/// Runs one subcommand. `out` takes the answer, `err` what went wrong on the way.
pub fn run(cli: Cli, now: Timestamp, out: &mut dyn Write, err: &mut dyn Write) -> ExitCode {
    let result = match cli.command {
        Command::Verify(args) => verify::run(&args, now, out, err),
    };
    // a reader that closed the pipe, such as `head`, has seen enough
    result.unwrap_or(ExitCode::from(2))
}
