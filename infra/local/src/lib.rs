//! One machine that behaves like the AWS services Postern uses.

pub mod services;
pub mod template;
pub mod wiring;
