//! Publish, configure, read and replay over HTTP.
