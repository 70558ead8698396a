//! Layout of the store: partitions by event time, names of data files, folders.
//!
//! ```text
//! <data_dir>/<table>/YYYY/MM/DD[/HH]/<table>_NNN.parquet                        finished data files, nothing else ever
//! <messages_dir>/generic/YYYY/MM/DD[/HH]/fluxmsg_NNN.parquet                    business messages
//! <messages_dir>/fluxSpec/<spec>/YYYY/MM/DD[/HH]/<prefix>_NNN.parquet           those of a spec, <spec> if it has no prefix
//! <store_dir>/wal/            the log
//! <store_dir>/meta/           catalogue, store id, LOCK
//! <store_dir>/.staging/       files on their way into the tree, and out of it
//! <store_dir>/quarantine/     damaged files
//! <store_dir>/index/          sidecar indexes, built from sealed data files; may be deleted
//! <store_dir>/iceberg/        metadata of a table catalogue, derived from the manifest; may be deleted
//! ```
//!
//! Staging must share a file system with the tree, because files are exchanged by name: where a tree does not lie below
//! `store_dir`, its staging lies beside it, as `.staging/<its name>/`. Names of other forms end in `.json`, `.json.zst`, or
//! `.json.sz`.
//!
//! # Invariants
//!
//! - A partition is a half-open interval of UTC event time, of one spec if it has one; its folder is a pure function of it.
//! - `NNN` has at least three digits and is never used twice within a partition.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Datelike, NaiveDate, Timelike, Utc};
use model::{Table, Timestamp};
use serde::{Deserialize, Serialize};

use crate::datafile::FileFormat;
use crate::{Error, PartitionBy, Settings, SpecName};

/// A segment's number and version: what is kept of a data file is known by them, never by path or size, as a sealed file has
/// the path of the open one.
pub(crate) type FileVersionKey = (u64, u32);

/// An interval of event time whose rows share a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct TimePartition {
    /// The interval's number since the epoch, in its own length.
    index: i64,
    by: PartitionBy,
    /// The spec whose messages it has.
    spec: Option<SpecName>,
}

const fn length_micros(by: PartitionBy) -> i64 {
    match by {
        PartitionBy::Hour => 3_600_000_000,
        PartitionBy::Day => 86_400_000_000,
    }
}

impl TimePartition {
    /// The partition that `at` falls into. Moments outside the years 0001 to 9999 count as the nearest one inside.
    pub(crate) fn of(at: Timestamp, by: PartitionBy) -> Self {
        let at = at.clamp(Timestamp::MIN, Timestamp::MAX);
        Self {
            index: at.micros().div_euclid(length_micros(by)),
            by,
            spec: None,
        }
    }

    /// Its number in its own length, that length, its spec.
    pub(crate) const fn parts(self) -> (i64, PartitionBy, Option<SpecName>) {
        (self.index, self.by, self.spec)
    }

    /// The same interval, of a spec's messages.
    pub(crate) const fn of_spec(self, spec: Option<SpecName>) -> Self {
        Self { spec, ..self }
    }

    /// Its first moment.
    pub(crate) const fn start(self) -> Timestamp {
        Timestamp::from_micros(self.index.saturating_mul(length_micros(self.by)))
    }

    /// The first moment after it.
    pub(crate) const fn end(self) -> Timestamp {
        Timestamp::from_micros(self.index.saturating_add(1).saturating_mul(length_micros(self.by)))
    }

    /// The partition whose folder has these numbers: year, month, day, and the hour if it has one.
    pub(crate) fn of_date(numbers: &[u16]) -> Option<Self> {
        let (date, by, hour) = match *numbers {
            [year, month, day] => ([year, month, day], PartitionBy::Day, 0),
            [year, month, day, hour @ 0..24] => ([year, month, day], PartitionBy::Hour, hour),
            _ => return None,
        };
        let [year, month, day] = date;
        let date = NaiveDate::from_ymd_opt(i32::from(year), month.into(), day.into()).filter(|_| year > 0)?;
        let days = i64::from(date.to_epoch_days());
        let index = match by {
            PartitionBy::Hour => days * 24 + i64::from(hour),
            PartitionBy::Day => days,
        };
        Some(Self { index, by, spec: None })
    }
}

/// Its folder below the table's, or the spec's.
impl fmt::Display for TimePartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let start: DateTime<Utc> = self.start().to_datetime().unwrap_or_default();
        write!(f, "{:04}/{:02}/{:02}", start.year(), start.month(), start.day())?;
        match self.by {
            PartitionBy::Hour => write!(f, "/{:02}", start.hour()),
            PartitionBy::Day => Ok(()),
        }
    }
}

/// The folders and names of one store.
#[derive(Debug, Clone)]
pub(crate) struct StoreLayout {
    /// The tree of data files.
    pub(crate) data: PathBuf,
    /// The tree of business messages.
    pub(crate) messages: PathBuf,
    /// The log.
    pub(crate) wal: PathBuf,
    /// The catalogue, the store's id, the lock.
    pub(crate) meta: PathBuf,
    /// Files on their way into the tree of data files, and displaced versions that a view may still hold.
    pub(crate) data_staging: PathBuf,
    /// The same for messages.
    pub(crate) messages_staging: PathBuf,
    /// Folders below them.
    retired: [Arc<PathBuf>; 2],
    /// What was found damaged.
    pub(crate) quarantine: PathBuf,
    /// Sidecars of sealed data files.
    pub(crate) index: Arc<Path>,
    /// Small objects that are derived from the manifest.
    pub(crate) iceberg: PathBuf,
}

impl StoreLayout {
    /// Messages without a spec.
    pub(crate) const GENERIC: &str = "generic";
    /// Messages of specs, a folder each.
    pub(crate) const SPECS: &str = "fluxSpec";

    /// Folders in staging whose partitions have expired.
    pub(crate) const EXPIRED: &str = "expired_";

    pub(crate) fn new(settings: &Settings) -> Self {
        let store = &settings.store_dir;
        let staging = |tree: &Path| match (tree.parent(), tree.file_name()) {
            (Some(parent), Some(name)) if !tree.starts_with(store) => parent.join(".staging").join(name),
            _ => store.join(".staging"),
        };
        let (data_staging, messages_staging) = (staging(&settings.data_dir), staging(&settings.messages_dir));
        Self {
            data: settings.data_dir.clone(),
            messages: settings.messages_dir.clone(),
            wal: store.join("wal"),
            meta: store.join("meta"),
            retired: [&data_staging, &messages_staging].map(|staging| Arc::new(staging.join("retired"))),
            data_staging,
            messages_staging,
            quarantine: store.join("quarantine"),
            index: store.join("index").into(),
            iceberg: store.join("iceberg"),
        }
    }

    /// Where a table's files lie, all of them.
    pub(crate) fn folder(&self, table: Table) -> PathBuf {
        match table {
            Table::Messages => self.messages.clone(),
            _ => self.data.join(table.name()),
        }
    }

    /// The tree that a data file is in.
    pub(crate) fn root_of(&self, path: &Path) -> &Path {
        if path.starts_with(&self.messages) {
            &self.messages
        } else {
            &self.data
        }
    }

    /// A data file of a partition.
    pub(crate) fn file(&self, table: Table, partition: TimePartition, named: DataFileName) -> PathBuf {
        let prefix = match &named.prefix {
            Some(prefix) => prefix.as_str(),
            None => prefix(table, partition.spec.as_ref()),
        };
        let name = format!("{partition}/{prefix}_{:03}.{}", named.number, named.form.ending());
        match (table, &partition.spec) {
            (Table::Messages, Some(spec)) => self.messages.join(format!("{}/{spec}/{name}", Self::SPECS)),
            (Table::Messages, None) => self.messages.join(format!("{}/{name}", Self::GENERIC)),
            _ => self.data.join(format!("{}/{name}", table.name())),
        }
    }

    /// The partition that a folder of a table is of, if it is one that the layout makes.
    pub(crate) fn partition_of(&self, table: Table, folder: &Path) -> Option<TimePartition> {
        let below = folder.strip_prefix(self.folder(table)).ok()?;
        let names = below.iter().map(OsStr::to_str).collect::<Option<Vec<_>>>()?;
        let (spec, date) = match (table, names.as_slice()) {
            (Table::Messages, [Self::GENERIC, date @ ..]) => (None, date),
            (Table::Messages, [Self::SPECS, spec, date @ ..]) => (Some(spec.parse().ok()?), date),
            (Table::Messages, _) => return None,
            (_, date) => (None, date),
        };
        let numbers = date
            .iter()
            .map(|number| number.parse().ok())
            .collect::<Option<Vec<u16>>>()?;
        let partition = TimePartition::of_date(&numbers)?;
        (partition.to_string() == date.join("/")).then(|| partition.of_spec(spec))
    }

    /// Makes the folders: those of data for outside readers too, the others for us alone.
    pub(crate) fn create_folders(&self) -> Result<(), Error> {
        for dir in [&self.data, &self.messages] {
            durable_fs::create_dirs(dir)?;
        }
        for dir in [&self.meta, &self.wal, &self.quarantine] {
            durable_fs::create_private_dirs(dir)?;
        }
        Ok(())
    }

    /// Every folder of files on their way: emptied at each start.
    pub(crate) fn staging_folders(&self) -> Vec<&PathBuf> {
        let [data, messages] = &self.retired;
        let mut all = vec![&self.data_staging, data.as_ref()];
        if self.messages_staging != self.data_staging {
            all.extend([&self.messages_staging, messages.as_ref()]);
        }
        all
    }

    fn staging(&self, table: Table) -> &Path {
        match table {
            Table::Messages => &self.messages_staging,
            _ => &self.data_staging,
        }
    }

    /// Where the bytes of segment `id` are written before they are exchanged into the tree.
    pub(crate) fn shadow_file(&self, table: Table, id: u64) -> PathBuf {
        self.staging(table).join(format!("segment_{id:020}.twin"))
    }

    /// Where the bytes of segment `id` are written that come from the object store.
    pub(crate) fn fetching(&self, table: Table, id: u64) -> PathBuf {
        self.staging(table).join(format!("segment_{id:020}.fetching"))
    }

    /// Where a piece of a data file is written on its way to the object store, or from there.
    pub(crate) fn piece(&self, table: Table, id: u64) -> PathBuf {
        self.staging(table).join(format!("piece_{id:020}.parquet"))
    }

    /// Where the sealed form of segment `id` is written.
    pub(crate) fn sealing(&self, table: Table, id: u64) -> PathBuf {
        self.staging(table).join(format!("segment_{id:020}.sealing"))
    }

    /// Where the folder of an expired partition goes, of which segment `id` is one.
    pub(crate) fn expired(&self, table: Table, id: u64) -> PathBuf {
        self.staging(table).join(format!("{}{id:020}", Self::EXPIRED))
    }

    /// Where a damaged data file is kept: its path in the tree as one name.
    pub(crate) fn quarantined(&self, path: &Path) -> PathBuf {
        let name = path
            .strip_prefix(self.root_of(path))
            .unwrap_or(path)
            .to_string_lossy()
            .replace('/', "_");
        self.quarantine.join(name)
    }

    /// Where the open file of segment `id` goes when its sealed form takes its name.
    pub(crate) fn retired(&self, table: Table, id: u64) -> RetiredPath {
        self.retired_sealed(table, id, 0)
    }

    /// Where a version of the sealed file of segment `id` goes when a later one takes its name.
    pub(crate) fn retired_sealed(&self, table: Table, id: u64, version: u32) -> RetiredPath {
        let [data, messages] = &self.retired;
        let folder = Arc::clone(if table == Table::Messages { messages } else { data });
        RetiredPath { folder, id, version }
    }
}

/// A name among the retired files. Every segment has one and few need it: it is made when it is asked for.
#[derive(Debug)]
pub(crate) struct RetiredPath {
    folder: Arc<PathBuf>,
    id: u64,
    /// 0 of the open file, whose versions have one name.
    version: u32,
}

impl RetiredPath {
    pub(crate) fn path(&self) -> PathBuf {
        let Self { folder, id, version } = self;
        folder.join(format!("segment_{id:020}_v{version}.parquet"))
    }
}

/// What names of a table's files begin with.
fn prefix(table: Table, spec: Option<&SpecName>) -> &str {
    match (table, spec) {
        (Table::Messages, Some(spec)) => spec.as_str(),
        (Table::Messages, None) => "fluxmsg",
        _ => table.name(),
    }
}

/// What the name of a data file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DataFileName {
    /// The `NNN`, unique in its partition whatever stands before it.
    pub(crate) number: u32,
    /// What it is made of.
    pub(crate) form: FileFormat,
    /// What stands before the number, where that is not what a spec's name or a table's says.
    pub(crate) prefix: Option<SpecName>,
}

/// What a data file's name says, if it is one that the layout makes.
pub(crate) fn parse_name(table: Table, spec: Option<SpecName>, name: &str) -> Option<DataFileName> {
    let (stem, form) = FileFormat::split(name)?;
    let (before, digits) = stem.rsplit_once('_')?;
    let plain = digits.len() >= 3 && digits.bytes().all(|b| b.is_ascii_digit());
    let canonical = plain && (digits.len() == 3 || !digits.starts_with('0'));
    let prefix = match spec {
        _ if before == prefix(table, spec.as_ref()) => None,
        Some(_) => Some(before.parse().ok()?),
        None => return None,
    };
    Some(DataFileName {
        number: digits.parse().ok().filter(|_| canonical)?,
        form,
        prefix,
    })
}

/// The place and name that a path of a data file means, if it is one that the layout makes.
pub(crate) fn parse_path(
    layout: &StoreLayout,
    table: Table,
    path: &Path,
    min_ts: Timestamp,
) -> Option<(TimePartition, DataFileName)> {
    let partition = layout.partition_of(table, path.parent()?)?;
    let named = parse_name(table, partition.spec, path.file_name()?.to_str()?)?;
    let is_right = partition == TimePartition::of(min_ts, partition.by).of_spec(partition.spec);
    is_right.then_some((partition, named))
}

/// The number in a data file's name, if it is one of `table`'s names.
pub(crate) fn file_number(table: Table, path: &Path) -> Option<u32> {
    let (stem, _) = FileFormat::split(path.file_name()?.to_str()?)?;
    let (before, digits) = stem.rsplit_once('_')?;
    let ours = before == prefix(table, None) || (table == Table::Messages && before.parse::<SpecName>().is_ok());
    let canonical = ours && digits.len() >= 3 && digits.bytes().all(|b| b.is_ascii_digit());
    canonical.then(|| digits.parse().ok()).flatten()
}

/// A path as it is told to others: absolute, and without links as far as it is there.
pub(crate) fn canonical(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let found = path
        .ancestors()
        .find_map(|there| Some((std::fs::canonicalize(there).ok()?, path.strip_prefix(there).ok()?)));
    // Joined by hand: an empty rest would leave a slash at the end.
    let joined = found.map(|(real, rest)| real.components().chain(rest.components()).collect());
    joined.unwrap_or_else(|| path.clone())
}

/// The URI of a file by its absolute path. Nothing is percent-encoded: what reads tables takes locations as they stand.
pub(crate) fn file_uri(path: &Path) -> String {
    format!("file://{}", path.display())
}

/// How far a row's time may lie ahead of its arrival.
pub(crate) const MAX_FUTURE: Duration = Duration::from_secs(3_600);

#[cfg(test)]
#[path = "layout_tests.rs"]
mod tests;
