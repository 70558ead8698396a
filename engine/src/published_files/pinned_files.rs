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
//!
//! # Not here
//!
//! What a link costs and how one is removed: [`crate::link_folder`]. How long snapshots are read, and which links their lists name:
//! whoever made a catalogue of them says so. Object stores: an object is never overwritten while a record names it, and outlives it
//! by a grace.

use std::collections::HashSet;
use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use model::{Table, Timestamp};
use nix::errno::Errno;

use super::{PublishedFile, PublishedFiles, PublishedSource};
use crate::layout::file_uri;
use crate::link_folder::{LinkFolder, link_name};
use crate::side_objects::SideObjects;
use crate::{DataFileHandle, Engine, Error};

impl PublishedFile {
    /// Whether it has a name of its own: whoever holds it keeps nothing in the tree.
    #[must_use]
    pub const fn is_pinned(&self) -> bool {
        matches!(self.source, PublishedSource::Path(_))
    }
}

impl SideObjects {
    /// Removes links that are the only names of their files, except those with URIs in `kept`, if `is_due` says it of the URI and of
    /// the moment since when it has been so. This blocks.
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn unpin(&self, kept: &HashSet<&str>, is_due: impl Fn(&str, Timestamp) -> bool) -> Result<(), Error> {
        if let Some(links) = self.links() {
            links.remove_last_names(kept, is_due)?;
        }
        Ok(())
    }

    /// Lets the links among these URIs that are the only names of their files count as such since now. This blocks.
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn renew_links<'a>(&self, uris: impl IntoIterator<Item = &'a str>) -> Result<(), Error> {
        match self.links() {
            Some(links) => uris.into_iter().try_for_each(|uri| links.renew(uri)),
            None => Ok(()),
        }
    }
}

impl Engine {
    /// Removes all links of a store in a folder that nobody publishes any more, or whose files are in an object store by now. This
    /// blocks.
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn unpin_all(&self) -> Result<(), Error> {
        LinkFolder::below(&self.shared.store.layout.iceberg).remove_all()
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
        let Some(links) = objects.links().filter(|_| self.files.iter().any(is_in_tree)) else {
            return Ok(PinnedFiles {
                list: self,
                ..PinnedFiles::default()
            });
        };
        links.create()?;
        let there = links.names()?;
        let mut pinned = PinnedFiles::default();
        (pinned.list.number, pinned.list.is_ordered) = (self.number, self.is_ordered);
        // Files of one table are on one file system: it is asked once.
        let mut without_links = HashSet::<Table>::new();
        for mut file in self.files {
            if without_links.contains(&file.table) {
                pinned.list.files.push(file);
                continue;
            }
            match file.pin(&links, &there) {
                Ok(None) => {}
                Ok(Some(refusal)) => {
                    without_links.insert(file.table);
                    pinned.refusal.get_or_insert(refusal);
                }
                Err(error) => {
                    pinned.left_out.push((file, error));
                    continue;
                }
            }
            pinned.list.files.push(file);
        }
        // Those that were there too: whoever made them may have ended, or failed, before they were durable.
        links.sync()?;
        Ok(pinned)
    }

    /// Removes links that are other files than those of the list, though they have their names, as in a store that was restored
    /// from a copy without hard links: each costs the space of its file once more. [`PublishedFiles::pinned`] makes them anew.
    /// For once in a process. This blocks.
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn remove_copied_links(&self, objects: &SideObjects) -> Result<(), Error> {
        let Some(links) = objects.links() else {
            return Ok(());
        };
        let there = links.names()?;
        for file in &self.files {
            let PublishedSource::Tree(handle) = &file.source else {
                continue;
            };
            let name = link_name(handle.id, handle.version, handle.crc());
            let path = links.link(&name);
            if there.contains(&name) && is_copy(&path, handle) {
                durable_fs::remove_if_there(&path)?;
            }
        }
        Ok(())
    }
}

impl PublishedFile {
    /// Gives it a link, unless it has too many to get another. What its file system says if that gives none.
    fn pin(&mut self, links: &LinkFolder, there: &HashSet<String>) -> Result<Option<Error>, Error> {
        let PublishedSource::Tree(handle) = &self.source else {
            return Ok(None);
        };
        let name = link_name(handle.id, handle.version, handle.crc());
        let path = links.link(&name);
        if !there.contains(&name) {
            // Opening it in full compares it with its checksum, and takes it out of the views if it is damaged.
            let file = handle.find().or_else(|_| handle.open())?;
            if let Err(error) = durable_fs::link_open(&file, &path) {
                return match error.source.raw_os_error().map(Errno::from_raw) {
                    Some(Errno::EMLINK) => Ok(None),
                    Some(Errno::EXDEV | Errno::EPERM | Errno::EOPNOTSUPP | Errno::ENOSYS) => Ok(Some(error.into())),
                    None if error.kind() == ErrorKind::Unsupported => Ok(Some(error.into())),
                    _ => Err(error.into()),
                };
            }
        }
        self.uri = file_uri(&path);
        self.source = PublishedSource::Path(path);
        Ok(None)
    }
}

/// Whether a link is another file than the one that it has the name of. If that is not there, the link is all there is.
fn is_copy(link: &Path, handle: &DataFileHandle) -> bool {
    let identity = |about: Metadata| (about.dev(), about.ino());
    let Ok(linked) = link.symlink_metadata().map(identity) else {
        return false;
    };
    if handle.path.metadata().is_ok_and(|named| identity(named) == linked) {
        return false;
    }
    // The name in the tree may be that of a later version by now.
    let found = handle.find().ok().and_then(|file| file.metadata().ok());
    found.is_some_and(|found| identity(found) != linked)
}
