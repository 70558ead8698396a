//! The publisher: writes the catalogue of the store that its Mixer writes, from the engine's list of files.
//!
//! ```text
//! engine: list of files ─> by table ─> manifests of changed days ─> manifest list ─> v<n>.metadata.json ─> version hint
//!                                                                                    (creation: the commit)
//! ```
//!
//! # Invariants
//!
//! - A table that did not change is neither read nor written, except for what was there before its first publication here.
//! - What fails with one table leaves the others published. A publication that failed is tried again with the next list.
//! - A table one of whose files cannot be had is not published without it.
//! - Two publishers, as for a moment while a Mixer takes a store over, do not mix: who creates a version has published it, and the
//!   other reads it and goes on from there.
//!
//! # Not here
//!
//! Entries of deleted files. A file that a snapshot does not have any more is absent from its manifests, which version 2 of the
//! format allows: whoever reads a table by its changes from snapshot to snapshot sees what was added, and must not expect what was
//! removed.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use engine::{PinnedFiles, PublishedFile, PublishedFiles, SideObjects};
use model::Timestamp;
use tracing::warn;
use uuid::Uuid;

use crate::catalog::IcebergCatalog;
use crate::catalog_table::CatalogTable;
use crate::error::IcebergError;
use crate::metadata_folder::intact;
use crate::table_files::by_table;
use crate::table_index;
use crate::table_publication::{ListNumber, TablePublication};

pub use crate::table_publication::CatalogSettings;

/// How much longer than the age of snapshots a link is kept: the tree gives a name up before a version without the file is published.
pub const MARGIN: Duration = Duration::from_secs(600);

/// Tables whose garbage is collected between two looks for new files, at most.
const COLLECTED_AT_ONCE: usize = 4;

/// What a publication did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PublishReport {
    /// The number of the list of files.
    pub number: u64,
    /// The names of all tables with the versions that they have now.
    pub versions: BTreeMap<String, u64>,
    /// How many of them are new.
    pub published: usize,
}

/// See the module. Its calls block.
#[derive(Debug)]
pub struct CatalogPublisher {
    objects: SideObjects,
    store: Uuid,
    settings: CatalogSettings,
    tables: BTreeMap<CatalogTable, TablePublication>,
    /// The list of tables as it was written; `None` before it was read.
    listed: Option<BTreeSet<CatalogTable>>,
    /// Tables whose garbage is to be collected.
    waiting: Vec<CatalogTable>,
    /// Whether it was told that files have no links.
    is_without_links: bool,
    catalog: Arc<IcebergCatalog>,
}

impl CatalogPublisher {
    /// A publisher of the tables of a store. Nothing is read before the first publication.
    #[must_use]
    pub fn new(objects: SideObjects, store: Uuid, settings: CatalogSettings) -> Self {
        Self {
            catalog: Arc::new(IcebergCatalog::open(objects.clone())),
            objects,
            store,
            settings,
            tables: BTreeMap::new(),
            listed: None,
            waiting: Vec::new(),
            is_without_links: false,
        }
    }

    /// What is published, for who serves it in this process.
    #[must_use]
    pub fn catalog(&self) -> Arc<IcebergCatalog> {
        Arc::clone(&self.catalog)
    }

    /// Publishes the tables whose files changed, and those with snapshots that became too old. The files of a folder get names of
    /// their own first, links; those that are needed no more go, whatever became of the tables.
    ///
    /// # Errors
    /// The first one, after all tables were tried. The next call does what is missing.
    pub fn publish(&mut self, files: PublishedFiles, now: Timestamp) -> Result<PublishReport, IcebergError> {
        let PinnedFiles {
            list,
            left_out,
            refusal,
        } = files.pinned(&self.objects)?;
        if let Some(error) = refusal.filter(|_| !std::mem::replace(&mut self.is_without_links, true)) {
            warn!(%error, "the Iceberg catalogue names files as the tree does: an older snapshot may miss some; keep data_dir \
                           and messages_dir on the file system of store.dir");
        }
        let number = ListNumber {
            number: list.number,
            is_ordered: list.is_ordered,
        };
        let files: Vec<_> = list.files.into_iter().map(Arc::new).collect();
        let base = left_out.iter().map(|(file, _)| CatalogTable::base(file.table));
        let of_specs = left_out
            .iter()
            .filter_map(|(file, _)| file.spec.map(CatalogTable::of_spec));
        let incomplete: BTreeSet<_> = base.chain(of_specs).collect();
        let published = self.publish_tables(&files, &incomplete, number, now);
        let unpinned = self.unpin(&files, now);
        if let Some((_, error)) = left_out.into_iter().next() {
            return Err(error.into());
        }
        published.and_then(|report| unpinned.map(|()| report))
    }

    fn publish_tables(
        &mut self,
        files: &[Arc<PublishedFile>],
        incomplete: &BTreeSet<CatalogTable>,
        list: ListNumber,
        now: Timestamp,
    ) -> Result<PublishReport, IcebergError> {
        let listed = self.read_list()?;
        let known: BTreeSet<_> = self.tables.keys().copied().chain(listed).collect();
        let mut report = PublishReport {
            number: list.number,
            ..PublishReport::default()
        };
        let mut outcome = Ok(());
        let complete = by_table(files, known);
        for (table, files) in complete.into_iter().filter(|(table, _)| !incomplete.contains(table)) {
            let published = self.table(table).publish(&files, list, now);
            match self.share(table, published) {
                Ok(is_new) => report.published += usize::from(is_new),
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        let newest = self
            .tables
            .iter()
            .filter_map(|(table, publication)| Some((table, publication.newest()?)));
        report.versions = newest.map(|(table, newest)| (table.name(), newest.version)).collect();
        self.write_list()?;
        outcome.map(|()| report)
    }

    /// Looks whether somebody else published; [`CatalogPublisher::is_due`] says it. For once in a few minutes.
    ///
    /// # Errors
    /// The first one, after all tables were tried.
    pub fn notice_others(&mut self) -> Result<(), IcebergError> {
        let noticed = self.tables.values_mut().map(TablePublication::notice_others);
        noticed.fold(Ok(()), Result::and)
    }

    /// Whether the same list is to be published once more: of some table it is not known what is there.
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.tables.values().any(TablePublication::is_due)
    }

    /// Begins a collection of garbage, for which all tables wait now. For once in an hour.
    pub fn begin_collection(&mut self) {
        self.waiting = self.tables.keys().copied().collect();
    }

    /// Deletes metadata objects that nobody names any more, of a few of the tables that wait for it: publications are to go on.
    /// How many; `None` if no table waits. What is missing makes a publication due.
    ///
    /// # Errors
    /// The first one, after these tables were tried.
    pub fn collect_garbage(&mut self, now: Timestamp) -> Result<Option<u64>, IcebergError> {
        let some = self.waiting.len().saturating_sub(COLLECTED_AT_ONCE);
        let tables = self.waiting.split_off(some);
        let (mut deleted, mut outcome) = (0, Ok(()));
        for table in &tables {
            match self.table(*table).collect_garbage(now) {
                Ok(objects) => deleted += objects,
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        outcome.map(|()| (!tables.is_empty()).then_some(deleted))
    }

    /// Removes the links that neither a list nor a snapshot needs any more: the tree has had no name for the file for longer than
    /// snapshots are kept. A table whose publication fails keeps those of its newest version.
    fn unpin(&self, files: &[Arc<PublishedFile>], now: Timestamp) -> Result<(), IcebergError> {
        let published = self.tables.values().flat_map(TablePublication::links);
        let named: HashSet<_> = files.iter().chain(published).map(|file| file.uri.as_str()).collect();
        let kept = self.settings.snapshot_age.saturating_add(MARGIN);
        self.objects.unpin(&named, now.minus(kept))?;
        Ok(())
    }

    fn table(&mut self, table: CatalogTable) -> &mut TablePublication {
        let (objects, store, settings) = (&self.objects, self.store, self.settings);
        let new = || TablePublication::new(objects, table, store, settings);
        self.tables.entry(table).or_insert_with(new)
    }

    /// Serves what a table has now, whatever became of its publication.
    fn share(&self, table: CatalogTable, published: Result<bool, IcebergError>) -> Result<bool, IcebergError> {
        if let Some(newest) = self.tables.get(&table).and_then(TablePublication::newest) {
            self.catalog.share(table, newest.clone());
        }
        published
    }

    /// The list of tables, which is read once.
    fn read_list(&mut self) -> Result<BTreeSet<CatalogTable>, IcebergError> {
        if let Some(listed) = &self.listed {
            return Ok(listed.clone());
        }
        let listed = intact(table_index::read(&self.objects))?.unwrap_or_default();
        self.listed = Some(listed.clone());
        Ok(listed)
    }

    /// Tables that have metadata are in the list from now on.
    fn write_list(&mut self) -> Result<(), IcebergError> {
        let with_metadata = self
            .tables
            .iter()
            .filter(|(_, publication)| publication.newest().is_some());
        let listed = self.listed.iter().flatten();
        let tables: BTreeSet<_> = with_metadata.map(|(table, _)| *table).chain(listed.copied()).collect();
        if self.listed.as_ref() != Some(&tables) {
            table_index::write(&self.objects, &tables)?;
            self.listed = Some(tables.clone());
        }
        self.catalog.share_names(tables);
        Ok(())
    }
}
