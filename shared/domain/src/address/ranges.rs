//! Ranges that one deployment opens: networks of its own that its endpoints may be in.

use std::{fmt, net::IpAddr, str::FromStr};

use ipnet::IpNet;

use super::rule::{self, Rule};

/// Most ranges that one deployment opens.
pub const MAX_RANGES: usize = 16;

/// The ranges that are dialled although they are not public. None, unless an operator names them.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Ranges([Option<IpNet>; MAX_RANGES]);

/// Why a range is not opened. Written for the operator who named it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRange {
    /// No CIDR range. The number of it, from 1: what stands there is not shown, because it may be anything.
    #[error(
        "range {0} is none; write an address and the length of its prefix, such as 10.20.0.0/16"
    )]
    Malformed(usize),
    /// Bits behind the prefix.
    #[error("{0} is an address inside a range; write {1}, or a longer prefix")]
    NotANetwork(IpNet, IpNet),
    /// It would open what is never opened.
    #[error("{range} {}", never(range, net, *rule))]
    Never {
        /// The range.
        range: IpNet,
        /// What is in it, or around it.
        net: IpNet,
        /// Why that is never opened.
        rule: Rule,
    },
    /// Nothing that anybody runs a network in.
    #[error(
        "{0} is not wholly in a private network; name ranges inside 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, \
         100.64.0.0/10 or fc00::/7, and none for public addresses, which need none"
    )]
    NotPrivate(IpNet),
    /// Over [`MAX_RANGES`].
    #[error("more than {MAX_RANGES} ranges are named; name fewer and larger ones")]
    TooMany,
}

impl Ranges {
    /// None.
    pub const NONE: Self = Self([None; MAX_RANGES]);

    /// Opens ranges, each judged by the classifier that judges addresses.
    ///
    /// # Errors
    /// Everything that is wrong with them: nothing is opened then.
    pub fn new<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Self, Vec<BadRange>> {
        let (mut ranges, mut bad) = (Self::NONE, Vec::new());
        let mut slots = ranges.0.iter_mut();
        for (n, text) in (1..).zip(texts) {
            match range(n, text) {
                Err(reason) => bad.push(reason),
                Ok(range) => match slots.next() {
                    Some(slot) => *slot = Some(range),
                    None => {
                        bad.push(BadRange::TooMany);
                        break;
                    }
                },
            }
        }
        if bad.is_empty() { Ok(ranges) } else { Err(bad) }
    }

    /// Whether an address lies in one of them.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.iter().flatten().any(|range| range.contains(&address))
    }
}

impl fmt::Debug for Ranges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().flatten()).finish()
    }
}

fn never(range: &IpNet, net: &IpNet, rule: Rule) -> String {
    if net.contains(range) {
        format!("is in {net}, which is {rule} and never opened; leave it out")
    } else {
        format!(
            "holds {net}, which is {rule} and never opened; name smaller ranges that leave it out"
        )
    }
}

fn range(n: usize, text: &str) -> Result<IpNet, BadRange> {
    let range = IpNet::from_str(text).map_err(|_| BadRange::Malformed(n))?;
    if range != range.trunc() {
        return Err(BadRange::NotANetwork(range, range.trunc()));
    }
    let touched = || rule::overlapping(range);
    if let Some((net, rule)) = touched().find(|(_, rule)| !rule.may_be_opened()) {
        return Err(BadRange::Never { range, net, rule });
    }
    // Inside one net, and not around it: a range that also holds public addresses is a misunderstanding.
    if touched().any(|(net, _)| net.contains(&range)) {
        Ok(range)
    } else {
        Err(BadRange::NotPrivate(range))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Result<Ranges, BadRange> {
        Ranges::new([text]).map_err(|mut bad| bad.remove(0))
    }

    fn never(text: &str) -> Option<Rule> {
        match one(text) {
            Err(BadRange::Never { rule, .. }) => Some(rule),
            _ => None,
        }
    }

    #[test]
    fn private_ranges_can_be_opened_whole_and_in_part() {
        for (range, inside, outside) in [
            ("10.0.0.0/8", "10.255.255.255", "11.0.0.0"),
            ("10.20.0.0/16", "10.20.30.40", "10.21.0.0"),
            ("10.1.2.3/32", "10.1.2.3", "10.1.2.4"),
            ("172.16.0.0/12", "172.31.255.255", "172.32.0.0"),
            ("192.168.0.0/16", "192.168.0.1", "192.169.0.0"),
            ("100.64.0.0/11", "100.95.255.255", "100.96.0.0"),
            ("fd12:3456:789a::/48", "fd12:3456:789a::1", "fd12:3456:789b::1"),
        ] {
            let ranges = one(range).expect(range);
            assert!(ranges.contains(inside.parse().unwrap()), "{inside} in {range}");
            assert!(!ranges.contains(outside.parse().unwrap()), "{outside} in {range}");
        }
    }

    /// What is never opened is not opened by a wider range around it, nor by a narrower one inside.
    #[test]
    fn the_machine_and_the_cloud_are_never_opened() {
        for (range, rule) in [
            ("127.0.0.0/8", Rule::Loopback),
            ("127.0.0.1/32", Rule::Loopback),
            ("::1/128", Rule::Loopback),
            ("169.254.0.0/16", Rule::LinkLocal),
            ("169.254.169.254/32", Rule::LinkLocal),
            ("fe80::/10", Rule::LinkLocal),
            ("0.0.0.0/0", Rule::Unspecified),
            ("0.0.0.0/32", Rule::Unspecified),
            ("::/0", Rule::Unspecified),
            ("::/128", Rule::Unspecified),
            ("224.0.0.0/4", Rule::Multicast),
            ("ff00::/8", Rule::Multicast),
            ("255.255.255.255/32", Rule::Broadcast),
            ("100.100.100.200/32", Rule::Metadata),
            ("100.64.0.0/10", Rule::Metadata),
            ("168.63.129.16/32", Rule::Metadata),
            ("fd00:ec2::254/128", Rule::Metadata),
            ("fc00::/7", Rule::Metadata),
            ("fd00::/8", Rule::Metadata),
            ("64:ff9b:1::/48", Rule::Translated),
            ("2002::/16", Rule::Tunnelled),
            ("198.18.0.0/15", Rule::Benchmarking),
            ("203.0.113.0/24", Rule::Documentation),
            ("fec0::/10", Rule::Reserved),
        ] {
            assert_eq!(never(range), Some(rule), "{range}: {:?}", one(range));
        }
    }

    #[test]
    fn what_is_no_range_of_a_private_network_is_refused() {
        for malformed in ["", "10.0.0.0", "10.0.0/8", "10.0.0.0/33", "ten/8", "fd00::1%eth0/64"] {
            assert_eq!(one(malformed), Err(BadRange::Malformed(1)), "{malformed:?}");
        }
        for elsewhere in
            ["8.8.8.0/24", "10.0.0.0/7", "2606:4700::/32", "::ffff:10.0.0.0/104", "5f01::/16"]
        {
            let refused = one(elsewhere).unwrap_err();
            assert!(matches!(refused, BadRange::NotPrivate(_)), "{elsewhere}: {refused:?}");
        }
        let refused = one("10.20.30.40/16").unwrap_err().to_string();
        assert!(refused.contains("write 10.20.0.0/16"), "{refused}");
    }

    #[test]
    fn every_bad_range_is_named_and_none_is_opened() {
        let bad = Ranges::new(["10.0.0.0/8", "x", "127.0.0.0/8", "8.0.0.0/8"]).unwrap_err();
        assert_eq!(bad.len(), 3, "{bad:?}");
        assert_eq!(bad[0], BadRange::Malformed(2));
        let many: Vec<String> = (0..=MAX_RANGES).map(|n| format!("10.{n}.0.0/16")).collect();
        let all = Ranges::new(many.iter().map(String::as_str));
        assert_eq!(all, Err(vec![BadRange::TooMany]));
        assert!(Ranges::new(many.iter().take(MAX_RANGES).map(String::as_str)).is_ok());
    }

    #[test]
    fn a_refusal_says_what_why_and_what_to_do() {
        assert_eq!(
            one("100.64.0.0/10").unwrap_err().to_string(),
            "100.64.0.0/10 holds 100.100.100.200/32, which is the address of a metadata service and never opened; \
             name smaller ranges that leave it out"
        );
        assert_eq!(
            one("127.0.0.1/32").unwrap_err().to_string(),
            "127.0.0.1/32 is in 127.0.0.0/8, which is a loopback address and never opened; leave it out"
        );
    }
}
