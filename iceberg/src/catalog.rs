//! The catalogue as it is served: the newest version of each table's metadata, and what it says in short.
//!
//! ```text
//! publisher of this process ──> what it published last ──┐
//! objects of another's ──> looked for again when asked ──┴─> IcebergCatalog ──> REST catalogue, `platform catalog`
//! ```
//!
//! # Invariants
//!
//! - What is served was published: nothing here makes metadata.
//! - A catalogue that reads looks at most every two seconds for newer versions of a table, however often it is asked; who asks
//!   meanwhile waits for that look. So it is while the storage does not answer: what was known before is served, or the error that
//!   was met. One that shares what its process publishes reads nothing from the first publication on.
//! - A table that was served stays, without files if it has none.
//!
//! # Not here
//!
//! HTTP. Credentials: who reads data files from a bucket has its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::SideObjects;
use model::Timestamp;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::value::RawValue;
use tracing::warn;

use crate::catalog_table::CatalogTable;
use crate::error::IcebergError;
use crate::metadata_folder::{MetadataFolder, MetadataVersion, version_name};
use crate::snapshot_history::NEWEST_ROW;
use crate::table_index;
use crate::table_schemas::LEFT_OUT;

pub use crate::metadata_folder::NAMESPACE;

/// The time between two looks for newer versions.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// See the module.
#[derive(Debug)]
pub struct IcebergCatalog {
    objects: SideObjects,
    rest: Duration,
    names: Mutex<CachedLook<BTreeSet<CatalogTable>>>,
    /// Each with a lock of its own: a look at one table does not hold up the others.
    tables: Mutex<BTreeMap<CatalogTable, Arc<Mutex<CachedLook<MetadataVersion>>>>>,
}

/// How recent something is.
#[derive(Debug, Clone, Copy)]
enum CacheFreshness {
    Never,
    LookedAt(Instant),
    /// The publisher of this process brings what is new.
    Shared,
}

impl CacheFreshness {
    fn is_due(self, rest: Duration) -> bool {
        match self {
            Self::Never => true,
            Self::LookedAt(at) => at.elapsed() >= rest,
            Self::Shared => false,
        }
    }
}

/// What was read, and when it is looked for again.
#[derive(Debug)]
struct CachedLook<T> {
    value: Option<T>,
    freshness: CacheFreshness,
    /// Why the last look failed, if the storage did not answer.
    failure: Option<String>,
}

impl<T> Default for CachedLook<T> {
    fn default() -> Self {
        Self {
            value: None,
            freshness: CacheFreshness::Never,
            failure: None,
        }
    }
}

impl<T: Clone> CachedLook<T> {
    /// What the publisher of this process brings.
    const fn shared(value: T) -> Self {
        Self {
            value: Some(value),
            freshness: CacheFreshness::Shared,
            failure: None,
        }
    }

    /// What is known, after a look if one is due. It gives what is newer than the known value.
    fn get(
        &mut self,
        rest: Duration,
        look: impl FnOnce(Option<&T>) -> Result<Option<T>, IcebergError>,
    ) -> Result<Option<T>, IcebergError> {
        if self.freshness.is_due(rest) {
            match look(self.value.as_ref()) {
                Ok(newer) => {
                    self.value = newer.or_else(|| self.value.take());
                    self.failure = None;
                }
                Err(IcebergError::Storage(error)) => {
                    if self.failure.replace(error.to_string()).is_none() {
                        warn!(%error, "could not look for what is new in the Iceberg catalogue; it is tried again");
                    }
                }
                Err(damage) => return Err(damage),
            }
            self.freshness = CacheFreshness::LookedAt(Instant::now());
        }
        match (&self.value, &self.failure) {
            (None, Some(reason)) => Err(IcebergError::Away(reason.clone())),
            (value, _) => Ok(value.clone()),
        }
    }
}

/// A table as a client loads it.
#[derive(Debug, Clone)]
pub struct LoadedTable {
    /// Where the metadata lies.
    pub metadata_location: String,
    /// The metadata, as it was published.
    pub metadata: Arc<RawValue>,
    /// Its version, which grows with every publication of the table.
    pub version: u64,
    /// How the table's objects are reached, without credentials. Empty for files.
    pub config: BTreeMap<String, String>,
}

/// What `platform catalog` says of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TableOverview {
    /// Its name in the namespace.
    pub name: String,
    /// The version of its metadata.
    pub version: u64,
    /// The current snapshot; none of a table that never had a file.
    pub snapshot_id: Option<i64>,
    /// When this version was published.
    pub published: Timestamp,
    /// Data files of the current snapshot.
    pub files: u64,
    /// Their rows.
    pub rows: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Snapshots that can be read.
    pub snapshots: usize,
    /// The latest `ts` in the current snapshot.
    pub newest_row: Option<Timestamp>,
    /// Promoted columns that the table does not have because its files disagree on their types.
    pub columns_left_out: Vec<String>,
}

impl IcebergCatalog {
    /// The catalogue that another process publishes.
    #[must_use]
    pub fn open(objects: SideObjects) -> Self {
        Self::with_rest(objects, LOOK_AGAIN)
    }

    /// The same with so much time between two looks.
    pub(crate) fn with_rest(objects: SideObjects, rest: Duration) -> Self {
        Self {
            objects,
            rest,
            names: Mutex::default(),
            tables: Mutex::default(),
        }
    }

    /// The names of all tables, sorted. None before anything was published.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn tables(&self) -> Result<Vec<String>, IcebergError> {
        let mut names: Vec<_> = self.names()?.iter().map(CatalogTable::name).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// The newest version of a table; `None` if there is no such table.
    ///
    /// # Errors
    /// If it cannot be read, or is damaged.
    pub fn load(&self, table: &str) -> Result<Option<LoadedTable>, IcebergError> {
        let Some(table) = CatalogTable::parse(table) else {
            return Ok(None);
        };
        if !self.names()?.contains(&table) {
            return Ok(None);
        }
        let Some(newest) = self.newest(table)? else {
            return Ok(None);
        };
        let folder = MetadataFolder::new(&self.objects, table);
        Ok(Some(LoadedTable {
            metadata_location: folder.uri(&version_name(newest.version)),
            metadata: newest.text,
            version: newest.version,
            config: self.client_config(),
        }))
    }

    /// All tables in short.
    ///
    /// # Errors
    /// As [`IcebergCatalog::load`].
    pub fn overview(&self) -> Result<Vec<TableOverview>, IcebergError> {
        let mut tables = Vec::new();
        for table in self.names()? {
            let newest = self.newest(table)?;
            tables.extend(newest.map(|newest| overview(table, &newest)));
        }
        tables.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(tables)
    }

    /// What this process published is served from now on without being read.
    pub(crate) fn share(&self, table: CatalogTable, newest: MetadataVersion) {
        let known = self.known(table);
        *known.lock() = CachedLook::shared(newest);
    }

    /// As [`IcebergCatalog::share`], the names of all tables.
    pub(crate) fn share_names(&self, names: BTreeSet<CatalogTable>) {
        *self.names.lock() = CachedLook::shared(names);
    }

    fn names(&self) -> Result<BTreeSet<CatalogTable>, IcebergError> {
        let mut known = self.names.lock();
        let names = known.get(self.rest, |_| table_index::read(&self.objects).map(Some))?;
        Ok(names.unwrap_or_default())
    }

    fn known(&self, table: CatalogTable) -> Arc<Mutex<CachedLook<MetadataVersion>>> {
        Arc::clone(self.tables.lock().entry(table).or_default())
    }

    fn newest(&self, table: CatalogTable) -> Result<Option<MetadataVersion>, IcebergError> {
        let known = self.known(table);
        let mut known = known.lock();
        known.get(self.rest, |known| {
            let folder = MetadataFolder::new(&self.objects, table);
            let newer = folder.newest(known.map_or(0, |known| known.version))?;
            newer
                .map(|(version, content)| folder.parse(version, &content))
                .transpose()
        })
    }

    /// Clients of other makes know these properties; some of them only here, not in their own configuration.
    fn client_config(&self) -> BTreeMap<String, String> {
        let Some(settings) = self.objects.client_settings() else {
            return BTreeMap::new();
        };
        let mut config = BTreeMap::from([
            ("s3.region".to_owned(), settings.region),
            ("s3.path-style-access".to_owned(), settings.path_style.to_string()),
        ]);
        config.extend(settings.endpoint.map(|endpoint| ("s3.endpoint".to_owned(), endpoint)));
        config
    }
}

fn overview(table: CatalogTable, newest: &MetadataVersion) -> TableOverview {
    let metadata = &newest.metadata;
    let current = metadata.current_snapshot();
    let said = |key: &str| current.and_then(|snapshot| snapshot.summary.get(key));
    let number = |key: &str| said(key).and_then(|text| text.parse().ok()).unwrap_or(0);
    let left_out = metadata
        .properties
        .get(LEFT_OUT)
        .and_then(|names| serde_json::from_str(names).ok());
    TableOverview {
        name: table.name(),
        version: newest.version,
        snapshot_id: current.map(|snapshot| snapshot.snapshot_id),
        published: Timestamp::from_micros(metadata.last_updated_ms.saturating_mul(1_000)),
        files: number("total-data-files"),
        rows: number("total-records"),
        bytes: number("total-files-size"),
        snapshots: metadata.snapshots.len(),
        newest_row: said(NEWEST_ROW).and_then(|text| text.parse().ok()),
        columns_left_out: left_out.unwrap_or_default(),
    }
}
