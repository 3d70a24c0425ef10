//! The host: reads the template, starts everything that it names, and ends it again.
//!
//! Reading order: [`run`], `Host::start`; then [`folder`], [`environment`], [`control`] and `assembly`.

use std::{
    collections::BTreeMap,
    future::Future,
    io::{self, Write as _},
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    sync::watch,
    task::JoinSet,
    time::{interval, timeout},
};

use crate::{
    compute::{
        leftovers::Processes, pool::Pool, runtime_api::Runtime, source::checkpoint::Unreadable,
        source::filter, token::Token,
    },
    options::Options,
    services::{self, OpenError, Services},
    template::{self, TemplateProblems},
    wiring::Wiring,
};
use environment::Surroundings;
use folder::{Folder, FolderError};

mod assembly;
pub mod control;
pub mod environment;
pub mod folder;
pub mod stop;

/// Running invocations have so long to finish when the host ends.
const GRACE: Duration = Duration::from_secs(3);

/// A process without work is ended after this time.
const IDLE: Duration = Duration::from_secs(300);

/// How often idle processes and expired items are looked for.
const HOUSEKEEPING: Duration = Duration::from_secs(30);

/// Why the host cannot run. Each says what to do next.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The template is missing, wrong, or asks for something that the host does not honour.
    #[error("the template cannot run on this machine:\n{0}")]
    Template(TemplateProblems),
    /// Programs of functions are missing.
    #[error("no program for {} in {folder}; build them with `cargo build --bins`, or say where they are with --bin-dir", missing.join(", "), folder = folder.display())]
    Programs {
        /// The names of those missing.
        missing: Vec<String>,
        /// Where they were looked for.
        folder: PathBuf,
    },
    /// The state folder.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// A port is taken.
    #[error(
        "cannot listen on port {port} of the loopback address; stop what uses it, or choose another with --port (0: any free one)"
    )]
    Port {
        /// The port.
        port: u16,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The services cannot read what the state folder holds.
    #[error("the AWS services cannot start from the state folder {folder}; if it is damaged, move it away: the next start makes a new one", folder = folder.display())]
    Services {
        /// The folder.
        folder: PathBuf,
        /// Why.
        #[source]
        source: OpenError,
    },
    /// A place in a stream cannot be read.
    #[error(transparent)]
    Checkpoint(#[from] Unreadable),
    /// A filter pattern of a function.
    #[error("{function} cannot run on this machine")]
    Filter {
        /// The function.
        function: String,
        /// What is not known.
        #[source]
        source: filter::Unknown,
    },
    /// A log cannot be opened.
    #[error("cannot open the log of {function} below the state folder")]
    Log {
        /// The function.
        function: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A list or a line that cannot be read or written.
    #[error("{what}")]
    Io {
        /// What failed.
        what: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl HostError {
    /// The host has no threads to run on, or cannot be told to stop.
    #[must_use]
    pub fn runtime(source: io::Error) -> Self {
        Self::Io { what: "cannot start the threads of the host, or listen for signals", source }
    }
}

/// Runs the host until `stop` is ready. `local` are the variables that every function gets.
///
/// # Errors
/// [`HostError`] when it cannot start.
pub async fn run(
    options: &Options,
    local: BTreeMap<String, String>,
    stop: impl Future<Output = ()>,
) -> Result<(), HostError> {
    let host = Host::start(options, local).await?;
    let line =
        |ready: &Value| writeln!(io::stdout(), "{ready}").and_then(|()| io::stdout().flush());
    line(&host.ready)
        .map_err(|source| HostError::Io { what: "cannot write the ready line", source })?;
    stop.await;
    tracing::info!("stopping");
    host.stop().await;
    Ok(())
}

/// A running host.
struct Host {
    ready: Value,
    pools: Vec<Pool>,
    stop: watch::Sender<bool>,
    sources: JoinSet<()>,
    /// Servers and housekeeping; they end with this value.
    _background: JoinSet<()>,
    _folder: Folder,
}

impl Host {
    async fn start(options: &Options, local: BTreeMap<String, String>) -> Result<Self, HostError> {
        let mut wiring = read_template(options)?;
        let programs = programs(&wiring, &options.bin_dir)?;
        let folder = Folder::open(&options.state)?;
        let (processes, left) =
            Processes::take_over(&folder.processes()).map_err(|source| HostError::Io {
                what: "cannot read or write processes.json in the state folder",
                source,
            })?;
        for process in left {
            tracing::warn!(pid = process.pid, program = %process.program.display(), "ended a process that an earlier host left behind");
        }
        let token = folder.token()?;
        let listeners = Listeners::bind(&wiring, options.port).await?;
        template::locate(&mut wiring, &listeners.api_urls());

        let settings = services::Options {
            in_memory: options.in_memory,
            ..services::Options::new(folder.path())
        };
        let services = Services::open(&wiring, settings)
            .await
            .map_err(|source| HostError::Services { folder: folder.path().to_owned(), source })?;

        let runtime = Runtime::new(listeners.runtime_address, Some(processes));
        let around =
            Surroundings { aws: listeners.aws_url(), region: wiring.region.clone(), local };
        let pools = assembly::pools(&wiring, &programs, &around, &folder, &runtime)?;
        let ready = ready_line(&listeners, &token, &options.state);

        let (stop, stopping) = watch::channel(false);
        let assembly = assembly::Assembly {
            wiring: &wiring,
            pools: &pools,
            services: &services,
            folder: &folder,
            options,
        };
        let (sources, streams) = assembly.sources(&stopping)?;
        let control = control::router(assembly.control(token.clone(), streams));
        let mut background = JoinSet::new();
        background.spawn(serving("Runtime API", runtime.serve(listeners.runtime)));
        let router = services.router().merge(control);
        background.spawn(serving("AWS services", async move {
            axum::serve(listeners.aws, router).await
        }));
        for (api, listener) in listeners.apis {
            let gateway = assembly.gateway(&api, &token);
            background.spawn(serving("HTTP API", gateway.serve(listener)));
        }
        let pools: Vec<_> = pools.into_values().collect();
        background.spawn(housekeeping(services.clone(), pools.clone()));
        Ok(Self { ready, pools, stop, sources, _background: background, _folder: folder })
    }

    /// Sources take nothing more; what runs has a moment to finish; then every process is ended.
    async fn stop(mut self) {
        self.stop.send_replace(true);
        let mut stops: JoinSet<()> = JoinSet::new();
        for pool in self.pools {
            stops.spawn(async move { pool.stop(GRACE).await });
        }
        while stops.join_next().await.is_some() {}
        let _ = timeout(GRACE, async { while self.sources.join_next().await.is_some() {} }).await;
    }
}

fn read_template(options: &Options) -> Result<Wiring, HostError> {
    let samconfig = options
        .samconfig
        .exists()
        .then_some((options.samconfig.as_path(), options.config_env.as_str()));
    if samconfig.is_none() {
        tracing::warn!(file = %options.samconfig.display(), "no samconfig: every parameter has the template's default");
    }
    template::read(&options.template, samconfig).map_err(HostError::Template)
}

/// The program of each function, by logical id.
fn programs(wiring: &Wiring, folder: &Path) -> Result<BTreeMap<String, PathBuf>, HostError> {
    let mut missing = Vec::new();
    let mut programs = BTreeMap::new();
    for function in &wiring.functions {
        match folder.join(&function.binary).canonicalize() {
            Ok(path) if path.is_file() => {
                programs.insert(function.logical_id.clone(), path);
            }
            _ if missing.contains(&function.binary) => {}
            _ => missing.push(function.binary.clone()),
        }
    }
    if missing.is_empty() {
        Ok(programs)
    } else {
        Err(HostError::Programs { missing, folder: folder.to_owned() })
    }
}

/// Every port the host listens on, taken before anything else starts.
struct Listeners {
    aws: TcpListener,
    aws_address: SocketAddr,
    runtime: TcpListener,
    runtime_address: SocketAddr,
    apis: Vec<(String, TcpListener)>,
    api_addresses: BTreeMap<String, SocketAddr>,
}

impl Listeners {
    async fn bind(wiring: &Wiring, base: u16) -> Result<Self, HostError> {
        let (aws, aws_address) = bind(base).await?;
        let (runtime, runtime_address) = bind(0).await?;
        let (mut apis, mut api_addresses) = (Vec::new(), BTreeMap::new());
        for (api, offset) in wiring.apis.iter().zip(1..) {
            let port = if base == 0 { 0 } else { base.saturating_add(offset) };
            let (listener, address) = bind(port).await?;
            api_addresses.insert(api.logical_id.clone(), address);
            apis.push((api.logical_id.clone(), listener));
        }
        Ok(Self { aws, aws_address, runtime, runtime_address, apis, api_addresses })
    }

    fn aws_url(&self) -> String {
        format!("http://{}", self.aws_address)
    }

    fn api_urls(&self) -> BTreeMap<String, String> {
        self.api_addresses
            .iter()
            .map(|(api, address)| (api.clone(), format!("http://{address}")))
            .collect()
    }
}

async fn bind(port: u16) -> Result<(TcpListener, SocketAddr), HostError> {
    let failed = |source| HostError::Port { port, source };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

fn ready_line(listeners: &Listeners, token: &Token, state: &Path) -> Value {
    json!({
        "ready": true,
        "aws": listeners.aws_url(),
        "control": format!("{}/_local", listeners.aws_url()),
        "apis": listeners.api_urls(),
        "token": token.reveal(),
        "state": state.display().to_string(),
        "pid": std::process::id(),
    })
}

async fn serving(what: &'static str, server: impl Future<Output = io::Result<()>>) {
    if let Err(error) = server.await {
        tracing::error!(%error, "the server of the {what} ended");
    }
}

async fn housekeeping(services: Services, pools: Vec<Pool>) {
    let mut times = interval(HOUSEKEEPING);
    loop {
        times.tick().await;
        for pool in &pools {
            pool.retire(IDLE);
        }
        let services = services.clone();
        let swept = tokio::task::spawn_blocking(move || services.sweep_ttl()).await;
        if let Ok(Err(error)) = swept {
            tracing::warn!(%error, "cannot remove expired items");
        }
    }
}
