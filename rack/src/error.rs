//! Fatal errors of a Rack, and the exit code of each.

use std::path::PathBuf;

use chassis::ExitReason;
use durable_fs::{DurableFsError, LockError};
use model::passport::BadPassport;

use crate::spool::SpoolError;

/// A failure that keeps a Rack from running.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The state file was changed, cut, or belongs to another key.
    #[error(
        "the state file {} is not trustworthy: {reason}; restore it from a backup, or, to enrol this machine as a new Rack, \
         move the file away and start again",
        path.display()
    )]
    State {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: BadPassport,
    },
    /// Another version of this program wrote the state file.
    #[error(
        "the state file {} has format {found}, this program knows {}: start the version that wrote it; if none did it is damaged, then \
         move the file away and start again; it was not changed",
        path.display(),
        model::passport::VERSION
    )]
    StateVersion {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u16,
    },
    /// The state file cannot be decrypted.
    #[error("the state file {} cannot be used: {reason}", path.display())]
    Sealed {
        /// The file.
        path: PathBuf,
        /// Why not.
        reason: crate::SealError,
    },
    /// The key of the state file is not one.
    #[error("{key}: {reason}")]
    StateKey {
        /// The configuration key.
        key: &'static str,
        /// What is wrong with its value.
        reason: String,
    },
    /// The policy cannot be that.
    #[error("{key} = {value:?} in platform.toml: {reason}")]
    Policy {
        /// The configuration key.
        key: &'static str,
        /// The value that it must not have.
        value: String,
        /// Why not, and what to do.
        reason: String,
    },
    /// The invite is none.
    #[error("rack.invite: {0}")]
    Invite(#[from] model::BadInvite),
    /// Whoever answers would be believed.
    #[error(
        "the bus at {url} is on another machine, and nothing tells its Mixer from an impostor: run `platform join` with an invite \
         (`platform racks invite NAME` at the Mixer makes one), or set snake.tls_ca, or snake.allow_insecure = true on a \
         trusted network"
    )]
    Untrusted {
        /// The bus, without credentials.
        url: String,
    },
    /// The state file cannot be read.
    #[error("the state file {} cannot be read: {source}", path.display())]
    StateUnreadable {
        /// The file.
        path: PathBuf,
        /// The operating system's words.
        source: std::io::Error,
    },
    /// The new state file could not be encoded: a defect.
    #[error("the state file {} could not be encoded: {reason}", path.display())]
    StateForm {
        /// The file.
        path: PathBuf,
        /// The codec's words.
        reason: String,
    },
    /// The spool.
    #[error(transparent)]
    Spool(#[from] SpoolError),
    /// The bus.
    #[error(transparent)]
    Chassis(#[from] chassis::Error),
    /// A file or folder cannot be written.
    #[error(transparent)]
    File(#[from] DurableFsError),
    /// The lock file cannot be had.
    #[error(transparent)]
    Lock(#[from] LockError),
}

impl Error {
    /// The exit code of a process that ends with this.
    #[must_use]
    pub fn exit(&self) -> ExitReason {
        match self {
            Self::State {
                reason: BadPassport::Signature(model::BadSignature::Form(_)),
                ..
            }
            | Self::StateVersion { .. }
            | Self::Spool(SpoolError::Newer { .. }) => ExitReason::Data,
            Self::Sealed {
                reason: crate::SealError::Version { .. },
                ..
            } => ExitReason::Data,
            Self::State { .. } | Self::Sealed { .. } => ExitReason::Denied,
            Self::StateUnreadable { .. } | Self::StateForm { .. } => ExitReason::Io,
            Self::StateKey { .. } | Self::Policy { .. } | Self::Untrusted { .. } | Self::Invite(_) => {
                ExitReason::Config
            }
            Self::Chassis(error) => error.exit(),
            Self::Lock(LockError::Held { .. }) => ExitReason::Unavailable,
            Self::Spool(_) | Self::File(_) | Self::Lock(_) => ExitReason::Io,
        }
    }
}
