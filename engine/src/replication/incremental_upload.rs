//! Incremental upload of a prefix cut: sealed files whole, open ones by the row groups that came since the last cut.
//!
//! # Invariants
//!
//! - A piece has exactly the rows of its file behind the LSN that the object store has of it, up to that of the cut.
//! - An object of the tree is never overwritten while a record names it: a sealed file that takes the place of an earlier
//!   version of itself goes beside the pieces first.
//! - Pieces of one file stay few: from [`FEW`] on, the last ones are put together again as they get a companion, so that
//!   their number grows with the logarithm of the cuts, and so does what is uploaded again.

use super::uploader::CutUploader;
use crate::Error;
use crate::data_file_handle::DataFileHandle;
use crate::data_file_handle::DataFileOwner as _;
use crate::datafile::{FilePrefix, write_piece};
use crate::manifest::FileEntry;
use crate::object_storage::object_format::{data_key, piece_key};
use crate::object_storage::object_upload::ObjectUpload;
use crate::object_storage::state::{RemoteFile, RemoteRecord, ReplacedObject};
use crate::quarantine::{quarantine_unlisted, remove_from_views};

/// So many pieces of a file are as they came.
const FEW: usize = 32;

impl CutUploader {
    /// Uploads a sealed file; `None` if it is not what was recorded.
    pub(super) fn upload_sealed(
        &mut self,
        entry: &FileEntry,
        segment: &DataFileHandle,
    ) -> Result<Option<RemoteFile>, Error> {
        if self.bad.contains(&(entry.id, entry.version)) {
            return Ok(None);
        }
        // Its bytes are compared on their way up.
        let file = match segment.find() {
            Ok(file) => FilePrefix::new(file, entry.size),
            Err(error) => return self.skip_damaged(entry, segment, error).map(|()| None),
        };
        let state = self.chain.state();
        let earlier = state.files.get(&entry.id);
        let key = match earlier {
            None => data_key(&self.shared.store.layout, &segment.path, &state.writer),
            Some(_) => piece_key(entry, self.shared.store.catalog.lock().allocate_id(), &state.writer),
        };
        let replaces = earlier.map(|earlier| {
            earlier.replaces.clone().unwrap_or_else(|| ReplacedObject {
                key: earlier.key.clone(),
                at: self.shared.time.clock.now().micros(),
            })
        });
        match self.upload(&file, segment, entry, &key) {
            Ok(()) => Ok(Some(RemoteFile {
                replaces,
                ..RemoteFile::sealed(entry.clone(), key)
            })),
            Err(error) => self.skip_damaged(entry, segment, error).map(|()| None),
        }
    }

    /// Uploads what came into an open file since the last cut, with the last pieces of it where there are many.
    pub(super) fn upload_piece(
        &mut self,
        entry: &FileEntry,
        segment: &DataFileHandle,
        record: &mut RemoteRecord,
    ) -> Result<(), Error> {
        let mut pieces = self.chain.state().parts_of(entry.id);
        let mut after = pieces.iter().map(|part| part.entry.last).max().unwrap_or(0);
        if entry.last <= after {
            return Ok(());
        }
        let (mut bytes, mut joined) = (pieces.last().map_or(0, |last| last.entry.size), Vec::new());
        let (are_many, apart) = (pieces.len() >= FEW, after);
        while are_many && let Some(last) = pieces.pop_if(|last| last.entry.size <= bytes) {
            after = last.entry.first.saturating_sub(1);
            bytes += last.entry.size;
            joined.push(last.entry.id);
        }
        let id = self.shared.store.catalog.lock().allocate_id();
        let staged = self.shared.store.layout.piece(entry.table, id);
        let made = segment.open().and_then(|file| {
            let source = FilePrefix::new(file, entry.size);
            // What takes the place of good objects is read again: a flip may have come since it was first opened.
            if !joined.is_empty()
                && let Err(error) = segment.compare(&source)
            {
                tracing::error!(%error, "what is uploaded of the file stays as it is; only what came since goes up");
                joined.clear();
                after = apart;
            }
            write_piece(&source, &segment.path, after, &staged)
        });
        let piece = match made {
            Ok(Some(piece)) => piece,
            Ok(None) => return Ok(()),
            Err(error) => return self.skip_damaged(entry, segment, error),
        };
        let piece = FileEntry {
            first: after + 1,
            ..entry.at(&piece)
        };
        let key = piece_key(entry, id, &self.chain.state().writer);
        let uploaded = std::fs::File::open(&staged)
            .map_err(Error::io("open", &staged))
            .and_then(|file| self.upload(&FilePrefix::new(file, piece.size), segment, &piece, &key));
        durable_fs::remove_if_there(&staged)?;
        uploaded?;
        record.put.push(RemoteFile::piece(piece, id, key));
        record.remove.extend(joined);
        Ok(())
    }

    fn upload(
        &mut self,
        file: &FilePrefix,
        segment: &DataFileHandle,
        entry: &FileEntry,
        key: &str,
    ) -> Result<(), Error> {
        let wanted = (entry.size, entry.crc);
        if self.made.get(key) == Some(&wanted) {
            return Ok(());
        }
        let upload = ObjectUpload {
            io: &self.link.io,
            names: &self.link.names,
            meta: &self.shared.store.layout.meta,
            path: &segment.path,
            entry,
        };
        upload.run(file, key)?;
        self.made.insert(key.to_owned(), wanted);
        self.link.counters.uploaded_files.add(1);
        self.link.counters.uploaded_bytes.add(entry.size);
        Ok(())
    }

    /// A local file that is not what was recorded, and is nowhere else: it is put aside once, an open one by the flusher,
    /// which has it open. Other errors are the caller's.
    fn skip_damaged(&mut self, entry: &FileEntry, segment: &DataFileHandle, error: Error) -> Result<(), Error> {
        let is_it = match &error {
            Error::Damaged { path, .. } => *path == segment.path,
            Error::Io { path, source, .. } => *path == segment.path && source.kind() == std::io::ErrorKind::NotFound,
            _ => false,
        };
        if !is_it {
            return Err(error);
        }
        let shared = &self.shared;
        if !entry.sealed {
            shared.report_damage(segment, &error.to_string());
            return Ok(());
        }
        self.bad.insert((entry.id, entry.version));
        let path = entry.path(&shared.store.layout);
        let what = format!("{} is damaged: {error}", path.display());
        if remove_from_views(shared, entry.table, (entry.partition, entry.number), &what) {
            quarantine_unlisted(&shared.store.layout, &path, entry.rows, &what);
        }
        Ok(())
    }
}
