//! When the host has to end.

use std::{future::Future, io};

use tokio::{
    io::AsyncReadExt as _,
    signal::unix::{SignalKind, signal},
};

/// Waits for Ctrl-C or SIGTERM and, `with_parent`, for the end of standard input.
///
/// It listens from this call on, not only once the future is waited for: a signal that comes during the start counts too.
/// Standard input ends when whoever started the host is gone.
///
/// # Errors
/// When signals cannot be listened for.
pub fn listen(with_parent: bool) -> io::Result<impl Future<Output = ()>> {
    let (mut interrupt, mut terminate) =
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            () = input_ended(), if with_parent => {}
        }
    })
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
