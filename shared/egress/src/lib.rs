//! The way out to a host that a stranger has named.
//!
//! Everything here assumes that the other side is hostile. The connector resolves, checks every address and dials an
//! address that it checked, so that a name cannot mean something else a moment later. It must never follow a redirect,
//! heed a proxy, or trust an authority besides the web's.
//!
//! [`connector`] is the only place that opens a connection; [`resolve`] asks for addresses; [`tls`] trusts; [`cause`] names
//! what went wrong. What is asked and how much of the answer is read is for whoever calls.

pub mod cause;
pub mod connector;
pub mod resolve;
pub mod tls;
