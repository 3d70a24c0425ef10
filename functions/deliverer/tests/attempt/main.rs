//! What one attempt sends, and what it makes of an answer.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

mod auth;
mod own;
mod signed;
mod styles;
mod targets;
mod world;
