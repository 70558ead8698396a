//! Address rules: networks, addresses and host names, with ports, that a policy allows.
//!
//! ```text
//! *   192.0.2.7   10.0.0.0/8:502   [fe80::/10]:8000-8999   ::1   collector.example:443   localhost
//! ```
//!
//! # Invariants
//!
//! - As targets of connections, guarded addresses ([`super::guarded_address`]) are allowed only by a rule whose whole network is guarded, by one
//!   of that very address, or by `localhost` where they are loopback: neither `*`, a larger network nor a name that resolves to one opens them.
//! - An IPv6 address that stands for an IPv4 one is that one.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::str::FromStr;

use ipnet::IpNet;

use super::guarded_address::{AddressReach, is_meant};

/// What is allowed of hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
enum HostPattern {
    Any,
    Network(IpNet),
    Name(String),
}

/// A rule of `policy.listen` or `policy.connect`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AddressRule {
    host: HostPattern,
    ports: RangeInclusive<u16>,
}

impl AddressRule {
    /// Whether gears may listen there.
    pub(super) fn admits_listener(&self, address: SocketAddr) -> bool {
        let is_in = match &self.host {
            HostPattern::Any => true,
            HostPattern::Network(network) => network.contains(&address.ip().to_canonical()),
            HostPattern::Name(_) => false,
        };
        is_in && self.ports.contains(&address.port())
    }

    /// Whether gears may connect there, having got the address of this host.
    pub(super) fn admits_target(&self, host: &str, address: SocketAddr, reach: AddressReach) -> bool {
        let ip = address.ip().to_canonical();
        let is_guarded = reach == AddressReach::Guarded;
        let is_in = match &self.host {
            HostPattern::Any => !is_guarded,
            HostPattern::Network(network) => network.contains(&ip) && (!is_guarded || is_meant(network)),
            HostPattern::Name(name) if name == "localhost" => ip.is_loopback(),
            HostPattern::Name(name) => !is_guarded && name.eq_ignore_ascii_case(host),
        };
        is_in && self.ports.contains(&address.port())
    }

    /// Whether an address of this host could be admitted.
    pub(super) fn may_admit_name(&self, host: &str, port: u16) -> bool {
        let is_in = match &self.host {
            HostPattern::Any | HostPattern::Network(_) => true,
            HostPattern::Name(name) => name == "localhost" || name.eq_ignore_ascii_case(host),
        };
        is_in && self.ports.contains(&port)
    }

    /// Whether it is about names, which nobody can listen on.
    pub(super) const fn is_name(&self) -> bool {
        matches!(self.host, HostPattern::Name(_))
    }
}

impl FromStr for AddressRule {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        if let Some(host) = host_pattern(text) {
            return Ok(Self {
                host,
                ports: 0..=u16::MAX,
            });
        }
        let (host, ports) = text.rsplit_once(':').ok_or(())?;
        let host = host
            .strip_prefix('[')
            .map_or(Some(host), |rest| rest.strip_suffix(']'))
            .ok_or(())?;
        Ok(Self {
            host: host_pattern(host).ok_or(())?,
            ports: port_range(ports).ok_or(())?,
        })
    }
}

fn host_pattern(text: &str) -> Option<HostPattern> {
    if text == "*" {
        return Some(HostPattern::Any);
    }
    let address = text.parse::<IpAddr>().map(IpNet::from);
    if let Ok(network) = address.or_else(|_| text.parse::<IpNet>()) {
        return Some(HostPattern::Network(network.trunc()));
    }
    // What has neither letters nor a known form is a mistyped address, not a name.
    let is_name = text.bytes().any(|byte| byte.is_ascii_alphabetic())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
    is_name.then(|| HostPattern::Name(text.to_ascii_lowercase()))
}

fn port_range(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    // A number may have a sign for the parser.
    let port = |text: &str| text.parse().ok().filter(|_| !text.starts_with('+'));
    let ports = port(first)?..=port(last)?;
    (!ports.is_empty()).then_some(ports)
}

/// The target: a rule of a configuration.
#[cfg(any(test, feature = "fuzz"))]
pub(crate) fn fuzz_address_rule() -> model::fuzz::FuzzTarget {
    let samples = [
        "10.0.0.0/8:502",
        "[fe80::/10]:8000-8999",
        "::1",
        "collector.example:443",
        "*",
    ];
    model::fuzz::FuzzTarget::of_text("config.address_rule", &samples, |text| {
        let is_rule = text.parse::<AddressRule>().is_ok();
        assert!(!is_rule || !text.contains('+'), "a port has no sign");
        is_rule
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn admits(rule: &str, host: &str, address: &str) -> bool {
        let rule: AddressRule = rule.parse().unwrap();
        let address: SocketAddr = address.parse().unwrap();
        rule.admits_target(host, address, AddressReach::of(address.ip()))
    }

    #[test]
    fn networks_names_and_ports_admit_targets() {
        for (rule, host, address, wanted) in [
            ("*", "x", "192.0.2.1:80", true),
            ("*:443", "x", "192.0.2.1:80", false),
            ("192.0.2.0/24", "x", "192.0.2.9:80", true),
            ("192.0.2.0/24:80-90", "x", "192.0.2.9:90", true),
            ("192.0.2.0/24:80-90", "x", "192.0.2.9:91", false),
            ("192.0.2.0/24", "x", "198.51.100.1:80", false),
            ("[2001:db8::/32]:80", "x", "[2001:db8::1]:80", true),
            ("collector.example:80", "Collector.Example", "192.0.2.1:80", true),
            ("collector.example", "other.example", "192.0.2.1:80", false),
            ("localhost:80", "localhost", "127.0.0.1:80", true),
            ("localhost:80", "localhost", "[::1]:80", true),
            ("localhost", "localhost", "192.0.2.1:80", false),
        ] {
            assert_eq!(admits(rule, host, address), wanted, "{rule} {host} {address}");
        }
    }

    #[test]
    fn guarded_addresses_are_opened_only_by_rules_that_mean_them() {
        for address in [
            "127.0.0.1:80",
            "[::1]:80",
            "[::ffff:127.0.0.1]:80",
            "0.0.0.0:80",
            "169.254.169.254:80",
            "[fe80::1]:80",
            "[fd00:ec2::254]:80",
            "100.100.100.200:80",
        ] {
            for rule in ["*", "0.0.0.0/0", "::/0", "evil.example", "64.0.0.0/2", "fd00::/8"] {
                assert!(!admits(rule, "evil.example", address), "{rule} {address}");
            }
        }
        assert!(admits("127.0.0.0/8", "x", "127.0.0.1:80"));
        assert!(admits("127.0.0.1:80", "x", "[::ffff:127.0.0.1]:80"));
        assert!(admits("169.254.169.254", "x", "169.254.169.254:80"));
        assert!(!admits("127.0.0.1:80", "x", "127.0.0.1:8090"));
    }

    #[test]
    fn listeners_are_admitted_by_the_address_itself() {
        let admits = |rule: &str, address: &str| {
            let rule: AddressRule = rule.parse().unwrap();
            rule.admits_listener(address.parse().unwrap())
        };
        assert!(admits("127.0.0.1", "127.0.0.1:0") && admits("::1", "[::1]:8080"));
        assert!(!admits("127.0.0.1:8000-8999", "127.0.0.1:0"));
        assert!(!admits("10.0.0.0/8", "0.0.0.0:80") && admits("0.0.0.0:80", "0.0.0.0:80"));
        assert!(admits("*", "0.0.0.0:80"));
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        for bad in [
            "",
            ":80",
            "10.0.0",
            "10.0.0.0/33",
            "host:",
            "host:0x1",
            "host:9-8",
            "[::1",
            "a b",
            "host:70000",
            "host:+80",
            "host:1-+2",
            "300.1.1.1",
        ] {
            assert!(bad.parse::<AddressRule>().is_err(), "{bad}");
        }
    }
}
