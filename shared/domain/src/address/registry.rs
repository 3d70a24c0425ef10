//! The registries of special-purpose addresses once more, row by row, and what lies beside each row.
//!
//! The classifier has nets that cover several rows. Here every row of IANA's registries stands as it stands there (IPv4
//! and IPv6, last updated 2025-10-09, read 2026-11), with multicast, which has registries of its own. For each row four
//! addresses are asked about: its first and its last, which must be refused, and the ones before and after, which must be
//! allowed unless another row holds them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use super::rule::{Rule, rule};

/// The rows, each with the rule that its first address meets.
const ROWS: &[(&str, Rule)] = &[
    ("0.0.0.0/8", Rule::Unspecified),
    ("0.0.0.0/32", Rule::Unspecified),
    ("10.0.0.0/8", Rule::Private),
    ("100.64.0.0/10", Rule::CarrierNat),
    ("127.0.0.0/8", Rule::Loopback),
    ("169.254.0.0/16", Rule::LinkLocal),
    ("172.16.0.0/12", Rule::Private),
    ("192.0.0.0/24", Rule::Protocol),
    ("192.0.0.0/29", Rule::Protocol),
    ("192.0.0.8/32", Rule::Protocol),
    ("192.0.0.9/32", Rule::Protocol),
    ("192.0.0.10/32", Rule::Protocol),
    ("192.0.0.170/32", Rule::Protocol),
    ("192.0.0.171/32", Rule::Protocol),
    ("192.0.2.0/24", Rule::Documentation),
    ("192.31.196.0/24", Rule::Protocol),
    ("192.52.193.0/24", Rule::Protocol),
    ("192.88.99.0/24", Rule::Protocol),
    ("192.88.99.2/32", Rule::Protocol),
    ("192.168.0.0/16", Rule::Private),
    ("192.175.48.0/24", Rule::Protocol),
    ("198.18.0.0/15", Rule::Benchmarking),
    ("198.51.100.0/24", Rule::Documentation),
    ("203.0.113.0/24", Rule::Documentation),
    ("224.0.0.0/4", Rule::Multicast),
    ("240.0.0.0/4", Rule::Reserved),
    ("255.255.255.255/32", Rule::Broadcast),
    ("::1/128", Rule::Loopback),
    ("::/128", Rule::Unspecified),
    ("64:ff9b::/96", Rule::Unspecified),
    ("64:ff9b:1::/48", Rule::Unspecified),
    ("100::/64", Rule::Reserved),
    ("100:0:0:1::/64", Rule::Reserved),
    ("2001::/23", Rule::Broadcast),
    ("2001::/32", Rule::Broadcast),
    ("2001:1::1/128", Rule::Protocol),
    ("2001:1::2/128", Rule::Protocol),
    ("2001:1::3/128", Rule::Protocol),
    ("2001:2::/48", Rule::Benchmarking),
    ("2001:3::/32", Rule::Protocol),
    ("2001:4:112::/48", Rule::Protocol),
    ("2001:10::/28", Rule::Protocol),
    ("2001:20::/28", Rule::Protocol),
    ("2001:30::/28", Rule::Protocol),
    ("2001:db8::/32", Rule::Documentation),
    ("2002::/16", Rule::Unspecified),
    ("2620:4f:8000::/48", Rule::Protocol),
    ("3fff::/20", Rule::Documentation),
    ("5f00::/16", Rule::Protocol),
    ("fc00::/7", Rule::UniqueLocal),
    ("fe80::/10", Rule::LinkLocal),
    ("fec0::/10", Rule::Reserved),
    ("ff00::/8", Rule::Multicast),
];

/// The one row that says nothing of its own: an IPv4-mapped address is the address inside.
const MAPPED: &str = "::ffff:0:0/96";

/// From here on IPv6 is not given out to anybody, whatever the registries say of it.
const GIVEN_OUT: &str = "2000::/3";

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

/// The addresses before and after a net.
fn neighbours(net: IpNet) -> [Option<IpAddr>; 2] {
    match (net.network(), net.broadcast()) {
        (IpAddr::V4(first), IpAddr::V4(last)) => {
            let [before, after] = [first.to_bits().checked_sub(1), last.to_bits().checked_add(1)];
            [before, after].map(|bits| Some(Ipv4Addr::from(bits?).into()))
        }
        (IpAddr::V6(first), IpAddr::V6(last)) => {
            let [before, after] = [first.to_bits().checked_sub(1), last.to_bits().checked_add(1)];
            [before, after].map(|bits| Some(Ipv6Addr::from(bits?).into()))
        }
        _ => unreachable!("a net has one family"),
    }
}

fn rows() -> Vec<(IpNet, Rule)> {
    ROWS.iter().map(|(row, rule)| (net(row), *rule)).collect()
}

/// Whether a row, or the part of IPv6 that nobody is given, holds an address.
fn is_special(rows: &[(IpNet, Rule)], address: IpAddr) -> bool {
    let given_out = address.is_ipv4() || net(GIVEN_OUT).contains(&address);
    !given_out || rows.iter().any(|(row, _)| row.contains(&address))
}

/// I10, I11, I12, I13
#[test]
fn every_row_of_the_registries_is_refused_from_its_first_address_to_its_last() {
    for (row, expected) in rows() {
        assert_eq!(rule(row.network()), Some(expected), "the first of {row}");
        assert!(rule(row.broadcast()).is_some(), "the last of {row}");
    }
}

/// SSRF-overblocking: what lies beside a refused net is refused only for a reason of its own.
#[test]
fn every_row_has_neighbours_that_are_allowed_unless_another_row_holds_them() {
    let (rows, mut allowed) = (rows(), 0);
    for (row, _) in &rows {
        for neighbour in neighbours(*row).into_iter().flatten() {
            let special = is_special(&rows, neighbour);
            assert_eq!(rule(neighbour).is_some(), special, "{neighbour} beside {row}");
            allowed += usize::from(!special);
        }
    }
    // The rest have another row on that side, the end of the address space, or what is not given out.
    assert_eq!(allowed, 44);
}

/// SSRF-ipv4-mapped
#[test]
fn the_mapped_row_is_judged_by_what_is_inside() {
    assert_eq!(rule(net(MAPPED).network()), Some(Rule::Unspecified));
    assert_eq!(rule(net(MAPPED).broadcast()), Some(Rule::Broadcast));
    assert_eq!(rule("::ffff:8.8.8.8".parse().unwrap()), None);
    let [before, after] = neighbours(net(MAPPED)).map(|address| rule(address.unwrap()));
    assert_eq!([before, after], [Some(Rule::NotGlobal), Some(Rule::NotGlobal)]);
}

/// Both ends of each of the 65,536 nets whose first two bytes are the same, and what lies between them in one place.
#[test]
fn the_whole_of_ipv4_is_judged_as_the_rows_judge_it() {
    let rows = rows();
    for high in 0..=u16::MAX {
        for low in [0, 1, 0x6464, 0xfffe, 0xffff_u16] {
            let address = IpAddr::V4(Ipv4Addr::from((u32::from(high) << 16) | u32::from(low)));
            assert_eq!(rule(address).is_some(), is_special(&rows, address), "{address}");
        }
    }
}
