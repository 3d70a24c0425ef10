//! Turns one outbox event into one delivery per matching endpoint.
