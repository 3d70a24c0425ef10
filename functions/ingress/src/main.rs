//! Wires [`ingress`].

fn main() {}
