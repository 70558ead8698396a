//! Durable file operations: create, write, rename, lock, and sync of folders, each in one place.
//!
//! A file's name is durable once its folder is synced, a folder's name once *its* folder is. Whoever creates, renames or
//! exchanges names syncs every folder that holds one of them before counting on it.
//!
//! # Invariants
//!
//! - A sync that failed is never tried again on the same file or folder: it would say that all is well. So everything that
//!   can fail without harm, such as opening the folders, is done before names change; see [`FolderHandles`].
//! - After [`write_atomically`] or [`create_atomically`] returned, the new content survives power loss; before, the old one does. Never a mixture.
//! - An error says what was tried on which path ([`DurableFsError`]). Where nothing else is said, nothing has changed then.
//! - With the feature `fault-injection`, each call first asks the fault plan. Other builds carry no trace of it.
//!
//! # Not here
//!
//! What the files mean, appends and their syncs: the write-ahead log, the spool. Knows Linux only.

/// Asks the fault plan where tests have one; nothing elsewhere.
macro_rules! fault {
    ($op:ident, $action:expr, $path:expr) => {
        #[cfg(feature = "fault-injection")]
        crate::fault_injection::before(crate::fault_injection::FsOperation::$op, $path)
            .map_err(crate::DurableFsError::of($action, $path))?;
    };
}

mod error;
#[cfg(feature = "fault-injection")]
pub mod fault_injection;
mod file_lock;
mod file_operations;
mod folder_sync;

pub use error::DurableFsError;
pub use file_lock::{FileLock, LockError};
pub use file_operations::{
    create_atomically, create_new, create_private, exchange, free_name, link, link_open, open_if_there,
    remove_if_there, rename, rename_durably, rename_to_free, sync_file, write_atomically, write_durably,
};
pub use folder_sync::{FolderHandles, create_dirs, create_private_dirs, parent_of, sync_dir};
