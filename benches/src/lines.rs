//! Rows as NDJSON over HTTP.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;
use std::time::SystemTime;

use harness::{Api, Failure};
use model::batch::row_json;
use model::{Table, Timestamp};

use crate::data::{ROWS_PER_SECOND, START, Source};

/// Lines of a body.
pub const LINES: usize = 10_000;

/// Where each body of lines lies in a file, and how long it is.
pub type Bodies = Vec<(u64, usize)>;

/// Writes lines of a table whose rows happened in the last seconds; where each body of lines lies.
///
/// # Errors
/// If the file cannot be written.
#[allow(clippy::cast_precision_loss, reason = "counts of a bench")]
pub fn write_lines(path: &Path, table: Table, rows: usize) -> Result<Bodies, Failure> {
    let mut source = Source::new(7);
    let (now, start) = (Timestamp::from(SystemTime::now()), START);
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let (mut bodies, mut bytes) = (Vec::new(), 0);
    for _ in 0..rows / LINES {
        let batch = source.batch(table, LINES)?;
        let mut text = Vec::new();
        for row in 0..LINES {
            let mut line = row_json(&batch, row);
            let ts: Timestamp = line["ts"].as_str().unwrap_or_default().parse()?;
            let ts = now.micros() - rows as i64 * 1_000_000 / ROWS_PER_SECOND + ts.micros() - start.micros();
            line.insert(
                "ts".to_owned(),
                Timestamp::from_micros(ts.min(now.micros())).to_string().into(),
            );
            line.retain(|_, value| !value.is_null());
            serde_json::to_writer(&mut text, &line)?;
            text.push(b'\n');
        }
        bodies.push((bytes, text.len()));
        bytes += text.len() as u64;
        out.write_all(&text)?;
    }
    out.into_inner()?.sync_all()?;
    println!(
        "data: {rows} rows of {table}, {:.0} bytes per NDJSON row",
        bytes as f64 / rows as f64
    );
    Ok(bodies)
}

/// Posts bodies of a table's rows over so many kept connections, until there is none left, each answered with 200 and all of its rows stored.
///
/// # Errors
/// If one is answered otherwise.
pub fn post(
    api: &Api,
    table: Table,
    path: &Path,
    connections: u64,
    bodies: impl Iterator<Item = (u64, usize)> + Send,
) -> Result<(), Failure> {
    let (file, next) = (File::open(path)?, Mutex::new(bodies));
    let address = format!("/api/v1/ingest/{table}");
    let send = || -> Result<(), Failure> {
        let mut body = Vec::new();
        loop {
            let taken = next.lock().map_err(|_| "a client died")?.next();
            let Some((at, length)) = taken else { return Ok(()) };
            body.resize(length, 0);
            file.read_exact_at(&mut body, at)?;
            let headers = [("Content-Type", "application/x-ndjson")];
            let answer = api.send(&address, &headers, &body)?;
            if answer.status != 200 || answer.json["data"]["stored"] != LINES {
                return Err(format!("{} {}", answer.status, answer.text).into());
            }
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..connections).map(|_| scope.spawn(send)).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| "a client died")?)
    })
}
