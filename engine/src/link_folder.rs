//! Link folder: hard links of data files, names that mean the same bytes until they are removed.
//!
//! ```text
//! <store_dir>/iceberg/files/<segment>_<version>_<CRC-32C>.parquet
//! ```
//!
//! # Invariants
//!
//! - A link that shares its bytes with another name, as that in the tree, costs no space and stays. Of one that is the only name the
//!   inode says since when (`nlink`, `ctime`): no process needs to remember it.
//! - What has no name that is made here is somebody else's, and stays.
//! - Nothing of the engine relies on a link: whoever removes one takes it from readers of what was published.
//!
//! # Not here
//!
//! Which files have links: [`crate::published_files`]. How long a link is read: whoever made a catalogue of them.

use std::collections::HashSet;
use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use model::Timestamp;

use crate::Error;
use crate::layout::file_uri;

/// The folder of links, among the side objects.
pub const PINNED: &str = "files";

/// See the module. Every call blocks.
#[derive(Debug)]
pub(crate) struct LinkFolder(PathBuf);

impl LinkFolder {
    /// The one beside the side objects in `root`.
    pub(crate) fn below(root: &Path) -> Self {
        Self(root.join(PINNED))
    }

    pub(crate) fn link(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn create(&self) -> Result<(), Error> {
        Ok(durable_fs::create_dirs(&self.0)?)
    }

    /// Makes all names durable, those of an earlier process too.
    pub(crate) fn sync(&self) -> Result<(), Error> {
        Ok(durable_fs::sync_dir(&self.0)?)
    }

    /// None if there is no folder.
    pub(crate) fn names(&self) -> Result<HashSet<String>, Error> {
        let names = match std::fs::read_dir(&self.0) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(HashSet::new()),
            names => names.map_err(Error::io("list", &self.0))?,
        };
        let name = |entry: std::io::Result<std::fs::DirEntry>| entry.map(|entry| entry.file_name().into_string().ok());
        let names: Result<Vec<_>, _> = names.map(name).collect();
        Ok(names
            .map_err(Error::io("list", &self.0))?
            .into_iter()
            .flatten()
            .collect())
    }

    /// Removes links that are the only names of their files, except those with URIs in `kept`, if `is_due` says it of the URI and of
    /// the moment since when it has been so. How many.
    pub(crate) fn remove_last_names(
        &self,
        kept: &HashSet<&str>,
        is_due: impl Fn(&str, Timestamp) -> bool,
    ) -> Result<u64, Error> {
        let mut removed = 0;
        for name in self.names()?.into_iter().filter(|name| is_link_name(name)) {
            let path = self.link(&name);
            let uri = file_uri(&path);
            if kept.contains(uri.as_str()) {
                continue;
            }
            if last_name(&path)?.is_some_and(|about| is_due(&uri, changed(&about))) {
                durable_fs::remove_if_there(&path)?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// Lets a link count as the only name of its file since now, if it is one. URIs of other places are passed over.
    pub(crate) fn renew(&self, uri: &str) -> Result<(), Error> {
        let Some((_, name)) = uri.rsplit_once('/') else {
            return Ok(());
        };
        let path = self.link(name);
        let about = if file_uri(&path) == uri {
            last_name(&path)?
        } else {
            None
        };
        let Some(about) = about else { return Ok(()) };
        // The mode that it has already: what changes is the time.
        match std::fs::set_permissions(&path, about.permissions()) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::io("touch", &path)(error)),
            _ => Ok(()),
        }
    }

    pub(crate) fn remove_all(&self) -> Result<(), Error> {
        match std::fs::remove_dir_all(&self.0) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::io("remove", &self.0)(error)),
            _ => Ok(()),
        }
    }
}

/// The name of a version's link. Sixteen digits hold every number of a store that lives for ages, so that names sort as numbers do.
pub(crate) fn link_name(segment: u64, version: u32, crc: u32) -> String {
    format!("{segment:016}_{version}_{crc:08x}.parquet")
}

fn is_link_name(name: &str) -> bool {
    let made_of_its_numbers = || {
        let (segment, rest) = name.strip_suffix(".parquet")?.split_once('_')?;
        let (version, crc) = rest.split_once('_')?;
        let crc = u32::from_str_radix(crc, 16).ok()?;
        Some(link_name(segment.parse().ok()?, version.parse().ok()?, crc))
    };
    made_of_its_numbers().is_some_and(|made| made == name)
}

/// About a link, if it is the only name of its file.
fn last_name(path: &Path) -> Result<Option<Metadata>, Error> {
    match path.symlink_metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        about => {
            let about = about.map_err(Error::io("read", path))?;
            Ok((about.is_file() && about.nlink() == 1).then_some(about))
        }
    }
}

/// When the inode changed last, as by the loss of a name.
fn changed(about: &Metadata) -> Timestamp {
    let seconds = about.ctime().saturating_mul(1_000_000);
    Timestamp::from_micros(seconds.saturating_add(about.ctime_nsec() / 1_000))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn files_of_others_in_the_folder_of_links_stay() {
        let dir = tempfile::tempdir().unwrap();
        let links = LinkFolder::below(dir.path());
        links.create().unwrap();
        let ours = [link_name(7, 1, 0xab), link_name(u64::MAX, u32::MAX, u32::MAX)];
        assert_eq!(ours[0], "0000000000000007_1_000000ab.parquet");
        let others = [
            "notes.txt",
            "7_1_000000ab.parquet",
            "0000000000000007_01_000000ab.parquet",
            "0000000000000007_+1_000000ab.parquet",
            "0000000000000007_1_ab.parquet",
            "0000000000000007_1_000000AB.parquet",
            "0000000000000007_1_000000ab.parquet.old",
            "0000000000000007_000000ab.parquet",
        ];
        for name in ours.iter().map(String::as_str).chain(others) {
            std::fs::write(links.link(name), name).unwrap();
        }
        assert_eq!(links.remove_last_names(&HashSet::new(), |_, _| true).unwrap(), 2);
        assert_eq!(links.names().unwrap(), HashSet::from(others.map(str::to_owned)));
    }
}
