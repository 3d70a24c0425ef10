//! Payloads of outgoing events that are too large for a row: they go to the bucket before the commit that names them.

use domain::{
    body::Sha256Hash,
    commit::Commit,
    message::InboundMessage,
    outbox::{INLINE_MAX, Payload},
    ports::{Bodies, Inbox, Queue, Registry, State, StoreError, Stored},
};
use flow::payload::{compress, name};
use jiff::Timestamp;

use crate::Worker;

/// A payload that may not go out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "an outgoing event would have {bytes} bytes, and {most} are allowed; raise the parameter PayloadMaxBytes, up to 1000000, or send less"
)]
pub(crate) struct TooLarge {
    bytes: usize,
    most: usize,
}

impl<I, S, R, B, Q, N> Worker<'_, I, S, R, B, Q, N>
where
    I: Inbox,
    S: State,
    R: Registry,
    B: Bodies,
    Q: Queue<InboundMessage>,
    N: Fn() -> Timestamp,
{
    /// Puts large payloads of a commit into the bucket, compressed, and leaves their hashes in it. A crash before the
    /// commit leaves an object that the next try puts again, or that the bucket's lifecycle removes.
    pub(crate) async fn lay_aside(&self, commit: &mut Commit) -> Stored<Result<(), TooLarge>> {
        for event in commit.changes.iter_mut().flat_map(|change| &mut change.events) {
            let Payload::Inline(bytes) = &event.payload else { continue };
            if bytes.len() > self.payload_max {
                return Ok(Err(TooLarge { bytes: bytes.len(), most: self.payload_max }));
            }
            if bytes.len() > INLINE_MAX {
                let sha256 = Sha256Hash::of(bytes);
                let compressed =
                    compress(bytes).map_err(|error| StoreError::Refused(error.into()))?;
                self.bodies.put(&name(&event.tenant, &sha256), compressed).await?;
                event.payload = Payload::Bucket(sha256);
            }
        }
        Ok(Ok(()))
    }
}
