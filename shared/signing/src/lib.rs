//! Bytes + keys + now → a verdict; and the other way round: making signatures.
//!
//! How a provider signs is data: a [`Scheme`] is read from TOML or JSON, checked as a whole, and interpreted by
//! [`verify`]. The schemes that ship are in `presets/`, one file for each provider; a user's own scheme has the same form.
//!
//! What this crate must never do: read a clock, the environment or randomness (ECDSA signatures that we make for tests
//! excepted: their nonce comes from the system); do I/O; parse a body before its signature
//! was checked (schemes that put the signature or the time inside the body excepted); print a secret; compare digests
//! with `==`; panic on anything that came from outside.
//!
//! Reading order: [`Scheme`] and the presets, [`verify`], then [`Rejected`], [`Identity`], and [`sign`] for the way out.
//!
//! ```
//! use signing::{Key, Request, Scheme, Secret, verify};
//!
//! let scheme = Scheme::preset("github").unwrap();
//! let key = Key::parse(&scheme, "2026-01", &Secret::new("It's a Secret to Everybody")).unwrap();
//! let mut headers = http::HeaderMap::new();
//! headers.insert("x-github-delivery", "72d3162e-cc78-11e3-81ab-4c9367dc0958".parse().unwrap());
//! headers.insert("x-hub-signature-256",
//!     "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17".parse().unwrap());
//! let request = Request {
//!     method: "POST",
//!     url: "https://hooks.example/in",
//!     headers: &headers,
//!     body: b"Hello, World!",
//!     path_secret: None,
//! };
//! let now = jiff::Timestamp::from_second(1_767_225_600).unwrap();
//!
//! let verified = verify(&scheme, &[key], &request, now).unwrap();
//! assert_eq!(verified.key().as_str(), "2026-01");
//! assert_eq!(verified.identity().id.as_deref(), Some("72d3162e-cc78-11e3-81ab-4c9367dc0958"));
//! ```

mod address;
mod asymmetric;
mod certificate;
mod digest;
mod element;
mod encoding;
mod form;
mod freshness;
pub mod handshake;
mod identity;
mod json;
mod jwt;
mod key;
pub mod lookup;
mod message;
mod named;
mod preset;
mod rejected;
mod request;
pub mod scheme;
mod secret;
pub mod sign;
mod signature;
mod verify;

pub use element::{Element, MAX_ELEMENTS, NotABatch, elements};
pub use identity::{Identity, Version};
pub use key::{Key, KeyError, KeyId, SigningKey, Weakness};
pub use preset::preset_names;
pub use rejected::{Class, Reason, Rejected};
pub use request::Request;
pub use scheme::{Problem, Problems, Scheme, Trust};
pub use secret::Secret;
pub use sign::EndpointSecret;
pub use verify::{Verified, verify};
