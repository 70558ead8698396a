//! Recovery of a data file after a crash: compares it with what the catalogue recorded.
//!
//! | the name in the tree holds | then |
//! |---|---|
//! | the recorded version | it is taken |
//! | a longer file whose recorded prefix is right and whose end is a later version | that is adopted: its rows are durable, only the record is missing |
//! | a longer file whose recorded prefix is right and whose end is not a version | rolled back to the recorded version, in a fresh inode |
//! | the sealed form of the segment | that is adopted |
//! | anything else | damage |
//!
//! A file that the catalogue does not know at all is adopted as its own footer describes it, or is damage.
//!
//! # Invariants
//!
//! - The shadow file is thrown away: which of its bytes reached the disk is unknown.
//! - What is adopted has its names synced before it counts. No file in the tree is written to, a reader may have it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use parquet::file::metadata::RowGroupMetaData;
use parquet::file::reader::Length;

use super::file_format::FileFormat;
use super::file_prefix::{FilePrefix, file_crc};
use super::footer::{FileBody, FileDescription, FileIdentity, FileVersion, footer_crc, inspect_at};
use super::open_file::{OpenDataFile, OpenFileVersion, ParquetFooter, VersionBody};
use super::promoted_columns::PromotedColumns;
use super::row_width::RowWidths;
use super::schema::{WriteOptions, json_type_of};
use super::shadow_file::{self, PrefixChecksum, ReplaceMethod, ShadowFile};
use crate::Error;
use crate::io_pacing::IoPriority;

/// What the catalogue recorded about an open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordedVersion {
    /// Its length.
    pub(crate) size: u64,
    /// Its CRC-32C.
    pub(crate) crc: u32,
    /// The CRC-32C of its footer, trailer included.
    pub(crate) footer_crc: u32,
}

/// What was found, and is now durable under its name.
#[derive(Debug)]
pub(crate) struct RecoveredFile {
    pub(crate) file: FileVersion,
    /// Whether it is the version that was recorded. Any other is to be recorded.
    pub(crate) is_recorded: bool,
    /// The file where it is open, to go on with; `None` where it is sealed.
    pub(crate) open: Option<OpenDataFile>,
}

/// Takes up the file at `path` after a restart.
///
/// With a record, the file must be that segment's. Without one (a file in the tree that the catalogue does not know) it must
/// be of `identity`'s store and table, and its own footer says which segment it is.
///
/// # Errors
/// If the file is missing, is damaged, or belongs to somebody else.
pub(crate) fn resume(
    path: PathBuf,
    twin_path: PathBuf,
    identity: FileIdentity,
    options: WriteOptions,
    recorded: Option<RecordedVersion>,
) -> Result<RecoveredFile, Error> {
    durable_fs::remove_if_there(&twin_path)?;
    let whole = FilePrefix::open(&path)?;
    let at = FileRecovery {
        path,
        twin_path,
        options,
    };
    let resumed = match recorded {
        None => at.adopt_unknown(&whole, identity)?,
        Some(recorded) => at.compare(&whole, identity, recorded)?,
    };
    durable_fs::sync_dir(durable_fs::parent_of(&at.path))?;
    Ok(resumed)
}

struct FileRecovery {
    path: PathBuf,
    twin_path: PathBuf,
    options: WriteOptions,
}

impl FileRecovery {
    fn adopt_unknown(&self, whole: &FilePrefix, identity: FileIdentity) -> Result<RecoveredFile, Error> {
        let found = inspect_at(whole, &self.path)?;
        let identity = FileIdentity {
            segment: found.identity.segment,
            ..identity
        };
        self.check_owner(&found, &identity)?;
        let crc = file_crc(whole, 0, 0).map_err(Error::io("read", &self.path))?;
        self.resumed(found, identity, crc, false)
    }

    fn compare(
        &self,
        whole: &FilePrefix,
        identity: FileIdentity,
        recorded: RecordedVersion,
    ) -> Result<RecoveredFile, Error> {
        let prefix = whole.prefix(recorded.size);
        let prefix_footer = match &prefix {
            Some(prefix) => footer_crc(prefix).map_err(Error::io("read", &self.path))?,
            None => None,
        };
        match prefix {
            Some(prefix) if prefix_footer == Some(recorded.footer_crc) => {
                let old = inspect_at(&prefix, &self.path)?;
                self.check_owner(&old, &identity)?;
                self.compare_end(whole, identity, recorded, old)
            }
            _ => self.sealed_or_damaged(whole, identity, recorded),
        }
    }

    /// The recorded version is there: is there more?
    fn compare_end(
        &self,
        whole: &FilePrefix,
        identity: FileIdentity,
        recorded: RecordedVersion,
        old: FileDescription,
    ) -> Result<RecoveredFile, Error> {
        if whole.len() == recorded.size {
            return self.resumed(old, identity, recorded.crc, true);
        }
        match inspect_at(whole, &self.path) {
            Ok(newer) if newer.identity == identity && continues(&newer, &old) => {
                let crc = file_crc(whole, recorded.size, recorded.crc).map_err(Error::io("read", &self.path))?;
                self.resumed(newer, identity, crc, false)
            }
            _ => {
                self.roll_back(recorded)?;
                self.resumed(old, identity, recorded.crc, true)
            }
        }
    }

    fn sealed_or_damaged(
        &self,
        whole: &FilePrefix,
        identity: FileIdentity,
        recorded: RecordedVersion,
    ) -> Result<RecoveredFile, Error> {
        let found = match inspect_at(whole, &self.path) {
            // What was recorded is not there: a version that one flipped bit can make says nothing.
            Err(Error::Newer { found, .. }) => {
                return Err(Error::damaged(&self.path, format!("its footer says version {found}")));
            }
            found => found?,
        };
        if found.identity == identity && found.sealed {
            let crc = file_crc(whole, 0, 0).map_err(Error::io("read", &self.path))?;
            return self.resumed(found, identity, crc, false);
        }
        let RecordedVersion { size, footer_crc, .. } = recorded;
        let reason = format!(
            "it has {} bytes and not the recorded footer {footer_crc:08x} at {size}",
            whole.len()
        );
        Err(Error::damaged(&self.path, reason))
    }

    fn check_owner(&self, found: &FileDescription, wanted: &FileIdentity) -> Result<(), Error> {
        if found.identity == *wanted {
            return Ok(());
        }
        let reason = format!("it is {:?}, wanted is {wanted:?}", found.identity);
        Err(Error::damaged(&self.path, reason))
    }

    /// Replaces the file by its first recorded bytes, in a fresh inode.
    fn roll_back(&self, recorded: RecordedVersion) -> Result<(), Error> {
        let want = PrefixChecksum {
            size: recorded.size,
            crc: recorded.crc,
        };
        let (fresh, _) = shadow_file::prepare(&self.twin_path, ShadowFile::Absent, &self.path, want, IoPriority::Yes)?;
        fresh.sync_all().map_err(Error::io("write", &self.twin_path))?;
        if shadow_file::swap_in(&self.twin_path, &self.path, ReplaceMethod::Exchange)? == ReplaceMethod::Exchange {
            durable_fs::remove_if_there(&self.twin_path)?;
        }
        Ok(shadow_file::folders_of(&self.twin_path, &self.path)?.sync()?)
    }

    fn resumed(
        &self,
        found: FileDescription,
        identity: FileIdentity,
        crc: u32,
        is_recorded: bool,
    ) -> Result<RecoveredFile, Error> {
        let file = found.version(&self.path, crc);
        let open = (!found.sealed).then(|| self.open(found, identity, crc));
        Ok(RecoveredFile {
            file,
            is_recorded,
            open: open.transpose()?,
        })
    }

    fn open(&self, found: FileDescription, identity: FileIdentity, crc: u32) -> Result<OpenDataFile, Error> {
        let mut options = WriteOptions {
            form: FileFormat::of_path(&self.path),
            ..self.options.clone()
        };
        let mut widths = RowWidths::default();
        let body = match found.shape {
            FileBody::Parquet(metadata) => {
                options.json = json_type_of(identity.table, metadata.file_metadata().schema_descr());
                let promoted = PromotedColumns::of_file(identity.table, metadata.file_metadata());
                options.promoted = promoted.map_err(|reason| Error::damaged(&self.path, reason))?;
                widths = RowWidths::of(&metadata);
                VersionBody::Parquet(ParquetFooter {
                    file: metadata.file_metadata().clone(),
                    groups: metadata.row_groups().to_vec(),
                    runs: BTreeMap::new(),
                })
            }
            FileBody::Lines(frames) => VersionBody::Lines(frames),
        };
        let version = OpenFileVersion {
            body,
            widths,
            group_lsns: found.group_lsns,
            bytes: PrefixChecksum { size: found.size, crc },
            footer_crc: found.footer_crc,
            extent: found.extent,
            facts: found.facts,
        };
        let open = OpenDataFile::create(self.path.clone(), self.twin_path.clone(), identity, options);
        Ok(open.with_version(version))
    }
}

/// Whether `newer` is `old` with more row groups, or frames.
fn continues(newer: &FileDescription, old: &FileDescription) -> bool {
    let place = |group: &RowGroupMetaData| (group.num_rows(), group.file_offset(), group.compressed_size());
    let grown = match (&newer.shape, &old.shape) {
        (FileBody::Parquet(newer), FileBody::Parquet(old)) => {
            let (new_groups, old_groups) = (newer.row_groups(), old.row_groups());
            new_groups.len() > old_groups.len()
                && old_groups
                    .iter()
                    .zip(new_groups)
                    .all(|(old, new)| place(old) == place(new))
        }
        (FileBody::Lines(newer), FileBody::Lines(old)) => newer.len() > old.len() && newer.starts_with(old),
        _ => false,
    };
    grown && !newer.sealed && newer.facts.version > old.facts.version && newer.facts.last_lsn >= old.facts.last_lsn
}
