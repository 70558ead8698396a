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
//! - What fails with one table leaves the others published. If an object store does not answer, the next pass begins behind the table:
//!   others are published though it fails for ever. A publication that failed is tried again with the next list.
//! - A table one of whose files cannot be had is not published without it, until it is found damaged: later lists do not have it.
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
use std::time::{Duration, Instant};

use engine::{PinnedFiles, PublishedFile, PublishedFiles, RemoteErrorKind, SideObjects};
use model::Timestamp;
use tracing::warn;
use uuid::Uuid;

use crate::catalog::IcebergCatalog;
use crate::catalog_table::CatalogTable;
use crate::error::IcebergError;
use crate::link_expiry;
use crate::metadata_folder::intact;
use crate::table_files::{TableFiles, by_table};
use crate::table_index;
use crate::table_publication::{ListNumber, TablePublication};

pub use crate::table_publication::CatalogSettings;

/// How old a list of objects may become before the next table is published: objects are deleted meanwhile.
const LIST_AGE: Duration = Duration::from_secs(60);

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
    /// How old a list of files may become while its tables are published; `None` where the files stay.
    pub(crate) list_age: Option<Duration>,
    /// The table to go on with, with another list: the last one became too old, or the object store did not answer.
    next: Option<CatalogTable>,
    /// Whether links that an earlier process left are what they seem.
    are_links_checked: bool,
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
            list_age: objects.folder().is_none().then_some(LIST_AGE),
            objects,
            store,
            settings,
            tables: BTreeMap::new(),
            listed: None,
            waiting: Vec::new(),
            next: None,
            are_links_checked: false,
            is_without_links: false,
        }
    }

    /// Takes the list of tables back, of a store that nobody publishes any more: what its snapshots name is not kept for them. The next
    /// publisher writes it anew. This blocks.
    ///
    /// # Errors
    /// If the disk or the object store refuses.
    pub fn withdraw(objects: &SideObjects) -> Result<(), IcebergError> {
        match intact(table_index::read(objects))? {
            Some(tables) if tables.is_empty() => Ok(()),
            _ => table_index::write(objects, &BTreeSet::new()),
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
    /// The first one, after all tables were tried, or as soon as an object store does not answer. The next call does what is missing.
    pub fn publish(&mut self, files: PublishedFiles, now: Timestamp) -> Result<PublishReport, IcebergError> {
        if !self.are_links_checked {
            files.remove_copied_links(&self.objects)?;
            self.are_links_checked = true;
        }
        let PinnedFiles {
            list,
            left_out,
            refusal,
        } = files.pinned(&self.objects)?;
        if let Some(error) = refusal.filter(|_| !std::mem::replace(&mut self.is_without_links, true)) {
            warn!(%error, "the Iceberg catalogue names files as the tree does: an older snapshot may miss some; keep data_dir \
                           and messages_dir on the file system of store.dir, one with hard links, and mount /proc");
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
        let unpinned = self.remove_links(&files, now);
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
        let known: BTreeSet<_> = self.tables.keys().chain(&listed).chain(incomplete).copied().collect();
        let tables = by_table(files, known);
        for table in tables.keys() {
            self.table(*table);
        }
        let mut report = PublishReport {
            number: list.number,
            ..PublishReport::default()
        };
        let (began, mut outcome) = (Instant::now(), Ok(()));
        let next = self.next.take();
        let complete = tables.into_iter().filter(|(table, _)| !incomplete.contains(table));
        let (first, later): (Vec<_>, Vec<_>) = complete.partition(|(table, _)| Some(*table) >= next);
        let mut tables = first.into_iter().chain(later).peekable();
        while let Some((table, files)) = tables.next() {
            let was_read = self.table(table).is_due();
            let is_enough = match self.publish_table(table, &files, list, now) {
                Ok(is_new) => {
                    report.published += usize::from(is_new);
                    // Tables that are known and have nothing new are passed whatever the list's age, so that every pass comes to its end.
                    (is_new || was_read) && self.list_age.is_some_and(|most| began.elapsed() >= most)
                }
                Err(error) => {
                    // Each of the others would wait for it as long, unless it is this table's alone.
                    let is_away = is_away(&error);
                    outcome = outcome.and(Err(error));
                    is_away
                }
            };
            if is_enough {
                self.next = tables.peek().map(|(table, _)| *table);
                break;
            }
        }
        let newest = self
            .tables
            .iter()
            .filter_map(|(table, publication)| Some((table, publication.newest()?)));
        report.versions = newest.map(|(table, newest)| (table.name(), newest.version)).collect();
        let written = self.write_list();
        outcome.and(written).map(|()| report)
    }

    /// Publishes a table, and serves what it has then, whatever became of it.
    fn publish_table(
        &mut self,
        table: CatalogTable,
        files: &TableFiles,
        list: ListNumber,
        now: Timestamp,
    ) -> Result<bool, IcebergError> {
        let publication = self.table(table);
        let published = publication.publish(files, list, now);
        let Some(newest) = publication.newest().cloned() else {
            return published;
        };
        let version = Some(newest.version);
        let mut renewed = Ok(());
        if publication.renewed != version {
            renewed = link_expiry::renew_left(&self.objects, table, &newest);
        }
        if renewed.is_ok() {
            self.table(table).renewed = version;
        }
        self.catalog.share(table, newest);
        published.and_then(|is_new| renewed.map(|()| is_new))
    }

    /// Looks whether somebody else published; [`CatalogPublisher::is_due`] says it. For once in a few minutes.
    ///
    /// # Errors
    /// The first one, after all tables were tried, or as soon as an object store does not answer.
    pub fn notice_others(&mut self) -> Result<(), IcebergError> {
        let mut outcome = Ok(());
        for publication in self.tables.values_mut() {
            match publication.notice_others() {
                Err(error) if is_away(&error) => return Err(error),
                noticed => outcome = outcome.and(noticed),
            }
        }
        outcome
    }

    /// Whether a list is to be published once more: of some table it is not known what is there, or the last list became too old.
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.next.is_some() || self.tables.values().any(TablePublication::is_due)
    }

    /// Begins a collection of garbage, for which all tables wait now, unless some still wait for the last one. For once in an hour.
    /// The next publication looks at the list of tables too: somebody may have deleted it, or written an older one.
    pub fn begin_collection(&mut self) {
        if self.waiting.is_empty() {
            self.waiting = self.tables.keys().copied().collect();
        }
        self.listed = None;
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
                Err(error) => {
                    // Each of the others would wait for it as long.
                    if is_away(&error) {
                        self.waiting.clear();
                    }
                    outcome = outcome.and(Err(error));
                }
            }
        }
        outcome.map(|()| (!tables.is_empty()).then_some(deleted))
    }

    /// Removes the links that are due.
    fn remove_links(&self, files: &[Arc<PublishedFile>], now: Timestamp) -> Result<(), IcebergError> {
        let listed = files.iter().map(|file| file.uri.as_str()).collect::<HashSet<_>>();
        // Before every table was published, a newest version may name any link.
        let published: Option<Vec<_>> = self.tables.values().map(TablePublication::links).collect();
        let published = published.filter(|_| self.listed.is_some()).map(|tables| {
            let files = tables.into_iter().flatten();
            files.map(|file| file.uri.as_str()).collect::<HashSet<_>>()
        });
        let known = (&listed, published.as_ref());
        link_expiry::remove_due(&self.objects, known, self.settings.snapshot_age, now)
    }

    fn table(&mut self, table: CatalogTable) -> &mut TablePublication {
        let (objects, store, settings) = (&self.objects, self.store, self.settings);
        let new = || TablePublication::new(objects, table, store, settings);
        self.tables.entry(table).or_insert_with(new)
    }

    /// The list of tables, which is read once for each collection.
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

/// Whether an object store does not answer, or refuses everything: what is the matter with one object is not that.
fn is_away(error: &IcebergError) -> bool {
    let IcebergError::Storage(error) = error else {
        return false;
    };
    match error {
        engine::Error::Remote { trouble, .. } => {
            !matches!(trouble, RemoteErrorKind::Missing | RemoteErrorKind::Damaged)
        }
        error => matches!(error, engine::Error::Closed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_store_that_does_not_answer_is_told_from_an_object_that_is_lost() {
        let is_away_if = |trouble| {
            let error = engine::Error::Remote {
                action: "read",
                object: "logs/v1.metadata.json".to_owned(),
                trouble,
                reason: "of a test".to_owned(),
            };
            is_away(&IcebergError::Storage(error))
        };
        for trouble in [
            RemoteErrorKind::Failing,
            RemoteErrorKind::Unreachable,
            RemoteErrorKind::Denied,
        ] {
            assert!(is_away_if(trouble), "{trouble:?}");
        }
        assert!(!is_away_if(RemoteErrorKind::Missing) && !is_away_if(RemoteErrorKind::Damaged));
        assert!(is_away(&IcebergError::Storage(engine::Error::Closed)));
        assert!(!is_away(&IcebergError::damaged("x", "y")));
    }
}
