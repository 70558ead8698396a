//! The manifests of a snapshot: one for each day, length of partitions and schema of files, reused while the day does not change.
//!
//! ```text
//! files of a day ─┬─ as they were ──────────────────────> the day's manifests, unread
//!                 └─ changed ─> its manifests read back ─┬─> files that stay: entries as they are, existing
//!                                                        └─> others: entries from their footers, added
//! ```
//!
//! A day is known not to have changed by the digest of its files: the one that this process made its manifests of, or the one in
//! the name of its only manifest. A day of several manifests, which a spec has that changed on it, is read back once.
//!
//! # Invariants
//!
//! - Entries of one day are in memory at a time.
//! - A file that stays keeps the snapshot and the sequence number with which it came.
//! - A manifest that is lost or damaged is made anew, and its files count as added.
//!
//! # Not here
//!
//! Entries of deleted files; see [`crate::publisher`].

use std::collections::{BTreeMap, BTreeSet, HashMap};

use engine::PublishedFile;

use crate::data_file::DataFile;
use crate::error::IcebergError;
use crate::manifest::{EntryStatus, ManifestEntry, read_manifest, write_manifest};
use crate::manifest_list::ManifestFile;
use crate::metadata_folder::{MetadataFolder, content_digest, intact};
use crate::partition_spec::PartitionUnit;
use crate::table_files::{FilesDigest, ManifestDay, TableFiles};
use crate::table_schemas::TableSchemas;

/// A manifest and what its name says.
#[derive(Debug, Clone)]
struct NamedManifest {
    schema_id: i32,
    /// Of its files, with its schema.
    digest: String,
    file: ManifestFile,
}

impl NamedManifest {
    /// `None` if no manifest of this catalogue has such a name.
    fn of(folder: &MetadataFolder, file: ManifestFile) -> Option<Self> {
        let name = folder.name_of(&file.path)?.strip_suffix("-m.avro")?;
        let mut parts = name.rsplitn(4, '-').skip(1);
        let (digest, schema_id) = (parts.next()?.to_owned(), parts.next()?.parse().ok()?);
        Some(Self {
            schema_id,
            digest,
            file,
        })
    }
}

#[derive(Debug, Clone, Default)]
struct DayManifests {
    /// Of all files of the day, if this process made or read its manifests.
    digest: Option<[u8; 32]>,
    manifests: Vec<NamedManifest>,
}

impl DayManifests {
    fn has(&self, files: &FilesDigest) -> bool {
        match (&self.digest, self.manifests.as_slice()) {
            (Some(digest), _) => *digest == files.bytes(),
            (None, [only]) => only.digest == files.with_schema(only.schema_id),
            (None, _) => false,
        }
    }
}

/// The manifests of a snapshot.
#[derive(Debug, Clone, Default)]
pub(crate) struct SnapshotManifests {
    days: BTreeMap<ManifestDay, DayManifests>,
}

impl SnapshotManifests {
    /// Those of a list that was read back; those that `is_there` does not know are left out, so that they are made anew.
    pub(crate) fn of_list(folder: &MetadataFolder, list: Vec<ManifestFile>, is_there: impl Fn(&str) -> bool) -> Self {
        let mut days = BTreeMap::<_, DayManifests>::new();
        for file in list {
            let day = ManifestDay::of(file.unit, file.partition_lower);
            let is_there = folder.name_of(&file.path).is_some_and(&is_there);
            if let Some(manifest) = NamedManifest::of(folder, file).filter(|_| is_there) {
                days.entry(day).or_default().manifests.push(manifest);
            }
        }
        Self { days }
    }

    /// In the order of their days.
    pub(crate) fn to_list(&self) -> Vec<ManifestFile> {
        let manifests = self.days.values().flat_map(|day| &day.manifests);
        manifests.map(|manifest| manifest.file.clone()).collect()
    }

    /// The schemas that their files have.
    pub(crate) fn schema_ids(&self) -> BTreeSet<i32> {
        let manifests = self.days.values().flat_map(|day| &day.manifests);
        manifests.map(|manifest| manifest.schema_id).collect()
    }
}

/// What a snapshot has more and less than the one before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct FileChanges {
    pub(crate) added_files: u64,
    pub(crate) added_rows: u64,
    pub(crate) deleted_files: u64,
    pub(crate) deleted_rows: u64,
    /// Manifests were made, or are no longer needed.
    pub(crate) is_change: bool,
}

/// Makes the manifests of one snapshot.
#[derive(Debug)]
pub(crate) struct ManifestBuilder<'a> {
    pub(crate) folder: &'a MetadataFolder,
    pub(crate) schemas: &'a mut TableSchemas,
    pub(crate) snapshot_id: i64,
    pub(crate) sequence_number: i64,
    pub(crate) changes: FileChanges,
}

impl ManifestBuilder<'_> {
    /// The manifests of `files`: the previous ones of days that did not change, new ones of the others, which are written.
    pub(crate) fn build(
        &mut self,
        files: &TableFiles,
        previous: &SnapshotManifests,
    ) -> Result<SnapshotManifests, IcebergError> {
        let mut days = BTreeMap::new();
        for (day, files) in files.by_day() {
            let digest = FilesDigest::of(&files);
            let known = previous.days.get(&day);
            let manifests = match known.filter(|known| known.has(&digest)) {
                Some(known) => known.manifests.clone(),
                None => self.rewrite(day, &files, known.map_or(&[][..], |known| known.manifests.as_slice()))?,
            };
            let digest = Some(digest.bytes());
            days.insert(day, DayManifests { digest, manifests });
        }
        for (_, gone) in previous.days.iter().filter(|(day, _)| !days.contains_key(*day)) {
            self.changes.is_change = true;
            for NamedManifest { file, .. } in &gone.manifests {
                self.count_deleted(
                    file.added_files.saturating_add(file.existing_files),
                    file.added_rows.saturating_add(file.existing_rows),
                );
            }
        }
        Ok(SnapshotManifests { days })
    }

    fn rewrite(
        &mut self,
        day: ManifestDay,
        files: &[&PublishedFile],
        previous: &[NamedManifest],
    ) -> Result<Vec<NamedManifest>, IcebergError> {
        let mut known = self.read_back(previous)?;
        let mut groups = BTreeMap::<i32, (Vec<&PublishedFile>, Vec<ManifestEntry>)>::new();
        for &file in files {
            let before = known.remove(file.uri.as_str());
            let (schema_id, entry) = match before {
                Some(same) if (same.1.file.size, same.1.file.rows) == (file.size, file.rows) => same,
                replaced => {
                    if let Some((_, gone)) = replaced {
                        self.count_deleted(1, gone.file.rows);
                    }
                    self.describe(file)?
                }
            };
            let (files, entries) = groups.entry(schema_id).or_default();
            files.push(file);
            entries.push(entry);
        }
        for (_, gone) in known.into_values() {
            self.count_deleted(1, gone.file.rows);
        }
        let mut manifests = Vec::new();
        for (schema_id, (files, entries)) in groups {
            let digest = FilesDigest::of(&files).with_schema(schema_id);
            // One that is damaged has the same files, which count as added.
            let is_taken_over = entries.iter().all(|entry| entry.status == EntryStatus::Existing);
            let same = previous.iter().find(|before| is_taken_over && before.digest == digest);
            manifests.push(match same {
                Some(same) => same.clone(),
                None => self.write(day, schema_id, digest, &entries)?,
            });
        }
        // Of a day with several manifests, this is how it is known that nothing changed.
        let names = |manifests: &[NamedManifest]| -> BTreeSet<String> {
            manifests.iter().map(|manifest| manifest.file.path.clone()).collect()
        };
        self.changes.is_change |= names(&manifests) != names(previous);
        Ok(manifests)
    }

    /// The entries of manifests by the URIs of their files, as they are when they are taken over, each with the schema of its file.
    fn read_back(&self, manifests: &[NamedManifest]) -> Result<HashMap<String, (i32, ManifestEntry)>, IcebergError> {
        let mut known = HashMap::new();
        for manifest in manifests
            .iter()
            .filter(|manifest| self.schemas.get(manifest.schema_id).is_some())
        {
            let path = &manifest.file.path;
            let content = self.folder.get_avro(path);
            let entries = content.and_then(|content| read_manifest(&content).map_err(|error| error.of_object(path)));
            for mut entry in intact(entries)?.unwrap_or_default() {
                if entry.sequence_number < self.sequence_number {
                    entry.status = EntryStatus::Existing;
                    known.insert(entry.file.path.clone(), (manifest.schema_id, entry));
                }
            }
        }
        Ok(known)
    }

    fn count_deleted(&mut self, files: u64, rows: u64) {
        let changes = &mut self.changes;
        changes.deleted_files = changes.deleted_files.saturating_add(files);
        changes.deleted_rows = changes.deleted_rows.saturating_add(rows);
    }

    /// The entry of a file that comes with this snapshot, and the schema of the file.
    fn describe(&mut self, file: &PublishedFile) -> Result<(i32, ManifestEntry), IcebergError> {
        self.changes.added_files += 1;
        self.changes.added_rows += file.rows;
        let footer = file.footer()?;
        let schema_id = self.schemas.of_file(footer.as_deref())?;
        let Some(schema) = self.schemas.get(schema_id) else {
            return Err(IcebergError::refused(file.uri.as_str(), "its schema is unknown"));
        };
        let entry = ManifestEntry {
            status: EntryStatus::Added,
            snapshot_id: self.snapshot_id,
            sequence_number: self.sequence_number,
            file: DataFile::new(file, footer.as_deref(), schema),
        };
        Ok((schema_id, entry))
    }

    fn write(
        &self,
        day: ManifestDay,
        schema_id: i32,
        digest: String,
        entries: &[ManifestEntry],
    ) -> Result<NamedManifest, IcebergError> {
        let Some(schema) = self.schemas.get(schema_id) else {
            return Err(IcebergError::refused(format!("schema {schema_id}"), "it is unknown"));
        };
        let content = write_manifest(schema, schema_id, day.unit, entries)?;
        let hash = content_digest(&content);
        let name = format!("{}-{schema_id}-{digest}-{hash}-m.avro", day.name());
        let length = content.len() as u64;
        self.folder.put(&name, content)?;
        Ok(NamedManifest {
            schema_id,
            digest,
            file: self.describe_manifest(self.folder.uri(&name), length, day.unit, entries),
        })
    }

    fn describe_manifest(
        &self,
        path: String,
        length: u64,
        unit: PartitionUnit,
        entries: &[ManifestEntry],
    ) -> ManifestFile {
        let of_status = |status: EntryStatus| {
            let entries = entries.iter().filter(|entry| entry.status == status);
            entries.fold((0, 0), |(files, rows), entry| (files + 1, rows + entry.file.rows))
        };
        let (added_files, added_rows) = of_status(EntryStatus::Added);
        let (existing_files, existing_rows) = of_status(EntryStatus::Existing);
        let partitions = || entries.iter().map(|entry| entry.file.partition);
        let first = entries.iter().map(|entry| entry.sequence_number).min();
        ManifestFile {
            path,
            length,
            unit,
            sequence_number: self.sequence_number,
            min_sequence_number: first.unwrap_or(self.sequence_number),
            added_snapshot_id: self.snapshot_id,
            added_files,
            existing_files,
            added_rows,
            existing_rows,
            partition_lower: partitions().min().unwrap_or_default(),
            partition_upper: partitions().max().unwrap_or_default(),
        }
    }
}
