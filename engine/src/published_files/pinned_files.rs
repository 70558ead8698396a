//! Pinned files: names of their own for the published files of a store in a folder, hard links beside what is derived from them.
//!
//! ```text
//! <store_dir>/iceberg/files/<segment>_<version>_<CRC-32C>.parquet
//! ```
//!
//! The tree gives a name to a later version of a small file, and takes names away with their partition. A link means the same bytes
//! until it is removed, over restarts too, and keeps nothing else: neither the name in the tree nor the partition's removal.
//!
//! # Invariants
//!
//! - A link is one of the version that the list names, whatever the file's name in the tree means by then, and by its checksum that
//!   of these bytes: a store that was restored gives numbers again.
//! - Links are durable when the list is given back.
//! - A link that shares its bytes with another name, as that in the tree, costs no space and stays. One that is the only name is
//!   removed some time after it became so, which the inode itself says (`nlink`, `ctime`): no process needs to remember it.
//!
//! # Not here
//!
//! How long snapshots are read, and which links their lists name: whoever made a catalogue of them says so. Object stores: an object
//! is never overwritten while a record names it, and outlives it by a grace.

use std::collections::HashSet;
use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use model::{Table, Timestamp};
use nix::errno::Errno;

use super::{PublishedFile, PublishedFiles, PublishedSource};
use crate::layout::file_uri;
use crate::side_objects::SideObjects;
use crate::{DataFileHandle, Engine, Error};

/// The folder of links, among the side objects.
pub const PINNED: &str = "files";

impl PublishedFile {
    /// Whether it has a name of its own: whoever holds it keeps nothing in the tree.
    #[must_use]
    pub const fn is_pinned(&self) -> bool {
        matches!(self.source, PublishedSource::Path(_))
    }
}

impl SideObjects {
    /// Removes links that are the only names of their files since before `before`, unless `named` has their URIs; how many. This
    /// blocks.
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn unpin(&self, named: &HashSet<&str>, before: Timestamp) -> Result<u64, Error> {
        let Some(folder) = self.folder().map(|folder| folder.join(PINNED)) else {
            return Ok(0);
        };
        let mut removed = 0;
        for name in names_in(&folder)? {
            let path = folder.join(name);
            if named.contains(file_uri(&path).as_str()) {
                continue;
            }
            let about = match path.symlink_metadata() {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                about => about.map_err(Error::io("read", &path))?,
            };
            if about.is_file() && about.nlink() == 1 && changed(&about) < before {
                durable_fs::remove_if_there(&path)?;
                removed += 1;
            }
        }
        Ok(removed)
    }
}

impl Engine {
    /// Removes all links of a store in a folder that nobody publishes any more, or whose files are in an object store by now. This
    /// blocks.
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn unpin_all(&self) -> Result<(), Error> {
        let folder = self.shared.store.layout.iceberg.join(PINNED);
        match std::fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::io("remove", &folder)(error)),
            _ => Ok(()),
        }
    }
}

/// A list of files under names that mean these bytes for as long as somebody needs them.
#[derive(Debug, Default)]
pub struct PinnedFiles {
    /// What could be had.
    pub list: PublishedFiles,
    /// Files that are gone, damaged or unreadable, and why: `list` does not have them.
    pub left_out: Vec<(PublishedFile, Error)>,
    /// What the first file system said that gives no links: files on it have the names of the tree.
    pub refusal: Option<Error>,
}

impl PublishedFiles {
    /// The same list under names of their own; of an object store, as it is. This blocks.
    ///
    /// # Errors
    /// If the disk refuses the folder of links.
    pub fn pinned(self, objects: &SideObjects) -> Result<PinnedFiles, Error> {
        let is_in_tree = |file: &PublishedFile| matches!(file.source, PublishedSource::Tree(_));
        let folder = objects.folder().filter(|_| self.files.iter().any(is_in_tree));
        let Some(folder) = folder.map(|folder| folder.join(PINNED)) else {
            return Ok(PinnedFiles {
                list: self,
                ..PinnedFiles::default()
            });
        };
        durable_fs::create_dirs(&folder)?;
        let there = names_in(&folder)?;
        let mut pinned = PinnedFiles::default();
        (pinned.list.number, pinned.list.is_ordered) = (self.number, self.is_ordered);
        // Files of one table are on one file system: it is asked once.
        let (mut is_new, mut without_links) = (false, HashSet::<Table>::new());
        for mut file in self.files {
            if without_links.contains(&file.table) {
                pinned.list.files.push(file);
                continue;
            }
            match file.pin(&folder, &there) {
                Ok(PinOutcome::Linked) => is_new = true,
                Ok(PinOutcome::Unchanged) => {}
                Ok(PinOutcome::Refused(error)) => {
                    without_links.insert(file.table);
                    pinned.refusal.get_or_insert(error);
                }
                Err(error) => {
                    pinned.left_out.push((file, error));
                    continue;
                }
            }
            pinned.list.files.push(file);
        }
        if is_new {
            durable_fs::sync_dir(&folder)?;
        }
        Ok(pinned)
    }
}

/// What became of a file that was to have a link.
#[derive(Debug)]
enum PinOutcome {
    /// It has a new one.
    Linked,
    /// It had one, or has too many to get another.
    Unchanged,
    /// Its file system gives none.
    Refused(Error),
}

impl PublishedFile {
    fn pin(&mut self, folder: &Path, there: &HashSet<String>) -> Result<PinOutcome, Error> {
        let PublishedSource::Tree(handle) = &self.source else {
            return Ok(PinOutcome::Unchanged);
        };
        let name = link_name(handle);
        let path = folder.join(&name);
        let mut outcome = PinOutcome::Unchanged;
        if !there.contains(&name) {
            // Opening it in full compares it with its checksum, and takes it out of the views if it is damaged.
            let file = handle.find().or_else(|_| handle.open())?;
            if let Err(error) = durable_fs::link_open(&file, &path) {
                return match error.source.raw_os_error().map(Errno::from_raw) {
                    Some(Errno::EMLINK) => Ok(PinOutcome::Unchanged),
                    Some(Errno::EXDEV | Errno::EPERM | Errno::EOPNOTSUPP | Errno::ENOSYS) => {
                        Ok(PinOutcome::Refused(error.into()))
                    }
                    _ => Err(error.into()),
                };
            }
            outcome = PinOutcome::Linked;
        }
        self.uri = file_uri(&path);
        self.source = PublishedSource::Path(path);
        Ok(outcome)
    }
}

/// Sixteen digits hold every number of a store that lives for ages, so that names sort as numbers do.
fn link_name(handle: &DataFileHandle) -> String {
    format!("{:016}_{}_{:08x}.parquet", handle.id, handle.version, handle.crc())
}

/// When the inode changed last, as by the loss of a name.
fn changed(about: &Metadata) -> Timestamp {
    let seconds = about.ctime().saturating_mul(1_000_000);
    Timestamp::from_micros(seconds.saturating_add(about.ctime_nsec() / 1_000))
}

/// None if there is no folder.
fn names_in(folder: &Path) -> Result<HashSet<String>, Error> {
    let names = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(HashSet::new()),
        names => names.map_err(Error::io("list", folder))?,
    };
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.map(|entry| entry.file_name().into_string().ok());
    let names: Result<Vec<_>, _> = names.map(name).collect();
    Ok(names
        .map_err(Error::io("list", folder))?
        .into_iter()
        .flatten()
        .collect())
}
