//! Tests of `platform.toml`.
#![allow(clippy::unwrap_used, reason = "tests")]

use chassis::config::schema_check::{load_from, sample, schema_errors};
use chassis::config::{migrate, with_chapter};

use super::*;

const OLD: &str = r#"# the line at the press
[logging]
level = "warn"
dir = "logs"
max_age = 28

[RACK]
name = "press-7"          # known to everyone
name_prefix = "node-"
state_file = "state.flux"
machine_id = 7
enrollment_timeout = "2s"

[rack.bus]
url = "nats://mixer:4222"
domain = "plant"
stream_name = "flux"
connect_timeout = "10s"
"#;

#[test]
fn every_key_can_be_given_in_a_file_in_the_environment_and_by_a_flag() {
    assert_eq!(schema_errors(&SCHEMA), Vec::<String>::new());
}

#[test]
fn every_key_changes_its_field() {
    let of = |text: &str, env: &[(&str, &str)]| RackConfig::of(&load_from(&SCHEMA, text, env).unwrap()).unwrap();
    let defaults = of("", &[]);
    for key in SCHEMA.keys() {
        let text = match key.path {
            "rack.ip" => "192.0.2.7".to_owned(),
            "gears.exec.allow" => "/usr/bin/uptime".to_owned(),
            "policy.gears" => "log_sink".to_owned(),
            "policy.listen" | "policy.connect" => "192.0.2.0/24:80-90".to_owned(),
            _ => sample(key).text,
        };
        let changed = of("", &[(&key.env_name(), &text)]);
        assert_ne!(changed, defaults, "{} changes nothing", key.path);
    }
}

#[test]
fn defaults_are_those_of_the_specification() {
    let config = RackConfig::of(&load_from(&SCHEMA, "", &[]).unwrap()).unwrap();
    assert_eq!(config.base.name.unwrap().as_str(), "node-01");
    assert_eq!(config.base.state_file, PathBuf::from("./data/rack.flux"));
    assert_eq!(config.logging.filename, PathBuf::from("logs/platform.log"));
    assert_eq!((config.logging.max_backups, config.throttling.burst), (7, 50));
    assert_eq!(config.rack.enrollment_timeout, Duration::from_secs(15));
    assert_eq!(config.rack.heartbeat_interval, Duration::from_secs(30));
    assert_eq!((config.rack.max_hops, config.rack.max_payload.get()), (64, 2_097_152));
    assert_eq!(
        (config.snake.domain.as_str(), config.snake.stream_name.as_str()),
        ("flux", "flux-msg")
    );
    assert_eq!(config.snake.convergence_delay, Duration::from_millis(100));
    assert!(config.observability.enabled);
}

#[test]
fn an_empty_name_asks_for_one_made_of_the_prefix() {
    let settings = load_from(&SCHEMA, "", &[("PLATFORM_BASE_NAME", "")]).unwrap();
    assert_eq!(RackConfig::of(&settings).unwrap().base.name, None);
}

#[test]
fn the_environment_switches_telemetry_off_whatever_the_file_says() {
    let file = "[observability]\nenabled = true\n";
    let settings = load_from(&SCHEMA, file, &[("PLATFORM_DISABLE_TELEMETRY", "true")]).unwrap();
    assert!(!RackConfig::of(&settings).unwrap().observability.enabled);
    let error = load_from(&SCHEMA, "disable_telemetry = true\n", &[])
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("platform.toml:1") && error.contains("PLATFORM_DISABLE_TELEMETRY"),
        "{error}"
    );
}

#[test]
fn an_ip_that_is_none_is_refused() {
    let settings = load_from(&SCHEMA, "[rack]\nip = \"here\"\n", &[]).unwrap();
    let error = RackConfig::of(&settings).unwrap_err().to_string();
    assert!(error.starts_with("platform.toml:2: rack.ip = \"here\""), "{error}");
}

#[test]
fn a_program_without_its_whole_path_is_refused() {
    let settings = load_from(&SCHEMA, "[gears.exec]\nallow = [\"/usr/bin/uptime\", \"date\"]\n", &[]).unwrap();
    let error = RackConfig::of(&settings).unwrap_err().to_string();
    assert!(
        error.starts_with("platform.toml:2: gears.exec.allow = \"date\""),
        "{error}"
    );
}

#[test]
fn keys_of_v0_4_4_are_refused_each_with_what_replaced_it() {
    let error = load_from(&SCHEMA, OLD, &[]).unwrap_err().to_string();
    for sentence in [
        "platform.toml:4: logging.dir is no longer a key: the folder of the log files is that of logging.filename",
        "platform.toml:8: rack.name is no longer a key: the Rack's name is base.name",
        "platform.toml:11: rack.machine_id is no longer a key: identities are UUIDs",
        "platform.toml:15: rack.bus.url is no longer a key: bus settings are in [snake]: use snake.url",
    ] {
        assert!(error.contains(sentence), "{sentence} is missing in:\n{error}");
    }
    let error = load_from(&SCHEMA, "", &[("PLATFORM_RACK_BUS_URL", "nats://x:1")])
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("environment PLATFORM_RACK_BUS_URL") && error.contains("snake.url"),
        "{error}"
    );
}

#[test]
fn a_migrated_v0_4_4_file_loads_means_the_same_and_keeps_its_comments() {
    let migrated = migrate(&SCHEMA, std::path::Path::new("old.toml"), OLD).unwrap();
    let settings = load_from(&SCHEMA, &migrated.text, &[]).unwrap();
    let config = RackConfig::of(&settings).unwrap();
    assert_eq!(config.base.name.unwrap().as_str(), "press-7");
    assert_eq!(config.base.state_file, PathBuf::from("./data/state.flux"));
    assert_eq!(config.snake.url, "nats://mixer:4222");
    assert_eq!(
        (config.snake.domain.as_str(), config.snake.stream_name.as_str()),
        ("plant", "flux")
    );
    assert_eq!(config.rack.enrollment_timeout, Duration::from_secs(2));
    assert!(migrated.text.contains("# the line at the press") && migrated.text.contains("# known to everyone"));
    assert!(!migrated.text.contains("[rack.bus]"), "{}", migrated.text);
    let notes = migrated.notes.join("\n");
    for note in [
        "rack.name is now base.name",
        "rack.bus.url is now snake.url",
        "rack.machine_id dropped",
        "logging.max_backups is not given: its default was 3 and is now 7",
    ] {
        assert!(notes.contains(note), "{note} is missing in:\n{notes}");
    }
    assert!(!notes.contains("left to do"), "{notes}");
}

#[test]
fn the_reference_page_is_the_generated_one() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/configuration.md");
    let page = std::fs::read_to_string(path).unwrap_or_default();
    let wanted = with_chapter(&page, &SCHEMA);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, &wanted).unwrap();
        return;
    }
    assert_eq!(
        page, wanted,
        "docs/configuration.md is not the generated one: make docs"
    );
}

#[test]
fn a_policy_that_cannot_be_meant_is_refused_with_the_key_and_what_is_wanted() {
    for (line, says) in [
        ("gears = [\"file_tial\"]", "policy.gears"),
        ("listen = [\"localhost:80\"]", "addresses or networks with a port"),
        ("connect = [\"10.0.0.0/33\"]", "networks or names with a port"),
        ("write_roots = [\".\"]", "in which this policy stands"),
        ("read_roots = [\".\"]", "in which this policy stands"),
        (
            "read_roots = [\"/etc/keys\"]\n[base]\nstate_key_file = \"/etc/keys/rack.key\"",
            "the key of the Rack's state",
        ),
    ] {
        let settings = load_from(&SCHEMA, &format!("[policy]\n{line}\n"), &[]).unwrap();
        let error = RackConfig::of(&settings).unwrap_err().to_string();
        assert!(error.contains(says), "{line}: {error}");
    }
}
