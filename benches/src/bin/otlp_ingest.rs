//! OTLP → durable: rows per second and what they cost the Mixer; logs over HTTP and gRPC, metrics over HTTP, next to the same rows as NDJSON.
//!
//! Method: `BENCH_ROWS` (5,000,000) log lines, those of `bench-http-ingest`, and as many metric points are written beforehand as requests of
//! 10,000 records, one resource for each of their hosts; their times are the last seconds. The release Mixer with default settings in a
//! temporary folder; `BENCH_CONNECTIONS` (4) connections over loopback send them, not compressed, until all are answered: durable and visible.
//! The clients share the machine's cores. CPU and peak memory are the kernel's figures of the Mixer's process, at the last answer and when
//! no row waits to be published into Parquet any more. `BENCH_ROUNDS` (3) rounds in turn; medians.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use benches::lines::{self, Bodies, LINES, write_lines};
use benches::otlp_bodies::write_requests;
use benches::{cost, load, median, setting};
use bytes::Bytes;
use harness::{Api, Failure, TestMixer, eventually, free_port};
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use model::Table;

/// How rows travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IngestWay {
    Ndjson,
    Http,
    Grpc,
}

fn main() -> Result<(), Failure> {
    println!("load before: {}", load());
    let root = std::env::var_os("BENCH_FOLDER").map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = tempfile::tempdir_in(root)?;
    let rows = usize::try_from(setting("BENCH_ROWS", 5_000_000))?;
    for table in [Table::Logs, Table::Metrics] {
        let (lines, requests) = (folder.path().join("lines"), folder.path().join("requests"));
        let bodies = [
            write_lines(&lines, table, rows)?,
            write_requests(&requests, table, rows)?,
        ];
        let mut figures = vec![(Vec::new(), Vec::new()); 3];
        let ways = [IngestWay::Ndjson, IngestWay::Http, IngestWay::Grpc];
        for _ in 0..setting("BENCH_ROUNDS", 3) {
            for (way, (speeds, costs)) in ways.iter().zip(&mut figures) {
                let sent = match way {
                    IngestWay::Ndjson => (lines.as_path(), &bodies[0]),
                    _ => (requests.as_path(), &bodies[1]),
                };
                let (speed, cost) = ingest(*way, table, sent)?;
                speeds.push(speed);
                costs.push(cost);
            }
        }
        for (way, (speeds, costs)) in ways.iter().zip(&mut figures) {
            println!(
                "{table} {way:?}: median {:.0} rows/s, {:.2} CPU s per million rows",
                median(speeds),
                median(costs)
            );
        }
    }
    println!("load after: {}", load());
    Ok(())
}

/// Rows per second until the last answer, and CPU seconds per million rows until all are published.
#[allow(clippy::cast_precision_loss, reason = "counts and seconds of a bench")]
fn ingest(way: IngestWay, table: Table, (path, bodies): (&Path, &Bodies)) -> Result<(f64, f64), Failure> {
    let port = free_port()?;
    let (grpc, http) = (port.to_string(), free_port()?.to_string());
    let keys = [
        ("otlp.enabled", "true"),
        ("otlp.grpc_port", grpc.as_str()),
        ("otlp.http_port", http.as_str()),
        ("observability.embedded.flush_interval", "\"5s\""),
    ];
    let mut mixer = TestMixer::with(&keys, &[])?;
    let pid = mixer.process()?.pid().as_raw();
    let (before, started) = (cost(pid), Instant::now());
    let connections = setting("BENCH_CONNECTIONS", 4);
    match way {
        IngestWay::Ndjson => lines::post(&mixer.api, table, path, connections, bodies.iter().copied())?,
        IngestWay::Http => post(&mixer.api, table, path, connections, bodies)?,
        IngestWay::Grpc => export(port, table, path, connections, bodies)?,
    }
    let seconds = started.elapsed().as_secs_f64();
    let (rows, answered) = ((bodies.len() * LINES) as f64, cost(pid));
    let storage = eventually("every row in a file", Duration::from_secs(120), || {
        let storage = mixer.api.get("/api/v1/storage").ok()?.json;
        (storage["data"]["hot_rows"] == 0).then_some(storage)
    })?;
    let (published, after) = (cost(pid), started.elapsed().as_secs_f64());
    let spent = |cost: benches::Cost| (cost.cpu_seconds - before.cpu_seconds) / rows * 1e6;
    println!(
        "{table} {way:?}: answered {:.0} rows/s, {:.2} CPU s per million rows; published {:.0} rows/s, {:.2} CPU s per million rows, \
         peak {:.0} MiB, {:.1} bytes per row",
        rows / seconds,
        spent(answered),
        rows / after,
        spent(published),
        published.peak_mib,
        storage["data"]["bytes"].as_f64().unwrap_or(0.0) / rows,
    );
    Ok((rows / seconds, spent(published)))
}

/// Posts requests over kept connections, each answered with 200 and nothing refused.
fn post(api: &Api, table: Table, path: &Path, connections: u64, bodies: &Bodies) -> Result<(), Failure> {
    let (file, next) = (File::open(path)?, Mutex::new(bodies.iter().copied()));
    let address = format!("/v1/{table}");
    let send = || -> Result<(), Failure> {
        let mut body = Vec::new();
        loop {
            let taken = next.lock().map_err(|_| "a client died")?.next();
            let Some((at, length)) = taken else { return Ok(()) };
            body.resize(length, 0);
            file.read_exact_at(&mut body, at)?;
            let answer = api.send(&address, &[("Content-Type", "application/x-protobuf")], &body)?;
            if answer.status != 200 || !answer.text.is_empty() {
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

/// Exports requests over gRPC connections, each answered with `OK` and nothing refused.
fn export(port: u16, table: Table, path: &Path, connections: u64, bodies: &Bodies) -> Result<(), Failure> {
    let (file, next) = (File::open(path)?, Mutex::new(bodies.iter().copied()));
    let service = match table {
        Table::Metrics => "metrics.v1.MetricsService",
        _ => "logs.v1.LogsService",
    };
    let address = format!("http://127.0.0.1:{port}/opentelemetry.proto.collector.{service}/Export");
    let send = || -> Result<(), Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
            stream.set_nodelay(true)?;
            let (mut client, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
            let connection = tokio::spawn(connection);
            loop {
                let taken = next.lock().map_err(|_| "a client died")?.next();
                let Some((at, length)) = taken else { break };
                let mut body = vec![0; 5 + length];
                body[1..5].copy_from_slice(&u32::try_from(length)?.to_be_bytes());
                file.read_exact_at(&mut body[5..], at)?;
                let request = Request::post(&address)
                    .header("content-type", "application/grpc")
                    .header("te", "trailers")
                    .body(Full::new(Bytes::from(body)))?;
                let answer = client.send_request(request).await?;
                let refused = answer.headers().get("grpc-status").cloned();
                let answered = answer.into_body().collect().await?;
                let status = answered.trailers().and_then(|all| all.get("grpc-status")).cloned();
                if status.is_none_or(|status| status != "0") || answered.to_bytes().len() != 5 {
                    return Err(format!("refused: {refused:?}").into());
                }
            }
            connection.abort();
            Ok(())
        })
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..connections).map(|_| scope.spawn(send)).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| "a client died")?)
    })
}
