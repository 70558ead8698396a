//! The open file of one (table, partition): each publish appends a row group and a footer behind the old footer.
//!
//! ```text
//! stage   bring the shadow file to the present version, append group and footer, sync it     nothing visible, may be retried
//! open    both folders                                                                nothing changed, may be retried
//! swap    exchange the shadow file with the name in the tree                                 visible
//! sync    both folders                                                                durable
//! ```
//!
//! The engine then records the publish in its catalogue and calls [`OpenDataFile::mark_recorded`].
//!
//! # Invariants
//!
//! - Every footer ever published stays where it was: the file of then is a prefix of the file of now.
//! - A failed exchange changed nothing. After a failed *sync* the names are in doubt, and nothing more is published until
//!   a restart has looked.
//!
//! # Not here
//!
//! What a crash between the steps leaves behind: [`super::resume()`].

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::RecordBatch;
use parquet::errors::ParquetError;
use parquet::file::metadata::{FileMetaData, KeyValue, ParquetMetaData, RowGroupMetaData};

use super::file_format::FileFormat;
use super::footer::{
    FileIdentity, FileVersion, FooterFacts, MAGIC, RowBounds, file_like, footer_bytes, group_lsns_pair, key_values,
    line_pairs, unwritable,
};
use super::ndjson;
use super::promoted_columns::PromotedColumns;
use super::row_group::{RowGroup, encode};
use super::row_width::RowWidths;
use super::schema::{WriteOptions, same_schema};
use super::shadow_file::{self, PrefixChecksum, ReplaceMethod, ShadowFile};
use super::sort_order::FileSortOrder;
use super::sorted_runs::{PageIndex, moved};
use crate::io_pacing::IoPriority;
use crate::{Error, io_pacing};

/// Row groups of an open file, at most: kept footers grow with their square.
pub(crate) const MAX_ROW_GROUPS: usize = 128;

/// The open file of one (table, partition).
#[derive(Debug)]
pub(crate) struct OpenDataFile {
    path: PathBuf,
    twin_path: PathBuf,
    identity: FileIdentity,
    options: WriteOptions,
    /// What the name in the tree holds; nothing before the first publish.
    present: Option<OpenFileVersion>,
    shadow: ShadowFile,
    pub(super) replace: ReplaceMethod,
    /// Why the disk may not be as believed.
    doubt: Option<Arc<str>>,
}

/// A version of the file, as published.
#[derive(Debug, Clone)]
pub(super) struct OpenFileVersion {
    pub(super) body: VersionBody,
    pub(super) widths: RowWidths,
    /// The log position that each row group, or frame, is complete through.
    pub(super) group_lsns: Vec<u64>,
    pub(super) bytes: PrefixChecksum,
    pub(super) footer_crc: u32,
    pub(super) extent: RowBounds,
    pub(super) facts: FooterFacts,
}

/// What a version is made of.
#[derive(Debug, Clone)]
pub(super) enum VersionBody {
    Parquet(ParquetFooter),
    /// Frames of lines, by where they begin.
    Lines(Vec<u64>),
}

/// The Parquet metadata of a version.
#[derive(Debug, Clone)]
pub(super) struct ParquetFooter {
    pub(super) file: FileMetaData,
    pub(super) groups: Vec<RowGroupMetaData>,
    /// The page indexes of the groups that are in their final form, by their place in `groups`. A restart forgets them: a
    /// seal then encodes those groups anew.
    pub(super) runs: BTreeMap<usize, Arc<PageIndex>>,
}

/// A version on the disk under the shadow file's name, synced, in nobody's sight.
#[derive(Debug)]
pub(super) struct StagedVersion {
    version: OpenFileVersion,
    bytes_written: u64,
}

impl OpenDataFile {
    /// A segment without a file yet. `path` is its name in the tree, `twin_path` the name of its shadow file on the same file
    /// system; the folders of both are created when first needed.
    pub(crate) fn create(path: PathBuf, twin_path: PathBuf, identity: FileIdentity, options: WriteOptions) -> Self {
        let options = WriteOptions {
            order: FileSortOrder::of(identity.table),
            ..options
        };
        Self {
            path,
            twin_path,
            identity,
            options,
            present: None,
            shadow: ShadowFile::Absent,
            replace: ReplaceMethod::Exchange,
            doubt: None,
        }
    }

    pub(super) fn with_version(mut self, version: OpenFileVersion) -> Self {
        if let Some(pages) = version.pages() {
            self.options.order = FileSortOrder::of_groups(self.identity.table, &pages.groups);
        }
        self.present = Some(version);
        self
    }

    /// Encodes rows as the file's next row group: under the file's own schema and order, should either have changed since.
    ///
    /// # Errors
    /// If there are no rows, or they are not the table's.
    pub(crate) fn encode(&self, batches: &[RecordBatch], haste: IoPriority) -> Result<RowGroup, Error> {
        encode(self.identity.table, batches, &self.options, haste)
    }

    /// Publishes a row group: when this returns, the file in the tree has it, durably. With the file's new version come the
    /// bytes that went to the disk, copies included.
    ///
    /// # Errors
    /// If the disk refuses. Nothing has changed then and the same rows may be tried again, except after
    /// [`Error::Poisoned`]: then the file has them, and only a restart can tell whether it is durable.
    pub(crate) fn publish(&mut self, group: &RowGroup, facts: FooterFacts) -> Result<(FileVersion, u64), Error> {
        let staged = self.stage(group, facts)?;
        let folders = shadow_file::folders_of(&self.twin_path, &self.path)?;
        let bytes = staged.bytes_written;
        let published = self.swap(staged).and_then(|version| {
            folders.sync()?;
            Ok((version, bytes))
        });
        match published {
            Err(error) if error.is_in_doubt() => {
                self.doubt = Some(error.to_string().into());
                Err(self.poisoned())
            }
            published => published,
        }
    }

    fn poisoned(&self) -> Error {
        let reason = match &self.doubt {
            Some(reason) => Arc::clone(reason),
            None => format!("the last flush to {} was never recorded", self.path.display()).into(),
        };
        Error::Poisoned { reason }
    }

    /// The catalogue has the last publish: the inode it displaced may be used again.
    pub(crate) fn mark_recorded(&mut self) {
        if let ShadowFile::Displaced(prefix) = self.shadow {
            self.shadow = ShadowFile::Ready(prefix);
        }
    }

    /// Writes the next version to the shadow file and syncs it.
    pub(super) fn stage(&mut self, group: &RowGroup, facts: FooterFacts) -> Result<StagedVersion, Error> {
        self.check(group)?;
        let staged = self.write_shadow(group, facts);
        if staged.is_err() {
            // It holds part of a version: the next attempt begins with a fresh one. A failure to remove it changes nothing.
            let _ = durable_fs::remove_if_there(&self.twin_path);
        }
        staged
    }

    /// Refuses what would break an invariant of the file.
    fn check(&self, group: &RowGroup) -> Result<(), Error> {
        if self.doubt.is_some() || matches!(self.shadow, ShadowFile::Displaced(_)) {
            return Err(self.poisoned());
        }
        let refused = |reason: String| Err(Error::rows(self.identity.table, reason));
        if group.table != self.identity.table {
            return refused(format!("they are rows of {}", group.table));
        }
        if self.is_full() {
            return refused(format!(
                "{} has {} row groups and takes no more",
                self.path.display(),
                self.row_groups()
            ));
        }
        match &self.present {
            Some(present) if !accepts(present, group) => {
                refused(format!("{} has another Parquet schema", self.path.display()))
            }
            _ => Ok(()),
        }
    }

    fn write_shadow(&mut self, group: &RowGroup, facts: FooterFacts) -> Result<StagedVersion, Error> {
        let twin = std::mem::replace(&mut self.shadow, ShadowFile::Absent);
        let (file, copied, old) = match &self.present {
            Some(present) => {
                let (file, copied) =
                    shadow_file::prepare(&self.twin_path, twin, &self.path, present.bytes, group.haste)?;
                (file, copied, present.bytes)
            }
            None => {
                durable_fs::create_dirs(durable_fs::parent_of(&self.path))?;
                (
                    shadow_file::create(&self.twin_path)?,
                    0,
                    PrefixChecksum { size: 0, crc: 0 },
                )
            }
        };
        let pages = if old.size == 0 || group.metadata.is_none() {
            &group.bytes[..]
        } else {
            // Only the first one brings the magic along.
            group.bytes.get(MAGIC.len()..).unwrap_or_default()
        };
        let (mut version, footer) = self.next_version(group, facts, old)?;
        version.footer_crc = crc32c::crc32c(&footer);
        let end = old.size + pages.len() as u64;
        io_pacing::write_all_at(&file, pages, old.size, group.haste)
            .and_then(|()| io_pacing::write_all_at(&file, &footer, end, group.haste))
            .map_err(Error::io("write", &self.twin_path))?;
        durable_fs::sync_file(&file, &self.twin_path)?;
        let added = (pages.len() + footer.len()) as u64;
        version.bytes = PrefixChecksum {
            size: old.size + added,
            crc: crc32c::crc32c_append(crc32c::crc32c_append(old.crc, pages), &footer),
        };
        Ok(StagedVersion {
            version,
            bytes_written: copied + added,
        })
    }

    /// The present version with one more group at `old.size`, and its footer; its length and checksums are still the old
    /// ones.
    fn next_version(
        &self,
        group: &RowGroup,
        facts: FooterFacts,
        old: PrefixChecksum,
    ) -> Result<(OpenFileVersion, Vec<u8>), Error> {
        let present = self.present.as_ref();
        let extent = present.map_or(group.extent, |present| present.extent.and(group.extent));
        let mut widths = present.map_or_else(RowWidths::default, |present| present.widths.clone());
        let added = group.metadata.as_ref().map_or(1, ParquetMetaData::num_row_groups);
        (0..added).for_each(|_| widths.push(group.widest));
        let mut group_lsns = present.map_or_else(Vec::new, |present| present.group_lsns.clone());
        group_lsns.resize(group_lsns.len() + added, facts.last_lsn);
        let (body, footer) = match &group.metadata {
            Some(metadata) => {
                let mut pairs = key_values(&self.identity, &facts, &extent, false);
                pairs.extend([widths.key_value(), group_lsns_pair(&group_lsns)]);
                let pages = self
                    .next_pages(metadata, pairs, extent, old)
                    .map_err(unwritable(&self.twin_path))?;
                let footer = footer_bytes(pages.file.clone(), pages.groups.clone());
                (
                    VersionBody::Parquet(pages),
                    footer.map_err(unwritable(&self.twin_path))?,
                )
            }
            None => {
                let mut frames = present.map_or_else(Vec::new, OpenFileVersion::frames);
                frames.push(old.size);
                let pairs = line_pairs(&self.identity, &facts, &extent, (&frames, &group_lsns), false);
                let footer = ndjson::description(self.options.form, &pairs);
                (
                    VersionBody::Lines(frames),
                    footer.map_err(Error::io("write", &self.twin_path))?,
                )
            }
        };
        let version = OpenFileVersion {
            body,
            widths,
            group_lsns,
            bytes: old,
            footer_crc: 0,
            extent,
            facts,
        };
        Ok((version, footer))
    }

    fn next_pages(
        &self,
        added: &ParquetMetaData,
        pairs: Vec<KeyValue>,
        extent: RowBounds,
        old: PrefixChecksum,
    ) -> Result<ParquetFooter, ParquetError> {
        let present = self.present.as_ref().and_then(OpenFileVersion::pages);
        let mut groups = present.map_or_else(Vec::new, |present| present.groups.clone());
        let mut runs = present.map_or_else(BTreeMap::new, |present| present.runs.clone());
        for (at, group) in added.row_groups().iter().enumerate() {
            if let Some(index) = PageIndex::of(added, at) {
                runs.insert(groups.len(), Arc::new(index));
            }
            groups.push(shifted(group, groups.len(), old.size)?);
        }
        let like = present.map_or(added.file_metadata(), |present| &present.file);
        let file = file_like(like, extent.rows, pairs)?;
        Ok(ParquetFooter { file, groups, runs })
    }

    /// Gives the staged version the name in the tree. The names are not durable yet.
    pub(super) fn swap(&mut self, staged: StagedVersion) -> Result<FileVersion, Error> {
        self.shadow = match &self.present {
            Some(present) => {
                self.replace = shadow_file::swap_in(&self.twin_path, &self.path, self.replace)?;
                match self.replace {
                    ReplaceMethod::Exchange => ShadowFile::Displaced(present.bytes),
                    ReplaceMethod::Rename => ShadowFile::Absent,
                }
            }
            None => {
                durable_fs::rename_to_free(&self.twin_path, &self.path)?;
                ShadowFile::Absent
            }
        };
        Ok(self.present.insert(staged.version).published(&self.path))
    }

    /// What the file is now, if it was ever published.
    pub(crate) fn published(&self) -> Option<FileVersion> {
        let present = self.present.as_ref();
        present.map(|present| present.published(&self.path))
    }

    /// Its row groups so far.
    pub(crate) fn row_groups(&self) -> usize {
        self.present.as_ref().map_or(0, |present| match &present.body {
            VersionBody::Parquet(pages) => pages.groups.len(),
            VersionBody::Lines(frames) => frames.len(),
        })
    }

    /// Whether it takes no more row groups: at most [`MAX_ROW_GROUPS`], fewer where rows are so wide that the merge of more
    /// would not keep its bound.
    pub(crate) fn is_full(&self) -> bool {
        let costs = |present: &OpenFileVersion| present.widths.merge_bytes() >= self.options.merge_max;
        self.row_groups() >= MAX_ROW_GROUPS || self.present.as_ref().is_some_and(costs)
    }

    /// The file's length; zero before the first publish.
    pub(crate) fn size(&self) -> u64 {
        self.present.as_ref().map_or(0, |present| present.bytes.size)
    }

    /// Its name in the tree.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whose it is.
    pub(crate) fn identity(&self) -> &FileIdentity {
        &self.identity
    }

    /// What it is made of.
    pub(crate) const fn form(&self) -> FileFormat {
        self.options.form
    }

    /// Its columns behind the table's.
    pub(crate) const fn promoted(&self) -> Option<&Arc<PromotedColumns>> {
        self.options.promoted.as_ref()
    }

    pub(super) const fn options(&self) -> &WriteOptions {
        &self.options
    }

    /// The order of its rows.
    pub(super) const fn order(&self) -> FileSortOrder {
        self.options.order
    }

    pub(super) fn present(&self) -> Option<&OpenFileVersion> {
        self.present.as_ref()
    }

    /// Gives the shadow file's disk space back; the segment takes no more rows.
    ///
    /// # Errors
    /// If the file cannot be removed; what is left is thrown away at the next start.
    pub(crate) fn discard_shadow(&mut self) -> Result<(), Error> {
        self.shadow = ShadowFile::Absent;
        Ok(durable_fs::remove_if_there(&self.twin_path)?)
    }
}

impl OpenFileVersion {
    fn published(&self, path: &Path) -> FileVersion {
        FileVersion {
            path: path.to_owned(),
            size: self.bytes.size,
            crc: self.bytes.crc,
            footer_crc: self.footer_crc,
            rows: self.extent.rows,
            min_ts: self.extent.min_ts,
            max_ts: self.extent.max_ts,
            facts: self.facts.clone(),
            sealed: false,
            runs: Vec::new(),
        }
    }

    pub(super) const fn pages(&self) -> Option<&ParquetFooter> {
        match &self.body {
            VersionBody::Parquet(pages) => Some(pages),
            VersionBody::Lines(_) => None,
        }
    }

    fn frames(&self) -> Vec<u64> {
        match &self.body {
            VersionBody::Parquet(_) => Vec::new(),
            VersionBody::Lines(frames) => frames.clone(),
        }
    }
}

/// Whether the group is of the file's form and has its columns.
fn accepts(present: &OpenFileVersion, group: &RowGroup) -> bool {
    match (&present.body, &group.metadata) {
        (VersionBody::Parquet(pages), Some(added)) => {
            let added = added.file_metadata().schema_descr_ptr();
            same_schema(&pages.file.schema_descr_ptr(), &added)
        }
        (VersionBody::Lines(_), None) => true,
        _ => false,
    }
}

/// A group's metadata with its pages at `at` in the file instead of at its beginning.
fn shifted(group: &RowGroupMetaData, ordinal: usize, at: u64) -> Result<RowGroupMetaData, ParquetError> {
    let too_far = |_| ParquetError::General(format!("row group {ordinal} at {at}"));
    // At a file's beginning the pages come after the magic, which later groups do not bring along.
    let by = i64::try_from(at.saturating_sub(MAGIC.len() as u64)).map_err(too_far)?;
    moved(group, ordinal, by)
}
