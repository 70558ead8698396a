//! TLS as configurations of gears have it: certificates, keys and authorities, as files on the Rack.
//!
//! # Not here
//!
//! Reading the files (`rack::gears`), and beneath which folders they may lie (`rack::policy`).

use std::path::PathBuf;

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
