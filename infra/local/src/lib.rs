//! One machine that behaves like the AWS services Postern uses.

pub mod wiring;
