//! signing.
