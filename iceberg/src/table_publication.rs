//! One table of the catalogue: from its files to a version of its metadata.
//!
//! ```text
//! what is there, read once ─> manifests of the files ─> nothing changed ──────────────────────────────> links
//!        ^                            └─> manifest list ─> v<n+1>.metadata.json ─> created ─> hint ──────┘
//!        └─────────────────────────────── somebody created it before ──────────┘
//! ```
//!
//! # Invariants
//!
//! - A version names only what is there: it is created after what it names, and the hint is written after it.
//! - After an error nothing is known any more of what is there: it is read again. So it does not matter whether the version whose
//!   creation failed exists. What an attempt found out about data files is not lost: the next one goes on from there.
//! - Times do not go back from version to version, nor do lists whose numbers are ordered: a writer that another one pushed out of
//!   the store, and that does not know it yet, publishes nothing over what that one published.

use std::sync::Arc;
use std::time::Duration;

use engine::{PartitionBy, PublishedFile, SideObjects};
use model::Timestamp;
use tracing::warn;
use uuid::Uuid;

use crate::catalog_table::CatalogTable;
use crate::day_manifests::{FileChanges, ManifestBuilder, ManifestDrafts, SnapshotManifests};
use crate::error::IcebergError;
use crate::garbage;
use crate::manifest_list::write_manifest_list;
use crate::metadata_folder::{MetadataFolder, MetadataVersion, content_digest, version_name, version_of};
use crate::partition_spec::{LAST_PARTITION_ID, PartitionUnit, specs_json};
use crate::published_state::PublishedState;
use crate::snapshot_history::{KEPT_SNAPSHOTS, KEPT_VERSIONS, LIST_NUMBER, kept, milliseconds, newest, summary};
use crate::table_files::TableFiles;
use crate::table_metadata::{
    FORMAT_VERSION, MAIN_BRANCH, MetadataLogEntry, ROW_READS, SnapshotLogEntry, SnapshotReference, TableMetadata,
    TableSnapshot, unsorted,
};
use crate::table_schemas::{LEFT_OUT, TableSchemas};

/// How often a publication is tried anew because another publisher was faster.
const ATTEMPTS: u32 = 8;

/// How a catalogue is published.
#[derive(Debug, Clone, Copy)]
pub struct CatalogSettings {
    /// How long a snapshot can be read after another one has taken its place.
    pub snapshot_age: Duration,
    /// How long the partitions of new files are.
    pub partition_by: PartitionBy,
}

/// The number of a list of files.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ListNumber {
    pub(crate) number: u64,
    /// As [`engine::PublishedFiles::is_ordered`].
    pub(crate) is_ordered: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct TablePublication {
    table: CatalogTable,
    uuid: Uuid,
    folder: MetadataFolder,
    settings: CatalogSettings,
    /// What is there; `None` before it was read, and after an error.
    state: Option<PublishedState>,
    /// What attempts wrote that did not end in a version.
    drafts: ManifestDrafts,
    /// The links that the newest version names; `None` before this process published it.
    links: Option<Vec<Arc<PublishedFile>>>,
    /// The version after which nothing was left to collect.
    collected: Option<u64>,
    /// The version at which the time of links began that left with it.
    pub(crate) renewed: Option<u64>,
}

impl TablePublication {
    pub(crate) fn new(objects: &SideObjects, table: CatalogTable, store: Uuid, settings: CatalogSettings) -> Self {
        Self {
            table,
            uuid: table.uuid(store),
            folder: MetadataFolder::new(objects, table),
            settings,
            state: None,
            drafts: ManifestDrafts::default(),
            links: None,
            collected: None,
            renewed: None,
        }
    }

    /// The newest version, if it is known.
    pub(crate) fn newest(&self) -> Option<&MetadataVersion> {
        self.state.as_ref()?.newest.as_ref()
    }

    /// The links that the newest version names; `None` before this process published it.
    pub(crate) fn links(&self) -> Option<&[Arc<PublishedFile>]> {
        self.links.as_deref()
    }

    /// Publishes a version if the files or the kept snapshots are others; whether it did.
    pub(crate) fn publish(
        &mut self,
        files: &TableFiles,
        list: ListNumber,
        now: Timestamp,
    ) -> Result<bool, IcebergError> {
        for _ in 0..ATTEMPTS {
            let mut state = match self.state.take() {
                Some(state) => state,
                None => PublishedState::read(&self.folder, self.table, self.uuid)?,
            };
            self.check_order(&state, list)?;
            let draft = self.draft(&mut state, files, list.number, now)?;
            let is_new = draft.is_some();
            if let Some(draft) = draft {
                let Some(created) = self.folder.create(state.version + 1, &draft)? else {
                    continue;
                };
                state.version = created.version;
                state.newest = Some(created);
                state.snapshots = draft.snapshots;
                state.is_stale = false;
            }
            self.settle(state, files)?;
            return Ok(is_new);
        }
        let version = format!("the next version of table {}", self.table.name());
        let reason = format!("another publisher was faster {ATTEMPTS} times; it is tried again");
        Err(IcebergError::refused(version, reason))
    }

    /// Refuses a list that is older than the one of the newest version.
    fn check_order(&self, state: &PublishedState, list: ListNumber) -> Result<(), IcebergError> {
        let current = state
            .newest
            .as_ref()
            .and_then(|newest| newest.metadata.current_snapshot());
        let published = current.and_then(|current| current.summary.get(LIST_NUMBER)?.parse::<u64>().ok());
        match published.filter(|published| list.is_ordered && *published > list.number) {
            None => Ok(()),
            Some(published) => {
                let version = format!("list {} of the files of table {}", list.number, self.table.name());
                let reason = format!(
                    "list {published} is published: another Mixer writes the store; if the store was restored, delete {}",
                    self.folder.location()
                );
                Err(IcebergError::refused(version, reason))
            }
        }
    }

    /// Forgets what is there if somebody else published a later version, so that the next publication reads it.
    pub(crate) fn notice_others(&mut self) -> Result<(), IcebergError> {
        let known = self.state.as_ref().map(|state| state.version);
        if let Some(version) = known
            && self.folder.newest(version)?.is_some()
        {
            self.state = None;
        }
        Ok(())
    }

    /// Whether it is not known what is there, although it was.
    pub(crate) const fn is_due(&self) -> bool {
        self.state.is_none()
    }

    /// Deletes objects that nobody names, those of failed attempts too; how many. If something is missing that the newest version
    /// names, it forgets what is there instead, so that the next publication makes it anew. So it does if there is a later version
    /// than the newest one that it knows: what that one names is no garbage.
    pub(crate) fn collect_garbage(&mut self, now: Timestamp) -> Result<u64, IcebergError> {
        let read = match self.state {
            Some(_) => None,
            None => Some(PublishedState::read(&self.folder, self.table, self.uuid)?),
        };
        let Some(state) = self.state.as_ref().or(read.as_ref()) else {
            return Ok(0);
        };
        // A version that cannot be gone on from may name whatever there is.
        if state.newest.is_none() && state.version > 0 {
            return Ok(0);
        }
        let there = self.folder.list()?;
        let last = there.keys().filter_map(|name| version_of(name)).max();
        if let Some(last) = last.filter(|last| *last > state.version) {
            let (table, known) = (self.table.name(), state.version);
            warn!(
                table,
                known,
                last,
                "another publisher wrote a later version of a table of the Iceberg catalogue; nothing of it is deleted"
            );
            self.state = None;
            return Ok(0);
        }
        let manifests = state.manifests.to_list();
        let lists = state.snapshots.iter().map(|snapshot| snapshot.manifest_list.as_str());
        let mut named = lists.chain(manifests.iter().map(|manifest| manifest.path.as_str()));
        let is_there = |uri: &str| self.folder.name_of(uri).is_some_and(|name| there.contains_key(name));
        let has_newest = state.version == 0 || there.contains_key(&version_name(state.version));
        if !has_newest || !named.all(is_there) {
            let table = self.table.name();
            warn!(
                table,
                "objects of a table of the Iceberg catalogue are missing; it is published anew"
            );
            self.state = None;
            return Ok(0);
        }
        if read.is_none() && self.collected == Some(state.version) {
            return Ok(0);
        }
        let young = now.minus(self.settings.snapshot_age.saturating_mul(2));
        let named = manifests.iter().map(|manifest| manifest.path.as_str());
        let named = named.chain(self.drafts.paths());
        let collected = garbage::collect_garbage(&self.folder, &there, (state.newest.as_ref(), named), young)?;
        // Attempts leave more of it.
        self.collected = (read.is_none() && !collected.is_waiting).then_some(state.version);
        Ok(collected.deleted)
    }

    /// Takes note of what is published now.
    fn settle(&mut self, mut state: PublishedState, files: &TableFiles) -> Result<(), IcebergError> {
        self.drafts = ManifestDrafts::default();
        let links = files.all().iter().filter(|file| file.is_pinned());
        self.links = Some(links.cloned().collect());
        let hint = Some(state.version);
        let is_hinted = std::mem::replace(&mut state.hint, hint) == hint;
        let state = self.state.insert(state);
        if !is_hinted && let Err(error) = self.folder.put_hint(state.version) {
            // It is published all the same: the hint is written with the next call.
            state.hint = None;
            return Err(error);
        }
        Ok(())
    }

    /// The next version, if there is one; what it names is written.
    fn draft(
        &mut self,
        state: &mut PublishedState,
        files: &TableFiles,
        number: u64,
        now: Timestamp,
    ) -> Result<Option<TableMetadata>, IcebergError> {
        let version = state.version + 1;
        let id = files.snapshot_id(self.uuid, version);
        let id = self.drafts.snapshot_id(version, id);
        let mut builder = ManifestBuilder {
            folder: &self.folder,
            schemas: &mut state.schemas,
            drafts: &mut self.drafts,
            snapshot_id: id,
            sequence_number: i64::try_from(version).unwrap_or(i64::MAX),
            changes: FileChanges::default(),
        };
        let manifests = builder.build(files, &state.manifests)?;
        let (sequence_number, mut changes) = (builder.sequence_number, builder.changes);
        state.manifests = manifests;
        let mut snapshots = kept(&state.snapshots, self.settings.snapshot_age, now).to_vec();
        let before = state.newest.as_ref().map(|newest| &*newest.metadata);
        // Without the current snapshot, whose objects are lost, readers would see an earlier one.
        let current = before.and_then(|before| before.current_snapshot_id);
        changes.is_change |= snapshots.last().map(|last| last.snapshot_id) != current;
        let is_same = !changes.is_change && !state.is_stale && snapshots.len() == state.snapshots.len();
        if is_same && state.newest.is_some() {
            return Ok(None);
        }
        let last_schema = before.map(|before| before.current_schema_id);
        let current_schema = state.schemas.current(&state.manifests.schema_ids(), last_schema);
        let now = milliseconds(now);
        let updated = before.map_or(now, |before| now.max(before.last_updated_ms.saturating_add(1)));
        let parent = snapshots.last().map(|last| last.snapshot_id);
        if changes.is_change {
            let manifest_list = self.write_list(id, parent, sequence_number, &state.manifests)?;
            snapshots.push(TableSnapshot {
                snapshot_id: id,
                parent_snapshot_id: parent,
                sequence_number,
                timestamp_ms: updated,
                manifest_list,
                summary: summary(&changes, files, number),
                schema_id: current_schema.id,
            });
        }
        let snapshots = newest(&snapshots, KEPT_SNAPSHOTS).to_vec();
        let mut used = state.manifests.schema_ids();
        used.insert(current_schema.id);
        used.extend(snapshots.iter().map(|snapshot| snapshot.schema_id));
        state.schemas.retain(&used);
        let left_out = serde_json::to_string(&current_schema.left_out).unwrap_or_default();
        let left_out = (!current_schema.left_out.is_empty()).then_some((LEFT_OUT.to_owned(), left_out));
        let mut metadata = TableMetadata {
            last_updated_ms: updated,
            current_schema_id: current_schema.id,
            metadata_log: self.metadata_log(state),
            ..self.describe(&state.schemas, before, snapshots)
        };
        metadata.properties.extend(left_out);
        Ok(Some(metadata))
    }

    /// What is the same in all versions, and what follows from the snapshots.
    fn describe(
        &self,
        schemas: &TableSchemas,
        before: Option<&TableMetadata>,
        snapshots: Vec<TableSnapshot>,
    ) -> TableMetadata {
        let current = snapshots.last();
        let (before, last_column_id) =
            before.map_or((0, 0), |before| (before.last_sequence_number, before.last_column_id));
        let main = current.map(|current| SnapshotReference {
            snapshot_id: current.snapshot_id,
            kind: "branch".to_owned(),
        });
        let log = snapshots.iter().map(|snapshot| SnapshotLogEntry {
            timestamp_ms: snapshot.timestamp_ms,
            snapshot_id: snapshot.snapshot_id,
        });
        TableMetadata {
            format_version: FORMAT_VERSION,
            table_uuid: self.uuid,
            location: self.folder.location().to_owned(),
            last_sequence_number: current.map_or(before, |current| current.sequence_number.max(before)),
            last_updated_ms: 0,
            last_column_id: schemas.last_column_id().max(last_column_id),
            schemas: schemas.to_json(),
            current_schema_id: 0,
            partition_specs: specs_json(),
            default_spec_id: PartitionUnit::from(self.settings.partition_by).spec_id(),
            last_partition_id: LAST_PARTITION_ID,
            sort_orders: unsorted(),
            default_sort_order_id: 0,
            properties: [ROW_READS]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
            current_snapshot_id: current.map(|current| current.snapshot_id),
            refs: main.into_iter().map(|main| (MAIN_BRANCH.to_owned(), main)).collect(),
            snapshot_log: log.collect(),
            metadata_log: Vec::new(),
            snapshots,
        }
    }

    /// The versions before the next one.
    fn metadata_log(&self, state: &PublishedState) -> Vec<MetadataLogEntry> {
        let Some(MetadataVersion { version, metadata, .. }) = &state.newest else {
            return Vec::new();
        };
        let mut log = metadata.metadata_log.clone();
        log.push(MetadataLogEntry {
            timestamp_ms: metadata.last_updated_ms,
            metadata_file: self.folder.uri(&version_name(*version)),
        });
        newest(&log, KEPT_VERSIONS).to_vec()
    }

    fn write_list(
        &self,
        id: i64,
        parent: Option<i64>,
        sequence_number: i64,
        manifests: &SnapshotManifests,
    ) -> Result<String, IcebergError> {
        let content = write_manifest_list(id, parent, sequence_number, &manifests.to_list())?;
        let name = format!("snap-{sequence_number}-{id:016x}-{}.avro", content_digest(&content));
        self.folder.put(&name, content)?;
        Ok(self.folder.uri(&name))
    }
}
