//! Wires [`api`].

fn main() {}
