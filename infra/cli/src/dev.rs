//! `postern dev`: the whole of Postern on this machine, and one event's way through it.
//!
//! Starts the local host as a child, plays the provider at one end and the subscriber at the other, and tells the
//! story of one event stage by stage. Reading order: [`run`], then `build`, `host`, `demo`, `subscriber`, `story`.

mod build;
mod demo;
mod host;
mod story;
mod subscriber;

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use crate::{complaint::Complaint, deployment::Ready};

/// Run everything on this machine, and show one event's way through it
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Stop after the story; the exit code is 1 if any stage failed
    #[arg(long)]
    once: bool,

    /// The first of the ports that are used: the local host takes this one and the next two, the subscriber the third
    /// after it; 0 takes free ones
    #[arg(long, default_value_t = 8700)]
    port: u16,

    /// The environment of samconfig.toml
    #[arg(long, default_value = "dev", value_name = "NAME")]
    config_env: String,

    /// Do not build; run the binaries as they are
    #[arg(long)]
    no_build: bool,
}

/// How long one event may take from end to end before the story is told as it is.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs it. `state` is the local host's folder.
pub async fn run(args: &Args, state: &Path, out: &mut dyn Write) -> Result<ExitCode, Complaint> {
    let started = Instant::now();
    let root = build::project_root()?;
    let binaries = build::binaries(&root, args.no_build)?;
    let state = absolute(&root, state);
    let demo = demo::Files::open(&state)?;

    let subscriber = subscriber::Subscriber::start(&demo, subscriber_port(args.port)).await?;
    let mut host = host::Host::start(&host::Start {
        binaries: &binaries,
        root: &root,
        state: &state,
        config_env: &args.config_env,
        port: args.port,
        extra_root: &demo.certificate_file(),
    })
    .await?;
    let told = tell(&host.ready, &state, demo, subscriber, started, out).await;
    let code = match told {
        Ok(story) if args.once => {
            Ok(if story.is_whole() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Ok(_) => {
            stay(&host.ready, &state, out)?;
            host.until_stopped().await.map(|()| ExitCode::SUCCESS)
        }
        Err(complaint) => Err(complaint),
    };
    host.stop().await;
    code
}

/// Sends one event to the demo's source: its id, and the status of the answer.
pub(crate) async fn send_demo_event(
    ready: &Ready,
    state: &Path,
    source: &str,
) -> Result<(String, u16), Complaint> {
    if source != demo::SOURCE {
        return Err(Complaint::new(
            format!("the secret of {source} is not here"),
            format!("only the demo's source, {}, can be sent to", demo::SOURCE),
            "let its provider send, or use the provider's own tool",
        ));
    }
    let mut files = demo::Files::open(state)?;
    let sent = demo::send_event(ready, &mut files).await?;
    Ok((sent.event, sent.status))
}

async fn tell(
    ready: &Ready,
    state: &Path,
    mut demo: demo::Files,
    mut subscriber: subscriber::Subscriber,
    started: Instant,
    out: &mut dyn Write,
) -> Result<story::Story, Complaint> {
    let earlier = demo::prepare(ready, &mut demo, &mut subscriber).await?;
    write!(out, "{}", story::opening(started.elapsed(), earlier, state))
        .map_err(|error| crate::print::closed(&error))?;
    let sent = demo::send_event(ready, &mut demo).await?;
    let story = story::follow(ready, state, &sent, &mut subscriber, PATIENCE, out).await?;
    write!(out, "{}", story.closing()).map_err(|error| crate::print::closed(&error))?;
    Ok(story)
}

fn stay(ready: &Ready, state: &Path, out: &mut dyn Write) -> Result<(), Complaint> {
    write!(out, "{}", story::things_to_try(ready, state)?)
        .map_err(|error| crate::print::closed(&error))
}

fn subscriber_port(base: u16) -> u16 {
    if base == 0 { 0 } else { base.saturating_add(3) }
}

fn absolute(root: &Path, state: &Path) -> PathBuf {
    if state.is_absolute() { state.to_owned() } else { root.join(state) }
}
