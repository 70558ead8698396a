//! Guarded addresses: by which a gear would reach this machine's own doors or, of a cloud, its credentials.
//!
//! # Invariants
//!
//! - An address of this machine is guarded like loopback: it leads to the same doors. The kernel is asked each time, by what every service may
//!   do: a list of interfaces needs netlink, which our unit file denies.
//! - An IPv6 address that stands for an IPv4 one (mapped, compatible, NAT64, 6to4) is guarded where that one is: a translator on the way would
//!   reach it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use ipnet::IpNet;

const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> IpNet {
    IpNet::new_assert(IpAddr::V4(Ipv4Addr::new(a, b, c, d)), prefix)
}

const fn v6(address: Ipv6Addr, prefix: u8) -> IpNet {
    IpNet::new_assert(IpAddr::V6(address), prefix)
}

/// Networks that are guarded on every machine.
const GUARDED: [IpNet; 11] = [
    v4(127, 0, 0, 0, 8),
    v6(Ipv6Addr::LOCALHOST, 128),
    // A connection to it goes to the machine itself.
    v4(0, 0, 0, 0, 8),
    v6(Ipv6Addr::UNSPECIFIED, 128),
    v4(169, 254, 0, 0, 16),
    v6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10),
    v6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254), 128),
    v6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254), 128),
    v4(100, 100, 100, 200, 32),
    v4(168, 63, 129, 16, 32),
    v4(192, 0, 0, 192, 32),
];

/// Whether an address must be meant to be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AddressReach {
    /// Any rule with it in opens it.
    Open,
    /// Only a rule that means it does.
    Guarded,
}

impl AddressReach {
    /// That of an address on this machine, as it is now.
    pub(super) fn of(ip: IpAddr) -> Self {
        let ip = ip.to_canonical();
        let meant = [Some(ip), embedded_v4(ip).map(IpAddr::V4)];
        let is_guarded = |ip: IpAddr| GUARDED.iter().any(|guarded| guarded.contains(&ip)) || is_own(ip);
        if meant.into_iter().flatten().any(is_guarded) {
            Self::Guarded
        } else {
            Self::Open
        }
    }
}

/// Whether a rule for a network means guarded addresses: it has nothing but such, or is a single address.
pub(super) fn is_meant(network: &IpNet) -> bool {
    network.prefix_len() == network.max_prefix_len() || GUARDED.iter().any(|guarded| guarded.contains(network))
}

/// Whether an address is one of this machine: nothing else can be bound to, unless the system allows to bind to everything.
fn is_own(ip: IpAddr) -> bool {
    let nobodys: IpAddr = match ip {
        IpAddr::V4(_) => Ipv4Addr::new(240, 0, 0, 1).into(),
        IpAddr::V6(_) => Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 1).into(),
    };
    match UdpSocket::bind((ip, 0)) {
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => false,
        Ok(_) if UdpSocket::bind((nobodys, 0)).is_err() => true,
        // What cannot be told is guarded.
        _ => is_own_source(ip).unwrap_or_else(|error| !is_unreachable(&error)),
    }
}

fn is_unreachable(error: &io::Error) -> bool {
    use io::ErrorKind::{HostUnreachable, NetworkUnreachable};
    matches!(error.kind(), NetworkUnreachable | HostUnreachable)
}

/// Whether packets to an address would leave from the same one; nothing is sent.
fn is_own_source(ip: IpAddr) -> io::Result<bool> {
    let anywhere: IpAddr = match ip {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((anywhere, 0))?;
    socket.connect((ip, 9))?;
    Ok(socket.local_addr()?.ip() == ip)
}

/// The IPv4 address that a translator makes of an IPv6 one.
fn embedded_v4(ip: IpAddr) -> Option<Ipv4Addr> {
    let IpAddr::V6(ip) = ip else { return None };
    let [a, b, c, ..] = ip.segments();
    let bits = u32::try_from(ip.to_bits() & u128::from(u32::MAX)).ok()?;
    match (a, b) {
        // NAT64 (RFC 6052), its prefix for networks of one's own (RFC 8215), and addresses that are compatible with IPv4.
        (0x64, 0xff9b) => Some(Ipv4Addr::from_bits(bits)),
        (0, 0) if ip.to_bits() >> 32 == 0 => Some(Ipv4Addr::from_bits(bits)),
        // 6to4 (RFC 3056).
        (0x2002, _) => Some(Ipv4Addr::from_bits((u32::from(b) << 16) | u32::from(c))),
        // Teredo (RFC 4380), which turns its bits round.
        (0x2001, 0) => Some(Ipv4Addr::from_bits(!bits)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn forms_of_guarded_addresses_are_guarded() {
        for (address, wanted) in [
            ("127.0.0.1", AddressReach::Guarded),
            ("::127.0.0.1", AddressReach::Guarded),
            ("::ffff:169.254.169.254", AddressReach::Guarded),
            ("64:ff9b::127.0.0.1", AddressReach::Guarded),
            ("64:ff9b::169.254.169.254", AddressReach::Guarded),
            ("64:ff9b:1::100.100.100.200", AddressReach::Guarded),
            ("2002:7f00:1::", AddressReach::Guarded),
            ("2002:a9fe:a9fe::1", AddressReach::Guarded),
            ("2001:0:53aa:64c:0:0:80ff:fffe", AddressReach::Guarded),
            ("198.51.100.8", AddressReach::Open),
            ("64:ff9b::198.51.100.8", AddressReach::Open),
            ("2002:c633:6408::1", AddressReach::Open),
            ("2001:db8::8", AddressReach::Open),
        ] {
            assert_eq!(AddressReach::of(address.parse().unwrap()), wanted, "{address}");
        }
    }

    #[test]
    fn every_address_of_this_machine_is_guarded_in_all_its_forms() {
        let mut asked = 0;
        for interface in nix::ifaddrs::getifaddrs().unwrap() {
            let address = interface.address.as_ref();
            let v4 = address.and_then(|address| Some(address.as_sockaddr_in()?.ip()));
            let v6 = address.and_then(|address| Some(address.as_sockaddr_in6()?.ip()));
            let [a, b, c, d] = v4.unwrap_or(Ipv4Addr::LOCALHOST).octets().map(u16::from);
            let translated = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, a << 8 | b, c << 8 | d);
            let forms = [v4.map(IpAddr::V4), v6.map(IpAddr::V6), Some(IpAddr::V6(translated))];
            for own in forms.into_iter().flatten() {
                assert_eq!(AddressReach::of(own), AddressReach::Guarded, "{own}");
                asked += 1;
            }
        }
        assert!(asked > 1);
        for (ip, wanted) in [("127.0.0.1", true), ("198.51.100.8", false)] {
            assert_eq!(is_own_source(ip.parse().unwrap()).unwrap_or(false), wanted, "{ip}");
        }
    }
}
