//! Flows that two functions run, generic over the ports.
//!
//! [`fanout`]: from one outgoing event to its deliveries, run by the relay and the sweeper. [`payload`]: the bytes of an
//! outgoing event, written by the worker and `api`, read by the deliverer.

pub mod fanout;
pub mod payload;
