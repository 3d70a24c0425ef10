//! HTTP APIs as API Gateway runs them: routes, the event of payload format 2.0, the answer.
//!
//! [`route`], [`event`] and [`answer`] are pure; [`server`] is the shell around them.

pub mod answer;
pub mod event;
pub mod route;
pub mod server;
