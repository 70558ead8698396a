//! TLS to the bus as a client: whom a connection trusts, and that it is never made without TLS.
//!
//! | trust | from |
//! |---|---|
//! | an authority by its fingerprint; the server sends the certificate itself | an invite, the Mixer that made it |
//! | the authorities of a PEM file | `snake.tls_ca` |
//! | one certificate, the first of a PEM file, whatever name was dialled | the Mixer, of its own server with an operator's certificate |
//!
//! # Invariants
//!
//! - With a trust there is no way back to clear text, whatever the server's greeting says, and the authorities of the system count for nothing.
//! - A pinned authority is found by its fingerprint in the chain that the server sends, and the chain is then verified against it in full: signatures,
//!   times, the name that was dialled.
//!
//! Not here: who a client is to the server ([`super::BusOptions`]), TLS as a server ([`crate::tls_server`]).

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_nats::ConnectOptions;
use model::KeyFingerprint;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::Error;
use crate::tls_server::{TlsFileError, certificates};

/// Whom a connection to the bus trusts. Clones share it.
#[derive(Debug, Clone)]
pub struct BusTrust {
    config: ClientConfig,
    pinned: Option<Arc<PinnedAuthority>>,
}

impl BusTrust {
    /// The authority whose certificate has this fingerprint, and no other.
    ///
    /// # Errors
    /// Never in practice: the library knows the protocol versions that it is asked for.
    pub fn pinned(authority: KeyFingerprint) -> Result<Self, Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = Arc::new(PinnedAuthority {
            authority: Mutex::new(authority),
            provider: Arc::clone(&provider),
        });
        let pinned = Some(Arc::clone(&verifier));
        Ok(Self {
            pinned,
            ..Self::with(provider, verifier)?
        })
    }

    /// Trusts another authority from the next connection on, where one was pinned; whether one was.
    pub fn repin(&self, authority: KeyFingerprint) -> bool {
        let Some(pinned) = &self.pinned else { return false };
        *pinned.authority.lock().unwrap_or_else(PoisonError::into_inner) = authority;
        true
    }

    /// Whether a client that pins the last certificate of a chain trusts the server that sends the chain, by its signatures and at some time: names
    /// and the present time are the client's.
    ///
    /// # Errors
    /// What to change in the file of the chain.
    pub fn check_pinned_chain(chain: &[CertificateDer<'_>]) -> Result<(), String> {
        let (Some((server, others)), Some(last)) = (chain.split_first(), chain.last()) else {
            return Err("it has no certificate".to_owned());
        };
        let verifier = PinnedAuthority {
            authority: Mutex::new(KeyFingerprint::of(last)),
            provider: Arc::new(rustls::crypto::ring::default_provider()),
        };
        let anywhere = ServerName::from(std::net::Ipv4Addr::UNSPECIFIED);
        let mut at = UnixTime::now();
        for _ in 0..=2 * chain.len() {
            let bad = match verifier.verify_server_cert(server, others, &anywhere, &[], at) {
                Ok(_) => return Ok(()),
                Err(rustls::Error::InvalidCertificate(bad)) => bad,
                Err(error) => return Err(error.to_string()),
            };
            match bad {
                // The name is looked at last.
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => return Ok(()),
                // Times are looked at before signatures.
                CertificateError::ExpiredContext { not_after, .. } => at = not_after,
                CertificateError::NotValidYetContext { not_before, .. } => at = not_before,
                bad => return Err(what_to_change(bad)),
            }
        }
        Err("its certificates are never valid at the same time".to_owned())
    }

    /// The authorities of a PEM file, and no others.
    ///
    /// # Errors
    /// If the file cannot be read or has no certificates.
    pub fn of_file(path: &Path) -> Result<Self, Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        for certificate in certificates(path).map_err(Error::BusTls)? {
            roots.add(certificate).map_err(|error| malformed(path, &error))?;
        }
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build();
        Self::with(provider, verifier.map_err(|error| malformed(path, &error))?)
    }

    /// The server whose certificate is the first of a PEM file, as it is at each connection.
    ///
    /// # Errors
    /// Never in practice: the library knows the protocol versions that it is asked for.
    pub fn of_server(file: PathBuf) -> Result<Self, Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = PinnedServer {
            file,
            provider: Arc::clone(&provider),
        };
        Self::with(provider, Arc::new(verifier))
    }

    fn with(provider: Arc<CryptoProvider>, verifier: Arc<dyn ServerCertVerifier>) -> Result<Self, Error> {
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.map_err(|error| malformed(Path::new("snake.tls_ca"), &error))?;
        let config = config.dangerous().with_custom_certificate_verifier(verifier);
        Ok(Self {
            config: config.with_no_client_auth(),
            pinned: None,
        })
    }

    /// A connection that is made with TLS to who is trusted, or not at all.
    #[must_use]
    pub fn secure(&self, options: ConnectOptions) -> ConnectOptions {
        options.require_tls(true).tls_client_config(self.config.clone())
    }
}

/// Why no Rack would trust a chain that it pins the last certificate of.
fn what_to_change(bad: CertificateError) -> String {
    use CertificateError as Bad;
    match bad {
        Bad::UnknownIssuer | Bad::BadSignature => "its first certificate, the server's, is not signed by its last one, which is what invited Racks \
            trust: put the certificates between them and, last, that of the authority into it"
            .to_owned(),
        Bad::Other(reason) if reason.to_string().contains("CaUsedAsEndEntity") => "its first certificate is that of an authority (CA:TRUE), which no \
            Rack takes for a server's: have the authority sign one for the server (CA:FALSE), and put that one first and the authority's last"
            .to_owned(),
        other => format!("no Rack would trust it: {}", rustls::Error::InvalidCertificate(other)),
    }
}

fn malformed(path: &Path, error: &impl ToString) -> Error {
    Error::BusTls(TlsFileError::Malformed {
        path: path.to_owned(),
        reason: error.to_string(),
    })
}

/// The parts of a verifier that follow from the library.
macro_rules! verify_signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            let algorithms = &self.provider.signature_verification_algorithms;
            rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            let algorithms = &self.provider.signature_verification_algorithms;
            rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.provider
                .signature_verification_algorithms
                .supported_schemes()
        }
    };
}

/// Verifies a server by the one authority that has the fingerprint.
#[derive(Debug)]
struct PinnedAuthority {
    authority: Mutex<KeyFingerprint>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for PinnedAuthority {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let mut chain = intermediates.iter().chain([end_entity]);
        let pinned = *self.authority.lock().unwrap_or_else(PoisonError::into_inner);
        let authority = chain.find(|certificate| KeyFingerprint::of(certificate) == pinned);
        let unknown = || rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let mut roots = RootCertStore::empty();
        roots.add(authority.ok_or_else(unknown)?.clone().into_owned())?;
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&self.provider)).build();
        let verifier = verifier.map_err(|error| rustls::Error::General(error.to_string()))?;
        verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    verify_signatures!();
}

/// Whether a client that pins the authority with this fingerprint trusts the server of `bus.example` by a chain, in 2030.
#[cfg(any(test, feature = "fuzz"))]
pub(crate) fn fuzz_chain(chain: &[CertificateDer<'_>], authority: KeyFingerprint) -> bool {
    const MOMENT: std::time::Duration = std::time::Duration::from_secs(1_900_000_000);
    let (Some((server, others)), Ok(name)) = (chain.split_first(), ServerName::try_from("bus.example")) else {
        return false;
    };
    let verifier = PinnedAuthority {
        authority: Mutex::new(authority),
        provider: Arc::new(rustls::crypto::ring::default_provider()),
    };
    let verified = verifier.verify_server_cert(server, others, &name, &[], UnixTime::since_unix_epoch(MOMENT));
    verified.is_ok()
}

/// Verifies that a server has the very certificate of a file.
#[derive(Debug)]
struct PinnedServer {
    file: PathBuf,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for PinnedServer {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let chain = certificates(&self.file).map_err(|error| rustls::Error::General(error.to_string()))?;
        match chain.first() == Some(end_entity) {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)),
        }
    }

    verify_signatures!();
}
