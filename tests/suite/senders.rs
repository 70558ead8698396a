//! Applications and agents as their makers ship them: what each says that it sent is what is stored, field by field, in one table.
//!
//! # Invariants
//!
//! - What was sent is said by the sender, or by what it keeps itself; none of it comes from the programs under test.
//! - A sender that is not installed is a row that says so and fails, unless [`PARTIAL`] is set; that none is there fails always.
//!
//! # Not here
//!
//! Installing them: `make senders`, which alone runs these tests.

mod documents;
mod faulty_proxy;
mod opentelemetry;
mod prometheus;
mod rsyslog;
mod sender_table;

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use harness::process::run;
use harness::{Failure, TestMixer, eventually};
use serde_json::Value;

use sender_table::SenderTable;

use crate::otlp::select;
use crate::readme::project;

const SOON: Duration = Duration::from_secs(60);
/// Records of a run.
const RECORDS: &str = "200";
/// Which packages are senders, by the list that pins them.
pub(crate) const SENDERS: [(&str, &[&str]); 3] = [
    (
        "requirements.txt",
        &[
            "opentelemetry-sdk",
            "opentelemetry-distro",
            "rotel",
            "prometheus-client",
            "elasticsearch",
            "python-logging-loki",
        ],
    ),
    ("requirements-elasticsearch8.txt", &["elasticsearch8"]),
    (
        "node/package.json",
        &[
            "@opentelemetry/sdk-trace-base",
            "@elastic/elasticsearch",
            "winston-loki",
            "pino-loki",
        ],
    ),
];
/// Why a sender did not run.
const MISSING: &str = "it is not installed: make senders";

/// The variable that allows senders to be absent.
const PARTIAL: &str = "SENDERS_PARTIAL";
/// Longer than senders and the Mixer hold a batch back: what is stored twice is there by then.
const BATCH_DEADLINE: Duration = Duration::from_secs(2);

/// A part of the table.
type SenderTrial = fn(&mut SenderTable) -> Result<(), Failure>;

const TRIALS: [(&str, SenderTrial); 7] = [
    ("OpenTelemetry's SDKs", opentelemetry::sdks),
    ("an existing application", opentelemetry::existing_application),
    ("rotel", opentelemetry::collector),
    ("Prometheus", prometheus::prometheus),
    ("clients of Elasticsearch", documents::elasticsearch),
    ("clients of Loki", documents::loki),
    ("rsyslog", rsyslog::rsyslog),
];

#[test]
fn what_real_senders_sent_is_stored_field_by_field() {
    let mut table = SenderTable::default();
    for (senders, trial) in TRIALS {
        if let Err(reason) = trial(&mut table) {
            table.fault(format!("{senders}: {reason}"));
        }
    }
    if std::env::var_os(PARTIAL).is_none() {
        table.require_all();
    }
    table.judge();
}

/// A file in the folder where senders are installed, if it is there; links are not followed.
fn installed(name: &str) -> Result<Option<PathBuf>, Failure> {
    let path = project().canonicalize()?.join(".tools").join(name);
    Ok(path.exists().then_some(path))
}

/// Python with the senders of PyPI, if they are installed.
fn python() -> Result<Option<PathBuf>, Failure> {
    installed("senders-python/bin/python")
}

/// The folder with the senders of npm, if they are installed.
fn node() -> Result<Option<PathBuf>, Failure> {
    let modules = installed("senders-node/node_modules")?;
    Ok(modules.and_then(|path| Some(path.parent()?.to_owned())))
}

/// A file of these tests.
fn file(name: &str) -> Result<String, Failure> {
    let folder = project().canonicalize()?.join("tests/suite/senders");
    Ok(folder.join(name).display().to_string())
}

/// A package with the version that a list pins, as `name (version)`.
pub(crate) fn pinned(list: &str, package: &str) -> Result<String, Failure> {
    let text = std::fs::read_to_string(file(list)?)?;
    let version = if list.ends_with(".json") {
        let pins: Value = serde_json::from_str(&text)?;
        pins["dependencies"][package].as_str().map(str::to_owned)
    } else {
        let pins = text
            .lines()
            .find_map(|line| line.strip_prefix(package)?.strip_prefix("=="));
        pins.and_then(|pin| pin.split(' ').next()).map(str::to_owned)
    };
    let version = version.ok_or_else(|| format!("{list} does not pin {package}"))?;
    Ok(format!("{package} ({version})"))
}

/// Runs an application to its end; what it says is to be stored.
fn said(program: &Path, folder: &Path, args: &[&str], envs: &[(&str, &str)]) -> Result<Vec<Value>, Failure> {
    let done = run(program, args, folder, envs)?;
    if done.code != Some(0) {
        return Err(format!("{args:?}: exit {:?}\n{}", done.code, done.err).into());
    }
    let rows = done.out.lines().map(serde_json::from_str);
    Ok(rows.collect::<Result<_, _>>()?)
}

/// The rows of a statement once there are so many and a double would be there, or those that came in time.
fn stored(mixer: &TestMixer, statement: &str, count: usize) -> Result<Vec<Value>, Failure> {
    let all = eventually("the rows", SOON, || {
        let rows = select(mixer, statement).ok()?;
        (rows.len() >= count).then_some(())
    });
    if all.is_ok() {
        std::thread::sleep(BATCH_DEADLINE);
    }
    select(mixer, statement)
}

/// Waits until something listens at an address.
fn listens(address: SocketAddr) -> Result<(), Failure> {
    eventually(&format!("a listener at {address}"), SOON, || {
        TcpStream::connect(address).ok().map(drop)
    })
}

/// Compares what an application said with the log records of its entity.
fn compare_logs(
    table: &mut SenderTable,
    (mixer, entity): (&TestMixer, &str),
    sender: &str,
    sent: &[Value],
) -> Result<(), Failure> {
    let statement = format!("SELECT * FROM logs WHERE entity_name = '{entity}'");
    let found = stored(mixer, &statement, sent.len())?;
    table.compare(sender, "logs", sent, &found);
    Ok(())
}

/// Nothing that was sent may have been refused.
fn no_dead_letters(table: &mut SenderTable, mixer: &TestMixer) -> Result<(), Failure> {
    let letters = mixer.api.rows("/api/v1/telemetry/dead_letters")?;
    if let Some(letter) = letters.first() {
        table.fault(format!("{} dead letters, the first: {letter:?}", letters.len()));
    }
    Ok(())
}
