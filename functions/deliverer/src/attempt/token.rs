//! An access token from the authorization server of an endpoint (RFC 6749, 4.4: client credentials).
//!
//! The server is a stranger like any other: it is reached through the same guarded way out, in the time of the attempt
//! that wants the token, and what it says is read with a limit. Nothing of a secret or a token is in an error.

use std::{fmt, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use domain::{
    address::{AddressPolicy, EndpointUrl},
    body::Sha256Hash,
    delivery::Cause,
    endpoint::{CredentialsIn, Endpoint},
    secret::SecretText,
};
use http::{HeaderMap, HeaderValue, header};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use tokio::{
    sync::Mutex,
    time::{Instant, timeout_at},
};
use url::form_urlencoded::{Serializer, byte_serialize};
use zeroize::Zeroizing;

use super::keys::{Keys, Token};
use crate::transport::{Failed, Post, Reply, Transport};

/// How long before its end a token is not used any more, at most: an attempt takes 20 s, and clocks differ.
const MARGIN: Duration = Duration::from_secs(60);

/// How long a token is used whose server does not say (RFC 6749 only recommends that it does).
const UNSAID: Duration = Duration::from_secs(300);

/// How long a token is used at most, whatever its server says.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// Longest token, in bytes: longer ones do not fit into the headers that servers take.
const MAX_TOKEN: usize = 8192;

/// Why there is no token. For people: says a status and words of ours, and nothing that a stranger sent.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoToken {
    #[error("no access token: the token URL may not be dialled; set one that is public")]
    BadUrl,
    #[error("no access token: the authorization server gave no answer ({})", word(.0.cause))]
    NoAnswer(#[source] Failed),
    #[error("no access token: the authorization server answered {status}{}", said(*.code))]
    Refused { status: u16, code: Option<&'static str> },
    #[error("no access token: the authorization server's answer is not one of RFC 6749")]
    Unreadable,
    #[error("no access token: the authorization server gave one of another type than Bearer")]
    OtherType,
}

impl From<NoToken> for Failed {
    fn from(why: NoToken) -> Self {
        Self { cause: Cause::Token, source: Some(why.into()) }
    }
}

/// The cause's own word.
fn word(cause: Cause) -> String {
    let word = serde_json::to_value(cause).ok();
    word.and_then(|word| word.as_str().map(str::to_owned)).unwrap_or_default()
}

fn said(code: Option<&'static str>) -> String {
    code.map(|code| format!(" ({code})")).unwrap_or_default()
}

/// What we are at an authorization server.
pub(super) struct Client {
    url: Option<EndpointUrl>,
    id: String,
    secret: SecretText,
    scope: Option<String>,
    credentials_in: CredentialsIn,
    /// The name under which its token is kept: other settings or another secret want another token.
    name: Sha256Hash,
    /// Held by whoever asks; the others wait for what he gets.
    asking: Mutex<()>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("url", &self.url)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// What a server answers (RFC 6749, 5.1).
#[derive(Deserialize)]
struct Granted {
    access_token: String,
    token_type: Option<String>,
    expires_in: Option<Value>,
}

/// What it answers when it gives none (RFC 6749, 5.2).
#[derive(Deserialize)]
struct Denied {
    error: String,
}

/// The codes that it may say.
const CODES: [&str; 6] = [
    "invalid_request",
    "invalid_client",
    "invalid_grant",
    "unauthorized_client",
    "unsupported_grant_type",
    "invalid_scope",
];

impl Client {
    pub(super) fn new(
        endpoint: &Endpoint,
        policy: &AddressPolicy,
        (token_url, id): (&str, &str),
        scope: Option<&str>,
        credentials_in: CredentialsIn,
        secret: SecretText,
    ) -> Self {
        let tenant = &endpoint.tenant;
        let wanted = Zeroizing::new(format!(
            "{tenant} {} {token_url:?} {id:?} {scope:?} {credentials_in:?} {:?}",
            endpoint.id,
            secret.expose()
        ));
        Self {
            url: EndpointUrl::parse(token_url, policy).ok(),
            id: id.to_owned(),
            secret,
            scope: scope.map(str::to_owned),
            credentials_in,
            name: Sha256Hash::of(wanted.as_bytes()),
            asking: Mutex::default(),
        }
    }

    /// A token that can be used now, and whether it was asked for just now.
    pub(super) async fn token<K, T: Transport>(
        &self,
        keys: &Keys<K>,
        transport: &T,
        now: Timestamp,
        by: Instant,
    ) -> Result<(Token, bool), NoToken> {
        let late = || NoToken::NoAnswer(Failed::new(Cause::Timeout));
        if let Some(token) = keys.token(&self.name, now) {
            return Ok((token, false));
        }
        let _turn = timeout_at(by, self.asking.lock()).await.map_err(|_| late())?;
        // Somebody may have asked while we waited.
        if let Some(token) = keys.token(&self.name, now) {
            return Ok((token, false));
        }
        let url = self.url.clone().ok_or(NoToken::BadUrl)?;
        let post = self.request(url, by).ok_or(NoToken::BadUrl)?;
        let reply = transport.ask(post).await.map_err(NoToken::NoAnswer)?;
        let (value, used_for) = read(&reply)?;
        let until = now.saturating_add(used_for).unwrap_or(Timestamp::MAX);
        Ok((keys.keep(self.name, value, until), true))
    }

    /// The endpoint did not accept a token: the next one who needs one asks for another.
    pub(super) fn refused<K>(&self, keys: &Keys<K>, serial: u64) {
        keys.forget(&self.name, serial);
    }

    fn request(&self, url: EndpointUrl, by: Instant) -> Option<Post> {
        let mut headers = HeaderMap::new();
        let form = HeaderValue::from_static("application/x-www-form-urlencoded");
        headers.insert(header::CONTENT_TYPE, form);
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        headers.insert(header::USER_AGENT, HeaderValue::from_static(super::post::USER_AGENT));
        let mut body = Serializer::new(String::new());
        body.append_pair("grant_type", "client_credentials");
        if let Some(scope) = &self.scope {
            body.append_pair("scope", scope);
        }
        match self.credentials_in {
            CredentialsIn::Header => {
                // 2.3.1: both are form-encoded first, so that a colon in the id is none.
                let encoded = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
                let secret = Zeroizing::new(encoded(self.secret.expose()));
                let value = basic(&encoded(&self.id), &secret)?;
                headers.insert(header::AUTHORIZATION, value);
            }
            CredentialsIn::Body => {
                body.append_pair("client_id", &self.id);
                body.append_pair("client_secret", self.secret.expose());
            }
        }
        Some(Post { url, headers, body: body.finish().into(), by })
    }
}

/// `Authorization: Basic` (RFC 7617).
pub(super) fn basic(user: &str, password: &str) -> Option<HeaderValue> {
    let pair = Zeroizing::new(format!("{user}:{password}"));
    secret_value(&Zeroizing::new(format!("Basic {}", STANDARD.encode(pair.as_bytes()))))
}

/// A value that is not shown, and that HTTP/2 does not put into its tables.
pub(super) fn secret_value(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::try_from(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// The token of an answer, and for how long it is used.
fn read(reply: &Reply) -> Result<(SecretText, Duration), NoToken> {
    if !(200..300).contains(&reply.status) {
        let denied = serde_json::from_slice::<Denied>(&reply.body).ok();
        let code = denied.and_then(|denied| CODES.into_iter().find(|code| *code == denied.error));
        return Err(NoToken::Refused { status: reply.status, code });
    }
    // The error would quote what it could not read.
    let granted: Granted = serde_json::from_slice(&reply.body).map_err(|_| NoToken::Unreadable)?;
    let token = SecretText::new(granted.access_token);
    let fits = (1..=MAX_TOKEN).contains(&token.expose().len());
    if !fits || !token.expose().bytes().all(|b| b.is_ascii_graphic()) {
        return Err(NoToken::Unreadable);
    }
    if granted.token_type.is_some_and(|kind| !kind.eq_ignore_ascii_case("bearer")) {
        return Err(NoToken::OtherType);
    }
    let lives = granted.expires_in.as_ref().and_then(seconds).map_or(UNSAID, Duration::from_secs);
    // Of a short life, half: a token that is never used would be asked for every time.
    Ok((token, lives.saturating_sub(MARGIN.min(lives / 2)).min(LONGEST)))
}

/// A number of seconds; some servers write it as a text.
fn seconds(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(status: u16, body: &str) -> Reply {
        Reply { status, body: Zeroizing::new(body.as_bytes().to_vec()) }
    }

    /// RFC 6749, 5.1
    #[test]
    fn a_token_is_used_until_a_margin_before_its_end() {
        let check = |rest: &str, expected: u64| {
            let body = format!(r#"{{"access_token":"t0k"{rest}}}"#);
            let (token, used_for) = read(&reply(200, &body)).unwrap();
            assert_eq!(
                (token.expose(), used_for),
                ("t0k", Duration::from_secs(expected)),
                "{rest}"
            );
        };
        check(r#","token_type":"Bearer","expires_in":3600"#, 3540);
        check(r#","token_type":"bearer","expires_in":"3600","scope":"x""#, 3540);
        check(r#","token_type":"BEARER","expires_in":100"#, 50);
        check(r#","expires_in":0"#, 0);
        check("", 240);
        check(r#","expires_in":null"#, 240);
        check(r#","expires_in":1e3"#, 240);
        check(r#","expires_in":99999999999"#, 86_400);
    }

    /// RFC 6749, 5.2. SEC-secret-in-logs: nothing that a stranger says is repeated.
    #[test]
    fn what_is_no_token_is_said_in_our_words() {
        let check = |status: u16, body: &str, expected: &str| {
            let said = read(&reply(status, body)).unwrap_err().to_string();
            assert_eq!(said.strip_prefix("no access token: ").unwrap(), expected, "{body}");
        };
        let server = "the authorization server";
        check(
            401,
            r#"{"error":"invalid_client","error_description":"CANARY"}"#,
            &format!("{server} answered 401 (invalid_client)"),
        );
        check(400, r#"{"error":"CANARY"}"#, &format!("{server} answered 400"));
        check(302, "", &format!("{server} answered 302"));
        check(500, "<html>CANARY", &format!("{server} answered 500"));
        let unreadable = format!("{server}'s answer is not one of RFC 6749");
        for body in [
            "",
            "CANARY",
            "[]",
            "{}",
            r#"{"access_token":7}"#,
            r#"{"access_token":""}"#,
            r#"{"access_token":"CANARY\r\nx: y"}"#,
            r#"{"access_token":"a b"}"#,
            r#"{"access_token":"a","access_token":"b"}"#,
        ] {
            check(200, body, &unreadable);
        }
        check(200, &format!(r#"{{"access_token":"{}"}}"#, "t".repeat(8193)), &unreadable);
        check(
            200,
            r#"{"access_token":"CANARY","token_type":"mac"}"#,
            &format!("{server} gave one of another type than Bearer"),
        );
        let late = NoToken::NoAnswer(Failed::new(Cause::TlsExpired)).to_string();
        assert_eq!(late, format!("no access token: {server} gave no answer (tls_expired)"));
    }
}
