//! The address that confirms a subscription. The sender names it, so it is checked like an enemy's.

use crate::handshake::seen::{Found, Seen};
use crate::rejected::Reason;
use crate::scheme::Confirm;

/// Bytes of an address.
const MOST: usize = 2048;

pub(super) fn url(confirm: &Confirm, seen: &Seen<'_>) -> Result<String, Reason> {
    match seen.at(&confirm.url) {
        Found::Text(url) if is_of(&url, &confirm.hosts) => Ok(url.into_owned()),
        _ => Err(Reason::HandshakeMalformed { place: confirm.url.to_string() }),
    }
}

/// Whether it is `https://<one of the hosts>/...`, with no user, no port, no fragment and no unusual character, so that no
/// two readers can see different hosts in it.
fn is_of(url: &str, hosts: &[String]) -> bool {
    let Some((host, path)) = url.strip_prefix("https://").and_then(|rest| rest.split_once('/'))
    else {
        return false;
    };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/?&=%+:,@".contains(&byte);
    url.len() <= MOST && path.bytes().all(plain) && hosts.iter().any(|pattern| names(pattern, host))
}

fn names(pattern: &str, host: &str) -> bool {
    let label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    pattern.split('.').count() == host.split('.').count()
        && pattern
            .split('.')
            .zip(host.split('.'))
            .all(|(wanted, got)| label(got) && (wanted == "*" || wanted == got))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_address_of_a_named_host_is_fetched() {
        let hosts = ["sns.*.amazonaws.com".to_owned(), "sns.*.amazonaws.com.cn".to_owned()];
        let check = |url: &str, expected| assert_eq!(is_of(url, &hosts), expected, "{url}");
        check(
            "https://sns.us-east-1.amazonaws.com/?Action=ConfirmSubscription&TopicArn=arn:aws:sns:us-east-1:1:T&Token=2336",
            true,
        );
        check("https://sns.cn-north-1.amazonaws.com.cn/?Token=1", true);
        for bad in [
            "http://sns.us-east-1.amazonaws.com/?Token=1",
            "https://sns.us-east-1.amazonaws.com",
            "https://sns.us-east-1.amazonaws.com?Token=1",
            "https://sns.us-east-1.amazonaws.com:443/?Token=1",
            "https://sns.us-east-1.amazonaws.com@evil.example/?Token=1",
            "https://evil@sns.us-east-1.amazonaws.com/?Token=1",
            "https://sns.us-east-1.amazonaws.com.evil.example/?Token=1",
            "https://sns..amazonaws.com/?Token=1",
            "https://sns.a.b.amazonaws.com/?Token=1",
            "https://evil.example/sns.us-east-1.amazonaws.com/",
            "https://SNS.us-east-1.amazonaws.com/?Token=1",
            "https://sns.us-east-1.amazonaws.com/?Token=1#x",
            "https://sns.us-east-1.amazonaws.com/\\evil.example",
            "https://sns.us-east-1.amazonaws.com/?Token=1\r\nHost: x",
            "https://sns.\u{430}.amazonaws.com/",
            "https://127.0.0.1/",
            "",
        ] {
            check(bad, false);
        }
        check(&format!("https://sns.us-east-1.amazonaws.com/{}", "a".repeat(MOST)), false);
    }
}
