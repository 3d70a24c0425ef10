//! Suites that span crates. See `tests/`.
