//! TLS certificates of the managed bus: a private certificate authority, and the server's certificate that it signs anew before it expires; or an
//! operator's certificate, in the files that he names, read again when they change.
//!
//! | file in `<store.dir>/keys` | what |
//! |---|---|
//! | `bus-ca.key`, 0600 | the authority's secret key (ECDSA P-256), made at the first start with TLS |
//! | `bus-ca.pem` | its certificate: what clients trust. Racks know it by its SHA-256 |
//! | `bus-server.key`, 0600, `bus-server.pem` | the server's, made anew at each start and every [`RENEWED`]; the authority's certificate follows in the file |
//!
//! # Invariants
//!
//! - The authority never changes while its files are there; one of them without the other is an error, and nothing is written.
//! - A server's certificate is good for [`LIFETIME`], by the Mixer's clock. It has no beginning that matters: a Rack whose clock lags connects.
//! - nats-server reads its certificate at a start and at a reload, after both files were replaced.
//!
//! # Not here
//!
//! Verifying it ([`chassis::bus::BusTrust`]), the reload (`reload`).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use chassis::bus::BusTrust;
use chassis::file_stamp::FileStamp;
use chassis::tls_server::{ServerTls, ServerTlsFiles, certificates, read_private};
use model::{Clock, KeyFingerprint, Timestamp};
use parking_lot::Mutex;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
};

use super::BusError;

/// How long a server's certificate is good.
const LIFETIME: Duration = Duration::from_secs(30 * 24 * 3_600);
/// How old it gets at most while the Mixer runs.
const RENEWED: Duration = Duration::from_secs(10 * 24 * 3_600);
/// The server's certificate and key, in the folder of keys.
pub(crate) const SERVER_CERTIFICATE: &str = "bus-server.pem";
pub(crate) const SERVER_KEY: &str = "bus-server.key";
/// The name of the authority, in its certificate and in those that it signs.
const AUTHORITY: &str = "Platform bus authority";

/// The certificates of one store. Clones share them.
#[derive(Clone)]
pub(crate) enum BusCertificates {
    /// Of the store's own authority.
    Own(Arc<OwnAuthority>),
    /// An operator's.
    Provided(Arc<ProvidedCertificate>),
}

/// The authority of a store.
pub(crate) struct OwnAuthority {
    folder: PathBuf,
    /// The authority's certificate.
    authority_pem: String,
    authority: KeyFingerprint,
    issuer: Issuer<'static, KeyPair>,
    /// What the server is called by its clients.
    names: Vec<String>,
    clock: Clock,
    /// When this run signed the server's certificate last.
    signed: Mutex<Option<Timestamp>>,
}

impl std::fmt::Debug for BusCertificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BusCertificates")
            .field("authority", &self.authority())
            .finish_non_exhaustive()
    }
}

impl BusCertificates {
    /// The authority of a folder, made where there is none; for a server of these names and addresses.
    ///
    /// # Errors
    /// [`BusError`] if the files cannot be used or written, or a name is none.
    pub(crate) fn open(folder: PathBuf, names: Vec<String>, clock: Clock) -> Result<Self, BusError> {
        durable_fs::create_private_dirs(&folder)?;
        let (key_file, pem_file) = (folder.join("bus-ca.key"), folder.join("bus-ca.pem"));
        let key = match (key_file.exists(), pem_file.exists()) {
            (true, true) => read_key(&key_file)?,
            (false, false) => make_authority(&key_file, &pem_file)?,
            (has_key, _) => {
                let (path, other) = if has_key {
                    (pem_file, key_file)
                } else {
                    (key_file, pem_file)
                };
                return Err(BusError::NoAuthority { path, other });
            }
        };
        let bad = |error: &dyn std::fmt::Display| unusable(&pem_file, error);
        let authority_pem = std::fs::read_to_string(&pem_file).map_err(|error| bad(&error))?;
        let chain = certificates(&pem_file)?;
        let certificate = chain.first().ok_or_else(|| bad(&"it has no certificate"))?;
        let authority = KeyFingerprint::of(certificate);
        // A name that cannot be in a certificate is said now, not at the renewal.
        CertificateParams::new(names.clone()).map_err(|error| BusError::TlsNames(error.to_string()))?;
        Ok(Self::Own(Arc::new(OwnAuthority {
            authority_pem,
            authority,
            issuer: Issuer::new(authority_params(), key),
            folder,
            names,
            clock,
            signed: Mutex::default(),
        })))
    }

    /// A certificate that an operator gives, with its key; the server gets a copy in the folder of keys.
    ///
    /// # Errors
    /// [`BusError`] if the files cannot be used, or not copied.
    pub(crate) fn provided(files: ServerTlsFiles, folder: PathBuf) -> Result<Self, BusError> {
        durable_fs::create_private_dirs(&folder)?;
        let stamps = stamps(&files);
        let authority = install(&files, &folder)?;
        Ok(Self::Provided(Arc::new(ProvidedCertificate {
            files,
            folder,
            taken: Mutex::new(TakenCertificate { stamps, authority }),
        })))
    }

    /// By what Racks know the authority: of an operator's certificate, the last one in its file.
    pub(crate) fn authority(&self) -> KeyFingerprint {
        match self {
            Self::Own(own) => own.authority,
            Self::Provided(provided) => provided.taken.lock().authority,
        }
    }

    /// What the Mixer's own connections trust.
    pub(super) fn trust(&self) -> Result<BusTrust, BusError> {
        Ok(match self {
            Self::Own(own) => BusTrust::pinned(own.authority)?,
            Self::Provided(provided) => BusTrust::of_server(provided.folder.join(SERVER_CERTIFICATE))?,
        })
    }

    /// Whether the server is to have another certificate.
    pub(super) fn is_due(&self) -> bool {
        match self {
            Self::Own(own) => own.is_due(),
            Self::Provided(provided) => stamps(&provided.files) != provided.taken.lock().stamps,
        }
    }

    /// Makes the server's key and certificate anew if it is time, or looks at those that were given.
    pub(super) fn renew(&self) -> Result<(), BusError> {
        match self {
            _ if !self.is_due() => Ok(()),
            Self::Own(own) => own.renew(),
            Self::Provided(provided) => {
                provided.take();
                Ok(())
            }
        }
    }

    /// The certificate and its key.
    pub(super) fn files(&self) -> [PathBuf; 2] {
        let folder = match self {
            Self::Own(own) => &own.folder,
            Self::Provided(provided) => &provided.folder,
        };
        [SERVER_CERTIFICATE, SERVER_KEY].map(|name| folder.join(name))
    }
}

/// An operator's certificate.
pub(crate) struct ProvidedCertificate {
    files: ServerTlsFiles,
    folder: PathBuf,
    taken: Mutex<TakenCertificate>,
}

/// What was looked at last, and by what Racks know the authority of the copy.
struct TakenCertificate {
    stamps: [Option<FileStamp>; 2],
    authority: KeyFingerprint,
}

impl ProvidedCertificate {
    /// Takes the files as they are now. What cannot be used is told of, and the copy of before stays until they change again: the server goes on,
    /// and so do changes of its users.
    fn take(&self) {
        let stamps = stamps(&self.files);
        let installed = install(&self.files, &self.folder);
        let mut taken = self.taken.lock();
        taken.stamps = stamps;
        match installed {
            Ok(authority) if authority != taken.authority => {
                tracing::error!(
                    before = %taken.authority, now = %authority,
                    "the authority of the bus's certificate is another one: Racks that joined by invite need a new one (platform racks invite)"
                );
                taken.authority = authority;
            }
            Ok(_) => tracing::info!("took the new certificate of the bus"),
            Err(error) => tracing::error!(%error, "the bus keeps the certificate of before"),
        }
    }
}

/// Copies a certificate and its key that fit, and says by what Racks know the authority: its last certificate.
fn install(files: &ServerTlsFiles, folder: &Path) -> Result<KeyFingerprint, BusError> {
    let staged = ServerTlsFiles {
        certificate: folder.join(".new-bus-server.pem"),
        key: folder.join(".new-bus-server.key"),
        client_ca: None,
    };
    let chain = std::fs::read(&files.certificate).map_err(|error| unusable(&files.certificate, &error))?;
    durable_fs::write_durably(&staged.certificate, &chain)?;
    durable_fs::write_durably(&staged.key, &read_private(&files.key)?)?;
    // What nats-server would refuse is said here, of the operator's files.
    if let Err(error) = ServerTls::open(staged.clone()) {
        ServerTls::open(files.clone())?;
        return Err(error.into());
    }
    let chain = certificates(&staged.certificate)?;
    let last = chain
        .last()
        .ok_or_else(|| unusable(&files.certificate, &"it has no certificate"))?;
    // What Racks would refuse is, too.
    BusTrust::check_pinned_chain(&chain).map_err(|reason| unusable(&files.certificate, &reason))?;
    durable_fs::rename_durably(&staged.key, &folder.join(SERVER_KEY))?;
    durable_fs::rename_durably(&staged.certificate, &folder.join(SERVER_CERTIFICATE))?;
    Ok(KeyFingerprint::of(last))
}

fn stamps(files: &ServerTlsFiles) -> [Option<FileStamp>; 2] {
    [FileStamp::of(&files.certificate), FileStamp::of(&files.key)]
}

impl OwnAuthority {
    fn is_due(&self) -> bool {
        let now = self.clock.now();
        let signed = *self.signed.lock();
        signed.is_none_or(|signed| now.since(signed).max(signed.since(now)) >= RENEWED)
    }

    fn renew(&self) -> Result<(), BusError> {
        let path = self.folder.join(SERVER_CERTIFICATE);
        let bad = |error: rcgen::Error| unusable(&path, &error);
        let now = self.clock.now();
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(bad)?;
        let mut params = CertificateParams::new(self.names.clone()).map_err(bad)?;
        let since_1970 = Duration::from_micros(u64::try_from(now.micros()).unwrap_or_default());
        params.not_after = (UNIX_EPOCH + since_1970 + LIFETIME).into();
        params.distinguished_name = named("Platform bus");
        params.use_authority_key_identifier_extension = true;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = params.signed_by(&key, &self.issuer).map_err(bad)?;
        let pem = key.serialize_pem();
        durable_fs::write_atomically(&self.folder.join(SERVER_KEY), pem.as_bytes(), 0o600)?;
        let chain = format!("{}{}", certificate.pem(), self.authority_pem);
        durable_fs::write_atomically(&path, chain.as_bytes(), 0o600)?;
        *self.signed.lock() = Some(now);
        Ok(())
    }
}

fn unusable(path: &Path, reason: &dyn std::fmt::Display) -> BusError {
    BusError::Certificate {
        path: path.to_owned(),
        reason: reason.to_string(),
    }
}

fn named(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

fn authority_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = named(AUTHORITY);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn read_key(path: &Path) -> Result<KeyPair, BusError> {
    let pem = read_private(path)?;
    let pem = std::str::from_utf8(&pem).map_err(|error| unusable(path, &error))?;
    KeyPair::from_pem(pem).map_err(|error| unusable(path, &error))
}

fn make_authority(key_file: &Path, pem_file: &Path) -> Result<KeyPair, BusError> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(|error| unusable(key_file, &error))?;
    let certificate = authority_params().self_signed(&key);
    let certificate = certificate.map_err(|error| unusable(pem_file, &error))?;
    durable_fs::write_atomically(key_file, key.serialize_pem().as_bytes(), 0o600)?;
    durable_fs::write_atomically(pem_file, certificate.pem().as_bytes(), 0o600)?;
    let fingerprint = KeyFingerprint::of(certificate.der());
    tracing::info!(%fingerprint, "made a certificate authority for the bus; a Rack that joined with another one needs a new invite");
    Ok(key)
}

#[cfg(test)]
mod tests;
