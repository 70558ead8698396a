//! Hostile statements in a memory cgroup of 1 GiB.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use benches::data::START;
use benches::days::{HOUR, hours, mixer};
use benches::{quantile, setting};
use harness::{Api, Failure};
use model::Timestamp;
use serde_json::json;

/// What the group may use.
const GROUP: u64 = 1 << 30;
/// What [`download`] says where the connection was closed before an answer began.
pub(super) const NO_ANSWER: &str = "no answer at all";
/// Threads that each send one of these again and again: a statement, and the format of the answer.
const STATEMENTS: [(&str, &str); 6] = [
    (
        "SELECT message, attributes, count(*) FROM logs GROUP BY 1, 2 ORDER BY 3 DESC",
        "json",
    ),
    (
        "SELECT a.message, b.message FROM logs a CROSS JOIN logs b ORDER BY a.message, b.ts",
        "json",
    ),
    ("SELECT * FROM logs", "ndjson"),
    ("SELECT * FROM metrics ORDER BY value, ts", "csv"),
    (
        "SELECT count(*) FROM logs WHERE message ~ '(a|b|c|d)+.*[0-9]{3,9}.*z?$'",
        "json",
    ),
    (
        "SELECT count(DISTINCT a.span_id) FROM traces a JOIN logs b ON a.flux_id = b.flux_id",
        "json",
    ),
];

/// A memory cgroup, of the first or the second version; gone when it is dropped.
struct Group(PathBuf);

impl Group {
    fn new() -> Result<Self, Failure> {
        let name = format!("platform-bench-{}", std::process::id());
        let first = Path::new("/sys/fs/cgroup/memory");
        let second = Path::new("/sys/fs/cgroup/cgroup.controllers");
        let (root, limits) = if first.is_dir() {
            (
                first.to_owned(),
                ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"],
            )
        } else if second.is_file() {
            (PathBuf::from("/sys/fs/cgroup"), ["memory.max", "memory.swap.max"])
        } else {
            return Err("no memory cgroups are mounted".into());
        };
        let folder = root.join(name);
        std::fs::create_dir(&folder)?;
        let group = Self(folder);
        std::fs::write(group.0.join(limits[0]), GROUP.to_string())?;
        // Not every kernel counts swap; where there is none it does not matter.
        let swap = if limits[1] == "memory.swap.max" { 0 } else { GROUP };
        let _ = std::fs::write(group.0.join(limits[1]), swap.to_string());
        Ok(group)
    }

    fn add(&self, pid: i32) -> Result<(), Failure> {
        Ok(std::fs::write(self.0.join("cgroup.procs"), pid.to_string())?)
    }

    /// Most bytes that were in use at once, page cache included.
    fn peak(&self) -> u64 {
        ["memory.max_usage_in_bytes", "memory.peak"]
            .iter()
            .find_map(|name| std::fs::read_to_string(self.0.join(name)).ok()?.trim().parse().ok())
            .unwrap_or(0)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Refused while a process is in it, whose end is awaited before.
        let _ = std::fs::remove_dir(&self.0);
    }
}

pub(super) fn run() -> Result<(), Failure> {
    let group = match Group::new() {
        Ok(group) => group,
        Err(error) => {
            println!("hostile: LEFT OUT, this machine has no memory cgroup for it: {error}");
            return Ok(());
        }
    };
    let mut mixer = mixer("[query]\nmemory_limit_mb = 384\n[observability.embedded.storage]\nmemory_limit_mb = 128\n")?;
    let pid = mixer.process()?.pid().as_raw();
    group.add(pid)?;
    let span = Duration::from_secs(setting("BENCH_SECONDS", 60));
    let end = Instant::now() + span;
    let (answered, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    let base = mixer.api.base.clone();
    let everyday = std::thread::scope(|scope| {
        for number in 0..12 {
            let (base, answered, refused) = (&base, &answered, &refused);
            scope.spawn(move || {
                let (statement, format) = STATEMENTS[number % STATEMENTS.len()];
                while Instant::now() < end {
                    let good = download(base, statement, format).is_ok_and(|status| status == 200);
                    if good { answered } else { refused }.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        everyday(&mixer.api, end)
    })?;
    let alive = mixer.process()?.is_running();
    println!(
        "hostile: {} statements answered to their end, {} refused or broken off in {} s; the process {}",
        answered.load(Ordering::Relaxed),
        refused.load(Ordering::Relaxed),
        span.as_secs(),
        if alive { "lives" } else { "IS GONE" }
    );
    let (mut took, turned_away, others) = everyday;
    took.sort_by(f64::total_cmp);
    println!(
        "  the everyday question: {} answered, {turned_away} turned away, {} failed; p50 {:.1} ms, p99 {:.1} ms, worst {:.1} ms",
        took.len(),
        others.values().sum::<u64>(),
        quantile(&took, 0.5),
        quantile(&took, 0.99),
        quantile(&took, 1.0)
    );
    for ((status, code), count) in &others {
        println!("    {count} times {status} {code}");
    }
    let own = benches::cost(pid);
    println!(
        "  peak of the process {:.0} MiB, of the group with its page cache {} MiB of {}",
        own.peak_mib,
        group.peak() >> 20,
        GROUP >> 20
    );
    mixer.process()?.terminate(Duration::from_secs(60))?;
    if alive {
        Ok(())
    } else {
        Err("the Mixer did not survive".into())
    }
}

/// The milliseconds of answers, how often a question was turned away, how often it was answered with which other status and code.
type Everyday = (Vec<f64>, u64, BTreeMap<(u16, String), u64>);

/// The newest errors of an hour, ten times a second.
fn everyday(api: &Api, end: Instant) -> Result<Everyday, Failure> {
    let at = |hours: i64| Timestamp::from_micros(START.micros() + hours * HOUR);
    let path = format!(
        "/api/v1/telemetry/logs?since={}&until={}&min_level=error&limit=50",
        at(hours() - 2),
        at(hours() - 1)
    );
    let (mut took, mut turned_away, mut others) = (Vec::new(), 0, BTreeMap::new());
    while Instant::now() < end {
        let start = Instant::now();
        let answer = api.get(&path)?;
        match answer.status {
            200 => took.push(start.elapsed().as_secs_f64() * 1e3),
            429 | 503 => turned_away += 1,
            status => {
                let code = answer.json["code"].as_str().unwrap_or("without a code");
                *others.entry((status, code.to_owned())).or_default() += 1;
            }
        }
        std::thread::sleep(Duration::from_millis(100).saturating_sub(start.elapsed()));
    }
    Ok((took, turned_away, others))
}

/// Sends a statement and reads the answer to its end without keeping it; its status, if it had a proper end.
pub(super) fn download(base: &str, statement: &str, format: &str) -> Result<u16, Failure> {
    let address = base.strip_prefix("http://").ok_or("no address")?;
    let mut socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(Duration::from_secs(90)))?;
    let body = json!({ "query": statement }).to_string();
    write!(
        socket,
        "POST /api/v1/sql?format={format} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n{body}",
        body.len()
    )?;
    let (mut buffer, mut head, mut tail) = (vec![0; 64 << 10], Vec::new(), Vec::new());
    loop {
        let read = socket.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        if head.len() < 64 {
            head.extend_from_slice(&buffer[..read.min(64)]);
        }
        tail.extend_from_slice(&buffer[..read]);
        tail.drain(..tail.len().saturating_sub(5));
    }
    let status = head.get(9..12).ok_or(NO_ANSWER)?;
    let status = std::str::from_utf8(status)?.parse()?;
    let chunked_end = tail.ends_with(b"0\r\n\r\n");
    if status == 200 && !chunked_end {
        return Err("the answer broke off".into());
    }
    Ok(status)
}
