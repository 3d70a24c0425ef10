//! Every port in memory, and ways to make it fail.
//!
//! Reading order: [`memory::Store`] keeps all tables of one deployment; [`chaos::Chaos`] decides before and after each of
//! its calls whether that call fails, loses its answer, or is where the process dies; [`memory::MemoryQueue`] is a queue
//! with a clock of its own; [`contract`] says what every implementation of a port must do, these included.
//! Tests only: nothing that is deployed depends on this crate.

pub mod chaos;
pub mod contract;
mod limits;
pub mod memory;

pub use self::limits::LIMITS;
