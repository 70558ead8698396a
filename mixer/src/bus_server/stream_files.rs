//! The stream files of the managed server: syncs what it has written and not synced yet.
//!
//! ```text
//!  <store>/jetstream/<account>/streams/<stream>/meta.inf, meta.sum     without them the server does not know the stream again
//!                                              /msgs/<number>.blk      messages
//! ```
//!
//! The server writes a message into its block file before it acknowledges it, and syncs once a second. Whoever syncs the same files has
//! all of them on the disk that were acknowledged before.
//!
//! # Invariants
//!
//! - Once a sync has failed none succeeds: the system forgets what it could not write, and says so once.
//! - A file that has not changed since it was synced is not synced again; what was written while it was being synced is the next one's.
//! - New names are synced after the files that have them, up to the store's folder.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The folders above a stream's that the server makes.
const ABOVE: usize = 4;

/// See the module.
#[derive(Debug)]
pub(super) struct StreamFiles {
    folder: PathBuf,
    /// How long each was, and when it was written, before it was synced last.
    synced: BTreeMap<PathBuf, (u64, SystemTime)>,
    has_failed: bool,
}

impl StreamFiles {
    /// Those in the folder of a stream.
    pub(super) const fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            synced: BTreeMap::new(),
            has_failed: false,
        }
    }

    /// Syncs what was written since the last time.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        if self.has_failed {
            return Err(io::Error::other("an earlier sync failed"));
        }
        let messages = self.folder.join("msgs");
        let mut files = vec![self.folder.join("meta.inf"), self.folder.join("meta.sum")];
        for entry in std::fs::read_dir(&messages)? {
            let path = entry?.path();
            files.extend((path.extension().is_some_and(|name| name == "blk")).then_some(path));
        }
        let (mut now, mut has_new) = (BTreeMap::new(), false);
        for file in files {
            match self.sync_one(&file) {
                Ok(state) => {
                    has_new |= !self.synced.contains_key(&file);
                    now.insert(file, state);
                }
                // The server removes the blocks of messages that it no longer has.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        if has_new {
            let above = self.folder.ancestors().take(ABOVE + 1);
            for folder in std::iter::once(messages.as_path()).chain(above) {
                let synced = durable_fs::sync_dir(folder);
                self.has_failed |= synced.as_ref().is_err_and(|error| error.in_doubt);
                synced?;
            }
        }
        self.synced = now;
        Ok(())
    }

    fn sync_one(&mut self, file: &Path) -> io::Result<(u64, SystemTime)> {
        let about = file.metadata()?;
        let state = (about.len(), about.modified()?);
        if self.synced.get(file) != Some(&state) {
            let synced = File::open(file)?.sync_data();
            self.has_failed |= synced.is_err();
            synced?;
        }
        Ok(state)
    }
}
