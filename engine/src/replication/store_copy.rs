//! Copies a store from a folder into a bucket, or from a bucket into a folder. The source stays as it is.
//!
//! ```text
//! folder ─> bucket   lock ─> nothing may wait in the log ─> each file, open ones sealed on the way ─> records, marks ─> read back
//! bucket ─> folder   lock ─> each object, checked, synced ─> catalogue
//! ```
//!
//! # Invariants
//!
//! - A copy counts in one step at its end: the catalogue in the folder, once the names of its files are synced; one record in
//!   the bucket. Interrupted, it is run again and finds what it had copied.
//! - Every byte that was written is compared with the checksum in the catalogue that it came from.
//!
//! # Not here
//!
//! What was derived from a catalogue ([`crate::SideObjects`]): it is made anew from the copy.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use model::{Entropy, Timestamp};
use serde::Serialize;
use uuid::Uuid;

use crate::datafile::{FilePrefix, file_crc, resume, seal};
use crate::layout::StoreLayout;
use crate::manifest::{self, FileEntry, LoadedManifest, ManifestState, StoreManifest, known_store_id, write_store_id};
use crate::object_storage::object_format::data_key;
use crate::object_storage::object_upload::ObjectUpload;
use crate::object_storage::open_file_restore::restore_open;
use crate::object_storage::state::{RemoteFile, RemoteRecord};
use crate::object_storage::takeover::{RemoteConnection, connect};
use crate::open_partition::write_options;
use crate::store_tree::lock_store;
use crate::{Error, RemoteErrorKind, RemoteMode, RemoteSettings, Settings, export_cursors, wal};

/// What a copy came to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CopyReport {
    /// Data files.
    pub files: u64,
    /// Their rows.
    pub rows: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files that an earlier, interrupted run had copied.
    pub there_before: u64,
    /// Open files that were sealed on their way.
    pub sealed: u64,
}

impl CopyReport {
    fn count(&mut self, entry: &FileEntry) {
        self.files += 1;
        self.rows += entry.rows;
        self.bytes += entry.size;
    }
}

/// Copies the store in a folder into an empty bucket. `each` is called before each file, with the files done and all.
///
/// # Errors
/// If there is no store, a Mixer has it, its log holds rows that are in no file, or the bucket is not empty or refuses.
pub fn copy_to_remote(
    settings: &Settings,
    to: &RemoteSettings,
    now: Timestamp,
    entropy: &Entropy,
    mut each: impl FnMut(u64, u64),
) -> Result<CopyReport, Error> {
    let layout = StoreLayout::new(settings);
    let store = known_store_id(&layout.meta).map_err(Error::of_catalogue)?;
    let store = store.ok_or_else(|| Error::no_store(&settings.store_dir))?;
    let _locks = lock_store(&layout, settings)?;
    let found = StoreManifest::read(&layout.meta, store).map_err(Error::of_catalogue)?;
    if found.state.attached {
        return Err(Error::needs_url());
    }
    nothing_waits(&layout, store, &found.state)?;
    let mut connected = connect(to, &layout, entropy)?;
    let copied = BucketExport {
        settings,
        layout: &layout,
        connected: &mut connected,
        report: CopyReport::default(),
    }
    .run(&found.state, now, entropy, &mut each);
    connected.link.stop();
    copied
}

/// Refuses a store that was not closed in order.
fn nothing_waits(layout: &StoreLayout, store: Uuid, state: &ManifestState) -> Result<(), Error> {
    let mut waiting = 0u64;
    wal::inspect_log(&layout.wal, store, |lsn, _| {
        waiting += u64::from(lsn >= state.low_water)
    })?;
    if waiting == 0 {
        return Ok(());
    }
    let advice = if export_cursors::are_there(&layout.meta) {
        "for the collector that telemetry goes to, which no store with an object store has: start its Mixer once with \
         observability.tier = \"embedded\" and without observability.otlp.forward, and stop it in order; what the collector \
         has not taken by then is stored and not sent"
    } else {
        "and in no data file: start its Mixer once and stop it in order"
    };
    Err(Error::Setting {
        key: "store.dir",
        value: layout.meta.display().to_string(),
        reason: format!("{waiting} batches are in its log {advice}"),
    })
}

struct BucketExport<'a> {
    settings: &'a Settings,
    layout: &'a StoreLayout,
    connected: &'a mut RemoteConnection,
    report: CopyReport,
}

impl BucketExport<'_> {
    fn run(
        mut self,
        state: &ManifestState,
        now: Timestamp,
        entropy: &Entropy,
        each: &mut impl FnMut(u64, u64),
    ) -> Result<CopyReport, Error> {
        let host = self.connected.link.settings.host.clone();
        let remote = self.connected.chain.state();
        self.connected.chain.check_store(state.store)?;
        if !remote.files.is_empty() || remote.marks_known() {
            return Err(Error::Remote {
                action: "copy into",
                object: self.connected.link.settings.url.clone(),
                trouble: RemoteErrorKind::Exists,
                reason: "there is a store in it: give another prefix".to_owned(),
            });
        }
        let entries: Vec<FileEntry> = state.files().cloned().collect();
        let all = entries.len() as u64;
        let mut put = Vec::new();
        for (done, entry) in entries.iter().enumerate() {
            each(done as u64, all);
            put.push(self.file(state.store, entry)?);
        }
        each(all, all);
        let chain = &mut self.connected.chain;
        chain.claim(state.store, Uuid::from_bytes(entropy.bytes()), &host, now)?;
        let record = RemoteRecord {
            put,
            watermarks: state.watermarks.all(),
            lsn: state.low_water.saturating_sub(1),
            ..RemoteRecord::default()
        };
        chain.commit(record, now)?;
        chain.checkpoint()?;
        Ok(self.report)
    }

    /// Uploads a file, unless an earlier run did, and reads its object back.
    fn file(&mut self, store: Uuid, entry: &FileEntry) -> Result<RemoteFile, Error> {
        let tree = entry.path(self.layout);
        let key = data_key(self.layout, &tree, &self.connected.chain.state().writer);
        let (path, entry) = if entry.sealed {
            (tree, entry.clone())
        } else {
            self.report.sealed += 1;
            self.sealed(store, tree, entry)?
        };
        let is_staged = path == self.layout.sealing(entry.table, entry.id);
        let file = std::fs::File::open(&path).map_err(Error::io("open", &path))?;
        let link = &self.connected.link;
        let back = || {
            let object = link.names.object(&key);
            link.io.wait(|calls| async move { calls.sum(&object).await })
        };
        let wanted = (entry.size, entry.crc);
        if back().is_ok_and(|found| found == wanted) {
            self.report.there_before += 1;
            self.report.count(&entry);
            return Ok(RemoteFile::sealed(entry, key));
        }
        let upload = ObjectUpload {
            io: &link.io,
            names: &link.names,
            meta: &self.layout.meta,
            path: &path,
            entry: &entry,
        };
        upload.run(&FilePrefix::new(file, entry.size), &key)?;
        let (size, crc) = back()?;
        if (size, crc) != wanted {
            let reason = format!("{size} bytes with the checksum {crc:08x} came back");
            return Err(crate::error::damaged_object(&link.settings.url, &key, &reason));
        }
        if is_staged {
            durable_fs::remove_if_there(&path)?;
        }
        self.report.count(&entry);
        Ok(RemoteFile::sealed(entry, key))
    }

    /// The sealed form of an open file, in staging.
    fn sealed(&self, store: Uuid, path: PathBuf, entry: &FileEntry) -> Result<(PathBuf, FileEntry), Error> {
        let options = write_options(self.settings);
        let twin = self.layout.shadow_file(entry.table, entry.id);
        let (identity, recorded) = (entry.identity(store), Some(entry.recorded()));
        let resumed = resume(path.clone(), twin, identity, options.clone(), recorded)?;
        let Some(open) = resumed.open.filter(|_| resumed.is_recorded) else {
            return Err(Error::damaged(
                &path,
                "it is newer than its record: start its Mixer once and stop it in order",
            ));
        };
        let staged = self.layout.sealing(entry.table, entry.id);
        let sealed = seal(&open, &staged, entry.version + 1, &options)?;
        Ok((staged, entry.at(&sealed)))
    }
}

/// Copies the store in a bucket into a folder without one. `each` is called before each file, with the files done and all.
///
/// # Errors
/// If there is no store in the bucket, there is one in the folder, an object is damaged, or either refuses.
pub fn copy_from_remote(
    from: &RemoteSettings,
    settings: &Settings,
    entropy: &Entropy,
    mut each: impl FnMut(u64, u64),
) -> Result<CopyReport, Error> {
    let layout = StoreLayout::new(settings);
    layout.create_folders()?;
    let _locks = lock_store(&layout, settings)?;
    if manifest::has_manifest(&layout.meta)? || wal::is_there(&layout.wal)? {
        return Err(Error::Setting {
            key: "store.dir",
            value: settings.store_dir.display().to_string(),
            reason: "there is a store in it: give another folder".to_owned(),
        });
    }
    let remote = RemoteSettings {
        mode: RemoteMode::Read,
        ..from.clone()
    };
    let connected = connect(&remote, &layout, entropy)?;
    let copied = copy_in(&connected, &layout, &mut each);
    connected.link.stop();
    copied
}

fn copy_in(
    connected: &RemoteConnection,
    layout: &StoreLayout,
    each: &mut impl FnMut(u64, u64),
) -> Result<CopyReport, Error> {
    let remote = connected.chain.state();
    if connected.chain.is_new() {
        return Err(Error::Remote {
            action: "copy from",
            object: connected.link.settings.url.clone(),
            trouble: RemoteErrorKind::Missing,
            reason: "there is no store in it".to_owned(),
        });
    }
    let mut report = CopyReport::default();
    let open = remote.open_files();
    for entry in open.values() {
        if entry.path(layout).exists() {
            report.there_before += 1;
        } else {
            restore_open(connected, layout, entry)?;
        }
        report.count(entry);
    }
    let sealed = remote.files.values().filter(|file| file.piece_of.is_none());
    let files: Vec<_> = sealed.collect();
    let all = files.len() as u64;
    for (done, file) in files.into_iter().enumerate() {
        each(done as u64, all);
        let entry = &file.entry;
        let path = entry.path(layout);
        connected.link.cache.put(file, false);
        if is_whole(&path, entry)? {
            report.there_before += 1;
        } else {
            connected.link.cache.fetch_to(entry.table, entry.id, &path)?;
        }
        report.count(entry);
    }
    each(all, all);
    let mut state = remote.to_local();
    state.attached = false;
    let folders: BTreeSet<PathBuf> = state
        .files()
        .map(|entry| durable_fs::parent_of(&entry.path(layout)).to_owned())
        .collect();
    folders.iter().try_for_each(|folder| durable_fs::sync_dir(folder))?;
    write_store_id(&layout.meta, remote.store)?;
    LoadedManifest::anew(&layout.meta, state, 0).begin()?;
    Ok(report)
}

/// Whether an earlier run brought the file.
fn is_whole(path: &Path, entry: &FileEntry) -> Result<bool, Error> {
    let Some(file) = durable_fs::open_if_there(path)? else {
        return Ok(false);
    };
    let size = file.metadata().map_err(Error::io("read", path))?.len();
    if size != entry.size {
        return Ok(false);
    }
    let crc = file_crc(&FilePrefix::new(file, size), 0, 0).map_err(Error::io("read", path))?;
    Ok(crc == entry.crc)
}
