//! Endpoints as they are shown: without what may be a token where many are, and with how they have been doing.

use domain::{
    destination::Destination,
    endpoint::{Auth, Disabled, Endpoint, Gone, Health, Stop},
    ports::Deliveries as _,
};
use jiff::Timestamp;
use serde::Serialize;

use crate::{Api, Ports, Problem};

/// An endpoint, and how it has been doing.
#[derive(Debug, Serialize)]
pub struct EndpointView {
    #[serde(flatten)]
    pub(super) endpoint: Endpoint,
    pub(super) health: HealthView,
    /// When it was deleted. What it got is still shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    deleted_at: Option<Timestamp>,
}

/// How an endpoint has been doing.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct HealthView {
    state: State,
    /// In words, with what to do.
    words: String,
    /// Since when every attempt has failed.
    failing_since: Option<Timestamp>,
    /// Since when the deliverer sends nothing to it, and why: `gone`, `asked` or `failing`.
    disabled: Option<Disabled>,
}

/// How an endpoint is, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Good,
    Failing,
    Paused,
    Disabled,
    Deleted,
}

impl HealthView {
    /// Whether somebody should look: it fails, or it gets nothing.
    pub(super) fn is_unhealthy(&self) -> bool {
        !matches!(self.state, State::Good | State::Deleted)
    }

    pub(super) fn of(endpoint: &Endpoint, health: &Health) -> Self {
        // What it did before it was enabled counts no more.
        let health = match endpoint.enabled_at {
            Some(enabled) => health.clone().since(enabled),
            None => health.clone(),
        };
        let (disabled, failing_since) = (health.disabled, health.failing_since);
        let (state, words) = match (&endpoint.stopped, &disabled, failing_since) {
            (Some(stopped), _, _) if stopped.how == Stop::Paused => {
                let words = format!(
                    "paused since {}: {}; what it would get is held until `resume`",
                    stopped.since, stopped.reason
                );
                (State::Paused, words)
            }
            (Some(stopped), _, _) => {
                let words = format!(
                    "disabled since {}: {}; what it would get is held until `enable`",
                    stopped.since, stopped.reason
                );
                (State::Disabled, words)
            }
            (None, Some(Disabled { since, reason }), _) => {
                (State::Disabled, format!("disabled since {since}: {}", why(reason)))
            }
            (None, None, Some(since)) => {
                (State::Failing, format!("every attempt has failed since {since}"))
            }
            (None, None, None) => (State::Good, "good".to_owned()),
        };
        Self { state, words, failing_since, disabled }
    }
}

/// Why the deliverer has disabled an endpoint, in words.
fn why(reason: &str) -> String {
    let cause = match reason {
        "gone" => "it answered 410 Gone",
        "failing" => "every attempt had failed for days",
        "asked" => "it asked for it in its answer",
        other => other,
    };
    format!("{cause}; what it would get is held: mend the receiver, then `enable`")
}

impl EndpointView {
    /// An endpoint as it is, with its whole URL.
    pub(super) async fn whole<P: Ports>(api: &Api<P>, endpoint: Endpoint) -> Result<Self, Problem> {
        let health = api.deliveries.health(&endpoint.tenant, endpoint.id).await?;
        let health = HealthView::of(&endpoint, &health);
        Ok(Self { endpoint, health, deleted_at: None })
    }

    /// The same among others.
    pub(super) async fn listed<P: Ports>(
        api: &Api<P>,
        endpoint: Endpoint,
    ) -> Result<Self, Problem> {
        Self::whole(api, without_tokens(endpoint)).await
    }

    /// What is left of one that was deleted.
    pub(super) fn gone(Gone { endpoint, deleted_at }: Gone) -> Self {
        let words = format!("deleted at {deleted_at}; nothing is sent to it");
        let health =
            HealthView { state: State::Deleted, words, failing_since: None, disabled: None };
        Self { endpoint: without_tokens(endpoint), health, deleted_at: Some(deleted_at) }
    }
}

fn without_tokens(endpoint: Endpoint) -> Endpoint {
    let destination = shown(&endpoint.destination);
    let auth = endpoint.auth.map(|auth| match auth {
        Auth::OAuth2 { token_url, client_id, scope, credentials_in } => {
            Auth::OAuth2 { token_url: shape(&token_url), client_id, scope, credentials_in }
        }
        other @ (Auth::Basic { .. } | Auth::Bearer) => other,
    });
    Endpoint { destination, auth, ..endpoint }
}

/// A destination as lists show it. The address of a queue or a bus opens nothing by itself.
pub(crate) fn shown(destination: &Destination) -> Destination {
    match destination {
        Destination::Https(url) => Destination::Https(shape(url)),
        other @ (Destination::Queue(_) | Destination::Bus(_) | Destination::Poll(_)) => {
            other.clone()
        }
    }
}

/// Names of a query's parts that hold what should not be in a URL, in lower case.
const TOKENS: [&str; 8] =
    ["token", "key", "apikey", "api_key", "secret", "password", "sig", "access_token"];

/// That a URL seems to hold a token: proxies and servers write URLs into their logs.
pub(super) fn may_hold_token(destination: &Destination) -> Option<String> {
    let Destination::Https(url) = destination else { return None };
    let url = url::Url::parse(url).ok()?;
    let mut names = url.query_pairs().map(|(name, _)| name.to_ascii_lowercase());
    names.find(|name| TOKENS.contains(&name.as_str())).map(|name| {
        format!(
            "The URL seems to hold a token (`{name}`), which servers and proxies on the way write into their logs. The \
             signature says who calls; or use `headers` or `auth`, which are kept encrypted."
        )
    })
}

/// Longest first part of a path that is shown.
const SHOWN: usize = 20;

/// The URL as lists show it: the host, and the first part of the path if it is a plain word. Many receivers put a token
/// into the path or the query.
fn shape(url: &str) -> String {
    let Ok(url) = url::Url::parse(url) else { return "…".to_owned() };
    let mut shape = url[..url::Position::BeforePath].to_owned();
    let mut parts = url.path_segments().into_iter().flatten();
    let first = parts.next().unwrap_or_default();
    let is_word = |part: &str| {
        let is_version =
            part.strip_prefix('v').is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()));
        let is_plain = |b: u8| b.is_ascii_lowercase() || b == b'-' || b == b'_';
        part.len() <= SHOWN && (is_version || part.bytes().all(is_plain))
    };
    shape.push('/');
    shape.push_str(if is_word(first) { first } else { "…" });
    if parts.any(|part| !part.is_empty()) {
        shape.push_str("/…");
    }
    if url.query().is_some() {
        shape.push_str("?…");
    }
    shape
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn health_is_what_counts_since_an_endpoint_was_enabled() {
        use domain::{endpoint::Stopped, id::EndpointId};
        let id = EndpointId::new(uuid::Uuid::from_u128(7));
        let url = Destination::Https("https://example.com/".to_owned());
        let plain = Endpoint::new("acme".parse().unwrap(), id, url, at(0));
        let failing =
            Health { failing_since: Some(at(50)), consecutive_failures: 1, ..Health::default() };
        let disabled = Some(Disabled { since: at(60), reason: "gone".to_owned() });
        let gone = Health { disabled, ..failing.clone() };
        let stopped = |how| {
            let stopped = Some(Stopped { since: at(70), how, reason: "R".to_owned() });
            Endpoint { stopped, ..plain.clone() }
        };
        let enabled = |second| Endpoint { enabled_at: Some(at(second)), ..plain.clone() };
        let check = |endpoint: &Endpoint, health: &Health, state: State, says: &str| {
            let view = HealthView::of(endpoint, health);
            assert_eq!(view.state, state, "{}", view.words);
            assert_eq!(view.is_unhealthy(), state != State::Good);
            assert!(view.words.contains(says), "{}", view.words);
        };
        check(&plain, &Health::default(), State::Good, "good");
        check(&plain, &failing, State::Failing, "1970-01-01T00:00:50Z");
        check(&plain, &gone, State::Disabled, "it answered 410 Gone");
        check(&stopped(Stop::Paused), &gone, State::Paused, "R; what it would get is held");
        check(&stopped(Stop::Disabled), &Health::default(), State::Disabled, "until `enable`");
        check(&enabled(61), &gone, State::Good, "good");
        check(&enabled(59), &gone, State::Disabled, "410");
        check(&enabled(49), &failing, State::Failing, "00:00:50Z");
    }

    /// I7
    #[test]
    fn a_url_with_a_token_in_its_query_is_warned_of() {
        let check = |url: &str, expected: Option<&str>| {
            let warning = may_hold_token(&Destination::Https(url.to_owned()));
            assert_eq!(warning.is_some(), expected.is_some(), "{url}");
            let warning = warning.unwrap_or_default();
            assert!(warning.contains(expected.unwrap_or_default()) && !warning.contains("CANARY"));
        };
        check("https://example.com/in?token=CANARY", Some("`token`"));
        check("https://example.com/in?a=1&API_KEY=CANARY", Some("`api_key`"));
        check("https://example.com/in?tokens=1", None);
        check("https://example.com/token/x", None);
    }

    /// SEC-url-token
    #[test]
    fn the_shape_of_a_url_holds_no_token() {
        let check = |url: &str, expected: &str| assert_eq!(shape(url), expected, "{url}");
        check("https://example.com/", "https://example.com/");
        check("https://example.com/webhooks", "https://example.com/webhooks");
        check("https://example.com:8443/v1/receive", "https://example.com:8443/v1/…");
        check(
            "https://hooks.example.com/v1/receive?token=CANARY",
            "https://hooks.example.com/v1/…?…",
        );
        check("https://example.com/hooks/CANARY", "https://example.com/hooks/…");
        check("https://example.com/hooks/", "https://example.com/hooks");
        check("https://example.com/CANARY/in", "https://example.com/…/…");
        check("https://example.com/c4n4ry", "https://example.com/…");
        check("https://example.com/?CANARY", "https://example.com/?…");
        check("https://example.com/canarycanarycanarycanary", "https://example.com/…");
        check("https://example.com/v1canary", "https://example.com/…");
        check("https://[2606:4700::1]/in", "https://[2606:4700::1]/in");
        check("canary", "…");
    }
}
