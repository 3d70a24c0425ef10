//! What an outcome means, for a person who has never seen this program: what happened, why that usually is, and what to
//! do now. None of it names an address or repeats what a stranger sent.

use std::{borrow::Cow, fmt};

use super::{Cause, Outcome, Steer};

/// An outcome in plain words. Each part is a whole sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Words {
    /// What happened.
    pub what: Cow<'static, str>,
    /// Why that usually is.
    pub why: &'static str,
    /// What to do, and what Postern does by itself.
    pub next: &'static str,
}

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, why, next } = self;
        write!(f, "{what} {why} {next}")
    }
}

const fn words(what: &'static str, why: &'static str, next: &'static str) -> Words {
    Words { what: Cow::Borrowed(what), why, next }
}

impl Cause {
    /// What it means.
    pub const fn words(self) -> Words {
        match self {
            Self::Dns | Self::BlockedAddress | Self::Refused | Self::ConnectTimeout => {
                self.of_the_way()
            }
            Self::TlsExpired | Self::TlsWrongHost | Self::TlsUnknownIssuer | Self::Tls => {
                self.of_tls()
            }
            Self::Timeout | Self::Reset | Self::BadAnswer | Self::Redirect | Self::Token => {
                self.of_the_answer()
            }
            Self::NoSuchTarget
            | Self::Denied
            | Self::Throttled
            | Self::Unavailable
            | Self::TooLarge
            | Self::Unacceptable => self.of_the_service(),
            Self::OutcomeUnknown
            | Self::Unacknowledged
            | Self::Internal
            | Self::Expired
            | Self::HeldExpired => self.of_ours(),
        }
    }

    const fn of_the_way(self) -> Words {
        match self {
            Self::Dns => words(
                "The host name of the endpoint was not found.",
                "The name is misspelt or has no address record, or its name servers do not answer.",
                "Check the URL and the name's A and AAAA records; Postern tries again by itself.",
            ),
            Self::BlockedAddress => words(
                "Nothing was sent, because Postern may not send there.",
                "The URL, or an address that its host name stands for, is not public: private, loopback, link-local and reserved ranges are refused, and so are other ports than 443 and 8443.",
                "Point the host name at public addresses only, or change the URL; Postern tries again by itself.",
            ),
            Self::Refused => words(
                "The connection was refused.",
                "Nothing listens at that address and port, or a firewall turns Postern away.",
                "Start the receiver, check its port, and let Postern's addresses through the firewall; Postern tries again by itself.",
            ),
            _ => words(
                "No connection came about in time.",
                "The receiver is down, or a firewall drops what Postern sends without a word.",
                "Check that the receiver is up and its firewall lets Postern in; Postern tries again by itself.",
            ),
        }
    }

    const fn of_tls(self) -> Words {
        match self {
            Self::TlsExpired => words(
                "The certificate of the endpoint has expired.",
                "It was not renewed, or the renewed one is not in use yet.",
                "Renew the certificate and reload the server; Postern tries again by itself.",
            ),
            Self::TlsWrongHost => words(
                "The certificate of the endpoint is for another host name.",
                "The URL names another host than the certificate does, or the server shows its default certificate.",
                "Install a certificate that names the URL's host; Postern tries again by itself.",
            ),
            Self::TlsUnknownIssuer => words(
                "The certificate of the endpoint comes from an issuer that is not trusted.",
                "It is self-signed or of a private authority, or the server does not send the intermediate certificates.",
                "Use a certificate of a public authority, and send the full chain; Postern tries again by itself.",
            ),
            _ => words(
                "No encrypted connection came about.",
                "The server does not speak TLS 1.2 or 1.3 on this port, or it gave up the handshake.",
                "Check the server's TLS settings; Postern tries again by itself.",
            ),
        }
    }

    const fn of_the_answer(self) -> Words {
        match self {
            Self::Timeout => words(
                "The endpoint did not answer in time.",
                "The receiver works on the event before it answers, or it hangs.",
                "Store the event, answer 2xx at once, and work on it afterwards; Postern tries again by itself, with the same id.",
            ),
            Self::Reset => words(
                "The connection broke before there was an answer.",
                "The receiver or a proxy in front of it crashed, restarted or closed the connection.",
                "Look into the receiver's log at this time; Postern tries again by itself, with the same id.",
            ),
            Self::Redirect => words(
                "The endpoint answered with a redirect, and Postern does not follow redirects.",
                "The receiver has moved, or it sends from one spelling of its address to another.",
                "Set the endpoint's URL to where the receiver is now; Postern tries again by itself.",
            ),
            Self::Token => words(
                "The authorization server of the endpoint gave no access token.",
                "The token URL, the client id, the client secret or the scope is wrong or has been withdrawn, or the authorization server is down.",
                "Check the endpoint's `auth` with whoever runs that server; Postern tries again by itself.",
            ),
            _ => words(
                "What came back was not a proper HTTP answer.",
                "Something other than a web server listens there, or its headers are too large.",
                "Check that the URL leads to the receiver itself; Postern tries again by itself.",
            ),
        }
    }

    const fn of_the_service(self) -> Words {
        match self {
            Self::NoSuchTarget => words(
                "There is no such queue or bus.",
                "It was deleted or is in another account or region.",
                "Create it again, or change the endpoint; Postern tries again by itself.",
            ),
            Self::Denied => words(
                "The queue or bus did not let Postern in.",
                "Its policy, or the policy of the key that encrypts it, does not allow the deliverer's role.",
                "Allow the role to send there; Postern tries again by itself.",
            ),
            Self::Throttled => words(
                "The service of the queue or bus was too busy to take the event.",
                "A quota of the account is used up at this moment.",
                "Nothing need be done; raise the quota if it goes on. Postern tries again by itself.",
            ),
            Self::Unavailable => words(
                "The service of the queue or bus failed.",
                "It had trouble of its own.",
                "Nothing need be done; Postern tries again by itself, with the same id.",
            ),
            Self::TooLarge => words(
                "The event is larger than the queue or bus takes.",
                "Queues and buses take 1 MiB at most, with everything beside the payload, and less if they were set to less.",
                "Publish a smaller payload, or send it to a URL; Postern does not try again.",
            ),
            _ => words(
                "The queue or bus cannot take this event.",
                "A bus takes JSON objects only, and a queue takes no control characters.",
                "Change the payload or the kind of endpoint; Postern does not try again.",
            ),
        }
    }

    const fn of_ours(self) -> Words {
        match self {
            Self::OutcomeUnknown => words(
                "Nobody knows whether the event arrived.",
                "The request left and no answer came, and this endpoint does not recognise repetitions.",
                "Ask the receiver by the event's id. If it does not have it, redeliver; Postern does not try again by itself.",
            ),
            Self::Unacknowledged => words(
                "The event was fetched, and not acknowledged in time.",
                "Whoever polls died, was slow, or fetched it and could not work on it.",
                "Look into the log of whoever polls; it can fetch the event again.",
            ),
            Self::Internal => words(
                "Postern could not make the request.",
                "A secret, the event or its payload could not be had. The endpoint is not at fault.",
                "The operator finds the reason in the deliverer's log; Postern tries again by itself.",
            ),
            Self::Expired => words(
                "The event was given up without a further try.",
                "Its time ran out while the endpoint was left alone after many failures.",
                "Mend the receiver, then redeliver what it missed.",
            ),
            _ => words(
                "The event was given up without a further try.",
                "The endpoint was disabled for longer than events are held for it.",
                "Enable the endpoint, then redeliver what it missed.",
            ),
        }
    }
}

impl Outcome {
    /// What it means.
    pub fn words(&self) -> Words {
        match self {
            Self::Failed { cause } => cause.words(),
            Self::Answered { status, .. } => {
                let (why, next) = of_status(*status);
                Words { what: format!("The endpoint answered {status}.").into(), why, next }
            }
            Self::Steered { status, steer } => {
                let (word, why, next) = of_steer(*steer);
                let what =
                    format!("The endpoint answered {status}, with `webhook-delivery: {word}`.");
                Words { what: what.into(), why, next }
            }
        }
    }
}

/// What a receiver says, why it says so, and what to do.
const fn of_steer(steer: Steer) -> (&'static str, &'static str, &'static str) {
    match steer {
        Steer::Disable => (
            "disable",
            "With it a receiver says that it wants nothing more.",
            "The endpoint is disabled and its events are held. Delete it, or enable it when the receiver wants them again.",
        ),
        Steer::Abort => (
            "abort",
            "With it a receiver says that it will never take this event.",
            "Its log says why. Redeliver the event when the reason is gone; Postern does not try again by itself.",
        ),
    }
}

/// Why an endpoint answers like that, and what to do.
const fn of_status(status: u16) -> (&'static str, &'static str) {
    match status {
        200..=299 => ("It took the event.", "Nothing need be done."),
        300..=399 => (
            "Only 2xx says that an event was taken.",
            "Set the endpoint's URL to where the receiver is; Postern tries again by itself.",
        ),
        401 | 403 | 407 => (
            "The receiver, or something in front of it, does not know Postern: a signature that is not accepted, credentials that have changed, or a firewall.",
            "Compare the signing secret and the endpoint's `auth` with the receiver's; Postern tries again by itself.",
        ),
        404 | 405 => (
            "Nothing at this path takes POST requests.",
            "Check the path of the URL and the receiver's routes; Postern tries again by itself.",
        ),
        408 | 425 => (
            "The receiver did not get to the request in time.",
            "Nothing need be done unless it goes on; Postern tries again by itself.",
        ),
        410 => (
            "That says that the receiver is gone for good.",
            "The endpoint is disabled and its events are held. Delete it, or enable it when the receiver is back.",
        ),
        413 => (
            "The receiver, or a proxy in front of it, does not take a body of this size.",
            "Raise its limit to 1 MB, or set the endpoint's style to `thin`; Postern tries again by itself.",
        ),
        415 => (
            "The receiver does not take this content type.",
            "Let it take `application/json` (`application/cloudevents+json` for CloudEvents), or change the endpoint's style; Postern tries again by itself.",
        ),
        429 => (
            "The receiver is being sent too much at once.",
            "Postern slows down and tries again by itself, no earlier than `Retry-After` says. Set the endpoint's rate or concurrency lower if it goes on.",
        ),
        400..=499 => (
            "The receiver read the request and does not want it.",
            "Its log says why; let it answer 2xx to events that it has no use for. Postern tries again by itself.",
        ),
        502..=504 => (
            "A proxy in front of the receiver got no answer from it, or the receiver is down for the moment.",
            "Check that the receiver is up; Postern tries again by itself, with the same id.",
        ),
        _ => (
            "The receiver failed while it worked on the event.",
            "Its log says why; Postern tries again by itself, with the same id.",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAUSES: [Cause; 23] = [
        Cause::Dns,
        Cause::BlockedAddress,
        Cause::Refused,
        Cause::ConnectTimeout,
        Cause::TlsExpired,
        Cause::TlsWrongHost,
        Cause::TlsUnknownIssuer,
        Cause::Tls,
        Cause::Timeout,
        Cause::Reset,
        Cause::BadAnswer,
        Cause::Redirect,
        Cause::Token,
        Cause::NoSuchTarget,
        Cause::Denied,
        Cause::Throttled,
        Cause::Unavailable,
        Cause::TooLarge,
        Cause::Unacceptable,
        Cause::OutcomeUnknown,
        Cause::Internal,
        Cause::Expired,
        Cause::HeldExpired,
    ];

    /// J32: what, why, and what to do, in whole sentences; no two outcomes read alike.
    #[test]
    fn every_outcome_says_what_why_and_what_to_do() {
        let failed = CAUSES.into_iter().map(|cause| Outcome::Failed { cause });
        let answered = (100..=599).map(|status| Outcome::Answered { status, retry_after_ms: None });
        let steered =
            [Steer::Disable, Steer::Abort].map(|steer| Outcome::Steered { status: 500, steer });
        let mut seen = std::collections::BTreeSet::new();
        for outcome in failed.chain(answered).chain(steered) {
            let words = outcome.words();
            for part in [words.what.as_ref(), words.why, words.next] {
                assert!(part.ends_with('.') && part.len() > 12, "{outcome:?}: {part}");
                assert!(part.starts_with(char::is_uppercase), "{outcome:?}: {part}");
                assert!(part.is_ascii(), "{outcome:?}: {part}");
            }
            assert!(seen.insert(words.to_string()), "{outcome:?} reads like another");
        }
    }

    /// What the words promise is what the rules do.
    #[test]
    fn words_say_that_it_is_tried_again_exactly_where_it_is() {
        for cause in CAUSES {
            let again = !matches!(
                cause,
                Cause::TooLarge
                    | Cause::Unacceptable
                    | Cause::OutcomeUnknown
                    | Cause::Expired
                    | Cause::HeldExpired
            );
            assert_eq!(cause.words().next.contains("Postern tries again"), again, "{cause:?}");
        }
    }

    #[test]
    fn a_status_is_named_and_its_class_explained() {
        let check = |status: u16, expected: &str| {
            let words = Outcome::Answered { status, retry_after_ms: None }.words();
            assert_eq!(words.what, format!("The endpoint answered {status}."));
            assert!(words.to_string().contains(expected), "{words}");
        };
        check(204, "took the event");
        check(304, "Only 2xx");
        check(401, "signing secret");
        check(404, "path");
        check(410, "disabled");
        check(413, "size");
        check(422, "does not want it");
        check(429, "Retry-After");
        check(500, "failed");
        check(503, "proxy");
        check(599, "failed");
    }
}
