//! How an attempt ended.

use std::time::Duration;

use jiff::{Timestamp, civil::DateTime, tz::TimeZone};
use serde::{Deserialize, Serialize};

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Outcome {
    /// The endpoint answered.
    Answered {
        /// The HTTP status.
        status: u16,
        /// How long it asked us to wait, in milliseconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after_ms: Option<u64>,
    },
    /// The endpoint answered, and said what to do with what it is sent.
    Steered {
        /// The HTTP status.
        status: u16,
        /// What it said.
        steer: Steer,
    },
    /// No complete answer, or none that is followed.
    Failed {
        /// Why.
        cause: Cause,
    },
}

/// What a receiver says with the header `webhook-delivery` of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Steer {
    /// It wants nothing more, ever: the endpoint is disabled, and what it would have got is held. With any status.
    Disable,
    /// It will never take this delivery: do not try again. With any status but 2xx, which has taken it.
    Abort,
}

impl Steer {
    /// Reads the value of the header. Anything else says nothing.
    pub fn read(value: &str) -> Option<Self> {
        match value.trim_ascii() {
            "disable" => Some(Self::Disable),
            "abort" => Some(Self::Abort),
            _ => None,
        }
    }
}

/// Why there was no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The name does not resolve.
    Dns,
    /// Our policy forbids the address or the URL; no connection was made.
    BlockedAddress,
    /// Nobody listens.
    Refused,
    /// No connection in time.
    ConnectTimeout,
    /// The certificate has expired.
    TlsExpired,
    /// The certificate is for another host.
    TlsWrongHost,
    /// The certificate's issuer is unknown.
    TlsUnknownIssuer,
    /// Another TLS failure.
    Tls,
    /// Connected, but no complete answer in time.
    Timeout,
    /// The connection broke.
    Reset,
    /// The answer is not HTTP, or its head is too large.
    BadAnswer,
    /// The answer leads elsewhere, and we never follow.
    Redirect,
    /// The endpoint's own authorization server gave us no token for it.
    Token,
    /// There is no such queue or bus.
    NoSuchTarget,
    /// The queue or bus does not let us in, or our role does not let us out.
    Denied,
    /// The service of the queue or bus is busy, and did not take it.
    Throttled,
    /// The service of the queue or bus failed.
    Unavailable,
    /// The payload has more bytes than the queue or bus takes. Trying again would not help.
    TooLarge,
    /// The queue or bus does not take what the payload holds, or how the event is called. Trying again would not help.
    Unacceptable,
    /// A request may have arrived, and its target does not recognise repetitions. It waits for a person.
    OutcomeUnknown,
    /// Fetched by a poller, and not acknowledged in time.
    Unacknowledged,
    /// Something of our own: a key or a body that could not be had. Not the endpoint's fault.
    Internal,
    /// Not tried any more: the deadline passed while the endpoint was left alone.
    Expired,
    /// Not tried any more: the endpoint was disabled for longer than deliveries are held.
    HeldExpired,
}

impl Outcome {
    /// What an answer means: its status, the pause in it, and what its receiver says of what it is sent.
    pub const fn answered(status: u16, retry_after_ms: Option<u64>, steer: Option<Steer>) -> Self {
        match (steer, status) {
            (None, _) | (Some(Steer::Abort), 200..=299) => {
                Self::Answered { status, retry_after_ms }
            }
            (Some(steer), _) => Self::Steered { status, steer },
        }
    }

    /// The HTTP status, if there was an answer.
    pub const fn status(&self) -> Option<u16> {
        match self {
            Self::Answered { status, .. } | Self::Steered { status, .. } => Some(*status),
            Self::Failed { .. } => None,
        }
    }

    /// 2xx is success and nothing else is.
    pub const fn is_success(&self) -> bool {
        matches!(self.status(), Some(200..=299))
    }

    /// Whether the endpoint wants nothing more, and in which word that is noted: `gone` (410) or `asked`.
    pub const fn disables(&self) -> Option<&'static str> {
        match self {
            Self::Steered { steer: Steer::Disable, .. } => Some("asked"),
            Self::Answered { status: 410, .. } => Some("gone"),
            Self::Answered { .. } | Self::Steered { .. } | Self::Failed { .. } => None,
        }
    }

    /// Whether it says something about the endpoint, good or bad. An abort is about one delivery.
    pub const fn blames_endpoint(&self) -> bool {
        !matches!(
            self,
            Self::Steered { steer: Steer::Abort, .. }
                | Self::Failed {
                    cause: Cause::Internal
                        | Cause::Expired
                        | Cause::HeldExpired
                        | Cause::TooLarge
                        | Cause::Unacceptable
                        | Cause::OutcomeUnknown
                }
        )
    }

    /// Whether a failed request may have done what it asked for, so that only a target that recognises repetitions may
    /// see it again.
    ///
    /// What failed before a request was complete at the other side has done nothing. A status below 500 refuses. One
    /// from 500 on says that something broke, and not that nothing happened before; proxies give 502, 503 and 504 for
    /// an answer that they lost. A 503 that says when to come again comes from one who did not begin.
    pub const fn may_have_happened(&self) -> bool {
        match self {
            Self::Answered { status: 503, retry_after_ms: Some(_) } => false,
            // It saw the request and says that it will never do it.
            Self::Steered { steer: Steer::Abort, .. } => false,
            Self::Answered { status, .. } | Self::Steered { status, .. } => *status >= 500,
            Self::Failed { cause } => matches!(
                cause,
                Cause::Timeout
                    | Cause::Reset
                    | Cause::BadAnswer
                    | Cause::Unavailable
                    | Cause::OutcomeUnknown
            ),
        }
    }

    /// The pause that the endpoint asked for. Other statuses than 429 and 503 ask for none, whatever they carry.
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Answered { status: 429 | 503, retry_after_ms: Some(ms) } => {
                Some(Duration::from_millis(*ms))
            }
            Self::Answered { .. } | Self::Steered { .. } | Self::Failed { .. } => None,
        }
    }
}

/// Reads the value of a `Retry-After` header: seconds, or a date.
///
/// A pause that is nothing, in the past, or not in one of the two forms is none. More seconds than fit are as many as
/// fit: the cap comes later.
pub fn retry_after(value: &str, now: Timestamp) -> Option<Duration> {
    let value = value.trim_ascii();
    let pause = if !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit()) {
        Duration::from_secs(value.parse().unwrap_or(u64::MAX))
    } else {
        Duration::try_from(http_date(value)?.duration_since(now)).ok()?
    };
    (!pause.is_zero()).then_some(pause)
}

/// Reads a date as HTTP writes it: today's form, and the two obsolete ones that a recipient still has to read (RFC 9110,
/// 5.6.7).
fn http_date(value: &str) -> Option<Timestamp> {
    if let Ok(date) = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(value) {
        return Some(date);
    }
    ["%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"]
        .iter()
        .find_map(|form| DateTime::strptime(form, value).ok())
        .and_then(|date| TimeZone::UTC.to_timestamp(date).ok())
}
