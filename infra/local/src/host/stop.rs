//! When the host has to end.

use std::{future::pending, io};

use tokio::{
    io::AsyncReadExt as _,
    signal::unix::{SignalKind, signal},
};

/// Returns at Ctrl-C or SIGTERM and, `with_parent`, when standard input ends: whoever started the host is gone then.
pub async fn asked(with_parent: bool) {
    tokio::select! {
        () = signalled(SignalKind::interrupt()) => {}
        () = signalled(SignalKind::terminate()) => {}
        () = input_ended(), if with_parent => {}
    }
}

async fn signalled(kind: SignalKind) {
    match signal(kind) {
        Ok(mut signals) => {
            signals.recv().await;
        }
        Err(error) => {
            tracing::warn!(%error, "cannot listen for a signal; end the host with `kill`");
            pending().await
        }
    }
}

async fn input_ended() {
    let (mut input, mut chunk) = (tokio::io::stdin(), [0; 64]);
    loop {
        match input.read(&mut chunk).await {
            Ok(1..) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => return,
        }
    }
}
