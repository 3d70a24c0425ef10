//! The command line of Postern.
