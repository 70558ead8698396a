//! `tcp_out` as data: its manifest and its configuration.

use model::HumanDuration;
use model::gear_manifest::{self, GearConfig, GearManifest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::framing::StreamFraming;
use crate::network_address::{check_address, check_clear_target, check_times};
use crate::tls_options::ClientTlsConfig;

/// What the type is.
pub const MANIFEST: GearManifest = GearManifest {
    kind: "tcp_out",
    summary: "writes each message to a TCP connection as a frame; what comes back becomes messages",
    inputs: &["in"],
    outputs: &["reply"],
    doc: "The connection is opened again when it breaks; messages wait meanwhile. A message is done when its bytes were written. \
          Port `reply` may stay unwired: what comes back is read and dropped then. \
          A frame has no place for a business signal or a trace: what comes back begins its own, and only `correlate` joins it with its request.",
    example: include_str!("../../examples/gears/tcp_out.yaml"),
    schema: gear_manifest::schema::<TcpOutConfig>,
    check: gear_manifest::check::<TcpOutConfig>,
    passes_on: gear_manifest::never,
};

/// Configuration of `tcp_out`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TcpOutConfig {
    /// Where to connect to: a host name or an address, and a port, such as `collector.example:9000`.
    #[schemars(extend("x-access" = "connect"))]
    pub address: String,
    /// Speaks TLS; `{}` trusts the authorities of the machine.
    #[serde(default)]
    pub tls: Option<ClientTlsConfig>,
    /// Must be true where `address` is not a loopback address and there is no `tls`: anybody on the way reads what goes there.
    #[serde(default)]
    pub allow_insecure: bool,
    /// How streams are cut into frames, both ways.
    #[serde(default)]
    pub framing: StreamFraming,
    /// The most bytes of a frame that comes back; a longer one ends the connection.
    #[serde(default = "default_max_frame")]
    pub max_frame: u32,
    /// How long an attempt to connect may take.
    #[serde(default = "default_timeout")]
    pub connect_timeout: HumanDuration,
    /// How long the other side may take no byte before the connection is reopened.
    #[serde(default = "default_timeout")]
    pub write_timeout: HumanDuration,
    /// The pause before the first attempt to connect again; every next one is twice as long.
    #[serde(default = "default_reconnect_min")]
    pub reconnect_min: HumanDuration,
    /// The longest pause before an attempt to connect again.
    #[serde(default = "default_reconnect_max")]
    pub reconnect_max: HumanDuration,
}

const fn default_max_frame() -> u32 {
    1024 * 1024
}

const fn default_timeout() -> HumanDuration {
    HumanDuration::from_secs(10)
}

const fn default_reconnect_min() -> HumanDuration {
    HumanDuration::from_millis(100)
}

const fn default_reconnect_max() -> HumanDuration {
    HumanDuration::from_secs(30)
}

impl GearConfig for TcpOutConfig {
    fn validate(&self) -> Result<(), String> {
        check_address("address", &self.address)?;
        if let Some(tls) = &self.tls {
            tls.check("tls", &self.address)?;
        }
        if !self.allow_insecure {
            check_clear_target(&self.address, self.tls.as_ref())?;
        }
        if self.max_frame == 0 {
            return Err("max_frame must be more than zero".into());
        }
        let timeouts = (self.connect_timeout, self.write_timeout);
        check_times("", timeouts, (self.reconnect_min, self.reconnect_max))?;
        self.framing.validate()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    #[test]
    fn an_address_without_a_port_is_refused_with_an_example() {
        for bad in ["", "host", ":80", "host:", "host:0", "host:70000", "http://host"] {
            let config = json!({ "address": bad });
            let error = gear_manifest::config::<TcpOutConfig>(config.as_object().unwrap()).unwrap_err();
            assert!(error.contains("is not host:port"), "{bad}: {error}");
        }
        for good in ["host:80", "127.0.0.1:1", "[::1]:9000"] {
            let config = json!({ "address": good, "tls": {} });
            assert!(
                gear_manifest::config::<TcpOutConfig>(config.as_object().unwrap()).is_ok(),
                "{good}"
            );
        }
    }
}
