//! `platform.sql`: DuckDB's views of this store, kept current while the Mixer runs.
//!
//! ```text
//! engine's view or specs changed? ──> which tables have files of which form ──> other text? ──> beside it, synced, renamed
//! ```
//!
//! # Invariants
//!
//! - The file is whole at any moment, and is looked at once per `flush_interval` at most.
//! - It names patterns, not files: sessions that have loaded it see what is published, sealed and removed later. A list of
//!   files would end every such session at the first partition that expires ([ADR 18]).
//! - A file that cannot be written is told once and counted each time; the store goes on.
//!
//! [ADR 18]: ../../docs/adr/0018-views-for-outside-readers.md

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use engine::{DataFileHandle, Engine, ReadView};
use model::dialect::{DataFileSet, duckdb, specs};
use model::spec::SpecColumn;
use model::{SpecName, Table};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::VIEWS_FILE;
use crate::specs::SpecRegistry;

/// The tables of specs, with their columns.
type SpecTables = Vec<(SpecName, Vec<SpecColumn>)>;

/// What stands above the views.
const HEAD: &str = "\
-- The tables of this store for DuckDB, written by platform-mixer; what is changed here is lost.
--   duckdb -init platform.sql
--   FROM logs_between(now() - INTERVAL 1 HOUR, now()) ORDER BY ts DESC LIMIT 50;
-- Each query of a view lists the data files again: it also sees rows that were flushed after the session began.
-- A table without data files is an empty view: load this file again once it has rows.
-- A query that meets a partition while it is removed fails with an error; run it again.
";
/// And beside an object store.
const LOCAL_ONLY: &str = "-- Files that are in the object store only are not among them: read the bucket.\n";
/// Why a table cannot be read.
const SNAPPY: &str = "DuckDB does not read lines in snappy frames: set observability.embedded.storage.compression to zstd or none, or ask the API";

/// How often it was written.
#[derive(Debug, Default)]
pub struct ViewFileStats {
    written: AtomicU64,
    failures: AtomicU64,
}

impl ViewFileStats {
    /// Times that the file was written.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Times that it could not be.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }
}

/// The file and what is known of it.
#[derive(Debug)]
pub(crate) struct ViewFileWriter {
    engine: Arc<Engine>,
    specs: Arc<SpecRegistry>,
    file: PathBuf,
    every: Duration,
    stats: Arc<ViewFileStats>,
    state: Mutex<ViewFileCache>,
}

#[derive(Debug, Default)]
struct ViewFileCache {
    /// The engine's view, and the tables of specs, that it was made for.
    version: Option<(u64, SpecTables)>,
    /// What is in the file.
    text: Option<String>,
    failing: bool,
}

/// What a table's files are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum TableFileFormat {
    Parquet,
    Json,
    JsonZstd,
    JsonSnappy,
}

impl ViewFileWriter {
    /// Of the store that `engine` has open, in `folder`.
    pub(crate) fn new(engine: Arc<Engine>, specs: Arc<SpecRegistry>, folder: &Path) -> Self {
        let every = engine.settings().flush_interval;
        Self {
            engine,
            specs,
            file: folder.join(VIEWS_FILE),
            every,
            stats: Arc::default(),
            state: Mutex::default(),
        }
    }

    pub(crate) fn stats(&self) -> Arc<ViewFileStats> {
        Arc::clone(&self.stats)
    }

    /// Keeps the file current until `stop`.
    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(self.every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while stop.run_until_cancelled(ticks.tick()).await.is_some() {
            self.refresh().await;
        }
    }

    /// Writes the file if it should be another one.
    pub(crate) async fn refresh(self: &Arc<Self>) {
        let this = Arc::clone(self);
        // A panic is the runtime's to report; the next look tries again.
        let _ = tokio::task::spawn_blocking(move || this.refresh_now()).await;
    }

    fn refresh_now(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let view = self.engine.view();
        let version = (view.version(), self.specs.tables());
        let is_there = self.file.is_file();
        if is_there && state.version.as_ref() == Some(&version) {
            return;
        }
        let text = self.text(&view, &version.1);
        drop(view);
        let known = state.text.take().filter(|_| is_there);
        let known = known.or_else(|| std::fs::read_to_string(&self.file).ok());
        let written = match (text, known) {
            (Some(text), Some(known)) if text == known => Ok(text),
            (Some(text), _) => durable_fs::write_atomically(&self.file, text.as_bytes(), 0o640)
                .map_err(|error| error.to_string())
                .map(|()| {
                    self.stats.written.fetch_add(1, Ordering::Relaxed);
                    text
                }),
            (None, _) => Err("a folder of the store has a name that is not UTF-8".to_owned()),
        };
        match written {
            Ok(text) => {
                *state = ViewFileCache {
                    version: Some(version),
                    text: Some(text),
                    failing: false,
                };
            }
            Err(reason) => {
                self.stats.failures.fetch_add(1, Ordering::Relaxed);
                state.version = None;
                if !std::mem::replace(&mut state.failing, true) {
                    let path = self.file.display();
                    tracing::warn!(%path, %reason, "could not write the views for DuckDB; retrying");
                }
            }
        }
    }

    /// What should be in the file; none if it cannot be said in UTF-8.
    fn text(&self, view: &ReadView, tables: &SpecTables) -> Option<String> {
        let settings = self.engine.settings();
        let mut text = HEAD.to_owned();
        if settings.remote.is_some() {
            text.push_str(LOCAL_ONLY);
        }
        for table in Table::ALL {
            let folder = match table {
                Table::Messages => settings.messages_dir.clone(),
                _ => settings.data_dir.join(table.name()),
            };
            let folder = std::path::absolute(folder).ok()?;
            let forms = forms(view.files(table).iter(), settings.remote.is_some());
            let patterns = patterns(&forms, folder.to_str()?);
            let files: Vec<DataFileSet<'_>> = patterns.iter().map(FilePattern::files).collect();
            text.push('\n');
            text.push_str(&duckdb::views(table, &files));
        }
        for (spec, columns) in tables {
            let folder = settings.messages_dir.join("fluxSpec").join(spec.as_str());
            let folder = std::path::absolute(folder).ok()?;
            let files = view.files(Table::Messages).iter();
            let forms = forms(
                files.filter(|file| file.spec() == Some(*spec)),
                settings.remote.is_some(),
            );
            let patterns = patterns(&forms, folder.to_str()?);
            let files: Vec<DataFileSet<'_>> = patterns.iter().map(FilePattern::files).collect();
            text.push('\n');
            text.push_str(&specs::views(spec, columns, &files));
        }
        Some(text)
    }
}

/// The forms of a table's files. Beside an object store a file may be there only, and DuckDB refuses a pattern without files.
fn forms<'a>(
    files: impl DoubleEndedIterator<Item = &'a Arc<DataFileHandle>>,
    may_be_away: bool,
) -> BTreeSet<TableFileFormat> {
    let mut forms = BTreeSet::new();
    for file in files.rev() {
        let form = match file.path.extension() {
            _ if file.is_parquet() => TableFileFormat::Parquet,
            Some(ending) if ending == "zst" => TableFileFormat::JsonZstd,
            Some(ending) if ending == "sz" => TableFileFormat::JsonSnappy,
            _ => TableFileFormat::Json,
        };
        if !forms.contains(&form) && (!may_be_away || file.path.is_file()) {
            forms.insert(form);
        }
    }
    forms
}

enum FilePattern {
    Parquet(String),
    Lines(String),
    Unreadable,
}

impl FilePattern {
    fn files(&self) -> DataFileSet<'_> {
        match self {
            Self::Parquet(pattern) => DataFileSet::Parquet(pattern),
            Self::Lines(pattern) => DataFileSet::Lines(pattern),
            Self::Unreadable => DataFileSet::Unreadable(SNAPPY),
        }
    }
}

fn patterns(forms: &BTreeSet<TableFileFormat>, folder: &str) -> Vec<FilePattern> {
    let folder = duckdb::literal(folder);
    let pattern = |form: &TableFileFormat| match form {
        TableFileFormat::Parquet => FilePattern::Parquet(format!("{folder}/**/*.parquet")),
        TableFileFormat::Json => FilePattern::Lines(format!("{folder}/**/*.json")),
        TableFileFormat::JsonZstd => FilePattern::Lines(format!("{folder}/**/*.json.zst")),
        TableFileFormat::JsonSnappy => FilePattern::Unreadable,
    };
    forms.iter().map(pattern).collect()
}
