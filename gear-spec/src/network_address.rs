//! Where a gear listens, where it connects to and how long it tries, as configurations have it.

use std::net::{IpAddr, SocketAddr};

use model::HumanDuration;

use crate::tls_options::{ClientTlsConfig, ListenerTlsConfig};

/// Says that other machines can reach an address at which nothing is encrypted.
pub(crate) fn check_clear_listen(listen: SocketAddr, tls: Option<&ListenerTlsConfig>) -> Result<(), String> {
    if tls.is_some() || listen.ip().is_loopback() {
        return Ok(());
    }
    Err(format!(
        "listen {listen} can be reached from other machines, and what comes there is not encrypted: set tls, use a loopback address, or set \
         allow_insecure to true if a firewall or the network keeps strangers away"
    ))
}

/// Whether a host of an address is this machine's loopback interface, as far as its text says.
pub(crate) fn is_loopback_host(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.to_canonical().is_loopback())
}

/// Says that what goes to an address leaves this machine, and is not encrypted.
pub(crate) fn check_clear_target(address: &str, tls: Option<&ClientTlsConfig>) -> Result<(), String> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    if tls.is_some() || is_loopback_host(host) {
        return Ok(());
    }
    Err(format!(
        "address {address} is another machine's, and anybody on the way there reads and changes what is not encrypted: set tls, or set \
         allow_insecure to true"
    ))
}

/// Says what is wrong with a `host:port` address under this key.
pub(crate) fn check_address(key: &str, address: &str) -> Result<(), String> {
    let port = address.rsplit_once(':').filter(|(host, _)| !host.is_empty());
    if port.is_some_and(|(_, port)| port.parse::<u16>().is_ok_and(|port| port > 0)) {
        return Ok(());
    }
    Err(format!(
        "{key} {address:?} is not host:port, such as collector.example:9000 or [::1]:9000"
    ))
}

/// Says what is wrong with the timeouts of connecting and writing, and with the shortest and the longest pause, whose keys begin so.
pub(crate) fn check_times(
    prefix: &str,
    (connect, write): (HumanDuration, HumanDuration),
    (shortest, longest): (HumanDuration, HumanDuration),
) -> Result<(), String> {
    let times = [
        ("connect_timeout", connect),
        ("write_timeout", write),
        ("reconnect_min", shortest),
    ];
    if let Some((key, _)) = times.iter().find(|(_, time)| time.get().is_zero()) {
        return Err(format!("{prefix}{key} must be more than zero"));
    }
    if longest < shortest {
        return Err(format!(
            "{prefix}reconnect_max must not be shorter than {prefix}reconnect_min"
        ));
    }
    Ok(())
}
