//! Read cache: the local tree of data files caches the object store; evicted files are fetched again on a read.
//!
//! # Invariants
//!
//! - A file that comes back has its name only when its length and CRC-32C are those that the catalogue records, and when its
//!   bytes are synced. Many readers of one file wait for one download.
//! - A file goes only if its object is recorded, and while a query's plan names it only where plans name far more than fits;
//!   who has it open keeps its bytes.
//! - An object that differs is read a second time before it counts as damaged.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use model::Table;
use parking_lot::Mutex;

use super::object_format::ObjectNames;
use super::retry::BlockingStore;
use super::state::RemoteFile;
use crate::Error;
use crate::RemoteMode;
use crate::error::{RemoteErrorKind, damaged_object};
use crate::layout::StoreLayout;

/// So many bytes of copies that queries' plans name stay in any case.
const MUCH: u64 = 1 << 30;

/// A file that is in the object store.
#[derive(Debug, Clone)]
pub(crate) struct RemoteObject {
    key: String,
    version: u32,
    size: u64,
    crc: u32,
}

/// A file of the view that is uploaded, as an eviction must know it.
#[derive(Debug)]
pub(crate) struct UploadedFile {
    pub(crate) id: u64,
    pub(crate) path: PathBuf,
    /// Whether an older view or a query's plan names it.
    pub(crate) is_held: bool,
}

/// A local copy.
#[derive(Debug)]
struct LocalCopy {
    size: u64,
    used: u64,
}

#[derive(Debug, Default)]
struct LocalCopies {
    copies: HashMap<u64, LocalCopy>,
    bytes: u64,
    clock: u64,
}

impl LocalCopies {
    fn put(&mut self, id: u64, size: u64) {
        self.clock += 1;
        let used = self.clock;
        self.bytes += size;
        if let Some(old) = self.copies.insert(id, LocalCopy { size, used }) {
            self.bytes -= old.size;
        }
    }

    fn remove(&mut self, id: u64) {
        if let Some(old) = self.copies.remove(&id) {
            self.bytes -= old.size;
        }
    }
}

/// How a download ended: what the trouble is, and what was said of it.
type DownloadResult = Result<(), (RemoteErrorKind, String)>;

/// See the module.
#[derive(Debug)]
pub(crate) struct RemoteFileCache {
    io: BlockingStore,
    names: ObjectNames,
    url: String,
    layout: StoreLayout,
    cap: u64,
    /// Whether objects may go before their record is read: whoever only reads may be behind.
    may_be_behind: bool,
    known: Mutex<HashMap<u64, RemoteObject>>,
    /// Of files that were written anew, the version from which on their objects count.
    least: Mutex<HashMap<u64, u32>>,
    local: Mutex<LocalCopies>,
    /// Downloads that several may wait for.
    flights: Mutex<HashMap<u64, Arc<OnceLock<DownloadResult>>>>,
    /// What happens between the moment in which a fetched file has its name and the one in which it is opened.
    #[cfg(test)]
    pub(crate) after_fetch: crate::test_hook::TestHook,
}

impl RemoteFileCache {
    pub(super) fn new(
        io: BlockingStore,
        names: ObjectNames,
        remote: &crate::RemoteSettings,
        layout: &StoreLayout,
    ) -> Self {
        Self {
            io,
            names,
            url: remote.url.clone(),
            layout: layout.clone(),
            cap: remote.cache_size.get(),
            may_be_behind: remote.mode == RemoteMode::Read,
            known: Mutex::default(),
            least: Mutex::default(),
            local: Mutex::default(),
            flights: Mutex::default(),
            #[cfg(test)]
            after_fetch: crate::test_hook::TestHook::default(),
        }
    }

    /// A file's object is recorded. `here`: its local copy is in the tree.
    pub(crate) fn put(&self, file: &RemoteFile, here: bool) {
        let (id, size) = (file.entry.id, file.entry.size);
        let object = RemoteObject {
            key: file.key.clone(),
            version: file.entry.version,
            size,
            crc: file.entry.crc,
        };
        let mut known = self.known.lock();
        if self.least.lock().get(&id).is_some_and(|least| object.version < *least) {
            return;
        }
        let before = known.insert(id, object);
        let mut local = self.local.lock();
        // Where only the object's name is another one, the copy stays what it was.
        let is_same = before.is_some_and(|before| before.version == file.entry.version);
        let here = here || (is_same && local.copies.contains_key(&id));
        local.remove(id);
        if here {
            local.put(id, size);
        }
    }

    /// A file expired.
    pub(crate) fn remove(&self, id: u64) {
        self.known.lock().remove(&id);
        self.least.lock().remove(&id);
        self.local.lock().remove(id);
    }

    /// A file is about to be rewritten: from now on no copy of its version, or of an earlier one, takes its name or is taken
    /// away. What was known of it.
    pub(crate) fn supersede(&self, id: u64, version: u32) -> Option<RemoteObject> {
        let mut known = self.known.lock();
        self.least.lock().insert(id, version + 1);
        self.local.lock().remove(id);
        known.remove(&id)
    }

    /// It was not rewritten. `object`: what [`RemoteFileCache::supersede`] took. `here`: its local copy is in the tree.
    pub(crate) fn restore(&self, id: u64, object: Option<RemoteObject>, here: bool) {
        let mut known = self.known.lock();
        self.least.lock().remove(&id);
        let Some(object) = object else {
            return;
        };
        if here {
            self.local.lock().put(id, object.size);
        }
        known.insert(id, object);
    }

    /// Whether a failed fetch says that the file is damaged.
    pub(crate) fn is_damage(&self, trouble: RemoteErrorKind) -> bool {
        match trouble {
            RemoteErrorKind::Damaged => true,
            RemoteErrorKind::Missing => !self.may_be_behind,
            _ => false,
        }
    }

    /// Whether a version of a file is in the object store.
    pub(crate) fn has(&self, id: u64, version: u32) -> bool {
        self.known
            .lock()
            .get(&id)
            .is_some_and(|object| object.version == version)
    }

    /// Local copies of uploaded files, and their bytes.
    pub(crate) fn local(&self) -> (u64, u64) {
        let local = self.local.lock();
        (local.copies.len() as u64, local.bytes)
    }

    /// Remembers that a file was used.
    pub(crate) fn touch(&self, id: u64) {
        let mut local = self.local.lock();
        local.clock += 1;
        let used = local.clock;
        if let Some(copy) = local.copies.get_mut(&id) {
            copy.used = used;
        }
    }

    /// Brings a file back into the tree. Blocks until it is there. The first caller fetches it, the others wait for that; if it
    /// panics, the next one does. Who looked for it before it came, and comes here after, finds it.
    /// `is_here` says whether it came meanwhile.
    pub(crate) fn fetch(
        &self,
        (table, id): (Table, u64),
        path: &Path,
        is_here: impl FnOnce() -> bool,
    ) -> Result<(), Error> {
        let flight = Arc::clone(self.flights.lock().entry(id).or_default());
        let mut first = None;
        let ended = flight.get_or_init(|| {
            let fetched = if is_here() {
                Ok(())
            } else {
                self.fetch_to(table, id, path)
            };
            self.flights.lock().remove(&id);
            let told = fetched.as_ref().copied().map_err(|error| {
                let trouble = match error {
                    Error::Remote { trouble, .. } => *trouble,
                    _ => RemoteErrorKind::Failing,
                };
                (trouble, error.to_string())
            });
            first = Some(fetched);
            told
        });
        let again = || {
            ended.clone().map_err(|(trouble, reason)| Error::Remote {
                action: "read",
                object: format!("{} of {}", path.display(), self.url),
                trouble,
                reason,
            })
        };
        first.unwrap_or_else(again)
    }

    /// Puts a file under its name, checked and synced.
    pub(crate) fn fetch_to(&self, table: Table, id: u64, path: &Path) -> Result<(), Error> {
        let object = self.known.lock().get(&id).cloned();
        let object = object.ok_or_else(|| Error::io("fetch", path)(std::io::ErrorKind::NotFound.into()))?;
        let counters = self.io.counters();
        let staged = self.layout.fetching(table, id);
        let mut fetched = self.download(&object, &staged);
        let is_lost = |trouble| matches!(trouble, RemoteErrorKind::Damaged | RemoteErrorKind::Missing);
        if matches!(&fetched, Err(Error::Remote { trouble, .. }) if is_lost(*trouble)) {
            // A network flips bits too, but rarely the same twice.
            fetched = self.download(&object, &staged);
        }
        if fetched.is_err() {
            counters.fetch_failures.add(1);
            // Staging is emptied at every start.
            let _ = durable_fs::remove_if_there(&staged);
        }
        fetched?;
        {
            // Held over the rename: see [`RemoteFileCache::supersede`].
            let known = self.known.lock();
            if known.get(&id).is_none_or(|now| now.version != object.version) {
                durable_fs::remove_if_there(&staged)?;
                return Err(Error::io("fetch", path)(std::io::ErrorKind::NotFound.into()));
            }
            install(&staged, path)?;
            self.local.lock().put(id, object.size);
        }
        counters.fetched_files.add(1);
        counters.fetched_bytes.add(object.size);
        #[cfg(test)]
        self.after_fetch.now();
        Ok(())
    }

    fn download(&self, object: &RemoteObject, staged: &Path) -> Result<(), Error> {
        durable_fs::remove_if_there(staged)?;
        let file = durable_fs::create_new(staged)?;
        let (path, to) = (self.names.object(&object.key), staged.to_owned());
        let downloaded = self.io.wait(|calls| async move {
            let (mut file, mut crc) = (file, 0);
            let each = |bytes: &[u8]| {
                crc = crc32c::crc32c_append(crc, bytes);
                file.write_all(bytes).map_err(Error::io("write", &to))
            };
            let size = calls.download(&path, each).await?;
            Ok((file, size, crc))
        });
        let (file, size, crc): (File, u64, u32) = downloaded?;
        if (size, crc) != (object.size, object.crc) {
            let reason = format!(
                "{size} bytes with checksum {crc:08x} instead of {} with {:08x}",
                object.size, object.crc
            );
            return Err(damaged_object(&self.url, &object.key, &reason));
        }
        Ok(durable_fs::sync_file(&file, staged)?)
    }

    /// Takes local copies away until the others fit, least recently used first: those that no query's plan names, and where
    /// plans name far more than fits, those too. Who has one open keeps its bytes. `listed` gives the uploaded files, and whether a
    /// plan names them.
    pub(crate) fn make_room(&self, listed: impl FnOnce() -> Vec<UploadedFile>) {
        if self.local.lock().bytes <= self.cap {
            return;
        }
        let (mut free, mut named) = (HashMap::new(), HashMap::new());
        for UploadedFile { id, path, is_held } in listed() {
            if is_held { &mut named } else { &mut free }.insert(id, path);
        }
        self.evict(&free, self.cap);
        self.evict(&named, self.cap.saturating_mul(2).max(MUCH));
    }

    fn evict(&self, files: &HashMap<u64, PathBuf>, cap: u64) {
        let mut oldest: Vec<(u64, u64)> = {
            let local = self.local.lock();
            let ours = local.copies.iter().filter(|(id, _)| files.contains_key(id));
            ours.map(|(id, copy)| (copy.used, *id)).collect()
        };
        oldest.sort_unstable();
        for (_, id) in oldest {
            if self.local.lock().bytes <= cap {
                return;
            }
            let Some(path) = files.get(&id) else {
                continue;
            };
            // Together: a file that a reader brings back meanwhile is put among the copies after this, and one that is written
            // anew was taken out of them before.
            let mut local = self.local.lock();
            if !local.copies.contains_key(&id) {
                continue;
            }
            match durable_fs::remove_if_there(path) {
                Ok(()) => {
                    local.remove(id);
                    self.io.counters().evicted_files.add(1);
                }
                Err(error) => {
                    tracing::warn!(%error, path = %path.display(), "could not remove an uploaded file from the local \
                                                                    disk");
                }
            }
        }
    }
}

/// Gives a checked file its name. A folder that rotation found empty just now is made again.
fn install(staged: &Path, path: &Path) -> Result<(), Error> {
    for _ in 0..3 {
        durable_fs::create_dirs(durable_fs::parent_of(path))?;
        match durable_fs::rename(staged, path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            renamed => return Ok(renamed?),
        }
    }
    Ok(durable_fs::rename(staged, path)?)
}
