//! Footer metadata: key-values of a data file, enough to rebuild the catalogue from files.
//!
//! | key | value |
//! |---|---|
//! | `platform.table` | the table's name |
//! | `platform.schema_version` | the format of these keys and of the columns |
//! | `platform.store_id` | the store's UUID |
//! | `platform.segment` | the segment's number, unique in the store |
//! | `platform.version` | grows with each publish and with the seal |
//! | `platform.sealed` | `true` or `false` |
//! | `platform.lsn` | `first-last`: the log positions of its rows; of its partition, everything up to *last* is in files |
//! | `platform.rows` | rows in the file |
//! | `platform.ts` | `min..max`, microseconds since the epoch |
//! | `platform.origins` | where its rows came from, as the engine writes it |
//! | `platform.widest` | of an open file: a letter per row group, see [`super::row_width`] |
//! | `platform.group_lsns` | of an open file: the log position that each row group is complete through, see [`super::delta_encoding`]; without it all groups are through *last* |
//! | `platform.frames` | of a file of lines: where its frames begin, in the same way |
//! | `ARROW:schema` | the Arrow schema |
//!
//! # Invariants
//!
//! - Keys are read from outside: anything missing or malformed is damage, never a panic or a guess.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use model::{Table, Timestamp};
use parquet::arrow::ARROW_SCHEMA_META_KEY;
use parquet::errors::ParquetError;
use parquet::file::metadata::{
    FileMetaData, KeyValue, PageIndexPolicy, ParquetMetaData, ParquetMetaDataOptions, ParquetMetaDataReader,
    ParquetMetaDataWriter, RowGroupMetaData,
};
use parquet::file::reader::Length;
use uuid::Uuid;

use super::delta_encoding;
use super::file_prefix::FilePrefix;
use super::ndjson::{self, FooterPairs, raw_description};
use super::sorted_runs::{SortedRun, runs_of};
use crate::Error;

/// The format of the keys and columns written here.
const SCHEMA_VERSION: &str = "1";
const KNOWN_SCHEMA: u32 = 1;
const GROUP_LSNS: &str = "platform.group_lsns";
const FRAMES: &str = "platform.frames";
const VERSION_KEY: &str = "platform.schema_version";
pub(super) const MAGIC: &[u8; 4] = b"PAR1";
/// Bytes of the length and the magic at the end of a footer.
const TRAILER: u64 = 8;

/// Whose file it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileIdentity {
    /// The store.
    pub(crate) store: Uuid,
    /// The table.
    pub(crate) table: Table,
    /// The segment's number, unique in the store.
    pub(crate) segment: u64,
}

/// What only the flusher knows about the rows in a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct FooterFacts {
    /// Grows with each publish and with the seal.
    pub(crate) version: u32,
    /// The first log position with rows in this segment.
    pub(crate) first_lsn: u64,
    /// Every row of this (table, partition) up to this log position is in this segment or an earlier one.
    pub(crate) last_lsn: u64,
    /// Where the rows came from; opaque here.
    pub(crate) origins: String,
}

/// The bounds of rows: how many, and their least and greatest `ts`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowBounds {
    pub(crate) rows: u64,
    pub(crate) min_ts: Timestamp,
    pub(crate) max_ts: Timestamp,
}

impl RowBounds {
    /// Of the rows of these times; `None` without any.
    pub(super) fn of(times: &[i64]) -> Option<Self> {
        Some(Self {
            rows: times.len() as u64,
            min_ts: Timestamp::from_micros(*times.iter().min()?),
            max_ts: Timestamp::from_micros(*times.iter().max()?),
        })
    }

    /// Of both.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            rows: self.rows + other.rows,
            min_ts: self.min_ts.min(other.min_ts),
            max_ts: self.max_ts.max(other.max_ts),
        }
    }
}

/// A file as its own footer describes it.
#[derive(Debug)]
pub(crate) struct FileDescription {
    pub(crate) identity: FileIdentity,
    pub(crate) facts: FooterFacts,
    pub(crate) extent: RowBounds,
    pub(crate) sealed: bool,
    /// The length of the file.
    pub(crate) size: u64,
    /// The CRC-32C of the footer, trailer included.
    pub(crate) footer_crc: u32,
    pub(crate) shape: FileBody,
    /// The log position that each row group, or frame, is complete through.
    pub(super) group_lsns: Vec<u64>,
}

impl FileDescription {
    /// As the catalogue is told of it, by where it lies and the CRC-32C of its bytes.
    pub(super) fn version(&self, path: &Path, crc: u32) -> FileVersion {
        FileVersion {
            runs: match &self.shape {
                FileBody::Parquet(metadata) if self.sealed => runs_of(metadata.row_groups()),
                _ => Vec::new(),
            },
            path: path.to_owned(),
            size: self.size,
            crc,
            footer_crc: self.footer_crc,
            rows: self.extent.rows,
            min_ts: self.extent.min_ts,
            max_ts: self.extent.max_ts,
            facts: self.facts.clone(),
            sealed: self.sealed,
        }
    }
}

/// A version of a data file, synced, as the catalogue is told of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileVersion {
    /// Where it lies: a new sealed file is in staging until it is installed.
    pub(crate) path: PathBuf,
    /// The file's length.
    pub(crate) size: u64,
    /// The CRC-32C of the file.
    pub(crate) crc: u32,
    /// The CRC-32C of its last footer, trailer included.
    pub(crate) footer_crc: u32,
    /// Rows in the file.
    pub(crate) rows: u64,
    /// Their earliest `ts`.
    pub(crate) min_ts: Timestamp,
    /// Their latest `ts`.
    pub(crate) max_ts: Timestamp,
    /// What the footer says about them.
    pub(crate) facts: FooterFacts,
    pub(crate) sealed: bool,
    /// The runs of a sealed file that is not sorted as a whole.
    pub(crate) runs: Vec<SortedRun>,
}

/// What a file is made of.
#[derive(Debug)]
pub(crate) enum FileBody {
    Parquet(Box<ParquetMetaData>),
    /// Frames of lines, by where they begin.
    Lines(Vec<u64>),
}

/// The key-values of a file.
pub(super) fn key_values(
    identity: &FileIdentity,
    facts: &FooterFacts,
    extent: &RowBounds,
    sealed: bool,
) -> Vec<KeyValue> {
    let pair = |key: &str, value: String| KeyValue::new(format!("platform.{key}"), value);
    vec![
        pair("table", identity.table.name().to_owned()),
        pair("schema_version", SCHEMA_VERSION.to_owned()),
        pair("store_id", identity.store.to_string()),
        pair("segment", identity.segment.to_string()),
        pair("version", facts.version.to_string()),
        pair("sealed", sealed.to_string()),
        pair("lsn", format!("{}-{}", facts.first_lsn, facts.last_lsn)),
        pair("rows", extent.rows.to_string()),
        pair("ts", format!("{}..{}", extent.min_ts.micros(), extent.max_ts.micros())),
        pair("origins", facts.origins.clone()),
    ]
}

/// The log positions of row groups, for the footer.
pub(super) fn group_lsns_pair(group_lsns: &[u64]) -> KeyValue {
    KeyValue::new(GROUP_LSNS.to_owned(), delta_encoding::to_text(group_lsns))
}

/// Whether a key-value is about the row groups that a file has.
pub(super) fn is_of_groups(pair: &KeyValue) -> bool {
    pair.key == GROUP_LSNS
}

/// The key-values of a file of lines whose frames begin there and are complete through these log positions.
pub(super) fn line_pairs(
    identity: &FileIdentity,
    facts: &FooterFacts,
    extent: &RowBounds,
    (frames, group_lsns): (&[u64], &[u64]),
    sealed: bool,
) -> FooterPairs {
    let pairs = key_values(identity, facts, extent, sealed).into_iter();
    let mut pairs: FooterPairs = pairs.map(|pair| (pair.key, pair.value.unwrap_or_default())).collect();
    pairs.insert(FRAMES.to_owned(), delta_encoding::to_text(frames));
    pairs.insert(GROUP_LSNS.to_owned(), delta_encoding::to_text(group_lsns));
    pairs
}

/// Whether it is the Arrow schema's key-value, which a hand-made footer must carry over.
pub(super) fn is_arrow_schema(pair: &KeyValue) -> bool {
    pair.key == ARROW_SCHEMA_META_KEY
}

/// The metadata of a file like another one, with other rows and, behind its Arrow schema, other key-values.
pub(super) fn file_like(like: &FileMetaData, rows: u64, pairs: Vec<KeyValue>) -> Result<FileMetaData, ParquetError> {
    let rows = i64::try_from(rows).map_err(|_| ParquetError::General(format!("{rows} rows")))?;
    let old = like.key_value_metadata().into_iter().flatten();
    let schema = old.filter(|pair| is_arrow_schema(pair)).take(1).cloned();
    Ok(FileMetaData::new(
        like.version(),
        rows,
        like.created_by().map(str::to_owned),
        Some(schema.chain(pairs).collect()),
        like.schema_descr_ptr(),
        like.column_orders().cloned(),
    ))
}

/// The bytes of a footer, trailer included.
pub(super) fn footer_bytes(file: FileMetaData, groups: Vec<RowGroupMetaData>) -> Result<Vec<u8>, ParquetError> {
    let mut bytes = Vec::new();
    ParquetMetaDataWriter::new(&mut bytes, &ParquetMetaData::new(file, groups)).finish()?;
    Ok(bytes)
}

/// What ends at the file's size and describes it: a Parquet footer, trailer included, or the description of a file of lines.
enum RawFooter {
    Parquet(Vec<u8>),
    Lines(Vec<u8>),
}

impl RawFooter {
    fn bytes(&self) -> &[u8] {
        let (Self::Parquet(bytes) | Self::Lines(bytes)) = self;
        bytes
    }
}

fn raw(file: &FilePrefix) -> std::io::Result<Option<RawFooter>> {
    if let Some(footer) = raw_footer(file)? {
        return Ok(Some(RawFooter::Parquet(footer)));
    }
    Ok(raw_description(file)?.map(RawFooter::Lines))
}

/// The footer that ends at the file's size, trailer included; `None` where no footer ends.
fn raw_footer(file: &FilePrefix) -> std::io::Result<Option<Vec<u8>>> {
    let size = file.len();
    if size < TRAILER + MAGIC.len() as u64 {
        return Ok(None);
    }
    let mut trailer = [0; TRAILER as usize];
    file.read_exact_at(&mut trailer, size - TRAILER)?;
    let length = footer_length(trailer, size);
    length.map(|length| file.read(size - length, length)).transpose()
}

/// The length of the Parquet footer, trailer included, that ends with `trailer` at `size`; `None` where none does.
pub(crate) fn footer_length(trailer: [u8; TRAILER as usize], size: u64) -> Option<u64> {
    let [a, b, c, d, magic @ ..] = trailer;
    let length = u64::from(u32::from_le_bytes([a, b, c, d])) + TRAILER;
    (&magic == MAGIC && length + MAGIC.len() as u64 <= size).then_some(length)
}

/// The CRC-32C of the footer, trailer included, that ends at `size`; `None` where no footer ends or the file is shorter.
/// It tells whether the file holds the version with that length.
pub(crate) fn footer_crc(file: &FilePrefix) -> std::io::Result<Option<u32>> {
    match raw(file) {
        Ok(footer) => Ok(footer.map(|footer| crc32c::crc32c(footer.bytes()))),
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

/// The metadata in a footer, trailer included.
pub(crate) fn decode_footer(footer: &[u8]) -> Result<ParquetMetaData, ParquetError> {
    let thrift = &footer[..footer.len().saturating_sub(TRAILER as usize)];
    // As a mask the per-page encodings could not be written again.
    let options = ParquetMetaDataOptions::new().with_encoding_stats_as_mask(false);
    ParquetMetaDataReader::decode_metadata_with_options(thrift, Some(&options))
}

/// The Parquet metadata of a version of a file, with the page index if the file has one and `page_index` asks for it.
pub(crate) fn read_metadata(file: &FilePrefix, path: &Path, page_index: bool) -> Result<ParquetMetaData, Error> {
    let footer = raw_footer(file).map_err(Error::io("read", path))?;
    let footer = footer.ok_or_else(|| Error::damaged(path, "no Parquet footer at its end"))?;
    let metadata = decode_footer(&footer).map_err(unreadable(path))?;
    if !page_index {
        return Ok(metadata);
    }
    let mut reader =
        ParquetMetaDataReader::new_with_metadata(metadata).with_page_index_policy(PageIndexPolicy::Optional);
    reader.read_page_indexes(file).map_err(unreadable(path))?;
    reader.finish().map_err(unreadable(path))
}

/// A data file of ours at its present length, as its own footer describes it.
///
/// # Errors
/// If it cannot be read, or its end is not a footer of ours.
pub(crate) fn inspect(path: &Path) -> Result<FileDescription, Error> {
    inspect_at(&FilePrefix::open(path)?, path)
}

/// As [`inspect`], of the version that ends at the source's size.
pub(super) fn inspect_at(file: &FilePrefix, path: &Path) -> Result<FileDescription, Error> {
    let footer = raw(file).map_err(Error::io("read", path))?;
    let footer = footer.ok_or_else(|| Error::damaged(path, "nothing at its end describes it"))?;
    let (pairs, metadata) = match &footer {
        RawFooter::Parquet(footer) => {
            let metadata = decode_footer(footer).map_err(unreadable(path))?;
            // The first value of a key counts.
            let pairs = metadata
                .file_metadata()
                .key_value_metadata()
                .into_iter()
                .flatten()
                .rev();
            let pairs = pairs.filter_map(|pair| Some((pair.key.clone(), pair.value.clone()?)));
            (pairs.collect(), Some(metadata))
        }
        RawFooter::Lines(description) => {
            let pairs = ndjson::pairs_of(description).map_err(|reason| Error::damaged(path, reason))?;
            (pairs, None)
        }
    };
    refuse_newer(pairs.get(VERSION_KEY), path)?;
    let (identity, facts, extent, sealed) = parse(&pairs).map_err(|reason| Error::damaged(path, reason))?;
    let (shape, groups) = match metadata {
        Some(metadata) if rows_of(&metadata) != Some(extent.rows) => {
            let reason = format!("its row groups do not have the {} rows it names", extent.rows);
            return Err(Error::damaged(path, reason));
        }
        Some(metadata) => {
            let groups = metadata.num_row_groups();
            (FileBody::Parquet(Box::new(metadata)), groups)
        }
        None => {
            let frames = pairs.get(FRAMES).and_then(|frames| delta_encoding::from_text(frames));
            let frames = frames.filter(|frames| frames.first() == Some(&0));
            let frames =
                frames.ok_or_else(|| Error::damaged(path, format!("its description has no right {FRAMES}")))?;
            let groups = frames.len();
            (FileBody::Lines(frames), groups)
        }
    };
    let group_lsns = match pairs.get(GROUP_LSNS) {
        None => vec![facts.last_lsn; groups],
        Some(text) => delta_encoding::from_text(text)
            .filter(|lsns| lsns.len() == groups)
            .ok_or_else(|| Error::damaged(path, format!("{GROUP_LSNS} in its footer is {text:?}")))?,
    };
    Ok(FileDescription {
        identity,
        facts,
        extent,
        sealed,
        size: file.len(),
        footer_crc: crc32c::crc32c(footer.bytes()),
        shape,
        group_lsns,
    })
}

/// Refuses what a later version of this program wrote.
fn refuse_newer(version: Option<&String>, path: &Path) -> Result<(), Error> {
    match version.and_then(|version| version.parse().ok()) {
        Some(found) if found > KNOWN_SCHEMA => Err(Error::newer(path, found, KNOWN_SCHEMA)),
        _ => Ok(()),
    }
}

type ParsedFooter = (FileIdentity, FooterFacts, RowBounds, bool);

/// The rows of all row groups.
fn rows_of(metadata: &ParquetMetaData) -> Option<u64> {
    let mut groups = metadata.row_groups().iter();
    groups.try_fold(0u64, |sum, group| {
        sum.checked_add(u64::try_from(group.num_rows()).ok()?)
    })
}

fn parse(pairs: &FooterPairs) -> Result<ParsedFooter, String> {
    let get = |key: &'static str| -> Result<&String, String> {
        let pair = pairs.get(&format!("platform.{key}"));
        pair.ok_or_else(|| format!("its footer has no platform.{key}"))
    };
    let version = get("schema_version")?;
    if version != SCHEMA_VERSION {
        return Err(format!("its schema version is {version:?}, known is {SCHEMA_VERSION}"));
    }
    let identity = FileIdentity {
        store: number("store_id", get("store_id")?)?,
        table: number("table", get("table")?)?,
        segment: number("segment", get("segment")?)?,
    };
    let (first_lsn, last_lsn) = two("lsn", get("lsn")?, "-")?;
    let (min_ts, max_ts) = two("ts", get("ts")?, "..")?;
    let facts = FooterFacts {
        version: number("version", get("version")?)?,
        first_lsn,
        last_lsn,
        origins: get("origins")?.to_owned(),
    };
    let extent = RowBounds {
        rows: number("rows", get("rows")?)?,
        min_ts: Timestamp::from_micros(min_ts),
        max_ts: Timestamp::from_micros(max_ts),
    };
    Ok((identity, facts, extent, number("sealed", get("sealed")?)?))
}

fn number<T: FromStr>(key: &str, text: &str) -> Result<T, String> {
    text.parse()
        .map_err(|_| format!("platform.{key} in its footer is {text:?}"))
}

fn two<T: FromStr>(key: &str, text: &str, between: &str) -> Result<(T, T), String> {
    let (first, last) = text
        .split_once(between)
        .ok_or_else(|| format!("platform.{key} in its footer is {text:?}"))?;
    Ok((number(key, first)?, number(key, last)?))
}

pub(crate) fn unreadable(path: &Path) -> impl FnOnce(ParquetError) -> Error {
    let path = path.to_owned();
    move |source| Error::Parquet {
        action: "read",
        path,
        source,
    }
}

pub(super) fn unwritable(path: &Path) -> impl FnOnce(ParquetError) -> Error {
    let path = path.to_owned();
    move |source| Error::Parquet {
        action: "write",
        path,
        source,
    }
}
