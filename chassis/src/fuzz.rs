//! Fuzz targets of what every process has: certificates, and the heads of requests that browsers send.
//!
//! # Not here
//!
//! Anything that the product runs: this module is compiled only for tests and with the feature `fuzz`. How inputs are made (`model::fuzz`). Configuration
//! files: their targets are where the schemas are.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use http::header::{HOST, HeaderName, HeaderValue};
use http::uri::Authority;
use http::{HeaderMap, Method, Uri};
use model::KeyFingerprint;
use model::fuzz::FuzzTarget;
use rustls::pki_types::CertificateDer;

use crate::bus::{BusTrust, fuzz_chain};
use crate::host_guard::HostGuard;
use crate::tls_server::certificates_in;

/// The server's certificate, its issuer's, and that of the authority, which are good in 2030.
const CHAIN: &[u8] = include_bytes!("../../fuzz/corpus/certificates/chain.pem");
const LISTEN: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
const LISTED: &str = "mixer.example";

/// The targets of this room.
#[must_use]
pub fn targets() -> Vec<FuzzTarget> {
    let genuine = certificates_in(CHAIN).unwrap_or_default();
    let framed = genuine.iter().flat_map(|certificate| framed(certificate)).collect();
    let of_chain = genuine.clone();
    vec![
        FuzzTarget::new("certificates.pem", vec![CHAIN.to_vec()], move |pem| {
            certificates_in(pem).is_ok_and(|chain| is_trusted(&genuine, &chain))
        }),
        FuzzTarget::new("certificates.chain", vec![framed], move |bytes| {
            is_trusted(&of_chain, &unframed(bytes))
        }),
        FuzzTarget::of_text("names.host", &REQUESTS, answers),
    ]
}

/// Whether a client that pins the authority trusts a chain.
fn is_trusted(genuine: &[CertificateDer<'static>], chain: &[CertificateDer<'_>]) -> bool {
    // What an operator is told of the chain of a file.
    BusTrust::check_pinned_chain(chain).ok();
    let Some(authority) = genuine.last() else { return false };
    let is_trusted = fuzz_chain(chain, KeyFingerprint::of(authority));
    assert!(
        !is_trusted || chain.first() == genuine.first(),
        "it trusts a certificate that nobody signed"
    );
    assert!(
        !is_trusted || chain.contains(authority),
        "it trusts without the authority that is pinned"
    );
    is_trusted
}

/// A certificate with its length in front.
fn framed(certificate: &CertificateDer<'_>) -> Vec<u8> {
    let length = u16::try_from(certificate.len()).unwrap_or_default();
    [&length.to_be_bytes(), certificate.as_ref()].concat()
}

fn unframed(mut bytes: &[u8]) -> Vec<CertificateDer<'_>> {
    let mut chain = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk() {
        let length = usize::from(u16::from_be_bytes(*length)).min(rest.len());
        let (certificate, behind) = rest.split_at(length);
        chain.push(CertificateDer::from(certificate));
        bytes = behind;
    }
    chain
}

const REQUESTS: [&str; 4] = [
    "GET /api/v1/logs\nhost: localhost:8080\norigin: http://localhost:8080\nsec-fetch-site: same-origin",
    "POST /x\nhost: [::1]:80\norigin: https://[::1]:80",
    "GET http://192.0.2.7/x\nhost: 192.0.2.7\nsec-fetch-site: cross-site\nsec-fetch-mode: navigate\nsec-fetch-dest: document",
    "DELETE /\nhost: MIXER.example:443\norigin: https://mixer.example",
];

/// Whether a request is answered, of which a line is the method and the address, and each other one a header.
fn answers(text: &str) -> bool {
    let (request, rest) = text.split_once('\n').unwrap_or((text, ""));
    let (method, uri) = request.split_once(' ').unwrap_or((request, "/"));
    let (Ok(method), Ok(uri)) = (method.parse::<Method>(), uri.parse::<Uri>()) else {
        return false;
    };
    let mut headers = HeaderMap::new();
    for (name, value) in rest.lines().filter_map(|line| line.split_once(": ")) {
        if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), HeaderValue::from_str(value)) {
            headers.append(name, value);
        }
    }
    let listed = LISTED.parse::<Authority>().into_iter().collect();
    let guard = HostGuard::new(SocketAddr::new(LISTEN, 8080), listed);
    let is_answered = guard.check(&method, &uri, &headers, "api.allowed_hosts").is_ok();
    if is_answered {
        let foreign = headers.get_all(HOST).iter().find(|host| !is_own(host.as_bytes()));
        assert_eq!(foreign, None, "it answers for a host of somebody else");
    }
    is_answered
}

/// Whether a host is this server's, told without the parser.
fn is_own(host: &[u8]) -> bool {
    let host = String::from_utf8_lossy(host).to_ascii_lowercase();
    let port = host
        .rsplit_once(':')
        .filter(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
    let name = port.map_or(host.as_str(), |(name, _)| name);
    let name = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'))
        .unwrap_or(name);
    let is_address = |address: IpAddr| address.is_loopback() || address == LISTEN;
    ["localhost", LISTED].contains(&name) || name.parse().is_ok_and(is_address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_certificate_or_host_that_was_changed_is_trusted() -> Result<(), model::fuzz::FuzzFailure> {
        model::fuzz::check_targets(&targets(), 1_000)
    }
}
