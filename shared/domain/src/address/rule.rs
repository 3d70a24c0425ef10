//! The classifier: which rule refuses an address.
//!
//! IANA's two registries of special-purpose addresses, the address space they lie in, and what clouds keep at addresses
//! of their own. Default deny for IPv6: what is not in the part from which global addresses are given out is refused,
//! whether or not somebody has a name for it. [`registry`](super::registry) holds the registries once more, to check this.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

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
    /// IPv6 inside one organisation: `fc00::/7`.
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
    /// Kept for later, or given up.
    Reserved,
    /// An IPv4 address in an IPv6 one, to be translated on the way: NAT64 and the old IPv4-compatible form.
    Translated,
    /// An IPv4 address in an IPv6 one, to be tunnelled: 6to4, Teredo and ISATAP.
    Tunnelled,
    /// Outside the part of IPv6 that is routed.
    NotGlobal,
}

impl Rule {
    /// Whether a deployment may open ranges that this rule refuses: networks that people run themselves. Everything else
    /// is the machine, the cloud, or nobody's.
    pub(super) const fn may_be_opened(self) -> bool {
        matches!(self, Self::Private | Self::CarrierNat | Self::UniqueLocal)
    }
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

/// All nets of the tables that a range lies in, or that lie in it, with their rules.
pub(super) fn overlapping(range: IpNet) -> impl Iterator<Item = (IpNet, Rule)> {
    let v4 = V4.iter().map(|(net, rule)| (IpNet::V4(*net), *rule));
    let v6 = V6.iter().map(|(net, rule)| (IpNet::V6(*net), *rule));
    v4.chain(v6).filter(move |(net, _)| net.contains(&range) || range.contains(net))
}

fn first_of<N: Copy>(table: &[(N, Rule)], holds: impl Fn(N) -> bool) -> Option<Rule> {
    table.iter().find(|(net, _)| holds(*net)).map(|(_, rule)| *rule)
}

/// Whether a translator or the far end of a tunnel would connect to an IPv4 address inside this one.
pub(super) fn carries_ipv4(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(_) => false,
        IpAddr::V6(v6) => embedded(v6).is_some(),
    }
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
        // ISATAP (RFC 5214), behind any prefix; the bits for "universal" and "group" may be set.
        [_, _, _, _, bits, 0x5efe, high, low] if bits & !0x0300 == 0 => {
            Some((Rule::Tunnelled, from(high, low)))
        }
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
    (v6(0x100, 0, 0, 1, 64), Rule::Reserved), // a dummy, RFC 9780
    (v6(0x2001, 0, 0, 0, 32), Rule::Tunnelled), // Teredo
    (v6(0x2001, 2, 0, 0, 48), Rule::Benchmarking),
    (v6(0x2001, 0, 0, 0, 23), Rule::Protocol),
    (v6(0x2001, 0xdb8, 0, 0, 32), Rule::Documentation),
    (v6(0x2002, 0, 0, 0, 16), Rule::Tunnelled), // 6to4
    (v6(0x2620, 0x4f, 0x8000, 0, 48), Rule::Protocol), // AS112
    (v6(0x3fff, 0, 0, 0, 20), Rule::Documentation),
    (v6(0x5f00, 0, 0, 0, 16), Rule::Protocol), // segment routing
    (v6(0xfd00, 0xec2, 0, 0, 32), Rule::Metadata), // AWS: metadata, names, time, credentials of pods
    (v6(0xfd20, 0xce, 0, 0, 32), Rule::Metadata),  // Google
    (v6(0xfc00, 0, 0, 0, 7), Rule::UniqueLocal),
    (v6(0xfe80, 0, 0, 0, 10), Rule::LinkLocal),
    (v6(0xfec0, 0, 0, 0, 10), Rule::Reserved), // site-local, given up
    (v6(0xff00, 0, 0, 0, 8), Rule::Multicast),
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(address: &str, expected: Option<Rule>) {
        assert_eq!(rule(address.parse().unwrap()), expected, "{address}");
    }

    /// I10: what clouds keep at addresses that no registry names, or names for something else.
    #[test]
    fn metadata_services_are_refused_wherever_they_are() {
        for (address, expected) in [
            ("169.254.169.254", Rule::LinkLocal),
            ("169.254.169.253", Rule::LinkLocal),
            ("169.254.170.2", Rule::LinkLocal),
            ("169.254.170.23", Rule::LinkLocal),
            ("100.100.100.200", Rule::Metadata),
            ("168.63.129.16", Rule::Metadata),
            ("192.0.0.192", Rule::Metadata),
            ("fd00:ec2::254", Rule::Metadata),
            ("fd00:ec2::23", Rule::Metadata),
            ("fd20:ce::254", Rule::Metadata),
            ("fe80::a9fe:a9fe", Rule::LinkLocal),
        ] {
            check(address, Some(expected));
        }
        for (neighbour, expected) in [
            ("100.100.100.199", Some(Rule::CarrierNat)),
            ("100.100.100.201", Some(Rule::CarrierNat)),
            ("168.63.129.15", None),
            ("168.63.129.17", None),
            ("192.0.0.191", Some(Rule::Protocol)),
            ("192.0.0.193", Some(Rule::Protocol)),
            ("fd00:ec1:ffff::1", Some(Rule::UniqueLocal)),
            ("fd00:ec3::1", Some(Rule::UniqueLocal)),
            ("fd20:cd:ffff::1", Some(Rule::UniqueLocal)),
            ("fd20:cf::1", Some(Rule::UniqueLocal)),
        ] {
            check(neighbour, expected);
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
            ("2606:4700::5efe:127.0.0.1", Rule::Loopback),
            ("2606:4700::200:5efe:169.254.169.254", Rule::LinkLocal),
            ("2606:4700::300:5efe:10.0.0.1", Rule::Private),
            ("fe80::5efe:8.8.8.8", Rule::LinkLocal),
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
            ("2606:4700::5efe:8.8.8.8", Rule::Tunnelled),
            ("2606:4700::200:5efe:8.8.8.8", Rule::Tunnelled),
        ] {
            check(address, Some(expected));
        }
        // Not ISATAP: another interface, or the marker in another place.
        for address in ["2606:4700::400:5efe:7f00:1", "2606:4700:0:5efe:7f00:1::"] {
            check(address, None);
        }
    }

    /// SSRF-overblocking: hosts that everybody knows, of both families.
    #[test]
    fn public_receivers_are_allowed() {
        for address in [
            "1.0.0.0",
            "1.1.1.1",
            "3.5.140.2",
            "8.8.8.8",
            "9.9.9.9",
            "13.107.42.14",
            "34.120.0.1",
            "52.95.110.1",
            "104.16.0.1",
            "140.82.112.3",
            "151.101.1.69",
            "185.199.108.153",
            "216.58.206.46",
            "2000::1",
            "2001:200::1",
            "2001:4860:4860::8888",
            "2003::1",
            "2400:cb00::1",
            "2600:1f18::1",
            "2606:4700:4700::1111",
            "2620:fe::fe",
            "2803:f800::1",
            "2a00:1450:4001:81b::200e",
            "2c0f:fb50::1",
            "::ffff:8.8.8.8",
        ] {
            check(address, None);
        }
    }

    #[test]
    fn what_is_not_given_out_is_refused_without_a_name_for_it() {
        for address in
            ["::2", "1fff:ffff::", "4000::", "5eff:ffff::1", "5f01::1", "fbff:ffff::", "200::1"]
        {
            check(address, Some(Rule::NotGlobal));
        }
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

        /// Whatever carries an IPv4 address is refused, whichever it is: no translator is trusted to refuse it for us.
        #[test]
        fn no_address_that_carries_another_is_allowed(bits: u32, prefix: u64, form in 0_usize..7) {
            let [high, low] = [bits >> 16, bits & 0xffff].map(|half| u16::try_from(half).unwrap());
            let p = [48, 32, 16, 0].map(|by| u16::try_from((prefix >> by) & 0xffff).unwrap());
            let address = Ipv6Addr::from(match form {
                0 => [0x64, 0xff9b, 0, 0, 0, 0, high, low],
                1 => [0x64, 0xff9b, 1, p[0], p[1], p[2], high, low],
                2 => [0, 0, 0, 0, 0, 0, high, low],
                3 => [0, 0, 0, 0, 0xffff, 0, high, low],
                4 => [0x2002, high, low, p[0], p[1], p[2], p[3], 1],
                5 => [0x2001, 0, p[0], p[1], p[2], p[3], !high, !low],
                _ => [p[0], p[1], p[2], p[3], 0, 0x5efe, high, low],
            });
            prop_assert!(rule(address.into()).is_some(), "{address}");
        }
    }
}
