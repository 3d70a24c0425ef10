//! `postern send`: a request such as the provider would make, to a source of the local demo.

use std::io::Write;

use serde_json::json;

use crate::{
    client::{Client, Proof},
    complaint::Complaint,
    deployment::{Local, Ready},
    dev, print,
};

/// Send a signed event to the source that `cargo dev` made
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The source
    #[arg(default_value = "stripe-demo")]
    source: String,

    /// First kill this function's processes, as a crash would
    #[arg(long, value_name = "FUNCTION")]
    kill: Option<Function>,

    /// Answer in JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    local: Local,
}

/// A function of the template.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum Function {
    Ingress,
    Worker,
    Relay,
    Deliverer,
    Sweeper,
    Api,
}

/// Sends it.
pub async fn run(args: &Args, out: &mut dyn Write, err: &mut dyn Write) -> Result<(), Complaint> {
    let ready = args.local.ready()?;
    // Who reads no errors has decided so.
    let _ = writeln!(err, "on the local host at {}", ready.api("IngressApi")?);
    if let Some(function) = args.kill {
        kill(&ready, function).await?;
    }
    let state = args.local.state_folder()?;
    let (event, status) = dev::send_demo_event(&ready, &state, &args.source).await?;
    let source = &args.source;
    print::either(args.json, out, &json!({"event": event, "status": status}), |out| {
        writeln!(out, "{event} was answered {status}.")?;
        writeln!(out, "Follow it with: postern events story {source} {event}")
    })
}

async fn kill(ready: &Ready, function: Function) -> Result<(), Complaint> {
    let id = format!("{function:?}Function");
    let control = Client::new(ready.control.clone(), Proof::Token(ready.token.clone()))?;
    control.post(&format!("/kill/{id}"), &json!({})).await.map(drop)
}
