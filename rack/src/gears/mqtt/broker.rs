//! The broker that a gear connects to: what may be configured, and the endpoint that it means.
//!
//! # Invariants
//!
//! - A password never stands in a scenario: it comes from the environment of the Rack or from a file.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use model::{HumanDuration, Token};
use rustls::pki_types::ServerName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio_rustls::TlsConnector;

use super::super::secret_references::{self, ValueSecrecy};
use super::super::tcp_connect::{ReconnectBackoff, check_address, check_times};
use super::super::tls::{self, ClientIdentity, DefaultTrust};
use super::packet_fields::{MAX_TEXT, is_text};

/// The longest client identifier.
const MAX_CLIENT_ID: usize = 256;
/// The longest keep alive that MQTT can say.
const MAX_KEEP_ALIVE: Duration = Duration::from_secs(65_535);

/// The broker and how it is spoken to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BrokerConfig {
    /// Where the broker is: a host name or an address, and a port, such as `broker.example:8883`.
    address: String,
    /// The version of MQTT, `3.1.1` or `5`.
    #[serde(default)]
    pub(crate) version: MqttVersion,
    /// The name of this client, at most 256 bytes, to which `-` and the name of the Rack are appended; where it has `${NAME}` references to the
    /// environment of the Rack, it is what they make it. The broker ends the connection of another client of the same name, so each gear on
    /// each Rack needs one of its own; a session goes on under the same name.
    client_id: String,
    /// The user, if the broker wants one. `${NAME}` is the variable NAME in the environment of the Rack.
    #[serde(default)]
    user: Option<String>,
    /// The user's password, a `${NAME}` reference to the environment of the Rack.
    #[serde(default)]
    password: Option<String>,
    /// A file that has the password, instead of `password`; an end of line after it does not count.
    #[serde(default)]
    password_file: Option<PathBuf>,
    /// Speaks TLS; `{}` trusts the authorities of the machine.
    #[serde(default)]
    tls: Option<BrokerTlsConfig>,
    /// How often a sign of life is sent, at least; two and a half times as long without one from the broker ends the connection.
    /// A broker of version 5 may want another time.
    #[serde(default = "default_keep_alive")]
    keep_alive: HumanDuration,
    /// How long the broker keeps the session while there is no connection; zero begins a new session with each connection, and what was under way
    /// to this client is lost with the old one. Whole seconds, rounded up. In version 3.1.1 the broker keeps it for as long as it likes.
    #[serde(default = "default_session_expiry")]
    session_expiry: HumanDuration,
    /// How long an attempt to connect may take, until the broker has accepted it.
    #[serde(default = "default_timeout")]
    connect_timeout: HumanDuration,
    /// How long the broker may take no byte before the connection is opened anew.
    #[serde(default = "default_timeout")]
    write_timeout: HumanDuration,
    /// The pause before the first attempt to connect again; every next one is twice as long.
    #[serde(default = "default_reconnect_min")]
    reconnect_min: HumanDuration,
    /// The longest pause before an attempt to connect again.
    #[serde(default = "default_reconnect_max")]
    reconnect_max: HumanDuration,
}

/// How TLS is spoken.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct BrokerTlsConfig {
    /// A file of certificate authorities in PEM form that are trusted instead of the machine's.
    ca_file: Option<PathBuf>,
    /// A file of this client's certificate and those above it, in PEM form; `key_file` must be set too.
    certificate_file: Option<PathBuf>,
    /// A file of the certificate's private key, in PEM form.
    key_file: Option<PathBuf>,
    /// The name that the broker's certificate must be for, instead of the host of `address`.
    server_name: Option<String>,
}

/// The version of MQTT.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "VersionName", into = "VersionName")]
#[schemars(with = "VersionName")]
pub(crate) enum MqttVersion {
    V3,
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

/// A broker, with secrets and files read.
pub(crate) struct BrokerEndpoint {
    pub(crate) address: String,
    pub(crate) version: MqttVersion,
    pub(crate) client_id: String,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) tls: Option<(TlsConnector, ServerName<'static>)>,
    /// Seconds.
    pub(super) keep_alive: u16,
    /// Seconds.
    pub(crate) session_expiry: u32,
    pub(crate) connect_timeout: Duration,
    pub(super) write_timeout: Duration,
    reconnect: (Duration, Duration),
}

impl BrokerEndpoint {
    pub(crate) const fn backoff(&self) -> ReconnectBackoff {
        ReconnectBackoff::new(self.reconnect.0, self.reconnect.1)
    }
}

impl BrokerConfig {
    /// Says what the fields alone cannot.
    pub(crate) fn validate(&self) -> Result<(), String> {
        check_address("broker.address", &self.address)?;
        check_client_id(&self.client_id)?;
        self.check_secrets()?;
        self.check_times()?;
        self.tls.as_ref().map_or(Ok(()), |tls| tls.check(&self.address))
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

    fn client_id(&self, rack: Option<&Token>, env: impl Fn(&str) -> Option<String>) -> Result<String, String> {
        let mut client_id = secret_references::resolved("broker.client_id", &self.client_id, ValueSecrecy::Plain, env)?;
        if let Some(rack) = rack.filter(|_| client_id == self.client_id) {
            client_id = format!("{client_id}-{rack}");
        }
        check_client_id(&client_id).map(|()| client_id)
    }

    /// The user and the password, if it stands in no file.
    fn secrets(&self, env: impl Fn(&str) -> Option<String>) -> Result<[Option<String>; 2], String> {
        let one = |key: &str, text: &Option<String>, secrecy| match text {
            Some(text) => secret_references::resolved(key, text, secrecy, &env).map(Some),
            None => Ok(None),
        };
        Ok([
            one("broker.user", &self.user, ValueSecrecy::Plain)?,
            one("broker.password", &self.password, ValueSecrecy::Secret)?,
        ])
    }

    /// What this Rack connects to; reads the environment and files.
    pub(crate) fn endpoint(&self, rack: Option<&Token>) -> Result<BrokerEndpoint, String> {
        let [user, mut password] = self.secrets(|name| std::env::var(name).ok())?;
        if let Some(path) = &self.password_file {
            password = Some(read_password(path)?);
        }
        for (key, secret) in [("user", &user), ("password", &password)] {
            if secret
                .as_ref()
                .is_some_and(|secret| secret.len() > MAX_TEXT || secret.contains('\0'))
            {
                return Err(format!(
                    "broker.{key} has more than {MAX_TEXT} bytes or the character U+0000"
                ));
            }
        }
        let seconds = |time: HumanDuration| time.get().as_secs();
        let tls = self.tls.as_ref().map(|tls| tls.connector(&self.address)).transpose()?;
        Ok(BrokerEndpoint {
            address: self.address.clone(),
            version: self.version,
            client_id: self.client_id(rack, |name| std::env::var(name).ok())?,
            user,
            password,
            tls,
            keep_alive: u16::try_from(seconds(self.keep_alive)).unwrap_or(u16::MAX),
            // The largest number would mean for ever.
            session_expiry: u32::try_from(self.session_expiry.get().as_millis().div_ceil(1000)).unwrap_or(u32::MAX - 1),
            connect_timeout: self.connect_timeout.get(),
            write_timeout: self.write_timeout.get(),
            reconnect: (self.reconnect_min.get(), self.reconnect_max.get()),
        })
    }
}

fn check_client_id(client_id: &str) -> Result<(), String> {
    if client_id.is_empty() || client_id.len() > MAX_CLIENT_ID || !is_text(client_id) {
        return Err(format!(
            "broker.client_id must have 1 to {MAX_CLIENT_ID} bytes and no control character or noncharacter"
        ));
    }
    Ok(())
}

fn read_password(path: &Path) -> Result<String, String> {
    let read = std::fs::read_to_string(path);
    let text = read.map_err(|error| format!("broker.password_file {}: {error}", path.display()))?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

impl BrokerTlsConfig {
    fn check(&self, address: &str) -> Result<(), String> {
        if self.certificate_file.is_some() != self.key_file.is_some() {
            return Err("broker.tls.certificate_file and broker.tls.key_file belong together: set both or none".into());
        }
        self.name(address).map(drop)
    }

    fn name(&self, address: &str) -> Result<ServerName<'static>, String> {
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let name = self.server_name.as_deref().unwrap_or(host).to_owned();
        let wrong = format!(
            "{name:?} is not a host name or address: set broker.tls.server_name to the one of the broker's certificate"
        );
        ServerName::try_from(name).map_err(|_| wrong)
    }

    fn connector(&self, address: &str) -> Result<(TlsConnector, ServerName<'static>), String> {
        let files = self.certificate_file.as_deref().zip(self.key_file.as_deref());
        let identity = files.map(|(certificate_file, key_file)| ClientIdentity {
            certificate_file,
            key_file,
        });
        let config = tls::client_config(self.ca_file.as_deref(), DefaultTrust::Machine, identity)
            .map_err(|error| format!("broker.tls: {error}"))?;
        Ok((TlsConnector::from(Arc::new(config)), self.name(address)?))
    }
}

#[cfg(test)]
mod tests;
