//! Flows that two functions run, generic over the ports.
//!
//! What is here decides with the pure rules of `domain` and acts through its ports; it knows no AWS, reads no clock, and
//! never answers for more than the row that is in the table.
//!
//! Reading order: [`scheme`] is how a source's requests prove themselves and say what they are; [`incoming`] is what may
//! come in at all, and [`element`] the events of a request with several; [`accept`] puts it into the inbox; [`body`] is
//! how its bytes are kept and read back, [`content`] what they mean once their [`encoding`] is undone. [`fanout`] is how
//! one outgoing event becomes its deliveries; [`payload`] is how the bytes of an outgoing event are kept and read back,
//! [`document`] what filters read in them, and [`leaving`] what a subscriber gets of them.
//! [`bulk`] runs many events again, and [`redeliver`] sends many again, both as [`paged`] work.

pub mod accept;
pub mod body;
pub mod bulk;
pub mod content;
pub mod document;
pub mod element;
pub mod encoding;
pub mod fanout;
pub mod incoming;
pub mod leaving;
pub mod paged;
pub mod payload;
pub mod redeliver;
pub mod scheme;
