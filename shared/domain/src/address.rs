//! Where we let ourselves be sent: the guard against requests to our own side of the network (SSRF).
//!
//! A tenant chooses the URL, so the tenant is the attacker here. One pure function says of an address whether it
//! is a public one, and it says no unless it knows better. It looks at numbers only: the same address has many
//! spellings. The guard is used twice: on a literal host when an endpoint is set ([`EndpointUrl::parse`]), and on the
//! address that is about to be dialled, at every send ([`AddressPolicy::check`]). Names prove nothing in between.

//!
//! Three things keep the Lambda Runtime API out of reach, and each would do alone: it listens on loopback, which no
//! setting of a deployment opens; its port is neither 443 nor 8443; and it speaks no TLS, which is all that ever leaves
//! us. [`rule`] classifies; [`Ranges`] is what a deployment opens of its own private networks.

mod ranges;
#[cfg(test)]
mod registry;
mod rule;
mod url;

use std::net::IpAddr;

pub use self::{
    ranges::{BadRange, MAX_RANGES, Ranges},
    rule::{Rule, rule},
    url::{BadUrl, EndpointUrl, MAX_URL},
};

/// What may be dialled beyond the public internet. Nothing is, unless somebody says so; and what one of these opens, the
/// others neither widen nor narrow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddressPolicy {
    /// Endpoints may be on this machine. Only the local host sets it.
    pub allow_loopback: bool,
    /// Endpoints may use any port but 0. Only the local host sets it.
    pub any_port: bool,
    /// Private networks that the deployment opens.
    pub ranges: Ranges,
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
    /// The public internet and nothing else: what a deployment has that says nothing.
    pub const PUBLIC: Self = Self { allow_loopback: false, any_port: false, ranges: Ranges::NONE };

    /// The public internet and this machine, at any port: what the local host sets.
    pub const THIS_MACHINE: Self = Self { allow_loopback: true, any_port: true, ..Self::PUBLIC };

    /// Gives the address to dial, which for an IPv4-mapped address is the IPv4 address inside.
    ///
    /// # Errors
    /// [`Blocked`] for everything that is not a public unicast address, loopback and opened ranges excepted where the
    /// policy says so.
    pub fn check(&self, address: IpAddr) -> Result<IpAddr, Blocked> {
        let dialled = address.to_canonical();
        match rule(dialled) {
            None => Ok(dialled),
            // The address itself, not one that a translator would turn into it.
            Some(Rule::Loopback) if self.allow_loopback && dialled.is_loopback() => Ok(dialled),
            Some(rule) if rule.may_be_opened() && self.opens(dialled) => Ok(dialled),
            Some(rule) => Err(Blocked { address, rule }),
        }
    }

    /// Whether the deployment opened a range with this address, and it is no disguise of another one.
    fn opens(&self, address: IpAddr) -> bool {
        self.ranges.contains(address) && !rule::carries_ipv4(address)
    }

    /// Whether a port may be dialled.
    pub const fn allows_port(&self, port: u16) -> bool {
        matches!(port, 443 | 8443) || (self.any_port && port != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PUBLIC_ONLY: AddressPolicy = AddressPolicy::PUBLIC;

    fn opened(ranges: &[&str]) -> AddressPolicy {
        let ranges = Ranges::new(ranges.iter().copied()).unwrap();
        AddressPolicy { ranges, ..AddressPolicy::PUBLIC }
    }

    fn check(policy: &AddressPolicy, address: &str, allowed: bool) {
        let checked = policy.check(address.parse().unwrap());
        assert_eq!(checked.is_ok(), allowed, "{address}: {checked:?}");
    }

    #[test]
    fn a_mapped_address_is_dialled_as_the_address_inside() {
        let dialled = PUBLIC_ONLY.check("::ffff:8.8.8.8".parse().unwrap());
        assert_eq!(dialled, Ok("8.8.8.8".parse().unwrap()));
    }

    /// SSRF-ports: an exemption never widens another rule.
    #[test]
    fn the_local_policy_opens_loopback_and_nothing_else() {
        let local = AddressPolicy::THIS_MACHINE;
        for allowed in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"] {
            check(&local, allowed, true);
            check(&PUBLIC_ONLY, allowed, false);
        }
        for refused in
            ["0.0.0.0", "::", "10.0.0.1", "169.254.169.254", "fe80::1", "64:ff9b::7f00:1"]
        {
            check(&local, refused, false);
        }
    }

    #[test]
    fn a_range_opens_its_addresses_and_nothing_else() {
        let policy = opened(&["10.20.0.0/16", "fd12:3456::/32", "100.64.0.0/11"]);
        for allowed in [
            "10.20.0.0",
            "10.20.255.255",
            "::ffff:10.20.0.1",
            "fd12:3456::1",
            "100.64.0.1",
            "8.8.8.8",
            "2606:4700:4700::1111",
        ] {
            check(&policy, allowed, true);
        }
        for refused in [
            "10.19.255.255",
            "10.21.0.0",
            "172.16.0.1",
            "192.168.0.1",
            "fd12:3457::1",
            "100.96.0.1",
            "100.100.100.200",
            "127.0.0.1",
            "169.254.169.254",
            "fd00:ec2::254",
            "0.0.0.0",
        ] {
            check(&policy, refused, false);
        }
        // Other ports stay shut.
        assert!(policy.allows_port(443) && policy.allows_port(8443) && !policy.allows_port(9001));
    }

    /// SSRF-ipv4-mapped: an opened range is opened for its own addresses, and not for what they carry.
    #[test]
    fn a_range_opens_no_address_in_disguise() {
        let policy = opened(&["10.0.0.0/8", "fd12:3456::/32"]);
        for refused in [
            "64:ff9b::10.0.0.1",
            "64:ff9b:1::10.0.0.1",
            "::10.0.0.1",
            "::ffff:0:10.0.0.1",
            "2002:a00:1::1",
            "2001:0:4136:e378:8000:63bf:f5ff:fffe",
            "2606:4700::5efe:10.0.0.1",
            "fd12:3456::5efe:10.0.0.1",
            "fd12:3456::5efe:127.0.0.1",
            "fd12:3456::200:5efe:169.254.169.254",
        ] {
            check(&policy, refused, false);
        }
    }

    #[test]
    fn a_refusal_names_the_address_and_the_rule() {
        let refused = PUBLIC_ONLY.check("::ffff:10.0.0.1".parse().unwrap()).unwrap_err();
        assert_eq!(refused.to_string(), "::ffff:10.0.0.1 is a private address");
    }
}
