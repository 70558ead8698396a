//! Keys of `platform.toml` as they are seen from the Mixer, the bus, and the Rack's folder.

use std::io::Read;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use harness::{Failure, TestMixer, TestRack, eventually};

use super::SOON;

/// Counts connections to a port until there are `wanted`, at most for so long after the first one; each is kept open and silent, or
/// closed at once.
fn connections(listener: &TcpListener, wanted: usize, keep: bool, within: Duration) -> Result<usize, Failure> {
    listener.set_nonblocking(true)?;
    let mut kept = Vec::new();
    let mut count = 0;
    let mut deadline = Instant::now() + SOON;
    while count < wanted && Instant::now() < deadline {
        if let Ok((mut stream, _)) = listener.accept() {
            count += 1;
            if count == 1 {
                deadline = Instant::now() + within;
            }
            if keep {
                kept.push(stream);
            } else {
                stream.set_nonblocking(true)?;
                let _ = stream.read(&mut [0; 16]);
            }
        } else {
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }
    Ok(count)
}

#[test]
fn a_silent_bus_is_given_up_after_connect_timeout_and_tried_again_after_reconnect_wait() -> Result<(), Failure> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("nats://{}", listener.local_addr()?);
    // An attempt takes 10 s by default, so that the second one comes after this waits.
    let keys = [
        ("snake.connect_timeout", "\"100ms\""),
        ("snake.reconnect_wait", "\"10ms\""),
    ];
    let mut rack = TestRack::with("rack-a", &url, &keys, &[])?;
    rack.spawn()?;
    assert_eq!(
        connections(&listener, 5, true, Duration::from_secs(9))?,
        5,
        "connect_timeout"
    );
    rack.kill9()?;

    let listener = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("nats://{}", listener.local_addr()?);
    let mut rack = TestRack::with("rack-a", &url, &[("snake.reconnect_wait", "\"10ms\"")], &[])?;
    rack.spawn()?;
    // The waits grow to ten times the first: from 1 s on, twenty attempts take a minute and more.
    assert_eq!(
        connections(&listener, 20, false, Duration::from_secs(30))?,
        20,
        "reconnect_wait"
    );
    Ok(())
}

#[test]
fn a_rack_is_called_lies_and_speaks_as_its_keys_say() -> Result<(), Failure> {
    let mixer = TestMixer::with(&[], &[])?;
    let mut rack = TestRack::with(
        "node",
        "nats://127.0.0.1:9",
        &[
            ("base.name", "\"\""),
            ("base.state_dir", "\"state\""),
            ("base.state_file", "\"me.flux\""),
            ("rack.name_prefix", "\"edge-\""),
            ("rack.ip", "\"192.0.2.7\""),
            ("snake.stream_name", "\"elsewhere\""),
        ],
        &[("PLATFORM_SNAKE_URL", &mixer.bus_url)],
    )?;
    rack.start()?;
    let rows = mixer.api.rows("/api/v1/racks")?;
    assert!(rows[0]["name"].as_str().unwrap().starts_with("edge-"), "{rows:?}");
    assert_eq!(rows[0]["ip"], "192.0.2.7");
    assert!(rack.path().join("state/me.flux").is_file() && !rack.path().join("data").exists());
    eventually("a word about the stream", SOON, || {
        let log = rack.log();
        (log.contains("snake.stream_name") && log.contains("elsewhere")).then_some(())
    })?;

    let mut plain = TestRack::with("rack-b", &mixer.bus_url, &[], &[("PLATFORM_BASE_NAME", "from-outside")])?;
    plain.spawn()?;
    let ready = plain.process()?.line("ready ", SOON)?;
    assert!(
        ready.contains("name=from-outside "),
        "the environment wins over the file: {ready}"
    );
    eventually("its own rows", SOON, || {
        let rows = mixer.api.rows("/api/v1/telemetry/logs?rack_id=from-outside").ok()?;
        (!rows.is_empty()).then_some(())
    })?;
    assert!(!plain.log().contains("snake.stream_name"), "{}", plain.log());
    Ok(())
}

#[test]
fn a_rack_with_telemetry_off_sends_none() -> Result<(), Failure> {
    let mixer = TestMixer::with(&[], &[])?;
    let switch = [("PLATFORM_DISABLE_TELEMETRY", "true")];
    let mut by_switch = TestRack::with("by-switch", &mixer.bus_url, &[], &switch)?;
    let mut by_key = TestRack::with("by-key", &mixer.bus_url, &[("observability.enabled", "false")], &[])?;
    let mut loud = TestRack::with("loud", &mixer.bus_url, &[], &[])?;
    by_switch.start()?;
    by_key.start()?;
    loud.start()?;
    eventually("rows of the one that came last", SOON, || {
        let rows = mixer.api.rows("/api/v1/telemetry/logs?rack_id=loud").ok()?;
        (!rows.is_empty()).then_some(())
    })?;
    for quiet in ["by-switch", "by-key"] {
        for asked in ["logs?rack_id", "metrics?entity"] {
            let rows = mixer.api.rows(&format!("/api/v1/telemetry/{asked}={quiet}"))?;
            assert!(rows.is_empty(), "{quiet}: {rows:?}");
        }
    }
    Ok(())
}

#[test]
fn the_state_file_is_encrypted_with_the_key_of_the_environment_or_of_a_file() -> Result<(), Failure> {
    let mixer = TestMixer::with(&[], &[])?;
    let key = "5a".repeat(32);
    let file = ("base.state_key_file", "\"state.key\"");
    let state = |rack: &TestRack| std::fs::read(rack.path().join("data/rack.flux"));
    let is_sealed = |bytes: &[u8]| bytes.windows(6).any(|window| window == b"sealed");

    let mut rack = TestRack::with("rack-a", &mixer.bus_url, &[], &[("PLATFORM_BASE_STATE_KEY", &key)])?;
    rack.start()?;
    rack.kill9()?;
    let sealed = state(&rack)?;
    assert!(is_sealed(&sealed), "base.state_key");

    // The same folder without the key, and with it in a file.
    let toml = std::fs::read_to_string(rack.path().join("platform.toml"))?;
    let mut keyless = TestRack::with("rack-a", &mixer.bus_url, &[], &[])?;
    std::fs::create_dir(keyless.path().join("data"))?;
    std::fs::write(keyless.path().join("data/rack.flux"), &sealed)?;
    keyless.spawn()?;
    let ended = keyless.process()?.wait(SOON)?;
    assert_eq!(ended.code(), Some(77));
    let said = keyless.process()?.log_tail() + &keyless.log();
    assert!(said.contains("PLATFORM_BASE_STATE_KEY"), "{said}");

    let mut filed = TestRack::with("rack-a", &mixer.bus_url, &[file], &[])?;
    std::fs::create_dir(filed.path().join("data"))?;
    std::fs::write(filed.path().join("data/rack.flux"), &sealed)?;
    let path = filed.path().join("state.key");
    for (text, mode, code) in [("not a key", 0o600, 78), (key.as_str(), 0o644, 78)] {
        std::fs::write(&path, text)?;
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode))?;
        filed.spawn()?;
        assert_eq!(filed.process()?.wait(SOON)?.code(), Some(code), "{mode:o}");
    }
    std::fs::write(&path, format!("{key}\n"))?;
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600))?;
    filed.start()?;
    assert!(is_sealed(&state(&filed)?), "base.state_key_file");
    assert_eq!(mixer.api.rows("/api/v1/racks")?.len(), 1, "it is the same Rack");
    assert!(!toml.contains(&key));
    Ok(())
}
