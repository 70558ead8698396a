//! Errors of the sealed state file, and the version of its form, which an error names.

/// The version of the sealed form; the plain bundle is version 1.
pub(crate) const SEALED_VERSION: u16 = 2;

/// Why a sealed file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// There is no key.
    #[error("it is encrypted, and no key is given: set PLATFORM_BASE_STATE_KEY or base.state_key_file")]
    NoKey,
    /// The key does not open it.
    #[error("the key given does not open it: it is another file's key, or the file was changed")]
    Key,
    /// A sealed form of another version.
    #[error("its encrypted form has version {found}, this program knows {SEALED_VERSION}")]
    Version {
        /// The version found.
        found: u16,
    },
    /// The cipher failed: a defect.
    #[error("it cannot be encrypted")]
    Cipher,
}
