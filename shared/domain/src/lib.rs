//! domain.
