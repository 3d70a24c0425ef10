//! Wires [`worker`].

fn main() {}
