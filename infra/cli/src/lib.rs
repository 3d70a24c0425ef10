//! The command line of Postern: one module for each subcommand, each with its own `Args` and `run`.
//!
//! What this crate must never do: import a function's package, or open a table. It knows `domain`, `signing` and `fetch`,
//! and talks to the deployed `api` over HTTP like anyone else. Secrets and control characters never reach the terminal.
//!
//! Exit codes: 0 all is well; 1 the answer is no (a request refused, a vector that disagrees); 2 the question could not
//! be answered (a file missing, a secret unreadable), with what, why and what to do next on the error stream.
//!
//! Reading order: [`Cli`], then the module of the subcommand.

pub mod client;
pub mod complaint;
pub mod deliveries;
pub mod deployment;
pub mod dev;
pub mod endpoints;
pub mod events;
pub mod listen;
pub mod objects;
pub mod print;
pub mod replays;
pub mod schemes;
pub mod secret;
pub mod send;
pub mod sources;
pub mod verify;

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use jiff::Timestamp;

use crate::{client::Client, complaint::Complaint, deployment::Deployment};

/// Receives and sends webhooks you can rely on: the tool of its operators and developers
///
/// Commands that ask a deployment mean the local host of this project, or the one on AWS that `--api` or
/// `POSTERN_API` names. Calls to AWS are signed with `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and
/// `AWS_SESSION_TOKEN`. Commands that change something say on the error stream which deployment they act on.
///
/// Exit codes: 0 done; 1 the answer is no; 2 the question could not be answered.
#[derive(Debug, Parser)]
#[command(name = "postern", version, arg_required_else_help = true, verbatim_doc_comment)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Dev(dev::Args),
    Verify(verify::Args),
    Schemes(schemes::Args),
    Send(send::Args),
    /// Inbound feeds of providers: list, show, add, change, pause, rotate secrets, see what was refused
    Sources(On<sources::Sources>),
    /// Where tenants want their events: add, change, rotate secrets, pause, disable, test, delete
    Endpoints(Box<On<endpoints::Endpoints>>),
    /// Events received and events sent: story, replay, publish, redeliver
    Events(On<events::Events>),
    /// What was sent to endpoints: list with what became of it, send again, follow, stop
    Deliveries(On<deliveries::Deliveries>),
    Listen(Box<listen::Listen>),
    /// What is held of providers' things: show, with what speaks against believing it
    Objects(On<objects::Objects>),
    /// Replays of many events: list, show, cancel
    Replays(On<replays::Replays>),
}

/// A command that asks a deployment.
#[derive(Debug, clap::Args)]
struct On<C: Subcommand> {
    #[command(subcommand)]
    command: C,

    /// Answer in JSON
    #[arg(long, global = true)]
    json: bool,

    #[command(flatten)]
    deployment: Deployment,
}

impl<C: Subcommand> On<C> {
    /// A client of the deployment. A command that changes something says first which one that is.
    fn client(
        &self,
        changes: bool,
        now: Timestamp,
        err: &mut dyn Write,
    ) -> Result<Client, Complaint> {
        let target = self.deployment.target(now)?;
        if changes {
            // Who reads no errors has decided so.
            let _ = writeln!(err, "on {}", target.name);
        }
        Ok(target.client)
    }
}

/// Runs one subcommand. `out` takes the answer, `err` what went wrong on the way.
pub fn run(cli: &Cli, now: Timestamp, out: &mut dyn Write, err: &mut dyn Write) -> ExitCode {
    if let Command::Verify(args) = &cli.command {
        let result = verify::run(args, now, out, err);
        // a reader that closed the pipe, such as `head`, has seen enough
        return result.unwrap_or(ExitCode::from(2));
    }
    let done = match &cli.command {
        Command::Schemes(args) => schemes::run(args, out).map(|()| ExitCode::SUCCESS),
        _ => over_http(cli, now, out, err),
    };
    match done {
        Ok(code) => code,
        Err(complaint) => {
            let _ = writeln!(err, "{complaint}");
            if complaint.is_no { ExitCode::FAILURE } else { ExitCode::from(2) }
        }
    }
}

fn over_http(
    cli: &Cli,
    now: Timestamp,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<ExitCode, Complaint> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| {
        Complaint::new("no connection can be made", error.to_string(), "close other programs")
    })?;
    runtime.block_on(async {
        match &cli.command {
            Command::Dev(args) => return dev::run(args, out).await,
            Command::Verify(_) | Command::Schemes(_) => {}
            Command::Send(args) => send::run(args, out, err).await?,
            Command::Sources(on) => {
                let client = on.client(on.command.changes(), now, err)?;
                sources::run(&on.command, &client, on.json, now, out).await?;
            }
            Command::Endpoints(on) => {
                let client = on.client(on.command.changes(), now, err)?;
                endpoints::run(&on.command, &client, on.json, out).await?;
            }
            Command::Events(on) => {
                let client = on.client(on.command.changes(), now, err)?;
                let deployment = on.deployment.flags();
                events::run(&on.command, &client, &deployment, on.json, out).await?;
            }
            Command::Deliveries(on) => {
                let client = on.client(on.command.changes(), now, err)?;
                let deployment = on.deployment.flags();
                deliveries::run(&on.command, &client, &deployment, on.json, out).await?;
            }
            Command::Listen(args) => listen::run(args, now, out, err).await?,
            Command::Replays(on) => {
                let client = on.client(on.command.changes(), now, err)?;
                replays::run(&on.command, &client, on.json, out).await?;
            }
            Command::Objects(on) => {
                let client = on.client(false, now, err)?;
                objects::run(&on.command, &client, on.json, out).await?;
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}
