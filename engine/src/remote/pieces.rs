//! What of a prefix cut becomes objects: sealed files whole, open ones by the row groups that came since the last cut.
//!
//! # Invariants
//!
//! - A piece has exactly the rows of its file behind the LSN that the object store has of it, up to that of the cut.
//! - An object of the tree is never overwritten while a record names it: a sealed file that takes the place of an earlier
//!   version of itself goes beside the pieces first.
//! - Pieces of one file stay few: from [`FEW`] on, the last ones are put together again as they get a companion, so that
//!   their number grows with the logarithm of the cuts, and so does what is uploaded again.

use super::format::{data_key, piece_key};
use super::state::{RemoteFile, RemoteRecord, ReplacedObject};
use super::upload::Upload;
use super::uploader::Uploader;
use crate::Error;
use crate::catalog::{FileEntry, Segment};
use crate::quarantine::{hide, keep_hidden};
use crate::segment::{FileAt, write_piece};
use crate::sys;

/// So many pieces of a file are as they came.
const FEW: usize = 32;

impl Uploader {
    /// Uploads a sealed file; `None` if it is not what was recorded.
    pub(super) fn upload_sealed(&mut self, entry: &FileEntry, segment: &Segment) -> Result<Option<RemoteFile>, Error> {
        if self.bad.contains(&(entry.id, entry.version)) {
            return Ok(None);
        }
        // Its bytes are compared on their way up.
        let file = match segment.find() {
            Ok(file) => FileAt::new(file, entry.size),
            Err(error) => return self.skip_damaged(entry, error).map(|()| None),
        };
        let state = self.chain.state();
        let earlier = state.files.get(&entry.id);
        let key = match earlier {
            None => data_key(&self.shared.layout, &segment.path, &state.writer),
            Some(_) => piece_key(entry, self.shared.catalog.lock().allocate_id(), &state.writer),
        };
        let replaces = earlier.map(|earlier| {
            earlier.replaces.clone().unwrap_or_else(|| ReplacedObject {
                key: earlier.key.clone(),
                at: self.shared.clock.now().micros(),
            })
        });
        match self.upload(&file, segment, entry, &key) {
            Ok(()) => Ok(Some(RemoteFile {
                replaces,
                ..RemoteFile::sealed(entry.clone(), key)
            })),
            Err(error) => self.skip_damaged(entry, error).map(|()| None),
        }
    }

    /// Uploads what came into an open file since the last cut, with the last pieces of it where there are many.
    pub(super) fn upload_piece(
        &mut self,
        entry: &FileEntry,
        segment: &Segment,
        record: &mut RemoteRecord,
    ) -> Result<(), Error> {
        let mut pieces = self.chain.state().parts_of(entry.id);
        let mut after = pieces.iter().map(|part| part.entry.last).max().unwrap_or(0);
        if entry.last <= after {
            return Ok(());
        }
        let (mut bytes, mut joined) = (pieces.last().map_or(0, |last| last.entry.size), Vec::new());
        let are_many = pieces.len() >= FEW;
        while are_many && let Some(last) = pieces.pop_if(|last| last.entry.size <= bytes) {
            after = last.entry.first.saturating_sub(1);
            bytes += last.entry.size;
            joined.push(last.entry.id);
        }
        let id = self.shared.catalog.lock().allocate_id();
        let staged = self.shared.layout.piece(entry.table, id);
        let made = segment.open().and_then(|file| {
            let source = FileAt::new(file, entry.size);
            if !joined.is_empty() {
                // What takes the place of good objects is read again: a flip may have come since it was first opened.
                segment.compare(&source)?;
            }
            write_piece(&source, &segment.path, after, &staged)
        });
        let piece = match made {
            Ok(Some(piece)) => piece,
            Ok(None) => return Ok(()),
            Err(error) => return self.skip_damaged(entry, error),
        };
        let piece = FileEntry {
            first: after + 1,
            ..entry.at(&piece)
        };
        let key = piece_key(entry, id, &self.chain.state().writer);
        let uploaded = std::fs::File::open(&staged)
            .map_err(Error::io("open", &staged))
            .and_then(|file| self.upload(&FileAt::new(file, piece.size), segment, &piece, &key));
        sys::remove_if_there(&staged).map_err(Error::io("remove", &staged))?;
        uploaded?;
        record.put.push(RemoteFile::piece(piece, id, key));
        record.remove.extend(joined);
        Ok(())
    }

    fn upload(&mut self, file: &FileAt, segment: &Segment, entry: &FileEntry, key: &str) -> Result<(), Error> {
        let wanted = (entry.size, entry.crc);
        if self.made.get(key) == Some(&wanted) {
            return Ok(());
        }
        let upload = Upload {
            io: &self.link.io,
            names: &self.link.names,
            meta: &self.shared.layout.meta,
            path: &segment.path,
            entry,
        };
        upload.run(file, key)?;
        self.made.insert(key.to_owned(), wanted);
        self.link.counters.uploaded_files.add(1);
        self.link.counters.uploaded_bytes.add(entry.size);
        Ok(())
    }

    /// A local file that is not what was recorded, and is nowhere else: it is put aside once. Other errors are the caller's.
    fn skip_damaged(&mut self, entry: &FileEntry, error: Error) -> Result<(), Error> {
        if !matches!(error, Error::Damaged { .. }) && !error.is_not_found() {
            return Err(error);
        }
        self.bad.insert((entry.id, entry.version));
        let shared = &self.shared;
        let path = entry.path(&shared.layout);
        let what = format!("{} is damaged: {error}", path.display());
        if hide(shared, entry.table, (entry.partition, entry.number), &what) {
            keep_hidden(&shared.layout, &path, entry.rows, &what);
        }
        Ok(())
    }
}
