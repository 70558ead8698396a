//! Bodies of rows in a file, and the connections that send them: as NDJSON over HTTP here, in other ways elsewhere.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;
use std::time::SystemTime;

use harness::{Api, Failure};
use model::batch::row_json;
use model::{Table, Timestamp};
use serde_json::{Map, Value};

use crate::data::{ROWS_PER_SECOND, START, Source};

/// Rows of a body.
pub const LINES: usize = 10_000;

/// Where each body lies in a file, and how long it is.
pub type Bodies = Vec<(u64, usize)>;

/// A row, and when it happened.
pub(crate) type TimedRow = (Timestamp, Map<String, Value>);

/// Writes lines of a table whose rows happened in the last seconds; where each body of lines lies.
///
/// # Errors
/// If the file cannot be written.
pub fn write_lines(path: &Path, table: Table, rows: usize) -> Result<Bodies, Failure> {
    write_bodies(path, (table, rows), "NDJSON", |rows| {
        let mut text = Vec::new();
        for (ts, mut line) in rows {
            line.insert("ts".to_owned(), ts.to_string().into());
            line.retain(|_, value| !value.is_null());
            serde_json::to_writer(&mut text, &line)?;
            text.push(b'\n');
        }
        Ok(text)
    })
}

/// Writes bodies of [`LINES`] rows each that happened in the last seconds, as `encode` makes them; where each of them lies.
#[allow(clippy::cast_precision_loss, reason = "counts of a bench")]
pub(crate) fn write_bodies(
    path: &Path,
    (table, rows): (Table, usize),
    encoding: &str,
    encode: impl Fn(Vec<TimedRow>) -> Result<Vec<u8>, Failure>,
) -> Result<Bodies, Failure> {
    let mut source = Source::new(7);
    let now = Timestamp::from(SystemTime::now()).micros();
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let (mut bodies, mut bytes) = (Vec::new(), 0);
    for _ in 0..rows / LINES {
        let batch = source.batch(table, LINES)?;
        let timed = (0..LINES).map(|row| -> Result<TimedRow, Failure> {
            let row = row_json(&batch, row);
            let ts: Timestamp = row["ts"].as_str().unwrap_or_default().parse()?;
            let ts = now - rows as i64 * 1_000_000 / ROWS_PER_SECOND + ts.micros() - START.micros();
            Ok((Timestamp::from_micros(ts.min(now)), row))
        });
        let body = encode(timed.collect::<Result<_, _>>()?)?;
        bodies.push((bytes, body.len()));
        bytes += body.len() as u64;
        out.write_all(&body)?;
    }
    out.into_inner()?.sync_all()?;
    println!(
        "data: {rows} rows of {table}, {:.0} bytes per row as {encoding}",
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
    let address = format!("/api/v1/ingest/{table}");
    let (address, headers) = (address.as_str(), [("Content-Type", "application/x-ndjson")]);
    send_bodies(path, bodies, connections, || {
        Ok(move |body: &[u8]| -> Result<(), Failure> {
            let answer = api.send(address, &headers, body)?;
            if answer.status != 200 || answer.json["data"]["stored"] != LINES {
                return Err(format!("{} {}", answer.status, answer.text).into());
            }
            Ok(())
        })
    })
}

/// Sends bodies of a file over so many connections at once, until there is none left. `open` opens a connection: it gives what sends a body
/// on it and reads the answer.
///
/// # Errors
/// If the file cannot be read; what opening and sending say.
pub fn send_bodies<S: FnMut(&[u8]) -> Result<(), Failure>>(
    path: &Path,
    bodies: impl Iterator<Item = (u64, usize)> + Send,
    connections: u64,
    open: impl Fn() -> Result<S, Failure> + Sync,
) -> Result<(), Failure> {
    let (file, next) = (File::open(path)?, Mutex::new(bodies));
    let client = || -> Result<(), Failure> {
        let (mut send, mut body) = (open()?, Vec::new());
        loop {
            let taken = next.lock().map_err(|_| "a client died")?.next();
            let Some((at, length)) = taken else { return Ok(()) };
            body.resize(length, 0);
            file.read_exact_at(&mut body, at)?;
            send(&body)?;
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..connections).map(|_| scope.spawn(client)).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| "a client died")?)
    })
}
