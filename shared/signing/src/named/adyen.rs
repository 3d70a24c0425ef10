//! Adyen: payments sign eight fields of every item; the newer webhooks sign the whole body in a header.
//!
//! One key serves both, so the two must not be taken for each other: a header always means the stronger way, and the
//! form of the fields makes sure that no list of them is JSON and no JSON a list of them. `config.kind`, `payments` or
//! `platform`, allows only one.
//!
//! Of a payments item only those fields are protected: not `eventDate`, not `reason`, nothing of `additionalData`.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::value::RawValue;
use subtle::{Choice, ConstantTimeEq as _};

use super::{Ask, Found, Object, Proven, header, mac, usable};
use crate::scheme::Algorithm;
use crate::{Reason, digest, json};

const SIGNATURE: &str = "hmacsignature";
const PROTOCOL: &str = "protocol";
/// Items in one request. Adyen sends one over HTTP.
const MOST_ITEMS: usize = 1_000;

pub(super) fn verify(ask: &Ask<'_>) -> Result<Proven, Reason> {
    let signature = header(ask.request, SIGNATURE)?;
    match (ask.config("kind"), signature) {
        (None | Some("platform"), Some(signature)) => platform(ask, signature),
        (None | Some("payments"), None) => payments(ask),
        (Some("platform"), None) => Err(Reason::SignatureMissing),
        (Some("payments"), Some(_)) => Err(Reason::HeaderUnexpected { name: SIGNATURE.into() }),
        (Some(_), _) => Err(Reason::NotConfigured { name: "kind".into() }),
    }
}

fn platform(ask: &Ask<'_>, signature: &[u8]) -> Result<Proven, Reason> {
    if header(ask.request, PROTOCOL)?.is_some_and(|name| !name.eq_ignore_ascii_case(b"HmacSHA256"))
    {
        return Err(Reason::HeaderUnexpected { name: PROTOCOL.into() });
    }
    let body = ask.request.body;
    let signature = read_signature(signature)?;
    let key = ask.made_by(|key| {
        let Some(secret) = key.raw() else { return Choice::from(0) };
        let expected = mac(Algorithm::HmacSha256, secret, &[body]);
        expected.ct_eq(&signature)
    })?;
    if !json::is_json(body) {
        return Err(Reason::BodyNotJson);
    }
    Ok(Proven { key, signed: digest::sha256(body), found: Found::default() })
}

fn payments(ask: &Ask<'_>) -> Result<Proven, Reason> {
    let items = items(ask.request.body)?;
    let signed: Vec<(Vec<u8>, String)> = items
        .iter()
        .map(|item| Ok((read_signature(item.signature()?.as_bytes())?, item.signed()?)))
        .collect::<Result<_, Reason>>()?;
    // one key for all items: a request is made by one sender
    let key = ask.made_by(|key| {
        let Some(secret) = key.raw() else { return Choice::from(0) };
        signed.iter().fold(Choice::from(1), |all, (signature, content)| {
            let expected = mac(Algorithm::HmacSha256, secret, &[content.as_bytes()]);
            all & expected.ct_eq(signature)
        })
    })?;
    let content: Vec<&str> = signed.iter().map(|(_, content)| content.as_str()).collect();
    // the separator is no character of a field except of the free one, whose place among the others is fixed
    let signed_hash = digest::sha256(content.join("\n").as_bytes());
    Ok(Proven { key, signed: signed_hash, found: found(&items) })
}

/// A digest of the wrong length is a signature, only a wrong one.
fn read_signature(text: &[u8]) -> Result<Vec<u8>, Reason> {
    let bytes = STANDARD.decode(text).map_err(|_| Reason::SignatureMalformed)?;
    if bytes.len() < 20 { Err(Reason::SignatureMalformed) } else { Ok(bytes) }
}

/// The envelope. Duplicate members are an error of the parser's.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, rename = "notificationItems")]
    items: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct Wrapped<'a> {
    #[serde(borrow, rename = "NotificationRequestItem")]
    item: Object<Item<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Item<'a> {
    #[serde(borrow)]
    psp_reference: Cow<'a, str>,
    #[serde(borrow, default)]
    original_reference: Option<Cow<'a, str>>,
    #[serde(borrow)]
    merchant_account_code: Cow<'a, str>,
    #[serde(borrow, default)]
    merchant_reference: Option<Cow<'a, str>>,
    #[serde(borrow)]
    amount: Object<Amount<'a>>,
    #[serde(borrow)]
    event_code: Cow<'a, str>,
    #[serde(borrow)]
    success: &'a RawValue,
    #[serde(borrow, default)]
    additional_data: Option<Object<Additional<'a>>>,
}

#[derive(Deserialize)]
struct Amount<'a> {
    /// As it was written: what is signed is text.
    #[serde(borrow)]
    value: &'a RawValue,
    #[serde(borrow)]
    currency: Cow<'a, str>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Additional<'a> {
    #[serde(borrow, default)]
    hmac_signature: Option<Cow<'a, str>>,
}

fn items(body: &[u8]) -> Result<Vec<Item<'_>>, Reason> {
    let Ok(Object(envelope)) = serde_json::from_slice::<Object<Envelope<'_>>>(body) else {
        let reason =
            if json::is_json(body) { Reason::BodyValueMissing } else { Reason::BodyNotJson };
        return Err(reason);
    };
    if envelope.items.is_empty() {
        return Err(Reason::BodyValueMissing);
    }
    if envelope.items.len() > MOST_ITEMS {
        return Err(Reason::SignaturesTooMany);
    }
    envelope.items.into_iter().map(read_item).collect()
}

fn read_item(raw: &RawValue) -> Result<Item<'_>, Reason> {
    let Object(wrapped) = serde_json::from_str::<Object<Wrapped<'_>>>(raw.get())
        .map_err(|_| Reason::BodyValueMissing)?;
    Ok(wrapped.item.0)
}

impl Item<'_> {
    fn signature(&self) -> Result<&str, Reason> {
        let data = self.additional_data.as_ref();
        data.and_then(|data| data.0.hmac_signature.as_deref()).ok_or(Reason::SignatureMissing)
    }

    /// The eight fields, joined. Nothing is escaped, so only the one free field may contain the separator; otherwise the
    /// same signature would fit other fields.
    fn signed(&self) -> Result<String, Reason> {
        let empty = Cow::Borrowed("");
        let plain = |text: &str| !text.contains(':') && !text.chars().any(char::is_control);
        let strict = [
            &*self.psp_reference,
            self.original_reference.as_deref().unwrap_or_default(),
            &*self.merchant_account_code,
            &*self.amount.0.currency,
            &*self.event_code,
            self.amount.0.value.get(),
        ];
        let alphanumeric = self.psp_reference.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if self.psp_reference.is_empty() || !alphanumeric || !strict.into_iter().all(plain) {
            return Err(Reason::BodyValueMissing);
        }
        let fields: [&str; 8] = [
            &self.psp_reference,
            self.original_reference.as_ref().unwrap_or(&empty),
            &self.merchant_account_code,
            self.merchant_reference.as_ref().unwrap_or(&empty),
            digits(self.amount.0.value.get())?,
            &self.amount.0.currency,
            &self.event_code,
            self.success()?,
        ];
        Ok(fields.join(":"))
    }

    /// `true` or `false`, in quotes or not.
    fn success(&self) -> Result<&str, Reason> {
        match self.success.get().trim_matches('"') {
            text @ ("true" | "false") => Ok(text),
            _ => Err(Reason::BodyValueMissing),
        }
    }
}

/// An amount in minor units, in quotes or not.
fn digits(raw: &str) -> Result<&str, Reason> {
    let text = raw.trim_matches('"');
    let digits = text.strip_prefix('-').unwrap_or(text);
    let number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if number { Ok(text) } else { Err(Reason::BodyValueMissing) }
}

/// One item names the request. Several do not: two requests may share the first and differ in the second.
fn found(items: &[Item<'_>]) -> Found {
    let event_type = items.first().and_then(|item| usable(&item.event_code));
    let [item] = items else { return Found { event_type, ..Found::default() } };
    let success = item.success().unwrap_or_default();
    let id = format!("{}:{}:{success}", item.psp_reference, item.event_code);
    // a refund or a capture is about the payment that it refers to
    let original = item.original_reference.as_deref().and_then(usable);
    Found {
        id: usable(&id),
        event_type,
        object_type: Some("payment".into()),
        object_id: original.or_else(|| usable(&item.psp_reference)),
        occurred_at: None,
    }
}
