//! Asking a provider for an object's current state. Data and pure reading: somebody else calls.
//!
//! A [`Fetcher`] says where the state of an object is had, how we show who we are, and where in the answer the state and
//! its version stand. Presets ship in the folder `presets`, one file each; a source may bring one of its own.
//!
//! An event decides only which object is asked for. So what comes of it is percent-encoded, and the host is the fetcher's:
//! nothing that a stranger says can lead a token anywhere else. Nothing here may open a connection, print a token, or
//! repeat an answer's body.
//!
//! Reading order: [`fetcher`] is the form; `read` reads it, strictly; [`call`] makes a request of it; [`answer`] says what
//! came back. [`source`] finds the fetcher of a source.

pub mod answer;
pub mod call;
pub mod fetcher;
mod preset;
mod read;
mod reader;
pub mod source;
mod template;

pub use self::{
    answer::{Answered, Judged},
    call::{About, Call, NoCall},
    fetcher::{Auth, Fetcher},
    preset::preset_names,
    reader::{Problem, Problems},
    source::NoFetcher,
};
