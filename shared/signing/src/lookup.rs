//! Keys that a provider publishes: which call fetches one, and what its answer says. Pure: somebody else calls.
//!
//! The id of a key, which may be an address, comes from a request that nobody has verified yet. So it is compared with a
//! strict form before anything is done with it, and the host is never taken from it: one that does not fit is no id.
//!
//! Whoever calls: only `https`, the host's certificate checked, no redirects, at most [`MOST_BYTES`] of the answer.

use std::fmt;

use serde::Deserialize;
use serde_json::value::RawValue;
use zeroize::Zeroizing;

use crate::key::Key;
use crate::scheme::{Scheme, Verifier};
use crate::secret::Secret;
use crate::{json, jwt, named};

/// Bytes of an answer that are worth reading.
pub const MOST_BYTES: usize = 64 * 1024;
/// Characters of an address that is an id.
const MOST_URL: usize = 256;
/// Characters of an address that confirms a subscription; its token has 256.
const MOST_CONFIRMATION: usize = 2048;

/// A call to be made. Its headers and its body may hold a credential, so only the address prints.
#[derive(Clone, PartialEq, Eq)]
pub struct Call {
    /// In capitals.
    pub method: &'static str,
    /// Always `https`, always a host of the scheme's.
    pub url: String,
    /// Name and value.
    pub headers: Vec<(&'static str, Zeroizing<String>)>,
    /// Empty for a `GET`.
    pub body: Zeroizing<Vec<u8>>,
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { method, url, .. } = self;
        f.debug_struct("Call").field("method", method).field("url", url).finish_non_exhaustive()
    }
}

/// Why there is no call, or no key in its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The provider of this scheme publishes no keys.
    #[error("this scheme has no keys that are fetched")]
    NoLookup,
    /// Not an id of the strict form.
    #[error("that is not the id of a key of this provider; nothing is fetched")]
    BadId,
    /// Not an address that confirms a subscription.
    #[error("that is not the address of a confirmation; nothing is fetched")]
    BadConfirmation,
    /// The provider wants to know who asks.
    #[error(
        "the provider's keys are given out only to its customers; set the secret of this source to `client_id:secret`"
    )]
    NoCredentials,
    /// Not 200.
    #[error("the provider answered {0} instead of the key")]
    Status(u16),
    /// More than [`MOST_BYTES`].
    #[error("the provider's answer is far larger than any key")]
    TooLarge,
    /// 200, and no key that this scheme can use.
    #[error("the provider's answer contains no key that this scheme can use")]
    NotAKey,
    /// A key, and not the one that was asked for.
    #[error("the provider answered with another key than the one asked for")]
    OtherKey,
}

impl Refused {
    /// Whether the same call may succeed later.
    #[must_use]
    pub fn is_transient(self) -> bool {
        matches!(self, Self::Status(408 | 425 | 429 | 500..))
    }
}

/// The call that fetches the key with this id.
///
/// # Errors
/// The id is not of the scheme's strict form, or a credential is missing. See [`Refused`].
pub fn call(scheme: &Scheme, id: &str, credentials: &[Secret]) -> Result<Call, Refused> {
    let environment = scheme.config("environment");
    match scheme.verifier() {
        Some(Verifier::Sns) => {
            let url = sns_certificate(id.as_bytes()).ok_or(Refused::BadId)?;
            Ok(get(url.into(), None))
        }
        Some(Verifier::PayPal) => {
            let url = paypal_certificate(id.as_bytes(), environment).ok_or(Refused::BadId)?;
            Ok(get(url.into(), None))
        }
        Some(Verifier::Plaid) => plaid(id, environment, credentials),
        _ => {
            let lookup = scheme.lookup().ok_or(Refused::NoLookup)?;
            let url = lookup.url(id).ok_or(Refused::BadId)?;
            Ok(get(url, credentials.first()))
        }
    }
}

/// The key in the answer, as text for [`crate::Key::published`]. It was checked that such a key can be made of it.
///
/// # Errors
/// The answer is none, or holds no usable key. See [`Refused`].
pub fn read(scheme: &Scheme, id: &str, status: u16, answer: &[u8]) -> Result<String, Refused> {
    if status != 200 {
        return Err(Refused::Status(status));
    }
    if answer.len() > MOST_BYTES {
        return Err(Refused::TooLarge);
    }
    let text = std::str::from_utf8(answer).map_err(|_| Refused::NotAKey)?;
    let text = match scheme.verifier() {
        Some(Verifier::Sns | Verifier::PayPal) => text.to_owned(),
        Some(Verifier::Plaid) => plaid_answer(id, text)?,
        _ => {
            let lookup = scheme.lookup().ok_or(Refused::NoLookup)?;
            let key = json::pick(answer, &[lookup.answer()]).pop().flatten();
            key.ok_or(Refused::NotAKey)?.into_text()
        }
    };
    Key::published(scheme, id, &text).map(|_| text).map_err(|_| Refused::NotAKey)
}

/// The call that confirms a subscription to a topic of Amazon SNS, from the `SubscribeURL` of a message whose signature
/// was right.
///
/// # Errors
/// The address is not one that confirms subscriptions.
pub fn confirmation(url: &str) -> Result<Call, Refused> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"=&:%._~+-/".contains(&byte);
    let query = sns_path(url)
        .filter(|_| url.len() <= MOST_CONFIRMATION)
        .and_then(|path| path.strip_prefix("?Action=ConfirmSubscription&"));
    match query {
        Some(query) if query.bytes().all(plain) => Ok(get(url.into(), None)),
        _ => Err(Refused::BadConfirmation),
    }
}

fn get(url: String, bearer: Option<&Secret>) -> Call {
    let bearer = bearer.map(|secret| Zeroizing::new(format!("Bearer {}", secret.expose())));
    let headers = bearer.map(|value| ("authorization", value)).into_iter().collect();
    Call { method: "GET", url, headers, body: Zeroizing::default() }
}

fn plaid(id: &str, environment: Option<&str>, credentials: &[Secret]) -> Result<Call, Refused> {
    let id = plaid_key(id).ok_or(Refused::BadId)?;
    let host = match environment {
        None | Some("production") => "production",
        Some("sandbox") => "sandbox",
        Some(_) => return Err(Refused::NoLookup),
    };
    let text = |bytes| std::str::from_utf8(bytes).ok();
    let pair = credentials.iter().find_map(|secret| named::pair(secret.expose().as_bytes()));
    let (client, secret) = pair
        .and_then(|(client, secret)| Some((text(client)?, text(secret)?)))
        .ok_or(Refused::NoCredentials)?;
    let body = serde_json::json!({ "client_id": client, "secret": secret, "key_id": id });
    Ok(Call {
        method: "POST",
        url: format!("https://{host}.plaid.com/webhook_verification_key/get"),
        headers: vec![("content-type", Zeroizing::new("application/json".into()))],
        body: Zeroizing::new(body.to_string().into_bytes()),
    })
}

fn plaid_answer(id: &str, text: &str) -> Result<String, Refused> {
    #[derive(Deserialize)]
    struct Answer<'a> {
        #[serde(borrow)]
        key: &'a RawValue,
    }
    let Answer { key } = serde_json::from_str(text).map_err(|_| Refused::NotAKey)?;
    let (_, own_id) = jwt::web_key(key.get()).ok_or(Refused::NotAKey)?;
    if own_id.as_deref() != Some(id) {
        return Err(Refused::OtherKey);
    }
    Ok(key.get().to_owned())
}

/// The id of a key of Plaid's: a UUID in lower case.
pub(crate) fn plaid_key(id: &str) -> Option<&str> {
    let groups = id.split('-').map(str::len).eq([8, 4, 4, 4, 12]);
    let digits = id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-'));
    (groups && digits).then_some(id)
}

/// An address of a certificate of PayPal's, on the host of the environment; on either if none is configured.
pub(crate) fn paypal_certificate<'u>(url: &'u [u8], environment: Option<&str>) -> Option<&'u str> {
    const LIVE: &str = "https://api.paypal.com/v1/notifications/certs/";
    const SANDBOX: &str = "https://api.sandbox.paypal.com/v1/notifications/certs/";
    let url = std::str::from_utf8(url).ok().filter(|url| url.len() <= MOST_URL)?;
    let hosts: &[&str] = match environment {
        None => &[LIVE, SANDBOX],
        Some("live") => &[LIVE],
        Some("sandbox") => &[SANDBOX],
        Some(_) => &[],
    };
    let name = hosts.iter().find_map(|host| url.strip_prefix(host))?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (!name.is_empty() && name.bytes().all(plain)).then_some(url)
}

/// An address of a certificate of Amazon SNS's.
pub(crate) fn sns_certificate(url: &[u8]) -> Option<&str> {
    let url = std::str::from_utf8(url).ok().filter(|url| url.len() <= MOST_URL)?;
    let name = sns_path(url)?.strip_prefix("SimpleNotificationService-")?.strip_suffix(".pem")?;
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    (!name.is_empty() && name.bytes().all(plain)).then_some(url)
}

/// What follows the host, without its slash, of an address on a host of Amazon SNS's.
fn sns_path(url: &str) -> Option<&str> {
    let (region, rest) = url.strip_prefix("https://sns.")?.split_once('.')?;
    let (path, is_china) = match rest.strip_prefix("amazonaws.com/") {
        Some(path) => (path, false),
        None => (rest.strip_prefix("amazonaws.com.cn/")?, true),
    };
    (is_region(region) && region.starts_with("cn-") == is_china).then_some(path)
}

/// As in `us-east-1` or `us-gov-west-1`.
fn is_region(name: &str) -> bool {
    let labels: Vec<&str> = name.split('-').collect();
    let letters = |label: &str| !label.is_empty() && label.bytes().all(|b| b.is_ascii_lowercase());
    match labels.as_slice() {
        [area, middle @ .., number] => {
            area.len() == 2
                && letters(area)
                && (1..=3).contains(&middle.len())
                && middle.iter().all(|label| label.len() <= 12 && letters(label))
                && matches!(number.as_bytes(), [b'1'..=b'9'])
        }
        _ => false,
    }
}
