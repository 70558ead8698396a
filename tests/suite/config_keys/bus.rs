//! `[snake]` of the Mixer, and what of `[ingest]` is seen on the bus.

use std::path::Path;
use std::time::Duration;

use harness::{Failure, TestBus, TestMixer, TestRack, binary, eventually, external_bus, process, tool};
use serde_json::json;

use super::{SOON, quoted, text_of};

#[test]
fn the_bus_and_its_streams_are_what_the_keys_say() -> Result<(), Failure> {
    let mixer = TestMixer::with(
        &[
            ("base.name", "\"mixer-77\""),
            ("logging.level", "\"debug\""),
            ("api.host", "\"127.0.0.3\""),
            ("snake.host", "\"127.0.0.2\""),
            ("snake.domain", "\"plant\""),
            ("snake.store_dir", "\"busdata\""),
            ("snake.stream_name", "\"orders\""),
            (
                "snake.stream_subjects",
                "[\"flux.msg.>\", \"flux.gear.>\", \"shop.>\", \"platform.event.>\"]",
            ),
            ("snake.telemetry_stream_max_age", "\"2h\""),
            ("snake.durable", "true"),
            ("snake.max_store_mb", "512"),
            ("ingest.flush_interval", "\"7s\""),
        ],
        &[("PLATFORM_INGEST_BUFFER_SIZE", "33")],
    )?;
    assert!(mixer.api.base.starts_with("http://127.0.0.3:"), "{}", mixer.api.base);
    assert!(mixer.bus_url.contains("127.0.0.2:"), "{}", mixer.bus_url);
    let store = mixer.path().join("busdata");
    assert!(store.is_dir() && !mixer.path().join("data/js").exists());

    let conf = text_of(&store.join("nats.conf"));
    for line in [
        "server_name: \"mixer-77\"",
        "sync_interval: \"always\"",
        "max_file: 536870912",
    ] {
        assert!(conf.contains(line), "{line}: {conf}");
    }

    let bus = mixer.bus_of("plant")?;
    let business = bus.stream("orders")?;
    assert_eq!(business.subjects, ["flux.msg.>", "flux.gear.>", "shop.>"]);
    let (telemetry, events) = (bus.stream("flux-telemetry")?, bus.stream("flux-events")?);
    assert_eq!(telemetry.max_age, Duration::from_secs(2 * 3_600));
    assert_eq!(events.subjects, ["platform.event.>"]);
    let bytes = business.max_bytes + telemetry.max_bytes + events.max_bytes;
    assert!((400 << 20..=512 << 20).contains(&bytes), "{bytes}");

    let ingest = eventually("the consumer of ingest", SOON, || {
        bus.consumer("flux-telemetry", "ingest").ok()
    })?;
    assert_eq!(ingest.max_ack_pending, 33, "ingest.buffer_size");
    assert_eq!(
        ingest.ack_wait,
        Duration::from_secs(7 * 2 + 10),
        "ingest.flush_interval"
    );

    let log = mixer.path().join("logs/mixer.log");
    eventually("a line of the bus at level debug", SOON, || {
        text_of(&log).contains(" DEBUG ").then_some(())
    })?;
    Ok(())
}

#[test]
fn business_messages_older_than_they_may_be_leave_the_bus_by_the_mixers_clock() -> Result<(), Failure> {
    let mixer = TestMixer::with(&[("snake.business_stream_max_age", "\"2s\"")], &[])?;
    let bus = mixer.bus()?;
    assert_eq!(
        bus.stream("flux-msg")?.max_age,
        Duration::ZERO,
        "the server believes every clock"
    );
    bus.publish("flux.msg.foreign.gear.out", b"no message".to_vec())?;
    assert_eq!(bus.messages("flux-msg")?, 1);
    eventually("a stream without the message", SOON, || {
        // The clock is judged where something is stored.
        let row = json!([{ "level": "info", "message": "goes on" }]);
        bus.send("logs", "foreign", &row).ok()?;
        (bus.messages("flux-msg").ok()? == 0).then_some(())
    })
}

#[test]
fn an_external_bus_is_shown_the_token_that_it_asks_for() -> Result<(), Failure> {
    let (folder, token) = (tempfile::tempdir()?, "only-for-this-test");
    let asks = format!("authorization {{ token: {token} }}\n");
    let (_server, url) = external_bus::start_with(folder.path(), "256MB", &asks)?;
    let (place, env) = (format!("{url:?}"), [("PLATFORM_SNAKE_TOKEN", token)]);
    let keys = [
        ("snake.server", "\"external\""),
        ("snake.url", place.as_str()),
        ("snake.max_store_mb", "200"),
    ];
    let mixer = TestMixer::with(&keys, &env)?;
    assert!(TestBus::connect(&mixer.bus_url, "flux").is_err());
    let mut rack = TestRack::with("rack-a", &mixer.bus_url, &[], &env)?;
    rack.start()
}

#[test]
fn a_bus_beyond_loopback_speaks_tls_to_who_was_invited_or_has_its_authority() -> Result<(), Failure> {
    let keys = [("snake.host", "\"0.0.0.0\""), ("enrollment.auto_adopt", "false")];
    let mixer = TestMixer::with(&keys, &[])?;
    let platform = |folder: &Path, args: &[&str]| -> Result<String, Failure> {
        let done = process::run(&binary("platform")?, args, folder, &[])?;
        assert_eq!(done.code, Some(0), "{args:?}: {}", done.err);
        Ok(done.out.trim().to_owned())
    };
    let mut guest = TestRack::with("rack-a", "nats://localhost:4222", &[], &[])?;
    let api = ["--api-url", mixer.api.base.as_str()];
    let invite = platform(guest.path(), &["racks", "invite", "rack-a", api[0], api[1]])?;
    assert!(platform(guest.path(), &["join", &invite])?.contains("as rack-a at its next start"));
    guest.start()?;
    let listed = platform(guest.path(), &["racks", "invites", "-o", "json", api[0], api[1]])?;
    assert!(listed.contains("used"), "{listed}");

    let authority = quoted(&mixer.path().join("data/keys/bus-ca.pem"));
    let mut known = TestRack::with("rack-b", &mixer.bus_url, &[("snake.tls_ca", &authority)], &[])?;
    known.spawn()?;
    let waits = known.process()?.line("pending ", SOON)?;
    let (_, key) = waits.split_once("key=").ok_or("it prints no key")?;
    let wrong = process::run(
        &binary("platform")?,
        &[
            "racks",
            "approve",
            "rack-b",
            "--key",
            &format!("SHA256:{}", "A".repeat(43)),
            api[0],
            api[1],
        ],
        known.path(),
        &[],
    )?;
    assert!(wrong.code != Some(0) && wrong.err.contains(key), "{}", wrong.err);
    platform(
        known.path(),
        &["racks", "approve", "rack-b", "--key", key, api[0], api[1]],
    )?;
    known.process()?.line("ready ", SOON)?;
    assert!(TestBus::connect(&mixer.bus_url, "flux").is_err(), "who trusts nobody");
    Ok(())
}

#[test]
fn a_bus_with_an_operators_certificate_serves_that_one() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned(), "localhost".to_owned()])?;
    let (certificate, key) = (folder.path().join("bus.pem"), folder.path().join("bus.key"));
    std::fs::write(&certificate, own.cert.pem())?;
    std::fs::write(&key, own.signing_key.serialize_pem())?;
    std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    let (certificate, key) = (quoted(&certificate), quoted(&key));
    let keys = [
        ("snake.tls", "\"on\""),
        ("snake.tls_cert", certificate.as_str()),
        ("snake.tls_key", key.as_str()),
    ];
    let mixer = TestMixer::with(&keys, &[])?;
    assert!(!mixer.path().join("data/keys/bus-ca.pem").exists());
    let mut rack = TestRack::with("rack-a", &mixer.bus_url, &[("snake.tls_ca", &certificate)], &[])?;
    rack.start()?;
    let half = TestMixer::with(&keys[..2], &[]).err().ok_or("it started")?.to_string();
    assert!(half.contains("snake.tls_key"), "{half}");
    Ok(())
}

#[test]
fn an_external_server_is_used_where_the_url_says() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let (_server, url) = external_bus::start(folder.path(), "256MB")?;
    let place = format!("{url:?}");
    let keys = [("snake.server", "\"external\""), ("snake.url", place.as_str())];

    let refused = TestMixer::with(&[keys[0], keys[1], ("snake.max_store_mb", "1024")], &[]);
    let said = refused.err().ok_or("it started")?.to_string();
    assert!(said.contains("lower snake.max_store_mb"), "{said}");

    let mut mixer = TestMixer::with(&[keys[0], keys[1], ("snake.max_store_mb", "200")], &[])?;
    assert_eq!(mixer.bus_url, url);
    assert!(mixer.bus_pid().is_err(), "it runs no server of its own");
    TestBus::connect(&url, "flux")?.stream("flux-telemetry")?;
    Ok(())
}

#[test]
fn the_server_binary_and_its_hash_are_checked() -> Result<(), Failure> {
    let server = quoted(&tool("nats-server")?);
    let wrong = "0".repeat(64);
    for (keys, says) in [
        (
            "snake.server_binary = \"nowhere/nats-server\"\n".to_owned(),
            &["snake.server_binary", "nowhere/nats-server"][..],
        ),
        (
            format!("snake.server_binary = {server}\nsnake.server_sha256 = {wrong:?}\n"),
            &["snake.server_sha256", &wrong],
        ),
    ] {
        let folder = tempfile::tempdir()?;
        let toml = format!("api.port = 0\nsnake.port = 0\n{keys}");
        std::fs::write(folder.path().join("platform-mixer.toml"), toml)?;
        let done = process::run(&binary("platform-mixer")?, &[], folder.path(), &[])?;
        assert_ne!(done.code, Some(0), "{keys}");
        for part in says {
            assert!(done.err.contains(part), "{part}: {}", done.err);
        }
    }
    Ok(())
}

#[test]
fn an_address_for_everyone_needs_allow_insecure() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let toml = "api.host = \"0.0.0.0\"\nsnake.host = \"0.0.0.0\"\nsnake.tls = \"off\"\npostgres.host = \"0.0.0.0\"\n\
                otlp.host = \"0.0.0.0\"\n";
    std::fs::write(folder.path().join("platform-mixer.toml"), toml)?;
    let done = process::run(&binary("platform-mixer")?, &[], folder.path(), &[])?;
    assert_eq!(done.code, Some(78), "{}", done.err);
    for key in [
        "api.allow_insecure",
        "postgres.allow_insecure",
        "otlp.allow_insecure",
        "snake.allow_insecure",
    ] {
        assert!(done.err.contains(key), "{key}: {}", done.err);
    }
    let mixer = TestMixer::with(
        &[
            ("api.host", "\"0.0.0.0\""),
            ("api.allow_insecure", "true"),
            ("snake.host", "\"0.0.0.0\""),
            ("snake.tls", "\"off\""),
            ("snake.allow_insecure", "true"),
            ("postgres.host", "\"0.0.0.0\""),
            ("postgres.allow_insecure", "true"),
            ("otlp.host", "\"0.0.0.0\""),
            ("otlp.allow_insecure", "true"),
        ],
        &[],
    )?;
    eventually("readiness", SOON, || {
        (mixer.api.get("/readyz").ok()?.status == 200).then_some(())
    })
}
