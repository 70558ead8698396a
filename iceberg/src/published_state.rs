//! What is published of a table, as the folder of its metadata has it when a publisher begins.
//!
//! # Invariants
//!
//! - Metadata of another table, of a store in another place, or that cannot be understood is not gone on from: the next version is
//!   made of the files alone.
//! - A snapshot is gone on from only if its objects are there.

use tracing::warn;
use uuid::Uuid;

use crate::catalog_table::CatalogTable;
use crate::day_manifests::SnapshotManifests;
use crate::error::IcebergError;
use crate::manifest_list::read_manifest_list;
use crate::metadata_folder::{MetadataFolder, MetadataVersion, intact, version_name};
use crate::table_metadata::TableSnapshot;
use crate::table_schemas::TableSchemas;

/// See the module.
#[derive(Debug)]
pub(crate) struct PublishedState {
    /// The newest version, whatever it is; 0 if there is none.
    pub(crate) version: u64,
    /// What it says, if it can be gone on from.
    pub(crate) newest: Option<MetadataVersion>,
    /// Its snapshots that can be read, the oldest first.
    pub(crate) snapshots: Vec<TableSnapshot>,
    /// Whether it has others too: a new version is due.
    pub(crate) is_stale: bool,
    /// Of the last of `snapshots`.
    pub(crate) manifests: SnapshotManifests,
    pub(crate) schemas: TableSchemas,
    /// The version in the hint.
    pub(crate) hint: Option<u64>,
}

impl PublishedState {
    /// Reads what is there.
    pub(crate) fn read(folder: &MetadataFolder, table: CatalogTable, uuid: Uuid) -> Result<Self, IcebergError> {
        let mut state = Self {
            version: 0,
            newest: None,
            snapshots: Vec::new(),
            is_stale: false,
            manifests: SnapshotManifests::default(),
            schemas: TableSchemas::new(table)?,
            hint: folder.hint()?,
        };
        let Some((version, content)) = folder.newest(0)? else {
            return Ok(state);
        };
        state.version = version;
        let Some(newest) = intact(folder.parse(version, &content))? else {
            return Ok(state);
        };
        let known = state.schemas.clone().with_known(&newest.metadata.schemas);
        match (objection(folder, uuid, &newest), known) {
            (None, Some(known)) => {
                state.schemas = known;
                state.take_up(folder, newest)?;
            }
            (objection, _) => {
                let uri = folder.uri(&version_name(version));
                let objection = objection.unwrap_or_else(|| "has schemas that were never published".to_owned());
                warn!("makes a table of the Iceberg catalogue anew: {uri} {objection}");
            }
        }
        Ok(state)
    }

    /// Goes on from metadata that is of this table.
    fn take_up(&mut self, folder: &MetadataFolder, newest: MetadataVersion) -> Result<(), IcebergError> {
        let there = folder.list()?;
        let is_there = |uri: &str| folder.name_of(uri).is_some_and(|name| there.contains_key(name));
        let all = newest.metadata.snapshots.as_slice();
        let (mut snapshots, all) = (all.to_vec(), all.len());
        if let Some(current) = snapshots.pop() {
            let list = folder.get_avro(&current.manifest_list);
            let list = list.and_then(|content| {
                read_manifest_list(&content).map_err(|error| error.of_object(&current.manifest_list))
            });
            let list = intact(list)?;
            let is_whole = list
                .as_ref()
                .is_some_and(|list| list.iter().all(|manifest| is_there(&manifest.path)));
            let is_known = |name: &str| there.contains_key(name);
            self.manifests = match list {
                Some(list) => SnapshotManifests::of_list(folder, list, is_known),
                None => SnapshotManifests::lost(&current),
            };
            snapshots.retain(|snapshot| is_there(&snapshot.manifest_list));
            snapshots.extend(is_whole.then_some(current));
            if snapshots.is_empty() {
                // Nobody follows the changes of a snapshot that is not listed.
                self.manifests.forget_lost();
            }
        }
        self.is_stale = snapshots.len() < all;
        self.snapshots = snapshots;
        self.newest = Some(newest);
        Ok(())
    }
}

/// Why metadata is not gone on from.
fn objection(folder: &MetadataFolder, wanted: Uuid, newest: &MetadataVersion) -> Option<String> {
    let MetadataVersion { version, metadata, .. } = newest;
    let (uuid, location) = (metadata.table_uuid, &metadata.location);
    if uuid != wanted {
        return Some(format!("is of table {uuid}, not of {wanted}"));
    }
    if location != folder.location() {
        return Some(format!("is of a table in {location}"));
    }
    let numbers = metadata.snapshots.iter().map(|snapshot| snapshot.sequence_number);
    let is_sorted = numbers.clone().is_sorted_by(|a, b| a < b);
    let last = metadata.snapshots.last();
    let is_last = last.map(|last| last.snapshot_id) == metadata.current_snapshot_id;
    let greatest = numbers.max().unwrap_or(0).max(metadata.last_sequence_number);
    let is_possible = is_sorted && is_last && i64::try_from(*version).is_ok_and(|version| greatest <= version);
    (!is_possible).then(|| "has snapshots that were never published".to_owned())
}
