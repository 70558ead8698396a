//! What somebody on the way sees of a Rack that joins, of its scenario and messages, and of HTTP ingest: over TLS nothing of it, and in clear
//! text all of it, which shows that the same look at the same traffic finds it.

use std::time::Duration;

use harness::link::Link;
use harness::{Api, TestRack, eventually, free_port, process};

use super::*;

const SOON: Duration = Duration::from_secs(60);

/// Texts of the scenario, of its messages and of ingested rows.
const MARKS: [&str; 3] = ["mark-of-a-scenario", "mark-of-a-message", "mark-of-a-row"];

const SCENARIO: &str = "
meta: { name: capture, version: '1' }
racks: [ { name: rack-a } ]
gears:
  - { name: numbers, type: generator, deploy: rack-a, config: { rate: 20 } }
  - { name: shape, type: map, deploy: rack-a, config: { data: \"'mark-of-' + (size(text) > 0 ? 'a-message' : 'mark-of-a-scenario')\" } }
  - { name: sink, type: log_sink, deploy: rack-a }
wires:
  - { from: numbers.out, to: shape.in }
  - { from: shape.out, to: sink.in, lane: guaranteed }
";

/// What passed, each connection and direction for itself.
struct CapturedTraffic {
    bus: Vec<Vec<u8>>,
    api: Vec<Vec<u8>>,
    /// The invite and the token.
    secrets: Vec<String>,
}

/// Everything that passes while a Rack joins by an invite, runs a scenario, and rows are ingested.
fn captured(tls: bool) -> Result<CapturedTraffic, Failure> {
    let (api, bus) = (free_port()?.to_string(), free_port()?.to_string());
    let way_to_bus = Link::recording(&format!("127.0.0.1:{bus}"))?;
    let way_to_api = Link::recording(&format!("127.0.0.1:{api}"))?;
    let folder = tempfile::tempdir()?;
    let (certificate, key) = self_signed(folder.path())?;
    let quoted = [&certificate, &key].map(|path| format!("{path:?}"));
    let url = format!("{:?}", way_to_bus.bus_url());
    let mut keys = vec![
        ("snake.tls", if tls { "\"on\"" } else { "\"off\"" }),
        ("snake.port", bus.as_str()),
        ("snake.url", url.as_str()),
        ("api.port", api.as_str()),
        ("enrollment.auto_adopt", "false"),
    ];
    if tls {
        keys.extend([
            ("api.tls_cert", quoted[0].as_str()),
            ("api.tls_key", quoted[1].as_str()),
        ]);
    }
    let (_home, _mixer, admin) = guarded(&keys)?;
    let scheme = if tls { "https" } else { "http" };
    let base = format!("{scheme}://localhost:{}", way_to_api.port());
    let client = Api::guarded(&base, &admin, tls.then_some(certificate.as_str()))?;

    let invite = client.post("/api/v1/invites", &json!({ "name": "rack-a" }))?;
    let text = invite.json["data"]["invite"].as_str().ok_or("no invite")?.to_owned();
    let mut rack = TestRack::with("rack-a", "nats://localhost:4222", &[], &[])?;
    let joined = process::run(&binary("platform")?, &["join", &text], rack.path(), &[])?;
    assert_eq!(joined.code, Some(0), "{}", joined.err);
    rack.start()?;
    let yaml = [("Content-Type", "application/yaml")];
    let stored = client.send("/api/v1/scenarios", &yaml, SCENARIO.as_bytes())?;
    assert!(stored.status < 300, "{}", stored.text);
    let active = client.post("/api/v1/scenarios/capture:1/activate", &json!({}))?;
    assert_eq!(active.status, 200, "{}", active.text);
    let now = chrono::Utc::now().to_rfc3339();
    let row = format!(
        "{{\"ts\": \"{now}\", \"level\": \"info\", \"message\": \"{}\"}}\n",
        MARKS[2]
    );
    let ndjson = [("Content-Type", "application/x-ndjson")];
    let ingested = client.send("/api/v1/ingest/logs", &ndjson, row.as_bytes())?;
    assert_eq!(ingested.status, 200, "{}", ingested.text);
    eventually("messages of the Rack and the row", SOON, || {
        let rows = client.rows("/api/v1/telemetry/logs?limit=1000").ok()?;
        let is_there = |mark: &str| {
            rows.iter()
                .any(|row| serde_json::to_string(row).is_ok_and(|row| row.contains(mark)))
        };
        (is_there(MARKS[1]) && is_there(MARKS[2])).then_some(())
    })?;
    Ok(CapturedTraffic {
        bus: way_to_bus.recorded(),
        api: way_to_api.recorded(),
        secrets: vec![text, admin],
    })
}

fn has(captured: &[Vec<u8>], text: &str) -> bool {
    let mut streams = captured.iter();
    streams.any(|bytes| bytes.windows(text.len()).any(|part| part == text.as_bytes()))
}

#[test]
fn who_reads_what_passes_of_an_enrolment_a_scenario_and_ingest_sees_no_secret_and_no_payload_over_tls()
-> Result<(), Failure> {
    let [scenario, message, row] = MARKS;
    let clear = captured(false)?;
    assert!(has(&clear.bus, scenario) && has(&clear.bus, message));
    assert!(has(&clear.api, scenario) && has(&clear.api, row));
    for secret in &clear.secrets {
        assert!(has(&clear.api, secret) && !has(&clear.bus, secret), "{secret}");
    }
    let CapturedTraffic { bus, api, secrets } = captured(true)?;
    for captured in [&bus, &api] {
        assert!(
            captured.iter().map(Vec::len).sum::<usize>() > 4_000,
            "it went another way"
        );
        for mark in MARKS {
            assert!(!has(captured, mark), "{mark}");
        }
        // Pieces of a secret are no better.
        for secret in &secrets {
            let pieces = secret.as_bytes().windows(12).map(String::from_utf8_lossy);
            for piece in pieces {
                assert!(!has(captured, &piece), "{piece} of {secret}");
            }
        }
    }
    Ok(())
}
