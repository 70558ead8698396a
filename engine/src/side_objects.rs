//! Side objects: small objects beside the data files, for what is derived from the store's catalogue.
//!
//! ```text
//! <store_dir>/iceberg/<name>      without an object store
//! <prefix>/iceberg/<name>         in the object store
//! ```
//!
//! # Invariants
//!
//! - An object is there whole or not at all, also after a power cut. Of several that create one, one succeeds.
//! - A name cannot leave the folder.
//! - Nothing of the engine relies on what is here: no record names it, no check asks for it, no copy of the store has it, and
//!   whoever deletes it loses what can be made anew.
//!
//! # Not here
//!
//! What the objects say.

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use model::Timestamp;
use object_store::path::Path as ObjectPath;

use crate::layout::{canonical, file_uri};
use crate::link_folder::LinkFolder;
use crate::object_storage::object_format::{ICEBERG, object_uri};
use crate::object_storage::{CreateOutcome, RemoteLink};
use crate::store_tree::data_files;
use crate::{Engine, Error, S3ClientSettings};

/// That of data files: the group reads them.
const MODE: u32 = 0o640;
/// What is told of a name that is refused.
const TOLD: usize = 100;

/// Small objects in a folder, or below `iceberg` of an object store. Every call but [`SideObjects::uri`] blocks. Names are
/// relative, of letters, digits, dots, `_` and `-`, with `/` between folders.
#[derive(Debug, Clone)]
pub struct SideObjects(SideFolder);

#[derive(Debug, Clone)]
enum SideFolder {
    Local(Arc<Path>),
    Remote(Arc<RemoteLink>),
}

impl Engine {
    /// The objects beside this store. An engine that only reads has those of its object store, and changes none.
    #[must_use]
    pub fn side_objects(&self) -> SideObjects {
        match &self.shared.remote {
            Some(link) => SideObjects(SideFolder::Remote(Arc::clone(link))),
            None => SideObjects::in_folder(self.shared.store.layout.iceberg.clone()),
        }
    }
}

impl SideObjects {
    /// The objects in a folder, which is made with the first one.
    #[must_use]
    pub fn in_folder(folder: PathBuf) -> Self {
        Self(SideFolder::Local(canonical(&folder).into()))
    }

    /// The folder that has them; `None` of an object store.
    #[must_use]
    pub fn folder(&self) -> Option<&Path> {
        match &self.0 {
            SideFolder::Local(folder) => Some(folder),
            SideFolder::Remote(_) => None,
        }
    }

    /// The links beside them; `None` of an object store.
    pub(crate) fn links(&self) -> Option<LinkFolder> {
        self.folder().map(LinkFolder::below)
    }

    /// Where others find an object: `file:///…` or `s3://bucket/…`.
    #[must_use]
    pub fn uri(&self, name: &str) -> String {
        match &self.0 {
            SideFolder::Local(folder) => file_uri(&folder.join(name)),
            SideFolder::Remote(link) => object_uri(&link.settings.url, &object(link, name)),
        }
    }

    /// An object's bytes, `None` if it is not there; of one that has more than `most`, one more than that: whoever else writes there
    /// does not fill the memory.
    ///
    /// # Errors
    /// If the disk or the object store refuses.
    pub fn get(&self, name: &str, most: usize) -> Result<Option<Bytes>, Error> {
        check_name(name)?;
        let most = most as u64;
        match &self.0 {
            SideFolder::Local(folder) => {
                let (path, mut bytes) = (folder.join(name), Vec::new());
                let read = File::open(&path).and_then(|file| file.take(most + 1).read_to_end(&mut bytes));
                match read {
                    Ok(_) => Ok(Some(bytes.into())),
                    Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
                    Err(error) => Err(Error::io("read", &path)(error)),
                }
            }
            SideFolder::Remote(link) => link.io.get_most(object(link, name), most),
        }
    }

    /// Writes an object, whatever had its name.
    ///
    /// # Errors
    /// If the disk or the object store refuses, or this only reads.
    pub fn put(&self, name: &str, bytes: Bytes) -> Result<(), Error> {
        check_name(name)?;
        match &self.0 {
            SideFolder::Local(folder) => {
                let path = place(folder, name)?;
                Ok(durable_fs::write_atomically(&path, &bytes, MODE)?)
            }
            SideFolder::Remote(link) => {
                let path = object(writable(link)?, name);
                link.io.wait(|calls| async move { calls.put(&path, bytes).await })
            }
        }
    }

    /// Writes an object unless its name is taken: `false` then. In an object store, one with the same bytes counts as ours: it
    /// may be, of a call whose answer was lost.
    ///
    /// # Errors
    /// As [`SideObjects::put`].
    pub fn create(&self, name: &str, bytes: Bytes) -> Result<bool, Error> {
        check_name(name)?;
        match &self.0 {
            SideFolder::Local(folder) => {
                let path = place(folder, name)?;
                Ok(durable_fs::create_atomically(&path, &bytes, MODE)?)
            }
            SideFolder::Remote(link) => {
                let created = link.io.create(object(writable(link)?, name), bytes)?;
                Ok(created == CreateOutcome::New)
            }
        }
    }

    /// The objects below a folder, `""` for all, and when each was written; what has no name that an object can have is left
    /// out.
    ///
    /// # Errors
    /// If the disk or the object store refuses.
    pub fn list(&self, folder: &str) -> Result<Vec<(String, Timestamp)>, Error> {
        if !folder.is_empty() {
            check_name(folder)?;
        }
        match &self.0 {
            SideFolder::Local(root) => list_local(root, folder),
            SideFolder::Remote(link) => list_remote(link, folder),
        }
    }

    /// Deletes an object; one that is not there is fine.
    ///
    /// # Errors
    /// As [`SideObjects::put`].
    pub fn delete(&self, name: &str) -> Result<(), Error> {
        check_name(name)?;
        match &self.0 {
            SideFolder::Local(folder) => Ok(durable_fs::remove_if_there(&folder.join(name))?),
            SideFolder::Remote(link) => link.io.delete_all(vec![object(writable(link)?, name)]),
        }
    }

    /// How a client of S3 finds the bucket; `None` of a folder, or where nobody said it.
    #[must_use]
    pub fn client_settings(&self) -> Option<S3ClientSettings> {
        match &self.0 {
            SideFolder::Local(_) => None,
            SideFolder::Remote(link) => link.settings.client.clone(),
        }
    }
}

/// Refuses a name that could leave the folder, or that a URI does not have as it stands.
fn check_name(name: &str) -> Result<(), Error> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let fits = |part: &str| !["", ".", ".."].contains(&part) && part.bytes().all(plain);
    if name.split('/').all(fits) {
        return Ok(());
    }
    let name = name.chars().take(TOLD).collect();
    Err(Error::ObjectName { name })
}

/// The path of an object that is about to be written, in a folder that is there.
fn place(folder: &Path, name: &str) -> Result<PathBuf, Error> {
    let path = folder.join(name);
    durable_fs::create_dirs(durable_fs::parent_of(&path))?;
    Ok(path)
}

fn object(link: &RemoteLink, name: &str) -> ObjectPath {
    link.names.object(&format!("{ICEBERG}/{name}"))
}

fn writable(link: &RemoteLink) -> Result<&RemoteLink, Error> {
    if link.is_reader() {
        return Err(Error::ReadOnly);
    }
    Ok(link)
}

fn list_local(root: &Path, folder: &str) -> Result<Vec<(String, Timestamp)>, Error> {
    let mut found: Vec<(String, Timestamp)> = Vec::new();
    for path in data_files(&root.join(folder))? {
        let name = path.strip_prefix(root).ok().and_then(Path::to_str);
        let Some(name) = name.filter(|name| check_name(name).is_ok()) else {
            continue;
        };
        match path.symlink_metadata().and_then(|about| about.modified()) {
            Ok(at) => found.push((name.to_owned(), at.into())),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(Error::io("read", &path)(error)),
        }
    }
    found.sort();
    Ok(found)
}

fn list_remote(link: &RemoteLink, folder: &str) -> Result<Vec<(String, Timestamp)>, Error> {
    let (root, below) = (object(link, ""), object(link, folder));
    let mut found: Vec<(String, Timestamp)> = Vec::new();
    for about in link.io.list(below.clone(), below)? {
        let name = about.location.as_ref().strip_prefix(root.as_ref());
        let name = name.and_then(|name| name.strip_prefix('/'));
        if let Some(name) = name.filter(|name| check_name(name).is_ok()) {
            found.push((name.to_owned(), about.last_modified.into()));
        }
    }
    Ok(found)
}
