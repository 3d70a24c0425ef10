//! Delivers events to the endpoints of customers.
