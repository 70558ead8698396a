//! Bad input and faults: a clear error or a full recovery.

use std::time::Duration;

use harness::{Failure, TestMixer, TestRack, binary, eventually, process, tool};
use serde_json::json;

const SOON: Duration = Duration::from_secs(30);

pub(crate) fn run_in(folder: &std::path::Path, program: &str, args: &[&str]) -> Result<process::Finished, Failure> {
    process::run(&binary(program)?, args, folder, &[])
}

#[test]
fn an_unknown_key_and_a_bad_duration_stop_the_start_with_file_line_key_and_the_nearest_key() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    std::fs::write(
        folder.path().join("platform-mixer.toml"),
        "[ingest]\nflush_intervall = \"5s\"\n",
    )?;
    let done = run_in(folder.path(), "platform-mixer", &[])?;
    assert_eq!(done.code, Some(78), "{}", done.err);
    for part in [
        "platform-mixer.toml",
        "2",
        "ingest.flush_intervall",
        "ingest.flush_interval",
    ] {
        assert!(done.err.contains(part), "{part}: {}", done.err);
    }
    std::fs::write(
        folder.path().join("platform.toml"),
        "[rack]\nheartbeat_interval = \"often\"\n",
    )?;
    let done = run_in(folder.path(), "platform", &[])?;
    assert_eq!(done.code, Some(78), "{}", done.err);
    assert!(
        done.err.contains("rack.heartbeat_interval") && done.err.contains("often"),
        "{}",
        done.err
    );
    Ok(())
}

#[test]
fn a_second_mixer_on_one_store_is_refused_and_names_the_store() -> Result<(), Failure> {
    let mixer = TestMixer::start("")?;
    let folder = tempfile::tempdir()?;
    let server = tool("nats-server")?;
    let toml = format!(
        "[api]\nport = 0\n[snake]\nport = 0\nserver_binary = {:?}\n[store]\ndir = {:?}\n",
        server.display().to_string(),
        mixer.path().join("data").display().to_string()
    );
    std::fs::write(folder.path().join("platform-mixer.toml"), toml)?;
    let done = run_in(folder.path(), "platform-mixer", &[])?;
    assert_ne!(done.code, Some(0));
    assert!(done.err.contains("data"), "{}", done.err);
    assert_eq!(mixer.api.get("/healthz")?.status, 200, "the first one is not disturbed");
    Ok(())
}

#[test]
fn a_taken_port_is_named_with_its_key() -> Result<(), Failure> {
    let taken = std::net::TcpListener::bind("127.0.0.1:0")?;
    let port = taken.local_addr()?.port();
    for (section, key) in [("api", "api.port"), ("snake", "snake.port")] {
        let folder = tempfile::tempdir()?;
        let server = tool("nats-server")?;
        let other = if section == "api" { "snake" } else { "api" };
        let toml = format!(
            "[{section}]\nport = {port}\n{}[{other}]\nport = 0\n{}",
            if section == "snake" {
                format!("server_binary = {:?}\n", server.display().to_string())
            } else {
                String::new()
            },
            if other == "snake" {
                format!("server_binary = {:?}\n", server.display().to_string())
            } else {
                String::new()
            },
        );
        std::fs::write(folder.path().join("platform-mixer.toml"), toml)?;
        let done = run_in(folder.path(), "platform-mixer", &[])?;
        assert_ne!(done.code, Some(0), "{key}");
        assert!(
            done.err.contains(key) && done.err.contains(&port.to_string()),
            "{key}: {}",
            done.err
        );
    }
    Ok(())
}

#[test]
fn a_scenario_with_an_unknown_gear_type_or_a_bad_wire_stops_the_start() -> Result<(), Failure> {
    for (gear, to, says) in [
        ("generatorr", "sink.in", "generatorr"),
        ("generator", "sink.inn", "no input inn"),
    ] {
        let folder = tempfile::tempdir()?;
        let yaml = format!(
            "meta: {{ name: bad, version: '1' }}\nracks: [ {{ name: a }} ]\ngears:\n  - {{ name: gen, type: {gear}, deploy: a }}\n  \
             - {{ name: sink, type: log_sink, deploy: a }}\nwires:\n  - {{ from: gen.out, to: {to} }}\n"
        );
        std::fs::write(folder.path().join("bad.yaml"), &yaml)?;
        let check = run_in(folder.path(), "platform", &["scenario", "validate", "bad.yaml"])?;
        assert_eq!(check.code, Some(65), "{}", check.err);
        assert!(check.err.contains(says), "{}", check.err);
        let toml = format!(
            "[mixer]\nstartup_scenario = \"bad.yaml\"\n[api]\nport = 0\n[snake]\nport = 0\nserver_binary = {:?}\n",
            tool("nats-server")?.display().to_string()
        );
        std::fs::write(folder.path().join("platform-mixer.toml"), toml)?;
        let start = run_in(folder.path(), "platform-mixer", &[])?;
        assert!(matches!(start.code, Some(65 | 78)), "{:?} {}", start.code, start.err);
        assert!(start.err.contains(says), "{}", start.err);
    }
    Ok(())
}

#[test]
fn a_rack_with_the_wrong_domain_says_so() -> Result<(), Failure> {
    let mixer = TestMixer::start("")?;
    let mut rack = TestRack::new("rack-a", &mixer.bus_url, "")?;
    let file = rack.path().join("platform.toml");
    let toml = std::fs::read_to_string(&file)?.replace("[snake]\n", "[snake]\ndomain = \"other\"\n");
    std::fs::write(&file, toml)?;
    rack.spawn()?;
    eventually("a word about the domain", SOON, || {
        let log = std::fs::read_to_string(rack.path().join("logs/platform-rack.log")).unwrap_or_default();
        let text = format!("{log}{}", rack.process().ok()?.log_tail());
        (text.contains("snake.domain") && text.contains("other")).then_some(())
    })?;
    Ok(())
}

#[test]
fn a_tampered_passport_stops_the_rack_and_names_the_file() -> Result<(), Failure> {
    let mixer = TestMixer::start("")?;
    let mut rack = TestRack::new("rack-a", &mixer.bus_url, "")?;
    rack.start()?;
    assert!(rack.process()?.terminate(SOON)?.success());
    let file = rack.path().join("data/rack.flux");
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&file)?);
    assert_eq!(mode & 0o777, 0o600);
    let mut bytes = std::fs::read(&file)?;
    let at = bytes.len() - 20;
    bytes[at] ^= 1;
    std::fs::write(&file, bytes)?;
    let done = run_in(rack.path(), "platform", &[])?;
    assert!(matches!(done.code, Some(65 | 77)), "{:?} {}", done.code, done.err);
    assert!(done.err.contains("rack.flux"), "{}", done.err);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_batches_are_stored_and_bad_ones_become_dead_letters() -> Result<(), Failure> {
    let mixer = tokio::task::spawn_blocking(|| TestMixer::start("")).await??;
    let client = mixer.operator()?.connect(&mixer.bus_url).await?;
    let js = async_nats::jetstream::with_domain(client, "flux");
    let now = mixer_now(&mixer)?;
    let line = json!([{ "ts": now, "level": "info", "message": "from a script" }]).to_string();
    let mut cbor = Vec::new();
    cbor.extend_from_slice(&[0x81, 0xa3, 0x62]);
    cbor.extend_from_slice(b"ts\x78");
    cbor.push(u8::try_from(now.len())?);
    cbor.extend_from_slice(now.as_bytes());
    cbor.extend_from_slice(b"\x65level\x64warn\x67message\x6afrom cbor!");
    for (kind, body) in [
        ("application/json", line.clone().into_bytes()),
        ("application/cbor", cbor),
        ("application/json", b"{ not json".to_vec()),
        ("text/plain", b"hello".to_vec()),
    ] {
        let mut headers = async_nats::HeaderMap::new();
        headers.insert("Content-Type", kind);
        js.publish_with_headers("flux.telemetry.logs.script", headers, body.into())
            .await?
            .await?;
    }
    eventually("both good rows", SOON, || {
        (mixer.api.rows("/api/v1/telemetry/logs?entity=script").ok()?.len() == 2).then_some(())
    })?;
    let letters = eventually("both dead letters", SOON, || {
        let rows = mixer.api.rows("/api/v1/telemetry/dead_letters").ok()?;
        (rows.len() == 2).then_some(rows)
    })?;
    assert!(
        letters
            .iter()
            .any(|row| row["reason"].as_str().unwrap().contains("text/plain")),
        "{letters:?}"
    );
    Ok(())
}

/// The time by the Mixer's machine, as the API writes it.
fn mixer_now(mixer: &TestMixer) -> Result<String, Failure> {
    let at = model::Timestamp::from(std::time::SystemTime::now());
    assert_eq!(mixer.api.get("/healthz")?.status, 200);
    Ok(at.to_string())
}

#[test]
fn bad_query_parameters_are_400_and_name_the_parameter() -> Result<(), Failure> {
    let mixer = TestMixer::start("")?;
    for (query, names) in [
        ("logs?since=yesterday", "since"),
        ("logs?level=loud", "level"),
        ("logs?limit=10001", "limit"),
        ("logs?limit=-1", "limit"),
        ("logs?colour=red", "colour"),
        ("logs?cursor=zzz", "cursor"),
        ("traces?flux_id=12", "flux_id"),
        ("traces?status=maybe", "status"),
        ("metrics?interval=0s", "interval"),
        ("metrics?interval=soon", "interval"),
    ] {
        let answer = mixer.api.get(&format!("/api/v1/telemetry/{query}"))?;
        assert_eq!(answer.status, 400, "{query}: {}", answer.text);
        assert!(
            answer.content_type.starts_with("application/problem+json"),
            "{query}: {}",
            answer.content_type
        );
        assert!(answer.text.contains(names), "{query}: {}", answer.text);
        assert!(answer.json["code"].is_string(), "{query}: {}", answer.text);
    }
    assert_eq!(mixer.api.get("/api/v1/nothing")?.status, 404);
    assert_eq!(mixer.api.post("/api/v1/telemetry/logs", &json!({}))?.status, 405);
    let trace = mixer
        .api
        .get("/api/v1/telemetry/traces/0123456789abcdef0123456789abcdef")?;
    assert_eq!(trace.status, 404);
    Ok(())
}

#[test]
fn the_bus_dies_with_the_mixer_and_the_store_is_free_again() -> Result<(), Failure> {
    let mut mixer = TestMixer::start("")?;
    let bus = mixer.bus_pid()?;
    mixer.kill9()?;
    eventually("the end of the bus", SOON, || {
        let stat = std::fs::read_to_string(format!("/proc/{bus}/stat")).unwrap_or_default();
        (stat.is_empty() || stat.contains(") Z ")).then_some(())
    })?;
    mixer.restart()?;
    eventually("readiness after the restart", SOON, || {
        (mixer.api.get("/readyz").ok()?.status == 200).then_some(())
    })?;
    Ok(())
}

#[test]
fn a_rack_stops_within_two_seconds_in_every_state() -> Result<(), Failure> {
    // Its own bounds add up to two seconds; a busy machine gets more. Whoever waits for a bus or a Mixer waits longer.
    let soon = Duration::from_secs(10);
    // No bus at all.
    let mut rack = TestRack::new("rack-a", "nats://127.0.0.1:9", "")?;
    rack.spawn()?;
    eventually("its log", SOON, || {
        rack.path().join("logs/platform-rack.log").is_file().then_some(())
    })?;
    assert!(rack.process()?.terminate(soon)?.success());
    // Pending.
    let mixer = TestMixer::start("[enrollment]\nauto_adopt = false\n")?;
    let mut rack = TestRack::new("rack-b", &mixer.bus_url, "")?;
    rack.spawn()?;
    rack.process()?.line("pending ", SOON)?;
    assert!(rack.process()?.terminate(soon)?.success());
    // Running, its Mixer and bus gone.
    let mut mixer = TestMixer::start("")?;
    let mut rack = TestRack::new("rack-c", &mixer.bus_url, "")?;
    rack.start()?;
    mixer.kill9()?;
    assert!(rack.process()?.terminate(soon)?.success());
    Ok(())
}
