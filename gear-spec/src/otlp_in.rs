//! `otlp_in` as data: its manifest and its configuration.

use std::net::SocketAddr;

use http::uri::Authority;
use model::gear_manifest::{self, GearConfig, GearManifest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::http_auth::{HttpAuthConfig, HttpCredential};
use crate::network_address::{check_clear_listen, parse_hosts};
use crate::tls_options::ListenerTlsConfig;

/// What the type is.
pub const MANIFEST: GearManifest = GearManifest {
    kind: "otlp_in",
    summary: "takes logs, traces and metrics of OpenTelemetry (OTLP) over HTTP and gRPC",
    inputs: &[],
    outputs: &[],
    doc: "Nothing is to be wired: what SDKs, agents and collectors send becomes rows of the tables logs, traces and metrics, by the rules of the Mixer's own OTLP. \
          `listen` takes `POST /v1/logs`, `/v1/traces` and `/v1/metrics` (protobuf or JSON; gzip, zstd or none), `listen_grpc` gRPC; at least one must be set. \
          An answer says that the rows are on the disk of the Rack; from there the Mixer stores them once. Where `spool.policy` is `drop_oldest`, what the Rack says of itself may push the oldest rows out of a spool that is full. \
          All rows are the Rack's, for a Rack may not send as somebody else: what their resource says, its service among it, is in `resource.service.name` and its like. \
          A request that comes again byte by byte, as clients do that heard no answer, is stored once while it is among the last 1024 that had rows, also after a restart of the Rack; one whose first record has no time is stored each time. \
          Single records that cannot be stored are counted in the answer (`partial_success`) and as `gear.messages.dropped`, and are dead letters: the first 1,000 of a request, of 8 MiB together, as protobuf, with the signal as their port and `record`, their place in the request, while what waits in the outbox is at most an eighth of it with them. They do not go back to the gear. \
          A full spool, and more requests at once than fit in memory, are answered 503 with `Retry-After`, or `UNAVAILABLE` with `RetryInfo`: clients keep the data and try again. \
          A request may have 16 MiB, unpacked. What a browser sends for a page of another site is refused as by `http_in`.",
    example: include_str!("../../examples/gears/otlp_in.yaml"),
    schema: gear_manifest::schema::<OtlpInConfig>,
    check: gear_manifest::check::<OtlpInConfig>,
    passes_on: gear_manifest::never,
};

/// Configuration of `otlp_in`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OtlpInConfig {
    /// Where OTLP over HTTP is taken, usually port 4318; `127.0.0.1:0` for any free port.
    #[serde(default)]
    #[schemars(extend("x-access" = "listen"))]
    pub listen: Option<SocketAddr>,
    /// Where OTLP over gRPC is taken, usually port 4317.
    #[serde(default)]
    #[schemars(extend("x-access" = "listen"))]
    pub listen_grpc: Option<SocketAddr>,
    /// More hosts that requests may be for, `rack.example` or `rack.example:4318`, such as the name by which clients know this machine.
    #[serde(default)]
    allowed_hosts: Vec<String>,
    /// What a request must show: a token; without it, whoever reaches an address may send.
    #[serde(default)]
    pub auth: Option<HttpAuthConfig>,
    /// Speaks TLS, at both addresses.
    #[serde(default)]
    pub tls: Option<ListenerTlsConfig>,
    /// Must be true where an address is not a loopback address and there is no `tls`: what comes there is not encrypted.
    #[serde(default)]
    pub allow_insecure: bool,
}

impl OtlpInConfig {
    /// The hosts of `allowed_hosts`.
    ///
    /// # Errors
    /// A sentence that names the key and the host.
    pub fn allowed_hosts(&self) -> Result<Vec<Authority>, String> {
        parse_hosts(&self.allowed_hosts)
    }
}

impl GearConfig for OtlpInConfig {
    fn validate(&self) -> Result<(), String> {
        let addresses = [self.listen, self.listen_grpc];
        if addresses == [None, None] {
            return Err("set listen, for OTLP over HTTP, or listen_grpc, or both".into());
        }
        self.allowed_hosts()?;
        let shown = self.auth.as_ref().map(|auth| auth.credential(|_| Some(String::new())));
        if let Some(HttpCredential::Signature { .. }) = shown.transpose()? {
            return Err("auth.hmac_secret: clients of OTLP sign nothing; use auth.token or auth.token_file".into());
        }
        if self.allow_insecure {
            return Ok(());
        }
        addresses
            .into_iter()
            .flatten()
            .try_for_each(|address| check_clear_listen(address, self.tls.as_ref()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    #[test]
    fn a_configuration_that_cannot_be_meant_is_refused_with_the_fix() {
        for (config, says) in [
            (json!({}), "set listen"),
            (
                json!({ "listen_grpc": "0.0.0.0:4317" }),
                "0.0.0.0:4317 can be reached from other machines",
            ),
            (
                json!({ "listen": "127.0.0.1:0", "allowed_hosts": ["http://x"] }),
                "allowed_hosts",
            ),
            (
                json!({ "listen": "127.0.0.1:0", "auth": { "hmac_secret": "${A}" } }),
                "use auth.token",
            ),
            (
                json!({ "listen": "127.0.0.1:0", "auth": { "token": "plain" } }),
                "must not be in a scenario",
            ),
        ] {
            let error = gear_manifest::config::<OtlpInConfig>(config.as_object().unwrap()).unwrap_err();
            assert!(error.contains(says), "{config}: {error}");
        }
        for config in [
            json!({ "listen": "127.0.0.1:4318", "listen_grpc": "127.0.0.1:4317" }),
            json!({ "listen_grpc": "[::1]:0", "auth": { "token": "${A}" } }),
            json!({ "listen": "0.0.0.0:4318", "allow_insecure": true }),
        ] {
            assert!(
                gear_manifest::config::<OtlpInConfig>(config.as_object().unwrap()).is_ok(),
                "{config}"
            );
        }
    }
}
