//! Flows that two functions run, generic over the ports.
//!
//! [`fanout`]: from one outgoing event to its deliveries, run by the relay and the sweeper.

pub mod fanout;
