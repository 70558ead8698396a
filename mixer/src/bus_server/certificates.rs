//! TLS certificates of the managed bus: of the store's own certificate authority (`own_authority`), or an operator's, in the files that he names, read
//! again when they change.
//!
//! | file in `<store.dir>/keys` | what |
//! |---|---|
//! | `bus-server.key`, 0600, `bus-server.pem` | the server's, and the certificates of authorities that lead to it |
//!
//! # Invariants
//!
//! - nats-server reads its certificate at a start and at a reload, after both files were replaced.
//!
//! # Not here
//!
//! Verifying it ([`chassis::bus::BusTrust`]), the reload (`reload`).

pub(super) mod own_authority;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use chassis::bus::BusTrust;
use chassis::file_stamp::FileStamp;
use chassis::tls_server::{ServerTls, ServerTlsFiles, certificates, read_private};
use model::{Clock, KeyFingerprint};
use parking_lot::Mutex;

use self::own_authority::OwnAuthority;
use super::BusError;

/// The server's certificate and key, in the folder of keys.
pub(crate) const SERVER_CERTIFICATE: &str = "bus-server.pem";
pub(crate) const SERVER_KEY: &str = "bus-server.key";

/// The certificates of one store. Clones share them.
#[derive(Clone)]
pub(crate) enum BusCertificates {
    /// Of the store's own authority.
    Own(Arc<OwnAuthority>),
    /// An operator's.
    Provided(Arc<ProvidedCertificate>),
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
        Ok(Self::Own(Arc::new(OwnAuthority::open(folder, names, clock)?)))
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
            Self::Own(own) => own.authority(),
            Self::Provided(provided) => provided.taken.lock().authority,
        }
    }

    /// What the Mixer's own connections trust.
    pub(super) fn trust(&self) -> Result<BusTrust, BusError> {
        Ok(match self {
            Self::Own(own) => BusTrust::pinned(own.authority())?,
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
            Self::Own(own) => own.folder(),
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
                    "the authority of the bus's certificate is another one: invited Racks that are connected hear of it, others need a new invite (platform racks invite)"
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

fn unusable(path: &Path, reason: &dyn std::fmt::Display) -> BusError {
    BusError::Certificate {
        path: path.to_owned(),
        reason: reason.to_string(),
    }
}

#[cfg(test)]
mod tests;
