//! What runs functions: the Lambda Runtime API, processes, HTTP APIs, event sources and schedules.
//!
//! Everything ends in [`pool::Pool`]: it takes an event and gives an [`function::Outcome`], as Lambda's `Invoke` does.
//! Reading order: [`function`], [`pool`], [`process`], [`runtime_api`]; then what calls it: [`gateway`], [`source`], [`schedule`], [`rule`].
//! It never looks into an event or an answer further than AWS itself does.

pub mod clock;
pub mod function;
pub mod gateway;
pub mod leftovers;
pub mod log;
pub mod pool;
pub mod process;
pub mod rule;
pub mod runtime_api;
pub mod schedule;
pub mod source;
pub mod token;
