//! TLS as a client: rustls with ring, and whom it trusts.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use gear_spec::tls_options::ClientTlsConfig;
use hyper_rustls::ConfigBuilderExt;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use crate::policy::FileRoots;

/// The most bytes of a file of certificates.
const MAX_PEM: u64 = 16 << 20;

/// Who is trusted where no file of authorities is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DefaultTrust {
    /// The authorities of this machine.
    Machine,
    Nobody,
}

/// A client's certificate and its key, as PEM files.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClientIdentity<'a> {
    pub(super) certificate_file: &'a Path,
    pub(super) key_file: &'a Path,
}

/// The other side of connections, and how it is known.
pub(super) struct TlsTarget {
    pub(super) connector: TlsConnector,
    pub(super) name: ServerName<'static>,
}

impl TlsTarget {
    /// What a configuration under this key means for an address. It reads files.
    pub(super) fn of(files: &FileRoots, key: &str, tls: &ClientTlsConfig, address: &str) -> Result<Self, String> {
        let identity = tls.certificate_file.as_deref().zip(tls.key_file.as_deref());
        let identity = identity.map(|(certificate_file, key_file)| ClientIdentity {
            certificate_file,
            key_file,
        });
        let config = client_config(files, tls.ca_file.as_deref(), DefaultTrust::Machine, identity);
        let config = config.map_err(|error| format!("{key}: {error}"))?;
        Ok(Self {
            connector: TlsConnector::from(Arc::new(config)),
            name: tls.name(key, address)?,
        })
    }
}

/// The settings of a client. It reads files; the error names the key and the file.
pub(super) fn client_config(
    files: &FileRoots,
    ca_file: Option<&Path>,
    trust: DefaultTrust,
    identity: Option<ClientIdentity<'_>>,
) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let builder = match (ca_file, trust) {
        (Some(path), _) => builder.with_root_certificates(roots(files, path)?),
        (None, DefaultTrust::Machine) => builder
            .with_native_roots()
            .map_err(|error| format!("this machine's certificate authorities cannot be read: {error}; set ca_file"))?,
        (None, DefaultTrust::Nobody) => builder.with_root_certificates(RootCertStore::empty()),
    };
    let Some(identity) = identity else {
        return Ok(builder.with_no_client_auth());
    };
    let key = read("key_file", files, identity.key_file)?;
    let key = PrivateKeyDer::from_pem_slice(&key).map_err(|error| bad("key_file", identity.key_file, &error))?;
    let chain = certificates("certificate_file", files, identity.certificate_file)?;
    let built = builder.with_client_auth_cert(chain, key);
    built.map_err(|error| bad("certificate_file", identity.certificate_file, &error))
}

fn roots(files: &FileRoots, path: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates("ca_file", files, path)? {
        roots.add(certificate).map_err(|error| bad("ca_file", path, &error))?;
    }
    Ok(roots)
}

fn certificates(key: &str, files: &FileRoots, path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let pem = read(key, files, path)?;
    let parsed: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let parsed = parsed.map_err(|error| bad(key, path, &error))?;
    if parsed.is_empty() {
        return Err(format!("{key} {} has no certificate in PEM form", path.display()));
    }
    Ok(parsed)
}

fn read(key: &str, files: &FileRoots, path: &Path) -> Result<Vec<u8>, String> {
    files.read(path, MAX_PEM).map_err(|error| bad(key, path, &error))
}

fn bad(key: &str, path: &Path, error: &dyn Error) -> String {
    format!("{key} {}: {error}", path.display())
}
