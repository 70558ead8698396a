//! Host guard: refuses what a browser sends here for a page of another site (DNS rebinding, cross-site request forgery).
//!
//! | a request with | is |
//! |---|---|
//! | a `Host` that is not this server's | 421: a name that somebody else owns leads here |
//! | an `Origin` that is not its `Host`, `null` included | 403 |
//! | `Sec-Fetch-Site` other than `same-origin` and `none` | 403, unless somebody follows a link: a top-level navigation that changes nothing |
//! | none of these headers | answered: no browser sends it |
//!
//! # Invariants
//!
//! - Hosts are compared as parsed authorities, never as texts: case, brackets and default ports make no difference.
//! - A name is this server's only if it is `localhost` or listed. An IP address is, if it is a loopback address, the one listened on, or any
//!   where the server listens on all of them: rebinding needs a name.
//!
//! # Not here
//!
//! Who may do what: a request that passes is not authenticated.

use std::net::{IpAddr, SocketAddr};

use http::header::{HOST, HeaderName, HeaderValue, ORIGIN, X_CONTENT_TYPE_OPTIONS};
use http::uri::Authority;
use http::{HeaderMap, Method, StatusCode, Uri};

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// The hosts that a server answers for.
#[derive(Debug, Clone)]
pub struct HostGuard {
    listen: IpAddr,
    allowed: Vec<Authority>,
}

/// Why a request is not answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ForeignRequest {
    /// Its host is not this server's.
    #[error(
        "this server does not answer for the host {host:?}; use its address or localhost, or list the name in {key}"
    )]
    UnknownHost {
        /// What the request says.
        host: String,
        /// Where hosts are listed.
        key: &'static str,
    },
    /// A page of another origin asks.
    #[error("a page of {origin:?} asks; only pages of this very host may")]
    ForeignOrigin {
        /// Whose page.
        origin: String,
    },
    /// The browser says that a page of another site asks.
    #[error("a browser asks for a page of another site (Sec-Fetch-Site: {site}); only pages of this very host may")]
    CrossSite {
        /// What the browser says.
        site: String,
    },
}

impl ForeignRequest {
    /// The status of the answer.
    #[must_use]
    pub const fn status(&self) -> StatusCode {
        match self {
            Self::UnknownHost { .. } => StatusCode::MISDIRECTED_REQUEST,
            Self::ForeignOrigin { .. } | Self::CrossSite { .. } => StatusCode::FORBIDDEN,
        }
    }
}

impl HostGuard {
    /// The guard of a server that listens here; `allowed` are more hosts, of any port where they have none.
    #[must_use]
    pub const fn new(listen: SocketAddr, allowed: Vec<Authority>) -> Self {
        Self {
            listen: listen.ip(),
            allowed,
        }
    }

    /// Checks a request before it is looked at any further. `key` is where the operator lists more hosts.
    ///
    /// # Errors
    /// If it is one that a browser sends for somebody else.
    pub fn check(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
        key: &'static str,
    ) -> Result<(), ForeignRequest> {
        let mut own = None;
        let named = headers.get_all(HOST).iter().map(HeaderValue::as_bytes);
        for host in named.chain(uri.authority().map(|host| host.as_str().as_bytes())) {
            let parsed = Authority::try_from(host).ok().filter(|host| self.is_own(host));
            own = Some(parsed.ok_or_else(|| ForeignRequest::UnknownHost { host: shown(host), key })?);
        }
        if let Some(origin) = headers.get(ORIGIN).map(HeaderValue::as_bytes)
            && !own.is_some_and(|own| is_origin_of(origin, &own))
        {
            return Err(ForeignRequest::ForeignOrigin { origin: shown(origin) });
        }
        match headers.get(FETCH_SITE).map(HeaderValue::as_bytes) {
            None | Some(b"same-origin" | b"none") => Ok(()),
            Some(_) if follows_link(method, headers) => Ok(()),
            Some(site) => Err(ForeignRequest::CrossSite { site: shown(site) }),
        }
    }

    fn is_own(&self, host: &Authority) -> bool {
        let name = host.host();
        let listed = |allowed: &Authority| {
            // A port that is left out is the usual one of either scheme.
            let has_port = |port| host.port_u16().map_or(matches!(port, 80 | 443), |own| own == port);
            allowed.host().eq_ignore_ascii_case(name) && allowed.port_u16().is_none_or(has_port)
        };
        if host.as_str().contains('@') || !has_plain_port(host) {
            return false;
        }
        let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        let is_here = |address: IpAddr| address.is_loopback() || address == self.listen || self.listen.is_unspecified();
        name.eq_ignore_ascii_case("localhost") || address.is_ok_and(is_here) || self.allowed.iter().any(listed)
    }
}

/// Whether what stands behind a name is nothing, or a port in digits: the parser takes a sign, and has no port where it reads no number.
fn has_plain_port(host: &Authority) -> bool {
    let behind = host.as_str().strip_prefix(host.host()).unwrap_or_default();
    match behind.strip_prefix(':') {
        Some(port) => port.bytes().all(|byte| byte.is_ascii_digit()),
        None => behind.is_empty(),
    }
}

/// Says in an answer that it is what its type says, and for pages of this origin only.
pub fn protect_answer(headers: &mut HeaderMap) {
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(RESOURCE_POLICY, HeaderValue::from_static("same-origin"));
}

/// Whether an origin is that of this host: a port that is left out is the usual one of the origin's scheme.
fn is_origin_of(origin: &[u8], host: &Authority) -> bool {
    let Ok(origin) = Uri::try_from(origin) else {
        return false;
    };
    let usual = match origin.scheme_str() {
        Some("http") => 80,
        Some("https") => 443,
        _ => return false,
    };
    let parts = |of: &Authority| (of.host().to_ascii_lowercase(), of.port_u16().unwrap_or(usual));
    let is_it = |origin: &Authority| has_plain_port(origin) && parts(origin) == parts(host);
    origin.authority().is_some_and(is_it)
}

/// Whether somebody follows a link to a page, which the page with the link cannot read.
fn follows_link(method: &Method, headers: &HeaderMap) -> bool {
    let says = |name, value: &[u8]| {
        headers
            .get(name)
            .is_some_and(|said: &HeaderValue| said.as_bytes() == value)
    };
    matches!(*method, Method::GET | Method::HEAD) && says(FETCH_MODE, b"navigate") && says(FETCH_DEST, b"document")
}

fn shown(bytes: &[u8]) -> String {
    const LONGEST: usize = 100;
    String::from_utf8_lossy(bytes.get(..LONGEST).unwrap_or(bytes)).into_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn status(listen: &str, allowed: &[&str], method: &Method, sent: &[(&'static str, &str)]) -> u16 {
        let allowed = allowed.iter().map(|host| host.parse().unwrap()).collect();
        let headers: HeaderMap = sent
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()))
            .collect();
        let guard = HostGuard::new(listen.parse().unwrap(), allowed);
        let checked = guard.check(method, &Uri::from_static("/x"), &headers, "allowed_hosts");
        checked.map_or_else(|refused| refused.status().as_u16(), |()| 200)
    }

    #[test]
    fn a_host_is_own_by_address_or_loopback_name_or_list() {
        for (listen, host, wanted) in [
            ("127.0.0.1:80", "localhost", 200),
            ("127.0.0.1:80", "LocalHost:9000", 200),
            ("127.0.0.1:80", "127.0.0.1:80", 200),
            ("127.0.0.1:80", "[::1]:80", 200),
            ("192.0.2.1:80", "192.0.2.1", 200),
            ("192.0.2.1:80", "192.0.2.2", 421),
            ("0.0.0.0:80", "192.0.2.2", 200),
            ("[::]:80", "[2001:db8::1]:80", 200),
            ("0.0.0.0:80", "evil.example", 421),
            ("127.0.0.1:80", "evil.example:80", 421),
            ("127.0.0.1:80", "localhost.evil.example", 421),
            ("127.0.0.1:80", "evil@localhost", 421),
            ("127.0.0.1:80", "", 421),
            ("127.0.0.1:80", "127.0.0.1.evil.example", 421),
            ("127.0.0.1:80", "Rack.Example:1", 200),
            ("127.0.0.1:80", "only.example:81", 200),
            ("127.0.0.1:80", "only.example:82", 421),
            ("127.0.0.1:80", "only.example", 421),
            ("127.0.0.1:80", "https.example", 200),
            ("127.0.0.1:80", "https.example:443", 200),
            ("127.0.0.1:80", "https.example:-0", 421),
            ("127.0.0.1:80", "localhost:+80", 421),
            ("127.0.0.1:80", "[::1]:0x50", 421),
            ("127.0.0.1:80", "[::1]0", 421),
        ] {
            let allowed = ["rack.example", "only.example:81", "https.example:443"];
            let status = status(listen, &allowed, &Method::GET, &[("host", host)]);
            assert_eq!(status, wanted, "{listen} {host}");
        }
    }

    #[test]
    fn only_pages_of_the_same_host_ask() {
        for (host, origin, wanted) in [
            ("localhost:80", "http://localhost", 200),
            ("localhost", "http://LOCALHOST:80", 200),
            ("rack.example", "https://rack.example", 200),
            ("localhost:80", "http://localhost:81", 403),
            ("localhost:80", "http://evil.example", 403),
            ("localhost:80", "null", 403),
            ("localhost:80", "ftp://localhost:80", 403),
            ("localhost:80", "localhost:80", 403),
            ("localhost:80", "http://localhost:-0", 403),
        ] {
            let sent = [("host", host), ("origin", origin)];
            let status = status("127.0.0.1:80", &["rack.example"], &Method::POST, &sent);
            assert_eq!(status, wanted, "{host} {origin}");
        }
        assert_eq!(
            status("127.0.0.1:80", &[], &Method::POST, &[("origin", "http://localhost")]),
            403
        );
        assert_eq!(status("127.0.0.1:80", &[], &Method::POST, &[]), 200);
    }

    #[test]
    fn what_a_browser_says_of_another_site_is_refused_unless_a_link_is_followed() {
        for (site, wanted) in [
            ("same-origin", 200),
            ("none", 200),
            ("same-site", 403),
            ("cross-site", 403),
        ] {
            let sent = [("host", "localhost"), ("sec-fetch-site", site)];
            assert_eq!(status("127.0.0.1:80", &[], &Method::GET, &sent), wanted, "{site}");
        }
        let link = [
            ("host", "localhost"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "navigate"),
            ("sec-fetch-dest", "document"),
        ];
        assert_eq!(status("127.0.0.1:80", &[], &Method::GET, &link), 200);
        assert_eq!(status("127.0.0.1:80", &[], &Method::POST, &link), 403);
    }

    #[test]
    fn every_host_of_a_request_counts_and_the_refusal_says_what_to_do() {
        let guard = HostGuard::new("127.0.0.1:80".parse().unwrap(), Vec::new());
        let mut twice = HeaderMap::new();
        twice.insert(HOST, "localhost".parse().unwrap());
        twice.append(HOST, "evil.example".parse().unwrap());
        let refused = guard
            .check(&Method::GET, &Uri::from_static("/"), &twice, "api.allowed_hosts")
            .unwrap_err();
        let says = "does not answer for the host \"evil.example\"; use its address or localhost, or list the name in api.allowed_hosts";
        assert!(refused.to_string().contains(says), "{refused}");
        let whole = Uri::from_static("http://evil.example/");
        assert!(guard.check(&Method::GET, &whole, &HeaderMap::new(), "k").is_err());
    }
}
