//! What the configurations of the MQTT gears share: the broker, levels of delivery, texts that MQTT can carry.
//!
//! # Invariants
//!
//! - A password never stands in a scenario: it comes from the environment of the Rack or from a file.

use std::path::PathBuf;
use std::time::Duration;

use model::{HumanDuration, Token};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::network_address::{check_address, check_times, is_loopback_address};
use crate::secret_references::{self, ValueSecrecy};
use crate::tls_options::ClientTlsConfig;

/// The longest text and the longest binary field.
pub const MAX_TEXT: usize = 65_535;

/// The longest client identifier.
const MAX_CLIENT_ID: usize = 256;

/// The longest keep alive that MQTT can say.
const MAX_KEEP_ALIVE: Duration = Duration::from_secs(65_535);

/// The broker and how it is spoken to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BrokerConfig {
    /// Where the broker is: a host name or an address, and a port, such as `broker.example:8883`.
    #[schemars(extend("x-access" = "connect"))]
    pub address: String,
    /// The version of MQTT, `3.1.1` or `5`.
    #[serde(default)]
    pub version: MqttVersion,
    /// The name of this client, at most 256 bytes, to which `-` and the name of the Rack are appended; where it has `${NAME}` references to the
    /// environment of the Rack, it is what they make it. The broker ends the connection of another client of the same name, so each gear on
    /// each Rack needs one of its own; a session goes on under the same name.
    #[schemars(extend("x-access" = "references"))]
    client_id: String,
    /// The user, if the broker wants one. `${NAME}` is the variable NAME in the environment of the Rack.
    #[serde(default)]
    #[schemars(extend("x-access" = "references"))]
    user: Option<String>,
    /// The user's password, a `${NAME}` reference to the environment of the Rack.
    #[serde(default)]
    #[schemars(extend("x-access" = "references"))]
    password: Option<String>,
    /// A file that has the password, instead of `password`; an end of line after it does not count.
    #[serde(default)]
    #[schemars(extend("x-access" = "read"))]
    pub password_file: Option<PathBuf>,
    /// Speaks TLS; `{}` trusts the authorities of the machine.
    #[serde(default)]
    pub tls: Option<ClientTlsConfig>,
    /// Must be true where there is a `user`, `address` is not a loopback address and there is no `tls`: anybody on the way reads the user and the
    /// password.
    #[serde(default)]
    pub allow_insecure: bool,
    /// How often a sign of life is sent, at least; two and a half times as long without one from the broker ends the connection.
    /// A broker of version 5 may want another time.
    #[serde(default = "default_keep_alive")]
    pub keep_alive: HumanDuration,
    /// How long the broker keeps the session while there is no connection; zero begins a new session with each connection, and what was under way
    /// to this client is lost with the old one. Whole seconds, rounded up. In version 3.1.1 the broker keeps it for as long as it likes.
    #[serde(default = "default_session_expiry")]
    pub session_expiry: HumanDuration,
    /// How long an attempt to connect may take, until the broker has accepted it.
    #[serde(default = "default_timeout")]
    pub connect_timeout: HumanDuration,
    /// How long the broker may take no byte before the connection is reopened.
    #[serde(default = "default_timeout")]
    pub write_timeout: HumanDuration,
    /// The pause before the first attempt to connect again; every next one is twice as long.
    #[serde(default = "default_reconnect_min")]
    pub reconnect_min: HumanDuration,
    /// The longest pause before an attempt to connect again.
    #[serde(default = "default_reconnect_max")]
    pub reconnect_max: HumanDuration,
}

/// The version of MQTT.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "VersionName", into = "VersionName")]
#[schemars(with = "VersionName")]
pub enum MqttVersion {
    /// 3.1.1.
    V3,
    /// 5.
    #[default]
    V5,
}

/// A version as people write it: `5` is a number in YAML, `3.1.1` a text.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "version must be 3.1.1 or 5")]
enum VersionName {
    Number(u8),
    Text(String),
}

impl TryFrom<VersionName> for MqttVersion {
    type Error = &'static str;

    fn try_from(name: VersionName) -> Result<Self, Self::Error> {
        match name {
            VersionName::Number(5) => Ok(Self::V5),
            VersionName::Text(text) if text == "5" => Ok(Self::V5),
            VersionName::Text(text) if text == "3.1.1" => Ok(Self::V3),
            _ => Err("version must be 3.1.1 or 5"),
        }
    }
}

impl From<MqttVersion> for VersionName {
    fn from(version: MqttVersion) -> Self {
        match version {
            MqttVersion::V3 => Self::Text("3.1.1".to_owned()),
            MqttVersion::V5 => Self::Number(5),
        }
    }
}

const fn default_keep_alive() -> HumanDuration {
    HumanDuration::from_secs(30)
}

const fn default_session_expiry() -> HumanDuration {
    HumanDuration::from_secs(24 * 3600)
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

fn check_client_id(client_id: &str) -> Result<(), String> {
    if client_id.is_empty() || client_id.len() > MAX_CLIENT_ID || !is_text(client_id) {
        return Err(format!(
            "broker.client_id must have 1 to {MAX_CLIENT_ID} bytes and no control character or noncharacter"
        ));
    }
    Ok(())
}

impl BrokerConfig {
    /// Says what the fields alone cannot.
    pub(crate) fn validate(&self) -> Result<(), String> {
        check_address("broker.address", &self.address)?;
        check_client_id(&self.client_id)?;
        self.check_secrets()?;
        self.check_times()?;
        if self.user.is_some() && self.tls.is_none() && !self.allow_insecure && !is_loopback_address(&self.address) {
            return Err(format!(
                "broker.user and the password go to {}, another machine, and anybody on the way there reads them: set broker.tls, or set \
                 broker.allow_insecure to true",
                self.address
            ));
        }
        self.tls
            .as_ref()
            .map_or(Ok(()), |tls| tls.check("broker.tls", &self.address))
    }

    fn check_secrets(&self) -> Result<(), String> {
        if self.password.is_some() && self.password_file.is_some() {
            return Err("broker.password and broker.password_file exclude each other: leave one out".into());
        }
        let has_password = self.password.is_some() || self.password_file.is_some();
        if has_password && self.user.is_none() {
            return Err("broker.user must be set where there is a password".into());
        }
        self.client_id(None, |_| Some("x".into()))?;
        self.secrets(|_| Some(String::new())).map(drop)
    }

    fn check_times(&self) -> Result<(), String> {
        let keep_alive = self.keep_alive.get();
        if keep_alive < Duration::from_secs(1) || keep_alive > MAX_KEEP_ALIVE {
            return Err("broker.keep_alive must be between 1s and 65535s".into());
        }
        let timeouts = (self.connect_timeout, self.write_timeout);
        check_times("broker.", timeouts, (self.reconnect_min, self.reconnect_max))
    }

    /// The name of this client on a Rack, with its references resolved.
    ///
    /// # Errors
    /// A sentence that names the key.
    pub fn client_id(&self, rack: Option<&Token>, env: impl Fn(&str) -> Option<String>) -> Result<String, String> {
        let mut client_id = secret_references::resolved("broker.client_id", &self.client_id, ValueSecrecy::Plain, env)?;
        if let Some(rack) = rack.filter(|_| client_id == self.client_id) {
            client_id = format!("{client_id}-{rack}");
        }
        check_client_id(&client_id).map(|()| client_id)
    }

    /// The user and the password, if it stands in no file.
    ///
    /// # Errors
    /// A sentence that names the key.
    pub fn secrets(&self, env: impl Fn(&str) -> Option<String>) -> Result<[Option<String>; 2], String> {
        let one = |key: &str, text: &Option<String>, secrecy| match text {
            Some(text) => secret_references::resolved(key, text, secrecy, &env).map(Some),
            None => Ok(None),
        };
        Ok([
            one("broker.user", &self.user, ValueSecrecy::Plain)?,
            one("broker.password", &self.password, ValueSecrecy::Secret)?,
        ])
    }
}

/// How surely a message is delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
#[allow(clippy::enum_variant_names, reason = "the words of the specification")]
pub enum QosLevel {
    /// QoS 0.
    AtMostOnce,
    /// QoS 1.
    AtLeastOnce,
    /// QoS 2.
    ExactlyOnce,
}

impl TryFrom<u8> for QosLevel {
    type Error = String;

    fn try_from(level: u8) -> Result<Self, String> {
        match level {
            0 => Ok(Self::AtMostOnce),
            1 => Ok(Self::AtLeastOnce),
            2 => Ok(Self::ExactlyOnce),
            other => Err(format!("qos must be 0, 1 or 2, not {other}")),
        }
    }
}

impl From<QosLevel> for u8 {
    fn from(qos: QosLevel) -> Self {
        match qos {
            QosLevel::AtMostOnce => 0,
            QosLevel::AtLeastOnce => 1,
            QosLevel::ExactlyOnce => 2,
        }
    }
}

/// Whether MQTT can say it: brokers end a connection over a control character or a noncharacter of Unicode.
#[must_use]
pub fn is_text(text: &str) -> bool {
    let is_noncharacter = |c: char| matches!(u32::from(c), 0xfdd0..=0xfdef) || u32::from(c) & 0xfffe == 0xfffe;
    text.len() <= MAX_TEXT && !text.contains(|c: char| c.is_control() || is_noncharacter(c))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::{Value, json};

    use super::*;

    fn broker(more: Value) -> Result<BrokerConfig, String> {
        let mut config = json!({ "address": "broker.example:8883", "client_id": "c" });
        config
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let broker: BrokerConfig = serde_json::from_value(config).map_err(|error| error.to_string())?;
        broker.validate().map(|()| broker)
    }

    #[test]
    fn control_characters_and_noncharacters_are_no_text() {
        for text in ["a\0", "a\n", "\u{7f}", "\u{9f}", "\u{fdd0}", "\u{ffff}", "\u{10fffe}"] {
            assert!(!is_text(text), "{text:?}");
        }
        assert!(is_text("Grüße/\u{fdcf}\u{fffd}\u{1f600}") && is_text(&"x".repeat(MAX_TEXT)));
        assert!(!is_text(&"x".repeat(MAX_TEXT + 1)));
    }

    #[test]
    fn a_broker_that_makes_no_sense_is_refused_by_the_name_of_its_key() {
        for (more, says) in [
            (json!({ "address": "broker" }), "broker.address"),
            (json!({ "client_id": "" }), "broker.client_id"),
            (json!({ "version": "4" }), "version must be 3.1.1 or 5"),
            (json!({ "version": 3.1 }), "version must be 3.1.1 or 5"),
            (
                json!({ "user": "u", "password": "plain" }),
                "broker.password is a secret",
            ),
            (json!({ "password": "${P}" }), "broker.user must be set"),
            (json!({ "user": "u", "password": "${PLATFORM_X}" }), "is not given away"),
            (
                json!({ "user": "u", "password": "${P}", "password_file": "p" }),
                "exclude each other",
            ),
            (json!({ "keep_alive": "500ms" }), "broker.keep_alive"),
            (json!({ "connect_timeout": "0s" }), "broker.connect_timeout"),
            (json!({ "reconnect_min": "1m" }), "broker.reconnect_max"),
            (json!({ "tls": { "key_file": "k" } }), "belong together"),
            (json!({ "tls": { "server_name": "a b" } }), "broker.tls.server_name"),
            (json!({ "tls": { "ca": "k" } }), "unknown field `ca`"),
        ] {
            let error = broker(more.clone()).unwrap_err();
            assert!(error.contains(says), "{more}: {error}");
        }
        assert_eq!(broker(json!({})).unwrap().version, MqttVersion::V5);
        let secret = json!({ "user": "u", "password": "${P}" });
        let with = |key: &str, value: Value| {
            let mut more = secret.clone();
            more[key] = value;
            broker(more)
        };
        let error = broker(secret.clone()).unwrap_err();
        assert!(error.contains("broker.allow_insecure to true"), "{error}");
        for (key, value) in [
            ("tls", json!({})),
            ("allow_insecure", json!(true)),
            ("address", json!("[::1]:1883")),
        ] {
            assert!(with(key, value).is_ok(), "{key}");
        }
        for (written, meant) in [
            (json!(5), MqttVersion::V5),
            (json!("5"), MqttVersion::V5),
            (json!("3.1.1"), MqttVersion::V3),
        ] {
            assert_eq!(broker(json!({ "version": written })).unwrap().version, meant);
        }
    }
}
