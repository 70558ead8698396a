//! Compares what a store holds with what was sent and acknowledged.
//!
//! | seen | then |
//! |---|---|
//! | a row of an acknowledged batch is missing, unless its closed partition was rotated away | lost |
//! | a row twice | doubled |
//! | a row that differs from the one sent, or was never sent; a batch in part; a file that cannot be read | torn |
//! | a row of a partition whose removal was reported | risen |

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, TimestampMicrosecondType};
use arrow_array::{Array, RecordBatch};
use arrow_schema::DataType;
use engine::{DataFileHandle, Engine, ReadView};
use model::{Clock, Entropy, Table, Timestamp};
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder};

use super::{Heard, Load, NOON};
use crate::Failure;

/// What was sent and what was heard about it.
#[derive(Debug)]
pub struct Judge<'a> {
    /// The load.
    pub load: Load,
    /// No batch beyond this one was sent.
    pub last: u64,
    /// What the driver said.
    pub heard: &'a Heard,
}

/// The outcome.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Rows seen.
    pub rows: u64,
    /// Batches seen.
    pub batches: u64,
    /// What must not be, whatever happened to the store.
    pub violations: Vec<String>,
    /// What is missing.
    pub lost: Vec<String>,
    /// What the store says is missing.
    pub partial: Option<String>,
}

/// So many damaged files a reader leaves behind before it gives up.
const DAMAGED_FILES: usize = 64;

/// The rows of one batch as they must be, and which were seen.
struct Wanted {
    rows: Vec<(i64, u64)>,
    seen: Vec<bool>,
}

type Seen = BTreeMap<u64, Wanted>;

impl Judge<'_> {
    /// Opens the store as the next start would, and judges its view; then closes it, and judges the tree of data files as
    /// an outside reader sees it.
    ///
    /// # Errors
    /// If the surroundings fail. A store that does not open is a violation.
    pub async fn judge(&self, settings: engine::Settings) -> Result<Verdict, Failure> {
        let tree = settings.data_dir.clone();
        let engine = match open(settings).await {
            Ok(engine) => engine,
            Err(error) => return Ok(Verdict::of(format!("the store does not open: {error}"))),
        };
        let mut verdict = self.of_view(&engine)?;
        if let Err(error) = engine.close().await {
            verdict.violations.push(format!("the store does not close: {error}"));
        }
        drop(engine);
        if files_below(&tree)?
            .iter()
            .any(|path| path.extension().is_none_or(|ending| ending != "parquet"))
        {
            // Only Parquet is read without the engine here.
            return Ok(verdict);
        }
        let outside = self.of_tree(&tree)?;
        verdict.lost.extend(outside.lost);
        if verdict.violations.is_empty() && outside.rows != verdict.rows {
            let text = format!("the tree has {} rows, the view had {}", outside.rows, verdict.rows);
            verdict.violations.push(text);
        }
        verdict.violations.extend(outside.violations);
        Ok(verdict)
    }

    /// Judges what queries see: as they do, it begins anew where a file turns out damaged.
    ///
    /// # Errors
    /// If the load cannot be made again.
    pub fn of_view(&self, engine: &Arc<Engine>) -> Result<Verdict, Failure> {
        for _ in 0..DAMAGED_FILES {
            let view = engine.view();
            let mut files = Table::ALL.iter().flat_map(|table| view.files(*table));
            if files.any(|file| matches!(file.open(), Err(engine::Error::Damaged { .. }))) {
                continue;
            }
            let mut seen = Seen::new();
            let mut verdict = Verdict {
                partial: view.partial().map(str::to_owned),
                ..Verdict::default()
            };
            for table in Table::ALL {
                self.take_table(&view, table, &mut seen, &mut verdict)?;
            }
            self.settle(&seen, &mut verdict);
            return Ok(verdict);
        }
        Ok(Verdict::of("damaged files never leave the view".to_owned()))
    }

    fn take_table(&self, view: &ReadView, table: Table, seen: &mut Seen, verdict: &mut Verdict) -> Result<(), Failure> {
        for hot in view.hot(table) {
            self.take(&hot.batch, "in memory", seen, verdict)?;
        }
        for file in view.files(table) {
            let name = file.path.display().to_string();
            match segment_rows(file) {
                Ok(batches) => {
                    for batch in batches {
                        self.take(&batch, &name, seen, verdict)?;
                    }
                }
                Err(error) => verdict.violations.push(format!("torn: {name}: {error}")),
            }
        }
        Ok(())
    }

    /// Judges the tree without the engine.
    ///
    /// # Errors
    /// If the load cannot be made again, or a folder cannot be listed.
    pub fn of_tree(&self, tree: &Path) -> Result<Verdict, Failure> {
        let mut seen = Seen::new();
        let mut verdict = Verdict::default();
        for table in Table::ALL {
            for path in files_below(&tree.join(table.name()))? {
                let name = path.display().to_string();
                match plain_rows(&path) {
                    Ok(batches) => {
                        for batch in batches {
                            self.take(&batch, &name, &mut seen, &mut verdict)?;
                        }
                    }
                    Err(error) => verdict.violations.push(format!("torn: {name}: {error}")),
                }
            }
        }
        self.settle(&seen, &mut verdict);
        Ok(verdict)
    }

    fn take(&self, batch: &RecordBatch, place: &str, seen: &mut Seen, verdict: &mut Verdict) -> Result<(), Failure> {
        let mut prints = Vec::new();
        for row in 0..batch.num_rows() {
            verdict.rows += 1;
            let Some((seq, n)) = key_of(batch, row) else {
                verdict.violations.push(format!("torn: a row {place} has no key"));
                continue;
            };
            if seq == 0 || seq > self.last {
                verdict
                    .violations
                    .push(format!("torn: batch {seq} was never sent, and is {place}"));
                continue;
            }
            let wanted = match seen.entry(seq) {
                std::collections::btree_map::Entry::Occupied(wanted) => wanted.into_mut(),
                std::collections::btree_map::Entry::Vacant(free) => free.insert(self.wanted(seq)?),
            };
            let (Some((_, print)), Some(was_seen)) = (wanted.rows.get(n), wanted.seen.get_mut(n)) else {
                verdict
                    .violations
                    .push(format!("torn: row {seq}/{n} was never sent, and is {place}"));
                continue;
            };
            prints.clear();
            if fingerprint(batch, row, &mut prints) != Some(*print) {
                verdict
                    .violations
                    .push(format!("torn: row {seq}/{n} {place} is not what was sent"));
            }
            if std::mem::replace(was_seen, true) {
                verdict.violations.push(format!("doubled: row {seq}/{n}, {place}"));
            }
        }
        Ok(())
    }

    fn wanted(&self, seq: u64) -> Result<Wanted, Failure> {
        let batch = self.load.batch(seq)?;
        let batch = batch.rows.first().ok_or("a batch without rows")?;
        let times = batch.column(0).as_primitive::<TimestampMicrosecondType>();
        let mut bytes = Vec::new();
        let mut rows = Vec::with_capacity(batch.num_rows());
        for row in 0..batch.num_rows() {
            bytes.clear();
            let print = fingerprint(batch, row, &mut bytes).ok_or("a column of an unknown type")?;
            rows.push((times.value(row), print));
        }
        Ok(Wanted {
            seen: vec![false; rows.len()],
            rows,
        })
    }

    /// What is not there.
    fn settle(&self, seen: &Seen, verdict: &mut Verdict) {
        verdict.batches = seen.len() as u64;
        let acknowledged = &self.heard.acknowledged;
        for seq in acknowledged.iter().filter(|seq| !seen.contains_key(seq)) {
            let all_gone = self.wanted(*seq).is_ok_and(|wanted| {
                let mut times = wanted.rows.iter();
                times.all(|(ts, _)| self.may_be_gone(*seq, *ts))
            });
            if !all_gone {
                verdict.lost.push(format!("lost: batch {seq}"));
            }
        }
        let mut partitions: BTreeMap<i64, BTreeSet<bool>> = BTreeMap::new();
        for (seq, wanted) in seen {
            for (n, ((ts, _), there)) in wanted.rows.iter().zip(&wanted.seen).enumerate() {
                if self.may_be_gone(*seq, *ts) {
                    partitions.entry(hour(*ts)).or_default().insert(*there);
                    if *there && self.heard.rotated {
                        verdict
                            .violations
                            .push(format!("risen: row {seq}/{n} of a partition that was removed"));
                    }
                } else if !there {
                    let what = if acknowledged.contains(seq) {
                        "lost"
                    } else {
                        "torn: half a batch:"
                    };
                    verdict.lost.push(format!("{what} row {seq}/{n}"));
                }
            }
        }
    }

    /// Whether rotation, once begun, may have removed the row.
    fn may_be_gone(&self, seq: u64, ts: i64) -> bool {
        self.heard.rotating && Load::OLD.contains(&seq) && self.load.scripted && hour(ts) < hour(NOON)
    }
}

fn hour(ts: i64) -> i64 {
    ts.div_euclid(3_600_000_000)
}

impl Verdict {
    fn of(violation: String) -> Self {
        Self {
            violations: vec![violation],
            ..Self::default()
        }
    }

    /// Fails with the first violations.
    ///
    /// # Errors
    /// If there are any.
    pub fn check(&self, about: &str) -> Result<(), Failure> {
        let all = || self.violations.iter().chain(&self.partial).chain(&self.lost);
        let first: Vec<_> = all().take(8).map(String::as_str).collect();
        if first.is_empty() {
            return Ok(());
        }
        Err(format!("{about}: {} violations: {}", all().count(), first.join("; ")).into())
    }
}

/// Opens a store, at the driver's time.
///
/// # Errors
/// What the engine says.
pub async fn open(settings: engine::Settings) -> Result<Arc<Engine>, engine::Error> {
    let clock = Clock::new(|| Timestamp::from_micros(NOON));
    Engine::open(settings, clock, Entropy::new(|bytes| bytes.fill(7))).await
}

/// Every batch of rows of a view.
///
/// # Errors
/// If a file cannot be read.
pub fn view_rows(view: &ReadView) -> Result<Vec<(Table, RecordBatch)>, Failure> {
    let mut all = Vec::new();
    for table in Table::ALL {
        all.extend(view.hot(table).iter().map(|hot| (table, hot.batch.clone())));
        for file in view.files(table) {
            all.extend(segment_rows(file)?.into_iter().map(|batch| (table, batch)));
        }
    }
    Ok(all)
}

/// A segment's rows as a query reads them.
fn segment_rows(segment: &DataFileHandle) -> Result<Vec<RecordBatch>, Failure> {
    if !segment.is_parquet() {
        return Ok(segment.lines()?.collect::<Result<Vec<_>, _>>()?);
    }
    let metadata = ArrowReaderMetadata::try_new(segment.metadata()?, ArrowReaderOptions::new())?;
    let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(segment.open()?, metadata).build()?;
    let batches = reader.collect::<Result<Vec<_>, _>>()?;
    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    if rows as u64 != segment.rows {
        return Err(format!("{rows} rows instead of {}", segment.rows).into());
    }
    Ok(batches)
}

/// A file's rows as anybody reads them.
fn plain_rows(path: &Path) -> Result<Vec<RecordBatch>, Failure> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path)?)?.build()?;
    Ok(reader.collect::<Result<Vec<_>, _>>()?)
}

/// The files below a folder; none where there is no folder.
///
/// # Errors
/// If a folder cannot be listed.
pub fn files_below(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = match std::fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error.into()),
        };
        for entry in entries {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            } else {
                files.push(entry.path());
            }
        }
    }
    files.sort();
    Ok(files)
}

/// The batch and row that a row says it is.
fn key_of(batch: &RecordBatch, row: usize) -> Option<(u64, usize)> {
    let column = batch
        .column_by_name("attributes")
        .or_else(|| batch.column_by_name("labels"))?;
    let text = column.as_string_opt::<i32>()?.value(row);
    let key = text.split("\"k\":\"").nth(1)?.split('"').next()?;
    let (seq, n) = key.split_once('/')?;
    Some((seq.parse().ok()?, n.parse().ok()?))
}

/// A hash over every column of a row; `None` for a type that no table has.
fn fingerprint(batch: &RecordBatch, row: usize, bytes: &mut Vec<u8>) -> Option<u64> {
    for column in batch.columns() {
        bytes.push(u8::from(column.is_null(row)));
        if column.is_null(row) {
            continue;
        }
        match column.data_type() {
            DataType::Timestamp(_, _) => {
                let ts = column.as_primitive_opt::<TimestampMicrosecondType>()?;
                bytes.extend_from_slice(&ts.value(row).to_le_bytes());
            }
            DataType::FixedSizeBinary(_) => bytes.extend_from_slice(column.as_fixed_size_binary_opt()?.value(row)),
            DataType::Utf8 => bytes.extend_from_slice(column.as_string_opt::<i32>()?.value(row).as_bytes()),
            DataType::Float32 => {
                let value = column.as_primitive_opt::<Float32Type>()?.value(row);
                bytes.extend_from_slice(&value.to_bits().to_le_bytes());
            }
            DataType::Float64 => {
                let value = column.as_primitive_opt::<Float64Type>()?.value(row);
                bytes.extend_from_slice(&value.to_bits().to_le_bytes());
            }
            _ => return None,
        }
        bytes.push(0xff);
    }
    let mut hasher = std::hash::DefaultHasher::new();
    std::hash::Hasher::write(&mut hasher, bytes);
    Some(std::hash::Hasher::finish(&hasher))
}
