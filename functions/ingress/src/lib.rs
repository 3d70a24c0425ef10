//! Accepts webhooks from providers.
