//! The engine's own sealed files next to the same rows written by others, byte for byte and column by column.
//!
//! Method: the rows of a table in their order of arrival, as the input of everybody. `ours, at full speed`: appended by 32 at
//! a time, which makes large row groups that the seal copies. `ours, slowly`: published every 16,500 rows, which makes small
//! groups that the seal merges. Both with default settings, what all sealed files take on the disk, with everything in them; a
//! sealed file keeps the length of the open one over a hole.
//! Others (`benches/sizes.py`, with `BENCH_PYTHON`) write the rows in their order of arrival, too, with zstd and their
//! defaults otherwise. `rest`: what is no column: filters, page indexes, footers.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMicrosecondType;
use benches::feed::{BATCH_ROWS, Batches, append_all, batch, open, runtime, seal_all, write};
use engine::Engine;
use harness::Failure;
use model::{Table, Timestamp};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};

/// Batches that a slow stream has between two publishes.
const SLOWLY: u64 = 33;

/// Prints a line for each writer.
pub(crate) fn compare(table: Table, rows: &RecordBatch) -> Result<(), Failure> {
    let root = std::env::var_os("BENCH_FOLDER").map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = tempfile::tempdir_in(root)?;
    println!("{table}: {} rows", rows.num_rows());
    println!("| writer | bytes/row | rest | columns, bytes/row |\n|---|---|---|---|");
    let batches = folder.path().join("batches");
    write(sliced(rows), &batches)?;
    for (name, is_slow) in [("ours, at full speed", false), ("ours, slowly", true)] {
        let store = tempfile::tempdir_in(folder.path())?;
        runtime()?.block_on(fill(table, &batches, store.path(), is_slow))?;
        let mut files = Vec::new();
        sealed_files(store.path(), &mut files)?;
        show(name, &files)?;
    }
    let Some(python) = std::env::var_os("BENCH_PYTHON") else {
        println!("others: left out, BENCH_PEERS=1 installs them");
        return Ok(());
    };
    let input = folder.path().join("input.parquet");
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let mut writer = ArrowWriter::try_new(File::create(&input)?, table.schema(), Some(properties))?;
    writer.write(rows)?;
    writer.close()?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("sizes.py");
    let status = Command::new(python)
        .arg(script)
        .arg(&input)
        .arg(folder.path())
        .status()?;
    if !status.success() {
        return Err(format!("sizes.py ended with {status}").into());
    }
    for name in ["duckdb", "datafusion", "clickhouse", "polars", "pyarrow"] {
        show(name, &[folder.path().join(format!("{name}.parquet"))])?;
    }
    Ok(())
}

/// Batches of a Rack's size, each appended when its last row happened.
fn sliced(rows: &RecordBatch) -> impl Iterator<Item = Result<(Timestamp, RecordBatch), Failure>> {
    (0..rows.num_rows()).step_by(BATCH_ROWS).map(|at| {
        let batch = rows.slice(at, BATCH_ROWS.min(rows.num_rows() - at));
        let times = batch.column(0).as_primitive_opt::<TimestampMicrosecondType>();
        let last = times.and_then(|times| times.values().iter().max().copied());
        Ok((Timestamp::from_micros(last.ok_or("rows without times")?), batch))
    })
}

/// A store of all the rows, sealed.
async fn fill(table: Table, batches: &Path, store: &Path, is_slow: bool) -> Result<(), Failure> {
    let change = |settings: &mut engine::Settings| {
        settings.flush_interval = Duration::from_secs(1);
    };
    let (engine, now) = open(store, change).await?;
    if is_slow {
        append_slowly(&engine, &now, table, batches).await?;
    } else {
        append_all(&engine, &now, table, batches).await?;
    }
    engine.flush().await?;
    seal_all(&engine, &now).await?;
    engine.close().await?;
    Ok(())
}

async fn append_slowly(engine: &Engine, now: &Arc<AtomicI64>, table: Table, file: &Path) -> Result<(), Failure> {
    let mut batches = Batches::open(file)?;
    let mut seq = 0;
    while let Some((at, payload)) = batches.read()? {
        seq += 1;
        now.fetch_max(at, Ordering::Relaxed);
        engine.append(batch(table, seq, &payload)?).await?;
        if seq % SLOWLY == 0 {
            engine.flush().await?;
        }
    }
    Ok(())
}

fn sealed_files(folder: &Path, into: &mut Vec<PathBuf>) -> Result<(), Failure> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        // Hidden folders have retired and staged files.
        if entry.file_name().to_string_lossy().starts_with('.') {
            continue;
        }
        let path = entry.path();
        if path.is_dir() {
            sealed_files(&path, into)?;
        } else if path.extension().is_some_and(|extension| extension == "parquet") {
            into.push(path);
        }
    }
    Ok(())
}

#[allow(clippy::cast_precision_loss, reason = "counts of a bench")]
fn show(name: &str, files: &[PathBuf]) -> Result<(), Failure> {
    let (mut rows, mut all) = (0, 0);
    let mut columns: Vec<(String, i64)> = Vec::new();
    for path in files {
        let file = File::open(path)?;
        file.sync_all()?;
        let metadata = file.metadata()?;
        all += metadata.len().min(metadata.blocks() * 512);
        let reader = SerializedFileReader::new(file)?;
        for group in reader.metadata().row_groups() {
            rows += group.num_rows();
            columns.resize(group.num_columns().max(columns.len()), (String::new(), 0));
            for (sum, column) in columns.iter_mut().zip(group.columns()) {
                sum.0 = column.column_path().string();
                sum.1 += column.compressed_size();
            }
        }
    }
    let each = |bytes: f64| bytes / rows.max(1) as f64;
    let in_columns: i64 = columns.iter().map(|column| column.1).sum();
    let columns: Vec<String> = columns
        .iter()
        .map(|(name, bytes)| format!("{name} {:.2}", each(*bytes as f64)))
        .collect();
    println!(
        "| {name} | {:.2} | {:.2} | {} |",
        each(all as f64),
        each(all as f64 - in_columns as f64),
        columns.join(", ")
    );
    Ok(())
}
