//! The command line of Postern.

fn main() {}
