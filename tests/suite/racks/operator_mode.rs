//! Racks on an external bus in operator mode: each is a user of an account of its own, by JWTs that the Mixer signs.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use harness::{TestBus, external_bus, process};

use super::*;

const FLOW: &str = "
meta: { name: flow, version: '1' }
racks: [ { name: rack-a }, { name: rack-b } ]
gears:
  - { name: numbers, type: generator, deploy: rack-a, config: { rate: 20 } }
  - { name: sink, type: log_sink, deploy: rack-b }
wires:
  - { from: numbers.out, to: sink.in, lane: guaranteed }
";

/// How many messages the sink of `rack-b` has recorded.
fn sunk(mixer: &TestMixer) -> usize {
    let rows = mixer.api.rows("/api/v1/telemetry/logs?gear_id=sink&limit=10000");
    rows.map_or(0, |rows| rows.iter().filter(|row| row["flux_id"].is_string()).count())
}

fn quoted(path: &Path) -> String {
    format!("{:?}", path.display().to_string())
}

/// How often a Rack has reached the bus.
fn connections(rack: &TestRack) -> usize {
    rack.log().matches("bus connected").count()
}

#[test]
fn racks_on_a_bus_in_operator_mode_work_as_themselves_over_renewals_and_restarts_until_one_is_removed()
-> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let founded = process::run(
        &binary("platform-mixer")?,
        &["bus-operator"],
        folder.path(),
        &[("PLATFORM_STORE_DIR", "data")],
    )?;
    assert_eq!(founded.code, Some(0), "{}", founded.err);
    let (_server, url) = external_bus::start_with(folder.path(), "256MB", &founded.out)?;
    let (file, api) = (folder.path().join("flow.yaml"), free_port()?);
    std::fs::write(&file, FLOW)?;
    let (place, scenario) = (format!("{url:?}"), quoted(&file));
    let key = quoted(&folder.path().join("data/keys/nats-signing.nk"));
    let keys = [
        ("api.port", api.as_str()),
        ("snake.server", "\"external\""),
        ("snake.url", place.as_str()),
        ("snake.max_store_mb", "200"),
        ("snake.operator_key", key.as_str()),
        ("snake.rack_jwt_validity", "\"16s\""),
        ("mixer.startup_scenario", scenario.as_str()),
    ];
    let needless = TestMixer::with(&[keys[4]], &[]).err().ok_or("it started")?.to_string();
    assert!(needless.contains("snake.operator_key"), "{needless}");

    let mut mixer = TestMixer::with(&keys, &[])?;
    let mut a = TestRack::new("rack-a", &mixer.bus_url, "")?;
    let mut b = TestRack::new("rack-b", &mixer.bus_url, "")?;
    a.start()?;
    b.start()?;
    let first = eventually("messages at rack-b", SOON, || {
        Some(sunk(&mixer)).filter(|count| *count > 40)
    })
    .map_err(|error| format!("{error}\n{}\n{}", a.log(), b.log()))?;
    let stranger = TestBus::connect(&mixer.bus_url, "flux")?;
    assert!(stranger.publish("flux.telemetry.logs.rack-a", b"x".to_vec()).is_err());
    assert!(mixer.bus()?.messages("flux-telemetry").is_ok(), "the operator may");

    // The server ends a connection with the JWT of its beginning; the Rack has another one by then.
    let before = [&a, &b].map(connections);
    eventually("both connect anew", SOON, || {
        (connections(&a) > before[0] && connections(&b) > before[1]).then_some(())
    })?;
    let second = eventually("more messages at rack-b", SOON, || {
        Some(sunk(&mixer)).filter(|count| *count > first + 40)
    })?;
    for rack in [&a, &b] {
        let log = rack.log();
        assert!(!log.contains("rejects our credentials"), "{}: {log}", rack.name);
        assert!(!log.contains("ermissions violation"), "{}: {log}", rack.name);
    }

    mixer.kill9()?;
    b.kill9()?;
    let before = connections(&b);
    b.spawn()?;
    eventually("a Rack that comes while the Mixer is away", SOON, || {
        (connections(&b) > before).then_some(())
    })?;
    mixer.restart()?;
    eventually("messages after the restart", SOON, || {
        (sunk(&mixer) > second + 40).then_some(())
    })
    .map_err(|error| format!("{error}\n{}\n{}", a.log(), b.log()))?;

    let removed = mixer.api.post("/api/v1/racks/rack-a/remove", &json!({}))?;
    assert_eq!(removed.status, 200, "{}", removed.text);
    let told = ["was removed from this cluster", "the bus rejects our credentials"];
    eventually("the removed Rack is cut off", SOON, || {
        let log = a.log();
        told.iter().all(|text| log.contains(text)).then_some(())
    })
    .map_err(|error| format!("{error}\n{}", a.log()))?;
    let b = mixer.api.get("/api/v1/racks/rack-b")?.json["data"].clone();
    assert_eq!(b["state"], "active");

    // A Rack whose account the server does not take keeps nobody else from working, and it is said.
    let account = account_file(
        &folder.path().join("accounts"),
        b["entity_id"].as_str().unwrap_or_default(),
    )?;
    mixer.kill9()?;
    std::fs::remove_file(&account)?;
    std::fs::create_dir(&account)?;
    mixer.restart()?;
    let is_said = || {
        let ready = mixer.api.get("/readyz").ok()?;
        assert_eq!(ready.status, 200, "everybody else works: {}", ready.text);
        Some(ready.text.contains("does not take the accounts of all Racks"))
    };
    eventually("a Mixer that says what its bus does not take", SOON, || {
        is_said()?.then_some(())
    })?;
    std::fs::remove_dir(&account)?;
    eventually("all of the list is taken", SOON, || (!is_said()?).then_some(()))?;
    Ok(())
}

/// Where a server in operator mode keeps the account of a Rack.
fn account_file(folder: &Path, entity_id: &str) -> Result<PathBuf, Failure> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let token = std::fs::read_to_string(&path)?;
        let claims = token.split('.').nth(1).unwrap_or_default();
        let claims = String::from_utf8(URL_SAFE_NO_PAD.decode(claims)?)?;
        if claims.contains(&format!("rack {entity_id}")) {
            return Ok(path);
        }
    }
    Err(format!("no account of {entity_id} in {}", folder.display()).into())
}

#[test]
fn an_operator_is_founded_once_and_its_identity_may_lie_elsewhere() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let found = || {
        process::run(
            &binary("platform-mixer")?,
            &["bus-operator"],
            folder.path(),
            &[("PLATFORM_STORE_DIR", "data")],
        )
    };
    let operator = |text: &str| {
        text.lines()
            .find(|line| line.starts_with("operator: "))
            .map(str::to_owned)
    };
    let first = operator(&found()?.out).ok_or("no operator")?;
    let keys = folder.path().join("data/keys");
    for name in ["nats-operator.nk", "nats-signing.nk"] {
        let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(keys.join(name))?.permissions());
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    std::fs::remove_file(keys.join("nats-operator.nk"))?;
    assert_eq!(operator(&found()?.out), Some(first));
    assert!(!keys.join("nats-operator.nk").exists());
    // Without it nothing is signed anew, and no other operator is founded beside the signing key that is in use.
    let token = std::fs::read(keys.join("nats-operator.jwt"))?;
    std::fs::remove_file(keys.join("nats-operator.jwt"))?;
    let refused = found()?;
    assert_eq!(refused.code, Some(78), "{}", refused.err);
    assert!(refused.err.contains("nats-operator.nk"), "{}", refused.err);
    assert!(!keys.join("nats-operator.nk").exists());
    std::fs::write(keys.join("nats-operator.jwt"), token)?;
    assert_eq!(found()?.code, Some(0));
    Ok(())
}
