//! From an HTTP client's error to the one word that a person can act on.

use std::{error::Error, io};

use domain::delivery::Cause;

use crate::connector::ConnectError;

/// Names a failed exchange. The types below the error decide, never its text.
pub fn of(error: &(dyn Error + 'static)) -> Cause {
    if let Some(connect) = below(error).find_map(|e| e.downcast_ref::<ConnectError>()) {
        return connect.cause;
    }
    // Behind the connector the request may have left: what TLS says then, such as a fatal alert, breaks a connection like
    // any other end of it, and must not pass for a handshake that let nothing through.
    if below(error).any(|e| e.is::<io::Error>()) {
        return Cause::Reset;
    }
    match below(error).find_map(|e| e.downcast_ref::<hyper::Error>()) {
        Some(http) if http.is_parse() => Cause::BadAnswer,
        Some(http) if http.is_timeout() => Cause::Timeout,
        Some(http) if http.is_incomplete_message() || http.is_closed() || http.is_canceled() => {
            Cause::Reset
        }
        Some(_) | None => Cause::BadAnswer,
    }
}

/// An error and all that caused it.
fn below<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    let mut next = Some(error);
    std::iter::from_fn(move || {
        let error = next?;
        next = error.source();
        Some(error)
    })
}
