//! The broker that a gear connects to: the endpoint that its configuration means.
//!
//! # Invariants
//!
//! - A password never stands in a scenario: it comes from the environment of the Rack or from a file.

use std::time::Duration;

use gear_spec::mqtt::{BrokerConfig, MAX_TEXT, MqttVersion};
use model::{HumanDuration, Token};

use super::super::secret_file::read_secret;
use super::super::tcp_connect::ReconnectBackoff;
use super::super::tls::TlsTarget;
use crate::policy::RackPolicy;

/// A broker, with secrets and files read.
pub(crate) struct BrokerEndpoint {
    pub(super) policy: RackPolicy,
    pub(crate) address: String,
    pub(crate) version: MqttVersion,
    pub(crate) client_id: String,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) tls: Option<TlsTarget>,
    /// Seconds.
    pub(super) keep_alive: u16,
    /// Seconds.
    pub(crate) session_expiry: u32,
    pub(crate) connect_timeout: Duration,
    pub(super) write_timeout: Duration,
    reconnect: (Duration, Duration),
}

impl BrokerEndpoint {
    /// What this Rack connects to; reads the environment and files.
    pub(crate) fn of(config: &BrokerConfig, rack: Option<&Token>, policy: &RackPolicy) -> Result<Self, String> {
        let [user, mut password] = config.secrets(|name| policy.variable(name))?;
        if let Some(path) = &config.password_file {
            password = Some(read_secret(policy.readable(), "broker.password_file", path)?);
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
        let tls = config
            .tls
            .as_ref()
            .map(|tls| TlsTarget::of(policy.readable(), "broker.tls", tls, &config.address))
            .transpose()?;
        Ok(Self {
            policy: policy.clone(),
            address: config.address.clone(),
            version: config.version,
            client_id: config.client_id(rack, |name| policy.variable(name))?,
            user,
            password,
            tls,
            keep_alive: u16::try_from(seconds(config.keep_alive)).unwrap_or(u16::MAX),
            // The largest number would mean for ever.
            session_expiry: u32::try_from(config.session_expiry.get().as_millis().div_ceil(1000))
                .unwrap_or(u32::MAX - 1),
            connect_timeout: config.connect_timeout.get(),
            write_timeout: config.write_timeout.get(),
            reconnect: (config.reconnect_min.get(), config.reconnect_max.get()),
        })
    }

    pub(crate) const fn backoff(&self) -> ReconnectBackoff {
        ReconnectBackoff::new(self.reconnect.0, self.reconnect.1)
    }
}

#[cfg(test)]
mod tests;
