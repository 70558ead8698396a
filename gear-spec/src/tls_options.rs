//! TLS as configurations of gears have it: certificates, keys and authorities, as files on the Rack.
//!
//! # Not here
//!
//! Reading the files (`rack::gears`), and beneath which folders they may lie (`rack::policy`).

use std::path::PathBuf;

use rustls_pki_types::ServerName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a gear that listens speaks TLS. Files that change are read again within seconds, for new connections.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListenerTlsConfig {
    /// A file of the gear's certificate and those above it, in PEM form, beneath a folder of the Rack's `policy.read_roots`.
    #[schemars(extend("x-access" = "read"))]
    pub certificate_file: PathBuf,
    /// A file of the certificate's private key, in PEM form, that not every user of the machine may read.
    #[schemars(extend("x-access" = "read"))]
    pub key_file: PathBuf,
    /// A file of certificate authorities in PEM form: only clients with a certificate of one of them may connect.
    #[serde(default)]
    #[schemars(extend("x-access" = "read"))]
    pub client_ca_file: Option<PathBuf>,
}

/// How a gear that connects speaks TLS.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ClientTlsConfig {
    /// A file of certificate authorities in PEM form that are trusted instead of the machine's, beneath a folder of the Rack's `policy.read_roots`.
    #[schemars(extend("x-access" = "read"))]
    pub ca_file: Option<PathBuf>,
    /// A file of this client's certificate and those above it, in PEM form; `key_file` must be set too.
    #[schemars(extend("x-access" = "read"))]
    pub certificate_file: Option<PathBuf>,
    /// A file of the certificate's private key, in PEM form.
    #[schemars(extend("x-access" = "read"))]
    pub key_file: Option<PathBuf>,
    /// The name that the certificate of the other side must be for, instead of the host of `address`.
    server_name: Option<String>,
}

impl ClientTlsConfig {
    /// Says what is wrong with it, for a connection to this address; `key` is its own key.
    pub(crate) fn check(&self, key: &str, address: &str) -> Result<(), String> {
        if self.certificate_file.is_some() != self.key_file.is_some() {
            return Err(format!(
                "{key}.certificate_file and {key}.key_file belong together: set both or none"
            ));
        }
        self.name(key, address).map(drop)
    }

    /// The name that the certificate of the other side at this address must be for.
    ///
    /// # Errors
    /// A sentence that names the key.
    pub fn name(&self, key: &str, address: &str) -> Result<ServerName<'static>, String> {
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let name = self.server_name.as_deref().unwrap_or(host).to_owned();
        let wrong = format!(
            "{name:?} is not a host name or address: set {key}.server_name to the one of the other side's certificate"
        );
        ServerName::try_from(name).map_err(|_| wrong)
    }
}
