//! Pending delete: a partition without entries, on its way out of the tree.
//!
//! ```text
//! nobody here holds a file ─> a folder of empty files takes its place, in one step ─> the files with rows are unlinked
//!     ─> no reader has opened anything there for a while ─> out of the tree, in one step ─> unlinked, empty folders too
//! ```
//!
//! A reader from outside lists the tree first and opens what it found one file after another: a name that goes between ends
//! its query. So names stay, without rows, until such readers have passed on.
//!
//! # Invariants
//!
//! - Whoever lists the tree finds all files of the partition with their rows, or all of them empty, or none of them.
//! - The rows' space is free at once; an empty file has a footer only, and is synced before it has a name in the tree.
//! - Where that cannot be had (files of lines, a file of somebody else in the folder, a file system that cannot exchange
//!   names) the partition goes at once, as a whole if it can.
//!
//! # Not here
//!
//! A crash on the way: the next start unlinks what the catalogue removed, and what is empty.

use std::ffi::{OsStr, OsString};
use std::fs::DirEntry;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Weak;
use std::time::Duration;

use super::external_readers::{ExternalReaders, InotifyWatch};
use crate::datafile::tombstone;
use crate::layout::StoreLayout;
use crate::manifest::FileLineage;
use crate::store_tree::remove_empty_folders;

/// Readers that never pause keep empty files for so long at most.
const LONGEST: Duration = Duration::from_secs(24 * 3_600);

/// A partition to be taken away when nobody holds a version of any of its files.
#[derive(Debug)]
pub(crate) struct PendingDeletion {
    folder: PathBuf,
    /// Its names, and who holds them.
    files: Vec<(OsString, Weak<FileLineage>)>,
    /// Where the folder goes, out of readers' sight.
    aside: PathBuf,
    step: DeletionStep,
    reported: bool,
}

/// How far it is.
#[derive(Debug)]
enum DeletionStep {
    /// Its rows are in the tree.
    Whole,
    /// Empty files are in the tree; those with rows are aside, unless they are `unlinked`.
    Emptied {
        since: Duration,
        watch: Option<InotifyWatch>,
        unlinked: bool,
    },
    /// Nothing is in the tree.
    Aside,
}

impl PendingDeletion {
    pub(crate) const fn new(folder: PathBuf, aside: PathBuf) -> Self {
        Self {
            folder,
            files: Vec::new(),
            aside,
            step: DeletionStep::Whole,
            reported: false,
        }
    }

    pub(crate) fn add(&mut self, name: OsString, held_by: Weak<FileLineage>) {
        self.files.push((name, held_by));
    }

    /// Goes as far as it can. Whether it is gone.
    pub(crate) fn advance(
        &mut self,
        layout: &StoreLayout,
        readers: &mut ExternalReaders,
        rest: Duration,
        now: Duration,
    ) -> bool {
        if self.files.iter().any(|(_, held_by)| held_by.strong_count() > 0) {
            return false;
        }
        self.try_advance(layout, readers, rest, now).unwrap_or_else(|error| {
            if !std::mem::replace(&mut self.reported, true) {
                let path = self.folder.display();
                tracing::warn!(%error, %path, "could not remove an expired partition; retrying");
            }
            false
        })
    }

    fn try_advance(
        &mut self,
        layout: &StoreLayout,
        readers: &mut ExternalReaders,
        rest: Duration,
        now: Duration,
    ) -> io::Result<bool> {
        if matches!(self.step, DeletionStep::Whole) && !rest.is_zero() && self.is_all_there_is() {
            self.replace_with_tombstones(readers, now);
        }
        if let DeletionStep::Emptied { since, watch, unlinked } = &mut self.step {
            if !*unlinked {
                unlink(&self.aside, &self.files)?;
                *unlinked = true;
            }
            let seen = watch.and_then(|watch| readers.last(watch)).unwrap_or(*since);
            if now < seen.max(*since) + rest && now < *since + LONGEST {
                return Ok(false);
            }
            watch.take().into_iter().for_each(|watch| readers.forget(watch));
        }
        self.remove_partition(layout).map(|()| true)
    }

    /// Lets a folder of empty files take the place of the partition's. Where that cannot be done nothing has changed.
    fn replace_with_tombstones(&mut self, readers: &mut ExternalReaders, now: Duration) {
        let watch = match self.write_tombstones() {
            // After the files were written, which are not read by anybody yet, and before they can be found.
            Ok(()) => readers.watch(&self.aside),
            Err(error) => {
                tracing::debug!(%error, path = %self.folder.display(), "removing an expired partition at once");
                let _ = std::fs::remove_dir_all(&self.aside);
                return;
            }
        };
        if matches!(durable_fs::exchange(&self.folder, &self.aside), Ok(true)) {
            self.step = DeletionStep::Emptied {
                since: now,
                watch,
                unlinked: false,
            };
        } else {
            watch.into_iter().for_each(|watch| readers.forget(watch));
            let _ = std::fs::remove_dir_all(&self.aside);
        }
    }

    /// Makes the folder of empty files, aside. They are on the disk before they are found: the names may outlive a power cut,
    /// and a file without its bytes would be a torn one.
    fn write_tombstones(&self) -> io::Result<()> {
        if self.aside.symlink_metadata().is_ok() {
            std::fs::remove_dir_all(&self.aside)?;
        }
        std::fs::create_dir(&self.aside)?;
        for (name, _) in &self.files {
            if let Some(empty) = tombstone(&self.folder.join(name)).map_err(io::Error::other)? {
                let path = self.aside.join(name);
                let mut file = durable_fs::create_new(&path)?;
                file.write_all(&empty)?;
                durable_fs::sync_file(&file, &path)?;
            }
        }
        Ok(durable_fs::sync_dir(&self.aside)?)
    }

    /// Out of the tree in one step, so that nobody who lists it finds half of the partition; then the files are unlinked.
    /// Where the folder cannot be moved, or has something else in it, they are unlinked where they are.
    fn remove_partition(&mut self, layout: &StoreLayout) -> io::Result<()> {
        let is_aside = matches!(self.step, DeletionStep::Aside);
        if !is_aside && self.is_all_there_is() && durable_fs::rename(&self.folder, &self.aside).is_ok() {
            self.step = DeletionStep::Aside;
            remove_empty_folders(&self.folder, layout.root_of(&self.folder));
        }
        if matches!(self.step, DeletionStep::Aside) {
            return unlink(&self.aside, &self.files);
        }
        for (name, _) in &self.files {
            durable_fs::remove_if_there(&self.folder.join(name))?;
        }
        if let Some((name, _)) = self.files.first() {
            remove_empty_folders(&self.folder.join(name), layout.root_of(&self.folder));
        }
        Ok(())
    }

    /// Whether the folder is one, and has nothing but these files.
    fn is_all_there_is(&self) -> bool {
        let is_named = |found: &OsStr| self.files.iter().any(|(name, _)| name == found);
        let is_ours = |entry: io::Result<DirEntry>| entry.is_ok_and(|entry| is_named(&entry.file_name()));
        self.folder.symlink_metadata().is_ok_and(|meta| meta.is_dir())
            && std::fs::read_dir(&self.folder).is_ok_and(|mut entries| entries.all(is_ours))
    }
}

/// Unlinks the files of a folder that is out of the tree, and the folder.
fn unlink(folder: &Path, files: &[(OsString, Weak<FileLineage>)]) -> io::Result<()> {
    for (name, _) in files {
        durable_fs::remove_if_there(&folder.join(name))?;
    }
    match std::fs::remove_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
            let path = folder.display();
            tracing::warn!(%path, "a foreign file appeared in an expiring folder; it is kept here");
            Ok(())
        }
        removed => removed,
    }
}
