//! `syslog_in` as data: its manifest and its configuration.

use std::net::SocketAddr;

use model::HumanDuration;
use model::gear_manifest::{self, GearConfig, GearManifest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::network_address::check_clear_listen;
use crate::tls_options::ListenerTlsConfig;

/// What the type is.
pub const MANIFEST: GearManifest = GearManifest {
    kind: "syslog_in",
    summary: "takes syslog over UDP and TCP; each line becomes a message",
    inputs: &[],
    outputs: &["out"],
    doc: "RFC 5424 and RFC 3164, over TCP and TLS counted or ended by line feeds (RFC 6587, RFC 5425). The data has `facility`, `severity`, `timestamp`, `host`, `app`, `procid`, `msgid`, \
          `structured` and `message`, as far as they are there; the body is the line. Other lines have `syslog.malformed: true` in their meta. A connection that begins with a request of HTTP, as a browser sends it for any web page, is closed.",
    example: include_str!("../../examples/gears/syslog_in.yaml"),
    schema: gear_manifest::schema::<SyslogInConfig>,
    check: gear_manifest::check::<SyslogInConfig>,
    passes_on: gear_manifest::never,
};

/// Configuration of `syslog_in`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SyslogInConfig {
    /// Where to listen, for UDP and TCP. The usual port is 514, which needs a privilege.
    #[schemars(extend("x-access" = "listen"))]
    pub listen: SocketAddr,
    /// Whether to take UDP.
    #[serde(default = "default_true")]
    pub udp: bool,
    /// Whether to take TCP.
    #[serde(default = "default_true")]
    pub tcp: bool,
    /// The most bytes of a line over TCP; a connection that sends a longer one is closed. A datagram may have 65507 bytes.
    #[serde(default = "default_max_message")]
    pub max_message: u32,
    /// The most TCP connections at a time; more wait until one is closed.
    #[serde(default = "default_max_connections")]
    pub max_connections: u32,
    /// How long a TCP connection may be open without a line.
    #[serde(default = "default_idle_timeout")]
    pub idle_timeout: HumanDuration,
    /// Speaks TLS over TCP (RFC 5425, whose usual port is 6514).
    #[serde(default)]
    pub tls: Option<ListenerTlsConfig>,
    /// Must be true where `listen` is not a loopback address and there is no `tls`, or `udp` is true: what comes there is not encrypted.
    #[serde(default)]
    pub allow_insecure: bool,
}

const fn default_true() -> bool {
    true
}

const fn default_max_message() -> u32 {
    64 * 1024
}

const fn default_max_connections() -> u32 {
    256
}

const fn default_idle_timeout() -> HumanDuration {
    HumanDuration::from_secs(24 * 3600)
}

impl GearConfig for SyslogInConfig {
    fn validate(&self) -> Result<(), String> {
        if !self.udp && !self.tcp {
            return Err("udp and tcp are both false: nothing would be taken; leave one of them out".into());
        }
        if self.tls.is_some() && !self.tcp {
            return Err("tls is for TCP, and tcp is false: set tcp to true, or leave tls out".into());
        }
        if !(480..=16 * 1024 * 1024).contains(&self.max_message) {
            return Err("max_message must be between 480 and 16777216".into());
        }
        if self.max_connections == 0 || self.max_connections > 65_536 {
            return Err("max_connections must be between 1 and 65536".into());
        }
        if self.idle_timeout.get().is_zero() {
            return Err("idle_timeout must be more than zero".into());
        }
        if self.allow_insecure {
            return Ok(());
        }
        if self.udp && self.tls.is_some() && !self.listen.ip().is_loopback() {
            return Err(
                "udp has no TLS, and other machines can reach it: set udp to false, or allow_insecure to true".into(),
            );
        }
        check_clear_listen(self.listen, self.tls.as_ref())
    }
}
