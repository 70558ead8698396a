//! `http_in` as data: its manifest and its configuration.

use std::net::SocketAddr;
use std::time::Duration;

use http::uri::Authority;
use model::HumanDuration;
use model::gear_manifest::{self, GearConfig, GearManifest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::http_auth::HttpAuthConfig;
use crate::network_address::{check_clear_listen, parse_hosts};
use crate::tls_options::ListenerTlsConfig;

/// The longest that a caller may be kept waiting for a reply.
const MAX_REPLY_WITHIN: Duration = Duration::from_secs(3600);

/// What the type is.
pub const MANIFEST: GearManifest = GearManifest {
    kind: "http_in",
    summary: "listens on HTTP; the body of each POST becomes a message, and replies go back",
    inputs: &["reply"],
    outputs: &["out"],
    doc: "202 says that every wired inbox has the message; a full inbox keeps the request waiting. With `reply_within` messages have `http.request` in their meta, \
          and the answer is the message on `reply` that names it: its body, and 200 or its `http.response.status_code`; 504 where none comes in time. A reply that \
          nobody waits for is rejected. A request that repeats the `Idempotency-Key`, the body and the address of one of the last 16384 since the gear began, as `http_out` does when it tries again, gets its answer and makes no \
          message; with `reply_within` keys do nothing. The header `Flux-Id` of an answer names the business signal. `traceparent` and `tracestate` are obeyed. `Flux-Id` and `Flux-Parent`, which `http_out` sends, or else `flux_id` in `baggage`, make the message one of the sender's business signal; \
          they are obeyed only with `trust_flux_id`, which is true for the first two where `listen` is a loopback address and nothing is said; `baggage`, which programs pass on unasked, is obeyed only where it is written. Then a bad `Flux-Id` or `Flux-Parent` is answered 400; a bad `flux_id` is passed over. \
          Set it to true where a gateway or a firewall lets in only senders that you trust, and to false behind a proxy on this machine that strangers reach. \
          What a browser sends for a page of another site is refused: a `Host` that is not the address of `listen`, a loopback name or one of `allowed_hosts` is answered 421, \
          an `Origin` that is not the host, or `Sec-Fetch-Site: cross-site` or `same-site`, 403. With `auth`, a request without the token or the signature is answered 401.",
    example: include_str!("../../examples/gears/http_in.yaml"),
    schema: gear_manifest::schema::<HttpInConfig>,
    check: gear_manifest::check::<HttpInConfig>,
    passes_on: gear_manifest::never,
};

/// Configuration of `http_in`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HttpInConfig {
    /// Where to listen, `127.0.0.1:0` for any free port.
    #[schemars(extend("x-access" = "listen"))]
    pub listen: SocketAddr,
    /// The path that takes messages.
    #[serde(default = "default_path")]
    pub path: String,
    /// How long a request waits for a reply, 1h at most. Without it the answer is 202 once the message was taken.
    #[serde(default)]
    pub reply_within: Option<HumanDuration>,
    /// Whether `Flux-Id`, `Flux-Parent` and `baggage` of a request are obeyed: its message belongs to the sender's business signal then. Without it, the first two
    /// are where `listen` is a loopback address, and `baggage` nowhere.
    #[serde(default)]
    trust_flux_id: Option<bool>,
    /// More hosts that requests may be for, `rack.example` or `rack.example:8181`, such as the name by which a proxy passes them on.
    #[serde(default)]
    allowed_hosts: Vec<String>,
    /// What a request must show; without it, whoever reaches `listen` may post.
    #[serde(default)]
    pub auth: Option<HttpAuthConfig>,
    /// Speaks TLS.
    #[serde(default)]
    pub tls: Option<ListenerTlsConfig>,
    /// Must be true where `listen` is not a loopback address and there is no `tls`: what comes there is not encrypted.
    #[serde(default)]
    pub allow_insecure: bool,
}

impl HttpInConfig {
    /// Whether what a request says of its signal is obeyed.
    #[must_use]
    pub fn trusts(&self) -> bool {
        self.trust_flux_id.unwrap_or_else(|| self.listen.ip().is_loopback())
    }

    /// Whether the signal in `baggage` is obeyed: only where the configuration says so. Any client on this machine passes on baggage that
    /// it was sent.
    #[must_use]
    pub fn obeys_baggage(&self) -> bool {
        self.trust_flux_id == Some(true)
    }

    /// The hosts of `allowed_hosts`.
    ///
    /// # Errors
    /// A sentence that names the key and the host.
    pub fn allowed_hosts(&self) -> Result<Vec<Authority>, String> {
        parse_hosts(&self.allowed_hosts)
    }
}

fn default_path() -> String {
    "/".to_owned()
}

impl GearConfig for HttpInConfig {
    fn validate(&self) -> Result<(), String> {
        if !self.path.starts_with('/') {
            return Err("path must begin with /".into());
        }
        let within = self.reply_within.map(HumanDuration::get);
        if within.is_some_and(|within| within.is_zero() || within > MAX_REPLY_WITHIN) {
            return Err("reply_within must be more than zero and at most 1h".into());
        }
        self.allowed_hosts()?;
        self.auth.as_ref().map_or(Ok(()), HttpAuthConfig::validate)?;
        if self.allow_insecure {
            return Ok(());
        }
        check_clear_listen(self.listen, self.tls.as_ref())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    #[test]
    fn who_reaches_a_loopback_address_is_trusted_unless_said_otherwise() {
        for (listen, said, trusts) in [
            ("127.0.0.1:0", None, true),
            ("[::1]:0", None, true),
            ("0.0.0.0:0", None, false),
            ("192.0.2.1:80", None, false),
            ("0.0.0.0:0", Some(true), true),
            ("127.0.0.1:0", Some(false), false),
        ] {
            let mut config = json!({ "listen": listen, "allow_insecure": true });
            if let Some(said) = said {
                config["trust_flux_id"] = json!(said);
            }
            let config = gear_manifest::config::<HttpInConfig>(config.as_object().unwrap()).unwrap();
            assert_eq!(config.trusts(), trusts, "{listen} {said:?}");
            assert_eq!(config.obeys_baggage(), said == Some(true), "{listen} {said:?}");
        }
    }

    #[test]
    fn allowed_hosts_are_hosts() {
        for (host, good) in [
            ("x.example", true),
            ("x.example:81", true),
            ("http://x", false),
            ("a@x", false),
        ] {
            let config = json!({ "listen": "127.0.0.1:80", "allowed_hosts": [host] });
            let parsed = gear_manifest::config::<HttpInConfig>(config.as_object().unwrap());
            assert_eq!(parsed.is_ok(), good, "{host}");
            let says = format!("allowed_hosts: {host:?}");
            assert!(parsed.err().is_none_or(|error| error.contains(&says)), "{host}");
        }
    }

    #[test]
    fn a_wait_for_replies_has_bounds() {
        for (within, good) in [("0s", false), ("1ms", true), ("1h", true), ("61m", false)] {
            let config = json!({ "listen": "127.0.0.1:0", "reply_within": within });
            let done = gear_manifest::config::<HttpInConfig>(config.as_object().unwrap());
            assert_eq!(done.is_ok(), good, "{within}: {done:?}");
        }
    }
}
