//! `tcp_in` as data: its manifest and its configuration.

use std::net::SocketAddr;

use model::HumanDuration;
use model::gear_manifest::{self, GearConfig, GearManifest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::framing::StreamFraming;
use crate::network_address::check_clear_listen;
use crate::tls_options::ListenerTlsConfig;

/// What the type is.
pub const MANIFEST: GearManifest = GearManifest {
    kind: "tcp_in",
    summary: "takes TCP connections; each frame becomes a message, and replies go back",
    inputs: &["reply"],
    outputs: &["out"],
    doc: "Messages have `tcp.connection`, `network.peer.address` and `network.peer.port` in their meta. A message on `reply` goes to the connection that its `tcp.connection` names; \
          one whose connection is closed is rejected. A full inbox keeps the peer waiting. A peer that ends its stream is closed, and so is one whose stream begins with a request of HTTP, as a browser sends it for any web page. A device whose first frame begins like one (`PUT /a`) and ends with another delimiter than a line feed is taken for a browser too. \
          A frame has no place for a business signal or a trace: each message begins its own, and only `correlate` joins it with another.",
    example: include_str!("../../examples/gears/tcp_in.yaml"),
    schema: gear_manifest::schema::<TcpInConfig>,
    check: gear_manifest::check::<TcpInConfig>,
    passes_on: gear_manifest::never,
};

/// Configuration of `tcp_in`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TcpInConfig {
    /// Where to listen, `127.0.0.1:0` for any free port.
    #[schemars(extend("x-access" = "listen"))]
    pub listen: SocketAddr,
    /// How streams are cut into frames, both ways.
    #[serde(default)]
    pub framing: StreamFraming,
    /// The most bytes of a frame; a connection that sends a longer one is closed.
    #[serde(default = "default_max_frame")]
    pub max_frame: u32,
    /// The most connections at a time; more wait until one is closed.
    #[serde(default = "default_max_connections")]
    pub max_connections: u32,
    /// How long a connection may be open without a frame going either way.
    #[serde(default = "default_idle_timeout")]
    pub idle_timeout: HumanDuration,
    /// Speaks TLS.
    #[serde(default)]
    pub tls: Option<ListenerTlsConfig>,
    /// Must be true where `listen` is not a loopback address and there is no `tls`: what comes there is not encrypted.
    #[serde(default)]
    pub allow_insecure: bool,
}

const fn default_max_frame() -> u32 {
    1024 * 1024
}

const fn default_max_connections() -> u32 {
    256
}

const fn default_idle_timeout() -> HumanDuration {
    HumanDuration::from_secs(300)
}

impl GearConfig for TcpInConfig {
    fn validate(&self) -> Result<(), String> {
        if self.max_frame == 0 {
            return Err("max_frame must be more than zero".into());
        }
        if self.max_connections == 0 || self.max_connections > 65_536 {
            return Err("max_connections must be between 1 and 65536".into());
        }
        if self.idle_timeout.get().is_zero() {
            return Err("idle_timeout must be more than zero".into());
        }
        if !self.allow_insecure {
            check_clear_listen(self.listen, self.tls.as_ref())?;
        }
        self.framing.validate()
    }
}
