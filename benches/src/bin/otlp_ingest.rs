//! OTLP → durable: rows per second and what they cost the Mixer; logs and metrics over HTTP and gRPC, next to the same rows as NDJSON and
//! to another receiver of OTLP.
//!
//! Method: `BENCH_ROWS` (5,000,000) log lines, those of `bench-http-ingest`, and as many metric points are written beforehand, as lines and
//! as requests of 10,000 records, one resource for each of their hosts; their times are the last seconds. Ours: the release Mixer with default
//! settings in a temporary folder; `BENCH_CONNECTIONS` (4) connections over loopback send them, not compressed, until all are answered:
//! durable and visible. The clients share the machine's cores. CPU and peak memory are the kernel's figures of the process, at the last answer
//! and when no row waits to be published into Parquet any more. Theirs: the collector Rotel, where `BENCH_PEERS=1 benches/run.sh` has
//! installed it, takes the same requests from the same clients. It promises less: it decodes what it takes and throws it away (the
//! exporter `blackhole`, without batches, which it would cut), so that its answer says that a request was read, not that anything of it is
//! kept; what it does is the least that any receiver does. `BENCH_ROUNDS` (3) rounds in turn; medians.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use benches::lines::{self, Bodies, LINES, send_bodies, write_lines};
use benches::otlp_bodies::write_requests;
use benches::{cost, load, median, setting};
use bytes::Bytes;
use harness::process::Process;
use harness::{Api, Failure, TestMixer, eventually, free_port, tool};
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use model::Table;

/// The other receiver.
const PEER: &str = "rotel";

/// How rows travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IngestWay {
    Ndjson,
    Http,
    Grpc,
}

/// Who takes rows, and how; all are compared with the first.
const RUNS: [(&str, IngestWay); 5] = [
    ("ours", IngestWay::Ndjson),
    ("ours", IngestWay::Http),
    ("ours", IngestWay::Grpc),
    (PEER, IngestWay::Http),
    (PEER, IngestWay::Grpc),
];

/// Where bodies go: over HTTP, and the port of gRPC.
struct IngestTarget {
    http: Api,
    grpc: u16,
}

/// A file of bodies.
struct BodyFile {
    path: PathBuf,
    bodies: Bodies,
}

/// What the rounds of a run measured.
#[derive(Default)]
struct RunFigures {
    /// Rows per second until the last answer.
    speeds: Vec<f64>,
    /// CPU seconds per million rows until then.
    answered: Vec<f64>,
    /// And until all rows are in files.
    published: Vec<f64>,
    peaks_mib: Vec<f64>,
}

fn main() -> Result<(), Failure> {
    println!("load before: {}", load());
    let root = std::env::var_os("BENCH_FOLDER").map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = tempfile::tempdir_in(root)?;
    let rows = usize::try_from(setting("BENCH_ROWS", 5_000_000))?;
    let peer = tool(PEER).ok();
    if peer.is_none() {
        println!("{PEER}: left out, BENCH_PEERS=1 benches/run.sh installs it");
    }
    for table in [Table::Logs, Table::Metrics] {
        let file =
            |name: &str, write: fn(&Path, Table, usize) -> Result<Bodies, Failure>| -> Result<BodyFile, Failure> {
                let path = folder.path().join(name);
                let bodies = write(&path, table, rows)?;
                Ok(BodyFile { path, bodies })
            };
        let (lines, requests) = (file("lines", write_lines)?, file("requests", write_requests)?);
        let mut all = RUNS.map(|_| RunFigures::default());
        for _ in 0..setting("BENCH_ROUNDS", 3) {
            for ((who, way), figures) in RUNS.iter().zip(&mut all) {
                let sent = if *way == IngestWay::Ndjson { &lines } else { &requests };
                match (*who, &peer) {
                    (PEER, Some(program)) => into_peer(program, *way, table, sent, figures)?,
                    (PEER, None) => {}
                    _ => into_mixer(*way, table, sent, figures)?,
                }
            }
        }
        print_medians(table, &mut all);
    }
    println!("load after: {}", load());
    Ok(())
}

fn print_medians(table: Table, all: &mut [RunFigures]) {
    let first = all.first_mut().map_or(0.0, |figures| median(&mut figures.speeds));
    for ((who, way), figures) in RUNS.iter().zip(all) {
        if figures.speeds.is_empty() {
            continue;
        }
        let speed = median(&mut figures.speeds);
        println!(
            "{table}, {who}, {way:?}: median {speed:.0} rows/s, {:.2} of the first, CPU s per million rows {:.2} when answered, {:.2} at \
             the end, peak {:.0} MiB",
            speed / first,
            median(&mut figures.answered),
            median(&mut figures.published),
            median(&mut figures.peaks_mib),
        );
    }
}

/// Sends all bodies to a new Mixer, and waits until their rows are in files.
#[allow(clippy::cast_precision_loss, reason = "counts and seconds of a bench")]
fn into_mixer(way: IngestWay, table: Table, sent: &BodyFile, figures: &mut RunFigures) -> Result<(), Failure> {
    let keys = [
        ("otlp.enabled", "true"),
        ("otlp.grpc_port", "0"),
        ("otlp.http_port", "0"),
        ("observability.embedded.flush_interval", "\"5s\""),
    ];
    let mut mixer = TestMixer::with(&keys, &[])?;
    let pid = mixer.process()?.pid().as_raw();
    let target = IngestTarget {
        http: mixer.api.clone(),
        grpc: mixer.otlp_grpc.ok_or("no port of gRPC")?.port(),
    };
    let (before, started) = (cost(pid), Instant::now());
    target.send(way, table, sent)?;
    let seconds = started.elapsed().as_secs_f64();
    let (rows, answered) = ((sent.bodies.len() * LINES) as f64, cost(pid));
    let storage = eventually("every row in a file", Duration::from_secs(120), || {
        let storage = mixer.api.get("/api/v1/storage").ok()?.json;
        (storage["data"]["hot_rows"] == 0).then_some(storage)
    })?;
    let (published, after) = (cost(pid), started.elapsed().as_secs_f64());
    let spent = |cost: benches::Cost| (cost.cpu_seconds - before.cpu_seconds) / rows * 1e6;
    println!(
        "{table}, ours, {way:?}: answered {:.0} rows/s, {:.2} CPU s per million rows; published {:.0} rows/s, {:.2} CPU s per million \
         rows, peak {:.0} MiB, {:.1} bytes per row",
        rows / seconds,
        spent(answered),
        rows / after,
        spent(published),
        published.peak_mib,
        storage["data"]["bytes"].as_f64().unwrap_or(0.0) / rows,
    );
    figures.speeds.push(rows / seconds);
    figures.answered.push(spent(answered));
    figures.published.push(spent(published));
    figures.peaks_mib.push(published.peak_mib);
    Ok(())
}

/// Sends all requests to a new receiver that keeps nothing.
#[allow(clippy::cast_precision_loss, reason = "counts and seconds of a bench")]
fn into_peer(
    program: &Path,
    way: IngestWay,
    table: Table,
    sent: &BodyFile,
    figures: &mut RunFigures,
) -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let (http, grpc) = (free_port()?, free_port()?);
    let (http_address, grpc_address) = (format!("127.0.0.1:{http}"), format!("127.0.0.1:{grpc}"));
    let args = [
        "start",
        "--exporter",
        "blackhole",
        "--disable-batching",
        "--otlp-http-endpoint",
        &http_address,
        "--otlp-grpc-endpoint",
        &grpc_address,
    ];
    let process = Process::start(program, &args, folder.path(), &folder.path().join("stderr"))?;
    for address in [&http_address, &grpc_address] {
        eventually("the peer", Duration::from_secs(20), || TcpStream::connect(address).ok())?;
    }
    let target = IngestTarget {
        http: Api::new(&format!("http://{http_address}")),
        grpc,
    };
    let pid = process.pid().as_raw();
    let (before, started) = (cost(pid), Instant::now());
    target.send(way, table, sent)?;
    let (seconds, answered) = (started.elapsed().as_secs_f64(), cost(pid));
    let rows = (sent.bodies.len() * LINES) as f64;
    let (speed, spent) = (rows / seconds, (answered.cpu_seconds - before.cpu_seconds) / rows * 1e6);
    println!(
        "{table}, {PEER}, {way:?}: answered {speed:.0} rows/s, {spent:.2} CPU s per million rows, peak {:.0} MiB; nothing is kept",
        answered.peak_mib
    );
    figures.speeds.push(speed);
    figures.answered.push(spent);
    figures.published.push(spent);
    figures.peaks_mib.push(answered.peak_mib);
    Ok(())
}

impl IngestTarget {
    /// Sends all bodies of a file; returns when all are answered.
    fn send(&self, way: IngestWay, table: Table, sent: &BodyFile) -> Result<(), Failure> {
        let connections = setting("BENCH_CONNECTIONS", 4);
        let (path, bodies) = (sent.path.as_path(), sent.bodies.iter().copied());
        let (http, grpc) = (&self.http, self.grpc);
        match way {
            IngestWay::Ndjson => lines::post(http, table, path, connections, bodies),
            IngestWay::Http => send_bodies(path, bodies, connections, || Ok(post_requests(http, table))),
            IngestWay::Grpc => send_bodies(path, bodies, connections, || export_requests(grpc, table)),
        }
    }
}

/// What posts requests of OTLP, each answered with 200 and nothing refused.
fn post_requests(api: &Api, table: Table) -> impl FnMut(&[u8]) -> Result<(), Failure> {
    let address = format!("/v1/{table}");
    move |request: &[u8]| -> Result<(), Failure> {
        let answer = api.send(&address, &[("Content-Type", "application/x-protobuf")], request)?;
        if answer.status != 200 || !answer.text.is_empty() {
            return Err(format!("{} {}", answer.status, answer.text).into());
        }
        Ok(())
    }
}

/// What exports requests over a connection of gRPC, each answered with `OK` and nothing refused.
fn export_requests(port: u16, table: Table) -> Result<impl FnMut(&[u8]) -> Result<(), Failure>, Failure> {
    let service = match table {
        Table::Metrics => "metrics.v1.MetricsService",
        _ => "logs.v1.LogsService",
    };
    let address = format!("http://127.0.0.1:{port}/opentelemetry.proto.collector.{service}/Export");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut client = runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
        stream.set_nodelay(true)?;
        let executor = TokioExecutor::new();
        let (client, connection) = http2::handshake::<_, _, Full<Bytes>>(executor, TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok::<_, Failure>(client)
    })?;
    Ok(move |request: &[u8]| -> Result<(), Failure> {
        let length = u32::try_from(request.len())?.to_be_bytes();
        let framed = [&[0][..], &length, request].concat();
        let request = Request::post(&address)
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(Full::new(Bytes::from(framed)))?;
        runtime.block_on(async {
            let answer = client.send_request(request).await?;
            let refused = answer.headers().get("grpc-status").cloned();
            let answered = answer.into_body().collect().await?;
            let status = answered.trailers().and_then(|all| all.get("grpc-status")).cloned();
            if status.is_none_or(|status| status != "0") || answered.to_bytes().len() != 5 {
                return Err(format!("refused: {refused:?}").into());
            }
            Ok(())
        })
    })
}
