//! What every function needs of its surroundings: its environment, its logs and metrics, its AWS clients, and the ports
//! that AWS services other than DynamoDB fill.
//!
//! This is the edge: here the environment is read and the outside is spoken to. No rule of the product lives here, and
//! nothing here retries for longer than its caller has time.
//!
//! Reading order: [`mod@env`] and [`addresses`], [`telemetry`], [`aws`]; then the adapters, one feature each: `queue`, `secrets`, `keys`,
//! `bodies`; and how answers are shaped: `batch`, [`problem`].

pub mod addresses;
pub mod aws;
pub mod env;
pub mod problem;
pub mod telemetry;

#[cfg(feature = "batch")]
pub mod batch;
#[cfg(feature = "bodies")]
mod bodies;
#[cfg(feature = "keys")]
mod keys;
#[cfg(feature = "queue")]
mod queue;
#[cfg(feature = "secrets")]
mod secrets;

#[cfg(feature = "bodies")]
pub use bodies::{BadBodiesUrl, BodyStore};
#[cfg(feature = "keys")]
pub use keys::KmsKeyring;
#[cfg(feature = "queue")]
pub use queue::SqsQueue;
#[cfg(feature = "secrets")]
pub use secrets::SecretsManager;
