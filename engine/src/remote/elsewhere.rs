//! Files that are in the object store only, for a check of the store.

use model::Entropy;

use super::attach::{Connected, connect};
use super::{Remote, RemoteMode};
use crate::Error;
use crate::catalog::FileEntry;
use crate::layout::Layout;

/// The object store as a check sees it; nothing is written there.
#[derive(Debug)]
pub(crate) struct Elsewhere(Connected);

impl Elsewhere {
    pub(crate) fn look(remote: &Remote, layout: &Layout) -> Result<Self, Error> {
        let remote = Remote {
            mode: RemoteMode::Read,
            ..remote.clone()
        };
        // Only pauses between attempts are drawn from it.
        let entropy = Entropy::new(|bytes| bytes.fill(1));
        connect(&remote, layout, &entropy).map(Self)
    }

    /// How the object of a file that is not here differs from the file's entry.
    pub(crate) fn differs(&self, entry: &FileEntry, deep: bool) -> Result<Option<String>, Error> {
        let Some(file) = self.0.chain.state().files.get(&entry.id) else {
            return Ok(Some("it is missing, here and in the object store".to_owned()));
        };
        let key = &file.key;
        if (file.entry.size, file.entry.crc) != (entry.size, entry.crc) {
            return Ok(Some(format!("{key} in the object store is another version of it")));
        }
        if !deep {
            return Ok(None);
        }
        let path = self.0.link.names.object(key);
        match self.0.link.io.wait(|calls| async move { calls.sum(&path).await }) {
            Ok(found) if found == (entry.size, entry.crc) => Ok(None),
            Ok((size, crc)) => Ok(Some(format!(
                "{key} in the object store has {size} bytes with the checksum {crc:08x} instead of {} with {:08x}",
                entry.size, entry.crc
            ))),
            Err(Error::Remote {
                trouble: super::RemoteTrouble::Missing,
                ..
            }) => Ok(Some(format!("{key} is missing in the object store"))),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        self.0.link.stop();
    }
}
