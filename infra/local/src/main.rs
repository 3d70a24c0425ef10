//! The local host: [`local::host`] from the command line.

use std::{
    collections::BTreeMap, error::Error, iter::successors, process::ExitCode, time::Duration,
};

use clap::Parser as _;
use local::{
    host::{self, HostError},
    options::Options,
};
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    // The embedded store warns of each condition that fails, which is an answer like any other.
    let filter = EnvFilter::try_from_env("LOCAL_LOG")
        .unwrap_or_else(|_| EnvFilter::new("info,dynoxide=error"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false)
        .init();
    let options = Options::parse();
    let own = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let local: BTreeMap<_, _> = own.filter(|(name, _)| name.starts_with("LOCAL_")).collect();
    let ended = tokio::runtime::Runtime::new().map_err(HostError::runtime).and_then(|runtime| {
        let ended = runtime.block_on(async {
            let stop = host::stop::listen(options.with_parent).map_err(HostError::runtime)?;
            host::run(&options, local, stop).await
        });
        // A read of standard input cannot be called off: do not wait for it.
        runtime.shutdown_timeout(Duration::from_millis(100));
        ended
    });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let chain = successors(Some(&error as &dyn Error), |&error| error.source())
                .map(ToString::to_string);
            tracing::error!("{}", chain.collect::<Vec<_>>().join("\n  because: "));
            ExitCode::FAILURE
        }
    }
}
