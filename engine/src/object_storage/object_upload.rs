//! Uploads one data file as one object.
//!
//! Up to [`PART`] bytes it is one PUT, above that an upload in parts of this size, one after another: the memory is that of
//! one part. What is uploaded is compared with the catalogue's checksum on its way, so a file that was damaged on the local
//! disk does not become an object.
//!
//! # What makes sure that the object is the file
//!
//! The client signs each body by its SHA-256 and sends it as the part's checksum too; S3 refuses what does not match. An
//! unclear answer is resolved by reading the object back and comparing length and CRC-32C. At the end its length is asked
//! for. Whoever reads it later checks the CRC-32C of the whole.
//!
//! # Abandoned uploads
//!
//! `meta/uploads/<segment>` has the id of an upload in parts while it is under way; the next start gives those up. What a
//! lost machine leaves is the bucket's business: a lifecycle rule `AbortIncompleteMultipartUpload` of a day.

use std::path::{Path, PathBuf};

use object_store::path::Path as ObjectPath;

use super::object_format::ObjectNames;
use super::retry::BlockingStore;
use crate::Error;
use crate::datafile::{FilePrefix, compare_crc};
use crate::manifest::FileEntry;

/// The size of a part, and of the largest file that is one PUT.
const PART: usize = 16 << 20;

/// A file that is going to be an object.
#[derive(Debug)]
pub(crate) struct ObjectUpload<'a> {
    pub(crate) io: &'a BlockingStore,
    pub(crate) names: &'a ObjectNames,
    pub(crate) meta: &'a Path,
    pub(crate) path: &'a Path,
    pub(crate) entry: &'a FileEntry,
}

fn folder(meta: &Path) -> PathBuf {
    meta.join("uploads")
}

impl ObjectUpload<'_> {
    /// Uploads the file under `key`.
    pub(crate) fn run(&self, file: &FilePrefix, key: &str) -> Result<(), Error> {
        let object = self.names.object(key);
        let part = if self.io.has_multipart() { PART } else { usize::MAX };
        if self.entry.size <= part as u64 {
            self.whole(file, &object)?;
        } else {
            self.in_parts(file, &object, key)?;
        }
        let (asked, wanted) = (object.clone(), self.entry.size);
        let size = self.io.wait(|calls| async move { calls.size(&asked).await })?;
        if size == Some(wanted) {
            return Ok(());
        }
        Err(Error::Remote {
            action: "upload",
            object: object.to_string(),
            trouble: crate::RemoteErrorKind::Failing,
            reason: format!("it has {size:?} bytes there instead of {wanted}"),
        })
    }

    fn whole(&self, file: &FilePrefix, object: &ObjectPath) -> Result<(), Error> {
        let bytes = file.read(0, self.entry.size).map_err(Error::io("read", self.path))?;
        compare_crc(self.path, crc32c::crc32c(&bytes), self.entry.crc)?;
        let object = object.clone();
        self.io
            .wait(|calls| async move { calls.put(&object, bytes.into()).await })
    }

    fn in_parts(&self, file: &FilePrefix, object: &ObjectPath, key: &str) -> Result<(), Error> {
        let path = object.clone();
        let id = self.io.wait(|calls| async move { calls.begin_parts(&path).await })?;
        let note = folder(self.meta).join(self.entry.id.to_string());
        durable_fs::create_private_dirs(&folder(self.meta))?;
        durable_fs::write_durably(&note, format!("{key}\n{id}\n").as_bytes())?;
        let done = self.send(file, object, &id);
        if done.is_err() {
            let (path, id) = (object.clone(), id);
            // Where it cannot be given up now, the note is there for the next start.
            self.io
                .wait(|calls| async move { calls.abort_parts(&path, &id).await })?;
        }
        durable_fs::remove_if_there(&note)?;
        done
    }

    fn send(&self, file: &FilePrefix, object: &ObjectPath, id: &str) -> Result<(), Error> {
        let (mut at, mut crc, mut parts) = (0, 0, Vec::new());
        let size = self.entry.size;
        while at < size {
            let length = (size - at).min(PART as u64);
            let bytes = file.read(at, length).map_err(Error::io("read", self.path))?;
            crc = crc32c::crc32c_append(crc, &bytes);
            let (path, id, index) = (object.clone(), id.to_owned(), parts.len());
            parts.push(
                self.io
                    .wait(|calls| async move { calls.put_part(&path, &id, index, bytes.into()).await })?,
            );
            at += length;
        }
        compare_crc(self.path, crc, self.entry.crc)?;
        let (path, id) = (object.clone(), id.to_owned());
        self.io
            .wait(|calls| async move { calls.complete_parts(&path, &id, parts, size, crc).await })
    }
}

/// Gives up the uploads that an earlier process left unfinished. How many.
pub(super) fn give_up_abandoned(io: &BlockingStore, names: &ObjectNames, meta: &Path) -> Result<u64, Error> {
    let folder = folder(meta);
    let notes = match std::fs::read_dir(&folder) {
        Ok(notes) => notes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(Error::io("list", &folder)(error)),
    };
    let mut given_up = 0;
    for note in notes {
        let note = note.map_err(Error::io("list", &folder))?.path();
        let text = std::fs::read_to_string(&note).map_err(Error::io("read", &note))?;
        // A note that was cut short says nothing; the bucket's lifecycle rule ends what it was about.
        if let Some((key, id)) = text.split_once('\n')
            && let Some(id) = id.strip_suffix('\n')
            && io.has_multipart()
        {
            let (object, id) = (names.object(key), id.to_owned());
            io.wait(|calls| async move { calls.abort_parts(&object, &id).await })?;
            given_up += 1;
        }
        durable_fs::remove_if_there(&note)?;
    }
    Ok(given_up)
}
