//! The bus's own certificate authority: it signs the server's certificate anew before it expires, and another authority may follow it.
//!
//! | file in `<store.dir>/keys` | what |
//! |---|---|
//! | `bus-ca.key`, 0600 | the authority's secret key (ECDSA P-256) and its certificate; then, for each of the [`MOST_BEFORE`] authorities before it, the certificate by which that one signed the next (cross-signed), and its own |
//! | `bus-ca.pem` | the authority's certificate alone: what clients trust from now on. Racks know an authority by the SHA-256 of its certificate |
//! | `bus-server.key`, 0600, `bus-server.pem` | the server's, made anew at each start and every [`RENEWED`]; the authorities' certificates follow in the file |
//!
//! # Invariants
//!
//! - `bus-ca.key` is written whole or not at all, and alone says what the authority is; `bus-ca.pem` is written after it. Where only the latter is there,
//!   that is an error, and nothing is written.
//! - Who trusts one of the authorities in the file trusts the server's certificate, by the certificates of authorities that the server sends.
//! - Each authority has a name of its own, made of its key: among namesakes a client tries every order of their certificates, and gives up after a
//!   hundred signatures (`rustls-webpki`).
//! - A server's certificate is good for [`LIFETIME`], by the Mixer's clock. It has no beginning that matters: a Rack whose clock lags connects.
//!
//! Not here: telling Racks of another authority ([`crate::heartbeat`]). An authority whose key was stolen is trusted by Racks until they have heard
//! of the next one.

use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use chassis::tls_server::{certificates, read_private};
use model::{Clock, KeyFingerprint, Timestamp};
use parking_lot::Mutex;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
};

use super::super::BusError;
use super::{SERVER_CERTIFICATE, SERVER_KEY, unusable};

/// How long a server's certificate is good.
const LIFETIME: Duration = Duration::from_secs(30 * 24 * 3_600);
/// How old it gets at most while the Mixer runs.
pub(super) const RENEWED: Duration = Duration::from_secs(10 * 24 * 3_600);
/// So many authorities of before are kept: a client follows six certificates at most (`rustls-webpki`).
const MOST_BEFORE: usize = 6;
/// What the name of every authority begins with.
const AUTHORITY: &str = "Platform bus authority";
/// What a certificate begins with.
const BEGIN: &str = "-----BEGIN CERTIFICATE-----";

/// The authority of a store.
pub(crate) struct OwnAuthority {
    folder: PathBuf,
    file: AuthorityFile,
    /// What the server is called by its clients.
    names: Vec<String>,
    clock: Clock,
    /// When this run signed the server's certificate last.
    signed: Mutex<Option<Timestamp>>,
}

/// What `bus-ca.key` holds.
struct AuthorityFile {
    issuer: Issuer<'static, KeyPair>,
    fingerprint: KeyFingerprint,
    /// Its certificate, and those that lead to it from authorities of before.
    chain: Vec<String>,
}

impl OwnAuthority {
    /// The authority of a folder, made where there is none; for a server of these names and addresses.
    pub(super) fn open(folder: PathBuf, names: Vec<String>, clock: Clock) -> Result<Self, BusError> {
        durable_fs::create_private_dirs(&folder)?;
        let file = AuthorityFile::open(&folder)?;
        // A name that cannot be in a certificate is said now, not at the renewal.
        CertificateParams::new(names.clone()).map_err(|error| BusError::TlsNames(error.to_string()))?;
        Ok(Self {
            folder,
            file,
            names,
            clock,
            signed: Mutex::default(),
        })
    }

    pub(super) const fn authority(&self) -> KeyFingerprint {
        self.file.fingerprint
    }

    pub(super) fn folder(&self) -> &PathBuf {
        &self.folder
    }

    pub(super) fn is_due(&self) -> bool {
        let now = self.clock.now();
        let signed = *self.signed.lock();
        signed.is_none_or(|signed| now.since(signed).max(signed.since(now)) >= RENEWED)
    }

    /// Makes the server's key and certificate anew.
    pub(super) fn renew(&self) -> Result<(), BusError> {
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
        let certificate = params.signed_by(&key, &self.file.issuer).map_err(bad)?;
        let pem = key.serialize_pem();
        durable_fs::write_atomically(&self.folder.join(SERVER_KEY), pem.as_bytes(), 0o600)?;
        let chain = format!("{}{}", certificate.pem(), self.file.chain.concat());
        durable_fs::write_atomically(&path, chain.as_bytes(), 0o600)?;
        *self.signed.lock() = Some(now);
        Ok(())
    }
}

/// Lets another authority follow that of a folder, which signs it; the fingerprints of both. The server must not run.
///
/// # Errors
/// [`BusError`] if there is none, or the files cannot be used or written.
pub(crate) fn rotate_authority(folder: &Path) -> Result<[KeyFingerprint; 2], BusError> {
    let (key_file, pem_file) = files(folder);
    if !key_file.exists() {
        return Err(BusError::NoOwnAuthority { path: key_file });
    }
    let before = AuthorityFile::open(folder)?;
    let bad = |error: rcgen::Error| unusable(&key_file, &error);
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(bad)?;
    let cross_signed = own_params(&key).signed_by(&key, &before.issuer).map_err(bad)?;
    let mut leading = vec![cross_signed.pem()];
    leading.extend(before.chain);
    leading.truncate(2 * MOST_BEFORE);
    let next = AuthorityFile::make(&key_file, key, leading)?;
    next.publish(&pem_file)?;
    Ok([before.fingerprint, next.fingerprint])
}

impl AuthorityFile {
    fn open(folder: &Path) -> Result<Self, BusError> {
        let (key_file, pem_file) = files(folder);
        let file = match (key_file.exists(), pem_file.exists()) {
            (true, _) => Self::read(&key_file)?,
            (false, true) => {
                return Err(BusError::NoAuthority {
                    path: key_file,
                    other: pem_file,
                });
            }
            (false, false) => {
                let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256);
                let made = Self::make(&key_file, key.map_err(|error| unusable(&key_file, &error))?, Vec::new())?;
                tracing::info!(
                    fingerprint = %made.fingerprint,
                    "made a certificate authority for the bus; a Rack that joined with another one needs a new invite"
                );
                made
            }
        };
        file.publish(&pem_file)?;
        Ok(file)
    }

    fn read(path: &Path) -> Result<Self, BusError> {
        let pem = read_private(path)?;
        let pem = std::str::from_utf8(&pem).map_err(|error| unusable(path, &error))?;
        let no_certificate = || unusable(path, &"it has no certificate after the key");
        let mut parts = pem.split(BEGIN);
        let key = parts.next().unwrap_or_default();
        let key = KeyPair::from_pem(key).map_err(|error| unusable(path, &error))?;
        let own = certificates(path)?;
        Ok(Self {
            fingerprint: KeyFingerprint::of(own.first().ok_or_else(no_certificate)?),
            issuer: Issuer::new(own_params(&key), key),
            chain: parts.map(|part| format!("{BEGIN}{part}")).collect(),
        })
    }

    /// Makes an authority of a key, durable at this path.
    fn make(path: &Path, key: KeyPair, leading: Vec<String>) -> Result<Self, BusError> {
        let certificate = own_params(&key).self_signed(&key);
        let certificate = certificate.map_err(|error| unusable(path, &error))?;
        let mut chain = vec![certificate.pem()];
        chain.extend(leading);
        let text = format!("{}{}", key.serialize_pem(), chain.concat());
        durable_fs::write_atomically(path, text.as_bytes(), 0o600)?;
        Ok(Self {
            fingerprint: KeyFingerprint::of(certificate.der()),
            issuer: Issuer::new(own_params(&key), key),
            chain,
        })
    }

    /// Writes what clients trust, unless it is there.
    fn publish(&self, path: &Path) -> Result<(), BusError> {
        let own = self.chain.first().map_or("", String::as_str);
        if std::fs::read(path).is_ok_and(|there| there == own.as_bytes()) {
            return Ok(());
        }
        Ok(durable_fs::write_atomically(path, own.as_bytes(), 0o600)?)
    }
}

fn files(folder: &Path) -> (PathBuf, PathBuf) {
    (folder.join("bus-ca.key"), folder.join("bus-ca.pem"))
}

fn named(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

/// What the certificate of the authority with this key says.
fn own_params(key: &KeyPair) -> CertificateParams {
    let hash = KeyFingerprint::of(key.public_key_raw());
    let (beginning, _) = hash.as_bytes().split_at(8);
    authority_params(&format!("{AUTHORITY} {}", model::hex::encode(beginning)))
}

pub(super) fn authority_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = named(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}
