//! The providers whose signatures need code: each signs here as the provider would, with keys made for these tests.

mod adyen;
mod braintree;
mod certificates;
mod garbage;
mod jwt_body_hash;
mod lookup;
mod paypal;
mod plaid;
mod provider;
mod sns;
mod twilio;
