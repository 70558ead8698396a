//! The manifests of a snapshot: for each day, length of partitions and schema of files one, or several where it has very many files,
//! reused while the day does not change.
//!
//! ```text
//! files of a day ─┬─ as they were ──────────────────────────────────────> the day's manifests, unread
//!                 └─ changed ─> its manifests read back ─┬─> files that stay: entries as they are, existing
//!                                                        └─> others, added: entries of drafts, else from their footers
//! ```
//!
//! A day is known not to have changed by the digest of its files: the one that this process made its manifests of, or the one in
//! the name of its only manifest. A day of several manifests is read back once.
//!
//! # Invariants
//!
//! - Entries of one day are in memory at a time.
//! - A file that stays keeps the snapshot and the sequence number with which it came.
//! - A manifest that is lost or damaged is made anew, and its files count as deleted and added: who reads a table by its changes would
//!   have them twice otherwise.
//! - What an attempt described stays described until a version is there, however it ends: its manifests are drafts, from which the
//!   next attempt takes entries. One of a day whose footers could not all be read has those that could. Drafts of days that do not
//!   change stay as they are, unwritten.
//!
//! # Not here
//!
//! Entries of deleted files; see [`crate::publisher`].

use std::collections::{BTreeMap, BTreeSet, HashMap};

use engine::PublishedFile;

use crate::data_file::DataFile;
use crate::error::IcebergError;
use crate::file_descriptions::{READ_AT_ONCE, describe_at_once};
use crate::manifest::{EntryStatus, ManifestEntry, read_manifest, write_manifest};
use crate::manifest_list::ManifestFile;
use crate::metadata_folder::{MetadataFolder, content_digest, intact};
use crate::partition_spec::PartitionUnit;
use crate::schema::IcebergSchema;
use crate::table_files::{FilesDigest, ManifestDay, TableFiles};
use crate::table_metadata::{TOTAL_FILES, TOTAL_ROWS, TableSnapshot};
use crate::table_schemas::TableSchemas;

/// Files of a manifest, at most. With bounds of the longest texts in forty promoted columns, an entry has some 13 KiB: all of them stay
/// far below what is read back of a manifest.
pub(crate) const MOST_FILES: usize = 4_096;

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
    /// Files and rows of those that the snapshot had and that are lost.
    lost: (u64, u64),
}

impl SnapshotManifests {
    /// Those of a list that was read back; those that `is_there` does not know are left out, so that they are made anew.
    pub(crate) fn of_list(folder: &MetadataFolder, list: Vec<ManifestFile>, is_there: impl Fn(&str) -> bool) -> Self {
        let mut all = Self::default();
        for file in list {
            let day = ManifestDay::of(file.unit, file.partition_lower);
            let (files, rows) = counts_of(&file);
            let is_there = folder.name_of(&file.path).is_some_and(&is_there);
            match NamedManifest::of(folder, file).filter(|_| is_there) {
                Some(manifest) => all.days.entry(day).or_default().manifests.push(manifest),
                None => all.lost = (all.lost.0.saturating_add(files), all.lost.1.saturating_add(rows)),
            }
        }
        all
    }

    /// Those of a snapshot whose list is lost.
    pub(crate) fn lost(snapshot: &TableSnapshot) -> Self {
        let count = |key: &str| snapshot.summary.get(key).and_then(|count| count.parse::<u64>().ok());
        Self {
            lost: [TOTAL_FILES, TOTAL_ROWS].map(|key| count(key).unwrap_or(0)).into(),
            ..Self::default()
        }
    }

    /// Lost files do not count as deleted.
    pub(crate) const fn forget_lost(&mut self) {
        self.lost = (0, 0);
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

/// Manifests of a publication that has not come to its end: no version names them.
#[derive(Debug, Default)]
pub(crate) struct ManifestDrafts {
    /// The schema and the address of each. The schema may have another number by the next attempt.
    days: BTreeMap<ManifestDay, Vec<(IcebergSchema, String)>>,
    /// The version that was to be made, and the id of its snapshot.
    snapshot: Option<(u64, i64)>,
}

impl ManifestDrafts {
    /// The id of the snapshot of a version: that of the first attempt at it, `id`, so that drafts of days that do not change keep
    /// their names.
    pub(crate) fn snapshot_id(&mut self, version: u64, id: i64) -> i64 {
        let known = self.snapshot.filter(|(of, _)| *of == version);
        self.snapshot.insert(known.unwrap_or((version, id))).1
    }

    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.days.values().flatten().map(|(_, path)| path.as_str())
    }
}

/// Entries by the URIs of their files, each with the number of the file's schema.
type FileEntries<'a> = HashMap<&'a str, (i32, ManifestEntry)>;

/// Makes the manifests of one snapshot.
#[derive(Debug)]
pub(crate) struct ManifestBuilder<'a> {
    pub(crate) folder: &'a MetadataFolder,
    pub(crate) schemas: &'a mut TableSchemas,
    pub(crate) drafts: &'a mut ManifestDrafts,
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
        self.count_deleted(previous.lost);
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
                self.count_deleted(counts_of(file));
            }
        }
        let lost = (0, 0);
        Ok(SnapshotManifests { days, lost })
    }

    fn rewrite(
        &mut self,
        day: ManifestDay,
        files: &[&PublishedFile],
        previous: &[NamedManifest],
    ) -> Result<Vec<NamedManifest>, IcebergError> {
        let mut known = self.read_back(previous)?;
        let (mut entries, mut new) = (FileEntries::new(), Vec::new());
        for &file in files {
            match known.remove(file.uri.as_str()) {
                Some(same) if same.1.file.is_of(file) => {
                    entries.insert(&file.uri, same);
                }
                replaced => {
                    if let Some((_, gone)) = replaced {
                        self.count_deleted((1, gone.file.rows));
                    }
                    new.push(file);
                }
            }
        }
        for (_, gone) in known.into_values() {
            self.count_deleted((1, gone.file.rows));
        }
        if new.is_empty() {
            // They are not looked at: whether they are there is not known.
            self.drafts.days.remove(&day);
        } else {
            entries.extend(self.describe(day, &new)?);
        }
        let manifests = self.write_all(day, files, entries, previous)?;
        if !new.is_empty() {
            self.keep_drafts(day, &manifests);
        }
        // Of a day with several manifests, this is how it is known that nothing changed.
        let names = |manifests: &[NamedManifest]| -> BTreeSet<String> {
            manifests.iter().map(|manifest| manifest.file.path.clone()).collect()
        };
        self.changes.is_change |= names(&manifests) != names(previous);
        Ok(manifests)
    }

    /// The entries of manifests by the URIs of their files, as they are when they are taken over, each with the schema of its file.
    fn read_back(
        &mut self,
        manifests: &[NamedManifest],
    ) -> Result<HashMap<String, (i32, ManifestEntry)>, IcebergError> {
        let (mut known, number) = (HashMap::new(), self.sequence_number);
        for NamedManifest { schema_id, file, .. } in manifests {
            let entries = match self.schemas.get(*schema_id) {
                Some(_) => self.entries_of(&file.path)?,
                None => None,
            };
            let is_earlier = |entry: &ManifestEntry| entry.sequence_number < number;
            let Some(entries) = entries.filter(|entries| entries.iter().all(is_earlier)) else {
                self.count_deleted(counts_of(file));
                continue;
            };
            for mut entry in entries {
                entry.status = EntryStatus::Existing;
                known.insert(entry.file.path.clone(), (*schema_id, entry));
            }
        }
        Ok(known)
    }

    /// The entries of a manifest; `None` if it is damaged.
    fn entries_of(&self, path: &str) -> Result<Option<Vec<ManifestEntry>>, IcebergError> {
        let content = self.folder.get_avro(path);
        intact(content.and_then(|content| read_manifest(&content).map_err(|error| error.of_object(path))))
    }

    fn count_deleted(&mut self, (files, rows): (u64, u64)) {
        let changes = &mut self.changes;
        changes.deleted_files = changes.deleted_files.saturating_add(files);
        changes.deleted_rows = changes.deleted_rows.saturating_add(rows);
    }

    /// The entries of files that come with this snapshot.
    fn describe<'f>(&mut self, day: ManifestDay, files: &[&'f PublishedFile]) -> Result<FileEntries<'f>, IcebergError> {
        let mut drafted = self.read_drafts(day)?;
        let (mut described, mut missing) = (FileEntries::new(), Vec::new());
        for &file in files {
            match drafted.remove(file.uri.as_str()).filter(|(_, known)| known.is_of(file)) {
                Some((schema_id, known)) => {
                    described.insert(&file.uri, (schema_id, self.added(known)));
                }
                None => missing.push(file),
            }
        }
        for some in missing.chunks(READ_AT_ONCE) {
            let mut outcome = Ok(());
            for (&file, found) in some.iter().zip(describe_at_once(self.schemas, some)) {
                match found {
                    Ok((schema, known)) => {
                        let schema_id = self.schemas.id_of(schema);
                        described.insert(&file.uri, (schema_id, self.added(known)));
                    }
                    Err(error) => outcome = outcome.and(Err(error)),
                }
            }
            if let Err(error) = outcome {
                if let Ok(manifests) = self.write_all(day, files, described, &[]) {
                    self.keep_drafts(day, &manifests);
                }
                return Err(error);
            }
        }
        self.changes.added_files += files.len() as u64;
        self.changes.added_rows += files.iter().map(|file| file.rows).sum::<u64>();
        Ok(described)
    }

    fn added(&self, file: DataFile) -> ManifestEntry {
        ManifestEntry {
            status: EntryStatus::Added,
            snapshot_id: self.snapshot_id,
            sequence_number: self.sequence_number,
            file,
        }
    }

    /// What earlier attempts described of a day's files, by their URIs.
    fn read_drafts(&mut self, day: ManifestDay) -> Result<HashMap<String, (i32, DataFile)>, IcebergError> {
        let (mut drafted, mut there) = (HashMap::new(), Vec::new());
        for (schema, path) in self.drafts.days.get(&day).into_iter().flatten() {
            let schema_id = self.schemas.id_of(schema.clone());
            let Some(entries) = self.entries_of(path)? else {
                continue;
            };
            there.push((schema.clone(), path.clone()));
            for ManifestEntry { file, .. } in entries {
                drafted.insert(file.path.clone(), (schema_id, file));
            }
        }
        // What is lost or damaged is written again.
        self.drafts.days.insert(day, there);
        Ok(drafted)
    }

    /// Takes note of the manifests of a day for the next attempt. Where there are none, earlier drafts may still serve.
    fn keep_drafts(&mut self, day: ManifestDay, manifests: &[NamedManifest]) {
        let draft = |NamedManifest { schema_id, file, .. }: &NamedManifest| {
            Some((self.schemas.get(*schema_id)?.clone(), file.path.clone()))
        };
        let drafts: Vec<_> = manifests.iter().filter_map(draft).collect();
        if !drafts.is_empty() {
            self.drafts.days.insert(day, drafts);
        }
    }

    /// The manifests of those files that have entries: previous ones as far as they say the same, new ones of the others.
    fn write_all(
        &self,
        day: ManifestDay,
        files: &[&PublishedFile],
        mut entries: FileEntries<'_>,
        previous: &[NamedManifest],
    ) -> Result<Vec<NamedManifest>, IcebergError> {
        let mut groups = BTreeMap::<i32, (Vec<&PublishedFile>, Vec<ManifestEntry>)>::new();
        for &file in files {
            if let Some((schema_id, entry)) = entries.remove(file.uri.as_str()) {
                let (files, entries) = groups.entry(schema_id).or_default();
                files.push(file);
                entries.push(entry);
            }
        }
        let mut manifests = Vec::new();
        for (schema_id, (files, entries)) in groups {
            for (files, entries) in files.chunks(MOST_FILES).zip(entries.chunks(MOST_FILES)) {
                let digest = FilesDigest::of(files).with_schema(schema_id);
                // One that is damaged has the same files, which count as added.
                let is_taken_over = entries.iter().all(|entry| entry.status == EntryStatus::Existing);
                let same = previous.iter().find(|before| is_taken_over && before.digest == digest);
                manifests.push(match same {
                    Some(same) => same.clone(),
                    None => self.write(day, schema_id, digest, entries)?,
                });
            }
        }
        Ok(manifests)
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
        let (length, path) = (content.len() as u64, self.folder.uri(&name));
        let mut drafts = self.drafts.days.get(&day).into_iter().flatten();
        if !drafts.any(|(_, draft)| *draft == path) {
            self.folder.put(&name, content)?;
        }
        Ok(NamedManifest {
            schema_id,
            digest,
            file: self.describe_manifest(path, length, day.unit, entries),
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

/// Files and rows of a manifest.
const fn counts_of(manifest: &ManifestFile) -> (u64, u64) {
    (
        manifest.added_files.saturating_add(manifest.existing_files),
        manifest.added_rows.saturating_add(manifest.existing_rows),
    )
}
