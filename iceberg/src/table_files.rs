//! The data files of one table at one moment, and what identifies them: for a snapshot, and for the manifest of a day.
//!
//! # Invariants
//!
//! - Files are sorted by segment and version: the same files have the same digest, however they were listed.
//! - A digest for a manifest also has the places of the files: those of one version move with the tree, and within an object store.
//!   And what the manifest says of them: in a store that was restored another file may have the number, the version and the place.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::PublishedFile;
use model::{Table, Timestamp};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::catalog_table::CatalogTable;
use crate::partition_spec::PartitionUnit;

const DAY: i64 = 86_400_000_000;

/// What the files of a manifest have in common: their day, and how long their partitions are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ManifestDay {
    /// Since the epoch.
    day: i32,
    pub(crate) unit: PartitionUnit,
}

impl ManifestDay {
    pub(crate) const fn of(unit: PartitionUnit, partition: i32) -> Self {
        Self {
            day: unit.day_of(partition),
            unit,
        }
    }

    fn of_file(file: &PublishedFile) -> Self {
        // Times that can be written down are far from the ends.
        let partition = file.partition.clamp(i32::MIN.into(), i32::MAX.into());
        Self::of(file.partition_by.into(), i32::try_from(partition).unwrap_or_default())
    }

    /// What the name of a manifest begins with.
    pub(crate) fn name(self) -> String {
        let start = Timestamp::from_micros(i64::from(self.day).saturating_mul(DAY)).to_string();
        let date = start.split_once('T').map_or(start.as_str(), |(date, _)| date);
        let unit = match self.unit {
            PartitionUnit::Hour => 'h',
            PartitionUnit::Day => 'd',
        };
        format!("{date}-{unit}")
    }
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct TableFiles {
    files: Vec<Arc<PublishedFile>>,
}

impl TableFiles {
    pub(crate) fn new(mut files: Vec<Arc<PublishedFile>>) -> Self {
        files.sort_unstable_by_key(|file| key(file));
        Self { files }
    }

    pub(crate) fn all(&self) -> &[Arc<PublishedFile>] {
        &self.files
    }

    /// The files of each manifest, in their order.
    pub(crate) fn by_day(&self) -> BTreeMap<ManifestDay, Vec<&PublishedFile>> {
        let mut days = BTreeMap::<_, Vec<&PublishedFile>>::new();
        for file in &self.files {
            days.entry(ManifestDay::of_file(file)).or_default().push(file);
        }
        days
    }

    /// The id of the snapshot that version `version` of a table makes of them: 63 bits, never 0.
    pub(crate) fn snapshot_id(&self, table: Uuid, version: u64) -> i64 {
        let mut hasher = Sha256::new_with_prefix(table.as_bytes());
        hasher.update(version.to_be_bytes());
        self.files.iter().for_each(|file| add_key(&mut hasher, file));
        let digest: [u8; 32] = hasher.finalize().into();
        let first = digest.first_chunk().map_or(1, |first| i64::from_be_bytes(*first));
        ((first.cast_unsigned() >> 1).cast_signed()).max(1)
    }

    pub(crate) fn rows(&self) -> u64 {
        self.files.iter().map(|file| file.rows).sum()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.size).sum()
    }

    pub(crate) fn newest_row(&self) -> Option<Timestamp> {
        self.files.iter().map(|file| file.max_ts).max()
    }
}

fn key(file: &PublishedFile) -> (u64, u32) {
    (file.segment, file.version)
}

fn add_key(hasher: &mut Sha256, file: &PublishedFile) {
    hasher.update(file.segment.to_be_bytes());
    hasher.update(file.version.to_be_bytes());
}

/// What identifies files in their order; see the module.
#[derive(Debug, Clone)]
pub(crate) struct FilesDigest(Sha256);

impl FilesDigest {
    pub(crate) fn of(files: &[&PublishedFile]) -> Self {
        let mut hasher = Sha256::new();
        for file in files {
            add_key(&mut hasher, file);
            hasher.update((file.uri.len() as u64).to_be_bytes());
            hasher.update(&file.uri);
            hasher.update(file.size.to_be_bytes());
            hasher.update(file.rows.to_be_bytes());
            hasher.update(file.min_ts.micros().to_be_bytes());
            hasher.update(file.max_ts.micros().to_be_bytes());
        }
        Self(hasher)
    }

    pub(crate) fn bytes(&self) -> [u8; 32] {
        self.0.clone().finalize().into()
    }

    /// 32 hex digits that identify the files together with the schema that their manifest has.
    pub(crate) fn with_schema(&self, schema_id: i32) -> String {
        let digest: [u8; 32] = self.0.clone().chain_update(schema_id.to_be_bytes()).finalize().into();
        let (first, _) = digest.split_at(16);
        hex::encode(first)
    }
}

/// The files of each table. Base tables are there without files too, as are those of `known`.
pub(crate) fn by_table(
    files: &[Arc<PublishedFile>],
    known: impl IntoIterator<Item = CatalogTable>,
) -> BTreeMap<CatalogTable, TableFiles> {
    let mut tables: BTreeMap<_, Vec<_>> = Table::ALL.map(|table| (CatalogTable::base(table), Vec::new())).into();
    tables.extend(known.into_iter().map(|table| (table, Vec::new())));
    for file in files {
        let of_spec = file.spec.map(CatalogTable::of_spec);
        for table in of_spec.into_iter().chain([CatalogTable::base(file.table)]) {
            tables.entry(table).or_default().push(Arc::clone(file));
        }
    }
    tables
        .into_iter()
        .map(|(table, files)| (table, TableFiles::new(files)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_of_hours_and_one_of_days_have_names_of_their_own() {
        let name = |unit, partition| ManifestDay::of(unit, partition).name();
        assert_eq!(name(PartitionUnit::Hour, 24 * 20_778 + 23), "2026-11-21-h");
        assert_eq!(name(PartitionUnit::Day, 20_778), "2026-11-21-d");
        assert_eq!(name(PartitionUnit::Hour, -1), "1969-12-31-h");
        // What no partition is has a name all the same.
        assert!(name(PartitionUnit::Day, i32::MAX).ends_with("-d"));
    }

    #[test]
    fn an_id_of_a_snapshot_is_positive_and_another_for_another_version() {
        let (table, files) = (Uuid::from_u128(7), TableFiles::default());
        let ids = [1, 2, 3].map(|version| files.snapshot_id(table, version));
        assert!(ids.iter().all(|id| *id > 0), "{ids:?}");
        assert_ne!(ids[0], ids[1]);
        assert_eq!(ids[0], TableFiles::default().snapshot_id(table, 1));
        assert_ne!(ids[0], files.snapshot_id(Uuid::from_u128(8), 1));
    }
}
