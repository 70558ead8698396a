//! Ports for programs that must be told theirs before they start, or that come back on it, and an address beyond loopback.
//!
//! # Invariants
//!
//! - A port is outside of the range from which the system gives ports to who asks for any (port 0): between this call and its use no other test
//!   gets it, and no gear.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

use crate::Failure;

/// The first port, and how many follow.
const RANGE: (u16, u16) = (20_000, 12_000);

/// A port of the loopback interface that nothing listens on; another one each time. Tests of other processes begin elsewhere.
///
/// # Errors
/// If no port is free.
pub fn free_port() -> Result<u16, Failure> {
    static ASKED: AtomicU16 = AtomicU16::new(0);
    let (first, count) = RANGE;
    // Consecutive process ids begin far from each other.
    let offset = u16::try_from(u64::from(std::process::id()) * 97 % u64::from(count))?;
    for _ in 0..count {
        let port = first + (offset + ASKED.fetch_add(1, Relaxed)) % count;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    Err("no port is free".into())
}

/// The same as an address.
///
/// # Errors
/// If no port is free.
pub fn free_address() -> Result<SocketAddr, Failure> {
    Ok((Ipv4Addr::LOCALHOST, free_port()?).into())
}

/// An IPv4 address of this machine at which others may reach it, if it has one.
///
/// # Errors
/// If the system does not list its addresses.
pub fn outside_address() -> Result<Option<Ipv4Addr>, Failure> {
    let mut own = nix::ifaddrs::getifaddrs()?.filter_map(|own| Some(own.address?.as_sockaddr_in()?.ip()));
    Ok(own.find(|ip| !ip.is_loopback() && TcpListener::bind((*ip, 0)).is_ok()))
}
