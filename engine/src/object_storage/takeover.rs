//! Takeover: opens a store that has an object store: whose it is, what both know, who writes from now on.
//!
//! | the folder | the bucket | then |
//! |---|---|---|
//! | new or empty | empty | a new store |
//! | a store | empty | its files are going to be uploaded |
//! | empty, or a take-over that was cut short | a store | a new machine: it takes over, with everything that is in the bucket |
//! | the store that wrote last | the same | it goes on |
//! | the store, but another folder wrote since | the same | refused: what the two have may differ |
//! | another store | a store | refused |
//!
//! # Invariants
//!
//! - The claim comes before anything is written here that relies on being the writer.
//! - A take-over counts with its checkpoint, which has files, marks and LSN; cut short before, it begins anew.
//! - Files that the bucket has and the folder's catalogue does not, and that did not expire here, are live again.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use model::{Entropy, Timestamp};
use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::sync::Weak;
use std::time::{Duration, Instant};
use tokio::sync::{oneshot, watch};
use uuid::Uuid;

use super::commit_log::CommitLog;
use super::object_format::ObjectNames;
use super::object_upload::give_up_abandoned;
use super::read_cache::RemoteFileCache;
use super::retry::{BlockingStore, CreateOutcome};
use super::state::{RecordedFiles, RemoteFile, RemoteState};
use crate::dedup::DedupWatermarks;
use crate::error::RemoteErrorKind;
use crate::layout::StoreLayout;
use crate::manifest::{
    FileLineage, LoadedManifest, ManifestState, StoreManifest, known_store_id, read_id, store_id, write_id,
    write_store_id,
};
use crate::stats::{RemoteCounters, UploadBacklog};
use crate::store_tree::check_not_lost;
use crate::{Error, RemoteMode, RemoteSettings};

/// How often it is looked while somebody waits for a cut.
const HURRIED_POLL: Duration = Duration::from_millis(100);

/// What every thread needs of the object store.
#[derive(Debug)]
pub(crate) struct RemoteLink {
    pub(crate) settings: RemoteSettings,
    pub(crate) io: BlockingStore,
    pub(crate) counters: Arc<RemoteCounters>,
    /// How far the object store is behind.
    pub(crate) backlog: UploadBacklog,
    pub(crate) cache: Arc<RemoteFileCache>,
    pub(crate) names: ObjectNames,
    orders: Mutex<UploadRequests>,
    changed: Condvar,
    /// Who may still read files that expired.
    pub(crate) holders: Mutex<HashMap<u64, Weak<FileLineage>>>,
    /// Why the last step failed; `None` after a success.
    pub(crate) failing: Mutex<Option<Arc<str>>>,
    /// The watermarks of what is in the object store.
    pub(crate) watermarks: Arc<Mutex<DedupWatermarks>>,
    /// The files that are in its catalogue.
    pub(crate) recorded: Arc<Mutex<RecordedFiles>>,
    /// The LSN through which all rows are there.
    pub(crate) uploaded: watch::Sender<u64>,
}

/// An upload's answer: why it failed, if it did.
pub(crate) type UploadResult = Result<(), Arc<str>>;

#[derive(Debug, Default)]
struct UploadRequests {
    asked: Vec<oneshot::Sender<UploadResult>>,
    /// Somebody waits for a cut, though not for this very one.
    hurried: bool,
    stop: bool,
}

impl RemoteLink {
    /// Asks for a cut now, or for news; `None` if the thread is to stop.
    pub(crate) fn ask(&self) -> Option<oneshot::Receiver<UploadResult>> {
        let mut orders = self.orders.lock();
        if orders.stop {
            return None;
        }
        let (answer, answered) = oneshot::channel();
        orders.asked.push(answer);
        drop(orders);
        self.changed.notify_all();
        Some(answered)
    }

    /// Waits until the object store has every row up to an LSN, and hurries the cut that brings them there.
    pub(crate) async fn wait_for(&self, wanted: u64, patience: Duration) -> Result<(), Error> {
        let mut uploaded = self.uploaded.subscribe();
        if *uploaded.borrow() >= wanted {
            return Ok(());
        }
        self.orders.lock().hurried = true;
        self.changed.notify_all();
        match tokio::time::timeout(patience, uploaded.wait_for(|lsn| *lsn >= wanted)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err(Error::Closed),
            Err(_) => {
                let reason = self.failing.lock().clone();
                let reason = reason.unwrap_or_else(|| "the object store has not answered yet".into());
                Err(Error::Publishing { reason })
            }
        }
    }

    /// Whether somebody waits for a cut: nobody does for one without rows.
    pub(crate) fn refresh_urgency(&self, is_behind: impl FnOnce() -> bool) -> bool {
        let mut orders = self.orders.lock();
        orders.hurried = orders.hurried && is_behind();
        orders.hurried
    }

    /// Ends the thread and every call; what is under way is found out at the next start.
    pub(crate) fn stop(&self) {
        let mut orders = self.orders.lock();
        orders.stop = true;
        orders.asked.clear();
        drop(orders);
        self.io.stop();
        self.changed.notify_all();
    }

    /// A file expired; `lineage` says who still reads it.
    pub(crate) fn note_expired(&self, id: u64, lineage: Weak<FileLineage>) {
        self.holders.lock().insert(id, lineage);
    }

    /// Whether this engine takes no rows.
    pub(crate) fn is_reader(&self) -> bool {
        self.settings.mode == RemoteMode::Read
    }

    /// Waits for an order or `poll`. Who asked; `None` to stop.
    pub(crate) fn wait_for_request(&self) -> Option<Vec<oneshot::Sender<UploadResult>>> {
        let began = Instant::now();
        let mut orders = self.orders.lock();
        loop {
            let poll = self.settings.poll;
            let end = began + if orders.hurried { poll.min(HURRIED_POLL) } else { poll };
            if !orders.asked.is_empty() || orders.stop || Instant::now() >= end {
                break;
            }
            self.changed.wait_until(&mut orders, end);
        }
        (!orders.stop).then(|| std::mem::take(&mut orders.asked))
    }

    /// A cut begins: who waits from now on waits for the next one.
    pub(crate) fn begin_cut(&self) {
        self.orders.lock().hurried = false;
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.orders.lock().stop
    }
}

/// An object store that was read.
#[derive(Debug)]
pub(crate) struct RemoteConnection {
    pub(crate) link: Arc<RemoteLink>,
    pub(crate) chain: CommitLog,
}

/// Reads the object store's catalogue; of a writer it is also found out whether the store does what is needed.
pub(crate) fn connect(
    remote: &RemoteSettings,
    layout: &StoreLayout,
    entropy: &Entropy,
) -> Result<RemoteConnection, Error> {
    let counters = Arc::new(RemoteCounters::default());
    let io = BlockingStore::start(remote, Arc::clone(&counters), entropy)?;
    let names = ObjectNames::new(remote.prefix.clone());
    if remote.mode == RemoteMode::Write {
        probe(&io, &names, &remote.url)?;
        let given_up = give_up_abandoned(&io, &names, &layout.meta)?;
        if given_up > 0 {
            tracing::info!(given_up, "aborted unfinished uploads");
        }
    }
    let chain = CommitLog::read(io.clone(), names.clone(), &remote.url)?;
    let cache = RemoteFileCache::new(io.clone(), names.clone(), remote, layout);
    Ok(RemoteConnection {
        link: Arc::new(RemoteLink {
            settings: remote.clone(),
            io,
            counters,
            backlog: UploadBacklog::default(),
            cache: Arc::new(cache),
            names,
            orders: Mutex::default(),
            changed: Condvar::new(),
            holders: Mutex::default(),
            failing: Mutex::default(),
            watermarks: Arc::clone(&chain.state().watermarks),
            recorded: Arc::clone(&chain.state().recorded),
            uploaded: watch::Sender::new(chain.state().lsn),
        }),
        chain,
    })
}

/// Two writers are told apart by create-if-absent; a store that ignores the condition would let both go on.
fn probe(io: &BlockingStore, names: &ObjectNames, url: &str) -> Result<(), Error> {
    let path = names.probe(io.nonce());
    let first = io.create(path.clone(), Bytes::from_static(b"first"))?;
    let second = io.create(path.clone(), Bytes::from_static(b"second"))?;
    io.delete_all(vec![path.clone()])?;
    if first == CreateOutcome::New && matches!(second, CreateOutcome::Taken(_)) {
        return Ok(());
    }
    Err(Error::Remote {
        action: "use",
        object: url.to_owned(),
        trouble: RemoteErrorKind::Unsupported,
        reason: "it replaced an object that was to be created only if absent (If-None-Match: *), so two writers could not be \
                 told apart: use a store that honours the condition"
            .to_owned(),
    })
}

/// The id of the folder, made once: tells the machine that wrote last from another one of the same store.
fn instance(meta: &Path, fresh: impl FnOnce() -> Uuid) -> Result<Uuid, Error> {
    let path = meta.join("instance");
    if let Some(id) = read_id(path.clone())? {
        return Ok(id);
    }
    let id = fresh();
    write_id(&path, id)?;
    Ok(id)
}

/// The catalogue to go on with, as the writer.
pub(crate) fn become_writer(
    layout: &StoreLayout,
    connected: &mut RemoteConnection,
    now: Timestamp,
    fresh: impl Fn() -> Uuid,
) -> Result<LoadedManifest, Error> {
    let meta = &layout.meta;
    let ours = instance(meta, || {
        Uuid::from_u128(fresh().as_u128() ^ u128::from(connected.link.io.nonce()) << 16)
    })?;
    let url = connected.link.settings.url.clone();
    let host = connected.link.settings.host.clone();
    let theirs = connected.chain.state().store;
    let known = known_store_id(meta).map_err(Error::of_catalogue)?;
    let mut is_claimed = false;
    if !connected.chain.is_new() {
        let store = known.unwrap_or(theirs);
        connected.chain.check_store(store)?;
        let found = StoreManifest::read(meta, store).map_err(Error::of_catalogue)?;
        if !found.has_begun() {
            check_not_lost(layout)?;
            take_over(layout, connected, (ours, &host), now, found)?;
            is_claimed = true;
        }
    }
    let store = store_id(meta, &fresh).map_err(Error::of_catalogue)?;
    let mut found = StoreManifest::read(meta, store).map_err(Error::of_catalogue)?;
    if !found.has_begun() {
        check_not_lost(layout)?;
    }
    if found.state.attached && connected.chain.is_new() {
        return Err(Error::not_its_bucket(&url));
    }
    if !connected.chain.is_new() {
        check_not_superseded(&url, layout, connected.chain.state(), ours, &found.state)?;
    }
    if !is_claimed {
        connected.chain.claim(store, ours, &host, now)?;
    }
    add_uploaded(&mut found.state, connected.chain.state());
    Ok(found)
}

/// Makes the catalogue of a new machine, durably. Data files come when they are read, open ones are put together by recovery.
fn take_over(
    layout: &StoreLayout,
    connected: &mut RemoteConnection,
    (ours, host): (Uuid, &str),
    now: Timestamp,
    mut unfinished: LoadedManifest,
) -> Result<(), Error> {
    let remote = connected.chain.state();
    tracing::info!(
        url = connected.link.settings.url,
        host = remote.writer.host,
        epoch = remote.writer.epoch,
        files = remote.files.len(),
        lsn = remote.lsn,
        "taking over from the machine that wrote last"
    );
    let store = remote.store;
    connected.chain.claim(store, ours, host, now)?;
    write_store_id(&layout.meta, store)?;
    unfinished.state = connected.chain.state().to_local();
    unfinished.begin()?;
    Ok(())
}

/// Refuses a folder whose rows the bucket may not have, and the other way round.
fn check_not_superseded(
    url: &str,
    layout: &StoreLayout,
    remote: &RemoteState,
    ours: Uuid,
    local: &ManifestState,
) -> Result<(), Error> {
    let writer = &remote.writer;
    let reason = if writer.instance != ours {
        format!("{} took it over as writer epoch {}", writer.host, writer.epoch)
    } else if remote.lsn >= local.low_water.max(1) && local.attached {
        format!(
            "it has rows up to batch {}, the folder only to batch {}: the folder is an older copy",
            remote.lsn, local.low_water
        )
    } else {
        return Ok(());
    };
    Err(Error::Superseded {
        url: url.to_owned(),
        dir: layout.meta.clone(),
        reason,
    })
}

/// Adds to the folder's catalogue what only the bucket's knows: files of a catalogue that was lost or damaged here.
fn add_uploaded(local: &mut ManifestState, remote: &RemoteState) {
    local.attached = true;
    let open = remote.open_files();
    let sealed = remote.files.values().filter(|file| file.piece_of.is_none());
    for entry in sealed.map(|file| &file.entry).chain(open.values()) {
        if local.gone.contains(&entry.id) {
            continue;
        }
        // Their rows may be in the log of a catalogue that was made anew.
        local.set_through(entry.place(), entry.last);
        if local.file(entry.id).is_none() {
            local.put(entry.clone());
        }
    }
    for (place, number) in &remote.numbers {
        local.mark_number_used(*place, *number, remote.next_segment.saturating_sub(1));
    }
    // Every row up to there is in these files: nothing of it is replayed, and a later start knows the folder for the newer one.
    local.low_water = local.low_water.max(remote.lsn + 1);
    local.watermarks.merge_other(&remote.watermarks.lock().all());
}

/// The catalogue of one that only reads. What an earlier run of it had here, apart from copies of files, is thrown away.
pub(crate) fn become_reader(layout: &StoreLayout, connected: &RemoteConnection) -> Result<LoadedManifest, Error> {
    if connected.chain.is_new() {
        return Err(Error::Remote {
            action: "read",
            object: connected.link.settings.url.clone(),
            trouble: RemoteErrorKind::Missing,
            reason: "there is no store in it yet: start the Mixer that writes it first".to_owned(),
        });
    }
    for dir in [&layout.meta, &layout.wal] {
        for entry in std::fs::read_dir(dir).map_err(Error::io("list", dir))? {
            let path = entry.map_err(Error::io("list", dir))?.path();
            if path.is_file() && path.file_name().is_some_and(|name| name != "LOCK") {
                durable_fs::remove_if_there(&path)?;
            }
        }
    }
    let state = connected.chain.state();
    write_store_id(&layout.meta, state.store)?;
    Ok(LoadedManifest::anew(&layout.meta, state.to_replica(), 0))
}

/// Tells the cache what is in the object store, and which of it is in the tree too. A writer has no use for pieces.
pub(crate) fn fill_cache(connected: &RemoteConnection, layout: &StoreLayout) {
    let is_wanted = |file: &&Arc<RemoteFile>| connected.link.is_reader() || file.piece_of.is_none();
    for file in connected.chain.state().files.values().filter(is_wanted) {
        let entry = &file.entry;
        let path = entry.path(layout);
        let here = std::fs::metadata(path).is_ok_and(|meta| meta.len() == entry.size);
        connected.link.cache.put(file, here);
    }
}
