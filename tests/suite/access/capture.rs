//! What somebody on the way sees of a Rack that joins, of its scenario and messages, and of HTTP ingest: with the defaults beyond loopback, and
//! on a bus in operator mode at a `tls://` address, nothing of it; in clear text all of it, which shows that the same look at the same traffic
//! finds it.
//!
//! Not here: that clear text beyond loopback must be allowed first (`config_keys::bus`).

use std::net::Ipv4Addr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use harness::link::Link;
use harness::process::Process;
use harness::{Api, TestRack, eventually, external_bus, free_port, outside_address, process};

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

/// Who speaks TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CaptureCase {
    /// Nobody.
    ClearText,
    /// Who does so beyond loopback by default, and the API, which is not opened there without.
    Defaults,
    /// The API and an external bus in operator mode.
    OperatorMode,
}

/// A Mixer that is reached over links that record what passes.
struct RecordedMixer {
    _mixer: TestMixer,
    /// The bus where it is external.
    _server: Option<Process>,
    client: Api,
    admin: String,
    /// Whom the system trusts for the Mixer and its Racks.
    envs: Vec<(&'static str, String)>,
    to_bus: Link,
    to_api: Link,
    _folder: tempfile::TempDir,
}

fn quoted(value: impl ToString) -> String {
    format!("{:?}", value.to_string())
}

/// An external bus server in operator mode with this certificate, its URL, and the file of the key that signs its accounts.
fn bus_in_operator_mode(folder: &Path, [certificate, key]: [&str; 2]) -> Result<(Process, String, String), Failure> {
    let founded = process::run(
        &binary("platform-mixer")?,
        &["bus-operator"],
        folder,
        &[("PLATFORM_STORE_DIR", "data")],
    )?;
    assert_eq!(founded.code, Some(0), "{}", founded.err);
    let more = format!(
        "tls {{ cert_file: {certificate:?}, key_file: {key:?} }}\n{}",
        founded.out
    );
    let (server, url) = external_bus::start_with(folder, "256MB", &more)?;
    let signing_key = folder.join("data/keys/nats-signing.nk").display().to_string();
    Ok((server, url, signing_key))
}

impl RecordedMixer {
    fn start(case: CaptureCase) -> Result<Self, Failure> {
        let folder = tempfile::tempdir()?;
        let address = outside_address()?.unwrap_or_else(|| {
            println!(
                "LEFT OUT: this machine has no IPv4 address beyond loopback, so TLS of the bus is not its default"
            );
            Ipv4Addr::LOCALHOST
        });
        let (certificate, key) = self_signed(folder.path())?;
        let (tokens, admin) = admin_token(folder.path())?;
        let (api, bus) = (free_port()?.to_string(), free_port()?.to_string());
        let to_api = Link::recording(&format!("{address}:{api}"))?;
        let mut keys = vec![
            ("api.auth", quoted("tokens")),
            ("api.tokens_file", quoted(tokens.display())),
            ("api.host", quoted(address)),
            ("api.port", api),
            ("enrollment.auto_adopt", "false".to_owned()),
        ];
        let (server, to_bus) = if case == CaptureCase::OperatorMode {
            let (server, url, signing_key) = bus_in_operator_mode(folder.path(), [&certificate, &key])?;
            let link = Link::recording(&url)?;
            keys.extend([
                ("snake.server", quoted("external")),
                ("snake.url", quoted(link.bus_url().replace("nats://", "tls://"))),
                ("snake.max_store_mb", "200".to_owned()),
                ("snake.operator_key", quoted(signing_key)),
            ]);
            (Some(server), link)
        } else {
            let link = Link::recording(&format!("{address}:{bus}"))?;
            keys.extend([
                ("snake.host", quoted(address)),
                ("snake.port", bus),
                ("snake.url", quoted(link.bus_url())),
            ]);
            (None, link)
        };
        let scheme = if case == CaptureCase::ClearText {
            keys.push(("snake.tls", quoted("off")));
            keys.extend(["snake.allow_insecure", "api.allow_insecure"].map(|key| (key, "true".to_owned())));
            "http"
        } else {
            keys.extend([("api.tls_cert", quoted(&certificate)), ("api.tls_key", quoted(&key))]);
            "https"
        };
        if case == CaptureCase::Defaults && address.is_loopback() {
            keys.push(("snake.tls", quoted("on")));
        }
        let base = format!("{scheme}://localhost:{}", to_api.port());
        let client = Api::guarded(&base, &admin, (scheme == "https").then_some(certificate.as_str()))?;
        let envs = match case {
            CaptureCase::OperatorMode => vec![("SSL_CERT_FILE", certificate)],
            CaptureCase::ClearText | CaptureCase::Defaults => Vec::new(),
        };
        let keys: Vec<_> = keys.iter().map(|(key, value)| (*key, value.as_str())).collect();
        let shown: Vec<_> = envs.iter().map(|(name, value)| (*name, value.as_str())).collect();
        Ok(Self {
            _mixer: TestMixer::with(&keys, &shown)?,
            _server: server,
            client,
            admin,
            envs,
            to_bus,
            to_api,
            _folder: folder,
        })
    }
}

/// What passed, each connection and direction for itself.
struct CapturedTraffic {
    bus: Vec<Vec<u8>>,
    api: Vec<Vec<u8>>,
    /// The text of the invite, and the token.
    texts: [String; 2],
    /// The secret of the invite, which its text has in Base64.
    invite_secret: Vec<u8>,
}

/// What ends the form of an invite, before the checksum.
fn secret_of(invite: &str) -> Result<Vec<u8>, Failure> {
    let bytes = URL_SAFE_NO_PAD.decode(invite.strip_prefix("plinv1_").ok_or("no invite")?)?;
    Ok(bytes[bytes.len() - 36..bytes.len() - 4].to_vec())
}

/// Everything that passes while a Rack joins by an invite, runs a scenario, and rows are ingested.
fn captured(case: CaptureCase) -> Result<CapturedTraffic, Failure> {
    let recorded = RecordedMixer::start(case)?;
    let client = &recorded.client;
    let invite = client.post("/api/v1/invites", &json!({ "name": "rack-a" }))?;
    let invite = invite.json["data"]["invite"].as_str().ok_or("no invite")?.to_owned();
    let envs: Vec<_> = recorded
        .envs
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    let mut rack = TestRack::with("rack-a", "nats://localhost:4222", &[], &envs)?;
    let joined = process::run(&binary("platform")?, &["join", &invite], rack.path(), &envs)?;
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
        bus: recorded.to_bus.recorded(),
        api: recorded.to_api.recorded(),
        invite_secret: secret_of(&invite)?,
        texts: [invite, recorded.admin],
    })
}

fn has(captured: &[Vec<u8>], part: impl AsRef<[u8]>) -> bool {
    let part = part.as_ref();
    let mut streams = captured.iter();
    streams.any(|bytes| bytes.windows(part.len()).any(|window| window == part))
}

#[test]
fn who_reads_what_passes_of_an_enrolment_a_scenario_and_ingest_sees_no_secret_and_no_payload_over_tls()
-> Result<(), Failure> {
    let [scenario, message, row] = MARKS;
    let clear = captured(CaptureCase::ClearText)?;
    assert!(has(&clear.bus, scenario) && has(&clear.bus, message));
    assert!(has(&clear.api, scenario) && has(&clear.api, row));
    for text in &clear.texts {
        assert!(has(&clear.api, text) && !has(&clear.bus, text), "{text}");
    }
    assert!(!has(&clear.bus, &clear.invite_secret), "it is proven, not sent");
    for case in [CaptureCase::Defaults, CaptureCase::OperatorMode] {
        let CapturedTraffic {
            bus,
            api,
            texts,
            invite_secret,
        } = captured(case)?;
        let secrets = texts.iter().map(String::as_bytes).chain([&*invite_secret]);
        // Pieces of a secret are no better.
        let pieces: Vec<_> = secrets.flat_map(|secret| secret.windows(12)).collect();
        for captured in [&bus, &api] {
            assert!(
                captured.iter().map(Vec::len).sum::<usize>() > 4_000,
                "{case:?}: it went another way"
            );
            for mark in MARKS {
                assert!(!has(captured, mark), "{case:?}: {mark}");
            }
            for piece in &pieces {
                assert!(!has(captured, piece), "{case:?}: {}", piece.escape_ascii());
            }
        }
    }
    Ok(())
}
