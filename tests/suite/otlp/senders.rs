//! Applications with OpenTelemetry's own SDKs: what they say that they exported is what is stored, field by field, once.
//!
//! The SDKs come by `make otlp-senders`; without them these tests say that they are left out.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use harness::process::run;
use harness::{Failure, TestMixer};
use serde_json::Value;

use super::faulty_proxy::{FaultyProxy, ProxiedProtocol};
use super::select;

const SIGNALS: [&str; 3] = ["logs", "traces", "metrics"];
/// Records of a run; the senders put ten into a request.
const RECORDS: &str = "200";

/// An application.
struct OtlpSender {
    language: &'static str,
    way: &'static str,
    program: PathBuf,
    script: PathBuf,
    /// Where its libraries are looked for.
    folder: PathBuf,
}

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn python() -> Result<Vec<OtlpSender>, Failure> {
    let program = project().join(".tools/otlp-python/bin/python");
    if !program.is_file() {
        println!("left out: OpenTelemetry's SDK for Python is missing; make otlp-senders installs it");
        return Ok(Vec::new());
    }
    let folder = project().canonicalize()?;
    let sender = |way| OtlpSender {
        language: "python",
        way,
        // No link is followed: the libraries are beside this name.
        program: folder.join(".tools/otlp-python/bin/python"),
        script: folder.join("tests/suite/otlp/senders.py"),
        folder: folder.clone(),
    };
    Ok(["grpc", "http", "json"].map(sender).into())
}

fn node() -> Result<Vec<OtlpSender>, Failure> {
    let folder = project().join(".tools/otlp-node");
    if !folder.join("node_modules").is_dir() {
        println!("left out: OpenTelemetry's SDK for JavaScript is missing; make otlp-senders installs it");
        return Ok(Vec::new());
    }
    let folder = folder.canonicalize()?;
    let script = project().join("tests/suite/otlp/senders.mjs").canonicalize()?;
    let sender = |way| OtlpSender {
        language: "node",
        way,
        program: "node".into(),
        script: script.clone(),
        folder: folder.clone(),
    };
    Ok(["grpc", "proto", "json"].map(sender).into())
}

impl OtlpSender {
    fn name(&self) -> String {
        format!("{}-{}", self.language, self.way)
    }

    /// Has it export to an address; the rows that are to be stored.
    fn export(&self, signal: &str, address: SocketAddr) -> Result<Vec<Value>, Failure> {
        let script = self.script.display().to_string();
        let endpoint = format!("http://{address}");
        let args = [script.as_str(), self.way, signal, endpoint.as_str(), RECORDS];
        let done = run(&self.program, &args, &self.folder, &[])?;
        assert_eq!(done.code, Some(0), "{} {signal}: {}", self.name(), done.err);
        let rows = done.out.lines().map(serde_json::from_str);
        Ok(rows.collect::<Result<_, _>>()?)
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

/// Where a sender sends to, and in which protocol.
fn address_of(mixer: &TestMixer, sender: &OtlpSender) -> Result<(SocketAddr, ProxiedProtocol), Failure> {
    let (address, protocol) = match sender.way {
        "grpc" => (mixer.otlp_grpc, ProxiedProtocol::Grpc),
        _ => (mixer.otlp_http, ProxiedProtocol::Http),
    };
    Ok((address.ok_or("no port of OTLP")?, protocol))
}

/// A row in one form: numbers are numbers, whether they were whole.
fn comparable(value: &Value) -> Value {
    match value {
        Value::Number(number) => number.as_f64().map_or(Value::Null, Value::from),
        Value::Array(list) => list.iter().map(comparable).collect(),
        Value::Object(object) => object
            .iter()
            // What a sender does not know.
            .filter(|(key, _)| !["entity_id", "flux_id"].contains(&key.as_str()))
            .map(|(key, value)| (key.clone(), comparable(value)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        other => other.clone(),
    }
}

fn sorted(rows: &[Value]) -> Vec<String> {
    let mut rows: Vec<String> = rows.iter().map(|row| comparable(row).to_string()).collect();
    rows.sort();
    rows
}

/// That what is stored of a sender is what it said, no row more and no row less.
fn assert_stored(mixer: &TestMixer, sender: &OtlpSender, signal: &str, sent: &[Value]) -> Result<(), Failure> {
    let statement = format!("SELECT * FROM {signal} WHERE entity_name = '{}'", sender.name());
    let stored = select(mixer, &statement)?;
    let (sent, stored) = (sorted(sent), sorted(&stored));
    let differs = sent.iter().zip(&stored).find(|(sent, stored)| sent != stored);
    println!(
        "{:12} {signal:8} {:>6} {:>6} {}",
        sender.name(),
        sent.len(),
        stored.len(),
        if sent == stored { "equal" } else { "DIFFERENT" }
    );
    assert!(sent.len() >= 200, "{}", sent.len());
    assert_eq!(sent.len(), stored.len(), "{} {signal}", sender.name());
    assert_eq!(differs, None, "{} {signal}", sender.name());
    Ok(())
}

#[test]
fn records_of_the_sdks_of_opentelemetry_are_stored_field_by_field() -> Result<(), Failure> {
    let senders = [python()?, node()?].into_iter().flatten();
    let mixer = mixer()?;
    println!(
        "{:12} {:8} {:>6} {:>6} field by field",
        "sender", "signal", "sent", "stored"
    );
    for sender in senders {
        let (address, _) = address_of(&mixer, &sender)?;
        for signal in SIGNALS {
            let sent = sender.export(signal, address)?;
            assert_stored(&mixer, &sender, signal, &sent)?;
        }
    }
    let letters = mixer.api.rows("/api/v1/telemetry/dead_letters")?;
    assert!(letters.is_empty(), "{letters:?}");
    Ok(())
}

/// Three of ten requests meet a fault: lost before the Mixer has it, lost on the way back, refused for a while.
#[test]
fn retries_of_the_sdks_of_opentelemetry_lose_and_double_nothing() -> Result<(), Failure> {
    // One request after another: the next one is the repetition of the one that failed.
    for sender in python()? {
        let mixer = mixer()?;
        let (address, protocol) = address_of(&mixer, &sender)?;
        for signal in SIGNALS {
            let proxy = FaultyProxy::start(address, protocol)?;
            let sent = sender.export(signal, proxy.address())?;
            let met = proxy.met();
            println!("{:12} {signal:8} {met:?}", sender.name());
            assert!(met.lost_requests > 0 && met.lost_answers > 0, "{met:?}");
            assert!(met.requests >= 20 + met.faults(), "{met:?}");
            assert_stored(&mixer, &sender, signal, &sent)?;
        }
    }
    Ok(())
}
