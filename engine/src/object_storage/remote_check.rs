//! The object store as the repair tools see it: what its catalogue says, and whether an object is sound.

use model::Entropy;
use uuid::Uuid;

use super::state::RemoteFile;
use super::takeover::{RemoteConnection, connect};
use crate::Error;
use crate::dedup::WatermarkDelta;
use crate::layout::StoreLayout;
use crate::manifest::FileEntry;
use crate::{RemoteMode, RemoteSettings};

/// See the module. Nothing is written there.
#[derive(Debug)]
pub(crate) struct RemoteInspector(RemoteConnection);

impl RemoteInspector {
    /// Reads the catalogue of the object store of `store`.
    ///
    /// # Errors
    /// If another store is in it, or it refuses.
    pub(crate) fn look(remote: &RemoteSettings, layout: &StoreLayout, store: Uuid) -> Result<Self, Error> {
        let remote = RemoteSettings {
            mode: RemoteMode::Read,
            ..remote.clone()
        };
        // Only pauses between attempts are drawn from it.
        let entropy = Entropy::new(|bytes| bytes.fill(1));
        let connected = Self(connect(&remote, layout, &entropy)?);
        connected.0.chain.check_store(store)?;
        Ok(connected)
    }

    /// Whether there is a store in it: an empty bucket is not the one that a store was attached to.
    pub(crate) const fn has_store(&self) -> bool {
        !self.0.chain.is_new()
    }

    /// The sealed files in it. Pieces of open ones are the next start's to look at.
    pub(crate) fn files(&self) -> impl Iterator<Item = &FileEntry> {
        let files = self.0.chain.state().files.values();
        files.filter(|file| file.piece_of.is_none()).map(|file| &file.entry)
    }

    /// A sealed file, if it is in it.
    pub(crate) fn file(&self, id: u64) -> Option<&FileEntry> {
        let file = self.0.chain.state().files.get(&id);
        file.filter(|file| file.piece_of.is_none()).map(|file| &file.entry)
    }

    /// Every row of the batches up to there is in it.
    pub(crate) fn lsn(&self) -> u64 {
        self.0.chain.state().lsn
    }

    /// The batches that it counts as stored.
    pub(crate) fn marks(&self) -> WatermarkDelta {
        self.0.chain.state().watermarks.lock().all()
    }

    /// How the object of a file differs from the file's entry. `deep`: its bytes are read.
    pub(crate) fn differs(&self, entry: &FileEntry, deep: bool) -> Result<Option<String>, Error> {
        let Some(file) = self.0.chain.state().files.get(&entry.id) else {
            return Ok(Some("it is not in the object store".to_owned()));
        };
        if (file.entry.size, file.entry.crc) != (entry.size, entry.crc) {
            return Ok(Some(format!(
                "{} in the object store is another version of it",
                file.key
            )));
        }
        if deep { self.object_differs(file) } else { Ok(None) }
    }

    /// Whether a start could restore an open file from sound pieces, as far as they go.
    pub(crate) fn can_restore(&self, segment: u64) -> Result<bool, Error> {
        let parts = self.0.chain.state().parts_of(segment);
        for part in &parts {
            if self.object_differs(part)?.is_some() {
                return Ok(false);
            }
        }
        Ok(!parts.is_empty())
    }

    /// Whether it has pieces of a file.
    pub(crate) fn has_pieces(&self, segment: u64) -> bool {
        let parts = self.0.chain.state().parts_of(segment);
        parts.iter().any(|part| part.piece_of.is_some())
    }

    /// A file as its pieces have it, if they are sound: the next start puts it together.
    pub(crate) fn as_pieces(&self, segment: u64) -> Result<Option<FileEntry>, Error> {
        if !self.has_pieces(segment) || !self.can_restore(segment)? {
            return Ok(None);
        }
        Ok(self.0.chain.state().open_files().remove(&segment))
    }

    /// How an object differs from its record, by its bytes.
    fn object_differs(&self, file: &RemoteFile) -> Result<Option<String>, Error> {
        let (key, entry) = (&file.key, &file.entry);
        let path = self.0.link.names.object(key);
        match self.0.link.io.wait(|calls| async move { calls.sum(&path).await }) {
            Ok(found) if found == (entry.size, entry.crc) => Ok(None),
            Ok((size, crc)) => Ok(Some(format!(
                "{key} in the object store has {size} bytes with the checksum {crc:08x} instead of {} with {:08x}",
                entry.size, entry.crc
            ))),
            Err(Error::Remote {
                trouble: crate::RemoteErrorKind::Missing,
                ..
            }) => Ok(Some(format!("{key} is missing in the object store"))),
            Err(error) => Err(error),
        }
    }
}

impl Drop for RemoteInspector {
    fn drop(&mut self) {
        self.0.link.stop();
    }
}
