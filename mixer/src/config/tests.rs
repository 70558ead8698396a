//! Tests of `platform-mixer.toml`.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::PathBuf;
use std::time::Duration;

use chassis::config::schema_check::{load_from, sample, schema_errors};
use chassis::config::{migrate, show_text, with_chapter};

use super::*;

const OLD: &str = r#"[logging]
level = "info"
filename = "logs/mixer.log"
max_age = 28

[mixer]
mixer_name = "mixer-02"
machine_id = 1
startup_scenario = "line:3"

[snake]
port = 4222
cluster_name = "plant"  # the leaf nodes know it
store_dir = "data/js"
stream_name = "flux"
stream_subjects = ["flux.msg.>", "flux.gear.>", "flux.telemetry.>"]
"#;

fn config(text: &str, env: &[(&str, &str)]) -> Result<MixerConfig, ConfigErrors> {
    MixerConfig::of(&load_from(&SCHEMA, text, env)?)
}

#[test]
fn every_key_can_be_given_in_a_file_in_the_environment_and_by_a_flag() {
    assert_eq!(schema_errors(&SCHEMA), Vec::<String>::new());
}

#[test]
fn every_key_changes_its_field() {
    for key in SCHEMA.keys() {
        let text = match key.path {
            "api.host" | "postgres.host" | "otlp.host" | "snake.host" => "::1".to_owned(),
            "snake.server_sha256" => "ab".repeat(32),
            "snake.stream_subjects" => "flux.msg.>,flux.gear.>".to_owned(),
            "api.allowed_hosts" => "mixer.example".to_owned(),
            "api.second_person" => "approve".to_owned(),
            _ => sample(key).text,
        };
        // A certificate goes with its key.
        let half = [
            ("PLATFORM_API_TLS_CERT", "cert.pem"),
            ("PLATFORM_API_TLS_KEY", "key.pem"),
        ];
        let half_of_bus = half.map(|(name, file)| (name.replace("_API_", "_SNAKE_"), file));
        let half_of_bus: Vec<_> = half_of_bus.iter().map(|(name, file)| (name.as_str(), *file)).collect();
        let beside = match key.path {
            "snake.tls_cert" | "snake.tls_key" => &half_of_bus[..],
            path if path.starts_with("api.tls_") => &half[..],
            "snake.operator_key" => &[("PLATFORM_SNAKE_SERVER", "external")],
            _ => &[],
        };
        let without = config("", beside).unwrap();
        let name = key.env_name();
        let changed = config("", &[beside, &[(&name, &text)]].concat()).unwrap();
        assert_ne!(changed, without, "{} changes nothing", key.path);
    }
}

#[test]
fn defaults_are_those_of_the_specification() {
    let config = config("", &[]).unwrap();
    assert_eq!(config.logging.filename, PathBuf::from("logs/mixer.log"));
    assert_eq!((config.api.port, config.snake.port), (8090, 4222));
    assert!(config.postgres.host.is_loopback() && !config.postgres.enabled);
    let otlp = &config.otlp_receiver;
    assert!(otlp.host.is_loopback() && !otlp.enabled);
    assert_eq!((otlp.grpc_port, otlp.http_port), (4317, 4318));
    assert!(config.api.host.is_loopback() && config.snake.host.is_loopback());
    assert_eq!(config.store.database_file, PathBuf::from("./data/platform.duckdb"));
    assert_eq!(config.store.cluster_key_file, PathBuf::from("./data/cluster.key"));
    assert_eq!(config.snake.store_dir, PathBuf::from("./data/js"));
    assert_eq!(config.embedded.data_dir, PathBuf::from("./data/telemetry"));
    assert_eq!(config.otlp_messages.data_dir, PathBuf::from("./data/messages"));
    assert_eq!(config.snake.business_stream_max_age, Duration::from_secs(720 * 3_600));
    assert_eq!(
        config.snake.stream_subjects,
        ["flux.msg.>", "flux.gear.>", "platform.>"]
    );
    assert_eq!(config.rotation.max_age, Duration::from_secs(30 * 86_400));
    assert_eq!(config.rotation.max_size.get(), 10 << 30);
    assert_eq!(config.mixer.startup_scenario, None);
    assert!(!config.enrollment.auto_adopt);
}

#[test]
fn folders_follow_the_store_unless_they_are_given() {
    let file = "[store]\ndir = \"/srv/store\"\n[observability.embedded]\ndata_dir = \"/fast/telemetry\"\n";
    let config = config(file, &[]).unwrap();
    assert_eq!(config.snake.store_dir, PathBuf::from("/srv/store/js"));
    assert_eq!(config.embedded.data_dir, PathBuf::from("/fast/telemetry"));
    assert_eq!(config.otlp_messages.data_dir, PathBuf::from("/srv/store/messages"));
    assert_eq!(config.store.cluster_key_file, PathBuf::from("/srv/store/cluster.key"));
}

#[test]
fn an_open_address_without_encryption_is_refused_unless_it_is_allowed() {
    for (section, guard) in [
        ("api", "use 127.0.0.1, set api.tls_cert and api.tls_key, or"),
        ("postgres", "use 127.0.0.1, set api.tls_cert and api.tls_key, or"),
        ("otlp", "use 127.0.0.1, set api.tls_cert and api.tls_key, or"),
        ("snake", "use 127.0.0.1, set snake.tls = \"auto\", or"),
    ] {
        let enabled = match section {
            "postgres" | "otlp" => "enabled = true\n",
            "snake" => "tls = \"off\"\n",
            _ => "",
        };
        let file = format!("[{section}]\nhost = \"0.0.0.0\"\n{enabled}");
        let error = config(&file, &[]).unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("platform-mixer.toml:2: {section}.host: 0.0.0.0")),
            "{error}"
        );
        assert!(
            error.contains(guard) && error.contains(&format!("{section}.allow_insecure = true")),
            "{error}"
        );
        config(&format!("{file}allow_insecure = true\n"), &[]).unwrap();
    }
    config("[snake]\nhost = \"0.0.0.0\"\n", &[]).unwrap();
    let admits = "[enrollment]\nauto_adopt = true\n[snake]\nhost = \"0.0.0.0\"\n";
    let error = config(admits, &[]).unwrap_err().to_string();
    assert!(
        error.contains("enrollment.auto_adopt") && error.contains("platform racks invite"),
        "{error}"
    );
    config(&format!("{admits}allow_insecure = true\n"), &[]).unwrap();
    config("[snake]\nhost = \"0.0.0.0\"\nserver = \"external\"\n", &[]).unwrap();
}

#[test]
fn nobody_is_let_in_unasked_from_other_machines_and_tls_needs_both_files() {
    let tls = "tls_cert = \"cert.pem\"\ntls_key = \"key.pem\"\n";
    config(
        &format!("[api]\nhost = \"0.0.0.0\"\n{tls}[postgres]\nenabled = true\nhost = \"0.0.0.0\"\n"),
        &[],
    )
    .unwrap();
    for (file, says) in [
        (
            format!("[api]\nhost = \"0.0.0.0\"\nauth = \"off\"\n{tls}"),
            "api.auth: off is for loopback only",
        ),
        (
            format!("[api]\nauth = \"off\"\n{tls}[otlp]\nenabled = true\nhost = \"0.0.0.0\"\n"),
            "api.auth: off is for loopback only",
        ),
        (
            "[api]\ntls_cert = \"cert.pem\"\n".to_owned(),
            "api.tls_cert: it needs api.tls_key",
        ),
        (
            "[api]\ntls_key = \"key.pem\"\n".to_owned(),
            "api.tls_key: it needs api.tls_cert",
        ),
        (
            "[api]\ntls_client_ca = \"ca.pem\"\n".to_owned(),
            "api.tls_client_ca: it needs api.tls_cert",
        ),
        (
            "[api]\nallowed_hosts = [\"mixer\", \"a b\"]\n".to_owned(),
            "api.allowed_hosts",
        ),
    ] {
        let error = config(&file, &[]).unwrap_err().to_string();
        assert!(error.contains(says), "{says}: {error}");
    }
}

#[test]
fn what_this_version_does_not_do_is_said_key_by_key() {
    for (env, value, key) in [
        ("PLATFORM_OBSERVABILITY_TIER", "otlp", "observability.tier"),
        (
            "PLATFORM_OBSERVABILITY_OTLP_MESSAGES_ENABLED",
            "true",
            "otlp.messages.enabled",
        ),
    ] {
        let settings = load_from(&SCHEMA, "", &[(env, value)]).unwrap();
        let refused = check_start(&settings).unwrap_err().to_string();
        assert!(
            refused.contains(key) && refused.contains(env) && refused.contains("not in this version"),
            "{refused}"
        );
    }
}

#[test]
fn header_values_come_from_the_environment_and_are_never_shown() {
    let file = "[observability.otlp.headers]\nx-api-key = \"Bearer ${COLLECTOR_KEY}\"\n";
    let settings = load_from(&SCHEMA, file, &[("COLLECTOR_KEY", "s3cret")]).unwrap();
    let config = MixerConfig::of(&settings).unwrap();
    assert_eq!(config.otlp.headers["x-api-key"].expose(), "Bearer s3cret");
    assert!(!show_text(&settings, true).contains("s3cret"));
    assert!(!format!("{config:?}").contains("s3cret"));
    let unset = load_from(&SCHEMA, file, &[]).unwrap_err().to_string();
    assert!(
        unset.contains("platform-mixer.toml:1") && unset.contains("COLLECTOR_KEY"),
        "{unset}"
    );
    let plain = load_from(
        &SCHEMA,
        "[observability.otlp]\nheaders = { x-api-key = \"s3cret\" }\n",
        &[],
    );
    let plain = plain.unwrap_err().to_string();
    assert!(
        plain.contains(":2: observability.otlp.headers.x-api-key is a secret"),
        "{plain}"
    );
    assert!(
        plain.contains("PLATFORM_OBSERVABILITY_OTLP_HEADERS") && !plain.contains("s3cret"),
        "{plain}"
    );
}

#[test]
fn a_migrated_v0_4_4_file_loads_and_means_the_same() {
    let migrated = migrate(&SCHEMA, std::path::Path::new("old.toml"), OLD).unwrap();
    let config = config(&migrated.text, &[]).unwrap();
    assert_eq!(config.base.name.as_str(), "mixer-02");
    assert_eq!(config.snake.domain.as_str(), "plant");
    assert_eq!(config.snake.store_dir, PathBuf::from("data/js"));
    assert_eq!(config.mixer.startup_scenario.as_deref(), Some("line:3"));
    assert!(migrated.text.contains("# the leaf nodes know it"), "{}", migrated.text);
    let notes = migrated.notes.join("\n");
    for note in [
        "mixer.mixer_name is now base.name",
        "snake.cluster_name is now snake.domain",
        "mixer.machine_id dropped",
        "snake.stream_subjects dropped",
    ] {
        assert!(notes.contains(note), "{note} is missing in:\n{notes}");
    }
    let old = load_from(&SCHEMA, OLD, &[]).unwrap_err().to_string();
    assert!(
        old.contains("platform-mixer.toml:13: snake.cluster_name is no longer a key"),
        "{old}"
    );
}

#[test]
fn migrate_drops_the_retired_default_however_it_is_written_and_keeps_other_subjects_in_place() {
    let migrated = |text: &str| migrate(&SCHEMA, std::path::Path::new("old.toml"), text).unwrap().text;
    let dropped = migrated(
        "[snake]\nstream_subjects = [\n  'flux.msg.>', \"flux.gear.>\",\n  \"flux.telemetry.>\", # all\n] # default\nport = 1\n",
    );
    assert!(
        !dropped.contains("stream_subjects") && dropped.contains("port = 1"),
        "{dropped}"
    );
    for kept in [
        "snake = { stream_subjects = [\"flux.msg.>\", \"flux.gear.>\", \"mine.>\"], port = 1 }\n",
        "[snake]\nstream_subjects = [\"flux.msg.>\", \"flux.gear.>\"] # ours\nport = 1\n",
    ] {
        assert_eq!(migrated(kept), kept);
    }
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
