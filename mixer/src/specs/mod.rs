//! The specs of business messages: a folder of files, polled for changes while the Mixer runs.
//!
//! ```text
//! folder ─▶ files ─▶ read ─▶ together ─▶ standing (durable) ─┬─▶ engine: how files of each spec are made
//!             │                 │                            ├─▶ queries: a table for each
//!             └── refused ◀─────┘                            └─▶ ingest: which message is whose
//! ```
//!
//! # Invariants
//!
//! - What is in force is on disk, with all types that its fields ever had, before a message is promoted by it.
//! - A file that is refused changes nothing: what it said last stays in force, over restarts too, until the file is good or gone.
//! - A spec whose file is gone, or is another spec by now, takes no more messages; its table and its types stay.
//! - A file that changes is read once it has stayed the same from one look to the next: half of one is no spec.
//! - Columns are known to the engine before the first message that has them.
//! - Who asks what is in force never waits for the folder or the disk: only the next look does.
//!
//! # Not here
//!
//! What a spec says ([`model::spec`]); how rows get their columns (`engine`).

mod folder_listing;
mod spec_set;
#[cfg(test)]
mod tests;
mod validate;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use engine::{AllSpecFiles, Engine, SpecFiles};
use ingest::{SpecCounts, SpecMatcher};
use model::spec::{MatchRule, SourceDiagnostic, SpecColumn};
use model::{Clock, SpecName, Timestamp};
use query::{QueryEngine, SpecTable};
use schemars::JsonSchema;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use folder_listing::FolderListing;
pub use spec_set::SpecSetError;
use spec_set::{SpecEntry, SpecSet};
use validate::{SpecValidation, review};

/// How often the folder is looked at.
const EVERY: Duration = Duration::from_secs(1);
/// How long a look is waited for when the Mixer ends.
const LAST_LOOK: Duration = Duration::from_secs(2);

/// Why a file is not in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SpecRejection {
    /// The file's name.
    pub file: String,
    /// Everything that is wrong with it.
    pub faults: Vec<SourceDiagnostic>,
}

/// A spec as the API shows it.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct SpecView {
    /// Its name.
    pub name: SpecName,
    /// The version in force.
    pub version: u32,
    /// For people.
    pub description: String,
    /// `active`, or `withdrawn` if its file is gone or another spec.
    #[schemars(extend("enum" = ["active", "withdrawn"]))]
    pub state: &'static str,
    /// The file that it was read from.
    pub file: String,
    /// When this version was taken.
    pub taken: Timestamp,
    /// Of specs that take a message the one with the greatest has it.
    pub priority: i32,
    /// Which messages it takes.
    #[serde(rename = "match")]
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    pub rule: MatchRule,
    /// What names of its data files begin with.
    pub prefix: SpecName,
    /// Its table in SQL.
    pub table: String,
    /// The columns behind those of `messages`, those of former versions included.
    pub columns: Vec<SpecColumn>,
    /// Messages that it took since the Mixer started.
    pub messages: u64,
    /// Values of them that were not of their field's type, and are null.
    pub failed_values: u64,
}

/// All that is known of specs.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct SpecListView {
    /// The folder.
    pub folder: String,
    /// By name.
    pub specs: Vec<SpecView>,
    /// Files that are not in force, by name.
    pub refused: Vec<SpecRejection>,
}

/// Figures for `/metrics`.
#[derive(Debug, Clone, Default)]
pub(crate) struct SpecFigures {
    pub(crate) active: u64,
    pub(crate) refused: u64,
    pub(crate) changes: u64,
    pub(crate) refusals: u64,
    pub(crate) taken: Vec<(SpecName, SpecCounts)>,
}

/// Who is told of a change.
#[derive(Debug)]
struct SpecSubscribers {
    engine: Arc<Engine>,
    querier: Arc<QueryEngine>,
}

/// What one look leaves for the next. Its lock is held while the folder is read, which may take for ever.
#[derive(Debug, Default)]
struct FolderWatch {
    /// What the folder was when its files were read last; none while some cannot be read, so that it is tried again.
    read: Option<FolderListing>,
    /// What it was when it was looked at last: files that are being written are not read.
    seen: Option<FolderListing>,
    /// Why the folder cannot be listed, or the standing not be written.
    trouble: Option<String>,
}

/// What is in force. Its lock is held for moments, never over a call to the file system.
#[derive(Debug, Default)]
struct SpecRegistryState {
    spec_set: Arc<SpecSet>,
    refused: BTreeMap<String, Vec<SourceDiagnostic>>,
    changes: u64,
    refusals: u64,
}

/// See the module.
#[derive(Debug)]
pub struct SpecRegistry {
    folder: PathBuf,
    file: PathBuf,
    clock: Clock,
    specs: Arc<SpecMatcher>,
    rooms: OnceLock<SpecSubscribers>,
    looker: Mutex<FolderWatch>,
    state: Mutex<SpecRegistryState>,
}

impl SpecRegistry {
    /// Takes up what stood last, and looks at the folder.
    ///
    /// # Errors
    /// If what stood last cannot be read.
    pub fn open(folder: &Path, store_dir: &Path, clock: Clock) -> Result<Self, SpecSetError> {
        let file = store_dir.join("specs.json");
        let book = Self {
            folder: folder.to_owned(),
            looker: Mutex::default(),
            state: Mutex::new(SpecRegistryState {
                spec_set: Arc::new(SpecSet::read(&file)?),
                ..SpecRegistryState::default()
            }),
            file,
            clock,
            specs: Arc::default(),
            rooms: OnceLock::new(),
        };
        book.scan_folder();
        book.tell(&book.standing());
        Ok(book)
    }

    /// How the files of each spec are made now.
    #[must_use]
    pub fn files(&self) -> AllSpecFiles {
        files_of(&self.standing())
    }

    /// The specs that ingest asks.
    #[must_use]
    pub fn specs(&self) -> Arc<SpecMatcher> {
        Arc::clone(&self.specs)
    }

    /// Notifies these services of every change from now on, and of the current state.
    pub fn serve(&self, engine: Arc<Engine>, querier: Arc<QueryEngine>) {
        // No look tells them of a change in between.
        let _looker = self.looker();
        let _ = self.rooms.set(SpecSubscribers { engine, querier });
        self.tell(&self.standing());
    }

    /// Looks at the folder until `stop`. A look that hangs is left behind then.
    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while stop.run_until_cancelled(ticks.tick()).await.is_some() {
            let this = Arc::clone(&self);
            let stopped = async {
                stop.cancelled().await;
                tokio::time::sleep(LAST_LOOK).await;
            };
            tokio::select! {
                // A panic is the runtime's to report; the next look tries again.
                _ = tokio::task::spawn_blocking(move || this.scan_folder()) => {}
                () = stopped => tracing::warn!(folder = %self.folder.display(), "a scan of the folder of specs hangs; \
                                                                                 abandoning it"),
            }
        }
    }

    /// What the API shows.
    #[must_use]
    pub fn view(&self) -> SpecListView {
        let state = self.state();
        let specs = state.spec_set.specs().map(|(name, entry)| {
            let counts = self.specs.counts(name);
            let known = &entry.known;
            SpecView {
                name: *name,
                version: known.spec.version,
                description: known.spec.description.clone(),
                state: if entry.withdrawn { "withdrawn" } else { "active" },
                file: entry.file.clone(),
                taken: entry.taken,
                priority: known.spec.priority,
                rule: known.spec.rule.clone(),
                prefix: known.spec.prefix,
                table: model::spec::table_name(name),
                columns: known.columns(),
                messages: counts.messages,
                failed_values: counts.failed,
            }
        });
        let refused = state.refused.iter().map(|(file, faults)| SpecRejection {
            file: file.clone(),
            faults: faults.clone(),
        });
        SpecListView {
            folder: self.folder.display().to_string(),
            specs: specs.collect(),
            refused: refused.collect(),
        }
    }

    pub(crate) fn figures(&self) -> SpecFigures {
        let state = self.state();
        let taken = state.spec_set.specs().map(|(name, _)| (*name, self.specs.counts(name)));
        SpecFigures {
            active: state.spec_set.active().count() as u64,
            refused: state.refused.len() as u64,
            changes: state.changes,
            refusals: state.refusals,
            taken: taken.collect(),
        }
    }

    /// The tables of specs, with their columns.
    pub(crate) fn tables(&self) -> Vec<(SpecName, Vec<SpecColumn>)> {
        let spec_set = self.standing();
        let tables = spec_set.specs().map(|(name, entry)| (*name, entry.known.columns()));
        tables.collect()
    }

    fn standing(&self) -> Arc<SpecSet> {
        Arc::clone(&self.state().spec_set)
    }

    fn looker(&self) -> MutexGuard<'_, FolderWatch> {
        self.looker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, SpecRegistryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the folder, and puts in force what changed before the last look.
    pub(crate) fn scan_folder(&self) {
        let mut looker = self.looker();
        let listing = match FolderListing::of(&self.folder) {
            Ok(listing) => listing,
            Err(error) => return looker.note(Some(format!("the folder of specs cannot be read: {error}"))),
        };
        let is_settled = looker.seen.replace(listing.clone()).is_none_or(|seen| seen == listing);
        if !is_settled || looker.read.as_ref() == Some(&listing) {
            return;
        }
        let (read, is_whole) = listing.read(&self.folder);
        let before = self.standing();
        let SpecValidation {
            spec_set,
            refused,
            changed,
        } = review(&before, read, self.clock.now());
        if spec_set != *before
            && let Err(error) = spec_set.write(&self.file)
        {
            // Nothing is in force that is not on disk; the next look tries again.
            return looker.note(Some(format!("{} cannot be written: {error}", self.file.display())));
        }
        looker.note(None);
        looker.read = is_whole.then_some(listing);
        for (name, what) in &changed {
            tracing::info!(spec = %name, "spec {what}");
        }
        if !changed.is_empty() {
            self.tell(&spec_set);
        }
        let mut state = self.state();
        state.refuse(refused);
        if !changed.is_empty() {
            state.changes += changed.len() as u64;
            state.spec_set = Arc::new(spec_set);
        }
    }

    /// Puts in force what stands.
    fn tell(&self, spec_set: &SpecSet) {
        if let Some(rooms) = self.rooms.get() {
            rooms.engine.set_specs(&files_of(spec_set));
            let tables = spec_set.specs();
            let tables = tables.map(|(name, entry)| SpecTable::new(*name, entry.known.columns()));
            rooms.querier.set_specs(tables.collect());
        }
        let active = spec_set.active().map(|entry| entry.known.spec.clone());
        self.specs.set(active.collect());
    }
}

fn files_of(spec_set: &SpecSet) -> AllSpecFiles {
    let files = |entry: &SpecEntry| SpecFiles {
        prefix: entry.known.spec.prefix,
        columns: entry.known.columns(),
    };
    spec_set.specs().map(|(name, entry)| (*name, files(entry))).collect()
}

impl FolderWatch {
    /// Keeps what is wrong, and says it once.
    fn note(&mut self, trouble: Option<String>) {
        if let Some(trouble) = trouble.as_ref().filter(|new| self.trouble.as_ref() != Some(new)) {
            tracing::error!(%trouble, "could not reload the specs; keeping the current ones, retrying");
        }
        self.trouble = trouble;
    }
}

impl SpecRegistryState {
    /// Keeps which files are not in force, and says each once.
    fn refuse(&mut self, refused: BTreeMap<String, Vec<SourceDiagnostic>>) {
        for (file, faults) in &refused {
            if self.refused.get(file) != Some(faults) {
                self.refusals += 1;
                let faults: Vec<_> = faults.iter().map(SourceDiagnostic::to_string).collect();
                let faults = faults.join("; ");
                tracing::error!(file, faults, "refused a spec file; its previous version stays in force");
            }
        }
        self.refused = refused;
    }
}
