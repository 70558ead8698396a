//! OpenTelemetry: its own SDKs straight to the Mixer, through faults too, and a collector on the way.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use harness::process::{Process, run};
use harness::{Failure, TestMixer, free_address};
use serde_json::Value;

use super::faulty_proxy::{FaultyProxy, ProxiedProtocol};
use super::sender_table::SenderTable;
use super::{MISSING, RECORDS, file, installed, listens, no_dead_letters, node, pinned, python, said, stored};

const SIGNALS: [&str; 3] = ["logs", "traces", "metrics"];
/// Rows of a request.
const BATCH: usize = 10;

/// An application.
struct OtlpSender {
    language: &'static str,
    way: &'static str,
    /// Of the package with the SDK.
    version: String,
    program: PathBuf,
    script: String,
    /// Where its libraries are looked for.
    folder: PathBuf,
}

fn python_sdks(table: &mut SenderTable) -> Result<Vec<OtlpSender>, Failure> {
    let version = pinned("requirements.txt", "opentelemetry-sdk")?;
    let Some(program) = python()? else {
        table.not_run(&version, MISSING);
        return Ok(Vec::new());
    };
    let script = file("sdk.py")?;
    let sender = |way| OtlpSender {
        language: "python",
        way,
        version: version.clone(),
        program: program.clone(),
        script: script.clone(),
        folder: std::env::temp_dir(),
    };
    Ok(["grpc", "http", "json"].map(sender).into())
}

fn node_sdks(table: &mut SenderTable) -> Result<Vec<OtlpSender>, Failure> {
    let version = pinned("node/package.json", "@opentelemetry/sdk-trace-base")?;
    let Some(folder) = node()? else {
        table.not_run(&version, MISSING);
        return Ok(Vec::new());
    };
    let script = file("opentelemetry.mjs")?;
    let sender = |way| OtlpSender {
        language: "node",
        way,
        version: version.clone(),
        program: "node".into(),
        script: script.clone(),
        folder: folder.clone(),
    };
    Ok(["grpc", "proto", "json"].map(sender).into())
}

impl OtlpSender {
    /// The service that it is.
    fn service(&self) -> String {
        format!("{}-{}", self.language, self.way)
    }

    /// Has it export to an address, under the name of a service if it can; the rows that are to be stored.
    fn export(&self, signal: &str, address: SocketAddr, service: &str) -> Result<Vec<Value>, Failure> {
        let endpoint = format!("http://{address}");
        let args = [self.script.as_str(), self.way, signal, &endpoint, RECORDS, service];
        said(&self.program, &self.folder, &args, &[])
    }

    /// Whether it repeats requests that failed: the SDK for JavaScript does not over gRPC, whatever the status.
    fn repeats(&self) -> bool {
        (self.language, self.way) != ("node", "grpc")
    }

    /// What is to be stored of rows that it sent through faults.
    fn arrived(&self, sent: Vec<Value>) -> Vec<Value> {
        if self.repeats() {
            return sent;
        }
        let batches = sent.chunks(BATCH).enumerate();
        let arrived = batches.filter(|(number, _)| FaultyProxy::forwards(*number));
        arrived.flat_map(|(_, batch)| batch).cloned().collect()
    }

    /// Where it sends to, and in which protocol.
    fn address(&self, mixer: &TestMixer) -> Result<(SocketAddr, ProxiedProtocol), Failure> {
        let (address, protocol) = match self.way {
            "grpc" => (mixer.otlp_grpc, ProxiedProtocol::Grpc),
            _ => (mixer.otlp_http, ProxiedProtocol::Http),
        };
        Ok((address.ok_or("no port of OTLP")?, protocol))
    }
}

fn mixer() -> Result<TestMixer, Failure> {
    let keys = [
        ("otlp.enabled", "true"),
        ("otlp.http_port", "0"),
        ("otlp.grpc_port", "0"),
        ("otlp.entity", "[\"service.name\"]"),
    ];
    TestMixer::with(&keys, &[])
}

/// The rows of a service, no fewer than were sent if they come.
fn of_service(mixer: &TestMixer, signal: &str, service: &str, sent: &[Value]) -> Result<Vec<Value>, Failure> {
    let statement = format!("SELECT * FROM {signal} WHERE entity_name = '{service}'");
    stored(mixer, &statement, sent.len())
}

/// Applications that send to the Mixer.
pub(super) fn sdks(table: &mut SenderTable) -> Result<(), Failure> {
    let senders = [python_sdks(table)?, node_sdks(table)?].into_iter().flatten();
    let mixer = mixer()?;
    for sender in senders {
        let (address, _) = sender.address(&mixer)?;
        let service = sender.service();
        for signal in SIGNALS {
            let sent = sender.export(signal, address, &service)?;
            let found = of_service(&mixer, signal, &service, &sent)?;
            table.compare(&format!("{} by {}", sender.version, sender.way), signal, &sent, &found);
        }
    }
    no_dead_letters(table, &mixer)
}

/// The program of the collector rotel, beside its package.
fn rotel_program(python: &Path) -> Result<PathBuf, Failure> {
    let asked = ["-c", "import sysconfig; print(sysconfig.get_path('purelib'))"];
    let packages = run(python, &asked, &std::env::temp_dir(), &[])?.out;
    Ok(Path::new(packages.trim()).join("rotel/rotel-agent"))
}

/// A collector between applications and the Mixer, with its own settings but for the addresses.
pub(super) fn collector(table: &mut SenderTable) -> Result<(), Failure> {
    let version = pinned("requirements.txt", "rotel")?;
    let senders = python_sdks(&mut SenderTable::default())?;
    let Some(python) = python()? else {
        table.not_run(&version, MISSING);
        return Ok(());
    };
    let (mixer, program, folder) = (mixer()?, rotel_program(&python)?, tempfile::tempdir()?);
    for sender in senders.iter().filter(|sender| sender.way != "json") {
        let to = format!("http://{}", sender.address(&mixer)?.0);
        let (grpc, http) = (free_address()?, free_address()?);
        let (at_grpc, at_http) = (grpc.to_string(), http.to_string());
        let args = [
            "start",
            "--exporter",
            "otlp",
            "--otlp-exporter-protocol",
            sender.way,
            "--otlp-exporter-endpoint",
            &to,
            "--otlp-grpc-endpoint",
            &at_grpc,
            "--otlp-http-endpoint",
            &at_http,
        ];
        let log = folder.path().join("rotel.log");
        let _collector = Process::start(&program, &args, folder.path(), &log)?;
        let address = if sender.way == "grpc" { grpc } else { http };
        listens(address)?;
        let service = format!("rotel-{}", sender.way);
        for signal in SIGNALS {
            let sent = sender.export(signal, address, &service)?;
            let found = of_service(&mixer, signal, &service, &sent)?;
            table.compare(&format!("{version} by {}", sender.way), signal, &sent, &found);
        }
    }
    Ok(())
}

/// An application that knows nothing of OpenTelemetry, with two environment variables and the launcher that its distribution for Python has.
pub(super) fn existing_application(table: &mut SenderTable) -> Result<(), Failure> {
    let version = pinned("requirements.txt", "opentelemetry-distro")?;
    let Some((launcher, python)) = installed("senders-python/bin/opentelemetry-instrument")?.zip(python()?) else {
        table.not_run(&version, MISSING);
        return Ok(());
    };
    let mixer = TestMixer::with(&[], &[])?;
    let base = mixer.api.base.as_str();
    let (python, script) = (python.display().to_string(), file("existing.py")?);
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", base),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
    ];
    let sent = said(&launcher, mixer.path(), &[&python, &script, base, RECORDS], &variables)?;
    let statement = "SELECT span_name AS name, attributes->>'span.kind' AS kind, attributes->>'http.url' AS url, \
                     attributes->>'http.status_code' AS code, status FROM traces";
    let found = stored(&mixer, statement, sent.len())?;
    table.compare(&format!("{version}, two variables"), "traces", &sent, &found);
    Ok(())
}

/// Three of ten requests meet a fault: lost before the Mixer has it, lost on the way back, refused for a while.
#[test]
fn retries_of_the_sdks_of_opentelemetry_lose_and_double_nothing() -> Result<(), Failure> {
    let mut table = SenderTable::default();
    // One request after another: the next one is the repetition of the one that failed.
    let senders = [python_sdks(&mut table)?, node_sdks(&mut table)?];
    for sender in senders.into_iter().flatten() {
        let mixer = mixer()?;
        let (address, protocol) = sender.address(&mixer)?;
        let service = sender.service();
        for signal in SIGNALS {
            let proxy = FaultyProxy::start(address, protocol)?;
            let sent = sender.export(signal, proxy.address(), &service)?;
            let met = proxy.met();
            println!("{service:12} {signal:8} {met:?}");
            assert!(met.lost_requests > 0 && met.lost_answers > 0, "{met:?}");
            let repeated = if sender.repeats() { met.faults() } else { 0 };
            assert!(met.requests >= sent.len() / BATCH + repeated, "{met:?}");
            let arrived = sender.arrived(sent);
            let found = of_service(&mixer, signal, &service, &arrived)?;
            table.compare(
                &format!("{} by {}, with faults", sender.version, sender.way),
                signal,
                &arrived,
                &found,
            );
        }
    }
    table.judge();
    Ok(())
}
