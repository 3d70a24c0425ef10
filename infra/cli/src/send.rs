//! `postern send`: a request such as the provider would make, to a source of the local demo.

use std::io::Write;

use crate::{complaint::Complaint, deployment::Deployment, dev, print};

/// Send a signed event to a source that `cargo dev` made
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The source
    #[arg(default_value = "stripe-demo")]
    source: String,
}

/// Sends it.
pub async fn run(
    args: &Args,
    deployment: &Deployment,
    out: &mut dyn Write,
) -> Result<(), Complaint> {
    let ready = deployment.ready()?;
    let (event, status) = dev::send_demo_event(&ready, &deployment.state, &args.source).await?;
    writeln!(
        out,
        "{event} answered {status}\nfollow it: postern events story {} {event}",
        args.source
    )
    .map_err(|error| print::closed(&error))
}
