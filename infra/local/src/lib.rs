//! One machine that behaves like the AWS services Postern uses.
//!
//! It reads the template, runs the function binaries as they are, and plays API Gateway, Lambda, DynamoDB, SQS, S3, Secrets
//! Manager and KMS for them, on loopback. It must never import anything of the product: it would share its misunderstandings.
//!
//! Reading order: [`wiring`] (what a template says), [`template`] (how it is read), [`services`] (what functions call),
//! [`compute`] (what calls functions), [`host`] (all of it together), [`options`].

pub mod compute;
pub mod host;
pub mod options;
pub mod services;
pub mod template;
pub mod wiring;
