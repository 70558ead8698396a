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
//! - A catalogue that reads looks at most every two seconds for newer versions of a table, however often it is asked. Who asks
//!   during a look gets the known version, and waits only where there is none. While the storage does not answer, or the newer
//!   version is damaged, what was known before is served, or the error that was met. One that shares what its process publishes
//!   reads nothing from the first publication on.
//! - A table that was served stays, without files if it has none.
//!
//! # Not here
//!
//! HTTP. Credentials: who reads data files from a bucket has its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use engine::SideObjects;
use model::Timestamp;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::cached_look::{CachedLook, LookPolicy};
use crate::catalog_table::CatalogTable;
use crate::error::IcebergError;
use crate::metadata_folder::{MetadataFolder, MetadataVersion, version_name};
use crate::snapshot_history::NEWEST_ROW;
use crate::table_index;
use crate::table_schemas::LEFT_OUT;

pub use crate::metadata_folder::NAMESPACE;

/// The time between two looks for newer versions.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// What is known of each table: a look at one does not hold up the others.
type TableLooks = BTreeMap<CatalogTable, Arc<CachedLook<MetadataVersion>>>;

/// See the module. Clones are the same catalogue.
#[derive(Debug, Clone)]
pub struct IcebergCatalog {
    objects: SideObjects,
    looks: LookPolicy,
    names: Arc<CachedLook<Arc<BTreeSet<CatalogTable>>>>,
    tables: Arc<Mutex<TableLooks>>,
}

/// A table as a client loads it.
#[derive(Debug, Clone)]
pub struct LoadedTable {
    /// Where the metadata lies.
    pub metadata_location: String,
    /// The metadata, as it was published.
    pub metadata: Arc<RawValue>,
    /// What tells it apart from other metadata, of the same version too: hex digits.
    pub digest: Arc<str>,
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
            looks: LookPolicy::After(rest),
            names: Arc::default(),
            tables: Arc::default(),
        }
    }

    /// The same catalogue for who must not wait: where a look is due that nobody makes, it gives an error in place of the look.
    #[must_use]
    pub fn at_once(&self) -> Self {
        let looks = match self.looks {
            LookPolicy::After(rest) => LookPolicy::AtOnce(rest),
            others => others,
        };
        Self { looks, ..self.clone() }
    }

    /// The same catalogue without looks: it gives what is known, however old that is. It does not block.
    #[must_use]
    pub fn as_known(&self) -> Self {
        let looks = LookPolicy::Never;
        Self { looks, ..self.clone() }
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
            digest: newest.digest,
            version: newest.version,
            config: self.client_config(),
        }))
    }

    /// All tables in short that can be read, and why the first of the others cannot. Once the storage did not answer, it is not
    /// asked for the rest of them: they are as they are known.
    ///
    /// # Errors
    /// If the names of the tables cannot be read; [`IcebergCatalog::at_once`], also if a table cannot.
    pub fn overview(&self) -> Result<(Vec<TableOverview>, Option<IcebergError>), IcebergError> {
        let names = self.names()?;
        let mut source = self.clone();
        if self.names.is_away() {
            source = self.as_known();
        }
        let (mut tables, mut failure) = (Vec::new(), None);
        for table in names.iter().copied() {
            match source.newest(table) {
                Ok(newest) => tables.extend(newest.map(|newest| overview(table, &newest))),
                Err(error) if matches!(self.looks, LookPolicy::AtOnce(_)) => return Err(error),
                Err(error) => failure = failure.or(Some(error)),
            }
            if self.cached(table).is_away() {
                source = self.as_known();
            }
        }
        tables.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok((tables, failure))
    }

    /// What this process published is served from now on without being read. It waits for no look.
    pub(crate) fn share(&self, table: CatalogTable, newest: MetadataVersion) {
        self.cached(table).share(newest);
    }

    /// As [`IcebergCatalog::share`], the names of all tables.
    pub(crate) fn share_names(&self, names: BTreeSet<CatalogTable>) {
        self.names.share(names.into());
    }

    fn names(&self) -> Result<Arc<BTreeSet<CatalogTable>>, IcebergError> {
        let names = self.names.get(self.looks, |_| {
            table_index::read(&self.objects).map(|names| Some(Arc::new(names)))
        })?;
        Ok(names.unwrap_or_default())
    }

    fn cached(&self, table: CatalogTable) -> Arc<CachedLook<MetadataVersion>> {
        Arc::clone(self.tables.lock().entry(table).or_default())
    }

    fn newest(&self, table: CatalogTable) -> Result<Option<MetadataVersion>, IcebergError> {
        self.cached(table).get(self.looks, |known| {
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
            // Java's client of S3 knows the second one only.
            ("s3.region".to_owned(), settings.region.clone()),
            ("client.region".to_owned(), settings.region),
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
