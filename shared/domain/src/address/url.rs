//! The URL of an endpoint, checked before anything is done with it.

use std::{fmt, net::IpAddr};

use url::{Host, Url};

use super::{AddressPolicy, Blocked, Rule};

/// Longest URL of an endpoint, in bytes: what proxies and logs on the way still take.
pub const MAX_URL: usize = 2048;

/// Longest name of a host, in bytes (RFC 1035).
const MAX_NAME: usize = 253;

/// Longest part of such a name, in bytes.
const MAX_LABEL: usize = 63;

/// Endings of names that never lead to the public internet.
const INTERNAL: [&str; 5] = ["localhost", "localdomain", "local", "internal", "home.arpa"];

/// The URL of an endpoint in its one canonical spelling. To have one means that it was checked.
#[derive(Clone, PartialEq, Eq)]
pub struct EndpointUrl(Url);

/// Why a text is not the URL of an endpoint. Written for whoever typed it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadUrl {
    /// Over [`MAX_URL`].
    #[error("the URL is longer than {MAX_URL} bytes; use a shorter one")]
    TooLong,
    /// Another scheme than https, or none.
    #[error("the URL must begin with https://, because events are sent encrypted only")]
    Scheme,
    /// A character that URL parsers read differently.
    #[error(
        "the URL contains {0}, which programs read in different ways; write spaces and special characters percent-encoded"
    )]
    Character(&'static str),
    /// Credentials before the host.
    #[error(
        "the URL contains a user name or a password (`@` before the host); deliveries are signed instead, so leave it away"
    )]
    UserInfo,
    /// A fragment, which is never sent.
    #[error("the URL contains a fragment (`#`), which is never sent; leave it away")]
    Fragment,
    /// Nothing where the host should be.
    #[error("the URL has no host")]
    NoHost,
    /// A percent sign in the host: an encoded name, or the zone of an IPv6 address.
    #[error("the URL's host contains `%`; write the name as it is, and addresses without a zone")]
    Percent,
    /// No host at all by the rules for names and addresses.
    #[error("the URL's host is not a valid name or address")]
    BadHost,
    /// A host that is read as another one.
    #[error("the URL's host or port would be read as `{0}`; write it like that")]
    Respelled(String),
    /// A name with a final dot.
    #[error("the URL's host ends in a dot; leave the dot away")]
    TrailingDot,
    /// A name without a dot in it.
    #[error("the URL's host `{0}` is a name of a local network; use a public name with its domain")]
    SingleLabel(String),
    /// A name that only means something inside a network.
    #[error(
        "the URL's host ends in `.{0}`, which never leads to a public address; use a public name"
    )]
    Internal(&'static str),
    /// A port that is not dialled.
    #[error("the URL's port {0} is not allowed; use 443 or 8443")]
    Port(u16),
    /// A literal address that is not dialled.
    #[error("the URL's host must be a public address")]
    Blocked(#[from] Blocked),
    /// Nothing of the above, and still not a URL.
    #[error("the URL cannot be read")]
    Malformed,
}

impl EndpointUrl {
    /// Reads and checks a URL: at every create, update and test, and again before every send.
    ///
    /// # Errors
    /// [`BadUrl`] says what is wrong with it.
    pub fn parse(text: &str, policy: &AddressPolicy) -> Result<Self, BadUrl> {
        let authority = authority(text)?;
        let url = Url::parse(text).map_err(|error| match error {
            ::url::ParseError::EmptyHost => BadUrl::NoHost,
            ::url::ParseError::InvalidPort => BadUrl::Malformed,
            _ => BadUrl::BadHost,
        })?;
        if url.scheme() != "https" || !url.username().is_empty() || url.password().is_some() {
            return Err(BadUrl::Malformed);
        }
        match url.host().ok_or(BadUrl::NoHost)? {
            Host::Ipv4(address) => check_literal(address.into(), &url, authority, policy)?,
            Host::Ipv6(address) => check_literal(address.into(), &url, authority, policy)?,
            Host::Domain(name) => check_name(name, &url, authority, policy)?,
        }
        let port = url.port_or_known_default().unwrap_or_default();
        if policy.allows_port(port) { Ok(Self(url)) } else { Err(BadUrl::Port(port)) }
    }

    /// The canonical text.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// The parsed URL.
    pub const fn as_url(&self) -> &Url {
        &self.0
    }

    /// Host and port as they stand in a request: the port only if it is not 443.
    pub fn authority(&self) -> String {
        spelled(&self.0)
    }

    /// Path and query.
    pub fn path_and_query(&self) -> String {
        match self.0.query() {
            Some(query) => format!("{}?{query}", self.0.path()),
            None => self.0.path().to_owned(),
        }
    }
}

// A path and a query may hold a token of the endpoint's.
impl fmt::Debug for EndpointUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EndpointUrl(https://{}/..)", self.authority())
    }
}

impl fmt::Display for EndpointUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The part between `https://` and the path, after everything was refused that parsers disagree about. It is only
/// compared with what the parser found, never used.
fn authority(text: &str) -> Result<&str, BadUrl> {
    if text.len() > MAX_URL {
        return Err(BadUrl::TooLong);
    }
    // Before the scheme: what surrounds a URL is cut off by some programs and sent by others.
    for c in text.chars() {
        match c {
            '\\' => return Err(BadUrl::Character("a backslash")),
            c if c.is_control() => return Err(BadUrl::Character("a control character")),
            c if c.is_whitespace() => return Err(BadUrl::Character("a space")),
            _ => {}
        }
    }
    let scheme = text.get(..8).filter(|scheme| scheme.eq_ignore_ascii_case("https://"));
    let rest = scheme.and_then(|scheme| text.get(scheme.len()..)).ok_or(BadUrl::Scheme)?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        return Err(BadUrl::UserInfo);
    }
    if text.contains('#') {
        return Err(BadUrl::Fragment);
    }
    if authority.is_empty() || authority.starts_with(':') {
        return Err(BadUrl::NoHost);
    }
    if authority.contains('%') {
        return Err(BadUrl::Percent);
    }
    Ok(authority)
}

fn check_literal(
    address: IpAddr,
    url: &Url,
    authority: &str,
    policy: &AddressPolicy,
) -> Result<(), BadUrl> {
    policy.check(address)?;
    // Public, but in a notation that others may read differently: decimal, octal, hexadecimal, short, mapped.
    let plain = match address {
        IpAddr::V4(_) => spelling_of(url, authority),
        IpAddr::V6(v6) => v6.to_ipv4_mapped().is_none(),
    };
    if plain {
        return Ok(());
    }
    Err(BadUrl::Respelled(address.to_canonical().to_string()))
}

fn check_name(
    name: &str,
    url: &Url,
    authority: &str,
    policy: &AddressPolicy,
) -> Result<(), BadUrl> {
    let Some(bare) = name.strip_suffix('.').or(Some(name)).filter(|bare| !bare.is_empty()) else {
        return Err(BadUrl::NoHost);
    };
    let local = bare == "localhost" || bare.ends_with(".localhost");
    if !(local && policy.allow_loopback) {
        if let Some(ending) = INTERNAL.into_iter().find(|ending| is_under(bare, ending)) {
            return Err(BadUrl::Internal(ending));
        }
        if !bare.contains('.') {
            return Err(BadUrl::SingleLabel(bare.to_owned()));
        }
    }
    if bare != name {
        return Err(BadUrl::TrailingDot);
    }
    let label = |label: &str| {
        (1..=MAX_LABEL).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    if name.len() > MAX_NAME || !name.split('.').all(label) {
        return Err(BadUrl::BadHost);
    }
    if spelling_of(url, authority) { Ok(()) } else { Err(BadUrl::Respelled(spelled(url))) }
}

/// Whether a name is an ending or lies under it.
fn is_under(name: &str, ending: &str) -> bool {
    name.strip_suffix(ending).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// Host and port as the parser understood them.
fn spelled(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// Whether the authority is what the parser made of it, apart from upper case, a default port and international names.
fn spelling_of(url: &Url, authority: &str) -> bool {
    let host = url.host_str().unwrap_or_default();
    let port = url.port_or_known_default().unwrap_or_default().to_string();
    let (written, written_port) = match authority.rsplit_once(':') {
        Some((written, port)) if !port.ends_with(']') => (written, Some(port)),
        _ => (authority, None),
    };
    let port_is_plain = match written_port {
        Some(written) => written == port,
        None => url.port().is_none(),
    };
    let written = written.to_lowercase();
    // An international name comes back to itself; look-alikes of dots, digits and slashes do not.
    let host_is_plain = written == host
        || (!written.is_ascii() && ::url::quirks::domain_to_unicode(host) == written);
    port_is_plain && host_is_plain
}

impl BadUrl {
    /// The rule behind a refused literal address.
    pub const fn rule(&self) -> Option<Rule> {
        match self {
            Self::Blocked(blocked) => Some(blocked.rule),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::address::Ranges;

    const AWS: AddressPolicy = AddressPolicy::PUBLIC;

    fn parse(text: &str) -> Result<String, BadUrl> {
        EndpointUrl::parse(text, &AWS).map(|url| url.to_string())
    }

    fn refused(text: &str) -> BadUrl {
        parse(text).expect_err(text)
    }

    #[test]
    fn ordinary_urls_are_taken_in_their_canonical_spelling() {
        for (text, canonical) in [
            ("https://example.com", "https://example.com/"),
            ("HTTPS://Example.COM/Hook", "https://example.com/Hook"),
            ("https://example.com:443/a?b=c", "https://example.com/a?b=c"),
            ("https://example.com:8443/", "https://example.com:8443/"),
            ("https://example.com/a@b/../c", "https://example.com/c"),
            ("https://example.com/?next=http://x@y/", "https://example.com/?next=http://x@y/"),
            ("https://a_b.example-c.com/", "https://a_b.example-c.com/"),
            ("https://xn--bcher-kva.example/", "https://xn--bcher-kva.example/"),
            ("https://bücher.example/ü", "https://xn--bcher-kva.example/%C3%BC"),
            ("https://8.8.8.8/", "https://8.8.8.8/"),
            ("https://[2606:4700:4700::1111]:8443/x", "https://[2606:4700:4700::1111]:8443/x"),
            ("https://mylocalhost.com/", "https://mylocalhost.com/"),
            ("https://internal.example.com/", "https://internal.example.com/"),
        ] {
            assert_eq!(parse(text).as_deref(), Ok(canonical), "{text}");
        }
    }

    /// SSRF-alt-ip-notation, SSRF-ip-literal-skips-resolver, SSRF-ipv4-mapped
    #[test]
    fn a_literal_address_is_judged_in_every_notation() {
        for (host, rule) in [
            ("127.0.0.1", Rule::Loopback),
            ("2130706433", Rule::Loopback),
            ("0177.0.0.1", Rule::Loopback),
            ("0x7f.0x0.0x0.0x1", Rule::Loopback),
            ("0x7f000001", Rule::Loopback),
            ("127.1", Rule::Loopback),
            ("127.0.0.1.", Rule::Loopback),
            ("①②⑦.⓪.⓪.①", Rule::Loopback),
            ("127。0。0。1", Rule::Loopback),
            ("0", Rule::Unspecified),
            ("169.254.43518", Rule::LinkLocal),
            ("0251.254.169.254", Rule::LinkLocal),
            ("169.254.169.254", Rule::LinkLocal),
            ("[::1]", Rule::Loopback),
            ("[::]", Rule::Unspecified),
            ("[fe80::1]", Rule::LinkLocal),
            ("[fd00:ec2::254]", Rule::Metadata),
            ("[::ffff:127.0.0.1]", Rule::Loopback),
            ("[::ffff:7f00:1]", Rule::Loopback),
            ("[::FFFF:169.254.169.254]", Rule::LinkLocal),
            ("[::ffff:a9fe:a9fe]", Rule::LinkLocal),
            ("[0:0:0:0:0:ffff:10.0.0.1]", Rule::Private),
            ("0x7F.1", Rule::Loopback),
            ("017700000001", Rule::Loopback),
            ("0X7F.0.0.1", Rule::Loopback),
            ("00000177.0.0.1", Rule::Loopback),
            ("127.0.1", Rule::Loopback),
            ("127.65535", Rule::Loopback),
            ("0x0", Rule::Unspecified),
            ("2852039166", Rule::LinkLocal),
            ("0xA9FEA9FE", Rule::LinkLocal),
            ("0xa9.0xfe.0xa9.0xfe", Rule::LinkLocal),
            ("025177524776", Rule::LinkLocal),
            ("１６９．２５４．１６９．２５４", Rule::LinkLocal),
            ("10.1", Rule::Private),
            ("167772161", Rule::Private),
            ("[::127.0.0.1]", Rule::Loopback),
            ("[::ffff:0:127.0.0.1]", Rule::Loopback),
            ("[64:ff9b::127.0.0.1]", Rule::Loopback),
            ("[64:ff9b::a9fe:a9fe]", Rule::LinkLocal),
            ("[64:ff9b:1::10.0.0.1]", Rule::Private),
            ("[2002:7f00:1::]", Rule::Loopback),
            ("[2002:a9fe:a9fe::1]", Rule::LinkLocal),
            ("[2001:0:4136:e378:8000:63bf:80ff:fffe]", Rule::Loopback),
            ("[2606:4700::5efe:127.0.0.1]", Rule::Loopback),
            ("[2606:4700::200:5efe:a9fe:a9fe]", Rule::LinkLocal),
            ("[64:ff9b::8.8.8.8]", Rule::Translated),
            ("[2002:808:808::]", Rule::Tunnelled),
            ("[fec0::1]", Rule::Reserved),
            ("[ff02::1]", Rule::Multicast),
            ("[2001:db8::1]", Rule::Documentation),
            ("[4000::1]", Rule::NotGlobal),
        ] {
            assert_eq!(refused(&format!("https://{host}/")).rule(), Some(rule), "{host}");
        }
    }

    #[test]
    fn a_public_address_in_an_odd_notation_is_told_its_plain_one() {
        for host in ["134744072", "0x08080808", "8.8.2056", "010.8.8.8", "[::ffff:8.8.8.8]"] {
            let refusal = refused(&format!("https://{host}/"));
            assert!(matches!(&refusal, BadUrl::Respelled(plain) if plain == "8.8.8.8"), "{host}");
        }
    }

    /// SSRF-url-parser-confusion
    #[test]
    fn what_parsers_disagree_about_is_refused() {
        for (text, expected) in [
            ("https://example.com:pass@169.254.169.254/", BadUrl::UserInfo),
            ("https://example.com:80@10.0.0.5/", BadUrl::UserInfo),
            ("https://user@example.com/", BadUrl::UserInfo),
            ("https://@example.com/", BadUrl::UserInfo),
            ("https://127.0.0.1:6666\\@1.1.1.1", BadUrl::Character("a backslash")),
            ("https://example.com\\@localhost", BadUrl::Character("a backslash")),
            ("https://1.1.1.1#@127.0.0.1/", BadUrl::Fragment),
            ("https://example.com/#top", BadUrl::Fragment),
            ("https://example.com/\t", BadUrl::Character("a control character")),
            ("https://exam\nple.com/", BadUrl::Character("a control character")),
            ("https://example.com/\r\nx: y", BadUrl::Character("a control character")),
            ("https://example.com/\0", BadUrl::Character("a control character")),
            (" https://example.com/", BadUrl::Character("a space")),
            ("https://example.com/a b", BadUrl::Character("a space")),
            ("https://example.com/\u{a0}", BadUrl::Character("a space")),
            ("https:127.0.0.1", BadUrl::Scheme),
            ("https:/127.0.0.1", BadUrl::Scheme),
            ("https:///127.0.0.1/", BadUrl::NoHost),
            ("https://", BadUrl::NoHost),
            ("https://:443/", BadUrl::NoHost),
            ("https://?a", BadUrl::NoHost),
            ("//127.0.0.1", BadUrl::Scheme),
            ("https://%31%32%37.0.0.1/", BadUrl::Percent),
            ("https://[fe80::1%25eth0]/", BadUrl::Percent),
            ("https://[fe80::1%eth0]/", BadUrl::Percent),
            ("https://[::1/", BadUrl::BadHost),
            ("https://1.2.3.4.5/", BadUrl::BadHost),
            ("https://256.1.1.1/", BadUrl::BadHost),
            ("https://example.com:0443/", BadUrl::Respelled("example.com".to_owned())),
            ("https://example.com:/", BadUrl::Respelled("example.com".to_owned())),
            ("https://example。com/", BadUrl::Respelled("example.com".to_owned())),
            ("https://ｅxample.com/", BadUrl::Respelled("example.com".to_owned())),
            ("https://example.com.:8443/", BadUrl::TrailingDot),
            ("https://a..example.com/", BadUrl::BadHost),
            ("https://.example.com/", BadUrl::BadHost),
            ("https://exa$mple.com/", BadUrl::BadHost),
            ("https://exa*mple.com/", BadUrl::BadHost),
        ] {
            assert_eq!(refused(text), expected, "{text:?}");
        }
        // A query is a query, however much it looks like a host.
        assert!(parse("https://1.1.1.1?@127.0.0.1/").is_ok());
    }

    /// SSRF-update-and-test-paths, I16
    #[test]
    fn other_schemes_are_refused() {
        for text in [
            "http://example.com/",
            "file:///etc/passwd",
            "ftp://example.com/",
            "gopher://example.com/",
            "javascript:alert(1)",
            "example.com",
            "",
            "httpſ://example.com/",
        ] {
            assert_eq!(refused(text), BadUrl::Scheme, "{text}");
        }
    }

    /// SSRF-alt-ip-notation
    #[test]
    fn names_of_local_networks_are_refused() {
        for (host, expected) in [
            ("localhost", BadUrl::Internal("localhost")),
            ("LOCALHOST", BadUrl::Internal("localhost")),
            ("LOCALHOST.", BadUrl::Internal("localhost")),
            ("foo.localhost", BadUrl::Internal("localhost")),
            ("printer.local", BadUrl::Internal("local")),
            ("metadata.google.internal", BadUrl::Internal("internal")),
            ("ip-10-0-0-1.ec2.internal.", BadUrl::Internal("internal")),
            ("router.home.arpa", BadUrl::Internal("home.arpa")),
            ("sandbox.localdomain", BadUrl::Internal("localdomain")),
            ("intranet", BadUrl::SingleLabel("intranet".to_owned())),
            ("intranet.", BadUrl::SingleLabel("intranet".to_owned())),
        ] {
            assert_eq!(refused(&format!("https://{host}/")), expected, "{host}");
        }
    }

    /// SSRF-ports, with both settings of both exemptions
    #[test]
    fn only_the_ports_of_https_are_allowed() {
        for loopback in [false, true] {
            for port in [443_u16, 8443] {
                let policy = AddressPolicy { allow_loopback: loopback, ..AWS };
                assert!(EndpointUrl::parse(&format!("https://a.example:{port}/"), &policy).is_ok());
            }
            for port in [22_u16, 25, 80, 6379, 9001, 9443] {
                let text = format!("https://a.example:{port}/");
                let policy = |any_port| AddressPolicy { allow_loopback: loopback, any_port, ..AWS };
                let parsed = EndpointUrl::parse(&text, &policy(false));
                assert_eq!(parsed.unwrap_err(), BadUrl::Port(port));
                assert!(EndpointUrl::parse(&text, &policy(true)).is_ok());
            }
        }
        let any = AddressPolicy { any_port: true, ..AWS };
        let port_0 = EndpointUrl::parse("https://a.example:0/", &any);
        assert_eq!(port_0.unwrap_err(), BadUrl::Port(0));
        for invalid in ["https://a.example:65536/", "https://a.example:443443/"] {
            assert_eq!(refused(invalid), BadUrl::Malformed);
        }
    }

    /// An opened range is no exemption from anything else: names that mean something only inside a network, other ports,
    /// odd notations and plain http stay refused.
    #[test]
    fn an_opened_range_is_opened_for_its_addresses_only() {
        let ranges = Ranges::new(["10.20.0.0/16", "fd12:3456::/32"]).unwrap();
        let opened = AddressPolicy { ranges, ..AWS };
        for text in ["https://10.20.0.1/", "https://10.20.0.1:8443/", "https://[fd12:3456::1]/"] {
            assert!(EndpointUrl::parse(text, &opened).is_ok(), "{text}");
            assert!(EndpointUrl::parse(text, &AWS).is_err(), "{text}");
        }
        for text in [
            "https://10.21.0.1/",
            "https://10.20.1/",
            "https://[::ffff:10.20.0.1]/",
            "https://10.20.0.1:9001/",
            "http://10.20.0.1/",
            "https://127.0.0.1/",
            "https://169.254.169.254/",
            "https://hooks.internal/",
            "https://hooks/",
        ] {
            assert!(EndpointUrl::parse(text, &opened).is_err(), "{text}");
        }
    }

    /// The Runtime API of Lambda and what else listens beside it: extensions, logs and telemetry, the daemon of traces,
    /// credentials and metadata. Refused by name, by address and by port, each for itself.
    #[test]
    fn what_listens_inside_a_sandbox_is_never_an_endpoint() {
        let everything = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/11"];
        let opened = AddressPolicy { ranges: Ranges::new(everything).unwrap(), ..AWS };
        let any_port = AddressPolicy { any_port: true, ..opened };
        for host in [
            "127.0.0.1",
            "localhost",
            "[::1]",
            "sandbox",
            "sandbox.localdomain",
            "169.254.79.129",
            "169.254.100.1",
            "169.254.169.254",
            "169.254.170.2",
            "[fd00:ec2::254]",
        ] {
            for port in ["", ":443", ":8443", ":9001", ":2000", ":4243", ":80"] {
                let text = format!("https://{host}{port}/2018-06-01/runtime/invocation/next");
                for policy in [&AWS, &opened, &any_port] {
                    let refused = EndpointUrl::parse(&text, policy).expect_err(&text);
                    assert!(
                        !matches!(refused, BadUrl::Port(_)),
                        "{text}: the host is refused first"
                    );
                }
            }
        }
        let loopback = AddressPolicy { allow_loopback: true, ..AWS };
        let by_port = EndpointUrl::parse("https://127.0.0.1:9001/", &loopback);
        assert_eq!(by_port, Err(BadUrl::Port(9001)));
        let plain = EndpointUrl::parse("http://127.0.0.1:9001/", &AddressPolicy::THIS_MACHINE);
        assert_eq!(plain, Err(BadUrl::Scheme));
    }

    #[test]
    fn the_local_policy_takes_this_machine_but_no_plain_http() {
        let local = AddressPolicy::THIS_MACHINE;
        for text in ["https://localhost:9000/", "https://127.0.0.1:9000/", "https://[::1]:9000/"] {
            assert!(EndpointUrl::parse(text, &local).is_ok(), "{text}");
        }
        for text in
            ["http://localhost:9000/", "https://10.0.0.1/", "https://printer/", "https://a.local/"]
        {
            assert!(EndpointUrl::parse(text, &local).is_err(), "{text}");
        }
    }

    #[test]
    fn lengths_are_bounded() {
        let long = |n: usize| format!("https://example.com/{}", "a".repeat(n - 20));
        assert!(parse(&long(MAX_URL)).is_ok());
        assert_eq!(refused(&long(MAX_URL + 1)), BadUrl::TooLong);
        let label = |n: usize| format!("https://{}.example.com/", "a".repeat(n));
        assert!(parse(&label(63)).is_ok());
        assert_eq!(refused(&label(64)), BadUrl::BadHost);
        let name = format!("https://{}com/", "abcdefghi.".repeat(25));
        assert!(parse(&name).is_ok());
        assert_eq!(refused(&name.replacen("https://", "https://x", 1)), BadUrl::BadHost);
    }

    /// SEC-url-token: neither a refusal nor what is printed by accident shows the path.
    #[test]
    fn a_token_in_a_url_is_not_printed_by_accident() {
        let url = EndpointUrl::parse("https://example.com:8443/CANARY?t=CANARY", &AWS).unwrap();
        assert_eq!(format!("{url:?}"), "EndpointUrl(https://example.com:8443/..)");
        for text in [
            "http://example.com/CANARY",
            "https://CANARY@example.com/",
            "https://u:CANARY@example.com/",
            "https://example.com/CANARY#CANARY",
            "https://10.0.0.1/CANARY",
            "https://010.8.8.8/CANARY",
            "https://example.com:22/?token=CANARY",
            "https://intranet/CANARY",
            "https://a.internal/CANARY",
            "https://exa$mple.com/CANARY",
            "https://example.com/CANARY\\",
        ] {
            let refusal = refused(text);
            assert!(!format!("{refusal} {refusal:?}").contains("CANARY"), "{refusal:?}");
        }
    }

    #[test]
    fn what_is_dialled_is_what_was_checked() {
        let url = EndpointUrl::parse("https://EXAMPLE.com:8443/a?b", &AWS).unwrap();
        assert_eq!(
            (url.authority(), url.path_and_query()),
            ("example.com:8443".into(), "/a?b".into())
        );
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,60}") {
            let _ = EndpointUrl::parse(&text, &AWS);
            let _ = EndpointUrl::parse(&format!("https://{text}"), &AWS);
        }

        /// SSRF-url-parser-confusion: a canonical URL is its own canonical form, so every later reader finds this host.
        #[test]
        fn a_canonical_url_reads_back_as_itself(text in "https://[a-z0-9.@:/?%\\[\\]-]{1,30}") {
            if let Ok(url) = EndpointUrl::parse(&text, &AWS) {
                prop_assert_eq!(EndpointUrl::parse(url.as_str(), &AWS), Ok(url));
            }
        }
    }
}
