//! The follower thread of a read-only engine: it follows the writer's records.
//!
//! # Invariants
//!
//! - Each record is one new view. What a query holds stays readable: objects outlive their record by the writer's grace, and
//!   a file that was brought here outlives the last plan that names it.
//! - Nothing is written into the bucket.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use super::uploader::answer;
use crate::Error;
use crate::data_file_handle::DataFileHandle;
use crate::engine_core::{EngineCore, PoisonGuard};
use crate::manifest::FileLineage;
use crate::object_storage::commit_log::CommitLog;
use crate::object_storage::state::RemoteFile;
use crate::object_storage::takeover::{RemoteLink, UploadResult};
use crate::store_tree::remove_empty_folders;

/// So many polls without news pass between two looks for a checkpoint that overtook us.
const LOOK_EVERY: u32 = 15;

/// The follower's own things.
#[derive(Debug)]
pub(crate) struct ReplicaFollower {
    shared: Arc<EngineCore>,
    link: Arc<RemoteLink>,
    chain: CommitLog,
    polls: u32,
    /// Local copies of files that are in no record any more, with those who may still read or fetch them.
    expired: Vec<(u64, std::path::PathBuf, Weak<DataFileHandle>)>,
}

impl ReplicaFollower {
    pub(crate) fn new(shared: Arc<EngineCore>, link: Arc<RemoteLink>, chain: CommitLog) -> Self {
        Self {
            shared,
            link,
            chain,
            polls: 0,
            expired: Vec::new(),
        }
    }

    /// Follows until asked to stop.
    pub(crate) fn run(mut self) {
        let _sentinel = PoisonGuard(Arc::clone(&self.shared));
        while let Some(asked) = self.link.wait_for_request() {
            let done: UploadResult = self.step().map_err(|error| error.to_string().into());
            let mut failing = self.link.failing.lock();
            match &done {
                Ok(()) if failing.take().is_some() => tracing::info!("following the object store again"),
                Ok(()) => {}
                Err(_) if self.link.is_stopping() => {}
                Err(reason) => {
                    self.link.counters.failures.add(1);
                    if failing.replace(Arc::clone(reason)).is_none() {
                        tracing::error!(%reason, "cannot follow the object store; answers are stale, retrying");
                    }
                }
            }
            drop(failing);
            answer(asked, &done);
        }
    }

    fn step(&mut self) -> Result<(), Error> {
        self.polls += 1;
        let look = self.polls >= LOOK_EVERY;
        if look {
            self.polls = 0;
        }
        match self.chain.follow(look)? {
            Some(records) => {
                for record in records {
                    self.show(&record.put, &record.remove);
                }
            }
            None => self.compare(),
        }
        self.sweep();
        self.link.cache.make_room(|| self.shared.uploaded_files());
        Ok(())
    }

    fn show(&mut self, put: &[RemoteFile], remove: &[u64]) {
        if put.is_empty() && remove.is_empty() {
            return;
        }
        let shared = &self.shared;
        let mut catalog = shared.store.catalog.lock();
        let mut state = shared.rows.state.lock();
        for id in remove {
            let Some(entry) = catalog.state().file(*id).cloned() else {
                continue;
            };
            let path = entry.path(&shared.store.layout);
            let held = state.remove_file(entry.table, (entry.partition, entry.number));
            let held = held.map_or_else(Weak::new, |segment| Arc::downgrade(&segment));
            self.expired.push((*id, path, held));
            catalog.apply_unlogged(|state| state.remove(*id, true));
        }
        for file in put {
            let entry = file.entry.clone();
            self.link.cache.put(file, false);
            state.put_file(shared.segment(&entry, &FileLineage::of_sealed(&shared.store.layout, &entry)));
            catalog.apply_unlogged(|state| state.put(entry));
        }
        shared.publish_snapshot(&mut state, []);
    }

    /// After the state was read anew.
    fn compare(&mut self) {
        let remote = &self.chain.state().files;
        let ours: HashMap<u64, u32> = {
            let catalog = self.shared.store.catalog.lock();
            catalog.state().files().map(|entry| (entry.id, entry.version)).collect()
        };
        let gone: Vec<u64> = ours.keys().filter(|id| !remote.contains_key(id)).copied().collect();
        let new = remote
            .iter()
            .filter(|(id, file)| ours.get(id) != Some(&file.entry.version));
        let new: Vec<RemoteFile> = new.map(|(_, file)| (**file).clone()).collect();
        self.show(&new, &gone);
    }

    fn sweep(&mut self) {
        let layout = self.shared.store.layout.clone();
        let cache = &self.link.cache;
        self.expired.retain(|(id, path, held)| {
            if held.strong_count() > 0 {
                return true;
            }
            cache.remove(*id);
            if let Err(error) = durable_fs::remove_if_there(path) {
                tracing::warn!(%error, path = %path.display(), "could not remove an expired file; retrying");
                return true;
            }
            remove_empty_folders(path, layout.root_of(path));
            false
        });
    }
}
