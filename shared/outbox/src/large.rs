//! Payloads that are too large for a transaction: they are put into the bucket first, and the event names them.

use std::io;

use domain::{
    body::Sha256Hash,
    outbox::{INLINE_MAX, Payload, object_name},
};

use serde::de::IgnoredAny;

use crate::Event;

/// What you put into the bucket before the transaction: a plain put, which may be repeated. If the transaction then never
/// commits, the bucket's lifecycle removes it.
#[derive(Clone, PartialEq, Eq)]
pub struct Object {
    /// Its key in the bucket that the stack's output `BodyBucketName` says.
    pub key: String,
    /// Its bytes, compressed.
    pub bytes: Vec<u8>,
}

impl std::fmt::Debug for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Object({}, {} bytes)", self.key, self.bytes.len())
    }
}

impl Event {
    /// Moves a payload over [`INLINE_MAX`] out of the event. What comes back is to be in the bucket before the
    /// transaction begins; nothing comes back where the payload is small enough, or was moved before.
    ///
    /// Deployments take 1,000,000 bytes at most (`PayloadMaxBytes`); what is larger is refused here, too, by
    /// [`Outbox::put`](crate::Outbox::put), which is left with it.
    ///
    /// # Errors
    /// Those of zstd, which has none for bytes in memory.
    pub fn aside(&mut self) -> io::Result<Option<Object>> {
        let Payload::Inline(bytes) = &self.payload else { return Ok(None) };
        let is_due = (INLINE_MAX + 1..=MOST).contains(&bytes.len());
        let is_json = || serde_json::from_slice::<IgnoredAny>(bytes).is_ok();
        // What is wrong with the event is said where it is put.
        let Some(tenant) = self.owner().filter(|_| is_due && is_json()) else { return Ok(None) };
        let sha256 = Sha256Hash::of(bytes);
        // Level 3, as for every other body.
        let object = Object {
            key: object_name(&tenant, &sha256),
            bytes: zstd::stream::encode_all(bytes.as_slice(), 3)?,
        };
        self.payload = Payload::Bucket(sha256);
        Ok(Some(object))
    }
}

/// The most that a deployment can be told to take, in bytes.
const MOST: usize = 1_000_000;
