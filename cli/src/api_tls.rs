//! TLS of the command line to a Mixer: whom it trusts, and the certificate that it shows.
//!
//! | of | by the environment, which comes first | by `platform login` | without |
//! |---|---|---|---|
//! | authorities of the Mixer's certificate (PEM) | `PLATFORM_CA_FILE` | `--ca-file` | those of the system |
//! | a client certificate, where `api.tls_client_ca` asks for one (PEM) | `PLATFORM_CLIENT_CERT`, `PLATFORM_CLIENT_KEY` | `--client-cert`, `--client-key` | none |
//!
//! Not here: tokens, and where they may go in clear text ([`crate::login`]).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};

use crate::error::Error;

/// The files of TLS to a Mixer.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct ApiTlsFiles {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ca_file: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) client_cert: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) client_key: Option<PathBuf>,
}

impl ApiTlsFiles {
    /// These; for what is not among them, what the environment names. A certificate and its key are of one place.
    pub(crate) fn or_environment(self) -> Self {
        let named = |name: &str| {
            std::env::var_os(name)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        let own = self.client_cert.is_some() || self.client_key.is_some();
        let shown = |kept, name| if own { kept } else { named(name) };
        Self {
            ca_file: self.ca_file.or_else(|| named("PLATFORM_CA_FILE")),
            client_cert: shown(self.client_cert, "PLATFORM_CLIENT_CERT"),
            client_key: shown(self.client_key, "PLATFORM_CLIENT_KEY"),
        }
    }

    /// What the environment names; for what it does not, these.
    pub(crate) fn after_environment(self) -> Self {
        let named = Self::default().or_environment();
        let shows = named.client_cert.is_some() || named.client_key.is_some();
        Self {
            ca_file: named.ca_file.or(self.ca_file),
            client_cert: if shows { named.client_cert } else { self.client_cert },
            client_key: if shows { named.client_key } else { self.client_key },
        }
    }

    /// These, by paths that hold in another working folder too. Links stay what they are: they lead to other files after a renewal.
    pub(crate) fn absolute(self) -> Result<Self, Error> {
        let absolute = |path: Option<PathBuf>| {
            let found = path.map(|path| std::path::absolute(&path).map_err(|source| Error::Read { path, source }));
            found.transpose()
        };
        Ok(Self {
            ca_file: absolute(self.ca_file)?,
            client_cert: absolute(self.client_cert)?,
            client_key: absolute(self.client_key)?,
        })
    }

    /// What the client is told of TLS.
    pub(crate) fn config(&self) -> Result<TlsConfig, Error> {
        let roots = match &self.ca_file {
            Some(path) => RootCerts::Specific(Arc::new(certificates(path)?)),
            None => system_roots(),
        };
        let shown = match (&self.client_cert, &self.client_key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some(ClientCert::new_with_certs(
                &certificates(certificate)?,
                private_key(key)?,
            )),
            _ => {
                return Err(Error::Usage(
                    "a client certificate and its key go together: --client-cert with --client-key, PLATFORM_CLIENT_CERT with PLATFORM_CLIENT_KEY"
                        .to_owned(),
                ));
            }
        };
        Ok(TlsConfig::builder().root_certs(roots).client_cert(shown).build())
    }
}

/// The authorities of the system; where it has none, those that browsers know.
fn system_roots() -> RootCerts {
    let found = rustls_native_certs::load_native_certs().certs;
    if found.is_empty() {
        return RootCerts::WebPki;
    }
    let roots = found.iter().map(|der| Certificate::from_der(der).to_owned());
    RootCerts::Specific(Arc::new(roots.collect()))
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(|source| Error::Read {
        path: path.to_owned(),
        source,
    })
}

fn bad(path: &Path, reason: impl Into<String>) -> Error {
    Error::Data {
        path: path.to_owned(),
        reason: reason.into(),
    }
}

fn certificates(path: &Path) -> Result<Vec<Certificate<'static>>, Error> {
    let mut found = Vec::new();
    for item in parse_pem(&read(path)?) {
        if let PemItem::Certificate(certificate) = item.map_err(|error| bad(path, error.to_string()))? {
            found.push(certificate);
        }
    }
    match found.is_empty() {
        true => Err(bad(path, "it has no certificate in PEM form")),
        false => Ok(found),
    }
}

fn private_key(path: &Path) -> Result<PrivateKey<'static>, Error> {
    PrivateKey::from_pem(&read(path)?).map_err(|error| bad(path, format!("it has no private key in PEM form: {error}")))
}
