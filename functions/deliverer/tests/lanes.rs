//! Lanes over hours and days, in a time that passes only when everybody waits: whose turn it is, how fast, who hears of
//! what, and what a receiver sees that comes back from an outage.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

mod lanes {
    mod clock;
    mod notices;
    mod order;
    mod outage;
    mod pace;
    mod steer;
    mod world;
}
