//! Fault injection for tests: a plan of which call fails, and a model of what a power cut leaves.
//!
//! The model knows what each file held when it was last synced and which names the folder had when it was last synced. A
//! power cut keeps that, and of everything later an arbitrary part: single sectors of a file, single renames of the folder.
//! After a failed sync it does what kernels do: the page stays in the cache, is no longer written back, and the next sync
//! says that all is well.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use super::directory::DiskOperation;

/// What is written or lost as one: less than any disk's sector, so that a header can be torn too.
const SECTOR: usize = 32;

/// The plan and the model, shared by the log and the test.
#[derive(Debug, Clone, Default)]
pub(super) struct DiskFaultInjector(Arc<Mutex<DiskFaultState>>);

#[derive(Debug, Default)]
struct DiskFaultState {
    calls: usize,
    failed: Option<DiskOperation>,
    plan: Option<DiskFaultPlan>,
    model: Option<PowerCutModel>,
}

/// Which calls fail.
#[derive(Debug, Clone, Copy)]
pub(super) struct DiskFaultPlan {
    /// The call that fails, counted from 0; of one kind if `op` says so.
    pub(super) at: usize,
    pub(super) op: Option<DiskOperation>,
    /// All calls from there on: the process is as good as dead.
    pub(super) on: bool,
    /// The error number.
    pub(super) errno: i32,
}

#[derive(Debug, Default)]
struct PowerCutModel {
    nodes: Vec<ModelFile>,
    /// The folder as the log sees it.
    names: BTreeMap<String, usize>,
    /// The folder at its last sync.
    synced_names: BTreeMap<String, usize>,
    /// What was done to the folder since.
    changes: Vec<DirectoryChange>,
}

/// A file; held open, so that its inode number stays its own.
#[derive(Debug)]
struct ModelFile {
    file: File,
    /// Its content at the last sync.
    synced: Vec<u8>,
    /// Sectors that a failed sync marked as clean, by number, with the content that never reached the disk.
    lost: BTreeMap<usize, Vec<u8>>,
}

#[derive(Debug)]
enum DirectoryChange {
    Add(String, usize),
    Rename(String, String, usize),
    Remove(String),
}

fn content(file: &File) -> Vec<u8> {
    let len = file.metadata().unwrap().len();
    let mut bytes = vec![0; usize::try_from(len).unwrap()];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

fn sector(bytes: &[u8], number: usize) -> &[u8] {
    let start = (number * SECTOR).min(bytes.len());
    &bytes[start..(start + SECTOR).min(bytes.len())]
}

impl ModelFile {
    /// The sectors that differ from what is on the disk and are still going to be written.
    fn dirty(&self, now: &[u8]) -> Vec<usize> {
        (0..now.len().div_ceil(SECTOR))
            .filter(|number| sector(now, *number) != sector(&self.synced, *number))
            .filter(|number| self.lost.get(number).is_none_or(|lost| lost != sector(now, *number)))
            .collect()
    }

    fn write_back(&mut self, now: &[u8], sectors: &[usize]) {
        self.synced.resize(now.len(), 0);
        for number in sectors {
            let start = number * SECTOR;
            let end = (start + SECTOR).min(now.len());
            self.synced[start..end].copy_from_slice(&now[start..end]);
        }
    }
}

impl PowerCutModel {
    fn node_of(&mut self, file: &File) -> &mut ModelFile {
        let inode = file.metadata().unwrap().ino();
        self.nodes
            .iter_mut()
            .find(|node| node.file.metadata().unwrap().ino() == inode)
            .unwrap()
    }
}

impl DiskFaultInjector {
    /// Starts to model the folder; what is in it counts as synced.
    pub(super) fn model(dir: &Path) -> Self {
        let mut model = PowerCutModel::default();
        for entry in std::fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            let file = File::open(entry.path()).unwrap();
            let synced = content(&file);
            model
                .names
                .insert(entry.file_name().into_string().unwrap(), model.nodes.len());
            model.nodes.push(ModelFile {
                file,
                synced,
                lost: BTreeMap::new(),
            });
        }
        model.synced_names = model.names.clone();
        let faults = Self::default();
        faults.0.lock().model = Some(model);
        faults
    }

    /// From now on, calls fail by this plan; counting starts anew.
    pub(super) fn plan(&self, plan: Option<DiskFaultPlan>) {
        let mut state = self.0.lock();
        (state.calls, state.failed, state.plan) = (0, None, plan);
    }

    /// The kind of the last call that was made to fail.
    pub(super) fn failed(&self) -> Option<DiskOperation> {
        self.0.lock().failed
    }

    /// Writes into the empty folder `to` what a power cut would leave now. `pick` decides, given a number of choices.
    pub(super) fn power_cut(&self, to: &Path, mut pick: impl FnMut(usize) -> usize) {
        let state = self.0.lock();
        let model = state.model.as_ref().unwrap();
        let mut names = model.synced_names.clone();
        let all = pick(3);
        for change in &model.changes {
            let happens = match all {
                0 => false,
                1 => true,
                _ => pick(2) == 0,
            };
            match change {
                _ if !happens => {}
                DirectoryChange::Add(name, node) => {
                    names.insert(name.clone(), *node);
                }
                DirectoryChange::Rename(from, to, node) => {
                    if names.get(from) == Some(node) {
                        names.remove(from);
                    }
                    names.insert(to.clone(), *node);
                }
                DirectoryChange::Remove(name) => {
                    names.remove(name);
                }
            }
        }
        for (name, node) in names {
            let node = &model.nodes[node];
            let now = content(&node.file);
            let mut left = node.synced.clone();
            if pick(2) == 0 {
                left.resize(now.len(), 0);
            }
            let all = pick(3);
            for number in node.dirty(&now) {
                let written = match all {
                    0 => false,
                    1 => true,
                    _ => pick(2) == 0,
                };
                let end = (number * SECTOR + SECTOR).min(now.len());
                if written && end <= left.len() {
                    left[number * SECTOR..end].copy_from_slice(&now[number * SECTOR..end]);
                }
            }
            std::fs::write(to.join(name), left).unwrap();
        }
    }

    pub(super) fn before(&self, op: DiskOperation) -> io::Result<()> {
        let mut state = self.0.lock();
        let Some(plan) = state.plan.filter(|plan| plan.op.is_none_or(|only| only == op)) else {
            return Ok(());
        };
        let call = state.calls;
        state.calls += 1;
        if call == plan.at || (plan.on && call > plan.at) {
            state.failed = Some(op);
            return Err(io::Error::from_raw_os_error(plan.errno));
        }
        Ok(())
    }

    fn with_model(&self, change: impl FnOnce(&mut PowerCutModel)) {
        if let Some(model) = &mut self.0.lock().model {
            change(model);
        }
    }

    /// Read through a handle of its own: the log's takes whole blocks only.
    pub(super) fn created(&self, name: &str, path: &Path) {
        self.with_model(|model| {
            let node = model.nodes.len();
            model.nodes.push(ModelFile {
                file: File::open(path).unwrap(),
                synced: Vec::new(),
                lost: BTreeMap::new(),
            });
            model.names.insert(name.to_owned(), node);
            model.changes.push(DirectoryChange::Add(name.to_owned(), node));
        });
    }

    /// A page that is written again is going to be written back again.
    pub(super) fn wrote(&self, file: &File, at: u64, len: usize) {
        self.with_model(|model| {
            let first = usize::try_from(at).unwrap() / SECTOR;
            let last = (usize::try_from(at).unwrap() + len).div_ceil(SECTOR);
            let lost = &mut model.node_of(file).lost;
            lost.retain(|number, _| !(first..last).contains(number));
        });
    }

    pub(super) fn synced(&self, file: &File) {
        self.with_model(|model| {
            let node = model.node_of(file);
            let now = content(&node.file);
            let dirty = node.dirty(&now);
            node.write_back(&now, &dirty);
        });
    }

    pub(super) fn sync_failed(&self, file: &File) {
        self.with_model(|model| {
            let node = model.node_of(file);
            let now = content(&node.file);
            for number in node.dirty(&now) {
                node.lost.insert(number, sector(&now, number).to_vec());
            }
        });
    }

    pub(super) fn renamed(&self, from: &str, to: &str) {
        self.with_model(|model| {
            if let Some(node) = model.names.remove(from) {
                model.names.insert(to.to_owned(), node);
                model
                    .changes
                    .push(DirectoryChange::Rename(from.to_owned(), to.to_owned(), node));
            }
        });
    }

    pub(super) fn unlinked(&self, name: &str) {
        self.with_model(|model| {
            model.names.remove(name);
            model.changes.push(DirectoryChange::Remove(name.to_owned()));
        });
    }

    pub(super) fn synced_dir(&self) {
        self.with_model(|model| {
            model.synced_names = model.names.clone();
            model.changes.clear();
        });
    }
}
