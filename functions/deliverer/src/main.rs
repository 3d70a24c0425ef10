//! Wires [`deliverer`].

fn main() {}
