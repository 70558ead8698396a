//! Disk space guard: makes appends wait before the disk is really full, so that queries and whatever frees space can continue.
//!
//! ```text
//! free >= resume        appends continue, the ballast is created again
//! free <  least, or less than the log asks for
//!                       appends wait; queries, publishing, sealing and retention continue
//! a write finds no room the ballast is removed: publishing and retention have that much room, whoever filled the disk
//! a start               the ballast is removed, and a second one beside the catalogue, which nothing else may use: a new checkpoint and
//!                       the log's copy have that much room; the second one is created again at once, if there is room
//! ```
//!
//! # Invariants
//!
//! - No component decides when appends may continue: each one that waits, or asks, looks at the free space itself.
//! - The ballast is a file that is never read. Its presence changes no content of the store. It stays while the store is
//!   closed, because the next opening needs room too.
//!
//! # Not here
//!
//! Freeing space: retention and the operator do that; retention lets go of links too while appends wait.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::statvfs::statvfs;
use parking_lot::Mutex;

use crate::Error;
use crate::layout::StoreLayout;

const MIB: u64 = 1 << 20;
/// Of a disk, so much must be free for appends, by default: a 64th of it, within bounds.
const SHARE: u64 = 64;
const LEAST: u64 = 2 * MIB;
const MOST: u64 = 2048 * MIB;
/// The ballast is half of what must be free, at most this.
const BALLAST: u64 = 32 * MIB;

/// The disks of a store, and what is kept free on them.
#[derive(Debug)]
pub(crate) struct DiskSpace {
    folders: [PathBuf; 2],
    /// Appends wait when less is free.
    least: u64,
    /// Appends wait because less is free.
    short: AtomicBool,
    /// What was free when somebody last looked.
    free: AtomicU64,
    /// What the log asked for and did not get; 0 if nothing.
    needed: AtomicU64,
    ballast: PathBuf,
    /// The one that only a start lets go of.
    for_start: PathBuf,
    /// Of each of the two.
    ballast_bytes: u64,
    /// Whether the ballast is there.
    loaded: Mutex<bool>,
}

/// Bytes that we may still write below a folder, and the size of its disk; nothing is known where the system does not say.
fn room(folder: &Path) -> Option<(u64, u64)> {
    let about = statvfs(folder).ok()?;
    let unit = about.fragment_size();
    Some((about.blocks_available() * unit, about.blocks() * unit))
}

fn rooms(folders: &[PathBuf]) -> impl Iterator<Item = (u64, u64)> {
    folders.iter().filter_map(|folder| room(folder))
}

fn ballast_of(layout: &StoreLayout) -> PathBuf {
    layout.data_staging.join("ballast")
}

fn ballast_for_start(layout: &StoreLayout) -> PathBuf {
    layout.meta.join("ballast")
}

/// Releases the ballast of a store that is about to be opened: its opening needs room.
pub(crate) fn drop_ballast(layout: &StoreLayout) -> Result<(), Error> {
    for path in [ballast_of(layout), ballast_for_start(layout)] {
        durable_fs::remove_if_there(&path)?;
    }
    Ok(())
}

impl DiskSpace {
    /// `least` is what must be free for appends; by default a share of the disk.
    pub(crate) fn new(layout: &StoreLayout, least: Option<u64>) -> Self {
        let folders = [layout.wal.clone(), layout.data.clone()];
        let size = rooms(&folders).map(|(_, size)| size).min();
        let least = least.unwrap_or_else(|| size.map_or(0, |size| (size / SHARE).clamp(LEAST, MOST)));
        let space = Self {
            folders,
            least,
            short: AtomicBool::new(false),
            free: AtomicU64::new(u64::MAX),
            needed: AtomicU64::new(0),
            ballast: ballast_of(layout),
            for_start: ballast_for_start(layout),
            ballast_bytes: (least / 2).min(BALLAST),
            loaded: Mutex::new(false),
        };
        space.reserve_ballast();
        if !*space.loaded.lock() {
            space.reserve_start_ballast();
        }
        space.look();
        space
    }

    /// Looks at the disks. Whether appends must wait.
    pub(crate) fn look(&self) -> bool {
        let free = rooms(&self.folders).map(|(free, _)| free).min();
        let free = free.unwrap_or(u64::MAX);
        self.free.store(free, Ordering::Relaxed);
        let short = free < self.wanted();
        self.short.store(short, Ordering::Relaxed);
        short
    }

    /// Notes that the log finds no room for so many bytes; 0 once it did.
    pub(crate) fn set_needed(&self, bytes: u64) {
        self.needed.store(bytes, Ordering::Relaxed);
    }

    /// Somewhat more to go on than to stop, so that it does not flap.
    fn wanted(&self) -> u64 {
        let wanted = if self.short.load(Ordering::Relaxed) {
            self.resume()
        } else {
            self.least
        };
        wanted.max(self.needed.load(Ordering::Relaxed))
    }

    fn resume(&self) -> u64 {
        self.least + self.least / 4
    }

    /// Whether appends must wait. Where they had to it looks again: perhaps none waits any more that would.
    pub(crate) fn check_low(&self) -> bool {
        self.short.load(Ordering::Relaxed) && self.look()
    }

    /// Whether the disk of a folder has less room than appends wait for; not where there is no such folder.
    pub(crate) fn is_short_at(&self, folder: &Path) -> bool {
        room(folder).is_some_and(|(free, _)| free < self.wanted())
    }

    /// What was free then, and what must be.
    pub(crate) fn last_reading(&self) -> (u64, u64) {
        (self.free.load(Ordering::Relaxed), self.wanted())
    }

    /// A write found no room: lets go of the ballast. Whether there is more room now.
    pub(crate) fn release_ballast(&self) -> bool {
        let mut loaded = self.loaded.lock();
        if !*loaded || !self.look() {
            return false;
        }
        *loaded = false;
        match durable_fs::remove_if_there(&self.ballast) {
            Ok(()) => {
                tracing::warn!(
                    bytes = self.ballast_bytes,
                    "the disk is full: its reserve is released for flushes and retention"
                );
                true
            }
            Err(error) => {
                tracing::warn!(%error, path = %self.ballast.display(), "could not release the disk reserve");
                false
            }
        }
    }

    /// Makes the ballast where there is plenty of room.
    pub(crate) fn reserve_ballast(&self) {
        let mut loaded = self.loaded.lock();
        if *loaded || self.ballast_bytes == 0 {
            return;
        }
        let free = room(&self.folders[1]).map_or(0, |(free, _)| free);
        if free < self.resume() + 2 * self.ballast_bytes {
            return;
        }
        *loaded = make(&self.ballast, self.ballast_bytes);
        self.reserve_start_ballast();
    }

    /// Makes the ballast of the next start, on an almost full disk of half of what is left.
    fn reserve_start_ballast(&self) {
        let free = room(&self.folders[0]).map_or(0, |(free, _)| free);
        let bytes = self.ballast_bytes.min(free / 2);
        if bytes > 0 {
            make(&self.for_start, bytes);
        }
    }
}

/// Makes a ballast, if it can be. Without it a full disk is met a little earlier, nothing else.
fn make(path: &Path, bytes: u64) -> bool {
    let reserve = || -> std::io::Result<()> {
        durable_fs::remove_if_there(path)?;
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        Ok(fallocate(
            durable_fs::create_private(path)?,
            FallocateFlags::empty(),
            0,
            bytes,
        )?)
    };
    let made = reserve();
    if let Err(error) = &made {
        tracing::debug!(%error, path = %path.display(), "no reserve for a full disk");
        let _ = durable_fs::remove_if_there(path);
    }
    made.is_ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::Settings;

    fn layout(dir: &Path) -> StoreLayout {
        let layout = StoreLayout::new(&Settings::new(dir));
        for folder in [&layout.wal, &layout.meta, &layout.data, &layout.data_staging] {
            std::fs::create_dir_all(folder).unwrap();
        }
        layout
    }

    #[test]
    fn plenty_of_room_is_not_short_and_a_reserve_is_kept_also_while_the_store_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        let layout = layout(dir.path());
        let space = DiskSpace::new(&layout, Some(64 << 10));
        assert!(!space.look() && !space.check_low());
        assert_eq!(std::fs::metadata(ballast_of(&layout)).unwrap().len(), 32 << 10);
        assert!(!space.release_ballast(), "nobody needs it");
        drop(space);
        let both = || [ballast_of(&layout), ballast_for_start(&layout)];
        assert!(both().iter().all(|ballast| ballast.exists()));
        drop_ballast(&layout).unwrap();
        assert!(!both().iter().any(|ballast| ballast.exists()));
    }

    #[test]
    fn where_less_is_free_than_must_be_appends_wait_and_no_reserve_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let layout = layout(dir.path());
        let space = DiskSpace::new(&layout, Some(u64::MAX / 4));
        assert!(space.check_low());
        let (free, wanted) = space.last_reading();
        assert!(free < wanted);
        assert!(!space.release_ballast(), "there is none");
        assert!(!ballast_of(&layout).exists());
    }

    #[test]
    fn what_the_log_finds_no_room_for_must_be_free_before_appends_go_on() {
        let dir = tempfile::tempdir().unwrap();
        let layout = layout(dir.path());
        let space = DiskSpace::new(&layout, Some(0));
        space.set_needed(u64::MAX / 4);
        assert!(space.look() && space.last_reading().1 == u64::MAX / 4);
        space.set_needed(0);
        assert!(!space.look());
    }

    #[test]
    fn another_disk_that_is_full_makes_appends_wait_and_no_folder_short_that_is_not_on_it() {
        let dir = tempfile::tempdir().unwrap();
        let mut space = DiskSpace::new(&layout(dir.path()), Some(1));
        // A file system that never has room.
        let full = Path::new("/proc");
        assert!(!space.look());
        space.folders[1] = full.to_owned();
        assert!(space.look() && space.check_low());
        assert!(space.is_short_at(full) && !space.is_short_at(dir.path()));
        assert!(!space.is_short_at(&dir.path().join("none")));
    }

    #[test]
    fn nothing_need_be_free_where_nothing_is_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let layout = layout(dir.path());
        let space = DiskSpace::new(&layout, Some(0));
        assert!(!space.look());
        assert!(!ballast_of(&layout).exists());
    }
}
