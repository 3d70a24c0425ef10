//! Amazon SNS: RSA over some members of the body, each as its name and its value on a line of its own.
//!
//! Amazon signs for everybody's topics, so the signature alone says only "some topic": `config.topic_arn` says which.
//! [`crate::Scheme::missing_config`] names it, and no source is to be used without it.
//! Version 1 of the signature is SHA-1, version 2 SHA-256; a topic is switched to 2 by its owner, and then
//! `config.signature_version = "2"` refuses 1. `UnsubscribeURL` is not signed and never used.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::{Ask, Found, Object, Proven};
use crate::asymmetric::Method;
use crate::{Reason, digest, freshness, json, lookup};

pub(super) fn verify(ask: &Ask<'_>) -> Result<Proven, Reason> {
    let message = read(ask.request.body)?;
    let method = match (&*message.signature_version, ask.config("signature_version")) {
        ("1", None | Some("1")) => Method::RsaSha1,
        ("2", None | Some("2")) => Method::RsaSha256,
        _ => return Err(Reason::SignatureMalformed),
    };
    let text = message.signature.as_deref().ok_or(Reason::SignatureMissing)?;
    let signature = STANDARD.decode(text).map_err(|_| Reason::SignatureMalformed)?;
    let url = lookup::sns_certificate(message.signing_cert_url.as_bytes())
        .ok_or(Reason::KeyIdMalformed)?;
    let signed = message.signed()?;
    // looked at before the signature, so that a stranger's topic makes nobody fetch a certificate
    if ask.config("topic_arn").is_some_and(|ours| ours != message.topic_arn) {
        return Err(Reason::NotOurs { name: "topic_arn" });
    }

    let (key, certificate) = ask.published(url)?;
    if !certificate.verifies_by(method, signed.as_bytes(), &signature) {
        return Err(ask.mismatch());
    }
    // only the end counts: a certificate that is in use before its time proves no less
    if certificate.is_expired(ask.now) {
        return Err(Reason::KeyNotValid);
    }
    let found =
        Found { occurred_at: freshness::rfc3339(message.timestamp.as_bytes()), ..Found::default() };
    Ok(Proven { key, signed: digest::sha256(signed.as_bytes()), found })
}

/// A message as SNS sends it over HTTP. A member that occurs twice is an error of the parser's.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Message<'a> {
    #[serde(borrow)]
    r#type: Cow<'a, str>,
    #[serde(borrow)]
    message_id: Cow<'a, str>,
    #[serde(borrow)]
    topic_arn: Cow<'a, str>,
    #[serde(borrow)]
    message: Cow<'a, str>,
    #[serde(borrow)]
    timestamp: Cow<'a, str>,
    #[serde(borrow)]
    signature_version: Cow<'a, str>,
    #[serde(borrow, rename = "SigningCertURL")]
    signing_cert_url: Cow<'a, str>,
    #[serde(borrow, default)]
    signature: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    subject: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    token: Option<Cow<'a, str>>,
    #[serde(borrow, default, rename = "SubscribeURL")]
    subscribe_url: Option<Cow<'a, str>>,
}

fn read(body: &[u8]) -> Result<Message<'_>, Reason> {
    serde_json::from_slice::<Object<Message<'_>>>(body).map(|Object(message)| message).map_err(
        |_| if json::is_json(body) { Reason::BodyValueMissing } else { Reason::BodyNotJson },
    )
}

impl Message<'_> {
    /// What is signed. Names and values are told apart by line breaks alone, so only the one free text may contain any:
    /// otherwise its publisher could make the same signature stand for other members.
    fn signed(&self) -> Result<String, Reason> {
        let needed = |value: &Option<Cow<'_, str>>| match value {
            Some(value) => Ok(value.to_string()),
            None => Err(Reason::BodyValueMissing),
        };
        let mut members = vec![("MessageId", self.message_id.to_string())];
        match &*self.r#type {
            "Notification" => {
                if let Some(subject) = &self.subject {
                    members.push(("Subject", subject.to_string()));
                }
                members.push(("Timestamp", self.timestamp.to_string()));
            }
            "SubscriptionConfirmation" | "UnsubscribeConfirmation" => {
                members.push(("SubscribeURL", needed(&self.subscribe_url)?));
                members.push(("Timestamp", self.timestamp.to_string()));
                members.push(("Token", needed(&self.token)?));
            }
            _ => return Err(Reason::BodyValueMissing),
        }
        members.push(("TopicArn", self.topic_arn.to_string()));
        members.push(("Type", self.r#type.to_string()));
        if members.iter().any(|(_, value)| value.chars().any(char::is_control)) {
            return Err(Reason::BodyValueMissing);
        }
        let mut text = format!("Message\n{}\n", self.message);
        for (name, value) in members {
            text.extend([name, "\n", &value, "\n"]);
        }
        Ok(text)
    }
}
