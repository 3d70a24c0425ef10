//! Where we let ourselves be sent: the guard against requests to our own side of the network (SSRF).
//!
//! A tenant chooses the URL, so the tenant is the attacker here. One pure function says of an address whether it
//! is a public one, and it says no unless it knows better. It looks at numbers only: the same address has many
//! spellings. The guard is used twice: on a literal host when an endpoint is set ([`EndpointUrl::parse`]), and on the
//! address that is about to be dialled, at every send ([`AddressPolicy::check`]). Names prove nothing in between.

mod url;

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use ipnet::{Ipv4Net, Ipv6Net};

pub use self::url::{BadUrl, EndpointUrl, MAX_URL};

/// What may be dialled beyond the public internet. Everything is off on AWS; only the local host sets it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddressPolicy {
    /// Endpoints may be on this machine.
    pub allow_loopback: bool,
    /// Endpoints may use any port but 0.
    pub any_port: bool,
}

/// The rule that refuses an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// No address at all: `0.0.0.0`, `::`. Most systems connect it to the machine itself.
    Unspecified,
    /// `0.0.0.0/8`, which some systems take for the local network.
    ThisNetwork,
    /// The machine itself. On Lambda the Runtime API listens there.
    Loopback,
    /// RFC 1918.
    Private,
    /// RFC 6598, between a carrier and its customers.
    CarrierNat,
    /// Link-local, where clouds keep their metadata services.
    LinkLocal,
    /// A metadata service at another address.
    Metadata,
    /// IPv6 inside one organisation: `fc00::/7`, `fec0::/10`.
    UniqueLocal,
    /// RFC 6890 and other assignments to protocols.
    Protocol,
    /// Only for documents.
    Documentation,
    /// Only for benchmarks between networks.
    Benchmarking,
    /// To many at once.
    Multicast,
    /// To all at once.
    Broadcast,
    /// Kept for later.
    Reserved,
    /// An IPv4 address in an IPv6 one, to be translated on the way: NAT64 and the old IPv4-compatible form.
    Translated,
    /// An IPv4 address in an IPv6 one, to be tunnelled: 6to4 and Teredo.
    Tunnelled,
    /// Outside the part of IPv6 that is routed.
    NotGlobal,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unspecified => "no address of a host",
            Self::ThisNetwork => "an address of the local network",
            Self::Loopback => "a loopback address",
            Self::Private => "a private address",
            Self::CarrierNat => "an address behind a carrier's NAT",
            Self::LinkLocal => "a link-local address",
            Self::Metadata => "the address of a metadata service",
            Self::UniqueLocal => "an address inside one organisation",
            Self::Protocol => "an address assigned to a protocol",
            Self::Documentation => "an address for documents",
            Self::Benchmarking => "an address for benchmarks",
            Self::Multicast => "a multicast address",
            Self::Broadcast => "the broadcast address",
            Self::Reserved => "a reserved address",
            Self::Translated => "an IPv4 address in translated form",
            Self::Tunnelled => "an IPv4 address in tunnelled form",
            Self::NotGlobal => "outside the routed part of IPv6",
        })
    }
}

/// An address that is not dialled, and why. For operators and for whoever wrote the address; not for a delivery log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{address} is {rule}")]
pub struct Blocked {
    /// The address, as it was given.
    pub address: IpAddr,
    /// The rule that refuses it.
    pub rule: Rule,
}

impl AddressPolicy {
    /// Gives the address to dial, which for an IPv4-mapped address is the IPv4 address inside.
    ///
    /// # Errors
    /// [`Blocked`] for everything that is not a public unicast address, loopback excepted where the policy says so.
    pub fn check(&self, address: IpAddr) -> Result<IpAddr, Blocked> {
        let dialled = address.to_canonical();
        match rule(dialled) {
            None => Ok(dialled),
            // The address itself, not one that a translator would turn into it.
            Some(Rule::Loopback) if self.allow_loopback && dialled.is_loopback() => Ok(dialled),
            Some(rule) => Err(Blocked { address, rule }),
        }
    }

    /// Whether a port may be dialled.
    pub const fn allows_port(&self, port: u16) -> bool {
        matches!(port, 443 | 8443) || (self.any_port && port != 0)
    }
}

/// The rule that refuses an address; `None` if it is a public unicast one.
pub fn rule(address: IpAddr) -> Option<Rule> {
    match address.to_canonical() {
        IpAddr::V4(v4) => first_of(V4, |net| net.contains(&v4)),
        IpAddr::V6(v6) => rule_v6(v6),
    }
}

fn rule_v6(address: Ipv6Addr) -> Option<Rule> {
    let by_table = || first_of(V6, |net| net.contains(&address));
    if let Some((carrier, inside)) = embedded(address) {
        // Refused either way; the address inside says more to whoever reads the refusal.
        return by_table()
            .filter(|rule| *rule != carrier)
            .or(rule(inside.into()))
            .or(Some(carrier));
    }
    by_table().or_else(|| if GLOBAL.contains(&address) { None } else { Some(Rule::NotGlobal) })
}

fn first_of<N: Copy>(table: &[(N, Rule)], holds: impl Fn(N) -> bool) -> Option<Rule> {
    table.iter().find(|(net, _)| holds(*net)).map(|(_, rule)| *rule)
}

/// The IPv4 address that a translator or the far end of a tunnel would connect to.
fn embedded(address: Ipv6Addr) -> Option<(Rule, Ipv4Addr)> {
    let from = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match address.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some((Rule::Translated, from(high, low))),
        // The local NAT64 prefix; the address stands last when the whole /96 is used, as it mostly is.
        [0x64, 0xff9b, 1, _, _, _, high, low] => Some((Rule::Translated, from(high, low))),
        [0, 0, 0, 0, 0, 0, high, low] if high != 0 => Some((Rule::Translated, from(high, low))),
        // The form of stateless translation, RFC 2765: `::ffff:0:a.b.c.d`.
        [0, 0, 0, 0, 0xffff, 0, high, low] => Some((Rule::Translated, from(high, low))),
        [0x2002, high, low, ..] => Some((Rule::Tunnelled, from(high, low))),
        // Teredo turns the bits of the client's address around.
        [0x2001, 0, _, _, _, _, high, low] => Some((Rule::Tunnelled, from(!high, !low))),
        _ => None,
    }
}

const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix)
}

const fn v6(a: u16, b: u16, c: u16, d: u16, prefix: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0), prefix)
}

/// IPv4: the special-purpose registry of IANA (RFC 6890 and its updates, read 2026-11), the narrower net first.
const V4: &[(Ipv4Net, Rule)] = &[
    (v4(0, 0, 0, 0, 32), Rule::Unspecified),
    (v4(0, 0, 0, 0, 8), Rule::ThisNetwork),
    (v4(10, 0, 0, 0, 8), Rule::Private),
    (v4(100, 100, 100, 200, 32), Rule::Metadata), // Alibaba
    (v4(100, 64, 0, 0, 10), Rule::CarrierNat),
    (v4(127, 0, 0, 0, 8), Rule::Loopback),
    (v4(168, 63, 129, 16, 32), Rule::Metadata), // Azure's, on a public address
    (v4(169, 254, 0, 0, 16), Rule::LinkLocal),
    (v4(172, 16, 0, 0, 12), Rule::Private),
    (v4(192, 0, 0, 192, 32), Rule::Metadata), // Oracle
    (v4(192, 0, 0, 0, 24), Rule::Protocol),
    (v4(192, 0, 2, 0, 24), Rule::Documentation),
    (v4(192, 31, 196, 0, 24), Rule::Protocol), // AS112, answered by the nearest network
    (v4(192, 52, 193, 0, 24), Rule::Protocol), // AMT relays
    (v4(192, 88, 99, 0, 24), Rule::Protocol),  // 6to4 relays, given up
    (v4(192, 168, 0, 0, 16), Rule::Private),
    (v4(192, 175, 48, 0, 24), Rule::Protocol), // AS112
    (v4(198, 18, 0, 0, 15), Rule::Benchmarking),
    (v4(198, 51, 100, 0, 24), Rule::Documentation),
    (v4(203, 0, 113, 0, 24), Rule::Documentation),
    (v4(224, 0, 0, 0, 4), Rule::Multicast),
    (v4(255, 255, 255, 255, 32), Rule::Broadcast),
    (v4(240, 0, 0, 0, 4), Rule::Reserved),
];

/// The part of IPv6 from which global unicast addresses are given out.
const GLOBAL: Ipv6Net = v6(0x2000, 0, 0, 0, 3);

/// IPv6: what is special inside that part, and names for what is outside.
const V6: &[(Ipv6Net, Rule)] = &[
    (Ipv6Net::new_assert(Ipv6Addr::UNSPECIFIED, 128), Rule::Unspecified),
    (Ipv6Net::new_assert(Ipv6Addr::LOCALHOST, 128), Rule::Loopback),
    (v6(0x64, 0xff9b, 0, 0, 96), Rule::Translated),
    (v6(0x64, 0xff9b, 1, 0, 48), Rule::Translated),
    (v6(0x100, 0, 0, 0, 64), Rule::Reserved), // goes nowhere
    (v6(0x2001, 0, 0, 0, 32), Rule::Tunnelled), // Teredo
    (v6(0x2001, 2, 0, 0, 48), Rule::Benchmarking),
    (v6(0x2001, 0, 0, 0, 23), Rule::Protocol),
    (v6(0x2001, 0xdb8, 0, 0, 32), Rule::Documentation),
    (v6(0x2002, 0, 0, 0, 16), Rule::Tunnelled), // 6to4
    (v6(0x2620, 0x4f, 0x8000, 0, 48), Rule::Protocol), // AS112
    (v6(0x3fff, 0, 0, 0, 20), Rule::Documentation),
    (v6(0xfc00, 0, 0, 0, 7), Rule::UniqueLocal),
    (v6(0xfe80, 0, 0, 0, 10), Rule::LinkLocal),
    (v6(0xfec0, 0, 0, 0, 10), Rule::UniqueLocal),
    (v6(0xff00, 0, 0, 0, 8), Rule::Multicast),
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PUBLIC_ONLY: AddressPolicy = AddressPolicy { allow_loopback: false, any_port: false };

    fn check(address: &str, expected: Option<Rule>) {
        assert_eq!(rule(address.parse().unwrap()), expected, "{address}");
    }

    /// I10, I11, I12, I13: the first and the last address of each refused net.
    #[test]
    fn special_ipv4_addresses_are_refused() {
        for (address, expected) in [
            ("0.0.0.0", Rule::Unspecified),
            ("0.0.0.1", Rule::ThisNetwork),
            ("0.255.255.255", Rule::ThisNetwork),
            ("10.0.0.0", Rule::Private),
            ("10.255.255.255", Rule::Private),
            ("100.64.0.0", Rule::CarrierNat),
            ("100.127.255.255", Rule::CarrierNat),
            ("100.100.100.200", Rule::Metadata),
            ("127.0.0.0", Rule::Loopback),
            ("127.0.0.1", Rule::Loopback),
            ("127.255.255.255", Rule::Loopback),
            ("168.63.129.16", Rule::Metadata),
            ("169.254.0.0", Rule::LinkLocal),
            ("169.254.169.254", Rule::LinkLocal),
            ("169.254.170.2", Rule::LinkLocal),
            ("169.254.255.255", Rule::LinkLocal),
            ("172.16.0.0", Rule::Private),
            ("172.31.255.255", Rule::Private),
            ("192.0.0.0", Rule::Protocol),
            ("192.0.0.192", Rule::Metadata),
            ("192.0.0.255", Rule::Protocol),
            ("192.0.2.0", Rule::Documentation),
            ("192.0.2.255", Rule::Documentation),
            ("192.31.196.1", Rule::Protocol),
            ("192.52.193.1", Rule::Protocol),
            ("192.88.99.1", Rule::Protocol),
            ("192.168.0.0", Rule::Private),
            ("192.168.255.255", Rule::Private),
            ("192.175.48.1", Rule::Protocol),
            ("198.18.0.0", Rule::Benchmarking),
            ("198.19.255.255", Rule::Benchmarking),
            ("198.51.100.0", Rule::Documentation),
            ("203.0.113.255", Rule::Documentation),
            ("224.0.0.0", Rule::Multicast),
            ("239.255.255.255", Rule::Multicast),
            ("240.0.0.0", Rule::Reserved),
            ("255.255.255.254", Rule::Reserved),
            ("255.255.255.255", Rule::Broadcast),
        ] {
            check(address, Some(expected));
        }
    }

    #[test]
    fn special_ipv6_addresses_are_refused() {
        for (address, expected) in [
            ("::", Rule::Unspecified),
            ("::1", Rule::Loopback),
            ("::2", Rule::NotGlobal),
            ("100::", Rule::Reserved),
            ("100:0:0:1::", Rule::NotGlobal),
            ("1fff:ffff::", Rule::NotGlobal),
            ("2001:2::1", Rule::Benchmarking),
            ("2001:1::1", Rule::Protocol),
            ("2001:10::1", Rule::Protocol),
            ("2001:20::1", Rule::Protocol),
            ("2001:1ff:ffff::", Rule::Protocol),
            ("2001:db8::", Rule::Documentation),
            ("2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", Rule::Documentation),
            ("2620:4f:8000::53", Rule::Protocol),
            ("3fff::", Rule::Documentation),
            ("3fff:fff:ffff::", Rule::Documentation),
            ("4000::", Rule::NotGlobal),
            ("5f00::1", Rule::NotGlobal),
            ("fbff:ffff::", Rule::NotGlobal),
            ("fc00::", Rule::UniqueLocal),
            ("fd00:ec2::254", Rule::UniqueLocal),
            ("fdff:ffff::", Rule::UniqueLocal),
            ("fe80::1", Rule::LinkLocal),
            ("febf:ffff::", Rule::LinkLocal),
            ("fec0::1", Rule::UniqueLocal),
            ("ff02::1", Rule::Multicast),
        ] {
            check(address, Some(expected));
        }
    }

    /// SSRF-ipv4-mapped: the address inside decides, in every form that carries one.
    #[test]
    fn an_embedded_ipv4_address_is_unwrapped() {
        for (address, expected) in [
            ("::ffff:127.0.0.1", Rule::Loopback),
            ("::ffff:7f00:1", Rule::Loopback),
            ("::FFFF:169.254.169.254", Rule::LinkLocal),
            ("0:0:0:0:0:ffff:10.0.0.1", Rule::Private),
            ("::ffff:192.168.1.1", Rule::Private),
            ("::ffff:0.0.0.0", Rule::Unspecified),
            ("::127.0.0.1", Rule::Loopback),
            ("::ffff:0:127.0.0.1", Rule::Loopback),
            ("64:ff9b::169.254.169.254", Rule::LinkLocal),
            ("64:ff9b:1::10.0.0.1", Rule::Private),
            ("2002:7f00:1::", Rule::Loopback),
            ("2002:a9fe:a9fe::1", Rule::LinkLocal),
            ("2001:0:4136:e378:8000:63bf:80ff:fffe", Rule::Loopback),
        ] {
            check(address, Some(expected));
        }
    }

    #[test]
    fn a_translated_or_tunnelled_address_is_refused_even_around_a_public_one() {
        for (address, expected) in [
            ("64:ff9b::8.8.8.8", Rule::Translated),
            ("64:ff9b:1::8.8.8.8", Rule::Translated),
            ("::8.8.8.8", Rule::Translated),
            ("::ffff:0:8.8.8.8", Rule::Translated),
            ("2002:808:808::1", Rule::Tunnelled),
            ("2001:0:4136:e378:8000:63bf:f7f7:f7f7", Rule::Tunnelled),
        ] {
            check(address, Some(expected));
        }
    }

    /// SSRF-overblocking: each refused net has its neighbours here.
    #[test]
    fn public_addresses_are_allowed() {
        for address in [
            "1.0.0.0",
            "1.1.1.1",
            "8.8.8.8",
            "9.9.9.9",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.1",
            "126.255.255.255",
            "128.0.0.1",
            "168.63.129.15",
            "168.63.129.17",
            "169.253.255.255",
            "169.255.0.1",
            "172.15.255.255",
            "172.32.0.1",
            "191.255.255.255",
            "192.0.1.1",
            "192.0.3.1",
            "192.31.195.255",
            "192.88.98.255",
            "192.88.100.1",
            "192.167.255.255",
            "192.169.0.1",
            "198.17.255.255",
            "198.20.0.1",
            "198.51.99.255",
            "198.51.101.1",
            "203.0.112.255",
            "203.0.114.1",
            "223.255.255.255",
            "2000::1",
            "2001:200::1",
            "2001:db7:ffff::1",
            "2001:db9::1",
            "2001:4860:4860::8888",
            "2003::1",
            "2606:4700:4700::1111",
            "2620:4f:7fff::1",
            "2620:4f:8001::1",
            "2a00:1450:4001:81b::200e",
            "3ffe:ffff::1",
            "3fff:1000::1",
            "::ffff:8.8.8.8",
        ] {
            check(address, None);
        }
    }

    #[test]
    fn a_mapped_address_is_dialled_as_the_address_inside() {
        let dialled = PUBLIC_ONLY.check("::ffff:8.8.8.8".parse().unwrap());
        assert_eq!(dialled, Ok("8.8.8.8".parse().unwrap()));
    }

    /// SSRF-ports: an exemption never widens another rule.
    #[test]
    fn the_local_policy_opens_loopback_and_nothing_else() {
        let local = AddressPolicy { allow_loopback: true, any_port: true };
        for allowed in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"] {
            assert!(local.check(allowed.parse().unwrap()).is_ok(), "{allowed}");
            assert!(PUBLIC_ONLY.check(allowed.parse().unwrap()).is_err(), "{allowed}");
        }
        for refused in
            ["0.0.0.0", "::", "10.0.0.1", "169.254.169.254", "fe80::1", "64:ff9b::7f00:1"]
        {
            assert!(local.check(refused.parse().unwrap()).is_err(), "{refused}");
        }
    }

    #[test]
    fn a_refusal_names_the_address_and_the_rule() {
        let refused = PUBLIC_ONLY.check("::ffff:10.0.0.1".parse().unwrap()).unwrap_err();
        assert_eq!(refused.to_string(), "::ffff:10.0.0.1 is a private address");
    }

    proptest! {
        #[test]
        fn the_mapped_form_is_judged_as_the_address_inside(bits: u32) {
            let inside = Ipv4Addr::from(bits);
            prop_assert_eq!(rule(inside.to_ipv6_mapped().into()), rule(inside.into()));
        }

        #[test]
        fn no_address_outside_the_global_part_is_allowed(bits: u128) {
            let address = Ipv6Addr::from(bits);
            let global = GLOBAL.contains(&address) || address.to_ipv4_mapped().is_some();
            prop_assert!(global || rule(address.into()).is_some());
        }
    }
}
