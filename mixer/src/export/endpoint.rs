//! Where a collector is: `host:port`, or an address with a scheme, and the headers that it wants.
//!
//! | given | connection |
//! |---|---|
//! | `host:port` | TLS; plain text if it may be insecure |
//! | `http://…` | plain text |
//! | `https://…` | TLS; the certificate is not verified if it may be insecure |

use std::fmt;

use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use model::Table;

use protocols::otlp::SIGNALS;

/// Which of OTLP's protocols a collector speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CollectorProtocol {
    Grpc,
    Http,
}

/// Headers that are the connection's, the body's or the client's; and all of gRPC.
const OWN_HEADERS: [&str; 13] = [
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "transfer-encoding",
    "upgrade",
    "user-agent",
];

/// A collector's address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CollectorTarget {
    pub(super) protocol: CollectorProtocol,
    scheme: Scheme,
    authority: Authority,
    /// What is before `/v1/logs`; without a slash at its end.
    base: String,
    /// Whether the collector's certificate is verified.
    pub(super) verifies: bool,
}

impl CollectorTarget {
    /// A collector that speaks gRPC; or why it cannot be one.
    pub(crate) fn grpc(endpoint: &str, insecure: bool) -> Result<Self, String> {
        let target = Self::parse(CollectorProtocol::Grpc, endpoint, insecure)?;
        if !target.base.is_empty() {
            return Err(format!(
                "{:?} is a path, and gRPC has its own: give host:port",
                target.base
            ));
        }
        if target.authority.port().is_none() {
            return Err("the port is missing: give host:port".to_owned());
        }
        Ok(target)
    }

    /// A collector that speaks HTTP; or why it cannot be one. Signals have their paths below the given one.
    pub(crate) fn http(endpoint: &str, insecure: bool) -> Result<Self, String> {
        Self::parse(CollectorProtocol::Http, endpoint, insecure)
    }

    fn parse(protocol: CollectorProtocol, endpoint: &str, insecure: bool) -> Result<Self, String> {
        let (scheme, rest) = match endpoint.split_once("://") {
            Some(("http", rest)) => (Scheme::HTTP, rest),
            Some(("https", rest)) => (Scheme::HTTPS, rest),
            Some((other, _)) => return Err(format!("{other:?} is no scheme of it: give http, https, or host:port")),
            None if insecure => (Scheme::HTTP, endpoint),
            None => (Scheme::HTTPS, endpoint),
        };
        let (host, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        if path.contains(['?', '#']) {
            return Err("it has a query: give what is before the question mark".to_owned());
        }
        if host.contains('@') {
            return Err("it has credentials: give them as observability.otlp.headers".to_owned());
        }
        let authority: Authority = host.parse().map_err(|_| format!("{host:?} is no host with a port"))?;
        let base = path.trim_end_matches('/').to_owned();
        if !base.is_empty() && base.parse::<PathAndQuery>().is_err() {
            return Err(format!("{base:?} is no path"));
        }
        Ok(Self {
            protocol,
            scheme,
            authority,
            base,
            verifies: !insecure,
        })
    }

    /// Whether connections are encrypted.
    pub(super) fn is_encrypted(&self) -> bool {
        self.scheme == Scheme::HTTPS
    }

    /// Where a signal's requests go.
    pub(super) fn uri(&self, signal: Table) -> Result<Uri, http::Error> {
        let path = match self.protocol {
            CollectorProtocol::Grpc => {
                let method = SIGNALS.iter().find(|(table, ..)| *table == signal);
                method.map(|(.., method)| *method).unwrap_or_default().to_owned()
            }
            CollectorProtocol::Http => format!("{}/v1/{signal}", self.base),
        };
        Uri::builder()
            .scheme(self.scheme.clone())
            .authority(self.authority.clone())
            .path_and_query(path)
            .build()
    }
}

impl fmt::Display for CollectorTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            scheme,
            authority,
            base,
            ..
        } = self;
        let protocol = match self.protocol {
            CollectorProtocol::Grpc => "gRPC",
            CollectorProtocol::Http => "HTTP",
        };
        write!(f, "{scheme}://{authority}{base} ({protocol})")
    }
}

/// Headers from the configuration; their values are never shown. Or which name or value cannot be one.
pub(crate) fn header_map<'a>(headers: impl Iterator<Item = (&'a str, &'a str)>) -> Result<HeaderMap, String> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| format!("{name:?} is no name of a header"))?;
        if OWN_HEADERS.contains(&key.as_str()) || key.as_str().starts_with("grpc-") {
            return Err(format!("{name:?} is set by the Mixer itself: remove it"));
        }
        let value = HeaderValue::from_str(value);
        let mut value = value.map_err(|_| format!("the value of {name:?} has characters that no header may have"))?;
        value.set_sensitive(true);
        map.insert(key, value);
    }
    Ok(map)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn an_address_says_how_it_is_reached() {
        let grpc = |text: &str, insecure| CollectorTarget::grpc(text, insecure).unwrap();
        let http = |text: &str, insecure| CollectorTarget::http(text, insecure).unwrap();
        for (target, wanted, verifies) in [
            (
                grpc("c:4317", true),
                "http://c:4317/opentelemetry.proto.collector.logs.v1.LogsService/Export",
                false,
            ),
            (
                grpc("c:4317", false),
                "https://c:4317/opentelemetry.proto.collector.logs.v1.LogsService/Export",
                true,
            ),
            (http("http://c:4318", false), "http://c:4318/v1/logs", true),
            (http("https://c/otlp/", true), "https://c/otlp/v1/logs", false),
            (http("[::1]:4318", true), "http://[::1]:4318/v1/logs", false),
        ] {
            assert_eq!(target.uri(Table::Logs).unwrap().to_string(), wanted);
            assert_eq!(target.verifies, verifies, "{wanted}");
        }
        assert_eq!(http("https://c/otlp/", false).to_string(), "https://c/otlp (HTTP)");
    }

    #[test]
    fn what_cannot_be_reached_is_refused_with_the_reason() {
        for (text, says) in [
            ("c", "port"),
            ("c:4317/v1", "path"),
            ("ftp://c:1", "scheme"),
            ("u:p@c:4317", "credentials"),
            ("c:4317?x=1", "query"),
            ("", "host"),
            ("a b:1", "host"),
        ] {
            let refused = CollectorTarget::grpc(text, true).unwrap_err();
            assert!(refused.contains(says), "{text}: {refused}");
            assert!(!refused.contains("u:p"), "{refused}");
        }
    }

    #[test]
    fn headers_are_taken_as_they_are_and_never_shown() {
        let map = header_map([("X-Api-Key", "s3cret")].into_iter()).unwrap();
        assert_eq!(map["x-api-key"], "s3cret");
        assert!(!format!("{map:?}").contains("s3cret"));
        assert!(header_map([("a b", "x")].into_iter()).is_err());
        for own in [
            "Host",
            "content-length",
            "Transfer-Encoding",
            "connection",
            "content-encoding",
            "Content-Type",
            "user-agent",
            "TE",
            "accept-encoding",
            "expect",
            "upgrade",
            "Keep-Alive",
            "proxy-connection",
            "grpc-encoding",
            "Grpc-Timeout",
        ] {
            let refused = header_map([(own, "1")].into_iter()).unwrap_err();
            assert!(refused.contains(own) && refused.contains("remove"), "{refused}");
        }
        let refused = header_map([("k", "s3\ncret")].into_iter()).unwrap_err();
        assert!(refused.contains("\"k\"") && !refused.contains("s3"), "{refused}");
    }
}
