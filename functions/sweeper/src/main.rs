//! Wires [`sweeper`].

fn main() {}
