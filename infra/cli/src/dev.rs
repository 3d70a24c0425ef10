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
    future::Future,
    io::Write,
    path::Path,
    process::ExitCode,
    time::{Duration, Instant},
};

use tokio::signal::unix::{SignalKind, signal};

use crate::{
    complaint::Complaint,
    deployment::{Local, Ready, project_root},
    print::closed,
};

/// Run everything on this machine, and show one event's way through it
///
/// Builds what is not up to date, starts the local host with the functions of template.yaml, plays a provider that
/// sends one signed event, and a subscriber that gets it. Everything is kept in the state folder for the next start.
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Stop after the story; the exit code is 1 if any stage failed or is missing
    #[arg(long)]
    once: bool,

    /// The first of the ports that are used: AWS and the HTTP APIs of the local host, and, nine behind it, the subscriber; 0 takes free ones
    #[arg(long, default_value_t = 8700)]
    port: u16,

    /// The environment of samconfig.toml
    #[arg(long, default_value = "dev", value_name = "NAME")]
    config_env: String,

    /// Do not build; run the programs as they are
    #[arg(long)]
    no_build: bool,

    #[command(flatten)]
    local: Local,
}

/// How long one event may take from end to end before the story is told as it is.
const PATIENCE: Duration = Duration::from_secs(30);

/// The exit code of a program that Ctrl-C has ended, as shells have it.
const INTERRUPTED: u8 = 130;

/// Runs it.
pub async fn run(args: &Args, out: &mut dyn Write) -> Result<ExitCode, Complaint> {
    let started = Instant::now();
    let root = project_root()?;
    let state = args.local.state_folder()?;
    let binaries = build::binaries(&root, args.no_build)?;
    let mut stopped = std::pin::pin!(stopped()?);

    let mut demo = demo::Files::open(&state)?;
    let mut subscriber = subscriber::Subscriber::start(&demo, args.port).await?;
    let mut host = host::Host::start(&host::Start {
        binaries: &binaries,
        root: &root,
        state: &state,
        config_env: &args.config_env,
        port: args.port,
        extra_root: &demo.certificate_file(),
    })?;
    // Whatever happens from here on, the host is let end by itself: it has processes and files to leave in order.
    let mut is_told = false;
    let ended = tokio::select! {
        ended = async {
            let ready = host.ready().await?;
            let story = tell(&ready, &state, &mut demo, &mut subscriber, started, out).await?;
            is_told = true;
            if args.once {
                return Ok(if story.is_whole() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
            }
            let folder = args.local.state.as_deref();
            let words = story::things_to_try(&ready, folder, story.event())?;
            write!(out, "{words}").map_err(|error| closed(&error))?;
            Err(stay(&mut host, &mut subscriber, out).await)
        } => Some(ended),
        () = &mut stopped => None,
    };
    host.stop().await;
    // Ctrl-C is how a visit ends; before the story was told, it is how a start is broken off.
    let broken_off = || if is_told { ExitCode::SUCCESS } else { ExitCode::from(INTERRUPTED) };
    ended.unwrap_or_else(|| Ok(broken_off()))
}

/// Ctrl-C, or a request to end.
fn stopped() -> Result<impl Future<Output = ()>, Complaint> {
    let listen = |kind| {
        signal(kind).map_err(|error| {
            Complaint::new(
                "signals cannot be listened for",
                error.to_string(),
                "close other programs",
            )
        })
    };
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut terminate = listen(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

/// Shows what reaches the subscriber, until the local host ends, which it should not.
async fn stay(
    host: &mut host::Host,
    subscriber: &mut subscriber::Subscriber,
    out: &mut dyn Write,
) -> Complaint {
    loop {
        tokio::select! {
            ended = host.ended() => return ended,
            Some(seen) = subscriber.next() => {
                if let Err(error) = write!(out, "{}", story::arrival(&seen)).and_then(|()| out.flush()) {
                    return closed(&error);
                }
            }
        }
    }
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
    demo: &mut demo::Files,
    subscriber: &mut subscriber::Subscriber,
    started: Instant,
    out: &mut dyn Write,
) -> Result<story::Story, Complaint> {
    let earlier = demo::prepare(ready, demo, subscriber).await?;
    let opening = story::opening(started.elapsed(), earlier, state);
    write!(out, "{opening}").and_then(|()| out.flush()).map_err(|error| closed(&error))?;
    let sent = demo::send_event(ready, demo).await?;
    writeln!(out, "Stripe event {} on its way:\n", sent.event).map_err(|error| closed(&error))?;
    let way = story::Way { ready, state, endpoint: demo.endpoint_id(), patience: PATIENCE };
    let story = way.follow(&sent, subscriber, out).await?;
    write!(out, "{}", story.closing()).map_err(|error| closed(&error))?;
    Ok(story)
}
