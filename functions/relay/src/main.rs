//! Wires [`relay`].

fn main() {}
