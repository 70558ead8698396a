//! Data files, tested on real files in a folder of their own.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod crash;
mod order;
mod pieces;
mod publish;
mod readers;
mod repeats;
mod runs;
pub(super) mod sample;
mod schema;
mod seal;
mod written;

use std::fs::{self, File};
use std::ops::Range;
use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMicrosecondType;
use bytes::Bytes;
use model::{Attributes, EntityId, FluxId, Level, LogRecord, Table, Timestamp};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::reader::ChunkReader;
use tempfile::TempDir;
use uuid::Uuid;

use super::file_prefix::file_crc;
use super::row_group::{RowGroup, encode};
use super::*;
use crate::Error;
use crate::io_pacing::IoPriority;

/// 2026-11-21T10:00:00Z
const TEN: i64 = 1_795_255_200_000_000;

const IDENTITY: FileIdentity = FileIdentity {
    store: Uuid::from_u128(0x018f_0000_0000_7000_8000_0000_0000_0001),
    table: Table::Logs,
    segment: 7,
};

/// Row `n`: its time is scattered over 1000 ms within the hour, so that groups overlap and times repeat.
fn log(n: u64) -> LogRecord {
    let ts = Timestamp::from_micros(TEN + i64::try_from(n * 7919 % 1000).unwrap() * 1000);
    LogRecord {
        ts,
        entity_id: EntityId::from_bytes([1; 16]),
        entity_name: format!("host-{}", n % 3),
        flux_id: n
            .is_multiple_of(2)
            .then(|| FluxId::at(ts, [u8::try_from(n % 251).unwrap(); 10])),
        level: Level::ALL[usize::try_from(n % 4).unwrap()],
        message: format!("line {n}"),
        attributes: Attributes::new().with("n", n).with("gear.id", "tail"),
    }
}

fn logs(rows: Range<u64>) -> RecordBatch {
    model::batch::logs(&rows.map(log).collect::<Vec<_>>()).unwrap()
}

/// Time and number of a row.
type Row = (i64, u64);

/// What any reader finds in a file, in stored order.
fn rows_of<R: ChunkReader + 'static>(source: R) -> Result<Vec<Row>, parquet::errors::ParquetError> {
    let mut rows = Vec::new();
    for batch in ParquetRecordBatchReaderBuilder::try_new(source)?.build()? {
        let batch = batch?;
        let ts = batch.column(0).as_primitive::<TimestampMicrosecondType>().values();
        let messages = batch.column_by_name("message").unwrap().as_string::<i32>();
        for (ts, message) in ts.iter().zip(messages) {
            rows.push((*ts, message.unwrap().strip_prefix("line ").unwrap().parse().unwrap()));
        }
    }
    Ok(rows)
}

fn rows_at(path: &Path) -> Vec<Row> {
    rows_of(File::open(path).unwrap()).unwrap()
}

/// The numbers of the rows, ordered: `0..n` means that none is missing and none is doubled.
fn numbers(rows: Vec<Row>) -> Vec<u64> {
    let mut numbers: Vec<u64> = rows.into_iter().map(|(_, number)| number).collect();
    numbers.sort_unstable();
    numbers
}

fn all(rows: Range<u64>) -> Vec<u64> {
    rows.collect()
}

/// The rows in the order that every file has: newest first, equal times as they arrived.
fn sorted(rows: Range<u64>) -> Vec<Row> {
    let mut rows: Vec<Row> = rows.map(|n| (log(n).ts.micros(), n)).collect();
    rows.sort_by_key(|(ts, _)| std::cmp::Reverse(*ts));
    rows
}

/// What a publish made of the file.
#[derive(Debug)]
struct Published {
    file: FileVersion,
    bytes_written: u64,
    /// Whether the whole file had to be copied.
    copied: bool,
}

impl std::ops::Deref for Published {
    type Target = FileVersion;

    fn deref(&self) -> &FileVersion {
        &self.file
    }
}

/// A tree with one partition, its staging, and the open segment in it.
struct Room {
    dir: TempDir,
    path: PathBuf,
    twin: PathBuf,
    retired: PathBuf,
    staged: PathBuf,
    open: OpenDataFile,
    versions: u32,
}

impl Room {
    fn new() -> Self {
        Self::with(WriteOptions::default())
    }

    fn with(options: WriteOptions) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("telemetry/logs/2026/11/21/10/logs_001.parquet");
        let twin = dir.path().join(".staging/segment_7.twin");
        Self {
            open: OpenDataFile::create(path.clone(), twin.clone(), IDENTITY, options),
            retired: dir.path().join(".staging/retired/segment_7.parquet"),
            staged: dir.path().join(".staging/segment_7.sealed"),
            path,
            twin,
            dir,
            versions: 0,
        }
    }

    fn facts(&mut self, rows: &Range<u64>) -> FooterFacts {
        self.versions += 1;
        FooterFacts {
            version: self.versions,
            first_lsn: 1,
            last_lsn: rows.end,
            origins: format!("rows {}..{}", rows.start, rows.end),
        }
    }

    /// Publishes without telling that it was recorded.
    fn try_publish(&mut self, rows: Range<u64>) -> Result<Published, Error> {
        let group = self.open.encode(&[logs(rows.clone())], IoPriority::Yes)?;
        let facts = self.facts(&rows);
        let is_first = self.open.size() == 0;
        let (file, bytes_written) = self.open.publish(&group, facts)?;
        Ok(Published {
            copied: !is_first && bytes_written >= file.size,
            file,
            bytes_written,
        })
    }

    /// Publishes and records.
    fn publish(&mut self, rows: Range<u64>) -> Published {
        let published = self.try_publish(rows).unwrap();
        self.open.mark_recorded();
        published
    }

    fn seal(&mut self) -> FileVersion {
        self.versions += 1;
        seal(&self.open, &self.staged, self.versions, &WriteOptions::default()).unwrap()
    }

    fn recorded(&self) -> Option<RecordedVersion> {
        self.open.published().map(|published| RecordedVersion {
            size: published.size,
            crc: published.crc,
            footer_crc: published.footer_crc,
        })
    }

    /// A restart that knows `recorded` of the catalogue.
    fn resume(&self, recorded: Option<RecordedVersion>) -> Result<RecoveredFile, Error> {
        let (path, twin) = (self.path.clone(), self.twin.clone());
        resume(path, twin, IDENTITY, WriteOptions::default(), recorded)
    }

    fn bytes(&self) -> Vec<u8> {
        fs::read(&self.path).unwrap()
    }

    /// Every file below a folder, relative to the room.
    fn files(&self, below: &str) -> Vec<String> {
        let mut found = Vec::new();
        let mut folders = vec![self.dir.path().join(below)];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).into_iter().flatten() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let relative = path.strip_prefix(self.dir.path()).unwrap();
                    found.push(relative.display().to_string());
                }
            }
        }
        found.sort();
        found
    }
}

fn metadata_at(path: &Path) -> ParquetMetaData {
    let size = fs::metadata(path).unwrap().len();
    read_metadata(&FilePrefix::new(File::open(path).unwrap(), size), path, true).unwrap()
}

fn prefix_of(bytes: &[u8], length: u64) -> Bytes {
    Bytes::copy_from_slice(&bytes[..usize::try_from(length).unwrap()])
}
