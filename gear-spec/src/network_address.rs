//! Where a gear listens, where it connects to and how long it tries, as configurations have it.

use std::net::{IpAddr, SocketAddr};

use http::uri::Authority;
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

/// The hosts of the key `allowed_hosts`.
pub(crate) fn parse_hosts(hosts: &[String]) -> Result<Vec<Authority>, String> {
    let parse = |host: &String| {
        let parsed = host.parse::<Authority>().ok().filter(|_| !host.contains('@'));
        parsed.ok_or_else(|| format!("allowed_hosts: {host:?} is not a host such as rack.example or rack.example:8181"))
    };
    hosts.iter().map(parse).collect()
}

/// Whether a host of an address is this machine's loopback interface, as far as its text says.
pub(crate) fn is_loopback_host(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.to_canonical().is_loopback())
}

/// The same of a `host:port` address.
pub(crate) fn is_loopback_address(address: &str) -> bool {
    is_loopback_host(address.rsplit_once(':').map_or(address, |(host, _)| host))
}

/// Says that what goes to an address leaves this machine, and is not encrypted.
pub(crate) fn check_clear_target(address: &str, tls: Option<&ClientTlsConfig>) -> Result<(), String> {
    if tls.is_some() || is_loopback_address(address) {
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::{Value, json};

    fn check(kind: &str, config: &Value) -> Result<(), String> {
        let manifest = crate::manifests()
            .iter()
            .find(|manifest| manifest.kind == kind)
            .unwrap();
        (manifest.check)(config.as_object().unwrap())
    }

    #[test]
    fn what_others_can_read_or_send_in_clear_needs_a_second_word() {
        let (files, key) = (
            json!({ "certificate_file": "c", "key_file": "k" }),
            json!({ "x-key": "${KEY}" }),
        );
        for kind in ["http_in", "otlp_in", "tcp_in", "syslog_in"] {
            for listen in ["0.0.0.0:80", "[::]:80", "192.0.2.1:80"] {
                let config = json!({ "listen": listen });
                refuses(
                    kind,
                    config.clone(),
                    &format!("listen {listen} can be reached from other machines"),
                );
                let encrypted = with(config, "tls", files.clone());
                let encrypted = if kind == "syslog_in" {
                    with(encrypted, "udp", json!(false))
                } else {
                    encrypted
                };
                assert_eq!(check(kind, &encrypted), Ok(()), "{kind} {encrypted}");
            }
            for listen in ["127.0.0.1:80", "[::1]:80"] {
                assert_eq!(check(kind, &json!({ "listen": listen })), Ok(()), "{kind} {listen}");
            }
        }
        refuses(
            "syslog_in",
            json!({ "listen": "0.0.0.0:80", "tls": files }),
            "set udp to false",
        );
        for address in ["x:1", "192.0.2.1:1", "[2001:db8::1]:1"] {
            refuses(
                "tcp_out",
                json!({ "address": address }),
                &format!("address {address} is another machine's"),
            );
            assert_eq!(
                check("tcp_out", &json!({ "address": address, "tls": {} })),
                Ok(()),
                "{address}"
            );
        }
        for address in ["localhost:1", "127.0.0.1:1", "[::1]:1"] {
            assert_eq!(check("tcp_out", &json!({ "address": address })), Ok(()), "{address}");
        }
        for kind in ["http_get", "http_out"] {
            refuses(
                kind,
                json!({ "url": "http://x", "headers": key }),
                "headers.x-key has a value of the Rack's environment",
            );
            for url in [
                "https://x",
                "http://127.0.0.1:1/",
                "http://[::1]:1/",
                "http://localhost/",
            ] {
                assert_eq!(
                    check(kind, &json!({ "url": url, "headers": key })),
                    Ok(()),
                    "{kind} {url}"
                );
            }
            assert_eq!(
                check(kind, &json!({ "url": "http://x" })),
                Ok(()),
                "{kind} without a secret"
            );
        }
    }

    fn refuses(kind: &str, config: Value, says: &str) {
        let error = check(kind, &config).unwrap_err();
        assert!(
            error.contains(says) && error.contains("allow_insecure to true"),
            "{kind} {config}: {error}"
        );
        let allowed = with(config, "allow_insecure", json!(true));
        assert_eq!(check(kind, &allowed), Ok(()), "{kind} {allowed}");
    }

    fn with(mut config: Value, key: &str, value: Value) -> Value {
        config[key] = value;
        config
    }
}
