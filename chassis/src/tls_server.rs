//! TLS as a server: rustls with ring, TLS 1.3 and 1.2, certificates that are read again when they change, client certificates where they are asked for.
//!
//! # Invariants
//!
//! - What cannot be read leaves the certificate of before in force, and the log says why; at a start it is an error.
//! - A private key that every user of the machine may read is refused.
//! - Files are opened by a [`FileSource`] and in no other way, also when they are read again.
//! - A handshake has a bound; the caller gives it.
//!
//! # Not here
//!
//! Who a caller is: a client certificate lets somebody connect, and gives no rights.

use std::fmt::Debug;
use std::fs::File;
use std::io::{self, Read};
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{Acceptor, ClientHello, WebPkiClientVerifier};
use rustls::{CertificateError, CipherSuite, RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;
use zeroize::Zeroizing;

use crate::file_stamp::FileStamp;

/// A connection with TLS or without it.
pub type ServerStream<S> = Either<Box<TlsStream<S>>, S>;

/// How often the files are looked at, at most.
const LOOK: Duration = Duration::from_secs(5);

/// The year 10000: certificates without an end have one in the second before.
const LAST: Duration = Duration::from_secs(253_402_300_800);

/// The most bytes of a file of certificates or a key.
const MAX_PEM: u64 = 16 << 20;

/// Opens the files of a server: whoever reads beneath certain folders only brings a source of its own.
pub trait FileSource: Debug + Send + Sync {
    /// Opens a file to read it.
    ///
    /// # Errors
    /// If the system, or the source, refuses.
    fn open(&self, path: &Path) -> io::Result<File>;
}

/// Opens whatever the process may read.
#[derive(Debug)]
struct AnyFile;

impl FileSource for AnyFile {
    fn open(&self, path: &Path) -> io::Result<File> {
        File::open(path)
    }
}

/// A server's certificate and key, and whose clients may connect, as PEM files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerTlsFiles {
    /// The certificate, and those between it and its authority.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The authorities of clients' certificates; without it clients need none.
    pub client_ca: Option<PathBuf>,
}

/// Why a server has no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsFileError {
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The private key is not private.
    #[error("{} has mode {mode:o}: every user may read the private key; chmod 600 {}", path.display(), path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// It is not what it should be.
    #[error("{}: {reason}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

/// The files as they were when they were read.
type FileStamps = Vec<Option<FileStamp>>;

/// What a server accepts encrypted connections with.
#[derive(Debug)]
pub struct ServerTls {
    files: ServerTlsFiles,
    source: Box<dyn FileSource>,
    loaded: Mutex<LoadedTls>,
}

#[derive(Debug)]
struct LoadedTls {
    config: Arc<ServerConfig>,
    /// When the certificate expires, in seconds of Unix time.
    expires: Option<u64>,
    stamps: FileStamps,
    looked: Instant,
    /// Why the last look failed.
    failed: Option<String>,
}

impl ServerTls {
    /// Reads the files.
    ///
    /// # Errors
    /// [`TlsFileError`].
    pub fn open(files: ServerTlsFiles) -> Result<Self, TlsFileError> {
        Self::open_from(Box::new(AnyFile), files)
    }

    /// Reads the files from a source.
    ///
    /// # Errors
    /// [`TlsFileError`].
    pub fn open_from(source: Box<dyn FileSource>, files: ServerTlsFiles) -> Result<Self, TlsFileError> {
        let stamps = files.stamps(&*source);
        let (config, expires) = files.load(&*source)?;
        let loaded = LoadedTls {
            config,
            expires,
            stamps,
            looked: Instant::now(),
            failed: None,
        };
        Ok(Self {
            files,
            source,
            loaded: Mutex::new(loaded),
        })
    }

    /// The server's side of a handshake.
    ///
    /// # Errors
    /// If the client does not speak TLS, is not let in, or takes longer than `within`.
    pub async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
        within: Duration,
    ) -> io::Result<Box<TlsStream<S>>> {
        self.accept_protocol(stream, within, b"").await
    }

    /// The same, for a protocol that clients may name (ALPN) unless it is empty.
    ///
    /// # Errors
    /// As of [`ServerTls::accept`], and if the client names other protocols only.
    pub async fn accept_protocol<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
        within: Duration,
        protocol: &[u8],
    ) -> io::Result<Box<TlsStream<S>>> {
        let accepting = async {
            let hello = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
            let mut config = self.config();
            if !protocol.is_empty() {
                Arc::make_mut(&mut config).alpn_protocols = vec![protocol.to_vec()];
            }
            if prefers_chacha(&hello.client_hello()) {
                Arc::make_mut(&mut config).ignore_client_order = false;
            }
            hello.into_stream(config).await
        };
        let accepted = tokio::time::timeout(within, accepting).await;
        let accepted =
            accepted.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "the TLS handshake took too long"))?;
        Ok(Box::new(accepted?))
    }

    /// When the certificate that clients are shown now expires, in seconds of Unix time; none if it never does.
    pub fn certificate_expires(&self) -> Option<u64> {
        // It looks at the files.
        let _ = self.config();
        self.loaded().expires
    }

    /// The settings by the files as they are now, or were a moment ago.
    fn config(&self) -> Arc<ServerConfig> {
        let stamps = {
            let mut loaded = self.loaded();
            if loaded.looked.elapsed() < LOOK {
                return Arc::clone(&loaded.config);
            }
            loaded.looked = Instant::now();
            loaded.stamps.clone()
        };
        // Files may be slow: others shake hands by what is loaded meanwhile.
        self.look(&stamps);
        Arc::clone(&self.loaded().config)
    }

    fn look(&self, known: &FileStamps) {
        let stamps = self.files.stamps(&*self.source);
        if stamps == *known {
            return;
        }
        let read = self.files.load(&*self.source);
        let mut loaded = self.loaded();
        match read {
            Ok((config, expires)) => {
                tracing::info!(certificate = %self.files.certificate.display(), "read the TLS certificate again");
                (loaded.config, loaded.expires) = (config, expires);
                (loaded.stamps, loaded.failed) = (stamps, None);
            }
            // It is tried again at the next look, and told of once.
            Err(error) if loaded.failed.as_ref() != Some(&error.to_string()) => {
                tracing::error!(%error, "the TLS certificate of before stays in force");
                loaded.failed = Some(error.to_string());
            }
            Err(_) => {}
        }
    }

    fn loaded(&self) -> MutexGuard<'_, LoadedTls> {
        // Nothing is left half-done under it.
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ServerTlsFiles {
    fn stamps(&self, source: &dyn FileSource) -> FileStamps {
        let files = [Some(&self.certificate), Some(&self.key), self.client_ca.as_ref()];
        let stamp = |path: &PathBuf| Some(FileStamp::from(&source.open(path).ok()?.metadata().ok()?));
        files.into_iter().flatten().map(stamp).collect()
    }

    /// What connections are accepted with, and when the certificate expires.
    fn load(&self, source: &dyn FileSource) -> Result<(Arc<ServerConfig>, Option<u64>), TlsFileError> {
        let malformed = |reason: String| TlsFileError::Malformed {
            path: self.certificate.clone(),
            reason,
        };
        let provider = Arc::new(fastest_first());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| malformed(error.to_string()))?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates_from(source, path)? {
                    roots.add(certificate).map_err(|error| bad(path, error))?;
                }
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build();
                builder.with_client_cert_verifier(verifier.map_err(|error| bad(path, error))?)
            }
        };
        let chain = certificates_from(source, &self.certificate)?;
        let expires = chain.first().and_then(|certificate| expiry(certificate, provider));
        let built = builder.with_single_cert(chain, private_key(source, &self.key)?);
        let mut built = built.map_err(|error| malformed(error.to_string()))?;
        built.ignore_client_order = true;
        Ok((Arc::new(built), expires))
    }
}

/// When a certificate expires: what a verifier says of it when all do.
fn expiry(certificate: &CertificateDer<'static>, provider: Arc<CryptoProvider>) -> Option<u64> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).ok()?;
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
    let (anywhere, at) = (
        ServerName::from(Ipv4Addr::UNSPECIFIED),
        UnixTime::since_unix_epoch(LAST),
    );
    // Times are looked at before anything else.
    let judged = verifier
        .build()
        .ok()?
        .verify_server_cert(certificate, &[], &anywhere, &[], at);
    match judged {
        Err(rustls::Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) => {
            Some(not_after.as_secs())
        }
        _ => None,
    }
}

/// The cipher suites, those with AES of 128 bits before the others: less work for each byte, and as far from being broken. OpenSSL and rustls list
/// 256 bits first by default, so the order of the client does not count.
fn fastest_first() -> CryptoProvider {
    let mut provider = rustls::crypto::ring::default_provider();
    provider.cipher_suites.sort_by_key(|suite| {
        !matches!(
            suite.suite(),
            CipherSuite::TLS13_AES_128_GCM_SHA256
                | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
                | CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
        )
    });
    provider
}

/// Whether a client lists ChaCha20 first, as those do whose processor has no instructions for AES: its order counts.
fn prefers_chacha(hello: &ClientHello<'_>) -> bool {
    matches!(
        hello.cipher_suites().first(),
        Some(
            CipherSuite::TLS13_CHACHA20_POLY1305_SHA256
                | CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
                | CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256
        )
    )
}

fn bad(path: &Path, error: impl std::fmt::Display) -> TlsFileError {
    TlsFileError::Malformed {
        path: path.to_owned(),
        reason: error.to_string(),
    }
}

/// What a file has in it, and its mode.
fn read(source: &dyn FileSource, path: &Path) -> Result<(Vec<u8>, u32), TlsFileError> {
    let read = || {
        let file = source.open(path)?;
        let meta = file.metadata()?;
        let mut bytes = Vec::new();
        file.take(MAX_PEM + 1).read_to_end(&mut bytes)?;
        Ok((bytes, meta))
    };
    let (bytes, meta) = read().map_err(|source| TlsFileError::Unreadable {
        path: path.to_owned(),
        source,
    })?;
    if !meta.is_file() || bytes.len() as u64 > MAX_PEM {
        return Err(bad(path, format!("it is not a file of at most {MAX_PEM} bytes")));
    }
    Ok((bytes, meta.permissions().mode() & 0o777))
}

/// The certificates of a PEM file, at least one.
///
/// # Errors
/// [`TlsFileError`].
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsFileError> {
    certificates_from(&AnyFile, path)
}

fn certificates_from(source: &dyn FileSource, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsFileError> {
    certificates_in(&read(source, path)?.0).map_err(|reason| bad(path, reason))
}

/// The certificates of a text in PEM form, at least one.
pub(crate) fn certificates_in(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let read = read.map_err(|error| error.to_string())?;
    match read.is_empty() {
        true => Err("it has no certificate in PEM form".to_owned()),
        false => Ok(read),
    }
}

/// What a file with a private key has.
///
/// # Errors
/// [`TlsFileError`]; that everybody may read it among them.
pub fn read_private(path: &Path) -> Result<Zeroizing<Vec<u8>>, TlsFileError> {
    private(&AnyFile, path)
}

fn private(source: &dyn FileSource, path: &Path) -> Result<Zeroizing<Vec<u8>>, TlsFileError> {
    let (pem, mode) = read(source, path)?;
    let pem = Zeroizing::new(pem);
    if mode & 0o007 != 0 {
        return Err(TlsFileError::Exposed {
            path: path.to_owned(),
            mode,
        });
    }
    Ok(pem)
}

fn private_key(source: &dyn FileSource, path: &Path) -> Result<PrivateKeyDer<'static>, TlsFileError> {
    let pem = private(source, path)?;
    PrivateKeyDer::from_pem_slice(&pem).map_err(|error| bad(path, error))
}

#[cfg(test)]
mod tests;
