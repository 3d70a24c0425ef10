//! The local host.

fn main() {}
