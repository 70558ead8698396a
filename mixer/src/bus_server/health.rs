//! Health of the server, as it says itself, and the free space of its store.
//!
//! A full disk wedges a stream silently: publishers get neither acknowledgement nor error, and freeing space does not
//! help. The server says so when it is asked for its health, and only a restart cures it.

use std::path::Path;

/// With less room than this (or than a twentieth of a small disk) a restart would only fail again.
const ENOUGH: u64 = 64 << 20;

/// What one check says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ServerHealth {
    /// All is well.
    Well,
    /// What is wrong, in the server's words.
    Sick(String),
    /// No answer.
    Silent(String),
}

/// The room on the file system of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StoreDiskSpace {
    /// Bytes that an unprivileged process may still write.
    pub(super) free: u64,
    /// Bytes that must be free before a restart helps.
    pub(super) needed: u64,
}

impl StoreDiskSpace {
    /// The room at a path; none if the system does not say.
    pub(super) fn at(path: &Path) -> Option<Self> {
        let stat = nix::sys::statvfs::statvfs(path).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(stat.fragment_size());
        Some(Self {
            free: bytes(stat.blocks_available()),
            needed: ENOUGH.min(bytes(stat.blocks()) / 20),
        })
    }

    /// Whether a server that could not write for lack of room can do so again.
    pub(super) const fn is_enough(self) -> bool {
        self.free >= self.needed
    }
}
